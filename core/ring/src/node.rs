//! The state machine of a node: routes events and messages to the parts that handle them.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::dfs::{FileName, NodeId};

use crate::event::{Config, Effect, Event, Save, Saved};
use crate::fetch::ChunkFetches;
use crate::folder_use::FolderUses;
use crate::lease::Leases;
use crate::lost::LostChunks;
use crate::message::{MessageBody, RingMessage};
use crate::paxos::ViewPaxos;
use crate::record::{Records, Round};
use crate::record_view::RecordView;
use crate::replica::CatchUp;
use crate::ring::Ring;
use crate::serve::PendingName;
use crate::syncing::SyncingFiles;
use crate::under_replicated::Repairs;
use crate::view::{View, read_quorum, write_quorum};
use crate::view_change::LedPartition;

/// The context of one call of [`RingNode::handle`].
pub(crate) struct Step<'a> {
    pub now_us: u64,
    pub records: RecordView<'a>,
    /// Messages of the node to itself.
    own: VecDeque<MessageBody>,
}

/// The current view and the rings that follow from it.
pub(crate) struct CurrentView {
    pub view: View,
    pub ring: Ring,
    /// The rings of the view's sources.
    pub sources: Vec<Ring>,
}

impl CurrentView {
    pub fn new(view: View) -> Self {
        let mut known = BTreeMap::new();
        let sources = view.sources.iter().map(|members| Ring::of(&view, members, &mut known)).collect();
        CurrentView { ring: Ring::of(&view, &view.members, &mut known), sources, view }
    }

    pub fn write_quorum(&self, partition: u16) -> usize {
        write_quorum(self.ring.replicas(partition).len(), self.view.replication)
    }

    /// Number of a partition's replicas in a source that must be asked: a read quorum, or all that are not given up if
    /// those are fewer.
    pub fn read_quorum(&self, source: &Ring, partition: u16) -> usize {
        let replicas = source.replicas(partition);
        let left = replicas.iter().filter(|node| !self.view.lost.contains(node)).count();
        read_quorum(replicas.len(), self.view.replication).min(left)
    }
}

/// See the [crate's](crate) documentation.
pub struct RingNode {
    pub(crate) config: Config,
    /// Number of times that the node has started.
    pub(crate) boot: u64,
    pub(crate) current: Option<CurrentView>,
    pub(crate) paxos: ViewPaxos,
    pub(crate) leases: Leases,
    /// The round in which each partition was last synchronized. A partition without an entry never was.
    pub(crate) rounds: BTreeMap<u16, Round>,
    /// Partitions that are being synchronized from their leader.
    pub(crate) catching_up: BTreeMap<u16, CatchUp>,
    /// Partitions that this node leads.
    pub(crate) leading: BTreeMap<u16, LedPartition>,
    /// Names with an operation in progress, and the requests that wait for them.
    pub(crate) pending: BTreeMap<FileName, PendingName>,
    /// Number of requests without an answer.
    pub(crate) asked: usize,
    pub(crate) repairs: Repairs,
    pub(crate) lost: LostChunks,
    pub(crate) syncing: SyncingFiles,
    pub(crate) fetches: ChunkFetches,
    pub(crate) uses: FolderUses,
    next_tick_us: u64,
}

