//! The moves of a job's tasks: how they wait for each other, are queued, run, end, and run again.

use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, ObjectId, ObjectSpec, Outcome, PlaceId, Status, TaskResult};

use super::course::EndedTask;
use super::{FreedTasks, Job, Phase, output_bytes, producer};
use crate::dependencies::Dependencies;
use crate::job_end::JobEnd;
use crate::spec::{Extension, SpecError};

/// Failures that a report describes; it counts the others.
const MAX_FAILURES: usize = 100;

/// Bytes of ended tasks' items that may stay in memory. Of items of more than 4 MiB in all, up to a
/// quarter may stay.
const MAX_DONE_BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };

impl Job {
    /// Moves a task to another phase.
    pub(super) fn enter(&mut self, index: u32, phase: Phase) {
        let before = self.tasks.enter(self.task_id(index), phase);
        if (before == Phase::Succeeded) != (phase == Phase::Succeeded) {
            self.kept.note_read(&self.spec, index, phase == Phase::Succeeded);
        }
        if phase != Phase::Blocked {
            self.borrowed.stop_lacking(index);
        }
    }

    // ---- tasks come

    /// Notes what the tasks of a new job wait for: as it was found when the job was checked, or
    /// finds it.
    pub(super) fn depend(&mut self, known: Option<Dependencies>) {
        let Some(known) = known else { return drop(self.find_dependencies(0)) };
        self.dependencies = known;
        self.dependencies.waiting().into_iter().for_each(|index| self.enter(index, Phase::Blocked));
    }

    /// Adds tasks. Returns those that may run, and those that never can. If anything is wrong,
    /// nothing is added.
    pub(crate) fn extend(&mut self, extension: Extension) -> Result<FreedTasks, SpecError> {
        let (first, had_objects) = (self.tasks.len() as u32, self.objects.ids().len());
        Arc::make_mut(&mut self.spec).extend(extension)?;
        self.objects.grow(&self.spec);
        self.tasks.grow(self.spec.items.len());
        self.note_optional_outputs();
        let freed = self.find_dependencies(first);
        self.kept.count_unread(&self.spec, first);
        self.borrowed.find(&self.spec, self.objects.ids(), first, had_objects);
        self.next_to_queue = self.tasks.len() as u32;
        Ok(freed)
    }

    /// Finds what tasks wait for, beginning with the task `first`. Returns those that may run, and
    /// those that never can, because a task that they need has ended already.
    fn find_dependencies(&mut self, first: u32) -> FreedTasks {
        let mut freed = FreedTasks::default();
        for index in first..self.tasks.len() as u32 {
            let item = self.spec.items.get(index);
            let mut producers: BTreeSet<u32> =
                self.spec.inputs_of(&item).filter_map(producer).collect();
            self.dependencies.depend(index, &producers);
            let never_comes = producers
                .iter()
                .any(|producer| self.tasks.phase(*producer).has_ended_unsuccessfully());
            let had_producers = !producers.is_empty();
            producers.retain(|producer| self.tasks.phase(*producer) != Phase::Succeeded);
            if never_comes {
                freed.hopeless.push(index);
            } else if !producers.is_empty() {
                self.dependencies.wait(index, producers);
                self.enter(index, Phase::Blocked);
            } else if had_producers && !self.inputs(&item).all(|(_, object)| object.is_some()) {
                freed.hopeless.push(index);
            } else {
                freed.ready.push(index);
            }
        }
        freed
    }

    /// No more tasks are added. `now_us` is the present time.
    pub(crate) fn close(&mut self, now_us: u64) {
        let at_us = self.time_us(now_us);
        self.is_open = false;
        self.end_with_the_last_task(at_us);
    }

    // ---- tasks are queued and assigned

    /// The task is in the queue now.
    pub(crate) fn queued(&mut self, now_us: u64, index: u32, inputs: &[(ObjectId, u64)]) {
        self.tasks.queued(index, self.time_us(now_us), inputs);
        if !self.template_at(index).is_done_earlier() {
            self.course.arrived(inputs.iter().map(|(_, size_bytes)| size_bytes).sum());
        }
    }

