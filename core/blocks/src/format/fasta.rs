//! FASTA: a sequence begins with `>` at the start of a line, and includes everything up to the next
//! one, also empty lines.
//!
//! White space before the first sequence, and then a comment that begins with `;`, belong to the
//! first sequence. Any other content there is refused.

use memchr::memchr;

use super::{Ending, FormatProblem, Misfit, Records};

/// State: the last byte, and how far the beginning of the file was read.
pub(super) struct Fasta {
    last: u8,
    part: Part,
}

#[derive(PartialEq, Eq)]
enum Part {
    /// Only white space so far.
    Blank,
    /// In a comment before the first sequence.
    Comment,
    /// In a sequence.
    Sequence,
}

impl Default for Fasta {
    fn default() -> Self {
        Fasta { last: b'\n', part: Part::Blank }
    }
}

impl Fasta {
    /// Position of the first `>` at the start of a line, at or after `from`.
    fn start(&self, bytes: &[u8], mut from: usize) -> Option<usize> {
        while let Some(found) = memchr(b'>', &bytes[from..]) {
            let start = from + found;
            let before = if start == 0 { self.last } else { bytes[start - 1] };
            if before == b'\n' {
                return Some(start);
            }
            from = start + 1;
        }
        None
    }

    /// Reads up to the `>` of the first sequence. Returns the number of bytes read.
    fn begin(&mut self, bytes: &[u8], offset: u64) -> Result<usize, Misfit> {
        let mut at = 0;
        if self.part == Part::Blank {
            let Some(found) = bytes.iter().position(|byte| !byte.is_ascii_whitespace()) else {
                return Ok(bytes.len());
            };
            self.part = match bytes[found] {
                b'>' => Part::Sequence,
                b';' => Part::Comment,
                _ => return Err((offset + found as u64, FormatProblem::NoSequence)),
            };
            at = found + 1;
        }
        if self.part == Part::Comment {
            let Some(start) = self.start(bytes, at) else { return Ok(bytes.len()) };
            self.part = Part::Sequence;
            at = start + 1;
        }
        Ok(at)
    }
}

impl Records for Fasta {
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit> {
        let begun = self.begin(bytes, offset)?;
        let skipped = least.saturating_sub(offset).min(bytes.len() as u64) as usize;
        if let Some(start) = self.start(bytes, begun.max(skipped)) {
            return Ok(Some(offset + start as u64));
        }
        self.last = bytes.last().copied().unwrap_or(self.last);
        Ok(None)
    }

    fn ending(&self) -> Result<Ending, Misfit> {
        Ok(if self.last == b'\n' { Ending::Whole } else { Ending::Open })
    }
}
