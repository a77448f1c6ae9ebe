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

/// Bytes that were put into a room.
pub(crate) struct Copied {
    pub offset: u64,
    pub bytes: usize,
}

impl Room {
    /// Puts the bytes of a file into the room that a read at this offset would. `None`: the read has
    /// to be made, because the parts on the board are of another version of the file, or no longer
    /// there.
    pub(crate) fn fill(
        &self,
        board: &Board,
        cached: &CachedFile,
        descriptor: BorrowedFd<'_>,
        offset: u64,
    ) -> Option<Copied> {
        let access = fcntl_getfl(descriptor).ok()? & OFlags::RWMODE;
        let file =
            PartFile::of(descriptor, VersionOf::Kernel).filter(|_| access != OFlags::WRONLY)?;
        let left = usize::try_from(file.size_bytes.checked_sub(offset)?).unwrap_or(usize::MAX);
        let bytes = left.min(self.length);
        // SAFETY: the program gives `read` memory of this length.
        let into = unsafe { slice::from_raw_parts_mut(self.memory.cast::<u8>(), bytes) };
        if !self.is_at_position {
            copy(board, cached, &file, offset, into)?;
            return Some(Copied { offset, bytes });
        }
        // The position moves first, so that threads and processes that share it read other bytes.
        let step = i64::try_from(bytes).ok()?;
        let offset = seek(descriptor, SeekFrom::Current(step)).ok()? - step.cast_unsigned();
        if copy(board, cached, &file, offset, into).is_some() {
            return Some(Copied { offset, bytes });
        }
        let read = pread(descriptor, &mut *into, offset);
        let missing = step - *read.as_ref().unwrap_or(&0) as i64;
        // This can fail only if another program has moved the position back.
        let _ = seek(descriptor, SeekFrom::Current(-missing));
        Some(Copied { offset, bytes: read.ok()? })
    }
}

/// Copies bytes from the board's parts; they may be of several pieces.
fn copy(
    board: &Board,
    cached: &CachedFile,
    file: &PartFile,
    offset: u64,
    into: &mut [u8],
) -> Option<()> {
    let (mut at, mut left) = (offset, into);
    while !left.is_empty() {
        let (number, from) = (at / PIECE_BYTES, (at % PIECE_BYTES) as usize);
        let length = left.len().min(PIECE_BYTES as usize - from);
        let (now, rest) = left.split_at_mut(length);
        board.parts.get(cached.slot(number)?)?.copy(file, number, from, now)?;
        (at, left) = (at + length as u64, rest);
    }
    Some(())
}
