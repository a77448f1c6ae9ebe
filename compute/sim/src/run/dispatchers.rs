//! Dispatchers. Each one manages a part of the nodes and decides about the tasks that are assigned
//! to it. A dispatcher does not know the replicas of the others, so each part reads an object from
//! persistent storage once.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use eyas_dispatch::{Effect, Exchange};
use eyas_jobs::{Event as JobsEvent, JobSpec, Jobs};
use eyas_sched::{Event, Scheduler};
use eyas_types::ExecutorId;

use super::inputs::{DispatcherInputs, WorkloadInputs};
use super::job::JOB;
use super::journal::SimJournal;
use super::{Fact, Run, SimEvent};
use crate::clock::{MICROSECOND, Ns};
use crate::cluster::{Policies, SimCluster, TaskPartitioning};
use crate::random::Random;

pub(super) struct Dispatcher {
    pub jobs: Jobs,
    pub scheduler: Scheduler,
    exchange: Exchange,
    pub journal: SimJournal,
    /// Tasks of its job that have arrived.
    pub arrived: u32,
    /// Tasks of its job that have ended.
    ended: u64,
    /// The dispatcher has died and is not yet started again.
    pub is_down: bool,
    /// Next timeout of `core/jobs`. Only a timeout event for this time counts; events for other
    /// times are stale.
    pub jobs_due: Ns,
    /// Messages that have arrived and are not yet read.
    pub inbox: VecDeque<Fact>,
    /// End of the decision that the dispatcher is busy with.
    pub decides_until: Ns,
    /// The event at which the dispatcher reads on is scheduled.
    is_awaited: bool,
}

pub(super) struct Dispatchers {
    all: Vec<Dispatcher>,
    /// Dispatchers that may have unread messages.
    told: Vec<usize>,
    /// Tasks that wait, at all dispatchers together.
    pub waiting: u64,
}

/// Distributes the tasks over the dispatchers, in order of arrival.
pub(super) struct Partitioner {
    partitioning: TaskPartitioning,
    dispatchers: u64,
    assigned: u64,
}

impl Partitioner {
    pub fn new(cluster: &SimCluster, policies: &Policies) -> Self {
        Partitioner {
            partitioning: policies.partitioning,
            dispatchers: cluster.dispatchers.into(),
            assigned: 0,
        }
    }

    /// The dispatcher of the next task, whose first input is `first_input`.
    pub fn next_dispatcher(&mut self, first_input: Option<u32>) -> usize {
        let turn = self.assigned;
        self.assigned += 1;
        let key = match (self.partitioning, first_input) {
            (TaskPartitioning::FirstInput, Some(object)) => Random::new(object.into()).throw(),
            _ => turn,
        };
        (key % self.dispatchers) as usize
    }
}

