//! The search index: which waiting tasks each executor may have inputs of, without a scan of the
//! queue.
//!
//! The index is in three places: the waiting list of each object, the progress of each executor
//! through each such list, and the agenda of each executor. They change together, here only. An
//! object that an executor holds is either on its agenda, or the executor is among the object's
//! unalerted holders. What changes a score starts a new search: a stored object is searched from
//! the beginning, and a task that joins the queue alerts the holders of its inputs.

use alloc::vec::Vec;

use super::SchedulerState;
use super::executors::HeldReplica;
use super::keys::{ExecutorKey, ObjectKey, TaskKey, Ticket};
use super::search_agenda::SearchProgress;
use super::waiting_list::WaitingTask;

/// Waiting lists with more entries are searched after shorter ones.
const LONG_LIST: usize = 1024;
/// The most objects to search of which the first lines are read together; one at first. For
/// example, of 20 objects, 1, 2, 4, 8 and 5 are read together.
const OBJECTS_AT_ONCE: usize = 8;

/// Reads what the searches of the next objects begin with in batches, so that their cache misses
/// overlap.
pub(crate) struct ReadAhead {
    left: usize,
    at_once: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        ReadAhead { left: 0, at_once: 1 }
    }
}

impl SchedulerState {
    // ---- tasks that come and go

    /// A task joined the queue: its inputs are wanted, and their holders search for it.
    pub(super) fn want_inputs(&mut self, ticket: Ticket) {
        let task = ticket.task;
        for index in 0..self.inputs(task).len() {
            let key = self.inputs(task)[index];
            let other = self.queue[task].inputs.other_than(key);
            let object = self.catalog.get_mut(key);
            object.waiting.join(WaitingTask { ticket, other });
            let mut unalerted = object.waiting.take_unalerted();
            for holder in unalerted.drain(..) {
                let executor = self.executors.get_mut(holder);
                executor
                    .replicas
                    .get_mut(&key)
                    .expect("a holder has a replica")
                    .progress
                    .is_alerted = true;
                executor.agenda.push(key);
            }
            self.catalog.get_mut(key).waiting.restore_unalerted(unalerted);
        }
    }

    /// A task left the queue.
    pub(super) fn unwant_inputs(&mut self, ticket: Ticket) {
        let SchedulerState { queue, catalog, .. } = self;
        for input in queue[ticket.task].inputs.as_slice() {
            catalog.get_mut(*input).waiting.leave(ticket, |ticket| queue.is_waiting(ticket));
        }
    }

    // ---- replicas that come and go

    /// An executor has a replica. Whether it is new.
    pub(super) fn add_replica(&mut self, executor: ExecutorKey, key: ObjectKey) -> bool {
        let object = self.catalog.change_holders(key);
        let is_wanted = object.waiting.wanted() > 0;
        let progress = SearchProgress { is_alerted: is_wanted, ..SearchProgress::default() };
        let replica = HeldReplica { holder_index: object.holders.len() as u32, progress };
        match self.executors.get_mut(executor).replicas.entry(key) {
            hashbrown::hash_map::Entry::Occupied(_) => return false,
            hashbrown::hash_map::Entry::Vacant(entry) => entry.insert(replica),
        };
        object.holders.push(executor);
        if is_wanted {
            self.executors.get_mut(executor).agenda.push(key);
            self.executors.unpark(executor);
        } else {
            object.waiting.add_unalerted(executor);
        }
        true
    }

    /// An executor no longer has a replica that it had.
    pub(super) fn remove_replica(&mut self, executor: ExecutorKey, key: ObjectKey) {
        let replica = self
            .executors
            .get_mut(executor)
            .replicas
            .remove(&key)
            .expect("the caller has looked it up");
        let object = self.catalog.change_holders(key);
        object.holders.swap_remove(replica.holder_index as usize);
        if !replica.progress.is_alerted {
            object.waiting.remove_unalerted(executor);
        }
        if let Some(moved) = object.holders.get(replica.holder_index as usize).copied() {
            let moved = self.executors.get_mut(moved).replicas.get_mut(&key);
            moved.expect("a holder has a replica").holder_index = replica.holder_index;
        }
    }

    // ---- an executor's search

