//! The atomic words of which a board consists: those of the standard library.
//!
//! `dev/loom` compiles this crate with `cfg(loom)`: then they are loom's, which tries the orders in
//! which several threads can use them.

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
