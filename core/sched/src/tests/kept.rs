//! Kept objects: single histories in full, and properties of every history.

use alloc::vec::Vec;

use super::*;

const OBJECT: u8 = 7;

fn keep(replicas: u8, executor: Option<u32>) -> Event {
    Event::Keep { object: object(OBJECT), replicas, executor: executor.map(ExecutorId) }
}

fn hold(executor: u32, holders: &[u32]) -> Effect {
    let holders = holders.iter().map(|holder| Holder::of_whole(ExecutorId(*holder))).collect();
    Effect::Command(PlacementCommand::Hold {
        executor: ExecutorId(executor),
        object: object(OBJECT),
        holders,
    })
}

const LOST: Effect = Effect::Report(PlacementReport::Lost { object: ObjectId([OBJECT; 16]) });
const FOUND: Effect = Effect::Report(PlacementReport::Found { object: ObjectId([OBJECT; 16]) });

fn three() -> Scheduler {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    (0..3).for_each(|id| _ = scheduler.join(id, 1));
    scheduler
}

#[test]
fn an_executor_is_emptied_once_another_holds_what_only_it_held() {
    let mut scheduler = scheduler(PlacementPolicy::Cost);
    scheduler.join(0, 1);
    scheduler.store(0, OBJECT);
    scheduler.run(keep(1, Some(0)));
    scheduler.run(Event::ExecutorDraining { executor: ExecutorId(0) });
    scheduler.run(Event::Evacuate);
    assert!(!scheduler.is_emptied(ExecutorId(0)), "there is no other executor");
    scheduler.join(1, 1);
    assert!(!scheduler.is_emptied(ExecutorId(0)), "the object is on its way");
    scheduler.store(1, OBJECT);
    assert!(scheduler.is_emptied(ExecutorId(0)));
}

#[test]
fn an_object_gets_the_requested_number_of_replicas() {
    let mut scheduler = three();
    scheduler.store(1, OBJECT);
    assert_eq!(scheduler.run(keep(2, Some(1))), [hold(0, &[1])]);
    // An executor that cannot is not asked again; the next is, and one that joins later.
    assert_eq!(scheduler.evict(0, OBJECT), [hold(2, &[1])]);
    assert_eq!(scheduler.store(2, OBJECT), []);
    assert_eq!(scheduler.run(Event::ExecutorLeft { executor: ExecutorId(1) }), []);
    assert_eq!(scheduler.join(3, 1), [hold(3, &[2])]);
    let release = |id| {
        Effect::Command(PlacementCommand::Release {
            executor: ExecutorId(id),
            object: object(OBJECT),
        })
    };
    assert_eq!(scheduler.run(Event::Release { object: object(OBJECT) }), [release(2), release(3)]);
    assert_eq!(scheduler.evict(2, OBJECT), [], "it is no longer kept");
}

#[test]
fn an_executor_that_could_not_hold_an_object_is_asked_again() {
    let mut scheduler = three();
    scheduler.store(1, OBJECT);
    assert_eq!(scheduler.run(keep(3, Some(1))), [hold(0, &[1]), hold(2, &[1])]);
    assert_eq!((scheduler.evict(0, OBJECT), scheduler.evict(2, OBJECT)), (vec![], vec![]));
    assert_eq!(scheduler.run(Event::HoldAgain), [hold(0, &[1]), hold(2, &[1])]);
    assert_eq!(scheduler.store(0, OBJECT), []);
    assert_eq!(scheduler.evict(2, OBJECT), []);
    assert_eq!(scheduler.run(Event::HoldAgain), [hold(2, &[0, 1])]);
    assert_eq!(scheduler.store(2, OBJECT), []);
    assert_eq!(scheduler.run(Event::HoldAgain), [], "as many hold it as were asked for");
}

#[test]
fn holders_are_told_first_and_told_again_when_they_come_back() {
    let mut scheduler = three();
    scheduler.store(2, OBJECT);
    scheduler.store(0, 1);
    assert_eq!(scheduler.run(keep(1, None)), [hold(2, &[])]);
    let left = scheduler.run(Event::ExecutorLeft { executor: ExecutorId(2) });
    assert_eq!(left, [LOST, LOST], "when it is about to leave, and when it has left");
    assert!(!scheduler.is_held(object(OBJECT)));
    let held = [(object(OBJECT), 10)].into();
    let (executor, profile) = (ExecutorId(3), Box::default());
    let joined =
        scheduler.run(Event::ExecutorJoined { executor, capacity: cpus(1000), profile, held });
    assert_eq!(joined, [FOUND, hold(3, &[])]);
    assert_eq!(
        scheduler.run(Event::Doubted { object: object(OBJECT) }),
        [Effect::Command(PlacementCommand::Verify {
            executor: ExecutorId(3),
            object: object(OBJECT)
        })]
    );
    assert_eq!(scheduler.evict(3, OBJECT), [LOST]);
}

#[test]
fn the_only_replica_on_a_draining_executor_is_moved() {
    let mut scheduler = three();
    scheduler.store(1, OBJECT);
    scheduler.run(keep(1, Some(1)));
    assert_eq!(scheduler.run(Event::ExecutorDraining { executor: ExecutorId(1) }), [LOST]);
    assert_eq!(scheduler.run(Event::Evacuate), [hold(0, &[1])]);
    assert_eq!(scheduler.moving_from(ExecutorId(1)), 1);
    assert_eq!(scheduler.evict(0, OBJECT), [hold(2, &[1])]);
    assert_eq!(scheduler.store(2, OBJECT), [FOUND]);
    assert_eq!(scheduler.moving_from(ExecutorId(1)), 0);
    assert_eq!(scheduler.run(Event::ExecutorLeft { executor: ExecutorId(1) }), []);
    assert!(scheduler.is_held(object(OBJECT)));
    // There is no other executor to take it.
    for id in [0, 2] {
        scheduler.run(Event::ExecutorDraining { executor: ExecutorId(id) });
    }
    assert_eq!(scheduler.run(Event::Evacuate), []);
    assert_eq!(scheduler.moving_from(ExecutorId(2)), 0);
    assert_eq!(scheduler.run(Event::ExecutorLeft { executor: ExecutorId(2) }), [LOST]);
}

