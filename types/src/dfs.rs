//! Files of the distributed file system: names, formats, and records.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use crate::id::{IdError, ObjectId};
use crate::object::Version;

mod attributes;
mod unsynced;

pub use attributes::{AttributeChange, Attributes, FileKind, MODE_BITS, Quota, nearest_ns};
pub use unsynced::Unsynced;

/// Longest name of a file: the bound of Linux on paths.
pub const MAX_NAME_BYTES: usize = 4095;

/// Longest part of a name between slashes: the bound of Linux on names.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// Largest number of chunks of a file, because its record is read and written as a whole. Larger files need larger
/// chunks.
pub const MAX_CHUNKS: usize = 1 << 16;

/// Default size of a chunk.
pub const DEFAULT_CHUNK_BYTES: u64 = 4 << 20;

/// Default number of replicas of a chunk.
pub const DEFAULT_REPLICATION: u8 = 3;

/// The id of a node of the file system. Random, and kept in the node's folder: a new folder is another node.
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
        number.map(NodeId).ok_or_else(|| IdError::Node(shortened(text)))
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

/// The name of a file: `/` and components. No component is empty, `.` or `..`, or contains a NUL byte. Never a path on
/// a node's own disk.
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
        self.0.rsplit_once('/').map(|(parent, _)| parent).filter(|parent| !parent.is_empty()).map(|parent| {
            // A part of a name up to a slash is a name.
            FileName(parent.to_owned())
        })
    }

    /// The name that a file has when the folder `from` above it becomes `to`.
    ///
    /// # Errors
    /// If the new name is too long.
    pub fn moved(&self, from: &FileName, to: &FileName) -> Result<FileName, FileNameError> {
        let rest = self.0.strip_prefix(from.as_str()).unwrap_or(&self.0);
        format!("{to}{rest}").parse()
    }

    /// Whether the file is in the folder `prefix`, or has that name itself. The root is the empty prefix.
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
#[error("`{}` is not a name of a file: {problem}", shortened(text))]
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
                _ if component.len() > MAX_COMPONENT_BYTES => return wrong(FileNameProblem::ComponentTooLong),
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

/// The beginning of a text, for an error.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The format of a file's records; no chunk ends inside a record. As text, for example `fasta` or `fixed:100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of text, each ended by a line feed.
    Lines,
    /// Comma-separated values, with line feeds in quotes (RFC 4180).
    Csv,
    /// One JSON value on each line.
    JsonLines,
    /// Records of one size.
    Fixed {
        /// The size; not 0.
        record_bytes: u32,
    },
    /// Sequences that begin with `>` at the start of a line.
    Fasta,
    /// Reads of sequencers: `@` and a name, the sequence, `+`, and a quality for each base.
    Fastq,
    /// Each record follows its length, an unsigned number that does not count its own bytes.
    LengthPrefixed {
        /// Bytes of the length: 1, 2, 4 or 8.
        prefix_bytes: u8,
        /// Whether the most significant byte comes first.
        is_big_endian: bool,
    },
    /// The whole file is one record.
    Whole,
}

/// Number of bytes at the beginning of a content by which [`is_text`] decides.
pub const PROBED_BYTES: usize = 8 << 10;

/// Whether content with this beginning is text: it has no zero byte.
pub fn is_text(beginning: &[u8]) -> bool {
    !beginning[..beginning.len().min(PROBED_BYTES)].contains(&0)
}

impl Format {
    /// The likely format of a file, by its name's extension. For an unknown extension `is_text` decides; the caller
    /// finds it from the file's first bytes. Text is lines, and other content is cut at any byte, as in HDFS.
    pub fn guess(name: &str, is_text: bool) -> Self {
        let (_, extension) = name.rsplit_once('.').unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Format::Csv,
            "jsonl" | "ndjson" => Format::JsonLines,
            "fa" | "fasta" | "fna" | "ffn" | "faa" | "frn" => Format::Fasta,
            "fq" | "fastq" => Format::Fastq,
            // Tab-separated fields have no quotes.
            "txt" | "log" | "tsv" => Format::Lines,
            _ if is_text => Format::Lines,
            _ => Format::Fixed { record_bytes: 1 },
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::Lines => f.write_str("lines"),
            Format::Csv => f.write_str("csv"),
            Format::JsonLines => f.write_str("json-lines"),
            Format::Fixed { record_bytes } => write!(f, "fixed:{record_bytes}"),
            Format::Fasta => f.write_str("fasta"),
            Format::Fastq => f.write_str("fastq"),
            Format::LengthPrefixed { prefix_bytes, is_big_endian } => {
                write!(f, "length-prefixed:{prefix_bytes}{}", if *is_big_endian { "be" } else { "le" })
            }
            Format::Whole => f.write_str("whole"),
        }
    }
}

/// A text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{}` is not a format: {problem}", shortened(text))]
pub struct FormatError {
    /// The text.
    pub text: String,
    /// The mistake in it.
    pub problem: FormatTextProblem,
}

