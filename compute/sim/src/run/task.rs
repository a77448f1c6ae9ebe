//! The course of tasks: their arrival, their assignments, the attempts at them, and their success.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::ops::Index;

use eyas_sched::Hint;
use eyas_types::{Origin, Reads, TaskId};

use super::agenda::Agenda;
use super::event::SimEvent;
use super::job::{JOB, Outputs};
use super::object::Owner;
use crate::arrival::{Arrival, Objects};
use crate::clock::{MICROSECOND, Ns};
use crate::flows::FlowId;
use crate::workload::Workload;

/// A task that has arrived and not ended. Other parts of the run only read it.
pub(super) struct SimTask {
    /// Index in the job of its dispatcher.
    index: u32,
    /// Objects that the task reads, without repetition, in the order of their ids.
    pub inputs: Objects,
    pub outputs: Objects,
    pub compute_us: u64,
    pub arrived: Ns,
    /// Executors that may have its inputs, while the task is assigned.
    pub hints: Box<[Hint]>,
    /// Number of earlier assignments, while the task is assigned.
    pub attempt: u32,
    /// Time of the assignment.
    pub assigned: Ns,
    /// The executor that it was assigned to.
    pub executor: u32,
    pub started: Ns,
    /// Whether it has started on that executor and not ended.
    is_running: bool,
    /// Sources of its inputs in this attempt.
    pub reads: Reads,
    /// Number of inputs whose derived copies it has in this attempt.
    pub copies: usize,
    /// The flow of the bytes that it reads or writes now.
    flow: Option<FlowId>,
    step: TaskStep,
    /// Computing time, including reads from memory.
    pub computes_ns: Ns,
    /// Duration of the last attempt.
    pub ran_ns: Ns,
    /// Its success is counted in the outcome.
    is_done: bool,
}

/// The step that a running task is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskStep {
    /// Waits for derived copies of its inputs, or makes one.
    Deriving,
    /// Reads inputs, then computes.
    Computing,
    /// Writes outputs to persistent storage.
    Delivering,
    /// Writes kept outputs to the disk of its node.
    Keeping,
}

impl SimTask {
    fn new(arrival: Arrival, index: u32, all_outputs: &Outputs) -> Self {
        let Arrival { at_us, mut inputs, compute_us, outputs } = arrival;
        let arrived = at_us * MICROSECOND;
        inputs.sort_by_key(|object| all_outputs.id_of(*object, Owner::All));
        inputs.dedup();
        SimTask {
            index,
            inputs,
            outputs,
            compute_us,
            arrived,
            hints: Box::default(),
            attempt: 0,
            assigned: 0,
            executor: 0,
            started: 0,
            is_running: false,
            reads: Reads::default(),
            copies: 0,
            flow: None,
            step: TaskStep::Computing,
            computes_ns: 0,
            ran_ns: 0,
            is_done: false,
        }
    }
}

/// Tasks by their numbers, which count up. The oldest task that has not ended is first.
pub(super) struct SimTasks<'a> {
    arrivals: Peekable<Box<dyn Iterator<Item = Arrival> + 'a>>,
    tasks: VecDeque<Option<SimTask>>,
    first: u32,
    /// Tasks may run again after they have ended, so none is removed.
    may_run_again: bool,
    /// Number of tasks that run.
    running: u64,
}

impl<'a> SimTasks<'a> {
    pub fn new(workload: &'a dyn Workload, may_run_again: bool) -> Self {
        let arrivals = workload.arrivals().peekable();
        SimTasks { arrivals, tasks: VecDeque::new(), first: 0, may_run_again, running: 0 }
    }

    /// Number of tasks that run.
    pub fn running(&self) -> u64 {
        self.running
    }

    /// Id of a task in the job of its dispatcher.
    pub fn id_of(&self, task: u32) -> TaskId {
        TaskId { job: JOB, index: self[task].index }
    }

    // ---- arrival

    /// Whether tasks have still to arrive.
    pub fn has_arrivals(&mut self) -> bool {
        self.arrivals.peek().is_some()
    }

    pub fn await_arrival(&mut self, agenda: &mut Agenda) {
        if let Some(next) = self.arrivals.peek() {
            agenda.schedule(agenda.now().max(next.at_us * MICROSECOND), SimEvent::TaskArrives);
        }
    }

    /// The next task, if it has arrived by `now`.
    pub fn next_arrival(&mut self, now: Ns) -> Option<Arrival> {
        self.arrivals.next_if(|next| next.at_us * MICROSECOND <= now)
    }

