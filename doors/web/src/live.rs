//! The present state of the cluster, for any number of readers. One comparison after each question
//! to the dispatcher finds what has changed; each reader takes what changed after the version that
//! it has seen, however many versions it has missed.

use std::collections::BTreeMap;
use std::sync::Arc;

use eyas_client::types::JobId;
use eyas_client::view::{ExecutorView, JobView};
use tokio::sync::watch;

/// The state of the cluster at a version.
#[derive(Clone, Default)]
pub(crate) struct LiveState {
    /// Number of changes before.
    pub version: u64,
    /// Whether the dispatcher is connected. Only the connection for events says so: other answers
    /// may be older.
    pub is_connected: bool,
    /// All jobs, with the versions of their last changes.
    jobs: Arc<BTreeMap<JobId, (u64, Arc<JobView>)>>,
    /// All executors, and the version of the last change.
    executors: (u64, Arc<Vec<ExecutorView>>),
    /// When a job was last forgotten.
    forgotten: u64,
}

/// Changes of the state.
pub(crate) struct LiveChanges {
    /// The jobs that have changed, in order.
    pub jobs: Vec<Arc<JobView>>,
    /// All jobs that there are, if some are forgotten.
    pub only: Option<Vec<JobId>>,
    /// All executors, if one has changed.
    pub executors: Option<Arc<Vec<ExecutorView>>>,
}

impl LiveState {
    /// The state with the dispatcher's answers.
    pub fn with(&self, jobs: Vec<JobView>, executors: Vec<ExecutorView>) -> Self {
        let version = self.version + 1;
        let mut next = BTreeMap::new();
        for job in jobs {
            let entry = match self.jobs.get(&job.job) {
                Some((at, before)) if **before == job => (*at, before.clone()),
                _ => (version, Arc::new(job)),
            };
            next.insert(entry.1.job, entry);
        }
        let is_forgotten = self.jobs.keys().any(|job| !next.contains_key(job));
        let is_same = self.version > 0 && are_same(&self.executors.1, &executors);
        LiveState {
            version,
            is_connected: self.is_connected,
            jobs: Arc::new(next),
            executors: match is_same {
                true => self.executors.clone(),
                false => (version, Arc::new(executors)),
            },
            forgotten: if is_forgotten { version } else { self.forgotten },
        }
    }

    /// The changes after a version.
    pub fn since(&self, version: u64) -> LiveChanges {
        let changed = self.jobs.values().filter(|(at, _)| *at > version);
        LiveChanges {
            jobs: changed.map(|(_, job)| job.clone()).collect(),
            only: (self.forgotten > version).then(|| self.jobs.keys().copied().collect()),
            executors: (self.executors.0 > version).then(|| self.executors.1.clone()),
        }
    }

    /// Whether something has changed after a version. The first state is new even if it is empty.
    fn has_changed_since(&self, version: u64) -> bool {
        version == 0
            || self.executors.0 > version
            || self.forgotten > version
            || self.jobs.values().any(|(at, _)| *at > version)
    }

    /// Whether the cluster has a job.
    pub fn has(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// A job, if it has changed after a version.
    pub fn job_since(&self, job: JobId, version: u64) -> Option<Arc<JobView>> {
        self.jobs.get(&job).filter(|(at, _)| *at > version).map(|(_, job)| job.clone())
    }
}

/// Whether executors differ only by how long they are silent.
fn are_same(before: &[ExecutorView], after: &[ExecutorView]) -> bool {
    let is_same = |(before, after): (&ExecutorView, &ExecutorView)| {
        let silent_us = before.silent_us;
        *before == ExecutorView { silent_us, ..after.clone() }
    };
    before.len() == after.len() && before.iter().zip(after).all(is_same)
}

/// The state, with the readers that wait for changes.
pub(crate) struct LiveView(watch::Sender<LiveState>);

impl LiveView {
    pub fn new() -> Self {
        LiveView(watch::Sender::new(LiveState::default()))
    }

