//! Selection of the place from which a node reads a named file (replica-coupled §4.1, the Replica
//! Selector). The paper selects by round trip; here, a place is selected by the time that the whole
//! read is estimated to take, from the round trip and rate that this node has measured.
//!
//! Places on one server share their measurements. The name of what they share, such as
//! `http://host:80`, is their *origin*.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Maximum number of origins that are remembered. The one that was used the longest ago is
/// forgotten first.
const MAX_ORIGINS: usize = 1024;
/// What was measured longer ago than this does not count: the origin is measured again.
const REMEMBERED_US: u64 = 600_000_000;
/// An origin that has failed is tried after all others for this long; for twice as long after each
/// further failure, up to [`AVOIDED_MOST_US`].
const AVOIDED_US: u64 = 5_000_000;
const AVOIDED_MOST_US: u64 = 300_000_000;
/// The rate of smaller reads is not measured.
const MEASURED_BYTES: u64 = 256 << 10;
/// Before a smaller file is read, no rate is sampled.
const SAMPLED_FROM_BYTES: u64 = 8 << 20;
/// Rate that is assumed of an origin while none was measured, bytes per second.
const NOMINAL_RATE: u64 = 1_000_000;
/// No place is given up as slow before it was read for this long.
const PATIENCE_US: u64 = 2_000_000;
/// A place that has sent nothing is not given up before this time.
const FIRST_BYTES_US: u64 = 10_000_000;
/// A place is given up if the rest of its read would take this many times as long as the whole read
/// at the next place.
const SLOW_FACTOR: u64 = 4;

/// What a node has measured of the origins of places.
#[derive(Clone, Debug, Default)]
pub struct PlaceRates {
    origins: BTreeMap<String, MeasuredOrigin>,
}

#[derive(Clone, Copy, Debug, Default)]
struct MeasuredOrigin {
    round_trip_us: Option<u64>,
    /// Bytes per second.
    rate: Option<u64>,
    /// Bytes of reads in progress.
    in_progress_bytes: u64,
    /// Failures since the last success.
    failures: u32,
    avoided_until_us: u64,
    /// When the origin was last used.
    used_us: u64,
}

/// A moving average: three parts of what was known, and one of what was seen.
fn learn(average: &mut Option<u64>, seen: u64) {
    *average = Some(average.map_or(seen, |average| (3 * average + seen) / 4));
}

