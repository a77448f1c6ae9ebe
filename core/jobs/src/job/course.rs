//! A job's course over time, and its sums (data-diffusion §3.1, §5.1).

use alloc::vec::Vec;
use core::mem;

use eyas_types::Reads;
use eyas_types::course::{Metrics, Sample};
use serde::{Deserialize, Serialize};

/// The shortest interval of the course, microseconds.
pub(crate) const SAMPLE_EVERY_US: u64 = 100_000;
/// Samples that were closed while no task ended are written to the journal after this time,
/// microseconds.
const WRITE_SAMPLES_EVERY_US: u64 = 5_000_000;
/// A course has no more samples than this; then each two become one, and intervals are twice as
/// long. For example intervals become 0.2 s after 102.5 s, and are 6.4 s in a job that runs for an
/// hour.
const MAX_SAMPLES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct JobCourse {
    samples: Vec<Sample>,
    #[serde(skip)]
    current: Sample,
    began_us: u64,
    interval_us: u64,
    sums: Sums,
    /// Samples that were closed and not yet taken for the journal.
    #[serde(skip)]
    unwritten: Vec<Sample>,
    /// Time without a known sample: those that were not on disk when a dispatcher died, and the
    /// time until the next one was there.
    unsampled_us: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sums {
    tasks: u64,
    serial_us: u64,
    used_cpu_us: u64,
    queue_us: u64,
    execution_us: u64,
    delivery_us: u64,
    /// Integral of processors over time, microseconds.
    held_cpu_us: f64,
    ideal_us: u64,
    reads: Reads,
    last_end_us: u64,
}

/// One ended task's part in the course. Times in microseconds.
pub(crate) struct EndedTask {
    pub at_us: u64,
    pub ready_us: u64,
    pub queued_us: u64,
    pub waited_us: u64,
    pub ran_us: u64,
    pub delivery_us: u64,
    pub cpu_us: u64,
    pub reads: Reads,
}

impl Default for JobCourse {
    fn default() -> Self {
        JobCourse {
            samples: Vec::new(),
            current: Sample::default(),
            began_us: 0,
            interval_us: SAMPLE_EVERY_US,
            sums: Sums::default(),
            unwritten: Vec::new(),
            unsampled_us: 0,
        }
    }
}

impl JobCourse {
    /// A task has come into the queue.
    pub fn arrived(&mut self, input_bytes: u64) {
        self.current.arrived += 1;
        self.current.arrived_bytes += input_bytes;
    }

    /// A task has ended.
    pub fn ended(&mut self, ended: &EndedTask) {
        self.current.ended += 1;
        self.current.reads += ended.reads;
        let sums = &mut self.sums;
        sums.tasks += 1;
        sums.serial_us += ended.ran_us;
        sums.used_cpu_us += ended.cpu_us;
        sums.queue_us += ended.queued_us;
        sums.execution_us += ended.waited_us + ended.ran_us;
        sums.delivery_us += ended.delivery_us;
        sums.ideal_us = sums.ideal_us.max(ended.ready_us + ended.ran_us);
        sums.reads += ended.reads;
        sums.last_end_us = sums.last_end_us.max(ended.at_us);
    }

    /// Closes the current interval if it is over, or if `state.at_us` is the `last` moment. `state`
    /// says how things stand; what happened in the interval is known here.
    pub fn tick(&mut self, last: bool, state: Sample) {
        let interval_us = state.at_us.saturating_sub(self.began_us);
        if interval_us == 0 || (interval_us < self.interval_us && !last) {
            return;
        }
        let Sample { arrived, arrived_bytes, ended, reads, .. } = mem::take(&mut self.current);
        let sample = Sample { interval_us, arrived, arrived_bytes, ended, reads, ..state };
        self.unwritten.push(sample);
        self.push(sample);
    }

    /// A task was cancelled, which had read this much.
    pub fn cancelled(&mut self, reads: Reads) {
        self.current.reads += reads;
        self.sums.reads += reads;
    }

    /// Takes samples that the journal has, in their order. The ends among them were told before.
    pub fn recovered(&mut self, samples: &[Sample]) {
        for sample in samples {
            self.unsampled_us += (sample.at_us - sample.interval_us).saturating_sub(self.began_us);
            self.push(*sample);
        }
        self.current = Sample::default();
    }

    /// After a journal was read: what happened between its last sample and now was not sampled.
    pub fn resume(&mut self, now_us: u64) {
        self.unsampled_us += now_us.saturating_sub(self.began_us);
        self.began_us = self.began_us.max(now_us);
        self.current = Sample::default();
    }

    /// Samples that the journal does not have yet; they are taken as written afterwards.
    pub fn take_unwritten(&mut self) -> Vec<Sample> {
        mem::take(&mut self.unwritten)
    }

    /// Whether there are such samples.
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// The course up to its last closed interval, or up to the end of a job that has ended.
    pub fn closed(&self, ended_us: Option<u64>) -> Self {
        let mut closed =
            JobCourse { current: Sample::default(), unwritten: Vec::new(), ..self.clone() };
        if let Some(ended_us) = ended_us {
            closed.resume(ended_us);
        }
        closed
    }

    /// Whether samples have waited long enough for a result to be written with.
    pub fn has_old_samples(&self) -> bool {
        self.unwritten
            .first()
            .is_some_and(|first| self.began_us >= first.at_us + WRITE_SAMPLES_EVERY_US)
    }

    fn push(&mut self, sample: Sample) {
        self.sums.held_cpu_us += sample.capacity_milli as f64 / 1000.0 * sample.interval_us as f64;
        self.samples.push(sample);
        self.began_us = sample.at_us;
        if self.samples.len() > MAX_SAMPLES {
            self.interval_us *= 2;
            self.samples = self
                .samples
                .chunks(2)
                .map(|pair| pair.iter().copied().reduce(merged).expect("not empty"))
                .collect();
        }
    }

    /// The course so far, in order. There is a gap where samples were lost.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Where inputs came from so far.
    pub fn reads(&self) -> Reads {
        self.sums.reads
    }

    /// Its sums and averages, where `elapsed_us` is the job's time. What needs every sample is left
    /// out if some were lost.
    ///
    /// For example, on two processors, tasks of 1 s and 0.5 s end in 1 s: a speedup of 1.5, an
    /// efficiency of 0.75 and, with 2 / 3600 processor hours, a performance index of 2,700.
    pub fn metrics(&self, elapsed_us: u64) -> Metrics {
        let sums = &self.sums;
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let if_sampled = |value: f64| (self.unsampled_us == 0).then_some(value);
        let mean = |sum: u64| ratio(sum as f64, sums.tasks as f64);
        let share = |bytes: u64| ratio(bytes as f64, sums.reads.bytes() as f64);
        let speedup = ratio(sums.serial_us as f64, elapsed_us as f64);
        let processors = ratio(sums.held_cpu_us, elapsed_us as f64);
        Metrics {
            elapsed_us,
            serial_us: sums.serial_us,
            speedup,
            efficiency: if_sampled(ratio(speedup, processors)),
            held_cpu_us: if_sampled(sums.held_cpu_us).map(|held_us| held_us as u64),
            used_cpu_us: sums.used_cpu_us,
            performance_index: if_sampled(ratio(speedup, sums.held_cpu_us / 3.6e9)),
            unsampled_us: self.unsampled_us,
            response_us: mean(sums.queue_us + sums.execution_us + sums.delivery_us),
            queue_us: mean(sums.queue_us),
            execution_us: mean(sums.execution_us),
            delivery_us: mean(sums.delivery_us),
            slowdown: ratio(elapsed_us as f64, sums.ideal_us as f64),
            local_share: share(sums.reads.local.bytes),
            peer_share: share(sums.reads.peer.bytes),
            persistent_share: share(sums.reads.persistent.bytes),
            files_share: share(sums.reads.files.bytes()),
        }
    }
}

/// Two neighbouring intervals as one: what happened is added, how it stood is the later one's.
fn merged(earlier: Sample, later: Sample) -> Sample {
    let mut reads = earlier.reads;
    reads += later.reads;
    Sample {
        interval_us: earlier.interval_us + later.interval_us,
        arrived: earlier.arrived + later.arrived,
        arrived_bytes: earlier.arrived_bytes + later.arrived_bytes,
        ended: earlier.ended + later.ended,
        reads,
        ..later
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_us: u64) -> Sample {
        Sample { at_us, executors: 1, capacity_milli: 2000, busy_milli: 2000, ..Sample::default() }
    }

    fn ended(at_us: u64, ran_us: u64) -> EndedTask {
        let mut reads = Reads::default();
        reads.local.add(30);
        reads.persistent.add(10);
        EndedTask {
            at_us,
            ready_us: 0,
            queued_us: 5,
            waited_us: 3,
            ran_us,
            delivery_us: 2,
            cpu_us: ran_us,
            reads,
        }
    }

    #[test]
    fn metrics_follow_the_equations() {
        let mut course = JobCourse::default();
        course.ended(&ended(1_000_000, 1_000_000));
        course.ended(&ended(1_000_000, 500_000));
        course.tick(true, at(1_000_000));
        let metrics = course.metrics(1_000_000);
        assert_eq!(metrics.speedup, 1.5);
        assert_eq!(metrics.efficiency, Some(0.75));
        assert_eq!(metrics.held_cpu_us, Some(2_000_000));
        assert_eq!(metrics.response_us, 5.0 + 3.0 + 750_000.0 + 2.0);
        assert_eq!(metrics.slowdown, 1.0);
        assert_eq!((metrics.local_share, metrics.persistent_share), (0.75, 0.25));
    }

    #[test]
    fn a_long_course_keeps_its_sums_in_few_samples() {
        let mut course = JobCourse::default();
        let steps = 50_000;
        for step in 1..=steps {
            course.arrived(7);
            course.tick(false, at(step * 100_000));
        }
        course.tick(true, at(steps * 100_000 + 1));
        assert!(course.samples().len() <= MAX_SAMPLES + 1);
        assert_eq!(course.samples().iter().map(|s| s.arrived).sum::<u64>(), steps);
        let mut at = 0;
        for sample in course.samples() {
            assert_eq!(sample.at_us - sample.interval_us, at, "no gap");
            at = sample.at_us;
        }
    }

    #[test]
    fn a_course_read_from_the_journal_is_the_same() {
        let (mut live, mut again) = (JobCourse::default(), JobCourse::default());
        for step in 1..=3_000 {
            live.arrived(step);
            live.tick(step == 3_000, at(step * 110_000));
            if step % 7 == 0 || step == 3_000 {
                again.recovered(&live.take_unwritten());
            }
        }
        assert_eq!(again.samples(), live.samples());
        assert_eq!(again.metrics(9), live.metrics(9));
    }

    #[test]
    fn figures_that_need_lost_samples_are_left_out() {
        let mut live = JobCourse::default();
        live.tick(false, at(100_000));
        let written = live.take_unwritten();
        live.tick(false, at(200_000));
        let mut again = JobCourse::default();
        again.recovered(&written);
        again.resume(500_000);
        again.tick(true, at(600_000));
        let metrics = again.metrics(600_000);
        assert_eq!(metrics.unsampled_us, 400_000);
        assert_eq!(
            (metrics.efficiency, metrics.held_cpu_us, metrics.performance_index),
            (None, None, None)
        );
        // It stays known after the next restart.
        let mut third = JobCourse::default();
        third.recovered(&written);
        third.recovered(&again.take_unwritten());
        assert_eq!(third.metrics(600_000).unsampled_us, 400_000);
    }

    #[test]
    fn samples_wait_for_a_result_to_be_written_with() {
        let mut course = JobCourse::default();
        course.tick(false, at(100_000));
        assert!(!course.has_old_samples());
        course.tick(false, at(5_100_000));
        assert!(course.has_old_samples());
        assert_eq!(course.take_unwritten().len(), 2);
        assert!(!course.has_old_samples());
    }

    #[test]
    fn metrics_of_an_empty_course_are_zero() {
        let metrics = Metrics {
            efficiency: Some(0.0),
            held_cpu_us: Some(0),
            performance_index: Some(0.0),
            ..Metrics::default()
        };
        assert_eq!(JobCourse::default().metrics(0), metrics);
    }
}
