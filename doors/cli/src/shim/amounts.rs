//! Amounts as Slurm writes them: times, memory and numbers of tasks.

use crate::report::utc;

const MINUTE_US: u64 = 60_000_000;

/// A time limit: `MINUTES`, `MINUTES:SECONDS`, `HOURS:MINUTES:SECONDS`, `DAYS-HOURS`,
/// `DAYS-HOURS:MINUTES` or `DAYS-HOURS:MINUTES:SECONDS`. `None` is no limit.
///
/// # Errors
/// If the text has none of these forms.
pub(crate) fn time_limit_us(text: &str) -> Result<Option<u64>, String> {
    let wrong = || {
        format!(
            "`{text}` is not a time limit: write MINUTES, H:M:S or D-H:M:S, such as 30 or 1:30:00"
        )
    };
    if ["UNLIMITED", "INFINITE", "-1", "0"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let parse = |part: &str| part.parse::<u32>().map(u64::from).map_err(|_| wrong());
    let parts = rest.split(':').map(parse).collect::<Result<Vec<_>, _>>()?;
    let (hours, minutes, seconds) = match (days, &parts[..]) {
        (None, [minutes]) => (0, *minutes, 0),
        (None, [minutes, seconds]) => (0, *minutes, *seconds),
        (None | Some(_), [hours, minutes, seconds]) => (*hours, *minutes, *seconds),
        (Some(_), [hours]) => (*hours, 0, 0),
        (Some(_), [hours, minutes]) => (*hours, *minutes, 0),
        _ => return Err(wrong()),
    };
    let days = days.map_or(Ok(0), parse)?;
    let us = ((days * 24 + hours) * 60 + minutes) * MINUTE_US + seconds * 1_000_000;
    Ok((us > 0).then_some(us))
}

/// Memory in megabytes, or with one of the units K, M, G and T. 0 stands for all memory of a node,
/// and reserves none.
///
/// # Errors
/// If the text is not an amount.
pub(crate) fn memory_bytes(text: &str) -> Result<u64, String> {
    let upper = text.to_ascii_uppercase();
    let upper = upper.strip_suffix('B').unwrap_or(&upper);
    let (number, shift) = match upper.as_bytes().last() {
        Some(b'K') => (&upper[..upper.len() - 1], 10),
        Some(b'M') => (&upper[..upper.len() - 1], 20),
        Some(b'G') => (&upper[..upper.len() - 1], 30),
        Some(b'T') => (&upper[..upper.len() - 1], 40),
        _ => (upper, 20),
    };
    let amount = number.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    amount.ok_or_else(|| {
        format!("`{text}` is not an amount of memory: write megabytes, or a unit, such as 4G")
    })
}

/// A whole number from 1.
///
/// # Errors
/// If the text is something else.
pub(crate) fn count(option: &str, text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    number.ok_or_else(|| format!("--{option} is a number from 1, not `{text}`"))
}

/// A duration as Slurm prints it: `[D-]HH:MM:SS`, or for squeue, without leading zeros, `MM:SS`.
pub(crate) fn elapsed(seconds: u64, is_short: bool) -> String {
    let (days, hours, minutes, rest) =
        (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match (days, hours) {
        (0, 0) if is_short => format!("{minutes}:{rest:02}"),
        (0, hours) if is_short => format!("{hours}:{minutes:02}:{rest:02}"),
        (0, hours) => format!("{hours:02}:{minutes:02}:{rest:02}"),
        (days, hours) => format!("{days}-{hours:02}:{minutes:02}:{rest:02}"),
    }
}

/// A time in UTC as Slurm prints it.
pub(crate) fn time_of(unix_s: u64) -> String {
    utc(unix_s, "%Y-%m-%dT%H:%M:%S")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_all_forms_of_slurm() {
        let seconds = |text| time_limit_us(text).unwrap().map(|us| us / 1_000_000);
        let cases = [
            ("5", 300),
            ("1:30", 90),
            ("00:05:00", 300),
            ("1-2", 93_600),
            ("1-2:3", 93_780),
            ("1-0:0:1", 86_401),
        ];
        for (text, expected) in cases {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        assert_eq!(seconds("UNLIMITED"), None);
        assert_eq!(seconds("0"), None);
        for text in ["", "soon", "1:2:3:4", "1-", "-5", "1.5"] {
            assert!(time_limit_us(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_is_in_megabytes() {
        let cases = [
            ("100", 100 << 20),
            ("100M", 100 << 20),
            ("2G", 2 << 30),
            ("2gb", 2 << 30),
            ("0", 0),
            ("512K", 512 << 10),
        ];
        for (text, expected) in cases {
            assert_eq!(memory_bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "G", "many", "-1", "1.5G", "99999999999999T"] {
            assert!(memory_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_printed_as_slurm_prints_them() {
        assert_eq!(time_of(0), "1970-01-01T00:00:00");
        assert_eq!(time_of(951_782_400), "2000-02-29T00:00:00");
        assert_eq!(time_of(1_795_476_764), "2026-11-23T23:32:44");
        assert_eq!((elapsed(65, true).as_str(), elapsed(65, false).as_str()), ("1:05", "00:01:05"));
        assert_eq!(
            (elapsed(90_000, true).as_str(), elapsed(3700, true).as_str()),
            ("1-01:00:00", "1:01:40")
        );
    }
}
