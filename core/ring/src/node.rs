//! The node's state machine: what comes in, and to whom in here it goes.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::dfs::{FileName, NodeId};

use crate::choose::Chooser;
use crate::disk::Disk;
use crate::event::{Config, Effect, Event, Save, Saved};
use crate::fetch::Fetches;
use crate::lacking::Repairs;
use crate::lease::Leases;
use crate::lost::Lost;
use crate::message::{Body, Message};
use crate::record::{Records, Round};
use crate::replica::Receiving;
use crate::ring::Ring;
use crate::serve::Work;
use crate::settle::Leading;
use crate::view::{View, read_quorum, write_quorum};

/// One call of [`Node::handle`].
pub(crate) struct Turn<'a> {
    pub now_us: u64,
    pub disk: Disk<'a>,
    /// What the node has said to itself.
    own: VecDeque<Body>,
}

/// A view, and what follows from it.
pub(crate) struct Place {
    pub view: View,
    pub ring: Ring,
    /// Of the view's sources.
    pub sources: Vec<Ring>,
}

impl Place {
    pub fn new(view: View) -> Self {
        let mut known = BTreeMap::new();
        let sources = view.sources.iter().map(|members| Ring::of(&view, members, &mut known)).collect();
        Place { ring: Ring::of(&view, &view.members, &mut known), sources, view }
    }

    pub fn write_quorum(&self, partition: u16) -> usize {
        write_quorum(self.ring.replicas(partition).len(), self.view.replication)
    }

    /// Of those who kept a partition's records in a source, so many must be asked: all that are left, if those are fewer.
    pub fn read_quorum(&self, source: &Ring, partition: u16) -> usize {
        let replicas = source.replicas(partition);
        let left = replicas.iter().filter(|node| !self.view.lost.contains(node)).count();
        read_quorum(replicas.len(), self.view.replication).min(left)
    }
}

/// See the [crate's](crate) documentation.
pub struct Node {
    pub(crate) config: Config,
    /// How often it has started.
    pub(crate) boot: u64,
    pub(crate) place: Option<Place>,
    pub(crate) chooser: Chooser,
    pub(crate) leases: Leases,
    /// The round in which each partition was last brought up to date; others never were.
    pub(crate) rounds: BTreeMap<u16, Round>,
    /// Partitions that are being brought up to date.
    pub(crate) receiving: BTreeMap<u16, Receiving>,
    /// Partitions that it leads.
    pub(crate) leading: BTreeMap<u16, Leading>,
    /// Names that are being changed, and who waits for them.
    pub(crate) work: BTreeMap<FileName, Work>,
    /// How many requests are not answered.
    pub(crate) asked: usize,
    pub(crate) repairs: Repairs,
    pub(crate) lost: Lost,
    pub(crate) fetches: Fetches,
    next_tick_us: u64,
}

impl Node {
    /// A node that starts with what was saved. `now_us` here and below are microseconds of a clock that never goes back
    /// while the process lives.
    pub fn new(config: Config, saved: Saved, now_us: u64, effects: &mut Vec<Effect>) -> Self {
        let Saved { boots, view, acceptor, settled, rounds } = saved;
        let boot = boots + 1;
        effects.push(Effect::Save(Save::Boots(boot)));
        let is_new = view.is_none();
        let view = view.or_else(|| {
            let view = config
                .found
                .then(|| View::founded_by(config.system, config.node, config.partitions, config.replication))?;
            effects.push(Effect::Save(Save::View(view.clone())));
            Some(view)
        });
        let mut node = Node {
            config,
            boot,
            place: view.map(Place::new),
            chooser: Chooser::new(acceptor, settled, now_us),
            leases: Leases::new(config.lease_us, now_us, is_new),
            rounds,
            receiving: BTreeMap::new(),
            leading: BTreeMap::new(),
            work: BTreeMap::new(),
            asked: 0,
            repairs: Repairs::default(),
            lost: Lost::default(),
            fetches: Fetches::default(),
            next_tick_us: now_us,
        };
        node.lead_again(effects);
        node
    }

