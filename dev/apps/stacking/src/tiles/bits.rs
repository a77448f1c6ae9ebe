//! Bits of compressed tiles, the highest one of a byte first.

/// Reads bits; none after the last byte.
#[derive(Debug)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Bits that have been read.
    position: usize,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next bit.
    pub(super) fn bit(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.position / 8)?;
        let bit = byte & (0x80 >> (self.position % 8)) != 0;
        self.position += 1;
        Some(bit)
    }

    /// The next `count` bits, at most 32, as a number.
    pub(super) fn take(&mut self, count: usize) -> Option<u32> {
        let (first, within) = (self.position / 8, self.position % 8);
        let end = (self.position + count).div_ceil(8);
        let bytes = self.bytes.get(first..end)?;
        let all = bytes.iter().fold(0_u64, |all, &byte| (all << 8) | u64::from(byte));
        let unused = 8 * bytes.len() - within - count;
        self.position += count;
        Some(((all >> unused) & ((1 << count) - 1)) as u32)
    }

    /// The number of zeros before the next one, which is passed, too.
    pub(super) fn zeros(&mut self) -> Option<u32> {
        let start = self.position;
        loop {
            let byte = *self.bytes.get(self.position / 8)?;
            let rest = byte << (self.position % 8);
            if rest != 0 {
                self.position += rest.leading_zeros() as usize + 1;
                return u32::try_from(self.position - start - 1).ok();
            }
            self.position = (self.position / 8 + 1) * 8;
        }
    }

    /// Passes over the rest of a byte that has been begun.
    pub(super) fn align(&mut self) {
        self.position = self.position.next_multiple_of(8);
    }
}
