//! Cold tasks: those for which waiting for a holder of their inputs is pointless, because no executor that could take
//! them holds any, or because one has refused them. Under policies that hold tasks back for holders these may go to
//! anybody.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::catalog::ObjectKey;
use crate::decide::HEAD_LOOKS;
use crate::executors::{ExecutorKey, Level};
use crate::placement::Otherwise;
use crate::queue::{Class, TaskKey, Ticket};
use crate::scheduler::Scheduler;
use crate::search;

/// Tasks that are looked at again, at most, because of replicas that one event took.
const WAKE_LOOKS: usize = 2_500;

/// Tasks that are lined up, in one look for a cold one.
const LINE_UP_LOOKS: usize = 64;

/// Cold tasks of each class, oldest first; kept only where the policy may hold others back. Entries of tasks that are
/// no longer cold are dropped when met.
#[derive(Default)]
pub(crate) struct Cold {
    lists: Vec<VecDeque<Ticket>>,
}

impl Scheduler {
    /// Whether waiting for a holder is pointless; where tasks are lined up, also for one that is receiving an input.
    pub(crate) fn is_cold(&self, task: TaskKey) -> bool {
        let is_large_enough = |by: ExecutorKey| search::may_ever_take(&self.queue, &self.executors, by, task);
        let has_taker = |input: &ObjectKey| {
            self.catalog[*input].holders.iter().any(|by| is_large_enough(*by))
                || (self.policy.lines_up() && self.relays.receivers(*input).any(is_large_enough))
        };
        self.queue[task].was_refused || !self.queue[task].inputs.as_slice().iter().any(has_taker)
    }

    pub(crate) fn list_cold(&mut self, ticket: Ticket, front: bool) {
        if core::mem::replace(&mut self.queue[ticket.task].listed_cold, true) {
            return;
        }
        let class = self.queue[ticket.task].class.0 as usize;
        if self.cold.lists.len() <= class {
            self.cold.lists.resize_with(class + 1, VecDeque::new);
        }
        let list = &mut self.cold.lists[class];
        if list.len() as u64 > 2 * self.queue.waiting() + 64 {
            list.retain(|ticket| self.queue.is_waiting(*ticket));
        }
        if front {
            list.push_front(ticket);
        } else {
            list.push_back(ticket);
        }
    }

    /// The oldest cold task of priority `floor` or higher that the executor may take.
    pub(crate) fn oldest_cold_for(&mut self, by: ExecutorKey, level: Level, floor: i32) -> Option<TaskKey> {
        for class in self.queue.waiting_classes() {
            if self.queue.priority(class) < floor || !self.has_room(by, class, level) {
                continue;
            }
            if self.is_choosy(class) {
                let task = self.choosy_for(by, level, Otherwise::OnlyBestHolder, class);
                if task.is_some() {
                    return task;
                }
                continue;
            }
            for place in 0..HEAD_LOOKS {
                let Some(task) = self.next_cold(class, place) else { break };
                if !search::has_refused(&self.queue, by, task) {
                    return Some(task);
                }
            }
        }
        None
    }

    /// The cold task at that place of the class's list, from which entries that are no longer cold are dropped; of those
    /// that are to be lined up for it, no more than [`LINE_UP_LOOKS`], and others in the next decision.
    pub(crate) fn next_cold(&mut self, class: Class, place: usize) -> Option<TaskKey> {
        let mut looks = LINE_UP_LOOKS;
        while let Some(ticket) = self.cold.lists.get(class.0 as usize)?.get(place).copied().filter(|_| looks > 0) {
            let waits = self.queue.is_waiting(ticket);
            if waits && self.is_cold(ticket.task) {
                return Some(ticket.task);
            }
            // Nearly always at the front, where this costs nothing.
            self.cold.lists[class.0 as usize].remove(place);
            if waits {
                self.queue[ticket.task].listed_cold = false;
                if self.policy.lines_up() && self.lines.home(ticket.task).is_none() && self.line_up(ticket) {
                    let home = self.lines.home(ticket.task);
                    if home.is_some_and(|home| self.executors.is_parked(home, Level::Ahead)) {
                        self.newcomers.push(ticket);
                    }
                    looks -= 1;
                }
            }
        }
        None
    }

    /// A replica of the object is gone: of tasks that want it, some may be cold now, others may have another best
    /// holder, who idles.
    pub(crate) fn look_after_waiting(&mut self, key: ObjectKey) {
        let object = &self.catalog[key];
        if !self.policy.may_hold_back() || object.wanted == 0 {
            return;
        }
        let has_taker = |class: &Class| {
            let need = self.queue.need(*class);
            object
                .holders
                .iter()
                .any(|by| self.executors[*by].takes_tasks() && self.executors[*by].is_large_enough(need))
        };
        // Nearly always there is another large enough for anything.
        let may_be_cold = !self.queue.waiting_classes().all(|class| has_taker(&class));
        let wakes = self.executors.parked(Level::Ahead).len() > 0;
        let entries = match (may_be_cold, wakes) {
            (true, _) => object.waiting.len(),
            (false, true) => WAKE_LOOKS,
            (false, false) => 0,
        };
        let tickets = object.waiting.iter().map(|wait| wait.ticket).take(entries);
        let tickets: Vec<_> = tickets.filter(|ticket| self.queue.is_waiting(*ticket)).collect();
        for ticket in tickets {
            if may_be_cold && self.is_cold(ticket.task) {
                self.list_cold(ticket, false);
            } else if wakes && self.newcomers.len() < WAKE_LOOKS {
                self.newcomers.push(ticket);
            }
        }
    }
}
