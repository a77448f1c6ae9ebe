//! Amounts as people read and write them: `4GiB`, `400Mbit/s`, `2ms`.

use alloc::format;
use alloc::string::String;

use thiserror::Error;

/// A text is not an amount of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AmountError {
    /// Not a size in bytes.
    #[error(
        "`{0}` is not a size: write a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, for \
         example 4GiB"
    )]
    Size(String),
    /// Not a rate.
    #[error("`{0}` is not a rate: write for example 400Mbit/s or 50MB/s")]
    Rate(String),
    /// Not a duration.
    #[error("`{0}` is not a duration: write a number and us, ms, s, min, h or d, for example 90s")]
    Duration(String),
}

/// Splits `text` into its number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let digits = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let number: f64 = text[..digits].parse().ok()?;
    Some((number, text[digits..].trim()))
}

/// Bytes from `500`, `64kB`, `1.5GB`, `4GiB`.
///
/// # Errors
/// If the text is not such an amount.
pub fn parse_bytes(text: &str) -> Result<u64, AmountError> {
    let wrong = || AmountError::Size(text.into());
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let factor = match unit {
        "" | "B" => 1.0,
        "k" | "kB" | "KB" => 1e3,
        "M" | "MB" => 1e6,
        "G" | "GB" => 1e9,
        "T" | "TB" => 1e12,
        "KiB" | "Ki" => 1024.0,
        "MiB" | "Mi" => 1_048_576.0,
        "GiB" | "Gi" => 1_073_741_824.0,
        "TiB" | "Ti" => 1_099_511_627_776.0,
        _ => return Err(wrong()),
    };
    Ok((number * factor) as u64)
}

/// Bytes a second from `400Mbit/s`, `1Gbit/s`, `50MB/s`.
///
/// # Errors
/// If the text is not such an amount.
pub fn parse_rate(text: &str) -> Result<u64, AmountError> {
    let wrong = || AmountError::Rate(text.into());
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let bits = match unit.trim_end_matches("/s") {
        "bit" => 1.0,
        "kbit" => 1e3,
        "Mbit" => 1e6,
        "Gbit" => 1e9,
        _ => {
            let per_second = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
            return parse_bytes(per_second).ok().filter(|rate| *rate > 0).ok_or_else(wrong);
        }
    };
    Some((number * bits / 8.0) as u64).filter(|rate| *rate > 0).ok_or_else(wrong)
}

/// Microseconds from `250us`, `2ms`, `1.5s`, `10min`, `2h`; a bare number is seconds.
///
/// # Errors
/// If the text is not such an amount.
pub fn parse_duration_us(text: &str) -> Result<u64, AmountError> {
    let wrong = || AmountError::Duration(text.into());
    let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "" | "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3_600e6,
        "d" => 86_400e6,
        _ => return Err(wrong()),
    };
    Ok((number * factor) as u64)
}

/// Bytes for a person: `12.3 MB`.
pub fn format_bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// A rate for a person: `12.3 MB/s`.
pub fn format_rate(bytes_per_s: f64) -> String {
    format!("{}/s", scaled(bytes_per_s, &["B", "kB", "MB", "GB", "TB", "PB"]))
}

/// A duration for a person: `850 us`, `1.25 s`, `3 min 20 s`.
pub fn format_duration_us(us: u64) -> String {
    let seconds = us / 1_000_000;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", us as f64 / 1e6),
        60_000_000..3_600_000_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn scaled(mut amount: f64, units: &[&str]) -> String {
    let mut power = 0;
    while amount >= 1000.0 && power + 1 < units.len() {
        amount /= 1000.0;
        power += 1;
    }
    let digits = usize::from(power > 0);
    format!("{amount:.digits$} {}", units[power])
}

/// A count with its noun, for nouns whose plural ends with an s: `1 chunk`, `0 chunks`.
pub fn format_count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_with_singular_and_plural() {
        assert_eq!(
            [0, 1, 2].map(|count| format_count(count, "chunk")),
            ["0 chunks", "1 chunk", "2 chunks"]
        );
    }

    #[test]
    fn amounts_are_read_as_written() {
        assert_eq!(parse_bytes("4GiB"), Ok(4 << 30));
        assert_eq!(parse_bytes("1.5 kB"), Ok(1500));
        assert_eq!(parse_rate("400Mbit/s"), Ok(50_000_000));
        assert_eq!(parse_rate("50MB/s"), Ok(50_000_000));
        assert_eq!(parse_duration_us("2ms"), Ok(2_000));
        assert_eq!(parse_duration_us("10min"), Ok(600_000_000));
        for wrong in ["", "x", "5 parsecs", "-1GB", "0Mbit/s", "1..2GB", "é"] {
            assert!(parse_bytes(wrong).is_err() || wrong == "0Mbit/s", "{wrong}");
            assert!(parse_rate(wrong).is_err(), "{wrong}");
            assert!(parse_duration_us(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn amounts_are_written_for_people() {
        assert_eq!(format_bytes(999), "999 B");
        assert_eq!(format_bytes(12_345_678), "12.3 MB");
        assert_eq!(format_duration_us(200_000_000), "3 min 20 s");
    }
}
