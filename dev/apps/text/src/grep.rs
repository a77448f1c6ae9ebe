//! Grep: the lines of a block with a match of a regular expression, or the matches, as Hadoop's
//! Grep counts them.

use std::io::{BufRead, Write};

use regex::bytes::Regex;

use crate::pieces;
use crate::trouble::Trouble;

/// Writes the lines with a match, each with a line feed.
pub fn lines(pattern: &Regex, input: impl BufRead, output: &mut impl Write) -> Result<(), Trouble> {
    pieces::lines(input, |line| {
        if pattern.is_match(line) {
            output.write_all(line)?;
            output.write_all(b"\n")?;
        }
        Ok(())
    })
}

/// Writes `match TAB 1` for each match. Tabs in a match become spaces, because the key ends at the
/// first tab.
pub fn matches(
    pattern: &Regex,
    input: impl BufRead,
    output: &mut impl Write,
) -> Result<(), Trouble> {
    pieces::lines(input, |line| {
        for found in pattern.find_iter(line) {
            let mut parts = found.as_bytes().split(|byte| *byte == b'\t');
            output.write_all(parts.next().unwrap_or_default())?;
            for part in parts {
                output.write_all(b" ")?;
                output.write_all(part)?;
            }
            output.write_all(b"\t1\n")?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let pattern = Regex::new(pattern).unwrap();
        let (mut of_lines, mut of_matches) = (Vec::new(), Vec::new());
        lines(&pattern, text, &mut of_lines).unwrap();
        matches(&pattern, text, &mut of_matches).unwrap();
        (of_lines, of_matches)
    }

    #[test]
    fn lines_and_matches_are_found_in_any_bytes() {
        let text = b"a1 b22\r\n\n\xff3\0\nnone\n4\t\tx";
        let expected =
            (b"a1 b22\r\n\xff3\0\n4\t\tx\n".to_vec(), b"1\t1\n22\t1\n3\t1\n4\t1\n".to_vec());
        assert_eq!(found("[0-9]+", text), expected);
        assert_eq!(found("4.*", text), (b"4\t\tx\n".to_vec(), b"4  x\t1\n".to_vec()));
        assert_eq!(found(r"\Ano", text), (b"none\n".to_vec(), b"no\t1\n".to_vec()));
        assert_eq!(found("e\n4", text), (vec![], vec![]));
    }
}
