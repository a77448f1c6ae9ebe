//! Nodes come and go: they start and join, are given back, are lost, lose the dispatcher and find it again.
//!
//! A *machine* is there all the time; a node is, while somebody holds its machine. An executor is one session of a node, and
//! has a number of its own, as real ones have: one that joins again is another, with the same store.

use std::collections::BTreeSet;

use eyas_jobs::Event as JobsEvent;
use eyas_node::Event as NodeEvent;
use eyas_provision::{self as provision, NodeRequestId};
use eyas_sched::{Event, ExecutorProfile};
use eyas_types::ExecutorId;

use super::executor::{Executor, Links, Replica};
use super::page_cache::PageCache;
use super::{Fact, Run, SimEvent};
use crate::clock::{Ns, from_seconds, seconds};
use crate::cluster::Cluster;
use crate::flows::Flows;
use crate::nodes::{MISSED_AFTER_NS, REJOINS_AFTER_NS, SLOW_DISK};
use crate::random::Random;

pub(super) struct Membership {
    machines: Vec<Machine>,
    /// Machines that nobody holds.
    free: BTreeSet<u32>,
    /// What the dispatcher knows of each executor that ever was.
    standings: Vec<Standing>,
    dice: Random,
    /// How many machines are held.
    held: u64,
    /// How long machines were held that no longer are.
    held_ns: u128,
}

struct Machine {
    links: Links,
    /// Since when it is held.
    since: Option<Ns>,
    /// How often it was held.
    holdings: u32,
    /// The request that it was granted for.
    request: Option<NodeRequestId>,
    /// Its last executor.
    executor: u32,
    /// What is in its store while it has no executor.
    left: Option<Left>,
}

/// What an executor that has lost its dispatcher still has.
struct Left {
    objects: Vec<u32>,
    pages: PageCache,
}

struct Standing {
    machine: u32,
    is_known: bool,
}

impl Membership {
    pub fn new(cluster: &Cluster, flows: &mut Flows, seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let machines = (0..cluster.nodes).map(|_| {
            let is_slow = dice.share() < cluster.failures.slow_disks;
            let links = Links::new(cluster, flows, if is_slow { SLOW_DISK } else { 1.0 });
            Machine { links, since: None, holdings: 0, request: None, executor: 0, left: None }
        });
        let machines = machines.collect();
        let free = (0..cluster.nodes).collect();
        Membership { machines, free, standings: Vec::new(), dice, held: 0, held_ns: 0 }
    }

    /// Whether the dispatcher takes it to be there.
    pub fn is_known(&self, executor: u32) -> bool {
        self.standings[executor as usize].is_known
    }

