//! A floor under OPT where it cannot be searched: what the group must load, however it is arranged.

use std::collections::{BTreeMap, BTreeSet};

use super::{Problem, Request};

/// What no answer to the requests can cost less than: loads into a single store of as many slots as all have together,
/// which drops what is asked for last of all (Belady 1966). Moves are not counted.
pub fn floor(problem: Problem, requests: &[Request]) -> u64 {
    const NEVER: usize = usize::MAX;
    let mut next_use = vec![NEVER; requests.len()];
    let mut seen = BTreeMap::new();
    for (number, request) in requests.iter().enumerate().rev() {
        next_use[number] = seen.insert(request.object, number).unwrap_or(NEVER);
    }
    // What is here by when it is asked for next. What never is need not be told apart: it leaves first.
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
