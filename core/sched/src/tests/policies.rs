//! What each policy does, and what all of them have in common: single histories in full.

use super::*;

/// Two executors of one slot; executor 1 holds object 1 and is busy, executor 2 is free.
fn busy_holder(policy: PlacementPolicy) -> Scheduler {
    let mut scheduler = scheduler(policy);
    scheduler.join(1, 1);
    assert_eq!(assigned(&scheduler.submit(0, &[9])), [(1, 0)]);
    // Executor 1 also has one task queued, so that it takes no more.
    assert_eq!(assigned(&scheduler.submit(1, &[9])), [(1, 1)]);
    scheduler.store(1, 1);
    scheduler.join(2, 1);
    scheduler
}

#[test]
fn max_cache_hit_waits_for_the_busy_holder() {
    let mut scheduler = busy_holder(PlacementPolicy::MaxCacheHit);
    // Task 1 was queued on executor 1; executor 2 is idle and asks for it back.
    assert_eq!(assigned(&scheduler.submit(2, &[1])), []);
    assert_eq!(assigned(&scheduler.finish(1, 0)), [(1, 2)]);
}

#[test]
fn max_compute_util_moves_the_data_instead() {
    let mut scheduler = busy_holder(PlacementPolicy::MaxComputeUtil);
    let effects = scheduler.submit(2, &[1]);
    assert_eq!(assigned(&effects), [(2, 2)]);
    let Effect::Command(PlacementCommand::Assign { hints, .. }) = &effects[0] else {
        panic!("{effects:?}")
    };
    let holder = Holder { executor: ExecutorId(1), is_relay: false, others: 0 };
    assert_eq!(*hints[0].holders, [holder], "the hint names the holder");
}

#[test]
fn good_cache_compute_chooses_by_utilisation() {
    // One of two processors busy: below 0.9, like MCU.
    let mut below = busy_holder(PlacementPolicy::GoodCacheCompute);
    assert_eq!(assigned(&below.submit(2, &[1])), [(2, 2)]);
    // Nineteen of twenty busy: at the threshold, like MCH.
    let mut at = scheduler(PlacementPolicy::GoodCacheCompute);
    at.join(1, 19);
    for index in 0..38 {
        at.submit(index, &[9]);
    }
    at.store(1, 1);
    let (profile, held) = (Box::default(), [(object(8), 10)].into());
    at.run(Event::ExecutorJoined { executor: ExecutorId(2), capacity: cpus(1000), profile, held });
    assert_eq!(at.utilisation(), Utilisation { busy_milli: 19_000, total_milli: 20_000 });
    assert_eq!(assigned(&at.submit(99, &[1])), []);
}

#[test]
fn with_figure_5_to_the_letter_the_oldest_task_goes_first() {
    for (hits_first, taken) in [(true, 3), (false, 2)] {
        let config =
            Config { policy: PlacementPolicy::MaxComputeUtil, hits_first, ..Config::default() };
        let mut scheduler = Scheduler::new(config);
        scheduler.join(1, 1);
        // One runs, one is queued, and two wait, the later of which finds its input there.
        [9, 9, 5, 1]
            .iter()
            .zip(0..)
            .for_each(|(input, index)| _ = scheduler.submit(index, &[*input]));
        scheduler.store(1, 1);
        assert_eq!(assigned(&scheduler.finish(1, 0)), [(1, taken)]);
    }
}

#[test]
fn literally_by_figure_5_an_executor_that_refused_the_only_task_looks_no_further() {
    let config =
        Config { policy: PlacementPolicy::MaxComputeUtil, hits_first: false, ..Config::default() };
    let mut scheduler = Scheduler::new(config);
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    assert_eq!(assigned(&scheduler.submit(0, &[1])), [(1, 0)]);
    scheduler.join(2, 1);
    (1..4).for_each(|index| _ = scheduler.submit(index, &[9]));
    assert_eq!(scheduler.end(1, 0, AssignmentEnd::Refused), []);
}

#[test]
fn first_available_gives_no_hints() {
    let mut scheduler = busy_holder(PlacementPolicy::FirstAvailable);
    let effects = scheduler.submit(2, &[1]);
    let Effect::Command(PlacementCommand::Assign { executor: ExecutorId(2), hints, .. }) =
        &effects[0]
    else {
        panic!("{effects:?}")
    };
    assert!(hints.is_empty());
}

