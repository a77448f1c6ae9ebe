//! The two deciders, and the way of what each says to the other and to the world.
//!
//! What the decider of jobs says is done in order, and before anything else is told to it, so that its books and the
//! scheduler's agree whenever an event begins. An assignment is booked at once; other facts wait until what is being done
//! is done.

use eyas_jobs as jobs;
use eyas_sched::{Effect, Event, Hint};
use eyas_types::{ExecutorId, ObjectId, TaskId};
use eyas_wire::executor::{AssignedInput, Assignment, ToExecutor};

use super::Brain;
use crate::answers::Results;

/// What is still to be done.
pub(super) enum ToDo {
    /// A decision of the decider of jobs.
    Effect(jobs::Effect),
    /// A fact for the decider of jobs.
    Event(jobs::Event),
}

impl Brain {
    /// Tells the decider of jobs what happened, and does what follows.
    pub(crate) fn tell_jobs(&mut self, event: jobs::Event) {
        self.to_do.push_back(ToDo::Event(event));
        self.work_off();
    }

    /// Tells the scheduler what happened, and does what follows.
    pub(super) fn tell(&mut self, event: Event) {
        let mut effects = std::mem::take(&mut self.effects);
        self.scheduler.handle(event, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Assign { executor, task, attempt, hints } => self.assign(executor, task, attempt, &hints),
                Effect::Recall { executor, task } => self.executors.send(executor, ToExecutor::Recall { task }),
                Effect::Cancel { executor, task } => self.executors.send(executor, ToExecutor::Cancel { task }),
                Effect::Hold { executor, object, holders } => self.have_held(executor, object, &holders),
                Effect::Release { executor, object } => self.executors.send(executor, ToExecutor::Release { object }),
                Effect::Verify { executor, object } => self.executors.send(executor, ToExecutor::Verify { object }),
                Effect::Pushed { push } => self.pushes.is_over(push),
                Effect::Lost { object } => self.to_do.push_back(ToDo::Event(jobs::Event::ObjectLost { object })),
                Effect::Found { object } => self.to_do.push_back(ToDo::Event(jobs::Event::ObjectFound { object })),
                Effect::Unplaceable { task } => self.to_do.push_back(ToDo::Event(jobs::Event::Unplaceable { task })),
            }
        }
        self.effects = effects;
        self.work_off();
    }

    fn work_off(&mut self) {
        if std::mem::replace(&mut self.is_at_work, true) {
            return;
        }
        while let Some(to_do) = self.to_do.pop_front() {
            match to_do {
                ToDo::Effect(effect) => self.perform(effect),
                ToDo::Event(event) => {
                    let mut effects = Vec::new();
                    self.jobs.handle(self.clock.now_us(), event, &mut effects);
                    // Before what else is to be done.
                    effects.into_iter().rev().for_each(|effect| self.to_do.push_front(ToDo::Effect(effect)));
                }
            }
        }
        self.is_at_work = false;
    }

    /// Does what the decider of jobs has said.
    fn perform(&mut self, effect: jobs::Effect) {
        use jobs::Effect as Do;
        match effect {
            Do::Write(record) => self.write(record),
            Do::Show { job } => self.show(job),
            Do::Broadcast { job } => self.broadcast(job),
            Do::EndBroadcast { job } => self.end_broadcast(job),
            Do::Name { job } => {
                if let Some(name) = self.jobs.get(job).map(|job| job.spec.name.as_str().into()) {
                    self.tell(Event::JobNamed { job, name });
                }
            }
            Do::Forget { job } => {
                self.scheduler.forget_job(job);
                self.executors.forget_job(job);
            }
            Do::Queue { task, inputs, need } => self.tell(Event::TaskReady { task, inputs, need }),
            Do::Withdraw { tasks } => self.tell(Event::TasksWithdrawn { tasks: tasks.into() }),
            Do::Cancel { task } => self.tell(Event::TaskCancelled { task }),
            Do::Drop { task } => self.tell(Event::TaskDropped { task }),
            Do::Done { executor, task, ended, ran_us } => {
                self.tell(Event::TaskEnded { executor, task, ended, ran_us });
            }
            Do::Drain { executor } => self.tell(Event::ExecutorDraining { executor }),
            Do::Evacuate => self.tell(Event::Evacuate),
            Do::Stop { executor } => self.executors.send(executor, ToExecutor::Stop),
            Do::Left { executor } => self.tell(Event::ExecutorLeft { executor }),
            Do::SetAside { executor } => {
                let name = self.executors.name(executor);
                let until_us = self.jobs.set_aside_until(executor).unwrap_or_default();
                let minutes = until_us.saturating_sub(self.clock.now_us()).div_ceil(60_000_000);
                tracing::warn!(
                    "executor {name} is set aside for {minutes} min: tasks failed on it one after the other that other \
                     executors completed; look at its node's disk, mounts and software"
                );
                self.tell(Event::ExecutorSetAside { executor });
            }
            Do::TakeBack { executor } => {
                tracing::info!("executor {} is given tasks again", self.executors.name(executor));
                self.tell(Event::ExecutorTakenBack { executor });
            }
            Do::Keep { object, replicas, on } => self.tell(Event::Keep { object, replicas, by: on }),
            Do::Release { object } => self.tell(Event::Release { object }),
            Do::Verify { object } => self.tell(Event::Doubted { object }),
            Do::HoldAgain => self.tell(Event::HoldAgain),
            Do::Locate { objects } => {
                let (moving, nowhere) = objects.into_iter().partition(|object| self.scheduler.is_moving(*object));
                self.to_do.push_back(ToDo::Event(jobs::Event::Located { moving, nowhere }));
            }
            Do::ReadResult { task, earlier } => {
                let result = self.jobs.get(earlier.job).map(|job| Results::default().last(self, job, earlier.index));
                let outcome = result.and_then(Result::ok).flatten().map(|result| Box::new(result.outcome));
                self.to_do.push_back(ToDo::Event(jobs::Event::EarlierResult { task, earlier, outcome }));
            }
            Do::Claimed { executor, task, by_other } => {
                self.executors.send(executor, ToExecutor::Claimed { task, by_other });
            }
            Do::Check { executor, task, objects } => {
                self.executors.send(executor, ToExecutor::Check { task, objects });
            }
        }
    }

    fn assign(&mut self, executor: ExecutorId, task: TaskId, attempt: u32, hints: &[Hint]) {
        let mut nothing = Vec::new();
        self.jobs.handle(self.clock.now_us(), jobs::Event::Assigned { task, executor }, &mut nothing);
        nothing.into_iter().for_each(|effect| self.to_do.push_back(ToDo::Effect(effect)));
        let job = self.jobs.get(task.job).expect("the scheduler knows tasks of known jobs only");
        let item = job.spec.items.get(task.index);
        // Hints name places in the list of ids, which is sorted and has each object once.
        let ids = if hints.is_empty() { Vec::new() } else { job.input_ids(&item) };
        let holders_of = |object: ObjectId| {
            let hint = hints.iter().find(|hint| ids[usize::from(hint.input)].0 == object);
            self.executors.where_to_ask(hint.map_or(&[], |hint| &hint.holders))
        };
        let inputs = job.inputs(&item).map(|(input, object)| {
            let object = object.expect("only a task with all its inputs is set free").clone();
            let holders = if hints.is_empty() { Vec::new() } else { holders_of(object.id()) };
            AssignedInput { object, name: input.name.clone(), holders }
        });
        let inputs = inputs.collect();
        let template = item.template;
        let assignment = Assignment { task, attempt, template, values: item.values, inputs };
        let spec = &job.spec.templates[usize::from(template)];
        let Some(entry) = self.executors.get_mut(executor) else { return };
        if entry.lacks_template(task.job, template) {
            let spec = Box::new(spec.clone());
            self.executors.send(executor, ToExecutor::Template { job: task.job, template, spec });
        }
        self.executors.send(executor, ToExecutor::Assign(assignment));
    }

    /// Has an executor hold an object, which is kept or pushed.
    fn have_held(&mut self, executor: ExecutorId, object: ObjectId, holders: &[eyas_sched::Holder]) {
        let Some(spec) = self.jobs.kept_spec(object).or_else(|| self.pushes.spec(object)).cloned() else { return };
        let holders = self.executors.where_to_ask(holders);
        self.executors.send(executor, ToExecutor::Hold { object: spec, holders });
    }

    /// Tells how much others still fetch from executors that are to leave, which go when it is nothing.
    pub(super) fn let_leave_those_that_may(&mut self) {
        for executor in self.jobs.leaving().collect::<Vec<_>>() {
            let objects = self.scheduler.moving_from(executor);
            self.tell_jobs(jobs::Event::Moving { executor, objects });
        }
    }
}
