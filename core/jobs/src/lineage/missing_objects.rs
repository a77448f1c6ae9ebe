//! Kept objects that no executor has, as far as is known, and when each is looked for.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::mem;

use eyas_types::ObjectId;

use super::RETURN_GRACE_US;

/// Missing objects that are looked for before other events are looked at.
const LOOKED_FOR_AT_ONCE: usize = 10_000;

/// See the [module's](self) documentation.
#[derive(Debug)]
pub(super) struct MissingObjects {
    /// Objects that blocked tasks need, or that were promised to users, and when to look for each
    /// again.
    missing: BTreeMap<ObjectId, MissingObject>,
    /// The same objects, by time. Entries whose time differs from that in `missing` are stale.
    to_look: BTreeSet<(u64, ObjectId)>,
    /// Objects that were lost since the last look.
    lost: Vec<ObjectId>,
    /// Objects that the journal names, and that no executor has reported since the start.
    unseen: BTreeSet<ObjectId>,
    began_us: u64,
    /// Whether some unseen objects do not count as lost yet.
    awaits_return: bool,
}

#[derive(Debug)]
struct MissingObject {
    look_at_us: u64,
    /// An executor reported the object, but a task could not get it.
    is_doubted: bool,
}

impl MissingObjects {
    pub fn new(began_us: u64) -> Self {
        MissingObjects {
            missing: BTreeMap::new(),
            to_look: BTreeSet::new(),
            lost: Vec::new(),
            unseen: BTreeSet::new(),
            began_us,
            awaits_return: true,
        }
    }

    /// A task or client wants an object that no executor has.
    pub fn want(&mut self, now_us: u64, object: ObjectId) {
        self.miss(object, self.lost_from(now_us, object));
    }

    /// Plans a search for an object that no executor has, unless an earlier search is planned.
    pub fn miss(&mut self, object: ObjectId, look_at_us: u64) {
        let planned = self.missing.get(&object).map_or(look_at_us, |missing| missing.look_at_us);
        self.look_at(object, look_at_us.min(planned), false);
    }

    /// Plans a search for an object that a task could not get, although an executor reported it.
    pub fn doubt(&mut self, object: ObjectId, look_at_us: u64) {
        self.look_at(object, look_at_us, true);
    }

    /// Plans a search for an object that is on its way to an executor, instead of an earlier one.
    pub fn look_again(&mut self, object: ObjectId, look_at_us: u64) {
        self.look_at(object, look_at_us, false);
    }

    fn look_at(&mut self, object: ObjectId, look_at_us: u64, is_doubted: bool) {
        self.missing.insert(object, MissingObject { look_at_us, is_doubted });
        self.to_look.insert((look_at_us, object));
    }

    /// Whether a search for the object is planned, and a report of an executor that has it is news.
    pub fn is_sought(&self, object: ObjectId) -> bool {
        self.missing.get(&object).is_some_and(|missing| !missing.is_doubted)
    }

    /// The object need not be looked for.
    pub fn stop_search(&mut self, object: ObjectId) {
        self.missing.remove(&object);
    }

    /// The object is no longer kept.
    pub fn forget(&mut self, object: ObjectId) {
        self.missing.remove(&object);
        self.unseen.remove(&object);
    }

    /// Objects that are to be looked for now.
    pub fn due(&mut self, now_us: u64) -> Vec<ObjectId> {
        let mut due = Vec::new();
        while due.len() < LOOKED_FOR_AT_ONCE
            && let Some((look_at_us, object)) = self.to_look.pop_first()
        {
            if look_at_us > now_us {
                self.to_look.insert((look_at_us, object));
                break;
            }
            if self.missing.get(&object).is_some_and(|missing| missing.look_at_us == look_at_us) {
                due.push(object);
            }
        }
        due
    }

    /// When the next object is to be looked for.
    pub fn next_timeout(&self) -> Option<u64> {
        let look = self.to_look.first().map(|(look_at_us, _)| *look_at_us);
        let back = (self.awaits_return && !self.unseen.is_empty())
            .then_some(self.began_us + RETURN_GRACE_US);
        look.into_iter().chain(back).min()
    }

    // ---- objects that were lost

    /// No executor has the object any longer.
    pub fn lost(&mut self, object: ObjectId) {
        self.lost.push(object);
    }

    /// Takes the objects that were lost since the last call.
    pub fn take_lost(&mut self) -> Vec<ObjectId> {
        mem::take(&mut self.lost)
    }

    // ---- objects with which executors may come back

    /// The journal names the object, and no executor has reported it so far.
    pub fn await_return(&mut self, object: ObjectId) {
        self.unseen.insert(object);
    }

    /// An executor has reported the object.
    pub fn seen(&mut self, object: ObjectId) {
        self.unseen.remove(&object);
    }

    pub fn is_unseen(&self, object: ObjectId) -> bool {
        self.unseen.contains(&object)
    }

    /// Whether some objects with which no executor has come back do not count as lost yet.
    pub fn awaits_return(&self) -> bool {
        self.awaits_return
    }

    /// Whether executors may still come back with what they hold.
    pub fn awaits_executors(&self, now_us: u64) -> bool {
        now_us < self.began_us + RETURN_GRACE_US
    }

    /// Executors have had time to come back: what none of them reported is missing.
    pub fn end_return(&mut self, now_us: u64) {
        if self.awaits_return && !self.awaits_executors(now_us) {
            self.awaits_return = false;
            for object in self.unseen.iter().copied().collect::<Vec<_>>() {
                self.miss(object, now_us);
            }
        }
    }

    /// When an object that no executor has counts as lost: not before executors could come back
    /// with it.
    pub fn lost_from(&self, now_us: u64, object: ObjectId) -> u64 {
        if self.unseen.contains(&object) {
            now_us.max(self.began_us + RETURN_GRACE_US)
        } else {
            now_us
        }
    }
}
