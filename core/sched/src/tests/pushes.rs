//! Pushes: single histories in full, and properties of every history.

use eyas_types::Distribution::{self, Chain, SpanningTree};

use super::*;
use crate::replication::MAX_PUSHED_AT_ONCE;
use crate::{PushId, Recipients};

const PUSH: PushId = PushId(1);

fn push(push: PushId, objects: &[u8], to: Recipients, distribution: Distribution) -> Event {
    let objects = objects.iter().map(|n| (object(*n), 10)).collect();
    Event::Push { push, objects, to, distribution }
}

fn these(executors: &[u32]) -> Recipients {
    Recipients::Executors(executors.iter().map(|id| ExecutorId(*id)).collect())
}

fn hold(executor: u32, n: u8, holders: &[(u32, bool)]) -> Effect {
    let holder = |(id, is_relay): &(u32, bool)| Holder {
        executor: ExecutorId(*id),
        is_relay: *is_relay,
        others: 0,
    };
    Effect::Command(PlacementCommand::Hold {
        executor: ExecutorId(executor),
        object: object(n),
        holders: holders.iter().map(holder).collect(),
    })
}

fn release(executor: u32, n: u8) -> Effect {
    Effect::Command(PlacementCommand::Release { executor: ExecutorId(executor), object: object(n) })
}

fn cluster(count: u32) -> Scheduler {
    let mut scheduler = scheduler(PlacementPolicy::GoodCacheCompute);
    (1..=count).for_each(|id| _ = scheduler.join(id, 1));
    scheduler
}

fn not_held(executor: u32, n: u8) -> Event {
    Event::NotHeld { executor: ExecutorId(executor), object: object(n) }
}

#[test]
fn a_push_to_many_goes_along_a_chain_and_is_cached() {
    let mut scheduler = cluster(3);
    let told = scheduler.run(push(PUSH, &[7], these(&[1, 2, 3]), Chain));
    assert_eq!(
        told,
        [hold(1, 7, &[]), hold(2, 7, &[(1, true)]), hold(3, 7, &[(2, true), (1, true)])].map(
            |effect| {
                // The one behind the giver gives to another executor already.
                let Effect::Command(PlacementCommand::Hold { executor, object, mut holders }) =
                    effect
                else {
                    panic!()
                };
                holders.iter_mut().skip(1).for_each(|holder| holder.others = 1);
                Effect::Command(PlacementCommand::Hold { executor, object, holders })
            }
        )
    );
    assert_eq!(scheduler.explain_object(object(7)).unwrap().receivers.len(), 3);
    assert_eq!(scheduler.store(1, 7), [release(1, 7)]);
    assert_eq!(scheduler.store(3, 7), [release(3, 7)]);
    assert_eq!(
        scheduler.store(2, 7),
        [release(2, 7), Effect::Command(PlacementCommand::Pushed { push: PUSH })]
    );
    let received: Vec<_> = scheduler
        .explain_push(PUSH)
        .iter()
        .map(|r| (r.stored, r.stored_bytes, r.is_over))
        .collect();
    assert_eq!(received, [(1, 10, true); 3]);
    scheduler.evict(2, 7);
    assert_eq!(scheduler.evicted_of_push(PUSH), [(ExecutorId(2), object(7))]);
    assert_eq!(scheduler.run(Event::PushEnded { push: PUSH }), []);
}

#[test]
fn an_executor_that_cannot_or_dies_holds_up_no_other() {
    let mut scheduler = cluster(4);
    scheduler.run(push(PUSH, &[7], these(&[1, 2, 3, 4, 99]), Chain));
    assert_eq!(scheduler.run(not_held(2, 7)), []);
    assert_eq!(scheduler.run(Event::ExecutorLeft { executor: ExecutorId(3) }), []);
    assert_eq!(scheduler.store(4, 7), [release(4, 7)]);
    // An executor that joins is not a recipient.
    assert_eq!(scheduler.join(5, 1), []);
    assert_eq!(
        scheduler.store(1, 7),
        [release(1, 7), Effect::Command(PlacementCommand::Pushed { push: PUSH })]
    );
    let received = scheduler.explain_push(PUSH);
    let received: Vec<_> =
        received.iter().map(|r| (r.executor.0, r.stored, r.missed, r.is_over)).collect();
    assert_eq!(received, [(1, 1, 0, true), (2, 0, 1, true), (3, 0, 0, true), (4, 1, 0, true)]);
}

