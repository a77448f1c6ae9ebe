//! The numbers of an array of tasks, as ranges. A range of ten million numbers takes three words of
//! memory.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use serde::{Deserialize, Serialize};

/// The numbers `first`, `first + step`, `first + 2 * step` … up to `last`. The range is empty if
/// `first` is larger than `last`. A `step` of 0 counts as 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberRange {
    /// The smallest number.
    pub first: u64,
    /// Upper limit of the numbers.
    pub last: u64,
    /// Difference of two neighbours.
    pub step: u64,
}

/// A set of numbers, as ranges that may overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers(pub Vec<NumberRange>);

impl Numbers {
    /// Each number once, in rising order. The memory for this depends on the number of ranges only.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        let ranges = self.joined().into_iter();
        let mut next: BinaryHeap<_> =
            ranges.map(|range| Reverse((range.first, range.last, range.step))).collect();
        let mut before = None;
        core::iter::from_fn(move || {
            loop {
                let mut smallest = next.peek_mut()?;
                let Reverse((number, last, step)) = *smallest;
                match number.checked_add(step).filter(|following| *following <= last) {
                    Some(following) => smallest.0.0 = following,
                    None => drop(alloc::collections::binary_heap::PeekMut::pop(smallest)),
                }
                if before != Some(number) {
                    before = Some(number);
                    return Some(number);
                }
            }
        })
    }

    /// Number of different numbers; `most + 1` if there are more than `most`.
    pub fn count_up_to(&self, most: usize) -> usize {
        if let [NumberRange { first, last, step }] = self.joined()[..] {
            return usize::try_from((last - first) / step).map_or(most, |past| past.min(most)) + 1;
        }
        self.iter().take(most + 1).count()
    }

    /// The same numbers, in ranges that are not empty and end with their last number. Ranges with
    /// one step that overlap or continue each other are one: of 10,000 times `1-9999999`, each
    /// number is passed once.
    fn joined(&self) -> Vec<NumberRange> {
        let begun = self.0.iter().filter(|range| range.first <= range.last);
        let mut ranges: Vec<_> = begun
            .map(|range| {
                let step = range.step.max(1);
                NumberRange { last: range.last - (range.last - range.first) % step, step, ..*range }
            })
            .collect();
        let class = |range: &NumberRange| (range.step, range.first % range.step);
        ranges.sort_unstable_by_key(|range| (class(range), range.first));
        ranges.dedup_by(|next, range| {
            let joins =
                class(next) == class(range) && next.first.saturating_sub(range.step) <= range.last;
            if joins {
                range.last = range.last.max(next.last);
            }
            joins
        });
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn numbers(ranges: &[(u64, u64, u64)]) -> Numbers {
        Numbers(
            ranges
                .iter()
                .map(|(first, last, step)| NumberRange { first: *first, last: *last, step: *step })
                .collect(),
        )
    }

    /// First, last and step of each range; the numbers.
    type Row = (&'static [(u64, u64, u64)], &'static [u64]);

    #[test]
    fn each_number_comes_once_and_in_order() {
        let table: [Row; 6] = [
            (&[], &[]),
            (&[(3, 5, 1), (1, 1, 1), (4, 4, 1)], &[1, 3, 4, 5]),
            (&[(0, 11, 5)], &[0, 5, 10]),
            (&[(0, 9, 3), (0, 9, 2)], &[0, 2, 3, 4, 6, 8, 9]),
            (&[(5, 3, 1), (1, 2, 0)], &[1, 2]),
            (&[(u64::MAX - 1, u64::MAX, 1)], &[u64::MAX - 1, u64::MAX]),
        ];
        for (ranges, expected) in table {
            let numbers = numbers(ranges);
            assert_eq!(numbers.iter().collect::<Vec<_>>(), expected);
            assert_eq!(numbers.count_up_to(100), expected.len());
            assert_eq!(numbers.count_up_to(1), expected.len().min(2));
        }
        assert_eq!(numbers(&[(0, u64::MAX, 1)]).count_up_to(10), 11);
        let same = numbers(&[(1, 9_999_999, 1); 1_000]);
        assert_eq!(same.count_up_to(10_000_000), 9_999_999, "without passing each number so often");
        assert_eq!(numbers(&[(8, 20, 4), (1, 3, 1), (0, 6, 4), (4, 4, 1)]).count_up_to(99), 9);
        assert_eq!(numbers(&[(0, u64::MAX, 1), (7, 7, 1)]).count_up_to(10), 11);
        assert_eq!(numbers(&[(0, u64::MAX, 1)]).iter().take(3).collect::<Vec<_>>(), vec![0, 1, 2]);
    }
}
