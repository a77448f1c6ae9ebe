//! A job's course over time, and its sums (data-diffusion §3.1, §5.1).

use std::time::Duration;

use eyas_sched::placement::Utilisation;
use eyas_types::Reads;
use eyas_wire::view::{Metrics, Sample};

/// The shortest interval of the course.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_millis(100);
/// A course has no more samples than this; then each two become one, and intervals are twice as long.
const MAX_SAMPLES: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Course {
    samples: Vec<Sample>,
    current: Sample,
    began_us: u64,
    interval_us: u64,
    sums: Sums,
}

#[derive(Clone, Debug, Default)]
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
pub(crate) struct Ended {
    pub at_us: u64,
    pub ready_us: u64,
    pub queued_us: u64,
    pub waited_us: u64,
    pub ran_us: u64,
    pub delivery_us: u64,
    pub cpu_us: u64,
    pub reads: Reads,
}

impl Default for Course {
    fn default() -> Self {
        Course {
            samples: Vec::new(),
            current: Sample::default(),
            began_us: 0,
            interval_us: SAMPLE_EVERY.as_micros() as u64,
            sums: Sums::default(),
        }
    }
}

impl Course {
    /// A task has come into the queue.
    pub fn arrived(&mut self, input_bytes: u64) {
        self.current.arrived += 1;
        self.current.arrived_bytes += input_bytes;
    }

    /// A task has ended.
    pub fn ended(&mut self, ended: &Ended) {
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

    /// Closes the current interval if it is over, or if `now_us` is the `last` moment.
    pub fn tick(&mut self, now_us: u64, last: bool, waiting: u64, assigned: u64, executors: u64, now: Utilisation) {
        let interval_us = now_us.saturating_sub(self.began_us);
        if interval_us == 0 || (interval_us < self.interval_us && !last) {
            return;
        }
        let sample = Sample {
            at_us: now_us,
            interval_us,
            waiting,
            assigned,
            executors,
            capacity_milli: now.total_milli,
            busy_milli: now.busy_milli,
            ..std::mem::take(&mut self.current)
        };
        self.sums.held_cpu_us += now.total_milli as f64 / 1000.0 * interval_us as f64;
        self.samples.push(sample);
        self.began_us = now_us;
        if self.samples.len() > MAX_SAMPLES {
            self.interval_us *= 2;
            self.samples =
                self.samples.chunks(2).map(|pair| pair.iter().copied().reduce(merged).expect("not empty")).collect();
        }
    }

    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub fn reads(&self) -> Reads {
        self.sums.reads
    }

    pub fn metrics(&self, elapsed_us: u64) -> Metrics {
        let sums = &self.sums;
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let mean = |sum: u64| ratio(sum as f64, sums.tasks as f64);
        let share = |bytes: u64| ratio(bytes as f64, sums.reads.bytes() as f64);
        let speedup = ratio(sums.serial_us as f64, elapsed_us as f64);
        let processors = ratio(sums.held_cpu_us, elapsed_us as f64);
        Metrics {
            elapsed_us,
            serial_us: sums.serial_us,
            speedup,
            efficiency: ratio(speedup, processors),
            held_cpu_us: sums.held_cpu_us as u64,
            used_cpu_us: sums.used_cpu_us,
            performance_index: ratio(speedup, sums.held_cpu_us / 3.6e9),
            response_us: mean(sums.queue_us + sums.execution_us + sums.delivery_us),
            queue_us: mean(sums.queue_us),
            execution_us: mean(sums.execution_us),
            delivery_us: mean(sums.delivery_us),
            slowdown: ratio(elapsed_us as f64, sums.ideal_us as f64),
            local_share: share(sums.reads.local.bytes),
            peer_share: share(sums.reads.peer.bytes),
            persistent_share: share(sums.reads.persistent.bytes),
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

    const ALL_BUSY: Utilisation = Utilisation { busy_milli: 2000, total_milli: 2000 };

    fn ended(at_us: u64, ran_us: u64) -> Ended {
        let mut reads = Reads::default();
        reads.local.add(30);
        reads.persistent.add(10);
        Ended { at_us, ready_us: 0, queued_us: 5, waited_us: 3, ran_us, delivery_us: 2, cpu_us: ran_us, reads }
    }

    #[test]
    fn metrics_follow_the_equations() {
        let mut course = Course::default();
        course.ended(&ended(1_000_000, 1_000_000));
        course.ended(&ended(1_000_000, 500_000));
        course.tick(1_000_000, true, 0, 0, 1, ALL_BUSY);
        let metrics = course.metrics(1_000_000);
        assert_eq!(metrics.speedup, 1.5);
        assert_eq!(metrics.efficiency, 0.75);
        assert_eq!(metrics.held_cpu_us, 2_000_000);
        assert_eq!(metrics.response_us, 5.0 + 3.0 + 750_000.0 + 2.0);
        assert_eq!(metrics.slowdown, 1.0);
        assert_eq!((metrics.local_share, metrics.persistent_share), (0.75, 0.25));
    }

    #[test]
    fn a_long_course_keeps_its_sums_in_few_samples() {
        let mut course = Course::default();
        let steps = 50_000;
        for step in 1..=steps {
            course.arrived(7);
            course.tick(step * 100_000, false, step, 0, 1, ALL_BUSY);
        }
        course.tick(steps * 100_000 + 1, true, steps, 0, 1, ALL_BUSY);
        assert!(course.samples().len() <= MAX_SAMPLES + 1);
        assert_eq!(course.samples().iter().map(|s| s.arrived).sum::<u64>(), steps);
        let mut at = 0;
        for sample in course.samples() {
            assert_eq!(sample.at_us - sample.interval_us, at, "no gap");
            at = sample.at_us;
        }
    }

    #[test]
    fn nothing_divided_by_nothing_is_nothing() {
        assert_eq!(Course::default().metrics(0), Metrics::default());
    }
}
