//! Passes effects of each decider to the other, or to the shell.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_jobs::{self as jobs, Jobs, JobsAction, SchedulerOrder};
use eyas_sched::{self as sched, PlacementCommand, PlacementReport, Scheduler};
use eyas_types::{ObjectId, TaskId};

/// What the shell must do.
#[derive(Debug)]
pub enum Effect {
    /// As the decider of jobs says.
    Jobs(JobsAction),
    /// As the scheduler says. If it is an assignment, the decider of jobs knows it already.
    Scheduler(PlacementCommand),
}

/// What the shell knows of the inputs of a task that is to be queued.
pub trait PlacementInputs {
    /// The inputs by which the task is placed, with their sizes in bytes, each once and in order:
    /// those that the decider of jobs knows, and others.
    fn complete(
        &self,
        task: TaskId,
        inputs: Arc<[(ObjectId, u64)]>,
        jobs: &Jobs,
        scheduler: &mut Scheduler,
    ) -> Arc<[(ObjectId, u64)]>;
}

/// An effect or event that was not passed on yet.
#[derive(Debug)]
enum ToPass {
    /// An effect of `core/jobs`.
    Effect(jobs::Effect),
    /// An event for `core/jobs`.
    Event(jobs::Event),
}

/// Connects `core/jobs` and `core/sched`; the documentation of the [crate](crate) describes the
/// order of events.
#[derive(Debug, Default)]
pub struct Exchange {
    to_pass: VecDeque<ToPass>,
    /// Effects that the shell has not taken yet.
    to_shell: VecDeque<Effect>,
    jobs_effects: Vec<jobs::Effect>,
    sched_effects: Vec<sched::Effect>,
}

impl Exchange {
    /// Queues an event for `core/jobs`, behind all effects and events that wait to be passed on.
    /// The shell must then call [`next`](Self::next) until it returns `None`.
    pub fn tell_jobs(&mut self, event: jobs::Event) {
        self.to_pass.push_back(ToPass::Event(event));
    }

    /// Passes an event to `core/sched` at once. The shell must then call [`next`](Self::next) until
    /// it returns `None`.
    pub fn tell_scheduler(
        &mut self,
        now_us: u64,
        event: sched::Event,
        jobs: &mut Jobs,
        scheduler: &mut Scheduler,
    ) {
        let mut effects = core::mem::take(&mut self.sched_effects);
        scheduler.handle(event, &mut effects);
        // Effects of this event go before effects that the shell has not taken yet.
        let later = core::mem::take(&mut self.to_shell);
        for effect in effects.drain(..) {
            self.pass_from_scheduler(now_us, effect, jobs);
        }
        self.to_shell.extend(later);
        self.sched_effects = effects;
    }

    /// Passes on effects and events until there is an effect for the shell; `None` if there is
    /// nothing left to pass on.
    pub fn next(
        &mut self,
        now_us: u64,
        jobs: &mut Jobs,
        scheduler: &mut Scheduler,
        inputs: &dyn PlacementInputs,
    ) -> Option<Effect> {
        loop {
            if let Some(effect) = self.to_shell.pop_front() {
                return Some(effect);
            }
            match self.to_pass.pop_front()? {
                ToPass::Effect(jobs::Effect::Action(action)) => return Some(Effect::Jobs(action)),
                ToPass::Effect(jobs::Effect::Order(order)) => {
                    self.order(now_us, order, jobs, scheduler, inputs)
                }
                ToPass::Event(event) => {
                    jobs.handle(now_us, event, &mut self.jobs_effects);
                    // Its effects go before everything else that waits to be passed on.
                    for effect in self.jobs_effects.drain(..).rev() {
                        self.to_pass.push_front(ToPass::Effect(effect));
                    }
                }
            }
        }
    }

    fn pass_from_scheduler(&mut self, now_us: u64, effect: sched::Effect, jobs: &mut Jobs) {
        match effect {
            sched::Effect::Command(command) => {
                if let PlacementCommand::Assign { executor, task, .. } = command {
                    jobs.handle(
                        now_us,
                        jobs::Event::Assigned { task, executor },
                        &mut self.jobs_effects,
                    );
                    self.to_pass.extend(self.jobs_effects.drain(..).map(ToPass::Effect));
                }
                self.to_shell.push_back(Effect::Scheduler(command));
            }
            sched::Effect::Report(PlacementReport::Lost { object }) => {
                self.tell_jobs(jobs::Event::ObjectLost { object });
            }
            sched::Effect::Report(PlacementReport::Found { object }) => {
                self.tell_jobs(jobs::Event::ObjectFound { object });
            }
            sched::Effect::Report(PlacementReport::Unplaceable { task }) => {
                self.tell_jobs(jobs::Event::Unplaceable { task });
            }
        }
    }

    fn order(
        &mut self,
        now_us: u64,
        order: SchedulerOrder,
        jobs: &mut Jobs,
        scheduler: &mut Scheduler,
        inputs: &dyn PlacementInputs,
    ) {
        use SchedulerOrder as Order;
        use sched::Event;
        let event = match order {
            Order::Queue { task, inputs: known, need } => {
                let inputs = inputs.complete(task, known, jobs, scheduler);
                Event::TaskReady { task, inputs, need }
            }
            Order::Name { job } => {
                // `core/sched` gets only names that are not empty.
                let name = jobs.get(job).map(|job| &job.spec.name).filter(|name| !name.is_empty());
                let Some(name) = name.map(|name| name.as_str().into()) else { return };
                Event::JobNamed { job, name }
            }
            Order::Locate { objects } => {
                let (moving, nowhere) =
                    objects.into_iter().partition(|object| scheduler.is_moving(*object));
                return self.tell_jobs(jobs::Event::Located { moving, nowhere });
            }
            Order::ForgetJob { job } => return scheduler.forget_job(job),
            Order::Withdraw { tasks } => Event::TasksWithdrawn { tasks: tasks.into() },
            Order::Cancel { task } => Event::TaskCancelled { task },
            Order::Drop { task } => Event::TaskDropped { task },
            Order::Done { executor, task, ended, ran_us } => {
                Event::TaskEnded { executor, task, ended, ran_us }
            }
            Order::Drain { executor } => Event::ExecutorDraining { executor },
            Order::Evacuate => Event::Evacuate,
            Order::Left { executor } => Event::ExecutorLeft { executor },
            Order::Keep { object, replicas, on } => Event::Keep { object, replicas, executor: on },
            Order::Release { object } => Event::Release { object },
            Order::Verify { object } => Event::Doubted { object },
            Order::HoldAgain => Event::HoldAgain,
            Order::SetAside { executor } => Event::ExecutorSetAside { executor },
            Order::TakeBack { executor } => Event::ExecutorTakenBack { executor },
        };
        self.tell_scheduler(now_us, event, jobs, scheduler);
    }
}
