//! Policies that serve requests: 2Mark for the whole group, and policies that decide for each store
//! alone.

use std::collections::BTreeMap;

use eyas_node::eviction::two_mark::{Move, TwoMark};
use eyas_node::eviction::{self, Eviction};
use eyas_types::{EvictionPolicy, ObjectId};

use super::{CacheRequest, Problem};

/// A group of stores under a policy.
pub trait Group {
    /// Serves a request, and returns its cost.
    fn request(&mut self, request: CacheRequest) -> u64;
}

/// Total cost of the requests.
pub fn cost(group: &mut dyn Group, requests: impl IntoIterator<Item = CacheRequest>) -> u64 {
    requests.into_iter().map(|request| group.request(request)).sum()
}

/// The id of an object. Ids sort as numbers do.
pub(super) fn id(object: u32) -> ObjectId {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&object.to_be_bytes());
    ObjectId(id)
}

/// A group under 2Mark, which decides for the whole group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TwoMarked {
    policy: TwoMark,
    storage_cost: u64,
}

impl TwoMarked {
    /// Empty stores.
    pub fn new(problem: Problem) -> Self {
        TwoMarked {
            policy: TwoMark::new(problem.stores, problem.slots),
            storage_cost: problem.storage_cost,
        }
    }

    #[cfg(test)]
    pub(super) fn policy(&self) -> &TwoMark {
        &self.policy
    }
}

impl Group for TwoMarked {
    fn request(&mut self, request: CacheRequest) -> u64 {
        let mut moves = Vec::new();
        self.policy.request(id(request.object), request.store, &mut moves);
        let cost = |move_| match move_ {
            Move::Load { .. } => self.storage_cost,
            Move::Transfer { .. } | Move::Exchange { .. } => 1,
            Move::Evict { .. } => 0,
        };
        moves.into_iter().map(cost).sum()
    }
}

/// A group in which each store evicts as executors do, by a policy that knows only that store.
/// Objects that another store has are moved.
pub struct IndependentStores {
    problem: Problem,
    stores: Vec<Box<dyn Eviction>>,
    counts: Vec<usize>,
    places: BTreeMap<u32, usize>,
}

impl IndependentStores {
    /// Empty stores.
    pub fn new(problem: Problem, policy: EvictionPolicy) -> Self {
        IndependentStores {
            problem,
            stores: (0..problem.stores).map(|store| eviction::of(policy, store as u64)).collect(),
            counts: vec![0; problem.stores],
            places: BTreeMap::new(),
        }
    }

    fn remove(&mut self, object: ObjectId, store: usize) {
        self.stores[store].removed(object);
        self.counts[store] -= 1;
    }
}

impl Group for IndependentStores {
    fn request(&mut self, CacheRequest { object, store }: CacheRequest) -> u64 {
        let place = self.places.insert(object, store);
        let cost = match place {
            Some(place) if place == store => 0,
            Some(place) => {
                self.remove(id(object), place);
                1
            }
            None => self.problem.storage_cost,
        };
        if place != Some(store) {
            if self.counts[store] == self.problem.slots {
                let victim = self.stores[store].victim(&|_| true).expect("the store is full");
                self.remove(victim, store);
                let bytes = victim.0[..4].try_into().expect("four bytes");
                self.places.remove(&u32::from_be_bytes(bytes));
            }
            self.stores[store].stored(id(object));
            self.counts[store] += 1;
        }
        self.stores[store].used(id(object));
        cost
    }
}
