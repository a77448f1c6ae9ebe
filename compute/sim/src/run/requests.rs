//! The client of the jobs: it submits them, cancels tasks, and retries failed and cancelled ones.

use std::ops::Range;

use eyas_jobs::{Event as JobsEvent, NewJob};

use super::job::JOB;
use super::{Run, SimEvent};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::workload::{ClientRequests, Workload};

/// The client repeats a request after this time if the dispatcher is down, or died before the
/// request was on disk.
const ASKS_AGAIN_NS: Ns = SECOND / 10;

pub(super) struct SimClient {
    requests: ClientRequests,
    /// Requests that no dispatcher has confirmed as being on disk: the dispatcher, the request,
    /// and the number of entries that the dispatcher had written then.
    unanswered: Vec<(usize, u32, u64)>,
}

impl SimClient {
    pub fn new(workload: &dyn Workload) -> Self {
        SimClient { requests: workload.requests(), unanswered: Vec::new() }
    }
}

impl Run<'_> {
    /// Submits all jobs at the start. Their tasks are queued as they arrive.
    pub(super) fn submit_jobs(&mut self) {
        for number in 0..self.dispatchers.count() {
            let job = Box::new(NewJob::new(self.dispatchers[number].journal.spec()));
            self.tell_jobs(number, JobsEvent::Submitted { job });
            self.tell_jobs(number, JobsEvent::Accepted { job: JOB });
        }
    }

    pub(super) fn plan_requests(&mut self) {
        for (request, (at_us, _)) in (0..).zip(&self.client.requests.cancels) {
            for dispatcher in 0..self.cluster.dispatchers {
                self.events
                    .schedule(at_us * MICROSECOND, SimEvent::ClientRequest { dispatcher, request });
            }
        }
    }

    /// Indices of a request's tasks in the job of a dispatcher.
    fn indices(&self, number: usize, request: u32) -> Range<u32> {
        let (_, tasks) = &self.client.requests.cancels[request as usize];
        let count = self.dispatchers[number].job().tasks.len() as u32;
        match self.plan.numbers.get(number) {
            Some(numbers) => {
                let before = |number: u32| numbers.partition_point(|other| *other < number) as u32;
                before(tasks.start)..before(tasks.end)
            }
            None => tasks.start.min(count)..tasks.end.min(count),
        }
    }

    /// The client asks a dispatcher to cancel tasks.
    pub(super) fn asks(&mut self, number: usize, request: u32) {
        if self.dispatchers[number].is_down {
            self.ask_later(number, request);
            return;
        }
        let tasks = self.indices(number, request);
        self.tell_jobs(number, JobsEvent::Cancel { job: JOB, tasks });
        // A confirmed request must not be lost.
        self.tell_jobs(number, JobsEvent::Flush);
        let written = self.dispatchers[number].journal.written();
        self.client.unanswered.push((number, request, written));
        self.answer_client(number);
    }

    /// Confirms to the client the requests that are on disk.
    pub(super) fn answer_client(&mut self, number: usize) {
        let on_disk = self.dispatchers[number].journal.on_disk();
        let is_done =
            |(of, _, written): &mut (usize, u32, u64)| *of == number && *written <= on_disk;
        let answered: Vec<_> = self.client.unanswered.extract_if(.., is_done).collect();
        for (_, request, _) in answered {
            let indices = self.indices(number, request);
            if let Some(audit) = &mut self.audit {
                audit.cancelled(number, indices);
            }
        }
    }

    /// Repeats the requests that a dispatcher had not confirmed before it died.
    pub(super) fn ask_again(&mut self, number: usize) {
        let unanswered: Vec<_> =
            self.client.unanswered.extract_if(.., |(of, ..)| *of == number).collect();
        unanswered.into_iter().for_each(|(_, request, _)| self.ask_later(number, request));
    }

    fn ask_later(&mut self, number: usize, request: u32) {
        let dispatcher = number as u32;
        self.events
            .schedule(self.now + ASKS_AGAIN_NS, SimEvent::ClientRequest { dispatcher, request });
    }

    /// After all jobs have ended, retries failed and cancelled tasks if the client wants that.
    /// Returns whether any task runs again.
    pub(super) fn retries_job(&mut self) -> bool {
        if self.client.requests.job_retries == 0 || !self.client.unanswered.is_empty() {
            return !self.client.unanswered.is_empty();
        }
        self.client.requests.job_retries -= 1;
        let mut retries = false;
        for number in 0..self.dispatchers.count() {
            if self.dispatchers[number].job().retryable() > 0 {
                retries = true;
                if let Some(audit) = &mut self.audit {
                    audit.retried(number);
                }
                self.tell_jobs(number, JobsEvent::Retry { job: JOB, current: Vec::new() });
            }
        }
        retries
    }

    /// Whether a kept output that was promised to the client is lost and can be recomputed.
    ///
    /// Executors recompute outputs. Where a batch system gives nodes only for tasks that wait, and
    /// none wait, there may be no executor.
    pub(super) fn lacks_promised(&self) -> bool {
        let has_executors =
            || self.dispatchers.all().any(|of| of.scheduler.utilisation().total_milli > 0);
        self.batch.as_ref().is_none_or(|batch| batch.has_requests() || has_executors())
            && self.plan.outputs.has_kept()
            && self.dispatchers.all().any(|of| {
                let is_lacking = |index: u32| {
                    let mut promised =
                        of.job().kept_by(index).filter(|(_, left)| left.is_promised());
                    let may_be_made =
                        of.job().tasks[index as usize].recomputed < eyas_jobs::MAX_RECOMPUTATIONS;
                    may_be_made && promised.any(|(object, _)| !of.scheduler.is_held(object))
                };
                (0..of.job().tasks.len() as u32).any(is_lacking)
            })
    }

    /// Adds the counts of all jobs to the outcome.
    pub(super) fn note_counts(&mut self) {
        for dispatcher in self.dispatchers.all() {
            let job = dispatcher.job();
            self.outcome.failed += job.counts().failed;
            self.outcome.cancelled += job.counts().cancelled;
            self.outcome.retried += job.retried;
            self.outcome.recomputed += job.recomputed;
        }
    }
}
