//! Lines: each ends with a line feed. Carriage returns, NUL bytes and empty lines are ordinary
//! content. The last line may lack its line feed. No content is refused.

use memchr::memchr;

use super::{Ending, Misfit, Records};

/// State: whether a line has begun.
#[derive(Default)]
pub(super) struct LineRecords {
    is_open: bool,
}

impl Records for LineRecords {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        // Line feeds before `least - 1` end no chunk, and are not searched for.
        let skipped = least.saturating_sub(offset + 1).min(bytes.len() as u64) as usize;
        if let Some(found) = memchr(b'\n', &bytes[skipped..]) {
            self.is_open = false;
            return Ok(Some(offset + (skipped + found) as u64 + 1));
        }
        if let Some(&last) = bytes.last() {
            self.is_open = last != b'\n';
        }
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        Ok(if self.is_open { Ending::Open } else { Ending::Whole })
    }
}
