//! Times, as system calls and the kernel's interface have them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::TimeOrNow;
use rustix::fs::{self, Timespec};

/// A time. Before 1970, the seconds are negative, and the nanoseconds count forwards from them.
pub(crate) fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let second = Duration::from_secs(seconds.unsigned_abs());
    let second = match seconds {
        0.. => UNIX_EPOCH.checked_add(second),
        _ => UNIX_EPOCH.checked_sub(second),
    };
    second.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(nanoseconds)
}

/// The time to which a program sets one; none: it stays.
pub(crate) fn timespec(asked: Option<TimeOrNow>) -> Timespec {
    match asked {
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => specific(time),
    }
}

fn specific(time: SystemTime) -> Timespec {
    let far = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            Timespec { tv_sec: far(since.as_secs()), tv_nsec: since.subsec_nanos().into() }
        }
        Err(before) => {
            let (seconds, nanoseconds) =
                (far(before.duration().as_secs()), i64::from(before.duration().subsec_nanos()));
            match nanoseconds {
                0 => Timespec { tv_sec: -seconds, tv_nsec: 0 },
                _ => Timespec { tv_sec: -seconds - 1, tv_nsec: 1_000_000_000 - nanoseconds },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970_stay_the_same() {
        for (seconds, nanoseconds) in
            [(0, 0), (1, 999_999_999), (-1, 0), (-1, 1), (-2, 800_000_000), (1 << 33, 5)]
        {
            let again = specific(time(seconds, nanoseconds as u64));
            assert_eq!((again.tv_sec, again.tv_nsec), (seconds, nanoseconds));
        }
    }
}
