//! Formats: where the records of a file end, and therefore its chunks.
//!
//! A record belongs to the chunk that has its first byte. So a chunk ends at the first border
//! between records at or after a multiple of the chunk size: it never ends within a record, a
//! record that is longer than a chunk makes one longer chunk, and no chunk is empty. With chunks of
//! 10 bytes, records that end at 4, 9, 13 and 25 make chunks that end at 13 and 25. Borders depend
//! on the content alone, not on how it is divided into calls.
//!
//! A [`Cutter`] finds borders in content that arrives piece by piece. It must never keep content;
//! the state of a format is a few words. So it accepts records of any length, and callers that keep
//! a chunk in memory need a limit of their own.
//!
//! Content that turns out not to have the format is refused with its offset ([`BadContent`]). To
//! add a format, write its file and add it to `records`.

mod apostrophes;
mod bgzf;
mod bzip2;
mod csv;
mod dialect;
mod fasta;
mod fastq;
mod fixed;
mod length_prefixed;
mod lines;
#[cfg(test)]
mod tests;
mod whole;
mod zstd;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use eyas_types::dfs::Format;

/// The state of one format, which reads content piece by piece from the first byte of a record.
trait Records: Send {
    /// Reads `bytes`, which are at `offset` in the file and follow the bytes of the last call.
    /// Returns the file offset of the first border at or after `least`, and has then read up to it;
    /// or `None`, and has then read all of them.
    ///
    /// A border is within `bytes` or at their start or end. The start counts only if no earlier
    /// call could see it.
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit>;

    /// The state of the file if it ended here.
    fn ending(&self) -> Result<Ending, Misfit>;
}

/// A problem and its offset in the file.
type Misfit = (u64, FormatProblem);

/// The initial state of a format.
fn records(format: Format) -> Box<dyn Records> {
    match format {
        // A line feed in a JSON string is written as `
        // ` (RFC 8259 §7), so a value on a line is a line.
        Format::Lines | Format::JsonLines => Box::<lines::LineRecords>::default(),
        Format::Csv => Box::<csv::Csv>::default(),
        Format::Dialect(dialect) => Box::new(dialect::Dialect::new(dialect)),
        Format::Fixed { record_bytes } => Box::new(fixed::FixedSize::new(record_bytes)),
        Format::Fasta => Box::<fasta::Fasta>::default(),
        Format::Fastq => Box::<fastq::Fastq>::default(),
        Format::LengthPrefixed { prefix_bytes, is_big_endian } => {
            Box::new(length_prefixed::LengthPrefixed::new(prefix_bytes, is_big_endian))
        }
        Format::Bgzf => Box::<bgzf::Bgzf>::default(),
        Format::Bzip2 => Box::<bzip2::Bzip2>::default(),
        Format::Zstd => Box::<zstd::Zstd>::default(),
        Format::Whole => Box::new(whole::Whole),
    }
}

/// Smallest chunk of a file that is one record. A smaller file has one chunk, which a task on its
/// node reads in place. Writers keep a few chunks in memory.
pub const WHOLE_CHUNK_BYTES: u64 = 64 << 20;

/// Finds the borders of a file's chunks.
///
/// To divide a chunk further, feed its content to a new cutter with a smaller chunk size.
pub struct Cutter {
    format: Format,
    records: Box<dyn Records>,
    chunk_bytes: u64,
    /// Number of bytes of the file that were read.
    offset: u64,
    /// The chunk ends at the first border at or after this offset.
    least: u64,
}

impl Cutter {
    /// A cutter for a file, from its start.
    ///
    /// # Panics
    /// If chunks, records or prefixes have size 0, which the text of a [`Format`] cannot express.
    pub fn new(format: Format, chunk_bytes: u64) -> Self {
        Self::resume(format, chunk_bytes, 0)
    }

