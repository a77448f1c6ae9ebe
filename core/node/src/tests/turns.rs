//! The order in which tasks start: priorities, suspension, overlap.

use super::*;
use crate::turns::{MAX_PASSED, MAX_SUSPENSIONS};

impl Node {
    fn assign_at(
        &mut self,
        priority: i32,
        index: u32,
        inputs: &[(u8, u64)],
        need: Resources,
    ) -> Vec<Effect> {
        let inputs = inputs.iter().map(|(n, size)| (id(*n), *size)).collect();
        self.run(Event::Assigned { task: task(index), inputs, need, priority })
    }

    fn end(&mut self, index: u32) -> Vec<Effect> {
        self.run(Event::Ended { task: task(index) })
    }
}

/// A node on which a task is data-intensive from 10 missing bytes.
fn node_of(cpus_milli: u32, is_on: bool) -> Node {
    let overlap = Overlap { is_on, data_intensive_bytes: 10, data_intensive_us: u64::MAX };
    let capacity = Resources { memory_bytes: 10, ..cpus(cpus_milli) };
    Node::new(capacity, LIMITS, EvictionPolicy::Lru, true, overlap, 3, 1)
}

fn started(effects: &[Effect]) -> Vec<u32> {
    effects
        .iter()
        .filter_map(
            |effect| if let Effect::Start { task, .. } = effect { Some(task.index) } else { None },
        )
        .collect()
}

fn suspend(index: u32) -> Effect {
    Effect::Suspend { task: task(index) }
}

fn resume(index: u32) -> Effect {
    Effect::Resume { task: task(index) }
}

#[test]
fn a_staged_task_of_higher_priority_suspends_a_lower_one_which_resumes_afterwards() {
    let mut node = node_of(1000, true);
    assert_eq!(node.assign_at(5, 0, &[(1, 20)], cpus(1000)).len(), 1, "task 0 is staged");
    assert_eq!(node.load().lent_milli, 1000);
    assert_eq!(
        started(&node.assign_at(0, 1, &[], cpus(1000))),
        [1],
        "task 0 lends its processor meanwhile"
    );
    let effects = node.fetched_here(1);
    assert_eq!((&effects[0], started(&effects)), (&suspend(1), vec![0]));
    assert_eq!((node.load().lent_milli, node.load().suspended, node.load().computing), (0, 1, 1));
    assert_eq!(
        node.assign_at(0, 2, &[], cpus(1000)),
        [],
        "a task of equal priority does not start before task 1"
    );
    assert_eq!(node.end(0), [resume(1)]);
    assert_eq!(started(&node.end(1)), [2]);
}

#[test]
fn a_data_intensive_task_goes_before_its_equals_and_suspends_none() {
    let mut node = node_of(1000, true);
    node.assign_at(0, 0, &[], cpus(1000));
    assert_eq!(node.assign_at(0, 1, &[(2, 5)], cpus(1000)).len(), 1);
    node.assign_at(0, 2, &[], cpus(1000));
    node.assign_at(0, 3, &[(1, 20)], cpus(1000));
    node.fetched_here(2);
    assert_eq!(node.fetched_here(1), [], "no task is suspended for one of equal priority");
    assert_eq!(started(&node.end(0)), [3], "task 3 is data-intensive");
    assert_eq!(started(&node.end(3)), [2], "task 2 was ready before task 1");
}

#[test]
fn the_lowest_and_newest_are_suspended_as_few_as_suffice() {
    let mut node = node_of(4000, true);
    for (index, priority, milli) in [(0, 1, 1000), (1, 0, 1000), (2, 0, 1000), (3, 2, 1000)] {
        node.assign_at(priority, index, &[], cpus(milli));
    }
    let effects = node.assign_at(3, 4, &[], cpus(2000));
    assert_eq!((&effects[..2], started(&effects)), (&[suspend(2), suspend(1)][..], vec![4]));
    assert_eq!(
        node.assign_at(3, 5, &[], cpus(3000)),
        [],
        "0 and 3 would not free enough, so none is suspended"
    );
    let effects = node.end(4);
    assert_eq!((&effects[..1], started(&effects)), (&[suspend(0)][..], vec![5]));
    assert_eq!(node.end(5), [resume(0), resume(2), resume(1)]);
}

