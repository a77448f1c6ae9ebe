//! The outcome of a run as it grows.

use eyas_jobs::Job;
use eyas_types::{Origin, Reads};

use super::task::SimTask;
use crate::clock::{MICROSECOND, Ns};
use crate::outcome::{Level, RunOutcome};

#[derive(Default)]
pub(super) struct SimMetrics {
    outcome: RunOutcome,
    /// Time of the latest end of a task, or the time at which the run was stopped.
    ended_at: Ns,
}

impl SimMetrics {
    /// The outcome so far.
    pub fn outcome(&self) -> &RunOutcome {
        &self.outcome
    }

    pub fn ended_at(&self) -> Ns {
        self.ended_at
    }

    /// Time advances to `now`. The levels have not changed since the last call.
    pub fn advance(&mut self, now: Ns, level: Level) {
        self.outcome.course.advance(now, level);
    }

    /// A task has ended, or the run is stopped.
    pub fn ends(&mut self, now: Ns) {
        self.ended_at = now;
    }

    // ---- tasks

    pub fn task_arrived(&mut self) {
        self.outcome.tasks += 1;
    }

    pub fn waiting(&mut self, tasks: u64) {
        self.outcome.most_waiting = self.outcome.most_waiting.max(tasks);
    }

    pub fn started(&mut self, reads: Reads) {
        self.outcome.reads += reads;
        self.outcome.course.note_reads(reads);
    }

    pub fn computed(&mut self, compute_us: u64) {
        self.outcome.computed_ns += u128::from(compute_us * MICROSECOND);
    }

    /// A dispatcher has learned at time `now` that a task has succeeded.
    pub fn succeeded(&mut self, task: &SimTask, now: Ns) {
        let SimTask { arrived, assigned, started, ran_ns, .. } = *task;
        let since = |then: Ns| u128::from(then.saturating_sub(arrived));
        self.outcome.done += 1;
        self.outcome.queued_ns += since(assigned);
        self.outcome.waited_ns += since(started);
        self.outcome.ran_ns += u128::from(ran_ns);
        self.outcome.ideal_ns = self.outcome.ideal_ns.max(arrived + ran_ns);
        self.outcome.responded_ns += since(now);
        self.outcome.course.note_done();
    }

    // ---- bytes

    /// A node has fetched an object, for a task or to hold it.
    pub fn fetched(&mut self, from: Origin, bytes: u64, is_for_task: bool) {
        let loads = is_for_task.then_some(&mut self.outcome.loads);
        match from {
            Origin::Peer => {
                self.outcome.peer_bytes += bytes;
                loads.into_iter().for_each(|loads| loads.peer.add(bytes));
            }
            Origin::Persistent => {
                self.outcome.storage_bytes += bytes;
                loads.into_iter().for_each(|loads| loads.persistent.add(bytes));
            }
            Origin::Local => {}
            Origin::Files { .. } => unreachable!("a simulation has no files of the cluster"),
        }
    }

    /// A node has made a derived copy.
    pub fn copy_made(&mut self) {
        self.outcome.copies_made += 1;
    }

    /// Bytes are written to persistent storage.
    pub fn written(&mut self, bytes: u64) {
        self.outcome.written_bytes += bytes;
    }

    // ---- nodes and dispatchers

    pub fn node_lost(&mut self) {
        self.outcome.lost_nodes += 1;
    }

    pub fn node_left(&mut self) {
        self.outcome.left_nodes += 1;
    }

    /// A node's walltime is over while it runs tasks.
    pub fn out_of_time(&mut self, tasks: u32) {
        self.outcome.out_of_time += u64::from(tasks);
    }

    pub fn connection_broken(&mut self) {
        self.outcome.broken_connections += 1;
    }

    pub fn dispatcher_died(&mut self) {
        self.outcome.restarts += 1;
    }

    // ---- the end of the run

    /// Adds the counts of a dispatcher: those of its job, and its placement decisions.
    pub fn add_dispatcher(&mut self, job: &Job, decisions: u64) {
        self.outcome.failed += job.counts().failed;
        self.outcome.cancelled += job.counts().cancelled;
        self.outcome.retried += job.retried;
        self.outcome.recomputed += job.recomputed;
        self.outcome.decisions += decisions;
        self.outcome.most_decisions = self.outcome.most_decisions.max(decisions);
    }

    /// The outcome of a run that ends with these levels, and of processors that were held for
    /// `held_cpu_ns`.
    pub fn close(self, level: Level, held_cpu_ns: u128) -> RunOutcome {
        let SimMetrics { mut outcome, ended_at } = self;
        outcome.makespan_ns = ended_at;
        outcome.course.close(ended_at, level);
        outcome.held_cpu_ns = held_cpu_ns;
        outcome
    }
}