impl Dispatcher {
    fn new(policies: &Policies, spec: JobSpec) -> Self {
        Dispatcher {
            jobs: Jobs::new(jobs_config(), 0),
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

    /// Replaces a dispatcher that died by a new one at time `now`. Only its journal remains.
    pub fn replace(&mut self, policies: &Policies, now: Ns) {
        self.jobs = Jobs::new(jobs_config(), now / MICROSECOND);
        self.scheduler = Scheduler::new(policies.sched());
        self.exchange = Exchange::default();
        (self.jobs_due, self.decides_until) = (Ns::MAX, now);
    }

    /// The dispatcher's only job.
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

    /// Puts a message into a dispatcher's inbox. A dispatcher that is down receives nothing.
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

    /// A dispatcher has finished a decision.
    pub fn decided(&mut self, number: usize) {
        self.all[number].is_awaited = false;
        self.told.push(number);
    }

    /// Processors with a task, as the dispatchers know them.
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
    /// The dispatcher of an executor. Neighbouring machines have the same one.
    pub(super) fn dispatcher_of(&self, executor: u32) -> usize {
        self.dispatcher_of_machine(self.membership.machine_of(executor))
    }

    pub(super) fn dispatcher_of_machine(&self, machine: u32) -> usize {
        (u64::from(machine) * u64::from(self.cluster.dispatchers) / u64::from(self.cluster.nodes))
            as usize
    }

    pub(super) fn scheduler_of(&self, executor: u32) -> &Scheduler {
        &self.dispatchers[self.dispatcher_of(executor)].scheduler
    }

    /// Puts a fact into the inbox of its executor's dispatcher.
    pub(super) fn tell_dispatcher(&mut self, fact: Fact) {
        let executor =
            fact.executor().expect("all other facts are told to the dispatcher that has the task");
        self.dispatchers.tell(self.dispatcher_of(executor), fact);
    }

    /// Dispatchers with messages read until a decision takes time.
    pub(super) fn read_inboxes(&mut self) {
        while let Some(number) = self.dispatchers.told.pop() {
            while self.dispatchers[number].decides_until <= self.now
                && let Some(fact) = self.dispatchers[number].inbox.pop_front()
            {
                self.read(number, fact);
            }
            let dispatcher = &mut self.dispatchers[number];
            if !dispatcher.inbox.is_empty() && !std::mem::replace(&mut dispatcher.is_awaited, true)
            {
                let dispatcher = number as u32;
                self.events.schedule(
                    self.dispatchers[number].decides_until,
                    SimEvent::DecisionEnds { dispatcher },
                );
            }
            self.write_results(number);
        }
        self.outcome.most_waiting = self.outcome.most_waiting.max(self.dispatchers.waiting);
    }

    /// Passes an event to `core/jobs`, and performs the effects.
    pub(super) fn tell_jobs(&mut self, number: usize, event: JobsEvent) {
        self.dispatchers[number].exchange.tell_jobs(event);
        self.perform_effects(number);
        self.report_moves_of_leaving(number);
        self.note_ends(number);
        self.plan_due(number);
    }

    /// Passes an event to the scheduler, and performs the effects.
    pub(super) fn tell_scheduler(&mut self, number: usize, event: Event) {
        self.pass_to_scheduler(number, event);
        self.perform_effects(number);
    }

    fn pass_to_scheduler(&mut self, number: usize, event: Event) {
        let Dispatchers { all, waiting, .. } = &mut self.dispatchers;
        let Dispatcher { jobs, scheduler, exchange, .. } = &mut all[number];
        *waiting -= scheduler.waiting();
        exchange.tell_scheduler(self.now / MICROSECOND, event, jobs, scheduler);
        *waiting += scheduler.waiting();
    }

    /// Performs the outstanding effects of a dispatcher's deciders.
    fn perform_effects(&mut self, number: usize) {
        while let Some(effect) = self.next_effect(number) {
            self.perform(number, effect);
        }
    }

    fn next_effect(&mut self, number: usize) -> Option<Effect> {
        let Dispatchers { all, waiting, .. } = &mut self.dispatchers;
        let Dispatcher { jobs, scheduler, exchange, .. } = &mut all[number];
        let all = WorkloadInputs { plan: &self.plan, tasks: &self.tasks, workload: self.workload };
        let inputs = DispatcherInputs { dispatcher: number, all };
        *waiting -= scheduler.waiting();
        let effect = exchange.next(self.now / MICROSECOND, jobs, scheduler, &inputs);
        *waiting += scheduler.waiting();
        effect
    }

    /// Records the time of the latest end of a task.
    fn note_ends(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        let ended = dispatcher.jobs.get(JOB).map_or(0, |job| job.counts().ended());
        if std::mem::replace(&mut dispatcher.ended, ended) < ended {
            self.ended_at = self.now;
        }
    }

    /// Schedules the next timeout of `core/jobs`.
    fn plan_due(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        if let Some(due_us) = dispatcher.jobs.next_timeout()
            && due_us * MICROSECOND < dispatcher.jobs_due
        {
            dispatcher.jobs_due = self.now.max(due_us * MICROSECOND);
            let due = dispatcher.jobs_due;
            self.events.schedule(due, SimEvent::JobsTimeout { dispatcher: number as u32 });
        }
    }

    /// Handles a timeout of `core/jobs`.
    pub(super) fn jobs_timeout(&mut self, number: usize) {
        let dispatcher = &mut self.dispatchers[number];
        if dispatcher.jobs_due <= self.now && !dispatcher.is_down {
            dispatcher.jobs_due = Ns::MAX;
            self.tell_jobs(number, JobsEvent::Flush);
        }
    }

    /// Tells `core/jobs` how many objects are still being moved away from each leaving executor. An
    /// executor may leave when there are none.
    pub(super) fn report_moves_of_leaving(&mut self, number: usize) {
        let dispatcher = &self.dispatchers[number];
        for executor in dispatcher.jobs.leaving().collect::<Vec<ExecutorId>>() {
            let objects = self.dispatchers[number].scheduler.moving_from(executor);
            self.dispatchers[number].exchange.tell_jobs(JobsEvent::Moving { executor, objects });
            self.perform_effects(number);
        }
    }

    pub(super) fn note_decisions(&mut self) {
        let decisions =
            self.dispatchers.all.iter().map(|dispatcher| dispatcher.scheduler.decisions());
        self.outcome.decisions = decisions.clone().sum();
        self.outcome.most_decisions = decisions.max().expect("there are dispatchers");
    }
}

/// No other event waits for the one that queues tasks.
fn jobs_config() -> eyas_jobs::Config {
    eyas_jobs::Config { inputs_at_once: u64::MAX, ..eyas_jobs::Config::default() }
}
