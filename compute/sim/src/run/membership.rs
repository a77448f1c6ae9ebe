//! Nodes that come and go: they start and join, are given back or lost, and lose and regain the
//! connection to their dispatcher.
//!
//! A *machine* always exists. A node exists while its machine is held. An executor is one session
//! of a node and has a number of its own, as in a real cluster: a node that joins again is another
//! executor with the same store.

use std::collections::BTreeSet;

use eyas_jobs::Event as JobsEvent;
use eyas_node::Event as NodeEvent;
use eyas_provision::{self as provision, NodeRequestId};
use eyas_sched::{Event, ExecutorProfile};
use eyas_types::ExecutorId;

use super::executor::{Links, Replica, SimExecutor};
use super::page_cache::PageCache;
use super::{Fact, Run, SimEvent};
use crate::clock::{Ns, from_seconds, seconds};
use crate::cluster::SimCluster;
use crate::flows::Flows;
use crate::nodes::{MISSED_AFTER_NS, REJOINS_AFTER_NS, SLOW_DISK};
use crate::random::Random;

pub(super) struct Membership {
    machines: Vec<Machine>,
    /// Machines that are not held.
    free: BTreeSet<u32>,
    /// Each executor that ever joined, by its number.
    executors: Vec<ExecutorRecord>,
    dice: Random,
    /// Number of machines that are held.
    held: u64,
    /// Time that machines were held, for holdings that have ended.
    held_ns: u128,
}

struct Machine {
    links: Links,
    /// Start of the current holding.
    since: Option<Ns>,
    /// Number of holdings so far.
    holdings: u32,
    /// The request that the node was granted for.
    request: Option<NodeRequestId>,
    /// Number of its last executor.
    executor: u32,
    /// Content of its store while it has no executor.
    left: Option<LeftStore>,
}

/// Content of the store of a node without an executor.
struct LeftStore {
    objects: Vec<u32>,
    pages: PageCache,
}

struct ExecutorRecord {
    machine: u32,
    is_known: bool,
}

impl Membership {
    pub fn new(cluster: &SimCluster, flows: &mut Flows, seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let machines = (0..cluster.nodes).map(|_| {
            let is_slow = dice.share() < cluster.failures.slow_disks;
            let links = Links::new(cluster, flows, if is_slow { SLOW_DISK } else { 1.0 });
            Machine { links, since: None, holdings: 0, request: None, executor: 0, left: None }
        });
        let machines = machines.collect();
        let free = (0..cluster.nodes).collect();
        Membership { machines, free, executors: Vec::new(), dice, held: 0, held_ns: 0 }
    }

    /// Whether the dispatcher takes the executor to be connected.
    pub fn is_known(&self, executor: u32) -> bool {
        self.executors[executor as usize].is_known
    }

    pub fn machine_of(&self, executor: u32) -> u32 {
        self.executors[executor as usize].machine
    }

    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        self.held
    }

    /// Time that nodes were held until `end`, summed over nodes.
    pub fn held_ns(&self, end: Ns) -> u128 {
        let there = self.machines.iter().filter_map(|machine| machine.since);
        self.held_ns + there.map(|since| u128::from(end.saturating_sub(since))).sum::<u128>()
    }

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A random time until an event with this mean time between occurrences (exponentially
    /// distributed).
    pub fn after(&mut self, mean_ns: Ns) -> Ns {
        from_seconds(-libm::log(1.0 - self.dice.share()) * seconds(mean_ns)).max(1)
    }

    /// Ends the holding of a machine.
    fn end_holding(&mut self, machine: u32, now: Ns) {
        let machine = &mut self.machines[machine as usize];
        let since = machine.since.take().expect("the machine is held");
        machine.left = None;
        self.held -= 1;
        self.held_ns += u128::from(now - since);
    }
}

