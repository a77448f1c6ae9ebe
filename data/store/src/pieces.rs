//! Checksums of the pieces of large objects. With them, each piece can be sent and checked without
//! reading the whole object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use eyas_types::ObjectId;

use crate::checksum::{Checksum, Hasher};
use crate::holes::Part;

/// Objects are sent and checked in pieces of this size; the last piece is the rest. A relay passes
/// on whole pieces, so each relay in a chain adds the time of one piece.
pub const PIECE_BYTES: usize = 128 << 10;

/// Maximum number of checksums that a store remembers, enough for 1 TB of objects. Those of further
/// objects are computed from their content.
const MAX_REMEMBERED: usize = 8 << 20;

/// Computes the checksums of the pieces and of the whole content in one pass.
#[derive(Default)]
pub(crate) struct PieceHasher {
    pieces: Vec<Checksum>,
    /// The checksum of all bytes in `pieces`.
    whole: Option<Checksum>,
    current: Hasher,
    current_bytes: usize,
    /// Whether only the checksum of the whole is wanted.
    is_whole_only: bool,
}

impl PieceHasher {
    /// For content of known size. The checksums of its pieces are left out if there are too many to
    /// remember: a file that is one hole may have any size.
    pub fn of_size(size_bytes: u64) -> Self {
        PieceHasher {
            is_whole_only: size_bytes / PIECE_BYTES as u64 > MAX_REMEMBERED as u64,
            ..PieceHasher::default()
        }
    }

    /// Appends the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.current_bytes));
            self.current.update(now);
            self.current_bytes += now.len();
            bytes = later;
            if self.current_bytes == PIECE_BYTES {
                self.end_piece();
            }
        }
    }

    /// Appends zeros, without looking at them.
    pub fn skip(&mut self, bytes: u64) {
        let begun = bytes.min((PIECE_BYTES - self.current_bytes) as u64 % PIECE_BYTES as u64);
        self.update_zeros(begun);
        let pieces = (bytes - begun) / PIECE_BYTES as u64;
        if pieces > 0 {
            let (zeros, length) = (zero_pieces(pieces), pieces * PIECE_BYTES as u64);
            self.whole =
                Some(self.whole.map_or(zeros, |whole| whole.followed_by(zeros, length as usize)));
            if !self.is_whole_only {
                self.pieces.extend(std::iter::repeat_n(zero_pieces(1), pieces as usize));
            }
        }
        self.update_zeros((bytes - begun) % PIECE_BYTES as u64);
    }

    fn update_zeros(&mut self, mut bytes: u64) {
        const ZEROS: [u8; 4096] = [0; 4096];
        while bytes > 0 {
            let now = bytes.min(ZEROS.len() as u64);
            self.update(&ZEROS[..now as usize]);
            bytes -= now;
        }
    }

    pub fn take(&mut self, part: Part<'_>) {
        match part {
            Part::Data(bytes) => self.update(bytes),
            Part::Hole(bytes) => self.skip(bytes),
        }
    }

    /// Appends a whole piece, or the last one, whose checksum is known. No other piece may have
    /// begun.
    pub fn add(&mut self, checksum: Checksum, piece_bytes: usize) {
        assert_eq!(self.current_bytes, 0, "pieces lie where they lie");
        self.push(checksum, piece_bytes);
    }

    /// The content has ended; an incomplete piece is the last one.
    pub fn end(&mut self) {
        if self.current_bytes > 0 {
            self.end_piece();
        }
    }

    /// The checksums of the complete pieces.
    pub fn pieces(&self) -> &[Checksum] {
        &self.pieces
    }

    /// The checksum of all bytes so far.
    pub fn whole(&self) -> Checksum {
        match self.whole {
            None => self.current.finish(),
            Some(whole) if self.current_bytes == 0 => whole,
            Some(whole) => whole.followed_by(self.current.finish(), self.current_bytes),
        }
    }

    fn end_piece(&mut self) {
        let checksum = core::mem::take(&mut self.current).finish();
        let piece_bytes = core::mem::take(&mut self.current_bytes);
        self.push(checksum, piece_bytes);
    }

    fn push(&mut self, checksum: Checksum, piece_bytes: usize) {
        self.whole = Some(match self.whole {
            None => checksum,
            Some(whole) if piece_bytes == PIECE_BYTES => followed_by_piece(whole, checksum),
            Some(whole) => whole.followed_by(checksum, piece_bytes),
        });
        if !self.is_whole_only {
            self.pieces.push(checksum);
        }
    }
}

