//! Properties that hold for every history, checked against the paper's own scan of the queue; and
//! table tests of each policy.

extern crate std;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{
    CopyNews, ExecutorId, JobId, ObjectId, Origin, PlacementPolicy, Resources, TaskId,
};
use proptest::prelude::*;

use crate::placement::Fallback;
use crate::state::{PlacementLevel, PlacementState};
use crate::{
    AssignmentEnd, Config, Effect, Event, Hint, Holder, HolderPatience, Need, PlacementCommand,
    PlacementReport, Scheduler, Utilisation,
};

mod copies;
mod cost;
mod kept;
mod matchmaking;
mod new_policy;
mod policies;
mod priorities;
mod pushes;
mod relays;
mod samples;
mod trees;
mod waits;

fn object(n: u8) -> ObjectId {
    ObjectId([n; 16])
}

fn task(index: u32) -> TaskId {
    TaskId { job: JobId(1), index }
}

fn cpus(milli: u32) -> Resources {
    Resources { cpus_milli: milli, ..Resources::default() }
}

fn scheduler(policy: PlacementPolicy) -> Scheduler {
    Scheduler::new(Config { policy, ..Config::default() })
}

impl Scheduler {
    fn run(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.handle(event, &mut effects);
        self.validate();
        effects
    }

    fn join(&mut self, id: u32, slots: u32) -> Vec<Effect> {
        self.join_with(id, cpus(slots * 1000))
    }

    fn join_with(&mut self, id: u32, capacity: Resources) -> Vec<Effect> {
        let (executor, profile, held) = (ExecutorId(id), Box::default(), Box::default());
        self.run(Event::ExecutorJoined { executor, capacity, profile, held })
    }

    fn submit(&mut self, index: u32, inputs: &[u8]) -> Vec<Effect> {
        self.submit_with(index, inputs, Resources::default())
    }

    fn store(&mut self, id: u32, n: u8) -> Vec<Effect> {
        self.run(Event::Stored { executor: ExecutorId(id), object: object(n), size_bytes: 10 })
    }

    fn submit_with(&mut self, index: u32, inputs: &[u8], need: Resources) -> Vec<Effect> {
        let inputs = inputs.iter().map(|n| (object(*n), 10)).collect();
        self.run(Event::TaskReady { task: task(index), inputs, need: need.into() })
    }

    fn evict(&mut self, id: u32, n: u8) -> Vec<Effect> {
        self.run(Event::Evicted { executor: ExecutorId(id), object: object(n) })
    }

    fn finish(&mut self, id: u32, index: u32) -> Vec<Effect> {
        self.end(id, index, AssignmentEnd::Finished)
    }

    fn end(&mut self, id: u32, index: u32, ended: AssignmentEnd) -> Vec<Effect> {
        let ran_us = (ended != AssignmentEnd::Returned).then_some(1_000_000);
        self.run(Event::TaskEnded { executor: ExecutorId(id), task: task(index), ended, ran_us })
    }

    /// Tasks that the executor has.
    fn on(&self, id: u32) -> Vec<u32> {
        self.tasks_of(ExecutorId(id)).iter().map(|task| task.index).collect()
    }

