//! The whole file is one record and one chunk. Appended content continues it.

use super::{Ending, Misfit, Records};

/// Has no state.
pub(super) struct Whole;

impl Records for Whole {
    fn border(&mut self, _bytes: &[u8], _offset: u64, _least: u64) -> Result<Option<u64>, Misfit> {
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        Ok(Ending::Open)
    }
}
