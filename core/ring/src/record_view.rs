//! The records as one call of `handle` sees them: those on disk, with the changes that this call
//! has asked to save.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::{FileName, FileRecord};

use crate::event::{Effect, Save};
use crate::message::Page;
use crate::record::{Digest, NameEntry, Records, Stored};

/// Maximum number of entries in a page.
pub const MAX_PAGE_ENTRIES: usize = 256;
/// A page with this number of chunks gets no further entry.
pub const MAX_PAGE_CHUNKS: usize = 1 << 14;

/// Bytes of a chunk with three replicas in a record, about.
const CHUNK_RECORD_BYTES: usize = 64;

pub(crate) struct RecordView<'a> {
    before: &'a dyn Records,
    /// Entries that this call has saved, or erased (`None`).
    since: BTreeMap<(u16, String), Option<Stored>>,
    /// Partitions that this call has cleared: their entries on disk no longer count.
    cleared: BTreeSet<u16>,
    pub effects: &'a mut Vec<Effect>,
}

impl<'a> RecordView<'a> {
    pub fn new(before: &'a dyn Records, effects: &'a mut Vec<Effect>) -> Self {
        RecordView { before, since: BTreeMap::new(), cleared: BTreeSet::new(), effects }
    }

    pub fn get(&self, partition: u16, name: &FileName) -> Option<Stored> {
        match self.since.get(&(partition, name.as_str().to_owned())) {
            Some(stored) => stored.clone(),
            None if self.cleared.contains(&partition) => None,
            None => self.before.get(partition, name),
        }
    }

    /// The first entry whose name is not before `from`.
    pub fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)> {
        let mut from = from.to_owned();
        loop {
            let before = (!self.cleared.contains(&partition))
                .then(|| self.before.first(partition, &from))
                .flatten();
            let since = self
                .since
                .range((partition, from)..)
                .next()
                .filter(|((of, _), _)| *of == partition);
            match (before, since) {
                (None, None) => return None,
                (Some(before), None) => return Some(before),
                (Some(before), Some(((_, name), _))) if before.0.as_str() < name.as_str() => {
                    return Some(before);
                }
                (_, Some(((_, name), Some(stored)))) => {
                    return Some((name.parse().expect("it was a name"), stored.clone()));
                }
                (_, Some(((_, name), None))) => from = following(name),
            }
        }
    }

    /// The first entry whose name is after `after`.
    pub fn next(&self, partition: u16, after: &str) -> Option<(FileName, Stored)> {
        self.first(partition, &following(after))
    }

    pub fn save(&mut self, partition: u16, name: &FileName, stored: Stored) {
        self.since.insert((partition, name.as_str().to_owned()), Some(stored.clone()));
        self.effects.push(Effect::Save(Save::Record { partition, name: name.clone(), stored }));
    }

    pub fn erase(&mut self, partition: u16, name: &FileName) {
        self.since.insert((partition, name.as_str().to_owned()), None);
        self.effects.push(Effect::Save(Save::Erase { partition, name: name.clone() }));
    }

    pub fn clear(&mut self, partition: u16) {
        self.since.retain(|(of, _), _| *of != partition);
        self.cleared.insert(partition);
        self.effects.push(Effect::Save(Save::Clear { partition }));
    }

    /// The entries after the name `after` that are not [obsolete](Stored::is_obsolete). 600 small
    /// files come in pages of 256, 256 and 88 entries.
    pub fn page(&self, partition: u16, after: &str, base: u64) -> Page {
        let mut page = Page::default();
        let (mut last, mut weight) = (after.to_owned(), 0);
        while let Some((name, stored)) = self.next(partition, &last) {
            last = name.as_str().to_owned();
            if stored.is_obsolete(base) {
                continue;
            }
            if page.entries.len() >= MAX_PAGE_ENTRIES || weight >= MAX_PAGE_CHUNKS {
                page.has_more = true;
                break;
            }
            weight += stored.entry.weight();
            page.entries.push((name, stored));
        }
        page
    }

    /// Digest of all entries that are not obsolete.
    pub fn digest(&self, partition: u16, base: u64) -> Digest {
        let mut sum = 0_u128;
        let mut last = String::new();
        while let Some((name, stored)) = self.next(partition, &last) {
            last = name.as_str().to_owned();
            if !stored.is_obsolete(base) {
                sum = sum.wrapping_add(hash(&last, &stored));
            }
        }
        Digest(sum)
    }
}