#[test]
fn a_broadcast_goes_to_all_that_may_take_its_tasks_also_those_that_join() {
    let mut scheduler = cluster(1);
    scheduler.join_with(2, cpus(500));
    let takers = || Recipients::Takers([Need::from(cpus(1000))].into());
    assert_eq!(scheduler.run(push(PUSH, &[7], takers(), Chain)), [hold(1, 7, &[])]);
    assert_eq!(scheduler.store(1, 7), [release(1, 7)], "it is never over by itself");
    assert_eq!(scheduler.join(3, 4), [hold(3, 7, &[(1, false)])]);
    assert_eq!(scheduler.join_with(4, cpus(999)), []);
    assert_eq!(scheduler.run(Event::PushEnded { push: PUSH }), [release(3, 7)]);
    assert_eq!(scheduler.join(5, 4), [], "it has ended");
    assert_eq!(scheduler.explain_object(object(7)).unwrap().receivers, []);
}

#[test]
fn a_push_tells_of_a_few_objects_at_a_time() {
    let mut scheduler = cluster(1);
    let objects: Vec<u8> = (0..20).collect();
    let told = scheduler.run(push(PUSH, &objects, these(&[1]), Chain));
    assert_eq!(told.len(), MAX_PUSHED_AT_ONCE);
    assert_eq!(scheduler.store(1, 3), [release(1, 3), hold(1, MAX_PUSHED_AT_ONCE as u8, &[])]);
    assert_eq!(scheduler.run(Event::PushEnded { push: PUSH }).len(), MAX_PUSHED_AT_ONCE);
    assert_eq!(scheduler.store(1, 4), [], "no push waits for it any longer");
}

#[test]
fn an_object_kept_or_pushed_twice_is_held_until_both_end() {
    let mut scheduler = cluster(2);
    scheduler.store(1, 7);
    scheduler.run(Event::Keep { object: object(7), replicas: 1, executor: Some(ExecutorId(1)) });
    let told = scheduler.run(push(PUSH, &[7], these(&[1, 2]), Chain));
    assert_eq!(
        told,
        [hold(1, 7, &[]), hold(2, 7, &[(1, false)])],
        "the holder is asked to verify it"
    );
    let other = PushId(2);
    assert_eq!(scheduler.run(push(other, &[7], these(&[2]), Chain)), [hold(2, 7, &[(1, false)])]);
    assert_eq!(scheduler.store(1, 7), [], "it is kept there");
    assert_eq!(scheduler.run(Event::PushEnded { push: other }), [], "it is still pushed there");
    assert_eq!(
        scheduler.run(Event::Keep { object: object(7), replicas: 2, executor: None }).len(),
        1
    );
    assert_eq!(scheduler.run(Event::Release { object: object(7) }), [release(1, 7)]);
    assert_eq!(
        scheduler.store(2, 7),
        [release(2, 7), Effect::Command(PlacementCommand::Pushed { push: PUSH })]
    );
}

#[test]
fn a_task_that_leaves_takes_nothing_along_that_is_pushed() {
    let mut scheduler = cluster(2);
    scheduler.run(push(PUSH, &[7], these(&[1]), Chain));
    scheduler.submit(1, &[7]);
    let on = if scheduler.on(1).is_empty() { 2 } else { 1 };
    scheduler.end(on, 1, AssignmentEnd::Finished);
    assert_eq!(scheduler.explain_object(object(7)).unwrap().receivers, [ExecutorId(1)]);
}

#[test]
fn along_a_tree_each_round_awaits_the_last() {
    let mut scheduler = cluster(4);
    let takers = Recipients::Takers([Need::default()].into());
    assert_eq!(
        scheduler.run(push(PUSH, &[7, 8], takers, SpanningTree)),
        [hold(1, 7, &[]), hold(1, 8, &[])]
    );
    assert_eq!(scheduler.store(1, 7), [release(1, 7)], "nothing is passed on before all is there");
    let second = [release(1, 8), hold(2, 7, &[(1, false)]), hold(2, 8, &[(1, false)])];
    assert_eq!(scheduler.store(1, 8), second);
    scheduler.store(2, 7);
    let third = scheduler.store(2, 8);
    assert_eq!(third[1..3], [hold(3, 7, &[(1, false)]), hold(3, 8, &[(1, false)])]);
    assert_eq!(third[3..5], [hold(4, 7, &[(2, false)]), hold(4, 8, &[(2, false)])]);
    assert_eq!(scheduler.join(5, 1), [], "it is for those that were there");
    assert_eq!(scheduler.run(Event::ExecutorLeft { executor: ExecutorId(3) }), []);
    scheduler.store(4, 7);
    assert_eq!(
        scheduler.store(4, 8),
        [release(4, 8), Effect::Command(PlacementCommand::Pushed { push: PUSH })]
    );
}