#[test]
fn first_cache_available_takes_the_oldest_and_names_the_holders() {
    let mut scheduler = scheduler(PlacementPolicy::FirstCacheAvailable);
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    // One runs and one is queued; the executor holds the input of the third to wait, not of the
    // second.
    [9, 9, 5, 1].iter().zip(0..).for_each(|(input, index)| _ = scheduler.submit(index, &[*input]));
    assert_eq!(
        assigned(&scheduler.finish(1, 0)),
        [(1, 2)],
        "the oldest, whatever the executor holds"
    );
    let held = [(object(2), 10)].into();
    let (capacity, profile) = (cpus(1000), Box::default());
    let effects =
        scheduler.run(Event::ExecutorJoined { executor: ExecutorId(2), capacity, profile, held });
    let Effect::Command(PlacementCommand::Assign {
        executor: ExecutorId(2), task: of, hints, ..
    }) = &effects[0]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (of.index, &*hints[0].holders),
        (3, &[Holder { executor: ExecutorId(1), is_relay: false, others: 0 }][..])
    );
}

/// How many tasks leave the queue before executor 1 is given a task whose input the busy executor 2
/// holds; up to 100.
fn overtaken(config: Config) -> u32 {
    let mut scheduler = Scheduler::new(config);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    scheduler.store(1, 1);
    scheduler.store(2, 2);
    // Executor 2 runs one task for ever and has another queued; a third waits for it.
    (0..3).for_each(|index| _ = scheduler.submit(index, &[2]));
    (3..110).for_each(|index| _ = scheduler.submit(index, &[1]));
    let left = (0..100).take_while(|_| {
        let oldest = scheduler.on(1)[0];
        !assigned(&scheduler.finish(1, oldest)).contains(&(1, 2))
    });
    left.count() as u32
}

#[test]
fn a_task_waits_for_its_holder_as_long_as_patience_says() {
    let policy = PlacementPolicy::MaxCacheHit;
    let of =
        |patience| overtaken(Config { policy, patience, window: Some(40), ..Config::default() });
    let (short, window, unlimited) =
        (of(HolderPatience::Tasks(10)), of(HolderPatience::Window), of(HolderPatience::Unlimited));
    assert!(
        (5..=10).contains(&short) && (30..=40).contains(&window),
        "overtaken {short} and {window} times"
    );
    assert_eq!(unlimited, 100);
}

#[test]
fn an_executor_with_too_few_inputs_of_a_task_is_no_holder() {
    for (min_cache_hit, waits) in [(0.0, true), (0.3, true), (0.4, false)] {
        let policy = PlacementPolicy::MaxCacheHit;
        let mut scheduler = Scheduler::new(Config { policy, min_cache_hit, ..Config::default() });
        scheduler.join(1, 1);
        scheduler.store(1, 1);
        scheduler.submit(0, &[1]);
        scheduler.submit(1, &[1]);
        scheduler.join(2, 1);
        scheduler.submit(2, &[9]);
        // Executor 1 is busy, and holds a third of task 3 and two thirds of task 4. Executor 2 has
        // a place for each.
        scheduler.store(1, 2);
        scheduler.submit(3, &[1, 7, 8]);
        assert_eq!(scheduler.on(2) == [2], waits, "a third, beside {min_cache_hit}");
        scheduler.finish(2, 2);
        scheduler.submit(4, &[1, 2, 8]);
        assert!(!scheduler.on(2).contains(&4), "two thirds, beside {min_cache_hit}");
    }
}

#[test]
fn a_full_hit_goes_before_older_tasks_and_the_best_share_before_smaller_ones() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    scheduler.store(1, 2);
    scheduler.submit(0, &[9]);
    scheduler.submit(1, &[9]);
    for (index, inputs) in
        [(2, vec![7, 8]), (3, vec![1, 7, 8]), (4, vec![1, 2, 8]), (5, vec![1, 2])]
    {
        scheduler.submit(index, &inputs);
    }
    // Full, then two thirds, then one third, then the oldest.
    assert_eq!(assigned(&scheduler.finish(1, 0)), [(1, 5)]);
    assert_eq!(assigned(&scheduler.finish(1, 1)), [(1, 4)]);
    assert_eq!(assigned(&scheduler.finish(1, 5)), [(1, 3)]);
    assert_eq!(assigned(&scheduler.finish(1, 4)), [(1, 2)]);
}

