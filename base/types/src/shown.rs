//! Makes text from outside safe to print on a terminal. A file name, a word of a command or an
//! error message may have bytes that move the cursor, change the title of the window or reverse the
//! direction of the text. Here, such bytes become visible characters.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};

/// Characters of an item or a command that a message shows; the middle of a longer one is left out.
pub const MAX_QUOTED_CHARS: usize = 200;

/// Text without effects on a terminal: a control character is written as `\n`, `\x1b` or `\u{9b}`,
/// and a byte that is not UTF-8 as `\xff`. All other characters stay as they are.
pub struct TerminalText<'a> {
    text: &'a [u8],
    keeps_lines: bool,
}

/// Shows `text` on one line.
pub fn shown(text: &(impl AsRef<[u8]> + ?Sized)) -> TerminalText<'_> {
    TerminalText { text: text.as_ref(), keeps_lines: false }
}

/// Shows `text` with its line feeds and tabs.
pub fn shown_lines(text: &(impl AsRef<[u8]> + ?Sized)) -> TerminalText<'_> {
    TerminalText { text: text.as_ref(), keeps_lines: true }
}

/// Whether a character has an effect on a terminal: control characters, and marks that change the
/// direction of text.
pub fn acts(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text of up to about this number of characters. Of a longer one, the middle is left out.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return text.into();
    }
    let (begin_chars, end_chars) = (most * 3 / 4, most / 8);
    let place =
        |chars: usize| text.char_indices().nth(chars).map_or(text.len(), |(place, _)| place);
    let (begin, end) = (&text[..place(begin_chars)], &text[place(count - end_chars)..]);
    format!("{begin}… {} more …{end}", count - begin_chars - end_chars).into()
}

/// A message in which no quoted text has more than about [`MAX_QUOTED_CHARS`] characters. Messages
/// quote items, names and words of commands with backquotes, and each of these may have megabytes.
pub fn with_short_quotes(message: &str) -> Cow<'_, str> {
    if message.len() <= MAX_QUOTED_CHARS {
        return message.into();
    }
    let mut short = String::new();
    let mut parts = message.split('`').enumerate().peekable();
    while let Some((number, part)) = parts.next() {
        // What follows the last backquote is quoted by none.
        let is_quoted = number % 2 == 1 && parts.peek().is_some();
        short += &if is_quoted { shortened(part, MAX_QUOTED_CHARS) } else { part.into() };
        if parts.peek().is_some() {
            short.push('`');
        }
    }
    short.into()
}

impl fmt::Display for TerminalText<'_> {
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
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn only_long_quotes_of_messages_are_shortened() {
        let long = "ä".repeat(400_000);
        let why = "for this there are many reasons, ".repeat(20);
        let message = with_short_quotes(&format!("cannot read `{long}` of `{long}`: {why}`short`"))
            .into_owned();
        assert!(
            message.starts_with("cannot read `ä")
                && message.ends_with(&format!("ä`: {why}`short`")),
            "{message}"
        );
        assert!(
            message.chars().count() < 2 * (MAX_QUOTED_CHARS + 20) + why.len() + 50,
            "{message}"
        );
        assert!(message.contains("ä… 399825 more …ä"), "{message}");
        for unchanged in [
            format!("a `{}`", "x".repeat(MAX_QUOTED_CHARS)),
            format!("it's `one: {why}"),
            why.clone(),
        ] {
            assert_eq!(with_short_quotes(&unchanged), unchanged);
        }
        assert_eq!((shortened("äöü", 3), shortened("", 0)), ("äöü".into(), "".into()));
    }

    #[test]
    fn control_characters_become_visible() {
        for (text, line, lines) in [
            (&b"plain \xc3\xa4 \\ 'x'"[..], "plain ä \\ 'x'", "plain ä \\ 'x'"),
            (b"a\x1b[31mred\x07", "a\\x1b[31mred\\x07", "a\\x1b[31mred\\x07"),
            (b"a\nb\tc\r", "a\\nb\\tc\\r", "a\nb\tc\\r"),
            (b"\x7f\xc2\x9b31m", "\\x7f\\u{9b}31m", "\\x7f\\u{9b}31m"),
            (b"x\xff\xfey\xc3", "x\\xff\\xfey\\xc3", "x\\xff\\xfey\\xc3"),
            ("txt.\u{202e}exe".as_bytes(), "txt.\\u{202e}exe", "txt.\\u{202e}exe"),
        ] {
            assert_eq!(
                (shown(text).to_string(), shown_lines(text).to_string()),
                (line.into(), lines.into())
            );
        }
    }
}
