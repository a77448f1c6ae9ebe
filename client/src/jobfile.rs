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
//! A word of the command that is an input's path becomes the path where it is staged. An input is a path or URL, a table `{ path = "…", name = "…" }`, or another task's output, `{ task = "ID", output =
//! "sum.fits" }`; for a task that is an array, `{ task = "ID", index = 3, … }`, or all of them without `index`.

use std::collections::HashMap;

use eyas_store::Glob;
use eyas_types::{
    Distribution, Input, InputFrom, Name, Numbers, OutputSpec, PolicyError, Program, Resources, TaskItem, TaskTemplate,
    Template, TemplatePart, Value, WorkingFolder,
};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::draft::{Draft, Preparing};
use crate::globs::find;
use crate::sources::{Line, MAX_LINE_BYTES, array, lines_of};

mod output;
mod values;

pub use output::{Keep, OutputFields};
pub use values::{Bytes, Duration, OneOrMore};

/// What is wrong in a job file, and where.
#[derive(Debug, Error)]
#[error("{file}, line {line}: {why}")]
pub struct JobFileError {
    /// Which file.
    pub file: String,
    /// Which line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobFile {
    name: Option<String>,
    priority: Option<i32>,
    /// What every task requires, beside what it requires itself.
    requirements: Option<toml::Spanned<String>>,
    /// The rank of every task that has none of its own.
    rank: Option<toml::Spanned<String>>,
    #[serde(default)]
    reuse: bool,
    distribution: Option<toml::Spanned<String>>,
    #[serde(default)]
    task: Vec<toml::Spanned<TaskFields>>,
}

/// What a job file says of all its tasks.
#[derive(Default)]
struct Head {
    name: Option<String>,
    priority: Option<i32>,
    reuse: bool,
    distribution: Distribution,
}

/// A task, or an array of tasks, as a job file or a command line describes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskFields {
    /// By which other tasks of the file refer to it.
    pub id: Option<String>,
    /// Program and arguments.
    pub command: Vec<Name>,
    /// Whether it does nothing at all.
    pub noop: bool,
    /// One task for each file of these patterns, which it reads.
    pub each: OneOrMore,
    /// One task for each line of this file.
    pub each_line: Option<Name>,
    /// Cuts lines in columns.
    pub separator: Option<String>,
    /// Whether the command of a task for each file or line gets `{}` as its last word if it has no placeholder for the
    /// item, as GNU parallel does it; it does if this is missing.
    pub append: Option<bool>,
    /// One task for each number of this range.
    pub array: Option<String>,
    /// Files it reads.
    pub inputs: Vec<InputFields>,
    /// Files it writes.
    pub outputs: Vec<OutputFields>,
    /// Environment variables.
    pub env: std::collections::BTreeMap<String, Name>,
    /// Its working folder; `sandbox` for one of its own, which is the default if it has outputs.
    pub folder: Option<Name>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Memory.
    pub memory: Option<Bytes>,
    /// Disk for its sandbox.
    pub disk: Option<Bytes>,
    /// Other resources.
    pub resources: std::collections::BTreeMap<String, u64>,
    /// Higher goes first; the job's if it is missing.
    pub priority: Option<i32>,
    /// Executors that may run it, as a match expression.
    pub requirements: Option<String>,
    /// Of several that may, which is the best, as a match expression.
    pub rank: Option<String>,
    /// Time limit.
    pub timeout: Option<Duration>,
    /// How often it is tried again after a failure.
    pub retries: u32,
    /// Bound on captured output.
    pub capture: Option<Bytes>,
}

/// An input in a job file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum InputFields {
    /// A path or URL; may have placeholders.
    Path(Name),
    /// The same with more to say of it.
    Named {
        /// Path or URL.
        #[serde(alias = "url")]
        path: Name,
        /// Name in the sandbox.
        name: Option<Name>,
        /// Whether all executors that may run its tasks fetch it ahead of them.
        #[serde(default)]
        broadcast: bool,
    },
    /// What another task of the file writes.
    Output {
        /// That task's `id`.
        task: String,
        /// The output's `file`; the first if there is no such word.
        output: Option<Name>,
        /// Which task of an array, from 0; all of them if it is missing.
        index: Option<u32>,
        /// Name in the sandbox.
        name: Option<Name>,
    },
}

