//! Answers of the dispatcher as tables and sentences, or as JSON.

use eyas_client::types::shown::{MAX_QUOTED_CHARS, shortened, with_short_quotes};
use eyas_client::types::units::{format_bytes, format_count, format_duration_us};
use eyas_client::types::{Name, shown};
use eyas_client::view::{
    EventView, ExecutorView, Explanation, FailureView, JobState, JobView, NamedFileView,
    ObjectView, SCHEMA_VERSION, TaskView,
};
use eyas_client::{WatchEvent, name_of_user};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::error::CliError;
use crate::print::{self, out, say};
use crate::reasons::SharedReason;
use crate::words;

/// Characters of a name of a job that a table shows: one long name would widen every line.
const MAX_NAME_CHARS: usize = 60;

/// A table whose columns are as wide as their widest cell.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headings: &[&str]) -> Self {
        Table { rows: vec![headings.iter().map(|heading| heading.to_string()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        // Escaped, so that a name with a line break stays on one line.
        self.rows.push(cells.into_iter().map(|cell| shown(&cell).to_string()).collect());
    }

    pub fn print(&self) -> Result<(), CliError> {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut lines = String::new();
        for row in &self.rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, width)| padded(cell, *width, false)).collect();
            lines += cells.join("  ").trim_end();
            lines.push('\n');
        }
        Ok(print::text(&lines)?)
    }
}

/// Text with blanks up to a width. `format!` panics if a width is larger than 65,535.
pub(crate) fn padded(text: &str, width: usize, is_right: bool) -> String {
    let blanks = " ".repeat(width.saturating_sub(text.chars().count()));
    if is_right { blanks + text } else { text.to_owned() + &blanks }
}

/// Prints `{"schema_version": …, NAME: VALUE}`.
pub(crate) fn json(name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), CliError> {
    print::json(&NamedAnswer { name, value })
}

/// A value with the version of the schema. It is written as it is: a list may have a million names,
/// and its copy as a JSON value would take a gigabyte.
struct NamedAnswer<'a, T: ?Sized> {
    name: &'a str,
    value: &'a T,
}

impl<T: Serialize + ?Sized> Serialize for NamedAnswer<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("schema_version", &SCHEMA_VERSION)?;
        map.serialize_entry(self.name, self.value)?;
        map.end()
    }
}

/// Prints an event as JSON on one line, with the version of the schema.
pub(crate) fn event_line(event: &EventView) -> Result<(), CliError> {
    print::json_line(&NamedAnswer { name: "event", value: event })
}

/// Prints an object with a `schema_version` before its fields.
pub(crate) fn json_fields(fields: serde_json::Value) -> Result<(), CliError> {
    let mut object = serde_json::Map::new();
    object.insert("schema_version".into(), SCHEMA_VERSION.into());
    if let serde_json::Value::Object(fields) = fields {
        object.extend(fields);
    }
    print::json(&object)
}

pub(crate) fn state(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
        JobState::Cancelled => "cancelled",
    }
}

pub(crate) fn jobs(jobs: &[JobView]) -> Result<(), CliError> {
    let user = name_of_user();
    // Most clusters belong to one user.
    let have_owners = jobs.iter().any(|job| job.owner.user != user);
    let mut headings = vec!["JOB", "NAME"];
    headings.extend(have_owners.then_some("OWNER"));
    headings.extend([
        "STATE",
        "TASKS",
        "WAITING",
        "ASSIGNED",
        "SUCCEEDED",
        "FAILED",
        "CANCELLED",
        "TIME",
    ]);
    let mut table = Table::new(&headings);
    for job in jobs {
        let tasks = &job.tasks;
        let mut row = vec![job.job.to_string(), shortened(&job.name, MAX_NAME_CHARS).into_owned()];
        row.extend(have_owners.then(|| shortened(&job.owner.user, MAX_NAME_CHARS).into_owned()));
        row.extend([
            state(job.state).into(),
            tasks.total().to_string(),
            (tasks.waiting + tasks.blocked).to_string(),
            tasks.assigned.to_string(),
            tasks.succeeded.to_string(),
            tasks.failed.to_string(),
            tasks.cancelled.to_string(),
            format_duration_us(job.elapsed_us),
        ]);
        table.row(row);
    }
    table.print()?;
    for job in jobs {
        job.warnings.iter().for_each(|warning| say!("job {}: {warning}", job.job));
    }
    Ok(())
}

