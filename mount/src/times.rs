//! Times as nanoseconds since 1970, which records have, and as the kernel's interface has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::TimeOrNow;

pub(crate) fn now_ns() -> u64 {
    nanoseconds(SystemTime::now())
}

/// Times before 1970 become 1970.
pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

pub(crate) fn system_time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}

/// The time that a program has asked for.
pub(crate) fn asked(time: TimeOrNow) -> u64 {
    match time {
        TimeOrNow::SpecificTime(time) => nanoseconds(time),
        TimeOrNow::Now => now_ns(),
    }
}
