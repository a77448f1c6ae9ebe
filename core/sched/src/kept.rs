//! Objects that are to be kept: how many executors hold each on purpose, who is told to, and what is lost.
//!
//! A replica that an executor has because its tasks read it can be evicted any time; one that it was told to hold
//! cannot. Of each kept object as many are held as were asked for, as far as there are executors: who has it already is
//! told first, then who has the fewest objects.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, ObjectId};

use crate::event::{Effect, Holder, MAX_HINTS};
use crate::scheduler::Scheduler;

/// All kept objects.
pub(crate) type Kept = BTreeMap<ObjectId, Keeping>;

/// One kept object.
pub(crate) struct Keeping {
    replicas: u8,
    /// Who was told to hold it, and whether it has said that it does.
    pub(crate) told: BTreeMap<ExecutorId, bool>,
    /// Who was told to and could not, lately.
    unable: Vec<ExecutorId>,
    /// Who had the last replica and is leaving.
    pub(crate) last: Option<ExecutorId>,
    /// It was said to be lost, and not to be found since.
    is_lost: bool,
}

impl Scheduler {
    /// Whether an executor that stays has a replica.
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.replicas(object) > 0
    }

    /// How many executors that stay have a replica.
    pub fn replicas(&self, object: ObjectId) -> usize {
        self.catalog.find(object).map_or(0, |key| self.catalog[key].holders.len())
    }

    /// Kept objects that only this executor has, which is leaving, and that others were told to fetch from it.
    pub fn moving_from(&self, executor: ExecutorId) -> usize {
        self.kept.values().filter(|keeping| keeping.last == Some(executor) && keeping.is_moving()).count()
    }

    /// Whether an executor that is leaving can go without anything being lost: it has no task, and others have what is kept
    /// of what it has.
    pub fn is_emptied(&self, executor: ExecutorId) -> bool {
        self.tasks_of(executor).is_empty() && self.kept.values().all(|keeping| keeping.last != Some(executor))
    }

    /// Whether an executor was told to fetch it from one that is leaving.
    pub fn is_moving(&self, object: ObjectId) -> bool {
        self.kept.get(&object).is_some_and(Keeping::is_moving)
    }

    pub(crate) fn keep(&mut self, object: ObjectId, replicas: u8, by: Option<ExecutorId>, effects: &mut Vec<Effect>) {
        let stays = by.and_then(|by| Some(!self.executors[self.executors.find(by)?].is_draining));
        let keeping = self.kept.entry(object).or_insert_with(|| Keeping {
            replicas,
            told: BTreeMap::new(),
            unable: Vec::new(),
            last: None,
            is_lost: false,
        });
        keeping.replicas = replicas;
        match stays {
            Some(true) => keeping.told.extend(by.map(|by| (by, true))),
            Some(false) => keeping.last = by,
            None => {}
        }
        self.note_held(object, effects);
        self.replicate(object, effects);
    }

    /// Says that a kept object is lost or found, if that has changed.
    fn note_held(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let is_lost = !self.is_held(object);
        if let Some(keeping) = self.kept.get_mut(&object).filter(|keeping| keeping.is_lost != is_lost) {
            keeping.is_lost = is_lost;
            effects.push(if is_lost { Effect::Lost { object } } else { Effect::Found { object } });
        }
    }

    pub(crate) fn release(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(keeping) = self.kept.remove(&object) else { return };
        let told = keeping.told.into_keys().filter(|executor| !self.is_pushed_to(*executor, object));
        effects.extend(told.map(|executor| Effect::Release { executor, object }));
    }

    /// Has everyone who says to have the object look whether it is so.
    pub(crate) fn doubt(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.kept.contains_key(&object) {
            let holders = self.holders(object);
            effects.extend(holders.into_iter().map(|executor| Effect::Verify { executor, object }));
        }
    }

    /// Takes note that an executor has the object.
    pub(crate) fn note_stored(&mut self, executor: ExecutorId, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(keeping) = self.kept.get_mut(&object) else { return };
        keeping.last = None;
        if let Some(has) = keeping.told.get_mut(&executor) {
            *has = true;
        } else if keeping.unable.contains(&executor) {
            keeping.unable.retain(|other| *other != executor);
        }
        self.note_held(object, effects);
        self.replicate(object, effects);
    }

    /// Takes note that an executor does not have the object: no longer, or it could not be had.
    pub(crate) fn note_gone(&mut self, executor: ExecutorId, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(keeping) = self.kept.get_mut(&object) else { return };
        let had = keeping.told.remove(&executor);
        if had == Some(false) {
            keeping.unable.push(executor);
        }
        keeping.last = keeping.last.filter(|last| *last != executor);
        self.note_held(object, effects);
        self.replicate(object, effects);
    }

    /// An executor is leaving; its replicas count no more. What only it had can still be fetched from it.
    pub(crate) fn note_draining(&mut self, executor: ExecutorId, held: &[ObjectId], effects: &mut Vec<Effect>) {
        for object in held {
            let is_held = self.is_held(*object);
            if let Some(keeping) = self.kept.get_mut(object).filter(|_| !is_held) {
                keeping.last = Some(executor);
            }
            self.note_held(*object, effects);
        }
        for keeping in self.kept.values_mut() {
            keeping.told.remove(&executor);
        }
    }

    /// An executor that is leaving does so in good order: others fetch what only it has, and what too few have.
    pub(crate) fn evacuate(&mut self, effects: &mut Vec<Effect>) {
        let short: Vec<_> = self.kept.iter().filter(|(_, keeping)| keeping.is_short()).map(|(id, _)| *id).collect();
        short.into_iter().for_each(|object| self.replicate(object, effects));
    }

    /// Executors that could not hold an object are asked again, where too few hold it.
    pub(crate) fn hold_again(&mut self, effects: &mut Vec<Effect>) {
        let lacking = |(_, keeping): &(&ObjectId, &mut Keeping)| keeping.is_short() && !keeping.unable.is_empty();
        let lacking = self.kept.iter_mut().filter(lacking).map(|(object, keeping)| {
            keeping.unable.clear();
            *object
        });
        for object in lacking.collect::<Vec<_>>() {
            self.replicate(object, effects);
        }
    }

    /// An executor has left.
    pub(crate) fn note_left(&mut self, executor: ExecutorId, effects: &mut Vec<Effect>) {
        for (object, keeping) in &mut self.kept {
            keeping.unable.retain(|other| *other != executor);
            if keeping.last == Some(executor) {
                keeping.last = None;
                effects.push(Effect::Lost { object: *object });
            }
        }
        self.evacuate(effects);
    }

    pub(crate) fn holders(&self, object: ObjectId) -> Vec<ExecutorId> {
        let mut holders: Vec<_> = self.who_holds(object).collect();
        holders.sort_unstable();
        holders
    }

    /// Has more executors hold the object if too few do.
    fn replicate(&mut self, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(keeping) = self.kept.get(&object).filter(|keeping| keeping.is_short()) else { return };
        let holders = self.holders(object);
        let sources: Vec<_> = holders.iter().copied().chain(keeping.last).take(MAX_HINTS).collect();
        if sources.is_empty() {
            return;
        }
        let may = |id: ExecutorId| !keeping.told.contains_key(&id) && !keeping.unable.contains(&id);
        let free = self.executors.all().filter(|(_, executor)| !executor.is_draining && may(executor.id));
        let mut free: Vec<_> =
            free.map(|(_, executor)| (!holders.contains(&executor.id), executor.held.len(), executor.id)).collect();
        free.sort_unstable();
        let missing = usize::from(keeping.replicas).saturating_sub(keeping.told.len());
        let keeping = self.kept.get_mut(&object).expect("looked up above");
        for (_, _, executor) in free.into_iter().take(missing) {
            keeping.told.insert(executor, false);
            let holders = sources.iter().filter(|source| **source != executor).copied().map(Holder::of_whole).collect();
            effects.push(Effect::Hold { executor, object, holders });
        }
    }
}

impl Keeping {
    fn is_moving(&self) -> bool {
        self.last.is_some() && !self.told.is_empty()
    }

    fn is_short(&self) -> bool {
        self.told.len() < usize::from(self.replicas)
    }
}
