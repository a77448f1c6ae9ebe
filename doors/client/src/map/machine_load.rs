//! Load of this machine, as the kernel reports it, for block policies that look at I/O.

use std::collections::HashMap;
use std::time::Instant;

/// Field of a line of `/proc/diskstats` with the name of the disk.
const NAME: usize = 2;

/// Field of a line of `/proc/diskstats` with the time for which the disk was busy, milliseconds.
const BUSY_MS: usize = 12;

/// Measures the load since its last sample.
pub(crate) struct MachineLoad {
    sampled: Instant,
    /// For each disk, the time for which it was busy since the machine started, milliseconds.
    disks_busy_ms: HashMap<String, u64>,
}

impl MachineLoad {
    pub fn begin() -> Self {
        MachineLoad { sampled: Instant::now(), disks_busy_ms: disks_busy_ms() }
    }

    /// Two shares from 0 to 1: the part of the time since the last sample for which the busiest
    /// disk was busy, and the average load of the processors over the last minute.
    pub fn sample(&mut self) -> (f64, f64) {
        let before = std::mem::replace(self, MachineLoad::begin());
        let elapsed_ms = before.sampled.elapsed().as_millis().max(1) as f64;
        let busy_ms = |(disk, ms): (&String, &u64)| {
            ms.saturating_sub(before.disks_busy_ms.get(disk).copied().unwrap_or(*ms))
        };
        let most_ms = self.disks_busy_ms.iter().map(busy_ms).max().unwrap_or(0);
        ((most_ms as f64 / elapsed_ms).min(1.0), processor_load().min(1.0))
    }
}

fn disks_busy_ms() -> HashMap<String, u64> {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let disk = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        Some((fields.get(NAME)?.to_string(), fields.get(BUSY_MS)?.parse().ok()?))
    };
    text.lines().filter_map(disk).collect()
}

/// Number of runnable threads for each processor, averaged over the last minute; may be above 1.
fn processor_load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let runnable: f64 =
        text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    runnable / std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_shares_are_between_0_and_1() {
        let mut machine = MachineLoad::begin();
        for _ in 0..2 {
            let (disk, load) = machine.sample();
            assert!((0.0..=1.0).contains(&disk) && (0.0..=1.0).contains(&load), "{disk} {load}");
        }
        assert!(
            processor_load() > 0.0
                || std::fs::read_to_string("/proc/loadavg").unwrap().starts_with("0.00")
        );
    }
}
