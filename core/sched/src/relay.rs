//! Who is to give an object to whom: one fetch from persistent storage, then a chain (replica-coupled scheduling, the
//! negotiator and Dolly+).
//!
//! Of executors that want an object at about the same time, the first fetches it from persistent storage; each further
//! one gets it from whoever gives objects to the fewest others, whole replicas before those that are still being
//! received, and of these the last that joined. So simultaneous demand grows a chain, in which each node sends what it
//! receives once; more givers than takers make a star of single transfers. There is no other kind of broadcast.
//!
//! Executors with different `site` labels do not give to each other, as the way between sites may be longer than that to
//! persistent storage: one at each site fetches from there. What is in executors' stores alone crosses sites.
//!
//! The plan is what executors are told with their tasks, and a hint as all else: behind the giver stand those that give to
//! it, up the chain, and others that hold the object, so that a chain that breaks is repaired by whoever notices, from
//! where it was. What a node really does is seen here by what it stores.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::catalog::{Catalog, ObjectKey};
use crate::event::{Holder, MAX_HINTS};
use crate::executors::{Executor, ExecutorKey, Executors};
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
    /// The task that it is fetched for.
    task: TaskKey,
}

/// An object that an executor lacks.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub object: ObjectKey,
    pub by: ExecutorKey,
    /// What it needs the object for.
    pub task: TaskKey,
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
        let receipts = self.receipts.entry(object).or_default();
        let planned = receipts.iter().find(|receipt| receipt.by == by).map(|receipt| receipt.from);
        let holders = &catalog[object].holders;
        let site = executors[by].profile.site();
        let may_give = |giver: &ExecutorKey| *giver != by && (crosses || executors[*giver].profile.site() == site);
        let looked_at = (0..holders.len().min(SITE_LOOKS)).map(|place| holders[(turn + place) % holders.len()]);
        let mut whole: Vec<_> = looked_at.filter(may_give).take(GIVER_LOOKS).collect();
        let latest = receipts.iter().rev().filter(|_| from_relays).map(|receipt| receipt.by);
        let latest = latest.filter(may_give).take(GIVER_LOOKS);
        let latest: Vec<_> = latest.collect();
        whole.sort_by_key(|holder| executors[*holder].gives);
        let from = planned.unwrap_or_else(|| {
            let from = whole.first().copied().into_iter().chain(latest).min_by_key(|giver| executors[*giver].gives);
            receipts.push(Receipt { by, from, task });
            if let Some(from) = from {
                executors[from].gives += 1;
            }
            from
        });
        let mut hints = Vec::with_capacity(MAX_HINTS);
        let mut above = from;
        while let Some(giver) = above.filter(|_| hints.len() < MAX_HINTS) {
            let receipt = receipts.iter().find(|receipt| receipt.by == giver);
            hints.push(Holder {
                executor: executors[giver].id,
                is_relay: receipt.is_some(),
                others: executors[giver].gives - u32::from(from == Some(giver)),
            });
            above = receipt.and_then(|receipt| receipt.from);
        }
        for holder in whole {
            let Executor { id, gives, .. } = executors[holder];
            if hints.len() < MAX_HINTS && !hints.iter().any(|hint| hint.executor == id) {
                hints.push(Holder { executor: id, is_relay: false, others: gives });
            }
        }
        hints.into()
    }

    /// The executor has the object.
    pub fn received(&mut self, executors: &mut Executors, object: ObjectKey, by: ExecutorKey) {
        self.end(executors, object, |receipt| receipt.by == by);
    }

    /// The executor has the object no more.
    pub fn evicted(&mut self, executors: &mut Executors, object: ObjectKey, by: ExecutorKey) {
        self.reroute(executors, object, by, None);
    }

    /// The executor has done with the task: what it was told to fetch for it has come, or will not.
    pub fn task_left(&mut self, executors: &mut Executors, inputs: &[ObjectKey], by: ExecutorKey, task: TaskKey) {
        if self.receipts.is_empty() {
            return;
        }
        for object in inputs {
            if let Some(ended) = self.end(executors, *object, |receipt| receipt.by == by && receipt.task == task) {
                self.reroute(executors, *object, by, ended.from);
            }
        }
    }

    /// The executor, whose tasks have been taken from it, gives nothing any more.
    pub fn executor_left(&mut self, executors: &mut Executors, gone: ExecutorKey) {
        for receipt in self.receipts.values_mut().flatten().filter(|receipt| receipt.from == Some(gone)) {
            receipt.from = None;
            executors[gone].gives -= 1;
        }
    }

    /// Who is receiving the object, in the order in which they were told to.
    pub fn receivers(&self, object: ObjectKey) -> impl Iterator<Item = ExecutorKey> {
        self.receipts.get(&object).into_iter().flatten().map(|receipt| receipt.by)
    }

    fn end(
        &mut self,
        executors: &mut Executors,
        object: ObjectKey,
        is_it: impl Fn(&Receipt) -> bool,
    ) -> Option<Receipt> {
        let receipts = self.receipts.get_mut(&object)?;
        let ended = receipts.remove(receipts.iter().position(is_it)?);
        if let Some(from) = ended.from {
            executors[from].gives -= 1;
        }
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
            executors[old].gives -= 1;
            if let Some(new) = new {
                executors[new].gives += 1;
            }
        }
    }

    #[cfg(test)]
    pub fn validate(&self, executors: &Executors) {
        let all = || self.receipts.values().flatten();
        for (by, executor) in executors.all() {
            assert_eq!(all().filter(|receipt| receipt.from == Some(by)).count(), executor.gives as usize);
        }
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
