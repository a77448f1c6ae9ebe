//! Reading a job file: TOML with `[[task]]` and `[[map]]` tables, or JSON lines.

use eyas_types::Distribution;
use eyas_types::mistake::{line_at, plainly};
use serde::Deserialize;

use super::error::{JobFileError, TaskFieldsError};
use super::input::TaskIds;
use super::map_step::MapStep;
use super::steps::{StepTable, in_order};
use super::values::some_number;
use super::{InputFields, TaskFields, check_terms, wrong_key};
use crate::clusters::Cluster;
use crate::draft::{Draft, SubmitProgress};
use crate::sources::MAX_LINE_BYTES;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobFile {
    name: Option<String>,
    #[serde(default, deserialize_with = "some_number")]
    priority: Option<i32>,
    /// Requirements of every task, in addition to its own.
    requirements: Option<toml::Spanned<String>>,
    /// The rank of every task that has none of its own.
    rank: Option<toml::Spanned<String>>,
    #[serde(default)]
    reuse: bool,
    halt: Option<toml::Spanned<String>>,
    distribution: Option<toml::Spanned<String>>,
    #[serde(default)]
    task: Vec<toml::Spanned<TaskFields>>,
    #[serde(default)]
    map: Vec<toml::Spanned<MapStep>>,
}

/// What a job file says of all its tasks.
#[derive(Default)]
struct JobFileHead {
    name: Option<String>,
    priority: Option<i32>,
    reuse: bool,
    /// Whether all tasks run, even if the first ones fail in the same way.
    never_halts: bool,
    distribution: Distribution,
}

/// A mistake, and its line and column.
struct Mistake {
    line: usize,
    column: Option<usize>,
    why: TaskFieldsError,
}

impl Mistake {
    fn at(line: usize, why: TaskFieldsError) -> Self {
        Mistake { line, column: None, why }
    }
}

/// Tasks, each with the line where it begins.
type LocatedTasks = Vec<(usize, TaskFields)>;

/// The tables of a job file.
struct Tables {
    head: JobFileHead,
    tasks: LocatedTasks,
    /// Map steps, each with the line where it begins.
    maps: Vec<(usize, MapStep)>,
}

/// A job file with map steps.
pub struct JobSteps {
    file: String,
    head: JobFileHead,
    /// The steps in the order in which they run.
    pub steps: Vec<JobStep>,
}

/// A step of a job file.
pub enum JobStep {
    /// Tasks that are one job.
    Tasks(StepTasks),
    /// A map step, and the line where it begins.
    Map(usize, Box<MapStep>),
}

/// Tasks of a step.
pub struct StepTasks(LocatedTasks);

impl StepTasks {
    /// The lines where the tables of the tasks begin.
    pub fn lines(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(line, _)| *line)
    }
}

/// Reads a job file. If its name ends in `.jsonl` or `.ndjson`, it has a task on each line;
/// otherwise it is TOML. Tasks without a priority get `priority`, else that of the file, else 0.
/// `see` is shown the progress until the job is accepted. Files of the cluster are those of
/// `cluster`.
///
/// # Errors
/// The first mistake, with its line.
pub async fn read_job_file(
    file: &str,
    priority: Option<i32>,
    cluster: &Cluster,
    see: impl FnMut(SubmitProgress) + Send + 'static,
) -> Result<Draft, JobFileError> {
    let unreadable = |e| JobFileError {
        file: file.to_owned(),
        line: None,
        column: None,
        why: TaskFieldsError::Unreadable(e).into(),
    };
    let text = std::fs::read_to_string(file).map_err(unreadable)?;
    read_job_text(file, &text, priority, cluster, see).await
}

/// Does the same as [`read_job_file`], with the text of a job file. `file` is the name in messages;
/// its extension says which format the text has, and the job is called like the file if the text
/// has no name for it.
///
/// # Errors
/// The first mistake, with its line.
pub async fn read_job_text(
    file: &str,
    text: &str,
    priority: Option<i32>,
    cluster: &Cluster,
    see: impl FnMut(SubmitProgress) + Send + 'static,
) -> Result<Draft, JobFileError> {
    let wrong = |Mistake { line, column, why }: Mistake| JobFileError {
        file: file.to_owned(),
        line: Some(line),
        column,
        why: why.into(),
    };
    let Tables { head, tasks, maps } = read_tables(file, text).map_err(wrong)?;
    if let Some((line, _)) = maps.first() {
        return Err(wrong(Mistake::at(*line, TaskFieldsError::MapSteps)));
    }
    let drafted = draft_tasks(file, &head, tasks, priority, cluster, see).await;
    drafted.map_err(wrong)
}

