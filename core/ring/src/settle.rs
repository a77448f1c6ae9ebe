//! What a leader does before it serves a partition: collect, and fill.
//!
//! *Collect*: of each set of members in which something may have been acknowledged (the view's sources), it asks a read
//! quorum of those who were the partition's replicas what they have, and keeps the highest version of each name. They
//! are in the new view by then, and refuse whoever leads in an older one. *Fill*: it brings the replicas of this view to
//! exactly its own state. When a write quorum is there, itself counted, it serves; the others follow.
//!
//! Who led a partition in all sources, and served it, has all that was ever acknowledged, and goes on at once; it fills
//! meanwhile, since the next view collects from replicas of this one. So does a leader that starts again in its view, except that
//! it serves only when it has filled: it does not know what of its own was acknowledged.
//!
//! Nobody sends what the other has: equal digests end both.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::disk::Digest;
use crate::event::{Effect, Save};
use crate::message::{Body, Page};
use crate::node::{Node, Place, Turn};
use crate::record::Round;
use crate::view::{View, majority};

/// So many partitions are being settled by a leader at a time.
pub const MAX_SETTLING: usize = 32;

/// How it stands with a partition that this node leads.
pub(crate) struct Leading {
    phase: Phase,
    /// Whether it was served by this node already when the view began.
    goes_on: bool,
    /// Replicas that are up to date in this round. Only their acknowledgements count.
    pub filled: BTreeSet<NodeId>,
    /// Of the last write in this round.
    pub sequence: u64,
    /// When others were last asked for what is missing.
    asked_us: u64,
}

enum Phase {
    /// For others to be settled.
    Waiting,
    /// After which name each who was asked is to go on; nothing, once all has come.
    Collecting(BTreeMap<NodeId, Option<String>>),
    /// All that was ever acknowledged is here.
    Filling,
}

impl Leading {
    fn new(phase: Phase, goes_on: bool) -> Self {
        Leading { phase, goes_on, filled: BTreeSet::new(), sequence: 0, asked_us: 0 }
    }
}

impl Node {
    /// Whether all partitions that this node leads have a write quorum in this view.
    pub(crate) fn has_settled(&self) -> bool {
        let Some(place) = &self.place else { return false };
        self.leading.iter().all(|(partition, leading)| leading.filled.len() >= place.write_quorum(*partition))
    }

    /// Whether a partition is led by this node, and what it has of it is all that was acknowledged, and no more.
    pub(crate) fn serves(&self, partition: u16) -> bool {
        let Some(place) = &self.place else { return false };
        let serves = |leading: &Leading| leading.goes_on || leading.filled.len() >= place.write_quorum(partition);
        self.leading.get(&partition).is_some_and(serves)
    }

    /// Whether nobody else can serve a partition now; see `lease.rs`.
    pub(crate) fn is_leased(&self, partition: u16, now_us: u64) -> bool {
        let Some(place) = &self.place else { return false };
        let replicas = place.ring.replicas(partition).iter();
        let waiting = replicas.filter(|node| self.leases.is_granted(**node, now_us)).count();
        let is_with_most = 1 + self.leases.granted(now_us) >= majority(place.view.members.len());
        is_with_most && 1 + waiting >= place.write_quorum(partition)
    }

    /// Whether this node answers for a partition now. No other does at the same time.
    pub fn answers(&self, partition: u16, now_us: u64) -> bool {
        self.serves(partition) && self.is_leased(partition, now_us)
    }

    /// A node that starts leads what it led in its view.
    pub(crate) fn lead_again(&mut self, effects: &mut Vec<Effect>) {
        let Some(place) = &self.place else { return };
        let (me, round) = (self.config.node, self.round());
        for partition in (0..place.ring.partitions()).filter(|partition| place.ring.replicas(*partition)[0] == me) {
            let own = self.rounds.get(&partition).filter(|own| own.view == round.view);
            let phase = if own.is_some() { Phase::Filling } else { Phase::Waiting };
            let mut leading = Leading::new(phase, false);
            if own.is_some() {
                leading.filled.insert(me);
                self.rounds.insert(partition, round);
                effects.push(Effect::Save(Save::Round { partition, round }));
            }
            self.leading.insert(partition, leading);
        }
    }

