//! The board of a node: shared memory in which the programs on it and its agent agree on who reads what, and when.
//!
//! A program that is about to read from shared storage looks here first. What others have had brought into the kernel's
//! page cache it may read at once; what is being brought it waits for; else it takes a [`Seat`], says what it wants, rings,
//! and waits to be told. All of that is advice: what is read is what the kernel gives, whatever the board says. A board that
//! is wrong, torn or left alone costs order, never a byte.
//!
//! Programs hold no descriptor for it: it is mapped once, and the socket over which it came is closed. Everything in
//! it is an atomic, valid with any bits, because all processes of a user may write to it.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

pub use crate::cached::is_cached;
pub use crate::map::{make, map};
pub use crate::peer::Peer;
pub use crate::seat::{Answer, Ask, Kind, Seat, State};
pub use crate::unordered::{UNORDERED, Unordered};
pub use crate::wait::{ring, wait};

mod cached;
mod map;
mod peer;
mod seat;
mod unordered;
mod wait;

/// Of the layout: who finds another on a board leaves it alone.
pub const VERSION: u32 = 4;
/// Requests that can be under way at once on a node. Who finds no seat goes ahead unordered.
pub const SEATS: usize = 1024;
/// Files of which it can be told what is in memory.
pub const LINES: usize = 1024;
/// Pieces of one file of which that can be told.
pub const PIECES: usize = 256;
/// Bytes of a piece.
pub const PIECE_BYTES: u64 = 1 << 20;
/// Unit in which a piece becomes ready.
pub const PAGE_BYTES: u64 = 4096;
/// How often the agent says that it lives.
pub const BEAT: Duration = Duration::from_millis(100);
/// A program does not wait for an agent that has been silent for so long.
pub const SILENCE: Duration = Duration::from_millis(500);
/// First byte of what a program sends to the agent's socket: it wants the board. It gets its memory, and with it the number
/// by which the agent knows it, least significant byte first.
pub const GIVE_BOARD: u8 = b'B';
/// The same: with it comes a file, and the number of the seat that it is for follows, least significant byte first.
pub const TAKE_FILE: u8 = b'F';
/// The same: it is a program that the agent is there for as long as it lives, and gets the byte back.
pub const HELLO: u8 = b'H';
/// Places from where its hash says at which a file's line can be.
const PROBES: usize = 8;

/// All of it.
#[repr(C)]
pub struct Board {
    /// The agent, and how to wake it.
    pub head: Head,
    /// A bit for each seat that the agent is to look at.
    pub asked: [AtomicU64; SEATS / 64],
    /// A bit for each line of which somebody has entered a piece that was to be told of.
    pub entered: [AtomicU64; LINES / 64],
    /// Storages whose requests are not ordered.
    pub unordered: [Unordered; UNORDERED],
    /// Requests.
    pub seats: [Seat; SEATS],
    /// Files, and what of them is in memory.
    pub lines: [Line; LINES],
}

/// The agent, and how to wake it.
#[repr(C, align(64))]
pub struct Head {
    /// Of the layout; 0 until the agent is ready.
    pub version: AtomicU32,
    /// Whether requests are ordered now. If not, everyone goes ahead.
    pub open: AtomicU32,
    /// When the agent last said that it lives, in ms of the monotonic clock.
    pub alive_ms: AtomicU64,
    /// Counts up, and wakes the agent.
    pub bell: AtomicU32,
}

/// What of a file is in memory.
#[repr(C, align(64))]
pub struct Line {
    /// The file's, by which it is known.
    pub device: AtomicU64,
    /// The file's, by which it is known; 0 while the line is free.
    pub inode: AtomicU64,
    /// Counts up, and wakes who waits, whenever something of the file has become ready or is given up.
    pub progress: AtomicU32,
    /// Open descriptors of programs that have read by this line. Those of killed programs are counted until the line is
    /// given up.
    pub users: AtomicU32,
    pieces: [AtomicU64; PIECES],
}

/// What a line says of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which of the file it is.
    pub number: u64,
    /// How many of its pages, from the first, are in memory.
    pub pages: u64,
    /// Whether the agent wants to be told when somebody enters it.
    pub is_announced: bool,
}

impl Piece {
    const PAGES_BITS: u32 = 9;
    const ANNOUNCED: u64 = 1 << Self::PAGES_BITS;
    const NUMBER_BIT: u32 = Self::PAGES_BITS + 1;
    /// A whole piece has so many pages.
    pub const PAGES: u64 = PIECE_BYTES / PAGE_BYTES;

    fn from_word(word: u64) -> Option<Piece> {
        let number = (word >> Self::NUMBER_BIT).checked_sub(1)?;
        let pages = word & (Self::ANNOUNCED - 1);
        Some(Piece { number, pages, is_announced: word & Self::ANNOUNCED != 0 })
    }

    fn word(self) -> u64 {
        (self.number + 1) << Self::NUMBER_BIT | u64::from(self.is_announced) << Self::PAGES_BITS | self.pages
    }

    /// Where it begins in the file, in bytes.
    pub fn start(&self) -> u64 {
        self.number * PIECE_BYTES
    }

    /// Up to where it is in memory.
    pub fn ready_end(&self) -> u64 {
        self.start() + self.pages * PAGE_BYTES
    }
}

impl Line {
    /// Whether it is of that file.
    pub fn is_of(&self, device: u64, inode: u64) -> bool {
        self.inode.load(Ordering::Acquire) == inode && self.device.load(Ordering::Relaxed) == device
    }

