//! Chains: the givers that are planned for executors that want one object at the same time.

use super::*;
use crate::{ExecutorProfile, Holder};

fn relay(id: u32) -> Holder {
    Holder { executor: ExecutorId(id), is_relay: true, others: 0 }
}

/// Whom the only task of these effects may get its only input from.
fn sources(effects: &[Effect]) -> (u32, Vec<Holder>) {
    let [Effect::Command(PlacementCommand::Assign { executor, hints, .. })] = effects else {
        panic!("{effects:?}")
    };
    (executor.0, hints.first().map_or(Vec::new(), |hint| hint.holders.to_vec()))
}

/// Executors 1 to `count` get a task each that reads object 1; the givers that each was told.
fn at_once(scheduler: &mut Scheduler, count: u32) -> Vec<Vec<Holder>> {
    let told = (1..=count).map(|id| {
        scheduler.join(id, 1);
        let (by, holders) = sources(&scheduler.submit(id, &[1]));
        assert_eq!(by, id);
        holders
    });
    told.collect()
}

#[test]
fn one_executor_reads_persistent_storage_and_the_others_form_a_chain() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    let told = at_once(&mut scheduler, 6);
    assert_eq!(told[0], []);
    assert_eq!(told[1], [relay(1)]);
    // Each giver is followed by its own giver, in case it dies.
    assert_eq!(told[2][..1], [relay(2)]);
    assert_eq!(told[5].iter().map(|holder| holder.executor.0).collect::<Vec<_>>(), [5, 4, 3, 2]);
    let view = scheduler.explain_object(object(1)).unwrap();
    assert_eq!((view.holders.len(), view.receivers), (0, (1..=6).map(ExecutorId).collect()));
}

#[test]
fn without_relays_all_read_persistent_storage_until_one_has_the_object() {
    let config =
        Config { policy: PlacementPolicy::MaxComputeUtil, relays: false, ..Config::default() };
    let mut scheduler = Scheduler::new(config);
    assert!(at_once(&mut scheduler, 4).iter().all(Vec::is_empty));
    scheduler.store(2, 1);
    scheduler.join(5, 1);
    let (_, told) = sources(&scheduler.submit(9, &[1]));
    assert_eq!(told, [Holder { is_relay: false, ..relay(2) }]);
}

#[test]
fn whole_replicas_that_give_nothing_yet_come_first() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    at_once(&mut scheduler, 2);
    scheduler.store(1, 1);
    scheduler.store(2, 1);
    let mut next = |id| {
        scheduler.join(id, 1);
        // Both holders have a task queued for each slot, so that the new one gets this.
        sources(&scheduler.submit(id, &[1])).1
    };
    next(3);
    next(4);
    let told: Vec<_> = (5..=8).map(&mut next).filter(|told| !told.is_empty()).collect();
    let givers: BTreeSet<_> = told.iter().map(|told| told[0].executor).collect();
    assert_eq!(
        givers.len(),
        told.len(),
        "no executor gives twice while others give nothing: {told:?}"
    );
}

#[test]
fn a_task_that_leaves_takes_its_link_out_of_the_chain() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    at_once(&mut scheduler, 3);
    scheduler.end(2, 2, AssignmentEnd::Finished);
    // Executor 2 did not get the object: its receivers go up the chain, so that no cycle results.
    let effects = scheduler.submit(9, &[1]);
    assert_eq!(sources(&effects), (2, vec![relay(3), Holder { others: 1, ..relay(1) }]));
}

#[test]
fn an_executor_that_has_left_is_no_source() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    at_once(&mut scheduler, 2);
    scheduler.run(Event::ExecutorLeft { executor: ExecutorId(2) });
    scheduler.join(3, 1);
    // Its task is queued behind executor 1's.
    assert_eq!(sources(&scheduler.submit(9, &[1])), (3, vec![relay(1)]));
}

#[test]
fn one_executor_of_each_site_reads_persistent_storage() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    let mut told = Vec::new();
    for (id, site) in [(1, "a"), (2, "b"), (3, "a"), (4, "b"), (5, "b")] {
        let profile = ExecutorProfile {
            labels: [("site".into(), site.into())].into(),
            ..ExecutorProfile::default()
        };
        let (capacity, held) = (cpus(1000), Box::default());
        scheduler.run(Event::ExecutorJoined {
            executor: ExecutorId(id),
            capacity,
            profile: Box::new(profile),
            held,
        });
        told.push(sources(&scheduler.submit(id, &[1])).1.first().map(|holder| holder.executor.0));
    }
    assert_eq!(told, [None, None, Some(1), Some(2), Some(4)]);
}

#[test]
fn an_estimate_finds_a_holder_at_the_site_behind_many_elsewhere() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    let at = |scheduler: &mut Scheduler, id: u32, site: &str| {
        let profile = ExecutorProfile {
            labels: [("site".into(), site.into())].into(),
            ..ExecutorProfile::default()
        };
        let (executor, capacity, held) = (ExecutorId(id), cpus(1000), Box::default());
        scheduler.run(Event::ExecutorJoined {
            executor,
            capacity,
            profile: Box::new(profile),
            held,
        });
    };
    // Persistent storage takes 100 s.
    at(&mut scheduler, 0, "a");
    scheduler.submit(0, &[9]);
    let (executor, object, took_us) = (ExecutorId(0), object(9), 100_000_000);
    scheduler.run(Event::Fetched { executor, object, from: Origin::Persistent, took_us });
    scheduler.finish(0, 0);
    for id in 1..=20 {
        at(&mut scheduler, id, "b");
        scheduler.store(id, 1);
    }
    at(&mut scheduler, 21, "a");
    scheduler.submit_with(1, &[1], cpus(64_000));
    let seconds = |scheduler: &Scheduler| {
        let state = scheduler.state();
        let executor = state.executors.find(ExecutorId(0)).unwrap();
        state.transfer_seconds(state.queue.find(task(1)).unwrap(), executor, |_| None)
    };
    assert_eq!(seconds(&scheduler), 100.0, "no holder is at its site");
    scheduler.store(21, 1);
    assert!(seconds(&scheduler) < 1.0, "{} s", seconds(&scheduler));
}

#[test]
fn two_tasks_of_one_executor_are_one_receipt() {
    let mut scheduler = scheduler(PlacementPolicy::MaxComputeUtil);
    scheduler.join(1, 2);
    scheduler.submit(0, &[1]);
    let (_, second) = sources(&scheduler.submit(1, &[1]));
    assert_eq!(second, [], "it is not told to get it from itself");
    assert_eq!(scheduler.explain_object(object(1)).unwrap().receivers.len(), 1);
    scheduler.store(1, 1);
    assert_eq!(scheduler.explain_object(object(1)).unwrap().receivers, []);
}
