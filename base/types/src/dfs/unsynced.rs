//! Files whose content may not be on the disks of its nodes: what they fall back to if a power
//! failure takes it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::dfs::{
    Attributes, Chunk, FileId, FileKind, FileRecord, NamedAttributes, Quota, RecordFormat,
};
use crate::id::ObjectId;

/// The state of a file whose content may not be on the disks of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsynced {
    /// The last version under the name that was on the disks of its nodes. Its chunks stay until
    /// the content is there, too. `None` if there was none: the file is removed if its content is
    /// lost.
    #[serde(deserialize_with = "without_before")]
    pub before: Option<Box<FileRecord>>,
}

/// Reads the version before, which has none itself. Records within records, as deep as a sender
/// likes, would take all of the reader's stack.
fn without_before<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<FileRecord>>, D::Error> {
    /// The fields of a [`FileRecord`], as they are written.
    #[derive(Deserialize)]
    struct SyncedRecord {
        id: FileId,
        kind: FileKind,
        attributes: Attributes,
        named: NamedAttributes,
        quota: Option<Quota>,
        format: RecordFormat,
        chunk_bytes: u64,
        replication: u8,
        chunks: Vec<Chunk>,
        unsynced: Option<Nothing>,
    }
    /// An [`Unsynced`] with nothing before it: no sender writes it, but it does no harm.
    struct Nothing;
    impl<'de> Deserialize<'de> for Nothing {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            match bool::deserialize(deserializer)? {
                false => Ok(Nothing),
                true => Err(de::Error::custom("the version on the disks is on the disks")),
            }
        }
    }
    let before = Option::<SyncedRecord>::deserialize(deserializer)?;
    Ok(before.map(|before| {
        let SyncedRecord {
            id,
            kind,
            attributes,
            named,
            quota,
            format,
            chunk_bytes,
            replication,
            chunks,
            unsynced,
        } = before;
        let unsynced = unsynced.map(|Nothing| Unsynced::default());
        let record = FileRecord {
            id,
            kind,
            attributes,
            named,
            quota,
            format,
            chunk_bytes,
            replication,
            chunks,
            unsynced,
        };
        Box::new(record)
    }))
}

impl FileRecord {
    /// The last version whose content is on the disks of its nodes; `None` if there is none.
    pub fn synced(&self) -> Option<&FileRecord> {
        match &self.unsynced {
            Some(unsynced) => unsynced.before.as_deref(),
            None => Some(self),
        }
    }

    /// The chunks that the file needs: those of its content, and of the version that it may fall
    /// back to.
    pub fn needed_chunks(&self) -> impl Iterator<Item = &Chunk> {
        let before = self.unsynced.iter().filter_map(|unsynced| unsynced.before.as_ref());
        self.chunks.iter().chain(before.flat_map(|before| &before.chunks))
    }

    /// The chunks of the content that may not be on the disks of their nodes. Holes are on none.
    pub fn unsynced_chunks(&self) -> impl Iterator<Item = &Chunk> {
        let synced = self.synced().into_iter().flat_map(|record| &record.chunks);
        let synced: BTreeSet<ObjectId> = synced.map(|chunk| chunk.object).collect();
        self.chunks.iter().filter(move |chunk| !synced.contains(&chunk.object) && !chunk.is_hole())
    }

    /// This record as the content that takes the place of `present`, the record that the name has
    /// had; without `present`, the file is new. Content that may not be on the disks falls back to
    /// the last version that is: an older one of the file itself, or else that of the name.
    #[must_use]
    pub fn in_place_of(mut self, present: Option<&FileRecord>) -> Self {
        let Some(Unsynced { before }) = self.unsynced.take() else { return self };
        let mut before = before.or_else(|| present?.synced().cloned().map(Box::new));
        if let Some(before) = before.as_mut().filter(|before| before.id == self.id) {
            // A file that falls back keeps those that it has then.
            before.named = NamedAttributes::default();
        }
        self.unsynced = Some(Unsynced { before });
        if self.unsynced_chunks().next().is_none() {
            self.unsynced = None;
        }
        self
    }

    /// Whether both records are equal, whether their content is on the disks or not.
    pub fn equals_but_for_disks(&self, other: &FileRecord) -> bool {
        let FileRecord {
            id,
            kind,
            attributes,
            named,
            quota,
            format,
            chunk_bytes,
            replication,
            chunks,
            unsynced: _,
        } = self;
        let is_like = (*id, *attributes, *quota) == (other.id, other.attributes, other.quota)
            && *named == other.named;
        let is_cut_like = (*format, *chunk_bytes, *replication)
            == (other.format, other.chunk_bytes, other.replication);
        is_like && is_cut_like && *kind == other.kind && *chunks == other.chunks
    }