    /// A cutter for the chunks in which a file is stored, from `offset`, where a chunk begins. They
    /// are those of [`resume`](Self::resume), but a file that is one record is cut at any byte into
    /// chunks of at least [`WHOLE_CHUNK_BYTES`].
    pub fn storing(format: Format, chunk_bytes: u64, offset: u64) -> Self {
        match format {
            Format::Whole => {
                Self::resume(Format::BYTES, chunk_bytes.max(WHOLE_CHUNK_BYTES), offset)
            }
            _ => Self::resume(format, chunk_bytes, offset),
        }
    }

    /// A cutter for a file from `offset`, where a chunk begins.
    ///
    /// To append to a file, feed it the content of the last chunk and then the new content. The
    /// borders are the same as if the whole file had been cut at once. If the first border is the
    /// end of the last chunk, that chunk stays; otherwise a longer one replaces it.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    pub fn resume(format: Format, chunk_bytes: u64, offset: u64) -> Self {
        assert!(chunk_bytes > 0, "chunks have bytes");
        let mut cutter = Cutter { format, records: records(format), chunk_bytes, offset, least: 0 };
        cutter.begin_chunk();
        cutter
    }

    /// Reads `bytes`, which follow those read so far. If the chunk ends in them, returns the number
    /// of bytes that belong to it; the caller passes the others again. The number may be 0, because
    /// some formats recognize the end of a record only at the next one. Returns `None` if all of
    /// them belong to the chunk.
    ///
    /// # Errors
    /// The content does not have the format. The cutter cannot be used further.
    pub fn cut(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadContent> {
        let border = self
            .records
            .border(bytes, self.offset, self.least)
            .map_err(|misfit| self.bad(misfit))?;
        let Some(border) = border else {
            self.offset += bytes.len() as u64;
            return Ok(None);
        };
        let taken = (border - self.offset) as usize;
        assert!(border >= self.least && taken <= bytes.len(), "a border is in what was read");
        self.offset = border;
        self.begin_chunk();
        Ok(Some(taken))
    }

    /// Number of bytes up to the end of the chunk, if the chunk ends there whatever they are.
    pub fn rest_bytes(&self) -> Option<u64> {
        (self.format == Format::BYTES).then(|| self.least - self.offset)
    }

    /// Passes over the [rest](Self::rest_bytes) of the chunk without reading it.
    pub fn skip_rest(&mut self) {
        *self = Cutter::resume(self.format, self.chunk_bytes, self.least);
    }

    /// Whether a record may end within zeros.
    pub fn ends_in_zeros(&self) -> bool {
        matches!(self.format, Format::Fixed { .. } | Format::LengthPrefixed { .. })
    }

    /// Ends the file. If the last chunk has content, it ends here.
    ///
    /// # Errors
    /// The last record is incomplete.
    pub fn finish(&self) -> Result<Ending, BadContent> {
        self.records.ending().map_err(|misfit| self.bad(misfit))
    }

    /// The chunk that begins here ends at or after the next multiple of the chunk size.
    fn begin_chunk(&mut self) {
        self.least = (self.offset / self.chunk_bytes + 1).saturating_mul(self.chunk_bytes);
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        self.format
    }

    fn bad(&self, (offset, problem): Misfit) -> BadContent {
        BadContent { format: self.format, offset, problem }
    }
}

/// Finds where the pieces of a chunk end, as offsets in its content, while the content is read. A
/// piece has the records that begin in its part of the chunk, and all parts have about the same
/// size. A piece without a record is empty.
pub struct PieceCutter {
    cutter: Cutter,
    pieces: usize,
    piece_bytes: usize,
    size_bytes: usize,
    /// Number of bytes that were read.
    at: usize,
    ends: Vec<usize>,
}

impl PieceCutter {
    /// A cutter for a chunk of this size.
    pub fn new(format: Format, size_bytes: usize, pieces: u32) -> Self {
        let pieces = pieces.max(1) as usize;
        let piece_bytes = size_bytes.div_ceil(pieces).max(1);
        let (cutter, ends) = (Cutter::new(format, piece_bytes as u64), Vec::with_capacity(pieces));
        PieceCutter { cutter, pieces, piece_bytes, size_bytes, at: 0, ends }
    }