    /// Both sides of the catalog agree, counts are sums, and every task has at most one home.
    fn validate(&self) {
        let state = self.state();
        let places_by_data = self.placement().places_by_data();
        let mut waiting = 0;
        for (key, task) in state.queue.tasks() {
            match task.state {
                PlacementState::Waiting => waiting += 1,
                PlacementState::Assigned { executor, number, .. } => {
                    assert_eq!(state.executors[executor].in_flight(number).task, key);
                }
                PlacementState::InTransition | PlacementState::Forgotten => {
                    panic!("{} left between states", task.id)
                }
            }
            for input in state.inputs(key) {
                let object = &state.catalog[*input];
                let tickets = object.waiting.tickets();
                let listed =
                    tickets.filter(|t| t.task == key && state.queue.is_waiting(*t)).count();
                let expected = task.state == PlacementState::Waiting && places_by_data;
                assert_eq!(
                    listed,
                    usize::from(expected),
                    "{} in the list of {}",
                    task.id,
                    object.id
                );
            }
        }
        assert_eq!(waiting, state.queue.waiting());
        let (mut busy, mut returning) = (0, 0);
        for (_, executor) in state.executors.all().filter(|(_, executor)| executor.takes_tasks()) {
            let tasks = executor.in_flight.iter().map(|given| given.task);
            let cpus = |task| u64::from(state.resources_of(task).cpus_milli);
            let all: u64 = tasks.clone().map(cpus).sum();
            let recalled: u64 = tasks.filter(|task| state.is_recalled(*task)).map(cpus).sum();
            let slots = u64::from(executor.capacity.cpus_milli);
            busy += all.min(slots);
            returning += recalled.min(all.saturating_sub(slots));
        }
        assert_eq!(busy, self.utilisation().busy_milli);
        assert_eq!(returning, state.executors.returning_milli());
        state.validate_index();
        state.transfers.validate(state.executors.all().map(|(executor, _)| executor));
        self.placement().validate(state);
        self.replication().pushes().validate();
        self.replication().copies().validate(state);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join { slots: u32, gpu: bool, profile: u8 },
    Drain { which: u8 },
    Leave { which: u8 },
    Submit { inputs: BTreeSet<u8>, cpus: u32, gpu: bool, terms: u8, priority: i32 },
    Stage { which: u8, lent: u64 },
    FreeDisk { which: u8, bytes: u8 },
    End { which: u8, ended: u8 },
    Store { which: u8, object: u8 },
    Evict { which: u8, object: u8 },
    Cancel { which: u8 },
    Copy { which: u8, object: u8, said: u8 },
    Part,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1u32..4, any::<bool>(), 0u8..8).prop_map(|(slots, gpu, profile)| Step::Join {
            slots,
            gpu,
            profile,
        }),
        1 => (0u8..20).prop_map(|which| Step::Drain { which }),
        1 => any::<u8>().prop_map(|which| Step::Leave { which }),
        8 => (prop::collection::btree_set(0u8..12, 0..5), 1u32..3, 0u8..5, 0u8..12, 0i32..3)
            .prop_map(|(inputs, cpus, gpu, terms, priority)| Step::Submit {
                inputs,
                cpus,
                gpu: gpu == 0,
                terms,
                priority,
            }),
        2 => (any::<u8>(), 0u64..6).prop_map(|(which, lent)| Step::Stage { which, lent }),
        1 => any::<(u8, u8)>().prop_map(|(which, bytes)| Step::FreeDisk { which, bytes }),
        6 => (any::<u8>(), 0u8..10).prop_map(|(which, ended)| Step::End { which, ended }),
        8 => (any::<u8>(), 0u8..12).prop_map(|(which, object)| Step::Store { which, object }),
        3 => (any::<u8>(), 0u8..12).prop_map(|(which, object)| Step::Evict { which, object }),
        1 => any::<u8>().prop_map(|which| Step::Cancel { which }),
        4 => (any::<u8>(), 0u8..12, 0u8..8)
            .prop_map(|(which, object, said)| Step::Copy { which, object, said }),
        6 => Just(Step::Part),
    ]
}

fn with_gpus(count: u64, resources: Resources) -> Resources {
    let named = if count > 0 { vec![("gpu".into(), count)] } else { Vec::new() };
    Resources { named, ..resources }
}

/// A world that obeys effects and remembers what is true.
struct World {
    scheduler: Scheduler,
    slots: BTreeMap<ExecutorId, u32>,
    draining: BTreeSet<ExecutorId>,
    running: BTreeMap<TaskId, ExecutorId>,
    waiting: BTreeSet<TaskId>,
    ended: BTreeSet<TaskId>,
    held: BTreeSet<(ExecutorId, ObjectId)>,
    next: u32,
    priorities: i32,
    /// Inputs of each task.
    inputs: BTreeMap<TaskId, Vec<(ObjectId, u64)>>,
    /// Assignments in parts, with the number of inputs that were sent.
    in_parts: VecDeque<(ExecutorId, TaskId, usize)>,
    /// Executors that wait for a derived copy.
    copies_wanted: BTreeSet<ExecutorId>,
    log: Vec<Effect>,
    hints: Vec<Box<[Hint]>>,
}

