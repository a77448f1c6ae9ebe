//! What can go wrong between nodes. The kind says what to try next, the message names the peer or the object.

use std::net::SocketAddr;

use eyas_store::{StorageErrorKind, StoreError, StoreErrorKind};
use thiserror::Error;

/// A failure to get an object from one peer.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct PeerError {
    /// What a caller decides by.
    pub kind: PeerErrorKind,
    /// For a person: names the peer.
    pub message: String,
}

/// Kinds of [`PeerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerErrorKind {
    /// The peer does not have it: the hint was wrong, or is out of date.
    NotHere,
    /// The peer has too many connections.
    Busy,
    /// No connection, no answer, or none in time.
    Unreachable,
    /// The peer failed lately, and was not even asked.
    Avoided,
    /// What came was damaged, and not kept. What had come before was, unless only the whole shows the damage.
    Corrupt,
    /// The peer is alive, and does not get on.
    Slow,
    /// This node's disk is full: no other source can help.
    Full,
    /// This node's store failed.
    Local,
}

impl PeerError {
    pub(crate) fn new(kind: PeerErrorKind, peer: SocketAddr, what: impl std::fmt::Display) -> Self {
        PeerError { kind, message: format!("peer {peer} {what}") }
    }

    pub(crate) fn unreachable(peer: SocketAddr, what: impl std::fmt::Display) -> Self {
        PeerError::new(PeerErrorKind::Unreachable, peer, what)
    }
}

impl From<StoreError> for PeerError {
    fn from(error: StoreError) -> Self {
        let kind = if error.kind == StoreErrorKind::Full { PeerErrorKind::Full } else { PeerErrorKind::Local };
        PeerError { kind, message: error.message }
    }
}

/// A failure to get an object from anywhere.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct FetchError {
    /// What a caller decides by.
    pub kind: FetchErrorKind,
    /// For a person: lists what was tried.
    pub message: String,
}

/// Kinds of [`FetchError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchErrorKind {
    /// This node's disk is full: run the task elsewhere.
    Full,
    /// This node's store failed: run the task elsewhere.
    Local,
    /// The source is not the version that the job was promised: no retry helps.
    Changed,
    /// The source is not there.
    NotFound,
    /// The source may not be read.
    Denied,
    /// The source cannot be read by eyas at all.
    Invalid,
    /// The source did not answer: a retry can help.
    Unreachable,
}

impl From<StorageErrorKind> for FetchErrorKind {
    fn from(kind: StorageErrorKind) -> Self {
        match kind {
            StorageErrorKind::NotFound => FetchErrorKind::NotFound,
            StorageErrorKind::Denied => FetchErrorKind::Denied,
            StorageErrorKind::Changed => FetchErrorKind::Changed,
            StorageErrorKind::Unreachable => FetchErrorKind::Unreachable,
            StorageErrorKind::Full => FetchErrorKind::Full,
            StorageErrorKind::Invalid | StorageErrorKind::NoSpace => FetchErrorKind::Invalid,
            StorageErrorKind::Local | StorageErrorKind::Withdrawn => FetchErrorKind::Local,
        }
    }
}

impl From<StoreError> for FetchError {
    fn from(error: StoreError) -> Self {
        let kind = if error.kind == StoreErrorKind::Full { FetchErrorKind::Full } else { FetchErrorKind::Local };
        FetchError { kind, message: error.message }
    }
}
