//! How long tasks take, what they lack, and what stores are too few for: learned from what executors tell, so that [`Work`]
//! says it.
//!
//! Persistent storage gives all nodes together only so much. Where it is the limit, more nodes are of use if what they
//! read was in a store before and had to leave it, since more stores have more room; else they are not. And nodes that hold
//! what is read are of use beyond what they compute, as long as storage could not give it in their place.

use alloc::collections::VecDeque;

use eyas_types::{ObjectId, Origin};

use super::{Work, round_up};
use crate::hash::Map;

/// What was seen until one look still counts at the next.
const REMEMBERED: f64 = 7.0 / 8.0;
/// Objects of which is remembered that they had to leave a store. Beyond it, those that did so longest ago are forgotten, and
/// count as new when they are read again.
pub const MAX_EVICTED: usize = 262_144;

/// Sums over what has happened lately.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    passed_us: f64,
    /// Time of all nodes.
    nodes_us: f64,
    tasks: f64,
    run_us: f64,
    /// Bytes that tasks read of which one node has the only replica.
    single_bytes: f64,
    fetched_bytes: f64,
    stored_bytes: f64,
    /// Of them, what had been in a store before.
    again_bytes: f64,
    /// The most that persistent storage ever gave, bytes a microsecond.
    storage_per_us: f64,
    evicted: Evicted,
}

impl Measured {
    /// A task has ended, after it had its slot for so long, microseconds.
    pub fn ran(&mut self, us: u64) {
        self.tasks += 1.0;
        self.run_us += us as f64;
    }

    /// It has read an object of so many bytes, of which there are so many replicas.
    pub fn read(&mut self, bytes: u64, replicas: usize) {
        if replicas == 1 {
            self.single_bytes += bytes as f64;
        }
    }

    /// An executor has fetched an object of so many bytes.
    pub fn fetched(&mut self, object: ObjectId, bytes: u64, from: Origin) {
        let bytes = bytes as f64;
        self.fetched_bytes += bytes;
        if from == Origin::Persistent {
            self.stored_bytes += bytes;
            self.again_bytes += if self.evicted.remove(object) { bytes } else { 0.0 };
        }
    }

    /// An executor has given up an object, to have room for another.
    pub fn evicted(&mut self, object: ObjectId) {
        self.evicted.add(object);
    }

    /// Looks at it, about once a second: since the last time, `us` microseconds ago, there were so many nodes that stay, each with a link
    /// of so many bytes a second. Adds what was learned to what there is to do.
    pub fn look(&mut self, us: u64, nodes: u32, link_bytes_per_s: f64, to_do: Work) -> Work {
        self.passed_us += us as f64;
        self.nodes_us += f64::from(nodes) * us as f64;
        self.storage_per_us = self.storage_per_us.max(self.stored_bytes / self.passed_us.max(1.0));
        let work = Work {
            task_us: self.of_each_task(self.run_us),
            transfer_us: self.of_each_task(self.fetched_bytes / link_bytes_per_s * 1e6),
            again_us: self.of_each_task(self.nodes_us * share(self.again_bytes, self.stored_bytes)),
            holding: self.holding(nodes),
            ..to_do
        };
        let Measured { passed_us, nodes_us, tasks, run_us, single_bytes, .. } = self;
        let Measured { fetched_bytes, stored_bytes, again_bytes, .. } = self;
        for sum in [passed_us, nodes_us, tasks, run_us, single_bytes, fetched_bytes, stored_bytes, again_bytes] {
            *sum *= REMEMBERED;
        }
        work
    }

    /// How many of the nodes hold what persistent storage, by the most that it ever gave, could not give in their place: each
    /// holds an even part of what is read from stores.
    fn holding(&self, nodes: u32) -> u64 {
        let from_stores = self.single_bytes - self.stored_bytes;
        let beyond_storage = self.single_bytes - self.storage_per_us * self.passed_us;
        round_up(f64::from(nodes) * share(beyond_storage, from_stores))
    }

    fn of_each_task(&self, sum: f64) -> u64 {
        // After a long pause there are no digits left.
        if self.tasks > f64::MIN_POSITIVE { (sum / self.tasks) as u64 } else { 0 }
    }
}