    /// Reads the next `bytes` of the content.
    ///
    /// # Errors
    /// The content does not have the format. The cutter cannot be used further.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), BadContent> {
        let mut rest = bytes;
        while self.ends.len() + 1 < self.pieces
            && let Some(taken) = self.cutter.cut(rest)?
        {
            rest = &rest[taken..];
            self.at += taken;
            while self.ends.len() + 1 < self.pieces
                && (self.ends.len() + 1) * self.piece_bytes <= self.at
            {
                self.ends.push(self.at);
            }
        }
        self.at += rest.len();
        Ok(())
    }

    /// The ends of all pieces, when the whole chunk has been read.
    pub fn finish(mut self) -> Vec<usize> {
        self.ends.resize(self.pieces, self.size_bytes);
        self.ends
    }
}

/// Where the pieces of a chunk end, see [`PieceCutter`].
///
/// # Errors
/// The content does not have the format.
pub fn piece_ends(format: Format, content: &[u8], pieces: u32) -> Result<Vec<usize>, BadContent> {
    let mut cutter = PieceCutter::new(format, content.len(), pieces);
    cutter.read(content)?;
    Ok(cutter.finish())
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a complete record. Appended content may begin another one.
    Whole,
    /// With an open record, like a line without its line feed: appended content continues it.
    Open,
}

/// Content that does not have its format, so it is unknown where records end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadContent {
    /// The expected format.
    pub format: Format,
    /// Offset in the file where this was found.
    pub offset: u64,
    /// The problem.
    pub problem: FormatProblem,
}

impl fmt::Display for BadContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadContent { format, offset, problem } = self;
        write!(
            f,
            "this is not {format}: {problem}, at byte {offset}. Correct the file, or name another \
             format; `lines` accepts any file"
        )
    }
}

impl core::error::Error for BadContent {}

/// A problem at some offset of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatProblem {
    /// The file ends within the record that begins here.
    CutOff,
    /// The file ends within a record whose length is here.
    BeyondEnd {
        /// The length in the prefix.
        length_bytes: u64,
    },
    /// The quote at this offset is never closed.
    OpenQuote,
    /// In quotes, a quote follows a backslash at this offset, and quotes behind it make no sense
    /// unless it is part of the text.
    EscapedQuote,
    /// The quote at this offset follows a quote and a byte that separates no fields in this format.
    OtherDelimiter,
    /// The field that begins with an apostrophe at this offset has a line feed, and ends with an
    /// apostrophe.
    SingleQuotes,
    /// A FASTA file begins with something other than `>` or a comment.
    NoSequence,
    /// A read must begin with `@`.
    NoRead,
    /// The read that begins here has more qualities than bases.
    TooManyQualities,
}

impl fmt::Display for FormatProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatProblem::CutOff => f.write_str("the last record is incomplete"),
            FormatProblem::BeyondEnd { length_bytes } => {
                write!(f, "the file ends before the {length_bytes} bytes of its last record")
            }
            FormatProblem::OpenQuote => f.write_str("a quote is never closed"),
            FormatProblem::EscapedQuote => f.write_str(
                "a backslash is before a quote, and may escape it; name the dialect, such as \
                 csv:escape=\\, or csv:delimiter=comma for quotes that are doubled",
            ),
            FormatProblem::OtherDelimiter => f.write_str(
                "fields seem to have another separator; name the dialect, such as \
                 csv:delimiter=^, or csv:delimiter=comma",
            ),
            FormatProblem::SingleQuotes => f.write_str(
                "a field with a line feed seems to be in single quotes; name the dialect, such as \
                 csv:quote=', or csv:delimiter=comma",
            ),
            FormatProblem::NoSequence => f.write_str("the first sequence does not begin with `>`"),
            FormatProblem::NoRead => f.write_str("a read does not begin with `@`"),
            FormatProblem::TooManyQualities => f.write_str("a read has more qualities than bases"),
        }
    }
}
