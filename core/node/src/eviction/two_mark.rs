//! 2Mark: one eviction policy for a whole group of stores (data-diffusion §3.2, figure 6).
//!
//! Stores have slots of one size, and an object is in one store at a time. Loading an object from
//! persistent storage is expensive; moving or exchanging objects within the group is cheap. The
//! marking algorithm of paging is used at two levels: an object is marked *locally* when it is
//! requested at its store, and *globally* when it is requested anywhere. An object that leaves its
//! store has no local mark; an object that leaves the group has no global mark. When all are
//! marked, a new phase begins.
//!
//! Where the paper says "arbitrary", the lowest id is taken. Its line 20 is repaired: a new global
//! phase begins when all objects are marked *and all stores are full*. As printed, two stores of
//! one slot would evict an object again and again while the other store is empty. With persistent
//! storage `s` times as expensive as a move, the proof then gives that 2Mark costs at most `NM (1 +
//! 2/s)` times the optimum with foresight ([`TwoMark::bound`]), up to a constant. For
//! example 2 stores of 3 slots and `s = 10` give 7.2.
//!
//! [`TwoMarkEviction`] is the same policy for a group of one store, which is what an executor has:
//! its objects have sizes of their own, so the store says when it is full, and not a number of
//! slots. Of 3 objects that were used in this phase, the first victim begins a new one; those used
//! afterwards stay until the others have left.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::ObjectId;

use super::Eviction;

/// A step in answering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// An object is loaded from persistent storage.
    Load {
        /// The object.
        object: ObjectId,
        /// The store that gets it.
        store: usize,
    },
    /// An object moves from one store to another.
    Transfer {
        /// The object.
        object: ObjectId,
        /// The store that had it.
        from: usize,
        /// The store that gets it.
        to: usize,
    },
    /// Two objects are exchanged.
    Exchange {
        /// The two objects, each with the store that had it.
        places: [(ObjectId, usize); 2],
    },
    /// An object leaves the group.
    Evict {
        /// The object.
        object: ObjectId,
        /// The store that had it.
        store: usize,
    },
}

#[derive(Clone, Copy)]
struct Marks {
    local: bool,
    global: bool,
}

/// The objects of one store by their local marks, and a second index of those without a global
/// mark.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Store {
    marked: BTreeSet<ObjectId>,
    unmarked: BTreeSet<ObjectId>,
    globally_unmarked: BTreeSet<ObjectId>,
}

impl Store {
    fn len(&self) -> usize {
        self.marked.len() + self.unmarked.len()
    }

    /// Begins a local phase.
    fn unmark(&mut self) {
        self.unmarked.append(&mut self.marked);
    }
}

/// A group of stores under 2Mark.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TwoMark {
    slots: usize,
    stores: Vec<Store>,
    places: BTreeMap<ObjectId, usize>,
    /// Stores that are not full.
    with_room: BTreeSet<usize>,
    /// Stores with an object that has no global mark.
    with_unmarked: BTreeSet<usize>,
}

impl TwoMark {
    /// A group of `stores` empty stores with `slots` slots each.
    ///
    /// # Panics
    /// If either number is 0.
    pub fn new(stores: usize, slots: usize) -> Self {
        assert!(stores > 0 && slots > 0, "a group has stores, and stores have slots");
        TwoMark {
            slots,
            stores: vec![Store::default(); stores],
            places: BTreeMap::new(),
            with_room: (0..stores).collect(),
            with_unmarked: BTreeSet::new(),
        }
    }

    /// The worst cost of 2Mark as a multiple of the optimum with foresight, where loading an object
    /// costs `storage_cost` times as much as moving it: per global phase `sNM + 2vM + NM`, and one
    /// more for each load that moves an object out of its way, against `s + v` (data-diffusion
    /// §3.2, equation 11 after its proof).
    pub fn bound(stores: usize, slots: usize, storage_cost: f64) -> f64 {
        (stores * slots) as f64 * (1.0 + 2.0 / storage_cost)
    }

