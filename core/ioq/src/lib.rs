//! Decider of the I/O coordinator: the order in which requests to shared storage are granted.
//!
//! Many programs that each read sequentially make a random mix at the storage they share. This
//! crate restores an order that suits disks and file servers, after the paper io-coordination. It
//! is a pure state machine: [`Servers`] takes facts as [`Event`]s and returns what has to be done
//! as [`Effect`]s. It must never touch a disk, a clock or a socket. Its decisions are advice: a
//! request that it cannot order is let go at once, and counted.
//!
//! How a request becomes a grant:
//!
//! - **Queue** (`ordering/queue.rs`). A request waits in the queue of its file, operation and
//!   class. Requests that continue each other form a *chain*. The part of a chain that can be
//!   granted at once, starting at its head, is a *run* (virtual aggregation, io-coordination §4.2).
//! - **Which run is next** (`ordering/`). The class comes first, by reservations, limits and
//!   weights (`mclock.rs`); within the class, a policy chooses the run (`policies/`).
//! - **When it may leave** (`pacing/`). The number of outstanding grants is configured or found by
//!   trial (`concurrency.rs`), rates are capped (`budget.rs`), an idle server may be held for a
//!   moment for a request that would continue a chain (`anticipation.rs`, io-coordination §6.3.3),
//!   and the next grant may leave when the previous one is predicted to end (`prediction.rs`,
//!   io-coordination §4.1).
//! - **Grants** (`grants.rs`). A run with requests of several clients is granted to one client
//!   after the other, in the order of offsets. Each [`Grant`] is one client's turn. A grant that is
//!   not completed within its lease is revoked.
//!
//! Two separate questions are decided beside it. [`Bypass`]: does ordering the requests of a
//! storage pay at all? [`SharedParts`]: which client reads a part of a file that several clients
//! read?

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bypass;
mod config;
mod event;
mod grants;
mod ordering;
mod pacing;
mod rate;
mod server;
mod servers;
mod sharing;
mod stats;
mod striped;
mod striping;
#[cfg(test)]
mod tests;

pub use bypass::{Bypass, UnorderedCalls};
pub use config::{Budget, ClassQos, Config};
pub use event::{
    Call, ClassId, ClientId, Effect, Event, Grant, GrantId, Request, RequestId, RequestRunId,
    ServerId,
};
pub use ordering::policies::{
    ForeignParameter, Mlf, POLICIES, Policy, PolicyParameters, Sojf, Wsjf,
};
pub use server::MAX_QUEUED;
pub use servers::Servers;
pub use sharing::{PartSource, SharedParts};
pub use stats::{Sequentiality, ServerStats, Waits};
pub use striping::{FileLayout, MAX_SERVERS, StripedPart, StripedRegion, Striping};
