//! Ids of objects, output places, jobs, tasks and executors. Each is a type of its own.

use core::fmt;
use core::str::FromStr;

use alloc::string::String;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// A text is not an id of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdError {
    /// Not an [`ObjectId`].
    #[error("`{0}` is not an object id: object ids have 32 hexadecimal digits")]
    Object(String),
    /// Not a [`JobId`].
    #[error("`{0}` is not a job id: jobs are numbered from 1, see `eyas job list`")]
    Job(String),
    /// Not a [`TaskId`].
    #[error("`{0}` is not a task id: write JOB.INDEX, for example 3.17")]
    Task(String),
    /// Not a [`KeyId`](crate::access::KeyId).
    #[error("`{0}` is not a key id: write for example k3, see `eyas access show`")]
    Key(String),
    /// Not a [`NodeId`](crate::dfs::NodeId).
    #[error("`{0}` is not the id of a node of the file system: write its 16 hexadecimal digits")]
    Node(String),
}

/// The id of an object: the first 128 bits of BLAKE3 over its source and version. A changed file
/// has another id. A file of the cluster that is one chunk has the chunk's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub [u8; 16]);

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
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Object(text.into());
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

/// The id of a place in persistent storage: the first 128 bits of BLAKE3 over its path with
/// symbolic links resolved, or over its URL. Two outputs that would replace each other have the
/// same place, whatever paths their tasks use.
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

/// The number of a job of one dispatcher, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        match text.parse() {
            Ok(id) if id > 0 => Ok(JobId(id)),
            _ => Err(IdError::Job(text.into())),
        }
    }
}

/// The id of a task: its job, and its index in the job. Written `JOB.INDEX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The task's job.
    pub job: JobId,
    /// Index in the job, from 0.
    pub index: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.index)
    }
}

impl FromStr for TaskId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError::Task(text.into());
        let (job, index) = text.split_once('.').ok_or_else(wrong)?;
        Ok(TaskId {
            job: job.parse().map_err(|_| wrong())?,
            index: index.parse().map_err(|_| wrong())?,
        })
    }
}

/// In formats for people, such as JSON, an id is the text that is also shown, so that the output of
/// one command is the input of another. On the wire it is binary.
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
written_for_people!(TaskId, (JobId, u32), |id| (id.job, id.index), |(job, index)| TaskId {
    job,
    index
});

/// The number of an executor of one dispatcher. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExecutorId(pub u32);

impl fmt::Display for ExecutorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}
