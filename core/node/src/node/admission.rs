//! Admission: which queued tasks get room for all their inputs.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{TaskId, units};

use super::{Input, MAX_OVERTAKEN, Node, NodeTask, State};
use crate::event::Effect;
use crate::space::StoreAmount;

impl Node {
    /// Whether the task's resources are free after those of staged and ready tasks are taken. Without overlap of
    /// staging and computing, a task is staged only if they are.
    fn has_slot_for(&self, task: TaskId) -> bool {
        let mut free = self.slots.free().clone();
        let staged = |entry: &&NodeTask| matches!(entry.state, State::Staging { .. } | State::Ready);
        for NodeTask { need, .. } in self.tasks.values().filter(staged) {
            if !free.covers(need) {
                return false;
            }
            free.take(need);
        }
        free.covers(&self.tasks[&task].need)
    }

    /// The reason why these inputs exceed the store's limits, if they do.
    pub(super) fn why_never(&self, inputs: &[Input]) -> Option<String> {
        let total = inputs.iter().fold(0u64, |total, input| total.saturating_add(input.size_bytes));
        let limit = self.space.limit_bytes();
        if total > limit {
            return Some(format!(
                "its inputs have {} and must be in the store at the same time, and the store holds up to {}: give \
                 executors a larger store (--cache)",
                units::format_bytes(total),
                units::format_bytes(limit)
            ));
        }
        let (count, most) = (inputs.len() as u64, self.space.limit_objects());
        (count > most).then(|| {
            format!(
                "its inputs are {count} objects and must be in the store at the same time, and the store holds {most}: \
                 give executors a larger store (--cache-objects)"
            )
        })
    }

    /// Moves tasks out of `Queued`, in order of arrival, while the store has room. Tasks that need no room may overtake
    /// a task that waits for room.
    pub(super) fn admit(&mut self, effects: &mut Vec<Effect>) {
        let mut index = 0;
        while let Some(task) = self.queued.get(index).copied() {
            if !self.overlap.is_on && !self.has_slot_for(task) {
                break;
            }
            if self.may_find_room(task, index) && self.admit_one(task, effects) {
                self.queued.remove(index);
                for earlier in self.queued.iter().take(index) {
                    self.tasks.get_mut(earlier).expect("queued tasks are known").overtaken += 1;
                }
            } else if self.tasks[&task].overtaken >= MAX_OVERTAKEN || index as u32 >= MAX_OVERTAKEN {
                break;
            } else {
                index += 1;
            }
        }
    }

    /// Whether the task at this index of the queue may be admitted, and the room has changed since it found none.
    fn may_find_room(&mut self, task: TaskId, index: usize) -> bool {
        let entry = self.tasks.get_mut(&task).expect("queued tasks are known");
        let has_changed = core::mem::replace(&mut entry.no_room_at, self.room_changes) != self.room_changes;
        let needs_none = || entry.inputs.iter().all(|input| self.space.is_known(input.object));
        has_changed && (index == 0 || needs_none())
    }

    /// Reserves room for all inputs of a queued task at once; false if the task must wait. If no room can become free,
    /// the task is refused for now.
    fn admit_one(&mut self, task: TaskId, effects: &mut Vec<Effect>) -> bool {
        // Before this task pins anything: waiting helps only if other tasks hold pins, or write to a disk that is
        // short.
        let scratch_bytes = self.scratch_bytes.saturating_mul(self.admitted() as u64 + 1);
        let will_change = self.space.is_busy() || (scratch_bytes > 0 && self.admitted() > 0);
        let inputs = &self.tasks[&task].inputs;
        // Pins known inputs first, so that they are not evicted to make room for the others.
        let (mut known, mut missing) = (Vec::new(), StoreAmount::default());
        for input in inputs {
            if self.space.is_known(input.object) {
                self.space.pin(input.object);
                known.push(input.object);
            } else {
                missing.bytes += input.size_bytes;
                missing.objects += 1;
            }
        }
        let mut evicted = Vec::new();
        // If nothing else will leave, the task may write less than others did.
        if self.space.make_room_beside(missing, scratch_bytes, &mut evicted)
            || (scratch_bytes > 0 && !will_change && self.space.make_room(missing, &mut evicted))
        {
            effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
            self.promise(task);
            return true;
        }
        known.into_iter().for_each(|object| self.space.unpin(object));
        if will_change {
            return false;
        }
        let entry = self.tasks.remove(&task).expect("queued tasks are known");
        self.awaited -= entry.awaited();
        let total = entry.inputs.iter().map(|input| input.size_bytes).sum();
        let reason = format!("the disk under the store has no room for its inputs ({})", units::format_bytes(total));
        effects.push(Effect::Refuse { task, for_now: true, reason });
        true
    }
}