#[derive(Clone, Debug)]
enum KeptStep {
    Join,
    Leave(u8),
    Drain(u8),
    Keep(u8, u8),
    Release(u8),
    Store(u8, u8),
    Evict(u8, u8),
    Answer(u8, bool),
    Again,
}

fn kept_step() -> impl Strategy<Value = KeptStep> {
    prop_oneof![
        2 => Just(KeptStep::Join),
        1 => any::<u8>().prop_map(KeptStep::Leave),
        1 => any::<u8>().prop_map(KeptStep::Drain),
        3 => (0u8..4, 1u8..4).prop_map(|(n, replicas)| KeptStep::Keep(n, replicas)),
        1 => (0u8..4).prop_map(KeptStep::Release),
        4 => (any::<u8>(), 0u8..4).prop_map(|(which, n)| KeptStep::Store(which, n)),
        2 => (any::<u8>(), 0u8..4).prop_map(|(which, n)| KeptStep::Evict(which, n)),
        6 => (any::<u8>(), 0u8..6).prop_map(|(which, n)| KeptStep::Answer(which, n > 0)),
        1 => Just(KeptStep::Again),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn each_lost_kept_object_is_reported(steps in prop::collection::vec(kept_step(), 1..120)) {
        let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
        let (mut here, mut draining): (Vec<ExecutorId>, BTreeSet<ExecutorId>) = Default::default();
        let mut kept: BTreeMap<ObjectId, u8> = BTreeMap::new();
        let mut held: BTreeSet<(ObjectId, ExecutorId)> = BTreeSet::new();
        let mut asked: Vec<(ExecutorId, ObjectId)> = Vec::new();
        let mut told_lost: BTreeSet<ObjectId> = BTreeSet::new();
        let mut next = 0;
        for step in steps {
            let pick = |which: u8| here.get(usize::from(which) % here.len().max(1)).copied();
            let event = match step {
                KeptStep::Join => {
                    let executor = ExecutorId(next);
                    next += 1;
                    here.push(executor);
                    let (profile, held) = (Box::default(), Box::default());
                    Event::ExecutorJoined { executor, capacity: cpus(1000), profile, held }
                }
                KeptStep::Leave(which) => {
                    let Some(executor) = pick(which) else { continue };
                    here.retain(|other| *other != executor);
                    held.retain(|(_, by)| *by != executor);
                    asked.retain(|(by, _)| *by != executor);
                    Event::ExecutorLeft { executor }
                }
                KeptStep::Drain(which) => {
                    let Some(executor) = pick(which) else { continue };
                    draining.insert(executor);
                    Event::ExecutorDraining { executor }
                }
                KeptStep::Keep(n, replicas) => {
                    kept.insert(object(n), replicas);
                    Event::Keep { object: object(n), replicas, executor: None }
                }
                KeptStep::Release(n) => {
                    kept.remove(&object(n));
                    Event::Release { object: object(n) }
                }
                KeptStep::Store(which, n) => {
                    let Some(executor) = pick(which) else { continue };
                    held.insert((object(n), executor));
                    Event::Stored { executor, object: object(n), size_bytes: 10 }
                }
                KeptStep::Evict(which, n) => {
                    let Some(executor) = pick(which) else { continue };
                    held.remove(&(object(n), executor));
                    Event::Evicted { executor, object: object(n) }
                }
                KeptStep::Again => Event::HoldAgain,
                KeptStep::Answer(which, can) => {
                    if asked.is_empty() { continue }
                    let (executor, object) = asked.remove(usize::from(which) % asked.len());
                    if can {
                        held.insert((object, executor));
                        Event::Stored { executor, object, size_bytes: 10 }
                    } else {
                        held.remove(&(object, executor));
                        Event::Evicted { executor, object }
                    }
                }
            };
            if let Event::Release { object } = &event {
                told_lost.remove(object);
            }
            let effects = scheduler.run(event);
            for effect in &effects {
                match effect {
                    Effect::Report(PlacementReport::Lost { object }) => {
                        _ = told_lost.insert(*object)
                    }
                    Effect::Report(PlacementReport::Found { object }) => {
                        prop_assert!(told_lost.remove(object), "{} was not lost", object);
                    }
                    _ => {}
                }
                if let Effect::Command(PlacementCommand::Hold { executor, object, holders }) =
                    effect
                {
                    prop_assert!(here.contains(executor) && !draining.contains(executor));
                    let mut holders = holders.iter().map(|holder| holder.executor);
                    prop_assert!(
                        kept.contains_key(object)
                            && !holders.clone().any(|holder| holder == *executor)
                    );
                    let has_it = held.contains(&(*object, *executor));
                    prop_assert!(has_it || holders.any(|holder| held.contains(&(*object, holder))));
                    asked.push((*executor, *object));
                }
            }
            for object in kept.keys() {
                let is_held =
                    held.iter().any(|(other, by)| other == object && !draining.contains(by));
                prop_assert_eq!(scheduler.is_held(*object), is_held);
                prop_assert_eq!(
                    told_lost.contains(object),
                    !is_held,
                    "{} is not as it was told",
                    object
                );
            }
        }
    }
}
