//! Why a task waits, or where it went: views of the scheduler's state for people.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::{Estimate, ExecutorId, Need, ObjectId, Resources, TaskId};

use crate::estimate::Estimator;
use crate::placement::Fallback;
use crate::scheduler::Scheduler;
use crate::state::{
    ClassKey, ExecutorKey, Mismatch, ObjectKey, Pairing, PlacedInput, PlacementLevel,
    PlacementState, TaskKey,
};

/// Inputs that an explanation looks at to find the executor where a task would be done the soonest.
/// For example up to 1,000 executors are compared for a task with 1,000 inputs.
const ESTIMATED_INPUTS: usize = 1_000_000;

/// A task as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlacement {
    /// The executor that it is assigned to, if any.
    pub executor: Option<ExecutorId>,
    /// The estimate at the time of the assignment, where tasks go where they would be done the
    /// soonest.
    pub estimate: Option<Estimate>,
    /// The number of assignments so far.
    pub assigned: u32,
    /// What it needs.
    pub need: Need,
    /// Its first inputs, and where each is.
    pub inputs: Vec<ObjectLocations>,
    /// Number of all its inputs.
    pub all_inputs: usize,
    /// Number of inputs by which it is placed: all of them, or a sample.
    pub placed_inputs: usize,
    /// Bytes of all its inputs.
    pub input_bytes: u64,
    /// Of these, bytes that its executor has; an estimate if the task is placed by a sample.
    pub held_bytes: u64,
    /// Why it waits, if it does.
    pub waits: Option<WaitReason>,
}

/// An object in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectLocations {
    /// The object's id.
    pub object: ObjectId,
    /// The object's size in bytes.
    pub size_bytes: u64,
    /// Executors with a replica.
    pub holders: Vec<ExecutorId>,
    /// Executors that were told to fetch it and do not have all of it yet: partial replicas.
    pub receivers: Vec<ExecutorId>,
    /// The number of waiting tasks that want it.
    pub wanted: u32,
}

/// An executor as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorOccupancy {
    /// The executor's id.
    pub executor: ExecutorId,
    /// The resources that it has.
    pub capacity: Resources,
    /// Processors that assigned tasks ask for, thousandths; more than the capacity where tasks
    /// wait behind its slots.
    pub assigned_milli: u64,
    /// The number of tasks that it was given and has not ended.
    pub in_flight: usize,
    /// The number of objects that it holds.
    pub held: usize,
}

/// Why a task waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No executor has joined.
    NoExecutors,
    /// No executor has as many resources as the task needs.
    TooLarge,
    /// The task matches no executor now: each mismatch, and the number of executors that it
    /// excludes.
    Unmatched(Vec<(Mismatch, u32)>),
    /// These executors could not take it (full disk, too small a store); the others are busy.
    Refused(Vec<ExecutorId>),
    /// Every executor that could take it is busy.
    SlotsTaken,
    /// The policy lets it wait for the executors that hold the most of its inputs, which are busy.
    ForHolders(Vec<ExecutorId>),
    /// It would be done no sooner on another executor than at its home.
    Soonest {
        /// The home.
        home: ExecutorId,
        /// The estimate at its home.
        there: Estimate,
        /// The best other executor with a free slot, and the estimate there.
        elsewhere: Option<(ExecutorId, Estimate)>,
    },
}

impl Scheduler {
    /// How often the task was assigned so far; 0 if it has ended.
    pub fn times_assigned(&self, id: TaskId) -> u32 {
        let queue = &self.state().queue;
        queue.find(id).map_or(0, |key| queue[key].attempt)
    }

    /// The task with the first `inputs` of its inputs, if it is known and has not ended.
    pub fn explain_task(&self, id: TaskId, inputs: usize) -> Option<TaskPlacement> {
        let state = self.state();
        let key = state.queue.find(id)?;
        let task = &state.queue[key];
        let on = match task.state {
            PlacementState::Assigned { executor, .. } => Some(executor),
            _ => None,
        };
        let executor = on.map(|executor| state.executors[executor].id);
        let all = state.inputs(key);
        let bytes = |inputs: &mut dyn Iterator<Item = PlacedInput>| -> u64 {
            inputs.map(|input| input.bytes).fold(0, u64::saturating_add)
        };
        let is_held = |input: &PlacedInput| {
            on.is_some_and(|executor| {
                state.executors[executor].replicas.contains_key(&input.object)
            })
        };
        Some(TaskPlacement {
            executor,
            estimate: self.estimate_of(id),
            assigned: task.attempt,
            need: state.need_of(key).need.clone(),
            inputs: all.iter().take(inputs).map(|input| self.object_locations(*input)).collect(),
            all_inputs: task.inputs.count(),
            placed_inputs: all.len(),
            input_bytes: bytes(&mut task.inputs.placed(&state.catalog)),
            held_bytes: bytes(&mut task.inputs.placed(&state.catalog).filter(is_held)),
            waits: executor.is_none().then(|| self.why_waiting(key)),
        })
    }

    /// The estimate at the time of the task's assignment, if it is assigned and the estimate
    /// decided that.
    pub fn estimate_of(&self, id: TaskId) -> Option<Estimate> {
        let state = self.state();
        match state.queue[state.queue.find(id)?].state {
            PlacementState::Assigned { executor, number, .. } => {
                state.executors[executor].in_flight(number).estimate
            }
            _ => None,
        }
    }

    /// The object, if a task wants it or an executor holds it.
    pub fn explain_object(&self, id: ObjectId) -> Option<ObjectLocations> {
        self.state().catalog.find(id).map(|key| self.object_locations(key))
    }

