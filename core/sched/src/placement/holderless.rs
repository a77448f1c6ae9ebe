//! Holderless tasks: tasks for which waiting for a holder of their inputs is pointless, because no
//! executor that could take them holds any, or because an executor has refused them. Under policies
//! that hold tasks back for holders, these may go to any executor.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::state::{ClassKey, SchedulerState, TaskQueue, Ticket};

/// Holderless tasks of each class, oldest first; kept only where the policy may hold others back.
/// Entries of tasks that are no longer holderless are dropped when met.
#[derive(Default)]
pub(super) struct HolderlessTasks {
    lists: Vec<VecDeque<Ticket>>,
}

impl HolderlessTasks {
    /// Lists a waiting task, unless it is listed.
    pub fn list(&mut self, queue: &mut TaskQueue, ticket: Ticket, front: bool) {
        if queue.list_holderless(ticket.task) {
            return;
        }
        let class = queue[ticket.task].class.index();
        if self.lists.len() <= class {
            self.lists.resize_with(class + 1, VecDeque::new);
        }
        let list = &mut self.lists[class];
        // For example 10 waiting tasks, of all classes together, allow 84 entries.
        if list.len() as u64 > 2 * queue.waiting() + 64 {
            list.retain(|ticket| queue.is_waiting(*ticket));
        }
        if front {
            list.push_front(ticket);
        } else {
            list.push_back(ticket);
        }
    }

    /// The ticket at that index of the class's list; it may be of a task that has left or is no
    /// longer holderless.
    pub fn get(&self, class: ClassKey, index: usize) -> Option<Ticket> {
        self.lists.get(class.index())?.get(index).copied()
    }

    /// Drops the entry at that index of the class's list. Whether its task still waits.
    pub fn drop_entry(
        &mut self,
        state: &mut SchedulerState,
        class: ClassKey,
        index: usize,
    ) -> bool {
        // Nearly always at the front, where this costs nothing.
        let ticket = self.lists[class.index()].remove(index);
        let waiting = ticket.filter(|ticket| state.queue.is_waiting(*ticket));
        if let Some(ticket) = waiting {
            state.queue.unlist_holderless(ticket.task);
        }
        waiting.is_some()
    }
}
