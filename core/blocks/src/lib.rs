//! Elastic blocks: where the records of a file end, and which chunks of it a task works through (elastic-blocks §1.3).
//!
//! A chunk is a stored piece of a file, record-aligned. A block is the set of chunks that one task works through; it lives
//! only during a job, grows while its task is fast, and shrinks when its node is slow. Pure state machines: they must
//! never touch a disk, a clock or a socket.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod format;