#[derive(Clone, Debug)]
enum PushStep {
    Join,
    Leave(u8),
    Drain(u8),
    Push { objects: BTreeSet<u8>, selector: u8, is_tree: bool },
    End(u8),
    Evict(u8),
    Answer(u8, bool),
}

fn push_step() -> impl Strategy<Value = PushStep> {
    prop_oneof![
        3 => Just(PushStep::Join),
        1 => any::<u8>().prop_map(PushStep::Leave),
        1 => any::<u8>().prop_map(PushStep::Drain),
        2 => (prop::collection::btree_set(0u8..20, 1..14), any::<u8>(), any::<bool>())
            .prop_map(|(objects, selector, is_tree)| PushStep::Push { objects, selector, is_tree }),
        1 => any::<u8>().prop_map(PushStep::End),
        1 => any::<u8>().prop_map(PushStep::Evict),
        16 => (any::<u8>(), 0u8..12).prop_map(|(which, n)| PushStep::Answer(which, n > 0)),
    ]
}

/// Executors as the scheduler's effects and the world leave them.
struct World {
    scheduler: Scheduler,
    here: BTreeSet<ExecutorId>,
    draining: BTreeSet<ExecutorId>,
    stored: BTreeSet<(ExecutorId, ObjectId)>,
    held: BTreeSet<(ExecutorId, ObjectId)>,
    /// Answers that are owed.
    asked: Vec<(ExecutorId, ObjectId)>,
    /// Pushes that have not ended.
    pushes: BTreeMap<PushId, PushState>,
    /// How often each object was pushed, and each executor was told of it.
    pushed: BTreeMap<ObjectId, usize>,
    told: BTreeMap<(ExecutorId, ObjectId), usize>,
}

struct PushState {
    objects: usize,
    is_tree: bool,
    is_open: bool,
    is_over: bool,
}

impl World {
    fn run(&mut self, event: Event) {
        let ended = match &event {
            Event::PushEnded { push } => Some(*push),
            _ => None,
        };
        for effect in self.scheduler.run(event) {
            match effect {
                Effect::Command(PlacementCommand::Hold { executor, object, holders }) => {
                    assert!(self.here.contains(&executor) && !self.draining.contains(&executor));
                    assert!(!holders.iter().any(|holder| holder.executor == executor));
                    let gives = |holder: &Holder| {
                        let has_it = self.stored.contains(&(holder.executor, object));
                        // Evictions of an executor that leaves do not count.
                        let may_have_it =
                            holder.is_relay || self.draining.contains(&holder.executor);
                        has_it || may_have_it || self.pushes.values().any(|push| push.is_tree)
                    };
                    assert!(holders.iter().all(gives), "{holders:?} are to give {object}");
                    self.held.insert((executor, object));
                    self.asked.push((executor, object));
                    let told = self.told.entry((executor, object)).or_default();
                    *told += 1;
                    assert!(
                        *told <= self.pushed[&object],
                        "a push tells each executor of each object once"
                    );
                }
                Effect::Command(PlacementCommand::Release { executor, object }) => {
                    assert!(self.held.remove(&(executor, object)), "held twice")
                }
                Effect::Command(PlacementCommand::Pushed { push }) => {
                    let push = self.pushes.get_mut(&push).expect("it has not ended");
                    assert!(!push.is_open);
                    push.is_over = true;
                }
                other => panic!("{other:?}"),
            }
        }
        if let Some(push) = ended {
            self.pushes.remove(&push);
        }
    }

