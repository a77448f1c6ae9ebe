//! Splits input into lines, words, keys and values. A piece is copied only if it spans two buffers.

use std::io::{BufRead, ErrorKind};

use memchr::memchr;

use crate::trouble::Trouble;

/// Calls `each` for every line, without its line feed. The last line may have none.
pub fn lines(input: impl BufRead, each: impl FnMut(&[u8]) -> Result<(), Trouble>) -> Result<(), Trouble> {
    pieces(input, |bytes| memchr(b'\n', bytes), each)
}

/// Calls `each` for every word. Words are separated by spaces, tabs, line feeds, carriage returns and form feeds, as in
/// Hadoop.
pub fn words(input: impl BufRead, mut each: impl FnMut(&[u8]) -> Result<(), Trouble>) -> Result<(), Trouble> {
    let end = |bytes: &[u8]| bytes.iter().position(u8::is_ascii_whitespace);
    pieces(input, end, |word| if word.is_empty() { Ok(()) } else { each(word) })
}

/// Calls `each` for every piece between the bytes that `end` finds, and for a non-empty piece after the last one.
fn pieces(
    mut input: impl BufRead,
    end: impl Fn(&[u8]) -> Option<usize>,
    mut each: impl FnMut(&[u8]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut begun = Vec::new();
    loop {
        let buffer = match input.fill_buf() {
            Ok([]) => break,
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Trouble::Read(error)),
        };
        let mut rest = buffer;
        while let Some(found) = end(rest) {
            let piece = &rest[..found];
            rest = &rest[found + 1..];
            if begun.is_empty() {
                each(piece)?;
            } else {
                begun.extend_from_slice(piece);
                each(&begun)?;
                begun.clear();
            }
        }
        begun.extend_from_slice(rest);
        let read_bytes = buffer.len();
        input.consume(read_bytes);
    }
    if begun.is_empty() { Ok(()) } else { each(&begun) }
}

/// Splits a line at its first tab into key and value. Without a tab the whole line is the key, as in Hadoop streaming.
pub fn key_and_value(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match memchr(b'\t', line) {
        Some(tab) => (&line[..tab], Some(&line[tab + 1..])),
        None => (line, None),
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn pieces_are_the_same_whatever_the_buffer(
            content in prop::collection::vec(prop::sample::select(&b"\n \t\r\x0c\x0b\0ab\xff"[..]), 0..50),
            buffer_bytes in 1..20usize,
        ) {
            let (mut by_line, mut by_word) = (Vec::new(), Vec::new());
            let input = || BufReader::with_capacity(buffer_bytes, &content[..]);
            lines(input(), |line| {
                by_line.push(line.to_vec());
                Ok(())
            })
            .unwrap();
            words(input(), |word| {
                by_word.push(word.to_vec());
                Ok(())
            })
            .unwrap();

            let mut of_lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').collect();
            of_lines.pop_if(|last| last.is_empty());
            prop_assert_eq!(by_line, of_lines);
            let between = content.split(|byte| b" \t\n\r\x0c".contains(byte));
            let of_words: Vec<&[u8]> = between.filter(|word| !word.is_empty()).collect();
            prop_assert_eq!(by_word, of_words);
        }
    }

    #[test]
    fn the_first_tab_ends_a_key() {
        for (line, parts) in
            [("", ("", None)), ("a b", ("a b", None)), ("\t", ("", Some(""))), ("a\tb\tc", ("a", Some("b\tc")))]
        {
            let expected = (parts.0.as_bytes(), parts.1.map(str::as_bytes));
            assert_eq!(key_and_value(line.as_bytes()), expected);
        }
    }
}
