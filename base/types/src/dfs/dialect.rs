//! Dialects of comma-separated values, as Python's module `csv` has them: how they are written, and
//! how they are guessed.

use core::fmt;

/// How fields are separated and quoted, as in Python's `csv.Dialect`. As text, for example
/// `delimiter=;,quote=none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsvDialect {
    /// The byte between fields.
    pub delimiter: u8,
    /// The byte around fields that contain other special bytes; `None` if no field is quoted.
    pub quote: Option<u8>,
    /// The byte that takes the meaning from the next one.
    pub escape: Option<u8>,
    /// Whether two quotes in a quoted field are one quote of the text.
    pub doublequote: bool,
    /// Whether spaces behind a delimiter belong to no field.
    pub skipinitialspace: bool,
}

impl Default for CsvDialect {
    fn default() -> Self {
        CsvDialect {
            delimiter: b',',
            quote: Some(b'"'),
            escape: None,
            doublequote: true,
            skipinitialspace: false,
        }
    }
}

/// Separators that a guess looks for.
const DELIMITERS: &[u8] = b",;\t|";

/// Separators of files that have none of [`DELIMITERS`].
const RARE_DELIMITERS: &[u8] = b"\x01\x1f^~";

/// Names of bytes that are hard to write.
const NAMES: [(&str, u8); 3] = [("comma", b','), ("tab", b'\t'), ("space", b' ')];

impl CsvDialect {
    /// Reads options such as `delimiter=;,quote='`. `None` if they are no dialect.
    pub(super) fn parse(mut text: &str) -> Option<Self> {
        let mut dialect = CsvDialect::default();
        loop {
            let (name, rest) = text.split_once('=')?;
            // The value may be a comma.
            let end =
                rest.bytes().skip(1).position(|byte| byte == b',').map_or(rest.len(), |at| at + 1);
            let value = &rest[..end];
            match name {
                "delimiter" => dialect.delimiter = byte_of(value)?,
                "quote" => dialect.quote = optional(value)?,
                "escape" => dialect.escape = optional(value)?,
                "doublequote" => dialect.doublequote = switch(value)?,
                "skipinitialspace" => dialect.skipinitialspace = switch(value)?,
                _ => return None,
            }
            match rest[end..].strip_prefix(',') {
                Some(more) => text = more,
                None => return Some(dialect).filter(CsvDialect::is_possible),
            }
        }
    }

    /// Whether each special byte has one meaning.
    fn is_possible(&self) -> bool {
        let CsvDialect { delimiter, quote, escape, skipinitialspace, .. } = *self;
        let mut special = [Some(delimiter), quote, escape].into_iter().flatten();
        let is_distinct = Some(delimiter) != quote
            && Some(delimiter) != escape
            && (quote.is_none() || quote != escape);
        is_distinct
            && special
                .all(|byte| !matches!(byte, b'\n' | b'\r') && (byte != b' ' || !skipinitialspace))
    }

    /// The dialect of a file that begins like this; `None` if doubled double quotes explain it.
    pub(super) fn guess(beginning: &[u8]) -> Option<Self> {
        let first = beginning.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let count = |delimiter: &u8| first.iter().filter(|byte| *byte == delimiter).count();
        let most = |of: &[u8]| of.iter().copied().filter(|byte| count(byte) > 0).max_by_key(count);
        let (common, rare) = (most(DELIMITERS), most(RARE_DELIMITERS));
        let delimiter = common.or(rare).unwrap_or(b',');
        let is_before =
            |byte: Option<u8>| byte.is_none_or(|byte| byte == b'\n' || byte == delimiter);
        let begins = |quote: u8| {
            let all = beginning.iter().enumerate();
            all.filter(move |(at, byte)| {
                **byte == quote && is_before(at.checked_sub(1).map(|at| beginning[at]))
            })
        };
        // An apostrophe is a quote if it is at both ends of a field that needs quotes.
        let is_quoted = |at: usize| {
            let rest = &beginning[at + 1..];
            let end = rest.windows(2).position(|pair| {
                pair[0] == b'\'' && matches!(pair[1], b'\n' | b'\r') | (pair[1] == delimiter)
            });
            end.is_some_and(|end| {
                rest[..end].iter().any(|byte| *byte == b'\n' || *byte == delimiter)
            })
        };
        let is_single = begins(b'"').next().is_none() && begins(b'\'').any(|(at, _)| is_quoted(at));
        let quote = if is_single { b'\'' } else { b'"' };
        // Only an escaped quote is in the middle of a word behind a backslash.
        let is_escaped = beginning.windows(4).any(|part| {
            part[0] != b'\\'
                && part[1] == b'\\'
                && part[2] == quote
                && (part[3].is_ascii_alphanumeric() || part[3] == b' ')
        });
        let is_rare = common.is_none() && rare.is_some();
        let escape = is_escaped.then_some(b'\\');
        (is_single || is_escaped || is_rare).then_some(CsvDialect {
            delimiter,
            quote: Some(quote),
            escape,
            ..CsvDialect::default()
        })
    }
}

