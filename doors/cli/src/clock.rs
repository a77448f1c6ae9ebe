//! The time of day, counted from 1970; 0 if the clock is set to a time before.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn unix_s() -> u64 {
    since_1970().as_secs()
}

pub(crate) fn unix_ms() -> u64 {
    since_1970().as_millis() as u64
}

pub(crate) fn unix_us() -> u64 {
    since_1970().as_micros() as u64
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
