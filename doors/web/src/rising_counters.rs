//! Counters of what executors and jobs count each for itself. An executor that leaves takes its
//! counts with it, and a dispatcher that starts again gives their numbers to others; the counters
//! of monitoring must not fall. So what is added is what has come since the last look.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Counters since the first look: of the things that `K` names, each with `N` counts.
#[derive(Debug)]
pub(crate) struct RisingCounters<K, const N: usize>(Mutex<LastLook<K, N>>);

#[derive(Debug)]
struct LastLook<K, const N: usize> {
    /// What each thing had counted; `None` before the first look.
    counts: Option<BTreeMap<K, [u64; N]>>,
    sums: [u64; N],
}

impl<K: Ord, const N: usize> RisingCounters<K, N> {
    pub fn new() -> Self {
        RisingCounters(Mutex::new(LastLook { counts: None, sums: [0; N] }))
    }

    /// The counters, now that these things have these counts.
    pub fn look(&self, now: impl Iterator<Item = (K, [u64; N])>) -> [u64; N] {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeMap<K, [u64; N]> = now.collect();
        if let Some(counts) = last.counts.take() {
            for (thing, after) in &now {
                let before = counts.get(thing).copied().unwrap_or([0; N]);
                let is_another = before.iter().zip(after).any(|(before, after)| before > after);
                let before = if is_another { [0; N] } else { before };
                for (place, sum) in last.sums.iter_mut().enumerate() {
                    *sum += after[place] - before[place];
                }
            }
        }
        last.counts = Some(now);
        last.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_what_has_come_since_the_first_look() {
        let counters = RisingCounters::<u32, 1>::new();
        let look = |counts: &[(u32, u64)]| {
            counters.look(counts.iter().map(|(thing, count)| (*thing, [*count])))[0]
        };
        assert_eq!(look(&[(1, 5), (2, 7)]), 0, "it was before");
        assert_eq!(look(&[(1, 6), (2, 9)]), 3);
        assert_eq!(look(&[(2, 9)]), 3, "one has left");
        assert_eq!(look(&[(2, 9), (3, 2)]), 5, "one has come");
        assert_eq!(look(&[(2, 1), (3, 2)]), 6, "another one has its number");
        assert_eq!(look(&[]), 6);
    }
}
