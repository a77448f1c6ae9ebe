//! Failed tasks of a job over blocks, for its error.

use std::fmt;

use eyas_types::Status;
use eyas_types::units::format_count;
use eyas_wire::client::TaskResult;

use super::MapEvent;
use crate::client::WatchEvent;

/// Number of failed tasks, and the message of the first one. As text, it continues a sentence.
#[derive(Debug, Default)]
pub struct TaskFailures {
    count: u64,
    first: Option<String>,
}

impl fmt::Display for TaskFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.first {
            Some(first) => {
                write!(f, "; {} failed, the first: {first}", format_count(self.count, "task"))
            }
            None => Ok(()),
        }
    }
}

impl TaskFailures {
    pub(super) fn see(&mut self, event: &WatchEvent, see: &mut impl FnMut(MapEvent)) {
        match event {
            WatchEvent::Results(results) => {
                for result in results {
                    if !matches!(result.outcome.status, Status::Succeeded | Status::Cancelled) {
                        self.count += 1;
                        self.first.get_or_insert_with(|| failure_message(result));
                    }
                    see(MapEvent::Result(result));
                }
            }
            WatchEvent::Progress(view) => see(MapEvent::Tasks(view)),
            WatchEvent::Lost(_) | WatchEvent::Back => see(MapEvent::Dispatcher(event)),
            // These describe the command of the task, `eyas worker`, which a user has not written.
            WatchEvent::Failures(_) => {}
        }
    }
}

/// The status of a failed task and the last line of its standard error.
fn failure_message(result: &TaskResult) -> String {
    let outcome = &result.outcome;
    let stderr = String::from_utf8_lossy(&outcome.stderr);
    match stderr.lines().rfind(|line| !line.trim().is_empty()) {
        Some(last) => format!("task {}: {}: {last}", result.index, outcome.in_words(None)),
        None => format!("task {}: {}", result.index, outcome.in_words(None)),
    }
}
