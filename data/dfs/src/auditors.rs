//! Which leaders audit their files.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use eyas_types::dfs::NodeId;

/// Pause between two audits of all files of a leader.
// Short in tests, so that they run into audits.
pub(crate) const AUDIT_EVERY: Duration =
    if cfg!(debug_assertions) { Duration::from_secs(2) } else { Duration::from_secs(600) };

/// A leader that has not completed an audit within this number of intervals counts as not auditing.
const MISSED_AUDITS: u32 = 3;

/// The leaders that have audited all their files, and when.
#[derive(Default)]
pub(crate) struct Auditors {
    last: BTreeMap<NodeId, Instant>,
    /// When each leader had completed the audit before its last one.
    before_last: BTreeMap<NodeId, Instant>,
    /// The time since when all members have been auditing without interruption.
    all_since: Option<Instant>,
}

impl Auditors {
    /// A leader has audited all its files.
    pub fn heard(&mut self, leader: NodeId, now: Instant) {
        if let Some(before) = self.last.insert(leader, now) {
            self.before_last.insert(leader, before);
        }
    }

    /// Whether each of these members has begun and completed an audit since a moment.
    pub fn have_audited_since(&self, members: &BTreeSet<NodeId>, moment: Instant) -> bool {
        members
            .iter()
            .all(|node| self.before_last.get(node).is_some_and(|before| *before >= moment))
    }

    /// The time since when all of these members have been auditing without interruption; `None` if
    /// one of them is not. A chunk that was not asked for since then belongs to no file.
    pub fn all_since(&mut self, members: &BTreeSet<NodeId>, now: Instant) -> Option<Instant> {
        let patience = AUDIT_EVERY * MISSED_AUDITS;
        let asks = |node: &NodeId| self.last.get(node).is_some_and(|last| now - *last < patience);
        self.all_since = if members.iter().all(asks) { self.all_since.or(Some(now)) } else { None };
        self.all_since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_counts_only_while_all_leaders_ask() {
        let (members, began) = (BTreeSet::from([NodeId(1), NodeId(2)]), Instant::now());
        let at = |audits: u32| began + AUDIT_EVERY * audits;
        let mut auditors = Auditors::default();
        auditors.heard(NodeId(1), at(0));
        assert_eq!(auditors.all_since(&members, at(0)), None);
        auditors.heard(NodeId(2), at(1));
        assert_eq!(auditors.all_since(&members, at(1)), Some(at(1)));
        auditors.heard(NodeId(1), at(2));
        assert_eq!(auditors.all_since(&members, at(3)), Some(at(1)));
        // The second leader has missed three audits.
        auditors.heard(NodeId(1), at(4));
        assert_eq!(auditors.all_since(&members, at(4)), None);
        auditors.heard(NodeId(2), at(5));
        assert_eq!(auditors.all_since(&members, at(5)), Some(at(5)), "it begins anew");
        // The audit that was completed at 4 may have begun before 4.
        auditors.heard(NodeId(1), at(6));
        assert!(
            !auditors.have_audited_since(&members, at(4)),
            "the second leader has completed one"
        );
        auditors.heard(NodeId(2), at(6));
        assert!(
            auditors.have_audited_since(&members, at(4))
                && !auditors.have_audited_since(&members, at(5))
        );
    }
}
