//! Histories in which a task waited, or an executor idled, without cause.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::{Mismatch, WaitReason};

const SECOND_US: u64 = 1_000_000;

fn gpu() -> Resources {
    with_gpus(1, cpus(1000))
}

fn with_window(policy: PlacementPolicy, window: u64) -> Scheduler {
    Scheduler::new(Config { policy, window: Some(window), ..Config::default() })
}

impl Scheduler {
    /// Ends the tasks of executor 1 one after another, the oldest first, while `next` keeps
    /// submitting others. After how many the named one was given to it.
    fn ends_until(
        &mut self,
        wanted: u32,
        how: impl Fn(u32) -> AssignmentEnd,
        mut next: impl FnMut(&mut Self, u32),
    ) -> u32 {
        let mut running: VecDeque<u32> = self.on(1).into();
        for round in 0..500 {
            let index = running.pop_front().expect("executor 1 is busy");
            self.end(1, index, how(round));
            next(self, 1_000 + round);
            let new: Vec<_> =
                self.on(1).into_iter().filter(|index| !running.contains(index)).collect();
            running.extend(new);
            if running.contains(&wanted) {
                return round;
            }
        }
        panic!("task {wanted} starved");
    }
}

#[test]
fn a_search_begun_again_is_told_of_no_object_twice() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    // More partial hits than are remembered.
    for index in 0..40 {
        scheduler.submit(index, &[1, 10 + index as u8]);
    }
    for _ in 0..30 {
        let oldest = scheduler.on(1)[0];
        scheduler.finish(1, oldest);
    }
    scheduler.evict(1, 1);
    scheduler.submit(1_000, &[1]);
}

#[test]
fn a_wide_task_does_not_starve_behind_narrow_ones() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = with_window(*policy, 10);
        scheduler.join(1, 2);
        (0..6).for_each(|index| drop(scheduler.submit(index, &[])));
        scheduler.submit_with(100, &[], cpus(2000));
        (101..105).for_each(|index| drop(scheduler.submit(index, &[])));
        let rounds = scheduler.ends_until(
            100,
            |_| AssignmentEnd::Finished,
            |s, index| drop(s.submit(index, &[])),
        );
        assert!(rounds < 20, "{policy}: after {rounds}");
    }
}

#[test]
fn tasks_tried_again_do_not_make_the_oldest_young() {
    let mut scheduler = with_window(PlacementPolicy::MaxCacheHit, 10);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    scheduler.store(1, 1);
    scheduler.store(2, 2);
    (0..3).for_each(|index| drop(scheduler.submit(index, &[2])));
    (3..7).for_each(|index| drop(scheduler.submit(index, &[1])));
    let how =
        |round: u32| if round % 8 == 7 { AssignmentEnd::Again } else { AssignmentEnd::Finished };
    let rounds = scheduler.ends_until(2, how, |s, index| drop(s.submit(index, &[1])));
    assert!(rounds < 20, "after {rounds}");
}

#[test]
fn the_one_of_many_idle_executors_that_is_large_enough_is_found() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        for id in 0..100 {
            scheduler.join_with(id, if id == 80 { gpu() } else { cpus(1000) });
        }
        assert_eq!(assigned(&scheduler.submit_with(0, &[], gpu())), [(80, 0)], "{policy}");
    }
}

#[test]
fn holderless_tasks_too_large_for_any_executor_do_not_hide_others() {
    let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
    scheduler.join(1, 1);
    (0..100).for_each(|index| drop(scheduler.submit_with(index, &[], gpu())));
    assert_eq!(assigned(&scheduler.submit(100, &[])), [(1, 100)]);
}

#[test]
fn a_task_is_given_up_when_those_large_enough_refused_it() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join(1, 1);
    scheduler.join(2, 4);
    assert_eq!(assigned(&scheduler.submit_with(0, &[1], cpus(4000))), [(2, 0)]);
    assert_eq!(
        scheduler.end(2, 0, AssignmentEnd::Refused),
        [Effect::Report(PlacementReport::Unplaceable { task: task(0) })]
    );
}

#[test]
fn a_task_that_no_executor_can_take_does_not_stop_recalls() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 1);
    scheduler.submit(0, &[]);
    scheduler.submit(1, &[]);
    scheduler.submit_with(2, &[], gpu());
    assert_eq!(
        scheduler.join(2, 1),
        [Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(1) })]
    );
}

