//! The tasks of a node, and the states that they are in.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Index;

use eyas_types::{ObjectId, Origin, Reads, Resources, TaskId};

use crate::overlap::StagingLoad;
use crate::slots::TakenSlot;

#[derive(Debug)]
pub(crate) struct NodeTask {
    /// Sorted by object.
    pub inputs: Vec<StagedInput>,
    /// Contents and folders that were made of its inputs, pinned for it.
    pub derived: Vec<ObjectId>,
    pub need: Resources,
    pub priority: i32,
    /// Whether other tasks compute while it is staged, because many bytes of its inputs were
    /// missing on arrival.
    pub is_data_intensive: bool,
    state: State,
    /// Its slot while it is running or suspended.
    pub slot: TakenSlot,
    /// Number of tasks that have overtaken it in its present state.
    pub overtaken: u32,
    /// Sequence number in the order in which tasks became ready.
    pub number: u64,
    /// Whether it was put before other ready tasks when it became ready.
    pub jumped: bool,
    /// Number of tasks that became ready later and have started before it, or while it was
    /// suspended.
    pub passed: u32,
    pub suspensions: u32,
    /// How often it has found the disk full.
    pub found_full: u32,
    /// Whether it has lent its processors. It is suspended then, but its processes run.
    pub lends: bool,
    /// Whether it is to be told when it has its processors again.
    pub reclaims: bool,
    /// The queue's count of changes of the room when there was last no room for its inputs.
    pub no_room_at: u64,
}

#[derive(Debug)]
pub(crate) struct StagedInput {
    pub object: ObjectId,
    pub size_bytes: u64,
    /// Where the object came from; `None` until it is in the store.
    pub origin: Option<Origin>,
}

/// [`State::may_become`] has the moves. Before `Running`, a task can be forgotten in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Waits for room in the store.
    Queued,
    /// All its inputs are pinned, and `missing` of them are not in the store yet.
    Staging { missing: usize },
    /// Waits for a slot.
    Ready,
    /// Has a slot.
    Running,
    /// Has a slot, and lends its processors to other tasks.
    Suspended,
}

impl State {
    /// Whether a task may go from this state to the next one. An input that was lost takes a task
    /// back to `Staging`.
    fn may_become(self, next: State) -> bool {
        matches!(
            (self, next),
            (State::Queued | State::Staging { .. } | State::Ready, State::Staging { .. })
                | (State::Queued | State::Staging { .. }, State::Ready)
                | (State::Ready | State::Suspended, State::Running)
                | (State::Running, State::Suspended)
        )
    }
}

impl NodeTask {
    /// A task that has just been assigned. Repeated inputs count once.
    pub fn new(inputs: &[(ObjectId, u64)], need: Resources, priority: i32) -> Self {
        let input = |(object, size_bytes): &(_, _)| StagedInput {
            object: *object,
            size_bytes: *size_bytes,
            origin: None,
        };
        let mut inputs: Vec<_> = inputs.iter().map(input).collect();
        inputs.sort_unstable_by_key(|input| input.object);
        inputs.dedup_by_key(|input| input.object);
        NodeTask {
            inputs,
            derived: Vec::new(),
            need,
            priority,
            is_data_intensive: false,
            state: State::Queued,
            slot: TakenSlot::default(),
            overtaken: 0,
            number: 0,
            jumped: false,
            passed: 0,
            suspensions: 0,
            found_full: 0,
            lends: false,
            reclaims: false,
            no_room_at: 0,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Whether it has left the queue, so that its inputs are pinned.
    pub fn is_admitted(&self) -> bool {
        self.state != State::Queued
    }

    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.size_bytes).sum()
    }

    pub fn input(&mut self, object: ObjectId) -> Option<&mut StagedInput> {
        let index = self.inputs.binary_search_by_key(&object, |input| input.object).ok()?;
        Some(&mut self.inputs[index])
    }

