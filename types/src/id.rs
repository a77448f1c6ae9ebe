//! Ids. Newtypes, so that a task is never mistaken for an executor.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::object::Version;

/// Names an object: the first 128 bits of BLAKE3 over its source and version. A changed file has another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 16]);

impl ObjectId {
    /// The id of `source` (a URL) at `version`.
    pub fn of(source: &(impl AsRef<[u8]> + ?Sized), version: &Version) -> Self {
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
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        ObjectId(id)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({self})")
    }
}

impl FromStr for ObjectId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || alloc::format!("`{text}` is not an object id: it has 32 hexadecimal digits");
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = core::str::from_utf8(pair).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
        }
        Ok(ObjectId(id))
    }
}

/// Names a place in persistent storage: the first 128 bits of BLAKE3 over its path, in which symbolic links are
/// resolved, or its URL. So two outputs that would replace each other have one place, by whatever paths their tasks go
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PlaceId(pub [u8; 16]);

impl PlaceId {
    /// The place of a resolved path, or of a URL.
    pub fn of(path_or_url: &[u8]) -> Self {
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::hash(path_or_url).as_bytes()[..16]);
        PlaceId(id)
    }
}

/// Names a job of one dispatcher. Counts from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) if id > 0 => Ok(JobId(id)),
            _ => Err(alloc::format!("`{text}` is not a job id: jobs are numbered from 1, see `eyas job list`")),
        }
    }
}

/// Names a task: the job and the task's place in it, from 0. Written `JOB.INDEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The job.
    pub job: JobId,
    /// Place in the job, from 0.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

impl FromStr for TaskId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || alloc::format!("`{text}` is not a task id: it is written JOB.INDEX, for example 3.17");
        let (job, index) = text.split_once('.').ok_or_else(wrong)?;
        Ok(TaskId { job: job.parse().map_err(|_| wrong())?, index: index.parse().map_err(|_| wrong())? })
    }
}

/// For people and their programs ids are written as they are shown, so that what one command prints another takes; on
/// the wire they are as short as can be.
macro_rules! written_for_people {
    ($id:ident, $short:ty, |$from:ident| $to_short:expr, |$into:pat_param| $of_short:expr) => {
        impl Serialize for $id {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let $from = self;
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    $to_short.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
                } else {
                    <$short>::deserialize(deserializer).map(|$into| $of_short)
                }
            }
        }
    };
}

written_for_people!(ObjectId, [u8; 16], |id| id.0, |bytes| ObjectId(bytes));
written_for_people!(TaskId, (JobId, u32), |id| (id.job, id.index), |(job, index)| TaskId { job, index });

/// Names an executor of one dispatcher; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExecutorId(pub u32);

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}
