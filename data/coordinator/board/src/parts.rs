//! Parts of files that came from another node. They are in the board's memory, not in the kernel's
//! page cache, so programs copy them from here.
//!
//! A part has a slot of its own. The agent fills slots in turn, and does not wait for programs that
//! are copying: a program that has copied from a slot looks whether the slot was filled again
//! meanwhile, and then takes nothing (a sequence lock).

use crate::sizes::SLOT_BYTES;
use crate::words::{AtomicU64, Ordering, fence};

/// Words of a part.
const WORDS: usize = SLOT_BYTES / WORD_BYTES;
const WORD_BYTES: usize = size_of::<u64>();

/// A file at the time at which a part of it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartFile {
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Size of the file.
    pub size_bytes: u64,
    /// Time of the last change of its content, in nanoseconds since 1970.
    pub modified_ns: u64,
    /// Time of the last change of its content or attributes, in nanoseconds since 1970.
    pub changed_ns: u64,
}

/// Memory for one part.
#[repr(C, align(4096))]
#[cfg_attr(loom, derive(Default))]
pub struct PartSlot {
    /// Grows when the slot is filled, before and after. It is odd meanwhile.
    sequence: AtomicU64,
    number: AtomicU64,
    length: AtomicU64,
    file: [AtomicU64; 5],
    content: [AtomicU64; WORDS],
}

impl PartSlot {
    /// Puts a piece into the slot, or as much of the last piece as its file has. For the agent.
    pub fn fill(&self, file: &PartFile, number: u64, content: &[u8]) {
        self.sequence.fetch_or(1, Ordering::Relaxed);
        // Nothing below is seen before the sequence is odd.
        fence(Ordering::Release);
        self.number.store(number, Ordering::Relaxed);
        self.length.store(content.len() as u64, Ordering::Relaxed);
        for (word, value) in self.file.iter().zip(file.words()) {
            word.store(value, Ordering::Relaxed);
        }
        for (word, bytes) in self.content.iter().zip(content.chunks(WORD_BYTES)) {
            let mut value = [0; WORD_BYTES];
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
        self.sequence.fetch_add(1, Ordering::Release);
    }

    /// Copies bytes of a piece, from an offset in it. `None`: the slot has something else, or fewer
    /// bytes.
    pub fn copy(&self, file: &PartFile, number: u64, from: usize, into: &mut [u8]) -> Option<()> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let to = from.checked_add(into.len())?;
        let is_it = sequence.is_multiple_of(2)
            && self.number.load(Ordering::Relaxed) == number
            && to as u64 <= self.length.load(Ordering::Relaxed).min(SLOT_BYTES as u64)
            && self
                .file
                .iter()
                .zip(file.words())
                .all(|(word, value)| word.load(Ordering::Relaxed) == value);
        is_it.then(|| self.copy_words(from, into))?;
        // Nothing above is read after the sequence.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == sequence).then_some(())
    }

    fn copy_words(&self, from: usize, into: &mut [u8]) {
        let word = |place: usize| self.content[place].load(Ordering::Relaxed).to_ne_bytes();
        let (mut place, skipped) = (from / WORD_BYTES, from % WORD_BYTES);
        let mut left = into;
        if skipped > 0 {
            let (first, rest) = left.split_at_mut(left.len().min(WORD_BYTES - skipped));
            first.copy_from_slice(&word(place)[skipped..][..first.len()]);
            (left, place) = (rest, place + 1);
        }
        let (whole, last) = left.as_chunks_mut::<WORD_BYTES>();
        for bytes in whole {
            *bytes = word(place);
            place += 1;
        }
        if !last.is_empty() {
            last.copy_from_slice(&word(place)[..last.len()]);
        }
    }
}

impl PartFile {
    fn words(&self) -> [u64; 5] {
        [self.device, self.inode, self.size_bytes, self.modified_ns, self.changed_ns]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl PartSlot {
        const fn empty() -> PartSlot {
            PartSlot {
                sequence: AtomicU64::new(0),
                number: AtomicU64::new(0),
                length: AtomicU64::new(0),
                file: [const { AtomicU64::new(0) }; 5],
                content: [const { AtomicU64::new(0) }; WORDS],
            }
        }
    }

    const FILE: PartFile =
        PartFile { device: 1, inode: 2, size_bytes: 5 << 20, modified_ns: 3, changed_ns: 4 };

    #[test]
    fn bytes_are_copied_from_any_offset() {
        static SLOT: PartSlot = PartSlot::empty();
        let slot = &SLOT;
        let content: Vec<u8> = (0..1003).map(|number| number as u8).collect();
        slot.fill(&FILE, 9, &content);
        for from in [0, 1, 7, 8, 9, 500] {
            for length in [0, 1, 3, 8, 15, 16, 17, 503] {
                let mut into = vec![0xff; length];
                assert_eq!(slot.copy(&FILE, 9, from, &mut into), Some(()));
                assert_eq!(into, &content[from..from + length], "{length} bytes from {from}");
            }
        }
        let mut into = [0; 4];
        assert_eq!(slot.copy(&FILE, 9, 1000, &mut into), None, "it ends before");
        assert_eq!(slot.copy(&FILE, 8, 0, &mut into), None, "another piece");
        assert_eq!(slot.copy(&FILE, 9, usize::MAX, &mut into), None);
        for other in [
            PartFile { device: 2, ..FILE },
            PartFile { inode: 3, ..FILE },
            PartFile { size_bytes: 1, ..FILE },
            PartFile { modified_ns: 4, ..FILE },
            PartFile { changed_ns: 5, ..FILE },
        ] {
            assert_eq!(slot.copy(&other, 9, 0, &mut into), None, "{other:?}");
        }
    }

    #[test]
    fn a_slot_that_is_filled_again_meanwhile_gives_nothing() {
        static SLOT: PartSlot = PartSlot::empty();
        let slot = &SLOT;
        let fill = |number: u64| slot.fill(&FILE, number % 2, &vec![number as u8; 64 << 10]);
        fill(0);
        std::thread::scope(|scope| {
            let filling = scope.spawn(|| (1..2000).for_each(fill));
            let (mut into, mut copied) = (vec![0; 64 << 10], 0);
            while !filling.is_finished() || copied == 0 {
                for number in 0..2 {
                    if slot.copy(&FILE, number, 0, &mut into).is_some() {
                        copied += 1;
                        assert!(into.iter().all(|byte| *byte == into[0]), "torn");
                        assert_eq!(u64::from(into[0] % 2), number);
                    }
                }
            }
        });
    }
}
