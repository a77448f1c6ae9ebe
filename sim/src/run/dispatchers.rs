//! Dispatchers: each decides for a part of the nodes, about the tasks that are dealt to it. What one knows of replicas the
//! others do not, so that an object is read from persistent storage once for each part.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use eyas_sched::{Effect, Event, Scheduler};

use super::{Fact, Happening, Run};
use crate::clock::Ns;
use crate::cluster::{Cluster, Deal, Policies};
use crate::random::Random;

pub(super) struct Dispatcher {
    pub scheduler: Scheduler,
    /// What it was told and has not read.
    inbox: VecDeque<Fact>,
    /// It decides until then.
    pub decides_until: Ns,
    /// It is planned that it reads on.
    is_awaited: bool,
}

pub(super) struct Dispatchers {
    all: Vec<Dispatcher>,
    deal: Deal,
    /// Tasks that have come.
    dealt: u64,
    /// Those that may have something to read.
    told: Vec<usize>,
    /// Tasks that wait, at all of them.
    pub waiting: u64,
}

impl Dispatchers {
    pub fn new(cluster: &Cluster, policies: &Policies) -> Self {
        let all = (0..cluster.dispatchers).map(|_| Dispatcher {
            scheduler: Scheduler::new(policies.sched()),
            inbox: VecDeque::new(),
            decides_until: 0,
            is_awaited: false,
        });
        Dispatchers { all: all.collect(), deal: policies.deal, dealt: 0, told: Vec::new(), waiting: 0 }
    }

    /// Which the next task is dealt to, which reads that object first.
    pub fn of_task(&mut self, first_input: Option<u32>) -> usize {
        let turn = self.dealt;
        self.dealt += 1;
        let dealt_by = match (self.deal, first_input) {
            (Deal::Objects, Some(object)) => Random::new(object.into()).throw(),
            _ => turn,
        };
        (dealt_by % self.all.len() as u64) as usize
    }

    pub fn tell(&mut self, number: usize, fact: Fact) {
        let dispatcher = &mut self.all[number];
        if dispatcher.inbox.is_empty() {
            self.told.push(number);
        }
        dispatcher.inbox.push_back(fact);
    }

    pub fn handle(&mut self, number: usize, event: Event, effects: &mut Vec<Effect>) {
        let scheduler = &mut self.all[number].scheduler;
        self.waiting -= scheduler.waiting();
        scheduler.handle(event, effects);
        self.waiting += scheduler.waiting();
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
        let machine = u64::from(self.membership.machine_of(executor));
        (machine * u64::from(self.cluster.dispatchers) / u64::from(self.cluster.nodes)) as usize
    }

    pub(super) fn scheduler_of(&self, executor: u32) -> &Scheduler {
        &self.dispatchers[self.dispatcher_of(executor)].scheduler
    }

    /// The dispatcher of an executor is told something of it.
    pub(super) fn tell_dispatcher(&mut self, fact: Fact) {
        let executor = fact.executor().expect("all else is told by whoever has the tasks");
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
                self.clock.plan(self.dispatchers[number].decides_until, Happening::Decided { dispatcher });
            }
        }
        self.outcome.most_waiting = self.outcome.most_waiting.max(self.dispatchers.waiting);
    }

    pub(super) fn note_decisions(&mut self) {
        let decisions = self.dispatchers.all.iter().map(|dispatcher| dispatcher.scheduler.decisions());
        self.outcome.decisions = decisions.clone().sum();
        self.outcome.most_decisions = decisions.max().expect("there are dispatchers");
    }
}
