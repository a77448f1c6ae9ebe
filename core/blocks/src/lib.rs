//! Elastic blocks: where the records of a file end, and which chunks of it a task works through (elastic-blocks §1.3).
//!
//! A chunk is a stored piece of a file, record-aligned. A block is the set of chunks that one task works through; it lives
//! only during a job, grows while its task is fast, and shrinks when its node is slow. Pure state machines: they must
//! never touch a disk, a clock or a socket.
//!
//! [`Blocks`] is at the file's leader and lends chunks to workers, each one run of a program; [`Owner`] is the side of a
//! worker. A worker claims *leases* of several chunks until it is told that there is no more, ends, and commits all that it
//! has read at once, since its output appears when it ends. Each chunk counts once, because a block is committed by its
//! last lease only while that is its worker's: who was given up, or has been overtaken by a copy, is refused.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod blocks;
mod chunks;
mod event;
pub mod format;
mod ledger;
mod measures;
mod schedulers;
mod sizes;
mod supply;
#[cfg(test)]
mod tests;
mod worker_block;
mod worker_state;

pub use blocks::{Blocks, Config, DEFAULT_TERM_US, DEFAULT_WINDOW_US};
pub use event::{Effect, Event, LeaseId, LeaseProgress, Record, WorkerId};
pub use schedulers::{Alpha, BlockPolicy, IoAware, Lean, POLICIES};
pub use sizes::{MAX_LEASE_CHUNKS, Sizes};
pub use worker_block::WorkerBlock;