impl Run<'_> {
    /// Starts a node on a free machine.
    pub(super) fn start_node(&mut self, request: Option<NodeRequestId>) {
        let number = self.membership.free.pop_first().expect("the caller has looked");
        let machine = &mut self.membership.machines[number as usize];
        (machine.since, machine.request) = (Some(self.now), request);
        machine.holdings += 1;
        self.membership.held += 1;
        if let Some(batch) = &self.cluster.batch {
            let expired = SimEvent::WalltimeOver { machine: number, holding: machine.holdings };
            self.events.schedule(self.now + batch.walltime_ns, expired);
        }
        self.join(number, LeftStore { pages: self.no_pages(), objects: Vec::new() }, None);
    }

    fn no_pages(&self) -> PageCache {
        PageCache::new(
            (self.cluster.page_cache_bytes / self.workload.object_bytes().max(1)) as usize,
        )
    }

    /// An executor joins with the content of its store. `was` is the node's earlier executor, if it
    /// lost its connection.
    fn join(
        &mut self,
        machine: u32,
        LeftStore { objects, pages }: LeftStore,
        was: Option<ExecutorId>,
    ) {
        let number = self.executors.next();
        let of = &mut self.membership.machines[machine as usize];
        of.executor = number;
        let (links, request) = (of.links, of.request);
        self.membership.executors.push(ExecutorRecord { machine, is_known: true });
        let mut executor = SimExecutor::new(
            self.cluster,
            &self.policies,
            links,
            pages,
            self.seed ^ u64::from(number),
        );
        executor.replicas.extend(objects.iter().map(|object| (*object, Replica::Whole)));
        let held = objects
            .into_iter()
            .map(|object| (self.id_of(object), self.workload.size_bytes(object)));
        let held: Box<[_]> = held.collect();
        held.iter().for_each(|(_, size_bytes)| executor.store(self.cluster, *size_bytes));
        self.executors.add(executor);
        for (object, size_bytes) in held.iter().copied() {
            self.tell_node(number, NodeEvent::Found { object, size_bytes });
        }
        let failures = &self.cluster.failures;
        let mut schedule = |mean_ns: Option<Ns>, event| {
            let after_ns = mean_ns.map(|mean_ns| self.membership.after(mean_ns));
            if let Some(at) = after_ns.and_then(|after_ns| failures.at(self.now, after_ns)) {
                self.events.schedule(at, event);
            }
        };
        schedule(failures.lost_after_ns, SimEvent::NodeLost { executor: number });
        schedule(
            failures.leaves.map(|(mean_ns, _)| mean_ns),
            SimEvent::ExecutorRetires { executor: number },
        );
        schedule(failures.disconnected_after_ns, SimEvent::Disconnected { executor: number });
        self.note_joined(number);
        let executor = ExecutorId(number);
        let (capacity, profile) =
            (SimExecutor::capacity(self.cluster), Box::<ExecutorProfile>::default());
        let (dispatcher, name) = (self.dispatcher_of(number), format!("n{machine}"));
        self.tell_jobs(dispatcher, JobsEvent::ExecutorJoined { executor, name });
        self.tell_scheduler(
            dispatcher,
            Event::ExecutorJoined { executor, capacity, profile, held },
        );
        // Repeat the order to leave to executors that could not be reached.
        self.tell_provisioner(provision::Event::NodeJoined { node: executor, request, was });
    }

    /// Removes an executor and aborts its tasks and fetches. If its node `serves`, others can still
    /// fetch from the store.
    fn leave(&mut self, executor: u32, serves: bool) -> SimExecutor {
        let gone = self.executors.remove(executor);
        for task in self.scheduler_of(executor).tasks_of(ExecutorId(executor)) {
            self.break_off(self.number_of(executor, task));
        }
        self.end_fetches_of(executor, serves);
        gone
    }

    /// The dispatcher learns that an executor is gone: lost with its tasks, or after leaving in
    /// good order.
    pub(super) fn forget(&mut self, executor: u32, is_loss: bool) {
        self.membership.executors[executor as usize].is_known = false;
        let id = ExecutorId(executor);
        self.tell_provisioner(provision::Event::NodeLeft { node: id });
        let dispatcher = self.dispatcher_of(executor);
        let tasks = self.scheduler_of(executor).tasks_of(id);
        let lost_with = is_loss.then(|| SimExecutor::capacity(self.cluster));
        let suspended = BTreeSet::new();
        self.tell_jobs(
            dispatcher,
            JobsEvent::ExecutorGone { executor: id, tasks, lost_with, suspended },
        );
    }

    /// Gives back a node without tasks.
    pub(super) fn give_back(&mut self, executor: u32) {
        self.end_node(executor);
        self.forget(executor, false);
    }

    /// Ends a node and frees its machine, unless the node is already lost.
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

    /// The batch system ends a node whose walltime is over.
    pub(super) fn expired(&mut self, machine: u32, holding: u32) {
        let of = &self.membership.machines[machine as usize];
        if of.holdings == holding && of.since.is_some() {
            let executor = of.executor;
            self.outcome.out_of_time +=
                self.executors.get(executor).map_or(0, SimExecutor::running);
            self.end_node(executor);
            self.say(Fact::Gone { executor });
        }
    }

    pub(super) fn lost(&mut self, executor: u32) {
        self.outcome.lost_nodes += 1;
        self.leave(executor, false);
        let machine = self.membership.machine_of(executor);
        self.membership.end_holding(machine, self.now);
        self.events
            .schedule(self.now + MISSED_AFTER_NS, SimEvent::FactArrives(Fact::Gone { executor }));
        if let Some(after) = self.cluster.failures.back_after_ns {
            self.events.schedule(self.now + after, SimEvent::MachineBack { machine });
        }
    }

    /// A lost machine comes back with an empty store.
    pub(super) fn back(&mut self, machine: u32) {
        if self.dispatchers[self.dispatcher_of_machine(machine)].is_down {
            self.events.schedule(self.now + REJOINS_AFTER_NS, SimEvent::MachineBack { machine });
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

    /// An executor leaves, and comes back later with the content of its store.
    pub(super) fn stops(&mut self, executor: u32) {
        let Some((_, away_ns)) = self.cluster.failures.leaves else { return };
        self.outcome.left_nodes += 1;
        self.say(Fact::Left { executor });
        self.end_session(executor, false, away_ns);
    }

    /// Ends an executor's session. Its node joins again after `away_ns` with the content of its
    /// store.
    pub(super) fn end_session(&mut self, executor: u32, serves: bool, away_ns: Ns) {
        let SimExecutor { replicas, pages, .. } = self.leave(executor, serves);
        let whole = replicas.into_iter().filter(|(_, replica)| matches!(replica, Replica::Whole));
        let objects = whole.map(|(object, _)| object).collect();
        let machine = self.membership.machine_of(executor);
        self.membership.machines[machine as usize].left = Some(LeftStore { objects, pages });
        self.events.schedule(self.now + away_ns, SimEvent::ExecutorRejoins { machine });
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
            self.membership.executors[executor as usize].is_known = false;
        }
    }

    /// A node joins again, unless it has ended in the meantime. A dispatcher that has not yet read
    /// of the broken connection learns of it now.
    pub(super) fn rejoins(&mut self, machine: u32) {
        let of = &mut self.membership.machines[machine as usize];
        let was = of.executor;
        if of.left.is_some() && self.dispatchers[self.dispatcher_of_machine(machine)].is_down {
            self.events
                .schedule(self.now + REJOINS_AFTER_NS, SimEvent::ExecutorRejoins { machine });
        } else if let Some(left) = self.membership.machines[machine as usize].left.take() {
            if self.membership.is_known(was) {
                self.forget(was, true);
            }
            self.join(machine, left, Some(ExecutorId(was)));
        }
    }
}
