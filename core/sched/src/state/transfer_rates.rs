//! How long fetches take, learned from earlier fetches.
//!
//! For each kind of route a straight line is fitted to recent fetches: seconds over bytes. Its
//! intercept is the cost of a fetch, its slope the cost of a byte. A peer's link is shared by all
//! executors that it gives to, so a fetch beside two others counts as three times its bytes. How
//! persistent storage shares its bandwidth is not known, so there is one line for each magnitude of
//! the number of simultaneous fetches.

use super::topology::Distance;

/// The rate assumed before any fetch was seen: a link of 1 Gbit/s. For example 100 MB take 0.8 s.
const NOMINAL_BYTES_PER_S: f64 = 125e6;
/// The weight that a fetch keeps when another one is learned. About the last 32 fetches make the
/// fit. After 22 more fetches, a fetch counts half.
const REMEMBERED: f64 = 31.0 / 32.0;
/// Magnitudes of the number of fetches from persistent storage: 1, 2 to 3, 4 to 7, and so on. The
/// last one is of 2^19 fetches and more.
const MAGNITUDES: usize = 20;
/// Sizes whose variance is less than this part of their mean square say nothing about the cost of a
/// fetch itself. For example 1.0 and 1.2 MB say nothing, and 1.0 and 1.3 MB do.
const LEAST_SPREAD: f64 = 0.01;

#[derive(Default)]
pub(super) struct TransferRates {
    near: LinearFit,
    far: LinearFit,
    storage: [LinearFit; MAGNITUDES],
}

impl TransferRates {
    /// Seconds to fetch `bytes` from a peer that gives objects to `others` other executors. For
    /// example, before any fetch was seen, 100 MB take 0.8 s alone and 2.4 s beside two others.
    pub fn peer_seconds(&self, distance: Distance, bytes: u64, others: u32) -> f64 {
        self.peer(distance).at(shared(bytes, others))
    }

    /// Seconds to fetch `bytes` from persistent storage beside `others` other fetches. For example,
    /// if fetches alone and beside 70 others were seen, one beside 10 others is taken to last as
    /// long as one alone.
    pub fn storage_seconds(&self, bytes: u64, others: u32) -> f64 {
        let magnitude = magnitude(others);
        let known = (0..=magnitude).rev().find(|known| self.storage[*known].is_known());
        let known =
            known.or_else(|| (magnitude..MAGNITUDES).find(|known| self.storage[*known].is_known()));
        self.storage[known.unwrap_or(magnitude)].at(bytes as f64)
    }

    /// Learns from a fetch from a peer that gave objects to `others` other executors.
    pub fn learn_peer(&mut self, distance: Distance, bytes: u64, others: u32, seconds: f64) {
        let fit = match distance {
            Distance::Near => &mut self.near,
            Distance::Far => &mut self.far,
        };
        fit.learn(shared(bytes, others), seconds);
    }

    /// Learns from a fetch from persistent storage beside `others` other fetches.
    pub fn learn_storage(&mut self, bytes: u64, others: u32, seconds: f64) {
        self.storage[magnitude(others)].learn(bytes as f64, seconds);
    }

    fn peer(&self, distance: Distance) -> &LinearFit {
        match distance {
            Distance::Far if self.far.is_known() => &self.far,
            Distance::Near | Distance::Far => &self.near,
        }
    }
}

fn shared(bytes: u64, others: u32) -> f64 {
    bytes as f64 * (f64::from(others) + 1.0)
}

/// The magnitude of the number of fetches, this one included: 0 alone, 2 beside 3 to 6 others.
fn magnitude(others: u32) -> usize {
    (others.saturating_add(1).ilog2() as usize).min(MAGNITUDES - 1)
}

/// A straight line through points whose weights decay: weighted least squares.
///
/// With weights `w`, sums `W = Σw`, `X = Σwx`, `Y = Σwy`, `XX = Σwx²`, `XY = Σwxy` for `x` bytes
/// and `y` seconds: slope `(W·XY − X·Y) / (W·XX − X²)`, intercept `(Y − slope·X) / W`. For example
/// 1 MB in 3 ms and 2 MB in 5 ms give 2 ns a byte and 1 ms a fetch.
#[derive(Default)]
struct LinearFit {
    weight: f64,
    bytes: f64,
    seconds: f64,
    bytes_bytes: f64,
    bytes_seconds: f64,
}

