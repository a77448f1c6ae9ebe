//! Comma-separated values (RFC 4180): a record ends with a line feed outside of quotes, with or
//! without a carriage return before it.
//!
//! A quote opens at the beginning of a field: at the start of a record or after `,`, `;`, tab or
//! `|`, so that files with any of these separators can be read. It closes at the next quote that is
//! not doubled. Other quotes are ordinary content, as in most readers. A quote that is never closed
//! is refused, since all that follows would be one record.
//!
//! Files of other dialects would be cut within records. They are refused where they show: quotes
//! that are escaped by a backslash make other quotes stand where none can be, another separator is
//! between two quotes, and fields with line feeds are between apostrophes.

use memchr::{memchr, memchr2, memchr3};

use super::apostrophes::Apostrophes;
use super::{Ending, FormatProblem, Misfit, Records};

/// Separators of other dialects.
const OTHER_DELIMITERS: &[u8] = b":^~\x1f";

/// State: the last byte, and the last quote that was opened or closed.
pub(super) struct Csv {
    last: u8,
    quote: Quote,
    /// Whether an odd number of backslashes is before the next byte.
    is_escaped: bool,
    /// Offset of the first quote in quotes that an odd number of backslashes precedes.
    doubtful: Option<u64>,
    apostrophes: Apostrophes,
}

#[derive(Clone, Copy)]
enum Quote {
    /// No quote, or one that was closed before.
    None,
    /// Inside a quote that was opened at this offset.
    Open { opened: u64 },
    /// The quote was closed just before `end`. If another quote follows there, both are one in the
    /// text.
    Closed { opened: u64, end: u64 },
}

impl Default for Csv {
    fn default() -> Self {
        Csv {
            last: b'\n',
            quote: Quote::None,
            is_escaped: false,
            doubtful: None,
            apostrophes: Apostrophes::None,
        }
    }
}

impl Csv {
    /// Handles a quote at this offset, which is not inside quotes and follows the byte `before`.
    fn see_quote(&mut self, at: u64, before: u8) -> Result<(), Misfit> {
        self.quote = match self.quote {
            Quote::Closed { opened, end } if end == at => Quote::Open { opened },
            _ if matches!(before, b'\n' | b',' | b';' | b'\t' | b'|') => Quote::Open { opened: at },
            Quote::Closed { end, .. } if end + 1 == at && OTHER_DELIMITERS.contains(&before) => {
                return Err((at, FormatProblem::OtherDelimiter));
            }
            _ if let Some(doubtful) = self.doubtful => {
                return Err((doubtful, FormatProblem::EscapedQuote));
            }
            _ => Quote::None,
        };
        Ok(())
    }

    /// Handles the quote that ends a quoted field, at this offset, if no other quote follows.
    fn see_end(&mut self, opened: u64, at: u64, is_escaped: bool) {
        self.quote = Quote::Closed { opened, end: at + 1 };
        if is_escaped {
            self.doubtful.get_or_insert(at);
        }
    }

    /// Checks the byte behind a quoted field.
    fn check_behind(&self, byte: u8) -> Result<(), Misfit> {
        match self.doubtful {
            Some(doubtful)
                if !matches!(byte, b'"' | b'\n' | b'\r' | b',' | b';' | b'\t' | b'|') =>
            {
                Err((doubtful, FormatProblem::EscapedQuote))
            }
            _ => Ok(()),
        }
    }

    /// Whether an odd number of backslashes is at the end of these bytes, which follow those of the
    /// last call.
    fn ends_escaped(&self, bytes: &[u8]) -> bool {
        let backslashes = bytes.iter().rev().take_while(|byte| **byte == b'\\').count();
        (backslashes % 2 == 1) != (backslashes == bytes.len() && self.is_escaped)
    }
}

impl Records for Csv {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        // Line feeds before this position are not searched for. Quotes are.
        let skipped = least.saturating_sub(offset + 1).min(bytes.len() as u64) as usize;
        let mut at = 0;
        if let (Quote::Closed { end, .. }, Some(first)) = (self.quote, bytes.first())
            && end == offset
        {
            self.check_behind(*first)?;
        }
        if let Some(first) = bytes.first() {
            self.apostrophes.see_behind(*first, offset)?;
        }
        while at < bytes.len() {
            if let Quote::Open { opened } = self.quote {
                let Some(found) = memchr(b'"', &bytes[at..]) else { break };
                at += found;
                self.see_end(opened, offset + at as u64, self.ends_escaped(&bytes[..at]));
                at += 1;
                if let Some(behind) = bytes.get(at) {
                    self.check_behind(*behind)?;
                }
                continue;
            }
            let found = match (at < skipped, self.apostrophes.are_sought()) {
                (true, true) => memchr2(b'"', b'\'', &bytes[at..skipped]),
                (true, false) => memchr(b'"', &bytes[at..skipped]),
                (false, true) => memchr3(b'"', b'\'', b'\n', &bytes[at..]),
                (false, false) => memchr2(b'"', b'\n', &bytes[at..]),
            };
            let Some(found) = found.map(|found| at + found) else {
                at = if at < skipped { skipped } else { bytes.len() };
                continue;
            };
            at = found + 1;
            if bytes[found] == b'\n' {
                (self.last, self.is_escaped) = (b'\n', false);
                self.apostrophes.end_call(&bytes[..at], offset);
                return Ok(Some(offset + at as u64));
            }
            let before = if found == 0 { self.last } else { bytes[found - 1] };
            if bytes[found] == b'\'' {
                self.apostrophes.see(bytes, offset, found, before)?;
                continue;
            }
            self.see_quote(offset + found as u64, before)?;
        }
        self.apostrophes.end_call(bytes, offset);
        self.is_escaped = self.ends_escaped(bytes);
        self.last = bytes.last().copied().unwrap_or(self.last);
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        self.apostrophes.end_file()?;
        match self.quote {
            Quote::Open { opened } => Err((opened, FormatProblem::OpenQuote)),
            _ if self.last == b'\n' => Ok(Ending::Whole),
            _ => Ok(Ending::Open),
        }
    }
}
