//! One dispatcher: its deciders, its journal, and the messages that it has still to read.

use std::collections::VecDeque;

use eyas_dispatch::{Effect, Exchange};
use eyas_jobs::{Event as JobsEvent, Jobs};
use eyas_sched::{Event, Scheduler};

use crate::clock::{MICROSECOND, Ns};
use crate::cluster::Policies;
use crate::run::event::SimFact;
use crate::run::job::JOB;
use crate::run::journal::SimJournal;
use crate::run::world::DispatcherInputs;

pub(in crate::run) struct Dispatcher {
    jobs: Jobs,
    scheduler: Scheduler,
    exchange: Exchange,
    pub(super) journal: SimJournal,
    /// Tasks of its job that have arrived.
    arrived: u32,
    /// Tasks of its job that have ended.
    ended: u64,
    /// The dispatcher has died and is not yet started again.
    is_down: bool,
    /// Next timeout of `core/jobs`. Only a timeout event for this time counts; events for other
    /// times are stale.
    jobs_due: Ns,
    /// Messages that have arrived and are not yet read.
    inbox: VecDeque<SimFact>,
    /// End of the decision that the dispatcher is busy with.
    decides_until: Ns,
    /// The event at which the dispatcher reads on is scheduled.
    is_awaited: bool,
}

/// No other event waits for the one that queues tasks.
fn jobs_config() -> eyas_jobs::Config {
    eyas_jobs::Config { inputs_at_once: u64::MAX, ..eyas_jobs::Config::default() }
}

impl Dispatcher {
    pub fn new(policies: &Policies) -> Self {
        Dispatcher {
            jobs: Jobs::new(jobs_config(), 0),
            scheduler: Scheduler::new(policies.sched()),
            exchange: Exchange::default(),
            journal: SimJournal::default(),
            arrived: 0,
            ended: 0,
            is_down: false,
            jobs_due: Ns::MAX,
            inbox: VecDeque::new(),
            decides_until: 0,
            is_awaited: false,
        }
    }

    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The dispatcher's only job.
    pub fn job(&self) -> &eyas_jobs::Job {
        self.jobs.get(JOB).expect("the job was submitted, and is never forgotten")
    }

    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    pub fn journal(&self) -> &SimJournal {
        &self.journal
    }

    // ---- death

    pub fn is_down(&self) -> bool {
        self.is_down
    }

    pub fn die(&mut self, policies: &Policies, now: Ns) {
        self.is_down = true;
        self.inbox.clear();
        self.journal.die();
        self.replace(policies, now);
    }

    pub fn restart(&mut self, policies: &Policies, now: Ns) {
        self.is_down = false;
        self.replace(policies, now);
    }

    /// Only the journal remains.
    fn replace(&mut self, policies: &Policies, now: Ns) {
        self.jobs = Jobs::new(jobs_config(), now / MICROSECOND);
        self.scheduler = Scheduler::new(policies.sched());
        self.exchange = Exchange::default();
        (self.jobs_due, self.decides_until) = (Ns::MAX, now);
    }

    // ---- messages

    /// Puts a message into the inbox. Returns whether there was none.
    pub fn receive(&mut self, fact: SimFact) -> bool {
        let was_empty = self.inbox.is_empty();
        self.inbox.push_back(fact);
        was_empty
    }

    /// The next message, if the dispatcher can read one at time `now`.
    pub fn next_message(&mut self, now: Ns) -> Option<SimFact> {
        if self.decides_until <= now { self.inbox.pop_front() } else { None }
    }

    /// Time at which a dispatcher reads its next message; `None` if there is no message, or if the
    /// read is scheduled.
    pub fn next_read_at(&mut self) -> Option<Ns> {
        let is_awaited = self.inbox.is_empty() || std::mem::replace(&mut self.is_awaited, true);
        (!is_awaited).then_some(self.decides_until)
    }

    /// The dispatcher has finished a decision.
    pub fn decided(&mut self) {
        self.is_awaited = false;
    }

    /// A decision takes this time.
    pub fn decide(&mut self, decision_ns: Ns, now: Ns) {
        self.decides_until = now.max(self.decides_until) + decision_ns;
    }

    /// Time at which a message leaves: when the decision has ended.
    pub fn sends_at(&self, now: Ns) -> Ns {
        self.decides_until.max(now)
    }

    // ---- deciders

    pub fn tell_jobs(&mut self, event: JobsEvent) {
        self.exchange.tell_jobs(event);
    }

    pub fn tell_scheduler(&mut self, now_us: u64, event: Event) {
        self.exchange.tell_scheduler(now_us, event, &mut self.jobs, &mut self.scheduler);
    }

    pub fn next_effect(&mut self, now_us: u64, inputs: &DispatcherInputs) -> Option<Effect> {
        self.exchange.next(now_us, &mut self.jobs, &mut self.scheduler, inputs)
    }

    /// A task of its job arrives. Returns the task's index in the job.
    pub fn task_arrives(&mut self) -> u32 {
        self.arrived += 1;
        self.arrived - 1
    }

    /// Number of tasks of its job that have arrived.
    pub fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Whether tasks of its job have ended since the last call.
    pub fn have_tasks_ended(&mut self) -> bool {
        let ended = self.jobs.get(JOB).map_or(0, |job| job.counts().ended());
        std::mem::replace(&mut self.ended, ended) < ended
    }

    /// The next timeout of `core/jobs`, if it is earlier than the one that is scheduled.
    pub fn next_due(&mut self, now: Ns) -> Option<Ns> {
        let due = self.jobs.next_timeout()? * MICROSECOND;
        if due >= self.jobs_due {
            return None;
        }
        self.jobs_due = now.max(due);
        Some(self.jobs_due)
    }

    /// Whether a timeout of `core/jobs` has passed by `now`.
    pub fn take_due(&mut self, now: Ns) -> bool {
        let is_due = self.jobs_due <= now && !self.is_down;
        if is_due {
            self.jobs_due = Ns::MAX;
        }
        is_due
    }

    /// Whether it is time to write the accumulated results.
    pub fn take_results(&mut self) -> bool {
        !self.is_down && self.journal.take_results()
    }
}
