//! Who is to give an object to whom: one fetch from persistent storage, then a chain (replica-coupled scheduling, the
//! negotiator and Dolly+).
//!
//! Of executors that want an object at about the same time, the first fetches it from persistent storage; each further
//! one gets it from whoever would give it the soonest, which is one in its rack that gives objects to the fewest others,
//! whole replicas before those that are still being received, and of these the last that joined. So simultaneous demand
//! grows a chain, in which each node sends what it receives once; more givers than takers make a star of single transfers.
//! There is no other kind of broadcast, but for [spanning trees](crate::tree) to compare with.
//!
//! Executors with different `site` labels do not give to each other, as the way between sites may be longer than that to
//! persistent storage: one at each site fetches from there. What is in executors' stores alone crosses sites.
//!
//! The plan is what executors are told with their tasks, or when something is [pushed](crate::push) to them, and a hint as
//! all else: behind the giver stand those that give to it, up the chain, and others that hold the object, so that a chain
//! that breaks is repaired by whoever notices, from where it was. What a node really does is seen here by what it stores.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::Origin;

use crate::catalog::{Catalog, ObjectKey};
use crate::estimate::{distance, peer_seconds};
use crate::event::{Holder, MAX_HINTS};
use crate::executors::{ExecutorKey, Executors};
use crate::hash::Map;
use crate::queue::TaskKey;

/// Of holders, and of receivers, so many are compared.
const GIVER_LOOKS: usize = 16;
/// Of holders, so many are asked where they are.
const SITE_LOOKS: usize = 1024;

/// Every object that somebody is receiving.
#[derive(Default)]
pub(crate) struct Relays {
    receipts: Map<ObjectKey, Vec<Receipt>>,
}

/// An executor that was told to fetch an object, and has not reported it yet.
struct Receipt {
    by: ExecutorKey,
    /// Who gives it; nobody, if it comes from persistent storage.
    from: Option<ExecutorKey>,
    /// The task that it is fetched for; none, if it is pushed.
    task: Option<TaskKey>,
    /// To how many others who gives it gave when it was planned; or how many others were to read persistent storage.
    others: u32,
    /// Who gives it was receiving it then.
    is_relayed: bool,
    /// How long it was then estimated to take.
    seconds: f64,
}

/// An object that an executor lacks.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub object: ObjectKey,
    pub by: ExecutorKey,
    /// What it needs the object for; nothing yet, if it is pushed.
    pub task: Option<TaskKey>,
    /// The object is not in persistent storage, and given from site to site.
    pub crosses: bool,
    /// Who is still receiving the object may give it.
    pub from_relays: bool,
}

impl Relays {
    /// Plans how the wish comes true, if that is not planned yet. Returns whom to ask, the first first; if nobody, it is
    /// persistent storage. `turn` spreads the load over holders.
    pub fn plan(&mut self, catalog: &Catalog, executors: &mut Executors, wish: Wish, turn: usize) -> Box<[Holder]> {
        let Wish { object, by, task, crosses, from_relays } = wish;
        // Nearly always one at a time receives an object.
        let receipts = self.receipts.entry(object).or_insert_with(|| Vec::with_capacity(1));
        let planned = receipts.iter().find(|receipt| receipt.by == by).map(|receipt| receipt.from);
        let holders = &catalog[object].holders;
        let site = executors.way(by).site;
        let may_give = |giver: &ExecutorKey| *giver != by && (crosses || executors.way(*giver).site == site);
        let looked_at = (0..holders.len().min(SITE_LOOKS)).map(|place| holders[(turn + place) % holders.len()]);
        let mut whole: Vec<_> = looked_at.filter(may_give).take(GIVER_LOOKS).collect();
        let latest = receipts.iter().rev().filter(|_| from_relays).map(|receipt| receipt.by);
        let latest = latest.filter(may_give).take(GIVER_LOOKS);
        let latest: Vec<_> = latest.collect();
        let bytes = catalog.size_bytes(object);
        // Whom it would come from the soonest; of equals, and without racks all are, who gives to the fewest. Times are not
        // negative, so their bits are in their order.
        let order = |giver: &ExecutorKey| {
            let seconds = peer_seconds(executors, *giver, by, bytes);
            (seconds.to_bits(), distance(executors, *giver, by), executors.way(*giver).gives)
        };
        whole.sort_by_cached_key(order);
        let from = match planned {
            Some(from) => from,
            None => {
                let from = whole.first().copied().into_iter().chain(latest).min_by_key(order);
                let relay = receipts.iter().find(|receipt| Some(receipt.by) == from);
                let (is_relayed, until_there) = (relay.is_some(), relay.map_or(0.0, |receipt| receipt.seconds));
                let seconds = match from {
                    Some(from) => peer_seconds(executors, from, by, bytes).max(until_there),
                    None => executors.rates.storage_seconds(bytes, executors.from_storage),
                };
                let giving = executors.giving(from);
                receipts.push(Receipt { by, from, task, others: *giving, is_relayed, seconds });
                *giving += 1;
                from
            }
        };
        let mut hints = Vec::with_capacity(MAX_HINTS);
        let mut above = from;
        while let Some(giver) = above.filter(|_| hints.len() < MAX_HINTS) {
            let receipt = receipts.iter().find(|receipt| receipt.by == giver);
            hints.push(Holder {
                executor: executors[giver].id,
                is_relay: receipt.is_some(),
                others: executors.way(giver).gives - u32::from(from == Some(giver)),
            });
            above = receipt.and_then(|receipt| receipt.from);
        }
        for holder in whole {
            let id = executors[holder].id;
            if hints.len() < MAX_HINTS && !hints.iter().any(|hint| hint.executor == id) {
                hints.push(Holder { executor: id, is_relay: false, others: executors.way(holder).gives });
            }
        }
        hints.into()
    }