    /// What there is of the piece of that number.
    pub fn piece(&self, number: u64) -> Option<Piece> {
        Piece::from_word(self.place(number).load(Ordering::Acquire)).filter(|piece| piece.number == number)
    }

    /// Says what there is of a piece; what was said of another in its place is forgotten. Of the agent.
    pub fn set(&self, piece: Piece) {
        self.place(piece.number).store(piece.word(), Ordering::Release);
    }

    /// More of a piece is in memory; the wish to be told of it stays. Of the agent.
    pub fn grow(&self, number: u64, pages: u64) {
        let _ = self.place(number).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let piece = Piece::from_word(word).filter(|piece| piece.number == number)?;
            Some(Piece { pages, ..piece }.word())
        });
    }

    /// Forgets a piece. Of the agent.
    pub fn forget(&self, number: u64) {
        if self.piece(number).is_some() {
            self.place(number).store(0, Ordering::Release);
        }
    }

    /// Forgets all pieces. Of the agent.
    pub fn clear(&self) {
        self.pieces.iter().for_each(|piece| piece.store(0, Ordering::Release));
    }

    /// Takes down the wish to be told when somebody enters this piece; whether it was there.
    pub fn enter(&self, piece: Piece) -> bool {
        let entered = Piece { is_announced: false, ..piece };
        let place = self.place(piece.number);
        piece.is_announced
            && place.compare_exchange(piece.word(), entered.word(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        // Streams of one file are often whole powers of two apart: their pieces are not to meet in one place.
        let mixed = number.wrapping_add(number / PIECES as u64 * 37);
        &self.pieces[(mixed % PIECES as u64) as usize]
    }
}

impl Board {
    /// Where a line for this file may be made. Of the agent.
    pub fn free_line_for(&self, device: u64, inode: u64) -> Option<usize> {
        places(device, inode).find(|place| self.lines[*place].inode.load(Ordering::Relaxed) == 0)
    }

    /// Has the agent look at a seat.
    pub fn tell_of_seat(&self, seat: usize) {
        self.asked[seat / 64].fetch_or(1 << (seat % 64), Ordering::Release);
        ring(&self.head.bell);
    }

    /// Tells the agent that somebody has entered an announced piece of a line.
    pub fn tell_of_line(&self, line: usize) {
        self.entered[line / 64].fetch_or(1 << (line % 64), Ordering::Release);
        ring(&self.head.bell);
    }

    /// When its agent last said that it lives. What a program was told is good until it says so again.
    #[inline]
    pub fn beat(&self) -> u64 {
        self.head.alive_ms.load(Ordering::Relaxed)
    }

    /// Whether its agent lives.
    pub fn is_alive(&self, now_ms: u64) -> bool {
        let silent_ms = now_ms.saturating_sub(self.head.alive_ms.load(Ordering::Relaxed));
        self.head.version.load(Ordering::Acquire) == VERSION && silent_ms < SILENCE.as_millis() as u64
    }

    /// Whether requests are ordered now.
    pub fn is_open(&self, now_ms: u64) -> bool {
        self.head.open.load(Ordering::Acquire) != 0 && self.is_alive(now_ms)
    }
}

/// Takes all marks of a field of bits; their numbers.
pub fn take_marks(field: &[AtomicU64]) -> impl Iterator<Item = usize> + '_ {
    let words = field.iter().enumerate().map(|(place, word)| {
        let is_marked = word.load(Ordering::Relaxed) != 0;
        (place, if is_marked { word.swap(0, Ordering::Acquire) } else { 0 })
    });
    words.flat_map(|(place, bits)| (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| place * 64 + bit))
}

/// Where a file's line may be.
fn places(device: u64, inode: u64) -> impl Iterator<Item = usize> {
    // Fibonacci hashing: the upper bits of the product are well mixed.
    let hash = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PROBES).map(move |probe| (hash as usize + probe) % LINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_one_word() {
        for (number, pages, is_announced) in [(0, 0, false), (7, 256, true), ((1 << 40) + 3, 1, true)] {
            let piece = Piece { number, pages, is_announced };
            assert_eq!(Piece::from_word(piece.word()), Some(piece));
        }
        assert_eq!(Piece::from_word(0), None);
    }

    #[test]
    fn a_piece_is_entered_once() {
        let board = map::anonymous();
        let line = &board.lines[3];
        let piece = Piece { number: 70, pages: 5, is_announced: true };
        line.set(piece);
        assert_eq!(line.piece(70), Some(piece));
        assert_eq!(line.piece(70 + 219), None, "another piece has the same place");
        assert!(line.enter(piece));
        assert!(!line.enter(piece));
        assert_eq!(line.piece(70), Some(Piece { is_announced: false, ..piece }));
    }

    #[test]
    fn marks_are_taken_once() {
        let board = map::anonymous();
        for seat in [0, 63, 64, 1023] {
            board.tell_of_seat(seat);
        }
        assert_eq!(take_marks(&board.asked).collect::<Vec<_>>(), [0, 63, 64, 1023]);
        assert_eq!(take_marks(&board.asked).count(), 0);
    }

    #[test]
    fn a_silent_agent_is_not_waited_for() {
        let board = map::anonymous();
        board.head.version.store(VERSION, Ordering::Relaxed);
        board.head.alive_ms.store(1_000, Ordering::Relaxed);
        assert!(!board.is_open(1_001), "nothing is ordered yet");
        board.head.open.store(1, Ordering::Relaxed);
        assert!(board.is_open(1_001));
        assert!(!board.is_open(1_000 + SILENCE.as_millis() as u64));
    }
}
