//! Ballots and proposals: what nodes send and save while they choose a view. `paxos.rs` has the algorithm.

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
