//! Replies to clients about jobs: answers, and the states of watched jobs. Each is held back until everything that it
//! follows from is on disk, so that `kill -9` makes none of them untrue.

use std::collections::{HashMap, VecDeque};

use eyas_types::JobId;
use eyas_wire::client::ToClient;
use eyas_wire::view::JobView;
use tokio::sync::{oneshot, watch};

/// The state of a job for clients that watch it. Everything that the view counts is on disk.
#[derive(Clone, Debug)]
pub(crate) struct JobProgress {
    pub view: JobView,
    /// Number of journal entries that may be read.
    pub entries: u64,
    /// Number of results that were removed because their tasks have later results.
    pub dropped_results: u64,
    /// Whether the job has ended.
    pub is_over: bool,
}

#[derive(Default)]
pub(crate) struct DurableReplies {
    /// Number of writes given to the journal, and number of these that are on disk.
    put: u64,
    on_disk: u64,
    /// Replies that wait, in order, each with the number of writes that must be on disk first.
    held: VecDeque<(u64, Held)>,
    watched: HashMap<JobId, watch::Sender<JobProgress>>,
}

enum Held {
    Answer(ToClient, oneshot::Sender<ToClient>),
    JobProgress(JobId, Box<JobProgress>),
    /// The last reply about a job.
    Forget(JobId),
}

impl DurableReplies {
    /// Counts a write that was given to the journal. Replies from now on wait for it.
    pub fn put(&mut self) {
        self.put += 1;
    }

    /// `writes` more writes are on disk.
    pub fn on_disk(&mut self, writes: usize) {
        self.on_disk += writes as u64;
        assert!(self.on_disk <= self.put, "more is on disk than was written");
        self.tell();
    }

    /// Whether some write is not on disk yet.
    pub fn is_behind(&self) -> bool {
        self.on_disk < self.put
    }

    /// Sends an answer once all writes so far are on disk.
    pub fn answer(&mut self, answer: ToClient, reply: oneshot::Sender<ToClient>) {
        self.held.push_back((self.put, Held::Answer(answer, reply)));
        self.tell();
    }

    /// Shows a job to its watchers once all writes so far are on disk.
    pub fn show(&mut self, job: JobId, standing: JobProgress) {
        self.held.push_back((self.put, Held::JobProgress(job, Box::new(standing))));
        self.tell();
    }

    /// Shows a job to its watchers for the last time once all writes so far are on disk.
    pub fn show_last(&mut self, job: JobId, standing: JobProgress) {
        self.show(job, standing);
        self.held.push_back((self.put, Held::Forget(job)));
        self.tell();
    }

    fn tell(&mut self) {
        while let Some((_, held)) = self.held.pop_front_if(|(writes, _)| *writes <= self.on_disk) {
            match held {
                // The client may have gone away.
                Held::Answer(answer, reply) => _ = reply.send(answer),
                Held::Forget(job) => self.forget(job),
                Held::JobProgress(job, standing) => {
                    if let Some(watched) = self.watched.get(&job) {
                        watched.send_replace(*standing);
                    }
                }
            }
        }
    }

    /// Lets clients watch a job, which is on disk.
    pub fn offer(&mut self, job: JobId, standing: JobProgress) {
        self.watched.insert(job, watch::Sender::new(standing));
    }

    /// Watches a job, if it is there.
    pub fn watch(&self, job: JobId) -> Option<watch::Receiver<JobProgress>> {
        self.watched.get(&job).map(watch::Sender::subscribe)
    }

    /// The jobs that clients watch.
    pub fn watched(&self) -> impl Iterator<Item = JobId> {
        self.watched.iter().filter(|(_, watched)| watched.receiver_count() > 0).map(|(job, _)| *job)
    }

    /// The job is forgotten.
    pub fn forget(&mut self, job: JobId) {
        self.watched.remove(&job);
    }
}
