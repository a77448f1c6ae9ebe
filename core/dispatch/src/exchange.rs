//! Passes effects of each decider to the other, or to the shell.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use eyas_jobs::{self as jobs, JobSummary, Jobs, JournalRecord, SpecError};
use eyas_sched::{self as sched, Hint, Holder, PushId, Scheduler};
use eyas_types::{ExecutorId, JobId, Need, ObjectId, ObjectSpec, PlaceId, TaskId, TaskResult};

/// An action for the shell.
#[derive(Debug)]
pub enum Effect {
    /// Queue a ready task in `core/sched`, before the next call of the exchange. The shell does this itself, because it
    /// may know inputs of the task that `core/jobs` does not know.
    Queue {
        /// The task.
        task: TaskId,
        /// Objects that the task reads, with their sizes in bytes; each once.
        inputs: Box<[(ObjectId, u64)]>,
        /// Resources and other requirements of the task.
        need: Need,
    },
    /// Assign a task to an executor. `core/jobs` knows the assignment already.
    Assign {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// Number of earlier assignments of the task.
        attempt: u32,
        /// Executors that hold inputs which this executor does not hold.
        hints: Box<[Hint]>,
        /// The task has so many inputs that there are no hints here: they are given by [`Scheduler::hints_of_part`],
        /// part by part.
        in_parts: bool,
    },
    /// Ask an executor to give back a task that has not started.
    Recall {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
    },
    /// Tell an executor to kill a task.
    Cancel {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
    },
    /// Tell an executor to hold an object, and to fetch it if its store does not have it.
    Hold {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
        /// Executors that hold the object, in the order in which to try them.
        holders: Box<[Holder]>,
    },
    /// Let an executor evict an object that it holds.
    Release {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// Ask an executor whether its store has an object.
    Verify {
        /// The executor.
        executor: ExecutorId,
        /// The object.
        object: ObjectId,
    },
    /// A push has ended: no more of its objects will arrive.
    Pushed {
        /// The push.
        push: PushId,
    },
    /// Tell an executor to stop. The cluster no longer needs its tasks or objects.
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
    /// Send results to the client of an attached job.
    Deliver {
        /// The job.
        job: JobId,
        /// The results, in the order of their arrival.
        results: Vec<TaskResult>,
    },
    /// Tell the client of an attached job that what it wanted to add is wrong. Nothing was added.
    NotExtended {
        /// The job.
        job: JobId,
        /// The reason.
        why: SpecError,
    },
    /// All tasks of an attached job have ended, and their results were delivered.
    Detached {
        /// What it was.
        summary: Box<JobSummary>,
    },
    /// Show the state of a job to the clients that watch it.
    Show {
        /// The job.
        job: JobId,
    },
    /// Start to copy the job's broadcast inputs to all executors that may run its tasks.
    Broadcast {
        /// The job.
        job: JobId,
    },
    /// End the push of a job's inputs.
    EndBroadcast {
        /// The job.
        job: JobId,
    },
    /// Forget a job: all its tasks have ended, and their results were given to the journal. `core/sched` has forgotten
    /// the job.
    Forget {
        /// The job.
        job: JobId,
    },
    /// Read the result of an earlier task. The shell answers at once with [`jobs::Event::EarlierResult`].
    ReadResult {
        /// The task that may reuse the result.
        task: TaskId,
        /// The earlier task, with the same command and inputs.
        earlier: TaskId,
    },
    /// Tell an executor whether a task may write its outputs to the places that it has claimed.
    Claimed {
        /// The executor.
        executor: ExecutorId,
        /// The task.
        task: TaskId,
        /// The first place that another task of the job has claimed before, and the index of that task.
        by_other: Option<(PlaceId, u32)>,
    },
    /// Ask an executor whether these objects are on persistent storage.
    Check {
        /// The executor.
        executor: ExecutorId,
        /// The task that would have these objects as outputs.
        task: TaskId,
        /// The objects.
        objects: Vec<ObjectSpec>,
    },
}

/// An effect or event that was not passed on yet.
#[derive(Debug)]
enum ToPass {
    /// An effect of `core/jobs`.
    Effect(jobs::Effect),
    /// An event for `core/jobs`.
    Event(jobs::Event),
}

/// Connects `core/jobs` and `core/sched`; the documentation of the [crate](crate) describes the order of events.
#[derive(Debug, Default)]
pub struct Exchange {
    to_pass: VecDeque<ToPass>,
    /// Effects that the shell has not taken yet.
    to_shell: VecDeque<Effect>,
    jobs_effects: Vec<jobs::Effect>,
    sched_effects: Vec<sched::Effect>,
}

impl Exchange {
    /// Queues an event for `core/jobs`, behind all effects and events that wait to be passed on. The shell must then
    /// call [`next`](Self::next) until it returns `None`.
    pub fn tell_jobs(&mut self, event: jobs::Event) {
        self.to_pass.push_back(ToPass::Event(event));
    }

