//! Storages that the coordinator knows, by the names that agents use.
//!
//! Measurements of a storage are useful to the next agent, so a storage is remembered after the
//! last agent that names it has gone. Names come from outside, so their number is bounded.

use std::collections::{BTreeMap, BTreeSet};

use eyas_ioq::ServerId;

/// Storages that no connected agent names: of more, the one that was named longest ago is
/// forgotten.
const MAX_UNNAMED: usize = 256;

#[derive(Default)]
pub(crate) struct KnownStorages {
    known: BTreeMap<String, KnownStorage>,
    /// Number of storages so far.
    numbered: u32,
    /// Number of calls of `forget` so far.
    looks: u64,
}

struct KnownStorage {
    server: ServerId,
    /// Call of `forget` in which no agent named the storage for the first time.
    unnamed_since: Option<u64>,
}

impl KnownStorages {
    /// The storage of this name, and whether it is new.
    pub fn name(&mut self, name: String) -> (ServerId, bool) {
        let next = ServerId(self.numbered);
        let storage =
            self.known.entry(name).or_insert(KnownStorage { server: next, unnamed_since: None });
        storage.unnamed_since = None;
        let is_new = storage.server == next;
        self.numbered += u32::from(is_new);
        (storage.server, is_new)
    }

    /// Forgets storages that are not in `named`, as far as they are too many, and returns them:
    /// those that have been unnamed for longest.
    pub fn forget(&mut self, named: &BTreeSet<ServerId>) -> Vec<ServerId> {
        self.looks += 1;
        let mut unnamed = BTreeSet::new();
        for KnownStorage { server, unnamed_since } in self.known.values_mut() {
            *unnamed_since =
                if named.contains(server) { None } else { unnamed_since.or(Some(self.looks)) };
            unnamed.extend(unnamed_since.map(|since| (since, *server)));
        }
        let too_many = unnamed.len().saturating_sub(MAX_UNNAMED);
        let forgotten: Vec<ServerId> =
            unnamed.into_iter().take(too_many).map(|(_, server)| server).collect();
        self.known.retain(|_, storage| !forgotten.contains(&storage.server));
        forgotten
    }

    pub fn iter(&self) -> impl Iterator<Item = (&String, ServerId)> {
        self.known.iter().map(|(name, storage)| (name, storage.server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_storages_are_bounded_and_the_last_ones_remembered() {
        let mut storages = KnownStorages::default();
        let (kept, _) = storages.name("kept:/".to_owned());
        let kept = BTreeSet::from([kept]);
        let more = 10;
        let mut forgotten = Vec::new();
        let numbers: Vec<ServerId> = (0..MAX_UNNAMED + more)
            .map(|number| {
                let (server, is_new) = storages.name(format!("nfs{number}:/"));
                assert!(is_new);
                forgotten.extend(storages.forget(&kept));
                server
            })
            .collect();
        assert_eq!(
            (forgotten, storages.iter().count()),
            (numbers[..more].to_vec(), MAX_UNNAMED + 1)
        );
        assert_eq!(storages.name("kept:/".to_owned()).0, *kept.first().unwrap());
        assert_eq!(
            storages.name(format!("nfs{more}:/")),
            (numbers[more], false),
            "named again, it is the same"
        );
        let (anew, is_new) = storages.name("nfs0:/".to_owned());
        assert!(is_new && !numbers.contains(&anew), "no number is used twice");
        assert_eq!(
            storages.forget(&kept),
            [numbers[more + 1]],
            "a storage that is named again is no longer the oldest"
        );
    }
}
