//! What a task has printed while it runs, a piece at a time, for clients that follow the task. The
//! client asks for each piece, and says what it has: so nothing is sent that no client reads, and
//! the captured output stays where it is, on the task's executor.

use serde::{Deserialize, Serialize};

/// Most bytes of each stream in one piece.
pub const MAX_PIECE_BYTES: usize = 64 << 10;

/// The minor version from which on the output of a running task can be asked for.
pub const MINOR_OF_PRINTED: u16 = 3;

/// What a client has of the output of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedPosition {
    /// The run of the program, as its executor has numbered it: tries of a task have other numbers,
    /// also after the dispatcher has started again. The output of another run than this one is sent
    /// from its beginning.
    pub run: u64,
    /// Number of the try, as assigned.
    pub attempt: u32,
    /// Bytes of standard output.
    pub stdout_bytes: u64,
    /// Bytes of standard error.
    pub stderr_bytes: u64,
}

/// The next output of a try, from the position on that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrintedPiece {
    /// The position at which the piece begins.
    pub from: PrintedPosition,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Whether more has been printed already.
    pub has_more: bool,
    /// Bytes beyond the capture limit so far, which are discarded.
    pub cut_bytes: u64,
}

impl PrintedPiece {
    /// The position behind the piece.
    pub fn end(&self) -> PrintedPosition {
        PrintedPosition {
            stdout_bytes: self.from.stdout_bytes + self.stdout.len() as u64,
            stderr_bytes: self.from.stderr_bytes + self.stderr.len() as u64,
            ..self.from
        }
    }
}

/// The answer to a client that follows a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Printed {
    /// No executor has the task.
    Waiting {
        /// Why, for a person.
        why: String,
    },
    /// An executor has the task, and its program does not run: the inputs are fetched, or the
    /// program has ended and its outputs are delivered.
    NotRunning {
        /// Name of the executor.
        executor: String,
    },
    /// The program runs.
    Running {
        /// Name of the executor.
        executor: String,
        /// Whether the program stands still, because tasks of higher priority have its processors.
        is_suspended: bool,
        /// The next output.
        piece: PrintedPiece,
    },
    /// The executor of the task has not answered, or is gone.
    Silent {
        /// Name of the executor.
        executor: String,
    },
    /// The task has ended, and has a log.
    Ended,
}
