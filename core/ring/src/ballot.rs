//! Ballots and proposals: what nodes send and save while they choose a view. `paxos.rs` has the
//! algorithm.

use serde::{Deserialize, Serialize};

use crate::view::View;

/// The id of an attempt to choose a view. It is never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ballot {
    /// The higher number wins.
    pub number: u64,
    /// The node that proposes.
    pub node: u64,
    /// Number of times that this node had started.
    pub boot: u64,
}

/// A view that is proposed in a ballot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The ballot.
    pub ballot: Ballot,
    /// The next view.
    pub view: View,
}

/// The promises of a member to proposers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acceptor {
    /// Number of the view to be chosen; promises for other views are void.
    pub view: u64,
    /// Lower ballots than this are refused.
    pub promised: Ballot,
    /// The proposal that was accepted last.
    pub accepted: Option<Proposal>,
}

impl Acceptor {
    /// The promises about the view with this number, of which none was made before.
    pub(crate) fn of(view: u64) -> Self {
        Acceptor { view, ..Acceptor::default() }
    }

    /// Promises to refuse lower ballots.
    ///
    /// # Panics
    /// If a higher one was promised: a proposer counts on it.
    pub(crate) fn promise(&mut self, ballot: Ballot) {
        assert!(ballot >= self.promised, "{ballot:?} cannot be promised: {self:?}");
        self.promised = ballot;
    }

    /// Accepts a proposal, in place of one that was accepted in a lower ballot.
    ///
    /// # Panics
    /// If a higher ballot was promised, or if the proposal is of another view.
    pub(crate) fn accept(&mut self, proposal: Proposal) {
        self.promise(proposal.ballot);
        assert!(proposal.view.number == self.view, "{proposal:?} cannot be accepted: {self:?}");
        self.accepted = Some(proposal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(
        expected = "Ballot { number: 2, node: 9, boot: 1 } cannot be promised: Acceptor { view: 7,"
    )]
    fn a_promise_is_not_taken_back() {
        let mut acceptor = Acceptor::of(7);
        for (number, node) in [(1, 1), (2, 9), (3, 1)] {
            acceptor.promise(Ballot { number, node, boot: 1 });
        }
        acceptor.promise(Ballot { number: 2, node: 9, boot: 1 });
    }
}