    fn answer(&mut self, which: usize, can: bool) {
        let (executor, object) = self.asked.remove(which);
        if !self.here.contains(&executor) {
            return;
        }
        if can {
            self.stored.insert((executor, object));
            self.run(Event::Stored { executor, object, size_bytes: 10 });
        } else {
            self.stored.remove(&(executor, object));
            self.held.remove(&(executor, object));
            self.run(Event::NotHeld { executor, object });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn everybody_that_stays_gets_everything_once(
        steps in prop::collection::vec(push_step(), 1..100),
    ) {
        let mut world = World {
            scheduler: scheduler(PlacementPolicy::GoodCacheCompute),
            here: BTreeSet::new(),
            draining: BTreeSet::new(),
            stored: BTreeSet::new(),
            held: BTreeSet::new(),
            asked: Vec::new(),
            pushes: BTreeMap::new(),
            pushed: BTreeMap::new(),
            told: BTreeMap::new(),
        };
        let (mut next, mut next_push) = (0, 0);
        for step in steps {
            let pick = |which: u8| {
                world.here.iter().nth(usize::from(which) % world.here.len().max(1)).copied()
            };
            match step {
                PushStep::Join => {
                    let executor = ExecutorId(next);
                    next += 1;
                    world.here.insert(executor);
                    let (profile, held) = (Box::default(), Box::default());
                    world.run(Event::ExecutorJoined {
                        executor,
                        capacity: cpus(1000),
                        profile,
                        held,
                    });
                }
                PushStep::Leave(which) => {
                    let Some(executor) = pick(which) else { continue };
                    world.here.remove(&executor);
                    world.draining.remove(&executor);
                    world.stored.retain(|(by, _)| *by != executor);
                    world.held.retain(|(by, _)| *by != executor);
                    world.run(Event::ExecutorLeft { executor });
                }
                PushStep::Drain(which) => {
                    let Some(executor) = pick(which) else { continue };
                    world.draining.insert(executor);
                    world.held.retain(|(by, _)| *by != executor);
                    world.run(Event::ExecutorDraining { executor });
                }
                PushStep::Push { objects, selector, is_tree } => {
                    let id = PushId(next_push);
                    next_push += 1;
                    let to = match selector {
                        0..128 => Recipients::Takers([Need::default()].into()),
                        _ => {
                            let is_recipient =
                                |id: &ExecutorId| id.0 % 3 != u32::from(selector) % 3;
                            Recipients::Executors(
                                world.here.iter().copied().filter(is_recipient).collect(),
                            )
                        }
                    };
                    let is_open = selector < 128 && !is_tree;
                    let objects: Vec<u8> = objects.into_iter().collect();
                    objects.iter().for_each(|n| *world.pushed.entry(object(*n)).or_default() += 1);
                    let pushed = PushState {
                        objects: objects.len(),
                        is_tree,
                        is_open,
                        is_over: false,
                    };
                    world.pushes.insert(id, pushed);
                    world.run(push(id, &objects, to, if is_tree { SpanningTree } else { Chain }));
                }
                PushStep::End(which) => {
                    let ids: Vec<_> = world.pushes.keys().copied().collect();
                    let Some(push) = ids.get(usize::from(which) % ids.len().max(1)).copied() else {
                        continue;
                    };
                    world.run(Event::PushEnded { push });
                }
                PushStep::Evict(which) => {
                    let idle: Vec<_> = world.stored.difference(&world.held).copied().collect();
                    let index = usize::from(which) % idle.len().max(1);
                    let Some((executor, object)) = idle.get(index).copied() else { continue };
                    world.stored.remove(&(executor, object));
                    world.run(Event::Evicted { executor, object });
                }
                PushStep::Answer(which, can) => {
                    if !world.asked.is_empty() {
                        world.answer(usize::from(which) % world.asked.len(), can);
                    }
                }
            }
        }
        while !world.asked.is_empty() {
            world.answer(0, true);
        }
        for (id, push) in &world.pushes {
            prop_assert_eq!(push.is_over, !push.is_open);
            for received in world.scheduler.explain_push(*id) {
                let is_there = world.here.contains(&received.executor)
                    && !world.draining.contains(&received.executor);
                prop_assert!(received.is_over);
                prop_assert!(
                    !is_there || (received.stored + received.missed) as usize == push.objects
                );
            }
        }
        let held: Vec<_> =
            world.held.iter().filter(|(by, _)| !world.draining.contains(by)).collect();
        prop_assert!(held.is_empty(), "{held:?} are held for no push");
        let objects = (0..20).filter_map(|n| world.scheduler.explain_object(object(n)));
        let receivers: usize = objects.map(|object| object.receivers.len()).sum();
        prop_assert_eq!(receivers, 0, "receipts are left");
    }
}
