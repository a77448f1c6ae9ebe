//! Join: for each key, all pairs of a value in input 1 and a value in input 2, as Hadoop's Join
//! does by default.
//!
//! Between map and reduce a line is `key TAB input TAB value`. A line without a tab is a key whose
//! value is empty.

use std::io::{BufRead, Write};

use clap::ValueEnum;
use memchr::memchr_iter;

use crate::pieces::{self, key_and_value};
use crate::trouble::Trouble;

/// Largest size of one key's values in memory, of both inputs. The values may come in any order, so
/// all are kept until the next key. A key with more is refused.
pub const MAX_KEY_BYTES: usize = 1 << 30;

/// One of the two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Side {
    /// The first input; its values come first in pairs.
    #[value(name = "1")]
    First,
    /// The second input.
    #[value(name = "2")]
    Second,
}

impl Side {
    fn named(name: &[u8]) -> Option<Self> {
        match name {
            b"1" => Some(Side::First),
            b"2" => Some(Side::Second),
            _ => None,
        }
    }

    fn name(self) -> &'static [u8] {
        match self {
            Side::First => b"1",
            Side::Second => b"2",
        }
    }
}

/// Marks lines `key TAB value` with their input.
pub fn map(side: Side, input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    pieces::lines(input, |line| mark(side, line, output))
}

/// Marks lines `input TAB key TAB value`.
pub fn map_marked(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    let mut number = 0;
    pieces::lines(input, |line| {
        number += 1;
        let (name, rest) = key_and_value(line);
        let side = Side::named(name).ok_or(Trouble::Line {
            line: number,
            wrong: "it does not begin with 1 or 2 and a tab",
        })?;
        mark(side, rest.unwrap_or_default(), output)
    })
}

fn mark(side: Side, line: &[u8], output: &mut impl Write) -> Result<(), Trouble> {
    let (key, value) = key_and_value(line);
    write_fields([key, side.name(), value.unwrap_or_default()], output)
}

fn write_fields(
    [first, second, third]: [&[u8]; 3],
    output: &mut impl Write,
) -> Result<(), Trouble> {
    for part in [first, b"\t", second, b"\t", third, b"\n"] {
        output.write_all(part)?;
    }
    Ok(())
}

/// The values of one input for the current key, each with a line feed.
#[derive(Default)]
struct Values(Vec<u8>);

impl Values {
    fn push(&mut self, value: &[u8]) {
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        memchr_iter(b'\n', &self.0).map(move |end| {
            let value = &self.0[begin..end];
            begin = end + 1;
            value
        })
    }
}

/// Reads the lines of `map`, grouped by key, and writes `key TAB first value TAB second value` for
/// each pair. A key has at most `key_bytes` of values.
pub fn reduce(
    input: impl BufRead,
    output: &mut impl Write,
    key_bytes: usize,
) -> Result<(), Trouble> {
    let mut key = Vec::new();
    let (mut first, mut second) = (Values::default(), Values::default());
    let mut number = 0;
    pieces::lines(input, |line| {
        number += 1;
        let wrong = |wrong| Trouble::Line { line: number, wrong };
        let (new, rest) = key_and_value(line);
        let (name, value) = key_and_value(rest.unwrap_or_default());
        let side =
            Side::named(name).ok_or(wrong("there is no 1 or 2 between two tabs after the key"))?;
        let value = value.ok_or(wrong("there is no tab after the input's number"))?;
        if key != new {
            key.clear();
            key.extend_from_slice(new);
            first.0.clear();
            second.0.clear();
        }
        if first.0.len() + second.0.len() + value.len() >= key_bytes {
            return Err(wrong(
                "the values of its key are more than this program keeps in memory (1 GiB)",
            ));
        }
        match side {
            Side::First => {
                first.push(value);
                second.iter().try_for_each(|other| write_fields([new, value, other], output))
            }
            Side::Second => {
                second.push(value);
                first.iter().try_for_each(|other| write_fields([new, other, value], output))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_with_too_many_values_is_refused() {
        let lines = b"a\t1\tabc\na\t2\tdef\nb\t1\t1234567\n";
        let mut output = Vec::new();
        reduce(&lines[..], &mut output, 8).unwrap();
        assert_eq!(output, b"a\tabc\tdef\n");
        let error = reduce(&lines[..], &mut output, 7).unwrap_err();
        assert!(error.to_string().starts_with("line 2: the values of its key"), "{error}");
    }
}
