//! Numbers with a fixed number of decimals, whose sums do not depend on the order of the terms. So
//! an iteration over blocks gives the same bytes however the blocks are cut.

/// Digits after the decimal point.
const DECIMALS: usize = 9;
/// A number of this many units is 1.
pub const ONE: i128 = 1_000_000_000;
/// Largest magnitude of a number that is read, so that the sum of 2^60 of them fits.
const MAX_UNITS: i128 = ONE * ONE;

/// Reads a decimal number such as `-12.5`, of up to 9 decimals and magnitude 10^9.
pub fn parse(text: &[u8]) -> Option<i128> {
    let text = str::from_utf8(text).ok()?;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 10 || fraction.len() > DECIMALS {
        return None;
    }
    if !are_digits(whole) || !are_digits(fraction) {
        return None;
    }
    let units = format!("{whole}{fraction:0<DECIMALS$}").parse::<i128>().ok()?;
    (units <= MAX_UNITS).then_some(sign * units)
}

/// Writes a number with all its decimals.
pub fn format(units: i128) -> String {
    let sign = if units < 0 { "-" } else { "" };
    let (whole, fraction) =
        (units.unsigned_abs() / ONE as u128, units.unsigned_abs() % ONE as u128);
    format!("{sign}{whole}.{fraction:0DECIMALS$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_written_exactly() {
        for (text, written) in [
            ("0", "0.000000000"),
            ("-0.5", "-0.500000000"),
            ("12.000000001", "12.000000001"),
            ("1000000000", "1000000000.000000000"),
        ] {
            assert_eq!(parse(text.as_bytes()).map(format).as_deref(), Some(written));
        }
        for text in ["", "-", ".5", "1e3", "1.0000000001", "1000000001", "+1", "1.-5", "1 "] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
