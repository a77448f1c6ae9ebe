//! What dispatchers learn: that tasks arrive, and what executors tell.

use std::collections::BTreeSet;

use eyas_jobs::Event as JobsEvent;
use eyas_sched::Event;
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, Outcome, Status};

use super::Dispatchers;
use crate::clock::MICROSECOND;
use crate::run::event::{End, SimFact};
use crate::run::executor::SimExecutor;
use crate::run::task::SimTask;
use crate::run::world::World;

impl Dispatchers<'_> {
    /// Tasks arrive, each at its dispatcher.
    pub fn tasks_arrive(&mut self, world: &mut World) {
        while let Some(arrival) = world.tasks.next_arrival(world.agenda.now()) {
            let number = self.partitioner.next_dispatcher(arrival.inputs.first().copied());
            let index = self.all[number].task_arrives();
            world.tasks.add(arrival, index, &world.setup.plan.outputs);
            world.metrics.task_arrived();
            self.tell(number, SimFact::Ready);
        }
        world.tasks.await_arrival(&mut world.agenda);
    }

    /// A dispatcher reads a message, which is not that an executor is gone.
    pub fn read(&mut self, number: usize, fact: SimFact, world: &mut World) {
        let setup = world.setup;
        let event = match fact {
            SimFact::Ready => {
                return self.tell_jobs(number, JobsEvent::QueueMore { tasks: 1 }, world);
            }
            SimFact::Ended { executor, task, ran_us, end } => {
                self.task_left(executor);
                return self.ended(number, executor, task, ran_us, end, world);
            }
            SimFact::Returned { executor, task } => {
                self.task_left(executor);
                let SimTask { attempt, .. } = world.tasks[task];
                let (executor, task) = (ExecutorId(executor), world.tasks.id_of(task));
                let returned = JobsEvent::TaskReturned { executor, task, attempt };
                return self.tell_jobs(number, returned, world);
            }
            // Real executors do not report this either. Only the provisioner learns from it.
            SimFact::Fetched { .. } if !setup.caches => return,
            SimFact::Fetched { executor, object, from, took_us } => {
                let (executor, object) = (ExecutorId(executor), setup.id_of(object));
                Event::Fetched { executor, object, from, took_us: took_us.into() }
            }
            SimFact::Stored { executor, object } => {
                let (executor, size_bytes) = (ExecutorId(executor), setup.size_bytes(object));
                Event::Stored { executor, object: setup.id_of(object), size_bytes }
            }
            SimFact::NotHeld { executor, object } => {
                Event::NotHeld { executor: ExecutorId(executor), object: setup.id_of(object) }
            }
            SimFact::Evicted { executor, object } => {
                Event::Evicted { executor: ExecutorId(executor), object: setup.id_of(object) }
            }
            SimFact::Copy { executor, object, news } => {
                Event::Copy { executor: ExecutorId(executor), object: setup.id_of(object), news }
            }
            SimFact::Staging { executor, lent_milli, light_bytes } => Event::Staging {
                executor: ExecutorId(executor),
                lent_milli: lent_milli.into(),
                light_bytes,
            },
            SimFact::Retiring { executor } => {
                let executor = ExecutorId(executor);
                return self.tell_jobs(number, JobsEvent::ExecutorLeaves { executor }, world);
            }
            SimFact::Gone { .. } | SimFact::Left { .. } => {
                unreachable!("the caller tells of executors that are gone")
            }
        };
        self.tell_scheduler(number, event, world);
        if setup.plan.outputs.has_kept() {
            // Others may have fetched the objects that a leaving executor held.
            self.report_moves_of_leaving(number, world);
        }
    }

    /// The dispatcher learns that an executor is gone: lost with its tasks, or after leaving in
    /// good order.
    pub fn executor_gone(&mut self, executor: u32, is_loss: bool, world: &mut World) {
        let gone = JobsEvent::ExecutorGone {
            executor: ExecutorId(executor),
            tasks: self.tasks_of(executor),
            lost_with: is_loss.then(|| SimExecutor::capacity(world.setup.cluster)),
            suspended: BTreeSet::new(),
        };
        self.tell_jobs(self.dispatcher_of(executor), gone, world);
    }

    /// A dispatcher reads that an attempt at a task has ended.
    fn ended(
        &mut self,
        number: usize,
        executor: u32,
        task: u32,
        ran_us: u32,
        end: End,
        world: &mut World,
    ) {
        let executor = ExecutorId(executor);
        let mut outcome = Box::new(outcome_of(end));
        outcome.ran_us = ran_us.into();
        let id = world.tasks.id_of(task);
        let attempt = world.tasks[task].attempt;
        if end == End::Succeeded {
            let SimTask { reads, assigned, started, outputs, .. } = &world.tasks[task];
            outcome.waited_us = started.saturating_sub(*assigned) / MICROSECOND;
            outcome.reads = *reads;
            outcome.outputs = world.setup.plan.outputs.delivered(outputs);
        }
        // The end counts only if the executor still has the task.
        let counts = end == End::Succeeded && self[number].jobs().has(executor, id);
        if counts && world.tasks.succeeds(task) {
            world.metrics.succeeded(&world.tasks[task], world.agenda.now());
        }
        self.all[number].journal.gather();
        let ended = JobsEvent::TaskEnded { executor, task: id, attempt, outcome };
        self.tell_jobs(number, ended, world);
        if counts {
            world.tasks.forget(task);
        }
    }
}

fn outcome_of(end: End) -> Outcome {
    match end {
        End::Succeeded => Outcome::of(Status::Succeeded),
        End::Failed => Outcome::of(Status::Exited(1)),
        End::Killed => Outcome::of(Status::Cancelled),
        End::Starved => Outcome::failed(FailureKind::Lost, "an input is lost"),
        End::Refused => Outcome::failed(FailureKind::Node, "the store is too small"),
        End::NoRoom => Outcome::failed(FailureKind::NodeFull, "the store has no room"),
    }
}
