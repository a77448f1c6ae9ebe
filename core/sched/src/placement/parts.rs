//! Inputs whose parts are objects of their own, such as a large file of the cluster: a task goes where most parts are.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use eyas_types::{ExecutorId, ObjectId, TaskId};

use crate::scheduler::Scheduler;

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

    /// One of these parts that the executor with most of their bytes has, and few others have. As a further input of a
    /// task that reads all of the parts, it makes that executor the better one for the task. An executor that has the
    /// whole input is better still, since the part is small beside the whole.
    pub fn part_for_placement(&self, parts: &[(ObjectId, u64)]) -> Option<(ObjectId, u64)> {
        let held = self.bytes_held(parts);
        let (best, _) = held.iter().max_by_key(|(executor, bytes)| (**bytes, Reverse(**executor)))?;
        let of_best = parts.iter().filter(|(part, _)| self.holders(*part).any(|holder| holder == *best));
        of_best.min_by_key(|(part, size_bytes)| (self.holders(*part).count(), Reverse(*size_bytes), *part)).copied()
    }
}
