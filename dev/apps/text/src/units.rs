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
    let (units, rest) = parse_first(text)?;
    rest.is_empty().then_some(units)
}

/// Reads the number with which a text begins, as [`parse`] does, and returns what follows it.
pub fn parse_first(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, after_whole) = read_digits(0, digits);
    let whole_digits = digits.len() - after_whole.len();
    let (value, rest, decimals) = match after_whole.split_first() {
        Some((b'.', fraction)) => {
            let (value, rest) = read_digits(whole, fraction);
            (value, rest, fraction.len() - rest.len())
        }
        _ => (whole, after_whole, 0),
    };
    if whole_digits == 0 || whole_digits > WHOLE_DIGITS || decimals > DECIMALS {
        return None;
    }
    // At most 19 digits, which 64 bits hold without a sign.
    let units = value.checked_mul(POWERS[DECIMALS - decimals])?;
    let units = i64::try_from(units).ok().filter(|units| *units <= MAX_UNITS)?;
    Some((sign * units, rest))
}

/// Powers of 10, of the numbers of decimals that a number may lack.
const POWERS: [u64; DECIMALS + 1] = {
    let mut powers = [1; DECIMALS + 1];
    let mut exponent = 1;
    while exponent <= DECIMALS {
        powers[exponent] = 10 * powers[exponent - 1];
        exponent += 1;
    }
    powers
};

/// Appends the digits with which a text begins to a value; what follows them is returned. The value
/// is wrong, without a panic, if it has more than 19 digits.
fn read_digits(mut value: u64, mut text: &[u8]) -> (u64, &[u8]) {
    while let Some((byte, rest)) = text.split_first()
        && byte.is_ascii_digit()
    {
        value = value.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        text = rest;
    }
    (value, text)
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
        let many_digits = "9".repeat(30);
        for text in [
            "",
            "-",
            ".5",
            "1e3",
            "1.0000000001",
            "1000000001",
            "9999999999.999999999",
            "+1",
            "1.-5",
            "1 ",
            "--1",
            "1.2.3",
            &many_digits,
            &format!("1.{many_digits}"),
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse_first(b"1.5,2"), Some((3 * ONE / 2, &b",2"[..])));
    }
}