#[test]
fn a_recall_that_came_too_late_does_not_stop_others() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 1);
    scheduler.submit(0, &[]);
    scheduler.submit(1, &[]);
    assert_eq!(scheduler.join(2, 1).len(), 1);
    // Task 1 starts before it is asked for, and runs for long.
    scheduler.finish(1, 0);
    (2..5).for_each(|index| drop(scheduler.submit(index, &[])));
    let queued = *scheduler.on(1).last().expect("task 1, and one behind it");
    let mut recalled = Vec::new();
    while let Some(index) = scheduler.on(2).first().copied() {
        recalled.extend(scheduler.finish(2, index));
    }
    assert_eq!(
        recalled,
        [Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(queued) })]
    );
}

#[test]
fn the_newest_task_is_asked_back_first() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 2);
    (0..4).for_each(|index| drop(scheduler.submit(index, &[])));
    scheduler.finish(1, 0);
    scheduler.submit(4, &[]);
    scheduler.finish(1, 1);
    scheduler.submit(5, &[]);
    scheduler.finish(1, 3);
    // Tasks 2 and 4 run.
    assert_eq!(
        scheduler.join(2, 1),
        [Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(5) })]
    );
}

#[test]
fn tasks_do_not_go_to_and_fro_for_ever_and_others_are_asked_for_then() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 20);
    (0..40).for_each(|index| drop(scheduler.submit(index, &[])));
    for queued in (20..40).rev() {
        for newcomer in 2..6 {
            assert_eq!(
                scheduler.join(newcomer, 1),
                [Effect::Command(PlacementCommand::Recall {
                    executor: ExecutorId(1),
                    task: task(queued)
                })]
            );
            scheduler.run(Event::ExecutorLeft { executor: ExecutorId(newcomer) });
            assert_eq!(assigned(&scheduler.end(1, queued, AssignmentEnd::Returned)), [(1, queued)]);
        }
    }
    assert_eq!(scheduler.join(6, 1), []);
}

#[test]
fn an_idle_holder_is_woken_when_a_better_one_goes() {
    type Goes = fn(&mut Scheduler) -> Vec<Effect>;
    let ways: [(&str, Goes); 3] = [
        ("leaves", |s| s.run(Event::ExecutorLeft { executor: ExecutorId(2) })),
        ("drains", |s| s.run(Event::ExecutorDraining { executor: ExecutorId(2) })),
        ("evicts", |s| [s.evict(2, 1), s.evict(2, 2)].concat()),
    ];
    for (how, goes) in ways {
        let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
        (1..=2).for_each(|id| drop(scheduler.join(id, 1)));
        scheduler.store(2, 5);
        (1..=2).for_each(|index| drop(scheduler.submit(index, &[5])));
        for (id, n) in [(1, 1), (2, 1), (2, 2)] {
            scheduler.store(id, n);
        }
        assert_eq!(assigned(&scheduler.submit(0, &[1, 2, 3])), [], "{how}");
        assert_eq!(assigned(&goes(&mut scheduler)).first(), Some(&(1, 0)), "{how}");
    }
}

#[test]
fn partial_hits_that_are_too_large_do_not_hide_others() {
    let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
    scheduler.join(1, 1);
    scheduler.store(1, 8);
    assert_eq!(assigned(&scheduler.submit(91, &[8])), [(1, 91)]);
    assert_eq!(assigned(&scheduler.submit(92, &[8])), [(1, 92)]);
    scheduler.store(1, 1);
    (0..20).for_each(|index| drop(scheduler.submit_with(index, &[1], gpu())));
    assert_eq!(assigned(&scheduler.submit(50, &[1, 2])), []);
    assert_eq!(assigned(&scheduler.finish(1, 91)), [(1, 50)]);
}

#[test]
fn no_task_waits_for_a_holder_that_is_too_small() {
    for policy in [PlacementPolicy::MaxCacheHit, PlacementPolicy::GoodCacheCompute] {
        let mut scheduler = scheduler(policy);
        scheduler.join(1, 20);
        (0..40).for_each(|index| drop(scheduler.submit(index, &[])));
        scheduler.store(1, 1);
        scheduler.join_with(2, gpu());
        assert_eq!(assigned(&scheduler.submit_with(99, &[1], gpu())), [(2, 99)], "{policy}");
    }
}