#[test]
fn a_newcomer_goes_to_the_free_executor_that_holds_the_most() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    for id in 1..=3 {
        scheduler.join(id, 1);
    }
    scheduler.store(2, 1);
    scheduler.store(3, 1);
    scheduler.store(3, 2);
    assert_eq!(assigned(&scheduler.submit(0, &[1, 2, 3])), [(3, 0)]);
    assert_eq!(assigned(&scheduler.submit(1, &[1, 2, 3])), [(2, 1)]);
    assert_eq!(assigned(&scheduler.submit(2, &[1, 2, 3])), [(1, 2)]);
}

#[test]
fn the_oldest_task_is_overtaken_no_more_than_a_window() {
    let config =
        Config { policy: PlacementPolicy::MaxCacheHit, window: Some(10), ..Config::default() };
    let mut scheduler = Scheduler::new(config);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    scheduler.store(1, 1);
    scheduler.store(2, 2);
    // Executor 2 runs one task for ever and has another queued; a third waits for it.
    for index in 0..3 {
        scheduler.submit(index, &[2]);
    }
    for index in 3..40 {
        scheduler.submit(index, &[1]);
    }
    let mut order = Vec::new();
    let mut running: Vec<u32> = vec![3, 4];
    while let Some(index) = running.first().copied() {
        running.remove(0);
        let new = assigned(&scheduler.finish(1, index));
        order.extend(new.iter().map(|(_, index)| *index));
        running.extend(new.iter().filter(|(by, _)| *by == 1).map(|(_, index)| *index));
    }
    let waited = order.iter().position(|index| *index == 2).expect("task 2 ran on executor 1");
    assert!((5..=10).contains(&waited), "overtaken {waited} times");
}

#[test]
fn a_task_every_executor_refused_is_given_up() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    let first = assigned(&scheduler.submit(0, &[1]))[0].0;
    let refuse = |by| Event::TaskEnded {
        executor: ExecutorId(by),
        task: task(0),
        ended: AssignmentEnd::Refused,
        ran_us: None,
    };
    let second = assigned(&scheduler.run(refuse(first)))[0].0;
    assert_ne!(first, second);
    assert_eq!(
        scheduler.run(refuse(second)),
        [Effect::Report(PlacementReport::Unplaceable { task: task(0) })]
    );
}

#[test]
fn a_task_that_failed_within_moments_is_tried_elsewhere_first() {
    for policy in
        [PlacementPolicy::FirstAvailable, PlacementPolicy::GoodCacheCompute, PlacementPolicy::Cost]
    {
        let mut scheduler = scheduler(policy);
        scheduler.join(1, 1);
        scheduler.join(2, 1);
        let first = assigned(&scheduler.submit(0, &[1]))[0].0;
        let fail = |by| Event::TaskEnded {
            executor: ExecutorId(by),
            task: task(0),
            ended: AssignmentEnd::Elsewhere,
            ran_us: None,
        };
        let second = assigned(&scheduler.run(fail(first)))[0].0;
        assert_ne!(first, second, "{policy:?}");
        // All have tried it: any may again.
        let third = assigned(&scheduler.run(fail(second)))[0].0;
        // The other is lost before it could.
        assert_eq!(assigned(&scheduler.run(fail(third))), [(3 - third, 0)]);
        scheduler.run(Event::ExecutorLeft { executor: ExecutorId(third) });
        assert_eq!(assigned(&scheduler.run(fail(3 - third))), [(3 - third, 0)], "{policy:?}");
    }
}

#[test]
fn a_failure_and_a_refusal_do_not_make_a_task_hopeless() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    let first = assigned(&scheduler.submit(0, &[1]))[0].0;
    let end = |by, ended| Event::TaskEnded {
        executor: ExecutorId(by),
        task: task(0),
        ended,
        ran_us: None,
    };
    assert_eq!(assigned(&scheduler.run(end(first, AssignmentEnd::Elsewhere))), [(3 - first, 0)]);
    assert_eq!(assigned(&scheduler.run(end(3 - first, AssignmentEnd::Refused))), [(first, 0)]);
    assert_eq!(
        scheduler.run(end(first, AssignmentEnd::Refused)),
        [Effect::Report(PlacementReport::Unplaceable { task: task(0) })]
    );
}

