//! Files of the distributed file system: names, formats, and records.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};
use thiserror::Error;

use crate::id::{IdError, ObjectId};
use crate::object::Version;
use crate::shown::{MAX_QUOTED_CHARS, shortened};

mod attributes;
mod dialect;
mod format;
mod named;
mod unsynced;

pub use attributes::{AttributeChange, Attributes, FileKind, MODE_BITS, Quota, nearest_ns};
pub use dialect::CsvDialect;
pub use format::{Format, FormatError, FormatTextProblem, PROBED_BYTES, RecordFormat, is_text};
pub use named::{
    MAX_ATTRIBUTE_NAME_BYTES, MAX_ATTRIBUTES_BYTES, NamedAttributeError, NamedAttributes,
    NamedChange, OWN_ATTRIBUTES, SetCondition,
};
pub use unsynced::Unsynced;

/// Longest name of a file: the bound of Linux on paths.
pub const MAX_NAME_BYTES: usize = 4095;

/// Longest part of a name between slashes: the bound of Linux on names.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// Largest number of chunks of a file, because its record is read and written as a whole. Larger
/// files need larger chunks.
pub const MAX_CHUNKS: usize = 1 << 16;

/// Default size of a chunk.
pub const DEFAULT_CHUNK_BYTES: u64 = 4 << 20;

/// Default number of replicas of a chunk.
pub const DEFAULT_REPLICATION: u8 = 3;

/// The id of a node of the file system. Random, and kept in the node's folder: a new folder is
/// another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = IdError;

    /// Parses the form that is shown.
    fn from_str(text: &str) -> Result<Self, IdError> {
        let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        number
            .map(NodeId)
            .ok_or_else(|| IdError::Node(shortened(text, MAX_QUOTED_CHARS).into_owned()))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// The id of a file system. A file system that is started again from nothing has another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileSystemId(pub u64);

impl FileSystemId {
    /// The file system that a node founds. A node founds at most one.
    pub fn founded_by(node: NodeId) -> Self {
        FileSystemId(node.0)
    }

    /// The node that founded it.
    pub fn founder(self) -> NodeId {
        NodeId(self.0)
    }
}

impl fmt::Display for FileSystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for FileSystemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSystemId({self})")
    }
}

/// The id of a file: random, and kept when the file is renamed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId(pub u128);

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileId({self})")
    }
}

/// The name of a file: `/` and components. No component is empty, `.` or `..`, or contains a NUL
/// byte. Never a path on a node's own disk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FileName(String);

impl FileName {
    /// The name with its leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the last slash.
    pub fn base_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The folder of the file; `None` if that is the root.
    pub fn parent(&self) -> Option<FileName> {
        self.0.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty()).map(
            |parent| {
                // A part of a name up to a slash is a name.
                FileName(parent.to_owned())
            },
        )
    }

    /// The name that a file has when the folder `from` above it becomes `to`.
    ///
    /// # Errors
    /// If the new name is too long.
    pub fn moved(&self, from: &FileName, to: &FileName) -> Result<FileName, FileNameError> {
        let rest = self.0.strip_prefix(from.as_str()).unwrap_or(&self.0);
        format!("{to}{rest}").parse()
    }

    /// Whether the file is in the folder `prefix`, or has that name itself. The root is the empty
    /// prefix.
    pub fn is_within(&self, prefix: &str) -> bool {
        let prefix = prefix.trim_end_matches('/');
        self.0.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileName({:?})", self.0)
    }
}

/// A text is not a name of a file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{}` is not a name of a file: {problem}", shortened(text, MAX_QUOTED_CHARS))]
pub struct FileNameError {
    /// The text.
    pub text: String,
    /// The rule that it breaks.
    pub problem: FileNameProblem,
}

/// Rules for names of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FileNameProblem {
    /// There is no component.
    #[error("it is empty; a name is for example /data/sky.csv")]
    Empty,
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("it has {bytes} bytes, and at most {MAX_NAME_BYTES} are possible")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Two slashes in a row, or a slash at the end.
    #[error("a part between two slashes, or after the last slash, is empty")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("`.` and `..` are not resolved: write the whole name")]
    Relative,
    /// A component is longer than [`MAX_COMPONENT_BYTES`].
    #[error("a part between slashes has more than {MAX_COMPONENT_BYTES} bytes")]
    ComponentTooLong,
    /// A component contains a NUL byte.
    #[error("it contains a NUL byte")]
    Nul,
}

impl FromStr for FileName {
    type Err = FileNameError;

    /// Takes a name with or without its leading slash.
    fn from_str(text: &str) -> Result<Self, FileNameError> {
        let wrong = |problem| Err(FileNameError { text: text.into(), problem });
        let rest = text.strip_prefix('/').unwrap_or(text);
        if rest.is_empty() {
            return wrong(FileNameProblem::Empty);
        }
        if rest.len() >= MAX_NAME_BYTES {
            return wrong(FileNameProblem::TooLong { bytes: text.len() });
        }
        for component in rest.split('/') {
            match component {
                "" => return wrong(FileNameProblem::EmptyComponent),
                "." | ".." => return wrong(FileNameProblem::Relative),
                _ if component.len() > MAX_COMPONENT_BYTES => {
                    return wrong(FileNameProblem::ComponentTooLong);
                }
                _ if component.contains('\0') => return wrong(FileNameProblem::Nul),
                _ => {}
            }
        }
        Ok(FileName(format!("/{rest}")))
    }
}