    /// Applies one event, and adds to `effects` what is to be done about it.
    pub fn handle(&mut self, now_us: u64, event: Event, records: &impl Records, effects: &mut Vec<Effect>) {
        let turn = &mut Turn { now_us, disk: Disk::new(records, effects), own: VecDeque::new() };
        match event {
            Event::Tick => {}
            Event::Alive(alive) => self.chooser.alive(alive),
            Event::Closed(node) => self.chooser.closed(node),
            Event::Received { from, message } => self.received(from, message, turn),
            Event::Asked { request, op } => self.asked(request, op, turn),
            Event::Fetched { object } => self.fetched(object, true, turn),
            Event::FetchFailed { object } => self.fetched(object, false, turn),
            Event::Bad { name, objects, node } => self.bad(&name, objects, node, turn),
            Event::Good { name, objects, node } => self.good(&name, &objects, node, turn),
        }
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + self.config.tick_us;
            self.tick(turn);
        }
        while let Some(body) = turn.own.pop_front() {
            self.hear(self.config.node, body, turn);
        }
    }

    /// When it is to be called again at the latest, with a tick if nothing else has happened.
    pub fn next_timeout_us(&self) -> u64 {
        self.next_tick_us
    }

    /// The last view that it knows.
    pub fn view(&self) -> Option<&View> {
        self.place.as_ref().map(|place| &place.view)
    }

    /// That view's ring.
    pub fn ring(&self) -> Option<&Ring> {
        self.place.as_ref().map(|place| &place.ring)
    }

    /// Checks what must hold between two events.
    ///
    /// # Panics
    /// If it does not.
    pub fn validate(&self) {
        let Some(place) = &self.place else { return assert!(self.work.is_empty() && self.leading.is_empty()) };
        assert!(self.rounds.values().all(|round| round.view <= place.view.number));
        self.validate_leading(place);
        self.validate_work();
        self.repairs.validate();
        self.lost.validate();
        self.fetches.validate();
    }

    fn tick(&mut self, turn: &mut Turn) {
        if self.place.is_none() {
            return;
        }
        let (me, boot, has_settled) = (self.config.node, self.boot, self.has_settled());
        if has_settled {
            self.is_told_settled(me, false, turn);
        }
        let heartbeat = Body::Heartbeat { sent_us: turn.now_us, boot, has_settled, is_settled: self.is_settled() };
        let Some(place) = &self.place else { return };
        let others: Vec<_> = place.view.members.iter().copied().filter(|node| *node != me).collect();
        others.into_iter().for_each(|node| self.send(node, heartbeat.clone(), turn));
        self.choose(turn);
        self.settle(turn);
        self.work_again(turn);
        self.repair(turn);
        self.search(turn);
    }

    /// Looks whether sender and receiver are in the same view, and tells the later one to who is behind.
    fn received(&mut self, from: NodeId, message: Message, turn: &mut Turn) {
        let number = self.number();
        self.chooser.heard(from);
        match message.body {
            Body::Decided(view) if view.system == self.config.system => self.enter_view(view, turn),
            // Of another file system.
            Body::Decided(_) => {}
            _ if message.view > number => self.send(from, Body::Behind, turn),
            _ if message.view < number => {
                let place = self.place.as_ref().expect("only who has a view has a number");
                self.send(from, Body::Decided(place.view.clone()), turn);
            }
            body => {
                self.leases.heard(from);
                self.hear(from, body, turn);
            }
        }
    }

    /// Does what a node of the same view says.
    fn hear(&mut self, from: NodeId, body: Body, turn: &mut Turn) {
        if self.place.is_none() {
            return;
        }
        match body {
            Body::Behind | Body::Decided(_) => {}
            Body::Prepare(ballot) => self.prepare(from, ballot, turn),
            Body::Promise(ballot, accepted) => self.promise(from, ballot, accepted, turn),
            Body::Accept(proposal) => self.accept(from, proposal, turn),
            Body::Accepted(ballot) => self.accepted(from, ballot, turn),
            Body::Outbid(promised) => self.chooser.outbid(promised),
            Body::Heartbeat { sent_us, boot, has_settled, is_settled } => {
                if has_settled || is_settled {
                    self.is_told_settled(from, is_settled, turn);
                }
                self.leases.promise(from, turn.now_us);
                self.send(from, Body::Heard { sent_us, boot }, turn);
            }
            Body::Heard { sent_us, boot } if boot == self.boot => self.leases.grant(from, sent_us),
            Body::Heard { .. } => {}
            Body::Collect { partition, round, after, digest } => {
                self.collect(from, partition, round, after, digest, turn);
            }
            Body::Collected { partition, round, after, page } => {
                self.collected(from, partition, round, &after, page, turn);
            }
            Body::Offer { partition, round } => self.offered(from, partition, round, turn),
            Body::Want { partition, round, after, digest } => self.wanted(from, partition, round, after, digest, turn),
            Body::Same { partition, round } => self.same(from, partition, round, turn),
            Body::Fill { partition, round, after, page } => self.fill(from, partition, round, &after, page, turn),
            Body::Filled { partition, round } => self.filled(from, partition, round, turn),
            Body::Write { partition, round, name, stored } => self.write(from, partition, round, name, stored, turn),
            Body::Written { name, version } => self.written(from, &name, version, turn),
            Body::Move { from: old, version, to, token } => self.move_away(from, old, version, to, token, turn),
            Body::Moved { to, token, from: old, record } => self.moved(from, &to, token, old, record, turn),
            Body::Gone { to, token } => self.gone(&to, token, turn),
            Body::Arrived { from: old, token } => self.arrived(&old, token, turn),
            Body::Have { name, chunk } => self.have(from, name, chunk, turn),
            Body::Has { name, object, is_here } => self.has(from, &name, object, is_here, turn),
            Body::Drop(objects) => turn.disk.effects.extend(objects.into_iter().map(|object| Effect::Drop { object })),
        }
    }

    /// The number of its view; 0 if it has none.
    pub(crate) fn number(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.view.number)
    }

    /// In which it leads.
    pub(crate) fn round(&self) -> Round {
        Round { view: self.number(), boot: self.boot }
    }

    pub(crate) fn send(&self, to: NodeId, body: Body, turn: &mut Turn) {
        if to == self.config.node {
            turn.own.push_back(body);
        } else {
            let message = Message { view: self.number(), body };
            turn.disk.effects.push(Effect::Send { to, message });
        }
    }

    /// To all members, itself included if it is one.
    pub(crate) fn send_members(&self, body: &Body, turn: &mut Turn) {
        for node in self.place.iter().flat_map(|place| &place.view.members) {
            self.send(*node, body.clone(), turn);
        }
    }
}
