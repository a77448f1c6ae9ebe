//! Why a task waits or where it went: views of the scheduler's state for people.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::{Estimate, ExecutorId, ObjectId, Resources, TaskId};

use crate::executors::{ExecutorKey, Level};
use crate::matchmaking::{Meeting, Mismatch};
use crate::placement::Otherwise;
use crate::queue::{Class, State, TaskKey};
use crate::scheduler::Scheduler;
use crate::search;
use eyas_types::Need;

/// A task as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskView {
    /// Where it is assigned, if it is.
    pub executor: Option<ExecutorId>,
    /// Where tasks go where they would be done the soonest, what was estimated when it was assigned.
    pub estimate: Option<Estimate>,
    /// How often it was assigned.
    pub assigned: u32,
    /// What it needs.
    pub need: Need,
    /// Its inputs: who holds each.
    pub inputs: Vec<ObjectView>,
    /// Why it waits, if it does.
    pub waits: Option<WaitReason>,
}

/// An object in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectView {
    /// Its id.
    pub object: ObjectId,
    /// Its size.
    pub size_bytes: u64,
    /// Who holds a replica.
    pub holders: Vec<ExecutorId>,
    /// Who was told to fetch it and has not got all of it yet: partial replicas.
    pub receivers: Vec<ExecutorId>,
    /// How many waiting tasks want it.
    pub wanted: u32,
}

/// An executor as the scheduler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutorView {
    /// Its id.
    pub executor: ExecutorId,
    /// What it has.
    pub capacity: Resources,
    /// Processors that assigned tasks ask for, thousandths; more than the capacity where tasks are lined up.
    pub assigned_milli: u64,
    /// Tasks it was given.
    pub in_flight: usize,
    /// Objects it holds.
    pub held: usize,
}

/// Why a task waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// No executor has joined.
    NoExecutors,
    /// No executor has as much as the task needs.
    TooLarge,
    /// There are executors, and none that it matches now: what keeps it from how many of them.
    Unmatched(Vec<(Mismatch, u32)>),
    /// These executors could not take it (full disk, too small a store); the others are busy.
    Refused(Vec<ExecutorId>),
    /// Every executor that could take it is busy.
    SlotsTaken,
    /// The policy lets it wait for the executors that hold the most of its inputs, which are busy.
    ForHolders(Vec<ExecutorId>),
    /// It would be done no sooner elsewhere than where it is lined up.
    Soonest {
        /// Where that is.
        home: ExecutorId,
        /// How soon it would be done there.
        there: Estimate,
        /// How soon on whom of those who are free.
        elsewhere: Option<(ExecutorId, Estimate)>,
    },
}

impl Scheduler {
    /// The task, if it is known and has not ended.
    pub fn explain_task(&self, id: TaskId) -> Option<TaskView> {
        let key = self.queue.find(id)?;
        let task = &self.queue[key];
        let executor = match task.state {
            State::Assigned { executor, .. } => Some(self.executors[executor].id),
            _ => None,
        };
        Some(TaskView {
            executor,
            estimate: self.estimate_of(id),
            assigned: task.attempt,
            need: self.queue.need(task.class).need.clone(),
            inputs: task.inputs.as_slice().iter().map(|input| self.object_view(*input)).collect(),
            waits: executor.is_none().then(|| self.why_waiting(key)),
        })
    }

    /// What was estimated when the task was assigned, if it is and that decided it.
    pub fn estimate_of(&self, id: TaskId) -> Option<Estimate> {
        match self.queue[self.queue.find(id)?].state {
            State::Assigned { executor, number, .. } => self.executors[executor].in_flight(number).estimate,
            _ => None,
        }
    }

    /// Who holds a replica of the object, in no particular order.
    pub fn who_holds(&self, id: ObjectId) -> impl Iterator<Item = ExecutorId> {
        let holders = self.catalog.find(id).into_iter().flat_map(|key| &self.catalog[key].holders);
        holders.map(|holder| self.executors[*holder].id)
    }

    /// The object, if a task wants it or an executor holds it.
    pub fn explain_object(&self, id: ObjectId) -> Option<ObjectView> {
        self.catalog.find(id).map(|key| self.object_view(key))
    }

    /// Tasks an executor was given and has not ended, in the order of their ids.
    pub fn tasks_of(&self, executor: ExecutorId) -> Vec<TaskId> {
        let Some(key) = self.executors.find(executor) else { return Vec::new() };
        let mut tasks: Vec<_> = self.executors[key].in_flight.iter().map(|given| self.queue[given.task].id).collect();
        tasks.sort_unstable();
        tasks
    }

