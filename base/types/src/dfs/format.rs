//! Formats of records, how they are written, and how they are guessed.

use alloc::string::String;
use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

use super::dialect::CsvDialect;
use crate::shown::{MAX_QUOTED_CHARS, shortened};

/// The format of a file's records; no chunk ends inside a record. As text, for example `fasta` or
/// `fixed:100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Lines of text, each ended by a line feed.
    Lines,
    /// Comma-separated values, with line feeds in double quotes (RFC 4180); the fields may also be
    /// separated by `;`, tab or `|`.
    Csv,
    /// Comma-separated values of a dialect that is named.
    Dialect(CsvDialect),
    /// One JSON value on each line.
    JsonLines,
    /// Records of one size.
    Fixed {
        /// The size; not 0.
        record_bytes: u32,
    },
    /// Sequences that begin with `>` at the start of a line.
    Fasta,
    /// Reads of sequencers: `@` and a name, the sequence, `+`, and a quality for each base.
    Fastq,
    /// Each record follows its length, an unsigned number that does not count its own bytes.
    LengthPrefixed {
        /// Bytes of the length: 1, 2, 4 or 8.
        prefix_bytes: u8,
        /// Whether the most significant byte comes first.
        is_big_endian: bool,
    },
    /// Compressed blocks of `bgzip`: members of gzip that name their size. A chunk is such a file
    /// of its own.
    Bgzf,
    /// Streams of bzip2, as `pbzip2` and `lbzip2` write them. A file with one stream is one record.
    Bzip2,
    /// Frames of zstd, as `pzstd` and `zstd -T0 --seekable` write them. A file with one frame is
    /// one record.
    Zstd,
    /// The whole file is one record.
    Whole,
}

/// Number of bytes at the beginning of a content by which [`is_text`] decides.
pub const PROBED_BYTES: usize = 8 << 10;

/// Whether content with this beginning is text: it has no zero byte.
pub fn is_text(beginning: &[u8]) -> bool {
    !beginning[..beginning.len().min(PROBED_BYTES)].contains(&0)
}

impl Format {
    /// No records: the content may be cut at any byte.
    pub const BYTES: Format = Format::Fixed { record_bytes: 1 };

    /// The likely format of a file with this name and beginning, of which [`PROBED_BYTES`] are
    /// enough. The content decides before the name does: compressed files and UTF-16 text have no
    /// lines, whatever they are called. Text of an unknown name is lines, and other content is cut
    /// at any byte, as in HDFS.
    pub fn guess(name: &str, beginning: &[u8]) -> Self {
        let beginning = &beginning[..beginning.len().min(PROBED_BYTES)];
        match Format::of_name(name) {
            _ if let Some(format) = of_magic(beginning) => format,
            // Wide characters without a byte order mark.
            Some(format) if format.is_text() && !is_text(beginning) => Format::Whole,
            Some(Format::Csv) => CsvDialect::guess(beginning).map_or(Format::Csv, Format::Dialect),
            // The name says that it is compressed, and it is not.
            Some(format) if format.is_text() || beginning.is_empty() => format,
            _ if is_text(beginning) => Format::Lines,
            _ => Format::BYTES,
        }
    }

    /// The format that the name of a file promises. Names under which programs write a file before
    /// they rename it, such as rsync's `.reads.fastq.a1b2C3`, promise what the later name does.
    pub fn of_name(name: &str) -> Option<Self> {
        let base = name.rsplit('/').next().unwrap_or(name);
        of_extension(base)
            .or_else(|| of_extension(base.strip_prefix('.')?.rsplit_once('.')?.0))
            .or_else(|| {
                let (inner, last) = base.trim_end_matches('~').rsplit_once('.')?;
                let is_temporary = base.ends_with('~')
                    || matches!(last, "part" | "tmp" | "partial" | "crdownload" | "swp");
                of_extension(if base.ends_with('~') { base.trim_end_matches('~') } else { inner })
                    .filter(|_| is_temporary)
            })
    }

