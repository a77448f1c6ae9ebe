//! Results on standard output, in the order of their ends or of the items, and progress on standard
//! error.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use eyas_client::messages::{FromClient, TaskResult, ToClient};
use eyas_client::types::task::STREAMS;
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name, Status, TaskId};
use eyas_client::view::{FailureView, TaskCounts};
use eyas_client::{Client, GetRequest, ScratchFolder, TaskTexts, WatchEvent};
use eyas_session::Access;
use eyas_session::private::temporary_folder;
use tokio::sync::mpsc::UnboundedSender;

use super::halt::{Halt, HaltWatch};
use super::result_files::ResultFiles;
use super::tag::LineTag;
use crate::door::advice_in_own_words;
use crate::error::CliError;
use crate::print::{self, PrintError, say};
use crate::reasons::{FailureReasons, SharedReason, Told};
use crate::show;
use crate::waiting::ProgressDisplay;

/// With `--keep-order`, early results are buffered up to this size. Results beyond it are dropped,
/// and requested again when it is their turn.
const MAX_EARLY_BYTES: usize = 64 << 20;
/// Tasks whose output was cut off that one message names.
const MAX_NAMED_CUT: usize = 10;
/// Bytes of a stream that are printed at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Prints results on standard output, and progress on standard error.
pub(super) struct ResultPrinter {
    options: PrintOptions,
    /// With `keep_order`, the index of the next result to print.
    next: u32,
    /// With `keep_order`, later results; `None` if the result was dropped to save memory.
    early: BTreeMap<u32, Option<TaskResult>>,
    /// Size of the results in `early`.
    early_bytes: usize,
    /// Indices of the results seen so far: a second watch reports all results again.
    seen: HashSet<u32>,
    failures: FailureReasons,
    done_ends: DoneEnds,
    /// Descriptions of failed tasks whose results have not been printed yet.
    described: BTreeMap<u32, FailureView>,
    /// Bytes that tasks wrote beyond the limit on output.
    cut_bytes: u64,
    /// Indices of these tasks.
    cut: Vec<u32>,
    pub error: Option<PrintError>,
    pub progress: ProgressDisplay,
    /// What is written beside the printed results.
    pub files: ResultFiles,
    halt: HaltWatch,
    /// Told when the job is to stop.
    stops: UnboundedSender<Stop>,
}

/// How results are printed.
pub(super) struct PrintOptions {
    pub keep_order: bool,
    /// Whether other tasks print before or after each task.
    pub is_joined: bool,
    /// The job, if it stays: messages then name its tasks as other commands do.
    pub job: Option<JobId>,
    /// The items of tasks, if they begin the lines of output.
    pub tags: Option<TaskTexts>,
    /// Whether an earlier run has done the task, by its index: nothing of it is printed.
    pub done: Vec<bool>,
}

/// Number of no-op tasks that have ended. They stand for tasks that an earlier run has done.
#[derive(Clone, Copy, Debug, Default)]
struct DoneEnds {
    succeeded: u64,
    cancelled: u64,
}

/// Why a job stops before its end.
pub(super) enum Stop {
    /// No executor can run the tasks that are left.
    Stuck,
    /// A rule says so.
    Halt(Halt),
}

impl ResultPrinter {
    pub fn new(
        options: PrintOptions,
        progress: ProgressDisplay,
        files: ResultFiles,
        halt: HaltWatch,
        stops: UnboundedSender<Stop>,
    ) -> Self {
        ResultPrinter {
            options,
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            seen: HashSet::new(),
            failures: FailureReasons::default(),
            done_ends: DoneEnds::default(),
            described: BTreeMap::new(),
            cut_bytes: 0,
            cut: Vec::new(),
            error: None,
            progress,
            files,
            halt,
            stops,
        }
    }

    /// The name of a task in messages.
    fn name(&self, index: u32) -> String {
        self.options.job.map_or_else(|| index.to_string(), |job| TaskId { job, index }.to_string())
    }

    /// Takes tasks that an earlier run has done out of the counts of the job.
    pub fn without_done(&self, counts: &mut TaskCounts) {
        counts.succeeded = counts.succeeded.saturating_sub(self.done_ends.succeeded);
        counts.cancelled = counts.cancelled.saturating_sub(self.done_ends.cancelled);
    }

    fn is_done_before(&self, index: u32) -> bool {
        self.options.done.get(index as usize) == Some(&true)
    }

    pub fn see(&mut self, seen: WatchEvent) {
        self.progress.see(&seen);
        match seen {
            WatchEvent::Results(results) => {
                results.into_iter().for_each(|result| self.result(result));
                self.files.flush();
            }
            WatchEvent::Failures(failures) => {
                self.described.extend(failures.into_iter().map(|view| (view.task.index, view)))
            }
            // If nobody waits for this, the job goes on.
            WatchEvent::Progress(view) if view.is_stuck => drop(self.stops.send(Stop::Stuck)),
            WatchEvent::Progress(_) | WatchEvent::Lost(_) | WatchEvent::Back => {}
        }
    }

