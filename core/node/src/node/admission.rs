//! Admission: which queued tasks get room for all their inputs.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{TaskId, units};

use super::Node;
use crate::event::Effect;
use crate::space::StoreAmount;
use crate::tasks::{NodeTask, StagedInput, State};

impl Node {
    /// Whether the task's resources are free after those of staged and ready tasks are taken.
    /// Without overlap of staging and computing, a task is staged only if they are.
    fn has_slot_for(&self, task: TaskId) -> bool {
        let mut free = self.turns.free().clone();
        let staged =
            |entry: &&NodeTask| matches!(entry.state(), State::Staging { .. } | State::Ready);
        for NodeTask { need, .. } in self.tasks.values().filter(staged) {
            if !free.covers(need) {
                return false;
            }
            free.take(need);
        }
        free.covers(&self.tasks[task].need)
    }

    /// The reason why these inputs exceed the store's limits, if they do.
    pub(super) fn why_never(&self, inputs: &[StagedInput]) -> Option<String> {
        let total = inputs.iter().fold(0u64, |total, input| total.saturating_add(input.size_bytes));
        let limit = self.objects.space.limit_bytes();
        if total > limit {
            return Some(format!(
                "its inputs have {} and must be in the store at the same time, and the store \
                 holds up to {}: give executors a larger store (--cache)",
                units::format_bytes(total),
                units::format_bytes(limit)
            ));
        }
        let (count, most) = (inputs.len() as u64, self.objects.space.limit_objects());
        (count > most).then(|| {
            format!(
                "its inputs are {count} objects and must be in the store at the same time, and \
                 the store holds {most}: give executors a larger store (--cache-objects)"
            )
        })
    }

    /// Moves tasks out of `Queued`, in order of arrival, while the store has room. Tasks that need
    /// no room may overtake a task that waits for room.
    pub(super) fn admit(&mut self, effects: &mut Vec<Effect>) {
        let mut index = 0;
        while let Some(task) = self.queue.get(index) {
            if !self.overlap.is_on && !self.has_slot_for(task) {
                break;
            }
            if self.queue.may_find_room(&mut self.tasks, &self.objects.space, task, index)
                && self.admit_one(task, effects)
            {
                self.queue.admitted(&mut self.tasks, index);
            } else if self.queue.must_wait_for(&self.tasks, task, index) {
                break;
            } else {
                index += 1;
            }
        }
    }

    /// Number of tasks that have room in the store and have not ended.
    pub(super) fn admitted(&self) -> usize {
        self.tasks.len() - self.queue.len()
    }

    /// Reserves room for all inputs of a queued task at once; false if the task must wait. If no
    /// room can become free, the task is refused for now. If a task has found the disk full after
    /// it had written 4 GB, and two tasks are admitted, the third needs 12 GB beside its inputs.
    fn admit_one(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        // Before this task pins anything: waiting helps only if other tasks hold pins, or write to
        // a disk that is short.
        let scratch_bytes = self.scratch_bytes.saturating_mul(self.admitted() as u64 + 1);
        let will_change =
            self.objects.space.is_busy() || (scratch_bytes > 0 && self.admitted() > 0);
        let inputs = &self.tasks[task].inputs;
        // Pins known inputs first, so that they are not evicted to make room for the others.
        let (mut known, mut missing) = (Vec::new(), StoreAmount::default());
        for input in inputs {
            if self.objects.space.is_known(input.object) {
                self.objects.space.pin(input.object);
                known.push(input.object);
            } else {
                missing.bytes += input.size_bytes;
                missing.objects += 1;
            }
        }
        let mut evicted = Vec::new();
        // If nothing else will leave, the task may write less than others did.
        if self.objects.space.make_room_beside(missing, scratch_bytes, &mut evicted)
            || (scratch_bytes > 0
                && !will_change
                && self.objects.space.make_room(missing, &mut evicted))
        {
            effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
            self.promise(task);
            return true;
        }
        known.into_iter().for_each(|object| self.objects.space.unpin(object));
        if will_change {
            return false;
        }
        let total = self.tasks.remove(task).input_bytes();
        let reason = format!(
            "the disk under the store has no room for its inputs ({})",
            units::format_bytes(total)
        );
        effects.push(Effect::Refuse { task, for_now: true, reason });
        true
    }

    /// Starts to stage a task, for which room was reserved. Inputs that were known are pinned
    /// already.
    fn promise(&mut self, task: TaskId) {
        self.queue.room_changed();
        let entry = self.tasks.known(task);
        let missing =
            entry.inputs.iter_mut().map(|input| usize::from(self.objects.bring(task, input))).sum();
        entry.overtaken = 0;
        if missing == 0 {
            self.turns.enter_ready(&mut self.tasks, task);
        } else {
            self.tasks.enter(task, State::Staging { missing });
        }
    }
}