#[test]
fn an_executor_that_is_set_aside_is_given_nothing_and_asked_for_what_it_has() {
    for policy in
        [PlacementPolicy::FirstAvailable, PlacementPolicy::MaxCacheHit, PlacementPolicy::Cost]
    {
        let mut scheduler = scheduler(policy);
        scheduler.join(1, 1);
        scheduler.store(1, 1);
        assert_eq!(assigned(&scheduler.submit(0, &[1])), [(1, 0)]);
        assert_eq!(assigned(&scheduler.submit(1, &[1])), [(1, 1)], "in line");
        let aside = Event::ExecutorSetAside { executor: ExecutorId(1) };
        let recall = |index| {
            Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(index) })
        };
        assert_eq!(scheduler.run(aside), [recall(0), recall(1)], "{policy:?}");
        let returned = Event::TaskEnded {
            executor: ExecutorId(1),
            task: task(1),
            ended: AssignmentEnd::Returned,
            ran_us: None,
        };
        assert_eq!(assigned(&scheduler.run(returned)), []);
        assert_eq!(assigned(&scheduler.finish(1, 0)), []);
        assert_eq!(scheduler.utilisation().total_milli, 0);
        assert_eq!(
            assigned(&scheduler.join(2, 1)),
            [(2, 1)],
            "{policy:?}: another takes it, whoever holds its input"
        );
        assert!(scheduler.is_held(object(1)));
        let back = Event::ExecutorTakenBack { executor: ExecutorId(1) };
        scheduler.submit(2, &[]);
        assert_eq!(assigned(&scheduler.run(back)).first().map(|(by, _)| *by).unwrap_or(1), 1);
        assert_eq!(scheduler.utilisation().total_milli, 2000);
    }
}

#[test]
fn tasks_that_are_withdrawn_leave_the_queue_together() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    (0..3).for_each(|index| _ = scheduler.submit(index, &[]));
    let tasks = [task(0), task(1), task(7)].into();
    assert_eq!(scheduler.run(Event::TasksWithdrawn { tasks }), []);
    assert_eq!(assigned(&scheduler.join(1, 4)), [(1, 2)]);
}

#[test]
fn an_idle_executor_gets_what_is_queued_elsewhere() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 1);
    scheduler.submit(0, &[]);
    scheduler.submit(1, &[]);
    let recall =
        Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(1) });
    assert_eq!(scheduler.join(2, 1), [recall]);
    let returned = Event::TaskEnded {
        executor: ExecutorId(1),
        task: task(1),
        ended: AssignmentEnd::Returned,
        ran_us: None,
    };
    assert_eq!(assigned(&scheduler.run(returned)), [(2, 1)]);
}

#[test]
fn a_task_that_waits_for_a_busy_holder_is_recalled_only_for_another_holder() {
    let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
    scheduler.join(1, 1);
    scheduler.store(1, 1);
    assert_eq!(assigned(&scheduler.submit(0, &[1])), [(1, 0)]);
    assert_eq!(assigned(&scheduler.submit(1, &[1])), [(1, 1)]);
    // Executor 2 would not take task 1, which would come back to be queued again, for ever.
    assert_eq!(scheduler.join(2, 1), []);
    // Now it holds as much.
    let recall =
        Effect::Command(PlacementCommand::Recall { executor: ExecutorId(1), task: task(1) });
    assert_eq!(scheduler.store(2, 1), [recall]);
    let returned = Event::TaskEnded {
        executor: ExecutorId(1),
        task: task(1),
        ended: AssignmentEnd::Returned,
        ran_us: None,
    };
    assert_eq!(assigned(&scheduler.run(returned)), [(2, 1)]);
}

