//! A job's samples: what is read off them besides the metrics, the columns the page's charts are drawn from, and the
//! few rows of the table that stands in for the charts.

use eyas_wire::view::{JobReport, Sample};
use serde::Serialize;

/// Samples as columns, as they are: compact, and what the page's script turns into rates and shares. Numbers only, so
/// that nothing that a person wrote reaches the script.
#[derive(Serialize)]
pub struct Columns {
    at_us: Vec<u64>,
    interval_us: Vec<u64>,
    arrived: Vec<u64>,
    arrived_bytes: Vec<u64>,
    ended: Vec<u64>,
    local_count: Vec<u64>,
    peer_count: Vec<u64>,
    persistent_count: Vec<u64>,
    local_bytes: Vec<u64>,
    peer_bytes: Vec<u64>,
    persistent_bytes: Vec<u64>,
    waiting: Vec<u64>,
    assigned: Vec<u64>,
    executors: Vec<u64>,
    capacity_milli: Vec<u64>,
    busy_milli: Vec<u64>,
}

impl Columns {
    /// The columns of `samples`.
    pub fn of(samples: &[Sample]) -> Self {
        let column = |value: fn(&Sample) -> u64| samples.iter().map(value).collect();
        Columns {
            at_us: column(|s| s.at_us),
            interval_us: column(|s| s.interval_us),
            arrived: column(|s| s.arrived),
            arrived_bytes: column(|s| s.arrived_bytes),
            ended: column(|s| s.ended),
            local_count: column(|s| s.reads.local.count),
            peer_count: column(|s| s.reads.peer.count),
            persistent_count: column(|s| s.reads.persistent.count),
            local_bytes: column(|s| s.reads.local.bytes),
            peer_bytes: column(|s| s.reads.peer.bytes),
            persistent_bytes: column(|s| s.reads.persistent.bytes),
            waiting: column(|s| s.waiting),
            assigned: column(|s| s.assigned),
            executors: column(|s| s.executors),
            capacity_milli: column(|s| s.capacity_milli),
            busy_milli: column(|s| s.busy_milli),
        }
    }
}

/// `amount` in `interval_us` for each second; not a number where no time passed.
pub fn per_second(amount: u64, interval_us: u64) -> f64 {
    match interval_us {
        0 => f64::NAN,
        _ => amount as f64 * 1e6 / interval_us as f64,
    }
}

/// Average throughput from start to finish, bytes a second (data-diffusion §5.1.4).
pub fn average_throughput(report: &JobReport) -> f64 {
    per_second(report.job.reads.bytes(), report.metrics.elapsed_us)
}

/// Peak throughput, bytes a second: its 99th percentile over the job's time (data-diffusion §5.1.4), so that one short
/// sample does not make the peak. Not a number without samples.
pub fn peak_throughput(samples: &[Sample]) -> f64 {
    let mut rates: Vec<(f64, u64)> = samples
        .iter()
        .filter(|s| s.interval_us > 0)
        .map(|s| (per_second(s.reads.bytes(), s.interval_us), s.interval_us))
        .collect();
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let hundredth = rates.iter().map(|(_, interval)| interval).sum::<u64>() / 100;
    let mut above = 0;
    let peak = rates.iter().find(|(_, interval)| {
        above += interval;
        above > hundredth
    });
    peak.map_or(f64::NAN, |(rate, _)| *rate)
}

/// The same course in at most `rows` samples: neighbours become one, their counts added, and how things stood taken from
/// the last of them.
pub fn condense(samples: &[Sample], rows: usize) -> Vec<Sample> {
    let together = samples.len().div_ceil(rows.max(1)).max(1);
    let join = |neighbours: &[Sample]| {
        // `chunks` gives no empty slice.
        let mut joined = Sample { reads: Default::default(), ..*neighbours.last().expect("a chunk has samples") };
        (joined.interval_us, joined.arrived, joined.arrived_bytes, joined.ended) = (0, 0, 0, 0);
        for sample in neighbours {
            joined.interval_us += sample.interval_us;
            joined.arrived += sample.arrived;
            joined.arrived_bytes += sample.arrived_bytes;
            joined.ended += sample.ended;
            joined.reads += sample.reads;
        }
        joined
    };
    samples.chunks(together).map(join).collect()
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn condensing_keeps_sums_and_ends() {
        let samples = example::diffusion().samples;
        let few = condense(&samples, 40);
        assert!(few.len() <= 40 && few.len() > 20, "{}", few.len());
        let sums = |samples: &[Sample]| {
            let bytes: u64 = samples.iter().map(|s| s.reads.bytes()).sum();
            let ended: u64 = samples.iter().map(|s| s.ended).sum();
            let interval_us: u64 = samples.iter().map(|s| s.interval_us).sum();
            (bytes, ended, interval_us)
        };
        assert_eq!(sums(&samples), sums(&few));
        assert_eq!(samples.last().map(|s| (s.at_us, s.executors)), few.last().map(|s| (s.at_us, s.executors)));
        assert_eq!(condense(&samples[..1], 40), samples[..1]);
        assert!(condense(&[], 40).is_empty());
    }

    #[test]
    fn the_peak_is_the_99th_percentile_of_time() {
        let mut samples = vec![Sample { interval_us: 1_000_000, ..Sample::default() }; 200];
        for sample in &mut samples {
            sample.reads.local.bytes = 5;
        }
        samples[7].reads.local.bytes = 1000;
        assert_eq!(peak_throughput(&samples), 5.0, "one sample of 200 is less than a hundredth of the time");
        samples[8].reads.local.bytes = 900;
        samples[9].reads.local.bytes = 800;
        assert_eq!(peak_throughput(&samples), 800.0);
        assert!(peak_throughput(&[]).is_nan());
    }
}
