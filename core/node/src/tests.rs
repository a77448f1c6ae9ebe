//! Properties that hold for every sequence of events, and a few sequences event by event.

extern crate std;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, JobId, ObjectId, Origin, Resources, TaskId};
use proptest::prelude::*;

use crate::{Effect, Event, FetchFailure, Node, Overlap, StoreLimits};

mod full_disk;
mod hold;
mod turns;

fn id(n: u8) -> ObjectId {
    ObjectId([n; 16])
}

fn task(index: u32) -> TaskId {
    TaskId { job: JobId(1), index }
}

fn cpus(milli: u32) -> Resources {
    Resources { cpus_milli: milli, ..Resources::default() }
}

const LIMITS: StoreLimits = StoreLimits { bytes: 100, inodes: 6, floor_bytes: 0, floor_inodes: 0 };

fn node(policy: EvictionPolicy, caching: bool) -> Node {
    node_with(policy, caching, Overlap::default())
}

fn node_with(policy: EvictionPolicy, caching: bool, overlap: Overlap) -> Node {
    Node::new(cpus(2000), LIMITS, policy, caching, overlap, 3, 1)
}

impl Node {
    fn run(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.handle(event, &mut effects);
        self.validate();
        effects
    }

    fn assign(&mut self, index: u32, inputs: &[(u8, u64)]) -> Vec<Effect> {
        let inputs = inputs.iter().map(|(n, size)| (id(*n), *size)).collect();
        self.run(Event::Assigned { task: task(index), inputs, need: cpus(1000), priority: 0 })
    }

    fn fetched_here(&mut self, n: u8) -> Vec<Effect> {
        self.run(Event::Fetched { object: id(n), from: Origin::Persistent, took_us: 1 })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Assign { inputs: BTreeSet<u8>, cpus: u32, priority: i32 },
    Fetched { which: u8, from: u8 },
    FetchFailed { which: u8, full: bool },
    End { which: u8 },
    RunOut { which: u8, written: u8 },
    Recall { which: u8 },
    Cancel { which: u8 },
    LendOrReclaim { which: u8 },
    Free { bytes: u8 },
    Lose { which: u8 },
    Hold { n: u8 },
    Offered { n: u8 },
    Give { which: u8, is_here: bool },
    Release { n: u8, is_wanted: bool },
    Produce { which: u8, n: u8 },
    Derive { which: u8, n: u8 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (prop::collection::btree_set(0u8..10, 0..8), 1u32..3, 0i32..3)
            .prop_map(|(inputs, cpus, priority)| Step::Assign { inputs, cpus, priority }),
        8 => (any::<u8>(), 0u8..3).prop_map(|(which, from)| Step::Fetched { which, from }),
        1 => (any::<u8>(), any::<bool>())
            .prop_map(|(which, full)| Step::FetchFailed { which, full }),
        6 => any::<u8>().prop_map(|which| Step::End { which }),
        2 => (any::<u8>(), any::<u8>())
            .prop_map(|(which, written)| Step::RunOut { which, written }),
        1 => any::<u8>().prop_map(|which| Step::Recall { which }),
        1 => any::<u8>().prop_map(|which| Step::Cancel { which }),
        2 => any::<u8>().prop_map(|which| Step::LendOrReclaim { which }),
        1 => (0u8..).prop_map(|bytes| Step::Free { bytes }),
        2 => any::<u8>().prop_map(|which| Step::Lose { which }),
        2 => (0u8..10).prop_map(|n| Step::Hold { n }),
        2 => (0u8..10).prop_map(|n| Step::Offered { n }),
        2 => (any::<u8>(), any::<bool>())
            .prop_map(|(which, is_here)| Step::Give { which, is_here }),
        1 => (0u8..12, any::<bool>()).prop_map(|(n, is_wanted)| Step::Release { n, is_wanted }),
        2 => (any::<u8>(), 8u8..12).prop_map(|(which, n)| Step::Produce { which, n }),
        3 => (any::<u8>(), 6u8..16).prop_map(|(which, n)| Step::Derive { which, n }),
    ]
}

fn size_bytes(n: u8) -> u64 {
    u64::from(n) * 6
}

/// A simulated shell: a disk and a process table that carry out effects.
struct World {
    node: Node,
    store: BTreeSet<ObjectId>,
    fetching: BTreeSet<ObjectId>,
    /// Expected objects whose transfer has not ended.
    giving: BTreeSet<ObjectId>,
    /// Objects that the node was told to hold, and has not reported as not held.
    held: BTreeSet<ObjectId>,
    waiting: BTreeMap<TaskId, (BTreeSet<ObjectId>, u32)>,
    /// Inputs, processors and slot of each started task.
    running: BTreeMap<TaskId, (BTreeSet<ObjectId>, u32, u32)>,
    /// What started tasks read that was made of their inputs.
    derived: BTreeMap<TaskId, BTreeSet<ObjectId>>,
    /// Suspended tasks, which are also in `running`.
    suspended: BTreeSet<TaskId>,
    /// Suspended tasks that run on, and have not asked for their processors again.
    lending: BTreeSet<TaskId>,
    priorities: BTreeMap<TaskId, i32>,
    next: u32,
    log: Vec<Effect>,
}

impl World {
    fn new(policy: EvictionPolicy, caching: bool, overlap: Overlap) -> Self {
        World {
            node: node_with(policy, caching, overlap),
            store: BTreeSet::new(),
            fetching: BTreeSet::new(),
            giving: BTreeSet::new(),
            held: BTreeSet::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            derived: BTreeMap::new(),
            suspended: BTreeSet::new(),
            lending: BTreeSet::new(),
            priorities: BTreeMap::new(),
            next: 0,
            log: Vec::new(),
        }
    }

