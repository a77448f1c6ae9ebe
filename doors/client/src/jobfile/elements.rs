//! Outputs of other tasks as inputs: of one task, of all tasks of an array, or element by element.
//! In the last case, task `i` reads task `i` of the other array, or with `group = 10` the tasks
//! `10 * i` to `10 * i + 9`. The reading array then needs no items of its own: it is as long as
//! the other one, and has the same items.

use std::ops::Range;

use eyas_store::Glob;
use eyas_types::{Input, InputFrom, Name, Template, Value};

use super::error::{ArrayLength, TaskFieldsError};
use super::input::{AddedTasks, ArrayIndex, InputFields, TaskIds};
use super::names::{Writers, check_name, name_of_derived, of_values, placed};
use crate::draft::Draft;
use crate::sources::ListLine;

/// An array that another one reads element by element.
pub(super) struct Elements<'a> {
    task: &'a str,
    tasks: AddedTasks,
    group: Option<u32>,
}

impl<'a> Elements<'a> {
    /// The array that one of these inputs reads in this way, if any: the first one that is not read
    /// in groups, else the first. All others are as long.
    pub fn of(
        draft: &Draft,
        known: &TaskIds,
        inputs: &'a [InputFields],
    ) -> Result<Option<Self>, TaskFieldsError> {
        let mut first: Option<Self> = None;
        for fields in inputs {
            let InputFields::Output { task, output, index, group, .. } = fields else { continue };
            match (index, group) {
                (Some(ArrayIndex::Element), _) => {}
                (_, None) => continue,
                (_, Some(_)) => return Err(TaskFieldsError::GroupWithoutIndex(task.clone())),
            }
            let (group, tasks) = (group.map(|group| group.get()), known.find(task)?);
            if !tasks.is_array {
                let instead = in_place_of_index(draft, &tasks, output.as_ref());
                return Err(TaskFieldsError::ElementOfOne { task: task.clone(), instead });
            }
            let next = Elements { task, tasks, group };
            match &first {
                Some(first) if first.count() != next.count() => {
                    let lengths = [first, &next].map(Self::length);
                    return Err(TaskFieldsError::LengthsOfArrays(lengths.into()));
                }
                Some(first) if first.group.is_none() || next.group.is_some() => {}
                _ => first = Some(next),
            }
        }
        Ok(first)
    }

    /// Number of tasks that read the array: one for each element, or for each group of them.
    fn count(&self) -> u32 {
        self.tasks.count.div_ceil(self.group.unwrap_or(1))
    }

    /// Checks that the task's own items, of which `key` has `count`, are as many.
    pub fn check_length(&self, key: &'static str, count: usize) -> Result<(), TaskFieldsError> {
        if count == self.count() as usize {
            return Ok(());
        }
        Err(TaskFieldsError::LengthOfItems { key, count, read: self.length() })
    }

    fn length(&self) -> ArrayLength {
        let (task, group) = (self.task.to_owned(), self.group);
        ArrayLength { task, tasks: self.tasks.count, group, groups: self.count() }
    }

    /// The items of an array that has none of its own: those of the elements, or the numbers of
    /// the groups, from 0.
    pub fn items(&self, draft: &Draft) -> Vec<ListLine> {
        let number = |group: u32| vec![group.to_string().into()];
        let columns: Vec<Vec<Name>> = match self.group {
            Some(_) => (0..self.count()).map(number).collect(),
            None => draft.items_of(self.tasks.first, self.tasks.count),
        };
        (1..).zip(columns).map(|(number, columns)| ListLine { number, columns }).collect()
    }
}

