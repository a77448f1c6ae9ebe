//! Records with a length prefix, which counts the bytes that follow it and may be 0. A last record
//! that is shorter than its length is refused. This detects most content that does not have this
//! format.

use super::{Ending, FormatProblem, Misfit, Records};

/// State: the length of the record, as far as it was read, and the number of bytes that follow.
pub(super) struct LengthPrefixed {
    prefix_bytes: u8,
    is_big_endian: bool,
    /// Offset of the record.
    begun: u64,
    /// Number of bytes of the prefix that were read.
    read_bytes: u8,
    /// The length in the prefix.
    length_bytes: u64,
    /// Number of bytes of the record that were not read yet.
    rest_bytes: u64,
}

impl LengthPrefixed {
    /// The format with prefixes of this size.
    pub(super) fn new(prefix_bytes: u8, is_big_endian: bool) -> Self {
        assert!((1..=8).contains(&prefix_bytes), "prefixes have 1 to 8 bytes");
        LengthPrefixed {
            prefix_bytes,
            is_big_endian,
            begun: 0,
            read_bytes: 0,
            length_bytes: 0,
            rest_bytes: 0,
        }
    }

    /// Reads the next byte of a prefix.
    fn read_prefix(&mut self, byte: u8) {
        let byte = u64::from(byte);
        self.length_bytes = if self.is_big_endian {
            self.length_bytes << 8 | byte
        } else {
            self.length_bytes | byte << (8 * self.read_bytes)
        };
        self.read_bytes += 1;
        self.rest_bytes = self.length_bytes;
    }
}

impl Records for LengthPrefixed {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        let mut at = 0;
        loop {
            if self.read_bytes == self.prefix_bytes {
                let content = self.rest_bytes.min((bytes.len() - at) as u64);
                self.rest_bytes -= content;
                at += content as usize;
                if self.rest_bytes > 0 {
                    return Ok(None);
                }
                (self.read_bytes, self.length_bytes) = (0, 0);
                let end = offset + at as u64;
                if end >= least {
                    return Ok(Some(end));
                }
            }
            let Some(&byte) = bytes.get(at) else { return Ok(None) };
            if self.read_bytes == 0 {
                self.begun = offset + at as u64;
            }
            self.read_prefix(byte);
            at += 1;
        }
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        if self.read_bytes == 0 {
            Ok(Ending::Whole)
        } else if self.read_bytes < self.prefix_bytes {
            Err((self.begun, FormatProblem::CutOff))
        } else {
            Err((self.begun, FormatProblem::BeyondEnd { length_bytes: self.length_bytes }))
        }
    }
}