    fn run(&mut self, event: Event) {
        let effects = self.node.run(event);
        for effect in &effects {
            match effect {
                Effect::Fetch { object, task } => {
                    assert!(task.map_or(self.held.contains(object), |task| {
                        self.waiting[&task].0.contains(object)
                    }));
                    assert!(
                        !self.store.contains(object) && self.fetching.insert(*object),
                        "{object} fetched twice"
                    );
                }
                Effect::Evict { object } => {
                    assert!(
                        self.store.remove(object),
                        "{object} is evicted, but is not in the store"
                    );
                    assert!(!self.held.contains(object), "{object} is evicted, but is held");
                    let used = self.running.values().any(|(inputs, ..)| inputs.contains(object))
                        || self.derived.values().any(|derived| derived.contains(object));
                    assert!(!used, "{object} is evicted, but a running task reads it");
                }
                Effect::Start { task, slot, reads, .. } => {
                    let (inputs, cpus) =
                        self.waiting.remove(task).expect("only waiting tasks start");
                    assert!(inputs.is_subset(&self.store), "{task} starts without its inputs");
                    assert_eq!(reads.count(), inputs.len() as u64);
                    assert!(
                        self.running.values().all(|(.., taken)| taken != slot),
                        "slot {slot} is taken"
                    );
                    self.running.insert(*task, (inputs, cpus, *slot));
                    assert!(self.computing() <= 2, "tasks use more processors than there are");
                    let waits = self.suspended.difference(&self.lending);
                    let passed =
                        waits.filter(|other| self.priorities[*other] >= self.priorities[task]);
                    assert_eq!(passed.count(), 0, "{task} starts before one that was suspended");
                }
                Effect::Suspend { task } => {
                    assert!(
                        self.running.contains_key(task) && self.suspended.insert(*task),
                        "{task} is not running"
                    );
                }
                Effect::Resume { task } => {
                    assert!(self.suspended.remove(task), "{task} is not suspended");
                    assert!(
                        !self.lending.contains(task),
                        "{task} has not asked for its processors"
                    );
                    assert!(self.computing() <= 2, "tasks use more processors than there are");
                }
                Effect::Lend { task } => {
                    assert!(self.running.contains_key(task));
                    self.suspended.insert(*task);
                    self.lending.insert(*task);
                }
                Effect::Granted { task } => {
                    assert!(!self.suspended.contains(task), "{task} has no processors")
                }
                Effect::Kill { task } => assert!(self.running.contains_key(task)),
                Effect::Refuse { task, for_now, .. } => {
                    let (inputs, _) =
                        self.waiting.remove(task).expect("only waiting tasks are refused");
                    let total: u64 = inputs.iter().map(|object| size_bytes(object.0[0])).sum();
                    let never = total > LIMITS.bytes || inputs.len() as u64 > LIMITS.inodes;
                    assert_eq!(*for_now, !never, "{task} reads {total} bytes");
                }
                Effect::GivenUp { object } => {
                    assert!(!self.store.contains(object) && !self.fetching.contains(object));
                    assert!(!self.giving.contains(object));
                }
                Effect::Expected { object } => {
                    assert!(self.held.contains(object) && !self.fetching.contains(object));
                    assert!(self.giving.insert(*object));
                }
                Effect::Held { object } => {
                    assert!(self.store.contains(object) && self.held.contains(object))
                }
                Effect::NotHeld { object, .. } => {
                    assert!(self.held.remove(object) && !self.store.contains(object))
                }
                Effect::CannotKeep { object, .. } => {
                    assert!(self.store.remove(object) && self.held.remove(object));
                }
                Effect::ReturnTask { task } | Effect::Fail { task, .. } => {
                    assert!(self.waiting.remove(task).is_some());
                }
            }
        }
        self.log.extend(effects);
        assert_eq!(self.node.tasks(), self.waiting.len() + self.running.len());
    }