/// The smallest text after `name`: names contain no NUL.
pub(crate) fn following(name: &str) -> String {
    format!("{name}\0")
}

fn hash(name: &str, stored: &Stored) -> u128 {
    let version = stored.version;
    let mut hasher = blake3::Hasher::new();
    for number in [version.round.view, version.round.boot, version.sequence] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(name.as_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(first)
}

impl NameEntry {
    /// Number of chunks, as a measure of the size of the entry. Named attributes count as the
    /// chunks that would take as many bytes.
    fn weight(&self) -> usize {
        let named = |record: &FileRecord| record.named.size_bytes() / CHUNK_RECORD_BYTES;
        self.record().map_or(0, |record| {
            let before = record.unsynced.as_ref().and_then(|unsynced| unsynced.before.as_deref());
            record.needed_chunks().count() + named(record) + before.map_or(0, named)
        })
    }
}

impl Stored {
    /// Whether the entry is of no more use: the file was removed before the settled view `base`, so
    /// no node whose entries count has an older entry of this name. An entry of view 6 is of no use
    /// with base 7.
    pub(crate) fn is_obsolete(&self, base: u64) -> bool {
        matches!(self.entry, NameEntry::Removed { .. }) && self.version.round.view < base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordVersion, Round};
    use eyas_types::dfs::FileId;

    struct TwoRecords;

    fn stored(view: u64) -> Stored {
        let version = RecordVersion { round: Round { view, boot: 1 }, sequence: 1 };
        Stored { version, entry: NameEntry::Removed { id: FileId(1), is_gone: true } }
    }

    fn name(text: &str) -> FileName {
        text.parse().unwrap()
    }

    impl Records for TwoRecords {
        fn get(&self, partition: u16, of: &FileName) -> Option<Stored> {
            self.first(partition, of.as_str())
                .filter(|(name, _)| name == of)
                .map(|(_, stored)| stored)
        }

        fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)> {
            ["/b", "/d"]
                .into_iter()
                .find(|name| partition == 3 && *name >= from)
                .map(|found| (name(found), stored(5)))
        }
    }

    #[test]
    fn records_saved_in_the_same_call_are_seen() {
        let mut effects = Vec::new();
        let mut records = RecordView::new(&TwoRecords, &mut effects);
        let all = |records: &RecordView| {
            let page = records.page(3, "", 5);
            page.entries
                .into_iter()
                .map(|(name, stored)| (name.as_str().to_owned(), stored.version.round.view))
                .collect::<Vec<_>>()
        };
        let owned = |of: &[(&str, u64)]| {
            of.iter().map(|(name, view)| ((*name).to_owned(), *view)).collect::<Vec<_>>()
        };
        assert_eq!(all(&records), owned(&[("/b", 5), ("/d", 5)]));
        let digest = records.digest(3, 5);
        records.save(3, &name("/c"), stored(6));
        records.save(3, &name("/d"), stored(6));
        records.save(4, &name("/a"), stored(6));
        records.save(3, &name("/e"), stored(4));
        records.erase(3, &name("/b"));
        assert_eq!(all(&records), owned(&[("/c", 6), ("/d", 6)]), "/e is of no more use");
        assert_eq!(
            (records.get(3, &name("/b")), records.get(3, &name("/d"))),
            (None, Some(stored(6)))
        );
        assert_ne!(records.digest(3, 5), digest);
        records.clear(3);
        assert_eq!(all(&records), []);
        records.save(3, &name("/d"), stored(5));
        records.save(3, &name("/b"), stored(5));
        assert_eq!(records.digest(3, 5), digest, "whatever the order");
        assert_eq!(effects.len(), 8);
    }

    #[test]
    fn pages_are_bounded_and_follow_each_other() {
        let mut effects = Vec::new();
        let mut records = RecordView::new(&TwoRecords, &mut effects);
        for index in 0..600 {
            records.save(7, &name(&format!("/{index:04}")), stored(9));
        }
        let (mut after, mut sizes) = (String::new(), Vec::new());
        loop {
            let page = records.page(7, &after, 1);
            sizes.push(page.entries.len());
            let Some((last, _)) = page.entries.last().filter(|_| page.has_more) else { break };
            after = last.as_str().to_owned();
        }
        assert_eq!(sizes, [256, 256, 88]);
    }
}
