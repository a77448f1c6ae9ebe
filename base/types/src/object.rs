//! Objects: named, immutable data. Changed data has another version, and so is another object with
//! another id.

use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, TaskId};
use crate::name::{Name, scheme_of};

/// Scheme of what the cluster itself stores. A kept output is `eyas://JOB/TASK/FILE`: an object
/// that is in stores of executors only. A file of the cluster's file system is `eyas:///PATH`.
const CLUSTER: &str = "eyas://";

/// Distinguishes the contents that one source has at different times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// Version of a file on a web server, or on a file system without inodes that all nodes see:
    /// modification time and size.
    Modified {
        /// Nanoseconds since 1970-01-01, rounded to seconds if the source knows no better.
        mtime_ns: i64,
        /// Size of the content.
        size_bytes: u64,
    },
    /// Version of an object in S3 or on a web server: its entity tag. Also the checksum of a kept
    /// output.
    Etag {
        /// The tag, as the server sent it.
        etag: String,
        /// Size of the content.
        size_bytes: u64,
    },
    /// Version of a chunk of a file of the cluster, or of a file that has one chunk. The object is
    /// that chunk, so nodes that store the chunk have the object.
    Chunk {
        /// The chunk.
        chunk: ObjectId,
        /// CRC-64/NVME of the content.
        checksum: u64,
        /// Size of the content.
        size_bytes: u64,
    },
    /// Version of some bytes of a file of the cluster.
    Part {
        /// A digest of the content of the whole file.
        etag: String,
        /// Place of the first byte in the file.
        offset: u64,
        /// Number of bytes.
        size_bytes: u64,
    },
    /// Version of any other file. An archive may give a new file the time and size of the old one,
    /// but not the inode and the time of the last change.
    File {
        /// Nanoseconds since 1970-01-01.
        mtime_ns: i64,
        /// Size of the content.
        size_bytes: u64,
        /// Number of the inode.
        inode: u64,
        /// Time of the last change of content or attributes, nanoseconds since 1970-01-01.
        changed_ns: i64,
        /// The file system, by the number that its nodes know.
        system: u64,
    },
}

impl Version {
    /// Whether this and another version of one source have the same content. A node that sees the
    /// source on another file system, such as a copy on its own disk, sees other inodes: then only
    /// modification time and size count.
    pub fn is_same(&self, other: &Version) -> bool {
        let modified = |version: &Version| match version {
            Version::Modified { mtime_ns, size_bytes }
            | Version::File { mtime_ns, size_bytes, .. } => Some((*mtime_ns, *size_bytes)),
            _ => None,
        };
        match (self, other) {
            (Version::File { system: own, .. }, Version::File { system, .. }) if own == system => {
                self == other
            }
            _ => self == other || modified(self).is_some_and(|own| modified(other) == Some(own)),
        }
    }

    /// Size of the content at this version.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Version::Modified { size_bytes, .. }
            | Version::Etag { size_bytes, .. }
            | Version::Chunk { size_bytes, .. }
            | Version::Part { size_bytes, .. }
            | Version::File { size_bytes, .. } => *size_bytes,
        }
    }
}

impl ObjectId {
    /// The id of `source` (a URL) at `version`.
    pub fn of(source: &(impl AsRef<[u8]> + ?Sized), version: &Version) -> Self {
        if let Version::Chunk { chunk, .. } = version {
            return *chunk;
        }
        let source = source.as_ref();
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(source.len() as u64).to_le_bytes());
        hasher.update(source);
        match version {
            Version::Modified { mtime_ns, size_bytes } => {
                hasher.update(b"m");
                hasher.update(&mtime_ns.to_le_bytes());
                hasher.update(&size_bytes.to_le_bytes());
            }
            Version::Etag { etag, size_bytes } => {
                hasher.update(b"e");
                hasher.update(etag.as_bytes());
                hasher.update(&size_bytes.to_le_bytes());
            }
            Version::Part { etag, offset, size_bytes } => {
                hasher.update(b"p");
                hasher.update(etag.as_bytes());
                hasher.update(&offset.to_le_bytes());
                hasher.update(&size_bytes.to_le_bytes());
            }
            Version::File { mtime_ns, size_bytes, inode, changed_ns, system } => {
                hasher.update(b"f");
                for number in [
                    mtime_ns.cast_unsigned(),
                    *size_bytes,
                    *inode,
                    changed_ns.cast_unsigned(),
                    *system,
                ] {
                    hasher.update(&number.to_le_bytes());
                }
            }
            Version::Chunk { .. } => unreachable!("it has an id"),
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ObjectId(id)
    }
}

impl ObjectId {
    /// The id of the content of this object, if it is a compressed file.
    pub fn decompressed(self) -> Self {
        self.derived(b"decompressed", b"")
    }

    /// The id of the folder that a command makes of this object.
    pub fn prepared(self, command: &[u8]) -> Self {
        self.derived(b"prepared", command)
    }

    /// The id of the file in which this folder, which a command has made, is given to other nodes.
    pub fn packed(self) -> Self {
        self.derived(b"packed", b"")
    }

    fn derived(self, how: &[u8], by: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(how).update(&self.0).update(by);
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ObjectId(id)
    }
}