    /// Whether records of this format are text, which has no zero bytes, and whose last line may
    /// lack its line feed.
    pub fn is_text(self) -> bool {
        match self {
            Format::Lines | Format::Csv | Format::Dialect(_) | Format::JsonLines => true,
            Format::Fasta | Format::Fastq => true,
            Format::Fixed { .. } | Format::LengthPrefixed { .. } | Format::Whole => false,
            Format::Bgzf | Format::Bzip2 | Format::Zstd => false,
        }
    }

    /// Whether files of this format are comma-separated values, of any dialect.
    pub fn is_csv(self) -> bool {
        matches!(self, Format::Csv | Format::Dialect(_))
    }

    /// Whether files of this format are compressed.
    pub fn is_compressed(self) -> bool {
        matches!(self, Format::Bgzf | Format::Bzip2 | Format::Zstd)
    }

    /// Whether the chunks of a file of this format may end anywhere.
    pub fn accepts_any_chunks(self) -> bool {
        self == Format::Whole || self == Format::BYTES
    }

    /// The format of content that can be read only once, and is guessed to have this format: blocks
    /// of bzip2 and zstd may be too long for a record, which shows only behind their beginning.
    pub fn of_stream(self) -> Self {
        if matches!(self, Format::Bzip2 | Format::Zstd) { Format::Whole } else { self }
    }

    /// The format of content that was expected to have this format and does not.
    pub fn without_records(self) -> Self {
        if self.is_compressed() { Format::Whole } else { Format::BYTES }
    }
}

fn of_extension(base: &str) -> Option<Format> {
    let (_, extension) = base.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "csv" => Format::Csv,
        "jsonl" | "ndjson" => Format::JsonLines,
        "fa" | "fasta" | "fna" | "ffn" | "faa" | "frn" => Format::Fasta,
        "fq" | "fastq" => Format::Fastq,
        // Tab-separated fields have no quotes.
        "txt" | "log" | "tsv" | "vcf" | "sam" | "bed" | "gff" | "gtf" => Format::Lines,
        // Only the content tells which of them have blocks.
        "gz" | "bgz" | "bz2" | "zst" | "xz" | "lz4" | "bam" | "bcf" => Format::Whole,
        _ => return None,
    })
}

/// The format of content that begins with a mark of its kind.
fn of_magic(beginning: &[u8]) -> Option<Format> {
    Some(match beginning {
        [0x1f, 0x8b, 8, 4, _, _, _, _, _, _, 6, 0, b'B', b'C', 2, 0, ..] => Format::Bgzf,
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => Format::Bzip2,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Format::Zstd,
        // A frame that is skipped, as pzstd writes before each frame.
        [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Format::Zstd,
        // Other gzip, xz, lz4.
        [0x1f, 0x8b, 8, ..] | [0xfd, b'7', b'z', b'X', b'Z', 0, ..] | [4, 0x22, 0x4d, 0x18, ..] => {
            Format::Whole
        }
        // Byte order marks of UTF-16 and UTF-32.
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, 0xff, ..] => Format::Whole,
        _ => return None,
    })
}

/// The format of a file's records, and how it was chosen. As text, a guess ends with `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFormat {
    /// The format.
    pub format: Format,
    /// Whether it was guessed, by name and content. It is guessed again when the file gets another
    /// name or content.
    pub is_guessed: bool,
}

impl RecordFormat {
    /// A format that was guessed.
    pub fn guessed(format: Format) -> Self {
        RecordFormat { format, is_guessed: true }
    }

    /// The guess of a file with this name and beginning, as [`Format::guess`].
    pub fn guess(name: &str, beginning: &[u8]) -> Self {
        RecordFormat::guessed(Format::guess(name, beginning))
    }

    /// The guess of a file whose content is not known yet. Only text is cut by its name.
    pub fn of_name(name: &str) -> Self {
        RecordFormat::guessed(
            Format::of_name(name).filter(|format| format.is_text()).unwrap_or(Format::BYTES),
        )
    }

    /// The same choice, of another format.
    #[must_use]
    pub fn with(self, format: Format) -> Self {
        RecordFormat { format, ..self }
    }
}

impl From<Format> for RecordFormat {
    /// A format that a user has chosen.
    fn from(format: Format) -> Self {
        RecordFormat { format, is_guessed: false }
    }
}

impl Deref for RecordFormat {
    type Target = Format;

