//! The reduce step of word count: adds up the counts of each key.

use std::io::{BufRead, Write};

use crate::pieces::{self, key_and_value};
use crate::trouble::Trouble;

/// Reads lines `key TAB count`, grouped by key, and writes `key TAB sum` for each key.
pub fn reduce(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    let mut sum: Option<KeySum> = None;
    let mut line = 0;
    pieces::lines(input, |text| {
        line += 1;
        let wrong = |wrong| Trouble::Line { line, wrong };
        // In a word count, most lines are equal to the line before.
        if let Some(sum) = &mut sum
            && sum.line == text
        {
            return sum.add(sum.count).ok_or(wrong(OVERFLOW));
        }
        let (key, count) = key_and_value(text);
        let count = count.and_then(number).ok_or(wrong("there is no count after a tab"))?;
        match &mut sum {
            Some(sum) if sum.key() == key => sum.add(count).ok_or(wrong(OVERFLOW))?,
            Some(before) => {
                before.write(output)?;
                before.sum = count;
            }
            None => sum = Some(KeySum { line: Vec::new(), key_bytes: 0, count, sum: count }),
        }
        let sum = sum.as_mut().expect("it was set above");
        sum.line.clear();
        sum.line.extend_from_slice(text);
        (sum.key_bytes, sum.count) = (key.len(), count);
        Ok(())
    })?;
    sum.map_or(Ok(()), |sum| sum.write(output))
}

const OVERFLOW: &str = "counts of this key add up to more than 64 bits hold";

/// The sum of the counts of one key.
struct KeySum {
    /// The last line.
    line: Vec<u8>,
    /// The line begins with the key, which has this number of bytes.
    key_bytes: usize,
    /// The count in the last line.
    count: u64,
    sum: u64,
}

impl KeySum {
    fn key(&self) -> &[u8] {
        &self.line[..self.key_bytes]
    }

    /// `None` if the sum does not fit.
    fn add(&mut self, count: u64) -> Option<()> {
        self.sum = self.sum.checked_add(count)?;
        Some(())
    }

    fn write(&self, output: &mut impl Write) -> Result<(), Trouble> {
        output.write_all(self.key())?;
        Ok(writeln!(output, "\t{}", self.sum)?)
    }
}

fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(text: &str) -> Result<String, String> {
        let mut output = Vec::new();
        reduce(text.as_bytes(), &mut output).map_err(|trouble| trouble.to_string())?;
        Ok(String::from_utf8(output).unwrap())
    }

    #[test]
    fn counts_of_a_key_are_added_up() {
        for (lines, sums) in [
            ("", ""),
            ("a\t1", "a\t1\n"),
            ("\t1\n\t2\na\t3\nab\t4\na\t5\n", "\t3\na\t3\nab\t4\na\t5\n"),
            ("a\t18446744073709551614\na\t1\n", "a\t18446744073709551615\n"),
        ] {
            assert_eq!(reduced(lines).as_deref(), Ok(sums));
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for (lines, line) in [
            ("a\n", 1),
            ("a\t1\na\t\n", 2),
            ("a\t1\n\n", 2),
            ("a\t-1\n", 1),
            ("a\t1\r\n", 1),
            ("a\t18446744073709551615\na\t1\n", 2),
        ] {
            let error = reduced(lines).unwrap_err();
            assert!(error.starts_with(&format!("line {line}: ")), "{lines:?}: {error}");
        }
    }
}