    /// A view was chosen.
    pub(crate) fn enter_view(&mut self, view: View, turn: &mut Turn) {
        if view.number <= self.number() {
            return;
        }
        turn.disk.effects.push(Effect::Save(Save::View(view.clone())));
        let me = self.config.node;
        let (members, place) = (view.members.clone(), Place::new(view));
        let leads = |partition: &u16| place.ring.replicas(*partition)[0] == me;
        let mut leading = BTreeMap::new();
        for partition in (0..place.ring.partitions()).filter(leads) {
            let led = place.sources.iter().all(|source| source.replicas(partition)[0] == me);
            let goes_on = self.number() >= place.view.base && led && self.serves(partition);
            leading.insert(partition, Leading::new(Phase::Waiting, goes_on));
        }
        (self.place, self.leading) = (Some(place), leading);
        self.leases.enter_view();
        self.chooser.enter_view(turn.now_us);
        self.repairs.enter_view(&members);
        self.lost.enter_view();
        self.receiving.clear();
        self.leave_work(turn);
        let going_on: Vec<u16> =
            self.leading.iter().filter(|(_, led)| led.goes_on).map(|(partition, _)| *partition).collect();
        going_on.into_iter().for_each(|partition| self.complete(partition, turn));
        self.forget_partitions(turn);
        self.settle(turn);
    }

    /// Has no more of partitions than what it is, or may be asked for.
    fn forget_partitions(&mut self, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let me = self.config.node;
        let is_kept = |partition: &u16| {
            place.sources.iter().chain([&place.ring]).any(|ring| ring.replicas(*partition).contains(&me))
        };
        let forgotten: Vec<u16> = self.rounds.keys().copied().filter(|partition| !is_kept(partition)).collect();
        forgotten.into_iter().for_each(|partition| self.clear(partition, turn));
    }

    fn clear(&mut self, partition: u16, turn: &mut Turn) {
        self.rounds.remove(&partition);
        turn.disk.effects.push(Effect::Save(Save::Round { partition, round: Round::default() }));
        turn.disk.clear(partition);
    }

    /// Begins with partitions that wait, as many as there may be, and asks again for what did not come.
    pub(crate) fn settle(&mut self, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let is_under_way = |(partition, leading): &(&u16, &Leading)| match leading.phase {
            Phase::Waiting => false,
            Phase::Collecting(_) => true,
            Phase::Filling => leading.filled.len() < place.write_quorum(**partition),
        };
        // It counts itself among those who refuse earlier leaders.
        let is_free = place.sources.is_empty() || self.leases.is_free(turn.now_us);
        let most = if is_free { MAX_SETTLING } else { 0 };
        let mut room = most.saturating_sub(self.leading.iter().filter(is_under_way).count());
        let waits = |(_, leading): &(&u16, &Leading)| matches!(leading.phase, Phase::Waiting);
        let waiting: Vec<u16> = self.leading.iter().filter(waits).map(|(partition, _)| *partition).collect();
        for partition in waiting {
            if room == 0 {
                break;
            }
            self.start_collecting(partition, turn);
            room -= usize::from(!self.serves(partition));
        }
        let is_due = |leading: &Leading| turn.now_us >= leading.asked_us + self.config.resend_us;
        let due: Vec<u16> =
            self.leading.iter().filter(|(_, leading)| is_due(leading)).map(|(partition, _)| *partition).collect();
        due.into_iter().for_each(|partition| self.ask(partition, turn));
    }

    fn start_collecting(&mut self, partition: u16, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let me = self.config.node;
        let asked = place.sources.iter().flat_map(|source| source.replicas(partition));
        let counts = |node: &&NodeId| **node != me && !place.view.lost.contains(node);
        let asked = asked.filter(counts).map(|node| (*node, Some(String::new()))).collect();
        let counts = self.rounds.get(&partition).is_some_and(|round| round.view >= place.view.base);
        if !counts {
            self.clear(partition, turn);
        }
        self.leading.get_mut(&partition).expect("it leads it").phase = Phase::Collecting(asked);
        if !self.complete_if_collected(partition, turn) {
            self.ask(partition, turn);
        }
    }

    /// Asks for what is missing of a partition.
    fn ask(&mut self, partition: u16, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let round = self.round();
        let leading = self.leading.get_mut(&partition).expect("it leads it");
        leading.asked_us = turn.now_us;
        let mut asked = Vec::new();
        match &leading.phase {
            Phase::Waiting => {}
            Phase::Collecting(progress) => {
                let mut digest = None;
                for (node, after) in progress {
                    let Some(after) = after.clone() else { continue };
                    if after.is_empty() && digest.is_none() && self.rounds.contains_key(&partition) {
                        digest = Some(turn.disk.digest(partition, place.view.base));
                    }
                    asked.push((*node, Body::Collect { partition, round, after, digest }));
                }
            }
            Phase::Filling => {
                let missing = place.ring.replicas(partition).iter().filter(|node| !leading.filled.contains(node));
                asked.extend(missing.map(|node| (*node, Body::Offer { partition, round })));
            }
        }
        asked.into_iter().for_each(|(node, body)| self.send(node, body, turn));
    }

