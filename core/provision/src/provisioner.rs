//! The provisioner's state machine.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

use eyas_types::ExecutorId;

use crate::event::{Config, Effect, Event, Mode, NodeRequestId, OutstandingWork};
use crate::nodes::NodePool;
use crate::policies::{self, Provisioning};

/// Most requests that have not been granted.
pub const MAX_REQUESTS: usize = 1_024;

/// More nodes are there or requested than are wanted.
#[derive(Clone, Copy)]
struct Surplus {
    since_us: u64,
    /// The smallest surplus since then.
    nodes: u32,
}

/// The rate at which tasks arrive, smoothed over the policy's target time.
///
/// After `p` microseconds with a rate `r`, a mean `m` over `t` microseconds becomes `m + (r - m) *
/// p / (p + t)`. For example, a second at 10 tasks/s moves a mean of 4 tasks/s over 2 s to 6
/// tasks/s.
#[derive(Default)]
struct ArrivalRate {
    /// The time of the last count, and the count.
    counted: Option<(u64, u64)>,
    per_us: f64,
}

impl ArrivalRate {
    fn count(&mut self, now_us: u64, arrived: u64, over_us: u64) {
        let Some((before_us, before)) = self.counted else {
            self.counted = Some((now_us, arrived));
            return;
        };
        let passed_us = (now_us - before_us) as f64;
        if passed_us > 0.0 {
            let now_per_us = arrived.saturating_sub(before) as f64 / passed_us;
            self.per_us += (now_per_us - self.per_us) * passed_us / (passed_us + over_us as f64);
            self.counted = Some((now_us, arrived));
        }
    }
}

/// See the [crate's](crate) documentation.
pub struct Provisioner {
    config: Config,
    mode: Mode,
    policy: Box<dyn Provisioning>,
    work: OutstandingWork,
    arrivals: ArrivalRate,
    nodes: NodePool,
    /// Nodes of each request that have not joined yet.
    requests: BTreeMap<NodeRequestId, u32>,
    /// The same of requests that are no longer wanted, and have not ended: a batch system may
    /// grant a request while it is withdrawn.
    withdrawn: BTreeMap<NodeRequestId, u32>,
    /// The number of requests that there ever were.
    requested: u64,
    /// The number of requests since there were last enough nodes.
    in_a_row: u32,
    /// The number of failures since a node last joined.
    failures: u32,
    /// No request is made before this time.
    not_before_us: u64,
    surplus: Option<Surplus>,
    /// The time at which something may be due.
    next_us: Option<u64>,
}

impl Provisioner {
    /// A provisioner without nodes.
    ///
    /// # Panics
    /// If a node of `config` has no slots or no time, or `min_nodes` is larger than `max_nodes`.
    pub fn new(config: Config) -> Self {
        assert!(config.min_nodes <= config.max_nodes, "`min_nodes` is larger than `max_nodes`");
        assert!(
            config.slots > 0 && config.target_us > 0 && config.idle_us > 0,
            "a node has slots and time"
        );
        assert!(
            config.walltime_us > config.notice_us,
            "a node has time before it is told to leave"
        );
        Provisioner {
            policy: policies::of(config.policy, config.target_us),
            mode: Mode::Active,
            config,
            work: OutstandingWork::default(),
            arrivals: ArrivalRate::default(),
            nodes: NodePool::default(),
            requests: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            requested: 0,
            in_a_row: 0,
            failures: 0,
            not_before_us: 0,
            surplus: None,
            next_us: None,
        }
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    ///
    /// # Panics
    /// If the event contradicts earlier ones (a node that joins twice, or an unknown node).
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        // Nodes begin and end tasks all the time; that makes nothing due at once, only later.
        let mut is_due = !matches!(event, Event::NodeBusy { .. } | Event::NodeIdle { .. });
        match event {
            Event::Work(work) => {
                self.arrivals.count(now_us, work.arrived, self.config.target_us);
                self.work = work;
            }
            Event::NodeJoined { node, request, was } => {
                if self.nodes.join(now_us, node, request.is_some(), was) {
                    effects.push(Effect::Drain { node });
                }
                // The request of a node that is back was granted before.
                if let Some(request) = request.filter(|_| was.is_none()) {
                    self.granted(now_us, request);
                }
            }
            Event::NodeBusy { node } => self.nodes.set_idle_since(node, None),
            Event::NodeIdle { node } => {
                self.nodes.set_idle_since(node, Some(now_us));
                let over_us = now_us + self.config.idle_us;
                self.next_us = Some(self.next_us.map_or(over_us, |next_us| next_us.min(over_us)));
            }
            Event::NodeHolds { node, refill_us } => {
                self.nodes.keep(node, refill_us.min(self.config.keep_us))
            }
            Event::NodeEmptied { node } => {
                self.nodes.release(node);
                effects.push(Effect::Release { node });
            }
            Event::NodeExpires { node } if self.nodes.may_leave(node) => {
                self.drain([node].into(), effects)
            }
            Event::NodeExpires { .. } => {}
            Event::NodeLeft { node } => self.nodes.leave(node),
            Event::RequestFailed { request } => {
                self.failed(now_us, request);
                self.withdrawn.remove(&request);
            }
            Event::RequestOverdue { request } => self.failed(now_us, request),
            Event::RequestEnded { request } => _ = self.withdrawn.remove(&request),
            Event::RequestFound { request, nodes, is_withdrawn } => {
                self.found(request, nodes, is_withdrawn)
            }
            Event::ArrivalsEnded => self.arrivals = ArrivalRate::default(),
            Event::ModeSet(mode) => self.mode = mode,
            Event::SlotsLearned(slots) => self.config.slots = slots.max(1),
            Event::TimePassed => {}
        }
        is_due |= self.next_us.is_some_and(|next_us| next_us <= now_us);
        if is_due && self.mode == Mode::Closed {
            self.close(effects);
            self.next_us = None;
        } else if is_due {
            self.end_walltimes(now_us, effects);
            self.drain_idle(now_us, effects);
            self.give_up_surplus(now_us, effects);
            self.request_missing(now_us, effects);
            self.next_us = self.next_due();
        }
    }