impl InputFields {
    /// Whether each task of an array has another.
    fn is_of_item(&self) -> bool {
        self.path().is_some_and(|path| Template::parse(path).has_value())
    }

    fn path(&self) -> Option<&Name> {
        match self {
            InputFields::Path(path) | InputFields::Named { path, .. } => Some(path),
            InputFields::Output { .. } => None,
        }
    }
}

/// Reads a job file. One whose name ends in `.jsonl` or `.ndjson` has a task a line, any other is TOML. Tasks that do not
/// say their priority have the given one, else the file's, else 0. `see` is shown how it goes on, until the job is accepted.
///
/// # Errors
/// What is wrong and in which line.
pub async fn read_job_file(
    file: &str,
    priority: Option<i32>,
    see: impl FnMut(Preparing) + Send + 'static,
) -> Result<Draft, JobFileError> {
    let wrong = |line: usize, why: String| JobFileError { file: file.to_owned(), line, why };
    let text = std::fs::read_to_string(file).map_err(|e| wrong(1, format!("cannot be read: {e}")))?;
    let (head, tasks) = if file.ends_with(".jsonl") || file.ends_with(".ndjson") {
        (Head::default(), read_lines(&text).map_err(|(line, why)| wrong(line, why))?)
    } else {
        read_toml(&text).map_err(|(line, why)| wrong(line, why))?
    };
    let stem = std::path::Path::new(file).file_stem().map_or("job".into(), |stem| stem.to_string_lossy());
    let mut draft = Draft::new(head.name.as_deref().unwrap_or(&stem)).seen_by(see);
    draft.reuse = head.reuse;
    draft.distribute(head.distribution);
    let mut known = Known::default();
    for (line, mut fields) in tasks {
        fields.priority = fields.priority.or(priority).or(head.priority);
        fields.add_to(&mut draft, &mut known).await.map_err(|why| wrong(line, why))?;
    }
    Ok(draft)
}

type Located<T> = Vec<(usize, T)>;

fn read_lines(text: &str) -> Result<Located<TaskFields>, (usize, String)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(place, line)| match serde_json::from_str(line) {
            _ if line.len() > MAX_LINE_BYTES => {
                Err((place + 1, format!("the line is longer than {MAX_LINE_BYTES} bytes")))
            }
            Ok(fields) => Ok((place + 1, fields)),
            Err(e) => Err((place + 1, e.to_string())),
        })
        .collect()
}

fn read_toml(text: &str) -> Result<(Head, Located<TaskFields>), (usize, String)> {
    let line_of = |offset: usize| text[..offset.min(text.len())].matches('\n').count() + 1;
    let file: JobFile = toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(span.start));
        (line, e.message().to_owned())
    })?;
    let for_all =
        |text: Option<toml::Spanned<String>>| text.map(|text| (line_of(text.span().start), text.into_inner()));
    let (requirements, rank) = (for_all(file.requirements), for_all(file.rank));
    if let Some((line, requirements)) = &requirements {
        check_terms(Some(requirements), None).map_err(|why| (*line, why))?;
    }
    if let Some((line, rank)) = &rank {
        check_terms(None, Some(rank)).map_err(|why| (*line, why))?;
    }
    let distribution = match file.distribution {
        Some(name) => {
            name.get_ref().parse().map_err(|error: PolicyError| (line_of(name.span().start), error.to_string()))?
        }
        None => Distribution::default(),
    };
    let tasks = file.task.into_iter().map(|task| {
        let line = line_of(task.span().start);
        let mut task = task.into_inner();
        // Before it is joined with what all require, so that columns are those of the file.
        task.check_terms().map_err(|why| (line, why))?;
        task.requirements = match (&requirements, task.requirements.take()) {
            (Some((_, all)), Some(own)) => Some(format!("{} && {}", in_brackets(all), in_brackets(&own))),
            (all, own) => own.or_else(|| all.as_ref().map(|(_, all)| all.clone())),
        };
        task.rank = task.rank.take().or_else(|| rank.as_ref().map(|(_, rank)| rank.clone()));
        Ok((line, task))
    });
    let head = Head { name: file.name, priority: file.priority, reuse: file.reuse, distribution };
    Ok((head, tasks.collect::<Result<_, _>>()?))
}

