//! Commands, items and names of outputs as they are shown.

use eyas_jobs::Job;
use eyas_types::template::Expansion;
use eyas_types::{Input, Name, ObjectSpec, Program, TaskItem, Template, Value, units};

/// Words of a command that are shown. A task may have a million inputs, and each may be a word.
const MAX_WORDS_SHOWN: usize = 1000;

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

/// The name of an input that another task writes; empty for others.
pub(super) fn name_of_output(input: &Input) -> Name {
    input.from.output().map(|(task, _)| format!("output of task {task}").into()).unwrap_or_default()
}

/// The item of a task as the user wrote it, or the output that it reads.
pub(super) fn item_text(item: &TaskItem) -> Name {
    let values: Vec<_> = item.values.iter().map(|value| value.text.as_bytes()).collect();
    match (values.is_empty(), item.inputs.first()) {
        (true, Some(input)) => name_of_output(input),
        _ => values.join(&b' ').into(),
    }
}