    pub(crate) fn assigned(&mut self, now_us: u64, index: u32, executor: ExecutorId) {
        let assigned_us = self.time_us(now_us);
        let state = self.tasks.get_mut(index);
        (state.assigned_us, state.executor) = (assigned_us, Some(executor));
        self.enter(index, Phase::Assigned);
    }

    /// The task is in the queue again. Returns whether its inputs are others than those with which
    /// it was queued, so that it is to be queued anew.
    pub(crate) fn unassigned(&mut self, index: u32) -> bool {
        self.enter(index, Phase::Waiting);
        self.outdated.remove(&index)
    }

    /// Gives a task these places.
    ///
    /// # Errors
    /// The first place that another task has, and which that is; then the task is given none.
    pub(crate) fn claim(&mut self, task: u32, places: Vec<PlaceId>) -> Result<(), (PlaceId, u32)> {
        if self.spec.is_attached { Ok(()) } else { self.places.claim(task, places, &self.spec) }
    }

    // ---- tasks end

    /// The task has ended for good. Books the end, adds the result to the pending ones, and returns
    /// the tasks that may run now, and those that never can.
    pub(crate) fn ended(
        &mut self,
        now_us: u64,
        index: u32,
        attempt: u32,
        executor: String,
        outcome: Outcome,
    ) -> FreedTasks {
        let at_us = self.time_us(now_us);
        let state = self.tasks[index as usize];
        let was_assigned = state.phase == Phase::Assigned;
        let queued_us =
            if was_assigned { state.assigned_us.saturating_sub(state.ready_us) } else { 0 };
        let ready_us = if state.ready_us == 0 { at_us } else { state.ready_us };
        let away_us = if was_assigned { at_us.saturating_sub(state.assigned_us) } else { 0 };
        let delivery_us =
            away_us.saturating_sub(outcome.waited_us + outcome.ran_us + outcome.suspended_us);
        let result = TaskResult { index, attempt, executor, queued_us, delivery_us, outcome };
        let end = JobEnd { at_us, ready_us, output_bytes: output_bytes(&result.outcome), result };
        let freed = self.book(&end);
        self.tasks.get_mut(index).entry += self.recorded.pending.push(end);
        freed
    }

    /// Books an end: live, or again when it is read from the journal.
    pub(crate) fn book(&mut self, end: &JobEnd) -> FreedTasks {
        let JobEnd { at_us, ready_us, output_bytes, ref result } = *end;
        let index = result.index;
        self.tasks.get_mut(index).ready_us = ready_us;
        let phase = match &result.outcome.status {
            Status::Succeeded => Phase::Succeeded,
            Status::Cancelled => Phase::Cancelled,
            _ => Phase::Failed,
        };
        if phase == Phase::Failed && self.failures.len() < MAX_FAILURES {
            self.failures.push((self.task_id(index), result.outcome.status.to_string()));
        }
        self.retried += u64::from(result.attempt);
        self.reused += u64::from(result.outcome.reused.is_some());
        let outcome = &result.outcome;
        self.recorded.results += 1;
        self.recorded.output_bytes += output_bytes;
        self.peak_memory_bytes = self.peak_memory_bytes.max(outcome.peak_memory_bytes);
        if phase == Phase::Cancelled {
            // A cancelled run counts neither as throughput nor in the estimates of time.
            self.course.cancelled(outcome.reads);
        } else if !self.template_at(index).is_done_earlier() {
            self.course.ended(&EndedTask {
                at_us,
                ready_us,
                queued_us: result.queued_us,
                waited_us: outcome.waited_us,
                ran_us: outcome.ran_us,
                delivery_us: result.delivery_us,
                cpu_us: outcome.cpu_us,
                reads: outcome.reads,
            });
        }
        self.cancelling.remove(&index);
        self.outdated.remove(&index);
        self.enter(index, phase);
        self.tasks.get_mut(index).entry = self.recorded.entries;
        // It may have been given up while it waited for others.
        self.dependencies.stop_waiting(index);
        let has_succeeded_before = self.tasks[index as usize].recomputed > 0;
        if !self.spec.is_attached {
            self.places.ended(index, &result.outcome, has_succeeded_before);
        }
        self.kept.note(
            index,
            &self.spec.templates[usize::from(self.spec.items.template(index))].outputs,
            outcome,
        );
        let freed = self.free_dependents(index, phase, &result.outcome);
        for ready in &freed.ready {
            self.enter(*ready, Phase::Waiting);
        }
        self.end_with_the_last_task(at_us);
        freed
    }

