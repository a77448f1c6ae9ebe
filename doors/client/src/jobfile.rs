//! Job files: TOML with `[[task]]` tables, or JSON lines with one task each.
//!
//! ```toml
//! name = "stack"
//!
//! [[task]]                                   # one task for each frame
//! id = "frames"
//! command = ["./stack", "--list", "objects.csv", "{}", "--out", "sum.fits"]
//! each = "survey/*.fits.gz"
//! inputs = ["stack", "objects.csv"]
//! outputs = [{ file = "sum.fits", to = "partials/{/.}.fits" }]
//! cpus = 1
//! timeout = "5min"
//! retries = 2
//!
//! [[task]]                                   # one that reads what they wrote
//! command = ["./stack", "--sum", ".", "--out", "stacked.fits"]
//! inputs = ["stack", { task = "frames" }]
//! outputs = [{ file = "stacked.fits" }]
//! ```
//!
//! A word of the command, or a column of an item, that is the path of an input becomes the path
//! where the input is staged. An input is a path or URL, a table `{ path = "…", name = "…" }`, or
//! an output of another task, `{ task = "ID", output = "sum.fits" }`. If that task is an array,
//! `index = 3` chooses one of its tasks, and `index = "{}"` the one with the index of the reading
//! task in its own array; without `index`, all of them are meant.

use std::collections::{HashMap, HashSet};
use std::ops::{Range, RangeInclusive};

use eyas_store::{Glob, path_of};
use eyas_types::task::MAX_TASKS;
use eyas_types::value::TEMPLATE_INPUT;
use eyas_types::{
    Input, Name, Numbers, PartOfFile, Program, Resources, TaskItem, TaskTemplate, Template,
    TemplatePart, Value, WorkingFolder,
};
use serde::Deserialize;

use crate::draft::{Draft, DraftError};
use crate::ranges::{numbers_of, product};
use crate::sources::{ListLine, array, lines_of};

mod all_inputs;
mod copies;
mod elements;
mod error;
mod input;
mod map_step;
mod missing;
mod names;
mod output;
mod paths;
mod placeholders;
mod read;
mod steps;
#[cfg(test)]
mod tests;
mod values;
mod wrong_key;

use all_inputs::ArrayTemplates;
use elements::{Elements, add_outputs};
pub use error::{ArrayLength, JobFileError, TaskFieldsError};
use input::{AddedTasks, TaskIds, preparations_of};
pub use input::{ArrayIndex, InputFields};
pub use map_step::{MapStep, MapStepError, PassOutput};
use names::{CommandText, name_of_derived, of_values};
pub use output::{Keep, OutputFields};
pub(crate) use paths::same;
use paths::{declared_as, declares_number, kept_path, without_dot};
use placeholders::WrongWord;
pub use read::{
    JobStep, JobSteps, StepTasks, draft_job, read_job_file, read_job_steps, read_job_text,
};
pub use steps::StepOrderError;
pub use values::{
    ByteRange, ByteRangeError, Bytes, CommandWords, Duration, OneOrMore, RecordRange,
    RecordRangeError,
};
use values::{named_numbers, number, one_or_more, some_number};

/// Processors that a task may have.
pub const CPUS: RangeInclusive<f64> = 0.001..=1_000_000.0;

