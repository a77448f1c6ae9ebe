//! Mapping a board into a process.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::{Errno, Result};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect};

use crate::Board;

/// Size of a board and of its memory.
const BOARD_BYTES: usize = size_of::<Board>();

/// Creates the memory of a board. It is sealed, so that no process can shrink it: a process that
/// has it mapped would be killed.
pub fn make() -> Result<OwnedFd> {
    let memory = memfd_create("eyas-board", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, BOARD_BYTES as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Maps a board for the rest of the process's life, because any thread may be looking at it.
///
/// # Errors
/// `EINVAL` if the memory is no sealed board of this version; otherwise the system's.
pub fn map(memory: impl AsFd) -> Result<&'static Board> {
    let is_sealed = fcntl_get_seals(&memory)?.contains(SealFlags::SHRINK);
    if !is_sealed || fstat(&memory)?.st_size != BOARD_BYTES as i64 {
        return Err(Errno::INVAL);
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses a free address range, and the mapping is never removed.
    let place = unsafe { mmap(core::ptr::null_mut(), BOARD_BYTES, protection, flags, memory, 0)? };
    // SAFETY: the mapping has the size of a board, is aligned to a page and never removed, and the
    // seal keeps memory behind it. A board consists of atomics only; all bits are valid for them,
    // also when other processes write.
    Ok(unsafe { &*place.cast::<Board>() })
}

/// Maps a board into a program, as [`map`] does. The program cannot write to the parts, because
/// other programs copy from them.
///
/// # Errors
/// As [`map`].
pub fn map_for_program(memory: impl AsFd) -> Result<&'static Board> {
    let board = map(memory)?;
    let parts = core::ptr::from_ref(&board.parts).cast_mut().cast();
    // SAFETY: the parts begin and end at pages of the mapping, and nothing here writes to them.
    unsafe { mprotect(parts, size_of_val(&board.parts), MprotectFlags::READ)? };
    Ok(board)
}

/// A board that only this process has.
#[cfg(test)]
pub(crate) fn anonymous() -> &'static Board {
    map(make().expect("memory")).expect("a board")
}