    /// The version that the file falls back to when its content is lost. A file keeps its owner,
    /// its permissions and its named attributes, and chunks that both versions have are where they
    /// are now.
    pub fn fallback(&self) -> Option<FileRecord> {
        let mut before = self.synced()?.clone();
        if before.id == self.id {
            let Attributes { mode, uid, gid, .. } = self.attributes;
            before.attributes = Attributes { mode, uid, gid, ..before.attributes };
            before.named = self.named.clone();
        }
        let now: BTreeMap<ObjectId, &Chunk> =
            self.chunks.iter().map(|chunk| (chunk.object, chunk)).collect();
        for chunk in &mut before.chunks {
            if let Some(now) = now.get(&chunk.object) {
                chunk.replicas.clone_from(&now.replicas);
            }
        }
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dfs::{NamedChange, NodeId, SetCondition};

    /// A file with these chunks, which may not be on the disks if `is_unsynced` is set.
    fn file(id: u128, chunks: &[u8], is_unsynced: bool) -> FileRecord {
        let chunk = |number: &u8| {
            let (object, replicas) = (ObjectId([*number; 16]), [NodeId(1)].into());
            Chunk { object, size_bytes: 1, checksum: 0, replicas }
        };
        let record = FileRecord::without_content(FileId(id), FileKind::File, Attributes::default());
        let unsynced = is_unsynced.then(Unsynced::default);
        FileRecord { chunks: chunks.iter().map(chunk).collect(), unsynced, ..record }
    }

    /// The chunks of the version that a file falls back to, and whether it may have to.
    fn before(record: &FileRecord) -> (bool, Option<Vec<u8>>) {
        let chunks =
            |record: &FileRecord| record.chunks.iter().map(|chunk| chunk.object.0[0]).collect();
        (record.unsynced.is_some(), record.synced().map(chunks))
    }

    #[test]
    fn content_falls_back_to_the_last_version_on_the_disks() {
        let old = file(1, &[1, 2], false);
        let appended = file(1, &[1, 3], true).in_place_of(Some(&old));
        assert_eq!(before(&appended), (true, Some([1, 2].into())));
        let twice = file(1, &[1, 4], true).in_place_of(Some(&appended));
        assert_eq!(before(&twice), (true, Some([1, 2].into())), "the one between was never there");
        let durable = file(1, &[1, 4, 5], false).in_place_of(Some(&twice));
        assert_eq!(before(&durable), (false, Some([1, 4, 5].into())));
        let cut = file(1, &[1], true).in_place_of(Some(&twice));
        assert_eq!(before(&cut), (false, Some([1].into())), "all of it is there");
        let new = file(2, &[7], true).in_place_of(None);
        assert_eq!(before(&new), (true, None));
        assert_eq!(before(&file(2, &[], true).in_place_of(None)), (false, Some([].into())));
        // Over another file: by a rename, the version that the file itself has had counts first.
        assert_eq!(before(&new.clone().in_place_of(Some(&old))), (true, Some([1, 2].into())));
        assert_eq!(
            before(&twice.clone().in_place_of(Some(&file(3, &[9], false)))),
            (true, Some([1, 2].into()))
        );
        assert_eq!(
            before(&file(3, &[9], false).in_place_of(Some(&new))),
            (false, Some([9].into()))
        );
        let needed: Vec<u8> = twice.needed_chunks().map(|chunk| chunk.object.0[0]).collect();
        assert_eq!((needed, twice.unsynced_chunks().count()), ([1, 4, 1, 2].into(), 1));
    }

    #[test]
    fn records_within_records_are_refused() {
        let one = file(1, &[2], true).in_place_of(Some(&file(1, &[1], false)));
        let bytes = postcard::to_allocvec(&one).unwrap();
        assert_eq!(postcard::from_bytes(&bytes), Ok(one.clone()));
        let nested = FileRecord {
            unsynced: Some(Unsynced { before: Some(Box::new(one)) }),
            ..file(1, &[3], true)
        };
        let bytes = postcard::to_allocvec(&nested).unwrap();
        assert!(postcard::from_bytes::<FileRecord>(&bytes).is_err());
        // Each level would take some of the stack: the end of a record without content, and the
        // next one within it.
        let mut empty = postcard::to_allocvec(&file(1, &[], true)).unwrap();
        empty.pop();
        empty.push(1);
        assert!(postcard::from_bytes::<FileRecord>(&empty.repeat(1_000_000)).is_err());
    }

    #[test]
    fn sizes_of_any_chunks_are_added() {
        let mut record = file(1, &[1, 2], false);
        record.chunks[0].size_bytes = u64::MAX;
        assert_eq!(record.size_bytes(), u64::MAX);
    }

    #[test]
    fn holes_need_no_disk() {
        let mut grown = file(1, &[1], true);
        grown.chunks.push(Chunk::hole(7, 0));
        assert_eq!((grown.size_bytes(), grown.hole_bytes()), (8, 7));
        let grown = grown.in_place_of(Some(&file(1, &[1], false)));
        assert_eq!(before(&grown), (false, Some([1, 0].into())), "all of it is there");
    }

    #[test]
    fn a_file_that_falls_back_keeps_its_owner_and_its_chunks() {
        let private = Attributes { mode: 0o600, uid: 7, modified_ns: 9, ..Attributes::default() };
        let mut now = file(1, &[1, 3], true).in_place_of(Some(&file(1, &[1, 2], false)));
        now.attributes = private;
        let change = NamedChange::Set { value: b"red".into(), condition: SetCondition::default() };
        now.named = now.named.with("colour", &change).unwrap();
        now.chunks[0].replicas.push(NodeId(5));
        let back = now.fallback().unwrap();
        assert_eq!(back.attributes, Attributes { modified_ns: 0, ..private });
        assert_eq!(back.named, now.named);
        assert_eq!(back.chunks[0].replicas, [NodeId(1), NodeId(5)]);
        assert_eq!(file(1, &[1], true).in_place_of(None).fallback(), None);
        now.id = FileId(2);
        let back = now.fallback().unwrap();
        assert_eq!(back.attributes, Attributes::default(), "another file");
        assert!(back.named.is_empty());
    }
}
