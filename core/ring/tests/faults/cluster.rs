//! Simulated nodes with their disks, clocks and network, and everything that can fail.

use std::collections::{BTreeMap, BTreeSet};

use eyas_faults::Dice;
use eyas_ring::{
    Config, Effect, Event, FileChunks, FileOperation, PersistentState, Records, Refusal,
    RingMessage, RingNode, Round, Save, Stored,
};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileSystemId, NodeId};

pub const MS: u64 = 1_000;
/// Longest delay of a message.
pub const MAX_DELAY_US: u64 = 1_500 * MS;

/// How often faults happen, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lost: u64,
    pub twice: u64,
    pub late: u64,
    /// A node crashes before some effect.
    pub crash: u64,
    /// Gossip is wrong about which nodes are alive.
    pub wrong: u64,
}

#[derive(Clone, Default)]
pub struct Disk {
    pub saved: PersistentState,
    pub records: BTreeMap<(u16, String), Stored>,
}

impl Records for Disk {
    fn get(&self, partition: u16, name: &FileName) -> Option<Stored> {
        self.records.get(&(partition, name.as_str().to_owned())).cloned()
    }

    fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)> {
        let ((of, name), stored) = self.records.range((partition, from.to_owned())..).next()?;
        (*of == partition).then(|| (name.parse().unwrap(), stored.clone()))
    }
}

impl Disk {
    fn apply_all(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Save(save) = effect {
                self.apply(save);
            }
        }
    }

    fn apply(&mut self, save: Save) {
        match save {
            Save::Boots(boots) => self.saved.boots = boots,
            Save::View(view) => self.saved.view = Some(view),
            Save::Acceptor(acceptor) => self.saved.acceptor = acceptor,
            Save::Settled(settled) => self.saved.settled = settled,
            Save::Round { partition, round } if round == Round::default() => {
                self.saved.rounds.remove(&partition);
            }
            Save::Round { partition, round } => drop(self.saved.rounds.insert(partition, round)),
            Save::Record { partition, name, stored } => {
                self.records.insert((partition, name.as_str().to_owned()), stored);
            }
            Save::Erase { partition, name } => {
                drop(self.records.remove(&(partition, name.as_str().to_owned())))
            }
            Save::Clear { partition } => self.records.retain(|(of, _), _| *of != partition),
        }
    }
}

pub struct Machine {
    config: Config,
    pub disk: Disk,
    /// Chunks.
    pub store: BTreeSet<ObjectId>,
    /// Chunks that a power failure takes.
    pub volatile: BTreeSet<ObjectId>,
    /// `None` while it is down.
    pub node: Option<RingNode>,
    /// While the node runs, if there are twins.
    twin: Option<Twin>,
    /// Number of starts, so that a message for an earlier process does not reach a later one.
    starts: u64,
    /// Its clock is this much ahead, and this many thousandths faster.
    ahead_us: u64,
    faster: u64,
    group: u8,
}

impl Machine {
    pub fn clock_us(&self, now_us: u64) -> u64 {
        self.ahead_us + now_us + now_us * self.faster / 1000
    }
}

/// A second node that is told the same as the first, and reads only what its own effects have
/// saved.
struct Twin {
    node: RingNode,
    disk: Disk,
}

impl Twin {
    fn start(config: Config, mut disk: Disk, clock_us: u64, expected: &[Effect]) -> Self {
        let mut effects = Vec::new();
        let node = RingNode::new(config, disk.saved.clone(), clock_us, &mut effects);
        assert_eq!(effects, expected, "the same state gave different effects");
        disk.apply_all(effects);
        Twin { node, disk }
    }

    fn handle(&mut self, clock_us: u64, event: Event, expected: &[Effect]) {
        let mut effects = Vec::new();
        self.node.handle(clock_us, event.clone(), &self.disk, &mut effects);
        assert_eq!(effects, expected, "{event:?} gave different effects");
        self.disk.apply_all(effects);
    }
}

enum ClusterAction {
    Deliver { from: NodeId, to: NodeId, message: RingMessage },
    Tick { node: NodeId, start: u64 },
    Ask { node: NodeId, request: u64, operation: FileOperation },
    Fetch { node: NodeId, start: u64, object: ObjectId, from: Vec<NodeId> },
    Search { leader: NodeId, name: FileName, objects: Vec<ObjectId> },
    Sync { leader: NodeId, node: NodeId, files: Vec<FileChunks> },
    Gossip { node: NodeId },
    Closed { node: NodeId, to: NodeId },
}

