//! The brain's jobs, as far as they are in the journal: taken up from it, accepted, written down, shown, forgotten, and
//! what clients change about them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use eyas_sched::{Event, Need};
use eyas_types::outcome::FailureKind;
use eyas_types::{JobId, ObjectId, Outcome, Status, TaskId};
use eyas_wire::client::ToClient;
use eyas_wire::view::JobView;
use tokio::sync::oneshot;

use super::Brain;
use crate::job::{Job, JobSpec, Phase, cut_output, output_bytes, unix_ms};
use crate::journal::{Entry, Write, Written};
use crate::told::Standing;

/// Captured output that the journal keeps, of all jobs. When there is more, the oldest ended jobs are forgotten, with
/// their results; and when that is not enough, further output is cut.
pub(super) const MAX_JOURNAL_OUTPUT_BYTES: u64 = 16 << 30;
/// Ended jobs that are remembered; the oldest is forgotten, with its results.
const MAX_ENDED_JOBS: usize = 200;

impl Brain {
    /// Takes up what the journal has: jobs that had not ended go on.
    pub fn recover(&mut self) -> Result<(), String> {
        for (id, mut spec) in self.journal.read_jobs()? {
            if !spec.is_sound() {
                return Err(format!("job {id} is damaged"));
            }
            let mut job = Job::new(id, spec);
            let mut hopeless = Vec::new();
            self.journal.replay(id, 0, u64::MAX, |entry| {
                match entry {
                    Entry::Results { at_us, results } => {
                        hopeless.extend(results.iter().flat_map(|result| job.book(result, at_us).hopeless));
                    }
                    Entry::Retried(tasks) => {
                        // Only a job that has ended is retried: nobody was left to be told.
                        hopeless.clear();
                        job.retry_these(&tasks);
                    }
                    Entry::Released => drop(job.release()),
                    Entry::Recomputed(tasks) => job.recompute(&tasks),
                    Entry::Cancelled(tasks) => job.cancelling.extend(tasks),
                }
                job.entries += 1;
            })?;
            self.next_job = self.next_job.max(id.0 + 1);
            self.output_bytes += job.output_bytes;
            self.told.offer(id, standing(&job, job.view()));
            let cancelled = std::mem::take(&mut job.cancelling);
            if job.has_ended() {
                job.next_to_queue = job.tasks.len() as u32;
            } else {
                tracing::info!(job = %id, ended = job.counts.ended(), of = job.counts.total(), "goes on");
            }
            let left: BTreeSet<u32> = job.kept.keys().map(|(index, _)| *index).collect();
            let goes_on = !job.has_ended();
            self.jobs.insert(id, job);
            if goes_on {
                self.begin(id);
            }
            for index in left {
                self.take_up_kept(TaskId { job: id, index }, None, &[]);
            }
            if self.jobs[&id].spec.reuse {
                (0..self.jobs[&id].tasks.len() as u32).for_each(|index| self.note_reusable(TaskId { job: id, index }));
            }
            // Their executors were told to end them, and have nothing of this dispatcher any more.
            for index in cancelled {
                self.end(TaskId { job: id, index }, 0, String::new(), Outcome::of(Status::Cancelled));
            }
            // The end of what failed may have been written, and that of those who needed it not.
            for index in hopeless {
                if self.jobs[&id].tasks[index as usize].phase == Phase::Blocked {
                    let reason = "it needs the output of a task that did not succeed";
                    let outcome = Outcome::failed(FailureKind::Dependency, reason);
                    self.end(TaskId { job: id, index }, 0, String::new(), outcome);
                }
            }
        }
        Ok(())
    }

    /// Accepts a job; it is queued once it is on disk.
    pub(super) fn submitted(&mut self, mut spec: JobSpec, reply: oneshot::Sender<ToClient>) {
        if self.stopping.is_some() {
            let _ = reply.send(ToClient::Refused("the cluster is stopping".into()));
            return;
        }
        let keeps = spec.templates.iter().flat_map(|template| &template.outputs).any(|output| output.replicas > 0);
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
        spec.submitted_unix_ms = unix_ms();
        let id = JobId(self.next_job);
        self.next_job += 1;
        let job = Job::new(id, spec);
        self.write(Write::Job { job: id, spec: job.spec.clone() });
        self.jobs.insert(id, job);
        self.told.answer(ToClient::Accepted { job: id }, reply);
    }

    /// Puts something to be written.
    fn write(&mut self, write: Write) {
        self.told.put();
        self.journal.write(write);
    }

