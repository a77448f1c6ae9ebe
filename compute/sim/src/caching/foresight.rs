//! A lower bound of OPT for problems too large to search: the loads that no arrangement of the
//! group avoids.

use std::collections::{BTreeMap, BTreeSet};

use super::{CacheRequest, Problem};

/// Lower bound of the cost of the requests: the loads of a single store with all slots, which
/// always evicts the object that is requested last (Belady 1966). Moves are not counted.
pub fn floor(problem: Problem, requests: &[CacheRequest]) -> u64 {
    const NEVER: usize = usize::MAX;
    let mut next_use = vec![NEVER; requests.len()];
    let mut seen = BTreeMap::new();
    for (number, request) in requests.iter().enumerate().rev() {
        next_use[number] = seen.insert(request.object, number).unwrap_or(NEVER);
    }
    // Stored objects, by their next request. Objects that are never requested again are only
    // counted; they are evicted first.
    let (mut here, mut unneeded, mut loads) = (BTreeSet::new(), 0, 0);
    for (number, next) in next_use.into_iter().enumerate() {
        if !here.remove(&number) {
            loads += 1;
            if here.len() + unneeded == problem.stores * problem.slots {
                if unneeded > 0 {
                    unneeded -= 1;
                } else {
                    here.pop_last();
                }
            }
        }
        if next == NEVER {
            unneeded += 1;
        } else {
            here.insert(next);
        }
    }
    loads * problem.storage_cost
}
