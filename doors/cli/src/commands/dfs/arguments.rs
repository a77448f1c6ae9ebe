//! The arguments of `eyas dfs`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{Args, Subcommand};
use eyas_client::files::own_as;
use eyas_client::types::dfs::{DEFAULT_REPLICATION, FileName, Format, MODE_BITS, NodeId};
use eyas_client::types::{Name, units};
use eyas_client::{FileOwner, UserMap, UserMapError, name_of_user};
use eyas_session::Access;

use crate::error::ValueError;
use crate::words;

/// The owner of new files.
#[derive(Args)]
pub(crate) struct OwnerArgs {
    /// Map of users, a TOML file whose tables `users`, `keys` and `roles` have lines such as `anna
    /// = { uid = 1001, gid = 100 }`: new files belong to the owner of your access key, else of
    /// your user name, else of the key's role [default: your own user and group id]
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
}

impl OwnerArgs {
    /// The owner for the user and the key of this process; `None` without a map. All files that
    /// this process creates belong to this owner.
    pub fn apply(&self, access: &Access) -> Result<Option<FileOwner>, UserMapError> {
        self.users.as_deref().map(|path| own_by_map(path, access)).transpose()
    }
}

/// Makes the owner for the user and the key of this process, by a map of users, the owner of all
/// files that this process creates.
pub(crate) fn own_by_map(map: &Path, access: &Access) -> Result<FileOwner, UserMapError> {
    let owner = UserMap::read(map)?.owner_of(&name_of_user(), access.credentials().holder())?;
    own_as(owner.uid, owner.gid);
    Ok(owner)
}

