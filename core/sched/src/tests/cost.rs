//! `cost` placement: decisions by the times of fetching and waiting.

use super::*;
use crate::WaitReason;

const MB: u64 = 1_000_000;

/// Tasks with one input each, of 100 MB; a second of computing.
struct Cluster(Scheduler);

impl Cluster {
    fn new(executors: u32) -> Self {
        let mut cluster = Cluster(scheduler(PlacementPolicy::Cost));
        (1..=executors).for_each(|id| drop(cluster.0.join(id, 1)));
        cluster
    }

    fn submit(&mut self, index: u32, input: u8) -> Vec<(u32, u32)> {
        self.submit_of(100 * MB, index, input)
    }

    fn submit_of(&mut self, size_bytes: u64, index: u32, input: u8) -> Vec<(u32, u32)> {
        let inputs = [(object(input), size_bytes)].into();
        assigned(&self.0.run(Event::TaskReady { task: task(index), inputs, need: Need::default() }))
    }

    /// Executor 1 fetches object 9, which teaches the time of a fetch from persistent storage, and
    /// runs a task of a second.
    fn learn(&mut self, seconds: u64) {
        let (by, _) = self.submit(1000, 9)[0];
        let (executor, object) = (ExecutorId(by), object(9));
        self.0.run(Event::Fetched {
            executor,
            object,
            from: Origin::Persistent,
            took_us: seconds * 1_000_000,
        });
        self.store(by, 9);
        self.0.finish(by, 1000);
    }

    fn store(&mut self, by: u32, n: u8) -> Vec<Effect> {
        self.0.run(Event::Stored {
            executor: ExecutorId(by),
            object: object(n),
            size_bytes: 100 * MB,
        })
    }

    fn evict(&mut self, by: u32, n: u8) {
        self.0.run(Event::Evicted { executor: ExecutorId(by), object: object(n) });
    }
}

#[test]
fn tasks_wait_for_their_data_until_their_line_is_longer_than_fetching() {
    let mut cluster = Cluster::new(1);
    cluster.learn(1);
    cluster.store(1, 1);
    // A peer takes 0.8 s, because nothing else was learned: longer than the half of a task that
    // runs.
    assert_eq!(cluster.submit(0, 1), [(1, 0)]);
    cluster.0.join(2, 1);
    assert_eq!(cluster.submit(1, 1), [(1, 1)], "queued where its input is, though another is idle");
    // The third in a row waits longer.
    assert_eq!(cluster.submit(2, 1), [(2, 2)]);
}

#[test]
fn a_long_line_is_shortened_from_its_end() {
    let mut cluster = Cluster::new(1);
    cluster.learn(1);
    cluster.store(1, 1);
    for index in 0..20 {
        cluster.submit(index, 1);
    }
    assert_eq!(cluster.0.on(1), [0, 1]);
    let moved = assigned(&cluster.0.join(2, 1));
    assert_eq!(moved, [(2, 19), (2, 18)]);
}

#[test]
fn a_recalled_task_goes_to_the_executor_it_was_recalled_for_if_that_is_still_best() {
    type Meanwhile = fn(&mut Cluster);
    let cases: [(&str, Meanwhile, u32); 3] = [
        ("nothing happens", |_| {}, 2),
        ("it has another task", |cluster| assert_eq!(cluster.submit(40, 4), [(2, 40)]), 1),
        (
            "it has left",
            |cluster| _ = cluster.0.run(Event::ExecutorLeft { executor: ExecutorId(2) }),
            1,
        ),
    ];
    for (case, meanwhile, gets_it) in cases {
        let mut cluster = Cluster::new(1);
        cluster.learn(1);
        // The home with the longest wait is one from which no other executor takes: its input takes
        // hours.
        cluster.0.join(3, 1);
        cluster.0.run(Event::Stored {
            executor: ExecutorId(3),
            object: object(3),
            size_bytes: 1_000_000 * MB,
        });
        (20..30).for_each(|index| drop(cluster.submit_of(1_000_000 * MB, index, 3)));
        // A peer gives this one in 8 ms.
        cluster.0.run(Event::Stored { executor: ExecutorId(1), object: object(1), size_bytes: MB });
        assert_eq!(
            [cluster.submit_of(MB, 0, 1), cluster.submit_of(MB, 1, 1)].concat(),
            [(1, 0), (1, 1)]
        );
        assert_eq!(
            cluster.0.join(2, 1),
            [Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(1) })],
            "{case}"
        );
        meanwhile(&mut cluster);
        assert_eq!(
            assigned(&cluster.0.end(1, 1, AssignmentEnd::Returned)),
            [(gets_it, 1)],
            "{case}"
        );
    }
}