    /// The next object on an executor's agenda, and the index of the first entry of its waiting
    /// list that was not searched.
    pub fn next_to_search(
        &mut self,
        executor: ExecutorKey,
        read_ahead: &mut ReadAhead,
    ) -> Option<(ObjectKey, usize)> {
        while let Some((object, was_deferred)) = self.executors[executor].agenda.first() {
            self.read_ahead(executor, read_ahead);
            // It may have been evicted since, or be on the agenda twice because it was stored
            // again.
            let replica = self.executors[executor].replicas.get(&object);
            let Some(progress) =
                replica.map(|replica| replica.progress).filter(|progress| progress.is_alerted)
            else {
                self.executors.get_mut(executor).agenda.pop();
                continue;
            };
            let waiting = &self.catalog[object].waiting;
            if !was_deferred && waiting.len() > LONG_LIST {
                self.executors.get_mut(executor).agenda.defer();
                continue;
            }
            if progress.generation == waiting.generation() {
                return Some((object, waiting.first_after(progress.cursor)));
            }
            let SchedulerState { queue, catalog, .. } = self;
            catalog.get_mut(object).waiting.tidy(|ticket| queue.is_waiting(ticket));
            return Some((object, 0));
        }
        None
    }

    fn read_ahead(&self, executor: ExecutorKey, read_ahead: &mut ReadAhead) {
        if read_ahead.left == 0 {
            let executor = &self.executors[executor];
            let upcoming = executor.agenda.upcoming().take(read_ahead.at_once);
            let newest = upcoming.map(|object| {
                let cursor =
                    executor.replicas.get(&object).map_or(0, |replica| replica.progress.cursor);
                self.catalog[object].waiting.last_turn() ^ cursor
            });
            core::hint::black_box(newest.fold(0, |all, one| all ^ one));
            read_ahead.left = read_ahead.at_once;
            read_ahead.at_once = (2 * read_ahead.at_once).min(OBJECTS_AT_ONCE);
        }
        read_ahead.left -= 1;
    }

    /// The executor has searched the object's waiting list up to that turn.
    pub fn note_searched(&mut self, executor: ExecutorKey, object: ObjectKey, turn: u32) {
        if let Some(replica) = self.executors.get_mut(executor).replicas.get_mut(&object) {
            replica.progress.cursor = turn;
            replica.progress.generation = self.catalog[object].waiting.generation();
        }
    }

    /// The executor has searched the first object of its agenda to the end.
    pub fn finish_search(&mut self, executor: ExecutorKey, object: ObjectKey) {
        let entry = self.executors.get_mut(executor);
        entry.agenda.pop();
        entry
            .replicas
            .get_mut(&object)
            .expect("only held objects are searched")
            .progress
            .is_alerted = false;
        self.catalog.get_mut(object).waiting.add_unalerted(executor);
    }

    /// Forgets how far the executor has searched: it met more partial hits than it remembers, or
    /// passed tasks that it may take now.
    pub fn search_again(&mut self, executor: ExecutorKey) {
        let SchedulerState { catalog, executors, .. } = self;
        let entry = executors.get_mut(executor);
        entry.agenda.partial.restart();
        let mut again = Vec::new();
        for (object, replica) in
            entry.replicas.iter_mut().filter(|(object, _)| catalog[**object].waiting.wanted() > 0)
        {
            replica.progress.generation = 0;
            if !core::mem::replace(&mut replica.progress.is_alerted, true) {
                again.push(*object);
            }
        }
        again.sort_unstable();
        for object in again {
            catalog.get_mut(object).waiting.remove_unalerted(executor);
            entry.agenda.push(object);
        }
    }

    /// The first input of a task that the executor lacks, or [`ObjectKey::NONE`].
    pub fn missing_input(&self, task: TaskKey, executor: ExecutorKey) -> ObjectKey {
        let replicas = &self.executors[executor].replicas;
        let missing = self.inputs(task).iter().find(|input| !replicas.contains_key(*input));
        missing.copied().unwrap_or(ObjectKey::NONE)
    }

    #[cfg(test)]
    pub fn validate_index(&self) {
        for (key, executor) in self.executors.all() {
            for (object, replica) in &executor.replicas {
                let waiting = &self.catalog[*object].waiting;
                let SearchProgress { is_alerted, generation, .. } = replica.progress;
                assert_eq!(self.catalog[*object].holders[replica.holder_index as usize], key);
                assert_eq!(waiting.is_unalerted(key), !is_alerted);
                assert!(!is_alerted || executor.agenda.contains(*object));
                let is_searched =
                    is_alerted || waiting.wanted() == 0 || generation == waiting.generation();
                assert!(
                    is_searched,
                    "{} will never search {}",
                    executor.id, self.catalog[*object].id
                );
            }
        }
    }
}