/// Reads the steps of a job file with map steps; `None` if it has no map steps.
///
/// # Errors
/// The first mistake, with its line. Mistakes in tasks that only a look at their inputs shows are
/// found by [`JobSteps::draft`].
pub fn read_job_steps(file: &str) -> Result<Option<JobSteps>, JobFileError> {
    let at = |line, column, why: TaskFieldsError| JobFileError {
        file: file.to_owned(),
        line,
        column,
        why: why.into(),
    };
    let text = std::fs::read_to_string(file)
        .map_err(|e| at(None, None, TaskFieldsError::Unreadable(e)))?;
    let tables = read_tables(file, &text);
    let tables = tables.map_err(|Mistake { line, column, why }| at(Some(line), column, why))?;
    if tables.maps.is_empty() {
        return Ok(None);
    }
    let Tables { head, tasks, maps } = tables;
    let steps = steps_of(tasks, maps)
        .map_err(|Mistake { line, column, why }| at(Some(line), column, why))?;
    Ok(Some(JobSteps { file: file.to_owned(), head, steps }))
}

impl JobSteps {
    /// Whether the file asks for results of earlier jobs.
    pub fn reuses(&self) -> bool {
        self.head.reuse
    }

    /// A mistake at a line of the file.
    pub fn mistake(&self, line: usize, why: TaskFieldsError) -> JobFileError {
        JobFileError { file: self.file.clone(), line: Some(line), column: None, why: why.into() }
    }

    /// The job of the tasks of a step, as [`read_job_file`] makes it. Files that earlier steps
    /// write exist only when these steps have ended.
    ///
    /// # Errors
    /// The first mistake, with its line.
    pub async fn draft(
        &self,
        tasks: &StepTasks,
        priority: Option<i32>,
        cluster: &Cluster,
        see: impl FnMut(SubmitProgress) + Send + 'static,
    ) -> Result<Draft, JobFileError> {
        let tasks = tasks.0.clone();
        let drafted = draft_tasks(&self.file, &self.head, tasks, priority, cluster, see).await;
        drafted.map_err(|Mistake { line, why, .. }| self.mistake(line, why))
    }
}

/// Checks the map steps, and puts the tables into the order in which they run.
fn steps_of(
    mut tasks: LocatedTasks,
    mut maps: Vec<(usize, MapStep)>,
) -> Result<Vec<JobStep>, Mistake> {
    for (line, step) in &maps {
        step.check().map_err(|why| Mistake::at(*line, why.into()))?;
        if step.command.0.is_empty() {
            return Err(Mistake::at(*line, TaskFieldsError::NoCommand));
        }
    }
    let mut located: Vec<_> =
        tasks.iter().map(|(line, task)| (*line, table_of_task(task))).collect();
    located.extend(maps.iter().map(|(line, step)| {
        let after = step.after.iter().map(String::as_str).collect();
        (*line, StepTable { id: step.id.as_deref(), is_map: true, after, reads: Vec::new() })
    }));
    located.sort_by_key(|(line, _)| *line);
    let (lines, tables): (Vec<_>, Vec<_>) = located.into_iter().unzip();
    let order = in_order(&tables).map_err(|(place, why)| Mistake::at(lines[place], why.into()))?;
    let is_map: Vec<_> = tables.iter().map(|table| table.is_map).collect();
    let steps = order.into_iter().map(|places| match is_map[places[0]] {
        true => {
            let found = maps.iter().position(|(line, _)| *line == lines[places[0]]);
            let (line, step) = maps.swap_remove(found.expect("the line of a map step"));
            JobStep::Map(line, Box::new(step))
        }
        false => {
            let is_here = |line: &usize| places.iter().any(|place| lines[*place] == *line);
            let here = tasks.extract_if(.., |(line, _)| is_here(line));
            let without_after =
                here.map(|(line, task)| (line, TaskFields { after: Vec::new(), ..task }));
            JobStep::Tasks(StepTasks(without_after.collect()))
        }
    });
    Ok(steps.collect())
}

