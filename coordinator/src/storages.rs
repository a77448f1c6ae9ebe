//! The storages that a coordinator knows, by the names that agents give them.
//!
//! What was learned of one is bypass something to who comes next, so it is not forgotten with the last agent that names it; but
//! names come from outside, and would grow for ever.

use std::collections::{BTreeMap, BTreeSet};

use eyas_ioq::ServerId;

/// Storages that no agent names are remembered: so many, those that were named last.
const MAX_UNNAMED: usize = 256;

#[derive(Default)]
pub(crate) struct Storages {
    known: BTreeMap<String, Storage>,
    /// So many there have been,
    numbered: u32,
    /// and so often it was looked who names them.
    looks: u64,
}

struct Storage {
    server: ServerId,
    /// In which look nobody named it any more.
    unnamed_since: Option<u64>,
}

impl Storages {
    /// The storage of that name, and whether it is new.
    pub fn name(&mut self, name: String) -> (ServerId, bool) {
        let next = ServerId(self.numbered);
        let storage = self.known.entry(name).or_insert(Storage { server: next, unnamed_since: None });
        storage.unnamed_since = None;
        let is_new = storage.server == next;
        self.numbered += u32::from(is_new);
        (storage.server, is_new)
    }

    /// These are still named. Which are forgotten, since too many are not: those that nobody has named for longest.
    pub fn forget(&mut self, named: &BTreeSet<ServerId>) -> Vec<ServerId> {
        self.looks += 1;
        let mut unnamed = BTreeSet::new();
        for Storage { server, unnamed_since } in self.known.values_mut() {
            *unnamed_since = if named.contains(server) { None } else { unnamed_since.or(Some(self.looks)) };
            unnamed.extend(unnamed_since.map(|since| (since, *server)));
        }
        let too_many = unnamed.len().saturating_sub(MAX_UNNAMED);
        let forgotten: Vec<ServerId> = unnamed.into_iter().take(too_many).map(|(_, server)| server).collect();
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
    fn of_those_that_nobody_names_the_last_are_remembered() {
        let mut storages = Storages::default();
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
        assert_eq!((forgotten, storages.iter().count()), (numbers[..more].to_vec(), MAX_UNNAMED + 1));
        assert_eq!(storages.name("kept:/".to_owned()).0, *kept.first().unwrap());
        assert_eq!(storages.name(format!("nfs{more}:/")), (numbers[more], false), "named again, it is the same");
        let (anew, is_new) = storages.name("nfs0:/".to_owned());
        assert!(is_new && !numbers.contains(&anew), "no number is given twice");
        assert_eq!(storages.forget(&kept), [numbers[more + 1]], "what was named anew is not the oldest any more");
    }
}
