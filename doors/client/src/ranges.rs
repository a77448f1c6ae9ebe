//! Ranges of numbers with decimals, and the combinations of several lists of items.

use std::collections::BTreeSet;

use eyas_types::Name;
use eyas_types::task::MAX_TASKS;

use crate::sources::{ListLine, SourceError, array};

/// Most decimals of a number of a range.
const MAX_DECIMALS: usize = 12;

/// The numbers of a range as they are written, in rising order. `FIRST-LAST:STEP` may have decimals
/// and signs: 0-1:0.25 has the numbers 0.00, 0.25, 0.50, 0.75 and 1.00, all with as many decimals.
///
/// # Errors
/// If the text is not a range, or has more numbers than a job can have tasks.
pub(crate) fn numbers_of(range: &str) -> Result<Vec<Name>, SourceError> {
    if let Ok(numbers) = array(range) {
        return Ok(numbers.iter().map(|number| number.to_string().into()).collect());
    }
    let wrong = || SourceError::Range(range.to_owned());
    let parts: Option<Vec<_>> = range.split(',').map(DecimalRange::parse).collect();
    let parts = parts.ok_or_else(wrong)?;
    let decimals = parts.iter().map(DecimalRange::decimals).max().unwrap_or(0);
    let mut numbers = BTreeSet::new();
    for part in parts {
        let [first, last, step] = part.scaled(decimals).ok_or_else(wrong)?;
        if first > last || step <= 0 {
            return Err(wrong());
        }
        if (last - first) / step >= MAX_TASKS as i128 {
            return Err(SourceError::TooMany(range.to_owned()));
        }
        numbers.extend((0..=(last - first) / step).map(|index| first + index * step));
    }
    if numbers.len() > MAX_TASKS {
        return Err(SourceError::TooMany(range.to_owned()));
    }
    Ok(numbers.into_iter().map(|number| written(number, decimals).into()).collect())
}

/// Checks a range of an array, such as 1-100 or 0-1:0.25.
///
/// # Errors
/// If the text is not a range, or has more numbers than a job can have tasks.
pub fn check_range(range: &str) -> Result<(), SourceError> {
    match array(range) {
        Ok(_) => Ok(()),
        Err(e @ SourceError::TooMany(_)) => Err(e),
        Err(_) => numbers_of(range).map(drop),
    }
}

/// A row for each combination of the factors' rows, with the columns of all of them. Rows of the
/// last factor change first.
///
/// # Errors
/// If there are more rows than a job can have tasks.
pub fn product(factors: &[Vec<Vec<Name>>]) -> Result<Vec<ListLine>, SourceError> {
    let count =
        factors.iter().fold(1, |count: u128, rows| count.saturating_mul(rows.len() as u128));
    if count > MAX_TASKS as u128 {
        return Err(SourceError::Combinations(count));
    }
    let mut rows = vec![Vec::new()];
    for factor in factors {
        let longer = |row: &Vec<Name>| {
            factor.iter().map(|columns| [&row[..], columns].concat()).collect::<Vec<_>>()
        };
        rows = rows.iter().flat_map(longer).collect();
    }
    Ok((1..).zip(rows).map(|(number, columns)| ListLine { number, columns }).collect())
}

/// First, last and step of a range, as they are written.
struct DecimalRange<'a>([&'a str; 3]);

impl<'a> DecimalRange<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (range, step) = text.trim().split_once(':').unwrap_or((text.trim(), "1"));
        // The first character may be the sign of the first number.
        let middle = range.char_indices().skip(1).find(|(_, character)| *character == '-');
        let (first, last) =
            middle.map_or((range, range), |(at, _)| (&range[..at], &range[at + 1..]));
        let numbers = [first, last, step];
        numbers.iter().all(|number| is_decimal(number)).then_some(DecimalRange(numbers))
    }

    fn decimals(&self) -> usize {
        self.0.iter().map(|number| fraction_of(number).len()).max().unwrap_or(0)
    }

    /// The numbers, times ten for each decimal; `None` if they are too large.
    fn scaled(&self, decimals: usize) -> Option<[i128; 3]> {
        let scale = |number: &str| {
            let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
            format!("{whole}{fraction:0<decimals$}").parse::<i64>().map(i128::from).ok()
        };
        let [first, last, step] = self.0.map(scale);
        Some([first?, last?, step?])
    }
}

/// Whether a text is a number such as 12, -0.5 or 3.25.
fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_digits(whole.strip_prefix('-').unwrap_or(whole))
        && is_digits(fraction)
        && fraction.len() <= MAX_DECIMALS
}

fn fraction_of(number: &str) -> &str {
    number.split_once('.').map_or("", |(_, fraction)| fraction)
}

/// A number that was multiplied by ten for each decimal.
fn written(number: i128, decimals: usize) -> String {
    let sign = if number < 0 { "-" } else { "" };
    let unit = 10_i128.pow(decimals as u32);
    let (whole, fraction) = (number.abs() / unit, number.abs() % unit);
    match decimals {
        0 => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{fraction:0decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(range: &str) -> Vec<String> {
        numbers_of(range).unwrap().iter().map(Name::to_string).collect()
    }

    #[test]
    fn ranges_have_decimals_and_signs() {
        assert_eq!(texts("0-1:0.25"), ["0.00", "0.25", "0.50", "0.75", "1.00"]);
        assert_eq!(texts("-1.5-1:0.5"), ["-1.5", "-1.0", "-0.5", "0.0", "0.5", "1.0"]);
        assert_eq!(texts("-3--1"), ["-3", "-2", "-1"]);
        assert_eq!(texts("0.5,0.125,2"), ["0.125", "0.500", "2.000"]);
        assert_eq!(
            texts("0-0.3:0.1"),
            ["0.0", "0.1", "0.2", "0.3"],
            "no error of binary fractions"
        );
        assert_eq!(texts("7-9"), ["7", "8", "9"]);
        for wrong in ["", "a", "1.5-1.0", "0-1:0.0", "0-1:-0.1", "1.", ".5", "1e3", "0-1:0.1:2"] {
            let error = numbers_of(wrong).unwrap_err();
            assert!(matches!(error, SourceError::Range(_)), "{wrong}: {error}");
        }
        for many in ["0-1:0.00000001", "0.5-9000000000"] {
            assert!(matches!(numbers_of(many), Err(SourceError::TooMany(_))), "{many}");
        }
        assert!(numbers_of("0.5-99999999999999999999").is_err(), "too large a number");
    }

    #[test]
    fn the_last_list_changes_first() {
        let rows = |words: &[&str]| words.iter().map(|word| vec![Name::from(*word)]).collect();
        let lines = product(&[rows(&["a", "b"]), rows(&["1", "2"])]).unwrap();
        let texts: Vec<_> = lines
            .iter()
            .map(|line| format!("{} {}{}", line.number, line.columns[0], line.columns[1]))
            .collect();
        assert_eq!(texts, ["1 a1", "2 a2", "3 b1", "4 b2"]);
        assert!(product(&[rows(&["a"]), Vec::new()]).unwrap().is_empty());
        let many = vec![vec![Name::from("x")]; 4_000];
        let error = product(&[many.clone(), many]).unwrap_err().to_string();
        assert!(error.contains("16000000 combinations"), "{error}");
    }
}