impl World {
    fn new(config: &Config, priorities: i32) -> Self {
        World {
            scheduler: Scheduler::new(config.clone()),
            slots: BTreeMap::new(),
            draining: BTreeSet::new(),
            running: BTreeMap::new(),
            waiting: BTreeSet::new(),
            ended: BTreeSet::new(),
            held: BTreeSet::new(),
            next: 0,
            priorities,
            inputs: BTreeMap::new(),
            in_parts: VecDeque::new(),
            copies_wanted: BTreeSet::new(),
            log: Vec::new(),
            hints: Vec::new(),
        }
    }

    fn run(&mut self, event: Event) {
        let effects = self.scheduler.run(event);
        for effect in &effects {
            match effect {
                Effect::Command(PlacementCommand::Assign { executor, task, in_parts, .. }) => {
                    assert!(self.waiting.remove(task), "{task} assigned but does not wait");
                    if *in_parts {
                        self.in_parts.push_back((*executor, *task, 0));
                    }
                    self.running.insert(*task, *executor);
                    assert!(
                        self.slots.contains_key(executor),
                        "{task} given to {executor}, which has left"
                    );
                    assert!(
                        !self.draining.contains(executor),
                        "{task} given to {executor}, which leaves"
                    );
                }
                Effect::Report(PlacementReport::Unplaceable { task }) => {
                    assert!(self.waiting.remove(task), "{task} given up but does not wait");
                    self.ended.insert(*task);
                }
                Effect::Command(PlacementCommand::Hold { .. })
                | Effect::Command(PlacementCommand::Release { .. })
                | Effect::Command(PlacementCommand::Verify { .. })
                | Effect::Report(PlacementReport::Lost { .. })
                | Effect::Report(PlacementReport::Found { .. })
                | Effect::Command(PlacementCommand::Pushed { .. }) => {
                    unreachable!("nothing is kept or pushed")
                }
                Effect::Command(PlacementCommand::Derive { executor, .. }) => {
                    self.copies_wanted.remove(executor);
                }
                Effect::Command(PlacementCommand::Recall { executor, task })
                | Effect::Command(PlacementCommand::Cancel { executor, task }) => {
                    assert_eq!(self.running.get(task), Some(executor));
                }
            }
        }
        for executor in &self.copies_wanted {
            let is_answered_later = self.scheduler.replication().copies().has_waiting(*executor);
            assert!(is_answered_later, "{executor} waits for a copy that nobody makes");
        }
        self.log.extend(effects);
        self.no_better_task_was_passed_over();
    }

    /// No executor that asks for work is left without a task that the scan of figure 5 would have
    /// given it.
    fn no_better_task_was_passed_over(&self) {
        let state = self.scheduler.state();
        let placement = self.scheduler.placement();
        for (key, executor) in state.executors.all() {
            let is_reserved = state
                .queue
                .waiting_classes()
                .any(|class| state.queue.reserved_executor(class) == Some(key));
            for (waiting, task) in
                state.queue.tasks().filter(|(_, task)| task.state == PlacementState::Waiting)
            {
                if is_reserved || !state.may_take(key, waiting, PlacementLevel::Slot) {
                    continue;
                }
                let share = state.share_held(waiting, key);
                let takes_any = placement.fallback(state) == Fallback::AnyTask;
                let is_full_hit = placement.places_by_data() && share.is_full();
                assert!(
                    !is_full_hit,
                    "{} idles beside {}, all of which it holds",
                    executor.id, task.id
                );
                assert!(!takes_any, "{} idles beside {} and may take any", executor.id, task.id);
                let is_best = placement.fallback(state) == Fallback::OnlyBestHolder
                    && placement.is_holder(state, waiting, key)
                    && !executor.agenda.has_forgotten()
                    && !placement.is_outdone(state, waiting, key);
                assert!(
                    !is_best,
                    "{} idles beside {}, of which no executor holds more",
                    executor.id, task.id
                );
                let is_holderless = placement.is_holderless(state, waiting);
                assert!(
                    !is_holderless,
                    "{} idles beside {}, which has no holder",
                    executor.id, task.id
                );
            }
        }
    }

