//! Measures how long tasks take, what they fetch, and whether the stores have too little room, for
//! [`OutstandingWork`].
//!
//! The bandwidth of persistent storage is shared by all nodes. Where it is the bottleneck, more
//! nodes help only if the objects being read were in a store before and had been evicted, because
//! more stores have more room. Nodes that hold objects which are read are useful beyond what they
//! compute, as long as storage could not deliver those objects in their place.

use alloc::collections::{BTreeMap, VecDeque};

use eyas_types::{ObjectId, Origin};

use crate::event::OutstandingWork;

/// The weight that earlier sums keep at each report. For example what was counted five reports ago
/// counts half.
const REMEMBERED: f64 = 7.0 / 8.0;
/// Evicted objects that are remembered. Beyond it, the object evicted the longest ago is forgotten,
/// and counts as new when it is read again. For example objects of 10 MB are 2.6 TB.
pub const MAX_EVICTED: usize = 262_144;

/// Decaying sums over recent events.
#[derive(Clone, Debug, Default)]
pub struct WorkMeter {
    passed_us: f64,
    /// The time of all nodes together.
    nodes_us: f64,
    tasks: f64,
    run_us: f64,
    /// Bytes that tasks read from objects with a single replica.
    single_bytes: f64,
    fetched_bytes: f64,
    storage_bytes: f64,
    /// The part of `storage_bytes` that had been in a store before.
    refetched_bytes: f64,
    /// The highest rate that persistent storage ever had, bytes a microsecond.
    storage_per_us: f64,
    evicted: EvictedObjects,
}

impl WorkMeter {
    /// A task has ended, after it had its slot for `us` microseconds.
    pub fn ran(&mut self, us: u64) {
        self.tasks += 1.0;
        self.run_us += us as f64;
    }

    /// A task has read an object of `bytes` bytes with that number of replicas.
    pub fn read(&mut self, bytes: u64, replicas: usize) {
        if replicas == 1 {
            self.single_bytes += bytes as f64;
        }
    }

    /// An executor has fetched an object of `bytes` bytes.
    pub fn fetched(&mut self, object: ObjectId, bytes: u64, from: Origin) {
        let bytes = bytes as f64;
        self.fetched_bytes += bytes;
        if from == Origin::Persistent {
            self.storage_bytes += bytes;
            if self.evicted.remove(object) {
                self.refetched_bytes += bytes;
            }
        }
    }

    /// An executor has evicted an object, to make room for another one.
    pub fn evicted(&mut self, object: ObjectId) {
        self.evicted.add(object);
    }

    /// The highest rate that persistent storage ever had, bytes a second; 0 before anything was
    /// read from it.
    pub fn storage_bytes_per_s(&self) -> f64 {
        self.storage_per_us * 1e6
    }

    /// Completes a report of the outstanding work with what was measured; called about once a
    /// second. In the `us` microseconds since the last report, `nodes` nodes stayed, each with a
    /// link of `link_bytes_per_s`.
    ///
    /// For example, in a second, 10 tasks ended on 4 nodes, and five objects of 10 MB were fetched
    /// from persistent storage, over links of 100 MB/s: 50 ms of a link for each task. If half of
    /// these bytes had been evicted before, half of the 4 s of node time count for 10 tasks, which
    /// is 200 ms for each.
    pub fn report(
        &mut self,
        us: u64,
        nodes: u32,
        link_bytes_per_s: f64,
        outstanding: OutstandingWork,
    ) -> OutstandingWork {
        self.passed_us += us as f64;
        self.nodes_us += f64::from(nodes) * us as f64;
        self.storage_per_us = self.storage_per_us.max(self.storage_bytes / self.passed_us.max(1.0));
        let work = OutstandingWork {
            task_us: self.per_task(self.run_us),
            transfer_us: self.per_task(self.fetched_bytes / link_bytes_per_s * 1e6),
            refetch_us: self
                .per_task(self.nodes_us * fraction(self.refetched_bytes, self.storage_bytes)),
            holding: self.holding(nodes),
            ..outstanding
        };
        for sum in [
            &mut self.passed_us,
            &mut self.nodes_us,
            &mut self.tasks,
            &mut self.run_us,
            &mut self.single_bytes,
            &mut self.fetched_bytes,
            &mut self.storage_bytes,
            &mut self.refetched_bytes,
        ] {
            *sum *= REMEMBERED;
        }
        work
    }

    /// The number of nodes whose objects persistent storage, at its highest rate so far, could not
    /// deliver in their place. Each node is taken to hold an equal part of what is read from
    /// stores. For example, if 10 nodes deliver 90 MB/s and storage could deliver 10 MB/s more than
    /// it does, 9 of the nodes are needed (rounded up).
    fn holding(&self, nodes: u32) -> u64 {
        let from_stores = self.single_bytes - self.storage_bytes;
        let beyond_storage = self.single_bytes - self.storage_per_us * self.passed_us;
        round_up(f64::from(nodes) * fraction(beyond_storage, from_stores))
    }

    fn per_task(&self, sum: f64) -> u64 {
        // After a long pause both sums have decayed to nothing.
        if self.tasks > f64::MIN_POSITIVE { (sum / self.tasks) as u64 } else { 0 }
    }
}

/// What part of `whole` is `part`, from 0 to 1.
fn fraction(part: f64, whole: f64) -> f64 {
    if part > 0.0 && whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}

/// Less than this of a node is a rounding error.
const ROUNDING_ERROR: f64 = 1e-6;

