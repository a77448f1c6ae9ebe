//! Frames of zstd (RFC 8878, §3.1), as `pzstd` writes several of them. A record is a frame, which a
//! program can decompress alone; frames that programs skip are records, too.
//!
//! No content is refused: what follows a frame that is none belongs to the last record.

use super::{Ending, Misfit, Records};

const FRAME: u32 = 0xfd2f_b528;
const FIRST_SKIPPED: u32 = 0x184d_2a50;
const LAST_SKIPPED: u32 = 0x184d_2a5f;

/// A field of a frame whose value matters.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Field {
    /// The number with which a frame begins.
    #[default]
    Magic,
    /// The size of a frame that is skipped.
    SkippedSize,
    /// The form of the rest of the header.
    Descriptor,
    /// The kind and size of a block.
    BlockHeader,
}

impl Field {
    fn bytes(self) -> u32 {
        match self {
            Field::Magic | Field::SkippedSize => 4,
            Field::Descriptor => 1,
            Field::BlockHeader => 3,
        }
    }
}

/// State: the present field, its value so far, and how many bytes come before it.
#[derive(Default)]
pub(super) struct Zstd {
    field: Field,
    value: u32,
    read_bytes: u32,
    skip_bytes: u64,
    has_checksum: bool,
    is_lost: bool,
}

impl Zstd {
    /// A field is complete. Chooses the next one, and what comes before it.
    fn end_field(&mut self) {
        let value = core::mem::take(&mut self.value);
        self.read_bytes = 0;
        (self.field, self.skip_bytes) = match self.field {
            Field::Magic if value == FRAME => (Field::Descriptor, 0),
            Field::Magic if (FIRST_SKIPPED..=LAST_SKIPPED).contains(&value) => {
                (Field::SkippedSize, 0)
            }
            Field::Magic => {
                self.is_lost = true;
                return;
            }
            Field::SkippedSize => (Field::Magic, value.into()),
            Field::Descriptor => {
                let (is_single, dictionary) = (value >> 5 & 1 == 1, value & 3);
                self.has_checksum = value >> 2 & 1 == 1;
                let size_bytes = match value >> 6 {
                    0 => u64::from(is_single),
                    flag => 1 << flag,
                };
                let dictionary_bytes = [0, 1, 2, 4][dictionary as usize];
                (Field::BlockHeader, u64::from(!is_single) + dictionary_bytes + size_bytes)
            }
            Field::BlockHeader => {
                // A block of one repeated byte has only that byte.
                let content = if value >> 1 & 3 == 1 { 1 } else { u64::from(value >> 3) };
                match value & 1 {
                    0 => (Field::BlockHeader, content),
                    _ => (Field::Magic, content + if self.has_checksum { 4 } else { 0 }),
                }
            }
        };
    }

    fn is_between(&self) -> bool {
        self.field == Field::Magic && self.read_bytes == 0 && self.skip_bytes == 0 && !self.is_lost
    }
}

impl Records for Zstd {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        let mut at = 0;
        while at < bytes.len() && !self.is_lost {
            if self.skip_bytes > 0 {
                let skipped = self.skip_bytes.min((bytes.len() - at) as u64);
                self.skip_bytes -= skipped;
                at += skipped as usize;
            } else {
                self.value |= u32::from(bytes[at]) << (8 * self.read_bytes);
                self.read_bytes += 1;
                at += 1;
                if self.read_bytes == self.field.bytes() {
                    self.end_field();
                }
            }
            if self.is_between() && offset + at as u64 >= least {
                return Ok(Some(offset + at as u64));
            }
        }
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        Ok(if self.is_between() { Ending::Whole } else { Ending::Open })
    }
}