    fn end_with_the_last_task(&mut self, at_us: u64) {
        let counts = self.counts();
        if counts.ended() == counts.total() && !self.is_open {
            self.clock.ended_us = Some(at_us);
        }
    }

    /// Gives the outputs of an ended task to the tasks that read them. Returns the tasks that wait
    /// for no other one, those that never can run, and the earlier outputs that assigned tasks were
    /// to read.
    fn free_dependents(&mut self, index: u32, phase: Phase, outcome: &Outcome) -> FreedTasks {
        let mut freed = FreedTasks::default();
        let dependents = self.dependencies.dependents(index).to_vec();
        // Tasks that read its outputs may still be added.
        if phase == Phase::Succeeded && (!dependents.is_empty() || self.is_open) {
            freed.replaced = self.objects.produce(index, outcome);
        }
        if !freed.replaced.is_empty() && !self.note_outdated(index, &dependents, &freed.replaced) {
            freed.replaced.clear();
        }
        for dependent in dependents {
            if phase != Phase::Succeeded {
                freed.hopeless.extend(self.dependencies.is_waiting(dependent).then_some(dependent));
            } else if self.dependencies.meet(dependent, index) {
                // A task may succeed without an optional output.
                let item = self.spec.items.get(dependent);
                let is_complete = self.inputs(&item).all(|(_, object)| object.is_some());
                if is_complete { &mut freed.ready } else { &mut freed.hopeless }.push(dependent);
            }
        }
        freed
    }

    /// Outputs of a task were replaced. Notes the assigned tasks that were to read them. Returns
    /// whether tasks that read outputs of the task are assigned.
    fn note_outdated(
        &mut self,
        index: u32,
        dependents: &[u32],
        replaced: &[(u16, ObjectSpec)],
    ) -> bool {
        let is_assigned = |dependent: &u32| self.tasks.phase(*dependent) == Phase::Assigned;
        let assigned: Vec<u32> = dependents.iter().copied().filter(is_assigned).collect();
        let is_replaced = |(task, output): (u32, u16)| {
            task == index && replaced.iter().any(|(other, _)| *other == output)
        };
        for dependent in &assigned {
            let item = self.spec.items.get(*dependent);
            let mut read = self.spec.inputs_of(&item).filter_map(|input| input.from.output());
            if read.any(is_replaced) {
                self.outdated.insert(*dependent);
            }
        }
        !assigned.is_empty()
    }

    /// Drops what is no longer needed of the item of a task that has ended, if the job is attached.
    /// The item stays if the task may have to run again, because it keeps outputs in the cluster.
    pub(crate) fn drop_item(&mut self, index: u32) {
        if !self.spec.is_attached || !self.is_done(index) {
            return;
        }
        self.done_bytes += self.spec.items.bytes_of(index);
        if self.done_bytes < MAX_DONE_BYTES || self.done_bytes < self.spec.items.content_bytes() / 4
        {
            return;
        }
        let is_done: Vec<bool> = self.tasks.indices().map(|index| self.is_done(index)).collect();
        Arc::make_mut(&mut self.spec).items.strip(|index| is_done[index as usize]);
        self.done_bytes = 0;
    }

    fn is_done(&self, index: u32) -> bool {
        self.tasks.phase(index).has_ended() && self.kept_by(index).next().is_none()
    }

    // ---- tasks wait for what was there before

    /// A task that waits must wait for the output of these, which they have written before.
    pub fn block(&mut self, index: u32, producers: impl IntoIterator<Item = u32>) {
        let phase = self.tasks.phase(index);
        assert!(
            matches!(phase, Phase::Waiting | Phase::Blocked),
            "task {index} is to be blocked while {phase:?}"
        );
        self.dependencies.wait(index, producers);
        self.enter(index, Phase::Blocked);
    }

    /// What this task wrote is available again. Returns the tasks that may run now.
    pub fn unblock(&mut self, producer: u32) -> Vec<u32> {
        let mut ready = self.dependencies.dependents(producer).to_vec();
        ready.retain(|dependent| self.dependencies.meet(*dependent, producer));
        ready.iter().for_each(|dependent| self.enter(*dependent, Phase::Waiting));
        ready
    }