    /// Adds the next task, which has this index in the job of its dispatcher.
    pub fn add(&mut self, arrival: Arrival, index: u32, outputs: &Outputs) {
        self.tasks.push_back(Some(SimTask::new(arrival, index, outputs)));
    }

    // ---- assignments

    pub fn assign(&mut self, task: u32, hints: Box<[Hint]>, attempt: u32, now: Ns) {
        let task = self.get_mut(task);
        (task.hints, task.assigned, task.attempt) = (hints, now, attempt);
    }

    /// A task arrives at the executor that it was assigned to.
    pub fn arrives_at(&mut self, task: u32, executor: u32) {
        self.get_mut(task).executor = executor;
    }

    // ---- attempts

    /// Whether this attempt at the task runs on this executor.
    pub fn runs(&self, task: u32, executor: u32, attempt: u32) -> bool {
        let place = task.checked_sub(self.first);
        let task = place.and_then(|place| self.tasks.get(place as usize)?.as_ref());
        task.is_some_and(|task| {
            task.is_running && task.executor == executor && task.attempt == attempt
        })
    }

    pub fn start(&mut self, task: u32, reads: Reads, now: Ns) {
        self.running += 1;
        let task = self.get_mut(task);
        (task.started, task.is_running, task.step) = (now, true, TaskStep::Deriving);
        (task.reads, task.copies) = (reads, 0);
    }

    /// The task has the next of the derived copies that it reads.
    pub fn has_copy(&mut self, task: u32) {
        self.get_mut(task).copies += 1;
    }

    /// The task has a derived copy that another node has sent.
    pub fn was_sent_copy(&mut self, task: u32, bytes: u64) {
        self.get_mut(task).reads.add(Origin::Peer, bytes);
    }

    /// The task has all that it reads, and will compute for this time.
    pub fn reads_all(&mut self, task: u32, computes_ns: Ns) {
        let task = self.get_mut(task);
        (task.step, task.computes_ns) = (TaskStep::Computing, computes_ns);
    }

    pub fn takes_step(&mut self, task: u32, step: TaskStep) {
        self.get_mut(task).step = step;
    }

    /// The bytes that the task reads or writes in its step begin to flow.
    pub fn flow_begins(&mut self, task: u32, flow: FlowId) {
        self.get_mut(task).flow = Some(flow);
    }

    /// All bytes that the task reads or writes in its step have flowed.
    pub fn flow_ends(&mut self, task: u32) -> TaskStep {
        let task = self.get_mut(task);
        task.flow = None;
        task.step
    }

    /// The flow of the task, which the caller stops.
    pub fn stop_flow(&mut self, task: u32) -> Option<FlowId> {
        self.get_mut(task).flow.take()
    }

    /// An attempt at the task ends on its executor. Returns its duration.
    pub fn end(&mut self, task: u32, now: Ns) -> Ns {
        self.running -= 1;
        let task = self.get_mut(task);
        (task.ran_ns, task.is_running) = (now - task.started, false);
        task.ran_ns
    }

    /// The executor of the task is gone. Returns the flow of the task, which the caller stops.
    pub fn break_off(&mut self, task: u32) -> Option<FlowId> {
        let task = self.get_mut(task);
        let was_running = std::mem::take(&mut task.is_running);
        let flow = task.flow.take();
        self.running -= u64::from(was_running);
        flow
    }

    // ---- success

    /// The task has succeeded. Returns whether that is its first success.
    pub fn succeeds(&mut self, task: u32) -> bool {
        !std::mem::replace(&mut self.get_mut(task).is_done, true)
    }

    /// Forgets a task that has succeeded, if it cannot run again.
    pub fn forget(&mut self, task: u32) {
        if self.may_run_again {
            return;
        }
        self.tasks[(task - self.first) as usize] = None;
        while self.tasks.front().is_some_and(Option::is_none) {
            self.tasks.pop_front();
            self.first += 1;
        }
    }

    fn get_mut(&mut self, task: u32) -> &mut SimTask {
        self.tasks[(task - self.first) as usize].as_mut().expect("the task has not ended")
    }
}

impl Index<u32> for SimTasks<'_> {
    type Output = SimTask;

    fn index(&self, task: u32) -> &SimTask {
        self.tasks[(task - self.first) as usize].as_ref().expect("the task has not ended")
    }
}
