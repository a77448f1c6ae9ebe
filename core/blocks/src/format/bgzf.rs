//! BGZF: members of gzip, each of which has its size in a field of its header (SAM specification,
//! §4.1). A record is a member, which a program can decompress alone.
//!
//! No content is refused: what follows a member that is no BGZF belongs to the last record.

use super::{Ending, Misfit, Records};

/// Bytes of a header up to the end of the field with the size of the member, which is the only
/// field.
const HEADER_BYTES: usize = 18;

/// State: the header so far, and how many bytes of the member follow.
#[derive(Default)]
pub(super) struct Bgzf {
    header: [u8; HEADER_BYTES],
    read_bytes: usize,
    left_bytes: u64,
    is_lost: bool,
}

impl Records for Bgzf {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        let mut at = 0;
        while at < bytes.len() && !self.is_lost {
            if self.read_bytes < HEADER_BYTES {
                self.header[self.read_bytes] = bytes[at];
                self.read_bytes += 1;
                at += 1;
                if self.read_bytes == HEADER_BYTES {
                    match rest_bytes(&self.header) {
                        Some(bytes) => self.left_bytes = bytes,
                        None => self.is_lost = true,
                    }
                }
                continue;
            }
            let taken = self.left_bytes.min((bytes.len() - at) as u64);
            self.left_bytes -= taken;
            at += taken as usize;
            if self.left_bytes == 0 {
                self.read_bytes = 0;
                if offset + at as u64 >= least {
                    return Ok(Some(offset + at as u64));
                }
            }
        }
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        Ok(if self.read_bytes == 0 && !self.is_lost { Ending::Whole } else { Ending::Open })
    }
}

/// Bytes of a member after this header.
fn rest_bytes(header: &[u8; HEADER_BYTES]) -> Option<u64> {
    match *header {
        [0x1f, 0x8b, 8, 4, _, _, _, _, _, _, 6, 0, b'B', b'C', 2, 0, low, high] => {
            (u64::from(u16::from_le_bytes([low, high])) + 1)
                .checked_sub(HEADER_BYTES as u64)
                .filter(|bytes| *bytes > 0)
        }
        _ => None,
    }
}