#[test]
fn a_search_goes_on_after_turns_have_come_round() {
    let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
    scheduler.join(2, 1);
    scheduler.submit(90, &[7]);
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    (10..13).for_each(|index| drop(scheduler.submit(index, &[1])));
    (10..13).for_each(|index| drop(scheduler.finish(1, index)));
    scheduler.state_mut().skip_turns(1 << 31);
    scheduler.store(1, 8);
    (1..3).for_each(|index| drop(scheduler.submit(index, &[8])));
    scheduler.submit(3, &[1]);
    assert_eq!(assigned(&scheduler.finish(1, 1)), [(1, 3)]);
}

#[test]
fn tasks_that_never_ran_teach_no_run_time() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 1);
    (0..60).for_each(|index| drop(scheduler.submit(index, &[])));
    for _ in 0..50 {
        let [first, ..] = scheduler.on(1)[..] else { panic!("executor 1 idles") };
        let (executor, task) = (ExecutorId(1), task(first));
        scheduler.run(Event::TaskEnded {
            executor,
            task,
            ended: AssignmentEnd::Finished,
            ran_us: None,
        });
    }
    assert_eq!(scheduler.on(1).len(), 2, "one runs and one is queued");
}

#[test]
fn any_number_of_needs_may_come_and_go() {
    let mut scheduler = scheduler(PlacementPolicy::FirstAvailable);
    let effects = &mut Vec::new();
    for index in 0..70_000 {
        let need = Resources { memory_bytes: u64::from(index) + 1, ..cpus(1000) }.into();
        scheduler
            .handle(Event::TaskReady { task: task(index), inputs: Arc::default(), need }, effects);
        scheduler.handle(Event::TaskCancelled { task: task(index) }, effects);
    }
    assert_eq!(scheduler.state().queue.only_class(), None);
}

#[test]
fn an_executor_short_of_memory_lines_tasks_up() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        let of_memory = |cpus_milli, memory_bytes| Resources { memory_bytes, ..cpus(cpus_milli) };
        scheduler.join_with(1, of_memory(8000, 16));
        (0..4).for_each(|index| drop(scheduler.submit_with(index, &[], of_memory(1000, 8))));
        assert_eq!(scheduler.on(1), [0, 1, 2, 3], "{policy}: two run and two are queued");
    }
}

#[test]
fn an_executor_that_refused_many_tasks_gets_others() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    (1..=3).for_each(|id| drop(scheduler.join(id, 1)));
    (500..506).for_each(|index| drop(scheduler.submit(index, &[])));
    (0..100).for_each(|index| drop(scheduler.submit(index, &[1])));
    (100..110).for_each(|index| drop(scheduler.submit(index, &[])));
    let mut refused = 0;
    while let Some(index) = scheduler.on(1).into_iter().find(|index| *index < 100 || *index >= 500)
    {
        let ended = if index < 100 { AssignmentEnd::Refused } else { AssignmentEnd::Finished };
        refused += u32::from(ended == AssignmentEnd::Refused);
        scheduler.end(1, index, ended);
    }
    assert_eq!((refused, scheduler.on(1).len()), (100, 2));
}

#[test]
fn a_draining_executor_gets_no_tasks() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join(1, 1);
        scheduler.submit(0, &[1]);
        scheduler.store(1, 1);
        assert_eq!(scheduler.run(Event::ExecutorDraining { executor: ExecutorId(1) }), []);
        assert_eq!(assigned(&scheduler.submit(1, &[1])), []);
        assert_eq!(assigned(&scheduler.end(1, 0, AssignmentEnd::Again)), [], "{policy}");
        let waits = scheduler.explain_task(task(1), usize::MAX).and_then(|view| view.waits);
        assert_eq!(waits, Some(WaitReason::NoExecutors));
        scheduler.run(Event::ExecutorLeft { executor: ExecutorId(1) });
        assert_eq!(assigned(&scheduler.join(2, 2)).len(), 2, "{policy}");
    }
}

#[test]
fn objects_of_a_joining_executor_count_for_its_first_task() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.submit(0, &[]);
    scheduler.submit(1, &[1]);
    let held = [(object(1), 10)].into();
    let profile = Box::default();
    let joined =
        Event::ExecutorJoined { executor: ExecutorId(1), capacity: cpus(1000), profile, held };
    assert_eq!(assigned(&scheduler.run(joined)), [(1, 1), (1, 0)]);
}