    fn apply(&mut self, step: &Step) {
        fn pick<K: Copy, V>(map: &BTreeMap<K, V>, which: u8) -> Option<K> {
            map.keys().nth(usize::from(which) % map.len().max(1)).copied()
        }
        match step {
            Step::Assign { inputs, cpus: count, priority } => {
                let task = task(self.next);
                self.next += 1;
                self.waiting.insert(task, (inputs.iter().map(|n| id(*n)).collect(), *count));
                self.priorities.insert(task, *priority);
                let inputs = inputs.iter().map(|n| (id(*n), size_bytes(*n))).collect();
                self.run(Event::Assigned {
                    task,
                    inputs,
                    need: cpus(count * 1000),
                    priority: *priority,
                });
            }
            Step::Fetched { which, from } => {
                let Some(object) = self
                    .fetching
                    .iter()
                    .nth(usize::from(*which) % self.fetching.len().max(1))
                    .copied()
                else {
                    return;
                };
                self.fetching.remove(&object);
                self.store.insert(object);
                let from = [Origin::Local, Origin::Peer, Origin::Persistent][usize::from(*from)];
                self.run(Event::Fetched { object, from, took_us: 1 });
            }
            Step::FetchFailed { which, full } => {
                let Some(object) = self
                    .fetching
                    .iter()
                    .nth(usize::from(*which) % self.fetching.len().max(1))
                    .copied()
                else {
                    return;
                };
                self.fetching.remove(&object);
                let failure = if *full { FetchFailure::Full } else { FetchFailure::Unavailable };
                self.run(Event::FetchFailed { object, failure });
            }
            Step::End { which } => {
                let Some(task) = pick(&self.running, *which) else { return };
                self.end(task);
            }
            Step::RunOut { which, written } => {
                let Some(task) = pick(&self.running, *which) else { return };
                self.suspended.remove(&task);
                self.lending.remove(&task);
                let (inputs, cpus, _) = self.running.remove(&task).expect("it was picked");
                self.derived.remove(&task);
                self.waiting.insert(task, (inputs, cpus));
                self.run(Event::OutOfDisk { task, written_bytes: u64::from(*written) });
            }
            Step::Recall { which } => {
                if let Some(task) = pick(&self.waiting, *which) {
                    self.run(Event::Recalled { task });
                }
            }
            Step::Cancel { which } => {
                if let Some(task) =
                    pick(&self.running, *which).or_else(|| pick(&self.waiting, *which))
                {
                    self.run(Event::Cancelled { task });
                }
            }
            Step::LendOrReclaim { which } => match pick(&self.running, *which) {
                Some(task) if self.lending.remove(&task) => self.run(Event::Reclaimed { task }),
                Some(task) => self.run(Event::Lent { task }),
                None => {}
            },
            Step::Lose { which } => {
                let count = self.store.len().max(1);
                let Some(object) = self.store.iter().nth(usize::from(*which) % count).copied()
                else {
                    return;
                };
                self.store.remove(&object);
                // Running tasks still have the object in their sandboxes.
                self.running
                    .values_mut()
                    .for_each(|(inputs, ..)| inputs.retain(|other| *other != object));
                self.derived.values_mut().for_each(|derived| {
                    derived.remove(&object);
                });
                self.run(Event::Lost { object });
            }
            Step::Hold { n } => {
                self.held.insert(id(*n));
                self.run(Event::Hold { object: id(*n), size_bytes: size_bytes(*n) });
            }
            Step::Offered { n } => {
                self.held.insert(id(*n));
                self.run(Event::Offered { object: id(*n), size_bytes: size_bytes(*n) });
            }
            Step::Give { which, is_here } => {
                let count = self.giving.len().max(1);
                let Some(object) = self.giving.iter().nth(usize::from(*which) % count).copied()
                else {
                    return;
                };
                self.give(object, *is_here);
            }
            Step::Release { n, is_wanted } => {
                let object = id(*n);
                self.held.remove(&object);
                self.run(if *is_wanted {
                    Event::Release { object }
                } else {
                    Event::Discard { object }
                });
            }
            Step::Derive { which, n } => {
                let Some(task) = pick(&self.running, *which) else { return };
                let Some(source) = self.running[&task].0.first().copied() else { return };
                // Some of them are inputs of other tasks, too, and may be being fetched.
                let object = id(*n);
                let size_bytes = size_bytes(if *n < 12 { *n } else { *n - 8 });
                self.store.insert(object);
                self.run(Event::Derived { task, source, object, size_bytes, took_us: None });
                if self.store.contains(&object) {
                    self.derived.entry(task).or_default().insert(object);
                }
            }
            Step::Produce { which, n } => {
                let Some(task) = pick(&self.running, *which) else { return };
                self.store.insert(id(*n));
                self.held.insert(id(*n));
                self.run(Event::Produced { task, object: id(*n), size_bytes: size_bytes(*n) });
            }
            Step::Free { bytes } => {
                self.run(Event::FreeSpace { bytes: u64::from(*bytes), inodes: 10 })
            }
        }
    }

