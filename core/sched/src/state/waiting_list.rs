//! The waiting list of an object: the tasks that wait for it, and the holders to alert when another
//! task comes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use super::keys::{ExecutorKey, ObjectKey, Ticket};
use crate::tight_deque;

/// Slack before a list is compacted: when it has more entries than twice the waiting tasks and
/// this. For example, 10 waiting tasks allow 36 entries.
const STALE_ENTRIES: usize = 16;

/// An entry in a waiting list.
#[derive(Clone, Copy)]
pub(crate) struct WaitingTask {
    pub ticket: Ticket,
    /// The other input of a task that has two, else [`ObjectKey::NONE`]. A search mostly meets
    /// tasks of which the executor holds one of two inputs, as of many others. The entry then says
    /// enough to pass the task without reading it.
    pub other: ObjectKey,
}

/// The tasks that wait for one object.
pub(crate) struct WaitingList {
    /// Oldest first; may name tasks that have left the queue.
    entries: VecDeque<WaitingTask>,
    /// Holders whose agenda does not have the object, and which are alerted when a task comes to
    /// wait for it. Each is put here by a search, so that all alerts together cost no more than
    /// the searches.
    unalerted: Vec<ExecutorKey>,
    /// The number of entries whose tasks are in the queue.
    wanted: u32,
    /// Counts how often the list began anew, from 1; see [`join`](Self::join).
    generation: u16,
}

impl Default for WaitingList {
    fn default() -> Self {
        WaitingList { entries: VecDeque::new(), unalerted: Vec::new(), wanted: 0, generation: 1 }
    }
}

impl WaitingList {
    /// The number of queued tasks that want the object.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn generation(&self) -> u16 {
        self.generation
    }

    /// The entries in that range, oldest first; they may name tasks that have left the queue.
    pub fn range(&self, range: Range<usize>) -> impl Iterator<Item = &WaitingTask> {
        self.entries.range(range)
    }

    /// Tickets of all entries, oldest first; they may name tasks that have left the queue.
    pub fn tickets(&self) -> impl Iterator<Item = Ticket> {
        self.entries.iter().map(|entry| entry.ticket)
    }

    /// The turn of the newest entry, or 0.
    pub fn last_turn(&self) -> u32 {
        self.entries.back().map_or(0, |entry| entry.ticket.turn)
    }

    pub fn turn_at(&self, index: usize) -> u32 {
        self.entries[index].ticket.turn
    }

    /// The index of the first entry that joined after the turn `cursor`. Searches from the back in
    /// growing steps, because mostly only a few have joined since. For example, if the last 5 of
    /// 1,000 have, it looks at the entries 999, 997, 993, 995 and 994.
    pub fn first_after(&self, cursor: u32) -> usize {
        let joined_after =
            |index: usize| self.entries[index].ticket.turn.wrapping_sub(cursor) as i32 > 0;
        let (mut first, mut last, mut step) = (0, self.entries.len(), 1);
        while first < last {
            // All entries from `last` on joined after the cursor; all before `first` did not.
            let index = last.saturating_sub(step).max(first);
            if joined_after(index) {
                last = index;
                step *= 2;
            } else {
                first = index + 1;
                step = (last - first).div_ceil(2);
            }
        }
        first
    }

    /// A task that wants the object joined the queue.
    ///
    /// If no queued task wanted it before, the list begins anew, so that progress of earlier
    /// searches means nothing: turns may have wrapped around since. That is missed by one search in
    /// 65,535 of those that follow after more than 2^31 turns.
    pub(super) fn join(&mut self, entry: WaitingTask) {
        if self.wanted == 0 {
            self.entries.clear();
            self.generation = self.generation.wrapping_add(1).max(1);
        }
        tight_deque::push_back(&mut self.entries, entry);
        self.wanted += 1;
    }

    /// A task that wanted the object left the queue.
    pub(super) fn leave(&mut self, ticket: Ticket, is_waiting: impl Fn(Ticket) -> bool) {
        self.wanted -= 1;
        if self.entries.front().is_some_and(|first| first.ticket == ticket) {
            self.entries.pop_front();
        }
        if self.is_mostly_stale() {
            self.tidy(is_waiting);
        }
    }

    /// Drops entries of tasks that left the queue once they are most of the list.
    pub(super) fn tidy(&mut self, is_waiting: impl Fn(Ticket) -> bool) {
        while self.entries.front().is_some_and(|first| !is_waiting(first.ticket)) {
            self.entries.pop_front();
        }
        if self.is_mostly_stale() {
            self.entries.retain(|entry| is_waiting(entry.ticket));
        }
    }

    fn is_mostly_stale(&self) -> bool {
        self.entries.len() > 2 * self.wanted as usize + STALE_ENTRIES
    }

    /// The object is forgotten: its memory is freed.
    pub(super) fn clear(&mut self) {
        assert_eq!(self.wanted, 0, "a waiting task names an object without reference");
        self.entries = VecDeque::new();
        self.unalerted = Vec::new();
    }

    /// The holder's agenda does not have the object.
    pub(super) fn add_unalerted(&mut self, holder: ExecutorKey) {
        self.unalerted.push(holder);
    }

    pub(super) fn remove_unalerted(&mut self, holder: ExecutorKey) {
        let index = self.unalerted.iter().position(|other| *other == holder);
        self.unalerted
            .swap_remove(index.expect("an object that is not on the agenda has the holder here"));
    }

    /// Takes the list of holders to alert. Restore it empty, with its memory: holders return
    /// with each search.
    pub(super) fn take_unalerted(&mut self) -> Vec<ExecutorKey> {
        core::mem::take(&mut self.unalerted)
    }

    /// Restores the emptied list of holders to alert.
    pub(super) fn restore_unalerted(&mut self, empty: Vec<ExecutorKey>) {
        self.unalerted = empty;
    }

    #[cfg(test)]
    pub fn is_unalerted(&self, holder: ExecutorKey) -> bool {
        let count = self.unalerted.iter().filter(|other| **other == holder).count();
        assert!(count <= 1, "a holder is alerted once");
        count == 1
    }
}
