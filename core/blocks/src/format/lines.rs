//! Lines: each ends with its line feed, so that a carriage return before that, NUL bytes and empty lines are like any other
//! content. The last one may lack it. Nothing is refused.

use memchr::memchr;

use super::{Ending, Misfit, Records};

/// Remembers whether a line is begun.
#[derive(Default)]
pub(super) struct LineRecords {
    is_open: bool,
}

impl Records for LineRecords {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        // A line feed before the last byte that `least` leaves out ends nothing of interest: nobody looks for it.
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
