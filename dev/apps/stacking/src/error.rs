//! Errors of files: the file's name, then the problem.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A file that could not be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct StackingError {
    /// The file as the caller named it.
    pub path: PathBuf,
    /// The problem.
    pub problem: FileProblem,
}

impl StackingError {
    /// `problem` met in `path`.
    pub fn new(path: &Path, problem: FileProblem) -> Self {
        let path = path.to_owned();
        Self { path, problem }
    }
}

/// A place in a list of objects, from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListPlace {
    /// A line of text.
    Line(u64),
    /// A row of a table.
    Row(u64),
}

impl fmt::Display for ListPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListPlace::Line(line) => write!(out, "line {line}"),
            ListPlace::Row(row) => write!(out, "row {row}"),
        }
    }
}

/// Problems of files.
#[derive(Debug, thiserror::Error)]
pub enum FileProblem {
    /// A system call has failed. The only problem that a retry can solve.
    #[error("cannot {action}: {error}")]
    Io {
        /// The attempted action: "open", "read", "write".
        action: &'static str,
        /// The system's reason.
        error: io::Error,
    },
    /// The first bytes are not those of a FITS file, after gunzip if it was gzip.
    #[error("not a FITS file: it does not begin with \"SIMPLE  =\"{0}")]
    NotFits(&'static str),
    /// The file ends before its header or its image does.
    #[error("truncated: it ends before {missing}")]
    Truncated {
        /// The missing part.
        missing: &'static str,
    },
    /// The gzip stream is damaged.
    #[error("damaged gzip data: {0}")]
    Gzip(io::Error),
    /// The header is not a valid FITS header.
    #[error("bad FITS header: {0}")]
    Header(String),
    /// An image that is compressed in a table cannot be read.
    #[error("its compressed image cannot be read: {0}")]
    Tiles(String),
    /// There is no image to read.
    #[error("no image: neither its first part nor an IMAGE extension has one")]
    NoImage,
    /// There is no image with the number or name that was asked for.
    #[error("no image in HDU '{wanted}': the file has {parts} HDUs, counted from 0")]
    NoHdu {
        /// The number or name.
        wanted: String,
        /// Header and data units of the file.
        parts: usize,
    },
    /// The HDU that was asked for is no image.
    #[error("HDU {0} has no image: choose another one with --hdu")]
    HduWithoutImage(usize),
    /// A required header keyword is missing.
    #[error("the FITS header lacks {keyword} ({purpose})")]
    Missing {
        /// The keyword.
        keyword: String,
        /// The purpose of the keyword.
        purpose: &'static str,
    },
    /// The value of a header keyword cannot be used.
    #[error("FITS keyword {keyword}: {trouble}")]
    Keyword {
        /// The keyword.
        keyword: String,
        /// The mistake in its value.
        trouble: String,
    },
    /// The world coordinate system does not say where the pixels of the frame are.
    #[error("the positions of its pixels cannot be trusted: {0}")]
    Positions(String),
    /// A list of objects that cannot be read.
    #[error(
        "object list{}: {trouble}",
        place.map(|place| format!(" {place}")).unwrap_or_default()
    )]
    List {
        /// Where, if it is known.
        place: Option<ListPlace>,
        /// What is wrong with it.
        trouble: String,
    },
    /// An index of frames that cannot be used.
    #[error("not a usable index of frames: {0}")]
    Index(String),
    /// A report of what was not stacked that cannot be read.
    #[error("no report of `stack`: {0}")]
    Report(String),
    /// A partial stack that cannot be added to the others.
    #[error("cannot be summed: {0}")]
    Partial(String),
    /// A picture that cannot be encoded.
    #[error("cannot encode the picture: {0}")]
    Picture(#[from] png::EncodingError),
    /// A JPEG that cannot be encoded.
    #[error("cannot encode the picture: {0}")]
    Jpeg(#[from] jpeg_encoder::EncodingError),
    /// A picture that is too large for a JPEG.
    #[error("a JPEG has at most 65535 pixels an edge, and this picture {0}: write a PNG")]
    JpegEdge(usize),
}

impl FileProblem {
    /// Wraps an I/O error; shaped for `map_err`.
    pub fn io(action: &'static str) -> impl Fn(io::Error) -> FileProblem {
        move |error| FileProblem::Io { action, error }
    }

    /// Exit code as in sysexits.h: 74 (`EX_IOERR`) if a retry may help, 65 (`EX_DATAERR`) if not.
    pub fn exit_code(&self) -> u8 {
        match self {
            FileProblem::Io { .. } => 74,
            _ => 65,
        }
    }
}
