//! Library that `eyas io run` loads into programs (`LD_PRELOAD`): their reads and writes of shared
//! storage wait for a turn.
//!
//! The library intercepts functions of the C library (`hooks/`). Each does what it always does, on
//! the kernel's own descriptors. Before a program reads or writes a file of shared storage, the
//! call may wait until the node's agent grants a turn, or until the bytes are in the kernel's page
//! cache. Whatever the library does not see (system calls without the C library, static programs,
//! descriptors from elsewhere) proceeds as if the library were not loaded; so does everything if
//! the agent has ended.
//!
//! Its work must not be visible to the program: it keeps no descriptor, allocates nothing after
//! loading, takes no lock, and leaves `errno` alone, because its own system calls (`rustix`) bypass
//! the C library. All of it may be called in signal handlers, between `vfork` and `exec`, and from
//! threads that the program cancels.
//!
//! It is made without Rust's standard library: a program that reads one small file takes a
//! millisecond, and the loader would need a tenth of that for `libgcc_s` and the tables of `std`.

#![no_std]
#![allow(
    clippy::missing_safety_doc,
    reason = "the functions of the C library are as safe as they always are"
)]

mod agent;
#[cfg(panic = "abort")]
mod alone;
mod bypass;
mod cancellation;
mod closing;
mod descriptors;
mod environment;
mod hooks;
mod kept_turn;
mod loaded;
mod next_symbol;
mod page_cache;
mod parts;
mod reads;
mod shared_files;
mod stat;
mod timed_call;
mod turn;
mod waiting;
mod writes;

// A build of the whole workspace unwinds, which needs the standard library.
#[cfg(not(panic = "abort"))]
extern crate std;