    /// Brings `object` into `store`, where it is requested, and adds the steps to `moves`.
    ///
    /// # Panics
    /// If there is no such store.
    pub fn request(&mut self, object: ObjectId, store: usize, moves: &mut Vec<Move>) {
        let place = self.places.get(&object).copied();
        if place == Some(store) {
            self.take(object, store);
        } else if self.stores[store].len() < self.slots {
            match place {
                Some(from) => {
                    self.take(object, from);
                    moves.push(Move::Transfer { object, from, to: store });
                }
                None => moves.push(Move::Load { object, store }),
            }
        } else {
            if self.stores[store].unmarked.is_empty() {
                self.stores[store].unmark();
            }
            match place {
                Some(from) => self.exchange(object, from, store, moves),
                None => {
                    self.make_room(store, moves);
                    moves.push(Move::Load { object, store });
                }
            }
        }
        self.put(object, store, Marks { local: true, global: true });
    }

    /// Takes `object` out of another store, which receives an object without a local mark from this
    /// store in exchange.
    fn exchange(&mut self, object: ObjectId, from: usize, store: usize, moves: &mut Vec<Move>) {
        let other = self.locally_unmarked(store);
        let Marks { local, .. } = self.take(object, from);
        let Marks { global, .. } = self.take(other, store);
        self.put(other, from, Marks { local, global });
        moves.push(Move::Exchange { places: [(object, from), (other, store)] });
    }

    /// Makes room in a full store. Evicts an object without a global mark if the store has one;
    /// otherwise moves an object to another store, which may evict one for it.
    fn make_room(&mut self, store: usize, moves: &mut Vec<Move>) {
        if self.with_room.is_empty() && self.with_unmarked.is_empty() {
            self.begin_global_phase();
        }
        if self.evict(store, moves).is_some() {
            return;
        }
        let object = self.locally_unmarked(store);
        let (to, local) = match self.with_room.first() {
            Some(to) => (*to, false),
            None => {
                let to = *self
                    .with_unmarked
                    .first()
                    .expect("else a phase has begun, and this store has one");
                (to, self.evict(to, moves).expect("it is said to have one").local)
            }
        };
        self.take(object, store);
        self.put(object, to, Marks { local, global: true });
        moves.push(Move::Transfer { object, from: store, to });
    }

    /// Evicts an object without a global mark from the group, if the store has one. Returns the
    /// marks of that object.
    fn evict(&mut self, store: usize, moves: &mut Vec<Move>) -> Option<Marks> {
        let object = *self.stores[store].globally_unmarked.first()?;
        moves.push(Move::Evict { object, store });
        Some(self.take(object, store))
    }

    fn locally_unmarked(&self, store: usize) -> ObjectId {
        *self.stores[store].unmarked.first().expect("when all are marked a local phase begins")
    }

    fn begin_global_phase(&mut self) {
        for store in &mut self.stores {
            store.unmark();
            store.globally_unmarked.clone_from(&store.unmarked);
        }
        self.with_unmarked.extend(0..self.stores.len());
    }

    fn put(&mut self, object: ObjectId, place: usize, marks: Marks) {
        let store = &mut self.stores[place];
        if marks.local { &mut store.marked } else { &mut store.unmarked }.insert(object);
        if !marks.global {
            store.globally_unmarked.insert(object);
            self.with_unmarked.insert(place);
        }
        if store.len() == self.slots {
            self.with_room.remove(&place);
        }
        self.places.insert(object, place);
    }

    fn take(&mut self, object: ObjectId, place: usize) -> Marks {
        let store = &mut self.stores[place];
        let marks = Marks {
            local: store.marked.remove(&object),
            global: !store.globally_unmarked.remove(&object),
        };
        store.unmarked.remove(&object);
        if store.globally_unmarked.is_empty() {
            self.with_unmarked.remove(&place);
        }
        self.with_room.insert(place);
        self.places.remove(&object);
        marks
    }

