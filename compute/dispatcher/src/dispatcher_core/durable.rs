//! Durability: what the core writes to the journal, reads from it, and shows once it is on disk.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use eyas_jobs::{self as jobs, Entry, JobSpec, JobSummary, JournalRecord, Phase, Replay};
use eyas_sched::MAX_HINTS;
use eyas_types::{JobId, ObjectId, ObjectSpec, OutputSpec};
use eyas_wire::client::{KeptOutput, KeptPart, ToClient};
use tokio::sync::oneshot;

use super::DispatcherCore;
use crate::durable_replies::JobProgress;
use crate::journal::{JournalError, WrittenRecord, tell_difference};

/// Tasks, and outputs of tasks, in one answer about what a job keeps.
const TOLD_AT_ONCE: usize = 4096;

impl DispatcherCore {
    /// Reads the jobs of the journal. Jobs that had not ended continue.
    pub fn recover(&mut self) -> Result<(), JournalError> {
        for (id, summary) in self.journal.jobs()? {
            if let Some(summary) = summary {
                self.replies.offer(id, self.progress_of_archived(&summary));
                self.tell_jobs(jobs::Event::RecoveredSummary { summary: Box::new(summary) });
                continue;
            }
            let replay = self.journal.load(id, std::iter::empty())?;
            self.tell_jobs(jobs::Event::Recovered { replay: Box::new(replay) });
            let Some(job) = self.jobs.get(id) else { continue };
            if !job.has_ended() {
                tracing::info!(job = %id, ended = job.counts.ended(), of = job.counts.total(), "goes on");
            }
            let standing = self.standing(job);
            self.replies.offer(id, standing);
        }
        self.finish_pushes();
        Ok(())
    }

    /// Accepts a job; it is queued once it is on disk.
    pub(super) fn submitted(&mut self, spec: JobSpec, reply: oneshot::Sender<ToClient>) {
        if self.stopping_us.is_some() {
            let _ = reply.send(ToClient::Refused("the cluster is stopping".into()));
            return;
        }
        // Streams are held until the client has them, also by executors that keep nothing else.
        let is_kept = |output: &OutputSpec| output.replicas > 0 && !output.is_stream();
        let keeps = spec.templates.iter().flat_map(|template| &template.outputs).any(is_kept);
        let pushes = !spec.pushed().is_empty();
        if (keeps || pushes) && !self.caching {
            let otherwise = if keeps { "write outputs to persistent storage" } else { "do not push inputs" };
            let why = format!(
                "policy {} has executors keep nothing: {otherwise}, or start the dispatcher with another policy",
                self.policy
            );
            let _ = reply.send(ToClient::Refused(why));
            return;
        }
        let is_lent = |object: &&ObjectSpec| !object.is_kept() || self.jobs.lends(object.id());
        if let Some(object) = spec.objects.iter().find(|object| !is_lent(object)) {
            let source = &object.source;
            let why = format!("`{source}` was released or replaced while the job was submitted: submit the job again");
            let _ = reply.send(ToClient::Refused(why));
            return;
        }
        let job = self.jobs.next_job();
        self.tell_jobs(jobs::Event::Submitted { spec: Box::new(spec) });
        self.replies.answer(ToClient::Accepted { job }, reply);
    }

    /// Gives a record to the journal.
    pub(super) fn write(&mut self, record: JournalRecord) {
        match &record {
            JournalRecord::Job { .. } | JournalRecord::Objects { .. } => {}
            JournalRecord::Entry { job, number, entry } => {
                self.unwritten.insert((*job, *number), entry.clone());
                self.writing = true;
            }
            JournalRecord::Snapshot { .. } => {}
            JournalRecord::Forget { job } => {
                self.replies.forget(*job);
                self.loaded.take_if(|loaded| loaded.id == *job);
            }
        }
        self.replies.put();
        // Clients that watch the job again count its results anew.
        if let JournalRecord::Snapshot { job, summary, drops_results: true, .. } = &record {
            match summary {
                Some(summary) => self.replies.show(*job, self.progress_of_archived(summary)),
                None => self.show(*job),
            }
        }
        self.journal.write(record);
    }

    /// An entry that is not on disk yet.
    pub(crate) fn unwritten_entry(&self, job: JobId, number: u64) -> Option<&Arc<Entry>> {
        self.unwritten.get(&(job, number))
    }

    /// Handles records that are now on disk.
    pub(super) fn written(&mut self, written: &[WrittenRecord]) {
        for what in written {
            match what {
                WrittenRecord::Job(id) => {
                    if let Some(job) = self.jobs.get(*id) {
                        let standing = self.standing(job);
                        self.replies.offer(*id, standing);
                        self.tell_jobs(jobs::Event::Accepted { job: *id });
                        self.finish_pushes();
                    }
                }
                WrittenRecord::Entries(id, before) => {
                    self.writing = false;
                    let done = self.unwritten.range((*id, 0)..(*id, *before)).map(|(entry, _)| *entry);
                    for entry in done.collect::<Vec<_>>() {
                        self.unwritten.remove(&entry);
                    }
                }
                WrittenRecord::Objects(_) | WrittenRecord::Snapshot(_) | WrittenRecord::Forgotten(_) => {}
            }
        }
        self.replies.on_disk(written.len());
    }