    fn result(&mut self, result: TaskResult) {
        if !self.seen.insert(result.index) {
            return;
        }
        if self.is_done_before(result.index) {
            match result.outcome.status {
                Status::Cancelled => self.done_ends.cancelled += 1,
                _ => self.done_ends.succeeded += 1,
            }
        } else {
            self.files.ended(&result);
            if let Some(halt) = self.halt.note(&result.outcome.status) {
                let _ = self.stops.send(Stop::Halt(halt));
            }
        }
        if !self.options.keep_order && !has_stream(&result) {
            return self.print(&result);
        }
        let bytes = result.outcome.stdout.len() + result.outcome.stderr.len();
        let keep = self.early_bytes + bytes <= MAX_EARLY_BYTES || result.index == self.next;
        self.early_bytes += if keep { bytes } else { 0 };
        self.early.insert(result.index, keep.then_some(result));
        // What is fetched from executors comes last, and what follows it in the order of the items.
        let is_next =
            |own: &Self| matches!(own.early.get(&own.next), Some(Some(next)) if !has_stream(next));
        while self.options.keep_order && is_next(self) {
            if let Some(Some(result)) = self.early.remove(&self.next) {
                self.early_bytes -= result.outcome.stdout.len() + result.outcome.stderr.len();
                self.print(&result);
            }
            self.next += 1;
        }
    }

    /// Prints the results that are still buffered, in order, and requests again those that were
    /// dropped. Fetches streams that executors keep, and lets go of them.
    pub async fn finish(&mut self, access: &Access, job: JobId) -> Result<(), CliError> {
        self.progress.clear();
        let early = std::mem::take(&mut self.early);
        let (mut client, mut has_streams) = (None, false);
        for (index, result) in early {
            let result = match result {
                Some(result) => Some(result),
                None => {
                    if client.is_none() {
                        client = Some(Client::connect(access).await?);
                    }
                    let task = TaskId { job, index };
                    match client
                        .as_mut()
                        .expect("just connected")
                        .ask(FromClient::Log { task })
                        .await?
                    {
                        ToClient::Log(result) => result.map(|result| *result),
                        _ => None,
                    }
                }
            };
            match result {
                Some(result) if has_stream(&result) => {
                    if client.is_none() {
                        client = Some(Client::connect(access).await?);
                    }
                    has_streams = true;
                    self.print_streams(client.as_mut().expect("just connected"), job, &result)
                        .await?;
                }
                result => result.iter().for_each(|result| self.print(result)),
            }
        }
        if let Some(client) = client.as_mut().filter(|_| has_streams) {
            // If the dispatcher is gone, so is the job.
            let _ = client.ask(FromClient::Release { job }).await;
        }
        self.say_shared_reasons();
        if let [_, ..] = self.cut[..] {
            let cut = self.cut.iter().take(MAX_NAMED_CUT);
            let named: Vec<_> = cut.map(|index| self.name(*index)).collect();
            let more = if self.cut.len() > MAX_NAMED_CUT { ", …" } else { "" };
            say!("{} (of task {}{more})", show::cut(self.cut_bytes), named.join(", "));
        }
        Ok(())
    }

    /// Says which further tasks failed for reasons that were told with the first task.
    fn say_shared_reasons(&self) {
        let is_shared = |reason: &&SharedReason| reason.further.count() > 0;
        for SharedReason { further, first: (first, _), .. } in
            self.failures.reasons().iter().filter(is_shared)
        {
            let further = further.in_words();
            say!("{further} did not succeed for the same reason as task {first}");
        }
        self.failures.of_dependents().iter().for_each(|message| say!("{message}"));
        if self.failures.others() > 0 {
            let more = format_count(self.failures.others(), "more task");
            say!("{more} did not succeed for other reasons: the report has them");
        }
    }

    /// Whether output of a task was cut off.
    pub fn has_cut(&self) -> bool {
        !self.cut.is_empty()
    }

