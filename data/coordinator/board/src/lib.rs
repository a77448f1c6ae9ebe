//! The board of a node: shared memory between the programs of one user on the node and their agent.
//!
//! A program that is about to read from shared storage looks here first. Bytes that the agent has
//! brought into the kernel's page cache can be read at once; for bytes that are being read ahead
//! the program waits. Bytes that came from another node, where they were read from the same
//! storage, are copied from here ([`PartSlot`]). Otherwise the program takes a [`Seat`], writes
//! down its request, rings the agent's bell and waits for the answer. A board that is torn or
//! abandoned costs order, never a byte. Programs cannot write the parts, from which others copy.
//!
//! Programs keep no descriptor for the board: it is mapped once, and the socket over which it came
//! is closed. All fields are atomics, valid with any bits, because every process of the user may
//! write to it.

#![cfg_attr(not(any(test, loom)), no_std)]

use core::time::Duration;

pub use crate::bypassed::{BypassedStorage, CallTimes, MAX_BYPASSED};
pub use crate::files::{CachedFile, FilePiece};
#[cfg(not(loom))]
pub use crate::map::{make, map, map_for_program};
pub use crate::page_cache::is_cached;
#[cfg(not(loom))]
pub use crate::part_file::VersionOf;
pub use crate::parts::{PartFile, PartSlot};
pub use crate::peer::Peer;
pub use crate::seat::{CallKind, Seat, SeatAnswer, SeatRequest, SeatState, SeatTurn};
pub use crate::sizes::{MAX_FILES, MAX_PIECES, PAGE_BYTES, PART_SLOTS, PIECE_BYTES, SEATS};
pub use crate::stripe_info::{StripeInfo, stripe_info, stripe_target};
pub use crate::wait::{ring, wait};
use crate::words::{AtomicU32, AtomicU64, Ordering};

mod bypassed;
mod files;
mod last_error;
#[cfg(not(loom))]
mod map;
mod page_cache;
#[cfg(not(loom))]
mod part_file;
mod parts;
mod peer;
mod seat;
mod sizes;
mod stripe_info;
mod wait;
mod words;

/// Version of the layout. A process ignores a board of another version.
pub const VERSION: u32 = 5;
/// Interval between the agent's heartbeats.
pub const HEARTBEAT: Duration = Duration::from_millis(100);
/// A program does not wait for an agent whose last heartbeat is older.
pub const HEARTBEAT_TIMEOUT: Duration = Duration::from_millis(500);
/// First byte of a message to the agent's socket: the program wants the board. The answer has the
/// board's memory as a descriptor, and the process's id in the agent's namespace, in 4 bytes,
/// little endian.
pub const GIVE_BOARD: u8 = b'B';
/// The same: the message carries an open file as a descriptor, and the number of the seat that it
/// is for, in 4 bytes, little endian.
pub const TAKE_FILE: u8 = b'F';
/// The same: the agent is to run as long as this process lives. The answer is the same byte.
pub const HELLO: u8 = b'H';

/// The whole board.
#[repr(C)]
#[cfg_attr(loom, derive(Default))]
pub struct Board {
    /// State of the agent.
    pub agent: AgentStatus,
    /// One bit for each seat that the agent has to look at.
    pub asked: [AtomicU64; SEATS.div_ceil(64)],
    /// One bit for each file in which a program has entered an announced piece.
    pub entered_files: [AtomicU64; MAX_FILES.div_ceil(64)],
    /// Storages whose requests are not ordered.
    pub bypassed: [BypassedStorage; MAX_BYPASSED],
    /// Requests.
    pub seats: [Seat; SEATS],
    /// Files, and their state in the page cache.
    pub files: [CachedFile; MAX_FILES],
    /// Pieces that came from other nodes. They take memory only when they are filled.
    pub parts: [PartSlot; PART_SLOTS],
}

/// State of the agent, and its bell.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct AgentStatus {
    /// Version of the layout; 0 until the agent is ready.
    pub version: AtomicU32,
    /// Whether requests are ordered now. If 0, programs proceed.
    pub open: AtomicU32,
    /// Time of the last heartbeat, in milliseconds of the monotonic clock.
    pub heartbeat_ms: AtomicU64,
    /// Counter that wakes the agent when it changes.
    pub bell: AtomicU32,
}

impl Board {
    /// A free entry for this file. For the agent.
    pub fn free_index_for(&self, device: u64, inode: u64) -> Option<usize> {
        files::candidates(device, inode)
            .find(|index| self.files[*index].inode.load(Ordering::Relaxed) == 0)
    }

    /// Makes the agent look at a seat.
    pub fn ring_for_seat(&self, seat: usize) {
        self.mark_seat(seat);
        ring(&self.agent.bell);
    }

    /// Makes the agent look at a seat when it wakes.
    fn mark_seat(&self, seat: usize) {
        self.asked[seat / 64].fetch_or(1 << (seat % 64), Ordering::Release);
    }

    /// Tells the agent that a program has entered an announced piece of a file.
    pub fn ring_for_file(&self, file: usize) {
        self.entered_files[file / 64].fetch_or(1 << (file % 64), Ordering::Release);
        ring(&self.agent.bell);
    }

    /// Time of the last heartbeat. Permissions that a program was given are valid until the next
    /// one.
    #[inline]
    pub fn heartbeat_ms(&self) -> u64 {
        self.agent.heartbeat_ms.load(Ordering::Relaxed)
    }

    /// Whether the agent is alive.
    pub fn is_alive(&self, now_ms: u64) -> bool {
        let silent_ms = now_ms.saturating_sub(self.agent.heartbeat_ms.load(Ordering::Relaxed));
        self.agent.version.load(Ordering::Acquire) == VERSION
            && silent_ms < HEARTBEAT_TIMEOUT.as_millis() as u64
    }

    /// Whether requests are ordered now.
    pub fn is_open(&self, now_ms: u64) -> bool {
        self.agent.open.load(Ordering::Acquire) != 0 && self.is_alive(now_ms)
    }
}

/// Clears the bits of a field and returns the numbers of those that were set.
pub fn take_marks(field: &[AtomicU64]) -> impl Iterator<Item = usize> + '_ {
    let words = field.iter().enumerate().map(|(place, word)| {
        let is_marked = word.load(Ordering::Relaxed) != 0;
        (place, if is_marked { word.swap(0, Ordering::Acquire) } else { 0 })
    });
    words.flat_map(|(place, bits)| {
        (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| place * 64 + bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_once() {
        let board = map::anonymous();
        for seat in [0, 63, 64, 1023] {
            board.ring_for_seat(seat);
        }
        assert_eq!(take_marks(&board.asked).collect::<Vec<_>>(), [0, 63, 64, 1023]);
        assert_eq!(take_marks(&board.asked).count(), 0);
    }

    #[test]
    fn a_silent_agent_is_not_waited_for() {
        let board = map::anonymous();
        board.agent.version.store(VERSION, Ordering::Relaxed);
        board.agent.heartbeat_ms.store(1_000, Ordering::Relaxed);
        assert!(!board.is_open(1_001), "nothing is ordered yet");
        board.agent.open.store(1, Ordering::Relaxed);
        assert!(board.is_open(1_001));
        assert!(!board.is_open(1_000 + HEARTBEAT_TIMEOUT.as_millis() as u64));
    }
}