/// The checksum of this number of pieces, at least one, that are all zeros. Takes a step for each
/// bit of the number.
fn zero_pieces(mut count: u64) -> Checksum {
    static ONE: OnceLock<Checksum> = OnceLock::new();
    let (mut doubled, mut bytes) =
        (*ONE.get_or_init(|| Checksum::of(&vec![0; PIECE_BYTES])), PIECE_BYTES);
    let mut sum: Option<Checksum> = None;
    loop {
        if count & 1 == 1 {
            sum = Some(sum.map_or(doubled, |sum| sum.followed_by(doubled, bytes)));
        }
        count >>= 1;
        if count == 0 {
            return sum.expect("one of its bits is set");
        }
        doubled = doubled.followed_by(doubled, bytes);
        bytes *= 2;
    }
}

/// [`Checksum::followed_by`] for a whole piece. The general function takes as long as reading some
/// 100 KB. For a fixed length, the result is linear in the first checksum, so the contribution of
/// each of its bits can be cached.
fn followed_by_piece(whole: Checksum, piece: Checksum) -> Checksum {
    static OF_BITS: OnceLock<[u64; 64]> = OnceLock::new();
    let of_bit = |bit: u32| Checksum(1 << bit).followed_by(Checksum(0), PIECE_BYTES).0;
    let of_bits = OF_BITS.get_or_init(|| core::array::from_fn(|bit| of_bit(bit as u32)));
    let set = |bit: usize| (whole.0 >> bit & 1).wrapping_neg();
    Checksum(
        of_bits.iter().enumerate().fold(piece.0, |sum, (bit, becomes)| sum ^ (becomes & set(bit))),
    )
}

/// Checksums of the pieces of objects that have several.
#[derive(Default)]
pub(crate) struct PieceChecksums(Mutex<Table>);

#[derive(Default)]
struct Table {
    objects: HashMap<ObjectId, (Checksum, Arc<[Checksum]>)>,
    count: usize,
}

impl PieceChecksums {
    pub fn insert(&self, id: ObjectId, summing: &PieceHasher) {
        self.remove(id);
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pieces = summing.pieces();
        if pieces.len() > 1 && table.count + pieces.len() <= MAX_REMEMBERED {
            table.count += pieces.len();
            table.objects.insert(id, (summing.whole(), pieces.into()));
        }
    }

    /// The checksums of the pieces of an object whose whole content has this checksum.
    pub fn get(&self, id: ObjectId, whole: Checksum) -> Option<Arc<[Checksum]>> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.objects.get(&id).filter(|(of, _)| *of == whole).map(|(_, pieces)| pieces.clone())
    }

    pub fn remove(&self, id: ObjectId) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, pieces)) = table.objects.remove(&id) {
            table.count -= pieces.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_gives_the_checksums_of_the_pieces_and_of_the_whole() {
        let content: Vec<u8> = (0..2 * PIECE_BYTES + 1000).map(|at| (at / 7) as u8).collect();
        let sums: Vec<_> = content.chunks(PIECE_BYTES).map(Checksum::of).collect();
        for step in [1000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, content.len()] {
            let mut summing = PieceHasher::default();
            for (at, bytes) in content.chunks(step).enumerate() {
                summing.update(bytes);
                assert_eq!(summing.whole(), Checksum::of(&content[..at * step + bytes.len()]));
            }
            assert_eq!(summing.pieces(), &sums[..2]);
            summing.end();
            assert_eq!((summing.pieces(), summing.whole()), (&sums[..], Checksum::of(&content)));
        }
        let mut summing = PieceHasher::default();
        content
            .chunks(PIECE_BYTES)
            .zip(&sums)
            .for_each(|(piece, sum)| summing.add(*sum, piece.len()));
        assert_eq!((summing.pieces(), summing.whole()), (&sums[..], Checksum::of(&content)));
        assert_eq!(PieceHasher::default().whole(), Checksum::of(b""));
    }

    #[test]
    fn skipped_bytes_count_as_zeros() {
        let zeros = vec![0; 5 * PIECE_BYTES + 7];
        for (before, skipped) in
            [(0, 5 * PIECE_BYTES), (0, 10), (9, 3 * PIECE_BYTES + 1), (9, 3), (PIECE_BYTES, 0)]
        {
            let [mut skips, mut reads] = [PieceHasher::default(), PieceHasher::default()];
            for summing in [&mut skips, &mut reads] {
                summing.update(&vec![1; before]);
            }
            skips.skip(skipped as u64);
            reads.update(&zeros[..skipped]);
            for summing in [&mut skips, &mut reads] {
                summing.update(b"end");
                summing.end();
            }
            assert_eq!(
                (skips.pieces(), skips.whole()),
                (reads.pieces(), reads.whole()),
                "{before} {skipped}"
            );
        }
        // The largest size that a file can have.
        let mut endless = PieceHasher::of_size(i64::MAX as u64);
        endless.skip(i64::MAX as u64);
        assert_eq!(endless.pieces(), []);
        assert_ne!(endless.whole(), Checksum(0));
    }
}