    /// An executor wants a copy, has made it, or has not got it.
    fn say_of_copy(&mut self, executor: ExecutorId, n: u8, said: u8) {
        let (object, size_bytes) = (object(n), u64::from(n) * 7);
        self.copies_wanted.remove(&executor);
        let news = match said {
            0..3 => {
                self.copies_wanted.insert(executor);
                self.held.remove(&(executor, object));
                CopyNews::Wanted
            }
            3..6 => {
                if !self.draining.contains(&executor) {
                    self.held.insert((executor, object));
                }
                CopyNews::Made { size_bytes, took_us: u64::from(said) * 1000 }
            }
            6 => CopyNews::Private,
            _ => CopyNews::Missing,
        };
        self.run(Event::Copy { executor, object, news });
    }

    fn executor(&self, which: u8) -> Option<ExecutorId> {
        self.slots.keys().nth(usize::from(which) % self.slots.len().max(1)).copied()
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Join { slots, gpu, profile } => {
                let executor = ExecutorId(self.next);
                self.next += 1;
                self.slots.insert(executor, *slots);
                let capacity = with_gpus(if *gpu { 4 } else { 0 }, cpus(slots * 1000));
                self.held.insert((executor, object(0)));
                let (profile, held) = (matchmaking::profile_of(*profile), [(object(0), 0)].into());
                self.run(Event::ExecutorJoined { executor, capacity, profile, held });
            }
            Step::Drain { which } => {
                let Some(executor) = self.slots.keys().nth(usize::from(*which)).copied() else {
                    return;
                };
                self.draining.insert(executor);
                self.held.retain(|(by, _)| *by != executor);
                self.run(Event::ExecutorDraining { executor });
            }
            Step::Leave { which } => {
                let Some(executor) = self.executor(*which) else { return };
                self.slots.remove(&executor);
                self.copies_wanted.remove(&executor);
                self.held.retain(|(by, _)| *by != executor);
                let lost: Vec<_> = self
                    .running
                    .iter()
                    .filter(|(_, by)| **by == executor)
                    .map(|(task, _)| *task)
                    .collect();
                for task in lost {
                    self.running.remove(&task);
                    self.waiting.insert(task);
                }
                self.run(Event::ExecutorLeft { executor });
            }
            Step::FreeDisk { which, bytes } => {
                let Some(executor) = self.executor(*which) else { return };
                self.run(Event::FreeDisk { executor, bytes: (*bytes).into() });
            }
            Step::Submit { inputs, cpus: count, gpu, terms, priority } => {
                let task = task(self.next);
                self.next += 1;
                self.waiting.insert(task);
                let inputs: Vec<_> =
                    inputs.iter().map(|n| (object(*n), u64::from(*n) * 7)).collect();
                self.inputs.insert(task, inputs.clone());
                let need = with_gpus(u64::from(*gpu), cpus(count * 1000));
                let need = Need {
                    priority: priority % self.priorities,
                    ..matchmaking::need_of(*terms, need)
                };
                self.run(Event::TaskReady { task, inputs: inputs.into(), need });
            }
            Step::Stage { which, lent } => {
                let Some(executor) = self.executor(*which) else { return };
                self.run(Event::Staging { executor, lent_milli: lent * 500, light_bytes: 50 });
            }
            Step::End { which, ended } => {
                let Some((task, executor)) =
                    self.running.iter().nth(usize::from(*which) % self.running.len().max(1))
                else {
                    return;
                };
                let (task, executor) = (*task, *executor);
                let ended = match ended {
                    0 => AssignmentEnd::Again,
                    1 => AssignmentEnd::Returned,
                    2 => AssignmentEnd::Refused,
                    3 => AssignmentEnd::Interrupted,
                    _ => AssignmentEnd::Finished,
                };
                self.end(executor, task, ended);
            }
            Step::Store { which, object: n } => {
                let Some(executor) = self.executor(*which) else { return };
                if !self.draining.contains(&executor) {
                    self.held.insert((executor, object(*n)));
                }
                self.run(Event::Stored {
                    executor,
                    object: object(*n),
                    size_bytes: u64::from(*n) * 7,
                });
            }
            Step::Evict { which, object: n } => {
                let Some(executor) = self.executor(*which) else { return };
                self.held.remove(&(executor, object(*n)));
                self.run(Event::Evicted { executor, object: object(*n) });
            }
            Step::Copy { which, object: n, said } => {
                let Some(executor) = self.executor(*which) else { return };
                self.say_of_copy(executor, *n, *said);
            }
            Step::Part => self.do_part(),
            Step::Cancel { which } => {
                let Some(task) = self
                    .waiting
                    .iter()
                    .nth(usize::from(*which) % self.waiting.len().max(1))
                    .copied()
                else {
                    return;
                };
                self.waiting.remove(&task);
                self.ended.insert(task);
                self.run(Event::TaskCancelled { task });
            }
        }
        let held = self
            .scheduler
            .state()
            .executors
            .all()
            .map(|(_, executor)| executor.replicas.len())
            .sum::<usize>();
        assert_eq!(held, self.held.len());
    }

    /// Ends a fetch of a task that has left its executor, or sends an input of one that is assigned
    /// in parts.
    fn do_part(&mut self) {
        if self.scheduler.has_fetches_to_end() {
            return self.run(Event::EndFetches { objects: 1 });
        }
        let Some((executor, task, sent)) = self.in_parts.pop_front() else { return };
        let inputs = &self.inputs[&task];
        self.hints.push(self.scheduler.hints_of_part(executor, task, &inputs[sent..=sent]));
        self.scheduler.validate();
        if sent + 1 < inputs.len() {
            self.in_parts.push_back((executor, task, sent + 1));
        }
    }

    fn end(&mut self, executor: ExecutorId, task: TaskId, ended: AssignmentEnd) {
        self.running.remove(&task);
        if ended == AssignmentEnd::Finished {
            assert!(self.ended.insert(task), "{task} ended twice");
        } else {
            self.waiting.insert(task);
        }
        self.run(Event::TaskEnded { executor, task, ended, ran_us: Some(50_000) });
    }

    /// With one executor that can take anything, everything comes to its end.
    fn drain(&mut self) {
        self.apply(&Step::Join { slots: 8, gpu: true, profile: 0 });
        while let Some((task, executor)) = self.running.pop_first() {
            self.end(executor, task, AssignmentEnd::Finished);
        }
        assert!(self.waiting.is_empty(), "never placed: {:?}", self.waiting);
        for executor in self.slots.keys().copied().collect::<Vec<_>>() {
            (0..12).for_each(|n| self.say_of_copy(executor, n, 7));
        }
        while self.scheduler.has_fetches_to_end() {
            self.do_part();
        }
        let held: BTreeSet<_> = self.held.iter().map(|(_, object)| object).collect();
        assert_eq!(
            self.scheduler.objects(),
            held.len(),
            "objects that nothing names are remembered"
        );
        let state = self.scheduler.state();
        assert_eq!(
            state.transfers.validate(state.executors.all().map(|(key, _)| key)),
            0,
            "a fetch without a task"
        );
    }
}

