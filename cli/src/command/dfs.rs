//! The words of `eyas dfs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use eyas_client::types::dfs::{DEFAULT_REPLICATION, FileName, Format, NodeId};
use eyas_client::types::units;

#[derive(Subcommand)]
pub(crate) enum DfsCommand {
    /// Write local files into the file system
    Put {
        /// Files, or folders with -r; `-` is standard input
        #[arg(required = true)]
        sources: Vec<PathBuf>,
        /// The file's name; or, if it ends with a slash, the folder to put them in
        name: String,
        /// Folders, with all that is in them
        #[arg(short, long)]
        recursive: bool,
        #[command(flatten)]
        shape: FileShapeArgs,
    },
    /// Write a file of the file system to a local one
    Get {
        /// The file, or a pattern of files; or a folder, with -r
        name: String,
        /// Where to; `-` is standard output; for a pattern, a folder [default: its own name, in this folder]
        to: Option<PathBuf>,
        /// A folder, with all that is in it
        #[arg(short, long)]
        recursive: bool,
        /// Replace what is there
        #[arg(long)]
        force: bool,
    },
    /// Remove files
    Rm {
        /// Files and patterns of files; or folders, with -r
        #[arg(required = true)]
        names: Vec<String>,
        /// Folders, with all that is in them
        #[arg(short, long)]
        recursive: bool,
    },
    /// Write files to standard output, one after the other
    Cat {
        /// Files and patterns of files; or folders, with -r
        #[arg(required = true)]
        names: Vec<String>,
        /// Folders, with all that is in them, in order of name
        #[arg(short, long)]
        recursive: bool,
        /// From this byte on
        #[arg(long, value_name = "BYTES", default_value_t = 0)]
        offset: u64,
        /// No more than so many bytes
        #[arg(long, value_name = "BYTES")]
        length: Option<u64>,
    },
    /// List the files of a folder, and in those within it
    Ls {
        /// The folder
        #[arg(default_value = "/")]
        folder: String,
    },
    /// Show where a file's chunks are
    Show {
        /// The file
        name: FileName,
    },
    /// Add to a file
    Append {
        /// What is added; `-` is standard input
        source: PathBuf,
        /// The file
        name: FileName,
    },
    /// Call a file by another name
    Rename {
        /// Its name
        from: FileName,
        /// Its new name
        to: FileName,
    },
    /// Show what is known of a file
    Stat {
        /// The file
        name: FileName,
    },
    /// Sum up the files of a folder; without one, what nodes have, too
    Du {
        /// The folder
        folder: Option<String>,
    },
    /// Bring the lost chunks of a file back from a copy of the file
    ///
    /// `eyas dfs verify` names lost chunks. Each range of bytes is taken from COPY if it matches the checksum of the chunk.
    Restore {
        /// A file on this machine with the same bytes
        copy: PathBuf,
        /// The file of the cluster
        name: FileName,
    },
    /// See whether all replicas of files are where they are to be; what is not is replaced, and what is lost is said
    Verify {
        /// Files and folders
        #[arg(default_values_t = [String::from("/")])]
        names: Vec<String>,
        /// Only ask for them; do not have their content read
        #[arg(long)]
        quick: bool,
    },
    /// Move chunks to nodes that have joined since files were written
    Rebalance {
        /// Files of this folder
        #[arg(default_value = "/")]
        folder: String,
    },
    /// Go on without nodes that are lost for good, where more than half of them are; says which are missing
    Recover {
        /// A node that is lost for good, with all that only it had (again for each that is missing)
        #[arg(long, value_name = "NODE")]
        without: Vec<NodeId>,
        /// Let the next node that joins say which file system this cluster has, or begin another; while none is there
        #[arg(long, conflicts_with = "without")]
        anew: bool,
    },
    /// Remove all files
    Format {
        /// It is meant
        #[arg(long, required = true)]
        yes: bool,
    },
}

/// How files are written.
#[derive(Args, Clone, Copy)]
pub(crate) struct FileShapeArgs {
    /// What a record is, none of which is cut in two: lines, csv, json-lines, fasta, fastq, fixed:BYTES,
    /// length-prefixed:4be, whole [default: by the file's ending and its first bytes]
    #[arg(long)]
    pub format: Option<Format>,
    /// Size of chunks
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_chunk_bytes)]
    pub chunk_size: u64,
    /// Replicas of each chunk
    #[arg(long, value_name = "N", default_value_t = DEFAULT_REPLICATION, value_parser = clap::value_parser!(u8).range(1..))]
    pub replicas: u8,
}

/// Smaller chunks cost more than they are worth.
const MIN_CHUNK_BYTES: u64 = 1 << 10;
/// Larger ones do not fit in memory.
const MAX_CHUNK_BYTES: u64 = 1 << 30;

fn parse_chunk_bytes(text: &str) -> Result<u64, String> {
    match units::parse_bytes(text).map_err(|e| e.to_string())? {
        bytes @ MIN_CHUNK_BYTES..=MAX_CHUNK_BYTES => Ok(bytes),
        _ => Err(format!("`{text}` is no size of a chunk: it is between 1KiB and 1GiB")),
    }
}
