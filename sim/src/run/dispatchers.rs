//! Dispatchers: each decides for a part of the nodes, about the tasks that are dealt to it. What one knows of replicas the
//! others do not, so that an object is read from persistent storage once for each part.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use eyas_dispatch::{Effect, Exchange};
use eyas_jobs::{Event as JobsEvent, JobSpec, Jobs};
use eyas_sched::{Event, Scheduler};
use eyas_types::ExecutorId;

use super::job::JOB;
use super::journal::SimJournal;
use super::{Fact, Owner, Run, SimEvent};
use crate::clock::{MICROSECOND, Ns};
use crate::cluster::{Cluster, Deal, Policies};
use crate::random::Random;

pub(super) struct Dispatcher {
    pub jobs: Jobs,
    pub scheduler: Scheduler,
    exchange: Exchange,
    pub journal: SimJournal,
    /// Tasks of its job that have come.
    pub arrived: u32,
    /// Tasks of its job that have ended.
    ended: u64,
    /// It has died, and is not back.
    pub is_down: bool,
    /// When `core/jobs` is told that time has passed. Of what the clock has planned for that, only what is planned for then
    /// counts.
    pub jobs_due: Ns,
    /// What it was told and has not read.
    pub inbox: VecDeque<Fact>,
    /// It decides until then.
    pub decides_until: Ns,
    /// It is planned that it reads on.
    is_awaited: bool,
}

pub(super) struct Dispatchers {
    all: Vec<Dispatcher>,
    /// Those that may have something to read.
    told: Vec<usize>,
    /// Tasks that wait, at all of them.
    pub waiting: u64,
}

/// Deals tasks to dispatchers, in the order in which they come.
pub(super) struct Dealer {
    deal: Deal,
    dispatchers: u64,
    dealt: u64,
}

impl Dealer {
    pub fn new(cluster: &Cluster, policies: &Policies) -> Self {
        Dealer { deal: policies.deal, dispatchers: cluster.dispatchers.into(), dealt: 0 }
    }

    /// The dispatcher of the next task, which reads that object first.
    pub fn deal(&mut self, first_input: Option<u32>) -> usize {
        let turn = self.dealt;
        self.dealt += 1;
        let dealt_by = match (self.deal, first_input) {
            (Deal::Objects, Some(object)) => Random::new(object.into()).throw(),
            _ => turn,
        };
        (dealt_by % self.dispatchers) as usize
    }
}

impl Dispatcher {
    fn new(policies: &Policies, spec: JobSpec) -> Self {
        Dispatcher {
            jobs: Jobs::new(eyas_jobs::Config::default(), 0),
            scheduler: Scheduler::new(policies.sched()),
            exchange: Exchange::default(),
            journal: SimJournal::new(spec),
            arrived: 0,
            ended: 0,
            is_down: false,
            jobs_due: Ns::MAX,
            inbox: VecDeque::new(),
            decides_until: 0,
            is_awaited: false,
        }
    }

    /// It has died, with all that is not in its journal, and a new one begins at `now`.
    pub fn replace(&mut self, policies: &Policies, now: Ns) {
        self.jobs = Jobs::new(eyas_jobs::Config::default(), now / MICROSECOND);
        self.scheduler = Scheduler::new(policies.sched());
        self.exchange = Exchange::default();
        (self.jobs_due, self.decides_until) = (Ns::MAX, now);
    }

    /// Its job.
    pub fn job(&self) -> &eyas_jobs::Job {
        self.jobs.get(JOB).expect("the job was submitted, and is never forgotten")
    }
}

impl Dispatchers {
    pub fn new(policies: &Policies, specs: Vec<JobSpec>) -> Self {
        let all = specs.into_iter().map(|spec| Dispatcher::new(policies, spec));
        Dispatchers { all: all.collect(), told: Vec::new(), waiting: 0 }
    }

    pub fn all(&self) -> impl Iterator<Item = &Dispatcher> {
        self.all.iter()
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// One that is down hears nothing.
    pub fn tell(&mut self, number: usize, fact: Fact) {
        let dispatcher = &mut self.all[number];
        if dispatcher.is_down {
            return;
        }
        if dispatcher.inbox.is_empty() {
            self.told.push(number);
        }
        dispatcher.inbox.push_back(fact);
    }

    /// One has decided.
    pub fn decided(&mut self, number: usize) {
        self.all[number].is_awaited = false;
        self.told.push(number);
    }

    /// Processors with a task, as far as the dispatchers know.
    pub fn busy(&self) -> u64 {
        self.all.iter().map(|dispatcher| dispatcher.scheduler.utilisation().busy_milli / 1000).sum()
    }
}

impl Index<usize> for Dispatchers {
    type Output = Dispatcher;

    fn index(&self, number: usize) -> &Dispatcher {
        &self.all[number]
    }
}

impl IndexMut<usize> for Dispatchers {
    fn index_mut(&mut self, number: usize) -> &mut Dispatcher {
        &mut self.all[number]
    }
}

impl Run<'_> {
    /// The dispatcher of an executor: neighbours have the same.
    pub(super) fn dispatcher_of(&self, executor: u32) -> usize {
        self.dispatcher_of_machine(self.membership.machine_of(executor))
    }

