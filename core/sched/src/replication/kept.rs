//! Kept objects: how many executors hold each on purpose, which executors are told to, and which
//! objects are lost.
//!
//! A replica that an executor has because its tasks read it can be evicted at any time; one that it
//! was told to hold cannot. Each kept object is held by as many executors as were asked for, as far
//! as there are executors: those that have it already are told first, then those with the fewest
//! objects.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, ObjectId};

use crate::event::{Effect, Holder, MAX_HINTS, PlacementCommand, PlacementReport};
use crate::state::SchedulerState;

/// All kept objects.
#[derive(Default)]
pub(crate) struct KeptObjects {
    objects: BTreeMap<ObjectId, KeptObject>,
}

struct KeptObject {
    /// The number of replicas that were asked for.
    replicas: u8,
    /// Executors that were told to hold it, and whether they have reported it.
    appointed: BTreeMap<ExecutorId, bool>,
    /// Executors that were told to hold it and could not, lately.
    unable: Vec<ExecutorId>,
    /// The executor that has the last replica and is leaving.
    last: Option<ExecutorId>,
    /// The object was reported as lost, and has not been found since.
    is_lost: bool,
}

impl KeptObject {
    fn is_moving(&self) -> bool {
        self.last.is_some() && !self.appointed.is_empty()
    }

    fn is_under_replicated(&self) -> bool {
        self.appointed.len() < usize::from(self.replicas)
    }
}

