//! The samples of a job: average and peak throughput, the columns for the charts of the page, and a
//! condensed list for the table that has the same data as the charts.

use eyas_wire::view::{JobReport, Sample};
use serde::Serialize;

/// The samples as columns of numbers, from which the script of the page computes rates and shares.
/// Numbers only, so that no text from users reaches the script.
#[derive(Serialize)]
pub struct SampleColumns {
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
    files_count: Vec<u64>,
    files_bytes: Vec<u64>,
    waiting: Vec<u64>,
    assigned: Vec<u64>,
    executors: Vec<u64>,
    capacity_milli: Vec<u64>,
    busy_milli: Vec<u64>,
}

impl SampleColumns {
    /// The columns of `samples`.
    pub fn of(samples: &[Sample]) -> Self {
        let column = |value: fn(&Sample) -> u64| samples.iter().map(value).collect();
        SampleColumns {
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
            files_count: column(|s| s.reads.files.count),
            files_bytes: column(|s| s.reads.files.bytes()),
            waiting: column(|s| s.waiting),
            assigned: column(|s| s.assigned),
            executors: column(|s| s.executors),
            capacity_milli: column(|s| s.capacity_milli),
            busy_milli: column(|s| s.busy_milli),
        }
    }
}

/// The rate of `amount` in `interval_us`, per second; not a number for an interval of 0.
pub fn per_second(amount: u64, interval_us: u64) -> f64 {
    match interval_us {
        0 => f64::NAN,
        _ => amount as f64 * 1e6 / interval_us as f64,
    }
}

/// Average throughput from start to finish, bytes per second (data-diffusion §5.1.4).
pub fn average_throughput(report: &JobReport) -> f64 {
    per_second(report.job.reads.bytes(), report.metrics.elapsed_us)
}

/// Peak throughput, bytes per second: the 99th percentile over the time of the job (data-diffusion
/// §5.1.4), so that one short sample does not determine the peak. Not a number without samples.
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

/// Condenses samples to at most `rows`. Neighbouring samples are merged: their counts are added,
/// and the values that describe a state are those of the last one.
pub fn condense(samples: &[Sample], rows: usize) -> Vec<Sample> {
    let together = samples.len().div_ceil(rows.max(1)).max(1);
    let merge = |neighbours: &[Sample]| {
        // `chunks` gives no empty slice.
        let mut merged = Sample {
            reads: Default::default(),
            ..*neighbours.last().expect("a chunk has samples")
        };
        (merged.interval_us, merged.arrived, merged.arrived_bytes, merged.ended) = (0, 0, 0, 0);
        for sample in neighbours {
            merged.interval_us += sample.interval_us;
            merged.arrived += sample.arrived;
            merged.arrived_bytes += sample.arrived_bytes;
            merged.ended += sample.ended;
            merged.reads += sample.reads;
        }
        merged
    };
    samples.chunks(together).map(merge).collect()
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
        assert_eq!(
            samples.last().map(|s| (s.at_us, s.executors)),
            few.last().map(|s| (s.at_us, s.executors))
        );
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
        assert_eq!(
            peak_throughput(&samples),
            5.0,
            "one sample of 200 is less than a hundredth of the time"
        );
        samples[8].reads.local.bytes = 900;
        samples[9].reads.local.bytes = 800;
        assert_eq!(peak_throughput(&samples), 800.0);
        assert!(peak_throughput(&[]).is_nan());
    }
}
