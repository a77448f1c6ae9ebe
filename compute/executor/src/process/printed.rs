//! Questions of other threads about what a process has printed. The thread that captures its output
//! answers them between two reads, so the output needs no lock, and costs nothing more while no
//! client asks.

use eyas_wire::printed::{PrintedPiece, PrintedPosition};

/// Tells the dispatcher what a task has printed, by the number of the question; `None` if the task
/// does not run any more.
pub(crate) type AnswerPrinted = Box<dyn Fn(u64, Option<Box<PrintedPiece>>) + Send + Sync>;

/// A question that the dispatcher has asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrintedQuestion {
    pub number: u64,
    /// What the client has.
    pub from: PrintedPosition,
}

/// Questions that wait for the thread of a process. The dispatcher bounds them: it has one for each
/// client that follows the task.
#[derive(Debug, Default)]
pub(super) struct PrintedQuestions {
    /// Whether the process runs.
    is_open: bool,
    waiting: Vec<PrintedQuestion>,
}

impl PrintedQuestions {
    /// The process runs from now on.
    pub fn begin(&mut self) {
        self.is_open = true;
    }

    /// Adds a question. Whether it is answered.
    pub fn ask(&mut self, question: PrintedQuestion) -> bool {
        if self.is_open {
            self.waiting.push(question);
        }
        self.is_open
    }

    /// Takes the questions.
    pub fn take(&mut self) -> Vec<PrintedQuestion> {
        std::mem::take(&mut self.waiting)
    }

    /// The process has ended. Returns the questions that were not answered.
    pub fn end(&mut self) -> Vec<PrintedQuestion> {
        self.is_open = false;
        self.take()
    }
}
