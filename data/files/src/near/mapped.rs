//! Files in memory, without a copy: the pages that the system has of them.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap, munmap};

/// A part of a file that no program writes to.
pub(super) struct MappedBytes {
    address: NonNull<c_void>,
    size_bytes: usize,
}

impl MappedBytes {
    /// Reads this part of a file, which is not empty. `offset` is a multiple of the size of a page.
    ///
    /// # Errors
    /// If the part is not within the file or cannot be read; if the system or the file system
    /// cannot do this.
    pub fn of(file: &File, offset: u64, size_bytes: usize) -> io::Result<Self> {
        let mapped = MappedBytes::unread(file, offset, size_bytes)?;
        // Reads all pages now. So an error of the disk is an error here, and not a signal that ends
        // the process. SAFETY: the range was mapped above, and the call does not change its
        // content.
        unsafe { madvise(mapped.address.as_ptr(), size_bytes, Advice::LinuxPopulateRead)? };
        Ok(mapped)
    }

    /// The same, before it is read.
    fn unread(file: &File, offset: u64, size_bytes: usize) -> io::Result<Self> {
        // SAFETY: the system chooses a free address range.
        let address = unsafe {
            mmap(null_mut(), size_bytes, ProtFlags::READ, MapFlags::SHARED, file, offset)?
        };
        let address = NonNull::new(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(MappedBytes { address, size_bytes })
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped for as long as `self` exists, and no program writes to the
        // file.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), self.size_bytes) }
    }
}

/// A file whose pages stay in memory, for all processes that read it.
pub struct LockedFile {
    _mapped: MappedBytes,
}

// SAFETY: only the system uses the pages; nothing reads them through the address.
unsafe impl Send for LockedFile {}

impl LockedFile {
    /// Reads a file of this size, which is not 0, and locks its pages. Blocks.
    ///
    /// # Errors
    /// If the file is shorter or cannot be read; `OutOfMemory`, `WouldBlock` or `PermissionDenied`
    /// if the process may not lock that much (`ulimit -l`).
    pub fn of(file: &File, size_bytes: u64) -> io::Result<Self> {
        if file.metadata()?.len() < size_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mapped = MappedBytes::unread(file, 0, size_bytes as usize)?;
        // SAFETY: the range was mapped above. The call reads its pages, and reports an error of the
        // disk.
        unsafe { mlock(mapped.address.as_ptr(), mapped.size_bytes)? };
        Ok(LockedFile { _mapped: mapped })
    }
}

impl Drop for MappedBytes {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `of`, and no reference to its bytes outlives `self`.
        let _ = unsafe { munmap(self.address.as_ptr(), self.size_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_part_of_a_file_is_read_and_what_is_beyond_its_end_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..10_000_u32).map(|number| number as u8).collect();
        file.write_all(&content).unwrap();
        assert_eq!(MappedBytes::of(&file, 4096, 5000).unwrap().bytes(), &content[4096..9096]);
        assert!(MappedBytes::of(&file, 8192, 10_000).is_err());
        assert!(MappedBytes::of(&file, 1, 10).is_err());
    }
}
