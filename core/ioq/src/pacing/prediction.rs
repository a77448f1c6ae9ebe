//! Predicted duration of a grant, so that the next one can leave before the end is reported: size /
//! bandwidth (io-coordination §4.1, formula 1).
//!
//! Every grant also costs time that does not depend on its size: messages, a seek. So small grants
//! see a lower bandwidth than large ones. The paper found no constant for that (§6.3.3). Here each
//! power of two of the size has a bandwidth forecast of its own.
//!
//! Example: a disk that seeks for 8 ms and then reads 150 bytes a microsecond takes 8.03 ms for 4
//! KiB and 36 ms for 4 MiB: 0.5 and 117 bytes a microsecond.

use alloc::collections::BTreeMap;

use crate::pacing::forecast::Forecast;

/// Largest request that the kernel's read-ahead sends; a large read consists of these.
const PIECE_BYTES: u64 = 128 << 10;
/// Duration of a seek.
const ARM_US: u64 = 8_000;

pub(crate) struct BandwidthModel {
    nominal_bytes_per_us: f64,
    /// Bytes a microsecond, by the binary logarithm of the grant's size.
    forecasts: BTreeMap<u32, Forecast>,
}

impl BandwidthModel {
    pub fn new(nominal_bytes_per_s: u64) -> Self {
        BandwidthModel {
            nominal_bytes_per_us: nominal_bytes_per_s.max(1) as f64 / 1e6,
            forecasts: BTreeMap::new(),
        }
    }

    /// Predicted duration, in microseconds. Sizes that were not measured are predicted like the
    /// next smaller one: where the disk above was seen with 4 KiB and 4 MiB, 64 KiB are predicted
    /// to take 128 ms.
    pub fn predict_us(&self, bytes: u64) -> u64 {
        let magnitude = magnitude(bytes);
        let smaller = self.forecasts.range(..=magnitude).next_back();
        let known = smaller.or_else(|| self.forecasts.range(magnitude..).next());
        let bytes_per_us =
            known.map_or(self.nominal_bytes_per_us, |(_, forecast)| forecast.value());
        (bytes as f64 / bytes_per_us) as u64
    }

    /// The same, if grants of this magnitude have been measured.
    pub fn known_us(&self, bytes: u64) -> Option<u64> {
        self.forecasts
            .get(&magnitude(bytes))
            .map(|forecast| (bytes as f64 / forecast.value()) as u64)
    }

    /// Extra time if a disk seeks before each piece of this many bytes, as it does for two large
    /// reads at a time. It is not measured: small reads may have been fast because each continued
    /// the previous one. For example 1 MiB has 8 pieces: 64 ms.
    pub fn apart_us(bytes: u64) -> u64 {
        bytes / PIECE_BYTES * ARM_US
    }

    /// Learns from a grant that has ended.
    pub fn learn(&mut self, bytes: u64, took_us: u64) {
        if bytes == 0 {
            return;
        }
        let bytes_per_us = bytes as f64 / took_us.max(1) as f64;
        self.forecasts
            .entry(magnitude(bytes))
            .and_modify(|forecast| forecast.learn(bytes_per_us))
            .or_insert_with(|| Forecast::new(bytes_per_us));
    }

    /// Predicted bandwidth of the largest grants.
    pub fn bytes_per_s(&self) -> f64 {
        let largest = self.forecasts.last_key_value();
        largest.map_or(self.nominal_bytes_per_us, |(_, forecast)| forecast.value()) * 1e6
    }
}

fn magnitude(bytes: u64) -> u32 {
    bytes.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_grants_are_not_predicted_by_large_ones() {
        let mut bandwidth = BandwidthModel::new(100_000_000);
        assert_eq!(bandwidth.predict_us(1_000_000), 10_000, "the configured bandwidth");
        // 8 ms for a seek, then 150 bytes a microsecond.
        let takes_us = |bytes: u64| 8_000 + bytes / 150;
        for _ in 0..20 {
            [4_096, 4 << 20].into_iter().for_each(|bytes| bandwidth.learn(bytes, takes_us(bytes)));
        }
        assert!(bandwidth.predict_us(4_096).abs_diff(takes_us(4_096)) <= 1);
        assert!(bandwidth.predict_us(4 << 20).abs_diff(takes_us(4 << 20)) <= 1);
        assert!(
            bandwidth.predict_us(64 << 10) > takes_us(64 << 10),
            "unknown sizes are predicted like the next smaller one"
        );
    }
}