    fn deref(&self) -> &Format {
        &self.format
    }
}

impl Serialize for RecordFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!(
            "{}{}",
            self.format,
            if self.is_guessed { "?" } else { "" }
        ))
    }
}

impl<'de> Deserialize<'de> for RecordFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let name = text.strip_suffix('?');
        let format = name.unwrap_or(&text).parse().map_err(de::Error::custom)?;
        Ok(RecordFormat { format, is_guessed: name.is_some() })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Format::Lines => f.write_str("lines"),
            Format::Csv => f.write_str("csv"),
            Format::Dialect(dialect) => write!(f, "csv:{dialect}"),
            Format::JsonLines => f.write_str("json-lines"),
            Format::Fixed { record_bytes } => write!(f, "fixed:{record_bytes}"),
            Format::Fasta => f.write_str("fasta"),
            Format::Fastq => f.write_str("fastq"),
            Format::LengthPrefixed { prefix_bytes, is_big_endian } => {
                write!(
                    f,
                    "length-prefixed:{prefix_bytes}{}",
                    if *is_big_endian { "be" } else { "le" }
                )
            }
            Format::Bgzf => f.write_str("bgzf"),
            Format::Bzip2 => f.write_str("bzip2"),
            Format::Zstd => f.write_str("zstd"),
            Format::Whole => f.write_str("whole"),
        }
    }
}

/// A text is not a format.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{}` is not a format: {problem}", shortened(text, MAX_QUOTED_CHARS))]
pub struct FormatError {
    /// The text.
    pub text: String,
    /// The mistake in it.
    pub problem: FormatTextProblem,
}