/// An answer that has reached its client.
pub type ClientAnswer = (u64, Result<eyas_ring::FileAnswer, Refusal>);

pub struct Cluster {
    pub now_us: u64,
    pub machines: BTreeMap<NodeId, Machine>,
    pub dice: Dice,
    pub faults: Faults,
    /// Content that clients do not wait for until it is on the disks, in thousandths. Its files
    /// get another version soon, so requests of clients that know the earlier one are refused, and
    /// more histories have to be tried.
    pub unsynced: u64,
    /// Whether each node has a twin, which must have the same effects.
    pub has_twins: bool,
    queue: BTreeMap<(u64, u64), ClusterAction>,
    sequence: u64,
    pub answers: Vec<ClientAnswer>,
    pub crashes: u64,
    pub messages: u64,
}

impl Cluster {
    pub fn new(seed: u64) -> Self {
        Cluster {
            now_us: 0,
            machines: BTreeMap::new(),
            dice: Dice::new(seed),
            faults: Faults::default(),
            unsynced: 100,
            has_twins: false,
            queue: BTreeMap::new(),
            sequence: 0,
            answers: Vec::new(),
            crashes: 0,
            messages: 0,
        }
    }

    /// Adds a new node.
    pub fn add(&mut self, found: bool, partitions: u16, replication: u8) -> NodeId {
        let node = NodeId(self.dice.next_u64());
        let config = Config {
            found,
            partitions,
            replication,
            tick_us: 100 * MS,
            resend_us: 200 * MS,
            patience_us: 800 * MS,
            restart_us: 300 * MS,
            tidy_us: 10_000 * MS,
            lease_us: 400 * MS,
            ..Config::new(FileSystemId(1), node)
        };
        let machine = Machine {
            config,
            disk: Disk::default(),
            store: BTreeSet::new(),
            volatile: BTreeSet::new(),
            node: None,
            twin: None,
            starts: 0,
            ahead_us: 0,
            faster: self.dice.below(50),
            group: 0,
        };
        self.machines.insert(node, machine);
        self.start(node);
        node
    }

    pub fn up(&self) -> Vec<NodeId> {
        self.machines
            .iter()
            .filter(|(_, machine)| machine.node.is_some())
            .map(|(node, _)| *node)
            .collect()
    }

    pub fn down(&self) -> Vec<NodeId> {
        self.machines
            .iter()
            .filter(|(_, machine)| machine.node.is_none())
            .map(|(node, _)| *node)
            .collect()
    }

    pub fn start(&mut self, node: NodeId) {
        let ahead_us = self.dice.below(10_000 * MS);
        let now_us = self.now_us;
        let machine = self.machines.get_mut(&node).unwrap();
        machine.ahead_us = ahead_us;
        machine.starts += 1;
        let mut effects = Vec::new();
        let clock_us = machine.clock_us(now_us);
        machine.node =
            Some(RingNode::new(machine.config, machine.disk.saved.clone(), clock_us, &mut effects));
        machine.twin = self
            .has_twins
            .then(|| Twin::start(machine.config, machine.disk.clone(), clock_us, &effects));
        let start = machine.starts;
        self.schedule(0, ClusterAction::Tick { node, start });
        self.schedule(MS, ClusterAction::Gossip { node });
        self.perform(node, effects);
    }

    pub fn crash(&mut self, node: NodeId) {
        self.machines.get_mut(&node).unwrap().node = None;
        self.crashes += 1;
        self.close(node);
    }

    /// Ends the connections of a node, as far as the other nodes notice.
    fn close(&mut self, node: NodeId) {
        let group = self.machines[&node].group;
        let others = self
            .machines
            .iter()
            .filter(|(other, machine)| **other != node && machine.group == group);
        for to in others.map(|(other, _)| *other).collect::<Vec<_>>() {
            let in_us = self.delay_us();
            self.schedule(in_us, ClusterAction::Closed { node, to });
        }
    }

    /// Splits the network: nodes in different groups cannot reach each other.
    pub fn split(&mut self) {
        let groups = 1 + self.dice.below(3);
        for machine in self.machines.values_mut() {
            machine.group = self.dice.below(groups) as u8;
        }
    }

    pub fn heal(&mut self) {
        self.faults = Faults::default();
        self.machines.values_mut().for_each(|machine| machine.group = 0);
        self.down().into_iter().for_each(|node| self.start(node));
    }

