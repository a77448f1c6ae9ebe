//! Keys into the tables of the scheduler's state: small numbers that are reused when an entry is
//! removed.

use core::num::NonZeroU32;

/// An executor's index in the table of executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ExecutorKey(u32);

impl ExecutorKey {
    pub const FIRST: ExecutorKey = ExecutorKey(0);
    pub const NONE: ExecutorKey = ExecutorKey(u32::MAX);

    pub(super) fn at(index: usize) -> Self {
        ExecutorKey(u32::try_from(index).expect("fewer than 2^32 executors"))
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A task's index in the table of tasks, counted from 1 so that `Option<TaskKey>` needs no extra
/// byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TaskKey(NonZeroU32);

impl TaskKey {
    pub(super) fn at(index: usize) -> Self {
        TaskKey(
            u32::try_from(index + 1).ok().and_then(NonZeroU32::new).expect("fewer than 2^32 tasks"),
        )
    }

    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// An object's index in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectKey(u32);

impl ObjectKey {
    pub const NONE: ObjectKey = ObjectKey(u32::MAX);

    pub(super) fn at(index: usize) -> Self {
        ObjectKey(u32::try_from(index).expect("fewer than 2^32 objects"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A class's index in the list of classes. A class is all tasks with the same
/// [`Need`](eyas_types::Need).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassKey(u32);

impl ClassKey {
    pub(super) fn at(index: usize) -> Self {
        ClassKey(u32::try_from(index).expect("fewer than 2^32 classes"))
    }

    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names one wait of one task: a task that is queued again gets another `turn`.
///
/// Turns wrap around. Two turns that are compared are never 2^31 apart, because no queue is that
/// long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub task: TaskKey,
    pub turn: u32,
}

/// Whether an executor can start a task at once, or only receive it in advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PlacementLevel {
    /// A slot is free.
    Slot,
    /// All slots are taken, but the next task's inputs can be staged.
    Lookahead,
}
