//! Records of a fixed size, without separators. A last record of another size is refused.

use super::{Ending, FormatProblem, Misfit, Records};

/// State: the offset of the current record.
pub(super) struct FixedSize {
    record_bytes: u64,
    /// Number of bytes of the record that were read, less than its size.
    read_bytes: u64,
    begun: u64,
}

impl FixedSize {
    /// The format with records of this size.
    pub(super) fn new(record_bytes: u32) -> Self {
        assert!(record_bytes > 0, "records have bytes");
        FixedSize { record_bytes: record_bytes.into(), read_bytes: 0, begun: 0 }
    }
}

impl Records for FixedSize {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        let begun = offset - self.read_bytes;
        // At least one: the border at `begun` was found before.
        let records = least.saturating_sub(begun).div_ceil(self.record_bytes);
        let border = begun.saturating_add(records.saturating_mul(self.record_bytes));
        let end = offset + bytes.len() as u64;
        if border <= end {
            self.read_bytes = 0;
            return Ok(Some(border));
        }
        self.read_bytes = (end - begun) % self.record_bytes;
        self.begun = end - self.read_bytes;
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        match self.read_bytes {
            0 => Ok(Ending::Whole),
            _ => Err((self.begun, FormatProblem::CutOff)),
        }
    }
}
