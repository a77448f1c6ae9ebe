//! Authenticated, framed connections between eyas processes.
//!
//! An access file holds a key, which the cluster's authority has signed with its role. Both ends of every connection
//! prove over TLS 1.3 that they have such a key, and that it counts now; whoever cannot is dropped before a byte of
//! eyas's protocol is read. This crate knows how bytes get across and who sent them, never what they mean.

#![forbid(unsafe_code)]

mod access;
mod authority;
mod connection;
mod credentials;
mod data;
mod door;
mod listener;
mod outbox;
pub mod private;
mod sealed;
mod suites;

pub use access::{Access, AccessError};
pub use authority::{Authority, Certified, new_secret};
pub use connection::{FrameReader, FrameWriter, Session, SessionAcceptor, SessionError, dial};
pub use credentials::{Credentials, SERVER_NAME, TrustWatch};
pub use data::DataKeys;
pub use door::{Door, Guest, PROOF_DEADLINE, Proven};
pub use listener::Listener;
pub use outbox::{OUTBOX_MESSAGES, Outbox, OutboxError, WeakOutbox, outbox};
pub use sealed::SealedStream;
