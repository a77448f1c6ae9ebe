//! Demand: as many nodes as keep up with what comes, and have what waits done in a target time.
//!
//! A node does one task after the other in each slot, and fetches what tasks lack over one link meanwhile; whichever
//! takes longer says how much of a node a task takes. What waits may need more: where tasks read again what had to leave full
//! stores, it is drained as fast as it was lately by as many nodes. The other policies ask for a slot for every task, so that a queue of
//! short tasks has them take all nodes they may. As long as nothing was measured, so does this one.
//!
//! Placement keeps all nodes a little busy. So this policy does not wait for one to be idle: when all the time fewer would
//! have been enough, the youngest, whose stores are the least filled, leave; but none that hold what persistent storage could
//! not give as fast as it is read.

use super::{Provisioning, Work, round_up};

pub(super) struct Demand {
    pub target_us: u64,
}

impl Provisioning for Demand {
    fn wanted(&self, work: &Work, arriving_per_us: f64, slots: u32) -> u64 {
        let slots = f64::from(slots);
        let waiting = work.waiting as f64;
        // The node's time that one task takes, and the nodes that would have a slot for each that waits.
        let node_us = (work.task_us as f64 / slots).max(work.transfer_us as f64);
        let one_each = waiting / slots;
        if work.task_us == 0 {
            return round_up(one_each + work.running as f64 / slots);
        }
        let to_drain = waiting * node_us.max(work.again_us as f64) / self.target_us as f64;
        let to_keep_up = round_up(arriving_per_us * node_us + to_drain.min(one_each));
        // However little of a node it takes, what waits is done.
        to_keep_up.max(work.holding).max(u64::from(work.waiting > 0))
    }

    fn request(&self, _: u32) -> u32 {
        u32::MAX
    }

    fn consolidates(&self) -> bool {
        true
    }
}