/// A task, or an array of tasks, as a job file or a command line describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskFields {
    /// Name by which other tasks of the file refer to this task.
    pub id: Option<String>,
    /// Ids of map steps that end before the task.
    #[serde(deserialize_with = "one_or_more")]
    pub after: Vec<String>,
    /// Program and arguments.
    pub command: CommandWords,
    /// Whether the task runs no command.
    pub noop: bool,
    /// Patterns: one task for each file, which the task reads.
    pub each: OneOrMore,
    /// Patterns of files of the cluster: one task for each of their blocks, which the task reads.
    pub each_block: OneOrMore,
    /// One task for each line of this file.
    pub each_line: Option<Name>,
    /// Text at which lines are split into columns.
    pub separator: Option<String>,
    /// Whether a command without a placeholder for the item gets `{}` as its last word, as with
    /// GNU parallel; `true` if missing. Applies to `each`, `each_block` and `each_line`.
    pub append: Option<bool>,
    /// One task for each number of this range; for each combination of numbers of several ranges.
    pub array: OneOrMore,
    /// One task for each of these items. A program sets them; a job file names a list with
    /// `each_line`.
    #[serde(skip)]
    pub items: Vec<ListLine>,
    /// The file whose lines `items` are, if it is one file.
    #[serde(skip)]
    pub items_from: Option<Name>,
    /// Files that the task reads.
    #[serde(deserialize_with = "one_or_more")]
    pub inputs: Vec<InputFields>,
    /// Files that the task writes.
    #[serde(deserialize_with = "one_or_more")]
    pub outputs: Vec<OutputFields>,
    /// Environment variables.
    pub env: std::collections::BTreeMap<String, Name>,
    /// Working folder; `sandbox` for a folder of the task's own, which is the default for a task
    /// with outputs.
    pub folder: Option<Name>,
    /// Whether a task with outputs runs in the folder of submission. Its outputs are written in its
    /// sandbox all the same.
    pub in_place: bool,
    /// Whether inputs are private copies, which the task may write, and not links to the store.
    pub copy_inputs: bool,
    /// Whether inputs that are compressed are decompressed.
    pub decompress: bool,
    /// Processors.
    #[serde(deserialize_with = "some_number")]
    pub cpus: Option<f64>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// Disk for its sandbox.
    pub disk: Option<Bytes>,
    /// Other resources.
    #[serde(deserialize_with = "named_numbers")]
    pub resources: std::collections::BTreeMap<String, u64>,
    /// Priority; tasks of higher priority go first. The priority of the job if missing.
    #[serde(deserialize_with = "some_number")]
    pub priority: Option<i32>,
    /// Match expression that is true for executors which may run the task.
    pub requirements: Option<String>,
    /// Match expression whose value is highest for the preferred executor.
    pub rank: Option<String>,
    /// What a second of fetching inputs counts against the rank; 1 if missing.
    #[serde(deserialize_with = "some_number")]
    pub location_weight: Option<f64>,
    /// Time limit.
    pub timeout: Option<Duration>,
    /// Number of retries after a failure.
    #[serde(deserialize_with = "number")]
    pub retries: u32,
    /// Limit on captured output.
    pub capture: Option<Bytes>,
    /// Limit on output that executors keep whole, until the job is released.
    #[serde(skip)]
    pub max_output: Option<u64>,
}

/// The items of an array of tasks.
enum Items {
    One,
    Files(Vec<Name>),
    /// The file of each block, and the input.
    Blocks(Vec<(Name, Input)>),
    Lines(Vec<ListLine>),
    Numbers(Numbers),
}

impl Items {
    /// Number of items; `None` for a task without items.
    fn count(&self) -> Option<usize> {
        match self {
            Items::One => None,
            Items::Files(files) => Some(files.len()),
            Items::Blocks(blocks) => Some(blocks.len()),
            Items::Lines(lines) => Some(lines.len()),
            Items::Numbers(numbers) => Some(numbers.count_up_to(MAX_TASKS)),
        }
    }
}

/// What the tasks of an array have in common.
struct Array<'a> {
    templates: ArrayTemplates,
    /// Index of the first task in the job.
    first: u32,
    /// Inputs that differ from task to task.
    of_item: Vec<&'a InputFields>,
    /// The template's inputs, by their URLs.
    declared: HashMap<Name, u32>,
    command: CommandText,
    /// Number of the template's inputs.
    inputs: usize,
    /// Names of the template's inputs in the sandbox.
    names: HashSet<Name>,
}

impl TaskFields {
    /// Adds the task, or all tasks of the array, to a draft.
    ///
    /// # Errors
    /// The first mistake in the fields.
    pub async fn draft(&self, draft: &mut Draft) -> Result<(), TaskFieldsError> {
        self.add_to(draft, &mut TaskIds::default()).await
    }