    /// The objects of a store in the order of their ids, each with its local and its global mark.
    pub fn objects(&self, store: usize) -> Vec<(ObjectId, bool, bool)> {
        let store = &self.stores[store];
        let objects: BTreeSet<_> = store.marked.union(&store.unmarked).collect();
        let with_marks = |object: &ObjectId| {
            (*object, store.marked.contains(object), !store.globally_unmarked.contains(object))
        };
        objects.into_iter().map(with_marks).collect()
    }
}

/// 2Mark for the store of an executor: a group of one store without a number of slots.
pub struct TwoMarkEviction(TwoMark);

impl TwoMarkEviction {
    /// An empty store.
    pub(super) fn new() -> Self {
        TwoMarkEviction(TwoMark::new(1, usize::MAX))
    }

    fn mark(&mut self, object: ObjectId) {
        self.removed(object);
        self.0.put(object, 0, Marks { local: true, global: true });
    }

    /// The first object without a mark that may leave.
    fn unmarked(&self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        self.0.stores[0].globally_unmarked.iter().copied().find(|object| may_leave(*object))
    }
}

impl Eviction for TwoMarkEviction {
    fn stored(&mut self, object: ObjectId) {
        self.mark(object);
    }

    fn used(&mut self, object: ObjectId) {
        self.mark(object);
    }

    fn removed(&mut self, object: ObjectId) {
        if self.0.places.contains_key(&object) {
            self.0.take(object, 0);
        }
    }

