//! FASTQ: a read is a line `@` with its name, bases, a line `+`, and as many qualities as bases
//! (Cock et al. 2010). Bases and qualities may each take several lines. So an `@` or `+` among the
//! qualities begins nothing; this is known because chunks are read from their start. Spaces count
//! like other bytes; the carriage return before a line feed does not count.
//!
//! Qualities take at least one line, which is empty for a read without bases. Empty lines after a
//! read belong to it, and those before the first read belong to that. Any other content between
//! reads is refused, and so is a read with more or fewer qualities than bases.

use memchr::memchr;

use super::{Ending, FormatProblem, Misfit, Records};

/// State: the current part of a read, its numbers of bases and qualities so far, and the last byte.
#[derive(Clone)]
pub(super) struct Fastq {
    part: Part,
    /// Offset of the read.
    begun: u64,
    bases: u64,
    qualities: u64,
    last: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Before the first read.
    Start,
    /// After a read.
    Between,
    Name,
    Bases,
    /// The line with the plus sign.
    Plus,
    Qualities,
}

impl Default for Fastq {
    fn default() -> Self {
        Fastq { part: Part::Start, begun: 0, bases: 0, qualities: 0, last: b'\n' }
    }
}

impl Fastq {
    /// A line at this offset begins with `byte`. Returns whether a read begins.
    fn begin_line(&mut self, byte: u8, offset: u64) -> Result<bool, Misfit> {
        match (self.part, byte) {
            (Part::Start | Part::Between, b'@') => return Ok(true),
            (Part::Start | Part::Between, b'\n' | b'\r') => {}
            (Part::Start | Part::Between, _) => return Err((offset, FormatProblem::NoRead)),
            (Part::Bases, b'+') => self.part = Part::Plus,
            (Part::Bases | Part::Name | Part::Plus | Part::Qualities, _) => {}
        }
        Ok(false)
    }

    /// Reads more of a line, without its line feed.
    fn read(&mut self, bytes: u64) {
        match self.part {
            Part::Bases => self.bases += bytes,
            Part::Qualities => self.qualities += bytes,
            Part::Start | Part::Between | Part::Name | Part::Plus => {}
        }
    }

    /// A line has ended. `last` is the byte before its line feed.
    fn end_line(&mut self, last: u8) -> Result<(), Misfit> {
        let carriage_return = u64::from(last == b'\r');
        match self.part {
            Part::Start | Part::Between => {}
            Part::Name => self.part = Part::Bases,
            Part::Bases => self.bases -= carriage_return,
            Part::Plus => self.part = Part::Qualities,
            Part::Qualities => {
                self.qualities -= carriage_return;
                if self.qualities > self.bases {
                    return Err((self.begun, FormatProblem::TooManyQualities));
                }
                if self.qualities == self.bases {
                    self.part = Part::Between;
                }
            }
        }
        Ok(())
    }
}

impl Records for Fastq {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        let mut at = 0;
        while at < bytes.len() {
            let here = offset + at as u64;
            if self.last == b'\n' && self.begin_line(bytes[at], here)? {
                if self.part == Part::Between && here >= least {
                    return Ok(Some(here));
                }
                *self = Fastq { part: Part::Name, begun: here, ..Fastq::default() };
            }
            let line_feed = memchr(b'\n', &bytes[at..]);
            let end = line_feed.map_or(bytes.len(), |found| at + found);
            self.read((end - at) as u64);
            if end > at {
                self.last = bytes[end - 1];
            }
            at = end;
            if line_feed.is_some() {
                self.end_line(self.last)?;
                self.last = b'\n';
                at += 1;
            }
        }
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        let mut closed = self.clone();
        closed.end_line(self.last)?;
        match (self.part, closed.part) {
            (Part::Start | Part::Between, _) => Ok(Ending::Whole),
            (_, Part::Between) => Ok(Ending::Open),
            _ => Err((self.begun, FormatProblem::CutOff)),
        }
    }
}
