//! The clock of pools.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock that starts with the system's time and is never set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolClock {
    began: Instant,
    began_us: u64,
}

impl PoolClock {
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        PoolClock {
            began: Instant::now(),
            began_us: since.map_or(0, |since| since.as_micros() as u64),
        }
    }

    /// Microseconds since 1970. Never less than before.
    pub fn now_us(&self) -> u64 {
        self.began_us + self.began.elapsed().as_micros() as u64
    }
}
