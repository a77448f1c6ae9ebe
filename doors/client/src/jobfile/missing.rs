//! Warnings of words of a command that name a file which the tasks will not have: the file is in
//! the folder of submission, and the tasks run in sandboxes without it. The warning comes before
//! the job runs, once for each file. So does a warning of a pattern that matches no input.

use eyas_store::{path_of, unstaged_files};
use eyas_types::template::Expansion;
use eyas_types::{Input, Name, Program, TaskTemplate, Template, TemplatePart, Value};

use super::names::{CommandText, Writers};
use crate::draft::{Draft, DraftTasks};

/// Different words of a job that are looked at: each is a question to the file system.
const MAX_EXAMINED: usize = 1000;

/// Warns of files that the command of a template names, as its first task has it, and of patterns.
/// The tasks of the template begin at `first` in the draft.
pub(super) fn warn(draft: &mut Draft, command: &CommandText, template: u16, first: usize) {
    if draft.examined.len() >= MAX_EXAMINED {
        return;
    }
    let (Ok(folder), Some((values, inputs))) = (draft.folder(), first_task(draft, template, first))
    else {
        return;
    };
    let fields = &draft.templates[usize::from(template)];
    let Program::Command(words) = &fields.program else { return };
    let all = || fields.inputs.iter().chain(&inputs);
    let missed = all().find_map(|input| missed_by(command, input.name.as_ref()?)).cloned();
    let with = Expansion {
        values: &values,
        staged: &[],
        template_inputs: 0,
        number: first as u32 + 1,
        slot: 1,
        input_list: b"",
    };
    // The first word is a program of the PATH, or was made a path of the folder of submission.
    let named = words.iter().skip(1).filter(|word| is_text(word, &values));
    let named: Vec<_> = named.map(|word| (word.expand(&with), word)).collect();
    let writers = Writers::of(draft);
    let mut has: Vec<_> = all().filter_map(|input| writers.name_of_input(input)).collect();
    has.extend(outputs_of(fields, &with));
    if let Some(name) = missed
        && draft.examined.insert(name.clone())
    {
        tracing::warn!(
            "a pattern in the command does not match the input `{name}`, which is at this path in \
             the folder of the task: write the pattern with its folder before it, or {{inputs}} \
             for a list of all inputs"
        );
    }
    for (name, word) in named {
        if draft.examined.len() >= MAX_EXAMINED || !draft.examined.insert(name.clone()) {
            continue;
        }
        for file in unstaged_files(path_of(&folder), [name.as_bytes()], &has) {
            match word.has_value() {
                true => tracing::warn!("{}", file.of_each(&word.written())),
                false => tracing::warn!("{file}"),
            }
        }
    }
}

/// The input, if a pattern in the command would match it without its folders, as `*.csv` would
/// match `parts/1.csv`.
fn missed_by<'a>(command: &CommandText, name: &'a Name) -> Option<&'a Name> {
    let slash = name.iter().rposition(|byte| *byte == b'/')?;
    let is_missed = command.has_pattern_of(&name[slash + 1..]) && !command.has_pattern_of(name);
    is_missed.then_some(name)
}

/// The values and inputs of the first task that was added with a template.
fn first_task(draft: &Draft, template: u16, first: usize) -> Option<(Vec<Value>, Vec<Input>)> {
    match draft.tasks.last()? {
        DraftTasks::Items(items) => {
            let item = items.get(items.len().checked_sub(draft.len() - first)?)?;
            (item.template == template).then(|| (item.values.clone(), item.inputs.clone()))
        }
        DraftTasks::Numbers { template: of, numbers, .. } => {
            let text = numbers.iter().next()?.to_string().into();
            (*of == template).then(|| (vec![Value { text, input: None }], Vec::new()))
        }
    }
}

/// Whether a word is text of the user alone, without the path of an input or a part of it.
fn is_text(word: &Template, values: &[Value]) -> bool {
    let is_input = |column: u16| match usize::from(column) {
        0 => values.iter().any(|value| value.input.is_some()),
        column => values.get(column - 1).is_some_and(|value| value.input.is_some()),
    };
    word.0.iter().all(|part| match part {
        TemplatePart::Literal(_) | TemplatePart::Number | TemplatePart::When(_) => true,
        TemplatePart::Value { column, .. } => !is_input(*column),
        TemplatePart::Slot | TemplatePart::Input(_) | TemplatePart::InputList(_) => false,
    })
}

/// The names of outputs, and their destinations.
fn outputs_of(fields: &TaskTemplate, with: &Expansion<'_>) -> impl Iterator<Item = Name> {
    fields
        .outputs
        .iter()
        .filter(|output| !output.is_stream())
        .flat_map(|output| [Some(&output.pattern), output.destination.as_ref()])
        .flatten()
        .map(|word| word.expand(with))
}
