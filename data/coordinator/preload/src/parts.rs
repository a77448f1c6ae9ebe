//! Bytes that came from another node: the program copies them from the board, and the storage is
//! not asked.

use core::ffi::c_void;
use core::slice;

use eyas_board::{Board, CachedFile, PIECE_BYTES, PartFile, VersionOf};
use rustix::fd::BorrowedFd;
use rustix::fs::{OFlags, SeekFrom, fcntl_getfl, seek};
use rustix::io::pread;

/// Memory into which a program wants bytes.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    pub memory: *mut c_void,
    pub length: usize,
    /// Whether the bytes are those at the descriptor's position, which moves.
    pub is_at_position: bool,
}

impl Room {
    /// Puts the bytes of a file into the room that a read at this offset would, and returns their
    /// number. `None`: the call has to be made, because it has to fail, or because the parts on the
    /// board are of another version of the file or no longer there.
    pub(crate) fn fill(
        &self,
        board: &Board,
        cached: &CachedFile,
        descriptor: BorrowedFd<'_>,
        offset: u64,
    ) -> Option<usize> {
        let access = fcntl_getfl(descriptor).ok()? & OFlags::RWMODE;
        let file =
            PartFile::of(descriptor, VersionOf::Kernel).filter(|_| access != OFlags::WRONLY)?;
        let left = usize::try_from(file.size_bytes.checked_sub(offset)?).unwrap_or(usize::MAX);
        let bytes = left.min(self.length);
        // SAFETY: the program gives `read` memory of this length.
        let into = unsafe { slice::from_raw_parts_mut(self.memory.cast::<u8>(), bytes) };
        let source = PartsOfFile { board, cached, descriptor, file: &file };
        if !self.is_at_position {
            return Some(source.copy(offset, into)).filter(|copied| *copied > 0);
        }
        // The position moves first, so that threads and processes that share it read other bytes.
        let step = i64::try_from(bytes).ok()?;
        let offset = seek(descriptor, SeekFrom::Current(step)).ok()? - step.cast_unsigned();
        let copied = source.copy(offset, into);
        if copied < bytes {
            // Another process has moved the position to the end, or the storage fails.
            let missing = (bytes - copied) as i64;
            let _ = seek(descriptor, SeekFrom::Current(-missing));
        }
        Some(copied).filter(|copied| *copied > 0)
    }
}

/// The parts of a file on the board, and the file itself.
struct PartsOfFile<'a> {
    board: &'a Board,
    cached: &'a CachedFile,
    descriptor: BorrowedFd<'a>,
    file: &'a PartFile,
}

impl PartsOfFile<'_> {
    /// Copies bytes, and reads what of them is not on the board. Returns how many there are, from
    /// the first, before the end of the file or a failure.
    fn copy(&self, offset: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (number, from) = (at / PIECE_BYTES, (at % PIECE_BYTES) as usize);
            let length = (into.len() - done).min(PIECE_BYTES as usize - from);
            let now = &mut into[done..done + length];
            let slot = self.cached.slot(number).and_then(|slot| self.board.parts.get(slot));
            let copied = slot.and_then(|slot| slot.copy(self.file, number, from, now));
            if copied.is_some() {
                done += length;
                continue;
            }
            match pread(self.descriptor, now, at) {
                Ok(bytes @ 1..) => done += bytes,
                _ => break,
            }
        }
        done
    }
}
