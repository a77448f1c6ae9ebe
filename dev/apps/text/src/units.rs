//! Numbers with a fixed number of decimals, whose sums do not depend on the order of the terms. So
//! an iteration over blocks gives the same bytes however the blocks are cut.

/// Digits after the decimal point.
const DECIMALS: usize = 9;
/// Digits before the decimal point, at most.
const WHOLE_DIGITS: usize = 10;
/// A number of this many units is 1.
pub const ONE: i64 = 1_000_000_000;
/// Largest magnitude of a number that is read. Sums of 2^60 of them fit into 128 bits.
const MAX_UNITS: i64 = ONE * ONE;

/// Reads a decimal number such as `-12.5`, of up to 9 decimals and magnitude 10^9.
pub fn parse(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let point = digits.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (&digits[..point], &digits[point + 1..]),
        None => (digits, &digits[..0]),
    };
    if whole.is_empty() || whole.len() > WHOLE_DIGITS || fraction.len() > DECIMALS {
        return None;
    }
    let value = |digits: &[u8]| {
        digits.iter().try_fold(0, |value, byte| {
            byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0'))
        })
    };
    let missing = (DECIMALS - fraction.len()) as u32;
    let fraction = value(fraction)? * 10_i64.pow(missing);
    let units = value(whole)?.checked_mul(ONE)?.checked_add(fraction)?;
    (units <= MAX_UNITS).then_some(sign * units)
}

/// Writes a number with all its decimals.
pub fn format(units: i128) -> String {
    let sign = if units < 0 { "-" } else { "" };
    let (units, one) = (units.unsigned_abs(), u128::from(ONE.unsigned_abs()));
    let (whole, fraction) = (units / one, units % one);
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
            assert_eq!(
                parse(text.as_bytes()).map(|units| format(units.into())).as_deref(),
                Some(written)
            );
        }
        for text in ["", "-", ".5", "1e3", "1.0000000001", "1000000001", "+1", "1.-5", "1 "] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }
}