/// What an executor reports of a derived copy: of what it makes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyNews {
    /// A task needs the copy, which the executor lacks.
    Wanted,
    /// The executor has made the copy.
    Made {
        /// Size of the copy.
        size_bytes: u64,
        /// Time in which it was made, microseconds.
        took_us: u64,
    },
    /// The executor has not got the copy that it wanted.
    Missing,
    /// The executor has made the copy, and does not give it to others: that is not worthwhile.
    Private,
    /// The executor has not got the copy, because its task was stopped: nothing is wrong with the
    /// node or the input. Minor version 11.
    Stopped,
}

/// Permissions of a file: the nine bits that tell whether its owner, its group and all others may
/// read, write and execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMode(u16);

impl FileMode {
    /// All may read the file.
    pub const READABLE: FileMode = FileMode(0o444);
    /// All may read and execute it.
    pub const EXECUTABLE: FileMode = FileMode(0o555);

    /// The mode in the bits that `stat` tells.
    pub const fn of(bits: u32) -> Self {
        FileMode((bits & 0o777) as u16)
    }

    /// The mode of an input with these bits at its source, which every task may read:
    /// [`EXECUTABLE`](Self::EXECUTABLE) if any user may execute the source, else
    /// [`READABLE`](Self::READABLE).
    pub const fn of_source(bits: u32) -> Self {
        if FileMode::of(bits).is_executable() { FileMode::EXECUTABLE } else { FileMode::READABLE }
    }

    /// The mode of a copy of a file with these bits. A copy of an input has the input's mode, which
    /// no user may write; its owner may.
    pub const fn of_copy(bits: u32) -> Self {
        let mode = FileMode::of(bits);
        if mode.0 & 0o222 == 0 && mode.0 & 0o444 == 0o444 { FileMode(mode.0 | 0o200) } else { mode }
    }

    /// The same without the bits for other users that a file with these bits denies them, which it
    /// replaces.
    #[must_use]
    pub const fn replacing(self, bits: u32) -> Self {
        FileMode::of(self.bits() & (0o700 | bits | (bits & 0o044) >> 2))
    }

    /// The same, but no user may execute the file.
    #[must_use]
    pub const fn without_execution(self) -> Self {
        FileMode::of(self.bits() & !0o111)
    }

    /// The nine bits.
    pub const fn bits(self) -> u32 {
        // A mode that was received may have others.
        self.0 as u32 & 0o777
    }

    /// Whether any user may execute the file.
    pub const fn is_executable(self) -> bool {
        self.0 & 0o111 != 0
    }
}

/// An object: the source of its content, and the version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// A URL: `file:///path`, `http(s)://…` or `s3://bucket/key`; `eyas:///path` for a file of the cluster, and
    /// `eyas://job/task/path` for a kept output. The path of a `file` URL or kept output is not
    /// percent-encoded, and may have any bytes. All other URLs are UTF-8.
    pub source: Name,
    /// The version at submission. Tasks never read another version.
    pub version: Version,
    /// Permissions of the file. No task may write to its input, whatever they are.
    pub mode: FileMode,
}

impl ObjectSpec {
    /// A kept output: the file that `task` wrote as `file`. The version is the checksum of its
    /// content, so a task that runs again and writes the same content has made the same object.
    pub fn kept(
        task: TaskId,
        file: &(impl AsRef<[u8]> + ?Sized),
        size_bytes: u64,
        checksum: &str,
        mode: FileMode,
    ) -> Self {
        let mut source = Name::from(format!("{CLUSTER}{}/{}/", task.job, task.index));
        source.push(file);
        ObjectSpec { source, version: Version::Etag { etag: checksum.into(), size_bytes }, mode }
    }

    /// The name that the task has given the file, if the object is a kept output.
    pub fn kept_file(&self) -> Option<&[u8]> {
        kept_name(&self.source)?.splitn(3, |byte| *byte == b'/').nth(2)
    }

    /// Whether the object is a kept output: it is in stores of executors only, and is lost with its
    /// last replica.
    pub fn is_kept(&self) -> bool {
        kept_name(&self.source).is_some()
    }

    /// Whether it is a file of the cluster, or a part of one.
    pub fn is_cluster_file(&self) -> bool {
        self.is_in_cluster() && !self.is_kept()
    }

    /// Whether nodes of the cluster have the content: of a file of the cluster, or of a kept
    /// output.
    pub fn is_in_cluster(&self) -> bool {
        self.source.starts_with(CLUSTER.as_bytes())
    }

    /// The object's id: a digest of source and version, or the id of the chunk.
    pub fn id(&self) -> ObjectId {
        ObjectId::of(&self.source, &self.version)
    }

    /// Size of the content.
    pub fn size_bytes(&self) -> u64 {
        self.version.size_bytes()
    }

    /// Last component of the source, which is the default name of a staged copy.
    pub fn base_name(&self) -> &[u8] {
        let path = match scheme_of(&self.source) {
            Some((b"file" | b"eyas" | b"lfn", path)) => path,
            Some((_, rest)) => {
                rest.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or(rest)
            }
            None => &self.source,
        };
        let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
        let path = &path[..path.len() - slashes];
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }
}

/// The part of a kept output's URL after `eyas://`.
fn kept_name(url: &[u8]) -> Option<&[u8]> {
    url.strip_prefix(CLUSTER.as_bytes()).filter(|name| !name.starts_with(b"/"))
}

/// Whether a URL is the name of a kept output.
pub fn is_kept_name(url: &[u8]) -> bool {
    kept_name(url).is_some()
}
