//! Tasks that wait for room in the store.

use alloc::collections::VecDeque;

use eyas_types::TaskId;

use crate::space::Space;
use crate::tasks::NodeTasks;

/// Number of tasks that may overtake a task that waits for room in the store: tasks that need no
/// room, or have a higher priority. Then all tasks wait for it. Also the number of waiting tasks
/// that one task may overtake at a time.
pub(crate) const MAX_OVERTAKEN: u32 = 8;

pub(crate) struct RoomQueue {
    /// By falling priority, then by arrival.
    queued: VecDeque<TaskId>,
    /// Number of times that the room for inputs has changed. A task that found none is not looked
    /// at before the next change: it may have a million inputs, of which each arrives in an event
    /// of its own.
    room_changes: u64,
}

impl RoomQueue {
    pub fn new() -> Self {
        RoomQueue { queued: VecDeque::new(), room_changes: 1 }
    }

    pub fn len(&self) -> usize {
        self.queued.len()
    }

    pub fn get(&self, index: usize) -> Option<TaskId> {
        self.queued.get(index).copied()
    }

    /// There may be more room for inputs than before.
    pub fn room_changed(&mut self) {
        self.room_changes += 1;
    }

    /// Adds a task, which overtakes tasks of lower priority, up to one that was overtaken
    /// [`MAX_OVERTAKEN`] times. A task of priority 5 that comes to tasks of the priorities 7, 3 and
    /// 0 becomes the second.
    pub fn add(&mut self, tasks: &mut NodeTasks, task: TaskId) {
        let priority = tasks[task].priority;
        let yields = |other: &&TaskId| {
            tasks[**other].priority < priority && tasks[**other].overtaken < MAX_OVERTAKEN
        };
        let index = self.queued.len() - self.queued.iter().rev().take_while(yields).count();
        for passed in self.queued.iter().skip(index) {
            tasks.known(*passed).overtaken += 1;
        }
        self.queued.insert(index, task);
    }

    /// Adds a task before the others of its priority.
    pub fn add_again(&mut self, tasks: &NodeTasks, task: TaskId) {
        let priority = tasks[task].priority;
        let index = self.queued.partition_point(|other| tasks[*other].priority > priority);
        self.queued.insert(index, task);
    }

    pub fn forget(&mut self, task: TaskId) {
        self.queued.retain(|other| *other != task);
    }

    /// The task at this index has left the queue, and has overtaken the ones before it.
    pub fn admitted(&mut self, tasks: &mut NodeTasks, index: usize) {
        self.queued.remove(index);
        for earlier in self.queued.iter().take(index) {
            tasks.known(*earlier).overtaken += 1;
        }
    }

    /// Whether the task at this index may be admitted, and the room has changed since it found
    /// none. Only the first one may need room.
    pub fn may_find_room(
        &self,
        tasks: &mut NodeTasks,
        space: &Space,
        task: TaskId,
        index: usize,
    ) -> bool {
        let entry = tasks.known(task);
        let has_changed =
            core::mem::replace(&mut entry.no_room_at, self.room_changes) != self.room_changes;
        let needs_none = || entry.inputs.iter().all(|input| space.is_known(input.object));
        has_changed && (index == 0 || needs_none())
    }

    /// Whether the tasks behind the one at this index, which was not admitted, must wait for it.
    pub fn must_wait_for(&self, tasks: &NodeTasks, task: TaskId, index: usize) -> bool {
        tasks[task].overtaken >= MAX_OVERTAKEN || index as u32 >= MAX_OVERTAKEN
    }
}