/// A comment ends with its line, and is not to take the bracket with it.
fn in_brackets(condition: &str) -> String {
    if condition.contains("//") { format!("({condition}\n)") } else { format!("({condition})") }
}

/// What there is a task for.
enum Items {
    One,
    Files(Vec<Name>),
    Lines(Vec<Line>),
    Numbers(Numbers),
}

/// Tasks with an id, so far: the index of the first, how many, and the template.
#[derive(Default)]
pub(crate) struct Known(HashMap<String, (u32, u32, u16)>);

impl TaskFields {
    /// Adds the task, or all tasks of the array, to a draft.
    ///
    /// # Errors
    /// What is wrong.
    pub async fn draft(&self, draft: &mut Draft) -> Result<(), String> {
        self.add_to(draft, &mut Known::default()).await
    }

    async fn add_to(&self, draft: &mut Draft, known: &mut Known) -> Result<(), String> {
        let mut template = self.template(draft)?;
        let items = self.items(draft).await?;
        let mut named = Vec::new();
        for fields in self.inputs.iter().filter(|fields| !fields.is_of_item()) {
            let first = template.inputs.len() as u16;
            self.add_input(draft, known, fields, &mut [], &mut template.inputs).await?;
            named.extend(fields.path().map(|path| (path, first..template.inputs.len() as u16)));
        }
        if let Program::Command(words) = &mut template.program {
            // A word that names inputs becomes the paths at which the node has them.
            let parsed = std::mem::take(words).into_iter().zip(&self.command);
            words.extend(parsed.flat_map(|(word, written)| match named.iter().find(|(path, _)| same(written, path)) {
                Some((_, inputs)) => inputs.clone().map(|place| Template(vec![TemplatePart::Input(place)])).collect(),
                None => vec![word],
            }));
        }
        if let Program::Command(words) = &mut template.program
            && self.is_item_appended()
            && !words.iter().any(Template::has_value)
        {
            words.push(Template::parse("{}"));
        }
        let place = draft.template(template).map_err(|e| e.to_string())?;
        let first = draft.len() as u32;
        match items {
            Items::One => self.add_task(draft, known, place, Vec::new()).await?,
            Items::Files(files) => {
                draft.look_at(&files).await.map_err(|e| e.to_string())?;
                for file in files {
                    self.add_task(draft, known, place, vec![file]).await?;
                }
            }
            Items::Lines(lines) => {
                for line in lines {
                    self.add_task(draft, known, place, line.columns).await?;
                }
            }
            Items::Numbers(numbers) if !self.inputs.iter().any(InputFields::is_of_item) => {
                draft.tasks_of_numbers(place, numbers).map_err(|e| e.to_string())?;
            }
            Items::Numbers(numbers) => {
                for number in numbers.iter() {
                    self.add_task(draft, known, place, vec![number.to_string().into()]).await?;
                }
            }
        }
        if let Some(id) = &self.id {
            let entry = (first, draft.len() as u32 - first, place);
            if known.0.insert(id.clone(), entry).is_some() {
                return Err(format!("two tasks have the id `{id}`"));
            }
        }
        Ok(())
    }

    /// Whether a command without a placeholder for the item gets one. A number is never added: most commands would take it
    /// for an argument.
    fn is_item_appended(&self) -> bool {
        self.append.unwrap_or(true) && (!self.each.0.is_empty() || self.each_line.is_some())
    }

