//! Makes text from outside safe to print on a terminal. A file name, a word of a command or an error message may have
//! bytes that move the cursor, change the title of the window or reverse the direction of the text. Here, such bytes
//! become visible characters.

use core::fmt::{self, Write};

/// Text without effects on a terminal: a control character is written as `\n`, `\x1b` or `\u{9b}`, and a byte that is
/// not UTF-8 as `\xff`. All other characters stay as they are.
pub struct Shown<'a> {
    text: &'a [u8],
    keeps_lines: bool,
}

/// Shows `text` on one line.
pub fn shown(text: &(impl AsRef<[u8]> + ?Sized)) -> Shown<'_> {
    Shown { text: text.as_ref(), keeps_lines: false }
}

/// Shows `text` with its line feeds and tabs.
pub fn shown_lines(text: &(impl AsRef<[u8]> + ?Sized)) -> Shown<'_> {
    Shown { text: text.as_ref(), keeps_lines: true }
}

/// Whether a character has an effect on a terminal: control characters, and marks that change the direction of text.
pub fn acts(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.text.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\n' | '\t' if self.keeps_lines => f.write_char(c)?,
                    '\n' => f.write_str("\\n")?,
                    '\t' => f.write_str("\\t")?,
                    '\r' => f.write_str("\\r")?,
                    c if c.is_ascii_control() => write!(f, "\\x{:02x}", u32::from(c))?,
                    c if acts(c) => write!(f, "{}", c.escape_unicode())?,
                    c => f.write_char(c)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn what_acts_on_a_terminal_becomes_visible() {
        for (text, line, lines) in [
            (&b"plain \xc3\xa4 \\ 'x'"[..], "plain ä \\ 'x'", "plain ä \\ 'x'"),
            (b"a\x1b[31mred\x07", "a\\x1b[31mred\\x07", "a\\x1b[31mred\\x07"),
            (b"a\nb\tc\r", "a\\nb\\tc\\r", "a\nb\tc\\r"),
            (b"\x7f\xc2\x9b31m", "\\x7f\\u{9b}31m", "\\x7f\\u{9b}31m"),
            (b"x\xff\xfey\xc3", "x\\xff\\xfey\\xc3", "x\\xff\\xfey\\xc3"),
            ("txt.\u{202e}exe".as_bytes(), "txt.\\u{202e}exe", "txt.\\u{202e}exe"),
        ] {
            assert_eq!((shown(text).to_string(), shown_lines(text).to_string()), (line.into(), lines.into()));
        }
    }
}
