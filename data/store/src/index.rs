//! The table of the objects in the store, and the names of their files. Touches no file.

use std::collections::HashMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use eyas_types::{FileMode, ObjectId};

use crate::checksum::Checksum;

/// Folder of the objects in the folder of a store.
pub(crate) const OBJECTS: &str = "objects";

/// The folder of files that are being written, in the folder of a store.
pub(crate) const PARTIAL: &str = "partial";

/// The metadata of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub size_bytes: u64,
    pub checksum: Checksum,
    /// Permissions of the file that the object was. Its own file has those without the right to
    /// write.
    pub mode: FileMode,
    /// Whether this process has read the whole content and found that it matches its checksum.
    pub verified: bool,
}

/// All objects of the store, and the sum of their sizes.
#[derive(Default)]
pub(crate) struct Index {
    /// Each with the number of its insertion.
    entries: HashMap<ObjectId, (IndexEntry, u64)>,
    inserted: u64,
    total_bytes: u64,
}

impl Index {
    pub fn get(&self, id: ObjectId) -> Option<IndexEntry> {
        self.entries.get(&id).map(|(entry, _)| *entry)
    }

    pub fn get_mut(&mut self, id: ObjectId) -> Option<&mut IndexEntry> {
        self.entries.get_mut(&id).map(|(entry, _)| entry)
    }

    /// The number of the insertion of a verified object. An object that was replaced, or removed
    /// and inserted again, has another number.
    pub fn insertion(&self, id: ObjectId) -> Option<u64> {
        self.entries.get(&id).filter(|(entry, _)| entry.verified).map(|(_, insertion)| *insertion)
    }

    pub fn insert(&mut self, id: ObjectId, entry: IndexEntry) -> Option<IndexEntry> {
        self.inserted += 1;
        let before = self.entries.insert(id, (entry, self.inserted)).map(|(before, _)| before);
        self.total_bytes += entry.size_bytes;
        self.total_bytes -= before.map_or(0, |before| before.size_bytes);
        before
    }

    pub fn remove(&mut self, id: ObjectId) -> Option<IndexEntry> {
        let (entry, _) = self.entries.remove(&id)?;
        self.total_bytes -= entry.size_bytes;
        Some(entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    pub fn ids(&self) -> impl Iterator<Item = (ObjectId, u64)> {
        self.entries.iter().map(|(id, (entry, _))| (*id, entry.size_bytes))
    }
}

/// The path of an object's file in the folder of a store. The file exists only while the store has
/// the object.
pub fn object_path(store: &Path, id: ObjectId, size_bytes: u64, checksum: Checksum) -> PathBuf {
    store.join(OBJECTS).join(file_name(id, size_bytes, checksum))
}

/// The path of an object's file: `ab/ab…-SIZE-CHECKSUM`. The name contains all metadata that must
/// survive a crash, so one rename publishes content and metadata together.
pub(crate) fn file_name(id: ObjectId, size_bytes: u64, checksum: Checksum) -> String {
    let mut name = String::with_capacity(80);
    push_hex(&mut name, &id.0[..1]);
    name.push('/');
    push_hex(&mut name, &id.0);
    write!(name, "-{size_bytes}-{checksum}").expect("writing to a String cannot fail");
    name
}

/// Appends bytes in hexadecimal digits. Formatting them would take most of the time of a name.
fn push_hex(name: &mut String, bytes: &[u8]) {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    name.extend(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]));
}

/// The folder of an object's file.
pub(crate) fn folder_name(id: ObjectId) -> String {
    format!("{:02x}", id.0[0])
}

/// The reverse of [`file_name`], without the folder.
pub(crate) fn parse_file_name(name: &str) -> Option<(ObjectId, u64, Checksum)> {
    let mut parts = name.split('-');
    let (id, size, checksum) = (parts.next()?, parts.next()?, parts.next()?);
    let parsed = (id.parse().ok()?, size.parse().ok()?, checksum.parse().ok()?);
    // Other spellings of the same name are refused; otherwise one object would be counted twice.
    let spelled = file_name(parsed.0, parsed.1, parsed.2);
    (parts.next().is_none() && spelled[3..] == *name).then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_everything() {
        let id = ObjectId([0xab; 16]);
        let name = file_name(id, 17, Checksum(0xff));
        assert_eq!(name, format!("ab/{}-17-00000000000000ff", "ab".repeat(16)));
        assert_eq!(parse_file_name(&name[3..]), Some((id, 17, Checksum(0xff))));
        for wrong in [
            "",
            "x",
            "ab-1-2",
            &name,
            &format!("{}-1", &name[3..]),
            &name[3..].replace("-17-", "-017-"),
        ] {
            assert_eq!(parse_file_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_index_counts_bytes() {
        let entry = |size_bytes| IndexEntry {
            size_bytes,
            checksum: Checksum(0),
            mode: FileMode::READABLE,
            verified: true,
        };
        let (a, b) = (ObjectId([1; 16]), ObjectId([2; 16]));
        let mut index = Index::default();
        index.insert(a, entry(10));
        index.insert(b, entry(5));
        let first = index.insertion(a);
        index.insert(a, entry(7));
        assert_eq!((index.len(), index.total_bytes()), (2, 12));
        assert!(index.insertion(a) > first && index.insertion(b) < index.insertion(a));
        index.get_mut(a).unwrap().verified = false;
        assert_eq!(index.insertion(a), None);
        index.remove(a);
        index.remove(a);
        assert_eq!((index.len(), index.total_bytes()), (1, 5));
    }
}
