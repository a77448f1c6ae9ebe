//! Content that is read to be stored. Its holes are passed over: nobody reads, sends or stores
//! their zeros.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use eyas_store::{Checksum, Hasher, is_hole};

/// Number of zeros that are hashed together.
const ZEROS: usize = 4096;

/// Content that is read once, from its beginning to its end.
pub trait ContentSource: Send + 'static {
    /// Reads the next bytes, as [`Read::read`].
    ///
    /// # Errors
    /// The content cannot be read.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Passes over the next `bytes` if they are known to be zeros without reading them. Returns
    /// whether they are.
    ///
    /// # Errors
    /// The content cannot be read.
    fn skip_hole(&mut self, bytes: u64) -> io::Result<bool> {
        let _ = bytes;
        Ok(false)
    }
}

impl<R: Read + Send + 'static> ContentSource for R {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Read::read(self, buffer)
    }
}

impl ContentSource for Box<dyn ContentSource> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (**self).read(buffer)
    }

    fn skip_hole(&mut self, bytes: u64) -> io::Result<bool> {
        (**self).skip_hole(bytes)
    }
}

/// A local file, from its present position on, whose holes are not read.
#[derive(Debug)]
pub struct SparseFile(pub File);

impl ContentSource for SparseFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Read::read(&mut self.0, buffer)
    }

    fn skip_hole(&mut self, bytes: u64) -> io::Result<bool> {
        // A pipe has no position, and no holes.
        let Ok(begin) = self.0.stream_position() else { return Ok(false) };
        let end = begin + bytes;
        let is_hole = end <= self.0.metadata()?.len() && is_hole(&self.0, begin..end);
        self.0.seek(SeekFrom::Start(if is_hole { end } else { begin }))?;
        Ok(is_hole)
    }
}

/// The checksum of this number of zeros.
pub(super) fn checksum_of_zeros(mut bytes: u64) -> Checksum {
    let mut hasher = Hasher::new();
    while bytes > 0 {
        let some = bytes.min(ZEROS as u64);
        hasher.update(&[0; ZEROS][..some as usize]);
        bytes -= some;
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_of_a_file_are_passed_over() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 << 20).unwrap();
        file.write_all_at(b"x", 1 << 20).unwrap();
        let mut source = SparseFile(file);
        let mut byte = [7];
        assert!(source.skip_hole(1 << 19).unwrap() && !source.skip_hole(1 << 20).unwrap());
        assert_eq!((ContentSource::read(&mut source, &mut byte).unwrap(), byte), (1, [0]));
        source.0.seek(SeekFrom::Start(1 << 20)).unwrap();
        assert!(!source.skip_hole(1).unwrap());
        assert_eq!((ContentSource::read(&mut source, &mut byte).unwrap(), byte), (1, *b"x"));
        source.0.seek(SeekFrom::Start(2 << 20)).unwrap();
        assert!(!source.skip_hole((1 << 20) + 1).unwrap(), "it ends before");
        assert!(source.skip_hole(1 << 20).unwrap());
        assert_eq!(ContentSource::read(&mut source, &mut byte).unwrap(), 0);
    }

    #[test]
    fn zeros_have_a_checksum() {
        for length in [1, ZEROS - 1, ZEROS, 3 * ZEROS + 5] {
            assert_eq!(checksum_of_zeros(length as u64), Checksum::of(&vec![0; length]));
        }
    }
}
