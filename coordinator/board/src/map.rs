//! Mapping a board into a process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::Board;

/// Bytes of a board, and of the memory that it is.
const BOARD_BYTES: usize = size_of::<Board>();

/// Makes the memory of a new board, of which nobody can take anything away again: who has it mapped would be killed.
pub fn make() -> io::Result<OwnedFd> {
    let memory = memfd_create("eyas-board", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memory, BOARD_BYTES as u64)?;
    fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(memory)
}

/// Maps a board for as long as the process lives: there is no knowing which of its threads are looking at it.
pub fn map(memory: impl AsFd) -> io::Result<&'static Board> {
    let is_sealed = fcntl_get_seals(&memory)?.contains(SealFlags::SHRINK);
    if !is_sealed || fstat(&memory)?.st_size != BOARD_BYTES as i64 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "this is no board"));
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: the kernel chooses a place where nothing is, and it stays mapped.
    let place = unsafe { mmap(std::ptr::null_mut(), BOARD_BYTES, protection, flags, memory, 0)? };
    // SAFETY: the mapping is as large as a board, aligned to a page, and never unmapped; the seal keeps memory below it. A
    // board consists of atomics alone, for which all bits are valid, also when other processes write them.
    Ok(unsafe { &*place.cast::<Board>() })
}

/// A board of this process alone.
#[cfg(test)]
pub(crate) fn anonymous() -> &'static Board {
    map(make().expect("memory")).expect("a board")
}
