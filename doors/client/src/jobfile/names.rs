//! Names of inputs in the sandbox. Outputs of many tasks often have one name, as have files of
//! different folders. Each of them then gets a folder of its own, so that no program takes one for
//! all of them. A pattern in the command, such as `*.fits`, would find none of them, and is
//! refused.

use std::collections::{HashMap, HashSet};

use eyas_store::Glob;
use eyas_store::compressed::decompressed_name;
use eyas_types::task::is_in_sandbox;
use eyas_types::template::Expansion;
use eyas_types::{
    Input, InputFrom, Name, Numbers, Program, TaskTemplate, Template, TemplatePart, Value,
    WorkingFolder,
};

use super::all_inputs::names_all;
use super::error::TaskFieldsError;
use crate::draft::{Draft, DraftTasks};

/// What stands for the index of a task in its array.
const INDEX: &str = "{index}";

/// The name of an input in the sandbox: `into` with the index of the task that writes it, or its
/// place among the files of a pattern, and with the values of that task or file. `None` if there
/// is no such value.
pub(super) fn placed(into: &Template, index: u32, values: &[Value]) -> Option<Name> {
    let has_all = usize::from(into.highest_column()) <= values.len();
    if into.has_value() && (values.is_empty() || !has_all) {
        return None;
    }
    let mut name = Name::default();
    for part in &into.0 {
        match part {
            TemplatePart::Literal(text) => push_with_index(&mut name, text, index),
            part @ TemplatePart::Value { .. } => {
                name.push(Template(vec![part.clone()]).expand(&of_values(values)));
            }
            part => name.push(Template(vec![part.clone()]).written()),
        }
    }
    Some(name)
}

/// The name of a file of a pattern in the sandbox, by its place among the files.
pub(super) fn of_file(into: &Name, index: u32, file: &Name) -> Result<Name, TaskFieldsError> {
    let template = Template::parse(into);
    let file = Value { text: file.clone(), input: None };
    placed(&template, index, &[file]).ok_or_else(|| TaskFieldsError::Column {
        path: into.clone(),
        column: template.highest_column(),
        columns: 1,
    })
}

/// The ends of the names of archives.
const ARCHIVES: [&[u8]; 3] = [b".tar", b".zip", b".cpio"];

/// The name of what is made of a file of this name: `a.fits` for the content of `a.fits.gz`, and
/// `db` for the folder that is made of `db.tar.gz`. `None` if it is that of the file.
pub(super) fn name_of_derived(input: &Input, file: &[u8]) -> Option<Name> {
    let content = decompressed_name(file);
    if input.is_decompressed() {
        return content.map(Name::from);
    }
    let packed = content.as_deref().unwrap_or(file);
    let end = ARCHIVES.iter().find(|end| packed.ends_with(end) && packed.len() > end.len());
    let name = &packed[..packed.len() - end.map_or(0, |end| end.len())];
    (name != file).then(|| name.into())
}

/// Checks the name of an input, which a job file gives with this key.
///
/// # Errors
/// If it leads out of the folder of the task.
pub(super) fn check_name(key: &'static str, name: &Name) -> Result<(), TaskFieldsError> {
    if is_in_sandbox(name) {
        return Ok(());
    }
    Err(TaskFieldsError::OutsideSandbox { key, name: name.clone() })
}

fn push_with_index(name: &mut Name, text: &[u8], index: u32) {
    let mut rest = text;
    while let Some(at) = rest.windows(INDEX.len()).position(|window| window == INDEX.as_bytes()) {
        name.push(&rest[..at]);
        name.push(index.to_string());
        rest = &rest[at + INDEX.len()..];
    }
    name.push(rest);
}

