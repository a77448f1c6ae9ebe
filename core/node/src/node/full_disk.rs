//! Tasks that have found the disk full. What other tasks need will be free later, and idle objects
//! can leave at once, so these tasks start again. From then on, each task has room for what it
//! writes, and not only for its inputs.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{TaskId, units};

use super::{Node, STARTS_ON_FULL_DISK};
use crate::event::Effect;
use crate::tasks::NodeTask;

/// The least room that a task gets for what it writes after it has found the disk full.
const MIN_SCRATCH_BYTES: u64 = 1 << 20;

impl Node {
    /// Whether a task has found the disk full, so that the free space has to be measured often.
    pub fn is_short_of_disk(&self) -> bool {
        self.scratch_bytes > 0
    }

    /// A started task has found the disk full after it had written this much.
    pub(super) fn out_of_disk(
        &mut self,
        task: TaskId,
        written_bytes: u64,
        effects: &mut Vec<Effect>,
    ) {
        let starts = self.tasks[task].found_full.min(STARTS_ON_FULL_DISK);
        // Twice as much with each start: a task that finds the disk full after 3 GB, and again
        // after 3 GB, makes each task get room for 3 GB and then for 6 GB.
        self.scratch_bytes = self
            .scratch_bytes
            .max(written_bytes.saturating_mul(1 << starts))
            .max(MIN_SCRATCH_BYTES);
        // Its own inputs are still pinned, so they stay.
        let could_evict = self.make_scratch_room(effects);
        let entry = self.forget(task, effects);
        self.turns.leave_slot(task, &entry);
        let reason = format!(
            "its disk is full: no room for what the task writes beside its inputs ({})",
            units::format_bytes(entry.input_bytes())
        );
        self.await_disk(task, entry, could_evict, reason, effects);
        // The inputs of a task that waits may leave for the tasks that run.
        self.make_scratch_room(effects);
    }

    /// Evicts idle objects until there is room for what all admitted tasks write. Whether any was
    /// evicted.
    fn make_scratch_room(&mut self, effects: &mut Vec<Effect>) -> bool {
        let mut evicted = Vec::new();
        self.objects
            .space
            .free_up(self.scratch_bytes.saturating_mul(self.admitted() as u64), &mut evicted);
        let has_evicted = !evicted.is_empty();
        effects.extend(evicted.into_iter().map(|object| Effect::Evict { object }));
        has_evicted
    }

    /// Puts a forgotten task, which has found the disk full, back into the queue, if there is more
    /// room now or other tasks will leave room. If not, it is refused for now.
    pub(super) fn await_disk(
        &mut self,
        task: TaskId,
        mut entry: NodeTask,
        has_more_room: bool,
        reason: String,
        effects: &mut Vec<Effect>,
    ) {
        entry.found_full += 1;
        if !(has_more_room || self.admitted() > 0) || entry.found_full >= STARTS_ON_FULL_DISK {
            return effects.push(Effect::Refuse { task, for_now: true, reason });
        }
        self.scratch_bytes = self.scratch_bytes.max(MIN_SCRATCH_BYTES);
        entry.begin_again();
        self.tasks.insert(task, entry);
        self.queue.add_again(&self.tasks, task);
    }
}
