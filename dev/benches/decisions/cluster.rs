//! Executors and a user, as far as the scheduler can tell them from real ones: they obey effects
//! and report facts.
//!
//! Events are made before the clock starts and effects are read after it stopped: only
//! [`Scheduler::handle`] is timed.

use std::collections::VecDeque;
use std::time::Duration;

use eyas_faults::Dice;
use eyas_sched::{AssignmentEnd, Config, Effect, Event, Need, PlacementCommand, Scheduler};
use eyas_types::{ExecutorId, JobId, ObjectId, PlacementPolicy, Resources, TaskId};

use crate::memory::live_bytes;

/// Every object's size; the time a task runs keeps executors from lining up more than one task a
/// slot.
const OBJECT_BYTES: u64 = 10_000_000;
const RAN_US: u64 = 1_000_000;

/// Size and policy of the cluster to build.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub executors: usize,
    pub objects: usize,
    /// Objects in a full store; every store starts full of random ones.
    pub held: usize,
}

pub struct Cluster {
    pub scheduler: Scheduler,
    pub hits: Hits,
    /// A digest of all effects so far: equal digests, equal decisions.
    pub digest: u64,
    shape: Shape,
    stores_data: bool,
    objects: Vec<ObjectId>,
    /// Inputs of each task, by its index.
    inputs: Vec<Box<[u32]>>,
    executors: Vec<Executor>,
    /// Executors with a task, for as long as they have one.
    busy: Vec<u32>,
    /// Reports of replicas, to be delivered with the next batch.
    reports: Vec<Event>,
    effects: Vec<Effect>,
    dice: Dice,
}

#[derive(Default)]
struct Executor {
    slots: usize,
    /// Assigned tasks, the oldest first; those beyond its slots wait there.
    tasks: VecDeque<u32>,
    /// Least recently used first.
    store: Vec<u32>,
}

/// Share of the inputs that tasks found on the nodes where they were placed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hits {
    pub full: u64,
    pub partial: u64,
    pub none: u64,
}

/// Cost of handling a batch of events.
pub struct HandlingCost {
    pub took: Duration,
    /// By how much the scheduler grew.
    pub grown_bytes: f64,
}

/// How long single events took, nanoseconds; and how long it takes to read the clock, which is
/// taken off.
pub struct Latencies {
    taken_ns: Vec<u32>,
    reading: Duration,
}

/// Processor time of this thread: a machine shared with others shows the same.
pub fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A number below `bound`. The remainder, although slightly uneven, gives the digests that earlier
/// versions printed.
fn below(dice: &mut Dice, bound: usize) -> usize {
    (dice.next_u64() % bound as u64) as usize
}

/// `count` different numbers below `bound`, or all if `bound` is smaller.
fn distinct(dice: &mut Dice, count: usize, bound: usize) -> Vec<u32> {
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count.min(bound) {
        let one = below(dice, bound) as u32;
        if !chosen.contains(&one) {
            chosen.push(one);
        }
    }
    chosen
}

impl Cluster {
    /// Executors of one and two slots in turn, with empty stores.
    pub fn new(policy: PlacementPolicy, shape: Shape) -> Self {
        let mut dice = Dice::new(7);
        let objects = (0..shape.objects).map(|_| {
            let (high, low) = (dice.next_u64(), dice.next_u64());
            ObjectId((u128::from(high) << 64 | u128::from(low)).to_le_bytes())
        });
        let mut cluster = Cluster {
            scheduler: Scheduler::new(Config { policy, ..Config::default() }),
            hits: Hits::default(),
            digest: 0,
            shape,
            stores_data: eyas_sched::caches(policy),
            objects: objects.collect(),
            inputs: Vec::new(),
            executors: Vec::new(),
            busy: Vec::new(),
            reports: Vec::new(),
            effects: Vec::with_capacity(1 << 16),
            dice,
        };
        for id in 0..shape.executors {
            let slots = 1 + id % 2;
            cluster.executors.push(Executor { slots, ..Executor::default() });
            let capacity = Resources { cpus_milli: 1000 * slots as u32, ..Resources::default() };
            let (executor, profile, held) = (ExecutorId(id as u32), Box::default(), Box::default());
            cluster.apply(Event::ExecutorJoined { executor, capacity, profile, held });
        }
        cluster
    }

