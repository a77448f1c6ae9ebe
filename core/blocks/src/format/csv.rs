//! Comma-separated values (RFC 4180): a record ends with a line feed outside of quotes, with or without a carriage
//! return before it.
//!
//! A quote opens at the beginning of a field: at the start of a record or after `,`, `;`, tab or `|`, so that files
//! with any of these separators can be read. It closes at the next quote that is not doubled. Other quotes are
//! ordinary content, as in most readers. A quote that is never closed is refused, since all that follows would be one
//! record.

use memchr::{memchr, memchr2};

use super::{Ending, FormatProblem, Misfit, Records};

/// State: the last byte, and the last quote that was opened or closed.
pub(super) struct Csv {
    last: u8,
    quote: Quote,
}

#[derive(Clone, Copy)]
enum Quote {
    /// No quote, or one that was closed before.
    None,
    /// Inside a quote that was opened at this offset.
    Open { opened: u64 },
    /// The quote was closed just before `end`. If another quote follows there, both are one in the text.
    Closed { opened: u64, end: u64 },
}

impl Default for Csv {
    fn default() -> Self {
        Csv { last: b'\n', quote: Quote::None }
    }
}

impl Csv {
    /// Handles a quote at this offset, which is not inside quotes and follows the byte `before`.
    fn see_quote(&mut self, at: u64, before: u8) {
        self.quote = match self.quote {
            Quote::Closed { opened, end } if end == at => Quote::Open { opened },
            _ if matches!(before, b'\n' | b',' | b';' | b'\t' | b'|') => Quote::Open { opened: at },
            _ => Quote::None,
        };
    }
}

impl Records for Csv {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        // Line feeds before this position are not searched for. Quotes are.
        let skipped = least.saturating_sub(offset + 1).min(bytes.len() as u64) as usize;
        let mut at = 0;
        while at < bytes.len() {
            if let Quote::Open { opened } = self.quote {
                let Some(found) = memchr(b'"', &bytes[at..]) else { break };
                at += found + 1;
                self.quote = Quote::Closed { opened, end: offset + at as u64 };
                continue;
            }
            let found =
                if at < skipped { memchr(b'"', &bytes[at..skipped]) } else { memchr2(b'"', b'\n', &bytes[at..]) };
            let Some(found) = found.map(|found| at + found) else {
                at = if at < skipped { skipped } else { bytes.len() };
                continue;
            };
            at = found + 1;
            if bytes[found] == b'\n' {
                self.last = b'\n';
                return Ok(Some(offset + at as u64));
            }
            let before = if found == 0 { self.last } else { bytes[found - 1] };
            self.see_quote(offset + found as u64, before);
        }
        self.last = bytes.last().copied().unwrap_or(self.last);
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        match self.quote {
            Quote::Open { opened } => Err((opened, FormatProblem::OpenQuote)),
            _ if self.last == b'\n' => Ok(Ending::Whole),
            _ => Ok(Ending::Open),
        }
    }
}
