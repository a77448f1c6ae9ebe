//! Records that begin with their length. It counts what follows it, not itself, and may be 0. A last record with less than its
//! length is refused; so is, because of it, most of what is not of this format.

use super::{Ending, FormatProblem, Misfit, Records};

/// Remembers the record's length, as far as it was read, and how much of the record is to come.
pub(super) struct LengthPrefixed {
    prefix_bytes: u8,
    is_big_endian: bool,
    /// Where the record began.
    begun: u64,
    /// How many bytes of the prefix were read.
    read_bytes: u8,
    /// What they say.
    length_bytes: u64,
    /// How many of those bytes were not read.
    rest_bytes: u64,
}

impl LengthPrefixed {
    /// Records after lengths of so many bytes.
    pub(super) fn new(prefix_bytes: u8, is_big_endian: bool) -> Self {
        assert!((1..=8).contains(&prefix_bytes), "prefixes have 1 to 8 bytes");
        LengthPrefixed { prefix_bytes, is_big_endian, begun: 0, read_bytes: 0, length_bytes: 0, rest_bytes: 0 }
    }

    /// The next byte of a prefix.
    fn read_prefix(&mut self, byte: u8) {
        let byte = u64::from(byte);
        self.length_bytes = match self.is_big_endian {
            true => self.length_bytes << 8 | byte,
            false => self.length_bytes | byte << (8 * self.read_bytes),
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