    /// Fills every store with random objects, except where the policy stores nothing. Returns how
    /// many replicas.
    pub fn fill_stores(&mut self) -> u64 {
        for executor in 0..if self.stores_data { self.shape.executors } else { 0 } {
            for object in distinct(&mut self.dice, self.shape.held, self.shape.objects) {
                self.store(executor, object);
            }
        }
        self.reports.len() as u64
    }

    /// The named executor stores the object; reports of that and of an eviction are due.
    fn store(&mut self, executor: usize, object: u32) {
        let store = &mut self.executors[executor].store;
        let by = ExecutorId(executor as u32);
        store.push(object);
        let stored = Event::Stored {
            executor: by,
            object: self.objects[object as usize],
            size_bytes: OBJECT_BYTES,
        };
        self.reports.push(stored);
        if store.len() > self.shape.held {
            let evicted = self.objects[store.remove(0) as usize];
            self.reports.push(Event::Evicted { executor: by, object: evicted });
        }
    }

    /// All executors store the object.
    pub fn store_everywhere(&mut self, object: u32) {
        (0..self.shape.executors).for_each(|executor| self.store(executor, object));
    }

    /// Reports that are due, then the end of `ends` random tasks that run.
    pub fn next_batch(&mut self, ends: usize) -> Vec<Event> {
        let mut batch = std::mem::take(&mut self.reports);
        for _ in 0..ends {
            if self.busy.is_empty() {
                break;
            }
            let place = below(&mut self.dice, self.busy.len());
            let by = self.busy[place];
            let tasks = &mut self.executors[by as usize].tasks;
            let index = tasks.pop_front().expect("it is busy");
            if tasks.is_empty() {
                self.busy.swap_remove(place);
            }
            batch.push(self.ended(by, index, AssignmentEnd::Finished));
        }
        batch
    }

    fn ended(&self, by: u32, index: u32, ended: AssignmentEnd) -> Event {
        let task = TaskId { job: JobId(1), index };
        Event::TaskEnded { executor: ExecutorId(by), task, ended, ran_us: Some(RAN_US) }
    }

    /// The arrival of a task that reads these objects.
    pub fn arrival(&mut self, inputs: Vec<u32>) -> Event {
        let index = self.inputs.len() as u32;
        let sized =
            inputs.iter().map(|object| (self.objects[*object as usize], OBJECT_BYTES)).collect();
        self.inputs.push(inputs.into());
        Event::TaskReady {
            task: TaskId { job: JobId(1), index },
            inputs: sized,
            need: Need::default(),
        }
    }

    /// Arrivals of `tasks` tasks that read `inputs` random objects each.
    pub fn random_arrivals(&mut self, tasks: usize, inputs: usize) -> Vec<Event> {
        let objects = self.shape.objects;
        (0..tasks)
            .map(|_| {
                let inputs = distinct(&mut self.dice, inputs, objects);
                self.arrival(inputs)
            })
            .collect()
    }

    pub fn random_object(&mut self) -> u32 {
        below(&mut self.dice, self.shape.objects) as u32
    }

    /// Lets the scheduler handle the events.
    pub fn handle(&mut self, mut events: Vec<Event>) -> HandlingCost {
        let events_bytes = events.iter().map(bytes_of_event).sum::<usize>() as f64;
        let before = live_bytes();
        let start = processor_time();
        for event in events.drain(..) {
            self.scheduler.handle(event, &mut self.effects);
        }
        let took = processor_time() - start;
        // Handling freed the events and made the effects; neither is the scheduler's.
        let effects_bytes = self.effects.iter().map(bytes_of_effect).sum::<usize>() as f64;
        let grown_bytes = (live_bytes() - before) as f64 + events_bytes - effects_bytes;
        self.obey();
        HandlingCost { took, grown_bytes }
    }

    /// The same, with each event timed, and obeyed before the next.
    pub fn handle_each(&mut self, events: Vec<Event>, latencies: &mut Latencies) {
        for event in events {
            let start = processor_time();
            self.scheduler.handle(event, &mut self.effects);
            let took = processor_time() - start;
            latencies.taken_ns.push(took.saturating_sub(latencies.reading).as_nanos() as u32);
            self.obey();
        }
    }

