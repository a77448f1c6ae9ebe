//! Names of inputs in the sandbox. Outputs of many tasks often have one name, as have files of
//! different folders. Each of them then gets a folder of its own, so that no program takes one for
//! all of them. A pattern in the command, such as `*.fits`, would find none of them, and is
//! refused.

use std::collections::{HashMap, HashSet};

use eyas_store::Glob;
use eyas_types::template::Expansion;
use eyas_types::{
    Input, InputFrom, Name, Program, TaskTemplate, Template, TemplatePart, Value, WorkingFolder,
};

use super::TaskFieldsError;
use crate::draft::{Draft, DraftTasks};

/// What stands for the index of a task in its array.
const INDEX: &str = "{index}";

/// The name of an output in the sandbox of its reader: `into` with the index of the task that
/// writes the output.
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

/// Tells inputs of one name apart: the third input `x` is `input-3/x` in the sandbox if another
/// file is `x`, too. `inputs` are those of the template, or those of an item, which follow `before`
/// inputs of the template with the names `taken`. Returns the names.
///
/// # Errors
/// If a pattern in the command means such inputs.
pub(super) fn tell_apart(
    draft: &Draft,
    command: &CommandText,
    (before, taken): (usize, &HashSet<Name>),
    inputs: &mut [Input],
) -> Result<HashSet<Name>, TaskFieldsError> {
    let mut writers = Writers::of(draft);
    let mut names = HashMap::<Name, Vec<usize>>::new();
    for (place, input) in inputs.iter().enumerate() {
        if let Some(name) = writers.name_of_input(input) {
            names.entry(name).or_default().push(place);
        }
    }
    for (name, places) in &names {
        let is_first = |place: &usize| is_same(draft, &inputs[places[0]], &inputs[*place]);
        let (is_several, is_taken) = (!places.iter().all(is_first), taken.contains(name));
        let are_named = || places.iter().all(|place| command.names(before + place));
        if (is_several || is_taken) && !are_named() && command.has_pattern_of(name) {
            return Err(TaskFieldsError::SameName(name.clone()));
        }
        for place in places.iter().filter(|_| is_several) {
            let folder = format!("input-{}/", before + place + 1);
            inputs[*place].name = Some(Name::concat(&[folder.as_bytes(), name]));
        }
    }
    Ok(names.into_keys().collect())
}

/// Whether two inputs are the same file.
fn is_same(draft: &Draft, one: &Input, other: &Input) -> bool {
    let object = |input: &Input| Some(&draft.objects[input.from.object()? as usize]);
    one.from == other.from
        || object(one).is_some_and(|one| object(other) == Some(one))
            && one.from.part() == other.from.part()
}

/// What a command and its environment say of inputs.
pub(super) struct CommandText {
    /// Places of the inputs that it names.
    named: HashSet<u32>,
    /// Patterns in its words, if it looks into the sandbox and has no list of all inputs.
    patterns: Vec<Glob>,
}

impl CommandText {
    pub fn of(template: &TaskTemplate) -> Self {
        let words = match &template.program {
            Program::Command(words) | Program::Call(words) => &words[..],
            Program::Noop => &[],
        };
        let parts = || {
            words.iter().chain(template.env.iter().map(|(_, value)| value)).flat_map(|word| &word.0)
        };
        let named = parts().filter_map(|part| match part {
            TemplatePart::Input(place) => Some(*place),
            _ => None,
        });
        let has_list = parts().any(|part| matches!(part, TemplatePart::InputList(_)));
        let texts = parts().filter_map(|part| match part {
            TemplatePart::Literal(text)
                if !has_list && template.folder == WorkingFolder::Sandbox =>
            {
                Some(text)
            }
            _ => None,
        });
        CommandText {
            named: named.collect(),
            patterns: texts.flat_map(|text| patterns_in(text)).collect(),
        }
    }

    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    fn names(&self, place: usize) -> bool {
        self.named.contains(&(place as u32))
    }

    pub fn has_pattern_of(&self, name: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| pattern.names(name))
    }
}

/// The patterns of file names in a word, which may be a shell script.
fn patterns_in(word: &[u8]) -> impl Iterator<Item = Glob> {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`;|&<>(){}$=,:".contains(byte);
    let texts = word.split(is_between).filter(|text| text.iter().any(|byte| b"*?[".contains(byte)));
    texts.filter_map(|text| Glob::parse(text).ok())
}

/// The tasks of a draft, by their indices.
struct Writers<'a> {
    draft: &'a Draft,
    /// The first index of each part of the draft's tasks.
    starts: Vec<u32>,
    /// The numbers of parts that are arrays of numbers.
    numbers: HashMap<usize, Vec<u64>>,
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
        Writers { draft, starts: starts.collect(), numbers: HashMap::new() }
    }

    /// The name of an input in the sandbox, if it is known.
    fn name_of_input(&mut self, input: &Input) -> Option<Name> {
        if let Some(name) = &input.name {
            return Some(name.clone());
        }
        match input.from {
            InputFrom::Object(object) | InputFrom::Part { object, .. } => {
                Some(self.draft.objects[object as usize].base_name().into())
            }
            InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. } => {
                self.name_of_output(task, output)
            }
        }
    }

    fn name_of_output(&mut self, task: u32, output: u16) -> Option<Name> {
        let part = self.starts.partition_point(|start| *start <= task).checked_sub(1)?;
        let place = (task - self.starts[part]) as usize;
        let number;
        let (template, values) = match &self.draft.tasks[part] {
            DraftTasks::Items(items) => (items.get(place)?.template, &items[place].values[..]),
            DraftTasks::Numbers { template, numbers, .. } => {
                let numbers = self.numbers.entry(part).or_insert_with(|| numbers.iter().collect());
                number = [Value { text: numbers.get(place)?.to_string().into(), input: None }];
                (*template, &number[..])
            }
        };
        let spec = self.draft.templates[usize::from(template)].outputs.get(usize::from(output))?;
        let number = task + 1;
        let with =
            Expansion { values, staged: &[], template_inputs: 0, number, slot: 0, input_list: b"" };
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
        for (into, expected) in
            [("cuts/{index}.fits", "cuts/7.fits"), ("{index}/{index}", "7/7"), ("all", "all")]
        {
            assert_eq!(placed(&into.into(), 7), Name::from(expected));
        }
    }

    #[test]
    fn a_pattern_in_a_command_is_found() {
        let table: [(&[&str], bool); 9] = [
            (&["cat", "*.fits"], true),
            (&["sh", "-c", "sort -m $X/*.txt *.fits|uniq >'cut.fits'"], true),
            (&["sh", "-c", "for f in ./[a-d]ut.fit?; do cat $f; done"], true),
            (&["merge", "--in=*.fits"], true),
            (&["true"], false),
            (&["merge", "cut.fits", "input-*/*.fits"], false),
            (&["sh", "-c", "expr 2 \\* 3; test x = [!y]; cat *.csv"], false),
            (&["merge", "*.fits", "{inputs}"], false),
            (&["find", ".", "-type", "f"], false),
        ];
        for (words, is_found) in table {
            let mut template =
                TaskTemplate::new(Program::Command(words.iter().map(Template::parse).collect()));
            assert_eq!(
                CommandText::of(&template).has_pattern_of(b"cut.fits"),
                is_found,
                "{words:?}"
            );
            template.folder = WorkingFolder::Path("/here".into());
            assert!(
                !CommandText::of(&template).has_pattern_of(b"cut.fits"),
                "its patterns are of another folder"
            );
        }
    }
}