/// Adds outputs of other tasks to the inputs of the task that has this `place` in its array, as
/// copies if `copy` is set, and all decompressed if `decompress_all` is. `preparations` are the
/// commands of the template that make folders. For the inputs of all tasks of the array, the place
/// and the values of the item are missing.
pub(super) fn add_outputs(
    draft: &Draft,
    known: &TaskIds,
    fields: &InputFields,
    (place, values): (Option<u32>, &[Value]),
    (copy, decompress_all, preparations): (bool, bool, &[Name]),
    inputs: &mut Vec<Input>,
) -> Result<(), TaskFieldsError> {
    let InputFields::Output { task, output, index, group, name, into, .. } = fields else {
        unreachable!("other inputs are files")
    };
    if name.is_some() && into.is_some() {
        return Err(TaskFieldsError::NameAndInto(format!("from task `{task}`")));
    }
    let part = fields.keys().part(preparations, decompress_all)?;
    let writer = known.find(task)?;
    let output = place_of_output(draft, &writer, (task.as_str(), output.as_ref()), values)?;
    let from = |task| match part {
        None => InputFrom::Output { task, output },
        Some(part) => InputFrom::OutputPart { task, output, part },
    };
    let (into, writers) = (into.as_ref().map(Template::parse), Writers::of(draft));
    let group = group.map_or(1, |group| group.get());
    for read in indices(task, writer.count, *index, place, group)? {
        let read = writer.first + read;
        let name = match &into {
            Some(into) => {
                let values = writers.values_of(read).map_or_else(Vec::new, |(_, values)| values);
                let place = placed(into, read - writer.first, &values);
                Some(place.ok_or_else(|| TaskFieldsError::IntoItem {
                    into: into.written(),
                    task: task.clone(),
                    columns: values.len(),
                })?)
            }
            None => name.clone(),
        };
        if let Some(name) = &name {
            check_name(if into.is_some() { "into" } else { "name" }, name)?;
        }
        let mut input = Input { from: from(read), name };
        if decompress_all {
            input = input.decompressed();
        }
        if input.is_derived() && input.name.is_none() {
            let name = writers.name_of_input(&input);
            input.name = name.and_then(|name| name_of_derived(&input, &name));
        }
        inputs.push(if copy { input.copied() } else { input });
    }
    Ok(())
}

/// The indices of the tasks that a task reads, in an array of `count` tasks.
fn indices(
    task: &str,
    count: u32,
    index: Option<ArrayIndex>,
    place: Option<u32>,
    group: u32,
) -> Result<Range<u32>, TaskFieldsError> {
    match index {
        Some(ArrayIndex::One(index)) if index >= count => {
            Err(TaskFieldsError::UnknownIndex { task: task.to_owned(), index, count })
        }
        Some(ArrayIndex::One(index)) => Ok(index..index + 1),
        Some(ArrayIndex::Element) => {
            let first = place.expect("it is an input of the item").saturating_mul(group);
            Ok(first.min(count)..first.saturating_add(group).min(count))
        }
        None => Ok(0..count),
    }
}

/// The index of an output in the list of its task's outputs. If the input names none, that of the
/// first output which a task that has succeeded delivers.
fn place_of_output(
    draft: &Draft,
    writer: &AddedTasks,
    (task, file): (&str, Option<&Name>),
    values: &[Value],
) -> Result<u16, TaskFieldsError> {
    let place = match file {
        None => writer
            .outputs(draft)
            .position(|output| output.when.is_after_success())
            .or_else(|| (writer.outputs(draft).count() > 0).then_some(0)),
        Some(file) => writer.output(draft, file).or_else(|| {
            let of_item = Template::parse(file).expand(&of_values(values));
            writer.output(draft, &of_item).filter(|_| !values.is_empty())
        }),
    };
    let wanted = file.map(|file| match values {
        [] => file.clone(),
        values => Template::parse(file).expand(&of_values(values)),
    });
    let outputs = || writer.read_by_others(draft);
    let reads_pattern = |pattern: Name, such_as| {
        Err(TaskFieldsError::ReadsPattern { task: task.to_owned(), pattern, such_as })
    };
    if let Some(place) = place {
        let output = &draft.templates[usize::from(writer.template)].outputs[place];
        let pattern = output.pattern.written();
        return match (output.when.is_after_success(), output.pattern.is_glob()) {
            (false, _) => {
                Err(TaskFieldsError::ReadsFailure { task: task.to_owned(), file: pattern })
            }
            (true, true) => reads_pattern(pattern.clone(), parts_of(&pattern)),
            (true, false) => Ok(place as u16),
        };
    }
    let (patterns, outputs): (Vec<_>, Vec<_>) = outputs().partition(|o| o.pattern.is_glob());
    let mut patterns = patterns.iter().map(|output| output.pattern.written());
    if let Some(wanted) = &wanted
        && let Some(pattern) =
            patterns.find(|pattern| Glob::parse(pattern).is_ok_and(|glob| glob.names(wanted)))
    {
        return reads_pattern(pattern, wanted.to_string());
    }
    let outputs = outputs.iter().map(|output| output.pattern.written()).collect();
    Err(TaskFieldsError::UnknownOutput { task: task.to_owned(), output: wanted, outputs })
}

