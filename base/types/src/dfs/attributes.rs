//! Kinds, attributes and quotas of the entries of the file system.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// The kind of an entry. It never changes while the entry has its id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    /// A file with content.
    #[default]
    File,
    /// A folder. Its entries are the names below it; the folder itself has no list of them.
    Folder,
    /// A symbolic link with its target, which is not interpreted: a mount leaves that to the
    /// kernel.
    SymbolicLink(String),
}

impl FileKind {
    /// Whether the entry is a folder.
    pub fn is_folder(&self) -> bool {
        *self == FileKind::Folder
    }
}

/// The owner, the permissions and the times of an entry. The time of the last access is not kept,
/// as on a file system that is mounted with `noatime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits, with those for setuid, setgid and sticky: up to `0o7777`.
    pub mode: u16,
    /// User id of the owner.
    pub uid: u32,
    /// Group id of the owner.
    pub gid: u32,
    /// When the content was last written, or the time that a program has set, nanoseconds since
    /// 1970.
    pub modified_ns: u64,
    /// When the content or an attribute was last changed, nanoseconds since 1970.
    pub changed_ns: u64,
}

impl Attributes {
    /// When the content was last written, microseconds since 1970.
    pub fn modified_us(&self) -> u64 {
        self.modified_ns / 1000
    }

    /// The attributes after a change at the time `now_ns`.
    #[must_use]
    pub fn with(&self, change: &AttributeChange, now_ns: u64) -> Self {
        Attributes {
            mode: change.mode.unwrap_or(self.mode) & MODE_BITS,
            uid: change.uid.unwrap_or(self.uid),
            gid: change.gid.unwrap_or(self.gid),
            modified_ns: change.modified_ns.unwrap_or(self.modified_ns),
            changed_ns: now_ns,
        }
    }
}

/// The nearest time that [`Attributes`] can have, from 1970 to 2554, to one that is this many
/// nanoseconds after 1970; `None` stands for any time before 1970.
pub fn nearest_ns(since_1970: Option<u128>) -> u64 {
    since_1970.map_or(0, |since| u64::try_from(since).unwrap_or(u64::MAX))
}

/// The bits of [`Attributes::mode`].
pub const MODE_BITS: u16 = 0o7777;

/// A change of attributes. An attribute that is `None` keeps its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// New permission bits.
    pub mode: Option<u16>,
    /// New user id.
    pub uid: Option<u32>,
    /// New group id.
    pub gid: Option<u32>,
    /// New time of the last write, nanoseconds since 1970.
    pub modified_ns: Option<u64>,
}

/// Limits on everything below a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quota {
    /// Maximum size of all files together, bytes. Replicas do not count.
    pub bytes: Option<u64>,
    /// Maximum number of files, folders and links.
    pub files: Option<u64>,
}
