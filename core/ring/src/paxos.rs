//! The choice of the next view: single-decree Paxos among the members of the current view (Lamport
//! 2001).
//!
//! The lowest member that is alive proposes first, the others after a delay that grows with their
//! rank. If proposals meet, the ballots decide. The chosen view is sent to all members, and to
//! every node that shows that it does not know it.

use alloc::collections::{BTreeMap, BTreeSet};

use eyas_types::dfs::NodeId;

use crate::ballot::{Acceptor, Ballot, Proposal};
use crate::event::{Effect, Save};
use crate::membership::{CurrentView, RingMembership};
use crate::message::MessageBody;
use crate::step::Step;
use crate::view::{View, majority};

/// What a member knows about which other members are alive, and its attempts to have a view chosen.
#[derive(Default)]
pub(crate) struct ViewPaxos {
    pub acceptor: Acceptor,
    alive: BTreeSet<NodeId>,
    /// For each member that is not alive: the time since when it is not.
    missing_since: BTreeMap<NodeId, u64>,
    /// Members that have closed their connection and sent nothing since. A closed connection alone
    /// proves little, since connections break for many reasons.
    closed: BTreeSet<NodeId>,
    /// The time when the current view was entered.
    entered_us: u64,
    /// The time since when a new view is wanted.
    wanted_since: Option<u64>,
    /// The members of the view that is wanted.
    wanted: BTreeSet<NodeId>,
    /// The highest ballot number seen.
    highest: u64,
    attempt: Option<Attempt>,
    /// Members that have reported that all partitions they lead have a quorum in this view.
    settled: BTreeSet<NodeId>,
    /// The latest view in which all members have reported this.
    settled_view: u64,
}

struct Attempt {
    ballot: Ballot,
    promises: BTreeMap<NodeId, Option<Proposal>>,
    /// Set when a majority has promised.
    proposal: Option<Proposal>,
    accepted: BTreeSet<NodeId>,
    /// The time when the attempt is given up.
    until_us: u64,
}

impl ViewPaxos {
    /// The state of a node that starts.
    pub fn new(acceptor: Acceptor, settled_view: u64, now_us: u64) -> Self {
        ViewPaxos { acceptor, settled_view, entered_us: now_us, ..ViewPaxos::default() }
    }

    pub fn enter_view(&mut self, now_us: u64) {
        self.entered_us = now_us;
        (self.attempt, self.wanted_since) = (None, None);
        self.missing_since.clear();
        self.settled.clear();
    }

    pub fn alive(&mut self, alive: BTreeSet<NodeId>) {
        self.alive = alive;
    }

    pub fn is_alive(&self, node: NodeId) -> bool {
        self.alive.contains(&node)
    }

    pub fn closed(&mut self, node: NodeId) {
        self.closed.insert(node);
    }

    pub fn heard(&mut self, node: NodeId) {
        self.closed.remove(&node);
    }

    /// A member has promised to refuse lower ballots than this one.
    pub fn outbid(&mut self, promised: Ballot) {
        self.highest = self.highest.max(promised.number);
    }

    /// Whether all partitions of the view are known to have a write quorum in it. From then on the
    /// view tolerates as many lost nodes as if none had been lost before.
    pub fn is_settled(&self, here: &RingMembership) -> bool {
        here.current.as_ref().is_some_and(|current| self.settled_view == current.view.number)
    }

    /// A member reports that all partitions it leads have a quorum, or (`all`) that this holds for
    /// all members.
    pub fn learn_settled(
        &mut self,
        here: &RingMembership,
        node: NodeId,
        all: bool,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        self.settled.insert(node);
        let number = current.view.number;
        if self.settled_view < number && (all || current.view.members.is_subset(&self.settled)) {
            self.settled_view = number;
            step.push(Effect::Save(Save::Settled(number)));
        }
    }

    /// Proposes a view if one is wanted and it is this node's turn.
    pub fn propose_view(&mut self, here: &RingMembership, step: &mut Step) {
        let is_settled = self.is_settled(here);
        let Some(current) = &here.current else { return };
        let (members, me, now_us) = (&current.view.members, here.config.node, step.now_us);
        if !members.contains(&me) {
            return;
        }
        self.count_missing(members, me, now_us);
        let wanted = self.wanted_members(here, current, now_us);
        let is_old = is_settled && now_us >= self.entered_us + here.config.tidy_us;
        // A proposal that only a few members have accepted must be completed now. Otherwise it
        // could be chosen later, when other members are wanted.
        let is_open = self.acceptor.view > current.view.number && self.acceptor.accepted.is_some();
        if wanted == *members && !is_old && !is_open {
            (self.wanted_since, self.attempt) = (None, None);
            return;
        }
        let since_us = *self.wanted_since.get_or_insert(now_us);
        let lives = |node: &&NodeId| **node == me || self.alive.contains(node);
        let rank = members.iter().filter(lives).take_while(|node| **node != me).count() as u64;
        let is_under_way = self.attempt.as_ref().is_some_and(|attempt| now_us < attempt.until_us);
        // If messages are sent again after 0.5 s, the lowest living member proposes at once, the
        // next one 1 s later, and the third one 2 s later.
        if is_under_way || now_us < since_us + rank * 2 * here.config.resend_us {
            return;
        }
        if current.view.followed_by(wanted.clone(), is_settled).is_none() {
            return;
        }
        self.highest += 1;
        let ballot = Ballot { number: self.highest, node: me.0, boot: here.boot };
        // Proposers that outbid each other wait for different times, according to their ranks: 1 s,
        // 1.5 s, 2 s.
        let until_us = now_us + (2 + rank) * here.config.resend_us;
        let (promises, accepted) = Default::default();
        self.attempt = Some(Attempt { ballot, promises, proposal: None, accepted, until_us });
        self.wanted = wanted;
        here.send_members(&MessageBody::Prepare(ballot), step);
    }