/// Two names that a pattern matches, such as `part.0, part.1` for `part.*`.
fn parts_of(pattern: &Name) -> String {
    let pattern = pattern.to_string();
    ["0", "1"].map(|part| pattern.replace("**", "*").replace(['*', '?'], part)).join(", ")
}

/// What to write in place of `index = "{}"` of an input that reads `output` of one task.
fn in_place_of_index(draft: &Draft, writer: &AddedTasks, output: Option<&Name>) -> String {
    let names: Vec<_> =
        writer.read_by_others(draft).map(|output| output.pattern.written()).collect();
    let (None, [first, others @ ..]) = (output, &names[..]) else {
        return "leave `index` out".into();
    };
    if others.is_empty() && !Template::parse(first).is_glob() {
        return "leave `index` out".into();
    }
    // The text before what differs, or before what the pattern leaves open.
    let is_same = |at: &usize| others.iter().all(|name| name.get(*at) == first.get(*at));
    let same = match Template::parse(first).is_glob() {
        true => first.len(),
        false => (0..first.len()).take_while(is_same).count(),
    };
    let start = first[..same].split(|byte| b"*?[{".contains(byte)).next().unwrap_or_default();
    let start = if start.is_empty() { "part".into() } else { Name::from(start) };
    format!(
        "to give each task one of its outputs, write output = \"{start}{{}}\" in place of index = \
         \"{{}}\""
    )
}

/// Warnings of inputs that read the first of several outputs, because they name none.
pub(super) fn one_of_several(
    draft: &Draft,
    known: &TaskIds,
    inputs: &[InputFields],
) -> Vec<String> {
    let warning = |fields: &InputFields| {
        let InputFields::Output { task, output: None, .. } = fields else { return None };
        let writer = known.find(task).ok()?;
        let outputs = writer.read_by_others(draft);
        let names: Vec<_> = outputs.map(|output| output.pattern.written()).collect();
        let first = names.first().filter(|_| names.len() > 1)?;
        Some(format!(
            "task `{task}` has {} outputs, and an input that names none of them reads only the \
             first, `{first}`: name the one that is meant with output = \"{first}\", or write an \
             input for each",
            names.len()
        ))
    };
    let mut warnings: Vec<_> = inputs.iter().filter_map(warning).collect();
    warnings.dedup();
    warnings
}

#[cfg(test)]
mod tests {
    use eyas_types::{Program, TaskItem};

    use super::*;
    use crate::Cluster;
    use crate::draft::DraftTasks;
    use crate::jobfile::{JobFileError, TaskFields, read_job_text};

    /// An array of three tasks, and one of 25.
    const WRITERS: &str = r#"
        [[task]]
        id = "cut"
        array = "5-7"
        command = ["true"]
        outputs = ["x", "part{}.fa"]
        [[task]]
        id = "all"
        array = "0-24"
        command = ["true"]
        outputs = ["y"]
    "#;

    /// Two tasks that are no arrays.
    const SINGLE_WRITERS: &str = r#"
        [[task]]
        id = "split"
        command = ["true"]
        outputs = ["part.0", "part.1", "part.2"]
        [[task]]
        id = "glob"
        command = ["true"]
        outputs = ["part.*", "log"]
    "#;

    async fn drafted(reader: &str) -> Result<Draft, JobFileError> {
        drafted_with(WRITERS, &format!("command = [\"cat\", \"{{}}\"]\n{reader}")).await
    }