    /// The time at which [`Event::TimePassed`] must be reported, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<u64> {
        self.next_us
    }

    fn next_due(&self) -> Option<u64> {
        let walltime = self.nodes.oldest_joined_us().map(|joined_us| joined_us + self.stay_us());
        let is_crowded = self.staying() > self.wanted();
        let idle =
            self.nodes.longest_idle_since_us().map(|since_us| since_us + self.config.idle_us);
        let surplus = self.surplus.map(|surplus| surplus.since_us + self.config.idle_us);
        let backoff = Some(self.not_before_us).filter(|_| self.missing() > 0 && self.may_request());
        [walltime, idle.filter(|_| is_crowded), surplus, backoff].into_iter().flatten().min()
    }

    /// The number of nodes that there should be.
    pub fn wanted(&self) -> u32 {
        if self.mode == Mode::Closed {
            return 0;
        }
        let wanted = self.policy.wanted(&self.work, self.arrivals.per_us, self.config.slots);
        u32::try_from(wanted)
            .unwrap_or(u32::MAX)
            .clamp(self.config.min_nodes, self.config.max_nodes)
    }

    /// The number of nodes that are there and stay.
    pub fn staying(&self) -> u32 {
        self.nodes.staying()
    }

    /// The number of nodes that were requested and have not joined.
    pub fn requested(&self) -> u32 {
        self.requests.values().sum()
    }

    /// The number of nodes that are no longer wanted and may still join: their requests were
    /// withdrawn or are overdue, and have not ended.
    pub fn withdrawn(&self) -> u32 {
        self.withdrawn.values().sum()
    }

    /// The time before which no request is made, because requests have failed; 0 if none has
    /// failed.
    pub fn not_before_us(&self) -> u64 {
        self.not_before_us
    }

    fn may_request(&self) -> bool {
        self.mode == Mode::Active && self.requests.len() < self.config.backlog.min(MAX_REQUESTS)
    }

    /// The number of nodes to request. For example 2, if 8 are wanted, 5 are there and 1 is
    /// requested; but 1, if `max_nodes` is 8 and another node may still join although its request
    /// was withdrawn. As long as no task waits or runs, a node that leaves is not replaced,
    /// although tasks arrived a while ago: a task that arrives requests a node.
    fn missing(&self) -> u32 {
        let may = self
            .config
            .max_nodes
            .saturating_sub(self.nodes.ours() + self.requested() + self.withdrawn());
        let wanted = if self.work.is_none() { self.config.min_nodes } else { self.wanted() };
        wanted.saturating_sub(self.staying() + self.requested()).min(may)
    }

    /// The time from when a node joins until it is drained because its walltime nearly ends. For
    /// example 58 minutes by default.
    fn stay_us(&self) -> u64 {
        self.config.walltime_us - self.config.notice_us
    }

    fn granted(&mut self, now_us: u64, request: NodeRequestId) {
        self.failures = 0;
        self.not_before_us = now_us;
        for requests in [&mut self.requests, &mut self.withdrawn] {
            if let Entry::Occupied(mut nodes) = requests.entry(request) {
                *nodes.get_mut() -= 1;
                if *nodes.get() == 0 {
                    nodes.remove();
                }
            }
        }
    }

    fn found(&mut self, request: NodeRequestId, nodes: u32, is_withdrawn: bool) {
        assert!(
            request.0 >= self.requested,
            "request {} is older than others that are known",
            request.0
        );
        self.requested = request.0 + 1;
        let requests = if is_withdrawn { &mut self.withdrawn } else { &mut self.requests };
        if nodes > 0 {
            requests.insert(request, nodes);
        }
    }

    /// Withdraws all requests, and drains all nodes.
    fn close(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(self.requests.keys().map(|request| Effect::Withdraw { request: *request }));
        self.withdrawn.append(&mut self.requests);
        self.drain(self.nodes.all_leavable(), effects);
        self.surplus = None;
    }

    /// A request has failed, and is no longer wanted. One that was withdrawn before may fail as
    /// well, and then counts for nothing.
    fn failed(&mut self, now_us: u64, request: NodeRequestId) {
        if let Some(nodes) = self.requests.remove(&request) {
            self.withdrawn.insert(request, nodes);
            // For example 5, 10, 20 s and so on, up to 10 minutes by default.
            let doubled = self
                .config
                .backoff_us
                .checked_mul(1_u64.checked_shl(self.failures).unwrap_or(u64::MAX));
            let backoff_us = doubled.unwrap_or(u64::MAX).min(self.config.max_backoff_us);
            self.failures += 1;
            self.not_before_us = now_us + backoff_us;
        }
    }

    /// Drains nodes whose walltime nearly ends, while they still have time to leave in good order.
    fn end_walltimes(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        if let Some(joined_until_us) = now_us.checked_sub(self.stay_us()) {
            let over = self.nodes.joined_until(joined_until_us);
            self.drain(over, effects);
        }
    }

    /// Drains nodes that have been idle for the idle time, as far as they are not wanted; the
    /// longest idle first.
    fn drain_idle(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        if let Some(idle_until_us) = now_us.checked_sub(self.config.idle_us) {
            let idle =
                self.nodes.idle_until(idle_until_us, self.staying().saturating_sub(self.wanted()));
            self.drain(idle, effects);
        }
    }

    /// Gives up what was too many for a whole idle time: requests, the latest first; then, if the
    /// policy says so, nodes that are not idle, the youngest first. For example, if 7 nodes were
    /// wanted all the time while 10 were there and 2 requests were open for one each, both requests
    /// are withdrawn, and three nodes are drained.
    fn give_up_surplus(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let nodes = self.surplus_now();
        let seen = match self.surplus {
            Some(seen) => Surplus { nodes: seen.nodes.min(nodes), ..seen },
            None => Surplus { since_us: now_us, nodes },
        };
        self.surplus = Some(seen).filter(|seen| seen.nodes > 0);
        if self.surplus.is_none_or(|seen| now_us < seen.since_us + self.config.idle_us) {
            return;
        }
        let mut left = seen.nodes;
        while let Some(latest) = self.requests.last_entry().filter(|latest| *latest.get() <= left) {
            let (request, nodes) = latest.remove_entry();
            self.withdrawn.insert(request, nodes);
            left -= nodes;
            effects.push(Effect::Withdraw { request });
        }
        if self.policy.consolidates() {
            let crowd = self.staying().saturating_sub(self.wanted()).min(left);
            self.drain(self.nodes.youngest(crowd), effects);
        }
        self.surplus = Some(Surplus { since_us: now_us, nodes: self.surplus_now() })
            .filter(|seen| seen.nodes > 0);
    }

    /// The number of nodes that are there or requested beyond those wanted, of those that can be
    /// given up while busy.
    fn surplus_now(&self) -> u32 {
        let leavable = if self.policy.consolidates() { self.nodes.leavable() } else { 0 };
        (self.staying() + self.requested())
            .saturating_sub(self.wanted())
            .min(self.requested() + leavable)
    }

    fn drain(&mut self, nodes: Vec<ExecutorId>, effects: &mut Vec<Effect>) {
        for node in nodes {
            self.nodes.drain(node);
            effects.push(Effect::Drain { node });
        }
    }

    fn request_missing(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let mut missing = self.missing();
        if missing == 0 && self.requests.is_empty() {
            self.in_a_row = 0;
        }
        if now_us < self.not_before_us {
            return;
        }
        while missing > 0 && self.may_request() {
            let nodes = self
                .policy
                .request(self.in_a_row)
                .min(missing)
                .min(self.config.nodes_per_request.max(1));
            let request = NodeRequestId(self.requested);
            self.requested += 1;
            self.in_a_row += 1;
            missing -= nodes;
            self.requests.insert(request, nodes);
            effects.push(Effect::Request { request, nodes, walltime_us: self.config.walltime_us });
        }
    }
}
