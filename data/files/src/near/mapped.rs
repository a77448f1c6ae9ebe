//! A part of a file in memory, without a copy: the pages that the system has of it.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::slice;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

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
        // SAFETY: the system chooses a free address range.
        let address = unsafe {
            mmap(null_mut(), size_bytes, ProtFlags::READ, MapFlags::SHARED, file, offset)?
        };
        let address = NonNull::new(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mapped = MappedBytes { address, size_bytes };
        // Reads all pages now. So an error of the disk is an error here, and not a signal that ends
        // the process. SAFETY: the range was mapped above, and the call does not change its
        // content.
        unsafe { madvise(address.as_ptr(), size_bytes, Advice::LinuxPopulateRead)? };
        Ok(mapped)
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped for as long as `self` exists, and no program writes to the
        // file.
        unsafe { slice::from_raw_parts(self.address.as_ptr().cast(), self.size_bytes) }
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
