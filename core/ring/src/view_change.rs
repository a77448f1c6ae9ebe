//! The work of a leader before it serves a partition in a new view: collect, then synchronize.
//!
//! *Collect*: in each member set in which entries may have been acknowledged (the view's sources),
//! the leader asks a read quorum of the partition's former replicas for their entries, and keeps
//! the highest version of each name. By then these nodes are in the new view and refuse leaders of
//! older views. *Synchronize*: the leader brings the replicas of the new view to exactly its own
//! state. When a write quorum is synchronized, itself included, it serves; the others follow.
//!
//! A leader that led and served the partition in all sources has every acknowledged entry. It
//! continues to serve at once, and synchronizes in the meantime, since the next view collects from
//! the replicas of this one. A leader that restarts in its view does the same, but serves only
//! after a quorum is synchronized, because it does not know which of its entries were acknowledged.
//!
//! Entries that the other side has are not sent: equal digests end both phases.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use crate::event::Effect;
use crate::membership::{CurrentView, RingMembership};
use crate::message::{MessageBody, Page};
use crate::record::{Digest, RecordVersion};
use crate::replica::{PartitionPeer, PartitionReplicas};
use crate::step::Step;

/// Maximum number of partitions that a leader collects or synchronizes at the same time.
pub const MAX_PARTITIONS_SYNCING: usize = 32;

/// The state of a partition that this node leads.
#[derive(Debug)]
struct LedPartition {
    phase: Phase,
    /// Whether this node served the partition already when the view began.
    continues: bool,
    /// Replicas that are synchronized in this round. Only their acknowledgements count.
    synchronized: BTreeSet<NodeId>,
    /// Number of the last write in this round.
    sequence: u64,
    /// The time when other nodes were last asked.
    asked_us: u64,
}

/// [`Phase::may_become`] has the moves.
#[derive(Debug)]
enum Phase {
    /// Waits until fewer partitions are in progress.
    Waiting,
    /// For each node that was asked: the name after which it has to continue; `None` when all its
    /// entries have come.
    Collecting(BTreeMap<NodeId, Option<String>>),
    /// All acknowledged entries are here; replicas are being synchronized.
    Synchronizing,
}

impl Phase {
    /// Whether a partition may go from this phase to the next one. A leader that served the
    /// partition before the view began has all entries and does not collect. Nothing leads back:
    /// the next view begins anew.
    fn may_become(&self, next: &Phase) -> bool {
        matches!(
            (self, next),
            (Phase::Waiting, Phase::Collecting(_) | Phase::Synchronizing)
                | (Phase::Collecting(_), Phase::Synchronizing)
        )
    }
}

impl LedPartition {
    fn new(phase: Phase, continues: bool) -> Self {
        LedPartition { phase, continues, synchronized: BTreeSet::new(), sequence: 0, asked_us: 0 }
    }

    /// Goes to another phase.
    ///
    /// # Panics
    /// If the move is not allowed.
    fn enter(&mut self, partition: u16, phase: Phase) {
        assert!(
            self.phase.may_become(&phase),
            "partition {partition} cannot go to {phase:?}: {self:?}"
        );
        self.phase = phase;
    }

    /// Whether a write quorum is synchronized in this view.
    fn has_quorum(&self, current: &CurrentView, partition: u16) -> bool {
        self.synchronized.len() >= current.write_quorum(partition)
    }

    /// Whether it counts among the partitions that are collected or synchronized now.
    fn is_in_progress(&self, current: &CurrentView, partition: u16) -> bool {
        match self.phase {
            Phase::Waiting => false,
            Phase::Collecting(_) => true,
            Phase::Synchronizing => !self.has_quorum(current, partition),
        }
    }
}

/// The partitions that this node leads in its view.
#[derive(Default)]
pub(crate) struct LedPartitions(BTreeMap<u16, LedPartition>);