impl KeptObjects {
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    pub fn contains(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// The number of objects that only this executor has, which is leaving, and that others were
    /// told to fetch from it.
    pub fn moving_from(&self, executor: ExecutorId) -> usize {
        self.objects.values().filter(|kept| kept.last == Some(executor) && kept.is_moving()).count()
    }

    /// Whether the executor, which is leaving, has the last replica of an object.
    pub fn has_last(&self, executor: ExecutorId) -> bool {
        self.objects.values().any(|kept| kept.last == Some(executor))
    }

    /// Whether an executor was told to fetch the object from one that is leaving.
    pub fn is_moving(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(KeptObject::is_moving)
    }

    /// Whether the object is kept: no executor can get it from elsewhere than from executors.
    pub fn is_kept(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// Whether the executor was told to hold the object.
    pub fn is_appointed(&self, executor: ExecutorId, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|kept| kept.appointed.contains_key(&executor))
    }

    /// Keeps an object. `executor` holds it already, without having been told.
    pub fn keep(
        &mut self,
        state: &SchedulerState,
        object: ObjectId,
        replicas: u8,
        executor: Option<ExecutorId>,
        effects: &mut Vec<Effect>,
    ) {
        let stays =
            executor.and_then(|id| Some(!state.executors[state.executors.find(id)?].is_draining));
        let kept = self.objects.entry(object).or_insert_with(|| KeptObject {
            replicas,
            appointed: BTreeMap::new(),
            unable: Vec::new(),
            last: None,
            is_lost: false,
        });
        kept.replicas = replicas;
        match stays {
            Some(true) => kept.appointed.extend(executor.map(|executor| (executor, true))),
            Some(false) => kept.last = executor,
            None => {}
        }
        self.report_lost_or_found(state, object, effects);
        self.replicate(state, object, effects);
    }

    /// An object need not be kept any longer. Returns the executors that were told to hold it.
    pub fn release(&mut self, object: ObjectId) -> impl Iterator<Item = ExecutorId> + use<> {
        self.objects.remove(&object).into_iter().flat_map(|kept| kept.appointed.into_keys())
    }

    /// Has every executor that reported the object verify that it has it.
    pub fn verify(&self, state: &SchedulerState, object: ObjectId, effects: &mut Vec<Effect>) {
        if self.contains(object) {
            let holders = state.sorted_holders(object).into_iter();
            effects
                .extend(holders.map(|executor| {
                    Effect::Command(PlacementCommand::Verify { executor, object })
                }));
        }
    }

    /// An executor has the object.
    pub fn stored(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(kept) = self.objects.get_mut(&object) else { return };
        kept.last = None;
        if let Some(has) = kept.appointed.get_mut(&executor) {
            *has = true;
        } else {
            kept.unable.retain(|other| *other != executor);
        }
        self.report_lost_or_found(state, object, effects);
        self.replicate(state, object, effects);
    }

    /// An executor does not have the object: no longer, or it could not get it.
    pub fn gone(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let Some(kept) = self.objects.get_mut(&object) else { return };
        if kept.appointed.remove(&executor) == Some(false) {
            kept.unable.push(executor);
        }
        kept.last = kept.last.filter(|last| *last != executor);
        self.report_lost_or_found(state, object, effects);
        self.replicate(state, object, effects);
    }

    /// An executor is leaving, and its replicas no longer count. What only that executor has can
    /// still be fetched from it.
    pub fn draining(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorId,
        held: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        for object in held {
            let is_held = state.replicas(*object) > 0;
            if let Some(kept) = self.objects.get_mut(object).filter(|_| !is_held) {
                kept.last = Some(executor);
            }
            self.report_lost_or_found(state, *object, effects);
        }
        for kept in self.objects.values_mut() {
            kept.appointed.remove(&executor);
        }
    }

    /// An executor has left.
    pub fn left(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorId,
        effects: &mut Vec<Effect>,
    ) {
        for (object, kept) in &mut self.objects {
            kept.unable.retain(|other| *other != executor);
            if kept.last == Some(executor) {
                kept.last = None;
                effects.push(Effect::Report(PlacementReport::Lost { object: *object }));
            }
        }
        self.replicate_all(state, effects);
    }

    /// Has further executors hold every object that is under-replicated. So an executor that is
    /// leaving does so in good order: others fetch what only it has.
    pub fn replicate_all(&mut self, state: &SchedulerState, effects: &mut Vec<Effect>) {
        let under_replicated = self.objects.iter().filter(|(_, kept)| kept.is_under_replicated());
        let under_replicated: Vec<_> = under_replicated.map(|(id, _)| *id).collect();
        under_replicated.into_iter().for_each(|object| self.replicate(state, object, effects));
    }

    /// Asks executors that could not hold an object again, where it is under-replicated.
    pub fn ask_again(&mut self, state: &SchedulerState, effects: &mut Vec<Effect>) {
        let under_replicated = self
            .objects
            .iter_mut()
            .filter(|(_, kept)| kept.is_under_replicated() && !kept.unable.is_empty());
        let asked_again = under_replicated.map(|(object, kept)| {
            kept.unable.clear();
            *object
        });
        for object in asked_again.collect::<Vec<_>>() {
            self.replicate(state, object, effects);
        }
    }

    /// Reports that a kept object is lost or found, if that has changed.
    fn report_lost_or_found(
        &mut self,
        state: &SchedulerState,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        let is_lost = state.replicas(object) == 0;
        if let Some(kept) = self.objects.get_mut(&object).filter(|kept| kept.is_lost != is_lost) {
            kept.is_lost = is_lost;
            effects.push(if is_lost {
                Effect::Report(PlacementReport::Lost { object })
            } else {
                Effect::Report(PlacementReport::Found { object })
            });
        }
    }

    /// Has further executors hold the object if it is under-replicated. For example only A holds an
    /// object that is to be kept twice; B holds 5 objects, and C holds 3. A and C are told to hold
    /// it.
    fn replicate(&mut self, state: &SchedulerState, object: ObjectId, effects: &mut Vec<Effect>) {
        let Some(kept) = self.objects.get_mut(&object).filter(|kept| kept.is_under_replicated())
        else {
            return;
        };
        let holders = state.sorted_holders(object);
        let sources: Vec<_> = holders.iter().copied().chain(kept.last).take(MAX_HINTS).collect();
        if sources.is_empty() {
            return;
        }
        let may = |id: ExecutorId| !kept.appointed.contains_key(&id) && !kept.unable.contains(&id);
        let free = state.executors.all().map(|(_, executor)| executor);
        let free = free.filter(|executor| !executor.is_draining && may(executor.id));
        let mut free: Vec<_> = free
            .map(|executor| (!holders.contains(&executor.id), executor.replicas.len(), executor.id))
            .collect();
        free.sort_unstable();
        let missing = usize::from(kept.replicas).saturating_sub(kept.appointed.len());
        for (_, _, executor) in free.into_iter().take(missing) {
            kept.appointed.insert(executor, false);
            let holders = sources
                .iter()
                .filter(|source| **source != executor)
                .copied()
                .map(Holder::of_whole)
                .collect();
            effects.push(Effect::Command(PlacementCommand::Hold { executor, object, holders }));
        }
    }
}