#[derive(Subcommand)]
pub(crate) enum DfsCommand {
    /// Write local files into the file system; a file appears when nodes have it on disk
    Put {
        /// Local files, or folders with -r; `-` is standard input
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// Name of the new file; or, with a slash at the end, the folder for the new files
        name: String,
        /// Write folders with everything in them: files, subfolders and symbolic links, with
        /// permissions and times
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        owner: OwnerArgs,
        #[command(flatten)]
        shape: FileShapeArgs,
    },
    /// Copy files of the file system to local files
    Get {
        /// The file, or a pattern of files; or a folder, with -r
        name: String,
        /// Destination: a file, or a folder for several files; `-` is standard output [default:
        /// the name of the file, in the current folder]
        to: Option<PathBuf>,
        /// Copy a folder with everything in it: files, subfolders and symbolic links, with
        /// permissions and times
        #[arg(short, long)]
        recursive: bool,
        /// Replace existing files
        #[arg(long)]
        force: bool,
    },
    /// Make a file of a kept output, eyas://JOB/TASK/FILE, or copy a file of the file system, on
    /// the nodes that have the content
    Cp {
        /// The kept output, or the file
        #[arg(value_parser = words::name())]
        source: Name,
        /// Name of the new file; or, with a slash at the end, its folder
        #[arg(value_parser = words::name())]
        to: Name,
        #[command(flatten)]
        shape: CopyShapeArgs,
    },
    /// Remove files
    Rm {
        /// Files and patterns of files; or folders, with -r
        #[arg(required = true)]
        names: Vec<String>,
        /// Remove folders with everything in them
        #[arg(short, long)]
        recursive: bool,
    },
    /// Write files to standard output, one after the other
    Cat {
        /// Files and patterns of files; or folders, with -r
        #[arg(required = true)]
        names: Vec<String>,
        /// Write all files of folders, in order of name
        #[arg(short, long)]
        recursive: bool,
        /// Start at this byte of each file
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        offset: u64,
        /// Write up to this many bytes of each file
        #[arg(long, value_name = "BYTES")]
        length: Option<u64>,
    },
    /// List the files, folders and links in a folder
    Ls {
        /// The folder, or a file
        #[arg(default_value = "/")]
        folder: String,
        /// Show permissions and owners (user and group id), too
        #[arg(short)]
        long: bool,
        /// List everything below the folder
        #[arg(short, long)]
        recursive: bool,
    },
    /// Make folders
    Mkdir {
        /// The folders
        #[arg(required = true)]
        folders: Vec<FileName>,
        /// Make missing folders above them, and accept folders that exist
        #[arg(short, long)]
        parents: bool,
    },
    /// Remove empty folders
    Rmdir {
        /// The folders
        #[arg(required = true)]
        folders: Vec<FileName>,
    },
    /// Make a symbolic link, which a mount follows; other commands show it
    Ln {
        /// Make a symbolic link; there are no hard links
        #[arg(short, long, required = true)]
        symbolic: bool,
        /// The path that the link has
        target: String,
        /// The name of the link
        name: FileName,
    },
    /// Change the permissions of files and folders
    Chmod {
        /// The permissions, as an octal number such as 640
        #[arg(value_parser = parse_mode)]
        mode: u16,
        /// Files and folders
        #[arg(required = true)]
        names: Vec<FileName>,
        /// Change everything below folders, too
        #[arg(short, long)]
        recursive: bool,
    },
    /// Change the owners of files and folders
    Chown {
        /// The user id, and the group id after a colon: 1000, 1000:100 or :100
        owner: NewOwner,
        /// Files and folders
        #[arg(required = true)]
        names: Vec<FileName>,
        /// Change everything below folders, too
        #[arg(short, long)]
        recursive: bool,
    },
    /// Show which nodes hold the chunks of a file
    Show {
        /// The file
        name: FileName,
    },
    /// Append data to a file
    Append {
        /// Local file with the data; `-` is standard input
        source: PathBuf,
        /// The file
        name: FileName,
    },
    /// Change how files are divided into records; their content is cut anew
    Set {
        /// Record format: lines, csv, csv:delimiter=;,quote=', json-lines, fasta, fastq,
        /// fixed:BYTES, length-prefixed:4be, bgzf, bzip2, zstd or whole
        #[arg(long, value_name = "FORMAT")]
        records: Format,
        /// The files
        #[arg(required = true, value_name = "NAME")]
        names: Vec<FileName>,
    },
    /// Rename a file or folder
    Rename {
        /// The present name
        from: FileName,
        /// The new name
        to: FileName,
        /// Replace a file by a file, and an empty folder by a folder
        #[arg(short, long)]
        force: bool,
    },
    /// Show the size, record format, replicas, age, owner and permissions of a file, folder or link
    Stat {
        /// The file, folder or link
        name: FileName,
    },
    /// Limit the size and the number of files below a folder
    #[command(subcommand)]
    Quota(QuotaCommand),
    /// Show who changed files, when and from where, in order of time; needs a key of role admin
    Audit {
        /// The folder
        #[arg(default_value = "/")]
        folder: String,
        /// Show changes of this last time only, such as 1h
        #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
        since: Option<u64>,
    },
    /// Show the total size of the files of a folder; without a folder, also the usage of each node
    Du {
        /// The folder
        folder: Option<String>,
    },
    /// Restore the lost chunks of a file from a copy of the file
    ///
    /// `eyas dfs verify` lists lost chunks. The bytes of a chunk are taken from COPY if they match
    /// its checksum.
    Restore {
        /// A local copy of the file
        copy: PathBuf,
        /// The file with lost chunks
        name: FileName,
    },
    /// Check the replicas of files: replace missing and damaged replicas, and list lost chunks
    Verify {
        /// Files and folders
        #[arg(default_values_t = [String::from("/")])]
        names: Vec<String>,
        /// Check only that the replicas exist, without reading them
        #[arg(long)]
        quick: bool,
    },
    /// Move chunks to nodes that joined after the files were written
    Rebalance {
        /// Folder of the files
        #[arg(default_value = "/")]
        folder: String,
    },
    /// Continue without nodes that are permanently lost, if at least half of the nodes are missing;
    /// without options, list the missing nodes
    Recover {
        /// A missing node to give up, together with the data that only this node holds (repeat for
        /// each missing node)
        #[arg(long, value_name = "NODE")]
        without: Vec<NodeId>,
        /// Forget the file system of the cluster, while no node is connected; the next node that
        /// joins determines it
        #[arg(long, conflicts_with = "without")]
        anew: bool,
    },
    /// Remove all files of the file system
    Format {
        /// Confirm that all files are to be removed
        #[arg(long, required = true)]
        yes: bool,
    },
}

