//! Machines: which of them are held, and what they have while no executor is there.

use std::collections::BTreeSet;

use eyas_provision::NodeRequestId;

use super::executor::LeftStore;
use crate::clock::{Ns, from_seconds, seconds};
use crate::nodes::Failures;
use crate::random::Random;

pub(super) struct Machines {
    machines: Vec<Machine>,
    /// Machines that are not held.
    free: BTreeSet<u32>,
    /// Number of machines that are held.
    held: u64,
    /// Time that machines were held, for holdings that have ended.
    held_ns: u128,
}

#[derive(Default)]
struct Machine {
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

impl Machines {
    pub fn new(count: u32) -> Self {
        let machines = (0..count).map(|_| Machine::default()).collect();
        Machines { machines, free: (0..count).collect(), held: 0, held_ns: 0 }
    }

    /// Number of machines that are held: the nodes.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Time that nodes were held until `end`, summed over nodes.
    pub fn held_ns(&self, end: Ns) -> u128 {
        let there = self.machines.iter().filter_map(|machine| machine.since);
        self.held_ns + there.map(|since| u128::from(end.saturating_sub(since))).sum::<u128>()
    }

    // ---- holdings

    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A node starts on a free machine. Returns the machine and the number of the holding.
    pub fn hold(&mut self, request: Option<NodeRequestId>, now: Ns) -> (u32, u32) {
        let number = self.free.pop_first().expect("the caller has looked");
        let machine = self.get_mut(number);
        (machine.since, machine.request) = (Some(now), request);
        machine.holdings += 1;
        let holding = machine.holdings;
        self.held += 1;
        (number, holding)
    }

    /// The last executor of a machine, if the holding with this number has not ended.
    pub fn executor_in(&self, machine: u32, holding: u32) -> Option<u32> {
        let of = self.get(machine);
        (of.holdings == holding && of.since.is_some()).then_some(of.executor)
    }

    /// Whether the machine is held, and the executor is its last one.
    pub fn is_last(&self, machine: u32, executor: u32) -> bool {
        let of = self.get(machine);
        of.executor == executor && of.since.is_some()
    }

    /// Ends the holding of a machine.
    pub fn end_holding(&mut self, machine: u32, now: Ns) {
        let machine = self.get_mut(machine);
        let since = machine.since.take().expect("the machine is held");
        machine.left = None;
        self.held -= 1;
        self.held_ns += u128::from(now - since);
    }

    /// A node can start on the machine.
    pub fn free(&mut self, machine: u32) {
        self.free.insert(machine);
    }

    // ---- executors

    /// An executor joins on a machine. Returns the request that its node was granted for.
    pub fn join(&mut self, machine: u32, executor: u32) -> Option<NodeRequestId> {
        let machine = self.get_mut(machine);
        machine.executor = executor;
        machine.request
    }

    pub fn last_executor(&self, machine: u32) -> u32 {
        self.get(machine).executor
    }

    /// The machine keeps the store of its executor, which is gone.
    pub fn keep_store(&mut self, machine: u32, store: LeftStore) {
        self.get_mut(machine).left = Some(store);
    }

    pub fn has_store(&self, machine: u32) -> bool {
        self.get(machine).left.is_some()
    }

    pub fn take_store(&mut self, machine: u32) -> Option<LeftStore> {
        self.get_mut(machine).left.take()
    }

    fn get(&self, machine: u32) -> &Machine {
        &self.machines[machine as usize]
    }

    fn get_mut(&mut self, machine: u32) -> &mut Machine {
        &mut self.machines[machine as usize]
    }
}

/// Decides which disks are slow, and when nodes, connections and dispatchers fail.
pub(super) struct FailureDice<'a> {
    failures: &'a Failures,
    dice: Random,
}

impl<'a> FailureDice<'a> {
    pub fn new(failures: &'a Failures, seed: u64) -> Self {
        FailureDice { failures, dice: Random::new(seed) }
    }

    /// Whether the disk of the next machine is slow.
    pub fn is_slow(&mut self) -> bool {
        self.dice.share() < self.failures.slow_disks
    }

    /// Time of the next failure with this mean time between occurrences (exponentially
    /// distributed); `None` if failures have ended by then, or there are none of this kind.
    pub fn next(&mut self, mean_ns: Option<Ns>, now: Ns) -> Option<Ns> {
        let mean_s = seconds(mean_ns?);
        let after_ns = from_seconds(-libm::log(1.0 - self.dice.share()) * mean_s).max(1);
        self.failures.at(now, after_ns)
    }
}