    /// Notes the dispatcher's answers.
    pub fn note(&self, jobs: Vec<JobView>, executors: Vec<ExecutorView>) {
        self.0.send_if_modified(|state| {
            let next = state.with(jobs, executors);
            let is_new = next.has_changed_since(state.version);
            if is_new {
                *state = next;
            }
            is_new
        });
    }

    /// Notes whether the dispatcher is connected.
    pub fn note_connection(&self, is_connected: bool) {
        self.0.send_if_modified(|state| {
            let is_new = state.is_connected != is_connected;
            state.is_connected = is_connected;
            is_new
        });
    }

    pub fn is_connected(&self) -> bool {
        self.0.borrow().is_connected
    }

    /// Becomes a reader.
    pub fn read(&self) -> watch::Receiver<LiveState> {
        let mut reader = self.0.subscribe();
        reader.mark_changed();
        reader
    }

    /// Number of readers.
    pub fn readers(&self) -> usize {
        self.0.receiver_count()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use eyas_client::view::JobState;

    pub(crate) fn job(number: u32, name: &str, state: JobState) -> JobView {
        JobView {
            job: JobId(number),
            name: name.into(),
            owner: Default::default(),
            state,
            tasks: Default::default(),
            retried: 0,
            recomputed: 0,
            peak_memory_bytes: 0,
            reused: 0,
            reads: Default::default(),
            submitted_unix_ms: 0,
            elapsed_us: 0,
            executors: 0,
            capacity_milli: 0,
            is_stuck: false,
            is_output_cut: false,
            warnings: Vec::new(),
        }
    }

    fn executor(name: &str, silent_us: u64) -> ExecutorView {
        let fields = serde_json::json!({
            "executor": "e0", "name": name, "host": "h", "process": 1, "labels": {},
            "capacity": { "cpus_milli": 1000, "memory_bytes": 0, "disk_bytes": 0, "named": [] },
            "assigned_milli": 0, "assigned": 0, "state": "idle", "computing": 0, "staging": 0,
            "suspended": 0, "ended": 0, "objects": 0, "held_bytes": 0, "store_bytes": 0,
            "reads": eyas_client::types::Reads::default(), "silent_us": silent_us,
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn readers_take_what_has_changed_after_what_they_have_seen() {
        let (running, ended) = (JobState::Running, JobState::Succeeded);
        let ids =
            |changes: &LiveChanges| changes.jobs.iter().map(|job| job.job.0).collect::<Vec<_>>();
        let view = LiveView::new();
        let mut reader = view.read();
        view.note(Vec::new(), Vec::new());
        assert_eq!(reader.borrow_and_update().version, 1, "also an empty state is one");
        view.note(vec![job(1, "a", running), job(2, "b", running)], vec![executor("n1", 0)]);
        let first = reader.borrow_and_update().clone();
        let changes = first.since(0);
        assert_eq!((ids(&changes), changes.only), (vec![1, 2], None));
        assert_eq!(changes.executors.unwrap()[0].name, "n1");
        // Nothing but the time since the last message is different.
        view.note(vec![job(1, "a", running), job(2, "b", running)], vec![executor("n1", 9)]);
        assert!(!reader.has_changed().unwrap());
        view.note(vec![job(1, "a", running), job(2, "b", ended)], vec![executor("n1", 9)]);
        view.note(vec![job(2, "b", ended), job(3, "c", running)], vec![executor("n1", 9)]);
        let last = reader.borrow_and_update().clone();
        let changes = last.since(first.version);
        assert_eq!(ids(&changes), [2, 3]);
        assert_eq!(changes.only, Some(vec![JobId(2), JobId(3)]), "job 1 is forgotten");
        assert!(changes.executors.is_none() && last.since(last.version).jobs.is_empty());
        assert!(last.job_since(JobId(2), last.version - 2).is_some());
        assert!(last.job_since(JobId(2), last.version - 1).is_none() && !last.has(JobId(1)));
    }
}