    pub(crate) fn collected(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: &str,
        page: Page,
        turn: &mut Turn,
    ) {
        if round != self.round() {
            return;
        }
        let Some(Leading { phase: Phase::Collecting(progress), .. }) = self.leading.get_mut(&partition) else { return };
        let Some(expected) = progress.get_mut(&from).filter(|expected| expected.as_deref() == Some(after)) else {
            return;
        };
        *expected = page.entries.last().filter(|_| page.has_more).map(|(name, _)| name.as_str().to_owned());
        let next = expected.clone();
        for (name, stored) in page.entries {
            if turn.disk.get(partition, &name).is_none_or(|own| own.version < stored.version) {
                turn.disk.save(partition, &name, stored);
            }
        }
        match next {
            Some(after) => self.send(from, Body::Collect { partition, round, after, digest: None }, turn),
            None => drop(self.complete_if_collected(partition, turn)),
        }
    }

    fn complete_if_collected(&mut self, partition: u16, turn: &mut Turn) -> bool {
        let (Some(place), Some(leading)) = (&self.place, self.leading.get(&partition)) else { return false };
        let Phase::Collecting(progress) = &leading.phase else { return false };
        let me = self.config.node;
        let has_come = |node: &&NodeId| **node == me || progress.get(*node).is_some_and(Option::is_none);
        let is_enough = place.sources.iter().all(|source| {
            source.replicas(partition).iter().filter(has_come).count() >= place.read_quorum(source, partition)
        });
        if is_enough {
            self.complete(partition, turn);
        }
        is_enough
    }

    /// All that was ever acknowledged of a partition is here.
    fn complete(&mut self, partition: u16, turn: &mut Turn) {
        let round = self.round();
        self.rounds.insert(partition, round);
        turn.disk.effects.push(Effect::Save(Save::Round { partition, round }));
        let leading = self.leading.get_mut(&partition).expect("it leads it");
        leading.phase = Phase::Filling;
        leading.filled.insert(self.config.node);
        self.ask(partition, turn);
    }

    /// A replica wants what comes after a name.
    pub(crate) fn wanted(
        &mut self,
        from: NodeId,
        partition: u16,
        round: Round,
        after: String,
        digest: Option<Digest>,
        turn: &mut Turn,
    ) {
        let Some(place) = self.place.as_ref().filter(|_| self.fills(partition, round)) else { return };
        let base = place.view.base;
        let body = if digest.is_some_and(|digest| digest == turn.disk.digest(partition, base)) {
            Body::Same { partition, round }
        } else {
            let page = turn.disk.page(partition, &after, base);
            Body::Fill { partition, round, after, page }
        };
        self.send(from, body, turn);
    }

    /// A replica is up to date.
    pub(crate) fn filled(&mut self, from: NodeId, partition: u16, round: Round, turn: &mut Turn) {
        if self.fills(partition, round) {
            let served = self.serves(partition);
            self.leading.get_mut(&partition).expect("it leads it").filled.insert(from);
            if !served && self.serves(partition) {
                self.settle(turn);
            }
        }
    }

    pub(crate) fn validate_leading(&self, place: &Place) {
        let me = self.config.node;
        for partition in 0..place.ring.partitions() {
            let replicas = place.ring.replicas(partition);
            let leading = self.leading.get(&partition);
            assert_eq!(leading.is_some(), replicas[0] == me, "{me} and {partition}");
            let Some(Leading { phase, filled, .. }) = leading else { continue };
            assert!(filled.iter().all(|node| replicas.contains(node)), "{filled:?} are not of {replicas:?}");
            let is_complete = matches!(phase, Phase::Filling);
            assert_eq!(is_complete, filled.contains(&me));
            assert_eq!(is_complete, self.rounds.get(&partition) == Some(&self.round()));
            assert!(!self.receiving.contains_key(&partition), "who leads receives nothing");
        }
    }

    fn fills(&self, partition: u16, round: Round) -> bool {
        let is_filling = |leading: &Leading| matches!(leading.phase, Phase::Filling);
        round == self.round() && self.leading.get(&partition).is_some_and(is_filling)
    }
}
