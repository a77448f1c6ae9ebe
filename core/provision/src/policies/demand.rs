//! Demand: enough nodes to keep up with arriving tasks, and to complete the waiting tasks in a
//! target time.
//!
//! A node runs one task after another in each slot, and fetches missing inputs over one link
//! meanwhile. The longer of the two times says how much of a node one task takes:
//!
//! ```text
//! node_us  = max(task_us / slots, transfer_us)
//! keep up  = arriving_per_us * node_us
//! drain    = waiting * max(node_us, refetch_us) / target_us, at most waiting / slots
//! wanted   = max(ceil(keep up + drain), holding, 1 if a task waits)
//! ```
//!
//! For example, tasks of 1 s on nodes with 4 slots take 0.25 s of a node each. With 8 arrivals a
//! second, 100 tasks waiting and a target of 10 s, 2 nodes keep up and 2.5 nodes drain the queue: 5
//! nodes are wanted.
//!
//! Where tasks read again what full stores had to evict, the queue drains only as fast as it
//! recently did per node (`refetch_us`). Before anything is measured, each task gets a slot, as
//! under the other policies. For example, if a `refetch_us` of 0.5 s is added to the example above,
//! 5 nodes drain the queue, and 7 are wanted. Before anything is measured, the 100 waiting tasks
//! get 25 nodes.
//!
//! Placement keeps all nodes a little busy, so this policy does not wait for an idle node. When
//! fewer nodes would have been enough for the whole idle time, the youngest nodes leave, because
//! their stores hold the least; except nodes that hold what persistent storage could not deliver as
//! fast as it is read.

use super::Provisioning;
use crate::event::OutstandingWork;
use crate::work_meter::round_up;

pub(super) struct DemandDriven {
    pub target_us: u64,
}

impl Provisioning for DemandDriven {
    fn wanted(&self, work: &OutstandingWork, arriving_per_us: f64, slots: u32) -> u64 {
        let slots = f64::from(slots);
        let waiting = work.waiting as f64;
        let node_us = (work.task_us as f64 / slots).max(work.transfer_us as f64);
        let slot_each = waiting / slots;
        if work.task_us == 0 {
            return round_up(slot_each + work.running as f64 / slots);
        }
        let to_drain = waiting * node_us.max(work.refetch_us as f64) / self.target_us as f64;
        let to_keep_up = round_up(arriving_per_us * node_us + to_drain.min(slot_each));
        // A waiting task is run, however little of a node it takes.
        to_keep_up.max(work.holding).max(u64::from(work.waiting > 0))
    }

    fn request(&self, _: u32) -> u32 {
        u32::MAX
    }

    fn consolidates(&self) -> bool {
        true
    }
}
