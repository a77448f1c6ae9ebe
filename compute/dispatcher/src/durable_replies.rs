//! Replies to callers: answers, the states of watched jobs, and events of the cluster. Each is held
//! back until everything that it follows from is on disk, so that `kill -9` makes none of them
//! untrue.

use std::collections::{HashMap, VecDeque};

use eyas_types::JobId;
use eyas_wire::view::JobView;
use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::events::{ClusterEvents, NewEvent, RecentEvents};
use crate::log::RecordNumber;

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

pub(crate) struct DurableReplies {
    /// The last record that was appended, and the last one that is on disk.
    appended: RecordNumber,
    durable: RecordNumber,
    /// Replies that wait, in order, each with the record that must be on disk first.
    held: VecDeque<(RecordNumber, HeldReply)>,
    watched: HashMap<JobId, watch::Sender<JobProgress>>,
    events: ClusterEvents,
}

enum HeldReply {
    Answer(Box<dyn FnOnce() + Send>),
    Event(NewEvent),
    JobProgress(JobId, Box<JobProgress>),
    /// The last reply about a job.
    Forget(JobId),
}

impl DurableReplies {
    pub fn new(clock: Clock) -> Self {
        DurableReplies {
            appended: 0,
            durable: 0,
            held: VecDeque::new(),
            watched: HashMap::new(),
            events: ClusterEvents::new(clock),
        }
    }

    /// Notes the last record that was appended. Replies from now on wait for it.
    pub fn appended(&mut self, record: RecordNumber) {
        self.appended = record;
    }

    /// All records up to this one are on disk.
    pub fn durable(&mut self, record: RecordNumber) {
        assert!(record <= self.appended, "more is on disk than was appended");
        self.durable = record;
        self.tell();
    }

    /// Whether some record is not on disk yet.
    pub fn is_behind(&self) -> bool {
        self.durable < self.appended
    }

    /// Sends an answer when all records so far are on disk.
    pub fn answer<T: Send + 'static>(&mut self, answer: T, reply: oneshot::Sender<T>) {
        // The caller may have gone away.
        self.hold(HeldReply::Answer(Box::new(move || drop(reply.send(answer)))));
    }

    /// Adds to the events of the cluster when all records so far are on disk.
    pub fn add_event(&mut self, event: NewEvent) {
        self.hold(HeldReply::Event(event));
    }

    /// The events of the cluster.
    pub fn events(&self) -> RecentEvents {
        self.events.recent()
    }

    /// Shows a job to its watchers once all records so far are on disk.
    pub fn show(&mut self, job: JobId, progress: JobProgress) {
        self.hold(HeldReply::JobProgress(job, Box::new(progress)));
    }

    /// Shows a job to its watchers for the last time, once all records so far are on disk.
    pub fn show_last(&mut self, job: JobId, progress: JobProgress) {
        self.show(job, progress);
        self.hold(HeldReply::Forget(job));
    }

    fn hold(&mut self, held: HeldReply) {
        self.held.push_back((self.appended, held));
        self.tell();
    }

    fn tell(&mut self) {
        while let Some((_, held)) = self.held.pop_front_if(|(record, _)| *record <= self.durable) {
            match held {
                HeldReply::Answer(tell) => tell(),
                HeldReply::Event(event) => self.events.add(event),
                HeldReply::Forget(job) => self.forget(job),
                HeldReply::JobProgress(job, progress) => {
                    if let Some(watched) = self.watched.get(&job) {
                        watched.send_replace(*progress);
                    }
                }
            }
        }
    }

    /// Lets clients watch a job, which is on disk.
    pub fn offer(&mut self, job: JobId, progress: JobProgress) {
        self.watched.insert(job, watch::Sender::new(progress));
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