    /// All executors, in the order of their ids.
    pub fn explain_executors(&self) -> Vec<ExecutorView> {
        let mut views: Vec<_> = self.executors.all().map(|(_, executor)| executor.view()).collect();
        views.sort_unstable_by_key(|view| view.executor);
        views
    }

    /// Whether tasks of that need are known, and there is no executor that is large enough and matches them by all that
    /// never changes.
    pub fn is_matched_by_nobody(&self, need: &Need) -> bool {
        let has_nobody = |class: Class| !self.executors.all().any(|(_, by)| by.is_large_enough(self.queue.need(class)));
        self.queue.class(need).is_some_and(has_nobody)
    }

    /// Whether tasks of that need are known, and the largest of them would not fit on the disk of any executor that is
    /// large enough.
    pub fn is_without_disk(&self, need: &Need) -> bool {
        self.queue.class(need).map(|class| self.queue.need(class)).is_some_and(|need| {
            let large_enough = self.executors.all().filter(|(_, executor)| executor.is_large_enough(need));
            let most = large_enough.map(|(_, executor)| executor.free_disk_bytes).max();
            most.is_some_and(|most| most < need.most_bytes)
        })
    }

    fn object_view(&self, key: crate::ObjectKey) -> ObjectView {
        let object = &self.catalog[key];
        let holders = self.holders(object.id);
        let receivers = self.relays.receivers(key).map(|receiver| self.executors[receiver].id).collect();
        let (size_bytes, wanted) = (self.catalog.size_bytes(key), object.wanted);
        ObjectView { object: object.id, size_bytes, holders, receivers, wanted }
    }

    /// What keeps the task from how many executors, if it is kept from all.
    fn mismatches(&self, task: TaskKey) -> Option<Vec<(Mismatch, u32)>> {
        let mut counts = BTreeMap::new();
        let Scheduler { queue, catalog, executors, .. } = self;
        for (by, _) in executors.all().filter(|(_, executor)| !executor.is_draining) {
            let mismatches = Meeting::of_task(queue, catalog, executors, by, task).mismatches();
            if mismatches.is_empty() {
                return None;
            }
            mismatches.into_iter().for_each(|mismatch| *counts.entry(mismatch).or_default() += 1);
        }
        Some(counts.into_iter().collect())
    }

    /// Of those with a free slot for the task, the one where it would be done the soonest.
    fn idle(&self, task: TaskKey, home: ExecutorKey) -> Option<(ExecutorId, Estimate)> {
        let Scheduler { queue, catalog, executors, .. } = self;
        let free = |by| by != home && search::may_take(queue, catalog, executors, by, task, Level::Slot);
        let idle = executors.all().filter(|(by, _)| free(*by));
        let estimator = self.estimator();
        let estimates =
            idle.map(|(by, executor)| (executor.id, estimator.estimate(task, by, executor.assigned_share())));
        estimates.min_by_key(|(_, estimate)| estimate.finish_us())
    }

    fn why_waiting(&self, task: TaskKey) -> WaitReason {
        let need = self.queue.resources(self.queue[task].class);
        if self.executors.all().all(|(_, executor)| executor.is_draining) {
            return WaitReason::NoExecutors;
        }
        if !self.executors.all().any(|(_, executor)| !executor.is_draining && executor.capacity.covers(need)) {
            return WaitReason::TooLarge;
        }
        if let Some(mismatches) = self.mismatches(task) {
            return WaitReason::Unmatched(mismatches);
        }
        if let Some(refusals) = self.queue.refusals.get(&task) {
            return WaitReason::Refused(refusals.iter().map(|by| self.executors[*by].id).collect());
        }
        if let Some((home, there)) = self.estimator().at_home(&self.lines, task) {
            return WaitReason::Soonest { home: self.executors[home].id, there, elsewhere: self.idle(task, home) };
        }
        let Scheduler { queue, catalog, executors, .. } = self;
        let free = |level| executors.all().any(|(by, _)| search::may_take(queue, catalog, executors, by, task, level));
        if free(Level::Slot) && self.otherwise() == Otherwise::OnlyBestHolder {
            let shares = self.executors.all().map(|(by, executor)| {
                (search::share_held(&self.queue, &self.catalog, &self.executors, task, by), executor.id)
            });
            let shares: Vec<_> = shares.collect();
            let most = shares.iter().map(|(share, _)| *share).max().unwrap_or(0);
            let best = shares.iter().filter(|(share, _)| *share == most).map(|(_, id)| *id);
            return WaitReason::ForHolders(best.collect());
        }
        WaitReason::SlotsTaken
    }
}
