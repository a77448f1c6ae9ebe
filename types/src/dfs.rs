//! Files of the distributed file system: their names, their formats, and what is known of each.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::id::ObjectId;
use crate::object::Version;

/// Longest name of a file, as Linux bounds paths.
pub const MAX_NAME_BYTES: usize = 4095;

/// Longest part of a name between slashes, as Linux bounds names.
pub const MAX_COMPONENT_BYTES: usize = 255;

/// Most chunks of a file: its record is read and written as a whole. Larger files need larger chunks.
pub const MAX_CHUNKS: usize = 1 << 16;

/// Size of a chunk, unless a file asks for another.
pub const DEFAULT_CHUNK_BYTES: u64 = 4 << 20;

/// Replicas of a chunk, unless a file asks for another number.
pub const DEFAULT_REPLICATION: u8 = 3;

/// A node of the file system, for as long as its folder lives. Random, so that a folder that was wiped is another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for NodeId {
    type Err = String;

    /// Takes what is shown of it.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        number.map(NodeId).ok_or_else(|| format!("`{}` is not a node: write its 16 digits", shortened(text)))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
    }
}

/// A file system: which one nodes are of. One that is begun anew is another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileSystemId(pub u64);

impl FileSystemId {
    /// The one that a node begins: it does so once at most.
    pub fn founded_by(node: NodeId) -> Self {
        FileSystemId(node.0)
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

/// A file, whatever it is called. Random.
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

/// The name of a file: `/` and components, none of which is empty, `.` or `..`, or has a NUL. Never a path of a node.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FileName(String);

impl FileName {
    /// The name, which begins with a slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part after the last slash.
    pub fn base_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// Whether it is in the folder `prefix`, or is itself called that. Folders are what names have in common; the root
    /// is the empty prefix.
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

impl FromStr for FileName {
    type Err = String;

    /// Takes a name with or without its first slash.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{}` is not a name of a file: {why}", shortened(text)));
        let rest = text.strip_prefix('/').unwrap_or(text);
        if rest.is_empty() {
            return wrong("it is empty; files are called for example /data/sky.csv");
        }
        if rest.len() >= MAX_NAME_BYTES {
            return wrong(&format!("it has {} bytes, and at most {MAX_NAME_BYTES} are possible", text.len()));
        }
        for component in rest.split('/') {
            match component {
                "" => return wrong("between or after its slashes is nothing"),
                "." | ".." => return wrong("`.` and `..` are not followed; write where the file is"),
                _ if component.len() > MAX_COMPONENT_BYTES => {
                    return wrong(&format!("a part between slashes has more than {MAX_COMPONENT_BYTES} bytes"));
                }
                _ if component.contains('\0') => return wrong("it has a NUL byte"),
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

/// As much of a name as an error should repeat.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// What a file's records are: no chunk ends within one. In text, as users write it, `fasta` or `fixed:100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of text, each ended by a line feed.
    Lines,
    /// Comma-separated values, with line feeds in quotes (RFC 4180).
    Csv,
    /// A JSON value a line.
    JsonLines,
    /// Records of one size.
    Fixed {
        /// That size, bytes; not 0.
        record_bytes: u32,
    },
    /// Sequences that begin with `>` at the start of a line.
    Fasta,
    /// Reads of sequencers: `@` name, sequence, `+`, as many qualities.
    Fastq,
    /// Each record after its length, an unsigned number that does not count itself.
    LengthPrefixed {
        /// Bytes of that number: 1, 2, 4 or 8.
        prefix_bytes: u8,
        /// Whether its most significant byte is the first.
        is_big_endian: bool,
    },
    /// The whole file is one record.
    Whole,
}

impl Format {
    /// What a file of this name is likely to be, by what follows its last dot. If that says nothing, `is_text`
    /// decides, which is for the caller to see from its first bytes: text is lines, and anything else is cut anywhere,
    /// as HDFS cuts.
    pub fn guess(name: &str, is_text: bool) -> Self {
        let (_, extension) = name.rsplit_once('.').unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "csv" => Format::Csv,
            "jsonl" | "ndjson" => Format::JsonLines,
            "fa" | "fasta" | "fna" | "ffn" | "faa" | "frn" => Format::Fasta,
            "fq" | "fastq" => Format::Fastq,
            // Tabs part fields that have no quotes.
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

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| Err(format!("`{}` is not a format: {why}", shortened(text)));
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
                _ => return wrong("write a record's size in bytes, for example fixed:100"),
            },
            ("length-prefixed", size) => match size.and_then(|size| size.split_at_checked(1)) {
                Some((bytes @ ("1" | "2" | "4" | "8"), order @ ("be" | "le"))) => {
                    Format::LengthPrefixed { prefix_bytes: bytes.as_bytes()[0] - b'0', is_big_endian: order == "be" }
                }
                _ => {
                    return wrong(
                        "write its length's bytes (1, 2, 4, 8) and their order, for example length-prefixed:4be",
                    );
                }
            },
            _ => {
                return wrong(
                    "there are lines, csv, json-lines, fixed:100, fasta, fastq, length-prefixed:4be and whole",
                );
            }
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

/// A stored piece of a file: some of its records, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// What it is in the nodes' stores.
    pub object: ObjectId,
    /// Its size.
    pub size_bytes: u64,
    /// Of its content: CRC-64/NVME, as the store sums.
    pub checksum: u64,
    /// Who is to have it. At least one.
    pub replicas: Vec<NodeId>,
}

impl Chunk {
    /// The id of a chunk with this content of that file.
    pub fn object_of(file: FileId, size_bytes: u64, checksum: u64) -> ObjectId {
        let version = Version::Etag { etag: format!("{checksum:016x}"), size_bytes };
        ObjectId::of(&format!("chunk:{file}"), &version)
    }
}

/// All that is known of a file. Its leader has it, and those who take over from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Which file.
    pub id: FileId,
    /// What its records are.
    pub format: Format,
    /// A chunk ends with the first record that ends at a multiple of this in the file, or after it. Bytes.
    pub chunk_bytes: u64,
    /// How many replicas each chunk is to have, where there are so many nodes.
    pub replication: u8,
    /// When it was written or last appended to, microseconds since 1970.
    pub modified_us: u64,
    /// In the order of the file.
    pub chunks: Vec<Chunk>,
}

impl FileRecord {
    /// Size of the file.
    pub fn size_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.size_bytes).sum()
    }

    /// Whether it is of the same file, as it was written at the same time, whoever has its chunks.
    pub fn is_as_written(&self, other: &FileRecord) -> bool {
        let objects = |record: &FileRecord| record.chunks.iter().map(|chunk| chunk.object).collect::<Vec<_>>();
        self.id == other.id && self.modified_us == other.modified_us && objects(self) == objects(other)
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
            let error = text.parse::<FileName>().unwrap_err();
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn folders_are_what_names_have_in_common() {
        let name: FileName = "/a/bc/d".parse().unwrap();
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
            let error = text.parse::<Format>().unwrap_err();
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