impl<'de> Deserialize<'de> for FileName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// A stored part of a file: some whole records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The chunk's object in the nodes' stores.
    pub object: ObjectId,
    /// Size of the content.
    pub size_bytes: u64,
    /// CRC-64/NVME of the content, the store's checksum.
    pub checksum: u64,
    /// Nodes that store a replica. At least one, unless the chunk [is a hole](Chunk::is_hole).
    pub replicas: Vec<NodeId>,
}

impl Chunk {
    /// A chunk of zeros, which no node stores. `checksum` is that of the zeros.
    pub fn hole(size_bytes: u64, checksum: u64) -> Self {
        Chunk { object: hole_object(size_bytes), size_bytes, checksum, replicas: Vec::new() }
    }

    /// Whether the content is zeros that no node stores.
    pub fn is_hole(&self) -> bool {
        self.object == hole_object(self.size_bytes)
    }

    /// The object of a chunk of `file` with this content.
    pub fn object_of(file: FileId, size_bytes: u64, checksum: u64) -> ObjectId {
        let version = Version::Etag { etag: format!("{checksum:016x}"), size_bytes };
        ObjectId::of(&format!("chunk:{file}"), &version)
    }
}

/// Size of chunks together. What a client has sent may be any numbers.
fn total<'a>(chunks: impl Iterator<Item = &'a Chunk>) -> u64 {
    chunks.fold(0, |bytes, chunk| bytes.saturating_add(chunk.size_bytes))
}

/// The object of a hole of this size. Objects of other chunks are hashes, whose first half is not 0
/// in practice.
fn hole_object(size_bytes: u64) -> ObjectId {
    ObjectId(u128::from(size_bytes).to_be_bytes())
}

/// The metadata of a file, a folder or a symbolic link. Its leader has the record, and so have the
/// nodes that take over from the leader. Only files have chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The file.
    pub id: FileId,
    /// The kind of the entry.
    pub kind: FileKind,
    /// Owner, permissions and times.
    pub attributes: Attributes,
    /// What programs have noted beside the content.
    pub named: NamedAttributes,
    /// Limits on everything below this folder.
    pub quota: Option<Quota>,
    /// The format of its records, and whether it was only guessed.
    pub format: RecordFormat,
    /// A chunk ends with the first record that ends at or after a multiple of this size in the
    /// file.
    pub chunk_bytes: u64,
    /// Wanted number of replicas of each chunk; fewer if there are fewer nodes.
    pub replication: u8,
    /// The chunks, in the order of the file.
    pub chunks: Vec<Chunk>,
    /// Set while the content may not be on the disks of its nodes.
    pub unsynced: Option<Unsynced>,
}

impl FileRecord {
    /// The record of a new folder or symbolic link.
    pub fn without_content(id: FileId, kind: FileKind, attributes: Attributes) -> Self {
        FileRecord {
            id,
            kind,
            attributes,
            named: NamedAttributes::default(),
            quota: None,
            format: Format::Whole.into(),
            chunk_bytes: DEFAULT_CHUNK_BYTES,
            replication: DEFAULT_REPLICATION,
            chunks: Vec::new(),
            unsynced: None,
        }
    }

    /// Size of the content; of a symbolic link, the length of its target.
    pub fn size_bytes(&self) -> u64 {
        match &self.kind {
            FileKind::SymbolicLink(target) => target.len() as u64,
            FileKind::File | FileKind::Folder => total(self.chunks.iter()),
        }
    }

    /// The chunks that one program has to read, since each begins with a record: single chunks, or
    /// all chunks of a file that is one record.
    pub fn blocks(&self) -> impl Iterator<Item = &[Chunk]> {
        let together = if *self.format == Format::Whole { self.chunks.len().max(1) } else { 1 };
        self.chunks.chunks(together)
    }

    /// Size of the chunks that no node stores.
    pub fn hole_bytes(&self) -> u64 {
        total(self.chunks.iter().filter(|chunk| chunk.is_hole()))
    }

    /// Whether both records describe the same content of the same file; replicas and attributes may
    /// differ.
    pub fn is_as_written(&self, other: &FileRecord) -> bool {
        let objects = |record: &FileRecord| {
            record.chunks.iter().map(|chunk| chunk.object).collect::<Vec<_>>()
        };
        self.id == other.id && self.format == other.format && objects(self) == objects(other)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_are_checked() {
        for (text, name) in [("/a/b", "/a/b"), ("a", "/a"), ("/ü/x y", "/ü/x y"), ("...", "/...")]
        {
            assert_eq!(text.parse::<FileName>().unwrap().as_str(), name);
        }
        let long = "x/".repeat(3000);
        for text in
            ["", "/", "//", "a//b", "a/", "/..", "a/../b", "./a", "a\0b", &long, &"x".repeat(256)]
        {
            let error = text.parse::<FileName>().unwrap_err().to_string();
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn folders_are_parts_of_names() {
        let name: FileName = "/a/bc/d".parse().unwrap();
        let folder = name.parent().unwrap();
        assert_eq!(folder.as_str(), "/a/bc");
        assert_eq!(folder.parent().unwrap().parent(), None);
        assert_eq!(name.moved(&folder, &"/e".parse().unwrap()).unwrap().as_str(), "/e/d");
        assert!(
            name.moved(&folder, &format!("/{}", "x/".repeat(2046) + "x").parse().unwrap()).is_err()
        );
        for (prefix, within) in [
            ("", true),
            ("/", true),
            ("/a", true),
            ("/a/", true),
            ("/a/b", false),
            ("/a/bc/d", true),
        ] {
            assert_eq!(name.is_within(prefix), within, "{prefix}");
        }
        assert_eq!(name.base_name(), "d");
    }
}