    /// An executor got the object so: what is learned of how long that takes. From one that was receiving it, that is
    /// nothing: it took as long as the other.
    pub fn fetched(
        &self,
        catalog: &Catalog,
        executors: &mut Executors,
        object: ObjectKey,
        by: ExecutorKey,
        (origin, seconds): (Origin, f64),
    ) {
        let receipts = self.receipts.get(&object).into_iter().flatten();
        let Some(receipt) = receipts.into_iter().find(|receipt| receipt.by == by) else { return };
        let bytes = catalog.size_bytes(object);
        // Others came and went meanwhile: as many as at the beginning and at the end, on average.
        let now = executors.giving(receipt.from).saturating_sub(1);
        let others = (receipt.others + now) / 2;
        match (origin, receipt.from) {
            (Origin::Peer, Some(from)) if !receipt.is_relayed => {
                let distance = distance(executors, from, by);
                executors.rates.peer_gave(distance, bytes, others, seconds);
            }
            (Origin::Persistent, None) => executors.rates.storage_gave(bytes, others, seconds),
            _ => {}
        }
    }

    /// The executor has the object.
    pub fn received(&mut self, executors: &mut Executors, object: ObjectKey, by: ExecutorKey) {
        self.end(executors, object, |receipt| receipt.by == by);
    }

    /// The executor has the object no more.
    pub fn evicted(&mut self, executors: &mut Executors, object: ObjectKey, by: ExecutorKey) {
        self.reroute(executors, object, by, None);
    }

    /// The executor has done with the task, or with being pushed to: what it was told to fetch for it has come, or will
    /// not.
    pub fn done_with(
        &mut self,
        executors: &mut Executors,
        task: Option<TaskKey>,
        by: ExecutorKey,
        objects: &[ObjectKey],
    ) {
        if self.receipts.is_empty() {
            return;
        }
        for object in objects {
            if let Some(ended) = self.end(executors, *object, |receipt| receipt.by == by && receipt.task == task) {
                self.reroute(executors, *object, by, ended.from);
            }
        }
    }

    /// The executor, whose tasks have been taken from it, gives nothing any more.
    pub fn executor_left(&mut self, executors: &mut Executors, gone: ExecutorKey) {
        for receipt in self.receipts.values_mut().flatten().filter(|receipt| receipt.from == Some(gone)) {
            receipt.from = None;
            *executors.giving(Some(gone)) -= 1;
            executors.from_storage += 1;
        }
    }

    /// Who is receiving the object, in the order in which they were told to.
    pub fn receivers(&self, object: ObjectKey) -> impl Iterator<Item = ExecutorKey> {
        self.receipts.get(&object).into_iter().flatten().map(|receipt| receipt.by)
    }

    /// Who of those that are to receive the object would give it to `by`, which is one itself if it is among them; and how
    /// long it was estimated to take to get there.
    pub fn coming(&self, object: ObjectKey, by: ExecutorKey) -> Option<(ExecutorKey, f64)> {
        let receipts = self.receipts.get(&object)?;
        let own = receipts.iter().find(|receipt| receipt.by == by);
        own.or_else(|| receipts.last()).map(|receipt| (receipt.by, receipt.seconds))
    }

    fn end(
        &mut self,
        executors: &mut Executors,
        object: ObjectKey,
        is_it: impl Fn(&Receipt) -> bool,
    ) -> Option<Receipt> {
        let receipts = self.receipts.get_mut(&object)?;
        let ended = receipts.remove(receipts.iter().position(is_it)?);
        *executors.giving(ended.from) -= 1;
        if receipts.is_empty() {
            self.receipts.remove(&object);
        }
        Some(ended)
    }

    /// Who was to get the object from `old` goes up the chain.
    fn reroute(&mut self, executors: &mut Executors, object: ObjectKey, old: ExecutorKey, new: Option<ExecutorKey>) {
        let receipts = self.receipts.get_mut(&object).into_iter().flatten();
        for receipt in receipts.filter(|receipt| receipt.from == Some(old)) {
            receipt.from = new;
            *executors.giving(Some(old)) -= 1;
            *executors.giving(new) += 1;
        }
    }

    #[cfg(test)]
    pub fn validate(&self, executors: &Executors) {
        let all = || self.receipts.values().flatten();
        for (by, _) in executors.all() {
            assert_eq!(all().filter(|receipt| receipt.from == Some(by)).count(), executors.way(by).gives as usize);
        }
        assert_eq!(all().filter(|receipt| receipt.from.is_none()).count(), executors.from_storage as usize);
        for receipts in self.receipts.values() {
            assert!(!receipts.is_empty());
            for (place, receipt) in receipts.iter().enumerate() {
                let is_again = receipts[..place].iter().any(|earlier| earlier.by == receipt.by);
                assert!(!is_again, "an executor receives an object once");
                // Who gives is whole by now, or was told before: no circle waits for itself.
                let gives_later = receipts[place..].iter().any(|later| receipt.from == Some(later.by));
                assert!(!gives_later, "a chain goes one way");
            }
        }
    }
}