#[test]
fn a_task_that_waits_for_others_lends_its_processors_until_it_reclaims_them() {
    let (lent, reclaimed) =
        (|n| Event::Lent { task: task(n) }, |n| Event::Reclaimed { task: task(n) });
    let (lend, granted) =
        (|n| Effect::Lend { task: task(n) }, |n| Effect::Granted { task: task(n) });
    let mut node = node_of(1000, true);
    node.assign_at(0, 0, &[], cpus(1000));
    assert_eq!(node.assign_at(0, 1, &[], cpus(1000)), [], "task 0 holds the processor");
    let effects = node.run(lent(0));
    assert_eq!((&effects[0], started(&effects)), (&lend(0), vec![1]));
    assert_eq!((node.load().lent_milli, node.load().computing), (1000, 1));
    assert_eq!(node.run(reclaimed(0)), [], "task 1 has the processor now");
    assert_eq!(node.load().lent_milli, 0, "no other is to be sent");
    assert_eq!(node.assign_at(0, 2, &[], cpus(1000)), []);
    assert_eq!(node.end(1), [resume(0), granted(0)], "before task 2, which came later");
    // One that was suspended as it lent them runs on, so that it can ask for them.
    let effects = node.assign_at(1, 3, &[], cpus(1000));
    assert_eq!((&effects[0], started(&effects)), (&suspend(0), vec![3]));
    assert_eq!(node.run(lent(0)), [lend(0)]);
    assert_eq!(started(&node.end(3)), [2]);
    assert_eq!(node.run(Event::Cancelled { task: task(0) }), [Effect::Kill { task: task(0) }]);
    assert_eq!(node.end(0), [], "its processors were others'");
    assert_eq!(node.run(reclaimed(2)), [granted(2)], "it has lent none");
}

#[test]
fn a_small_task_is_not_suspended_beside_a_larger_one_that_suffices() {
    let mut node = node_of(3000, true);
    node.assign_at(0, 0, &[], cpus(2000));
    node.assign_at(0, 1, &[], cpus(1000));
    let effects = node.assign_at(1, 2, &[], cpus(2000));
    assert_eq!((&effects[0], started(&effects)), (&suspend(0), vec![2]));
}

#[test]
fn a_suspended_task_keeps_its_memory_and_no_task_is_suspended_for_memory() {
    let mut node = node_of(2000, true);
    let with_memory = |memory_bytes| Resources { memory_bytes, ..cpus(1000) };
    node.assign_at(0, 0, &[], with_memory(8));
    node.assign_at(0, 1, &[], cpus(1000));
    assert_eq!(node.assign_at(1, 2, &[], with_memory(4)), [], "task 2 lacks memory");
    let effects = node.assign_at(1, 3, &[], with_memory(2));
    assert_eq!((&effects[0], started(&effects)), (&suspend(1), vec![3]));
    let effects = node.assign_at(1, 4, &[], cpus(1000));
    assert_eq!((&effects[0], started(&effects)), (&suspend(0), vec![4]));
    assert_eq!(
        node.end(3),
        [resume(1)],
        "task 0 holds the memory that task 2 lacks, and resumes when it can"
    );
    assert_eq!(node.end(4), [resume(0)]);
    let effects = node.end(0);
    assert_eq!(started(&effects), [2]);
}

#[test]
fn suspensions_of_a_task_are_bounded() {
    let mut node = node_of(1000, true);
    node.assign_at(0, 0, &[], cpus(1000));
    for round in 1..=MAX_SUSPENSIONS {
        let effects = node.assign_at(1, round, &[], cpus(1000));
        assert_eq!((&effects[0], started(&effects)), (&suspend(0), vec![round]));
        assert_eq!(node.end(round), [resume(0)]);
    }
    assert_eq!(node.assign_at(1, 99, &[], cpus(1000)), [], "the limit is reached");
    assert_eq!(started(&node.end(0)), [99]);
}

