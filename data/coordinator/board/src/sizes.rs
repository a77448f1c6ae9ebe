//! How much a board holds. A board of the models in `dev/loom` is so small that they end.

/// Requests of a node at a time. A program that finds no free seat proceeds unordered.
#[cfg(not(loom))]
pub const SEATS: usize = 1024;
/// Files whose state in the page cache the board can hold.
#[cfg(not(loom))]
pub const MAX_FILES: usize = 1024;
/// Pieces of one file whose state the board can hold.
#[cfg(not(loom))]
pub const MAX_PIECES: usize = 256;
/// Pieces that came from other nodes.
#[cfg(not(loom))]
pub const PART_SLOTS: usize = 64;
/// Bytes of a slot for such a piece.
#[cfg(not(loom))]
pub const SLOT_BYTES: usize = PIECE_BYTES as usize;
/// Bytes of a piece.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Unit in which a piece becomes ready.
pub const PAGE_BYTES: u64 = 4096;

#[cfg(loom)]
pub use of_models::*;

#[cfg(loom)]
mod of_models {
    pub const SEATS: usize = 3;
    pub const MAX_FILES: usize = 2;
    pub const MAX_PIECES: usize = 2;
    pub const MAX_BYPASSED: usize = 1;
    pub const PART_SLOTS: usize = 1;
    pub const SLOT_BYTES: usize = 8;
}
