//! What can go wrong, said so that a person can act on it.

use std::io;

/// Why a program ended early.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The operating system refused to give more input.
    #[error("cannot read: {0}")]
    Read(io::Error),
    /// The operating system refused to take more output.
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
    /// A line that is not what the step before writes.
    #[error("line {line}: {wrong}")]
    Line {
        /// Which one, from 1.
        line: u64,
        /// What is wrong with it.
        wrong: &'static str,
    },
}

impl Trouble {
    /// Whether the reader of the output has gone, which is his business.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Trouble::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Exit code after sysexits.h: 74 (`EX_IOERR`) where trying again may help, 65 (`EX_DATAERR`) where it cannot.
    /// After a closed pipe what shells say of programs that its signal ends: not all was written.
    pub fn exit_code(&self) -> u8 {
        match self {
            Trouble::Write(_) if self.is_closed_pipe() => 141,
            Trouble::Read(_) | Trouble::Write(_) => 74,
            Trouble::Line { .. } => 65,
        }
    }
}