    /// Processors of tasks that run and are not suspended.
    fn computing(&self) -> u32 {
        self.running
            .iter()
            .filter(|(task, _)| !self.suspended.contains(task))
            .map(|(_, (_, cpus, _))| cpus)
            .sum()
    }

    fn end(&mut self, task: TaskId) {
        self.suspended.remove(&task);
        self.lending.remove(&task);
        self.running.remove(&task);
        self.derived.remove(&task);
        self.run(Event::Ended { task });
    }

    fn give(&mut self, object: ObjectId, is_here: bool) {
        self.giving.remove(&object);
        if is_here {
            self.store.insert(object);
        }
        self.run(Event::TransferEnded { object, is_here });
    }

    /// Opens the store with these objects in it.
    fn find(&mut self, objects: &BTreeSet<u8>) {
        for n in objects {
            self.store.insert(id(*n));
            self.run(Event::Found { object: id(*n), size_bytes: size_bytes(*n) });
        }
    }

    /// Lets all fetches succeed and all tasks end. Then every task has started or was refused.
    fn drain(&mut self) {
        loop {
            if let Some(object) = self.fetching.pop_first() {
                self.store.insert(object);
                self.run(Event::Fetched { object, from: Origin::Persistent, took_us: 1 });
            } else if let Some(object) = self.giving.first().copied() {
                self.give(object, true);
            } else if let Some(task) = self.lending.pop_first() {
                self.run(Event::Reclaimed { task });
            } else if let Some(task) =
                self.running.keys().find(|task| !self.suspended.contains(task)).copied()
            {
                self.end(task);
            } else {
                break;
            }
        }
        assert!(self.waiting.is_empty(), "never started: {:?}", self.waiting);
        assert!(self.held.is_subset(&self.store), "not held: {:?}", self.held);
        assert!(self.suspended.is_empty(), "never resumed: {:?}", self.suspended);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn limits_hold_and_every_task_comes_to_its_end(
        policy in 0..EvictionPolicy::ALL.len(),
        caching: bool,
        is_on in prop::bool::weighted(0.8),
        data_intensive_bytes in 0u64..100,
        found in prop::collection::btree_set(0u8..10, 0..8),
        steps in prop::collection::vec(step(), 1..100)
    ) {
        let policy = EvictionPolicy::ALL[policy];
        let overlap = Overlap { is_on, data_intensive_bytes, ..Overlap::default() };
        let mut logs = Vec::new();
        for _ in 0..2 {
            let mut world = World::new(policy, caching, overlap);
            world.find(&found);
            steps.iter().for_each(|step| world.apply(step));
            world.drain();
            prop_assert!(
                caching || world.store == world.held,
                "without caching, only held objects stay"
            );
            logs.push(world.log);
        }
        prop_assert_eq!(&logs[0], &logs[1], "the same events gave different effects");
    }
}

#[test]
fn the_next_tasks_inputs_are_staged_while_others_compute() {
    let mut node = node(EvictionPolicy::Lru, true);
    assert_eq!(node.assign(0, &[(1, 10)]), [Effect::Fetch { object: id(1), task: Some(task(0)) }]);
    assert!(matches!(node.fetched_here(1)[..], [Effect::Start { slot: 0, .. }]));
    assert!(
        matches!(node.assign(1, &[(1, 10)])[..], [Effect::Start { slot: 1, .. }]),
        "a local hit starts at once"
    );
    assert_eq!(node.assign(2, &[(2, 10)]), [Effect::Fetch { object: id(2), task: Some(task(2)) }]);
    assert_eq!(node.fetched_here(2), [], "no slot is free");
    assert!(matches!(
        node.run(Event::Ended { task: task(1) })[..],
        [Effect::Start { slot: 1, .. }]
    ));
}

#[test]
fn a_fetch_that_nobody_needs_any_longer_is_given_up_before_it_begins() {
    let mut node = node(EvictionPolicy::Lru, true);
    for n in 0..4 {
        node.assign(u32::from(n), &[(n, 10)]);
    }
    // Three fetches are under way, and the fourth waits for its turn.
    let given_back = Effect::ReturnTask { task: task(3) };
    let given_up = Effect::GivenUp { object: id(3) };
    assert_eq!(node.run(Event::Recalled { task: task(3) }), [given_up, given_back]);
    let given_back = Effect::ReturnTask { task: task(2) };
    assert_eq!(node.run(Event::Recalled { task: task(2) }), [given_back], "its bytes flow");
    // Task 5 waits in the queue, because the store has no room for its input yet.
    node.assign(5, &[(5, 80)]);
    let given_back = Effect::ReturnTask { task: task(5) };
    let given_up = Effect::GivenUp { object: id(5) };
    assert_eq!(node.run(Event::Recalled { task: task(5) }), [given_up, given_back]);
    // The same for an object that was to be held.
    assert_eq!(node.run(Event::Hold { object: id(4), size_bytes: 10 }), []);
    let given_up = Effect::GivenUp { object: id(4) };
    assert_eq!(node.run(Event::Release { object: id(4) }), [given_up]);
}

#[test]
fn two_tasks_that_want_one_object_fetch_it_once() {
    let mut node = node(EvictionPolicy::Lru, true);
    assert_eq!(node.assign(0, &[(1, 10)]).len(), 1);
    assert_eq!(node.assign(1, &[(1, 10)]), []);
    let started = node.fetched_here(1);
    let reads: Vec<_> = started
        .iter()
        .map(|effect| if let Effect::Start { reads, .. } = effect { *reads } else { panic!() })
        .collect();
    assert_eq!((reads[0].persistent.bytes, reads[1].local.bytes), (10, 10));
}

#[test]
fn a_task_larger_than_the_store_is_refused_and_says_so() {
    let mut node = node(EvictionPolicy::Lru, true);
    let [Effect::Refuse { reason, .. }] = &node.assign(0, &[(1, 60), (2, 60)])[..] else {
        panic!()
    };
    assert!(
        reason.contains("120 B") && reason.contains("100 B") && reason.contains("--cache"),
        "{reason}"
    );
}

#[test]
fn a_task_waits_for_room_that_running_tasks_hold() {
    let mut node = node(EvictionPolicy::Lru, true);
    node.assign(0, &[(1, 80)]);
    node.fetched_here(1);
    assert_eq!(node.assign(1, &[(2, 80)]), []);
    let effects = node.run(Event::Ended { task: task(0) });
    assert_eq!(
        effects,
        [Effect::Evict { object: id(1) }, Effect::Fetch { object: id(2), task: Some(task(1)) }]
    );
}

#[test]
fn disk_space_counts_objects_that_could_be_evicted() {
    let limits = StoreLimits { floor_bytes: 30, ..LIMITS };
    let mut node =
        Node::new(cpus(2000), limits, EvictionPolicy::Lru, true, Overlap::default(), 3, 1);
    assert!(node.disk_bytes() > 1 << 60, "the free space is not known yet");
    node.run(Event::FreeSpace { bytes: 100, inodes: 100 });
    assert_eq!(node.disk_bytes(), 70);
    node.assign(0, &[(1, 40)]);
    node.fetched_here(1);
    assert_eq!(node.disk_bytes(), 70, "a pinned object can leave later");
    node.run(Event::FreeSpace { bytes: 20, inodes: 100 });
    assert_eq!(node.disk_bytes(), 30);
    node.run(Event::Ended { task: task(0) });
    assert_eq!(node.disk_bytes(), 30);
}

#[test]
fn a_lost_input_fails_every_task_that_needs_it_and_no_other() {
    let mut node = node(EvictionPolicy::Lru, true);
    node.assign(0, &[(1, 10)]);
    node.assign(1, &[(1, 10), (2, 10)]);
    node.assign(2, &[(2, 10)]);
    let effects =
        node.run(Event::FetchFailed { object: id(1), failure: FetchFailure::Unavailable });
    let failed = |index| Effect::Fail { task: task(index), object: id(1) };
    assert_eq!(effects, vec![Effect::GivenUp { object: id(1) }, failed(0), failed(1)]);
    assert!(matches!(node.fetched_here(2)[..], [Effect::Start { .. }]));
}

#[test]
fn a_second_report_of_a_loss_changes_nothing() {
    let mut node = node(EvictionPolicy::Lru, true);
    node.assign(0, &[(1, 10)]);
    node.assign(1, &[(1, 10)]);
    node.fetched_here(1);
    // Both tasks report the loss; the second one after the object is being fetched for a third
    // task.
    node.run(Event::Lost { object: id(1) });
    node.run(Event::Ended { task: task(0) });
    assert_eq!(node.assign(2, &[(1, 10)]), [Effect::Fetch { object: id(1), task: Some(task(2)) }]);
    node.run(Event::Lost { object: id(1) });
    node.run(Event::Ended { task: task(1) });
    assert!(matches!(node.fetched_here(1)[..], [Effect::Start { .. }]));
}

/// A node whose disk has `disk_bytes` of free space. It keeps 10 bytes free.
fn node_on_disk(disk_bytes: u64, max_fetches: usize) -> Node {
    let limits = StoreLimits { bytes: 1000, inodes: 100, floor_bytes: 10, floor_inodes: 0 };
    let mut node = Node::new(
        cpus(2000),
        limits,
        EvictionPolicy::Lru,
        true,
        Overlap::default(),
        max_fetches,
        1,
    );
    node.run(Event::FreeSpace { bytes: disk_bytes, inodes: 100 });
    node
}

#[test]
fn a_store_is_warm_after_a_restart_however_full_its_disk() {
    let mut node = node_on_disk(0, 1);
    for n in 0..50 {
        assert_eq!(node.run(Event::Found { object: id(n), size_bytes: 20 }), []);
    }
    let beyond = node.run(Event::Found { object: id(50), size_bytes: 20 });
    assert_eq!(beyond, [Effect::Evict { object: id(50) }], "the limits hold");
    assert!(matches!(node.assign(0, &[(7, 20)])[..], [Effect::Start { .. }]));
}

#[test]
fn a_full_disk_refuses_for_now_and_a_small_store_for_ever() {
    let mut node = node_on_disk(15, 1);
    assert!(matches!(node.assign(0, &[(1, 10)])[..], [Effect::Refuse { for_now: true, .. }]));
    assert!(matches!(node.assign(1, &[(1, 1001)])[..], [Effect::Refuse { for_now: false, .. }]));
    node.run(Event::FreeSpace { bytes: 20, inodes: 100 });
    assert!(matches!(node.assign(2, &[(1, 10)])[..], [Effect::Fetch { .. }]));
    let full = Event::FetchFailed { object: id(1), failure: FetchFailure::Full };
    assert!(matches!(node.run(full)[..], [Effect::Refuse { for_now: true, .. }]));
}

#[test]
fn fetches_that_wait_for_their_turn_have_room_on_the_disk() {
    let mut node = node_on_disk(100, 1);
    assert_eq!(node.assign(0, &[(1, 40)]).len(), 1);
    assert_eq!(node.assign(1, &[(2, 40)]), [], "the second fetch has room, and waits for its turn");
    assert_eq!(node.assign(2, &[(3, 40)]), []);
    // The first fetch already uses its space on the disk.
    assert_eq!(node.run(Event::FreeSpace { bytes: 60, inodes: 99 }), []);
    let effects = node.fetched_here(1);
    assert!(effects.contains(&Effect::Fetch { object: id(2), task: Some(task(1)) }), "{effects:?}");
    node.fetched_here(2);
    assert_eq!(node.fetches(), 0, "there is no room for the third fetch");
}

#[test]
fn no_object_is_evicted_for_a_task_that_would_still_not_fit() {
    let mut node = node(EvictionPolicy::Lru, true);
    for n in 0..5 {
        node.assign(u32::from(n), &[(n, 10)]);
        node.fetched_here(n);
        node.run(Event::Ended { task: task(u32::from(n)) });
    }
    let many: Vec<_> = (20..27).map(|n| (n, 1)).collect();
    let [Effect::Refuse { for_now: false, reason, .. }] = &node.assign(9, &many)[..] else {
        panic!()
    };
    assert!(reason.contains("7 objects") && reason.contains("--cache-objects"), "{reason}");
    node.assign(10, &[(0, 10)]);
    assert_eq!(node.assign(11, &[(9, 95)]), [], "task 11 waits for the input of task 10");
    let effects = node.run(Event::Ended { task: task(10) });
    assert_eq!(effects.len(), 6, "all five objects leave: {effects:?}");
}

#[test]
fn a_task_that_waits_for_room_is_overtaken_by_a_few_that_need_none() {
    let mut node = node(EvictionPolicy::Lru, true);
    node.assign(0, &[(1, 80)]);
    node.fetched_here(1);
    assert_eq!(node.assign(1, &[(2, 80)]), []);
    assert_eq!(node.assign(2, &[(3, 10)]), [], "task 2 would take room for which task 1 waits");
    for index in 3..11 {
        let inputs: &[_] = if index % 2 == 0 { &[] } else { &[(1, 80)] };
        assert!(matches!(node.assign(index, inputs)[..], [Effect::Start { .. }]), "{index}");
        node.run(Event::Ended { task: task(index) });
    }
    assert_eq!(node.assign(11, &[]), [], "now all tasks wait for task 1");
    let effects = node.run(Event::Ended { task: task(0) });
    assert_eq!(
        effects[..2],
        [Effect::Evict { object: id(1) }, Effect::Fetch { object: id(2), task: Some(task(1)) }]
    );
}

#[test]
fn a_task_that_waits_for_room_does_not_count_as_a_use_of_its_inputs() {
    let mut node = node(EvictionPolicy::Lfu, true);
    let read = |node: &mut Node, index, n, size| {
        if let [Effect::Fetch { .. }] = node.assign(index, &[(n, size)])[..] {
            node.fetched_here(n);
        }
    };
    for (index, n) in [1, 2, 2].into_iter().enumerate() {
        read(&mut node, index as u32, n, 20);
        node.run(Event::Ended { task: task(index as u32) });
    }
    read(&mut node, 10, 3, 60);
    // Task 11 tries to reserve room at every event.
    node.assign(11, &[(1, 20), (4, 60)]);
    (0..9).for_each(|_| drop(node.run(Event::FreeSpace { bytes: 1000, inodes: 1000 })));
    node.run(Event::Recalled { task: task(11) });
    let effects = node.assign(12, &[(6, 20)]);
    assert_eq!(effects[0], Effect::Evict { object: id(1) }, "1 was read once, and 2 twice");
}

#[test]
fn every_task_that_waited_for_an_object_uses_it() {
    let mut node = node(EvictionPolicy::Lfu, true);
    // Three tasks read object 1, and two tasks read object 2. Object 2 was read last.
    for (index, n) in [1, 1, 1, 2, 2].into_iter().enumerate() {
        node.assign(index as u32, &[(n, 40)]);
    }
    node.fetched_here(1);
    node.fetched_here(2);
    (0..5).for_each(|index| drop(node.run(Event::Ended { task: task(index) })));
    assert_eq!(node.assign(9, &[(3, 40)])[0], Effect::Evict { object: id(2) });
}

#[test]
fn a_lost_input_is_fetched_again_for_waiting_tasks() {
    let mut node = node(EvictionPolicy::Lru, true);
    let need = cpus(2000);
    node.run(Event::Assigned { task: task(0), inputs: [(id(1), 40)].into(), need, priority: 0 });
    node.assign(1, &[(1, 40)]);
    node.fetched_here(1);
    assert_eq!(
        node.run(Event::Lost { object: id(1) }),
        [Effect::Fetch { object: id(1), task: Some(task(1)) }]
    );
    assert_eq!(
        node.run(Event::Ended { task: task(0) }),
        [],
        "task 1 does not start without its input"
    );
    let [Effect::Start { task: started, reads, .. }] = node.fetched_here(1)[..] else { panic!() };
    assert_eq!((started, reads.count(), reads.persistent.bytes), (task(1), 1, 40));
    assert_eq!(node.assign(2, &[(2, 80)]), [], "the object is pinned by task 1");
}

#[test]
fn a_repeated_input_is_read_once() {
    let mut node = node(EvictionPolicy::Lru, true);
    // Two objects of 60 bytes would exceed the limit of the store.
    assert_eq!(
        node.assign(0, &[(1, 60), (1, 60)]),
        [Effect::Fetch { object: id(1), task: Some(task(0)) }]
    );
    let [Effect::Start { reads, .. }] = node.fetched_here(1)[..] else {
        panic!("the task has not started")
    };
    assert_eq!((reads.count(), reads.persistent.bytes), (1, 60));
    node.run(Event::Ended { task: task(0) });
}

#[test]
fn what_was_made_at_great_cost_leaves_after_its_source() {
    for (took_us, leaves) in [(Some(0), 2), (Some(5_000_000), 1), (None, 2)] {
        let mut node = node(EvictionPolicy::Lru, true);
        node.assign(0, &[(1, 40)]);
        node.fetched_here(1);
        let (source, object) = (id(1), id(2));
        node.run(Event::Derived { task: task(0), source, object, size_bytes: 40, took_us });
        // The next task finds it there.
        node.run(Event::Ended { task: task(0) });
        node.assign(1, &[(1, 40)]);
        let found = Event::Derived { task: task(1), source, object, size_bytes: 40, took_us: None };
        node.run(found);
        node.run(Event::Ended { task: task(1) });
        assert_eq!(node.assign(2, &[(3, 40)])[0], Effect::Evict { object: id(leaves) });
    }
}
