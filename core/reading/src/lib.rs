//! How a file is read: which chunks are opened as a whole and which are requested in parts, what is
//! read before a program asks for it, how much at the same time, and which holder of a chunk is
//! asked first.
//!
//! A file is one version, so its chunks never change, and all that is read of them stays valid. The
//! shell tells [`ReadPlan`] each read of a file, and opens what the plan says. [`Sequence`] is the
//! plan of a reader that takes a range from its beginning to its end. [`PlaceRates`] says in which
//! order the places of a named file are tried, which is the same question about files outside of
//! the cluster. All are pure: they must never touch a disk, a clock or a socket, and they keep no
//! content.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod chunk_map;
mod holders;
mod places;
mod plan;
mod sequence;

pub use chunk_map::{ChunkMap, ChunkPart};
pub use holders::{ChunkHolder, in_order};
pub use places::PlaceRates;
pub use plan::{PartFacts, ReadLimits, ReadPlan, ReadStep, Way};
pub use sequence::{MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, Sequence};
