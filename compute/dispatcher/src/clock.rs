//! The one place where the dispatcher reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A clock that starts with the system's time and is never set back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    began_us: u64,
}

impl Clock {
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock { began: Instant::now(), began_us: since.map_or(0, |since| since.as_micros() as u64) }
    }

    /// Microseconds since 1970. Never less than before.
    pub fn now_us(&self) -> u64 {
        self.began_us + self.began.elapsed().as_micros() as u64
    }

    /// Microseconds until `then_us`; 0 if that is past.
    pub fn until_us(&self, then_us: u64) -> u64 {
        then_us.saturating_sub(self.now_us())
    }

    /// Lets time pass.
    #[cfg(test)]
    pub fn advance_us(&mut self, us: u64) {
        self.began_us += us;
    }
}

/// Seconds since 1970, by a clock that may be set: keys expire by the time that people see.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