/// The byte that a value stands for: a character of one byte, a name, or `0x1f`.
fn byte_of(value: &str) -> Option<u8> {
    match value.as_bytes() {
        [byte] if byte.is_ascii_graphic() || *byte == b' ' || *byte == b'\t' => Some(*byte),
        [b'0', b'x', _, _] => u8::from_str_radix(&value[2..], 16).ok(),
        _ => NAMES.iter().find(|(name, _)| *name == value).map(|(_, byte)| *byte),
    }
}

fn optional(value: &str) -> Option<Option<u8>> {
    if value == "none" { Some(None) } else { byte_of(value).map(Some) }
}

fn switch(value: &str) -> Option<bool> {
    match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// A byte as [`byte_of`] reads it.
struct DialectByte(Option<u8>);

impl fmt::Display for DialectByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(byte) = self.0 else { return f.write_str("none") };
        match NAMES.iter().find(|(_, named)| *named == byte) {
            Some((name, _)) => f.write_str(name),
            None if byte.is_ascii_graphic() => write!(f, "{}", char::from(byte)),
            None => write!(f, "{byte:#04x}"),
        }
    }
}

impl fmt::Display for CsvDialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = CsvDialect::default();
        write!(f, "delimiter={}", DialectByte(Some(self.delimiter)))?;
        if self.quote != plain.quote {
            write!(f, ",quote={}", DialectByte(self.quote))?;
        }
        if self.escape.is_some() {
            write!(f, ",escape={}", DialectByte(self.escape))?;
        }
        if !self.doublequote {
            f.write_str(",doublequote=no")?;
        }
        if self.skipinitialspace {
            f.write_str(",skipinitialspace=yes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn dialects_have_text() {
        let plain = CsvDialect::default();
        let spaced = CsvDialect { doublequote: false, skipinitialspace: true, ..plain };
        for (text, dialect, shown) in [
            ("delimiter=,", plain, "delimiter=comma"),
            ("escape=\\", CsvDialect { escape: Some(b'\\'), ..plain }, "delimiter=comma,escape=\\"),
            (
                "quote=,,delimiter=;",
                CsvDialect { delimiter: b';', quote: Some(b','), ..plain },
                "delimiter=;,quote=comma",
            ),
            (
                "quote=none,delimiter=\t",
                CsvDialect { delimiter: b'\t', quote: None, ..plain },
                "delimiter=tab,quote=none",
            ),
            ("delimiter=0xa7", CsvDialect { delimiter: 0xa7, ..plain }, "delimiter=0xa7"),
            ("delimiter==", CsvDialect { delimiter: b'=', ..plain }, "delimiter=="),
            (
                "doublequote=no,skipinitialspace=yes",
                spaced,
                "delimiter=comma,doublequote=no,skipinitialspace=yes",
            ),
        ] {
            assert_eq!(CsvDialect::parse(text), Some(dialect), "{text}");
            assert_eq!(dialect.to_string(), shown);
            assert_eq!(CsvDialect::parse(shown), Some(dialect), "{shown}");
        }
        for wrong in [
            "",
            ";",
            "delimiter",
            "delimiter=",
            "delimiter=;;",
            "delimiter=none",
            "delimiter=§",
            "delimiter=0x0a",
            "quote=\n",
            "delimiter=;,",
            "separator=;",
            "doublequote=1",
            "quote=,",
            "escape=\"",
            "delimiter=space,skipinitialspace=yes",
        ] {
            assert_eq!(CsvDialect::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn dialects_are_guessed_only_where_quotes_and_commas_do_not_explain_the_file() {
        for (beginning, guess) in [
            (&b"a,b\n1,\"x\ny\"\n"[..], None),
            (b"a;b\n1;\"x\"\"\ny\"\n", None),
            (b"", None),
            (b"name\nO'Neil\n'tis\n", None),
            (b"a,b\n'tis,isn't\n", None),
            (b"a,b\n'c',1\n", None),
            (b"a,path\n1,\"C:\\\"\n", None),
            (b"a,b\n'c\nd',1\n", Some("delimiter=comma,quote='")),
            (b"a;b\n1;'c;d'\r\n", Some("delimiter=;,quote='")),
            (b"a,b\n1,\"say \\\"hi\\\"\n\"\n", Some("delimiter=comma,escape=\\")),
            (b"a^b\n1^\"x\ny\"\n", Some("delimiter=^")),
            (b"a\x01b\n", Some("delimiter=0x01")),
        ] {
            let guessed = CsvDialect::guess(beginning).map(|dialect| dialect.to_string());
            assert_eq!(guessed.as_deref(), guess, "{}", beginning.escape_ascii());
        }
    }
}