    pub fn machine_of(&self, executor: u32) -> u32 {
        self.standings[executor as usize].machine
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u64 {
        self.held
    }

    /// How long nodes were there until `end`, all together.
    pub fn held_ns(&self, end: Ns) -> u128 {
        let there = self.machines.iter().filter_map(|machine| machine.since);
        self.held_ns + there.map(|since| u128::from(end.saturating_sub(since))).sum::<u128>()
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// When something happens that does so after that time on average, at any moment as likely as at any other.
    pub fn after(&mut self, mean_ns: Ns) -> Ns {
        from_seconds(-libm::log(1.0 - self.dice.share()) * seconds(mean_ns)).max(1)
    }

    /// Nobody holds the machine any more.
    fn end_holding(&mut self, machine: u32, now: Ns) {
        let machine = &mut self.machines[machine as usize];
        let since = machine.since.take().expect("the machine is held");
        machine.left = None;
        self.held -= 1;
        self.held_ns += u128::from(now - since);
    }
}

impl Run<'_> {
    /// A node starts on a machine that is free.
    pub(super) fn start_node(&mut self, request: Option<NodeRequestId>) {
        let number = self.membership.free.pop_first().expect("the caller has looked");
        let machine = &mut self.membership.machines[number as usize];
        (machine.since, machine.request) = (Some(self.now), request);
        machine.holdings += 1;
        self.membership.held += 1;
        if let Some(batch) = &self.cluster.batch {
            let expired = SimEvent::Expired { machine: number, holding: machine.holdings };
            self.clock.plan(self.now + batch.walltime_ns, expired);
        }
        self.join(number, Left { pages: self.no_pages(), objects: Vec::new() }, None);
    }

    fn no_pages(&self) -> PageCache {
        PageCache::new((self.cluster.page_cache_bytes / self.workload.object_bytes().max(1)) as usize)
    }

    /// An executor joins, with what is in its store; `was` says which its node had before, if that lost its connection.
    fn join(&mut self, machine: u32, Left { objects, pages }: Left, was: Option<ExecutorId>) {
        let number = self.executors.next();
        let of = &mut self.membership.machines[machine as usize];
        of.executor = number;
        let (links, request) = (of.links, of.request);
        self.membership.standings.push(Standing { machine, is_known: true });
        let mut executor = Executor::new(self.cluster, &self.policies, links, pages, self.seed ^ u64::from(number));
        executor.replicas.extend(objects.iter().map(|object| (*object, Replica::Whole)));
        let held = objects.into_iter().map(|object| (self.id_of(object), self.workload.size_bytes(object)));
        let held: Box<[_]> = held.collect();
        held.iter().for_each(|(_, size_bytes)| executor.store(self.cluster, *size_bytes));
        self.executors.add(executor);
        for (object, size_bytes) in held.iter().copied() {
            self.tell_node(number, NodeEvent::Found { object, size_bytes });
        }
        let failures = &self.cluster.failures;
        let mut plan = |mean_ns: Option<Ns>, event| {
            let after_ns = mean_ns.map(|mean_ns| self.membership.after(mean_ns));
            if let Some(at) = after_ns.and_then(|after_ns| failures.at(self.now, after_ns)) {
                self.clock.plan(at, event);
            }
        };
        plan(failures.lost_after_ns, SimEvent::Lost { executor: number });
        plan(failures.leaves.map(|(mean_ns, _)| mean_ns), SimEvent::Retires { executor: number });
        plan(failures.disconnected_after_ns, SimEvent::Disconnected { executor: number });
        self.note_joined(number);
        let executor = ExecutorId(number);
        let (capacity, profile) = (Executor::capacity(self.cluster), Box::<ExecutorProfile>::default());
        let (dispatcher, name) = (self.dispatcher_of(number), format!("n{machine}"));
        self.tell_jobs(dispatcher, JobsEvent::ExecutorJoined { executor, name });
        self.tell_scheduler(dispatcher, Event::ExecutorJoined { executor, capacity, profile, held });
        // Who was to leave is told so again, when it can be.
        self.tell_provisioner(provision::Event::NodeJoined { node: executor, request, was });
    }

    /// An executor is there no more, nor what it did; its node may still give others what is in its store.
    fn leave(&mut self, executor: u32, serves: bool) -> Executor {
        let gone = self.executors.remove(executor);
        for task in self.scheduler_of(executor).tasks_of(ExecutorId(executor)) {
            self.break_off(self.number_of(executor, task));
        }
        self.end_fetches_of(executor, serves);
        gone
    }

    /// The dispatcher knows that an executor is gone: lost with the tasks that it had, or in good order.
    pub(super) fn forget(&mut self, executor: u32, is_loss: bool) {
        self.membership.standings[executor as usize].is_known = false;
        let id = ExecutorId(executor);
        self.tell_provisioner(provision::Event::NodeLeft { node: id });
        let dispatcher = self.dispatcher_of(executor);
        let tasks = self.scheduler_of(executor).tasks_of(id);
        let lost_with = is_loss.then(|| Executor::capacity(self.cluster));
        let suspended = BTreeSet::new();
        self.tell_jobs(dispatcher, JobsEvent::ExecutorGone { executor: id, tasks, lost_with, suspended });
    }

    /// The dispatcher gives a node back that has no task.
    pub(super) fn give_back(&mut self, executor: u32) {
        self.end_node(executor);
        self.forget(executor, false);
    }

    /// A node ends, and its machine is free, if it has not been lost already.
    fn end_node(&mut self, executor: u32) {
        let number = self.membership.machine_of(executor);
        let machine = &self.membership.machines[number as usize];
        if machine.executor == executor && machine.since.is_some() {
            match self.executors.has(executor) {
                true => drop(self.leave(executor, false)),
                false => self.end_fetches_of(executor, false),
            }
            self.membership.end_holding(number, self.now);
            self.membership.free.insert(number);
            self.grant();
        }
    }

    /// The batch system ends a node, the time of which is over.
    pub(super) fn expired(&mut self, machine: u32, holding: u32) {
        let of = &self.membership.machines[machine as usize];
        if of.holdings == holding && of.since.is_some() {
            let executor = of.executor;
            self.outcome.out_of_time += self.executors.get(executor).map_or(0, Executor::running);
            self.end_node(executor);
            self.say(Fact::Gone { executor });
        }
    }

    pub(super) fn lost(&mut self, executor: u32) {
        self.outcome.lost_nodes += 1;
        self.leave(executor, false);
        let machine = self.membership.machine_of(executor);
        self.membership.end_holding(machine, self.now);
        self.clock.plan(self.now + MISSED_AFTER_NS, SimEvent::Told(Fact::Gone { executor }));
        if let Some(after) = self.cluster.failures.back_after_ns {
            self.clock.plan(self.now + after, SimEvent::Back { machine });
        }
    }

    /// A machine that was lost is there again, with nothing in its store.
    pub(super) fn back(&mut self, machine: u32) {
        if self.dispatchers[self.dispatcher_of_machine(machine)].is_down {
            self.clock.plan(self.now + REJOINS_AFTER_NS, SimEvent::Back { machine });
            return;
        }
        self.membership.free.insert(machine);
        match self.cluster.batch {
            Some(_) => self.grant(),
            None => self.start_node(None),
        }
    }

    pub(super) fn disconnected(&mut self, executor: u32) {
        self.outcome.broken_connections += 1;
        self.end_session(executor, true, REJOINS_AFTER_NS);
        self.tell_dispatcher(Fact::Gone { executor });
    }

    /// An executor that asked to leave does so, and comes back after a while with what is in its store.
    pub(super) fn stops(&mut self, executor: u32) {
        let Some((_, away_ns)) = self.cluster.failures.leaves else { return };
        self.outcome.left_nodes += 1;
        self.say(Fact::Left { executor });
        self.end_session(executor, false, away_ns);
    }

    /// An executor is there no more, and its node joins again after a while, with what is in its store.
    pub(super) fn end_session(&mut self, executor: u32, serves: bool, away_ns: Ns) {
        let Executor { replicas, pages, .. } = self.leave(executor, serves);
        let whole = replicas.into_iter().filter(|(_, replica)| matches!(replica, Replica::Whole));
        let objects = whole.map(|(object, _)| object).collect();
        let machine = self.membership.machine_of(executor);
        self.membership.machines[machine as usize].left = Some(Left { objects, pages });
        self.clock.plan(self.now + away_ns, SimEvent::Rejoins { machine });
    }

    /// A dispatcher has died: its executors lose their connections.
    pub(super) fn end_sessions_of(&mut self, dispatcher: usize) {
        for executor in 0..self.executors.next() {
            if self.dispatcher_of(executor) != dispatcher {
                continue;
            }
            if self.executors.has(executor) {
                self.end_session(executor, true, REJOINS_AFTER_NS);
            }
            self.membership.standings[executor as usize].is_known = false;
        }
    }

    /// Unless its node has ended meanwhile. A dispatcher that has not read yet that the connection broke hears it by this.
    pub(super) fn rejoins(&mut self, machine: u32) {
        let of = &mut self.membership.machines[machine as usize];
        let was = of.executor;
        if of.left.is_some() && self.dispatchers[self.dispatcher_of_machine(machine)].is_down {
            self.clock.plan(self.now + REJOINS_AFTER_NS, SimEvent::Rejoins { machine });
        } else if let Some(left) = self.membership.machines[machine as usize].left.take() {
            if self.membership.is_known(was) {
                self.forget(was, true);
            }
            self.join(machine, left, Some(ExecutorId(was)));
        }
    }
}
