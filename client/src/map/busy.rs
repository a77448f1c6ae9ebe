//! How busy this machine is, as the system tells, for schedulers that ask.

use std::collections::HashMap;
use std::time::Instant;

/// Where in a line of `/proc/diskstats` the device's name is.
const NAME: usize = 2;

/// And the time in which it was in use, milliseconds.
const IN_USE_MS: usize = 12;

/// Looks again and again.
pub(crate) struct Busy {
    looked: Instant,
    /// Of each disk, for how long it has been in use, milliseconds.
    disks: HashMap<String, u64>,
}

impl Busy {
    pub fn begin() -> Self {
        Busy { looked: Instant::now(), disks: disks() }
    }

    /// The share of the time since the last look in which the busiest disk was in use, and the share of the processors that
    /// there was work for.
    pub fn look(&mut self) -> (f64, f64) {
        let before = std::mem::replace(self, Busy::begin());
        let elapsed_ms = before.looked.elapsed().as_millis().max(1) as f64;
        let used_ms = |(disk, ms): (&String, &u64)| ms.saturating_sub(before.disks.get(disk).copied().unwrap_or(*ms));
        let most_ms = self.disks.iter().map(used_ms).max().unwrap_or(0);
        ((most_ms as f64 / elapsed_ms).min(1.0), load().min(1.0))
    }
}

fn disks() -> HashMap<String, u64> {
    let text = std::fs::read_to_string("/proc/diskstats").unwrap_or_default();
    let disk = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        Some((fields.get(NAME)?.to_string(), fields.get(IN_USE_MS)?.parse().ok()?))
    };
    text.lines().filter_map(disk).collect()
}

/// Over the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let waiting: f64 = text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    waiting / std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shares() {
        let mut busy = Busy::begin();
        for _ in 0..2 {
            let (disk, load) = busy.look();
            assert!((0.0..=1.0).contains(&disk) && (0.0..=1.0).contains(&load), "{disk} {load}");
        }
        assert!(load() > 0.0 || std::fs::read_to_string("/proc/loadavg").unwrap().starts_with("0.00"));
    }
}
