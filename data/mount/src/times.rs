//! Times as nanoseconds since 1970, which records have, and as the kernel's interface has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::TimeOrNow;

pub(crate) fn now_ns() -> u64 {
    nanoseconds(SystemTime::now())
}

/// The nearest time that a record can have: from 1970 to 2554.
pub(crate) fn nanoseconds(time: SystemTime) -> u64 {
    eyas_types::dfs::nearest_ns(time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_nanos()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_records_cannot_have_become_the_nearest_ones() {
        let years = |count: u64| Duration::from_secs(count * 365 * 24 * 3600);
        let now = SystemTime::now();
        for (time, expected) in [
            (now, now),
            (UNIX_EPOCH - years(10), UNIX_EPOCH),
            (UNIX_EPOCH + years(700), UNIX_EPOCH + Duration::from_nanos(u64::MAX)),
        ] {
            assert_eq!(system_time(nanoseconds(time)), expected);
        }
    }
}
