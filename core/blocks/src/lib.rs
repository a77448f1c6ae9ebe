//! Elastic blocks: where the records of a file end, and which chunks of it a task processes
//! (elastic-blocks §1.3).
//!
//! A chunk is a stored, record-aligned part of a file. A block is the set of chunks that one task
//! processes. It exists only during a job, grows while its task is fast, and shrinks when its node
//! is slow. The shell may divide each chunk between records into several *pieces*
//! ([`format::piece_ends`]); then each chunk of this room is such a piece. Both deciders are pure
//! state machines: they must never touch a disk, a clock or a socket.
//!
//! [`Blocks`] runs at the file's leader and leases chunks to workers; a worker is one run of a
//! program. [`WorkerBlock`] is the worker's side. A worker asks for *leases* of several chunks
//! until it is told that there are no more. Then it ends its program and commits all that it has
//! read at once, since the output appears when the program ends. Each chunk counts once: a worker
//! commits its block with its last lease, and the commit is refused if the block is no longer the
//! worker's, because the worker was given up or a copy of its block has committed first.
//!
//! Attempts of a task of another framework, such as Hadoop, share a block: see `tasks.rs`.
//!
//! [`Blocks`] routes events to its parts, each with a state that no other part changes: the
//! `Ledger` of what counts (`ledger.rs`), the `ChunkPlan` of free chunks (`plan.rs`), the
//! `BlockWorkers` and their progress (`workers.rs`), and the `IdleWorkers` (`idle.rs`).

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod blocks;
mod chunks;
mod event;
pub mod format;
mod idle;
mod ledger;
mod measures;
mod plan;
mod schedulers;
mod sizes;
mod supply;
mod tasks;
#[cfg(test)]
mod tests;
mod worker_block;
mod worker_state;
mod workers;

pub use blocks::{Blocks, Config, DEFAULT_TERM_US, DEFAULT_WINDOW_US};
pub use event::{Effect, Event, LeaseId, LeaseProgress, Record, WorkerId};
pub use schedulers::{
    Alpha, BlockParameterError, BlockParameters, BlockPolicy, IoAware, Lean, Multiwave, POLICIES,
};
pub use sizes::{MAX_LEASE_CHUNKS, Sizes};
pub use tasks::{TaskAnswer, TaskBlock, TaskClaim, TaskIncarnation, TaskNumber};
pub use worker_block::WorkerBlock;
