//! What can go wrong with a file, said so that a person can act on it: always the file's name, then the trouble.

use std::io;
use std::path::{Path, PathBuf};

/// A file that could not be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    /// The file as the caller named it.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

impl FileError {
    /// `problem` met in `path`.
    pub fn new(path: &Path, problem: Problem) -> Self {
        let path = path.to_owned();
        Self { path, problem }
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The operating system refused. The only kind that a retry can cure.
    #[error("cannot {action}: {error}")]
    Io {
        /// What we tried: "open", "read", "write".
        action: &'static str,
        /// What the operating system said.
        error: io::Error,
    },
    /// The first bytes are not those of a FITS file, after gunzip if it was gzip.
    #[error("not a FITS file: it does not begin with \"SIMPLE  =\"")]
    NotFits,
    /// The file ends before its header or its image does.
    #[error("truncated: it ends before {missing}")]
    Truncated {
        /// What should have followed.
        missing: &'static str,
    },
    /// The gzip stream is damaged.
    #[error("damaged gzip data: {0}")]
    Gzip(io::Error),
    /// The header is no legal FITS header.
    #[error("bad FITS header: {0}")]
    Header(String),
    /// A header keyword that we cannot do without.
    #[error("the FITS header lacks {keyword} ({purpose})")]
    Missing {
        /// The keyword.
        keyword: &'static str,
        /// What it is needed for.
        purpose: &'static str,
    },
    /// A header keyword whose value we cannot use.
    #[error("FITS keyword {keyword}: {trouble}")]
    Keyword {
        /// The keyword.
        keyword: &'static str,
        /// What is wrong with its value.
        trouble: String,
    },
    /// A list of objects that cannot be read; lines count from one.
    #[error("object list{}: {trouble}", line.map(|line| format!(" line {line}")).unwrap_or_default())]
    List {
        /// The line, where there is one to blame.
        line: Option<u64>,
        /// What is wrong with it.
        trouble: String,
    },
    /// A partial stack that cannot be added to the others.
    #[error("cannot be summed: {0}")]
    Partial(String),
    /// A picture that cannot be encoded.
    #[error("cannot encode the picture: {0}")]
    Picture(#[from] png::EncodingError),
}

impl Problem {
    /// Wraps an I/O error; shaped for `map_err`.
    pub fn io(action: &'static str) -> impl Fn(io::Error) -> Problem {
        move |error| Problem::Io { action, error }
    }

    /// Exit code after sysexits.h: 74 (`EX_IOERR`) where trying again may help, 65 (`EX_DATAERR`) where it cannot.
    pub fn exit_code(&self) -> u8 {
        match self {
            Problem::Io { .. } => 74,
            _ => 65,
        }
    }
}
