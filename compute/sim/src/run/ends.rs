//! How attempts at tasks end: outputs are written, the executor reports the outcome, and its
//! dispatcher books it.

use eyas_jobs::Event as JobsEvent;
use eyas_node::Event as NodeEvent;
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, Outcome, Status};

use super::executor::Replica;
use super::task::{SimTask, TaskStep};
use super::{End, Fact, Run, SimEvent, Tag};
use crate::clock::{MICROSECOND, Ns};
use crate::flows::LinkId;

impl Run<'_> {
    /// An attempt at a task has computed.
    pub(super) fn computed(&mut self, executor: u32, number: u32, attempt: u32) {
        let Some(task) = self.tasks.running(number, executor, attempt) else { return };
        if task.outputs.is_empty() && self.cluster.failures.failed_tries == 0.0 {
            return self.end_try(executor, number, End::Succeeded);
        }
        if self.task_dice.share() < self.cluster.failures.failed_tries {
            return self.end_try(executor, number, End::Failed);
        }
        self.deliver(number);
    }

    /// Writes the outputs for persistent storage, then the outputs that the node keeps.
    fn deliver(&mut self, number: u32) {
        let task = &mut self.tasks[number];
        task.step = TaskStep::Delivering;
        let links = &self.executors[task.executor as usize].links;
        let way = [Some(self.storage), self.bisection, Some(links.card_out), links.client];
        let way: Vec<LinkId> = way.into_iter().flatten().collect();
        let bytes = self.bytes_written(number, false);
        self.outcome.written_bytes += bytes;
        if bytes > 0 { self.begin_flow(number, bytes, &way) } else { self.keep(number) }
    }

    fn keep(&mut self, number: u32) {
        let task = &mut self.tasks[number];
        task.step = TaskStep::Keeping;
        let disk = self.executors[task.executor as usize].links.disk_write;
        match (disk, self.bytes_written(number, true)) {
            (Some(disk), bytes @ 1..) => self.begin_flow(number, bytes, &[disk]),
            _ => self.delivered(number),
        }
    }

    fn begin_flow(&mut self, number: u32, bytes: u64, way: &[LinkId]) {
        let tag = Tag::OfTask(number).number();
        self.tasks[number].flow = Some(self.flows.start(self.now, bytes as f64, way, None, tag));
    }

    fn bytes_written(&self, number: u32, is_kept: bool) -> u64 {
        let written = self.tasks[number]
            .outputs
            .iter()
            .filter(|object| self.plan.outputs.is_kept(**object) == is_kept);
        written.map(|object| self.workload.size_bytes(*object)).sum()
    }

    /// The bytes that a task reads or writes have arrived.
    pub(super) fn flow_of_task_ended(&mut self, number: u32) {
        let task = &mut self.tasks[number];
        task.flow = None;
        match task.step {
            TaskStep::Computing => self.has_read(number),
            TaskStep::Delivering => self.keep(number),
            TaskStep::Keeping => self.delivered(number),
        }
    }

    pub(super) fn has_read(&mut self, number: u32) {
        let task = &mut self.tasks[number];
        task.flow = None;
        let SimTask { executor, attempt, computes_ns, .. } = *task;
        self.events.schedule(
            self.now + computes_ns,
            SimEvent::Computed { executor, task: number, attempt },
        );
    }

    /// All outputs of a task are written. The node holds the kept ones, if it has room for all of
    /// them.
    fn delivered(&mut self, number: u32) {
        let executor = self.tasks[number].executor;
        let kept = self.tasks[number]
            .outputs
            .iter()
            .copied()
            .filter(|object| self.plan.outputs.is_kept(*object));
        let kept: Vec<u32> = kept.collect();
        for object in &kept {
            let (task, size_bytes) = (self.tasks.id_of(number), self.workload.size_bytes(*object));
            let was_known = self.executors[executor as usize].replicas.contains_key(object);
            self.tell_node(
                executor,
                NodeEvent::Produced { task, object: self.id_of(*object), size_bytes },
            );
            if std::mem::take(&mut self.executors[executor as usize].lacks_room) {
                for object in &kept {
                    self.tell_node(executor, NodeEvent::Release { object: self.id_of(*object) });
                }
                return self.end_try(executor, number, End::NoRoom);
            }
            if !was_known {
                let at = &mut self.executors[executor as usize];
                at.store(self.cluster, size_bytes);
                at.replicas.insert(*object, Replica::Whole);
                at.pages.touch(*object);
            }
            self.say(Fact::Stored { executor, object: *object });
        }
        self.end_try(executor, number, End::Succeeded);
    }

    /// An attempt at a task ends on its executor.
    fn end_try(&mut self, executor: u32, number: u32, end: End) {
        let task = &mut self.tasks[number];
        (task.ran_ns, task.is_running) = (self.now - task.started, false);
        let ran_us = task.ran_ns / MICROSECOND;
        if end == End::Succeeded {
            self.outcome.computed_ns += u128::from(task.compute_us * MICROSECOND);
        }
        self.running -= 1;
        self.executors[executor as usize].running -= 1;
        self.tell_node(executor, NodeEvent::Ended { task: self.tasks.id_of(number) });
        self.say(Fact::Ended {
            executor,
            task: number,
            ran_us: ran_us.min(u32::MAX.into()) as u32,
            end,
        });
    }

    /// An attempt at a task is killed because the task was cancelled.
    pub(super) fn killed(&mut self, executor: u32, number: u32, attempt: u32) {
        let Some(task) = self.tasks.running(number, executor, attempt) else { return };
        if let Some(flow) = task.flow.take() {
            self.flows.stop(self.now, flow);
        }
        self.end_try(executor, number, End::Killed);
    }

    /// A dispatcher reads that an attempt at a task has ended.
    pub(super) fn ended(&mut self, number: usize, executor: u32, task: u32, ran_us: u32, end: End) {
        let SimTask { attempt, reads, assigned, started, .. } = self.tasks[task];
        let mut outcome = match end {
            End::Succeeded => Outcome::of(Status::Succeeded),
            End::Failed => Outcome::of(Status::Exited(1)),
            End::Killed => Outcome::of(Status::Cancelled),
            End::Starved => Outcome::failed(FailureKind::Lost, "an input is lost"),
            End::Refused => Outcome::failed(FailureKind::Node, "the store is too small"),
            End::NoRoom => Outcome::failed(FailureKind::NodeFull, "the store has no room"),
        };
        outcome.ran_us = ran_us.into();
        if end == End::Succeeded {
            outcome.waited_us = started.saturating_sub(assigned) / MICROSECOND;
            outcome.reads = reads;
            outcome.outputs = self.plan.outputs.delivered(&self.tasks[task].outputs);
        }
        let id = self.tasks.id_of(task);
        let (executor, outcome) = (ExecutorId(executor), Box::new(outcome));
        // The end counts only if the executor still has the task.
        let counts = end == End::Succeeded && self.dispatchers[number].jobs.has(executor, id);
        if counts {
            self.count(task);
        }
        let journal = &mut self.dispatchers[number].journal;
        (journal.is_behind, journal.gathered) = (true, journal.gathered + 1);
        self.tell_jobs(number, JobsEvent::TaskEnded { executor, task: id, attempt, outcome });
        if counts {
            self.tasks.done(task);
        }
    }

    /// Adds a task that succeeded to the outcome, once.
    fn count(&mut self, number: u32) {
        let task = &mut self.tasks[number];
        if std::mem::replace(&mut task.is_done, true) {
            return;
        }
        let SimTask { arrived, assigned, started, ran_ns, .. } = *task;
        let since = |then: Ns| u128::from(then.saturating_sub(arrived));
        self.outcome.done += 1;
        self.outcome.queued_ns += since(assigned);
        self.outcome.waited_ns += since(started);
        self.outcome.ran_ns += u128::from(ran_ns);
        self.outcome.ideal_ns = self.outcome.ideal_ns.max(arrived + ran_ns);
        self.outcome.responded_ns += since(self.now);
        self.outcome.course.note_done();
    }
}
