//! Running failed and cancelled tasks again: which ones may, and their moves.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::{Input, InputFrom, ObjectSpec};

use super::{Job, Phase, producer};

impl Job {
    /// Tasks that have ended without success and may run again. A task can never run if a producer succeeded without
    /// writing what the task reads, and neither can tasks that read its outputs.
    pub(crate) fn failed_tasks(&self) -> Vec<u32> {
        let has_failed = |index: &u32| matches!(self.tasks[*index as usize].phase, Phase::Failed | Phase::Cancelled);
        let mut failed: Vec<u32> = (0..self.tasks.len() as u32).filter(has_failed).collect();
        let mut to_follow: Vec<u32> = failed.iter().copied().filter(|index| self.lacks_for_good(*index)).collect();
        let mut never: BTreeSet<u32> = to_follow.iter().copied().collect();
        while let Some(index) = to_follow.pop() {
            let dependents = self.dependents.get(&index).into_iter().flatten();
            to_follow.extend(dependents.copied().filter(has_failed).filter(|dependent| never.insert(*dependent)));
        }
        failed.retain(|index| !never.contains(index));
        failed
    }

    /// Places of the submitted objects that tasks read which may run again: of up to `most` such tasks, from the task
    /// `from` on. Also the first task of the next part.
    pub fn objects_to_retry(&self, from: u32, most: usize) -> (BTreeSet<u32>, Option<u32>) {
        let mut tasks = self.failed_tasks().into_iter().filter(|index| *index >= from);
        let (mut places, mut templates) = (BTreeSet::new(), BTreeSet::new());
        let place = |input: &Input| match input.from {
            InputFrom::Object(object) | InputFrom::Part { object, .. } => Some(object),
            InputFrom::Output { .. } | InputFrom::OutputPart { .. } => None,
        };
        for index in tasks.by_ref().take(most) {
            let item = self.spec.items.get(index);
            places.extend(item.inputs.iter().filter_map(place));
            if templates.insert(item.template) {
                places.extend(self.template_of(&item).inputs.iter().filter_map(place));
            }
        }
        (places, tasks.next())
    }

    /// Takes other versions of objects, by their places.
    pub(crate) fn take_current(&mut self, current: Vec<(u32, ObjectSpec)>) {
        self.shared_inputs.clear();
        current.iter().for_each(|(place, object)| self.object_ids[*place as usize] = object.id());
        Arc::make_mut(&mut self.spec).replace_objects(current);
    }

    /// A task starts again because its executor is gone: live, or again when it is read from the journal.
    pub(crate) fn count_restart(&mut self, index: u32, is_loss: bool) {
        let state = &mut self.tasks[index as usize];
        if is_loss {
            state.losses = state.losses.saturating_add(1);
        } else {
            state.interrupted = state.interrupted.saturating_add(1);
        }
    }

    fn lacks_for_good(&self, index: u32) -> bool {
        let item = self.spec.items.get(index);
        self.inputs(&item).any(|(input, object)| {
            let succeeded = |task: u32| self.tasks[task as usize].phase == Phase::Succeeded;
            object.is_none() && producer(input).is_some_and(succeeded)
        })
    }

    /// Makes these tasks, which have ended, run again: live, or again when it is read from the journal. Tells which may
    /// be queued at once.
    pub(crate) fn retry_these(&mut self, again: &[u32], paused_us: u64) -> Vec<u32> {
        let mut ready = Vec::new();
        for index in again {
            let item = self.spec.items.get(*index);
            let producers = self.template_of(&item).inputs.iter().chain(&item.inputs).filter_map(producer);
            let unmet: BTreeSet<u32> =
                producers.filter(|task| self.tasks[*task as usize].phase != Phase::Succeeded).collect();
            let state = &mut self.tasks[*index as usize];
            (state.failures, state.losses, state.interrupted) = (0, 0, 0);
            if unmet.is_empty() {
                self.enter(*index, Phase::Waiting);
                ready.push(*index);
            } else {
                self.unmet.insert(*index, unmet);
                self.enter(*index, Phase::Blocked);
            }
        }
        self.retried += again.len() as u64;
        self.failures.clear();
        self.go_on(again, paused_us);
        ready
    }
}
