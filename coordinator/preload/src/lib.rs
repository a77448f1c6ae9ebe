//! What `eyas io run` loads into programs: their reads and writes of shared storage wait for their turn.
//!
//! It stands before some functions of the C library. Each does what it always does, on the kernel's own descriptors; before it
//! reads or writes a file of shared storage it may wait until the node's agent says that it is time, or that what it is about
//! to read is in the kernel's page cache. That is all. So whatever is missed here (system calls made without the C library,
//! static programs, descriptors that come from elsewhere) is done as if this library were not there; and if the agent is
//! gone, so is everything.
//!
//! What it does between the program and the kernel must not be seen: it keeps no descriptor, allocates nothing once it is loaded, takes no lock,
//! and leaves `errno` alone, since its own system calls (by `rustix`) do not pass by the C library. All of it may be called
//! in signal handlers, between `vfork` and `exec`, and from threads that the program cancels.

#![allow(clippy::missing_safety_doc, reason = "the functions of the C library are as safe as they always are")]

mod agent;
mod cancelled;
mod descriptors;
mod environment;
mod hooks;
mod kept;
mod memory;
mod next;
mod scope;
mod stat;
mod turn;
mod unordered;
mod writes;
