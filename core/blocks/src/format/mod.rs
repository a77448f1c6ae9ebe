//! Formats: where the records of a file end, and with them its chunks.
//!
//! A record belongs to the chunk that has its first byte, whatever its format. So a chunk ends with the first border between
//! records at or after a multiple of the chunk's size in the file: it never ends within a record, a record longer than a
//! chunk makes one longer chunk, and no chunk is empty. Where chunks end depends on the content alone, not on how it comes.
//!
//! A [`Cutter`] finds those ends in content that comes piece by piece. It must never keep content: what a format remembers
//! has a few words. So no record is too long for it; whoever keeps a chunk in memory needs a bound of his own.
//!
//! What shows to be of another format is refused, with its place ([`BadContent`]), rather than cut where no record ends.
//! Adding a format touches its own file and `records`.

mod csv;
mod fasta;
mod fastq;
mod fixed;
mod length_prefixed;
mod lines;
#[cfg(test)]
mod tests;
mod whole;

use alloc::boxed::Box;
use core::fmt;

use eyas_types::dfs::Format;

/// The records of one format, found in content that comes piece by piece, from the first byte of a record on.
trait Records: Send {
    /// Reads `bytes`, which are at `offset` in the file, right after those read before. Gives the first border at or after
    /// `least`, an offset in the file, and has then read up to it; `None` when it has read all of them.
    ///
    /// A border is within `bytes` or at an end of them. Their start counts only where no call before could see it.
    fn border(&mut self, bytes: &[u8], offset: u64, least: u64) -> Result<Option<u64>, Misfit>;

    /// What it would mean if the file ended here.
    fn ending(&self) -> Result<Ending, Misfit>;
}

/// A problem, and its offset in the file.
type Misfit = (u64, FormatProblem);

/// What the records of that format are like.
fn records(format: Format) -> Box<dyn Records> {
    match format {
        // A line feed in a string of JSON is written `\n` (RFC 8259 §7): a value a line is a line.
        Format::Lines | Format::JsonLines => Box::<lines::LineRecords>::default(),
        Format::Csv => Box::<csv::Csv>::default(),
        Format::Fixed { record_bytes } => Box::new(fixed::FixedSize::new(record_bytes)),
        Format::Fasta => Box::<fasta::Fasta>::default(),
        Format::Fastq => Box::<fastq::Fastq>::default(),
        Format::LengthPrefixed { prefix_bytes, is_big_endian } => {
            Box::new(length_prefixed::LengthPrefixed::new(prefix_bytes, is_big_endian))
        }
        Format::Whole => Box::new(whole::Whole),
    }
}

/// Says where the chunks of a file end.
///
/// To cut a chunk in turn, for less than a chunk of work, feed its content to a new cutter for smaller ones.
pub struct Cutter {
    format: Format,
    records: Box<dyn Records>,
    chunk_bytes: u64,
    /// How much of the file was read.
    offset: u64,
    /// The chunk ends with the first border here or later.
    least: u64,
}

impl Cutter {
    /// A cutter for a file from its start.
    ///
    /// # Panics
    ///
    /// If chunks, records or prefixes would have no bytes, which no text of a [`Format`] can say.
    pub fn new(format: Format, chunk_bytes: u64) -> Self {
        Self::resume(format, chunk_bytes, 0)
    }

    /// A cutter for a file from `offset` on, where a chunk begins.
    ///
    /// To append, it reads the content of the file's last chunk again, and then what is new. Its ends are those that the
    /// whole would have had at once. If the first is where the last chunk ended, that stays; else a longer one replaces it.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn resume(format: Format, chunk_bytes: u64, offset: u64) -> Self {
        assert!(chunk_bytes > 0, "chunks have bytes");
        let mut cutter = Cutter { format, records: records(format), chunk_bytes, offset, least: 0 };
        cutter.begin_chunk();
        cutter
    }

    /// Reads `bytes`, which follow those read so far. If the chunk ends in them, says how many of them it has: they are read,
    /// and the others are to be passed again. That may be none of them, because some formats see a record's end only where
    /// the next one begins. `None` if it has all of them.
    ///
    /// # Errors
    ///
    /// The content is not of the format. The cutter is then of no further use.
    pub fn cut(&mut self, bytes: &[u8]) -> Result<Option<usize>, BadContent> {
        let border = self.records.border(bytes, self.offset, self.least).map_err(|misfit| self.bad(misfit))?;
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

    /// Ends the file after what was read. If its last chunk has any content, it ends here.
    ///
    /// # Errors
    ///
    /// The last record lacks content.
    pub fn finish(&self) -> Result<Ending, BadContent> {
        self.records.ending().map_err(|misfit| self.bad(misfit))
    }

    /// The chunk that begins here ends at or after the next multiple of its size.
    fn begin_chunk(&mut self) {
        self.least = (self.offset / self.chunk_bytes + 1).saturating_mul(self.chunk_bytes);
    }

    fn bad(&self, (offset, problem): Misfit) -> BadContent {
        BadContent { format: self.format, offset, problem }
    }
}

/// How a file ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With a whole record. What is appended may begin another one.
    Whole,
    /// With a record that is not closed, as a line without its line feed is not: what is appended goes on in it.
    Open,
}

/// Content that is not of its format, so that nobody can say where its records end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadContent {
    /// What it should have been.
    pub format: Format,
    /// Where that shows, bytes from the start of the file.
    pub offset: u64,
    /// What is wrong there.
    pub problem: FormatProblem,
}

impl fmt::Display for BadContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadContent { format, offset, problem } = self;
        write!(
            f,
            "this is not {format}: {problem}, at byte {offset}; mend it, or name another format: lines takes any file"
        )
    }
}

impl core::error::Error for BadContent {}

/// What is wrong at some place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatProblem {
    /// The file ends within the record that begins here.
    CutOff,
    /// Likewise, and here is the record's length.
    BeyondEnd {
        /// That length, without itself.
        length_bytes: u64,
    },
    /// This quote is never closed.
    OpenQuote,
    /// Something else than `>` or a comment begins a FASTA file.
    NoSequence,
    /// Something else than `@` is where a read should begin.
    NoRead,
    /// The read that begins here has more qualities than bases.
    TooManyQualities,
}

impl fmt::Display for FormatProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatProblem::CutOff => f.write_str("its last record is cut off"),
            FormatProblem::BeyondEnd { length_bytes } => {
                write!(f, "it ends before the {length_bytes} bytes that its last record should have")
            }
            FormatProblem::OpenQuote => f.write_str("a quote is never closed"),
            FormatProblem::NoSequence => f.write_str("its first sequence does not begin with `>`"),
            FormatProblem::NoRead => f.write_str("a read does not begin with `@`"),
            FormatProblem::TooManyQualities => f.write_str("a read has more qualities than bases"),
        }
    }
}
