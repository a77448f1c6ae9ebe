//! Comma-separated values of a named dialect. Records end as for Python's `csv.reader` on a file
//! that was opened with `newline=""`: with a line feed, a carriage return, or both. A quote that is
//! never closed is refused.

use eyas_types::dfs::CsvDialect;

use super::{Ending, FormatProblem, Misfit, Records};

/// State: the place in a record, and the offset of the last quote that was opened.
pub(super) struct Dialect {
    dialect: CsvDialect,
    place: Place,
    opened: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before a record.
    Record,
    /// Behind a carriage return that ends a record.
    Return,
    /// At the start of a field.
    Field,
    /// In a field, or behind its quotes.
    Unquoted,
    /// Behind the escape, outside of quotes.
    Escaped,
    Quoted,
    /// Behind the escape, in quotes.
    QuotedEscape,
    /// Behind a quote in quotes.
    Quote,
}

impl Dialect {
    pub(super) fn new(dialect: CsvDialect) -> Self {
        Dialect { dialect, place: Place::Record, opened: 0 }
    }

    /// Where the byte at this offset leads; behind a carriage return, the byte is a line feed.
    fn read(&mut self, byte: u8, here: u64) -> Place {
        let CsvDialect { delimiter, quote, escape, doublequote, skipinitialspace } = self.dialect;
        let (is_quote, is_escape) = (Some(byte) == quote, Some(byte) == escape);
        match self.place {
            Place::Escaped => Place::Unquoted,
            Place::QuotedEscape => Place::Quoted,
            Place::Quoted if is_escape => Place::QuotedEscape,
            Place::Quoted if is_quote && doublequote => Place::Quote,
            Place::Quoted if is_quote => Place::Unquoted,
            Place::Quoted => Place::Quoted,
            Place::Quote if is_quote => Place::Quoted,
            _ if byte == b'\n' => Place::Record,
            _ if byte == b'\r' => Place::Return,
            _ if byte == delimiter => Place::Field,
            Place::Quote => Place::Unquoted,
            Place::Record | Place::Field if is_quote => {
                self.opened = here;
                Place::Quoted
            }
            _ if is_escape => Place::Escaped,
            Place::Record | Place::Field if byte == b' ' && skipinitialspace => Place::Field,
            Place::Record | Place::Field | Place::Return | Place::Unquoted => Place::Unquoted,
        }
    }
}

impl Records for Dialect {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        for (here, byte) in (offset..).zip(bytes) {
            if self.place == Place::Return && *byte != b'\n' {
                self.place = Place::Record;
                if here >= least {
                    return Ok(Some(here));
                }
            }
            self.place = self.read(*byte, here);
            if self.place == Place::Record && here + 1 >= least {
                return Ok(Some(here + 1));
            }
        }
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        match self.place {
            Place::Quoted | Place::QuotedEscape => Err((self.opened, FormatProblem::OpenQuote)),
            Place::Record => Ok(Ending::Whole),
            _ => Ok(Ending::Open),
        }
    }
}