    /// An input has reached the store. Returns whether none is missing any longer.
    pub fn input_arrived(&mut self, object: ObjectId, origin: Origin) -> bool {
        self.input(object).expect("a task waits for its inputs").origin = Some(origin);
        let State::Staging { missing } = &mut self.state else {
            panic!("{object} arrived for a task that waits for no input: {self:?}")
        };
        *missing -= 1;
        *missing == 0
    }

    /// Its contribution to the node's `awaited`: other tasks use its processors until its inputs
    /// are in the store.
    fn awaited(&self) -> StagingLoad {
        let awaits =
            self.is_data_intensive && matches!(self.state, State::Queued | State::Staging { .. });
        if awaits {
            StagingLoad { tasks: 1, cpus_milli: self.need.cpus_milli.into() }
        } else {
            StagingLoad::default()
        }
    }

    pub fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        for input in &self.inputs {
            let origin = input.origin.expect("all inputs of a ready task are in the store");
            reads.add(origin, input.size_bytes);
        }
        reads
    }

    /// A task that was forgotten begins again: nothing of it is in the store, and it has lent
    /// nothing.
    pub fn begin_again(&mut self) {
        self.inputs.iter_mut().for_each(|input| input.origin = None);
        self.derived.clear();
        (self.lends, self.reclaims) = (false, false);
        (self.state, self.overtaken, self.passed, self.no_room_at) = (State::Queued, 0, 0, 0);
    }
}

/// All tasks that were assigned and have not ended.
#[derive(Default)]
pub(crate) struct NodeTasks {
    tasks: BTreeMap<TaskId, NodeTask>,
    /// Sum over all tasks.
    awaited: StagingLoad,
}

impl Index<TaskId> for NodeTasks {
    type Output = NodeTask;

    fn index(&self, task: TaskId) -> &NodeTask {
        &self.tasks[&task]
    }
}

impl NodeTasks {
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn state(&self, task: TaskId) -> Option<State> {
        self.tasks.get(&task).map(NodeTask::state)
    }

    /// A task that the caller knows to be here.
    pub fn known(&mut self, task: TaskId) -> &mut NodeTask {
        self.tasks.get_mut(&task).unwrap_or_else(|| panic!("task {task} is not here"))
    }

    pub fn values(&self) -> impl Iterator<Item = &NodeTask> {
        self.tasks.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (TaskId, &mut NodeTask)> {
        self.tasks.iter_mut().map(|(task, entry)| (*task, entry))
    }

    /// Sum of the data-intensive tasks whose inputs are not in the store.
    pub fn awaited(&self) -> StagingLoad {
        self.awaited
    }

    pub fn insert(&mut self, task: TaskId, entry: NodeTask) {
        self.awaited += entry.awaited();
        assert!(self.tasks.insert(task, entry).is_none(), "task {task} assigned twice");
    }

    pub fn remove(&mut self, task: TaskId) -> NodeTask {
        let entry = self.tasks.remove(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        self.awaited -= entry.awaited();
        entry
    }

    /// Moves a task to another state.
    ///
    /// # Panics
    /// If the move is not allowed.
    pub fn enter(&mut self, task: TaskId, state: State) {
        let entry = self.tasks.get_mut(&task).unwrap_or_else(|| panic!("task {task} is not here"));
        let before = entry.state;
        assert!(
            before.may_become(state),
            "task {task} cannot go from {before:?} to {state:?}: {entry:?}"
        );
        self.awaited -= entry.awaited();
        entry.state = state;
        self.awaited += entry.awaited();
    }

    #[cfg(test)]
    pub fn validate(&self) {
        let mut awaited = StagingLoad::default();
        self.tasks.values().for_each(|entry| awaited += entry.awaited());
        assert_eq!(self.awaited, awaited);
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::JobId;

    use super::*;

    #[test]
    #[should_panic(expected = "cannot go from Queued to Running: NodeTask { inputs: []")]
    fn a_task_does_not_run_before_its_inputs_are_staged() {
        let (mut tasks, task) = (NodeTasks::default(), TaskId { job: JobId(1), index: 0 });
        tasks.insert(task, NodeTask::new(&[], Resources::default(), 0));
        tasks.enter(task, State::Running);
    }
}