    /// Prints a result with whole streams that executors keep.
    async fn print_streams(
        &mut self,
        client: &mut Client,
        job: JobId,
        result: &TaskResult,
    ) -> Result<(), CliError> {
        let TaskResult { index, outcome, .. } = result;
        if self.error.is_some() && self.files.folder.is_none() {
            return Ok(());
        }
        let folder = ScratchFolder::make(&temporary_folder(), "output")?;
        let kept = outcome
            .outputs
            .iter()
            .filter_map(|delivered| Some((delivered.object.kept_file()?, delivered)));
        let files = kept.clone().map(|(name, _)| Name::from(name)).collect();
        let to = folder.path().to_owned();
        let request = GetRequest { job, task: Some(*index), files, to, replaces: true };
        if let Err(e) = client.get(&request, Duration::ZERO, |_| {}).await {
            let task = self.name(*index);
            say!("the whole output of task {task} cannot be fetched from its executor: {e}");
            self.print(result);
            return Ok(());
        }
        let in_result = |name: &[u8]| {
            if name == STREAMS[0].as_bytes() { &outcome.stdout } else { &outcome.stderr }
        };
        let whole: u64 =
            kept.map(|(name, kept)| kept.object.size_bytes() - in_result(name).len() as u64).sum();
        self.note_cut(*index, outcome.cut_bytes.saturating_sub(whole));
        self.files.write(result, Some(folder.path()));
        if self.error.is_some() {
            return Ok(());
        }
        let [mut out, mut err] = self.line_tags(*index);
        let written = self.progress.suspend(|| {
            let print_to_stderr = |bytes: &[u8]| {
                print::bytes_to_stderr(&err.part(bytes));
                Ok(())
            };
            print_stream(&folder.path().join(STREAMS[1]), &outcome.stderr, print_to_stderr)?;
            print_stream(&folder.path().join(STREAMS[0]), &outcome.stdout, |bytes| {
                Ok(print::bytes(&out.part(bytes))?)
            })
        });
        match written {
            Err(StreamError::Print(error)) => self.error = Some(error),
            Err(StreamError::Read(error)) => return Err(error.into()),
            Ok(()) => self.files.delivered(result),
        }
        Ok(())
    }

    fn note_cut(&mut self, index: u32, bytes: u64) {
        if bytes > 0 {
            self.cut_bytes += bytes;
            self.cut.push(index);
        }
    }

    /// The tags of both streams of a task.
    fn line_tags(&self, index: u32) -> [LineTag; 2] {
        let item = self.options.tags.as_ref().map(|texts| texts.item(index));
        [(); 2].map(|()| LineTag::new(item.as_deref()))
    }

    fn print(&mut self, result: &TaskResult) {
        if self.is_done_before(result.index) {
            return;
        }
        self.files.write(result, None);
        let outcome = &result.outcome;
        let failed = !matches!(outcome.status, Status::Succeeded | Status::Cancelled);
        let has_output = !outcome.stdout.is_empty() || !outcome.stderr.is_empty() || failed;
        if self.error.is_none() && !has_output {
            self.files.delivered(result);
        }
        if self.error.is_some() || !has_output {
            return;
        }
        self.note_cut(result.index, outcome.cut_bytes);
        let described = self.described.remove(&result.index);
        let name = self.name(result.index);
        let is_told = failed && {
            let status = outcome.in_words(None);
            let task = (name.clone(), result.index);
            self.failures.add(task, &status, &outcome.stderr) == Told::First
        };
        let end_of = |output| if self.options.is_joined { print::end_of_part(output) } else { b"" };
        let [mut out, mut err] = self.line_tags(result.index);
        let written = self.progress.suspend(|| {
            print::bytes_to_stderr(&err.part(&advice_in_own_words(&outcome.stderr)));
            print::bytes_to_stderr(end_of(&outcome.stderr));
            match (is_told, described) {
                // The whole standard error has just been printed.
                (true, Some(view)) => {
                    let view = FailureView { stderr: String::new(), ..view };
                    say!("{}", show::failure(&name, &view));
                }
                (true, None) => {
                    say!("task {name} did not succeed: {}", outcome.in_words(None))
                }
                (false, _) => {}
            }
            print::bytes(&out.part(&outcome.stdout))?;
            print::bytes(end_of(&outcome.stdout))
        });
        self.error = written.err();
        if self.error.is_none() {
            self.files.delivered(result);
        }
    }
}

/// Whether executors keep a stream of the task, because it is too large for its result.
fn has_stream(result: &TaskResult) -> bool {
    result.outcome.outputs.iter().any(|delivered| delivered.object.is_kept())
}

/// Why a stream cannot be printed.
enum StreamError {
    Read(std::io::Error),
    Print(PrintError),
}

impl From<std::io::Error> for StreamError {
    fn from(error: std::io::Error) -> Self {
        StreamError::Read(error)
    }
}

impl From<PrintError> for StreamError {
    fn from(error: PrintError) -> Self {
        StreamError::Print(error)
    }
}

/// Prints the whole stream in a file, or what the result has if there is no file.
fn print_stream(
    path: &Path,
    in_result: &[u8],
    mut print: impl FnMut(&[u8]) -> Result<(), StreamError>,
) -> Result<(), StreamError> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return print(in_result),
        opened => opened?,
    };
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => print(&buffer[..count])?,
        }
    }
}