    /// Tasks that an executor was given and has not ended, in the order of their ids.
    pub fn tasks_of(&self, executor: ExecutorId) -> Vec<TaskId> {
        let state = self.state();
        let Some(key) = state.executors.find(executor) else { return Vec::new() };
        let mut tasks: Vec<_> =
            state.executors[key].in_flight.iter().map(|given| state.queue[given.task].id).collect();
        tasks.sort_unstable();
        tasks
    }

    /// All executors, in the order of their ids.
    pub fn explain_executors(&self) -> Vec<ExecutorOccupancy> {
        let all = self.state().executors.all().map(|(_, executor)| ExecutorOccupancy {
            executor: executor.id,
            capacity: executor.capacity.clone(),
            assigned_milli: executor.assigned_milli(),
            in_flight: executor.in_flight.len(),
            held: executor.replicas.len(),
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|executor| executor.executor);
        all
    }

    /// Whether tasks with that need are known, and no executor is large enough and matches them by
    /// everything that never changes.
    pub fn is_unmatched(&self, need: &Need) -> bool {
        let state = self.state();
        let is_unmatched = |class: ClassKey| {
            let need = state.queue.need(class);
            !state.executors.all().any(|(_, executor)| executor.is_large_enough(need))
        };
        state.queue.class(need).is_some_and(is_unmatched)
    }

    /// Whether tasks with that need are known, and the largest of them fits on the disk of no
    /// executor that is large enough.
    pub fn exceeds_disks(&self, need: &Need) -> bool {
        let state = self.state();
        state.queue.class(need).map(|class| state.queue.need(class)).is_some_and(|need| {
            let large_enough =
                state.executors.all().filter(|(_, executor)| executor.is_large_enough(need));
            let most = large_enough.map(|(_, executor)| executor.free_disk_bytes).max();
            most.is_some_and(|most| most < need.most_bytes)
        })
    }

    fn object_locations(&self, key: ObjectKey) -> ObjectLocations {
        let state = self.state();
        let object = &state.catalog[key];
        ObjectLocations {
            object: object.id,
            size_bytes: state.catalog.size_bytes(key),
            holders: state.sorted_holders(object.id),
            receivers: state
                .transfers
                .receivers(key)
                .map(|receiver| state.executors[receiver].id)
                .collect(),
            wanted: object.waiting.wanted(),
        }
    }

    /// Everything that keeps the task from executors, with the number of executors, if it is kept
    /// from all.
    fn mismatches(&self, task: TaskKey) -> Option<Vec<(Mismatch, u32)>> {
        let mut counts = BTreeMap::new();
        for (executor, _) in
            self.state().executors.all().filter(|(_, executor)| !executor.is_draining)
        {
            let mismatches = Pairing::of_task(self.state(), executor, task).mismatches();
            if mismatches.is_empty() {
                return None;
            }
            mismatches.into_iter().for_each(|mismatch| *counts.entry(mismatch).or_default() += 1);
        }
        Some(counts.into_iter().collect())
    }

    /// Of the executors with a free slot for the task, other than its home, the one where it would
    /// be done the soonest.
    fn soonest_elsewhere(
        &self,
        task: TaskKey,
        home: ExecutorKey,
    ) -> Option<(ExecutorId, Estimate)> {
        let state = self.state();
        let is_free =
            |executor| executor != home && state.may_take(executor, task, PlacementLevel::Slot);
        // Each estimate looks at all inputs.
        let most = (ESTIMATED_INPUTS / state.inputs(task).len().max(1)).max(1);
        let free = state.executors.all().filter(|(executor, _)| is_free(*executor)).take(most);
        let estimator = Estimator::new(state);
        let estimates =
            free.map(|(key, executor)| (executor.id, estimator.behind_assigned(task, key)));
        estimates.min_by_key(|(_, estimate)| estimate.finish_us())
    }

    fn why_waiting(&self, task: TaskKey) -> WaitReason {
        let state = self.state();
        let resources = state.resources_of(task);
        let staying = || state.executors.all().filter(|(_, executor)| !executor.is_draining);
        if staying().next().is_none() {
            return WaitReason::NoExecutors;
        }
        if !staying().any(|(_, executor)| executor.capacity.covers(resources)) {
            return WaitReason::TooLarge;
        }
        if let Some(mismatches) = self.mismatches(task) {
            return WaitReason::Unmatched(mismatches);
        }
        let refusals = state.queue.refusals(task);
        if !refusals.is_empty() {
            return WaitReason::Refused(
                refusals.iter().map(|executor| state.executors[*executor].id).collect(),
            );
        }
        if let Some((home, there)) = self.placement().estimate_at_home(state, task) {
            let elsewhere = self.soonest_elsewhere(task, home);
            return WaitReason::Soonest { home: state.executors[home].id, there, elsewhere };
        }
        let is_free = state
            .executors
            .all()
            .any(|(executor, _)| state.may_take(executor, task, PlacementLevel::Slot));
        if is_free && self.placement().fallback(state) == Fallback::OnlyBestHolder {
            let all = state.executors.all();
            let shares: Vec<_> =
                all.map(|(key, executor)| (state.share_held(task, key), executor.id)).collect();
            let most = shares.iter().map(|(share, _)| *share).max();
            let best = shares.iter().filter(|(share, _)| Some(*share) == most).map(|(_, id)| *id);
            return WaitReason::ForHolders(best.collect());
        }
        WaitReason::SlotsTaken
    }
}
