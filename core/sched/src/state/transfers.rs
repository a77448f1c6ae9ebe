//! Transfers: which executor is fetching which object from where, and how long transfers take.
//!
//! A receipt is a fetch that an executor was told to do and has not reported yet. Receipts, the
//! number of objects that each executor gives, and the number that persistent storage gives change
//! together, here only.

use alloc::vec::Vec;

use eyas_types::Origin;

use super::catalog::Catalog;
use super::keys::{ExecutorKey, ObjectKey, TaskKey};
use super::topology::{Distance, Topology};
use super::transfer_rates::TransferRates;
use crate::event::ExecutorProfile;
use crate::hash::PartedMap;

#[derive(Default)]
pub(crate) struct Transfers {
    topology: Topology,
    rates: TransferRates,
    /// The number of objects that are being fetched from persistent storage.
    from_storage: u32,
    receipts: PartedMap<ObjectKey, Vec<Receipt>>,
}

/// An executor that was told to fetch an object, and has not reported the object yet.
pub(crate) struct Receipt {
    pub executor: ExecutorKey,
    /// The executor that gives the object; `None` if the object comes from persistent storage.
    pub from: Option<ExecutorKey>,
    /// The task that needs the object; `None` if the object is pushed.
    task: Option<TaskKey>,
    /// When the fetch was planned: the number of other objects that the giver gave, or of other
    /// fetches from persistent storage.
    others: u32,
    /// The giver was still receiving the object when the fetch was planned.
    is_relayed: bool,
    /// The estimate when the fetch was planned.
    seconds: f64,
}

/// A fetch that is planned.
pub(crate) struct ExpectedFetch {
    pub object: ObjectKey,
    pub executor: ExecutorKey,
    pub from: Option<ExecutorKey>,
    pub task: Option<TaskKey>,
    pub bytes: u64,
}

impl Transfers {
    pub(super) fn join(&mut self, executor: ExecutorKey, profile: &ExecutorProfile) {
        self.topology.join(executor, profile);
    }

    /// The executor, whose tasks have been taken from it, gives nothing from now on.
    pub(super) fn leave(&mut self, gone: ExecutorKey, profile: &ExecutorProfile) {
        for receipt in
            self.receipts.values_mut().flatten().filter(|receipt| receipt.from == Some(gone))
        {
            receipt.from = None;
            *self.topology.gives_mut(gone) -= 1;
            self.from_storage += 1;
        }
        self.topology.leave(profile);
    }

    // ---- where executors are, and how long transfers take

    pub fn is_one_site(&self, left: ExecutorKey, right: ExecutorKey) -> bool {
        self.topology.is_one_site(left, right)
    }

    pub fn distance(&self, left: ExecutorKey, right: ExecutorKey) -> Distance {
        self.topology.distance(left, right)
    }

    /// The number of objects that the executor is to give to others at the moment.
    pub fn gives(&self, executor: ExecutorKey) -> u32 {
        self.topology.gives(executor)
    }

    /// Seconds to bring `bytes` from one executor to another.
    pub fn peer_seconds(&self, giver: ExecutorKey, receiver: ExecutorKey, bytes: u64) -> f64 {
        self.rates.peer_seconds(self.distance(giver, receiver), bytes, self.gives(giver))
    }

    /// Seconds to bring `bytes` from persistent storage.
    pub fn storage_seconds(&self, bytes: u64) -> f64 {
        self.rates.storage_seconds(bytes, self.from_storage)
    }

    /// The counter of what `from` gives.
    fn giving(&mut self, from: Option<ExecutorKey>) -> &mut u32 {
        match from {
            Some(from) => self.topology.gives_mut(from),
            None => &mut self.from_storage,
        }
    }

    // ---- receipts

    /// Executors that are receiving the object, in the order in which they were told to.
    pub fn incoming(&self, object: ObjectKey) -> &[Receipt] {
        self.receipts.part(&object).get(&object).map_or(&[], Vec::as_slice)
    }

    /// The same, without the rest of each receipt.
    pub fn receivers(&self, object: ObjectKey) -> impl Iterator<Item = ExecutorKey> {
        self.incoming(object).iter().map(|receipt| receipt.executor)
    }

    /// The receiver that would give the object to `executor`, which is `executor` itself if it is a
    /// receiver, and the seconds until the object is there by the estimate of that time.
    pub fn coming(&self, object: ObjectKey, executor: ExecutorKey) -> Option<(ExecutorKey, f64)> {
        let receipts = self.incoming(object);
        let own = receipts.iter().find(|receipt| receipt.executor == executor);
        own.or_else(|| receipts.last()).map(|receipt| (receipt.executor, receipt.seconds))
    }

