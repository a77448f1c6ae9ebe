//! Names of inputs that are outputs of other tasks. Outputs of many tasks often have one name, and a pattern in the
//! command that reads them, such as `*.fits`, would find only the first. So they need different names, unless the
//! command names each of them.

use std::collections::HashMap;

use eyas_types::template::Expansion;
use eyas_types::{InputFrom, Name, Program, TaskTemplate, Template, TemplatePart, Value};

use super::TaskFieldsError;
use crate::draft::{Draft, DraftTasks};

/// What stands for the index of a task in its array.
const INDEX: &str = "{index}";

/// The name of an output in the sandbox of its reader: `into` with the index of the task that writes the output.
pub(super) fn placed(into: &Name, index: u32) -> Name {
    let (mut placed, mut rest) = (Name::default(), &into[..]);
    while let Some(at) = rest.windows(INDEX.len()).position(|window| window == INDEX.as_bytes()) {
        placed.push(&rest[..at]);
        placed.push(index.to_string());
        rest = &rest[at + INDEX.len()..];
    }
    placed.push(rest);
    placed
}

/// Refuses outputs of other tasks that would have one name in the sandbox.
pub(super) fn check(draft: &Draft, template: &TaskTemplate) -> Result<(), TaskFieldsError> {
    let (Program::Command(words) | Program::Call(words)) = &template.program else { return Ok(()) };
    let parts = || words.iter().chain(template.env.iter().map(|(_, value)| value)).flat_map(|word| &word.0);
    if parts().any(|part| matches!(part, TemplatePart::InputList(_))) {
        return Ok(());
    }
    let is_named = |place: usize| parts().any(|part| *part == TemplatePart::Input(place as u32));
    let writers = Writers::of(draft);
    let mut names = HashMap::<Name, usize>::new();
    for (place, input) in template.inputs.iter().enumerate() {
        let (InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. }) = input.from else {
            continue;
        };
        let Some(name) = input.name.clone().or_else(|| writers.name_of(task, output)) else { continue };
        if let Some(first) = names.insert(name.clone(), place)
            && !(is_named(first) && is_named(place))
        {
            return Err(TaskFieldsError::SameName(name));
        }
    }
    Ok(())
}

/// The tasks of a draft, by their indices.
struct Writers<'a> {
    draft: &'a Draft,
    /// The first index of each part of the draft's tasks.
    starts: Vec<u32>,
}

impl<'a> Writers<'a> {
    fn of(draft: &'a Draft) -> Self {
        let mut next = 0;
        let starts = draft.tasks.iter().map(|tasks| {
            let start = next;
            next += match tasks {
                DraftTasks::Items(items) => items.len() as u32,
                DraftTasks::Numbers { count, .. } => *count as u32,
            };
            start
        });
        Writers { draft, starts: starts.collect() }
    }

    /// The name of a task's output, as its reader sees it.
    fn name_of(&self, task: u32, output: u16) -> Option<Name> {
        let part = self.starts.partition_point(|start| *start <= task).checked_sub(1)?;
        let place = (task - self.starts[part]) as usize;
        let number;
        let (template, values) = match &self.draft.tasks[part] {
            DraftTasks::Items(items) => (items.get(place)?.template, &items[place].values[..]),
            DraftTasks::Numbers { template, numbers, .. } => {
                number = [Value { text: numbers.iter().nth(place)?.to_string().into(), input: None }];
                (*template, &number[..])
            }
        };
        let spec = self.draft.templates[usize::from(template)].outputs.get(usize::from(output))?;
        let number = task + 1;
        let with = Expansion { values, staged: &[], template_inputs: 0, number, slot: 0, input_list: b"" };
        let last = |written: &Template| {
            let expanded = written.expand(&with);
            let name = expanded.rsplit(|byte| *byte == b'/').next().map(Name::from)?;
            (!name.is_empty()).then_some(name)
        };
        spec.destination.as_ref().and_then(last).or_else(|| last(&spec.pattern))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_stands_where_it_is_written() {
        for (into, expected) in [("cuts/{index}.fits", "cuts/7.fits"), ("{index}/{index}", "7/7"), ("all", "all")] {
            assert_eq!(placed(&into.into(), 7), Name::from(expected));
        }
    }
}