fn table_of_task(task: &TaskFields) -> StepTable<'_> {
    fn read(input: &InputFields) -> Option<&str> {
        match input {
            InputFields::Output { task, .. } => Some(task),
            _ => None,
        }
    }
    StepTable {
        id: task.id.as_deref(),
        is_map: false,
        after: task.after.iter().map(String::as_str).collect(),
        reads: task.inputs.iter().filter_map(read).collect(),
    }
}

/// The job of these tasks of a file.
async fn draft_tasks(
    file: &str,
    head: &JobFileHead,
    tasks: LocatedTasks,
    priority: Option<i32>,
    cluster: &Cluster,
    see: impl FnMut(SubmitProgress) + Send + 'static,
) -> Result<Draft, Mistake> {
    let stem =
        std::path::Path::new(file).file_stem().map_or("job".into(), |stem| stem.to_string_lossy());
    let mut draft =
        Draft::new(head.name.as_deref().unwrap_or(&stem)).on_cluster(cluster).seen_by(see);
    draft.reuse = head.reuse;
    draft.halt_if_all_fail(!head.never_halts);
    draft.distribute(head.distribution);
    let mut known = TaskIds::default();
    for (line, mut fields) in tasks {
        fields.priority = fields.priority.or(priority).or(head.priority);
        fields.add_to(&mut draft, &mut known).await.map_err(|why| Mistake::at(line, why))?;
    }
    Ok(draft)
}

/// The tables of a text, by the extension of the file.
fn read_tables(file: &str, text: &str) -> Result<Tables, Mistake> {
    if file.ends_with(".jsonl") || file.ends_with(".ndjson") {
        let (head, tasks) = (JobFileHead::default(), read_lines(text)?);
        Ok(Tables { head, tasks, maps: Vec::new() })
    } else if file.ends_with(".json") {
        Err(Mistake::at(1, TaskFieldsError::JsonDocument))
    } else if file.ends_with(".yaml") || file.ends_with(".yml") {
        Err(Mistake::at(1, TaskFieldsError::Yaml))
    } else {
        read_toml(text)
    }
}

/// A job of these tasks, for programs that make their tasks themselves. Tasks may read outputs of
/// tasks before them.
///
/// # Errors
/// The first mistake in the fields of a task.
pub async fn draft_job(
    name: &str,
    tasks: &[TaskFields],
    cluster: &Cluster,
) -> Result<Draft, TaskFieldsError> {
    let mut draft = Draft::new(name).on_cluster(cluster);
    let mut known = TaskIds::default();
    for fields in tasks {
        fields.add_to(&mut draft, &mut known).await?;
    }
    Ok(draft)
}

fn read_lines(text: &str) -> Result<LocatedTasks, Mistake> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let tasks = lines.map(|(index, line)| {
        if line.len() > MAX_LINE_BYTES {
            return Err(Mistake::at(index + 1, TaskFieldsError::LongLine));
        }
        let fields = serde_json::from_str(line).map_err(|e| match wrong_key::in_json(line) {
            Some(why) => Mistake::at(index + 1, why),
            None => json_mistake(index + 1, &e),
        })?;
        Ok((index + 1, fields))
    });
    tasks.collect()
}

/// An error of the JSON parser, which counts lines from the beginning of the one line that it was
/// given.
fn json_mistake(line: usize, error: &serde_json::Error) -> Mistake {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let why = TaskFieldsError::Syntax(match error.is_eof() {
        true => "the line ends before its task does: write each task on one line".into(),
        false => text.to_owned(),
    });
    Mistake { line, column: Some(error.column()).filter(|column| *column > 0), why }
}

/// An error of the TOML parser. If the text has a key that no job file has, or a wrong value, the
/// mistake names the key.
fn toml_mistake(text: &str, error: &toml::de::Error) -> Mistake {
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let table = text.parse::<toml::Table>();
    let has_single_brackets =
        table.is_ok_and(|table| table.get("task").is_some_and(toml::Value::is_table));
    match (other_format(text), wrong_key::in_toml(text)) {
        _ if has_single_brackets => Mistake::at(line_at(text, at), TaskFieldsError::SingleBrackets),
        (_, Some((at, why))) => Mistake::at(line_at(text, at), why),
        (Some(format), None) => Mistake::at(1, format),
        (None, None) => syntax_mistake(text, at, error.message()),
    }
}