/// What placeholders for these values stand for where no input is staged.
pub(super) fn of_values(values: &[Value]) -> Expansion<'_> {
    Expansion { values, staged: &[], template_inputs: 0, number: 0, slot: 0, input_list: b"" }
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
    let writers = Writers::of(draft);
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
        let has_list = parts().any(|part| matches!(part, TemplatePart::InputList(_)))
            || words.iter().any(names_all);
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
pub(super) struct Writers<'a> {
    draft: &'a Draft,
    /// The first index of each part of the draft's tasks.
    starts: Vec<u32>,
}

impl<'a> Writers<'a> {
    pub fn of(draft: &'a Draft) -> Self {
        let mut next = 0;
        let starts = draft.tasks.iter().map(|tasks| {
            let start = next;
            next += tasks.len() as u32;
            start
        });
        Writers { draft, starts: starts.collect() }
    }

    /// The name of an input in the sandbox, if it is known.
    pub fn name_of_input(&self, input: &Input) -> Option<Name> {
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

    /// The template and the values of a task.
    pub fn values_of(&self, task: u32) -> Option<(u16, Vec<Value>)> {
        let part = self.starts.partition_point(|start| *start <= task).checked_sub(1)?;
        let place = (task - self.starts[part]) as usize;
        match &self.draft.tasks[part] {
            DraftTasks::Items(items) => {
                items.get(place).map(|item| (item.template, item.values.clone()))
            }
            DraftTasks::Numbers { template, numbers, .. } => {
                let text = nth(numbers, place)?.to_string().into();
                Some((*template, vec![Value { text, input: None }]))
            }
        }
    }

    fn name_of_output(&self, task: u32, output: u16) -> Option<Name> {
        let (template, values) = self.values_of(task)?;
        let spec = self.draft.templates[usize::from(template)].outputs.get(usize::from(output))?;
        let with = Expansion { number: task + 1, ..of_values(&values) };
        let last = |written: &Template| {
            let expanded = written.expand(&with);
            let name = expanded.rsplit(|byte| *byte == b'/').next().map(Name::from)?;
            (!name.is_empty()).then_some(name)
        };
        spec.destination.as_ref().and_then(last).or_else(|| last(&spec.pattern))
    }
}

/// The number of an array at this place, without passing those before it where the ranges are in
/// order, as they mostly are: of `1-3,8-9`, 8 is at place 3.
fn nth(numbers: &Numbers, place: usize) -> Option<u64> {
    if !numbers.0.windows(2).all(|pair| pair[0].last < pair[1].first) {
        return numbers.iter().nth(place);
    }
    let mut left = place as u64;
    for range in numbers.0.iter().filter(|range| range.first <= range.last) {
        let steps = (range.last - range.first) / range.step.max(1);
        if left <= steps {
            return Some(range.first + left * range.step.max(1));
        }
        left -= steps + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::array;

    #[test]
    fn the_index_stands_where_it_is_written() {
        let values = ["sky/a.fits", "r"].map(|text| Value { text: text.into(), input: Some(0) });
        for (into, expected) in [
            ("cuts/{index}.fits", Some("cuts/7.fits")),
            ("{index}/{index}", Some("7/7")),
            ("all", Some("all")),
            ("in/{1/}", Some("in/a.fits")),
            ("{2}/{1/.}-{index}.txt", Some("r/a-7.txt")),
            (r"\{}{#}{input:1}", Some("{}{#}{input:1}")),
            ("{3}", None),
        ] {
            assert_eq!(placed(&Template::parse(into), 7, &values), expected.map(Name::from));
        }
        assert_eq!(placed(&Template::parse("{}"), 7, &[]), None);
    }

    #[test]
    fn a_number_of_an_array_is_found_by_its_place() {
        for range in ["1-9:2", "1-3,8-9", "8-9,1-3", "0-12:4,2-12:4", "5"] {
            let numbers = array(range).unwrap();
            for (place, number) in numbers.iter().enumerate() {
                assert_eq!(nth(&numbers, place), Some(number), "{range}, {place}");
            }
            assert_eq!(nth(&numbers, numbers.iter().count()), None, "{range}");
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
