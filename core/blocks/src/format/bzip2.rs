//! Streams of bzip2, one after the other, as `pbzip2` and `lbzip2` write them. A record is a
//! stream, which a program can decompress alone. The blocks of one stream do not begin at whole
//! bytes, and cannot be cut.
//!
//! A stream ends with a mark at any bit, a checksum of 32 bits, and bits that fill the last byte.
//! No content is refused.

use super::{Ending, Misfit, Records};

/// The mark: the digits of the square root of pi.
const END_MARK: u64 = 0x1772_4538_5090;
const MARK_BITS: u32 = 48;
/// Bytes of a stream after the byte in which the mark ends.
const CHECKSUM_BYTES: u8 = 4;

/// State: the last 64 bits, and how many bytes of the stream follow its mark.
#[derive(Default)]
pub(super) struct Bzip2 {
    bits: u64,
    left: Option<u8>,
}

impl Records for Bzip2 {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        for (at, byte) in bytes.iter().enumerate() {
            match self.left {
                // The stream has ended. It continues if the mark was none.
                Some(0) => {
                    let here = offset + at as u64;
                    self.left = None;
                    if *byte == b'B' {
                        self.bits = 0;
                        if here >= least {
                            return Ok(Some(here));
                        }
                    }
                }
                Some(left) => self.left = Some(left - 1),
                None => {}
            }
            self.bits = self.bits << 8 | u64::from(*byte);
            if self.left.is_none() && has_mark(self.bits) {
                self.left = Some(CHECKSUM_BYTES);
            }
        }
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        Ok(if self.left == Some(0) { Ending::Whole } else { Ending::Open })
    }
}

/// Whether the mark ends in the last byte of these bits.
fn has_mark(bits: u64) -> bool {
    (0..u8::BITS).any(|behind| bits >> behind & ((1 << MARK_BITS) - 1) == END_MARK)
}
