//! Tasks with so many inputs that they are placed by a sample, and whose fetches are planned and
//! ended in parts.

use super::*;
use crate::Holder;

/// A scheduler that places a task by up to three of its inputs.
fn sampling() -> Scheduler {
    Scheduler::new(Config {
        policy: PlacementPolicy::MaxComputeUtil,
        placed_inputs: 3,
        ..Config::default()
    })
}

/// Objects 1 to 9 with their sizes. Of each three, the second is the largest.
fn inputs() -> Vec<(ObjectId, u64)> {
    (1..=9).map(|n| (object(n), if n % 3 == 2 { 50 } else { 10 })).collect()
}

fn submit(scheduler: &mut Scheduler, index: u32) -> Vec<Effect> {
    scheduler.run(Event::TaskReady {
        task: task(index),
        inputs: inputs().into(),
        need: Need::default(),
    })
}

/// The holders that the executor is told of all inputs, of two at a time.
fn hints(scheduler: &mut Scheduler, id: u32, index: u32) -> Vec<(u64, Vec<Holder>)> {
    let mut all = Vec::new();
    for (part, inputs) in inputs().chunks(2).enumerate() {
        let hints = scheduler.hints_of_part(ExecutorId(id), task(index), inputs);
        all.extend(
            hints
                .iter()
                .map(|hint| (1 + 2 * part as u64 + u64::from(hint.input), hint.holders.to_vec())),
        );
    }
    scheduler.validate();
    all
}

#[test]
fn the_largest_of_a_group_stands_for_all_of_it() {
    let mut scheduler = sampling();
    submit(&mut scheduler, 0);
    let waits = scheduler.explain_task(task(0), 10).unwrap();
    assert_eq!((waits.all_inputs, waits.placed_inputs, waits.input_bytes), (9, 3, 210));
    assert_eq!(
        waits.inputs.iter().map(|input| input.object).collect::<Vec<_>>(),
        [2, 5, 8].map(object)
    );
    scheduler.run(Event::TaskCancelled { task: task(0) });
    // The first executor holds two of the three that count, the second more objects and one of the
    // three.
    let held = |numbers: &[u8]| {
        numbers.iter().map(|n| inputs()[usize::from(*n) - 1]).collect::<Box<[_]>>()
    };
    for (id, numbers) in [(1, &[2, 5][..]), (2, &[1, 3, 4, 6, 7, 8, 9])] {
        let (capacity, profile, held) = (cpus(1000), Box::default(), held(numbers));
        scheduler.run(Event::ExecutorJoined { executor: ExecutorId(id), capacity, profile, held });
    }
    assert_eq!(assigned(&submit(&mut scheduler, 0)), [(1, 0)]);
    let assigned = scheduler.explain_task(task(0), 0).unwrap();
    assert_eq!((assigned.input_bytes, assigned.held_bytes), (210, 140));
}

#[test]
fn the_sample_is_planned_with_the_assignment_and_each_other_input_when_its_part_is_sent() {
    let mut scheduler = sampling();
    scheduler.join(1, 1);
    scheduler.store(1, 2);
    let receivers = |scheduler: &Scheduler, n| {
        scheduler.explain_object(object(n)).map(|object| object.receivers)
    };
    assert_eq!(
        submit(&mut scheduler, 0),
        [Effect::Command(PlacementCommand::Assign {
            executor: ExecutorId(1),
            task: task(0),
            attempt: 0,
            hints: Box::default(),
            in_parts: true
        })]
    );
    let of_sample = [2, 5, 8].map(|n| receivers(&scheduler, n).unwrap());
    assert_eq!(
        of_sample,
        [vec![], vec![ExecutorId(1)], vec![ExecutorId(1)]],
        "the executor has the first"
    );
    assert_eq!(receivers(&scheduler, 1), None);
    assert_eq!(hints(&mut scheduler, 1, 0), [], "the executor is the only one");
    scheduler.join(2, 1);
    submit(&mut scheduler, 1);
    let of_second = hints(&mut scheduler, 2, 1);
    assert_eq!(of_second.iter().map(|(n, _)| *n).collect::<Vec<_>>(), (1..=9).collect::<Vec<_>>());
    let is_first =
        |n: u64, holder: &Holder| (holder.executor, holder.is_relay) == (ExecutorId(1), n != 2);
    assert!(
        of_second.iter().all(|(n, holders)| holders.len() == 1 && is_first(*n, &holders[0])),
        "{of_second:?}"
    );
    // Another task is told nothing of what it does not have.
    assert_eq!(hints(&mut scheduler, 1, 1), []);
    scheduler.finish(1, 0);
    assert!(scheduler.has_fetches_to_end());
    assert_eq!(hints(&mut scheduler, 1, 0), []);
    // Eight objects were fetched, two of them were planned twice, and three plans are ended at a
    // time.
    let turns = (0..).take_while(|_| {
        let more = scheduler.has_fetches_to_end();
        scheduler.run(Event::EndFetches { objects: 3 });
        more
    });
    assert_eq!(turns.count(), 4);
    assert!((1..=9).all(|n| receivers(&scheduler, n).unwrap() == [ExecutorId(2)]));
}

#[test]
fn fetches_end_with_their_executor() {
    let mut scheduler = sampling();
    scheduler.join(1, 1);
    submit(&mut scheduler, 0);
    hints(&mut scheduler, 1, 0);
    scheduler.end(1, 0, AssignmentEnd::Again);
    hints(&mut scheduler, 1, 0);
    scheduler.run(Event::ExecutorLeft { executor: ExecutorId(1) });
    assert!(!scheduler.has_fetches_to_end());
    assert_eq!(scheduler.objects(), 3, "the waiting task names its sample");
    let waits = scheduler.explain_task(task(0), 10).unwrap();
    assert!(waits.inputs.iter().all(|input| input.receivers.is_empty() && input.wanted == 1));
}
