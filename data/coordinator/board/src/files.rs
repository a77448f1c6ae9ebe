//! Files that the agent reads ahead, and which of their pieces are in the page cache.

use crate::sizes::{MAX_FILES, MAX_PIECES, PAGE_BYTES, PART_SLOTS, PIECE_BYTES};
use crate::words::{AtomicU32, AtomicU64, Ordering};

/// Consecutive entries, from the one that the hash names, in which a file can be.
const PROBES: usize = 8;

/// A file, and which of its pieces are in the page cache.
#[repr(C, align(64))]
#[cfg_attr(loom, derive(Default))]
pub struct CachedFile {
    /// Device of the file.
    pub device: AtomicU64,
    /// Inode of the file; 0 while the entry is free.
    pub inode: AtomicU64,
    /// Counter that wakes waiting programs when bytes of the file have become ready, or are no
    /// longer read ahead.
    pub progress: AtomicU32,
    /// Open descriptors that programs have read through this entry. Those of killed programs count
    /// until the entry is freed.
    pub users: AtomicU32,
    pieces: [AtomicU64; MAX_PIECES],
    /// For each piece, 0, or the number of its slot in the board's parts, plus 1: the piece is not
    /// in the page cache.
    slots: [AtomicU32; MAX_PIECES],
}

/// State of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePiece {
    /// Number of the piece in the file.
    pub number: u64,
    /// Number of its pages, from the first, that are in memory.
    pub pages: u64,
    /// Whether the agent wants to know when a program enters the piece.
    pub is_announced: bool,
}

impl FilePiece {
    const PAGES_BITS: u32 = 9;
    const ANNOUNCED: u64 = 1 << Self::PAGES_BITS;
    const NUMBER_BIT: u32 = Self::PAGES_BITS + 1;
    /// Pages of a whole piece.
    pub const PAGES: u64 = PIECE_BYTES / PAGE_BYTES;

    fn from_word(word: u64) -> Option<FilePiece> {
        let number = (word >> Self::NUMBER_BIT).checked_sub(1)?;
        let pages = word & (Self::ANNOUNCED - 1);
        Some(FilePiece { number, pages, is_announced: word & Self::ANNOUNCED != 0 })
    }

    fn word(self) -> u64 {
        (self.number + 1) << Self::NUMBER_BIT
            | u64::from(self.is_announced) << Self::PAGES_BITS
            | self.pages
    }

    /// Offset of the piece in the file.
    pub fn start(&self) -> u64 {
        self.number * PIECE_BYTES
    }

    /// Offset up to which the piece is in memory.
    pub fn ready_end(&self) -> u64 {
        self.start() + self.pages * PAGE_BYTES
    }
}

impl CachedFile {
    /// Whether the entry is of this file.
    pub fn is_of(&self, device: u64, inode: u64) -> bool {
        self.inode.load(Ordering::Acquire) == inode && self.device.load(Ordering::Relaxed) == device
    }

    /// State of a piece, if it is known.
    pub fn piece(&self, number: u64) -> Option<FilePiece> {
        FilePiece::from_word(self.word_of(number).load(Ordering::Acquire))
            .filter(|piece| piece.number == number)
    }

    /// Sets the state of a piece, in place of another piece with the same hash. For the agent.
    pub fn set(&self, piece: FilePiece) {
        self.slot_of(piece.number).store(0, Ordering::Relaxed);
        self.word_of(piece.number).store(piece.word(), Ordering::Release);
    }

    /// A piece that was set is in this slot of the board's parts. For the agent, which then lets it
    /// [grow](Self::grow).
    pub fn set_slot(&self, number: u64, slot: usize) {
        if self.piece(number).is_some() {
            self.slot_of(number).store(slot as u32 + 1, Ordering::Relaxed);
        }
    }

    /// The slot of a piece that is whole, if it is not in the page cache.
    pub fn slot(&self, number: u64) -> Option<usize> {
        let slot = self.slot_of(number).load(Ordering::Relaxed).checked_sub(1)? as usize;
        Some(slot).filter(|slot| *slot < PART_SLOTS)
    }

    /// More pages of a piece are in memory; its announcement stays. For the agent.
    pub fn grow(&self, number: u64, pages: u64) {
        let _ = self.word_of(number).fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
            let piece = FilePiece::from_word(word).filter(|piece| piece.number == number)?;
            Some(FilePiece { pages, ..piece }.word())
        });
    }

    /// Forgets a piece. For the agent.
    pub fn forget(&self, number: u64) {
        if self.piece(number).is_some() {
            self.word_of(number).store(0, Ordering::Release);
        }
    }

    /// Forgets all pieces. For the agent.
    pub fn clear(&self) {
        self.pieces.iter().for_each(|piece| piece.store(0, Ordering::Release));
    }

    /// Clears the announcement of a piece that a program enters, also if more pages are in memory
    /// by now. Returns whether it was set.
    pub fn enter(&self, piece: FilePiece) -> bool {
        let enter = |word| {
            let found = FilePiece::from_word(word)?;
            (found.number == piece.number && found.is_announced)
                .then_some(FilePiece { is_announced: false, ..found }.word())
        };
        piece.is_announced
            && self
                .word_of(piece.number)
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
                .is_ok()
    }

    fn word_of(&self, number: u64) -> &AtomicU64 {
        &self.pieces[place_of(number)]
    }

    fn slot_of(&self, number: u64) -> &AtomicU32 {
        &self.slots[place_of(number)]
    }
}

/// The index of a piece in the fields of its file.
fn place_of(number: u64) -> usize {
    // Streams of one file are often a power of two apart; this keeps their pieces from sharing a
    // word.
    let mixed = number.wrapping_add(number / MAX_PIECES as u64 * 37);
    (mixed % MAX_PIECES as u64) as usize
}

/// Entries in which a file can be.
pub(crate) fn candidates(device: u64, inode: u64) -> impl Iterator<Item = usize> {
    // Fibonacci hashing: the upper bits of the product are well mixed.
    let hash = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PROBES).map(move |probe| (hash as usize + probe) % MAX_FILES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map;

    #[test]
    fn a_piece_fits_a_word() {
        for (number, pages, is_announced) in
            [(0, 0, false), (7, 256, true), ((1 << 40) + 3, 1, true)]
        {
            let piece = FilePiece { number, pages, is_announced };
            assert_eq!(FilePiece::from_word(piece.word()), Some(piece));
        }
        assert_eq!(FilePiece::from_word(0), None);
    }

    #[test]
    fn a_piece_is_entered_once() {
        let board = map::anonymous();
        let file = &board.files[3];
        let piece = FilePiece { number: 70, pages: 5, is_announced: true };
        file.set(piece);
        assert_eq!(file.piece(70), Some(piece));
        assert_eq!(file.piece(70 + 219), None, "another piece has the same place");
        assert!(file.enter(piece));
        assert!(!file.enter(piece));
        assert_eq!(file.piece(70), Some(FilePiece { is_announced: false, ..piece }));
        file.set_slot(70, 5);
        assert_eq!((file.slot(70), file.slot(71)), (Some(5), None));
        file.set(piece);
        assert_eq!(file.slot(70), None, "it is read again");
        file.grow(70, 6);
        assert!(file.enter(piece), "more of it is in memory");
        assert_eq!(file.piece(70), Some(FilePiece { pages: 6, is_announced: false, ..piece }));
    }
}
