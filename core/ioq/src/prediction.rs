//! How long a grant will take (io-coordination §4.1: size by bandwidth), so that the next can leave before its end is heard.
//!
//! Each grant also costs what has nothing to do with its size: messages, a seek. So small ones see another bandwidth than
//! large ones, which is what the paper found no constant for (§6.3.3); each magnitude of sizes has a forecast of its own.

use alloc::collections::BTreeMap;

use crate::forecast::Forecast;

/// What a request of a kernel's read-ahead has at most, as a power of two: of these a large read is made.
const PIECE_MAGNITUDE: u32 = 17;
/// What a piece is taken to cost that was not measured: as long as an arm moves.
const ARM_US: f64 = 8_000.0;

pub(crate) struct Bandwidth {
    nominal_bytes_per_us: f64,
    /// Bytes a microsecond, by the magnitude of what was granted.
    forecasts: BTreeMap<u32, Forecast>,
}

impl Bandwidth {
    pub fn new(nominal_bytes_per_s: u64) -> Self {
        Bandwidth { nominal_bytes_per_us: nominal_bytes_per_s.max(1) as f64 / 1e6, forecasts: BTreeMap::new() }
    }

    /// How long so many bytes will take, microseconds.
    pub fn predict_us(&self, bytes: u64) -> u64 {
        let magnitude = magnitude(bytes);
        let smaller = self.forecasts.range(..=magnitude).next_back();
        let known = smaller.or_else(|| self.forecasts.range(magnitude..).next());
        let bytes_per_us = known.map_or(self.nominal_bytes_per_us, |(_, forecast)| forecast.value());
        (bytes as f64 / bytes_per_us) as u64
    }

    /// The same, if such grants have been measured.
    pub fn known_us(&self, bytes: u64) -> Option<u64> {
        self.forecasts.get(&magnitude(bytes)).map(|forecast| (bytes as f64 / forecast.value()) as u64)
    }

    /// How much longer so many bytes would take if every piece of them cost as much as one that is asked for by itself:
    /// what a disk with one arm makes of two large reads at a time.
    pub fn apart_us(&self, bytes: u64) -> u64 {
        let pieces = (bytes >> PIECE_MAGNITUDE) as f64;
        let small = self.forecasts.range(..=PIECE_MAGNITUDE).next_back();
        let piece_us = small.map_or(ARM_US, |(magnitude, forecast)| (1 << magnitude) as f64 / forecast.value());
        ((pieces * piece_us) as u64).saturating_sub(self.predict_us(bytes))
    }

    /// So many bytes took so long.
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

    /// What large grants are predicted to get in a second.
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
        let mut bandwidth = Bandwidth::new(100_000_000);
        assert_eq!(bandwidth.predict_us(1_000_000), 10_000, "as it was said to be");
        // 8 ms for a seek, 150 bytes a microsecond.
        let takes_us = |bytes: u64| 8_000 + bytes / 150;
        for _ in 0..20 {
            [4_096, 4 << 20].into_iter().for_each(|bytes| bandwidth.learn(bytes, takes_us(bytes)));
        }
        assert!(bandwidth.predict_us(4_096).abs_diff(takes_us(4_096)) <= 1);
        assert!(bandwidth.predict_us(4 << 20).abs_diff(takes_us(4 << 20)) <= 1);
        assert!(bandwidth.predict_us(64 << 10) > takes_us(64 << 10), "what is not known is like the next smaller");
    }
}
