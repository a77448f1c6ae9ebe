//! The provisioner's state machine.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::ExecutorId;

use super::{Config, Effect, Event, Provisioning, RequestId, Work};

/// Most requests that have not been granted.
pub const MAX_REQUESTS: usize = 64;
/// Nodes that are gone of which is remembered what they were. Beyond it, the one that left first is forgotten, and counts as
/// new if it comes back.
pub const MAX_AWAY: usize = 4_096;

/// Whether a node is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Staying,
    Draining,
    Released,
}

struct Node {
    is_ours: bool,
    joined_us: u64,
    /// Since when it has had no task.
    idle_since_us: Option<u64>,
    state: State,
}

impl Node {
    /// Whether it is one of those that may be told to leave.
    fn may_leave(&self) -> bool {
        self.is_ours && self.state == State::Staying
    }
}

/// More nodes are there or asked for than are wanted.
#[derive(Clone, Copy)]
struct Surplus {
    since_us: u64,
    /// The least that were too many since then.
    nodes: u32,
}

/// How fast tasks come, smoothed over the policy's target time.
#[derive(Default)]
struct Rate {
    /// When tasks were last counted, and how many there were.
    counted: Option<(u64, u64)>,
    per_us: f64,
}

impl Rate {
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

/// See the [module's](super) documentation.
pub struct Provisioner {
    config: Config,
    policy: Box<dyn Provisioning>,
    work: Work,
    rate: Rate,
    nodes: BTreeMap<ExecutorId, Node>,
    /// Those that are gone without having been given back, the last at the end: perhaps only their connection has broken.
    away: VecDeque<(ExecutorId, Node)>,
    /// Nodes that have not come yet of each request.
    requests: BTreeMap<RequestId, u32>,
    /// How many requests there ever were.
    requested: u64,
    /// How many there were since there were last enough nodes.
    in_a_row: u32,
    /// How many failed since a node last came.
    failures: u32,
    /// Nothing is asked for before this.
    not_before_us: u64,
    surplus: Option<Surplus>,
    /// When something may be due.
    next_us: Option<u64>,
}

impl Provisioner {
    /// One that has no nodes.
    ///
    /// # Panics
    /// If a node of `config` has no slots or no time, or the least nodes are more than the most.
    pub fn new(config: Config) -> Self {
        assert!(config.min_nodes <= config.max_nodes, "the least nodes are more than the most");
        assert!(config.slots > 0 && config.target_us > 0 && config.idle_us > 0, "a node has slots and time");
        assert!(config.walltime_us > config.notice_us, "a node has time before it is told to leave");
        Provisioner {
            policy: super::of(config.policy, config.target_us),
            config,
            work: Work::default(),
            rate: Rate::default(),
            nodes: BTreeMap::new(),
            away: VecDeque::new(),
            requests: BTreeMap::new(),
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
    /// If the event contradicts earlier ones (a node that joins twice, or that nobody knows).
    pub fn handle(&mut self, now_us: u64, event: Event, effects: &mut Vec<Effect>) {
        // Nodes begin and end tasks all the time; nothing is due because of that, only later.
        let mut is_due = !matches!(event, Event::NodeBusy { .. } | Event::NodeIdle { .. });
        match event {
            Event::Work(work) => {
                self.rate.count(now_us, work.arrived, self.config.target_us);
                self.work = work;
            }
            Event::NodeJoined { node, request, was } => {
                self.joined(now_us, node, request, was);
                if self.node(node).state == State::Draining {
                    effects.push(Effect::Drain { node });
                }
            }
            Event::NodeBusy { node } => self.node(node).idle_since_us = None,
            Event::NodeIdle { node } => {
                self.node(node).idle_since_us = Some(now_us);
                let over_us = now_us + self.config.idle_us;
                self.next_us = Some(self.next_us.map_or(over_us, |next_us| next_us.min(over_us)));
            }
            Event::NodeEmptied { node } => {
                let state = &mut self.node(node).state;
                assert_eq!(*state, State::Draining, "{node} was not told to leave");
                *state = State::Released;
                effects.push(Effect::Release { node });
            }
            Event::NodeLeft { node } => self.left(node),
            Event::RequestFailed { request } => self.failed(now_us, request),
            Event::TimePassed => {}
        }
        is_due |= self.next_us.is_some_and(|next_us| next_us <= now_us);
        if is_due {
            self.end_walltimes(now_us, effects);
            self.release_idle(now_us, effects);
            self.give_up_surplus(now_us, effects);
            self.ask(now_us, effects);
            self.next_us = self.next_due();
        }
    }

    /// When [`Event::TimePassed`] is to be told, if nothing else happens before.
    pub fn next_timeout(&self) -> Option<u64> {
        self.next_us
    }

    fn next_due(&self) -> Option<u64> {
        let ours = || self.nodes.values().filter(|node| node.may_leave());
        let walltime = ours().map(|node| self.leaves_at_us(node)).min();
        let is_crowded = self.staying() > self.wanted();
        let idle = ours().filter_map(|node| node.idle_since_us).min().map(|since_us| since_us + self.config.idle_us);
        let surplus = self.surplus.map(|surplus| surplus.since_us + self.config.idle_us);
        let backoff = Some(self.not_before_us).filter(|_| self.missing() > 0 && self.requests.len() < MAX_REQUESTS);
        [walltime, idle.filter(|_| is_crowded), surplus, backoff].into_iter().flatten().min()
    }

    /// How many nodes there should be.
    pub fn wanted(&self) -> u32 {
        let wanted = self.policy.wanted(&self.work, self.rate.per_us, self.config.slots);
        u32::try_from(wanted).unwrap_or(u32::MAX).clamp(self.config.min_nodes, self.config.max_nodes)
    }

    /// How many nodes there are that stay.
    pub fn staying(&self) -> u32 {
        self.nodes.values().filter(|node| node.state == State::Staying).count() as u32
    }

    /// How many nodes were asked for and have not come.
    pub fn requested(&self) -> u32 {
        self.requests.values().sum()
    }

    /// How many nodes to ask for.
    fn missing(&self) -> u32 {
        let ours = self.nodes.values().filter(|node| node.is_ours).count() as u32;
        let may = self.config.max_nodes.saturating_sub(ours + self.requested());
        self.wanted().saturating_sub(self.staying() + self.requested()).min(may)
    }

    fn node(&mut self, node: ExecutorId) -> &mut Node {
        self.nodes.get_mut(&node).unwrap_or_else(|| panic!("{node} is not there"))
    }

    fn leaves_at_us(&self, node: &Node) -> u64 {
        node.joined_us + self.config.walltime_us - self.config.notice_us
    }

    /// One that is back goes on as what it was: its walltime has not begun anew, and its request was granted before.
    fn joined(&mut self, now_us: u64, id: ExecutorId, request: Option<RequestId>, was: Option<ExecutorId>) {
        let new =
            Node { is_ours: request.is_some(), joined_us: now_us, idle_since_us: Some(now_us), state: State::Staying };
        let place = self.away.iter().position(|(away, _)| Some(*away) == was);
        let before = place.and_then(|place| self.away.remove(place));
        let node = before.map_or(new, |(_, before)| Node { idle_since_us: Some(now_us), ..before });
        assert!(self.nodes.insert(id, node).is_none(), "{id} is there already");
        let Some(request) = request.filter(|_| was.is_none()) else { return };
        self.failures = 0;
        self.not_before_us = now_us;
        if let Some(nodes) = self.requests.get_mut(&request) {
            *nodes -= 1;
            if *nodes == 0 {
                self.requests.remove(&request);
            }
        }
    }

    fn left(&mut self, id: ExecutorId) {
        let node = self.nodes.remove(&id).unwrap_or_else(|| panic!("{id} is not there"));
        if node.state != State::Released {
            self.away.push_back((id, node));
        }
        if self.away.len() > MAX_AWAY {
            self.away.pop_front();
        }
    }

    /// One that was withdrawn may fail as well.
    fn failed(&mut self, now_us: u64, request: RequestId) {
        if self.requests.remove(&request).is_some() {
            let doubled = self.config.backoff_us.checked_mul(1_u64.checked_shl(self.failures).unwrap_or(u64::MAX));
            let backoff_us = doubled.unwrap_or(u64::MAX).min(self.config.max_backoff_us);
            self.failures += 1;
            self.not_before_us = now_us + backoff_us;
        }
    }

    /// Nodes whose time is nearly over leave while they can do so in good order.
    fn end_walltimes(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let is_over = |node: &Node| node.may_leave() && self.leaves_at_us(node) <= now_us;
        let over: Vec<_> = self.nodes.iter().filter(|(_, node)| is_over(node)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|node| self.drain(node, effects));
    }

    /// Nodes that have been idle for long leave, as far as they are not wanted; the longest idle first.
    fn release_idle(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let too_many = self.staying().saturating_sub(self.wanted());
        let idle_since_us = |node: &Node| node.idle_since_us.filter(|_| node.may_leave());
        let idle = self.nodes.iter().filter_map(|(id, node)| Some((idle_since_us(node)?, *id)));
        let mut idle: Vec<_> = idle.filter(|(since_us, _)| since_us + self.config.idle_us <= now_us).collect();
        idle.sort_unstable();
        idle.into_iter().take(too_many as usize).for_each(|(_, node)| self.drain(node, effects));
    }

    /// What was too many for a whole idle time is given up: requests, the latest first, then nodes that are not idle, the
    /// youngest first, if the policy says so.
    fn give_up_surplus(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let nodes = self.too_many();
        let seen = self
            .surplus
            .map_or(Surplus { since_us: now_us, nodes }, |seen| Surplus { nodes: seen.nodes.min(nodes), ..seen });
        self.surplus = Some(seen).filter(|seen| seen.nodes > 0);
        if self.surplus.is_none_or(|seen| now_us < seen.since_us + self.config.idle_us) {
            return;
        }
        let mut left = seen.nodes;
        while let Some(latest) = self.requests.last_entry().filter(|latest| *latest.get() <= left) {
            let (request, nodes) = latest.remove_entry();
            left -= nodes;
            effects.push(Effect::Withdraw { request });
        }
        if self.policy.consolidates() {
            let ours = self.nodes.iter().filter(|(_, node)| node.may_leave());
            let mut by_age: Vec<_> = ours.map(|(id, node)| (node.joined_us, *id)).collect();
            by_age.sort_unstable();
            let crowd = self.staying().saturating_sub(self.wanted()).min(left);
            by_age.into_iter().rev().take(crowd as usize).for_each(|(_, node)| self.drain(node, effects));
        }
        self.surplus = Some(Surplus { since_us: now_us, nodes: self.too_many() }).filter(|seen| seen.nodes > 0);
    }

    /// How many nodes more than are wanted are there or asked for, of those that could be given up without being idle.
    fn too_many(&self) -> u32 {
        let staying = self.nodes.values().filter(|node| node.may_leave()).count() as u32;
        let could = self.requested() + if self.policy.consolidates() { staying } else { 0 };
        (self.staying() + self.requested()).saturating_sub(self.wanted()).min(could)
    }

    fn drain(&mut self, node: ExecutorId, effects: &mut Vec<Effect>) {
        self.node(node).state = State::Draining;
        effects.push(Effect::Drain { node });
    }

    fn ask(&mut self, now_us: u64, effects: &mut Vec<Effect>) {
        let mut missing = self.missing();
        if missing == 0 && self.requests.is_empty() {
            self.in_a_row = 0;
        }
        if now_us < self.not_before_us {
            return;
        }
        while missing > 0 && self.requests.len() < MAX_REQUESTS {
            let nodes = self.policy.request(self.in_a_row).min(missing);
            let request = RequestId(self.requested);
            (self.requested, self.in_a_row, missing) = (self.requested + 1, self.in_a_row + 1, missing - nodes);
            self.requests.insert(request, nodes);
            effects.push(Effect::Request { request, nodes, walltime_us: self.config.walltime_us });
        }
    }
}
