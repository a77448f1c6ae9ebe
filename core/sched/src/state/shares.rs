//! Shares with their unit: how much of a task's input bytes an executor holds, and how much of an
//! executor tasks take.

use core::ops::{Add, AddAssign, SubAssign};

/// The share of a task's input bytes that an executor holds, in 65,535ths.
///
/// [`NONE`](Self::NONE) and [`FULL`](Self::FULL) are exact: an executor that holds some of the
/// inputs but not all has a share strictly between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalShare(u16);

impl LocalShare {
    /// The executor holds no input.
    pub const NONE: LocalShare = LocalShare(0);
    /// The executor holds every input.
    pub const FULL: LocalShare = LocalShare(u16::MAX);

    /// The share for `local` bytes out of `all`, where some inputs are held and some are not:
    /// `local * 65,534 / all`, and at least 1. For example 10 MB of 40 MB give 16,383.
    pub fn partial(local: u64, all: u64) -> Self {
        let most = u64::from(u16::MAX - 1);
        // Division of 128 bits is slow, and products of fewer than 2^48 bytes do not need it.
        let share = if local < 1 << 48 {
            local * most / all
        } else {
            (u128::from(local) * u128::from(most) / u128::from(all)) as u64
        };
        LocalShare((share as u16).max(1))
    }

    /// The share that is this fraction of a task's bytes, from 0 to 1; never full. For example 0.5
    /// gives 32,767.
    pub fn of_fraction(fraction: f64) -> Self {
        LocalShare((fraction * f64::from(u16::MAX - 1)) as u16)
    }

    pub fn is_none(self) -> bool {
        self == LocalShare::NONE
    }

    pub fn is_full(self) -> bool {
        self == LocalShare::FULL
    }
}

/// The part of an executor that tasks take, in millionths of its capacity. More than a million
/// where tasks wait behind its slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LoadPpm(u64);

impl LoadPpm {
    pub const NONE: LoadPpm = LoadPpm(0);
    /// All of an executor.
    pub const WHOLE: LoadPpm = LoadPpm(1_000_000);

    /// The load that `amount` of a resource is, where the executor has `capacity` of the resource.
    /// For example 1 of 4 processors is 250,000.
    pub fn of(amount: u64, capacity: u64) -> Self {
        if amount == 0 {
            return LoadPpm::NONE;
        }
        let capacity = capacity.max(1);
        match amount.checked_mul(LoadPpm::WHOLE.0) {
            Some(millionths) => LoadPpm(millionths / capacity),
            // From 18.4 TB of disk on.
            None => LoadPpm(
                (u128::from(amount) * u128::from(LoadPpm::WHOLE.0) / u128::from(capacity)) as u64,
            ),
        }
    }

    pub fn saturating_sub(self, other: LoadPpm) -> Self {
        LoadPpm(self.0.saturating_sub(other.0))
    }

    /// The mean of this load over `count` tasks.
    pub fn mean_of(self, count: u32) -> Self {
        LoadPpm(self.0 / u64::from(count))
    }

    pub fn half(self) -> Self {
        LoadPpm(self.0 / 2)
    }

    /// As a number of whole executors. For example 2,500,000 is 2.5.
    pub fn as_wholes(self) -> f64 {
        self.0 as f64 / LoadPpm::WHOLE.0 as f64
    }
}

impl Add for LoadPpm {
    type Output = LoadPpm;

    fn add(self, other: LoadPpm) -> LoadPpm {
        LoadPpm(self.0 + other.0)
    }
}

impl AddAssign for LoadPpm {
    fn add_assign(&mut self, other: LoadPpm) {
        self.0 += other.0;
    }
}

impl SubAssign for LoadPpm {
    fn sub_assign(&mut self, other: LoadPpm) {
        self.0 -= other.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_right_for_the_largest_disks() {
        let tb = 1_000_000_000_000;
        assert_eq!(
            [LoadPpm::of(1, 4), LoadPpm::of(40 * tb, 40 * tb)],
            [LoadPpm(250_000), LoadPpm::WHOLE]
        );
        assert_eq!(LoadPpm::of(u64::MAX, u64::MAX), LoadPpm::WHOLE);
    }
}
