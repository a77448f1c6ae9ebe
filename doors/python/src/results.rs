//! Results of calls and commands, as Python sees them.
//!
//! The thread that receives makes them. A field becomes an object of Python when Python reads it,
//! and not before: most calls print nothing, and have no reason to be told.

use eyas_client::types::Status;
use eyas_client::types::outcome::{Outcome, TaskResult, split_call_output};
use eyas_client::types::shown::with_short_quotes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// How a call has ended.
#[pyclass(frozen, eq, hash, rename_all = "SCREAMING_SNAKE_CASE", module = "eyas._eyas")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// It has returned a value; a command has succeeded.
    Returned,
    /// It has raised an exception.
    Raised,
    /// It has ended in another way.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// The kind of a task, and what the message about its end needs.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskKind {
    /// Whether it is a command, and no call.
    pub is_command: bool,
    /// The limit on its time.
    pub timeout_us: Option<u64>,
}

/// The end of a call or command.
#[pyclass(frozen, module = "eyas._eyas")]
pub struct EndedCall {
    /// Number of the task.
    #[pyo3(get)]
    task: u32,
    /// How it has ended.
    #[pyo3(get)]
    outcome: CallOutcome,
    /// Why it has failed; empty if it has not.
    #[pyo3(get)]
    reason: String,
    stdout: Vec<u8>,
    /// Where in the standard output the answer ends, and where what was printed ends.
    answer_end: usize,
    printed_end: usize,
    stderr: Vec<u8>,
    executor: String,
    kept: Vec<u16>,
    /// Bytes of output that were dropped, because there is a bound.
    #[pyo3(get)]
    cut_bytes: u64,
}

impl EndedCall {
    /// What a task has left. The standard output of a command is its answer.
    pub fn new(result: TaskResult, kind: TaskKind) -> Self {
        let TaskResult { index: task, outcome, executor, .. } = result;
        let reason = match outcome.status.is_success() {
            true => String::new(),
            // The name of the option in Python.
            false => {
                with_short_quotes(&outcome.in_words_about(kind.timeout_us, "timeout")).into_owned()
            }
        };
        let Outcome { status, stdout, stderr, outputs, cut_bytes, .. } = outcome;
        let (answer, printed) =
            if kind.is_command { (&stdout[..], &[][..]) } else { split_call_output(&stdout) };
        let outcome = match &status {
            Status::Succeeded => CallOutcome::Returned,
            // The worker has answered with an exception.
            Status::Exited(1) if !answer.is_empty() && !kind.is_command => CallOutcome::Raised,
            Status::Cancelled => CallOutcome::Cancelled,
            _ => CallOutcome::Failed,
        };
        let answer_end = answer.len();
        let printed_end = answer_end + printed.len();
        let kept =
            outputs.iter().filter(|left| left.object.is_kept()).map(|left| left.output).collect();
        EndedCall {
            task,
            outcome,
            reason,
            stdout,
            answer_end,
            printed_end,
            stderr,
            executor,
            kept,
            cut_bytes,
        }
    }
}

#[pymethods]
impl EndedCall {
    /// The pickled value or exception of a call, or what a command has printed.
    #[getter]
    fn answer<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.stdout[..self.answer_end])
    }

    /// What a call has printed.
    #[getter]
    fn printed<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.stdout[self.answer_end..self.printed_end])
    }

    /// The standard error.
    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.stderr)
    }

    /// Name of the executor; empty if the task was at none.
    #[getter]
    fn executor<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        // Many results have the same one.
        PyString::intern(py, &self.executor)
    }

    /// Numbers of the outputs that the cluster keeps.
    #[getter]
    fn kept(&self) -> &[u16] {
        &self.kept
    }
}