fn patience() -> impl Strategy<Value = HolderPatience> {
    prop::sample::select(vec![
        HolderPatience::Window,
        HolderPatience::Tasks(3),
        HolderPatience::Unlimited,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_task_is_lost_or_run_twice(
        policy in 0..PlacementPolicy::ALL.len(),
        window in prop::option::of(0u64..8),
        min_cache_hit in prop::sample::select(vec![0.0, 0.0, 0.4]),
        patience in patience(),
        priorities in 1i32..4,
        placed_inputs in prop::sample::select(vec![usize::MAX, 4, 2]),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let policy = PlacementPolicy::ALL[policy];
        let config =
            Config { policy, window, min_cache_hit, patience, placed_inputs, ..Config::default() };
        let mut world = World::new(&config, priorities);
        for step in &steps {
            world.apply(step);
        }
        world.drain();
        let mut again = World::new(&config, priorities);
        for step in &steps {
            again.apply(step);
        }
        again.drain();
        prop_assert_eq!(
            (world.log, world.hints),
            (again.log, again.hints),
            "the same events gave other effects"
        );
        prop_assert!(world.scheduler.waiting() == 0);
    }
}

fn assigned(effects: &[Effect]) -> Vec<(u32, u32)> {
    let assigns = effects.iter().filter_map(|effect| match effect {
        Effect::Command(PlacementCommand::Assign { executor, task, .. }) => {
            Some((executor.0, task.index))
        }
        _ => None,
    });
    assigns.collect()
}