    /// Notes that an executor is told to fetch an object. From an executor that will itself have
    /// the object in 5 s, over a link that takes 2 s, it is expected in 5 s.
    pub fn expect(&mut self, fetch: ExpectedFetch) {
        let ExpectedFetch { object, executor, from, task, bytes } = fetch;
        let relay = from
            .and_then(|from| self.incoming(object).iter().find(|receipt| receipt.executor == from));
        let is_relayed = relay.is_some();
        let until_there = relay.map_or(0.0, |receipt| receipt.seconds);
        let seconds = match from {
            Some(from) => self.peer_seconds(from, executor, bytes).max(until_there),
            None => self.storage_seconds(bytes),
        };
        let giving = self.giving(from);
        let others = *giving;
        *giving += 1;
        // Nearly always one executor at a time receives an object.
        let receipts =
            self.receipts.part_mut(&object).entry(object).or_insert_with(|| Vec::with_capacity(1));
        receipts.push(Receipt { executor, from, task, others, is_relayed, seconds });
    }

    /// Learns from a fetch that took `seconds`. A fetch from an executor that was itself receiving
    /// the object says nothing: it took as long as the other's.
    pub fn learn_fetch(
        &mut self,
        catalog: &Catalog,
        object: ObjectKey,
        executor: ExecutorKey,
        (origin, seconds): (Origin, f64),
    ) {
        let receipt = self.incoming(object).iter().find(|receipt| receipt.executor == executor);
        let Some(&Receipt { from, others, is_relayed, .. }) = receipt else { return };
        let bytes = catalog.size_bytes(object);
        // Other fetches came and went meanwhile: the mean of their number at the beginning and at
        // the end. For example 3 and 1 give 2.
        let now = self.giving(from).saturating_sub(1);
        let others = (others + now) / 2;
        match (origin, from) {
            (Origin::Peer | Origin::Files { .. }, Some(from)) if !is_relayed => {
                let distance = self.distance(from, executor);
                self.rates.learn_peer(distance, bytes, others, seconds);
            }
            (Origin::Persistent, None) => self.rates.learn_storage(bytes, others, seconds),
            _ => {}
        }
    }

    /// The executor has the object.
    pub(super) fn received(&mut self, object: ObjectKey, executor: ExecutorKey) {
        self.end(object, |receipt| receipt.executor == executor);
    }

    /// The executor no longer has the object.
    pub(super) fn evicted(&mut self, object: ObjectKey, executor: ExecutorKey) {
        self.reroute(object, executor, None);
    }

    /// The executor is done with the task, or with being pushed to: the objects that it was told to
    /// fetch for that have come, or will not come.
    pub fn done_with(
        &mut self,
        task: Option<TaskKey>,
        executor: ExecutorKey,
        objects: &[ObjectKey],
    ) {
        if self.receipts.is_empty() {
            return;
        }
        for object in objects {
            let ended =
                self.end(*object, |receipt| receipt.executor == executor && receipt.task == task);
            if let Some((ended, true)) = ended {
                self.reroute(*object, executor, ended.from);
            }
        }
    }

    /// Ends a receipt of the object. Returns the receipt, and whether others are left.
    fn end(
        &mut self,
        object: ObjectKey,
        is_it: impl Fn(&Receipt) -> bool,
    ) -> Option<(Receipt, bool)> {
        let hashbrown::hash_map::Entry::Occupied(mut entry) =
            self.receipts.part_mut(&object).entry(object)
        else {
            return None;
        };
        let receipts = entry.get_mut();
        let ended = receipts.remove(receipts.iter().position(is_it)?);
        let are_left = !receipts.is_empty();
        if !are_left {
            entry.remove();
        }
        *self.giving(ended.from) -= 1;
        Some((ended, are_left))
    }

    /// Receivers that were to get the object from `old` now get it from the next giver up the
    /// chain.
    fn reroute(&mut self, object: ObjectKey, old: ExecutorKey, new: Option<ExecutorKey>) {
        let Transfers { topology, from_storage, receipts, .. } = self;
        let receipts = receipts.part_mut(&object).get_mut(&object).into_iter().flatten();
        for receipt in receipts.filter(|receipt| receipt.from == Some(old)) {
            receipt.from = new;
            *topology.gives_mut(old) -= 1;
            match new {
                Some(new) => *topology.gives_mut(new) += 1,
                None => *from_storage += 1,
            }
        }
    }

    /// Checks the receipts. Returns their number.
    #[cfg(test)]
    pub fn validate(&self, executors: impl Iterator<Item = ExecutorKey>) -> usize {
        let all = || self.receipts.values().flatten();
        for executor in executors {
            let gives = all().filter(|receipt| receipt.from == Some(executor)).count();
            assert_eq!(gives, self.gives(executor) as usize);
        }
        assert_eq!(
            all().filter(|receipt| receipt.from.is_none()).count(),
            self.from_storage as usize
        );
        for receipts in self.receipts.values() {
            assert!(!receipts.is_empty());
            for (index, receipt) in receipts.iter().enumerate() {
                let is_again =
                    receipts[..index].iter().any(|earlier| earlier.executor == receipt.executor);
                assert!(!is_again, "an executor receives an object once");
                // The giver has the whole object by now, or was told to fetch it before: no cycle
                // waits for itself.
                let gives_later =
                    receipts[index..].iter().any(|later| receipt.from == Some(later.executor));
                assert!(!gives_later, "a chain goes one way");
            }
        }
        all().count()
    }
}
