//! Files of the distributed file system: their names, their formats, and what is known of each.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

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

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({self})")
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

    /// Whether it is in the folder `prefix`, or is itself called that. Folders are what names have in common; the root is
    /// the empty prefix.
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

/// What a file's records are: no chunk ends within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Lines of text, each ended by a line feed.
    Lines,
    /// Comma-separated values, with line feeds in quotes.
    Csv,
    /// A JSON value a line.
    JsonLines,
    /// Records of one size.
    Fixed {
        /// That size, bytes.
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
    /// Where a chunk ends: with the first record that reaches this size, bytes.
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
}

#[cfg(test)]
mod tests {
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
}