/// What part of `whole` that is, from 0 to 1.
fn share(part: f64, whole: f64) -> f64 {
    if part > 0.0 && whole > 0.0 { (part / whole).min(1.0) } else { 0.0 }
}

/// Objects that had to leave a store, and when; the first to do so first.
#[derive(Clone, Debug, Default)]
struct Evicted {
    last: Map<ObjectId, u64>,
    order: VecDeque<(ObjectId, u64)>,
    count: u64,
}

impl Evicted {
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

    /// Whether it was there.
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

    /// A minute in which each second so many tasks ended, which ran 50 ms and read 10 MB, so many of them from persistent
    /// storage.
    fn minute(measured: &mut Measured, nodes: u32, tasks: u64, from_storage: u64, replicas: usize) -> Work {
        let mut work = Work::default();
        for _ in 0..60 {
            for task in 0..tasks {
                measured.ran(50_000);
                measured.read(10_000_000, replicas);
                if task < from_storage {
                    measured.fetched(object(task), 10_000_000, Origin::Persistent);
                }
            }
            work = measured.look(SECOND_US, nodes, LINK, Work { waiting: 7, ..Work::default() });
        }
        work
    }

    #[test]
    fn means_are_of_what_was_lately() {
        let mut measured = Measured::default();
        assert_eq!(measured.look(SECOND_US, 0, LINK, Work::default()), Work::default());
        minute(&mut measured, 5, 10, 10, 1);
        let work = minute(&mut measured, 5, 100, 50, 1);
        assert_eq!((work.waiting, work.task_us, work.again_us), (7, 50_000, 0));
        assert!(is_near(work.transfer_us, 50_000), "every second one takes 100 ms of a link: {work:?}");
    }

    #[test]
    fn after_a_long_pause_nothing_is_known() {
        let mut measured = Measured::default();
        minute(&mut measured, 5, 10, 10, 1);
        let mut pause = |minutes| {
            (0..60 * minutes).for_each(|_| _ = measured.look(SECOND_US, 0, LINK, Work::default()));
            measured.look(SECOND_US, 0, LINK, Work::default()).task_us
        };
        assert_eq!((pause(30), pause(180)), (50_000, 0));
    }

    #[test]
    fn nodes_hold_what_storage_could_not_give() {
        let mut measured = Measured::default();
        assert_eq!(minute(&mut measured, 10, 50, 50, 1).holding, 0, "storage gives all of it");
        // Of 90 a second from stores, 10 could still come from storage, which gave 50 before and gives 40 now.
        let work = minute(&mut measured, 10, 130, 40, 1);
        assert!(work.holding == 9, "{work:?}");
        assert_eq!(minute(&mut measured, 10, 130, 0, 2).holding, 0, "others have it too");
        assert_eq!(minute(&mut measured, 10, 40, 0, 1).holding, 0, "storage could give all of it");
    }

    #[test]
    fn what_had_to_leave_shows_that_there_is_too_little_room() {
        let mut measured = Measured::default();
        let mut again = 0;
        for second in 0..60 {
            for n in 0..10 {
                // Every other is new.
                let object = object(if n % 2 == 0 { n } else { 1_000 + 10 * second + n });
                measured.ran(50_000);
                measured.fetched(object, 10_000_000, Origin::Persistent);
                measured.evicted(object);
            }
            again = measured.look(SECOND_US, 4, LINK, Work::default()).again_us;
        }
        assert!(is_near(again, 200_000), "four nodes end ten tasks a second, half of them wait in vain: {again}");
    }

    #[test]
    fn what_left_long_ago_is_forgotten() {
        let mut evicted = Evicted::default();
        (0..10).for_each(|_| evicted.add(object(1)));
        (2..MAX_EVICTED as u64).for_each(|n| evicted.add(object(n)));
        assert!(evicted.last.len() == MAX_EVICTED - 1 && evicted.order.len() == MAX_EVICTED);
        assert!(evicted.last.contains_key(&object(1)), "its last time was the tenth");
        (0..2).for_each(|n| evicted.add(object(MAX_EVICTED as u64 + n)));
        assert!(!evicted.remove(object(1)) && evicted.remove(object(2)) && !evicted.remove(object(2)));
    }
}