impl RingNode {
    /// A node that starts with the state it has saved. `now_us` here and below are microseconds of a clock that never
    /// goes back while the process lives.
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
        let mut node = RingNode {
            config,
            boot,
            current: view.map(CurrentView::new),
            paxos: ViewPaxos::new(acceptor, settled, now_us),
            leases: Leases::new(config.lease_us, now_us, is_new),
            rounds,
            catching_up: BTreeMap::new(),
            leading: BTreeMap::new(),
            pending: BTreeMap::new(),
            asked: 0,
            repairs: Repairs::default(),
            lost: LostChunks::default(),
            syncing: SyncingFiles::default(),
            fetches: ChunkFetches::default(),
            uses: FolderUses::default(),
            next_tick_us: now_us,
        };
        node.lead_again(effects);
        node
    }

    /// Applies one event and appends the resulting actions to `effects`.
    pub fn handle(&mut self, now_us: u64, event: Event, records: &impl Records, effects: &mut Vec<Effect>) {
        let step = &mut Step { now_us, records: RecordView::new(records, effects), own: VecDeque::new() };
        match event {
            Event::Tick => {}
            Event::Alive(alive) => self.paxos.alive(alive),
            Event::Closed(node) => self.paxos.closed(node),
            Event::Received { from, message } => self.received(from, message, step),
            Event::Requested { request, operation } => self.requested(request, operation, step),
            Event::Fetched { object } => self.fetched(object, true, step),
            Event::FetchFailed { object } => self.fetched(object, false, step),
            Event::BadReplicas { name, objects, node } => self.bad_replicas(&name, objects, node, step),
            Event::Synced { node, bad } => bad.into_iter().for_each(|file| self.file_synced(node, file, step)),
            Event::GoodReplicas { name, objects, node } => self.good_replicas(&name, &objects, node, step),
        }
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + self.config.tick_us;
            self.tick(step);
        }
        while let Some(body) = step.own.pop_front() {
            self.hear(self.config.node, body, step);
        }
    }

    /// The time of the next tick, at which the node must be called if no event comes before.
    pub fn next_timeout_us(&self) -> u64 {
        self.next_tick_us
    }

    /// The latest view that the node knows.
    pub fn view(&self) -> Option<&View> {
        self.current.as_ref().map(|current| &current.view)
    }

    /// The ring of that view.
    pub fn ring(&self) -> Option<&Ring> {
        self.current.as_ref().map(|current| &current.ring)
    }

    /// Checks the invariants that hold between two events.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn validate(&self) {
        let Some(current) = &self.current else { return assert!(self.pending.is_empty() && self.leading.is_empty()) };
        assert!(self.rounds.values().all(|round| round.view <= current.view.number));
        self.validate_leading(current);
        self.validate_pending();
        self.repairs.validate();
        self.lost.validate();
        self.syncing.validate();
        self.fetches.validate();
    }

    fn tick(&mut self, step: &mut Step) {
        if self.current.is_none() {
            return;
        }
        let (me, boot, has_settled) = (self.config.node, self.boot, self.has_settled());
        if has_settled {
            self.learn_settled(me, false, step);
        }
        let heartbeat =
            MessageBody::Heartbeat { sent_us: step.now_us, boot, has_settled, is_settled: self.is_settled() };
        let Some(current) = &self.current else { return };
        let others: Vec<_> = current.view.members.iter().copied().filter(|node| *node != me).collect();
        others.into_iter().for_each(|node| self.send(node, heartbeat.clone(), step));
        self.propose_view(step);
        self.advance_view_change(step);
        self.resend_pending(step);
        self.repair(step);
        self.search(step);
        self.sync_files(step);
    }

    /// Checks that sender and receiver are in the same view. If not, the view of the later one is sent to the other.
    fn received(&mut self, from: NodeId, message: RingMessage, step: &mut Step) {
        let number = self.number();
        self.paxos.heard(from);
        match message.body {
            MessageBody::Decided(view) if view.system == self.config.system => self.enter_view(view, step),
            // A view of another file system.
            MessageBody::Decided(_) => {}
            _ if message.view > number => self.send(from, MessageBody::Behind, step),
            _ if message.view < number => {
                let current = self.current.as_ref().expect("a node with a view number has a view");
                self.send(from, MessageBody::Decided(current.view.clone()), step);
            }
            body => {
                self.leases.heard(from);
                self.hear(from, body, step);
            }
        }
    }

    /// Handles a message of a node in the same view.
    fn hear(&mut self, from: NodeId, body: MessageBody, step: &mut Step) {
        if self.current.is_none() {
            return;
        }
        match body {
            MessageBody::Behind | MessageBody::Decided(_) => {}
            MessageBody::Prepare(ballot) => self.prepare(from, ballot, step),
            MessageBody::Promise(ballot, accepted) => self.promise(from, ballot, accepted, step),
            MessageBody::Accept(proposal) => self.accept(from, proposal, step),
            MessageBody::Accepted(ballot) => self.accepted(from, ballot, step),
            MessageBody::Outbid(promised) => self.paxos.outbid(promised),
            MessageBody::Heartbeat { sent_us, boot, has_settled, is_settled } => {
                if has_settled || is_settled {
                    self.learn_settled(from, is_settled, step);
                }
                self.leases.promise(from, step.now_us);
                self.send(from, MessageBody::Heard { sent_us, boot }, step);
            }
            MessageBody::Heard { sent_us, boot } if boot == self.boot => self.leases.grant(from, sent_us),
            MessageBody::Heard { .. } => {}
            MessageBody::Collect { partition, round, after, digest } => {
                self.collect(from, partition, round, after, digest, step);
            }
            MessageBody::Collected { partition, round, after, page } => {
                self.collected(from, partition, round, &after, page, step);
            }
            MessageBody::OfferSync { partition, round } => self.sync_offered(from, partition, round, step),
            MessageBody::RequestPage { partition, round, after, digest } => {
                self.page_requested(from, partition, round, after, digest, step)
            }
            MessageBody::SameContent { partition, round } => self.same_content(from, partition, round, step),
            MessageBody::SyncPage { partition, round, after, page } => {
                self.store_page(from, partition, round, &after, page, step)
            }
            MessageBody::InSync { partition, round } => self.synchronized(from, partition, round, step),
            MessageBody::Write { partition, round, name, stored } => {
                self.write(from, partition, round, name, stored, step)
            }
            MessageBody::Written { name, version } => self.written(from, &name, version, step),
            MessageBody::Move { from: old, version, to, token } => self.move_away(from, old, version, to, token, step),
            MessageBody::Moved { to, token, from: old, record } => self.moved(from, &to, token, old, record, step),
            MessageBody::Gone { to, token } => self.gone(&to, token, step),
            MessageBody::Arrived { from: old, token } => self.arrived(&old, token, step),
            MessageBody::FetchChunk { name, chunk } => self.fetch_chunk(from, name, chunk, step),
            MessageBody::ChunkStatus { name, object, is_here } => self.chunk_status(from, &name, object, is_here, step),
            MessageBody::Drop(objects) => {
                step.records.effects.extend(objects.into_iter().map(|object| Effect::Drop { object }))
            }
        }
    }

    /// Number of the node's view; 0 if it has none.
    pub(crate) fn number(&self) -> u64 {
        self.current.as_ref().map_or(0, |current| current.view.number)
    }

    /// The round in which this node leads now.
    pub(crate) fn round(&self) -> Round {
        Round { view: self.number(), boot: self.boot }
    }

    pub(crate) fn send(&self, to: NodeId, body: MessageBody, step: &mut Step) {
        if to == self.config.node {
            step.own.push_back(body);
        } else {
            let message = RingMessage { view: self.number(), body };
            step.records.effects.push(Effect::Send { to, message });
        }
    }

    /// Sends to all members, including this node if it is one.
    pub(crate) fn send_members(&self, body: &MessageBody, step: &mut Step) {
        for node in self.current.iter().flat_map(|current| &current.view.members) {
            self.send(*node, body.clone(), step);
        }
    }
}