#[test]
fn an_idle_executor_takes_what_it_holds_the_most_of_when_utilisation_falls() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join_with(1, with_gpus(4, cpus(20_000)));
    (0..2).for_each(|index| drop(scheduler.submit_with(index, &[], cpus(20_000))));
    (1..=4).for_each(|n| drop(scheduler.store(1, n)));
    scheduler.join(3, 2);
    (2..4).for_each(|index| drop(scheduler.submit_with(index, &[], cpus(2000))));
    scheduler.join_with(2, gpu());
    scheduler.store(2, 2);
    // Executor 1 holds all of both, and is busy.
    assert_eq!(assigned(&scheduler.submit_with(100, &[1, 3, 4], gpu())), []);
    assert_eq!(assigned(&scheduler.submit_with(101, &[1, 2, 3], gpu())), []);
    assert_eq!(assigned(&scheduler.finish(3, 2)), []);
    assert_eq!(assigned(&scheduler.finish(3, 3)), [(2, 101)]);
}

#[test]
fn no_task_starts_that_would_not_end_before_its_executor_does() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        let is_near = |scheduler: &mut Scheduler, seconds: u64| {
            let executors = [(ExecutorId(1), seconds * SECOND_US)].into();
            assigned(&scheduler.run(Event::TimesLeft { executors }))
        };
        scheduler.join(1, 1);
        is_near(&mut scheduler, 1);
        // Its run time is not known, and its timeout is only a bound. Then it is a second.
        let need = Need { timeout_us: Some(3_600 * SECOND_US), ..Need::default() };
        let first = Event::TaskReady { task: task(0), inputs: Arc::default(), need };
        assert_eq!(assigned(&scheduler.run(first)), [(1, 0)], "{policy}");
        scheduler.finish(1, 0);
        is_near(&mut scheduler, 3);
        assert_eq!(assigned(&scheduler.submit(1, &[])), [(1, 1)], "{policy}");
        assert_eq!(is_near(&mut scheduler, 0), [], "{policy}");
        scheduler.finish(1, 1);
        assert_eq!(assigned(&scheduler.submit(2, &[])), [], "{policy}: it would be ended half-way");
        assert_eq!(
            scheduler.explain_task(task(2), usize::MAX).unwrap().waits,
            Some(WaitReason::Unmatched(vec![(Mismatch::Time, 1)])),
            "{policy}"
        );
        let waiting =
            |us: u64| scheduler.unstarted_by_need(us).iter().map(|class| class.tasks).sum::<u64>();
        assert_eq!((waiting(SECOND_US), waiting(SECOND_US / 2)), (1, 0), "{policy}");
        assert!(scheduler.lacks_time(ExecutorId(1)) && !scheduler.lacks_time(ExecutorId(2)));
        // A task with a timeout ends sooner.
        let need = Need { timeout_us: Some(SECOND_US / 100), ..Need::default() };
        let executors = [(ExecutorId(1), SECOND_US / 10)].into();
        scheduler.run(Event::TimesLeft { executors });
        let short = Event::TaskReady { task: task(3), inputs: Arc::default(), need };
        assert_eq!(assigned(&scheduler.run(short)), [(1, 3)], "{policy}");
        assert!(!scheduler.lacks_time(ExecutorId(2)));
        scheduler.join(2, 1);
        assert_eq!(scheduler.on(2), [2], "{policy}: another has time");
    }
}

#[test]
fn a_task_that_was_interrupted_needs_more_time_than_it_has_run_and_goes_behind_others() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join(1, 1);
        let times =
            |left_us: u64| Event::TimesLeft { executors: [(ExecutorId(1), left_us)].into() };
        scheduler.run(times(60 * SECOND_US));
        assert_eq!(assigned(&scheduler.submit(0, &[])), [(1, 0)], "{policy}");
        scheduler.run(times(SECOND_US / 2));
        // It has run for a second.
        assert_eq!(
            assigned(&scheduler.end(1, 0, AssignmentEnd::Interrupted)),
            [],
            "{policy}: it would be interrupted again"
        );
        assert_eq!(
            scheduler.explain_task(task(0), usize::MAX).unwrap().waits,
            Some(WaitReason::Unmatched(vec![(Mismatch::Time, 1)])),
            "{policy}"
        );
        let waiting =
            |us: u64| scheduler.unstarted_by_need(us).iter().map(|class| class.tasks).sum::<u64>();
        assert_eq!((waiting(2 * SECOND_US), waiting(SECOND_US / 2)), (1, 0), "{policy}");
        assert_eq!(
            assigned(&scheduler.submit(1, &[])),
            [(1, 1)],
            "{policy}: nothing is known of other tasks"
        );
        scheduler.run(Event::ExecutorDraining { executor: ExecutorId(1) });
        scheduler.submit(2, &[]);
        assert_eq!(assigned(&scheduler.end(1, 1, AssignmentEnd::Interrupted)), [], "{policy}");
        scheduler.run(Event::ExecutorLeft { executor: ExecutorId(1) });
        let mut order = assigned(&scheduler.join(2, 1));
        for ended in 0..3 {
            order.extend(assigned(&scheduler.finish(2, order[ended].1)));
        }
        assert_eq!(order, [(2, 0), (2, 2), (2, 1)], "{policy}");
    }
}

