//! The result of a run: counts, times, bytes, and samples over time.

use eyas_types::Reads;

use crate::clock::{Ns, SECOND, seconds};

/// Most samples of a run. When there are more, each pair is merged into one.
pub const MAX_SAMPLES: usize = 2_048;

/// Length of a sample at the start of a run. Doubled four times it is a second, the paper's
/// sampling interval.
const SHORTEST: Ns = SECOND / 16;

/// See the [module's](self) documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunOutcome {
    /// Time from the start of the run to the end of the last task.
    pub makespan_ns: Ns,
    /// Tasks that arrived.
    pub tasks: u64,
    /// Tasks that succeeded.
    pub done: u64,
    /// Tasks that failed: all their attempts failed, no executor could run them, or an input is
    /// lost.
    pub failed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Number of retries, by the dispatcher or by the client.
    pub retried: u64,
    /// Number of recomputations: a task ran again because a lost output of it was still needed.
    pub recomputed: u64,
    /// Nodes that were lost.
    pub lost_nodes: u64,
    /// Nodes that left in good order.
    pub left_nodes: u64,
    /// Number of deaths of dispatchers.
    pub restarts: u64,
    /// Connections between executors and the dispatcher that broke.
    pub broken_connections: u64,
    /// Where tasks' inputs came from.
    pub reads: Reads,
    /// Inputs that nodes fetched for tasks, from peers and from persistent storage. They include
    /// those of tasks that were then reassigned and ran elsewhere.
    pub loads: Reads,
    /// Derived copies that nodes made.
    pub copies_made: u64,
    /// Attempts that were aborted because the walltime of their node was over.
    pub out_of_time: u64,
    /// Bytes that nodes fetched from each other.
    pub peer_bytes: u64,
    /// Bytes read from persistent storage.
    pub storage_bytes: u64,
    /// Bytes written to persistent storage.
    pub written_bytes: u64,
    /// Processor time of the nodes while they were held, used or not, in nanoseconds.
    pub held_cpu_ns: u128,
    /// Time that tasks computed, without reading.
    pub computed_ns: u128,
    /// Time from arrival until assignment, summed over tasks.
    pub queued_ns: u128,
    /// Time from start to end of a task, reading included, summed over tasks. Only the last
    /// attempt of a task counts.
    pub ran_ns: u128,
    /// Time at which the last task would have ended if each had started on arrival.
    pub ideal_ns: Ns,
    /// Time from arrival to start, summed over tasks. Only the last attempt of a task counts.
    pub waited_ns: u128,
    /// Time from arrival until the dispatcher learned of the end, summed over tasks.
    pub responded_ns: u128,
    /// Number of placement decisions of all dispatchers.
    pub decisions: u64,
    /// Number of placement decisions of the busiest dispatcher.
    pub most_decisions: u64,
    /// Largest number of waiting tasks at all dispatchers together.
    pub most_waiting: u64,
    /// Samples over time.
    pub course: Course,
}

/// What happened in one interval of a run, and the state at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunSample {
    /// Tasks that succeeded in the interval.
    pub done: u64,
    /// Inputs of the tasks that started in the interval.
    pub reads: Reads,
    /// Tasks that waited for an executor, at the end of the interval.
    pub waiting: u64,
    /// Tasks that were running, at the end of the interval.
    pub running: u64,
    /// Nodes in the cluster, at the end of the interval.
    pub nodes: u64,
}

/// Numbers of waiting tasks, running tasks and nodes at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Level {
    pub waiting: u64,
    pub running: u64,
    pub nodes: u64,
}

/// Samples of a run, at intervals of equal length; the last may be shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Length of the interval of a sample.
    pub every_ns: Ns,
    /// Samples in order of time.
    pub samples: Vec<RunSample>,
    current: RunSample,
    ends_at: Ns,
}

impl Default for Course {
    fn default() -> Self {
        Course {
            every_ns: SHORTEST,
            samples: Vec::new(),
            current: RunSample::default(),
            ends_at: SHORTEST,
        }
    }
}

impl Course {
    /// Advances to `now`. The levels have not changed since the last call.
    pub(crate) fn advance(&mut self, now: Ns, level: Level) {
        while now >= self.ends_at {
            let ended = std::mem::take(&mut self.current);
            self.samples.push(ended.at_end(level));
            self.ends_at += self.every_ns;
            if self.samples.len() == MAX_SAMPLES {
                let pairs = self.samples.chunks_exact(2).map(|pair| pair[0].followed_by(pair[1]));
                self.samples = pairs.collect();
                self.every_ns *= 2;
                self.ends_at = self.every_ns * (self.samples.len() as u64 + 1);
            }
        }
    }

    /// Ends the run and its last sample at `now`.
    pub(crate) fn close(&mut self, now: Ns, level: Level) {
        self.advance(now, level);
        if now + self.every_ns > self.ends_at {
            self.samples.push(self.current.at_end(level));
        }
    }

    pub(crate) fn note_reads(&mut self, reads: Reads) {
        self.current.reads += reads;
    }

    pub(crate) fn note_done(&mut self) {
        self.current.done += 1;
    }

    /// The 99th percentile of the samples' read rates, in bytes per second (the paper's "peak").
    pub fn peak_bytes_per_s(&self) -> f64 {
        let mut bytes: Vec<_> = self.samples.iter().map(|sample| sample.reads.bytes()).collect();
        bytes.sort_unstable();
        let place = bytes.len().saturating_sub(1) * 99 / 100;
        bytes.get(place).map_or(0.0, |bytes| *bytes as f64 / seconds(self.every_ns))
    }
}

impl RunSample {
    fn at_end(self, Level { waiting, running, nodes }: Level) -> RunSample {
        RunSample { waiting, running, nodes, ..self }
    }

    fn followed_by(self, next: RunSample) -> RunSample {
        let mut reads = self.reads;
        reads += next.reads;
        RunSample { done: self.done + next.done, reads, ..next }
    }
}

impl RunOutcome {
    /// Whether all tasks that arrived have succeeded.
    pub fn is_complete(&self) -> bool {
        self.done == self.tasks
    }

    /// Shares of all reads: from the node's own store, from peers, and from persistent storage.
    pub fn read_shares(&self) -> [f64; 3] {
        let counts = [self.reads.local.count, self.loads.peer.count, self.loads.persistent.count];
        let all = counts.iter().sum::<u64>().max(1) as f64;
        counts.map(|count| count as f64 / all)
    }

    /// Processor hours of the nodes while they were held.
    pub fn cpu_hours(&self) -> f64 {
        self.held_cpu_ns as f64 / (SECOND * 3600) as f64
    }

    /// Mean time from arrival to the end, in seconds.
    pub fn mean_response_s(&self) -> f64 {
        self.responded_ns as f64 / self.done.max(1) as f64 / SECOND as f64
    }

    /// Mean time from arrival to the start, in seconds.
    pub fn mean_wait_s(&self) -> f64 {
        self.waited_ns as f64 / self.done.max(1) as f64 / SECOND as f64
    }

    /// Seconds from the start to the end of the last task.
    pub fn makespan_s(&self) -> f64 {
        seconds(self.makespan_ns)
    }
}
