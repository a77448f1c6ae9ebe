//! Dispatchers. Each one manages a part of the nodes and decides about the tasks that are assigned
//! to it. A dispatcher does not know the replicas of the others, so each part reads an object from
//! persistent storage once.

use std::ops::Index;

use eyas_jobs::{Event as JobsEvent, NewJob};
use eyas_sched::Event;
use eyas_types::{ExecutorId, ObjectId, TaskId};

use self::dispatcher::Dispatcher;
use super::event::{SimEvent, SimFact};
use super::executor::SimExecutor;
use super::job::{JOB, Partitioner};
use super::push::Push;
use super::world::{Setup, World};
use crate::audit::{Audit, AuditedDispatcher};

mod dispatcher;
mod effects;
mod facts;

pub(super) struct Dispatchers<'a> {
    all: Vec<Dispatcher>,
    partitioner: Partitioner,
    /// Dispatchers that may have unread messages.
    told: Vec<usize>,
    /// Tasks that wait, at all dispatchers together.
    waiting: u64,
    /// The session of each executor that ever joined, by the executor's number.
    sessions: Vec<Session>,
    /// Executors whose number of tasks changed, for the provisioner; `None` if there is none.
    changed: Option<Vec<u32>>,
    push: Option<Push>,
    audit: Option<&'a mut dyn Audit>,
}

struct Session {
    dispatcher: usize,
    /// The dispatcher takes the executor to be connected.
    is_known: bool,
    /// Tasks that were assigned to the executor and have not ended, as the dispatcher knows.
    tasks: u32,
}

/// Objects that an executor holds, with their sizes.
type HeldObjects = Box<[(ObjectId, u64)]>;