    fn schedule(&mut self, in_us: u64, what: ClusterAction) {
        self.sequence += 1;
        self.queue.insert((self.now_us + in_us, self.sequence), what);
    }

    /// Sends a client's request, which may be lost.
    pub fn ask(&mut self, node: NodeId, request: u64, operation: FileOperation) {
        let in_us = self.delay_us();
        if !self.dice.chance(self.faults.lost) {
            self.schedule(in_us, ClusterAction::Ask { node, request, operation });
        }
    }

    fn delay_us(&mut self) -> u64 {
        let late = self.dice.chance(self.faults.late);
        MS + self.dice.below(if late { MAX_DELAY_US } else { 10 * MS })
    }

    /// Carries out the next step; `false` if it is after `until_us`.
    pub fn step(&mut self, until_us: u64) -> bool {
        let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until_us) else {
            self.now_us = until_us;
            return false;
        };
        let ((at_us, _), what) = entry.remove_entry();
        self.now_us = self.now_us.max(at_us);
        match what {
            ClusterAction::Deliver { from, to, message } => {
                let group = |node| self.machines.get(&node).map(|machine: &Machine| machine.group);
                if group(from).is_none() || group(from) == group(to) {
                    self.handle(to, Event::Received { from, message });
                }
            }
            ClusterAction::Tick { node, start } => {
                if self
                    .machines
                    .get(&node)
                    .is_some_and(|machine| machine.starts == start && machine.node.is_some())
                {
                    self.handle(node, Event::Tick);
                    let machine = &self.machines[&node];
                    let due_us = machine.node.as_ref().map_or(0, RingNode::next_timeout_us);
                    let in_us = due_us.saturating_sub(machine.clock_us(self.now_us));
                    self.schedule(in_us.max(MS), ClusterAction::Tick { node, start });
                }
            }
            ClusterAction::Ask { node, request, operation } => {
                self.handle(node, Event::Requested { request, operation })
            }
            ClusterAction::Fetch { node, start, object, from } => {
                self.fetch(node, start, object, &from)
            }
            ClusterAction::Search { leader, name, objects } => self.search(leader, &name, &objects),
            ClusterAction::Sync { leader, node, files } => self.sync(leader, node, files),
            ClusterAction::Gossip { node } => self.gossip(node),
            ClusterAction::Closed { node, to } => self.handle(to, Event::Closed(node)),
        }
        true
    }

    fn gossip(&mut self, node: NodeId) {
        let Some(group) = self
            .machines
            .get(&node)
            .filter(|machine| machine.node.is_some())
            .map(|machine| machine.group)
        else {
            return;
        };
        let hears = |machine: &Machine| machine.node.is_some() && machine.group == group;
        let mut alive: BTreeSet<NodeId> = self
            .machines
            .iter()
            .filter(|(_, machine)| hears(machine))
            .map(|(node, _)| *node)
            .collect();
        if self.dice.chance(self.faults.wrong) {
            let all: Vec<NodeId> = self.machines.keys().copied().collect();
            let other = self.dice.any(&all).unwrap();
            if !alive.remove(&other) {
                alive.insert(other);
            }
            // Connections break, too.
            let other = self.dice.any(&all).unwrap();
            self.handle(node, Event::Closed(other));
        }
        self.handle(node, Event::Alive(alive));
        self.schedule(300 * MS, ClusterAction::Gossip { node });
    }

    fn fetch(&mut self, node: NodeId, start: u64, object: ObjectId, from: &[NodeId]) {
        let is_up = |machine: &Machine| machine.node.is_some();
        if self.machines.get(&node).is_none_or(|machine| machine.starts != start || !is_up(machine))
        {
            return;
        }
        let group = self.machines[&node].group;
        let has = |machine: &Machine| {
            is_up(machine) && machine.group == group && machine.store.contains(&object)
        };
        let is_here = self.machines[&node].store.contains(&object);
        if is_here || from.iter().any(|node| self.machines.get(node).is_some_and(has)) {
            self.machines.get_mut(&node).unwrap().store.insert(object);
            self.handle(node, Event::Fetched { object });
        } else {
            self.handle(node, Event::FetchFailed { object });
        }
    }

    /// All nodes that a leader can reach report which of the searched chunks they have.
    fn search(&mut self, leader: NodeId, name: &FileName, objects: &[ObjectId]) {
        let Some(group) = self.machines.get(&leader).map(|machine| machine.group) else { return };
        let reached = self
            .machines
            .iter()
            .filter(|(_, machine)| machine.node.is_some() && machine.group == group);
        let found = reached.map(|(node, machine)| {
            let has = objects.iter().filter(|object| machine.store.contains(object));
            (*node, has.copied().collect::<Vec<_>>())
        });
        let found: Vec<_> = found.filter(|(_, objects)| !objects.is_empty()).collect();
        for (node, objects) in found {
            self.handle(leader, Event::GoodReplicas { name: name.clone(), objects, node });
        }
    }

    /// A node forces chunks to its disk for a leader, if the leader can reach it.
    fn sync(&mut self, leader: NodeId, node: NodeId, mut files: Vec<FileChunks>) {
        let Some(group) = self.machines.get(&leader).map(|machine| machine.group) else { return };
        let reached = |machine: &&mut Machine| machine.node.is_some() && machine.group == group;
        let Some(machine) = self.machines.get_mut(&node).filter(reached) else { return };
        for FileChunks { objects, .. } in &mut files {
            machine.volatile.retain(|object| !objects.contains(object));
            objects.retain(|object| !machine.store.contains(object));
        }
        self.handle(leader, Event::Synced { node, bad: files });
    }

    /// Cuts the power of all nodes: what is not on their disks is gone.
    pub fn cut_power(&mut self) {
        self.up().into_iter().for_each(|node| self.crash(node));
        for machine in self.machines.values_mut() {
            let volatile = std::mem::take(&mut machine.volatile);
            machine.store.retain(|object| !volatile.contains(object));
        }
    }

    pub fn handle(&mut self, at: NodeId, event: Event) {
        let now_us = self.now_us;
        let Some(machine) = self.machines.get_mut(&at) else { return };
        let clock_us = machine.clock_us(now_us);
        let Some(node) = &mut machine.node else { return };
        let mut effects = Vec::new();
        let again = machine.twin.as_mut().map(|twin| (twin, event.clone()));
        node.handle(clock_us, event, &machine.disk, &mut effects);
        node.validate();
        if let Some((twin, event)) = again {
            twin.handle(clock_us, event, &effects);
        }
        self.perform(at, effects);
        self.at_most_one_answers(at);
    }

    /// After an event at a node: no partition that it answers for is answered by another node as
    /// well.
    fn at_most_one_answers(&self, at: NodeId) {
        let answers = |machine: &Machine, partition| {
            let clock_us = machine.clock_us(self.now_us);
            machine.node.as_ref().is_some_and(|node| node.answers(partition, clock_us))
        };
        let partitions = 0..self.machines[&at].config.partitions;
        for partition in partitions.filter(|partition| answers(&self.machines[&at], *partition)) {
            let all = self.machines.iter().filter(|(_, machine)| answers(machine, partition));
            let all: Vec<&NodeId> = all.map(|(node, _)| node).collect();
            assert_eq!(all, [&at], "who answers for partition {partition}");
        }
    }

    fn perform(&mut self, node: NodeId, effects: Vec<Effect>) {
        for effect in effects {
            if self.dice.chance(self.faults.crash) && self.dice.chance(50) {
                return self.crash(node);
            }
            match effect {
                Effect::Save(save) => self.machines.get_mut(&node).unwrap().disk.apply(save),
                Effect::Send { to, message } => {
                    assert_ne!(to, node);
                    self.messages += 1;
                    let times = 1 + u64::from(self.dice.chance(self.faults.twice));
                    for _ in 0..times {
                        let in_us = self.delay_us();
                        if !self.dice.chance(self.faults.lost) {
                            self.schedule(
                                in_us,
                                ClusterAction::Deliver { from: node, to, message: message.clone() },
                            );
                        }
                    }
                }
                Effect::Answer { request, answer } => {
                    if !self.dice.chance(self.faults.lost) {
                        self.answers.push((request, answer));
                    }
                }
                Effect::Fetch { object, from, .. } => {
                    let (in_us, start) = (self.delay_us(), self.machines[&node].starts);
                    self.schedule(in_us, ClusterAction::Fetch { node, start, object, from });
                }
                Effect::Search { name, objects } => {
                    let in_us = self.delay_us();
                    self.schedule(in_us, ClusterAction::Search { leader: node, name, objects });
                }
                Effect::Sync { node: of, files } => {
                    let in_us = self.delay_us();
                    self.schedule(in_us, ClusterAction::Sync { leader: node, node: of, files });
                }
                Effect::Drop { object } => {
                    self.machines.get_mut(&node).unwrap().store.remove(&object);
                }
            }
        }
    }
}
