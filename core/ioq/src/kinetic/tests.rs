//! The tree against looking at everything.

use alloc::vec::Vec;

use eyas_types::{Operation, StorageFileId};
use proptest::prelude::*;

use super::*;
use crate::event::RequestId;

proptest! {
    #[test]
    fn it_finds_what_looking_at_everything_finds(
        steps in prop::collection::vec((0..3_u8, 0..3_u64, 0..40_u64, 1..50_u64, 0..200_u64), 1..120),
    ) {
        let (mut kinetic, mut all, mut now_us) = (Kinetic::new(), Vec::<(Place, Seniority, Line)>::new(), 0);
        for (request, (what, file, offset, bytes, number)) in steps.into_iter().enumerate() {
            if what == 0 && !all.is_empty() {
                let (place, ..) = all.swap_remove(number as usize % all.len());
                kinetic.remove(&place);
            } else if what == 1 {
                now_us += number;
            } else {
                let stream = (StorageFileId(file), Operation::Read);
                let place = Place { stream, offset, request: RequestId(request as u64) };
                let arrived_us = now_us.saturating_sub(number);
                let line = Line::of(bytes, u128::from(bytes * arrived_us), 60);
                let seniority = (arrived_us, offset, place.request);
                kinetic.insert(place, seniority, line);
                all.push((place, seniority, line));
            }
            kinetic.advance(now_us);
            let least = all.iter().min_by_key(|(_, seniority, line)| (line.at(now_us), *seniority));
            prop_assert_eq!(kinetic.least(), least.map(|(place, _, line)| (*place, line.at(now_us))));
            let (stream, limit) = ((StorageFileId(file), Operation::Read), 10 * i128::from(bytes) - 100);
            let within = all.iter().filter(|(place, _, line)| place.stream == stream && line.at(now_us) <= limit);
            prop_assert_eq!(kinetic.first_within(stream, limit), within.map(|(place, ..)| *place).min());
            prop_assert_eq!(kinetic.len(), all.len());
        }
    }
}