    /// Passes an event to `core/sched` at once. The shell must then call [`next`](Self::next) until it returns `None`.
    pub fn tell_scheduler(&mut self, now_us: u64, event: sched::Event, jobs: &mut Jobs, scheduler: &mut Scheduler) {
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

    /// Passes on effects and events until there is an effect for the shell; `None` if there is nothing left to pass on.
    pub fn next(&mut self, now_us: u64, jobs: &mut Jobs, scheduler: &mut Scheduler) -> Option<Effect> {
        loop {
            if let Some(effect) = self.to_shell.pop_front() {
                return Some(effect);
            }
            match self.to_pass.pop_front()? {
                ToPass::Effect(effect) => self.pass_from_jobs(now_us, effect, jobs, scheduler),
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
        use sched::Effect as SchedulerEffect;
        let effect = match effect {
            SchedulerEffect::Assign { executor, task, attempt, hints, in_parts } => {
                jobs.handle(now_us, jobs::Event::Assigned { task, executor }, &mut self.jobs_effects);
                self.to_pass.extend(self.jobs_effects.drain(..).map(ToPass::Effect));
                Effect::Assign { executor, task, attempt, hints, in_parts }
            }
            SchedulerEffect::Recall { executor, task } => Effect::Recall { executor, task },
            SchedulerEffect::Cancel { executor, task } => Effect::Cancel { executor, task },
            SchedulerEffect::Hold { executor, object, holders } => Effect::Hold { executor, object, holders },
            SchedulerEffect::Release { executor, object } => Effect::Release { executor, object },
            SchedulerEffect::Verify { executor, object } => Effect::Verify { executor, object },
            SchedulerEffect::Pushed { push } => Effect::Pushed { push },
            SchedulerEffect::Lost { object } => return self.tell_jobs(jobs::Event::ObjectLost { object }),
            SchedulerEffect::Found { object } => return self.tell_jobs(jobs::Event::ObjectFound { object }),
            SchedulerEffect::Unplaceable { task } => return self.tell_jobs(jobs::Event::Unplaceable { task }),
        };
        self.to_shell.push_back(effect);
    }

    fn pass_from_jobs(&mut self, now_us: u64, effect: jobs::Effect, jobs: &mut Jobs, scheduler: &mut Scheduler) {
        use jobs::Effect as JobsEffect;
        use sched::Event;
        let mut tell = |event| self.tell_scheduler(now_us, event, jobs, scheduler);
        let effect = match effect {
            JobsEffect::Name { job } => {
                // `core/sched` gets only names that are not empty.
                let Some(name) = jobs.get(job).map(|job| &job.spec.name).filter(|name| !name.is_empty()) else {
                    return;
                };
                let name = name.as_str().into();
                return self.tell_scheduler(now_us, Event::JobNamed { job, name }, jobs, scheduler);
            }
            JobsEffect::Withdraw { tasks } => return tell(Event::TasksWithdrawn { tasks: tasks.into() }),
            JobsEffect::Cancel { task } => return tell(Event::TaskCancelled { task }),
            JobsEffect::Drop { task } => return tell(Event::TaskDropped { task }),
            JobsEffect::Done { executor, task, ended, ran_us } => {
                return tell(Event::TaskEnded { executor, task, ended, ran_us });
            }
            JobsEffect::Drain { executor } => return tell(Event::ExecutorDraining { executor }),
            JobsEffect::Evacuate => return tell(Event::Evacuate),
            JobsEffect::Left { executor } => return tell(Event::ExecutorLeft { executor }),
            JobsEffect::Keep { object, replicas, on } => {
                return tell(Event::Keep { object, replicas, executor: on });
            }
            JobsEffect::Release { object } => return tell(Event::Release { object }),
            JobsEffect::Verify { object } => return tell(Event::Doubted { object }),
            JobsEffect::HoldAgain => return tell(Event::HoldAgain),
            JobsEffect::Locate { objects } => {
                let (moving, nowhere) = objects.into_iter().partition(|object| scheduler.is_moving(*object));
                return self.tell_jobs(jobs::Event::Located { moving, nowhere });
            }
            JobsEffect::SetAside { executor } => {
                tell(Event::ExecutorSetAside { executor });
                Effect::SetAside { executor }
            }
            JobsEffect::TakeBack { executor } => {
                tell(Event::ExecutorTakenBack { executor });
                Effect::TakenBack { executor }
            }
            JobsEffect::Forget { job } => {
                scheduler.forget_job(job);
                Effect::Forget { job }
            }
            JobsEffect::Queue { task, inputs, need } => Effect::Queue { task, inputs, need },
            JobsEffect::Stop { executor } => Effect::Stop { executor },
            JobsEffect::Write(record) => Effect::Write(record),
            JobsEffect::Deliver { job, results } => Effect::Deliver { job, results },
            JobsEffect::NotExtended { job, why } => Effect::NotExtended { job, why },
            JobsEffect::Detached { summary } => Effect::Detached { summary },
            JobsEffect::Show { job } => Effect::Show { job },
            JobsEffect::Broadcast { job } => Effect::Broadcast { job },
            JobsEffect::EndBroadcast { job } => Effect::EndBroadcast { job },
            JobsEffect::ReadResult { task, earlier } => Effect::ReadResult { task, earlier },
            JobsEffect::Claimed { executor, task, by_other } => Effect::Claimed { executor, task, by_other },
            JobsEffect::Check { executor, task, objects } => Effect::Check { executor, task, objects },
        };
        self.to_shell.push_back(effect);
    }
}
