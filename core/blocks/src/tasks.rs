//! Tasks of another framework, whose attempts share a block.
//!
//! The framework decides which attempt of a task counts. It may run an attempt again after one has
//! succeeded, or two at once. So chunks belong to the task, and each attempt reads the *list* of
//! the task from its beginning. An attempt that has read all of the list claims more. If there are
//! no more chunks, the list is *sealed*: it never changes again, and later attempts read the same
//! chunks. If no attempt of a task has reported for a term, the task loses a list that is not
//! sealed. Its next attempt begins a new list, the next *incarnation* of the task, and attempts of
//! earlier incarnations are refused. So an attempt that has read its list to the end has read a
//! sealed list, and all sealed lists together have each chunk once.
//!
//! In the ledger, an incarnation of a task is a worker, and a seal is its commit.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;
use serde::{Deserialize, Serialize};

use crate::event::WorkerId;

/// The number of a task in its run, below [`TaskNumber::LIMIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskNumber(pub u32);

/// The number of a list of a task: 0 for its first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TaskIncarnation(pub u32);

/// Ids of workers that are tasks have these bits set; see [`WorkerId::from_random`].
const TASK_BITS: u64 = 0xff_ffff << 40;

/// Bits of a worker's id that number the incarnation. After the last one, a task gets no chunks.
const INCARNATION_BITS: u32 = 20;

impl TaskNumber {
    /// Tasks have smaller numbers.
    pub const LIMIT: u32 = 1 << 20;
}

impl WorkerId {
    /// An id of these random bits, which is none of a task.
    pub fn from_random(bits: u64) -> Self {
        WorkerId(bits >> 1)
    }

    pub(crate) fn of_task(task: TaskNumber, incarnation: TaskIncarnation) -> Self {
        let task = u64::from(task.0) << INCARNATION_BITS;
        WorkerId(TASK_BITS | task | u64::from(incarnation.0))
    }

    /// The task and its incarnation, if the worker is one.
    pub fn task(self) -> Option<(TaskNumber, TaskIncarnation)> {
        let low = |bits: u64| (bits & ((1 << INCARNATION_BITS) - 1)) as u32;
        (self.0 & TASK_BITS == TASK_BITS)
            .then(|| (TaskNumber(low(self.0 >> INCARNATION_BITS)), TaskIncarnation(low(self.0))))
    }
}

impl TaskIncarnation {
    /// The one after it. The last one has none after it, and stays.
    pub(crate) fn next(self) -> Self {
        TaskIncarnation((self.0 + 1).min(Self::LAST))
    }

    const LAST: u32 = (1 << INCARNATION_BITS) - 1;
}

/// A message of an attempt: it is alive, and asks for more of its task's list. May be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskClaim {
    /// The task.
    pub task: TaskNumber,
    /// The node that the attempt runs on.
    pub node: NodeId,
    /// The incarnation of the list; `None` before the first answer.
    pub incarnation: Option<TaskIncarnation>,
    /// Number of chunks of the list that the attempt knows.
    pub known: u32,
    /// Number of chunks that it has read.
    pub done: u32,
    /// Whether the list may be continued or sealed. If not, the attempt only says that it is alive.
    pub wants_more: bool,
}

impl TaskClaim {
    /// Whether an attempt may say this while its task has this incarnation.
    pub(crate) fn is_of(&self, incarnation: TaskIncarnation) -> bool {
        self.task.0 < TaskNumber::LIMIT
            && incarnation.0 < TaskIncarnation::LAST
            && self.incarnation.is_none_or(|known| known == incarnation)
            && self.done <= self.known
    }
}

/// The answer to a [`TaskClaim`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskAnswer {
    /// The list goes on. The records that lead to it must be durable before this answer is sent.
    List {
        /// The incarnation of the list.
        incarnation: TaskIncarnation,
        /// The chunks that the attempt does not know yet, in the order of the list, by their index
        /// in the job.
        chunks: Vec<u32>,
        /// Whether no chunk will follow.
        is_sealed: bool,
    },
    /// The task has lost the list of the attempt: the attempt must fail, and another one begin.
    Discard,
}

/// The attempt's side: what it knows of the list, and what it has read.
#[derive(Clone, Debug)]
pub struct TaskBlock {
    task: TaskNumber,
    node: NodeId,
    incarnation: Option<TaskIncarnation>,
    chunks: Vec<u32>,
    done: u32,
    is_sealed: bool,
    is_discarded: bool,
}

impl TaskBlock {
    /// A new attempt of a task.
    pub fn new(task: TaskNumber, node: NodeId) -> Self {
        TaskBlock {
            task,
            node,
            incarnation: None,
            chunks: Vec::new(),
            done: 0,
            is_sealed: false,
            is_discarded: false,
        }
    }

    /// The chunk to read now; `None` if the attempt has to claim more, or is at its end.
    pub fn current(&self) -> Option<u32> {
        self.chunks.get(self.done as usize).copied()
    }

    /// The current chunk was read completely.
    ///
    /// # Panics
    /// If there is none.
    pub fn end_chunk(&mut self) {
        assert!(self.current().is_some(), "no chunk is being read");
        self.done += 1;
    }

    /// The message to send when there is no current chunk, and at least three times in a term.
    pub fn claim(&self) -> TaskClaim {
        let TaskBlock { task, node, incarnation, done, .. } = *self;
        let known = self.chunks.len() as u32;
        TaskClaim { task, node, incarnation, known, done, wants_more: done == known }
    }

    /// The message that the attempt is alive; `None` before the first answer.
    pub fn heartbeat(&self) -> Option<TaskClaim> {
        self.incarnation.map(|_| TaskClaim { wants_more: false, ..self.claim() })
    }

    /// Applies the answer to a claim or a heartbeat. A list is taken only from the answer to the
    /// last claim.
    pub fn told(&mut self, claim: &TaskClaim, answer: TaskAnswer) {
        match answer {
            TaskAnswer::Discard => self.is_discarded = true,
            TaskAnswer::List { incarnation, chunks, is_sealed } => {
                if claim.known == self.chunks.len() as u32 && claim.incarnation == self.incarnation
                {
                    self.incarnation = Some(incarnation);
                    self.chunks.extend(chunks);
                    self.is_sealed |= is_sealed;
                }
            }
        }
    }

    /// The chunks of the list so far, in order.
    pub fn chunks(&self) -> &[u32] {
        &self.chunks
    }

    /// Whether the attempt has read the whole list of its task, which counts.
    pub fn is_at_end(&self) -> bool {
        self.is_sealed && self.done as usize == self.chunks.len() && !self.is_discarded
    }

    /// Whether the list of the attempt does not count.
    pub fn is_discarded(&self) -> bool {
        self.is_discarded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_worker_is_no_task() {
        assert_eq!(WorkerId::from_random(u64::MAX).task(), None);
        let (task, incarnation) = (TaskNumber(TaskNumber::LIMIT - 1), TaskIncarnation(7));
        assert_eq!(WorkerId::of_task(task, incarnation).task(), Some((task, incarnation)));
    }
}
