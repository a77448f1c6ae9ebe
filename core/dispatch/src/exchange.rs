//! Passes effects of each decider to the other, or to the shell.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use eyas_jobs::{self as jobs, Jobs, JournalRecord};
use eyas_sched::{self as sched, Hint, Holder, PushId, Scheduler};
use eyas_types::{ExecutorId, JobId, Need, ObjectId, ObjectSpec, PlaceId, TaskId};

/// What the shell is to do.
#[derive(Debug)]
pub enum Effect {
    /// Tell `core/sched` that a task is ready, before anything else. The shell does so itself because it may know more
    /// inputs of the task than `core/jobs` does.
    Queue {
        /// The task.
        task: TaskId,
        /// Objects it reads, with their sizes in bytes; each once.
        inputs: Box<[(ObjectId, u64)]>,
        /// What it needs of an executor.
        need: Need,
    },
    /// Give a task to an executor. `core/jobs` has booked the assignment.
    Assign {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// How often the task was assigned before.
        attempt: u32,
        /// Executors that can give inputs which this one does not hold.
        hints: Box<[Hint]>,
    },
    /// Ask an executor to give back a task that has not started.
    Recall {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
    },
    /// Have an executor end a task.
    Cancel {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
    },
    /// Have an executor hold an object, which it fetches if it does not have it.
    Hold {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
        /// Executors that can give it; the first is tried first.
        holders: Box<[Holder]>,
    },
    /// Let an executor evict an object that it holds.
    Release {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// Have an executor check whether it has an object.
    Verify {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// No more objects of a push will arrive.
    Pushed {
        /// The push.
        push: PushId,
    },
    /// Tell an executor to stop: it may leave.
    Stop {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor was set aside and gets no tasks for now.
    SetAside {
        /// The executor.
        executor: ExecutorId,
    },
    /// An executor that was set aside gets tasks again.
    TakenBack {
        /// The executor.
        executor: ExecutorId,
    },
    /// Write a record to the journal.
    Write(JournalRecord),
    /// Show clients that watch the job how it stands.
    Show {
        /// The job.
        job: JobId,
    },
    /// Push the inputs that every executor is to have which may run the job's tasks.
    Broadcast {
        /// The job.
        job: JobId,
    },
    /// End the push of a job's inputs.
    EndBroadcast {
        /// The job.
        job: JobId,
    },
    /// All of the job's tasks have ended, and their results were given to the journal. The scheduler has forgotten the job.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Read how an earlier task ended. Answered at once by [`jobs::Event::EarlierResult`].
    ReadResult {
        /// The task that is to be queued.
        task: TaskId,
        /// The earlier task that did the same.
        earlier: TaskId,
    },
    /// Tell an executor whether a task may let its outputs appear at the places that it has named.
    Claimed {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// The first place that another task of the job has, and the index of that task.
        by_other: Option<(PlaceId, u32)>,
    },
    /// Have an executor check whether these objects are on persistent storage.
    Check {
        /// The executor.
        executor: ExecutorId,
        /// The task whose outputs they would be.
        task: TaskId,
        /// The objects.
        objects: Vec<ObjectSpec>,
    },
}

/// What is still to be passed on.
#[derive(Debug)]
enum ToPass {
    /// An effect of `core/jobs`.
    Effect(jobs::Effect),
    /// A fact for `core/jobs`.
    Event(jobs::Event),
}

/// See the [crate's](crate) documentation.
#[derive(Debug, Default)]
pub struct Exchange {
    to_pass: VecDeque<ToPass>,
    /// Effects for the shell that it has not taken yet.
    to_shell: VecDeque<Effect>,
    jobs_effects: Vec<jobs::Effect>,
    sched_effects: Vec<sched::Effect>,
}

impl Exchange {
    /// Tells `core/jobs` what happened, once everything that was said before is passed on. The shell then takes what is to
    /// be done from [`next`](Self::next) until there is nothing left.
    pub fn tell_jobs(&mut self, event: jobs::Event) {
        self.to_pass.push_back(ToPass::Event(event));
    }

    /// Tells `core/sched` at once what happened. The shell then takes what is to be done from [`next`](Self::next) until
    /// there is nothing left.
    pub fn tell_scheduler(&mut self, now_us: u64, event: sched::Event, jobs: &mut Jobs, scheduler: &mut Scheduler) {
        let mut effects = core::mem::take(&mut self.sched_effects);
        scheduler.handle(event, &mut effects);
        // What follows from this event goes before what the shell has not done yet.
        let later = core::mem::take(&mut self.to_shell);
        for effect in effects.drain(..) {
            self.pass_from_scheduler(now_us, effect, jobs);
        }
        self.to_shell.extend(later);
        self.sched_effects = effects;
    }

    /// The next thing that the shell is to do, once everything before it is passed on.
    pub fn next(&mut self, now_us: u64, jobs: &mut Jobs, scheduler: &mut Scheduler) -> Option<Effect> {
        loop {
            if let Some(effect) = self.to_shell.pop_front() {
                return Some(effect);
            }
            match self.to_pass.pop_front()? {
                ToPass::Effect(effect) => self.pass_from_jobs(now_us, effect, jobs, scheduler),
                ToPass::Event(event) => {
                    jobs.handle(now_us, event, &mut self.jobs_effects);
                    // They go before everything else that is to be passed on.
                    for effect in self.jobs_effects.drain(..).rev() {
                        self.to_pass.push_front(ToPass::Effect(effect));
                    }
                }
            }
        }
    }

    fn pass_from_scheduler(&mut self, now_us: u64, effect: sched::Effect, jobs: &mut Jobs) {
        use sched::Effect as Said;
        let effect = match effect {
            Said::Assign { executor, task, attempt, hints } => {
                jobs.handle(now_us, jobs::Event::Assigned { task, executor }, &mut self.jobs_effects);
                self.to_pass.extend(self.jobs_effects.drain(..).map(ToPass::Effect));
                Effect::Assign { executor, task, attempt, hints }
            }
            Said::Recall { executor, task } => Effect::Recall { executor, task },
            Said::Cancel { executor, task } => Effect::Cancel { executor, task },
            Said::Hold { executor, object, holders } => Effect::Hold { executor, object, holders },
            Said::Release { executor, object } => Effect::Release { executor, object },
            Said::Verify { executor, object } => Effect::Verify { executor, object },
            Said::Pushed { push } => Effect::Pushed { push },
            Said::Lost { object } => return self.tell_jobs(jobs::Event::ObjectLost { object }),
            Said::Found { object } => return self.tell_jobs(jobs::Event::ObjectFound { object }),
            Said::Unplaceable { task } => return self.tell_jobs(jobs::Event::Unplaceable { task }),
        };
        self.to_shell.push_back(effect);
    }

    fn pass_from_jobs(&mut self, now_us: u64, effect: jobs::Effect, jobs: &mut Jobs, scheduler: &mut Scheduler) {
        use jobs::Effect as Said;
        use sched::Event;
        let mut tell = |event| self.tell_scheduler(now_us, event, jobs, scheduler);
        let effect = match effect {
            Said::Name { job } => {
                // A job without a name is as if it was never named.
                let Some(name) = jobs.get(job).map(|job| &job.spec.name).filter(|name| !name.is_empty()) else {
                    return;
                };
                let name = name.as_str().into();
                return self.tell_scheduler(now_us, Event::JobNamed { job, name }, jobs, scheduler);
            }
            Said::Withdraw { tasks } => return tell(Event::TasksWithdrawn { tasks: tasks.into() }),
            Said::Cancel { task } => return tell(Event::TaskCancelled { task }),
            Said::Drop { task } => return tell(Event::TaskDropped { task }),
            Said::Done { executor, task, ended, ran_us } => {
                return tell(Event::TaskEnded { executor, task, ended, ran_us });
            }
            Said::Drain { executor } => return tell(Event::ExecutorDraining { executor }),
            Said::Evacuate => return tell(Event::Evacuate),
            Said::Left { executor } => return tell(Event::ExecutorLeft { executor }),
            Said::Keep { object, replicas, on } => return tell(Event::Keep { object, replicas, executor: on }),
            Said::Release { object } => return tell(Event::Release { object }),
            Said::Verify { object } => return tell(Event::Doubted { object }),
            Said::HoldAgain => return tell(Event::HoldAgain),
            Said::Locate { objects } => {
                let (moving, nowhere) = objects.into_iter().partition(|object| scheduler.is_moving(*object));
                return self.tell_jobs(jobs::Event::Located { moving, nowhere });
            }
            Said::SetAside { executor } => {
                tell(Event::ExecutorSetAside { executor });
                Effect::SetAside { executor }
            }
            Said::TakeBack { executor } => {
                tell(Event::ExecutorTakenBack { executor });
                Effect::TakenBack { executor }
            }
            Said::Forget { job } => {
                scheduler.forget_job(job);
                Effect::Forget { job }
            }
            Said::Queue { task, inputs, need } => Effect::Queue { task, inputs, need },
            Said::Stop { executor } => Effect::Stop { executor },
            Said::Write(record) => Effect::Write(record),
            Said::Show { job } => Effect::Show { job },
            Said::Broadcast { job } => Effect::Broadcast { job },
            Said::EndBroadcast { job } => Effect::EndBroadcast { job },
            Said::ReadResult { task, earlier } => Effect::ReadResult { task, earlier },
            Said::Claimed { executor, task, by_other } => Effect::Claimed { executor, task, by_other },
            Said::Check { executor, task, objects } => Effect::Check { executor, task, objects },
        };
        self.to_shell.push_back(effect);
    }
}