impl LedPartitions {
    /// A node that starts leads the same partitions as before in its view.
    pub fn lead_again(
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        effects: &mut Vec<Effect>,
    ) -> Self {
        let mut led = LedPartitions::default();
        let Some(current) = &here.current else { return led };
        let (me, round) = (here.config.node, here.round());
        for partition in (0..current.ring.partitions())
            .filter(|partition| current.ring.replicas(*partition)[0] == me)
        {
            let has_led = replicas.round(partition).is_some_and(|own| own.view == round.view);
            let phase = if has_led { Phase::Synchronizing } else { Phase::Waiting };
            let mut leading = LedPartition::new(phase, false);
            if has_led {
                leading.synchronized.insert(me);
                replicas.enter_round(partition, round, effects);
            }
            led.0.insert(partition, leading);
        }
        led
    }

    /// The partitions that this node will lead in the next view.
    pub fn in_next_view(&self, here: &RingMembership, next: &CurrentView) -> Self {
        let me = here.config.node;
        let leads = |partition: &u16| next.ring.replicas(*partition)[0] == me;
        let leading = (0..next.ring.partitions()).filter(leads).map(|partition| {
            let led = next.sources.iter().all(|source| source.replicas(partition)[0] == me);
            let continues = here.number() >= next.view.base && led && self.serves(here, partition);
            (partition, LedPartition::new(Phase::Waiting, continues))
        });
        LedPartitions(leading.collect())
    }

    /// The partitions, in order.
    pub fn partitions(&self) -> impl Iterator<Item = u16> {
        self.0.keys().copied()
    }

    /// The first of the partitions from this number on.
    pub fn first_from(&self, partition: u16) -> Option<u16> {
        self.0.range(partition..).next().map(|(partition, _)| *partition)
    }

    /// Whether all of them have a write quorum in this view.
    pub fn have_settled(&self, here: &RingMembership) -> bool {
        let Some(current) = &here.current else { return false };
        self.0.iter().all(|(partition, leading)| leading.has_quorum(current, *partition))
    }

    /// Whether this node leads a partition and has exactly its acknowledged entries.
    pub fn serves(&self, here: &RingMembership, partition: u16) -> bool {
        let Some(current) = &here.current else { return false };
        let leading = self.0.get(&partition);
        leading.is_some_and(|leading| leading.continues || leading.has_quorum(current, partition))
    }

    /// Whether this node answers requests for a partition now. No other node does at the same time.
    pub fn answers(&self, here: &RingMembership, partition: u16, now_us: u64) -> bool {
        self.serves(here, partition) && here.is_leased(partition, now_us)
    }

    /// Whether it answers for all partitions that it leads.
    pub fn answers_all(&self, here: &RingMembership, now_us: u64) -> bool {
        self.partitions().all(|partition| self.answers(here, partition, now_us))
    }

    /// The version of the next write to a partition: that of view 7, boot 2 and write 1 is followed
    /// by that of write 2, and after another start by that of view 7, boot 3 and write 1.
    pub fn next_version(&mut self, here: &RingMembership, partition: u16) -> RecordVersion {
        let leading = self.0.get_mut(&partition).expect("only leaders write");
        leading.sequence += 1;
        RecordVersion { round: here.round(), sequence: leading.sequence }
    }

    /// A view has begun: partitions that this node served already are complete.
    pub fn continue_serving(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        step: &mut Step,
    ) {
        let going_on =
            self.0.iter().filter(|(_, led)| led.continues).map(|(partition, _)| *partition);
        let going_on: Vec<u16> = going_on.collect();
        going_on.into_iter().for_each(|partition| self.complete(here, replicas, partition, step));
    }