/// Mistakes in texts of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FormatTextProblem {
    /// No format has that name.
    #[error("there are lines, csv, json-lines, fixed:100, fasta, fastq, length-prefixed:4be and whole")]
    Unknown,
    /// `fixed` without the size of records.
    #[error("write a record's size in bytes, for example fixed:100")]
    RecordSize,
    /// `length-prefixed` without the form of the length.
    #[error("write the bytes of the length (1, 2, 4, 8) and their order, for example length-prefixed:4be")]
    LengthForm,
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let wrong = |problem| Err(FormatError { text: text.into(), problem });
        let (name, size) = text.split_once(':').map_or((text, None), |(name, size)| (name, Some(size)));
        Ok(match (name, size) {
            ("lines", None) => Format::Lines,
            ("csv", None) => Format::Csv,
            ("json-lines", None) => Format::JsonLines,
            ("fasta", None) => Format::Fasta,
            ("fastq", None) => Format::Fastq,
            ("whole", None) => Format::Whole,
            ("fixed", size) => match size.unwrap_or_default().parse() {
                Ok(record_bytes) if record_bytes > 0 => Format::Fixed { record_bytes },
                _ => return wrong(FormatTextProblem::RecordSize),
            },
            ("length-prefixed", size) => match size.and_then(|size| size.split_at_checked(1)) {
                Some((bytes @ ("1" | "2" | "4" | "8"), order @ ("be" | "le"))) => {
                    Format::LengthPrefixed { prefix_bytes: bytes.as_bytes()[0] - b'0', is_big_endian: order == "be" }
                }
                _ => return wrong(FormatTextProblem::LengthForm),
            },
            _ => return wrong(FormatTextProblem::Unknown),
        })
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Format {
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
    /// Nodes that store a replica. At least one.
    pub replicas: Vec<NodeId>,
}

impl Chunk {
    /// The object of a chunk of `file` with this content.
    pub fn object_of(file: FileId, size_bytes: u64, checksum: u64) -> ObjectId {
        let version = Version::Etag { etag: format!("{checksum:016x}"), size_bytes };
        ObjectId::of(&format!("chunk:{file}"), &version)
    }
}

/// The metadata of a file, a folder or a symbolic link. Its leader has the record, and so have the nodes that take over
/// from the leader. Only files have chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// The file.
    pub id: FileId,
    /// The kind of the entry.
    pub kind: FileKind,
    /// Owner, permissions and times.
    pub attributes: Attributes,
    /// Limits on everything below this folder.
    pub quota: Option<Quota>,
    /// The format of its records.
    pub format: Format,
    /// A chunk ends with the first record that ends at or after a multiple of this size in the file.
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
            quota: None,
            format: Format::Whole,
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
            FileKind::File | FileKind::Folder => self.chunks.iter().map(|chunk| chunk.size_bytes).sum(),
        }
    }

    /// Whether both records describe the same content of the same file; replicas and attributes may differ.
    pub fn is_as_written(&self, other: &FileRecord) -> bool {
        let objects = |record: &FileRecord| record.chunks.iter().map(|chunk| chunk.object).collect::<Vec<_>>();
        self.id == other.id && self.format == other.format && objects(self) == objects(other)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_are_checked() {
        for (text, name) in [("/a/b", "/a/b"), ("a", "/a"), ("/ü/x y", "/ü/x y"), ("...", "/...")] {
            assert_eq!(text.parse::<FileName>().unwrap().as_str(), name);
        }
        let long = "x/".repeat(3000);
        for text in ["", "/", "//", "a//b", "a/", "/..", "a/../b", "./a", "a\0b", &long, &"x".repeat(256)] {
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
        assert!(name.moved(&folder, &format!("/{}", "x/".repeat(2046) + "x").parse().unwrap()).is_err());
        for (prefix, within) in
            [("", true), ("/", true), ("/a", true), ("/a/", true), ("/a/b", false), ("/a/bc/d", true)]
        {
            assert_eq!(name.is_within(prefix), within, "{prefix}");
        }
        assert_eq!(name.base_name(), "d");
    }

    #[test]
    fn formats_have_text() {
        let texts = ["lines", "csv", "json-lines", "fixed:1", "fixed:4294967295", "fasta", "fastq", "whole"];
        let prefixed =
            ["1be", "2be", "4be", "8be", "1le", "2le", "4le", "8le"].map(|size| format!("length-prefixed:{size}"));
        for text in texts.into_iter().chain(prefixed.iter().map(String::as_str)) {
            assert_eq!(text.parse::<Format>().unwrap().to_string(), text);
        }
        let prefix = Format::LengthPrefixed { prefix_bytes: 4, is_big_endian: false };
        assert_eq!("length-prefixed:4le".parse(), Ok(prefix));
        let wrong =
            ["", "line", "CSV", "csv:", "whole:1", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:4294967296"];
        for text in
            wrong.into_iter().chain(["length-prefixed", "length-prefixed:3be", "length-prefixed:4", &"é".repeat(999)])
        {
            let error = text.parse::<Format>().unwrap_err().to_string();
            assert!(error.contains("is not a format") && error.len() < 400, "{error}");
        }
    }

    #[test]
    fn formats_are_guessed_by_name() {
        let anywhere = Format::Fixed { record_bytes: 1 };
        for (name, is_text, format) in [
            ("/sky/a.csv", true, Format::Csv),
            ("A.CSV", false, Format::Csv),
            ("x.ndjson", true, Format::JsonLines),
            ("x.tar.fa", true, Format::Fasta),
            ("reads.fastq", true, Format::Fastq),
            ("reads.fastq.gz", false, anywhere),
            ("syslog.log", false, Format::Lines),
            ("csv", true, Format::Lines),
            ("/a.csv/b", false, anywhere),
            ("", true, Format::Lines),
        ] {
            assert_eq!(Format::guess(name, is_text), format, "{name}");
        }
    }
}