impl<'a> Dispatchers<'a> {
    pub fn new(setup: &Setup) -> Self {
        let Setup { cluster, policies, .. } = setup;
        Dispatchers {
            all: (0..cluster.dispatchers).map(|_| Dispatcher::new(policies)).collect(),
            partitioner: Partitioner::new(cluster, policies),
            told: Vec::new(),
            waiting: 0,
            sessions: Vec::new(),
            changed: cluster.batch.as_ref().map(|_| Vec::new()),
            push: Push::new(policies, cluster.dispatchers),
            audit: None,
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Dispatcher> {
        self.all.iter()
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Tasks that wait, at all dispatchers together.
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Processors with a task, as the dispatchers know them.
    pub fn busy(&self) -> u64 {
        self.all.iter().map(|of| of.scheduler().utilisation().busy_milli / 1000).sum()
    }

    pub fn have_executors(&self) -> bool {
        self.all.iter().any(|of| of.scheduler().utilisation().total_milli > 0)
    }

    /// Submits all jobs at the start. Their tasks are queued as they arrive.
    pub fn submit_jobs(&mut self, world: &mut World) {
        for number in 0..self.all.len() {
            let job = Box::new(NewJob::new(world.setup.plan.spec(number)));
            self.tell_jobs(number, JobsEvent::Submitted { job }, world);
            self.tell_jobs(number, JobsEvent::Accepted { job: JOB }, world);
        }
    }

    /// Whether all jobs have ended.
    pub fn have_ended(&self) -> bool {
        self.all.iter().all(|of| !of.is_down() && of.job().has_ended())
    }

    /// Whether a kept output that was promised to the client is lost and can be recomputed.
    pub fn lack_promised(&self) -> bool {
        self.all.iter().any(|of| {
            let is_lacking = |index: u32| {
                let mut promised = of.job().kept_by(index).filter(|(_, left)| left.is_promised());
                let may_be_made =
                    of.job().tasks[index as usize].recomputed < eyas_jobs::MAX_RECOMPUTATIONS;
                may_be_made && promised.any(|(object, _)| !of.scheduler().is_held(object))
            };
            (0..of.job().tasks.len() as u32).any(is_lacking)
        })
    }

    // ---- audit

    /// Reports what happens to `audit`, which needs the journals.
    pub fn audit_by(&mut self, audit: &'a mut dyn Audit) {
        self.audit = Some(audit);
        self.keep_journals();
    }

    pub fn audit(&mut self) -> Option<&mut (dyn Audit + 'a)> {
        self.audit.as_deref_mut()
    }

    /// Shows the state after a step to the audit.
    pub fn show_step(&mut self) {
        if let Some(audit) = &mut self.audit {
            let running = self.all.iter().enumerate().filter(|(_, of)| !of.is_down());
            let mut shown = running.map(|(number, of)| AuditedDispatcher {
                number,
                job: of.job(),
                scheduler: of.scheduler(),
            });
            audit.stepped(&mut shown);
        }
    }

    // ---- executors

    /// An executor joins its dispatcher and reports the objects that it holds.
    pub fn join(&mut self, executor: u32, machine: u32, held: HeldObjects, world: &mut World) {
        assert_eq!(executor as usize, self.sessions.len(), "executors join by their numbers");
        let dispatcher = world.setup.dispatcher_of_machine(machine);
        self.sessions.push(Session { dispatcher, is_known: true, tasks: 0 });
        let (executor, name) = (ExecutorId(executor), format!("n{machine}"));
        self.tell_jobs(dispatcher, JobsEvent::ExecutorJoined { executor, name }, world);
        let (capacity, profile) = (SimExecutor::capacity(world.setup.cluster), Box::default());
        let joined = Event::ExecutorJoined { executor, capacity, profile, held };
        self.tell_scheduler(dispatcher, joined, world);
    }

    pub fn dispatcher_of(&self, executor: u32) -> usize {
        self.sessions[executor as usize].dispatcher
    }

    /// Whether the dispatcher takes the executor to be connected.
    pub fn is_known(&self, executor: u32) -> bool {
        self.sessions[executor as usize].is_known
    }

    /// The tasks that an executor has, as its dispatcher knows them.
    pub fn tasks_of(&self, executor: u32) -> Vec<TaskId> {
        self[self.dispatcher_of(executor)].scheduler().tasks_of(ExecutorId(executor))
    }

    pub fn drain(&mut self, executor: u32, world: &mut World) {
        self.note_change(executor);
        let draining = Event::ExecutorDraining { executor: ExecutorId(executor) };
        self.tell_scheduler(self.dispatcher_of(executor), draining, world);
    }

    /// Whether an executor that drains has no more tasks and objects that others need.
    pub fn is_emptied(&self, executor: u32) -> bool {
        self[self.dispatcher_of(executor)].scheduler().is_emptied(ExecutorId(executor))
    }

    /// The dispatcher no longer takes the executor to be connected.
    pub fn disconnect(&mut self, executor: u32) {
        self.sessions[executor as usize].is_known = false;
    }

    /// An executor whose number of tasks may have changed, and the number.
    pub fn next_changed(&mut self) -> Option<(u32, u32)> {
        let executor = self.changed.as_mut()?.pop()?;
        Some((executor, self.sessions[executor as usize].tasks))
    }

    fn note_change(&mut self, executor: u32) {
        if let Some(changed) = &mut self.changed {
            changed.push(executor);
        }
    }

    fn task_assigned(&mut self, executor: u32) {
        self.sessions[executor as usize].tasks += 1;
        self.note_change(executor);
    }

    fn task_left(&mut self, executor: u32) {
        self.sessions[executor as usize].tasks -= 1;
        self.note_change(executor);
    }

    // ---- death and restart

    pub fn keep_journals(&mut self) {
        self.all.iter_mut().for_each(|dispatcher| dispatcher.journal.keep());
    }

    /// A dispatcher dies. State that was not on disk is lost.
    pub fn die(&mut self, number: usize, world: &mut World) {
        world.metrics.dispatcher_died();
        let dispatcher = &mut self.all[number];
        self.waiting -= dispatcher.scheduler().waiting();
        dispatcher.die(&world.setup.policies, world.agenda.now());
        if let Some(audit) = &mut self.audit {
            audit.died(number);
        }
    }

    pub fn restart(&mut self, number: usize, world: &mut World) {
        let setup = world.setup;
        let dispatcher = &mut self.all[number];
        dispatcher.restart(&setup.policies, world.agenda.now());
        let replay = Box::new(dispatcher.journal.replay(setup.plan.spec(number)));
        let tasks = dispatcher.arrived();
        self.tell_jobs(number, JobsEvent::Recovered { replay }, world);
        self.tell_jobs(number, JobsEvent::QueueMore { tasks }, world);
    }

    // ---- inboxes

    /// Puts a message into a dispatcher's inbox. A dispatcher that is down receives nothing.
    pub fn tell(&mut self, number: usize, fact: SimFact) {
        let dispatcher = &mut self.all[number];
        if !dispatcher.is_down() && dispatcher.receive(fact) {
            self.told.push(number);
        }
    }

    /// Puts a fact into the inbox of its executor's dispatcher.
    pub fn tell_of_executor(&mut self, fact: SimFact) {
        let executor =
            fact.executor().expect("all other facts are told to the dispatcher that has the task");
        self.tell(self.dispatcher_of(executor), fact);
    }

    /// A dispatcher has finished a decision.
    pub fn decided(&mut self, number: usize) {
        self.all[number].decided();
        self.told.push(number);
    }

    /// A dispatcher that may have unread messages.
    pub fn next_told(&mut self) -> Option<usize> {
        self.told.pop()
    }

    /// The next message of a dispatcher, unless a decision takes time now.
    pub fn next_message(&mut self, number: usize, world: &World) -> Option<SimFact> {
        self.all[number].next_message(world.agenda.now())
    }

    /// A dispatcher has read what it can now. Schedules its next message, and writes results.
    pub fn pause(&mut self, number: usize, world: &mut World) {
        if let Some(at) = self.all[number].next_read_at() {
            let dispatcher = number as u32;
            world.agenda.schedule(at, SimEvent::DecisionEnds { dispatcher });
        }
        self.write_results(number, world);
    }
}

impl Index<usize> for Dispatchers<'_> {
    type Output = Dispatcher;

    fn index(&self, number: usize) -> &Dispatcher {
        &self.all[number]
    }
}