    /// Starts waiting partitions, up to the limit, and repeats questions that were not answered.
    /// With 40 partitions waiting and 30 in progress, 2 are started.
    pub fn advance(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        // The leader itself is one of the replicas that must refuse earlier leaders.
        let is_free = current.sources.is_empty() || here.leases.is_free(step.now_us);
        let most = if is_free { MAX_PARTITIONS_SYNCING } else { 0 };
        let in_progress =
            self.0.iter().filter(|(partition, led)| led.is_in_progress(current, **partition));
        let mut room = most.saturating_sub(in_progress.count());
        let waiting = self.0.iter().filter(|(_, leading)| matches!(leading.phase, Phase::Waiting));
        let waiting: Vec<u16> = waiting.map(|(partition, _)| *partition).collect();
        for partition in waiting {
            if room == 0 {
                break;
            }
            self.start_collecting(here, replicas, partition, step);
            room -= usize::from(!self.serves(here, partition));
        }
        let is_due =
            |leading: &LedPartition| step.now_us >= leading.asked_us + here.config.resend_us;
        let due =
            self.0.iter().filter(|(_, leading)| is_due(leading)).map(|(partition, _)| *partition);
        let due: Vec<u16> = due.collect();
        due.into_iter().for_each(|partition| self.ask(here, replicas, partition, step));
    }

    fn start_collecting(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        partition: u16,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        let me = here.config.node;
        let asked = current.sources.iter().flat_map(|source| source.replicas(partition));
        let counts = |node: &&NodeId| **node != me && !current.view.lost.contains(node);
        let asked = asked.filter(counts).map(|node| (*node, Some(String::new()))).collect();
        if !replicas.count(partition, current.view.base) {
            replicas.clear(partition, step);
        }
        let leading = self.0.get_mut(&partition).expect("this node leads the partition");
        leading.enter(partition, Phase::Collecting(asked));
        if !self.complete_if_collected(here, replicas, partition, step) {
            self.ask(here, replicas, partition, step);
        }
    }

    /// Asks other nodes for what is missing of a partition.
    fn ask(
        &mut self,
        here: &RingMembership,
        replicas: &PartitionReplicas,
        partition: u16,
        step: &mut Step,
    ) {
        let Some(current) = &here.current else { return };
        let round = here.round();
        let leading = self.0.get_mut(&partition).expect("this node leads the partition");
        leading.asked_us = step.now_us;
        let mut asked = Vec::new();
        match &leading.phase {
            Phase::Waiting => {}
            Phase::Collecting(progress) => {
                let mut digest = None;
                for (node, after) in progress {
                    let Some(after) = after.clone() else { continue };
                    if after.is_empty() && digest.is_none() && replicas.round(partition).is_some() {
                        digest = Some(step.records.digest(partition, current.view.base));
                    }
                    asked.push((*node, MessageBody::Collect { partition, round, after, digest }));
                }
            }
            Phase::Synchronizing => {
                let missing = current
                    .ring
                    .replicas(partition)
                    .iter()
                    .filter(|node| !leading.synchronized.contains(node));
                asked.extend(
                    missing.map(|node| (*node, MessageBody::OfferSync { partition, round })),
                );
            }
        }
        asked.into_iter().for_each(|(node, body)| here.send(node, body, step));
    }

    /// A replica of an earlier view has sent the entries after a name.
    pub fn collected(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        replica: PartitionPeer,
        after: &str,
        page: Page,
        step: &mut Step,
    ) {
        let PartitionPeer { node, partition, round } = replica;
        if round != here.round() {
            return;
        }
        let Some(LedPartition { phase: Phase::Collecting(progress), .. }) =
            self.0.get_mut(&partition)
        else {
            return;
        };
        let Some(expected) =
            progress.get_mut(&node).filter(|expected| expected.as_deref() == Some(after))
        else {
            return;
        };
        *expected =
            page.entries.last().filter(|_| page.has_more).map(|(name, _)| name.as_str().to_owned());
        let next = expected.clone();
        for (name, stored) in page.entries {
            if step.records.get(partition, &name).is_none_or(|own| own.version < stored.version) {
                step.records.save(partition, &name, stored);
            }
        }
        match next {
            Some(after) => here.send(
                node,
                MessageBody::Collect { partition, round, after, digest: None },
                step,
            ),
            None => drop(self.complete_if_collected(here, replicas, partition, step)),
        }
    }