/// A mistake in the syntax of TOML at an offset of the text, with the line and a mark below it.
fn syntax_mistake(text: &str, at: usize, said: &str) -> Mistake {
    /// Characters of a line that are shown.
    const SHOWN: usize = 120;
    // A text without an end swallows what follows, and the parser is surprised further on.
    let (at, said) = match end_of_open_text(text, at) {
        Some(end) => (end, "invalid basic string"),
        None => (at, said),
    };
    let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let line = text[begin..].lines().next().unwrap_or_default();
    let column = text[begin..at].chars().count();
    let is_at_end = text[at..].lines().next().is_none_or(|rest| rest.trim().is_empty());
    let is_empty = is_at_end && said.starts_with("string values must be quoted");
    let said = if is_empty { "missing value" } else { said };
    let mark = if column < SHOWN { format!("\n  {}^", " ".repeat(column)) } else { String::new() };
    let shown: String = line.chars().take(SHOWN).map(|c| if c == '\t' { ' ' } else { c }).collect();
    let why = TaskFieldsError::Toml {
        why: plainly(said).replace('\n', ": "),
        line: format!("  {}{mark}", shown.trim_end()),
        has_tasks: text.lines().any(|line| line.trim_start().starts_with("[[task]]")),
    };
    Mistake { line: line_at(text, at), column: Some(column + 1), why }
}

/// The end of the first line, up to the one with this offset, that has a text in double quotes
/// without an end. Lines with comments, and texts of several lines, are not judged.
fn end_of_open_text(text: &str, at: usize) -> Option<usize> {
    if text.contains("\"\"\"") {
        return None;
    }
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let is_judged = !line.contains(['#', '\'']);
        let quotes = line.replace("\\\\", "").replace("\\\"", "").matches('"').count();
        if is_judged && quotes % 2 == 1 {
            return Some(begin + line.trim_end().len());
        }
        begin += line.len();
        if begin > at {
            break;
        }
    }
    None
}

/// The error for a text that is not TOML, if it begins like one of another format.
fn other_format(text: &str) -> Option<TaskFieldsError> {
    if text.starts_with("#!") {
        return Some(TaskFieldsError::Script);
    }
    let is_said = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let first = text.lines().map(str::trim).find(is_said)?;
    let is_key = |key: &str| key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    match first {
        "---" => Some(TaskFieldsError::Yaml),
        _ if first.starts_with("- ") => Some(TaskFieldsError::Yaml),
        _ if first.starts_with('{') || first.starts_with("[{") => {
            Some(TaskFieldsError::JsonDocument)
        }
        _ => match first.split_once(':') {
            Some((key, rest)) if is_key(key) && (rest.is_empty() || rest.starts_with(' ')) => {
                Some(TaskFieldsError::Yaml)
            }
            _ => None,
        },
    }
}

fn read_toml(text: &str) -> Result<Tables, Mistake> {
    let line_of = |offset: usize| line_at(text, offset);
    let file: JobFile = toml::from_str(text).map_err(|e| toml_mistake(text, &e))?;
    let located = |text: Option<toml::Spanned<String>>| {
        text.map(|text| (line_of(text.span().start), text.into_inner()))
    };
    let (requirements, rank) = (located(file.requirements), located(file.rank));
    if let Some((line, requirements)) = &requirements {
        check_terms(Some(requirements), None).map_err(|why| Mistake::at(*line, why))?;
    }
    if let Some((line, rank)) = &rank {
        check_terms(None, Some(rank)).map_err(|why| Mistake::at(*line, why))?;
    }
    let distribution = match file.distribution {
        Some(name) => {
            let line = line_of(name.span().start);
            name.get_ref()
                .parse()
                .map_err(|why| Mistake::at(line, TaskFieldsError::Distribution(why)))?
        }
        None => Distribution::default(),
    };
    if let Some(halt) = file.halt.as_ref().filter(|halt| halt.get_ref() != "never") {
        let why = TaskFieldsError::Halt(halt.get_ref().clone());
        return Err(Mistake::at(line_of(halt.span().start), why));
    }
    let tasks = file.task.into_iter().map(|task| {
        let line = line_of(task.span().start);
        let mut task = task.into_inner();
        // Before the requirements of all tasks are added, so that columns are those of the file.
        task.check_terms().map_err(|why| Mistake::at(line, why))?;
        task.requirements = match (&requirements, task.requirements.take()) {
            (Some((_, all)), Some(own)) => {
                Some(format!("{} && {}", in_brackets(all), in_brackets(&own)))
            }
            (all, own) => own.or_else(|| all.as_ref().map(|(_, all)| all.clone())),
        };
        task.rank = task.rank.take().or_else(|| rank.as_ref().map(|(_, rank)| rank.clone()));
        Ok((line, task))
    });
    let head = JobFileHead {
        name: file.name,
        priority: file.priority,
        reuse: file.reuse,
        never_halts: file.halt.is_some(),
        distribution,
    };
    let maps = file.map.into_iter();
    let maps = maps.map(|step| (line_of(step.span().start), step.into_inner())).collect();
    Ok(Tables { head, tasks: tasks.collect::<Result<_, _>>()?, maps })
}