    async fn add_to(&self, draft: &mut Draft, known: &mut TaskIds) -> Result<(), TaskFieldsError> {
        let mut template = self.template(draft)?;
        let items = self.items(draft, known).await?;
        let is_array = items.count().is_some();
        for why in elements::one_of_several(draft, known, &self.inputs) {
            tracing::warn!("{why}");
        }
        let (of_item, of_all): (Vec<_>, Vec<_>) =
            self.inputs.iter().partition(|fields| fields.is_of_item(draft, known));
        let mut named = Vec::new();
        for fields in of_all {
            let first = template.inputs.len() as u32;
            let inputs = &mut template.inputs;
            self.add_input(draft, known, fields, (None, &mut []), inputs).await?;
            named.extend(fields.path().map(|path| (path, first..template.inputs.len() as u32)));
        }
        let declared = draft.by_url(&template.inputs);
        self.name_inputs(draft, &declared, &named, &mut template);
        let command = CommandText::of(&template);
        let sandbox = template.folder == WorkingFolder::Sandbox;
        let names = names::tell_apart(draft, &command, (0, &HashSet::new()), &mut template.inputs)?;
        let inputs = template.inputs.len();
        let (templates, first) = (ArrayTemplates::of(draft, template)?, draft.len() as u32);
        let mut array = Array { templates, first, of_item, declared, command, inputs, names };
        self.add_tasks(draft, known, &mut array, items).await?;
        let template = match array.templates.first() {
            Some(template) => template,
            None => array.templates.with_inputs(draft, inputs)?,
        };
        if sandbox {
            missing::warn(draft, &array.command, template, first as usize);
        }
        match &self.id {
            Some(id) => {
                let count = draft.len() as u32 - first;
                known.add(id, AddedTasks { first, count, is_array, template })
            }
            None => Ok(()),
        }
    }

    /// Puts inputs in place of the words of the command that name them, and appends the item to a
    /// command that does not name it.
    fn name_inputs(
        &self,
        draft: &Draft,
        declared: &HashMap<Name, u32>,
        named: &[(&Name, Range<u32>)],
        template: &mut TaskTemplate,
    ) {
        let is_sandbox = template.folder == WorkingFolder::Sandbox;
        let Program::Command(words) = &mut template.program else { return };
        // A word that names inputs becomes their paths on the node.
        let parsed = std::mem::take(words).into_iter().zip(&self.command.0);
        let inputs_of = |written: &Name| match named.iter().find(|(path, _)| same(written, path)) {
            Some((_, inputs)) => inputs.clone(),
            None => declared_as(draft, declared, written).map_or(0..0, |place| place..place + 1),
        };
        words.extend(parsed.flat_map(|(word, written)| match inputs_of(written) {
            inputs if inputs.is_empty() => vec![word],
            inputs => inputs.map(|place| Template(vec![TemplatePart::Input(place)])).collect(),
        }));
        for why in copies::not_read(words, named, is_sandbox) {
            tracing::warn!("{why}");
        }
        if self.folder.is_none() && !self.is_in_sandbox() && !self.in_place {
            let why = copies::begins_inputs(&self.command.0, |word| draft.url(word).ok(), declared);
            why.iter().for_each(|why| tracing::warn!("{why}"));
        }
        let names_item = |word: &Template| word.has_value() || all_inputs::names_all(word);
        if self.is_item_appended() && !words.iter().any(names_item) {
            words.push(Template::parse("{}"));
        }
    }

