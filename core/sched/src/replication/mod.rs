//! Replication: which executors get which objects from where, beyond what tasks read: kept objects,
//! pushes, and the sources of all fetches.

mod copies;
mod kept;
mod pushes;
mod sources;
mod spanning_tree;

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::{CopyNews, ExecutorId, ObjectId};

use crate::event::{Effect, Hint, Holder, PlacementCommand, PushId};
use crate::state::{ExecutorKey, ObjectKey, SchedulerState, TaskKey};
use copies::DerivedCopies;
use kept::KeptObjects;
#[cfg(test)]
pub(crate) use pushes::MAX_PUSHED_AT_ONCE;
pub(crate) use pushes::NewPush;
pub use pushes::PushProgress;
use pushes::PushTable;
use sources::SourceRequest;
#[cfg(test)]
pub(crate) use spanning_tree::SpanningTree;

pub(crate) struct Replication {
    kept: KeptObjects,
    pushes: PushTable,
    copies: DerivedCopies,
    /// Whether executors are told who holds the inputs of their tasks.
    gives_hints: bool,
    /// Whether an executor that is still receiving an object may give it.
    from_relays: bool,
}

impl Replication {
    pub fn new(gives_hints: bool, from_relays: bool) -> Self {
        Replication {
            kept: KeptObjects::default(),
            pushes: PushTable::default(),
            copies: DerivedCopies::new(from_relays),
            gives_hints,
            from_relays,
        }
    }

    pub fn kept(&self) -> &KeptObjects {
        &self.kept
    }

    pub fn pushes(&self) -> &PushTable {
        &self.pushes
    }

    /// Holders of the task's inputs that the executor lacks, from which it is to fetch them. None
    /// where executors cache nothing. A source whose derived copy is there has none, unless it is
    /// kept: then executors alone have it, and the copy may leave before the task begins.
    pub fn hints(
        &self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        task: TaskKey,
    ) -> Box<[Hint]> {
        if !self.gives_hints {
            return Box::default();
        }
        let mut hints = Vec::new();
        let covered = state.covered(executor, state.inputs(task));
        for index in 0..state.inputs(task).len() {
            let object = state.inputs(task)[index];
            if !state.executors[executor].replicas.contains_key(&object)
                && (covered.binary_search(&object).is_err()
                    || self.kept.is_kept(state.catalog[object].id))
                && copies::is_fetched(state, executor, object)
            {
                let holders = self.holders_for(state, executor, task, object);
                if !holders.is_empty() {
                    hints.push(Hint { input: index as u32, holders });
                }
            }
        }
        hints.into()
    }

    /// Plans the same for the sample of a task that an executor has just got. Its other inputs are
    /// planned when they are sent; until then, the plans for the sample tell where the inputs will
    /// be.
    pub fn plan_sample(&self, state: &mut SchedulerState, executor: ExecutorKey, task: TaskKey) {
        if !self.gives_hints {
            return;
        }
        for index in 0..state.inputs(task).len() {
            let object = state.inputs(task)[index];
            if !state.executors[executor].replicas.contains_key(&object)
                && copies::is_fetched(state, executor, object)
            {
                self.holders_for(state, executor, task, object);
                state.catalog.refer(state.catalog[object].id, state.catalog.size_bytes(object));
                state.note_fetched(task, object);
            }
        }
    }

    /// The same for some inputs of a sampled task, which the executor has. Hints name places among
    /// these inputs.
    pub fn hints_of_part(
        &self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        task: TaskKey,
        inputs: &[(ObjectId, u64)],
    ) -> Box<[Hint]> {
        if !self.gives_hints {
            return Box::default();
        }
        let mut hints = Vec::new();
        for (index, (id, size_bytes)) in inputs.iter().enumerate() {
            let object = state.catalog.refer(*id, *size_bytes);
            if state.executors[executor].replicas.contains_key(&object) {
                state.catalog.release(object);
                continue;
            }
            let holders = self.holders_for(state, executor, task, object);
            state.note_fetched(task, object);
            if !holders.is_empty() {
                hints.push(Hint { input: index as u32, holders });
            }
        }
        hints.into()
    }

    /// Plans from where the executor fetches an input that it lacks.
    fn holders_for(
        &self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        task: TaskKey,
        object: ObjectKey,
    ) -> Box<[Holder]> {
        let crosses_sites = self.kept.contains(state.catalog[object].id);
        let from_relays = self.from_relays;
        let request =
            SourceRequest { object, executor, task: Some(task), crosses_sites, from_relays };
        // Different holders for each task, so that none serves all of them.
        let turn = state.assignments() as usize;
        sources::plan(state, request, turn)
    }