    pub(super) fn dispatcher_of_machine(&self, machine: u32) -> usize {
        (u64::from(machine) * u64::from(self.cluster.dispatchers) / u64::from(self.cluster.nodes)) as usize
    }

    pub(super) fn scheduler_of(&self, executor: u32) -> &Scheduler {
        &self.dispatchers[self.dispatcher_of(executor)].scheduler
    }

    /// The dispatcher of an executor is told something of it.
    pub(super) fn tell_dispatcher(&mut self, fact: Fact) {
        let executor = fact.executor().expect("all other facts are told to the dispatcher that has the task");
        self.dispatchers.tell(self.dispatcher_of(executor), fact);
    }

    /// Dispatchers that were told something read until a decision takes time.
    pub(super) fn read_inboxes(&mut self) {
        while let Some(number) = self.dispatchers.told.pop() {
            while self.dispatchers[number].decides_until <= self.now
                && let Some(fact) = self.dispatchers[number].inbox.pop_front()
            {
                self.read(number, fact);
            }
            let dispatcher = &mut self.dispatchers[number];
            if !dispatcher.inbox.is_empty() && !std::mem::replace(&mut dispatcher.is_awaited, true) {
                let dispatcher = number as u32;
                self.clock.plan(self.dispatchers[number].decides_until, SimEvent::Decided { dispatcher });
            }
            self.write_results(number);
        }
        self.outcome.most_waiting = self.outcome.most_waiting.max(self.dispatchers.waiting);
    }

    /// Tells the decider of jobs what happened, and does what follows.
    pub(super) fn tell_jobs(&mut self, number: usize, event: JobsEvent) {
        self.dispatchers[number].exchange.tell_jobs(event);
        self.work_off(number);
        self.let_leave_those_that_may(number);
        self.note_ends(number);
        self.plan_due(number);
    }

    /// Tells the scheduler what happened, and does what follows.
    pub(super) fn tell_scheduler(&mut self, number: usize, event: Event) {
        self.pass_to_scheduler(number, event);
        self.work_off(number);
    }

    fn pass_to_scheduler(&mut self, number: usize, event: Event) {
        let Dispatchers { all, waiting, .. } = &mut self.dispatchers;
        let Dispatcher { jobs, scheduler, exchange, .. } = &mut all[number];
        *waiting -= scheduler.waiting();
        exchange.tell_scheduler(self.now / MICROSECOND, event, jobs, scheduler);
        *waiting += scheduler.waiting();
    }

    /// Does what the deciders of a dispatcher have said.
    fn work_off(&mut self, number: usize) {
        while let Some(effect) = self.next_effect(number) {
            match effect {
                Effect::Queue { task, inputs, need } => {
                    // `core/jobs` knows only those that other tasks write.
                    let known = inputs.len();
                    let inputs = self.inputs_of(self.plan.number(number, task), Owner::All);
                    debug_assert!(inputs.len() >= known, "{task} reads what the workload does not say");
                    self.pass_to_scheduler(number, Event::TaskReady { task, inputs, need });
                }
                effect => self.perform(number, effect),
            }
        }
    }

    fn next_effect(&mut self, number: usize) -> Option<Effect> {
        let Dispatchers { all, waiting, .. } = &mut self.dispatchers;
        let Dispatcher { jobs, scheduler, exchange, .. } = &mut all[number];
        *waiting -= scheduler.waiting();
        let effect = exchange.next(self.now / MICROSECOND, jobs, scheduler);
        *waiting += scheduler.waiting();
        effect
    }

    /// Takes note of the last end of a task.
    fn note_ends(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        let ended = dispatcher.jobs.get(JOB).map_or(0, |job| job.counts.ended());
        if std::mem::replace(&mut dispatcher.ended, ended) < ended {
            self.ended_at = self.now;
        }
    }

    /// What the decider of jobs has due without an event, is planned.
    fn plan_due(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        if let Some(due_us) = dispatcher.jobs.next_timeout()
            && due_us * MICROSECOND < dispatcher.jobs_due
        {
            dispatcher.jobs_due = self.now.max(due_us * MICROSECOND);
            let due = dispatcher.jobs_due;
            self.clock.plan(due, SimEvent::JobsDue { dispatcher: number as u32 });
        }
    }

    /// Time has passed for the decider of jobs of a dispatcher.
    pub(super) fn jobs_due(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        if dispatcher.jobs_due <= self.now && !dispatcher.is_down {
            dispatcher.jobs_due = Ns::MAX;
            self.tell_jobs(number, JobsEvent::Flush);
        }
    }

    /// Tells how much others still fetch from executors that are to leave, which go when it is nothing.
    pub(super) fn let_leave_those_that_may(&mut self, number: usize) {
        let dispatcher = &self.dispatchers[number];
        for executor in dispatcher.jobs.leaving().collect::<Vec<ExecutorId>>() {
            let objects = self.dispatchers[number].scheduler.moving_from(executor);
            self.dispatchers[number].exchange.tell_jobs(JobsEvent::Moving { executor, objects });
            self.work_off(number);
        }
    }

    pub(super) fn note_decisions(&mut self) {
        let decisions = self.dispatchers.all.iter().map(|dispatcher| dispatcher.scheduler.decisions());
        self.outcome.decisions = decisions.clone().sum();
        self.outcome.most_decisions = decisions.max().expect("there are dispatchers");
    }
}