#[test]
fn where_fetching_takes_longer_more_wait() {
    let moved = |peer_seconds: u64| {
        let mut cluster = Cluster::new(2);
        cluster.learn(1);
        // Executor 1 got object 8 from executor 2 in that time.
        cluster.store(2, 8);
        cluster.evict(2, 9);
        cluster.store(1, 1);
        let busy = cluster.submit(100, 1);
        assert_eq!(busy, [(1, 100)]);
        let (executor, object) = (ExecutorId(2), object(1));
        // It is told to, because it is the third for executor 1.
        assert_eq!([cluster.submit(101, 1), cluster.submit(102, 1)].concat(), [(1, 101), (2, 102)]);
        let took_us = peer_seconds * 1_000_000;
        cluster.0.run(Event::Fetched { executor, object, from: Origin::Peer, took_us });
        cluster.0.finish(2, 102);
        // It has to be fetched again for each that executor 2 takes.
        (0..20)
            .map(|index| cluster.submit(index, 1))
            .filter(|given| given.first().is_some_and(|given| given.0 == 2))
            .count()
    };
    assert_eq!((moved(1), moved(5), moved(60)), (2, 2, 0));
}

#[test]
fn an_executor_that_is_receiving_an_object_is_waited_for() {
    let mut cluster = Cluster::new(2);
    // Half a minute from persistent storage, and a second of computing.
    cluster.learn(30);
    let first = cluster.submit(0, 1)[0].0;
    let estimate = |cluster: &Cluster, index| {
        cluster.0.explain_task(task(index), usize::MAX).unwrap().estimate.unwrap()
    };
    assert_eq!(estimate(&cluster, 0).transfer_us, 30_000_000);
    // The other gets it by way of the first, as soon.
    let second = cluster.submit(1, 1)[0].0;
    assert_ne!(first, second);
    assert_eq!(estimate(&cluster, 1).transfer_us, 30_000_000);
}

#[test]
fn explanations_show_the_estimates_of_a_task() {
    let mut cluster = Cluster::new(1);
    cluster.learn(2);
    cluster.store(1, 1);
    for index in 0..3 {
        cluster.submit(index, 1);
    }
    let Some(WaitReason::Soonest { home, there, elsewhere }) =
        cluster.0.explain_task(task(2), usize::MAX).unwrap().waits
    else {
        panic!("it is queued")
    };
    let mean_us = cluster.0.explain_task(task(0), usize::MAX).unwrap().estimate.unwrap().compute_us;
    assert_eq!((home, elsewhere, mean_us), (ExecutorId(1), None, 1_000_000));
    assert!(
        there.wait_us > 0 && there.transfer_us == 0 && there.compute_us == mean_us,
        "{there:?}"
    );
    // No executor holds object 2; it is a third of a second away for each 16 MB.
    cluster.0.finish(1, 0);
    assert_eq!(
        cluster.0.explain_task(task(1), usize::MAX).unwrap().estimate.unwrap().transfer_us,
        0
    );
    cluster.0.join(2, 1);
    cluster.submit(3, 2);
    assert_eq!(
        cluster.0.explain_task(task(3), usize::MAX).unwrap().estimate.unwrap().transfer_us,
        2_000_000
    );
}

#[test]
fn a_slow_executor_is_waited_for_less() {
    let mut cluster = Cluster::new(2);
    cluster.store(1, 1);
    cluster.store(2, 1);
    let end = |cluster: &mut Cluster, by, index, ran_us| {
        let (executor, ended) = (ExecutorId(by), AssignmentEnd::Finished);
        cluster.0.run(Event::TaskEnded {
            executor,
            task: task(index),
            ended,
            ran_us: Some(ran_us),
        });
    };
    // Tasks run ten times as long on executor 1.
    for index in 0..40 {
        let both = [cluster.submit(2 * index, 1), cluster.submit(2 * index + 1, 1)].concat();
        both.iter().for_each(|(by, index)| {
            end(&mut cluster, *by, *index, if *by == 1 { 10_000_000 } else { 1_000_000 })
        });
    }
    let on_fast = (100..108)
        .map(|index| cluster.submit(index, 1))
        .filter(|given| given.first().is_some_and(|g| g.0 == 2));
    assert_eq!(on_fast.count(), 2);
    let homes: Vec<_> = (100..108)
        .filter_map(|index| match cluster.0.explain_task(task(index), usize::MAX).unwrap().waits {
            Some(WaitReason::Soonest { home, .. }) => Some(home.0),
            _ => None,
        })
        .collect();
    assert_eq!(homes, [2; 4]);
}

