//! What came of a run.

use eyas_types::Reads;

use crate::clock::{Ns, SECOND, seconds};

/// Samples that are kept; when there are more, two become one.
pub const MAX_SAMPLES: usize = 2_048;

/// Parts of a course are at least so long. Doubled again and again it is a second, as the paper samples.
const SHORTEST: Ns = SECOND / 16;

/// See the [module's](self) documentation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From the start to the end of the last task.
    pub makespan_ns: Ns,
    /// Tasks that came.
    pub tasks: u64,
    /// Tasks that have computed.
    pub done: u64,
    /// Tasks that failed: their tries are used up, no executor could take them, or what they read is lost.
    pub failed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// How often tasks were tried again, or ran again for their client.
    pub retried: u64,
    /// How often tasks ran again because an output of theirs was lost that was still needed.
    pub recomputed: u64,
    /// Nodes that were lost.
    pub lost_nodes: u64,
    /// Nodes that left in good order.
    pub left_nodes: u64,
    /// How often a dispatcher died.
    pub restarts: u64,
    /// Connections between executors and the dispatcher that broke.
    pub broken_connections: u64,
    /// Where tasks' inputs came from.
    pub reads: Reads,
    /// What nodes got for tasks from each other and from persistent storage, also for tasks that were decided again and ran
    /// elsewhere.
    pub loads: Reads,
    /// Tasks that were broken off because the time of their node was over.
    pub out_of_time: u64,
    /// Bytes that nodes got from each other.
    pub peer_bytes: u64,
    /// Bytes read from persistent storage.
    pub storage_bytes: u64,
    /// Bytes written to persistent storage.
    pub written_bytes: u64,
    /// Processor time of nodes while they were there, nanoseconds.
    pub held_cpu_ns: u128,
    /// Processor time that tasks computed, without reading.
    pub computed_ns: u128,
    /// From arrival until the dispatcher decided where they go, summed over tasks.
    pub queued_ns: u128,
    /// From the start to the end, reading included, summed over tasks; of one that ran again, the last time.
    pub ran_ns: u128,
    /// When the last task would have ended if each had started when it came.
    pub ideal_ns: Ns,
    /// From arrival to the start, summed over tasks; of one that ran again, the last.
    pub waited_ns: u128,
    /// From arrival until the dispatcher knew of the end, summed over tasks.
    pub responded_ns: u128,
    /// How often a dispatcher decided where a task goes.
    pub decisions: u64,
    /// How often the one did that did so the most.
    pub most_decisions: u64,
    /// The longest queue; of several dispatchers, all together.
    pub most_waiting: u64,
    /// How it went.
    pub course: Course,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Tasks that ended.
    pub done: u64,
    /// Bytes that tasks read.
    pub reads: Reads,
    /// Tasks that waited for an executor, at the end of the part.
    pub waiting: u64,
    /// Tasks that had a processor, at the end of the part.
    pub running: u64,
    /// Nodes that were there, at the end of the part.
    pub nodes: u64,
}

/// How things stand at one moment; see [`Sample`].
#[derive(Clone, Copy)]
pub(crate) struct Level {
    pub waiting: u64,
    pub running: u64,
    pub nodes: u64,
}

/// Samples of a run, each of a part of the same length; the last may be shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// The length of a part.
    pub every_ns: Ns,
    /// In order.
    pub samples: Vec<Sample>,
    current: Sample,
    ends_at: Ns,
}

impl Default for Course {
    fn default() -> Self {
        Course { every_ns: SHORTEST, samples: Vec::new(), current: Sample::default(), ends_at: SHORTEST }
    }
}

impl Course {
    /// Time goes on to `now`; until now things stood so.
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

    /// The run ends at `now`, and with it the last part.
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

    /// The rate of reading that a hundredth of the samples exceed, bytes a second (the paper's "peak").
    pub fn peak_bytes_per_s(&self) -> f64 {
        let mut bytes: Vec<_> = self.samples.iter().map(|sample| sample.reads.bytes()).collect();
        bytes.sort_unstable();
        let place = bytes.len().saturating_sub(1) * 99 / 100;
        bytes.get(place).map_or(0.0, |bytes| *bytes as f64 / seconds(self.every_ns))
    }
}

impl Sample {
    fn at_end(self, Level { waiting, running, nodes }: Level) -> Sample {
        Sample { waiting, running, nodes, ..self }
    }

    fn followed_by(self, next: Sample) -> Sample {
        let mut reads = self.reads;
        reads += next.reads;
        Sample { done: self.done + next.done, reads, ..next }
    }
}

impl Outcome {
    /// Whether all tasks that came have computed.
    pub fn is_complete(&self) -> bool {
        self.done == self.tasks
    }

    /// Part of all that was read that tasks read from their node's store, and nodes got from peers and from persistent
    /// storage.
    pub fn read_shares(&self) -> [f64; 3] {
        let counts = [self.reads.local.count, self.loads.peer.count, self.loads.persistent.count];
        let all = counts.iter().sum::<u64>().max(1) as f64;
        counts.map(|count| count as f64 / all)
    }

    /// Processor hours of nodes while they were there.
    pub fn cpu_hours(&self) -> f64 {
        self.held_cpu_ns as f64 / (SECOND * 3600) as f64
    }

    /// From arrival to the end, seconds, on average.
    pub fn mean_response_s(&self) -> f64 {
        self.responded_ns as f64 / self.done.max(1) as f64 / SECOND as f64
    }

    /// From arrival to the start, seconds, on average.
    pub fn mean_wait_s(&self) -> f64 {
        self.waited_ns as f64 / self.done.max(1) as f64 / SECOND as f64
    }

    /// Seconds from the start to the end of the last task.
    pub fn makespan_s(&self) -> f64 {
        seconds(self.makespan_ns)
    }
}
