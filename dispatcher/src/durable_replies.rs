//! What clients are told of jobs: answers, and how watched jobs stand. All of it is held back until the journal has
//! what it follows from, so that `kill -9` makes none of it untrue.

use std::collections::{HashMap, VecDeque};

use eyas_types::JobId;
use eyas_wire::client::ToClient;
use eyas_wire::view::JobView;
use tokio::sync::{oneshot, watch};

/// How a watched job stands. All that its view counts is on disk.
#[derive(Clone, Debug)]
pub(crate) struct JobProgress {
    pub view: JobView,
    /// Its entries that may be read.
    pub entries: u64,
    /// Results that were removed from its entries, because their tasks have later ones.
    pub dropped_results: u64,
    /// Nothing more will come.
    pub is_over: bool,
}

#[derive(Default)]
pub(crate) struct DurableReplies {
    /// Writes that were put to the journal, and those of them that are on disk.
    put: u64,
    on_disk: u64,
    /// What is held back, with the writes that it waits for, in order.
    held: VecDeque<(u64, Held)>,
    watched: HashMap<JobId, watch::Sender<JobProgress>>,
}

enum Held {
    Answer(ToClient, oneshot::Sender<ToClient>),
    JobProgress(JobId, JobProgress),
}

impl DurableReplies {
    /// Something was put to be written; what is told from now on follows from it.
    pub fn put(&mut self) {
        self.put += 1;
    }

    /// This many more writes are on disk.
    pub fn on_disk(&mut self, writes: usize) {
        self.on_disk += writes as u64;
        assert!(self.on_disk <= self.put, "more is on disk than was written");
        self.tell();
    }

    /// Whether something that was put to be written is not on disk.
    pub fn is_behind(&self) -> bool {
        self.on_disk < self.put
    }

    /// Answers, once all that was put to be written is on disk.
    pub fn answer(&mut self, answer: ToClient, reply: oneshot::Sender<ToClient>) {
        self.held.push_back((self.put, Held::Answer(answer, reply)));
        self.tell();
    }

    /// Shows watchers how a job stands, once all that was put to be written is on disk.
    pub fn show(&mut self, job: JobId, standing: JobProgress) {
        self.held.push_back((self.put, Held::JobProgress(job, standing)));
        self.tell();
    }

    fn tell(&mut self) {
        while let Some((_, held)) = self.held.pop_front_if(|(writes, _)| *writes <= self.on_disk) {
            match held {
                // The client may have gone away.
                Held::Answer(answer, reply) => _ = reply.send(answer),
                Held::JobProgress(job, standing) => {
                    if let Some(watched) = self.watched.get(&job) {
                        watched.send_replace(standing);
                    }
                }
            }
        }
    }

    /// A job, which is on disk, can be watched.
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