#[test]
fn no_slot_is_waited_for_before_run_times_are_known() {
    let mut cluster = Cluster::new(1);
    cluster.store(1, 1);
    (2..=8).for_each(|id| drop(cluster.0.join(id, 1)));
    (0..39).for_each(|index| drop(cluster.submit(index, 1)));
    assert!((1..=8).all(|id| !cluster.0.on(id).is_empty()), "they may run for hours");
}

#[test]
fn tasks_that_lack_memory_go_to_an_executor_with_free_memory() {
    let mut cluster = Cluster::new(0);
    for id in 1..=2 {
        let capacity = Resources { cpus_milli: 8000, memory_bytes: 64 << 30, ..Default::default() };
        let executor = ExecutorId(id);
        cluster.0.run(Event::ExecutorJoined {
            executor,
            capacity,
            profile: Default::default(),
            held: [].into(),
        });
    }
    cluster.store(1, 1);
    for index in 0..4 {
        let resources =
            Resources { cpus_milli: 1000, memory_bytes: 60 << 30, ..Default::default() };
        let need = Need { resources, ..Default::default() };
        cluster.0.run(Event::TaskReady {
            task: task(index),
            inputs: [(object(1), 100 * MB)].into(),
            need,
        });
    }
    // After tasks of ten seconds; a peer takes 0.8 s.
    let (executor, ended) = (ExecutorId(1), AssignmentEnd::Finished);
    cluster.0.run(Event::TaskEnded { executor, task: task(0), ended, ran_us: Some(10_000_000) });
    assert!(!cluster.0.on(2).is_empty(), "its memory is free");
}

#[test]
fn tasks_stop_waiting_for_an_object_that_does_not_come() {
    let mut cluster = Cluster::new(1);
    cluster.learn(30);
    cluster.evict(1, 9);
    for index in 0..20 {
        cluster.submit(index, 1);
    }
    cluster.0.join(2, 1);
    // Executor 1 cannot have object 1, by which the others had been queued there.
    cluster.0.end(1, 0, AssignmentEnd::Refused);
    cluster.0.end(1, 1, AssignmentEnd::Refused);
    let queued = (2..20).filter(|index| {
        cluster
            .0
            .explain_task(task(*index), usize::MAX)
            .is_some_and(|task| matches!(task.waits, Some(WaitReason::Soonest { .. })))
    });
    assert!(queued.count() < 18, "they have no holder");
}

#[test]
fn where_fetching_takes_longer_than_computing_more_is_staged_ahead() {
    let ahead = |seconds| {
        let mut cluster = Cluster::new(1);
        cluster.learn(seconds);
        (0..8).for_each(|index| drop(cluster.submit(index, 2)));
        cluster.0.on(1).len() - 1
    };
    assert_eq!((ahead(1), ahead(16), ahead(1000)), (1, 2, 3));
}

#[test]
fn a_task_goes_where_most_parts_of_its_input_are() {
    let mut cluster = Cluster::new(3);
    // Of five parts, executor 2 has three, one of them with executor 1.
    for (by, part) in [(1, 11), (1, 12), (2, 12), (2, 13), (2, 14), (3, 15)] {
        cluster.store(by, part);
    }
    let parts: Vec<_> = (11..=15).map(|part| (object(part), 100 * MB)).collect();
    assert_eq!(cluster.0.bytes_held(&parts)[&ExecutorId(2)], 300 * MB);
    let part = cluster.0.part_for_placement(JobId(1), object(1), &parts);
    assert_eq!(part, Some((object(13), 100 * MB)), "no other executor has it");
    let inputs = [(object(1), 500 * MB), part.unwrap()].into();
    let given =
        assigned(&cluster.0.run(Event::TaskReady { task: task(0), inputs, need: Need::default() }));
    assert_eq!(given, [(2, 0)]);
    assert_eq!(
        cluster.0.part_for_placement(JobId(1), object(1), &[(object(1), 1)]),
        part,
        "it is remembered"
    );
    assert_eq!(cluster.0.part_for_placement(JobId(2), object(1), &[(object(1), 1)]), None);
    // Then executor 1 has most of them.
    [13, 14, 15].into_iter().for_each(|part| drop(cluster.store(1, part)));
    let part = cluster.0.part_for_placement(JobId(1), object(1), &parts);
    assert_eq!(part, Some((object(11), 100 * MB)), "no other executor has it");
}