    async fn add_tasks(
        &self,
        draft: &mut Draft,
        known: &TaskIds,
        array: &mut Array<'_>,
        items: Items,
    ) -> Result<(), TaskFieldsError> {
        match items {
            Items::One => self.add_task(draft, known, array, Vec::new(), None).await?,
            Items::Files(files) => {
                draft.look_up(&files).await?;
                for file in files {
                    let input = draft.input(&file).await?;
                    let input = self.as_staged(draft, input);
                    self.add_task(draft, known, array, vec![file], Some(input)).await?;
                }
            }
            Items::Blocks(_) if self.decompress => return Err(TaskFieldsError::PartOfCompressed),
            Items::Blocks(blocks) => {
                for (file, block) in blocks {
                    let block = self.as_staged(draft, block);
                    self.add_task(draft, known, array, vec![file], Some(block)).await?;
                }
            }
            Items::Lines(lines) => {
                for ListLine { number, columns } in lines {
                    let added = self.add_task(draft, known, array, columns, None).await;
                    added.map_err(|why| self.in_line(number, why))?;
                }
            }
            Items::Numbers(numbers)
                if array.of_item.is_empty()
                    && !declares_number(draft, &array.declared, &numbers) =>
            {
                let template = array.templates.with_inputs(draft, array.inputs)?;
                draft.tasks_of_numbers(template, numbers)?;
            }
            Items::Numbers(numbers) => {
                for number in numbers.iter() {
                    self.add_task(draft, known, array, vec![number.to_string().into()], None)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Adds the place of a line to the error of its task: that it lacks a column, or that an input
    /// which it names is not there.
    fn in_line(&self, line: usize, why: TaskFieldsError) -> TaskFieldsError {
        let Some(list) = self.each_line.as_ref().or(self.items_from.as_ref()) else { return why };
        let list = list.clone();
        match why {
            TaskFieldsError::Column { .. } | TaskFieldsError::Draft(DraftError::Column { .. }) => {
                let (separator, why) = (self.separator.clone(), Box::new(why));
                TaskFieldsError::ShortLine { file: list, line, separator, why }
            }
            TaskFieldsError::Draft(DraftError::Tasks) => why,
            TaskFieldsError::Draft(_) | TaskFieldsError::Source(_) => {
                TaskFieldsError::InLine { list, line, why: Box::new(why) }
            }
            _ => why,
        }
    }

    /// Whether a command without a placeholder for the item gets one. Numbers are never added: most
    /// commands would take them for an argument.
    fn is_item_appended(&self) -> bool {
        self.append.unwrap_or(true) && self.may_append_item()
    }

    /// Whether the item of a task is a file or a line.
    fn may_append_item(&self) -> bool {
        let has_files = !self.each.0.is_empty() || !self.each_block.0.is_empty();
        has_files || self.each_line.is_some() || !self.items.is_empty()
    }

    /// Whether the task works in its sandbox.
    fn is_in_sandbox(&self) -> bool {
        match self.folder.as_deref() {
            Some(folder) => folder == b"sandbox",
            None => !self.outputs.is_empty() && !self.in_place,
        }
    }

    /// The name in the sandbox of an input, the one with this index that its fields stand for, if
    /// it is not the last part of its path.
    fn name_of(
        &self,
        input: &Input,
        (name, into): (Option<&Name>, Option<&Name>),
        index: u32,
        found: &Name,
    ) -> Result<Option<Name>, TaskFieldsError> {
        let (key, name) = match (name, into) {
            (Some(name), _) => ("name", name.clone()),
            (None, Some(into)) => ("into", names::of_file(into, index, found)?),
            (None, None) => {
                let kept = kept_path(found).filter(|_| self.is_in_sandbox());
                let input = if self.decompress { &input.clone().decompressed() } else { input };
                let kept_path = kept.as_ref().filter(|_| input.is_derived());
                let made = kept_path.and_then(|kept| name_of_derived(input, kept));
                return Ok(made.or(kept));
            }
        };
        names::check_name(key, &name)?;
        Ok(Some(name))
    }

    /// An input as the task gets it: as it is or decompressed, and a link to the store or a copy.
    fn as_staged(&self, draft: &Draft, mut input: Input) -> Input {
        if self.decompress {
            input = input.decompressed();
        }
        if input.is_derived() && input.name.is_none() {
            let object = input.from.object().map(|object| &draft.objects[object as usize]);
            input.name = object.and_then(|object| name_of_derived(&input, object.base_name()));
        }
        if self.copy_inputs { input.copied() } else { input }
    }

    /// The commands of the template that make folders of inputs, if this input has one.
    fn preparations_for(&self, fields: &InputFields) -> Result<Vec<Name>, TaskFieldsError> {
        if fields.with().is_some() { preparations_of(&self.inputs) } else { Ok(Vec::new()) }
    }

    fn template(&self, draft: &Draft) -> Result<TaskTemplate, TaskFieldsError> {
        if let Some(id) = self.after.first() {
            return Err(TaskFieldsError::AfterNoMap(id.clone()));
        }
        let program = match (self.noop, self.command.0.is_empty()) {
            (true, true) => Program::Noop,
            (false, false) => {
                Program::Command(self.command.0.iter().map(Template::parse).collect())
            }
            (true, false) => return Err(TaskFieldsError::CommandAndNoop),
            (false, true) => return Err(TaskFieldsError::NoCommand),
        };
        self.check_command()?;
        self.check_placeholders()?;
        let base = draft.folder()?;
        let mut template = TaskTemplate::new(program);
        template.id = self.id.clone();
        template.folder = match self.folder.as_deref() {
            Some(b"sandbox") => WorkingFolder::Sandbox,
            Some(folder) if folder.starts_with(b"/") => WorkingFolder::Path(folder.into()),
            Some(folder) => WorkingFolder::Path(Name::concat(&[&base, b"/", folder])),
            None if self.is_in_sandbox() => WorkingFolder::Sandbox,
            None => WorkingFolder::Path(base.clone()),
        };
        match (&self.folder, self.outputs.first()) {
            (Some(_), _) if self.in_place => return Err(TaskFieldsError::FolderAndInPlace),
            (Some(folder), Some(output)) if *folder != "sandbox" => {
                return Err(TaskFieldsError::FolderAndOutput(output.file.clone()));
            }
            _ => {}
        }
        if let (WorkingFolder::Sandbox, Program::Command(words)) =
            (&template.folder, &mut template.program)
        {
            // A program in the user's folder is not in the sandbox, unless it is an input.
            let program = &self.command.0[0];
            let is_input = self
                .inputs
                .iter()
                .any(|input| matches!(input, InputFields::Path(path) if same(path, program)));
            let is_relative =
                program.contains(&b'/') && !program.starts_with(b"/") && !program.starts_with(b"{");
            if is_relative && !is_input {
                words[0] = Template::parse(Name::concat(&[&base, b"/", without_dot(program)]));
            }
        }
        template.base = base;
        self.check_variables()?;
        template.preparations = preparations_of(&self.inputs)?;
        template.env =
            self.env.iter().map(|(name, value)| (name.clone(), Template::parse(value))).collect();
        for output in &self.outputs {
            template.outputs.push(output.spec(self.in_place)?);
        }
        // Results name outputs by their places, so outputs of failed tasks alone come last.
        template.outputs.sort_by_key(|output| !output.when.is_after_success());
        template.resources = self.resources()?;
        template.priority = self.priority.unwrap_or(0);
        self.check_terms()?;
        (template.requirements, template.rank) = (self.requirements.clone(), self.whole_rank()?);
        template.timeout_us = self.timeout.map(|timeout| timeout.0);
        template.retries = self.retries;
        if let Some(capture) = self.capture {
            template.capture_bytes = capture.0;
        }
        if let (Some(max_output), Program::Command(_)) = (self.max_output, &template.program) {
            template.keep_streams(max_output);
        }
        Ok(template)
    }

    /// Refuses names that no environment variable can have.
    fn check_variables(&self) -> Result<(), TaskFieldsError> {
        let is_wrong = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        match self.env.keys().find(is_wrong) {
            Some(name) => Err(TaskFieldsError::Variable(name.clone())),
            None => Ok(()),
        }
    }

    /// Refuses or warns of texts in braces that look like placeholders and are none.
    fn check_placeholders(&self) -> Result<(), TaskFieldsError> {
        for word in self.command.0.iter().chain(self.env.values()) {
            match placeholders::in_command(word, &Template::parse(word)) {
                Some(WrongWord::Refused(why)) => return Err(why),
                Some(WrongWord::Warned(why)) => tracing::warn!("{why}"),
                None => {}
            }
        }
        Ok(())
    }

    /// Refuses a whole command line in one word: a common mistake, which would fail on every node.
    fn check_command(&self) -> Result<(), TaskFieldsError> {
        let [line] = &self.command.0[..] else { return Ok(()) };
        let Some(first) =
            line.split(u8::is_ascii_whitespace).next().filter(|first| first.len() < line.len())
        else {
            return Ok(());
        };
        // The path of a program may have a space in it, and need not exist on this machine.
        let is_program =
            path_of(line).exists() || first.contains(&b'/') && !path_of(first).is_file();
        if is_program { Ok(()) } else { Err(TaskFieldsError::LineAsWord { line: line.clone() }) }
    }

    fn check_terms(&self) -> Result<(), TaskFieldsError> {
        check_terms(self.requirements.as_deref(), self.rank.as_deref())
    }

    /// The rank with the estimate of location added to it, as the matchmaking of replica-coupled
    /// §4.2 has it. For example, `node.cpus` becomes `(node.cpus) - 1 * transfer_seconds`: a node
    /// with 8 processors that fetches inputs for 5 s has rank 3, and so goes behind one with 4 that
    /// holds them. A rank that names `transfer_seconds` has it its own way.
    fn whole_rank(&self) -> Result<Option<String>, TaskFieldsError> {
        let weight = self.location_weight.unwrap_or(LOCATION_WEIGHT);
        if !(0.0..=f64::MAX).contains(&weight) {
            return Err(TaskFieldsError::LocationWeight(weight));
        }
        let Some(rank) = &self.rank else {
            return match self.location_weight {
                Some(_) => Err(TaskFieldsError::WeightWithoutRank),
                None => Ok(None),
            };
        };
        if weight == 0.0 || rank.contains("transfer_seconds") {
            return Ok(Some(rank.clone()));
        }
        // On a line of its own, the bracket is not part of a comment.
        let whole = format!("({rank}\n) - {weight:?} * transfer_seconds");
        check_terms(None, Some(&whole))?;
        Ok(Some(whole))
    }

    fn resources(&self) -> Result<Resources, TaskFieldsError> {
        let cpus = self.cpus.unwrap_or(1.0);
        if !CPUS.contains(&cpus) {
            return Err(TaskFieldsError::Cpus(cpus));
        }
        Ok(Resources {
            cpus_milli: (cpus * 1000.0).round() as u32,
            memory_bytes: self.memory.map_or(0, |memory| memory.0),
            disk_bytes: self.disk.map_or(0, |disk| disk.0),
            named: self.resources.iter().map(|(name, amount)| (name.clone(), *amount)).collect(),
        })
    }

    /// The items of the task: its own, or those of the array that it reads element by element.
    async fn items(&self, draft: &mut Draft, known: &TaskIds) -> Result<Items, TaskFieldsError> {
        let own = self.own_items(draft).await?;
        let Some(elements) = Elements::of(draft, known, &self.inputs)? else { return Ok(own) };
        match own.count() {
            Some(count) => elements.check_length(self.key_of_items(), count).map(|()| own),
            None => Ok(Items::Lines(elements.items(draft))),
        }
    }

    /// The key that says which items the task has of its own.
    fn key_of_items(&self) -> &'static str {
        if !self.each.0.is_empty() {
            "each"
        } else if !self.each_block.0.is_empty() {
            "each_block"
        } else if !self.array.0.is_empty() {
            "array"
        } else if self.each_line.is_some() {
            "each_line"
        } else {
            "items"
        }
    }

    async fn own_items(&self, draft: &mut Draft) -> Result<Items, TaskFieldsError> {
        let (each, each_block) = (!self.each.0.is_empty(), !self.each_block.0.is_empty());
        let has_items = !self.items.is_empty();
        let given =
            [each, each_block, has_items, self.each_line.is_some(), !self.array.0.is_empty()];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(TaskFieldsError::SeveralItems);
        }
        if self.separator.is_some() && self.each_line.is_none() {
            return Err(TaskFieldsError::SeparatorWithoutLines);
        }
        if self.append == Some(true) && !self.may_append_item() {
            return Err(TaskFieldsError::AppendWithoutItems);
        }
        if !self.array.0.is_empty() {
            return items_of_ranges(&self.array.0);
        }
        if has_items {
            return Ok(Items::Lines(self.items.clone()));
        }
        if let Some(file) = self.each_line.clone() {
            let separator = self.separator.clone();
            // The list may be long, or come from a slow program.
            let read = tokio::task::spawn_blocking(move || {
                lines_of(&file, separator.as_deref().map(str::as_bytes))
            });
            let lines = read.await.map_err(|e| TaskFieldsError::Broken(e.to_string()))??;
            return Ok(Items::Lines(lines));
        }
        if each_block {
            let mut blocks = Vec::new();
            for pattern in &self.each_block.0 {
                for file in draft.find(pattern).await? {
                    blocks.extend(
                        draft.blocks(&file).await?.into_iter().map(|block| (file.clone(), block)),
                    );
                }
            }
            return Ok(Items::Blocks(blocks));
        }
        if !each {
            return Ok(Items::One);
        }
        let mut files = Vec::new();
        for pattern in &self.each.0 {
            files.extend(draft.find(pattern).await?);
        }
        Ok(Items::Files(files))
    }

    /// Adds a task. With `input`, the first column names this input.
    async fn add_task(
        &self,
        draft: &mut Draft,
        known: &TaskIds,
        array: &mut Array<'_>,
        columns: Vec<Name>,
        input: Option<Input>,
    ) -> Result<(), TaskFieldsError> {
        let item = self.item(draft, known, array, columns, input).await?;
        draft.task(item)?;
        draft.pause().await;
        Ok(())
    }

    async fn item(
        &self,
        draft: &mut Draft,
        known: &TaskIds,
        array: &mut Array<'_>,
        columns: Vec<Name>,
        input: Option<Input>,
    ) -> Result<TaskItem, TaskFieldsError> {
        let mut values: Vec<_> =
            columns.into_iter().map(|text| Value { text, input: None }).collect();
        let mut inputs = Vec::from_iter(input);
        if !inputs.is_empty() {
            values[0].input = Some(0);
        }
        let place = draft.len() as u32 - array.first;
        for fields in &array.of_item {
            let of_item = (Some(place), &mut values[..]);
            self.add_input(draft, known, fields, of_item, &mut inputs).await?;
        }
        if inputs.len() > 1 || (array.command.has_patterns() && !array.names.is_empty()) {
            names::tell_apart(draft, &array.command, (array.inputs, &array.names), &mut inputs)?;
        }
        for value in values.iter_mut().filter(|value| value.input.is_none()) {
            value.input = declared_as(draft, &array.declared, &value.text)
                .map(|place| TEMPLATE_INPUT | place);
        }
        let template = array.templates.with_inputs(draft, array.inputs + inputs.len())?;
        Ok(TaskItem { template, values, inputs })
    }

    /// Adds an input: of all tasks of an array, or of the one with this place and these values.
    async fn add_input(
        &self,
        draft: &mut Draft,
        known: &TaskIds,
        fields: &InputFields,
        (place, values): (Option<u32>, &mut [Value]),
        inputs: &mut Vec<Input>,
    ) -> Result<(), TaskFieldsError> {
        let (path, name, into, broadcast) = match fields {
            InputFields::Path(path) => (path, None, None, false),
            InputFields::Named { path, name, into, broadcast, .. } => {
                (path, name.as_ref(), into.as_ref(), *broadcast)
            }
            InputFields::Output { .. } => {
                let of_item = (place, &*values);
                let preparations = self.preparations_for(fields)?;
                let forms = (self.copy_inputs, self.decompress, &preparations[..]);
                return add_outputs(draft, known, fields, of_item, forms, inputs);
            }
        };
        let part = fields.keys().part(&self.preparations_for(fields)?, self.decompress)?;
        if name.is_some() && into.is_some() {
            return Err(TaskFieldsError::NameAndInto(format!("`{path}`")));
        }
        let sources =
            sources_of(draft, path, values, part.is_some_and(PartOfFile::is_range)).await?;
        if name.is_some() && sources.len() > 1 {
            let files = sources.len();
            return Err(TaskFieldsError::NameOfSeveral { path: path.clone(), files });
        }
        for (index, found) in (0..).zip(sources) {
            let mut input = match &part {
                Some(part) => draft.part(&found, *part).await?,
                None => draft.input(&found).await?,
            };
            input.name = self.name_of(&input, (name, into), index, &found)?;
            if broadcast {
                draft.broadcast(&input);
            }
            let place = inputs.len() as u32;
            inputs.push(self.as_staged(draft, input));
            // From now on, a column that names this file stands for its staged path.
            for value in
                values.iter_mut().filter(|value| same(&value.text, &found) && value.input.is_none())
            {
                value.input = Some(place);
            }
        }
        Ok(())
    }
}

/// The files that an input stands for. If parts of them are read, they are not looked up yet.
async fn sources_of(
    draft: &mut Draft,
    path: &Name,
    values: &[Value],
    are_parts: bool,
) -> Result<Vec<Name>, TaskFieldsError> {
    let parsed = template_of(path, values.len())?;
    let source = parsed.expand(&of_values(values));
    if !parsed.is_glob() {
        return Ok(vec![source]);
    }
    // Special characters in the name of an item do not make a pattern.
    let escape = |value: &Value| Value { text: Glob::escape(&value.text), ..value.clone() };
    let values: Vec<_> = values.iter().map(escape).collect();
    let pattern = parsed.expand(&of_values(&values));
    let found = draft.find_named(&source, &pattern).await?;
    if !are_parts {
        draft.look_up(&found).await?;
    }
    Ok(found)
}

/// The numbers of a range; the combinations of numbers if there are several ranges.
fn items_of_ranges(ranges: &[Name]) -> Result<Items, TaskFieldsError> {
    let texts: Vec<_> = ranges.iter().map(Name::to_string).collect();
    if let [range] = &texts[..]
        && let Ok(numbers) = array(range)
    {
        return Ok(Items::Numbers(numbers));
    }
    let mut factors = Vec::new();
    for range in &texts {
        factors.push(numbers_of(range)?.into_iter().map(|number| vec![number]).collect());
    }
    Ok(Items::Lines(product(&factors)?))
}

/// The path of an input with its placeholders, which must be among the columns of an item.
fn template_of(path: &Name, columns: usize) -> Result<Template, TaskFieldsError> {
    let template = Template::parse(path);
    if template.has_value() && columns == 0 {
        return Err(TaskFieldsError::NoItem(path.clone()));
    }
    let column = template.highest_column();
    if usize::from(column) > columns {
        return Err(TaskFieldsError::Column { path: path.clone(), column, columns });
    }
    Ok(template)
}

/// What a second of fetching inputs counts against a rank, unless the task says so.
const LOCATION_WEIGHT: f64 = 1.0;

/// Checks match expressions. The dispatcher checks them, too, but only here the line is known.
fn check_terms(requirements: Option<&str>, rank: Option<&str>) -> Result<(), TaskFieldsError> {
    eyas_matching::terms(requirements, rank)
        .map(drop)
        .map_err(|e| TaskFieldsError::Expression(e.to_string()))
}

/// Checks a match expression about executors, as the dispatcher would.
///
/// # Errors
/// If the expression is invalid; the error says where and why.
pub fn check_requirements(requirements: &str) -> Result<(), TaskFieldsError> {
    check_terms(Some(requirements), None)
}
