//! What fetches take, learned from those that were.
//!
//! Of each kind of way there is a line through what was seen of it lately: seconds over bytes, so that both what a fetch
//! costs of itself and what each byte costs show. A peer's link is shared by those whom it gives to, so a fetch counts as
//! many times its bytes as there are of them. How persistent storage shares what it has is not ours to know: there is a
//! line for each magnitude of the number of fetches at once.

/// What a node is taken to fetch in a second before any fetch was seen: a link of 1 Gbit/s.
const NOMINAL_BYTES_PER_S: f64 = 125e6;
/// What a fetch still counts when another has come. About the last 32 make the line.
const REMEMBERED: f64 = 31.0 / 32.0;
/// Magnitudes of the number of fetches from persistent storage: 1, 2 to 3, 4 to 7, and so on.
const MAGNITUDES: usize = 20;
/// Sizes that differ by less, relative to their mean square, show nothing of what a fetch costs of itself.
const LEAST_SPREAD: f64 = 0.01;

/// The way between two executors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Distance {
    /// In one rack, as far as is said.
    Near,
    /// From one rack to another.
    Far,
}

#[derive(Default)]
pub(crate) struct Rates {
    near: Line,
    far: Line,
    storage: [Line; MAGNITUDES],
}

impl Rates {
    /// Seconds that it takes to get so many bytes from a peer that gives to so many `others`.
    pub fn peer_seconds(&self, distance: Distance, bytes: u64, others: u32) -> f64 {
        self.peer(distance).at(shared(bytes, others))
    }

    /// Seconds that it takes to get so many bytes from persistent storage beside so many `others` who do.
    pub fn storage_seconds(&self, bytes: u64, others: u32) -> f64 {
        let magnitude = magnitude(others);
        let known = (0..=magnitude).rev().find(|known| self.storage[*known].is_known());
        let known = known.or_else(|| (magnitude..MAGNITUDES).find(|known| self.storage[*known].is_known()));
        self.storage[known.unwrap_or(magnitude)].at(bytes as f64)
    }

    /// So many bytes came from a peer that gave to so many others.
    pub fn peer_gave(&mut self, distance: Distance, bytes: u64, others: u32, seconds: f64) {
        let line = match distance {
            Distance::Near => &mut self.near,
            Distance::Far => &mut self.far,
        };
        line.learn(shared(bytes, others), seconds);
    }

    /// So many bytes came from persistent storage beside so many others' fetches.
    pub fn storage_gave(&mut self, bytes: u64, others: u32, seconds: f64) {
        self.storage[magnitude(others)].learn(bytes as f64, seconds);
    }

    fn peer(&self, distance: Distance) -> &Line {
        match distance {
            Distance::Far if self.far.is_known() => &self.far,
            Distance::Near | Distance::Far => &self.near,
        }
    }
}

fn shared(bytes: u64, others: u32) -> f64 {
    bytes as f64 * (f64::from(others) + 1.0)
}

fn magnitude(others: u32) -> usize {
    (others.saturating_add(1).ilog2() as usize).min(MAGNITUDES - 1)
}

/// A straight line through points that are forgotten by and by: weighted least squares.
#[derive(Default)]
struct Line {
    weight: f64,
    bytes: f64,
    seconds: f64,
    bytes_bytes: f64,
    bytes_seconds: f64,
}

impl Line {
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

    fn at(&self, bytes: f64) -> f64 {
        if !self.is_known() {
            return bytes / NOMINAL_BYTES_PER_S;
        }
        let spread = self.weight * self.bytes_bytes - self.bytes * self.bytes;
        if spread > LEAST_SPREAD * self.weight * self.bytes_bytes {
            let each_byte = (self.weight * self.bytes_seconds - self.bytes * self.seconds) / spread;
            let of_itself = (self.seconds - each_byte * self.bytes) / self.weight;
            if each_byte > 0.0 && of_itself >= 0.0 {
                return of_itself + each_byte * bytes;
            }
        }
        match self.bytes > 0.0 {
            true => self.seconds / self.bytes * bytes,
            false => self.seconds / self.weight,
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
        let rates = Rates::default();
        assert!(is_near(rates.storage_seconds(125_000_000, 7), 1.0));
        assert!(is_near(rates.peer_seconds(Distance::Far, 125_000_000, 3), 4.0));
    }

    #[test]
    fn latency_and_rate_show_in_fetches_of_different_sizes() {
        let mut rates = Rates::default();
        for size in [1_000, 50_000_000, 7, 10_000_000] {
            rates.peer_gave(Distance::Near, size, 1, 0.002 + 2.0 * size as f64 / 1e9);
        }
        assert!(is_near(rates.peer_seconds(Distance::Near, 1_000_000_000, 0), 1.002));
        assert!(is_near(rates.peer_seconds(Distance::Far, 0, 9), 0.002), "racks are alike until one has shown");
        rates.peer_gave(Distance::Far, 1_000_000, 0, 0.5);
        assert!(is_near(rates.peer_seconds(Distance::Far, 2_000_000, 0), 1.0));
    }

    #[test]
    fn fetches_of_one_size_give_a_proportion() {
        let mut rates = Rates::default();
        (0..5).for_each(|_| rates.storage_gave(1_000_000, 0, 0.25));
        assert!(is_near(rates.storage_seconds(4_000_000, 0), 1.0));
    }

    #[test]
    fn storage_is_known_by_how_many_read_it() {
        let mut rates = Rates::default();
        rates.storage_gave(1_000_000, 0, 0.1);
        rates.storage_gave(1_000_000, 70, 5.0);
        assert!(is_near(rates.storage_seconds(1_000_000, 10), 0.1), "by what fewer readers saw");
        assert!(is_near(rates.storage_seconds(1_000_000, 100), 5.0));
        assert!(is_near(rates.storage_seconds(1_000_000, u32::MAX), 5.0));
    }

    #[test]
    fn what_was_is_forgotten() {
        let mut rates = Rates::default();
        (0..10).for_each(|_| rates.storage_gave(1_000_000, 0, 9.0));
        (0..300).for_each(|_| rates.storage_gave(1_000_000, 0, 1.0));
        assert!((rates.storage_seconds(1_000_000, 0) - 1.0).abs() < 0.01);
    }
}