    #[cfg(test)]
    pub fn copies(&self) -> &DerivedCopies {
        &self.copies
    }

    // ---- executors

    /// An executor has joined, with objects that it holds.
    pub fn joined(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        held: &[(ObjectId, u64)],
        effects: &mut Vec<Effect>,
    ) {
        if !self.kept.is_empty() {
            let id = state.executors[executor].id;
            held.iter().for_each(|(object, _)| self.kept.stored(state, id, *object, effects));
            self.kept.replicate_all(state, effects);
        }
        self.pushes.joined(state, &self.kept, executor, effects);
    }

    /// An executor is leaving, and the objects that it held no longer count.
    pub fn draining(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorKey,
        held: &[ObjectId],
        effects: &mut Vec<Effect>,
    ) {
        if !self.kept.is_empty() {
            self.kept.draining(state, state.executors[executor].id, held, effects);
        }
        self.pushes.draining(state, executor);
        self.copies.gone(state, state.executors[executor].id, effects);
    }

    /// An executor has left.
    pub fn left(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorId,
        effects: &mut Vec<Effect>,
    ) {
        self.kept.left(state, executor, effects);
    }

    /// Goes on with all pushes: with one recipient less, a round may be over, or a whole push.
    pub fn continue_pushes(&mut self, state: &mut SchedulerState, effects: &mut Vec<Effect>) {
        self.pushes.continue_all(state, &self.kept, effects);
    }

    // ---- objects

    /// An executor reports that it has an object.
    pub fn stored(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        if state.replicas(object) > 0 {
            self.kept.stored(state, executor, object, effects);
        }
        self.copies.stored(state, executor, object, effects);
        self.pushes.answered(state, &self.kept, executor, (object, true), effects);
    }

    /// An executor does not have an object that it was told to hold.
    pub fn not_held(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        self.kept.gone(state, executor, object, effects);
        self.pushes.answered(state, &self.kept, executor, (object, false), effects);
    }

    /// An executor has evicted an object.
    pub fn evicted(
        &mut self,
        state: &SchedulerState,
        executor: ExecutorId,
        object: ObjectId,
        effects: &mut Vec<Effect>,
    ) {
        self.kept.gone(state, executor, object, effects);
    }

    // ---- derived copies

    /// An executor reports something of a derived copy, which the catalog knows.
    pub fn copy_news(
        &mut self,
        state: &mut SchedulerState,
        executor: ExecutorId,
        (object, news): (ObjectId, CopyNews),
        effects: &mut Vec<Effect>,
    ) {
        let copies = &mut self.copies;
        match news {
            CopyNews::Wanted => copies.wanted(state, executor, object, effects),
            CopyNews::Made { took_us, .. } => {
                copies.made(state, executor, (object, took_us), effects)
            }
            CopyNews::Missing => copies.not_made(state, executor, (object, false), effects),
            CopyNews::Private => copies.not_made(state, executor, (object, true), effects),
            CopyNews::Stopped => copies.stopped(state, executor, object, effects),
        }
    }

    // ---- kept objects

    pub fn keep(
        &mut self,
        state: &SchedulerState,
        object: ObjectId,
        replicas: u8,
        executor: Option<ExecutorId>,
        effects: &mut Vec<Effect>,
    ) {
        self.kept.keep(state, object, replicas, executor, effects);
    }

    pub fn release(&mut self, state: &SchedulerState, object: ObjectId, effects: &mut Vec<Effect>) {
        let appointed = self.kept.release(object);
        let appointed =
            appointed.filter(|executor| !self.pushes.is_pushed_to(state, *executor, object));
        effects.extend(
            appointed
                .map(|executor| Effect::Command(PlacementCommand::Release { executor, object })),
        );
    }

    pub fn verify(&self, state: &SchedulerState, object: ObjectId, effects: &mut Vec<Effect>) {
        self.kept.verify(state, object, effects);
    }

    pub fn ask_again(&mut self, state: &SchedulerState, effects: &mut Vec<Effect>) {
        self.kept.ask_again(state, effects);
    }

    pub fn replicate_all(&mut self, state: &SchedulerState, effects: &mut Vec<Effect>) {
        self.kept.replicate_all(state, effects);
    }

    // ---- pushes

    pub fn push(&mut self, state: &mut SchedulerState, push: NewPush, effects: &mut Vec<Effect>) {
        self.pushes.begin(state, &self.kept, push, effects);
    }

    pub fn end_push(&mut self, state: &mut SchedulerState, id: PushId, effects: &mut Vec<Effect>) {
        self.pushes.end(state, &self.kept, id, effects);
    }
}