pub(crate) fn tasks(tasks: &[TaskView]) -> Result<(), CliError> {
    // Only job files give tasks an id.
    let have_ids = tasks.iter().any(|task| task.id.is_some());
    let mut headings = vec!["TASK"];
    headings.extend(have_ids.then_some("ID"));
    headings.extend([
        "STATE",
        "TRIES",
        "EXECUTOR",
        "QUEUED",
        "WAITED",
        "RAN",
        "SUSPENDED",
        "CPU",
        "MEMORY",
        "ITEM",
        "STATUS",
    ]);
    let mut table = Table::new(&headings);
    for task in tasks {
        let mut cells = vec![task.task.to_string()];
        cells.extend(have_ids.then(|| task.id.clone().unwrap_or_default()));
        cells.extend([
            task.state.clone(),
            task.tries.to_string(),
            task.executor.clone().unwrap_or_default(),
            format_duration_us(task.queued_us),
            format_duration_us(task.waited_us),
            format_duration_us(task.ran_us),
            format_duration_us(task.suspended_us),
            format_duration_us(task.cpu_us),
            known_bytes(task.peak_memory_bytes),
            quoted(&task.item),
            with_short_quotes(task.status.as_deref().unwrap_or_default()).into_owned(),
        ]);
        table.row(cells);
    }
    table.print()
}

/// An amount of memory; empty if it is unknown.
fn known_bytes(bytes: u64) -> String {
    if bytes > 0 { format_bytes(bytes) } else { String::new() }
}

pub(crate) fn executors(executors: &[ExecutorView]) -> Result<(), CliError> {
    let mut table = Table::new(&[
        "EXECUTOR", "NAME", "CPUS", "BUSY", "TASKS", "STATE", "RUN", "STAGE", "SUSP", "ENDED",
        "OBJECTS", "STORE", "OF", "LOCAL", "PEER", "STORAGE", "FILES", "LABELS",
    ]);
    for executor in executors {
        let cpus = |milli: u64| format!("{:.1}", milli as f64 / 1000.0);
        let capacity = u64::from(executor.capacity.cpus_milli);
        table.row(vec![
            executor.executor.to_string(),
            executor.name.clone(),
            cpus(capacity),
            cpus(executor.assigned_milli.min(capacity)),
            executor.assigned.to_string(),
            executor.state.clone(),
            executor.computing.to_string(),
            executor.staging.to_string(),
            executor.suspended.to_string(),
            executor.ended.to_string(),
            executor.objects.to_string(),
            format_bytes(executor.held_bytes),
            format_bytes(executor.store_bytes),
            format_bytes(executor.reads.local.bytes),
            format_bytes(executor.reads.peer.bytes),
            format_bytes(executor.reads.persistent.bytes),
            format_bytes(executor.reads.files.bytes()),
            executor
                .labels
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
                .join(" "),
        ]);
    }
    table.print()
}

pub(crate) fn objects(objects: &[ObjectView]) -> Result<(), CliError> {
    let names =
        |executors: &[String]| if executors.is_empty() { "-".into() } else { executors.join(" ") };
    let mut table = Table::new(&["OBJECT", "SIZE", "WANTED", "HELD BY", "COMING TO", "SOURCE"]);
    for object in objects {
        table.row(vec![
            object.object.to_string(),
            format_bytes(object.size_bytes),
            object.wanted.to_string(),
            names(&object.holders),
            names(&object.receivers),
            object.source.as_ref().map(Name::to_string).unwrap_or_default(),
        ]);
    }
    table.print()
}

pub(crate) fn names(names: &[NamedFileView]) -> Result<(), CliError> {
    let mut table = Table::new(&["NAME", "SIZE", "SHA-256", "PLACE", "PASSED OVER"]);
    for file in names {
        let mut own = [
            file.name.to_string(),
            file.size_bytes.map_or_else(|| "-".into(), format_bytes),
            // The first digits tell contents apart; JSON has all.
            file.sha256.map_or_else(|| "-".into(), |sum| sum.to_string()[..12].to_owned()),
        ];
        for place in &file.places {
            let passed_over = place.passed_over.as_ref().map_or_else(
                || "-".into(),
                |last| {
                    let why = format!("{}: {}", last.executor, last.why);
                    shortened(&why, MAX_QUOTED_CHARS).into_owned()
                },
            );
            let [name, size, sum] = std::mem::take(&mut own);
            table.row(vec![name, size, sum, place.url.to_string(), passed_over]);
        }
    }
    table.print()
}

pub(crate) fn explanation(explanation: &Explanation) -> Result<(), CliError> {
    let task = &explanation.task;
    let item =
        if task.item.is_empty() { String::new() } else { format!(" ({})", quoted(&task.item)) };
    out!("Task {}{item}: {}.", task.task, task.state)?;
    if !task.command.is_empty() {
        out!("Its command: {}", shortened(&command_line(&task.command), MAX_QUOTED_CHARS))?;
    }
    explanation.because.iter().try_for_each(|line| out!("{line}"))?;
    if explanation.inputs.is_empty() {
        return Ok(());
    }
    out!()?;
    objects(&explanation.inputs)
}

/// Prints that the dispatcher of a watched job is lost, or is back.
pub(crate) fn seen(seen: &WatchEvent) {
    match seen {
        WatchEvent::Lost(why) => say!("{why}; trying to reconnect"),
        WatchEvent::Back => say!("the dispatcher is back"),
        WatchEvent::Results(_) | WatchEvent::Failures(_) | WatchEvent::Progress(_) => {}
    }
}

