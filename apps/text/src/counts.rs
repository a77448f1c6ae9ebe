//! The reduce step of word count: adds up the counts of each key.

use std::io::{BufRead, Write};

use crate::pieces::{self, key_and_value};
use crate::trouble::Trouble;

/// Reads lines `key TAB count`, grouped by key, and writes `key TAB sum` for each key.
pub fn reduce(input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    let mut key = Vec::new();
    let mut sum = None;
    let mut line = 0;
    pieces::lines(input, |text| {
        line += 1;
        let wrong = |wrong| Trouble::Line { line, wrong };
        let (new, count) = key_and_value(text);
        let count = count.and_then(number).ok_or(wrong("there is no count after a tab"))?;
        match &mut sum {
            Some(sum) if key == new => {
                *sum = count.checked_add(*sum).ok_or(wrong("counts of this key add up to more than 64 bits hold"))?;
            }
            before => {
                if let Some(sum) = before.replace(count) {
                    write(&key, sum, output)?;
                }
                key.clear();
                key.extend_from_slice(new);
            }
        }
        Ok(())
    })?;
    sum.map_or(Ok(()), |sum| write(&key, sum, output))
}

fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.parse().ok()
}

fn write(key: &[u8], sum: u64, output: &mut impl Write) -> Result<(), Trouble> {
    output.write_all(key)?;
    Ok(writeln!(output, "\t{sum}")?)
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