    fn apply(&mut self, event: Event) {
        self.scheduler.handle(event, &mut self.effects);
        self.obey();
    }

    fn obey(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Command(PlacementCommand::Assign {
                    executor,
                    task,
                    attempt,
                    hints,
                    ..
                }) => {
                    let hinted = hints.iter().flat_map(|hint| hint.holders.iter());
                    let hinted = hinted.fold(hints.len() as u64, |sum, holder| {
                        sum << 5 ^ sum ^ u64::from(holder.executor.0)
                    });
                    self.note(u64::from(executor.0) << 32 | u64::from(task.index));
                    self.note(u64::from(attempt) << 48 ^ hinted);
                    self.take(executor.0, task.index);
                }
                Effect::Command(PlacementCommand::Recall { executor, task }) => {
                    self.note(!(u64::from(executor.0) << 32 | u64::from(task.index)));
                    let executor_model = &mut self.executors[executor.0 as usize];
                    let lined_up = executor_model.tasks.iter().skip(executor_model.slots);
                    if let Some(place) = lined_up.clone().position(|index| *index == task.index) {
                        let place = place + executor_model.slots;
                        executor_model.tasks.remove(place);
                        let returned = self.ended(executor.0, task.index, AssignmentEnd::Returned);
                        self.reports.push(returned);
                    }
                }
                _ => panic!("{effect:?} does not belong to this benchmark"),
            }
        }
        self.effects = effects;
    }

    fn note(&mut self, word: u64) {
        self.digest = Dice::new(self.digest ^ word).next_u64();
    }

    /// The executor takes the task, and stores what it lacks.
    fn take(&mut self, by: u32, index: u32) {
        let executor = &mut self.executors[by as usize];
        executor.tasks.push_back(index);
        if executor.tasks.len() == 1 {
            self.busy.push(by);
        }
        let inputs = self.inputs[index as usize].clone();
        let mut missing = 0;
        for object in &inputs {
            match executor.store.iter().position(|held| held == object) {
                // Used last.
                Some(place) => executor.store[place..].rotate_left(1),
                None => missing += 1,
            }
        }
        match missing {
            0 => self.hits.full += 1,
            n if n < inputs.len() => self.hits.partial += 1,
            _ => self.hits.none += 1,
        }
        if missing > 0 && self.stores_data {
            for object in inputs {
                if !self.executors[by as usize].store.contains(&object) {
                    self.store(by as usize, object);
                }
            }
        }
    }

    /// Forgets the counts of hits; returns them.
    pub fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.hits)
    }
}

fn bytes_of_event(event: &Event) -> usize {
    match event {
        Event::TaskReady { inputs, .. } => size_of_val(&**inputs),
        _ => 0,
    }
}

fn bytes_of_effect(effect: &Effect) -> usize {
    match effect {
        Effect::Command(PlacementCommand::Assign { hints, .. }) => {
            size_of_val(&**hints)
                + hints.iter().map(|hint| size_of_val(&*hint.holders)).sum::<usize>()
        }
        _ => 0,
    }
}

impl Hits {
    /// Percentages of tasks with all, some and none of their inputs.
    pub fn percent(self) -> [f64; 3] {
        let all = (self.full + self.partial + self.none).max(1) as f64;
        [self.full, self.partial, self.none].map(|count| 100.0 * count as f64 / all)
    }
}

impl Default for Latencies {
    fn default() -> Self {
        let mut readings = [(); 1_000].map(|()| {
            let start = processor_time();
            processor_time() - start
        });
        readings.sort_unstable();
        Latencies { taken_ns: Vec::new(), reading: readings[readings.len() / 2] }
    }
}

impl Latencies {
    pub fn count(&self) -> usize {
        self.taken_ns.len()
    }

    /// Mean, 99th percentile, 99.9th percentile and largest, microseconds.
    pub fn summary_us(mut self) -> [f64; 4] {
        self.taken_ns.sort_unstable();
        let us = |ns: &u32| f64::from(*ns) / 1e3;
        let count = self.taken_ns.len().max(1);
        let at =
            |share: f64| self.taken_ns.get((share * (count - 1) as f64) as usize).map_or(0.0, us);
        let mean = self.taken_ns.iter().map(us).sum::<f64>() / count as f64;
        [mean, at(0.99), at(0.999), at(1.0)]
    }
}