impl LinearFit {
    fn is_known(&self) -> bool {
        self.weight > 0.0
    }

    fn learn(&mut self, bytes: f64, seconds: f64) {
        let sums = [
            (&mut self.weight, 1.0),
            (&mut self.bytes, bytes),
            (&mut self.seconds, seconds),
            (&mut self.bytes_bytes, bytes * bytes),
            (&mut self.bytes_seconds, bytes * seconds),
        ];
        sums.into_iter().for_each(|(sum, new)| *sum = *sum * REMEMBERED + new);
    }

    /// The seconds for that number of bytes. Without a usable line, in proportion: for example five
    /// fetches of 1 MB in 0.25 s each give 1 s for 4 MB.
    fn at(&self, bytes: f64) -> f64 {
        if !self.is_known() {
            return bytes / NOMINAL_BYTES_PER_S;
        }
        let spread = self.weight * self.bytes_bytes - self.bytes * self.bytes;
        if spread > LEAST_SPREAD * self.weight * self.bytes_bytes {
            let per_byte = (self.weight * self.bytes_seconds - self.bytes * self.seconds) / spread;
            let per_fetch = (self.seconds - per_byte * self.bytes) / self.weight;
            if per_byte > 0.0 && per_fetch >= 0.0 {
                return per_fetch + per_byte * bytes;
            }
        }
        if self.bytes > 0.0 {
            self.seconds / self.bytes * bytes
        } else {
            self.seconds / self.weight
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(left: f64, right: f64) -> bool {
        (left / right - 1.0).abs() < 1e-6
    }

    #[test]
    fn before_anything_is_known_a_link_is_nominal_and_shared() {
        let rates = TransferRates::default();
        assert!(is_near(rates.storage_seconds(125_000_000, 7), 1.0));
        assert!(is_near(rates.peer_seconds(Distance::Far, 125_000_000, 3), 4.0));
    }

    #[test]
    fn latency_and_rate_show_in_fetches_of_different_sizes() {
        let mut rates = TransferRates::default();
        for size in [1_000, 50_000_000, 7, 10_000_000] {
            rates.learn_peer(Distance::Near, size, 1, 0.002 + 2.0 * size as f64 / 1e9);
        }
        assert!(is_near(rates.peer_seconds(Distance::Near, 1_000_000_000, 0), 1.002));
        assert!(
            is_near(rates.peer_seconds(Distance::Far, 0, 9), 0.002),
            "racks are alike until one has shown"
        );
        rates.learn_peer(Distance::Far, 1_000_000, 0, 0.5);
        assert!(is_near(rates.peer_seconds(Distance::Far, 2_000_000, 0), 1.0));
    }

    #[test]
    fn fetches_of_one_size_give_a_proportion() {
        let mut rates = TransferRates::default();
        (0..5).for_each(|_| rates.learn_storage(1_000_000, 0, 0.25));
        assert!(is_near(rates.storage_seconds(4_000_000, 0), 1.0));
    }

    #[test]
    fn storage_is_known_by_how_many_read_it() {
        let mut rates = TransferRates::default();
        rates.learn_storage(1_000_000, 0, 0.1);
        rates.learn_storage(1_000_000, 70, 5.0);
        assert!(is_near(rates.storage_seconds(1_000_000, 10), 0.1), "by what fewer readers saw");
        assert!(is_near(rates.storage_seconds(1_000_000, 100), 5.0));
        assert!(is_near(rates.storage_seconds(1_000_000, u32::MAX), 5.0));
    }

    #[test]
    fn old_rates_are_forgotten() {
        let mut rates = TransferRates::default();
        (0..10).for_each(|_| rates.learn_storage(1_000_000, 0, 9.0));
        (0..300).for_each(|_| rates.learn_storage(1_000_000, 0, 1.0));
        assert!((rates.storage_seconds(1_000_000, 0) - 1.0).abs() < 0.01);
    }
}