    fn victim(&mut self, may_leave: &dyn Fn(ObjectId) -> bool) -> Option<ObjectId> {
        let victim = self.unmarked(may_leave);
        // A store of which nothing may leave keeps its marks.
        if victim.is_none() && self.0.places.keys().any(|object| may_leave(*object)) {
            self.0.begin_global_phase();
            return self.unmarked(may_leave);
        }
        victim
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl TwoMark {
        fn validate(&self) {
            for (number, store) in self.stores.iter().enumerate() {
                assert!(store.len() <= self.slots && store.marked.is_disjoint(&store.unmarked));
                let here: BTreeSet<_> = store.marked.union(&store.unmarked).copied().collect();
                assert!(store.globally_unmarked.is_subset(&here));
                assert!(here.iter().all(|object| self.places.get(object) == Some(&number)));
                assert_eq!(self.with_room.contains(&number), store.len() < self.slots);
                assert_eq!(
                    self.with_unmarked.contains(&number),
                    !store.globally_unmarked.is_empty()
                );
            }
            assert_eq!(self.places.len(), self.stores.iter().map(Store::len).sum::<usize>());
        }
    }

    /// Applies a move, and asserts that the moved object is there and has room at its destination.
    fn apply(places: &mut BTreeMap<ObjectId, usize>, move_: Move, slots: usize) {
        let mut put = |object, from: Option<usize>, to: Option<usize>| {
            assert_eq!(places.remove(&object), from, "{move_:?}");
            to.map(|to| places.insert(object, to));
        };
        match move_ {
            Move::Load { object, store } => put(object, None, Some(store)),
            Move::Transfer { object, from, to } => put(object, Some(from), Some(to)),
            Move::Evict { object, store } => put(object, Some(store), None),
            Move::Exchange { places: [(one, here), (other, there)] } => {
                put(one, Some(here), Some(there));
                put(other, Some(there), Some(here));
            }
        }
        let fullest = places
            .values()
            .map(|store| places.values().filter(|other| *other == store).count())
            .max();
        assert!(fullest <= Some(slots), "{move_:?} has no room");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn moves_can_be_made_and_lead_to_what_is_said(
            stores in 1_usize..4,
            slots in 1_usize..4,
            requests in prop::collection::vec((0_u8..12, 0_usize..4), 1..200),
        ) {
            let mut group = TwoMark::new(stores, slots);
            let mut places = BTreeMap::new();
            for (object, store) in requests {
                let (object, store) = (ObjectId([object; 16]), store % stores);
                let mut moves = Vec::new();
                group.request(object, store, &mut moves);
                moves.into_iter().for_each(|move_| apply(&mut places, move_, slots));
                group.validate();
                assert_eq!(&places, &group.places);
                let is_marked = group.objects(store).contains(&(object, true, true));
                assert!(is_marked, "the requested object is there, and marked");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn a_store_alone_evicts_as_a_group_of_one(
            slots in 1_usize..5,
            requests in prop::collection::vec(0_u8..8, 1..200),
        ) {
            let (mut group, mut alone) = (TwoMark::new(1, slots), TwoMarkEviction::new());
            for object in requests.into_iter().map(|n| ObjectId([n; 16])) {
                let is_new = !alone.0.places.contains_key(&object);
                let mut expected = Vec::new();
                group.request(object, 0, &mut expected);
                let mut moves = Vec::new();
                if is_new {
                    if alone.0.places.len() == slots {
                        let victim = alone.victim(&|_| true).expect("the store is full");
                        alone.removed(victim);
                        moves.push(Move::Evict { object: victim, store: 0 });
                    }
                    alone.stored(object);
                    moves.push(Move::Load { object, store: 0 });
                }
                alone.used(object);
                prop_assert_eq!(moves, expected);
            }
        }
    }

    #[test]
    fn what_was_used_in_this_phase_stays_and_what_is_pinned_ends_none() {
        let id = |n: u8| ObjectId([n; 16]);
        let mut store = TwoMarkEviction::new();
        (1..=4).for_each(|n| store.stored(id(n)));
        assert_eq!(store.victim(&|_| true), Some(id(1)), "all are marked: a phase begins");
        store.removed(id(1));
        store.used(id(2));
        assert_eq!(store.victim(&|_| false), None);
        assert_eq!(store.victim(&|_| true), Some(id(3)), "2 is marked");
        let pinned = [id(3), id(4)];
        let may_leave = |object| !pinned.contains(&object);
        assert_eq!(store.victim(&may_leave), Some(id(2)), "the others are pinned");
    }

    #[test]
    fn two_objects_of_one_store_share_the_group() {
        // The two objects are requested in turn at the first of two stores of one slot. As printed,
        // line 20 would load one of them each time.
        let mut group = TwoMark::new(2, 1);
        let [one, other] = [1, 2].map(|n| ObjectId([n; 16]));
        let mut request = |object| {
            let mut moves = Vec::new();
            group.request(object, 0, &mut moves);
            moves
        };
        assert_eq!(request(one), [Move::Load { object: one, store: 0 }]);
        let made_room = Move::Transfer { object: one, from: 0, to: 1 };
        assert_eq!(request(other), [made_room, Move::Load { object: other, store: 0 }]);
        for (wanted, here) in [(one, other), (other, one), (one, other)] {
            assert_eq!(request(wanted), [Move::Exchange { places: [(wanted, 1), (here, 0)] }]);
            assert_eq!(request(wanted), [], "it is there now");
        }
    }

    #[test]
    fn a_new_phase_begins_when_all_is_full_and_marked() {
        let mut group = TwoMark::new(2, 1);
        let [first, second, third] = [1, 2, 3].map(|n| ObjectId([n; 16]));
        let mut moves = Vec::new();
        group.request(first, 0, &mut moves);
        group.request(second, 1, &mut moves);
        moves.clear();
        group.request(third, 1, &mut moves);
        assert_eq!(
            moves,
            [Move::Evict { object: second, store: 1 }, Move::Load { object: third, store: 1 }]
        );
        assert_eq!(group.objects(0), [(first, false, false)]);
        assert_eq!(group.objects(1), [(third, true, true)]);
    }
}