/// The next whole number of nodes, unless the excess is a rounding error. For example 3.01 become
/// 4, and 3.0000001 become 3.
pub(crate) fn round_up(nodes: f64) -> u64 {
    let whole = nodes as u64;
    whole + u64::from(nodes - whole as f64 > ROUNDING_ERROR)
}

/// Objects that were evicted, and when; the earliest first.
#[derive(Clone, Debug, Default)]
struct EvictedObjects {
    last: BTreeMap<ObjectId, u64>,
    order: VecDeque<(ObjectId, u64)>,
    count: u64,
}

impl EvictedObjects {
    fn add(&mut self, object: ObjectId) {
        self.count += 1;
        self.last.insert(object, self.count);
        self.order.push_back((object, self.count));
        if self.order.len() > MAX_EVICTED
            && let Some((oldest, count)) = self.order.pop_front()
            && self.last.get(&oldest) == Some(&count)
        {
            self.last.remove(&oldest);
        }
    }

    /// Whether the object was there.
    fn remove(&mut self, object: ObjectId) -> bool {
        self.last.remove(&object).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_US: u64 = 1_000_000;
    const LINK: f64 = 100e6;

    fn object(n: u64) -> ObjectId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&n.to_le_bytes());
        ObjectId(id)
    }

    fn is_near(left: u64, right: u64) -> bool {
        left.abs_diff(right) <= 1 + right / 100
    }

    /// A minute in which `tasks` tasks ended each second. Each ran 50 ms and read 10 MB;
    /// `from_storage` of them read from persistent storage.
    fn minute(
        meter: &mut WorkMeter,
        nodes: u32,
        tasks: u64,
        from_storage: u64,
        replicas: usize,
    ) -> OutstandingWork {
        let mut work = OutstandingWork::default();
        for _ in 0..60 {
            for task in 0..tasks {
                meter.ran(50_000);
                meter.read(10_000_000, replicas);
                if task < from_storage {
                    meter.fetched(object(task), 10_000_000, Origin::Persistent);
                }
            }
            work = meter.report(
                SECOND_US,
                nodes,
                LINK,
                OutstandingWork { waiting: 7, ..OutstandingWork::default() },
            );
        }
        work
    }

    #[test]
    fn means_are_of_what_was_lately() {
        let mut meter = WorkMeter::default();
        assert_eq!(
            meter.report(SECOND_US, 0, LINK, OutstandingWork::default()),
            OutstandingWork::default()
        );
        minute(&mut meter, 5, 10, 10, 1);
        let work = minute(&mut meter, 5, 100, 50, 1);
        assert_eq!((work.waiting, work.task_us, work.refetch_us), (7, 50_000, 0));
        assert!(
            is_near(work.transfer_us, 50_000),
            "every second one takes 100 ms of a link: {work:?}"
        );
    }

    #[test]
    fn after_a_long_pause_nothing_is_known() {
        let mut meter = WorkMeter::default();
        minute(&mut meter, 5, 10, 10, 1);
        let mut pause = |minutes| {
            (0..60 * minutes)
                .for_each(|_| _ = meter.report(SECOND_US, 0, LINK, OutstandingWork::default()));
            meter.report(SECOND_US, 0, LINK, OutstandingWork::default()).task_us
        };
        assert_eq!((pause(30), pause(180)), (50_000, 0));
    }

    #[test]
    fn nodes_hold_what_storage_could_not_give() {
        let mut meter = WorkMeter::default();
        assert_eq!(minute(&mut meter, 10, 50, 50, 1).holding, 0, "storage gives all of it");
        // Of 90 a second from stores, 10 could still come from storage, which gave 50 before and
        // gives 40 now.
        let work = minute(&mut meter, 10, 130, 40, 1);
        assert!(work.holding == 9, "{work:?}");
        assert_eq!(minute(&mut meter, 10, 130, 0, 2).holding, 0, "others have it too");
        assert_eq!(minute(&mut meter, 10, 40, 0, 1).holding, 0, "storage could give all of it");
    }

    #[test]
    fn fetches_of_evicted_objects_count_as_refetches() {
        let mut meter = WorkMeter::default();
        let mut again = 0;
        for second in 0..60 {
            for n in 0..10 {
                // Every other is new.
                let object = object(if n % 2 == 0 { n } else { 1_000 + 10 * second + n });
                meter.ran(50_000);
                meter.fetched(object, 10_000_000, Origin::Persistent);
                meter.evicted(object);
            }
            again = meter.report(SECOND_US, 4, LINK, OutstandingWork::default()).refetch_us;
        }
        assert!(
            is_near(again, 200_000),
            "four nodes end ten tasks a second, half of them wait in vain: {again}"
        );
    }

    #[test]
    fn the_oldest_evictions_are_forgotten() {
        let mut evicted = EvictedObjects::default();
        (0..10).for_each(|_| evicted.add(object(1)));
        (2..MAX_EVICTED as u64).for_each(|n| evicted.add(object(n)));
        assert!(evicted.last.len() == MAX_EVICTED - 1 && evicted.order.len() == MAX_EVICTED);
        assert!(evicted.last.contains_key(&object(1)), "its last time was the tenth");
        (0..2).for_each(|n| evicted.add(object(MAX_EVICTED as u64 + n)));
        assert!(
            !evicted.remove(object(1)) && evicted.remove(object(2)) && !evicted.remove(object(2))
        );
    }
}