/// Mistakes in texts of formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FormatTextProblem {
    /// No format has that name.
    #[error(
        "there are lines, csv, json-lines, fixed:100, fasta, fastq, length-prefixed:4be, bgzf, \
         bzip2, zstd and whole"
    )]
    Unknown,
    /// `csv:` without a dialect.
    #[error(
        "write how its fields are separated and quoted, for example \
         csv:delimiter=;,quote=',escape=\\ (also doublequote=no and skipinitialspace=yes). A \
         value is one byte, tab, space, comma, 0x1f or, of quote and escape, none; delimiter, \
         quote and escape differ"
    )]
    Dialect,
    /// `fixed` without the size of records.
    #[error("write a record's size in bytes, for example fixed:100")]
    RecordSize,
    /// `length-prefixed` without the form of the length.
    #[error(
        "write the bytes of the length (1, 2, 4, 8) and their order, for example \
         length-prefixed:4be"
    )]
    LengthForm,
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let wrong = |problem| Err(FormatError { text: text.into(), problem });
        let (name, size) =
            text.split_once(':').map_or((text, None), |(name, size)| (name, Some(size)));
        Ok(match (name, size) {
            ("lines", None) => Format::Lines,
            ("csv", None) => Format::Csv,
            ("csv", Some(options)) => match CsvDialect::parse(options) {
                Some(dialect) => Format::Dialect(dialect),
                None => return wrong(FormatTextProblem::Dialect),
            },
            ("json-lines", None) => Format::JsonLines,
            ("fasta", None) => Format::Fasta,
            ("fastq", None) => Format::Fastq,
            ("bgzf", None) => Format::Bgzf,
            ("bzip2", None) => Format::Bzip2,
            ("zstd", None) => Format::Zstd,
            ("whole", None) => Format::Whole,
            ("fixed", size) => match size.unwrap_or_default().parse() {
                Ok(record_bytes) if record_bytes > 0 => Format::Fixed { record_bytes },
                _ => return wrong(FormatTextProblem::RecordSize),
            },
            ("length-prefixed", size) => match size.and_then(|size| size.split_at_checked(1)) {
                Some((bytes @ ("1" | "2" | "4" | "8"), order @ ("be" | "le"))) => {
                    Format::LengthPrefixed {
                        prefix_bytes: bytes.as_bytes()[0] - b'0',
                        is_big_endian: order == "be",
                    }
                }
                _ => return wrong(FormatTextProblem::LengthForm),
            },
            _ => return wrong(FormatTextProblem::Unknown),
        })
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Format {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn formats_have_text() {
        let texts = [
            "lines",
            "csv",
            "csv:delimiter=;,quote='",
            "json-lines",
            "fixed:1",
            "fixed:4294967295",
            "fasta",
            "fastq",
            "bgzf",
            "bzip2",
            "zstd",
            "whole",
        ];
        let prefixed = ["1be", "2be", "4be", "8be", "1le", "2le", "4le", "8le"]
            .map(|size| alloc::format!("length-prefixed:{size}"));
        for text in texts.into_iter().chain(prefixed.iter().map(String::as_str)) {
            assert_eq!(text.parse::<Format>().unwrap().to_string(), text);
        }
        let prefix = Format::LengthPrefixed { prefix_bytes: 4, is_big_endian: false };
        assert_eq!("length-prefixed:4le".parse(), Ok(prefix));
        let wrong = [
            "",
            "line",
            "CSV",
            "csv:",
            "csv:;",
            "whole:1",
            "fixed",
            "fixed:",
            "fixed:0",
            "fixed:-1",
            "fixed:4294967296",
        ];
        for text in wrong.into_iter().chain([
            "length-prefixed",
            "length-prefixed:3be",
            "length-prefixed:4",
            &"é".repeat(999),
        ]) {
            let error = text.parse::<Format>().unwrap_err().to_string();
            assert!(error.contains("is not a format") && error.chars().count() < 400, "{error}");
        }
    }

    #[test]
    fn formats_are_guessed_by_content_and_name() {
        let bgzf = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0";
        for (name, beginning, format) in [
            ("/sky/a.csv", &b"a,b\n"[..], Format::Csv),
            ("A.CSV", b"", Format::Csv),
            ("a.csv", b"a,\"\\\"b\"\n", "csv:escape=\\".parse().unwrap()),
            ("x.ndjson", b"{}", Format::JsonLines),
            ("x.tar.fa", b">a", Format::Fasta),
            ("reads.fastq", b"@r", Format::Fastq),
            ("syslog.log", b"a", Format::Lines),
            ("csv", b"a", Format::Lines),
            ("/a.csv/b", b"\0a", Format::BYTES),
            ("/a.csv/b", b"a", Format::Lines),
            ("", b"", Format::Lines),
            // Names before a rename.
            ("/in/.reads.fastq.a1b2C3", b"@r", Format::Fastq),
            ("/in/table.csv.part", b"a", Format::Csv),
            ("/in/table.csv~", b"a", Format::Csv),
            ("/in/sedA1b2C3", b"@r", Format::Lines),
            ("/in/.hidden", b"a", Format::Lines),
            ("/in/a.csv.old", b"a", Format::Lines),
            // Compressed content, under any name.
            ("reads.fastq.gz", b"\x1f\x8b\x08\0\0\0", Format::Whole),
            ("reads.fastq.gz", bgzf, Format::Bgzf),
            ("a.bam", bgzf, Format::Bgzf),
            ("a.txt", b"BZh91AY&SY\0", Format::Bzip2),
            ("a", b"\x28\xb5\x2f\xfd\0", Format::Zstd),
            ("a.zst", b"\x50\x2a\x4d\x18\x04\0\0\0", Format::Zstd),
            ("a.csv.xz", b"\xfd7zXZ\0", Format::Whole),
            ("a.csv.gz", b"it is text\n", Format::Lines),
            // Wide characters.
            ("a.csv", b"\xff\xfea\0,\0", Format::Whole),
            ("a", b"\xfe\xff\0a", Format::Whole),
            ("a.txt", b"a\0,\0b\0", Format::Whole),
        ] {
            assert_eq!(
                Format::guess(name, beginning),
                format,
                "{name} {}",
                beginning.escape_ascii()
            );
        }
    }

    #[test]
    fn a_guess_is_told_from_a_choice() {
        for (format, text) in [
            (RecordFormat::guessed(Format::Csv), "\"csv?\""),
            (Format::BYTES.into(), "\"fixed:1\""),
        ] {
            assert_eq!(serde_json::to_string(&format).unwrap(), text);
            assert_eq!(serde_json::from_str::<RecordFormat>(text).unwrap(), format);
        }
    }
}