#[derive(Subcommand)]
pub(crate) enum QuotaCommand {
    /// Set the quota of a folder, in place of the one that it has
    #[command(
        group(clap::ArgGroup::new("limits").required(true).multiple(true).args(["bytes", "files"]))
    )]
    Set {
        /// The folder
        folder: FileName,
        /// Maximum size of all files below it together; replicas do not count
        #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
        bytes: Option<u64>,
        /// Maximum number of files, folders and links below it
        #[arg(long, value_name = "N")]
        files: Option<u64>,
    },
    /// Show the quota and the use of a folder, or of all folders that have a quota
    Show {
        /// The folder
        folder: Option<FileName>,
    },
    /// Remove the quota of a folder
    Remove {
        /// The folder
        folder: FileName,
    },
}

/// Options for writing files.
#[derive(Args, Clone, Copy)]
pub(crate) struct FileShapeArgs {
    /// Record format, so that chunks end between records: lines, csv, csv:delimiter=;,quote=',
    /// json-lines, fasta, fastq, fixed:BYTES, length-prefixed:4be, bgzf, bzip2, zstd or whole
    /// [default: chosen by the name and the first bytes of the file]
    #[arg(long)]
    pub format: Option<Format>,
    /// Size of the chunks, from 1KiB to 1GiB
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_chunk_bytes)]
    pub chunk_size: u64,
    /// Number of replicas of each chunk
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_REPLICATION,
        value_parser = clap::value_parser!(u8).range(1..)
    )]
    pub replicas: u8,
}

/// Options for copies.
#[derive(Args, Clone, Copy)]
pub(crate) struct CopyShapeArgs {
    /// Record format of a file that is made of a kept output [default: chosen by the ending and
    /// the first bytes of the output]
    #[arg(long)]
    pub format: Option<Format>,
    /// Size of the chunks of a file that is made of a kept output, from 1KiB to 1GiB [default:
    /// 4MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_chunk_bytes)]
    pub chunk_size: Option<u64>,
    /// Number of replicas of each chunk [default: 3; for a copy of a file, as many as the file
    /// has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub replicas: Option<u8>,
}

/// The owner that `chown` sets: a part that is missing stays as it is.
#[derive(Clone, Copy)]
pub(crate) struct NewOwner {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl FromStr for NewOwner {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || ValueError::Owner(text.into());
        let id =
            |text: &str| (!text.is_empty()).then(|| text.parse().map_err(|_| wrong())).transpose();
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let owner = NewOwner { uid: id(user)?, gid: id(group)? };
        if owner.uid.or(owner.gid).is_none() { Err(wrong()) } else { Ok(owner) }
    }
}

fn parse_mode(text: &str) -> Result<u16, ValueError> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= MODE_BITS);
    mode.ok_or_else(|| ValueError::Mode(text.into()))
}

/// Minimum size of a chunk: the overhead of smaller chunks is too high.
const MIN_CHUNK_BYTES: u64 = 1 << 10;
/// Maximum size of a chunk: a chunk must fit in memory.
const MAX_CHUNK_BYTES: u64 = 1 << 30;

fn parse_chunk_bytes(text: &str) -> Result<u64, ValueError> {
    match units::parse_bytes(text)? {
        bytes @ MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES => Ok(bytes),
        _ => Err(ValueError::ChunkSize(text.into())),
    }
}
