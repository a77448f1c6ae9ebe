//! Mapping a board into a process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::Board;

/// Size of a board and of its memory.
const BOARD_BYTES: usize = size_of::<Board>();

/// Creates the memory of a board. It is sealed, so that no process can shrink it: a process that
/// has it mapped would be killed.
pub fn make() -> io::Result<OwnedFd> {
    let memory = memfd_create("eyas-board", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, BOARD_BYTES as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Maps a board for the rest of the process's life, because any thread may be looking at it.
pub fn map(memory: impl AsFd) -> io::Result<&'static Board> {
    let is_sealed = fcntl_get_seals(&memory)?.contains(SealFlags::SHRINK);
    if !is_sealed || fstat(&memory)?.st_size != BOARD_BYTES as i64 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the memory is not a sealed board of this version",
        ));
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses a free address range, and the mapping is never removed.
    let place = unsafe { mmap(std::ptr::null_mut(), BOARD_BYTES, protection, flags, memory, 0)? };
    // SAFETY: the mapping has the size of a board, is aligned to a page and never removed, and the
    // seal keeps memory behind it. A board consists of atomics only; all bits are valid for them,
    // also when other processes write.
    Ok(unsafe { &*place.cast::<Board>() })
}

/// A board that only this process has.
#[cfg(test)]
pub(crate) fn anonymous() -> &'static Board {
    map(make().expect("memory")).expect("a board")
}
