//! The atomic words of which a board consists: those of the standard library.
//!
//! `dev/loom` compiles this crate with `cfg(loom)`: then they are loom's, which tries the orders in
//! which several threads can use them, and a board is so small that this ends.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Sizes of a board of models.
#[cfg(loom)]
pub(crate) mod sizes {
    pub const SEATS: usize = 3;
    pub const MAX_FILES: usize = 2;
    pub const MAX_PIECES: usize = 2;
    pub const MAX_BYPASSED: usize = 1;
}