/// Bytes per second.
fn rate_of(bytes: u64, took_us: u64) -> u64 {
    let rate = u128::from(bytes) * 1_000_000 / u128::from(took_us.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

impl PlaceRates {
    /// The order in which places with these origins are tried to read a file of `size_bytes`, as
    /// indices: the shortest estimated time first, and those that have failed a moment ago last. Of
    /// equal ones, the first stays the first. For example, of 10 MB: an origin with 20 ms and 10
    /// MB/s (1.02 s) goes before one with 1 ms and 5 MB/s (2.001 s); not if 40 MB are being read
    /// from the first already (5.02 s).
    pub fn order(&self, origins: &[&str], size_bytes: u64, now_us: u64) -> Vec<usize> {
        let mut order: Vec<_> = (0..origins.len()).collect();
        order.sort_by_key(|index| {
            let known = self.known(origins[*index], now_us);
            let avoided_until_us = Some(known.avoided_until_us).filter(|until| *until > now_us);
            (avoided_until_us, self.estimate_us(origins[*index], size_bytes, now_us))
        });
        order
    }

    /// Whether the round trip to an origin is not known, and it has not failed a moment ago.
    pub fn is_new(&self, origin: &str, now_us: u64) -> bool {
        let known = self.known(origin, now_us);
        known.round_trip_us.is_none() && known.avoided_until_us <= now_us
    }

    /// Whether the rate of an origin is to be sampled before a file of `size_bytes` is read: it is
    /// not known, and reading the file from a slow place would cost much more than the sample.
    pub fn is_to_sample(&self, origin: &str, size_bytes: u64, now_us: u64) -> bool {
        let known = self.known(origin, now_us);
        size_bytes >= SAMPLED_FROM_BYTES && known.rate.is_none() && known.avoided_until_us <= now_us
    }

    /// Some bytes were read from an origin, to measure its rate.
    pub fn sampled(&mut self, origin: &str, read_bytes: u64, took_us: u64, now_us: u64) {
        let known = self.used(origin, now_us);
        if read_bytes > 0 {
            learn(&mut known.rate, rate_of(read_bytes, took_us));
        }
    }

    /// Estimated time to read a file of `size_bytes` from an origin, beside the reads that are in
    /// progress there. While its rate is not known, it counts as the highest known one, so that
    /// the origin is tried.
    pub fn estimate_us(&self, origin: &str, size_bytes: u64, now_us: u64) -> u64 {
        let known = self.known(origin, now_us);
        let rate = known.rate.unwrap_or_else(|| {
            let known = self.origins.values().filter_map(|origin| origin.rate);
            known.max().unwrap_or(NOMINAL_RATE)
        });
        let bytes = u128::from(size_bytes) + u128::from(known.in_progress_bytes);
        let transfer_us = bytes * 1_000_000 / u128::from(rate.max(1));
        let transfer_us = u64::try_from(transfer_us).unwrap_or(u64::MAX);
        known.round_trip_us.unwrap_or(0).saturating_add(transfer_us)
    }

    /// Whether a read is to be given up for the next place: `read_bytes` of `size_bytes` have come
    /// in `took_us`, and the read at the next place is estimated to take `next_us`. For example, of
    /// 10 MB, 0.2 MB have come in 2 s, so the rest would take 98 s: the place is given up if the
    /// next one takes less than 24.5 s. While nothing has come, the rate is not known: the first
    /// bytes may come together, so the place has more time.
    pub fn is_too_slow(read_bytes: u64, size_bytes: u64, took_us: u64, next_us: u64) -> bool {
        if read_bytes == 0 {
            return took_us >= next_us.max(FIRST_BYTES_US);
        }
        let left = u128::from(size_bytes.saturating_sub(read_bytes));
        let left_us = left * u128::from(took_us) / u128::from(read_bytes);
        let next_us = u128::from(next_us.max(PATIENCE_US));
        took_us >= PATIENCE_US && left_us > u128::from(SLOW_FACTOR) * next_us
    }

    /// An origin has answered a request that has no content.
    pub fn answered(&mut self, origin: &str, took_us: u64, now_us: u64) {
        learn(&mut self.used(origin, now_us).round_trip_us, took_us);
    }

    /// A read begins.
    pub fn began(&mut self, origin: &str, size_bytes: u64, now_us: u64) {
        self.used(origin, now_us).in_progress_bytes += size_bytes;
    }

    /// A read that has [begun](Self::began) has ended, after `read_bytes` of `size_bytes`.
    pub fn ended(
        &mut self,
        origin: &str,
        (read_bytes, size_bytes): (u64, u64),
        took_us: u64,
        now_us: u64,
    ) {
        let known = self.used(origin, now_us);
        known.in_progress_bytes = known.in_progress_bytes.saturating_sub(size_bytes);
        let is_whole = read_bytes == size_bytes;
        if is_whole {
            (known.failures, known.avoided_until_us) = (0, 0);
        }
        if read_bytes >= MEASURED_BYTES || !is_whole && read_bytes > 0 && took_us >= PATIENCE_US {
            learn(&mut known.rate, rate_of(read_bytes, took_us));
        }
    }

    /// An origin did not answer, or broke off.
    pub fn failed(&mut self, origin: &str, now_us: u64) {
        let known = self.used(origin, now_us);
        let avoided_us = AVOIDED_US << known.failures.min(16);
        known.avoided_until_us = now_us + avoided_us.min(AVOIDED_MOST_US);
        known.failures += 1;
    }

    fn known(&self, origin: &str, now_us: u64) -> MeasuredOrigin {
        let known = self.origins.get(origin).copied().unwrap_or_default();
        if now_us.saturating_sub(known.used_us) > REMEMBERED_US {
            return MeasuredOrigin {
                in_progress_bytes: known.in_progress_bytes,
                ..MeasuredOrigin::default()
            };
        }
        known
    }

    fn used(&mut self, origin: &str, now_us: u64) -> &mut MeasuredOrigin {
        if !self.origins.contains_key(origin) && self.origins.len() >= MAX_ORIGINS {
            let idle = self.origins.iter().filter(|(_, known)| known.in_progress_bytes == 0);
            if let Some(oldest) = idle.min_by_key(|(_, known)| known.used_us) {
                let oldest = oldest.0.clone();
                self.origins.remove(&oldest);
            }
        }
        let known = self.known(origin, now_us);
        let entry = self.origins.entry(origin.into()).or_default();
        *entry = MeasuredOrigin { used_us: now_us, ..known };
        entry
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    const MB: u64 = 1_000_000;
    const S: u64 = 1_000_000;

    /// Origins with a round trip (us) and a rate (bytes/s).
    fn rates(origins: &[(&str, u64, u64)]) -> PlaceRates {
        let mut rates = PlaceRates::default();
        for (origin, round_trip_us, rate) in origins {
            rates.answered(origin, *round_trip_us, 1);
            rates.began(origin, *rate, 1);
            rates.ended(origin, (*rate, *rate), S, 1);
        }
        rates
    }

    #[test]
    fn the_place_with_the_shortest_estimate_is_tried_first() {
        let mut known = rates(&[("far", 20_000, 10 * MB), ("near", 1_000, 5 * MB)]);
        let order = |known: &PlaceRates, bytes| known.order(&["near", "far"], bytes, 2);
        assert_eq!(order(&known, 10 * MB), [1, 0], "1.02 s against 2.001 s");
        assert_eq!(order(&known, 1_000), [0, 1], "of a small file, the round trip decides");
        known.began("far", 40 * MB, 2);
        assert_eq!(order(&known, 10 * MB), [0, 1], "5.02 s against 2.001 s");
        known.ended("far", (40 * MB, 40 * MB), 4 * S, 3);
        assert_eq!(order(&known, 10 * MB), [1, 0]);
    }

    #[test]
    fn a_place_of_which_nothing_is_known_is_tried() {
        let known = rates(&[("a", 1_000, 5 * MB)]);
        assert!(known.is_new("b", 2) && !known.is_new("a", 2));
        assert_eq!(known.order(&["a", "b"], MB, 2), [1, 0]);
        assert_eq!(PlaceRates::default().order(&["x", "y", "z"], MB, 2), [0, 1, 2]);
        // After ten minutes, all is measured again.
        assert!(known.is_new("a", REMEMBERED_US + 2));
    }

    #[test]
    fn rates_are_sampled_once_and_before_large_files() {
        let mut known = rates(&[("a", 1_000, 5 * MB)]);
        assert!(known.is_to_sample("b", 100 * MB, 2) && !known.is_to_sample("a", 100 * MB, 2));
        assert!(!known.is_to_sample("b", MB, 2));
        known.sampled("b", 0, S, 3);
        assert!(known.is_to_sample("b", 100 * MB, 3), "nothing has come, so nothing is known");
        known.sampled("b", MB, S, 3);
        assert!(!known.is_to_sample("b", 100 * MB, 4));
        assert_eq!(known.order(&["b", "a"], 100 * MB, 4), [1, 0], "1 MB/s against 5");
        known.failed("c", 4);
        assert!(!known.is_to_sample("c", 100 * MB, 5));
    }

    #[test]
    fn a_place_that_failed_is_tried_last_for_a_while() {
        let mut known = rates(&[("a", 1_000, 50 * MB), ("b", 1_000, MB)]);
        let order = |known: &PlaceRates, now_us| known.order(&["a", "b"], MB, now_us);
        known.failed("a", S);
        assert_eq!(order(&known, 5 * S), [1, 0]);
        assert_eq!(order(&known, 7 * S), [0, 1]);
        known.failed("a", 7 * S);
        assert_eq!(order(&known, 16 * S), [1, 0], "10 s after the second failure");
        known.failed("b", 16 * S);
        assert_eq!(
            order(&known, 16 * S),
            [0, 1],
            "of those that failed, the one that is due first"
        );
        known.began("a", MB, 18 * S);
        known.ended("a", (MB, MB), S, 19 * S);
        known.failed("a", 19 * S);
        assert_eq!(order(&known, 30 * S), [0, 1], "a success ends the doubling");
    }

    #[test]
    fn a_slow_place_is_given_up_if_the_next_one_is_faster() {
        let slow = PlaceRates::is_too_slow;
        assert!(slow(MB / 5, 10 * MB, 2 * S, S), "98 s are left");
        assert!(!slow(MB / 5, 10 * MB, 2 * S, 30 * S), "the next one takes 30 s");
        assert!(!slow(0, 10 * MB, S, S), "too early to tell");
        assert!(!slow(0, 100 * MB, 9 * S, S), "the first range may come soon");
        assert!(slow(0, 1_000, 10 * S, S), "nothing has come");
        assert!(!slow(0, 1_000, 10 * S, 20 * S), "the next one takes 20 s");
        assert!(!slow(5 * MB, 10 * MB, 2 * S, S), "2 s are left");
    }

    #[test]
    fn the_rate_of_what_was_given_up_counts_and_that_of_small_reads_does_not() {
        let mut known = rates(&[("a", 1_000, 5 * MB)]);
        known.began("b", 10 * MB, 2);
        known.ended("b", (20_000, 10 * MB), 2 * S, 3);
        assert!(known.estimate_us("b", MB, 3) > 90 * S, "10 kB/s");
        known.began("a", 1_000, 3);
        known.ended("a", (1_000, 1_000), S, 4);
        assert_eq!(known.estimate_us("a", 5 * MB, 4), S + 1_000);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut known = PlaceRates::default();
        for n in 0..2 * MAX_ORIGINS {
            known.answered(&format!("http://{n}"), 1, n as u64);
        }
        assert_eq!(known.origins.len(), MAX_ORIGINS);
        assert!(known.is_new("http://0", 2_000) && !known.is_new("http://2047", 2_048));
    }
}
