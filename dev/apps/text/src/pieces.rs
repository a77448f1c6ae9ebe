//! Splits input into lines, words, keys and values. A piece is copied only if it spans two buffers.

use std::io::{BufRead, ErrorKind};

use memchr::memchr;

use crate::trouble::Trouble;

/// Calls `each` for every line, without its line feed. The last line may have none.
pub fn lines(
    input: impl BufRead,
    mut each: impl FnMut(&[u8]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut begun = Vec::new();
    buffers(input, |buffer| {
        let Some(mut rest) = buffer else {
            return if begun.is_empty() { Ok(()) } else { each(&begun) };
        };
        while let Some(end) = memchr(b'\n', rest) {
            let line = &rest[..end];
            rest = &rest[end + 1..];
            if begun.is_empty() {
                each(line)?;
            } else {
                begun.extend_from_slice(line);
                each(&begun)?;
                begun.clear();
            }
        }
        begun.extend_from_slice(rest);
        Ok(())
    })
}

/// Calls `each` for every word. Words are separated by spaces, tabs, line feeds, carriage returns
/// and form feeds, as in Hadoop.
pub fn words(
    input: impl BufRead,
    mut each: impl FnMut(&[u8]) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    let mut begun = Vec::new();
    buffers(input, |buffer| {
        let Some(buffer) = buffer else {
            return if begun.is_empty() { Ok(()) } else { each(&begun) };
        };
        let mut start = 0;
        for (index, block) in buffer.chunks(BLOCK_BYTES).enumerate() {
            let mut spaces = spaces(block);
            while spaces != 0 {
                let end = index * BLOCK_BYTES + spaces.trailing_zeros() as usize;
                spaces &= spaces - 1;
                let word = &buffer[start..end];
                start = end + 1;
                if !begun.is_empty() {
                    begun.extend_from_slice(word);
                    each(&begun)?;
                    begun.clear();
                } else if !word.is_empty() {
                    each(word)?;
                }
            }
        }
        begun.extend_from_slice(&buffer[start..]);
        Ok(())
    })
}

/// White space is searched in blocks of this size, with one bit for each byte.
const BLOCK_BYTES: usize = 64;

/// A bit for each byte of a block, the first byte's bit being the lowest: whether the byte is white
/// space.
fn spaces(block: &[u8]) -> u64 {
    let mut are_spaces = [0; BLOCK_BYTES];
    for (is_space, byte) in are_spaces.iter_mut().zip(block) {
        *is_space = u8::from(byte.is_ascii_whitespace());
    }
    // The product moves the lowest bits of eight bytes next to each other, to the highest byte.
    let bits =
        |bytes: &[u8; 8]| u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    are_spaces.as_chunks().0.iter().rev().fold(0, |mask, bytes| mask << 8 | bits(bytes))
}

/// Calls `each` for every buffer of the input, and then with `None`.
fn buffers(
    mut input: impl BufRead,
    mut each: impl FnMut(Option<&[u8]>) -> Result<(), Trouble>,
) -> Result<(), Trouble> {
    loop {
        let buffer = match input.fill_buf() {
            Ok([]) => return each(None),
            Ok(buffer) => buffer,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Trouble::Read(error)),
        };
        each(Some(buffer))?;
        let read_bytes = buffer.len();
        input.consume(read_bytes);
    }
}

/// Splits a line at its first tab into key and value. Without a tab the whole line is the key, as
/// in Hadoop streaming.
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
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn pieces_are_the_same_whatever_the_buffer(
            content in prop::collection::vec(
                prop::sample::select(&b"\n \t\r\x0c\x0b\0ab\xff"[..]),
                0..50,
            ),
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
        for (line, parts) in [
            ("", ("", None)),
            ("a b", ("a b", None)),
            ("\t", ("", Some(""))),
            ("a\tb\tc", ("a", Some("b\tc"))),
        ] {
            let expected = (parts.0.as_bytes(), parts.1.map(str::as_bytes));
            assert_eq!(key_and_value(line.as_bytes()), expected);
        }
    }
}
