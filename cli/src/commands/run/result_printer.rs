//! Results on standard output, in the order of their ends or of the items, and progress on standard error.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use eyas_client::messages::{FromClient, TaskResult, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Status, TaskId};
use eyas_client::view::FailureView;
use eyas_client::{Client, WatchEvent};
use eyas_session::Access;
use tokio::sync::Notify;

use crate::error::CliError;
use crate::print::{self, PrintError, say};
use crate::show;
use crate::waiting::{MAX_DESCRIBED_FAILURES, ProgressDisplay};

/// With `--keep-order`, early results are buffered up to this size. Results beyond it are dropped, and requested again
/// when it is their turn.
const MAX_EARLY_BYTES: usize = 64 << 20;

/// Prints results on standard output, and progress on standard error.
pub(super) struct ResultPrinter {
    keep_order: bool,
    /// Whether other tasks print before or after each task.
    is_joined: bool,
    /// With `keep_order`, the index of the next result to print.
    next: u32,
    /// With `keep_order`, later results; `None` if the result was dropped to save memory.
    early: BTreeMap<u32, Option<TaskResult>>,
    /// Size of the results in `early`.
    early_bytes: usize,
    /// Indices of the results seen so far: a second watch reports all results again.
    seen: HashSet<u32>,
    failures: u64,
    /// Descriptions of failed tasks whose results have not been printed yet.
    described: BTreeMap<u32, FailureView>,
    /// Bytes that tasks wrote beyond the limit on captured output.
    cut_bytes: u64,
    pub error: Option<PrintError>,
    pub progress: ProgressDisplay,
    /// Notified when the job cannot continue.
    stuck: Option<Arc<Notify>>,
}

impl ResultPrinter {
    pub fn new(keep_order: bool, is_joined: bool, progress: ProgressDisplay, stuck: Option<Arc<Notify>>) -> Self {
        ResultPrinter {
            keep_order,
            is_joined,
            next: 0,
            early: BTreeMap::new(),
            early_bytes: 0,
            seen: HashSet::new(),
            failures: 0,
            described: BTreeMap::new(),
            cut_bytes: 0,
            error: None,
            progress,
            stuck,
        }
    }

    pub fn see(&mut self, seen: WatchEvent) {
        self.progress.see(&seen);
        match seen {
            WatchEvent::Results(results) => results.into_iter().for_each(|result| self.result(result)),
            WatchEvent::Failures(failures) => {
                self.described.extend(failures.into_iter().map(|view| (view.task.index, view)))
            }
            WatchEvent::Progress(view) if view.is_stuck => self.stuck.iter().for_each(|stuck| stuck.notify_one()),
            WatchEvent::Progress(_) | WatchEvent::Lost(_) | WatchEvent::Back => {}
        }
    }

    fn result(&mut self, result: TaskResult) {
        if !self.seen.insert(result.index) {
            return;
        }
        if !self.keep_order {
            return self.print(&result);
        }
        let bytes = result.outcome.stdout.len() + result.outcome.stderr.len();
        let keep = self.early_bytes + bytes <= MAX_EARLY_BYTES || result.index == self.next;
        self.early_bytes += if keep { bytes } else { 0 };
        self.early.insert(result.index, keep.then_some(result));
        while let Some(Some(_)) = self.early.get(&self.next) {
            if let Some(Some(result)) = self.early.remove(&self.next) {
                self.early_bytes -= result.outcome.stdout.len() + result.outcome.stderr.len();
                self.print(&result);
            }
            self.next += 1;
        }
    }

    /// Prints the results that are still buffered, in order, and requests again those that were dropped.
    pub async fn finish(&mut self, access: &Access, job: JobId) -> Result<(), CliError> {
        self.progress.clear();
        let early = std::mem::take(&mut self.early);
        let mut client = None;
        for (index, result) in early {
            let result = match result {
                Some(result) => Some(result),
                None => {
                    if client.is_none() {
                        client = Some(Client::connect(access).await?);
                    }
                    let task = TaskId { job, index };
                    match client.as_mut().expect("just connected").ask(FromClient::Log { task }).await? {
                        ToClient::Log(result) => result.map(|result| *result),
                        _ => None,
                    }
                }
            };
            result.iter().for_each(|result| self.print(result));
        }
        if self.failures > MAX_DESCRIBED_FAILURES as u64 {
            say!("{} did not succeed", format_count(self.failures - MAX_DESCRIBED_FAILURES as u64, "more task"));
        }
        if self.cut_bytes > 0 {
            say!("{}", show::cut(self.cut_bytes));
        }
        Ok(())
    }

    fn print(&mut self, result: &TaskResult) {
        let outcome = &result.outcome;
        let failed = !matches!(outcome.status, Status::Succeeded | Status::Cancelled);
        let has_output = !outcome.stdout.is_empty() || !outcome.stderr.is_empty() || failed;
        if self.error.is_some() || !has_output {
            return;
        }
        self.failures += u64::from(failed);
        self.cut_bytes += outcome.cut_bytes;
        let described = self.described.remove(&result.index);
        let named = failed && self.failures <= MAX_DESCRIBED_FAILURES as u64;
        let end_of = |output| if self.is_joined { print::end_of_part(output) } else { b"" };
        let written = self.progress.suspend(|| {
            print::bytes_to_stderr(&outcome.stderr);
            print::bytes_to_stderr(end_of(&outcome.stderr));
            match (named, described) {
                // The whole standard error has just been printed.
                (true, Some(view)) => {
                    let view = FailureView { stderr: String::new(), ..view };
                    say!("{}", show::failure(&result.index.to_string(), &view));
                }
                (true, None) => say!("task {} did not succeed: {}", result.index, outcome.status),
                (false, _) => {}
            }
            print::bytes(&outcome.stdout)?;
            print::bytes(end_of(&outcome.stdout))
        });
        self.error = written.err();
    }
}