    /// Writes the results that have gathered.
    pub(super) fn write_results(&mut self) {
        self.tell_jobs(jobs::Event::Flush);
    }

    /// Shows a job to its watchers. All its results were given to the journal.
    pub(super) fn show(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(id) {
            let standing = self.standing(job);
            self.replies.show(id, standing);
        }
    }

    /// The state of an archived job.
    pub(super) fn progress_of_archived(&self, summary: &JobSummary) -> JobProgress {
        JobProgress {
            view: self.view_of_archived(summary),
            entries: summary.entries,
            dropped_results: summary.dropped_results,
            is_over: true,
        }
    }

    /// Reads a job from the journal, with entries that are not on disk yet.
    fn read_job(&self, job: JobId) -> Result<Replay, JournalError> {
        let unwritten = self.unwritten.range((job, 0)..=(job, u64::MAX));
        self.journal.load(job, unwritten.map(|((_, number), entry)| (*number, entry)))
    }

    /// Reads an archived job to answer requests about it. The job that was read last is kept.
    pub(crate) fn load_archived(&mut self, job: JobId) -> Result<(), JournalError> {
        if self.jobs.is_archived(job) && self.loaded.as_ref().is_none_or(|loaded| loaded.id != job) {
            self.loaded = Some(self.read_job(job)?.into_job());
        }
        Ok(())
    }

    /// Takes an archived job back into memory, so that it can continue.
    pub(crate) fn recall(&mut self, job: JobId) -> Result<(), JournalError> {
        if self.jobs.is_archived(job) {
            let replay = Box::new(self.read_job(job)?);
            self.loaded = None;
            self.tell_jobs(jobs::Event::Recovered { replay });
        }
        Ok(())
    }

    /// Compares every job in memory with the journal, and writes differences to a file.
    pub(super) fn compare_with_journal(&self, told_in: &Path) -> Result<(), JournalError> {
        let tell = |job, what| {
            if let Err(e) = tell_difference(told_in, job, what) {
                tracing::error!("{}: {e}", told_in.display());
            }
        };
        for job in self.jobs.all().filter(|job| !job.spec.is_attached) {
            let read = self.journal.load(job.id, std::iter::empty())?;
            if !read.job().snapshot().agrees_with(&job.snapshot()) {
                tell(job.id, "it is another in memory than in the journal");
            }
        }
        for summary in self.jobs.archived() {
            let read = self.journal.load(summary.job, std::iter::empty())?;
            if read.job().summary() != *summary {
                tell(summary.job, "its summary is not what the journal has");
            }
        }
        Ok(())
    }

    /// The state of a job.
    pub(super) fn standing(&self, job: &jobs::Job) -> JobProgress {
        let (entries, dropped_results) = (job.entries, job.dropped_results);
        JobProgress { view: self.view(job), entries, dropped_results, is_over: job.has_ended() }
    }

    /// The outputs that these tasks of a job keep for its user, or the first of them, and the executors that hold them.
    /// An output that no executor holds is made again. Executors check the `doubted` objects that they are said to
    /// hold.
    pub(crate) fn kept_part(&mut self, id: JobId, tasks: Range<u32>, doubted: &[ObjectId]) -> KeptPart {
        doubted.iter().for_each(|object| self.tell_scheduler(eyas_sched::Event::Doubted { object: *object }));
        let mut part = KeptPart::default();
        let Some(job) = self.jobs.get(id) else { return part };
        let tasks = tasks.start..tasks.end.min(job.tasks.len() as u32);
        let mut missing = Vec::new();
        for (place, index) in tasks.enumerate() {
            if place >= TOLD_AT_ONCE || part.outputs.len() >= TOLD_AT_ONCE {
                part.next = Some(index);
                break;
            }
            let state = job.tasks[index as usize];
            let promises =
                |output: &OutputSpec| output.replicas > 0 && output.destination.is_none() && !output.until_read;
            match state.phase {
                _ if !job.template_at(index).outputs.iter().any(promises) => {}
                Phase::Blocked | Phase::Waiting | Phase::Assigned => part.unfinished += 1,
                Phase::Failed | Phase::Cancelled => part.unsuccessful += 1,
                Phase::Succeeded => {
                    for (object, left) in job.kept_by(index).filter(|(_, left)| left.is_promised()) {
                        let holders =
                            self.scheduler.explain_object(object).map(|view| view.holders).unwrap_or_default();
                        let holders = holders.iter().filter_map(|holder| Some(self.executors.get(*holder)?.transfer));
                        let holders: Vec<_> = holders.take(MAX_HINTS).collect();
                        if holders.is_empty() {
                            missing.push(object);
                        }
                        let may_come = self.jobs.may_come_back(object) || self.scheduler.is_moving(object);
                        let is_lost = holders.is_empty() && !may_come && state.recomputed >= jobs::MAX_RECOMPUTATIONS;
                        let (task, object) = (job.task_id(index), left.object.clone());
                        part.outputs.push(KeptOutput { task, object, holders, is_lost });
                    }
                }
            }
        }
        missing.into_iter().for_each(|object| self.tell_jobs(jobs::Event::ObjectWanted { object }));
        part
    }
}
