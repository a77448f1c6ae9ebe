//! Objects: named, immutable data. What changes gets another version, and so another id.

use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

use crate::id::{ObjectId, TaskId};
use crate::name::{Name, scheme_of};

/// How the source of an object begins that is in executors' stores alone: what a task wrote and the cluster keeps.
const KEPT: &str = "eyas://";

/// Identity of the content of a source: a changed file has another version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Version {
    /// Size and modification time: what a file system knows.
    Modified {
        /// Nanoseconds since 1970-01-01; seconds precision where the source has no better.
        mtime_ns: i64,
        /// Size of the content.
        size_bytes: u64,
    },
    /// An object store's or web server's entity tag.
    Etag {
        /// The tag, as the server wrote it.
        etag: String,
        /// Size of the content.
        size_bytes: u64,
    },
}

impl Version {
    /// Size of the content at this version.
    pub fn size_bytes(&self) -> u64 {
        match self {
            Version::Modified { size_bytes, .. } | Version::Etag { size_bytes, .. } => *size_bytes,
        }
    }
}

/// The source of an object in persistent storage, and its version there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSpec {
    /// A URL: `file:///path`, `http(s)://…`, `s3://bucket/key`; `eyas://job/task/path` for what is kept in the cluster.
    /// The path of a `file` or `eyas` URL is not percent-encoded, and may be any bytes; all others are UTF-8.
    pub source: Name,
    /// The version that tasks were promised.
    pub version: Version,
    /// Whether a staged copy is executable.
    pub executable: bool,
}

impl ObjectSpec {
    /// The kept output `file` of `task`. The checksum of its content is its version: a task that runs
    /// again and writes the same has made the same object.
    pub fn kept(
        task: TaskId,
        file: &(impl AsRef<[u8]> + ?Sized),
        size_bytes: u64,
        checksum: &str,
        executable: bool,
    ) -> Self {
        let mut source = Name::from(format!("{KEPT}{}/{}/", task.job, task.index));
        source.push(file);
        ObjectSpec { source, version: Version::Etag { etag: checksum.into(), size_bytes }, executable }
    }

    /// The file that it is of what a task wrote, if it is in executors' stores alone.
    pub fn kept_file(&self) -> Option<&[u8]> {
        self.source.strip_prefix(KEPT.as_bytes())?.splitn(3, |byte| *byte == b'/').nth(2)
    }

    /// Whether it is in executors' stores alone, so that with its last replica it is gone.
    pub fn is_kept(&self) -> bool {
        self.source.starts_with(KEPT.as_bytes())
    }

    /// The object's id.
    pub fn id(&self) -> ObjectId {
        ObjectId::of(&self.source, &self.version)
    }

    /// Size of the content.
    pub fn size_bytes(&self) -> u64 {
        self.version.size_bytes()
    }

    /// Last component of the source: the name a staged copy gets, unless the input says otherwise.
    pub fn base_name(&self) -> &[u8] {
        let path = match scheme_of(&self.source) {
            Some((b"file" | b"eyas", path)) => path,
            Some((_, rest)) => rest.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or(rest),
            None => &self.source,
        };
        let slashes = path.iter().rev().take_while(|byte| **byte == b'/').count();
        let path = &path[..path.len() - slashes];
        path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
    }
}