    /// Notes since when members have not been alive.
    fn count_missing(&mut self, members: &BTreeSet<NodeId>, me: NodeId, now_us: u64) {
        let lives = |node: &NodeId| *node == me || self.alive.contains(node);
        self.missing_since.retain(|node, _| !lives(node));
        self.closed.retain(|node| members.contains(node));
        for node in members.iter().filter(|node| !lives(node)) {
            self.missing_since.entry(*node).or_insert(now_us);
        }
    }

    /// The members of the next view, if it began now: those that are not missed, and the living
    /// nodes that join.
    fn wanted_members(
        &self,
        here: &RingMembership,
        current: &CurrentView,
        now_us: u64,
    ) -> BTreeSet<NodeId> {
        let is_missed = |node: &NodeId| {
            let has_closed = self.closed.contains(node);
            let patience_us =
                if has_closed { here.config.restart_us } else { here.config.patience_us };
            self.missing_since.get(node).is_some_and(|since_us| now_us >= since_us + patience_us)
        };
        let stay = current.view.members.iter().filter(|node| !is_missed(node));
        // Members that were given up may return only when their old entries can no longer be asked
        // for.
        let may_come = |node: &&NodeId| self.is_settled(here) || !current.view.lost.contains(node);
        stay.chain(self.alive.iter().filter(may_come)).copied().collect()
    }

    pub fn prepare(
        &mut self,
        here: &RingMembership,
        from: NodeId,
        ballot: Ballot,
        step: &mut Step,
    ) {
        let Some(acceptor) = self.acceptor(here) else { return };
        if ballot < acceptor.promised {
            let promised = acceptor.promised;
            return here.send(from, MessageBody::Outbid(promised), step);
        }
        acceptor.promise(ballot);
        let accepted = acceptor.accepted.clone();
        self.save_acceptor(step);
        here.send(from, MessageBody::Promise(ballot, accepted), step);
    }

    pub fn promise(
        &mut self,
        here: &RingMembership,
        from: NodeId,
        ballot: Ballot,
        accepted: Option<Proposal>,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        let is_settled = self.is_settled(here);
        let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.ballot == ballot) else {
            return;
        };
        if !current.view.members.contains(&from) || attempt.proposal.is_some() {
            return;
        }
        attempt.promises.insert(from, accepted);
        if attempt.promises.len() < majority(current.view.members.len()) {
            return;
        }
        let earlier = attempt.promises.values().flatten().max_by_key(|proposal| proposal.ballot);
        let view = match earlier {
            Some(proposal) => Some(proposal.view.clone()),
            None => current.view.followed_by(self.wanted.clone(), is_settled),
        };
        let Some(view) = view else { return };
        let proposal = Proposal { ballot, view };
        attempt.proposal = Some(proposal.clone());
        here.send_members(&MessageBody::Accept(proposal), step);
    }

    pub fn accept(
        &mut self,
        here: &RingMembership,
        from: NodeId,
        proposal: Proposal,
        step: &mut Step,
    ) {
        // A view that no node may enter is not chosen.
        let Some(acceptor) = self.acceptor(here).filter(|_| here.may_enter(&proposal.view)) else {
            return;
        };
        let ballot = proposal.ballot;
        if ballot < acceptor.promised {
            let promised = acceptor.promised;
            return here.send(from, MessageBody::Outbid(promised), step);
        }
        acceptor.accept(proposal);
        self.save_acceptor(step);
        here.send(from, MessageBody::Accepted(ballot), step);
    }

    /// A member has accepted the proposal of a ballot. Returns the view that is chosen, when a
    /// majority has.
    pub fn accepted(
        &mut self,
        here: &RingMembership,
        from: NodeId,
        ballot: Ballot,
    ) -> Option<View> {
        let members = &here.current.as_ref()?.view.members;
        let attempt = self
            .attempt
            .as_mut()
            .filter(|attempt| attempt.ballot == ballot && members.contains(&from))?;
        attempt.accepted.insert(from);
        if attempt.accepted.len() < majority(members.len()) {
            return None;
        }
        Some(attempt.proposal.as_ref().expect("what was accepted was proposed").view.clone())
    }

    /// The promises of this member about the next view.
    fn acceptor(&mut self, here: &RingMembership) -> Option<&mut Acceptor> {
        let view = &here.current.as_ref()?.view;
        let acceptor = &mut self.acceptor;
        if acceptor.view != view.number + 1 {
            *acceptor = Acceptor::of(view.number + 1);
        }
        view.members.contains(&here.config.node).then_some(acceptor)
    }

    fn save_acceptor(&self, step: &mut Step) {
        step.push(Effect::Save(Save::Acceptor(self.acceptor.clone())));
    }
}