/// The message about a job that continues when its cluster is started again.
pub(crate) fn unfinished(job: &JobView) -> String {
    let (left, all) =
        (job.tasks.total() - job.tasks.ended(), format_count(job.tasks.total(), "task"));
    let name = shown(&job.name);
    format!(
        "eyas: job {0} (`{name}`) continues: {left} of {all} are left; `eyas job cancel {0}` \
         cancels it",
        job.job
    )
}

/// A command as a shell reads it, but for characters that act on a terminal, which are escaped.
pub(crate) fn command_line(words: &[Name]) -> String {
    let shown: Vec<_> = words.iter().map(|word| Name::from(shown(word).to_string())).collect();
    String::from_utf8_lossy(&words::command_line(&shown)).into_owned()
}

/// An item, which may have megabytes, as a message shows it.
fn quoted(item: &Name) -> String {
    shortened(&shown(item).to_string(), MAX_QUOTED_CHARS).into_owned()
}

/// Details of a failed task beside its status: id, item, command, and the last lines of its
/// standard error.
pub(crate) fn details(failure: &FailureView) -> Vec<String> {
    let FailureView { id, item, command, stderr, .. } = failure;
    let mut lines = Vec::new();
    lines.extend(id.as_ref().map(|id| format!("id: {}", shown(id))));
    if !item.is_empty() {
        lines.push(format!("item: {}", quoted(item)));
    }
    if !command.is_empty() {
        lines.push(format!("command: {}", shortened(&command_line(command), MAX_QUOTED_CHARS)));
    }
    if !stderr.is_empty() {
        lines.push("last lines of standard error:".into());
        lines.extend(stderr.lines().map(|line| format!("  {line}")));
    }
    lines
}

/// The message about a failed task.
pub(crate) fn failure(task: &str, failure: &FailureView) -> String {
    let lines = details(failure).into_iter().map(|line| format!("\n  {line}"));
    format!("task {task} did not succeed: {}{}", failure.status, lines.collect::<String>())
}

/// The message about tasks that failed for the same reason, with the first of them.
pub(crate) fn failures(reason: &SharedReason, first: &FailureView) -> String {
    if reason.tasks.count() == 1 {
        return failure(&first.task.to_string(), first);
    }
    let lines = details(first).into_iter().map(|line| format!("\n    {line}"));
    format!(
        "{} did not succeed: {}\n  the first of them:{}",
        reason.tasks.in_words(),
        first.status,
        lines.collect::<String>()
    )
}

/// The message about captured output that was cut off.
pub(crate) fn cut(bytes: u64) -> String {
    format!(
        "{bytes} bytes of output were cut off: the output exceeds --max-output or --capture of \
         `eyas run`, `capture` in the job file, or the dispatcher's limit for captured output; \
         let tasks write large output to files"
    )
}

/// A rate with enough digits to distinguish it from 0: `0.29`, `4.5`, `120`.
pub(crate) fn format_rate(rate: f64) -> String {
    match rate {
        10.0.. => format!("{rate:.0}"),
        1.0..10.0 => format!("{rate:.1}"),
        0.01..1.0 => format!("{rate:.2}"),
        rate if rate > 0.0 => format!("{rate:.4}"),
        _ => "0".into(),
    }
}

/// The message about a job that has ended.
pub(crate) fn summary(job: &JobView) -> String {
    let tasks = &job.tasks;
    let seconds = job.elapsed_us as f64 / 1e6;
    let mut words =
        format!("{} of {} succeeded", tasks.succeeded, format_count(tasks.total(), "task"));
    if tasks.failed > 0 {
        words += &format!(", {} failed", tasks.failed);
    }
    if tasks.cancelled > 0 {
        words += &format!(", {} cancelled", tasks.cancelled);
    }
    if job.reused > 0 {
        words += &format!(", {} of them reused", job.reused);
    }
    if job.recomputed > 0 {
        words += &format!(", {} ran again because their kept outputs were lost", job.recomputed);
    }
    let rate = tasks.ended() as f64 / seconds.max(1e-6);
    words += &format!(" in {} ({}/s)", format_duration_us(job.elapsed_us), format_rate(rate));
    let reads = &job.reads;
    if reads.bytes() > 0 {
        let percent = |bytes: u64| 100.0 * bytes as f64 / reads.bytes() as f64;
        words += &format!(
            "; read {}: {:.0}% from local stores, {:.0}% from peers, {:.0}% from persistent \
             storage",
            format_bytes(reads.bytes()),
            percent(reads.local.bytes),
            percent(reads.peer.bytes),
            percent(reads.persistent.bytes)
        );
        if reads.files.count > 0 {
            words += &format!(
                ", {:.0}% from files of the cluster ({:.0}% on the task's own node)",
                percent(reads.files.bytes()),
                percent(reads.files.own_bytes)
            );
        }
    }
    words
}
