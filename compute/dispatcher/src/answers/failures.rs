//! Tasks that failed, with their commands and the end of what they wrote to standard error.

use eyas_jobs::Job;
use eyas_types::template::Expansion;
use eyas_types::{Input, Name, ObjectSpec, Program, Template, Value, units};
use eyas_wire::view::FailureView;

use super::ResultReader;
use super::Views;
use super::views::{item_text, name_of_output};

/// Failures in one answer.
const MAX_FAILURES_SHOWN: usize = 100;
/// Words of a command that are shown. A task may have a million inputs, and each may be a word.
const MAX_WORDS_SHOWN: usize = 1000;
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
            let result = results.last(self, job, index).ok().flatten();
            let outcome = result.as_ref().map(|result| &result.outcome);
            FailureView {
                task: job.task_id(index),
                id: job.template_at(index).id.clone(),
                item: item_text(&job.spec.items.head(index, 1)),
                command: command_of(job, index),
                status: outcome.map_or_else(String::new, |outcome| outcome.status.to_string()),
                stderr: outcome.map_or_else(String::new, |outcome| last_lines(&outcome.stderr)),
            }
        });
        views.collect()
    }
}

/// The first words of a task's command. Items stay as the user wrote them. An input that is named
/// by its number is shown by its source.
pub(super) fn command_of(job: &Job, index: u32) -> Vec<Name> {
    let (Program::Command(words) | Program::Call(words)) = &job.template_at(index).program else {
        return Vec::new();
    };
    let shown = &words[..words.len().min(MAX_WORDS_SHOWN)];
    let named = shown.iter().map(Template::highest_input).max().unwrap_or(0);
    let item = job.spec.items.head(index, named as usize);
    let values: Vec<_> =
        item.values.iter().map(|value| Value { text: value.text.clone(), input: None }).collect();
    let inputs = job.inputs(&item).take(named as usize);
    let staged: Vec<_> = inputs.map(|(input, object)| source_of(input, object)).collect();
    let with = Expansion {
        values: &values,
        staged: &staged,
        template_inputs: 0,
        number: index + 1,
        slot: 0,
        input_list: b"",
    };
    let more = words.len() - shown.len();
    let rest = (more > 0)
        .then(|| format!("… and {}", units::format_count(more as u64, "more word")).into());
    shown.iter().map(|word| word.expand(&with)).chain(rest).collect()
}

fn source_of(input: &Input, object: Option<&ObjectSpec>) -> Name {
    match object {
        Some(object) => object.source.strip_prefix(b"file://").unwrap_or(&object.source).into(),
        None => name_of_output(input),
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
