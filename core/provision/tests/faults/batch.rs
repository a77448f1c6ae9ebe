//! The batch system: jobs, their nodes, and what it says of them.

use std::collections::BTreeMap;

use eyas_provision::{BatchEnd, BatchState};

use crate::world::SECOND_US;

/// A job that ended this long ago is no longer listed.
const FORGETS_AFTER_US: u64 = 120 * SECOND_US;
/// Answers in a row that may leave out a job that is there.
const MAX_LEFT_OUT: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    Pending,
    Running,
    Ended { at_us: u64, says: &'static str, is_of_node: bool },
}

#[derive(Debug)]
pub struct Job {
    pub name: String,
    pub request: u64,
    /// Number of nodes that it was submitted for.
    pub nodes: u32,
    pub listed_us: u64,
    pub state: JobState,
    /// Answers in a row that have left it out.
    left_out: u32,
}

/// A node of a job that runs.
#[derive(Debug)]
pub struct Node {
    pub job: u64,
    pub request: u64,
    /// When it is connected to the dispatcher; never, if it hangs.
    pub joins_us: u64,
    /// Number of its executor in this life of the dispatcher.
    pub executor: u32,
}

#[derive(Debug, Default)]
pub struct Batch {
    pub jobs: BTreeMap<u64, Job>,
    pub nodes: BTreeMap<u64, Node>,
    pub made: u64,
}

impl Batch {
    /// Takes a job. Returns its number.
    pub fn take(&mut self, name: String, request: u64, nodes: u32, listed_us: u64) -> u64 {
        self.made += 1;
        let job = Job { name, request, nodes, listed_us, state: JobState::Pending, left_out: 0 };
        self.jobs.insert(self.made, job);
        self.made
    }

    pub fn end(&mut self, now_us: u64, id: u64, says: &'static str, is_of_node: bool) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_alive()) else { return };
        job.state = JobState::Ended { at_us: now_us, says, is_of_node };
        self.nodes.retain(|_, node| node.job != id);
    }

    /// A node ends, and with the last one its job.
    pub fn node_ends(&mut self, now_us: u64, node: u64, is_of_node: bool) {
        let Some(Node { job, .. }) = self.nodes.remove(&node) else { return };
        if !self.nodes.values().any(|node| node.job == job) {
            self.end(now_us, job, if is_of_node { "NODE_FAIL" } else { "COMPLETED" }, is_of_node);
        }
    }

    /// What it says of a job. `leaves_out`: it leaves the job out of the list, if it may once more.
    pub fn says(&mut self, now_us: u64, id: u64, leaves_out: bool) -> BatchState {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.is_known(now_us)) else {
            return BatchState::Unknown;
        };
        if now_us < job.listed_us || leaves_out && job.left_out < MAX_LEFT_OUT {
            job.left_out += 1;
            return BatchState::Unknown;
        }
        job.left_out = 0;
        match job.state {
            JobState::Pending => BatchState::Pending(None),
            JobState::Running => BatchState::Running,
            JobState::Ended { says, is_of_node, .. } => {
                BatchState::Ended(BatchEnd { says: says.into(), is_of_node })
            }
        }
    }

    /// The job of that name, if it is listed.
    pub fn find(&self, now_us: u64, name: &str) -> Option<u64> {
        let is_it = |job: &Job| job.name == name && now_us >= job.listed_us && job.is_known(now_us);
        self.jobs.iter().find(|(_, job)| is_it(job)).map(|(id, _)| *id)
    }

    /// Number of live nodes of a job that runs.
    pub fn running(&self, id: u64) -> u32 {
        self.nodes.values().filter(|node| node.job == id).count() as u32
    }
}

impl Job {
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, JobState::Ended { .. })
    }

    fn is_known(&self, now_us: u64) -> bool {
        !matches!(self.state, JobState::Ended { at_us, .. } if now_us >= at_us + FORGETS_AFTER_US)
    }
}