    fn template(&self, draft: &Draft) -> Result<TaskTemplate, String> {
        let program = match (self.noop, self.command.is_empty()) {
            (true, true) => Program::Noop,
            (false, false) => Program::Command(self.command.iter().map(Template::parse).collect()),
            (true, false) => return Err("a task has a command or is a noop, not both".into()),
            (false, true) => return Err("the task has no command".into()),
        };
        let base = draft.folder().map_err(|e| e.to_string())?;
        let mut template = TaskTemplate::new(program);
        template.id = self.id.clone();
        template.folder = match self.folder.as_deref() {
            Some(b"sandbox") => WorkingFolder::Sandbox,
            Some(folder) if folder.starts_with(b"/") => WorkingFolder::Path(folder.into()),
            Some(folder) => WorkingFolder::Path(Name::concat(&[&base, b"/", folder])),
            None if self.outputs.is_empty() => WorkingFolder::Path(base.clone()),
            None => WorkingFolder::Sandbox,
        };
        if let (WorkingFolder::Path(_), Some(output)) = (&template.folder, self.outputs.first()) {
            return Err(format!("output `{}` is taken from the task's sandbox: leave `folder` out", output.file));
        }
        if let (WorkingFolder::Sandbox, Program::Command(words)) = (&template.folder, &mut template.program) {
            // The program of the user's folder is not in the sandbox, unless it is brought along.
            let program = &self.command[0];
            let is_input =
                self.inputs.iter().any(|input| matches!(input, InputFields::Path(path) if same(path, program)));
            let is_relative = program.contains(&b'/') && !program.starts_with(b"/") && !program.starts_with(b"{");
            if is_relative && !is_input {
                words[0] = Template::parse(Name::concat(&[&base, b"/", without_dot(program)]));
            }
        }
        template.base = base;
        template.env = self.env.iter().map(|(name, value)| (name.clone(), Template::parse(value))).collect();
        if let Some(name) = self.env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(format!("`{name}` cannot be the name of an environment variable"));
        }
        for output in &self.outputs {
            template.outputs.push(output.spec()?);
        }
        template.resources = self.resources()?;
        template.priority = self.priority.unwrap_or(0);
        self.check_terms()?;
        (template.requirements, template.rank) = (self.requirements.clone(), self.rank.clone());
        template.timeout_us = self.timeout.map(|timeout| timeout.0);
        template.retries = self.retries;
        if let Some(capture) = self.capture {
            template.capture_bytes = capture.0;
        }
        Ok(template)
    }

    fn check_terms(&self) -> Result<(), String> {
        check_terms(self.requirements.as_deref(), self.rank.as_deref())
    }

    fn resources(&self) -> Result<Resources, String> {
        let cpus = self.cpus.unwrap_or(1.0);
        if !(0.001..=1_000_000.0).contains(&cpus) {
            return Err(format!("a task cannot have {cpus} cpus: 0.001 is the least, 1000000 the most"));
        }
        Ok(Resources {
            cpus_milli: (cpus * 1000.0).round() as u32,
            memory_bytes: self.memory.map_or(0, |memory| memory.0),
            disk_bytes: self.disk.map_or(0, |disk| disk.0),
            named: self.resources.iter().map(|(name, amount)| (name.clone(), *amount)).collect(),
        })
    }

    /// What tasks there are.
    async fn items(&self, draft: &mut Draft) -> Result<Items, String> {
        let given = [!self.each.0.is_empty(), self.each_line.is_some(), self.array.is_some()];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err("a task has one of `each`, `each_line` and `array`".into());
        }
        if let Some(range) = &self.array {
            return array(range).map(Items::Numbers).map_err(|e| e.to_string());
        }
        if let Some(file) = self.each_line.clone() {
            let separator = self.separator.clone();
            // It may be long, or come from a slow program.
            let read = tokio::task::spawn_blocking(move || lines_of(&file, separator.as_deref().map(str::as_bytes)));
            return read.await.map_err(|e| e.to_string())?.map(Items::Lines).map_err(|e| e.to_string());
        }
        if self.each.0.is_empty() {
            return Ok(Items::One);
        }
        let mut files = Vec::new();
        for pattern in &self.each.0 {
            files.extend(draft.find(pattern).await.map_err(|e| e.to_string())?);
        }
        Ok(Items::Files(files))
    }

    async fn add_task(
        &self,
        draft: &mut Draft,
        known: &Known,
        template: u16,
        columns: Vec<Name>,
    ) -> Result<(), String> {
        let item = self.item(draft, known, template, columns).await?;
        draft.task(item).map_err(|e| e.to_string())?;
        draft.pause().await;
        Ok(())
    }

    async fn item(
        &self,
        draft: &mut Draft,
        known: &Known,
        template: u16,
        columns: Vec<Name>,
    ) -> Result<TaskItem, String> {
        let mut values: Vec<_> = columns.into_iter().map(|text| Value { text, input: None }).collect();
        let mut inputs = Vec::new();
        if !self.each.0.is_empty() {
            inputs.push(draft.input(&values[0].text).await.map_err(|e| e.to_string())?);
            values[0].input = Some(0);
        }
        for fields in self.inputs.iter().filter(|fields| fields.is_of_item()) {
            self.add_input(draft, known, fields, &mut values, &mut inputs).await?;
        }
        Ok(TaskItem { template, values, inputs })
    }

    async fn add_input(
        &self,
        draft: &mut Draft,
        known: &Known,
        fields: &InputFields,
        values: &mut [Value],
        inputs: &mut Vec<Input>,
    ) -> Result<(), String> {
        let (path, name, broadcast) = match fields {
            InputFields::Path(path) => (path, None, false),
            InputFields::Named { path, name, broadcast } => (path, name.clone(), *broadcast),
            InputFields::Output { task, output, index, name } => {
                let (first, count, template) =
                    *known.0.get(task).ok_or_else(|| format!("no task before has the id `{task}`"))?;
                let producer = &draft.templates[usize::from(template)];
                let is_it = |o: &OutputSpec| output.as_ref().is_none_or(|file| o.pattern.written() == *file);
                let place = producer.outputs.iter().position(is_it);
                let place = place
                    .ok_or_else(|| format!("task `{task}` has no output `{}`", output.clone().unwrap_or_default()))?;
                let indices = match index {
                    Some(index) if *index >= count => {
                        return Err(format!("task `{task}` has no index {index}, only {count}"));
                    }
                    Some(index) => first + index..first + index + 1,
                    None => first..first + count,
                };
                inputs.extend(
                    indices.map(|task| Input {
                        from: InputFrom::Output { task, output: place as u16 },
                        name: name.clone(),
                    }),
                );
                return Ok(());
            }
        };
        let parsed = Template::parse(path);
        if usize::from(parsed.highest_column()) > values.len() {
            return Err(format!(
                "input `{path}` asks for column {}, the item has {}",
                parsed.highest_column(),
                values.len()
            ));
        }
        let with = eyas_types::template::Expansion { values, staged: &[], template_inputs: 0, number: 0, slot: 0 };
        let source = parsed.expand(&with);
        let sources = match parsed.is_glob() {
            false => vec![source.clone()],
            true => {
                // What an item has in its name makes no pattern of it.
                let escape = |value: &Value| Value { text: Glob::escape(&value.text), ..value.clone() };
                let values: Vec<_> = values.iter().map(escape).collect();
                let pattern = parsed.expand(&eyas_types::template::Expansion { values: &values, ..with });
                let found = find(&draft.storage, &source, &pattern).await.map_err(|e| e.to_string())?;
                draft.look_at(&found).await.map_err(|e| e.to_string())?;
                found
            }
        };
        if name.is_some() && sources.len() > 1 {
            return Err(format!("input `{path}` names {} files, and `name` is of one: leave it out", sources.len()));
        }
        for found in sources {
            let mut input = draft.input(&found).await.map_err(|e| e.to_string())?;
            input.name = name.clone();
            if broadcast {
                draft.broadcast(&input);
            }
            let place = inputs.len() as u16;
            inputs.push(input);
            // The column that names this file is its staged path from now on.
            if let Some(value) = values.iter_mut().find(|value| value.text == found && value.input.is_none()) {
                value.input = Some(place);
            }
        }
        Ok(())
    }
}

/// Whether these expressions can be asked. The dispatcher looks too; here it is known where they were written.
fn check_terms(requirements: Option<&str>, rank: Option<&str>) -> Result<(), String> {
    eyas_matching::terms(requirements, rank).map(drop).map_err(|e| e.to_string())
}

/// Whether two words name the same file of the submission's folder.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    without_dot(a) == without_dot(b)
}

/// A path without `./` before it.
fn without_dot(mut path: &[u8]) -> &[u8] {
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    path
}
