//! Priorities, and backfilling of nodes that stage inputs.

use super::*;

impl Scheduler {
    fn submit_at(&mut self, priority: i32, index: u32, inputs: &[(u8, u64)]) -> Vec<Effect> {
        let inputs = inputs.iter().map(|(n, size_bytes)| (object(*n), *size_bytes)).collect();
        self.run(Event::TaskReady {
            task: task(index),
            inputs,
            need: Need { priority, ..cpus(1000).into() },
        })
    }

    fn stage(&mut self, id: u32, lent_milli: u64) -> Vec<Effect> {
        self.run(Event::Staging { executor: ExecutorId(id), lent_milli, light_bytes: 100 })
    }
}

#[test]
fn higher_priority_goes_before_age_and_locality() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.submit_at(0, 0, &[]);
        scheduler.submit_at(1, 1, &[(2, 10)]);
        scheduler.submit_at(1, 2, &[(1, 10)]);
        scheduler.submit_at(0, 3, &[(1, 10)]);
        scheduler.submit_at(2, 4, &[]);
        let held = [(object(1), 10)].into();
        let (capacity, profile) = (cpus(1000), Box::default());
        let effects = scheduler.run(Event::ExecutorJoined {
            executor: ExecutorId(1),
            capacity,
            profile,
            held,
        });
        assert_eq!(assigned(&effects)[0], (1, 4), "{policy}");
        let order: Vec<u32> = assigned(&effects).iter().map(|(_, index)| *index).collect();
        let is_by_age = matches!(
            policy,
            PlacementPolicy::FirstAvailable | PlacementPolicy::FirstCacheAvailable
        );
        let of_one = if is_by_age { 1 } else { 2 };
        assert_eq!(order[1], of_one, "{policy}: of equals, the one whose input is there");
    }
}

#[test]
fn a_full_executor_takes_what_goes_before_all_it_has() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join(1, 1);
        // No other task waits when the executor is full, and when it is not.
        assert_eq!(scheduler.submit_at(0, 0, &[]).len() + scheduler.submit_at(0, 1, &[]).len(), 2);
        assert_eq!(assigned(&scheduler.submit_at(0, 2, &[])), []);
        assert_eq!(assigned(&scheduler.submit_at(1, 3, &[(1, 10)])), [(1, 3)], "{policy}");
        assert_eq!(
            assigned(&scheduler.submit_at(1, 4, &[])),
            [(1, 4)],
            "{policy}: queued behind 3"
        );
        assert_eq!(assigned(&scheduler.submit_at(1, 5, &[])), [], "{policy}");
        assert_eq!(assigned(&scheduler.submit_at(2, 6, &[])), [(1, 6)], "{policy}");
        assert_eq!(assigned(&scheduler.finish(1, 3)), [], "{policy}: 4 and 6 are no lower than 5");
        assert_eq!(assigned(&scheduler.finish(1, 4)), [(1, 5)], "{policy}");
        assert_eq!(
            assigned(&scheduler.finish(1, 6)),
            [],
            "{policy}: 0, 1 and 5 are no lower than 2"
        );
    }
}

#[test]
fn low_priority_does_not_starve() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler =
            Scheduler::new(Config { policy: *policy, window: Some(10), ..Config::default() });
        scheduler.join(1, 1);
        (0..5).for_each(|index| drop(scheduler.submit_at(5, index, &[])));
        scheduler.submit_at(0, 100, &[]);
        let mut rounds = 0;
        while !scheduler.on(1).contains(&100) {
            let oldest = scheduler.on(1)[0];
            scheduler.finish(1, oldest);
            scheduler.submit_at(5, 1000 + rounds, &[]);
            rounds += 1;
            assert!(rounds < 30, "{policy}: starved");
        }
        assert!(rounds >= 5, "{policy}: it went first");
    }
}

#[test]
fn a_node_that_stages_takes_what_only_computes() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join(1, 1);
        (0..4).for_each(|index| drop(scheduler.submit_at(0, index, &[(index as u8 + 1, 1000)])));
        assert_eq!(assigned(&scheduler.submit_at(0, 10, &[])), [], "{policy}: 0 and 1 have it all");
        scheduler.submit_at(0, 11, &[(9, 99)]);
        scheduler.submit_at(0, 12, &[]);
        assert_eq!(
            assigned(&scheduler.stage(1, 2000)),
            [(1, 10)],
            "{policy}: one for its slot, though older ones wait"
        );
        assert_eq!(assigned(&scheduler.finish(1, 10)), [(1, 11)], "{policy}: small enough");
        // 0 is ready, and takes the slot when 11 ends.
        assert_eq!(assigned(&scheduler.stage(1, 1000)), [], "{policy}");
        assert_eq!(assigned(&scheduler.finish(1, 11)), [], "{policy}: the slot is for 0");
        assert_eq!(assigned(&scheduler.finish(1, 0)), [(1, 2)], "{policy}: the next to stage");
        assert_eq!(
            assigned(&scheduler.stage(1, 2000)),
            [(1, 12)],
            "{policy}: once it says that it stages that too"
        );
    }
}

#[test]
fn lent_processors_go_to_the_highest_priority_without_inputs() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join(1, 1);
    (0..4).for_each(|index| drop(scheduler.submit_at(5, index, &[(index as u8 + 1, 1000)])));
    scheduler.submit_at(0, 10, &[]);
    scheduler.submit_at(1, 11, &[]);
    assert_eq!(assigned(&scheduler.stage(1, 2000)), [(1, 11)]);
    // Tasks that come later are found as well, and tasks that come back.
    assert_eq!(assigned(&scheduler.submit_at(3, 12, &[])), []);
    assert_eq!(assigned(&scheduler.finish(1, 11)), [(1, 12)]);
    assert_eq!(assigned(&scheduler.end(1, 12, AssignmentEnd::Returned)), [(1, 12)]);
    scheduler.stage(1, 0);
    assert_eq!(assigned(&scheduler.finish(1, 12)), [], "nothing is lent");
}

#[test]
fn each_of_many_lending_executors_has_its_turn() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    (0..100).for_each(|id| drop(scheduler.join(id, 1)));
    (0..200).for_each(|index| drop(scheduler.submit_at(0, index, &[(index as u8, 1000)])));
    (0..100).for_each(|id| drop(scheduler.stage(id, 2000)));
    (0..100).for_each(|index| drop(scheduler.submit_at(0, 200 + index, &[])));
    // Executors without room were checked in vain; the next events go on.
    (0..2).for_each(|_| drop(scheduler.stage(0, 2000)));
    assert!((0..100).all(|id| scheduler.on(id).iter().filter(|index| **index >= 200).count() == 1));
}
