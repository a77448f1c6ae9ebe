//! Apostrophes in comma-separated values that stand where quotes would: at both ends of a field. If
//! such a field has a line feed, the file has another dialect, and would be cut within a record.
//!
//! An apostrophe at the start of a field that turns out to be one, as in `'tis isn't`, says that
//! the file has a text with apostrophes. They are not looked at any further.

use memchr::memchr;

use super::{FormatProblem, Misfit};

/// What is known of apostrophes.
#[derive(Clone, Copy, Default)]
pub(super) enum Apostrophes {
    /// No field begins with one here.
    #[default]
    None,
    /// A field begins with one at this offset, and may have line feeds. The apostrophe at `skipped`
    /// is a doubled one.
    Open { opened: u64, has_line_feed: bool, skipped: u64 },
    /// The apostrophe was the last byte that was read.
    Closing { opened: u64, has_line_feed: bool },
    /// They are part of the text.
    Text,
}

impl Apostrophes {
    /// Whether apostrophes have to be looked for.
    pub fn are_sought(self) -> bool {
        !matches!(self, Apostrophes::Text)
    }

    /// Handles the apostrophe at index `at` of `bytes`, which are at `offset` in the file, outside
    /// of double quotes. `before` is the byte before it.
    pub fn see(&mut self, bytes: &[u8], offset: u64, at: usize, before: u8) -> Result<(), Misfit> {
        let here = offset + at as u64;
        match *self {
            Apostrophes::None if is_border(before) => {
                *self = Apostrophes::Open { opened: here, has_line_feed: false, skipped: 0 };
            }
            Apostrophes::Open { skipped, .. } if skipped == here || before == b'\\' => {}
            Apostrophes::Open { opened, has_line_feed, .. } => {
                let has_line_feed = has_line_feed || has_line_feed_in(bytes, offset, opened, at);
                *self = Apostrophes::Closing { opened, has_line_feed };
                if let Some(behind) = bytes.get(at + 1) {
                    self.see_behind(*behind, here + 1)?;
                }
            }
            Apostrophes::None | Apostrophes::Closing { .. } | Apostrophes::Text => {}
        }
        Ok(())
    }

    /// Handles the byte at this offset, if an apostrophe is before it that may end a field.
    pub fn see_behind(&mut self, byte: u8, here: u64) -> Result<(), Misfit> {
        let Apostrophes::Closing { opened, has_line_feed } = *self else { return Ok(()) };
        *self = match byte {
            b'\'' => Apostrophes::Open { opened, has_line_feed, skipped: here },
            _ if !is_border(byte) && byte != b'\r' => Apostrophes::Text,
            _ if has_line_feed => return Err((opened, FormatProblem::SingleQuotes)),
            _ => Apostrophes::None,
        };
        Ok(())
    }

    /// Ends a call that has read `bytes`, which are at `offset`.
    pub fn end_call(&mut self, bytes: &[u8], offset: u64) {
        if let Apostrophes::Open { opened, has_line_feed, .. } = self {
            *has_line_feed =
                *has_line_feed || has_line_feed_in(bytes, offset, *opened, bytes.len());
        }
    }

    /// Checks the end of the file.
    pub fn end_file(self) -> Result<(), Misfit> {
        match self {
            Apostrophes::Closing { opened, has_line_feed: true } => {
                Err((opened, FormatProblem::SingleQuotes))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a field begins behind this byte, or ends before it.
fn is_border(byte: u8) -> bool {
    matches!(byte, b'\n' | b',' | b';' | b'\t' | b'|')
}

fn has_line_feed_in(bytes: &[u8], offset: u64, opened: u64, end: usize) -> bool {
    let begin = opened.saturating_sub(offset) as usize;
    memchr(b'\n', &bytes[begin..end]).is_some()
}
