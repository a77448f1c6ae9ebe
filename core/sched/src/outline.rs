//! Which tasks that have not started would fit nodes that are not there: how much work there is for
//! nodes that could be requested.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use eyas_types::matching::{Attribute, Fact, Facts, Labels};
use eyas_types::{Need, Resources};

use crate::scheduler::Scheduler;
use crate::state::{ExecutorKey, SchedulerState, TaskKey};

/// Tasks that start within this time where they are need no further node.
const SOON_US: u64 = 1_000_000;

/// A node that does not exist yet: what the scheduler knows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeOutline {
    /// The resources for tasks; `None` if they are not known, and taken to be enough.
    pub capacity: Option<Resources>,
    /// The labels.
    pub labels: Labels,
}

/// Tasks of equal needs that have not started.
#[derive(Clone, Debug, PartialEq)]
pub struct UnstartedClass<'a> {
    /// The needs.
    pub need: &'a Need,
    /// The number of tasks.
    pub tasks: u64,
}

impl NodeOutline {
    /// Whether a node like this could be given tasks with that need: it is large enough, and
    /// matches the tasks by everything that never changes. A requirement that names a single node
    /// or host is not met.
    pub fn could_take(&self, need: &Need) -> bool {
        let pairing = OutlinePairing { node: self, need };
        let mut parts = need.terms.iter().flat_map(|terms| &terms.requirements);
        self.capacity.as_ref().is_none_or(|capacity| capacity.covers(&need.resources))
            && parts.all(|part| !part.is_fixed() || part.holds(&pairing) == Ok(true))
    }
}

struct OutlinePairing<'a> {
    node: &'a NodeOutline,
    need: &'a Need,
}

impl Facts for OutlinePairing<'_> {
    fn fact(&self, attribute: Attribute) -> Fact<'_> {
        let capacity = self.node.capacity.as_ref();
        let needed = &self.need.resources;
        let cpus = |milli: u32| Fact::Fraction(f64::from(milli) / 1000.0);
        let bytes = |of: fn(&Resources) -> u64| Fact::Whole(capacity.map_or(u64::MAX, of));
        match attribute {
            Attribute::NodeName | Attribute::NodeHost | Attribute::TaskJob => Fact::Text(""),
            Attribute::NodeLabels => Fact::Labels(&self.node.labels),
            Attribute::NodeCpus => cpus(capacity.map_or(u32::MAX, |capacity| capacity.cpus_milli)),
            Attribute::NodeMemory => bytes(|capacity| capacity.memory_bytes),
            Attribute::NodeDisk | Attribute::NodeFreeDisk => bytes(|capacity| capacity.disk_bytes),
            Attribute::NodeLoad | Attribute::TransferSeconds => Fact::Fraction(0.0),
            Attribute::TaskCpus => cpus(needed.cpus_milli),
            Attribute::TaskMemory => Fact::Whole(needed.memory_bytes),
            Attribute::TaskDisk => Fact::Whole(needed.disk_bytes),
            Attribute::TaskInputs
            | Attribute::TaskInputBytes
            | Attribute::TaskAttempt
            | Attribute::LocalBytes => Fact::Whole(0),
        }
    }
}

impl Scheduler {
    /// Whether there are tasks that wait, or that an executor was given beyond its slots.
    pub fn has_unstarted(&self) -> bool {
        let state = self.state();
        state.queue.waiting() > 0 || !state.executors.overbooked().is_empty()
    }

    /// Tasks that have not started, by their needs, without those that run for longer than
    /// `within_us`: those that wait, and those that executors were given beyond their slots. Where
    /// the slots are soon free, only tasks that wait count.
    pub fn unstarted_by_need(&self, within_us: u64) -> Vec<UnstartedClass<'_>> {
        let state = self.state();
        let queue = &state.queue;
        let within_s = within_us as f64 / 1e6;
        let all_end_within = state.run_times.longest() <= within_s;
        let ends_within =
            |task: TaskKey| all_end_within || state.expected_seconds(task, 1.0) <= within_s;
        let mut given: BTreeMap<_, u64> = BTreeMap::new();
        for executor in state.executors.overbooked() {
            for task in state.behind_slots(*executor).into_iter().filter(|task| ends_within(*task))
            {
                *given.entry(queue[task].class).or_default() += 1;
            }
        }
        let waiting = |key| match all_end_within {
            true => queue.waiting_of(key),
            false => queue.waiting_in(key).filter(|task| ends_within(*task)).count() as u64,
        };
        let class = |key| UnstartedClass {
            need: &queue.need(key).need,
            tasks: waiting(key) + given.get(&key).copied().unwrap_or_default(),
        };
        queue.classes().map(class).filter(|class| class.tasks > 0).collect()
    }

    /// Whether tasks wait that fit an executor, and it is ended before the oldest of them could end
    /// there.
    pub fn lacks_time(&self, executor: eyas_types::ExecutorId) -> bool {
        let state = self.state();
        state.executors.find(executor).is_some_and(|key| state.lacks_time(key))
    }

    /// Number of tasks that an executor was given and has not ended.
    pub fn count_tasks(&self, executor: eyas_types::ExecutorId) -> usize {
        let state = self.state();
        state.executors.find(executor).map_or(0, |key| state.executors[key].in_flight.len())
    }
}

impl SchedulerState {
    /// The tasks that wait for a slot of an executor: the newest of its tasks, because it starts
    /// them last. A task that was recalled and did not come back has started.
    fn behind_slots(&self, key: ExecutorKey) -> Vec<TaskKey> {
        let executor = &self.executors[key];
        let mut behind = Vec::new();
        if !executor.newest_waits(SOON_US) {
            return behind;
        }
        let mut rest = executor.usage().clone();
        for task in executor.in_flight.iter().rev().map(|given| given.task) {
            if !rest.exceeds(&executor.capacity) {
                break;
            }
            let resources = self.resources_of(task);
            if rest.exceeds_with(resources, &executor.capacity) {
                rest.subtract(resources);
                behind.extend(self.may_return(task).then_some(task));
            }
        }
        behind
    }
}
