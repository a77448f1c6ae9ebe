//! The state machine of a node: routes events and messages to the parts that handle them.

use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::event::{Config, Effect, Event, FileAnswer, FileOperation, PersistentState, Save};
use crate::fetch::ChunkFetches;
use crate::lease::Leases;
use crate::membership::{CurrentView, RingMembership};
use crate::message::{MessageBody, RingMessage};
use crate::paxos::ViewPaxos;
use crate::record::Records;
use crate::record_view::RecordView;
use crate::recover::recovered;
use crate::rename::{MoveRequest, MovedFile};
use crate::repair::ChunkRepair;
use crate::replica::{PartitionPeer, PartitionReplicas};
use crate::ring::Ring;
use crate::serve::LedNames;
use crate::step::Step;
use crate::view::View;
use crate::view_change::LedPartitions;

/// See the [crate's](crate) documentation.
pub struct RingNode {
    here: RingMembership,
    paxos: ViewPaxos,
    replicas: PartitionReplicas,
    names: LedNames,
    repair: ChunkRepair,
    fetches: ChunkFetches,
    next_tick_us: u64,
}

impl RingNode {
    /// A node that starts with the state it has saved. `now_us` here and below are microseconds of
    /// a clock that never goes back while the process lives.
    pub fn new(
        config: Config,
        saved: PersistentState,
        now_us: u64,
        effects: &mut Vec<Effect>,
    ) -> Self {
        let PersistentState { boots, view, acceptor, settled, rounds } = saved;
        let boot = boots + 1;
        effects.push(Effect::Save(Save::Boots(boot)));
        let is_new = view.is_none();
        let view = view.or_else(|| {
            let view = config.found.then(|| {
                View::founded_by(config.system, config.node, config.partitions, config.replication)
            })?;
            effects.push(Effect::Save(Save::View(view.clone())));
            Some(view)
        });
        let leases = Leases::new(config.lease_us, now_us, is_new);
        let here = RingMembership { config, boot, current: view.map(CurrentView::new), leases };
        let mut replicas = PartitionReplicas::new(rounds);
        let led = LedPartitions::lead_again(&here, &mut replicas, effects);
        RingNode {
            here,
            paxos: ViewPaxos::new(acceptor, settled, now_us),
            replicas,
            names: LedNames::new(led),
            repair: ChunkRepair::default(),
            fetches: ChunkFetches::default(),
            next_tick_us: now_us,
        }
    }

    /// Applies one event and appends the resulting actions to `effects`.
    pub fn handle(
        &mut self,
        now_us: u64,
        event: Event,
        records: &impl Records,
        effects: &mut Vec<Effect>,
    ) {
        let step = &mut Step::new(now_us, RecordView::new(records, effects));
        let RingNode { here, names, repair, .. } = self;
        match event {
            Event::Tick => {}
            Event::Alive(alive) => self.paxos.alive(alive),
            Event::Closed(node) => self.paxos.closed(node),
            Event::Received { from, message } => self.received(from, message, step),
            Event::Requested { request, operation } => self.requested(request, operation, step),
            Event::Fetched { object } => self.fetches.fetched(here, object, true, step),
            Event::FetchFailed { object } => self.fetches.fetched(here, object, false, step),
            Event::BadReplicas { name, objects, node } => {
                repair.bad_replicas(here, names, &name, (node, objects), step)
            }
            Event::GoodReplicas { name, objects, node } => {
                repair.good_replicas(here, names, &name, (node, &objects), step);
            }
            Event::Synced { node, bad } => {
                for file in bad {
                    let name = file.name.clone();
                    if names.file_synced(here, node, file, step) {
                        repair.rescan_name(here, &name, now_us);
                    }
                }
            }
        }
        if now_us >= self.next_tick_us {
            self.next_tick_us = now_us + self.here.config.tick_us;
            self.tick(step);
        }
        while let Some(body) = step.own.pop_front() {
            self.hear(self.here.config.node, body, step);
        }
    }

    /// The time of the next tick, at which the node must be called if no event comes before.
    pub fn next_timeout_us(&self) -> u64 {
        self.next_tick_us
    }

    /// The latest view that the node knows.
    pub fn view(&self) -> Option<&View> {
        self.here.current.as_ref().map(|current| &current.view)
    }