    /// Puts what happened to a job to be written.
    pub(super) fn write_entry(&mut self, id: JobId, entry: Entry) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let entry = Arc::new(entry);
        let number = job.put(entry.clone());
        self.write(Write::Entry { job: id, number, entry });
        self.writing = true;
    }

    /// Goes on with what is on disk now.
    pub(super) fn written(&mut self, written: &[Written]) {
        for what in written {
            match what {
                Written::Job(id) => {
                    if let Some(job) = self.jobs.get(id) {
                        self.told.offer(*id, standing(job, self.view(job)));
                        self.begin(*id);
                    }
                }
                Written::Entries(id, entries) => {
                    self.writing = false;
                    if let Some(job) = self.jobs.get_mut(id) {
                        job.written(*entries);
                    }
                }
                Written::Forgotten(_) => {}
            }
        }
        self.told.on_disk(written.len());
    }

    /// Writes down results that have gathered.
    pub(super) fn write_results(&mut self) {
        let with_results: Vec<_> = self.jobs.values().filter(|job| !job.pending.is_empty()).map(|job| job.id).collect();
        for id in with_results {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let (at_us, has_ended) = (job.now_us(), job.has_ended());
            for results in job.pending.take() {
                self.write_entry(id, Entry::Results { at_us, results });
            }
            if has_ended {
                self.end_broadcast(id);
                self.scheduler.forget_job(id);
                self.executors.forget_job(id);
            }
            self.show(id);
        }
    }

    /// Shows watchers how a job stands. All its results were put to be written.
    pub(super) fn show(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id) {
            assert!(job.pending.is_empty(), "job {id} is shown with results that are not written");
            self.told.show(id, standing(job, self.view(job)));
        }
    }

    /// Makes room for a task's output in the journal. Whether there was too little, so that some is cut.
    pub(super) fn keep_output(&mut self, outcome: &mut Outcome) -> bool {
        let bytes = output_bytes(outcome);
        if self.output_bytes + bytes > self.max_output_bytes {
            self.forget_old_jobs(bytes);
        }
        let room = self.max_output_bytes.saturating_sub(self.output_bytes);
        if bytes > room {
            cut_output(outcome, room);
        }
        self.output_bytes += output_bytes(outcome);
        bytes > room
    }

    /// Forgets the oldest ended jobs while there are too many, or too little room for so many bytes of output. One whose
    /// results are still being sent to somebody stays.
    pub(super) fn forget_old_jobs(&mut self, output_bytes: u64) {
        let ended = |job: &&Job| job.has_ended() && job.pending.is_empty() && !self.told.is_watched(job.id);
        let ended: Vec<_> = self.jobs.values().filter(ended).map(|job| (job.id, job.output_bytes)).collect();
        for (place, (id, bytes)) in ended.iter().enumerate() {
            let lacks_room = self.output_bytes + output_bytes > self.max_output_bytes;
            let are_too_many = ended.len() - place > MAX_ENDED_JOBS;
            if are_too_many || lacks_room && *bytes > 0 {
                self.reuse.forget_job(*id);
                let kept = self.jobs.remove(id).map(|job| job.kept.into_keys().collect::<Vec<_>>());
                self.release_all(*id, kept.unwrap_or_default());
                self.output_bytes -= bytes;
                self.told.forget(*id);
                self.write(Write::Forget { job: *id });
            }
        }
    }

    /// Cancels those of a job's tasks that have not ended; how many.
    pub(crate) fn cancel(&mut self, id: JobId, tasks: Range<u32>) -> u64 {
        let (mut cancelled, mut told) = (0, Vec::new());
        for index in tasks {
            let Some(job) = self.jobs.get_mut(&id) else { break };
            let task = job.task_id(index);
            match job.tasks[index as usize].phase {
                Phase::Assigned => {
                    if job.cancelling.insert(index) {
                        told.push(index);
                        self.tell(Event::TaskCancelled { task });
                    }
                }
                Phase::Waiting | Phase::Blocked => {
                    self.tell(Event::TaskCancelled { task });
                    self.end(task, 0, String::new(), Outcome::of(Status::Cancelled));
                }
                Phase::Succeeded | Phase::Failed | Phase::Cancelled => continue,
            }
            cancelled += 1;
        }
        if self.jobs.get(&id).is_some_and(Job::is_ending) {
            self.end_broadcast(id);
        }
        if !told.is_empty() {
            // Results that have gathered have their places in the journal already.
            self.write_results();
            self.write_entry(id, Entry::Cancelled(told));
        }
        cancelled
    }

    /// Runs failed and cancelled tasks of a job again; how many.
    pub(crate) fn retry(&mut self, id: JobId) -> u64 {
        let Some(job) = self.jobs.get_mut(&id) else { return 0 };
        let again = job.failed_tasks();
        if again.is_empty() {
            return 0;
        }
        let ready = job.retry_these(&again);
        // Results before this entry are of earlier tries.
        self.write_results();
        let count = again.len() as u64;
        self.write_entry(id, Entry::Retried(again));
        self.show(id);
        self.name_job(id);
        self.broadcast(id);
        self.queue_released(id, &ready);
        count
    }
}

/// How a job stands, by a view of it whose results were all put to be written.
fn standing(job: &Job, view: JobView) -> Standing {
    Standing { view, entries: job.entries, is_over: job.has_ended() }
}

/// What the scheduler is told of a task: its inputs, and what it needs of an executor.
pub(super) fn needs(job: &Job, index: u32) -> (Box<[(ObjectId, u64)]>, Need) {
    let item = job.spec.items.get(index);
    (job.input_ids(&item).into(), job.spec.need(item.template))
}
