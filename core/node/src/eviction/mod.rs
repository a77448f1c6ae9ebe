//! Eviction policies: which object leaves when the store needs room (data-diffusion §2.1).
//!
//! Adding a policy touches its own file and [`of`].

mod fifo;
mod lfu;
mod lru;
mod random;
pub mod two_mark;

use alloc::boxed::Box;

use eyas_types::{EvictionPolicy, ObjectId};

/// An eviction policy. The store reports each object that it stores, uses or removes.
pub trait Eviction: Send {
    /// The object is in the store from now on.
    fn stored(&mut self, object: ObjectId);

    /// A task uses the object, which is in the store.
    fn used(&mut self, object: ObjectId);

    /// The object is no longer in the store.
    fn removed(&mut self, object: ObjectId);

    /// Chooses the next object to evict, from those for which `may_leave` is true. The store then
    /// calls [`removed`](Self::removed).
    fn victim(&mut self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId>;
}

/// Makes the policy with this name. `seed` is for policies that choose randomly.
pub fn of(policy: EvictionPolicy, seed: u64) -> Box<dyn Eviction> {
    match policy {
        EvictionPolicy::Random => Box::new(random::RandomEviction::new(seed)),
        EvictionPolicy::Fifo => Box::<fifo::Fifo>::default(),
        EvictionPolicy::Lru => Box::<lru::Lru>::default(),
        EvictionPolicy::Lfu => Box::<lfu::Lfu>::default(),
        EvictionPolicy::TwoMark => Box::new(two_mark::TwoMarkEviction::new()),
    }
}

/// Objects in the order of a key, which can change. FIFO, LRU and LFU differ only in the key.
#[derive(Default)]
struct KeyOrder<K: Ord + Copy> {
    by_key: alloc::collections::BTreeMap<K, ObjectId>,
    keys: alloc::collections::BTreeMap<ObjectId, K>,
    ticks: u64,
}

impl<K: Ord + Copy> KeyOrder<K> {
    /// Returns a larger number at each call, for use as a time.
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn key(&self, object: ObjectId) -> Option<K> {
        self.keys.get(&object).copied()
    }

    fn set(&mut self, object: ObjectId, key: K) {
        self.remove(object);
        self.keys.insert(object, key);
        self.by_key.insert(key, object);
    }

    fn remove(&mut self, object: ObjectId) {
        if let Some(key) = self.keys.remove(&object) {
            self.by_key.remove(&key);
        }
    }

    fn first(&self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        self.by_key.values().copied().find(|object| may_leave(*object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> ObjectId {
        ObjectId([n; 16])
    }

    /// Stores 1, 2, 3, uses 1 three times and 2 once, then asks for victims until none is left.
    fn order(policy: EvictionPolicy) -> alloc::vec::Vec<u8> {
        let mut policy = of(policy, 7);
        (1..=3).for_each(|n| policy.stored(id(n)));
        [1, 1, 2, 1].iter().for_each(|n| policy.used(id(*n)));
        let leave = |_: ()| {
            let victim = policy.victim(&|_| true)?;
            policy.removed(victim);
            Some(victim.0[0])
        };
        core::iter::repeat(()).map_while(leave).collect()
    }

    #[test]
    fn each_policy_has_its_order() {
        assert_eq!(order(EvictionPolicy::Fifo), [1, 2, 3]);
        assert_eq!(order(EvictionPolicy::Lru), [3, 2, 1]);
        assert_eq!(order(EvictionPolicy::Lfu), [3, 2, 1]);
        assert_eq!(order(EvictionPolicy::TwoMark), [1, 2, 3], "all are marked, so a phase begins");
        let mut random = order(EvictionPolicy::Random);
        random.sort_unstable();
        assert_eq!(random, [1, 2, 3]);
    }

    #[test]
    fn lfu_and_lru_differ_where_an_old_favourite_is_left_alone() {
        for (policy, first) in [(EvictionPolicy::Lru, 1), (EvictionPolicy::Lfu, 2)] {
            let mut policy = of(policy, 0);
            (1..=2).for_each(|n| policy.stored(id(n)));
            [1, 1, 2].iter().for_each(|n| policy.used(id(*n)));
            assert_eq!(policy.victim(&|_| true), Some(id(first)));
        }
    }

    #[test]
    fn random_takes_each_about_equally_often() {
        let mut policy = of(EvictionPolicy::Random, 42);
        (0..10).for_each(|n| policy.stored(id(n)));
        let mut taken = [0; 10];
        for _ in 0..10_000 {
            let victim = policy.victim(&|object| object != id(3)).unwrap();
            taken[usize::from(victim.0[0])] += 1;
        }
        assert_eq!(taken[3], 0, "this object may not leave");
        let even = 10_000 / 9;
        assert!(
            taken
                .iter()
                .enumerate()
                .all(|(n, count)| n == 3 || (even - 250..even + 250).contains(count)),
            "{taken:?}"
        );
    }

    #[test]
    fn an_object_that_may_not_leave_is_no_victim() {
        for policy in EvictionPolicy::ALL {
            let mut policy = of(*policy, 1);
            policy.stored(id(1));
            assert_eq!(policy.victim(&|_| false), None);
        }
    }
}
