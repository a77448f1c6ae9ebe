//! Tasks that failed, with their commands and the end of what they wrote to standard error.

use eyas_jobs::Job;
use eyas_wire::view::FailureView;

use super::ResultReader;
use super::Views;
use super::shown::{command_of, item_text};

/// Failures in one answer.
const MAX_FAILURES_SHOWN: usize = 100;
/// Lines of standard error that are shown of a failed task.
const MAX_STDERR_LINES: usize = 10;
/// Bytes of standard error that are shown of a failed task.
const MAX_STDERR_BYTES: usize = 2000;

impl Views<'_> {
    /// The failed tasks among `tasks`; without any, the first tasks of the job that failed.
    pub(crate) fn failures(&self, job: &Job, tasks: &[u32]) -> Vec<FailureView> {
        let first = job.failures.iter().map(|(task, _)| task.index);
        let indices: Vec<u32> = match tasks {
            [] => first.collect(),
            tasks => {
                tasks.iter().copied().filter(|index| (*index as usize) < job.tasks.len()).collect()
            }
        };
        let mut results = ResultReader::in_full();
        let views = indices.into_iter().take(MAX_FAILURES_SHOWN).map(|index| {
            let result = results.last(self.records, job, index).ok().flatten();
            let outcome = result.as_ref().map(|result| &result.outcome);
            FailureView {
                task: job.task_id(index),
                id: job.template_at(index).id.clone(),
                item: item_text(&job.spec.items.head(index, 1)),
                command: command_of(job, index),
                status: outcome.map_or_else(String::new, |outcome| {
                    outcome.in_words(job.template_at(index).timeout_us)
                }),
                stderr: outcome.map_or_else(String::new, |outcome| last_lines(&outcome.stderr)),
            }
        });
        views.collect()
    }
}

fn last_lines(output: &[u8]) -> String {
    let output = &output[output.len().saturating_sub(MAX_STDERR_BYTES)..];
    let text = String::from_utf8_lossy(output);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(MAX_STDERR_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_standard_error_is_shown() {
        let lines: Vec<_> = (0..30).map(|number| number.to_string()).collect();
        assert_eq!(last_lines((lines.join("\n") + "\n").as_bytes()), lines[20..].join("\n"));
        assert_eq!(last_lines(&[b'x'; 3000]).len(), MAX_STDERR_BYTES);
        assert_eq!(last_lines(b""), "");
    }
}