#[test]
fn tasks_start_again_where_there_is_time_again() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        scheduler.join(1, 1);
        scheduler.submit(0, &[]);
        scheduler.finish(1, 0);
        let executors = [(ExecutorId(1), 1000)].into();
        scheduler.run(Event::TimesLeft { executors });
        assert_eq!(assigned(&scheduler.submit(1, &[])), [], "{policy}");
        assert_eq!(
            assigned(&scheduler.run(Event::TimesLeft { executors: Box::default() })),
            [(1, 1)],
            "{policy}"
        );
    }
}

#[test]
fn tasks_behind_slots_have_not_started() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        let unstarted = |s: &Scheduler| {
            s.unstarted_by_need(u64::MAX).iter().map(|class| class.tasks).sum::<u64>()
        };
        scheduler.join(1, 2);
        (0..2).for_each(|index| drop(scheduler.submit(index, &[])));
        assert_eq!((scheduler.has_unstarted(), unstarted(&scheduler)), (false, 0), "{policy}");
        (2..4).for_each(|index| drop(scheduler.submit(index, &[])));
        assert_eq!((scheduler.on(1).len(), scheduler.waiting()), (4, 0), "{policy}");
        assert_eq!((scheduler.has_unstarted(), unstarted(&scheduler)), (true, 2), "{policy}");
        scheduler.submit(4, &[]);
        assert_eq!((scheduler.waiting(), unstarted(&scheduler)), (1, 3), "{policy}");
        // Another node takes those that the first one has not started.
        scheduler.join(2, 4);
        while let Some(index) = scheduler.on(1).pop() {
            scheduler.finish(1, index);
        }
        assert_eq!(unstarted(&scheduler), 0, "{policy}");
    }
}

#[test]
fn a_task_that_waits_for_a_gpu_moves_to_a_free_one() {
    for policy in PlacementPolicy::ALL {
        let mut scheduler = scheduler(*policy);
        let node = || with_gpus(1, cpus(16_000));
        scheduler.join_with(1, node());
        (0..2).for_each(|index| drop(scheduler.submit_with(index, &[], gpu())));
        // There is a processor for it.
        scheduler.submit(2, &[]);
        assert_eq!(scheduler.on(1), [0, 1, 2], "{policy}");
        let unstarted: u64 =
            scheduler.unstarted_by_need(u64::MAX).iter().map(|class| class.tasks).sum();
        assert_eq!(unstarted, 1, "{policy}");
        let effects = scheduler.join_with(2, node());
        assert_eq!(
            effects,
            [Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(1) })],
            "{policy}"
        );
    }
}

#[test]
fn short_tasks_behind_slots_need_no_further_node() {
    for (ran_us, expected) in [(SECOND_US / 10, 0), (SECOND_US * 10, 1)] {
        let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
        scheduler.join(1, 1);
        scheduler.submit(0, &[]);
        let ended = Event::TaskEnded {
            executor: ExecutorId(1),
            task: task(0),
            ended: AssignmentEnd::Finished,
            ran_us: Some(ran_us),
        };
        scheduler.run(ended);
        (1..3).for_each(|index| drop(scheduler.submit(index, &[])));
        assert_eq!(scheduler.on(1), [1, 2]);
        let unstarted: u64 =
            scheduler.unstarted_by_need(u64::MAX).iter().map(|class| class.tasks).sum();
        assert_eq!(unstarted, expected, "after {ran_us} us");
    }
}
