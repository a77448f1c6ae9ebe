//! What the file system of a cluster says about files, folders and links.

use std::collections::BTreeMap;

use eyas_client::files::{File, Listing};
use eyas_client::types::dfs::{Attributes, Chunk, FileId, FileKind, FileName};
use pyo3::prelude::*;

/// A file, folder or link.
#[pyclass(frozen, get_all, module = "eyas._eyas")]
pub struct FileEntry {
    /// Path of it.
    name: String,
    /// `file`, `directory` or `link`.
    kind: &'static str,
    size_bytes: u64,
    /// Time of the last write, nanoseconds since 1970.
    modified_ns: u64,
    /// Time of the last change of the content or an attribute, nanoseconds since 1970.
    changed_ns: u64,
    /// Permission bits.
    mode: u16,
    uid: u32,
    gid: u32,
    /// Target of a link.
    target: Option<String>,
    id: String,
    /// Named attributes of an entry that was looked up; `None` if it was listed.
    attributes: Option<BTreeMap<String, Vec<u8>>>,
}

impl FileEntry {
    fn new(
        name: &FileName,
        kind: &FileKind,
        size_bytes: u64,
        attributes: &Attributes,
        id: FileId,
    ) -> Self {
        let (kind, target) = match kind {
            FileKind::File => ("file", None),
            FileKind::Folder => ("directory", None),
            FileKind::SymbolicLink(target) => ("link", Some(target.clone())),
        };
        let Attributes { mode, uid, gid, modified_ns, changed_ns } = *attributes;
        let (name, id) = (name.as_str().to_owned(), id.to_string());
        FileEntry {
            name,
            kind,
            size_bytes,
            modified_ns,
            changed_ns,
            mode,
            uid,
            gid,
            target,
            id,
            attributes: None,
        }
    }
}

impl From<File> for FileEntry {
    fn from(File { name, record, .. }: File) -> Self {
        let size_bytes = record.size_bytes();
        let named = record.named.iter().map(|(name, value)| (name.to_owned(), value.to_vec()));
        FileEntry {
            attributes: Some(named.collect()),
            ..FileEntry::new(&name, &record.kind, size_bytes, &record.attributes, record.id)
        }
    }
}

impl From<Listing> for FileEntry {
    fn from(Listing { name, id, kind, size_bytes, attributes, .. }: Listing) -> Self {
        FileEntry::new(&name, &kind, size_bytes, &attributes, id)
    }
}

/// A chunk of a file.
#[pyclass(frozen, get_all, module = "eyas._eyas")]
pub struct FileChunk {
    size_bytes: u64,
    checksum: u64,
    /// The nodes that have it.
    nodes: Vec<String>,
}

impl From<&Chunk> for FileChunk {
    fn from(chunk: &Chunk) -> Self {
        let nodes = chunk.replicas.iter().map(ToString::to_string).collect();
        FileChunk { size_bytes: chunk.size_bytes, checksum: chunk.checksum, nodes }
    }
}