    async fn drafted_with(writers: &str, reader: &str) -> Result<Draft, JobFileError> {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::with_access(&folder.path().join("access.toml"));
        let text = format!("{writers}[[task]]\n{reader}");
        read_job_text("job.toml", &text, None, &cluster, |_| {}).await
    }

    /// The items of the readers.
    async fn readers(reader: &str) -> Vec<TaskItem> {
        let mut draft = drafted(reader).await.unwrap_or_else(|e| panic!("{reader}: {e}"));
        match draft.tasks.pop() {
            Some(DraftTasks::Items(items)) => items,
            _ => panic!("{reader}: the readers have inputs of their own"),
        }
    }

    /// The item of each reader, and the tasks that it reads.
    async fn read(reader: &str) -> Vec<(String, Vec<u32>)> {
        let of = |item: TaskItem| {
            let tasks = item.inputs.iter().map(|input| input.from.output().unwrap().0).collect();
            (item.values[0].text.to_string(), tasks)
        };
        readers(reader).await.into_iter().map(of).collect()
    }

    #[tokio::test]
    async fn each_task_reads_the_task_at_its_place() {
        let one = |item: &str, tasks: &[u32]| (item.to_owned(), tasks.to_vec());
        let from = r#"inputs = [{ task = "cut", index = "{}" }]"#;
        assert_eq!(read(from).await, [one("5", &[0]), one("6", &[1]), one("7", &[2])]);
        let own = format!("array = \"1-3\"\n{from}");
        assert_eq!(read(&own).await, [one("1", &[0]), one("2", &[1]), one("3", &[2])]);
        let [cut, all] =
            [r#"{ task = "cut", index = "{}" }"#, r#"{ task = "all", index = "{}", group = 10 }"#];
        for (inputs, expected) in [
            (format!("[{cut}, {all}]"), [2, 23, 24, 25, 26, 27]),
            (format!("[{all}, {cut}]"), [23, 24, 25, 26, 27, 2]),
        ] {
            assert_eq!(read(&format!("inputs = {inputs}")).await[2], one("7", &expected));
        }
    }

    #[tokio::test]
    async fn each_task_reads_a_group_and_the_last_one_is_shorter() {
        let read = read(r#"inputs = [{ task = "all", index = "{}", group = 10 }]"#).await;
        let expected = [("0", 3..13), ("1", 13..23), ("2", 23..28)];
        let expected: Vec<(String, Vec<u32>)> =
            expected.map(|(item, tasks)| (item.to_owned(), tasks.collect())).into();
        assert_eq!(read, expected);
    }

    #[tokio::test]
    async fn outputs_and_names_are_chosen_by_items() {
        let reader = |input: &str| format!("array = \"5-7\"\ninputs = [{input}]");
        let place = |item: &TaskItem| item.inputs[0].from.output().unwrap();
        let names = |items: &[TaskItem]| -> Vec<String> {
            let name = |input: &Input| input.name.as_ref().map_or("-".into(), Name::to_string);
            items.iter().flat_map(|item| item.inputs.iter().map(name)).collect()
        };
        // Written as the task that has it: of the same place.
        let items =
            readers(&reader(r#"{ task = "cut", output = "part{}.fa", index = "{}" }"#)).await;
        assert_eq!(items.iter().map(place).collect::<Vec<_>>(), [(0, 1), (1, 1), (2, 1)]);
        let items =
            readers(&reader(r#"{ task = "cut", index = "{}", into = "{}-{index}.fa" }"#)).await;
        assert_eq!(names(&items), ["5-0.fa", "6-1.fa", "7-2.fa"]);
        // One task with several outputs.
        let parts = r#"
            id = "split"
            array = "1"
            outputs = ["p5", "p6", "p7"]
            [[task]]
            command = ["cat", "{}"]
            array = "5-7"
            inputs = [{ task = "split", output = "p{}" }]
        "#;
        let items = readers(parts).await;
        let read: Vec<_> = items.iter().map(place).collect();
        assert_eq!(read, [(28, 0), (28, 1), (28, 2)]);
    }

    #[tokio::test]
    async fn there_is_a_word_for_each_input_of_a_group() {
        let group = r#"inputs = ["Cargo.toml", { task = "all", index = "{}", group = 10 }]"#;
        let words = r#"["cat", "{input:*}"]"#;
        let text = format!("array = \"1\"\n[[task]]\ncommand = {words}\n{group}");
        let draft = drafted(&text).await.unwrap();
        let words = |template: u16| match &draft.templates[usize::from(template)].program {
            Program::Command(words) => words.iter().map(Template::written).collect::<Vec<_>>(),
            _ => panic!("a command"),
        };
        let Some(DraftTasks::Items(items)) = draft.tasks.last() else { panic!("items") };
        let counts: Vec<_> = items.iter().map(|item| words(item.template).len()).collect();
        assert_eq!(counts, [12, 12, 7]);
        assert_eq!(items[0].template, items[1].template);
        assert_eq!(words(items[2].template)[1..3], ["{input:1}", "{input:2}"].map(Name::from));
    }

    #[tokio::test]
    async fn an_input_that_names_none_of_several_outputs_is_warned_of() {
        let draft = drafted_with(SINGLE_WRITERS, "command = [\"true\"]").await.unwrap();
        let mut known = TaskIds::default();
        for (template, id) in (0..).zip(["split", "glob"]) {
            let first = u32::from(template);
            known.add(id, AddedTasks { first, count: 1, is_array: false, template }).unwrap();
        }
        let warnings = |inputs: &str| {
            let fields: TaskFields = toml::from_str(&format!("inputs = [{inputs}]")).unwrap();
            one_of_several(&draft, &known, &fields.inputs)
        };
        assert_eq!(
            warnings(r#"{ task = "split" }, { task = "split", name = "x" }"#),
            ["task `split` has 3 outputs, and an input that names none of them reads only the \
                 first, `part.0`: name the one that is meant with output = \"part.0\", or write an \
                 input for each"]
        );
        assert!(warnings(r#"{ task = "split", output = "part.2" }, "x""#).is_empty());
    }

    #[tokio::test]
    async fn parts_that_one_task_writes_are_read_by_their_names() {
        for (reader, says) in [
            (
                "array = \"1-3\"\ninputs = [{ task = \"split\", index = \"{}\" }]",
                "`split` is one task, not an array: to give each task one of its outputs, write \
                 output = \"part.{}\" in place of index = \"{}\"",
            ),
            (
                "inputs = [{ task = \"split\", output = \"part.1\", index = \"{}\" }]",
                "`split` is one task, not an array: leave `index` out",
            ),
            (
                "inputs = [{ task = \"glob\" }]",
                "`glob` writes a pattern, `part.*`, and another task cannot read a pattern: name \
                 each part in its outputs, such as part.0, part.1",
            ),
            (
                "array = \"1-3\"\ninputs = [{ task = \"glob\", index = \"{}\" }]",
                "write output = \"part.{}\" in place",
            ),
            (
                "array = \"3-4\"\ninputs = [{ task = \"glob\", output = \"part.{}\" }]",
                "`glob` writes a pattern, `part.*`, and another task cannot read a pattern: name \
                 each part in its outputs, such as part.3",
            ),
            (
                "inputs = [{ task = \"glob\", output = \"other\" }]",
                "task `glob` has no output `other`: write output = \"log\"",
            ),
        ] {
            let reader = format!("command = [\"true\"]\n{reader}");
            let drafted = drafted_with(SINGLE_WRITERS, &reader).await;
            let said = drafted.err().expect("a mistake").to_string();
            assert!(said.starts_with("job.toml, line 10: ") && said.contains(says), "{said}");
        }
    }

    #[tokio::test]
    async fn an_output_of_failed_tasks_is_read_by_no_task() {
        let drafted = async |outputs: &str, input: &str| {
            let writer =
                format!("[[task]]\nid = \"w\"\ncommand = [\"true\"]\noutputs = [{outputs}]\n");
            let reader = format!("command = [\"true\"]\ninputs = [{{ task = \"w\"{input} }}]\n");
            drafted_with(&writer, &reader).await
        };
        let log = |when: &str| format!("{{ file = \"log\", when = \"{when}\" }}, \"x\"");
        // Without a name, the first output of a task that has succeeded.
        for (when, first) in [("failure", "x"), ("always", "log"), ("success", "log")] {
            let draft = drafted(&log(when), "").await.unwrap();
            let from = draft.templates[1].inputs[0].from;
            assert_eq!(from, InputFrom::Output { task: 0, output: 0 }, "{when}");
            assert_eq!(draft.templates[0].outputs[0].pattern.written(), first);
        }
        for (outputs, input) in [
            (log("failure"), ", output = \"log\""),
            ("{ file = \"log\", when = \"failure\" }".into(), ""),
        ] {
            let said = drafted(&outputs, input).await.err().expect("a mistake").to_string();
            assert!(
                said.contains("`w` delivers `log` only when it fails")
                    && said.contains("when = \"always\""),
                "{said}"
            );
        }
        for (output, says) in [
            (
                "{ file = \"log\", when = \"on_failure\" }",
                "write \"success\", \"failure\" or \"always\"",
            ),
            ("{ file = \"log\", when = \"always\", keep = true }", "leave `keep` out"),
        ] {
            let said = drafted(output, "").await.err().expect("a mistake").to_string();
            assert!(said.contains(says), "{said}");
        }
    }

    #[tokio::test]
    async fn what_does_not_fit_is_said_with_both_lengths() {
        for (reader, says) in [
            (
                "array = \"1-4\"\ninputs = [{ task = \"cut\", index = \"{}\" }]",
                "`array` makes 4 tasks, but task `cut` has 3 tasks, and index = \"{}\" needs one \
                 for each: leave `array` out, or write 3 items",
            ),
            (
                "each = \"Cargo.toml\"\ninputs = [{ task = \"all\", index = \"{}\", group = 10 }]",
                "`each` makes 1 task, but task `all` has 25 tasks in 3 groups of 10, and",
            ),
            (
                "inputs = [{ task = \"cut\", index = \"{}\" }, { task = \"all\", index = \"{}\" }]",
                "task `cut` has 3 tasks, and task `all` has 25 tasks: write `group` for the longer",
            ),
            (
                "inputs = [{ task = \"cut\", group = 2 }]",
                "`group` is the number of tasks of `cut` that each task reads: add index = \"{}\"",
            ),
            (
                "array = \"1-3\"\ninputs = [{ task = \"cut\", output = \"z{}\" }]",
                "task `cut` has no output `z1`: write output = \"x\" or output = \"part{}.fa\"",
            ),
            (
                "array = \"1\"\ninputs = [{ task = \"cut\", index = \"{}\", into = \"{2}\" }]",
                "`array` makes 1 task, but",
            ),
            (
                "inputs = [{ task = \"cut\", index = \"{}\", into = \"{2}\" }]",
                "`into = \"{2}\"` has a placeholder for the item of task `cut`, whose item has 1 \
                 column: write `{index}`",
            ),
            (
                "each = \"Cargo.toml\"\nenv = { ALL = \"{input:*}\" }",
                "variable `ALL` has `{input:*}` in it",
            ),
            (
                "array = \"1\"\ninputs = [{ path = \"Cargo.toml\", name = \"a\", into = \"b\" }]",
                "the input `Cargo.toml` has both `name` and `into`",
            ),
        ] {
            let said = drafted(reader).await.err().expect("a mistake").to_string();
            assert!(said.starts_with("job.toml, line 12: ") && said.contains(says), "{said}");
        }
    }

    #[tokio::test]
    async fn files_of_a_pattern_are_named() {
        let reader = r#"array = "1"
            inputs = [{ path = "src/j*.rs", into = "in/{index}-{/.}.txt" }]"#;
        let draft = drafted(reader).await.unwrap();
        let inputs = &draft.templates.last().unwrap().inputs;
        assert_eq!(inputs[0].name, Some("in/0-jobfile.txt".into()));
    }
}