#[test]
fn no_task_is_suspended_or_passed_forever() {
    let mut node = node_of(1000, true);
    node.assign_at(0, 0, &[], cpus(1000));
    assert_eq!(node.assign_at(1, 1, &[], cpus(1000)).len(), 2);
    assert_eq!(node.assign_at(0, 2, &[], cpus(1000)), []);
    // There is always another task of higher priority.
    let (mut running, mut next) = (1, 10);
    let mut order = Vec::new();
    while !(order.contains(&0) && order.contains(&2)) {
        assert!(order.len() < 4 * MAX_PASSED as usize, "0 and 2 have not run: {order:?}");
        node.assign_at(1, next, &[], cpus(1000));
        next += 1;
        let effects = node.end(running);
        let has_resumed = effects.iter().any(|effect| *effect == resume(0));
        running = if has_resumed { 0 } else { started(&effects)[0] };
        order.push(running);
        assert!(!effects.contains(&suspend(0)), "a task that was due is not suspended again");
    }
}

#[test]
fn a_suspended_task_that_is_killed_frees_its_resources() {
    let mut node = node_of(1000, true);
    node.assign_at(0, 0, &[], Resources { memory_bytes: 8, ..cpus(1000) });
    node.assign_at(1, 1, &[], cpus(1000));
    assert_eq!(node.run(Event::Recalled { task: task(0) }), [], "the task has started");
    assert_eq!(node.run(Event::Cancelled { task: task(0) }), [Effect::Kill { task: task(0) }]);
    assert_eq!(node.end(0), []);
    node.end(1);
    assert_eq!(
        started(&node.assign_at(0, 2, &[], Resources { memory_bytes: 10, ..cpus(1000) })),
        [2]
    );
}

#[test]
fn without_overlap_a_slot_is_held_while_its_task_is_staged() {
    let mut node = node_of(1000, false);
    assert_eq!(node.assign_at(0, 0, &[(1, 20)], cpus(1000)).len(), 1);
    assert_eq!(node.assign_at(0, 1, &[], cpus(1000)), [], "the slot is taken");
    assert_eq!(node.assign_at(0, 2, &[(2, 20)], cpus(1000)), [], "no input is fetched ahead");
    assert_eq!(node.load().lent_milli, 0);
    assert_eq!(started(&node.fetched_here(1)), [0]);
    assert_eq!(started(&node.end(0)), [1]);
    assert_eq!(node.end(1), [Effect::Fetch { object: id(2), task: Some(task(2)) }]);
}

#[test]
fn a_task_whose_fetches_would_take_long_is_data_intensive() {
    let overlap =
        Overlap { is_on: true, data_intensive_bytes: u64::MAX, data_intensive_us: 1_000_000 };
    let limits = StoreLimits { bytes: u64::MAX, ..LIMITS };
    let mut node = Node::new(cpus(2000), limits, EvictionPolicy::Lru, true, overlap, 3, 1);
    node.assign_at(0, 0, &[(1, 10_000_000)], cpus(1000));
    assert_eq!(node.load().staging, 0, "the rate is not known yet");
    node.run(Event::Fetched { object: id(1), from: Origin::Persistent, took_us: 2_000_000 });
    assert_eq!(node.load().light_bytes, 5_000_000);
    node.assign_at(0, 1, &[(2, 5_000_000)], cpus(1000));
    node.assign_at(0, 2, &[(3, 4_999_999)], cpus(1000));
    node.assign_at(0, 3, &[(1, 10_000_000)], cpus(1000));
    assert_eq!(
        node.load().staging,
        1,
        "task 2 is below the threshold, and the store has the input of task 3"
    );
}