    fn complete_if_collected(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        partition: u16,
        step: &mut Step,
    ) -> bool {
        let (Some(current), Some(leading)) = (&here.current, self.0.get(&partition)) else {
            return false;
        };
        let Phase::Collecting(progress) = &leading.phase else { return false };
        let me = here.config.node;
        let has_come =
            |node: &&NodeId| **node == me || progress.get(*node).is_some_and(Option::is_none);
        let is_enough = current.sources.iter().all(|source| {
            source.replicas(partition).iter().filter(has_come).count()
                >= current.read_quorum(source, partition)
        });
        if is_enough {
            self.complete(here, replicas, partition, step);
        }
        is_enough
    }

    /// All acknowledged entries of a partition are here.
    fn complete(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        partition: u16,
        step: &mut Step,
    ) {
        replicas.enter_round(partition, here.round(), step.records.effects);
        let leading = self.0.get_mut(&partition).expect("this node leads the partition");
        leading.enter(partition, Phase::Synchronizing);
        leading.synchronized.insert(here.config.node);
        self.ask(here, replicas, partition, step);
    }

    /// A replica asks for the entries after a name.
    pub fn page_requested(
        &self,
        here: &RingMembership,
        replica: PartitionPeer,
        after: String,
        digest: Option<Digest>,
        step: &mut Step,
    ) {
        let Some(current) = here.current.as_ref().filter(|_| self.is_synchronizing(here, replica))
        else {
            return;
        };
        let PartitionPeer { node, partition, round } = replica;
        let base = current.view.base;
        let body = if digest.is_some_and(|digest| digest == step.records.digest(partition, base)) {
            MessageBody::SameContent { partition, round }
        } else {
            let page = step.records.page(partition, &after, base);
            MessageBody::SyncPage { partition, round, after, page }
        };
        here.send(node, body, step);
    }

    /// A replica is synchronized.
    pub fn synchronized(
        &mut self,
        here: &RingMembership,
        replicas: &mut PartitionReplicas,
        replica: PartitionPeer,
        step: &mut Step,
    ) {
        if self.is_synchronizing(here, replica) {
            let PartitionPeer { node, partition, .. } = replica;
            let served = self.serves(here, partition);
            self.0
                .get_mut(&partition)
                .expect("this node leads the partition")
                .synchronized
                .insert(node);
            if !served && self.serves(here, partition) {
                self.advance(here, replicas, step);
            }
        }
    }

    fn is_synchronizing(
        &self,
        here: &RingMembership,
        PartitionPeer { partition, round, .. }: PartitionPeer,
    ) -> bool {
        let is_filling = |leading: &LedPartition| matches!(leading.phase, Phase::Synchronizing);
        round == here.round() && self.0.get(&partition).is_some_and(is_filling)
    }

    pub fn validate(&self, here: &RingMembership, replicas: &PartitionReplicas) {
        let Some(current) = &here.current else { return assert!(self.0.is_empty()) };
        let me = here.config.node;
        for partition in 0..current.ring.partitions() {
            let members = current.ring.replicas(partition);
            let leading = self.0.get(&partition);
            assert_eq!(leading.is_some(), members[0] == me, "{me} and {partition}");
            let Some(LedPartition { phase, synchronized, .. }) = leading else { continue };
            assert!(
                synchronized.iter().all(|node| members.contains(node)),
                "{synchronized:?} are not of {members:?}"
            );
            let is_complete = matches!(phase, Phase::Synchronizing);
            assert_eq!(is_complete, synchronized.contains(&me));
            assert_eq!(is_complete, replicas.round(partition) == Some(here.round()));
            assert!(
                !replicas.is_catching_up(partition),
                "a leader does not synchronize from others"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_goes_forward_only() {
        let phases = || [Phase::Waiting, Phase::Collecting(BTreeMap::new()), Phase::Synchronizing];
        let allowed = phases().map(|from| phases().map(|to| from.may_become(&to)));
        assert_eq!(allowed, [[false, true, true], [false, false, true], [false, false, false]]);
    }

    #[test]
    #[should_panic(expected = "partition 3 cannot go to Waiting: LedPartition { phase: \
                               Synchronizing, continues: true")]
    fn a_partition_that_is_synchronized_does_not_wait_again() {
        LedPartition::new(Phase::Synchronizing, true).enter(3, Phase::Waiting);
    }
}
