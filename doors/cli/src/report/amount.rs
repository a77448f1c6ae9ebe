//! Numbers as text for people. `eyas_types::units` formats sizes and durations; this module formats
//! what only reports have: rates in Gb/s as in the paper, processor time in hours, shares, grouped
//! counts, and dates.

use eyas_types::units::format_duration_us;
use jiff::Timestamp;

/// Shown for a value that does not exist, such as a rate over no time.
pub const NOTHING: &str = "–";

/// A count with its digits grouped by thousands: `250,000`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A count with its noun: `1 task`, `250,000 tasks`.
pub fn counted(amount: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(amount), if amount == 1 { "" } else { "s" })
}

/// A number with about three significant digits.
pub fn number(number: f64) -> String {
    match number.abs() {
        _ if !number.is_finite() => NOTHING.into(),
        1000.0.. => count(number.round() as u64),
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        1.0.. => format!("{number:.2}"),
        0.001.. => format!("{number:.3}"),
        0.0 => "0".into(),
        _ => format!("{number:.1e}"),
    }
}

/// A share, from 0 to 1, in percent: `98.5 %`.
pub fn share(share: f64) -> String {
    match share.is_finite() {
        true => format!("{:.1} %", share * 100.0),
        false => NOTHING.into(),
    }
}

/// A factor: `3.51×`.
pub fn times(ratio: f64) -> String {
    match ratio.is_finite() {
        true => format!("{}×", number(ratio)),
        false => NOTHING.into(),
    }
}

/// A rate in bytes per second, shown in bits per second as in the paper: `13.9 Gb/s`.
pub fn bits_per_second(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    let (factor, unit) = match bits {
        _ if !bits.is_finite() => return NOTHING.into(),
        1e12.. => (1e12, "Tb/s"),
        1e9.. => (1e9, "Gb/s"),
        1e6.. => (1e6, "Mb/s"),
        1e3.. => (1e3, "kb/s"),
        _ => (1.0, "b/s"),
    };
    format!("{} {unit}", number(bits / factor))
}

/// A duration in microseconds, which may be a fraction because it may be an average.
pub fn duration(us: f64) -> String {
    match us.is_finite() && us >= 0.0 {
        true => format_duration_us(us.round() as u64),
        false => NOTHING.into(),
    }
}

/// Processor time, in processor hours from one hour on: `24.1 CPU h`.
pub fn processor_time(us: u64) -> String {
    let seconds = us as f64 / 1e6;
    match seconds {
        3600.0.. => format!("{} CPU h", number(seconds / 3600.0)),
        60.0.. => format!("{} CPU min", number(seconds / 60.0)),
        _ => format!("{} CPU s", number(seconds)),
    }
}

/// A time in UTC: `2026-11-21 06:28:37`.
pub fn moment(unix_ms: u64) -> String {
    utc(unix_ms / 1000, "%Y-%m-%d %H:%M:%S")
}

/// A time in UTC by a format of `strftime`; of years after 9999, the last moment before.
pub fn utc(unix_s: u64, format: &str) -> String {
    let time = i64::try_from(unix_s).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "task"), "1 task");
        assert_eq!(
            [12345.6, 123.4, 12.34, 1.234, 0.1234, 0.0].map(number).join(" "),
            "12,346 123 12.3 1.23 0.123 0"
        );
        assert_eq!(number(f64::NAN), NOTHING);
        assert_eq!(share(0.985), "98.5 %");
        assert_eq!(bits_per_second(1.7375e9), "13.9 Gb/s");
        assert_eq!(bits_per_second(0.0), "0 b/s");
        assert_eq!(duration(f64::INFINITY), NOTHING);
        assert_eq!(processor_time(86_760_000_000), "24.1 CPU h");
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00");
        assert_eq!(moment(1_798_761_599_999), "2026-12-31 23:59:59");
        assert!(moment(u64::MAX).starts_with("9999-12-30"));
    }
}
