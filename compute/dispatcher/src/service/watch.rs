//! Watching a job: its progress and its results, numbered in the order of their arrival. A client
//! that was interrupted watches again from the number after the last result that it has, and misses
//! none.

use std::collections::VecDeque;
use std::ops::Range;

use eyas_types::{JobId, Status, TaskResult};
use eyas_wire::client::{OutputFile, OutputInFile};
use eyas_wire::view::{FailureView, JobView};
use tokio::sync::watch;

use super::answer::{Answer, ServiceError};
use super::handle::DispatcherHandle;
use crate::durable_replies::JobProgress;
use crate::journal::{JournalError, OutputRange};
use crate::log::{Log, OutputDetail};

/// Journal entries that are read at a time.
const ENTRIES_AT_ONCE: u64 = 8;
/// Failed tasks that a watch describes; of others it has only the results.
const MAX_FAILURES: usize = 20;

/// The results that a watch tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedResults {
    /// None: only progress.
    None,
    /// All, with their captured output.
    Whole,
    /// All, with the places of captured output that is in a file on the dispatcher's host.
    WithPlaces,
}

/// An event of a job that is watched.
#[derive(Debug, PartialEq)]
pub enum JobWatchEvent {
    /// Why tasks failed whose results follow.
    Failures(Vec<FailureView>),
    /// Results.
    Results(NumberedResults),
    /// The state of the job. Everything that it counts is on disk.
    Progress(Box<JobView>),
    /// The final state of the job; the last event.
    Over(Box<JobView>),
}

/// Results in the order of their arrival.
#[derive(Debug, PartialEq)]
pub struct NumberedResults {
    /// The number of the first one: that of all results before it.
    pub first: u64,
    /// The results.
    pub results: Vec<TaskResult>,
    /// The file with captured output of some of them, and where it is in there.
    pub outputs: Option<(OutputFile, Vec<OutputInFile>)>,
}

/// The events of a job until its end.
pub struct JobWatch {
    dispatcher: DispatcherHandle,
    job: JobId,
    progress: watch::Receiver<JobProgress>,
    results: WatchedResults,
    /// The journal entry that is read next.
    entry: u64,
    /// Number of the next result in the journal.
    number: u64,
    /// Results with lower numbers are left out.
    from: u64,
    /// Failures that are still described.
    failures: usize,
    /// Events that were read.
    ready: VecDeque<JobWatchEvent>,
    /// The state that is told once the results that it counts were.
    latest: Option<JobProgress>,
    is_over: bool,
}

impl JobWatch {
    pub(super) fn new(
        dispatcher: DispatcherHandle,
        job: JobId,
        mut progress: watch::Receiver<JobProgress>,
        results: WatchedResults,
        from: u64,
    ) -> Self {
        // Results that were removed have numbers, too: a client has seen them, or later ones of the
        // same tasks.
        let number = progress.borrow().dropped_results;
        progress.mark_changed();
        JobWatch {
            dispatcher,
            job,
            progress,
            results,
            entry: 0,
            number,
            from,
            failures: MAX_FAILURES,
            ready: VecDeque::new(),
            latest: None,
            is_over: false,
        }
    }

    /// The next event, once there is one; `None` after the last one. Cancelling this future loses
    /// nothing.
    ///
    /// # Errors
    /// If the dispatcher ends, or results cannot be read.
    pub async fn next(&mut self) -> Answer<Option<JobWatchEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if self.is_over {
                return Ok(None);
            }
            if let Some(latest) = &self.latest
                && self.results != WatchedResults::None
                && self.entry < latest.entries
            {
                self.read(latest.entries.min(self.entry + ENTRIES_AT_ONCE)).await?;
                continue;
            }
            if let Some(latest) = self.latest.take() {
                self.is_over = latest.is_over;
                let view = Box::new(latest.view);
                return Ok(Some(if self.is_over {
                    JobWatchEvent::Over(view)
                } else {
                    JobWatchEvent::Progress(view)
                }));
            }
            self.progress.changed().await.map_err(|_| ServiceError::Stopping)?;
            self.latest = Some(self.progress.borrow_and_update().clone());
        }
    }

    /// Reads the journal entries before `to`.
    async fn read(&mut self, to: u64) -> Answer<()> {
        let (log, job, entries, results) =
            (self.dispatcher.log.clone(), self.job, self.entry..to, self.results);
        let read =
            tokio::task::spawn_blocking(move || read_entries(&*log, job, entries, results)).await;
        let (mut events, mut number, mut failures) = (Vec::new(), self.number, self.failures);
        for (mut results, outputs) in read.map_err(|_| ServiceError::Unread)?? {
            let skipped = self.from.saturating_sub(number).min(results.len() as u64);
            let first = number + skipped;
            number += results.len() as u64;
            results.drain(..skipped as usize);
            let has_failed = |result: &&TaskResult| {
                !matches!(result.outcome.status, Status::Succeeded | Status::Cancelled)
            };
            let failed = results.iter().filter(has_failed).map(|result| result.index);
            let failed: Vec<_> = failed.take(failures).collect();
            if !failed.is_empty() {
                failures -= failed.len();
                events.push(JobWatchEvent::Failures(self.dispatcher.failures(job, failed).await?));
            }
            let outputs: Vec<_> =
                outputs.into_iter().filter_map(|place| place.for_client(skipped as u32)).collect();
            let outputs = match outputs.is_empty() {
                true => None,
                false => Some((self.dispatcher.log.output_file(job)?, outputs)),
            };
            if !results.is_empty() {
                events.push(JobWatchEvent::Results(NumberedResults { first, results, outputs }));
            }
        }
        (self.entry, self.number, self.failures) = (to, number, failures);
        self.ready.extend(events);
        Ok(())
    }
}

/// Results of a journal entry, and the places of output that the client reads itself.
type EntryResults = (Vec<TaskResult>, Vec<OutputRange>);

fn read_entries(
    log: &dyn Log,
    job: JobId,
    entries: Range<u64>,
    results: WatchedResults,
) -> Result<Vec<EntryResults>, JournalError> {
    let captured = match results {
        WatchedResults::WithPlaces => OutputDetail::Places,
        WatchedResults::None | WatchedResults::Whole => OutputDetail::New,
    };
    let read = log.results(job, entries, captured)?;
    Ok(read.into_iter().map(|(entry, places)| (entry.into_results(), places)).collect())
}