#[test]
fn an_idle_best_holder_of_a_part_gets_the_newcomer() {
    let mut scheduler = scheduler(PlacementPolicy::MaxCacheHit);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    scheduler.store(1, 1);
    scheduler.store(2, 9);
    assert_eq!(assigned(&scheduler.submit(0, &[9])), [(2, 0)]);
    // Executor 1 has two tasks for object 1, ends them, and idles with the object still on its list
    // to search.
    assert_eq!(assigned(&scheduler.submit(1, &[1])), [(1, 1)]);
    assert_eq!(assigned(&scheduler.submit(2, &[1])), [(1, 2)]);
    scheduler.finish(1, 1);
    scheduler.finish(1, 2);
    assert_eq!(assigned(&scheduler.submit(3, &[1, 2])), [(1, 3)]);
}

#[test]
fn a_short_list_is_searched_before_a_very_long_one() {
    let mut scheduler =
        Scheduler::new(Config { policy: PlacementPolicy::MaxComputeUtil, ..Config::default() });
    scheduler.join(1, 1);
    scheduler.submit(0, &[9]);
    scheduler.submit(1, &[9]);
    let submit = |scheduler: &mut Scheduler, index: u32, inputs: &[u8]| {
        let inputs = inputs.iter().map(|n| (object(*n), 10)).collect();
        scheduler.handle(
            Event::TaskReady { task: task(index), inputs, need: Need::default() },
            &mut Vec::new(),
        );
    };
    // Farther back than one decision looks.
    for index in 2..5_000 {
        submit(&mut scheduler, index, &[1, 8]);
    }
    submit(&mut scheduler, 5_000, &[1, 2]);
    scheduler.store(1, 1);
    scheduler.store(1, 2);
    assert_eq!(assigned(&scheduler.finish(1, 0)), [(1, 5_000)]);
}

#[test]
fn a_scheduler_forgets_tasks_and_objects_of_forgotten_jobs() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join(1, 1);
    scheduler.submit(0, &[1]);
    scheduler.finish(1, 0);
    scheduler.forget_job(JobId(1));
    assert_eq!(scheduler.objects(), 0);
    assert!(scheduler.explain_task(task(0), usize::MAX).is_none());
}

#[test]
fn an_unknown_task_is_cancelled_without_harm() {
    let none: Box<[Effect]> = Box::default();
    assert_eq!(
        *scheduler(PlacementPolicy::MaxCacheHit).run(Event::TaskCancelled { task: task(5) }),
        *none
    );
}

#[test]
fn neighbours_bring_different_objects() {
    // Tasks come row by row; each of eight executors holds a column.
    let rows_brought_first = |spread| {
        let config =
            Config { policy: PlacementPolicy::MaxComputeUtil, spread, ..Config::default() };
        let mut scheduler = Scheduler::new(config);
        for (row, column) in (0..8).flat_map(|row| (0..8).map(move |column| (row, column))) {
            scheduler.submit(u32::from(8 * row + column), &[row, 8 + column]);
        }
        let rows = (0..8).map(|column| {
            let (executor, profile, held) =
                (ExecutorId(column), Box::default(), [(object(8 + column as u8), 10)].into());
            scheduler.run(Event::ExecutorJoined { executor, capacity: cpus(1000), profile, held });
            scheduler.on(column)[0] / 8
        });
        rows.collect::<BTreeSet<_>>().len()
    };
    assert_eq!(rows_brought_first(false), 1);
    assert!(rows_brought_first(true) > 3);
}

#[test]
fn very_short_tasks_are_given_in_advance_to_one_executor_after_the_other() {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    scheduler.join(1, 1);
    scheduler.join(2, 1);
    let submit = |scheduler: &mut Scheduler, index| assigned(&scheduler.submit(index, &[]))[0].0;
    let first = [0, 1].map(|index| (index, submit(&mut scheduler, index)));
    for (index, executor) in first {
        let (executor, ended) = (ExecutorId(executor), AssignmentEnd::Finished);
        scheduler.run(Event::TaskEnded { executor, task: task(index), ended, ran_us: Some(0) });
    }
    assert_ne!(submit(&mut scheduler, 2), submit(&mut scheduler, 3), "free slots go first");
    let takers: Vec<_> = (4..144).map(|index| submit(&mut scheduler, index)).collect();
    let turns: Vec<_> = takers.chunk_by(|one, next| one == next).map(<[u32]>::len).collect();
    assert_eq!(turns, [64, 64, 12]);
}
