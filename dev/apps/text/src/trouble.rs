//! Errors of the programs.

use std::io;

/// Why a program ended early.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Reading the input has failed.
    #[error("cannot read: {0}")]
    Read(io::Error),
    /// Writing the output has failed.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// A line does not have the form that the previous step writes.
    #[error("line {line}: {wrong}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// The mistake in it.
        wrong: &'static str,
    },
}

impl Trouble {
    /// Whether the reader of the output has closed it, which is not an error.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Trouble::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Exit code as in sysexits.h: 74 (`EX_IOERR`) if a retry may help, 65 (`EX_DATAERR`) if not.
    /// After a closed pipe, the exit code of a shell for a program that SIGPIPE has ended: the
    /// output is incomplete.
    pub fn exit_code(&self) -> u8 {
        match self {
            Trouble::Write(_) if self.is_closed_pipe() => 141,
            Trouble::Read(_) | Trouble::Write(_) => 74,
            Trouble::Line { .. } => 65,
        }
    }
}
