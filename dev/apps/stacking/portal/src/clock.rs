//! Times as people and protocols write them.

use std::sync::LazyLock;
use std::time::Instant;

use jiff::Timestamp;

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Milliseconds since the first call: a clock that no administrator sets back.
pub fn monotonic_ms() -> u64 {
    BEGIN.elapsed().as_millis() as u64
}

/// A time as ISO 8601 in UTC, such as `2026-11-30T12:00:00.000Z`.
pub fn iso(unix_ms: u64) -> String {
    let time = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or_default())
}

/// A span of time in words, such as `2 min 5 s`.
pub fn span(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso(1_796_068_238_975), "2026-11-30T19:50:38.975Z");
        assert_eq!([span(900), span(125_000), span(7_500_000)], ["1 s", "2 min 5 s", "2 h 5 min"]);
    }
}
