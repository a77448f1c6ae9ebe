//! Errors of transfers between nodes. The kind says what to try next; the message names the peer or
//! the object.

use std::net::SocketAddr;

use eyas_store::{StorageErrorKind, StoreError, StoreErrorKind};
use thiserror::Error;

/// A failure to fetch an object from one peer.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct PeerError {
    /// The kind, for callers that decide what to do.
    pub kind: PeerErrorKind,
    /// The message, for a person: names the peer.
    pub message: String,
}

/// Kinds of [`PeerError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerErrorKind {
    /// The peer does not have the object: the hint was wrong, or is out of date. Or it relays
    /// other content than is registered, which it has not read to its end.
    NotHere,
    /// The peer has too many connections.
    Busy,
    /// No connection, or no answer in time.
    Unreachable,
    /// The peer failed recently, and was not asked.
    Avoided,
    /// The peer has another version of a derived copy, of another size.
    OtherVersion,
    /// The last bytes were damaged, and were not kept. Earlier bytes are kept, unless only the
    /// checksum of the whole object is wrong.
    Corrupt,
    /// The peer is alive, and makes too little progress.
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
        let kind = match error.kind {
            StoreErrorKind::Full => PeerErrorKind::Full,
            StoreErrorKind::WrongContent => PeerErrorKind::NotHere,
            _ => PeerErrorKind::Local,
        };
        PeerError { kind, message: error.message }
    }
}

/// A failure to fetch an object from all sources.
#[derive(Clone, Debug, Error)]
#[error("{message}")]
pub struct FetchError {
    /// The kind, for callers that decide what to do.
    pub kind: FetchErrorKind,
    /// The message, for a person: lists what was tried.
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
    /// There is nothing at the source.
    NotFound,
    /// Reading the source is not permitted.
    Denied,
    /// The source cannot be read by eyas.
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
        let kind = if error.kind == StoreErrorKind::Full {
            FetchErrorKind::Full
        } else {
            FetchErrorKind::Local
        };
        FetchError { kind, message: error.message }
    }
}