    /// Blocks a waiting task until executors have these objects.
    pub(crate) fn lack(&mut self, index: u32, objects: impl IntoIterator<Item = ObjectId>) {
        self.borrowed.lack(index, objects);
        self.block(index, []);
    }

    /// An executor has the object. Returns the tasks that may run now.
    pub(crate) fn found(&mut self, object: ObjectId) -> Vec<u32> {
        let mut ready = self.lacking(object);
        ready.retain(|index| {
            self.borrowed.found(*index, object) && !self.dependencies.is_waiting(*index)
        });
        ready.iter().for_each(|index| self.enter(*index, Phase::Waiting));
        ready
    }

    // ---- what tasks have left is no longer needed

    /// Only tasks need what a task has left from now on, and only until they have read it. Returns
    /// it.
    pub fn note_unneeded(&mut self, index: u32) -> Vec<ObjectId> {
        let left = self.kept.keep_until_read(index);
        for (_, output) in &left {
            let unread = self.unread_inputs(index, *output);
            self.kept.set_unread((index, *output), unread);
        }
        left.into_iter().map(|(object, _)| object).collect()
    }

    /// Forgets what a task has left. Returns the tasks whose outputs it has read, and the objects.
    pub fn forget_outputs(&mut self, index: u32) -> (BTreeSet<u32>, Vec<ObjectId>) {
        let objects: Vec<_> = self.kept_by(index).map(|(object, _)| object).collect();
        let item = self.spec.items.get(index);
        let producers = self.spec.inputs_of(&item).filter_map(producer).collect();
        for object in &objects {
            if let Some(output) = self.kept.forget(index, *object) {
                self.objects.forget(index, output);
            }
        }
        self.drop_item(index);
        (producers, objects)
    }

    /// Releases everything that the job keeps, and returns it.
    pub fn release(&mut self) -> Vec<(u32, ObjectId)> {
        self.kept.release()
    }

    // ---- tasks run again

    /// Lets the job's time continue, because these tasks run again.
    fn go_on(&mut self, again: &[u32], paused_us: u64) {
        if !again.is_empty() {
            self.clock.go_on(paused_us);
        }
    }

    /// Takes other versions of objects, by their indices.
    pub(crate) fn take_current(&mut self, current: Vec<(u32, ObjectSpec)>) {
        self.objects.replace(&current);
        Arc::make_mut(&mut self.spec).replace_objects(current);
    }

    /// Makes these tasks, which have ended, run again: live, or again when it is read from the
    /// journal. Tells which may be queued at once.
    pub(crate) fn retry_these(&mut self, again: &[u32], paused_us: u64) -> Vec<u32> {
        let mut ready = Vec::new();
        for index in again {
            let is_alone = self.dependencies.are_none();
            let item = (!is_alone).then(|| self.spec.items.get(*index));
            let producers =
                item.iter().flat_map(|item| self.spec.inputs_of(item)).filter_map(producer);
            let unmet: BTreeSet<u32> =
                producers.filter(|task| self.tasks.phase(*task) != Phase::Succeeded).collect();
            self.tasks.forget_failures(*index);
            if unmet.is_empty() {
                self.enter(*index, Phase::Waiting);
                ready.push(*index);
            } else {
                self.dependencies.wait(*index, unmet);
                self.enter(*index, Phase::Blocked);
            }
        }
        self.retried += again.len() as u64;
        self.failures.clear();
        self.go_on(again, paused_us);
        ready
    }

    /// Makes these tasks, which have succeeded, run again because what they wrote is lost: live, or
    /// again when it is read from the journal. Those that still need it go from `Waiting` to
    /// `Blocked`.
    pub fn recompute(&mut self, again: &[u32], paused_us: u64) {
        for index in again {
            self.tasks.get_mut(*index).recomputed += 1;
            self.tasks.forget_failures(*index);
            self.enter(*index, Phase::Waiting);
            for dependent in self.dependencies.dependents(*index).to_vec() {
                if matches!(self.tasks.phase(dependent), Phase::Waiting | Phase::Blocked) {
                    self.block(dependent, [*index]);
                }
            }
        }
        self.recomputed += again.len() as u64;
        self.go_on(again, paused_us);
    }
}
