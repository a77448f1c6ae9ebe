//! Sets of byte ranges of a file.

use std::collections::BTreeMap;
use std::ops::Range;

/// Byte ranges that do not touch each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet(BTreeMap<u64, u64>);

impl RangeSet {
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// Number of bytes in the set.
    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// Adds a range, and joins it with the ranges that it touches.
    pub fn insert(&mut self, Range { mut start, mut end }: Range<u64>) {
        if start >= end {
            return;
        }
        while let Some((&before, &until)) = self.0.range(..=end).next_back() {
            if until < start {
                break;
            }
            self.0.remove(&before);
            (start, end) = (start.min(before), end.max(until));
        }
        self.0.insert(start, end);
    }

    /// Removes all bytes from `end` on.
    pub fn truncate(&mut self, end: u64) {
        self.0.split_off(&end);
        if let Some(mut last) = self.0.last_entry() {
            let until = last.get_mut();
            *until = (*until).min(end);
        }
    }

    /// The parts of `range` that are not in the set, in order.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut missing, mut at) = (Vec::new(), range.start);
        let before = self.0.range(..range.start).next_back();
        for (&start, &end) in before.into_iter().chain(self.0.range(range.clone())) {
            if at < start {
                missing.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The set that a table of bytes describes.
    fn model(bytes: &[bool]) -> RangeSet {
        let mut set = RangeSet::default();
        (0..bytes.len())
            .filter(|at| bytes[*at])
            .for_each(|at| set.insert(at as u64..at as u64 + 1));
        set
    }

    #[test]
    fn a_set_is_as_a_table_of_its_bytes() {
        let (mut set, mut bytes, mut seed) = (RangeSet::default(), [false; 40], 7_u64);
        for _ in 0..2000 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let (start, length) = ((seed >> 33) as usize % 40, (seed >> 45) as usize % 8);
            let end = (start + length).min(40);
            if seed >> 60 == 0 {
                set.truncate(start as u64);
                bytes[start..].fill(false);
            } else {
                set.insert(start as u64..end as u64);
                bytes[start..end].fill(true);
            }
            assert_eq!(set, model(&bytes));
            let missing = set.missing(5..30);
            let mut expected = bytes.map(|is_there| !is_there);
            expected[..5].fill(false);
            expected[30..].fill(false);
            assert_eq!(set.bytes(), bytes.iter().filter(|is_there| **is_there).count() as u64);
            assert_eq!(missing, model(&expected).iter().collect::<Vec<_>>());
        }
    }
}
