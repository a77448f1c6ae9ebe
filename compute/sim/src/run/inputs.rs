//! What tasks read, as the workload says it.

use eyas_dispatch::PlacementInputs;
use eyas_jobs::Jobs;
use eyas_sched::Scheduler;
use eyas_types::{ObjectId, TaskId};

use super::job::Plan;
use super::object::Owner;
use super::task::SimTasks;
use crate::workload::Workload;

/// The inputs of all tasks.
pub(super) struct WorkloadInputs<'a> {
    pub plan: &'a Plan,
    pub tasks: &'a SimTasks,
    pub workload: &'a dyn Workload,
}

impl WorkloadInputs<'_> {
    /// Inputs of a task with their sizes, sorted by the ids that they have for `owner`.
    pub fn of(&self, task: u32, owner: Owner) -> Box<[(ObjectId, u64)]> {
        let inputs = self.tasks[task].inputs.iter();
        let mut inputs: Box<[_]> = inputs
            .map(|object| {
                (self.plan.outputs.id_of(*object, owner), self.workload.size_bytes(*object))
            })
            .collect();
        inputs.sort_unstable();
        inputs
    }
}

/// The inputs of a dispatcher's tasks.
pub(super) struct DispatcherInputs<'a> {
    pub dispatcher: usize,
    pub all: WorkloadInputs<'a>,
}

impl PlacementInputs for DispatcherInputs<'_> {
    fn complete(
        &self,
        task: TaskId,
        inputs: Box<[(ObjectId, u64)]>,
        _: &Jobs,
        _: &mut Scheduler,
    ) -> Box<[(ObjectId, u64)]> {
        // `core/jobs` knows only the inputs that other tasks write.
        let known = inputs.len();
        let inputs = self.all.of(self.all.plan.number(self.dispatcher, task), Owner::All);
        debug_assert!(inputs.len() >= known, "{task} reads what the workload does not say");
        inputs
    }
}
