//! Inputs whose parts are objects of their own, such as a large file of the cluster: a task goes
//! where most parts are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::{ExecutorId, JobId, ObjectId, TaskId};

use crate::scheduler::Scheduler;

/// Maximum number of inputs whose chosen parts are known. When there are more, all are forgotten.
const MAX_CHOSEN_PARTS: usize = 4096;

/// The parts that were chosen since a replica came or went. Many tasks of a job may read the same
/// input, and become ready at the same time.
#[derive(Default)]
pub(crate) struct ChosenParts {
    /// [`replica_changes`](crate::state::Catalog::replica_changes) at that time.
    at_changes: u64,
    of: BTreeMap<(JobId, ObjectId), Option<(ObjectId, u64)>>,
}

impl Scheduler {
    /// The objects with which a task was queued, in the order that hints name.
    pub fn input_ids(&self, task: TaskId) -> Vec<ObjectId> {
        let state = self.state();
        let inputs = state.queue.find(task).map_or(&[][..], |task| state.inputs(task));
        inputs.iter().map(|input| state.catalog[*input].id).collect()
    }

    /// The bytes of these objects that each executor has, of executors that have any.
    pub fn bytes_held(&self, parts: &[(ObjectId, u64)]) -> BTreeMap<ExecutorId, u64> {
        let mut held = BTreeMap::new();
        for (part, size_bytes) in parts {
            self.holders(*part).for_each(|holder| *held.entry(holder).or_default() += size_bytes);
        }
        held
    }

    /// One of the parts of a job's input that the executor with most of their bytes has, and few
    /// others have. As a further input of a task that reads all of the parts, it makes that
    /// executor the better one for the task. An executor that has the whole input is better still,
    /// since the part is small beside the whole.
    ///
    /// For example A has the parts 1, 2 and 3, and B has 1 and 4, all of one size: part 2 is
    /// chosen, which only A has, and whose id is smaller than that of part 3.
    pub fn part_for_placement(
        &mut self,
        job: JobId,
        input: ObjectId,
        parts: &[(ObjectId, u64)],
    ) -> Option<(ObjectId, u64)> {
        let changes = self.state().catalog.replica_changes();
        if self.chosen_parts.at_changes != changes || self.chosen_parts.of.len() >= MAX_CHOSEN_PARTS
        {
            self.chosen_parts = ChosenParts { at_changes: changes, of: BTreeMap::new() };
        }
        if let Some(chosen) = self.chosen_parts.of.get(&(job, input)) {
            return *chosen;
        }
        let chosen = self.choose_part(parts);
        self.chosen_parts.of.insert((job, input), chosen);
        chosen
    }

    fn choose_part(&self, parts: &[(ObjectId, u64)]) -> Option<(ObjectId, u64)> {
        let held = self.bytes_held(parts);
        let (best, _) =
            held.iter().max_by_key(|(executor, bytes)| (**bytes, Reverse(**executor)))?;
        let of_best =
            parts.iter().filter(|(part, _)| self.holders(*part).any(|holder| holder == *best));
        of_best
            .min_by_key(|(part, size_bytes)| {
                (self.holders(*part).count(), Reverse(*size_bytes), *part)
            })
            .copied()
    }
}