/// A comment ends with its line, and must not swallow the bracket.
fn in_brackets(condition: &str) -> String {
    if condition.contains("//") { format!("({condition}\n)") } else { format!("({condition})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_that_is_no_job_file_is_named_with_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::with_access(&folder.path().join("access.toml"));
        for (name, text, says) in [
            ("none.toml", None, "none.toml: there is no such file: check the path"),
            ("", None, ": this is a folder: name the job file in it"),
            ("a.toml", Some(&b"\xff"[..]), "a.toml: the file is not text in UTF-8"),
            ("a.yaml", Some(b"x"), "a.yaml, line 1: this is YAML, but a job file is TOML"),
            ("b.toml", Some(b"# x\ntask:\n  - command: [true]"), "line 1: this is YAML"),
            ("c.toml", Some(b"---\n"), "line 1: this is YAML"),
            ("d.toml", Some(b"{\"command\": []}"), "line 1: a job file is TOML, or JSON lines"),
            ("e.sh", Some(b"#!/bin/sh\nls\n"), "line 1: this is a script, but a job file is TOML"),
            (
                "f.toml",
                Some(b"[[task]]\ncommand = [\"a\"\n"),
                "f.toml, line 2, column 15: a list has no end: write `]` behind its last value\n  \
                 command = [\"a\"\n                ^",
            ),
            (
                "h.toml",
                Some(b"[[task]]\ncommand = [\"a]\nid = \"x\"\n"),
                "h.toml, line 2, column 15: a text has no end: write `\"` behind it\n  command = \
                 [\"a]\n                ^",
            ),
            (
                "i.toml",
                Some(b"[[task]]\nid =\n"),
                "i.toml, line 2, column 5: the key has no value: write one behind the `=`\n  \
                 id =\n",
            ),
            (
                "g.toml",
                Some(b"[[task]]\nid = \"\xc3\xa9\" x\n"),
                "g.toml, line 2, column 10: there is more behind the value of a key: begin a new \
                 line, or write `#` before a comment\n  id = \"\u{e9}\" x\n           ^",
            ),
            (
                "list.txt",
                Some(b"a.fits\nb.fits\n"),
                "line 1, column 7: this is a key without a value: write KEY = VALUE. A job file \
                 has [[task]] on a line, and below it a line such as command = [\"wc\"",
            ),
            ("g.jsonl", Some(b"{\"command\": [\"a\""), "line 1, column 16: the line ends before"),
            (
                "h.toml",
                Some(b"[[task]]\ncommand = [\"a\"]\nseparator = \",\""),
                "h.toml, line 1: `separator` splits the lines of `each_line`",
            ),
            (
                "i.toml",
                Some(b"[[task]]\ncommand = [\"a\"]\nappend = true\narray = \"1-2\""),
                "i.toml, line 1: `append = true` adds the file or line of a task",
            ),
        ] {
            let path = folder.path().join(name);
            text.iter().for_each(|text| std::fs::write(&path, text).unwrap());
            let read = read_job_file(path.to_str().unwrap(), None, &cluster, |_| {}).await;
            let said = read.err().expect("it is no job file").to_string();
            assert!(said.contains(says), "{name}: {said}");
        }
    }
}