    /// The ring of that view.
    pub fn ring(&self) -> Option<&Ring> {
        self.here.current.as_ref().map(|current| &current.ring)
    }

    /// Whether this node answers requests for a partition now. No other node does at the same time.
    pub fn answers(&self, partition: u16, now_us: u64) -> bool {
        self.names.partitions.answers(&self.here, partition, now_us)
    }

    /// Whether all partitions of the view are known to have a write quorum in it. From then on the
    /// view tolerates as many lost nodes as if none had been lost before.
    pub fn is_settled(&self) -> bool {
        self.paxos.is_settled(&self.here)
    }

    /// Checks the invariants that hold between two events.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn validate(&self) {
        assert!(self.replicas.rounds().values().all(|round| round.view <= self.here.number()));
        self.names.validate(&self.here, &self.replicas);
        self.repair.validate();
        self.fetches.validate();
    }

    fn tick(&mut self, step: &mut Step) {
        let RingNode { here, paxos, replicas, names, repair, .. } = self;
        let Some(current) = &here.current else { return };
        let (me, boot, has_settled) =
            (here.config.node, here.boot, names.partitions.have_settled(here));
        if has_settled {
            paxos.learn_settled(here, me, false, step);
        }
        let is_settled = paxos.is_settled(here);
        let heartbeat =
            MessageBody::Heartbeat { sent_us: step.now_us, boot, has_settled, is_settled };
        let others = current.view.members.iter().filter(|node| **node != me);
        others.for_each(|node| here.send(*node, heartbeat.clone(), step));
        paxos.propose_view(here, step);
        names.partitions.advance(here, replicas, step);
        names.resend_pending(here, step);
        repair.repair(here, replicas, names, step);
        repair.search(here, names, step);
        names.sync_files(here, step);
    }

    /// A client requests an operation.
    fn requested(&mut self, request: u64, operation: FileOperation, step: &mut Step) {
        let FileOperation::Recover { without, now_s } = &operation else {
            return self.names.requested(&self.here, request, operation, step);
        };
        let answer = recovered(&self.here, &self.paxos, without, *now_s, step.now_us).map(|view| {
            let members = view.members.clone();
            self.enter_view(view.clone(), step);
            self.tell_view(members.iter().copied(), &view, step);
            FileAnswer::Recovered { members }
        });
        step.answer(request, answer);
    }

    /// Checks that sender and receiver are in the same view. If not, the view of the later one is
    /// sent to the other.
    fn received(&mut self, from: NodeId, message: RingMessage, step: &mut Step) {
        let number = self.here.number();
        self.paxos.heard(from);
        match message.body {
            MessageBody::Decided(view) if self.here.may_enter(&view) => self.enter_view(view, step),
            // A view that this node has left or is in, or a view of another file system.
            MessageBody::Decided(_) => {}
            _ if message.view > number => self.here.send(from, MessageBody::Behind, step),
            _ if message.view < number => {
                let view = self.view().expect("a node with a view number has a view").clone();
                self.here.send(from, MessageBody::Decided(view), step);
            }
            body => {
                self.here.leases.heard(from);
                self.hear(from, body, step);
            }
        }
    }

    /// Handles a message of a node in the same view.
    fn hear(&mut self, from: NodeId, body: MessageBody, step: &mut Step) {
        if self.here.current.is_none() {
            return;
        }
        let RingNode { here, paxos, names, repair, fetches, .. } = self;
        match body {
            MessageBody::Behind | MessageBody::Decided(_) => {}
            MessageBody::Prepare(ballot) => paxos.prepare(here, from, ballot, step),
            MessageBody::Promise(ballot, accepted) => {
                paxos.promise(here, from, ballot, accepted, step)
            }
            MessageBody::Accept(proposal) => paxos.accept(here, from, proposal, step),
            MessageBody::Accepted(ballot) => {
                if let Some(view) = paxos.accepted(here, from, ballot) {
                    self.enter_chosen_view(view, step);
                }
            }
            MessageBody::Outbid(promised) => paxos.outbid(promised),
            MessageBody::Heartbeat { sent_us, boot, has_settled, is_settled } => {
                if has_settled || is_settled {
                    paxos.learn_settled(here, from, is_settled, step);
                }
                here.leases.promise(from, step.now_us);
                here.send(from, MessageBody::Heard { sent_us, boot }, step);
            }
            MessageBody::Heard { sent_us, boot } if boot == here.boot => {
                here.leases.grant(from, sent_us)
            }
            MessageBody::Heard { .. } => {}
            MessageBody::Written { name, version } => {
                names.written(here, from, &name, version, step)
            }
            MessageBody::Move { from: old, version, to, token } => {
                names.move_away(here, from, MoveRequest { from: old, version, to, token }, step);
            }
            MessageBody::Moved { to, token, from: old, record } => {
                names.moved(here, from, MovedFile { to, token, from: old, record }, step);
            }
            MessageBody::Gone { to, token } => names.gone(here, &to, token, step),
            MessageBody::Arrived { from: old, token } => names.arrived(here, &old, token, step),
            MessageBody::FetchChunk { name, chunk } => {
                fetches.fetch_chunk(here, from, name, chunk, step)
            }
            MessageBody::ChunkStatus { name, object, is_here } => {
                if repair.fetched(here, from, &name, (object, is_here), step.now_us) {
                    repair.go_on(here, &self.replicas, names, &name, step);
                }
            }
            MessageBody::Drop(objects) => step
                .records
                .effects
                .extend(objects.into_iter().map(|object| Effect::Drop { object })),
            of_partition => self.hear_of_partition(from, of_partition, step),
        }
    }

    /// Handles a message between the leader of a partition and a replica.
    fn hear_of_partition(&mut self, from: NodeId, body: MessageBody, step: &mut Step) {
        let RingNode { here, replicas, names, .. } = self;
        let led = &mut names.partitions;
        let peer = |partition, round| PartitionPeer { node: from, partition, round };
        match body {
            MessageBody::Collect { partition, round, after, digest } => {
                replicas.collect(here, peer(partition, round), after, digest, step);
            }
            MessageBody::Collected { partition, round, after, page } => {
                led.collected(here, replicas, peer(partition, round), &after, page, step);
            }
            MessageBody::OfferSync { partition, round } => {
                replicas.sync_offered(here, peer(partition, round), step)
            }
            MessageBody::RequestPage { partition, round, after, digest } => {
                led.page_requested(here, peer(partition, round), after, digest, step);
            }
            MessageBody::SameContent { partition, round } => {
                replicas.same_content(here, peer(partition, round), step);
            }
            MessageBody::SyncPage { partition, round, after, page } => {
                replicas.store_page(here, peer(partition, round), &after, page, step);
            }
            MessageBody::InSync { partition, round } => {
                led.synchronized(here, replicas, peer(partition, round), step);
            }
            MessageBody::Write { partition, round, name, stored } => {
                replicas.write(here, peer(partition, round), name, stored, step);
            }
            other => unreachable!("{other:?} is of no partition"),
        }
    }

    /// The members have chosen a view. The members of both views are told.
    fn enter_chosen_view(&mut self, view: View, step: &mut Step) {
        let told = self
            .view()
            .expect("a node that proposes has a view")
            .members
            .union(&view.members)
            .copied();
        let told: Vec<NodeId> = told.collect();
        self.enter_view(view.clone(), step);
        self.tell_view(told, &view, step);
    }

    fn tell_view(&self, nodes: impl IntoIterator<Item = NodeId>, view: &View, step: &mut Step) {
        for node in nodes.into_iter().filter(|node| *node != self.here.config.node) {
            self.here.send(node, MessageBody::Decided(view.clone()), step);
        }
    }

    /// Enters a later view.
    fn enter_view(&mut self, view: View, step: &mut Step) {
        step.push(Effect::Save(Save::View(view.clone())));
        let next = CurrentView::new(view);
        let led = self.names.partitions.in_next_view(&self.here, &next);
        self.repair.enter_view(&next.view.members);
        self.here.enter(next, step.now_us);
        self.paxos.enter_view(step.now_us);
        self.replicas.enter_view();
        self.names.enter_view(&self.here, led, step);
        self.names.partitions.continue_serving(&self.here, &mut self.replicas, step);
        self.replicas.forget_partitions(&self.here, step);
        self.names.partitions.advance(&self.here, &mut self.replicas, step);
    }
}
