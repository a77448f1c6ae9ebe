//! Authenticated, framed connections between eyas processes.
//!
//! The access file is the cluster's only secret: a certificate and its key, made when the dispatcher starts. Both
//! ends of every connection prove over TLS 1.3 that they have the key, and take no other certificate; whoever cannot
//! is dropped before a byte of eyas's protocol is read. This crate knows how bytes get across, never what they mean.

#![forbid(unsafe_code)]

mod access;
mod connection;
mod door;
mod listener;
mod outbox;
pub mod private;
mod tls;

pub use access::{Access, AccessError};
pub use connection::{Acceptor, Reader, Session, SessionError, Writer, dial};
pub use door::{Door, Guest, PROOF_DEADLINE, Proven};
pub use listener::Listener;
pub use outbox::{OUTBOX_MESSAGES, Outbox, OutboxError, outbox};
