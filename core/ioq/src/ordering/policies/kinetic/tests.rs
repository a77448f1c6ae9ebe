//! The tree against a linear search.

use alloc::vec::Vec;

use eyas_types::{Operation, StorageFileId};
use proptest::prelude::*;

use super::*;
use crate::event::RequestId;

proptest! {
    #[test]
    fn a_kinetic_tree_finds_the_same_as_a_linear_search(
        steps in prop::collection::vec(
            (0..3_u8, 0..3_u64, 0..40_u64, 1..50_u64, 0..200_u64),
            1..120,
        ),
    ) {
        let mut kinetic = KineticTree::new();
        let mut all: Vec<(QueueKey, Seniority, VirtualSize)> = Vec::new();
        let mut now_us = 0;
        for (request, (step, file, offset, bytes, number)) in steps.into_iter().enumerate() {
            if step == 0 && !all.is_empty() {
                let (key, ..) = all.swap_remove(number as usize % all.len());
                kinetic.remove(&key);
            } else if step == 1 {
                now_us += number;
            } else {
                let stream = (StorageFileId(file), Operation::Read);
                let key = QueueKey { stream, offset, request: RequestId(request as u64) };
                let arrived_us = now_us.saturating_sub(number);
                let aged =
                    AgedBytes { bytes, bytes_times_arrival_us: u128::from(bytes * arrived_us) };
                let size = VirtualSize::of(aged, 60);
                let seniority = (arrived_us, offset, key.request);
                kinetic.insert(key, seniority, size);
                all.push((key, seniority, size));
            }
            kinetic.advance(now_us);
            let least = all.iter().min_by_key(|(_, seniority, size)| (size.at(now_us), *seniority));
            prop_assert_eq!(kinetic.least(), least.map(|(key, _, size)| (*key, size.at(now_us))));
            let (stream, limit) =
                ((StorageFileId(file), Operation::Read), 10 * i128::from(bytes) - 100);
            let within = all
                .iter()
                .filter(|(key, _, size)| key.stream == stream && size.at(now_us) <= limit);
            prop_assert_eq!(
                kinetic.first_within(stream, limit),
                within.map(|(key, ..)| *key).min()
            );
            prop_assert_eq!(kinetic.len(), all.len());
        }
    }
}
