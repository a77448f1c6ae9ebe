//! Recovery when too many members are lost for good to choose a view. Only a person can know that
//! they never come back.
//!
//! The next view is then not chosen, but made by the first of the remaining members. It is in a
//! later *era*, the upper half of a view's number. So it is later than any view that the missing
//! members could have chosen in the meantime. Entries of the missing members are not asked for. For
//! each partition all remaining members are asked, so that an entry is kept if any of them has it.
//! A member that comes back after all is sent the new view, drops what it had, and joins as a new
//! node would.
//!
//! Recovery must never split a file system that works. It is refused while enough members are heard
//! to choose a view, while a member that is to be given up is considered alive, and unless all
//! missing members are named.

use alloc::collections::BTreeSet;

use eyas_types::dfs::NodeId;

use crate::event::Refusal;
use crate::membership::RingMembership;
use crate::paxos::ViewPaxos;
use crate::view::{View, majority};

/// Position of the era in a view's number.
const ERA_BITS: u32 = 32;

/// The view of the remaining members, without those that a person has named.
pub(crate) fn recovered(
    here: &RingMembership,
    paxos: &ViewPaxos,
    without: &BTreeSet<NodeId>,
    now_s: u32,
    now_us: u64,
) -> Result<View, Refusal> {
    let Some(current) = &here.current else { return Err(Refusal::OtherView { view: 0 }) };
    let (view, me) = (&current.view, here.config.node);
    let is_heard = |node: &&NodeId| **node == me || here.leases.is_granted(**node, now_us);
    let left: BTreeSet<NodeId> = view.members.iter().filter(is_heard).copied().collect();
    if left.len() >= majority(view.members.len()) {
        return Err(Refusal::HasMajority);
    }
    let first = left.first().copied().filter(|_| left.contains(&me)).ok_or(Refusal::NotYet)?;
    if first != me {
        return Err(Refusal::NotLeader { leader: first, view: view.number });
    }
    let others = view.sources.iter().flatten().filter(|node| !paxos.is_alive(**node));
    let missing = view.members.iter().chain(others).filter(|node| !left.contains(node));
    let missing: BTreeSet<NodeId> = missing.copied().collect();
    if missing.iter().any(|node| paxos.is_alive(*node)) {
        return Err(Refusal::NotYet);
    }
    if missing != *without {
        return Err(Refusal::Missing(missing));
    }
    let next = view.followed_by(left, paxos.is_settled(here)).ok_or(Refusal::NotYet)?;
    Ok(View { number: first_of_era(view.number, now_s), lost: missing, ..next })
}

/// The number of the first view in a later era than that of view `number`: the era is the time in
/// seconds, or the next one if the present era is as late. View 7 of era 0 is followed, at second
/// 1,700,000,000, by view 0 of era 1,700,000,000.
fn first_of_era(number: u64, now_s: u32) -> u64 {
    ((number >> ERA_BITS) + 1).max(now_s.into()) << ERA_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_follow_the_clock_and_never_go_back() {
        assert_eq!(first_of_era(7, 1_700_000_000), 1_700_000_000 << 32);
        assert_eq!(
            first_of_era(1_700_000_000 << 32 | 5, 1_600_000_000),
            1_700_000_001 << 32,
            "the clock went back"
        );
    }
}
