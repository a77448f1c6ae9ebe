//! An executor: the decider of its node, and the shell that performs the decider's effects.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use eyas_node::{Effect, Event, Node, Overlap, StoreLimits};
use eyas_types::{ExecutorLoad, Reads, Resources, TaskId};

use super::page_cache::PageCache;
use super::task::TaskStep;
use super::{End, Fact, Holder, Owner, Run, SimEvent, Tag};
use crate::clock::{MICROSECOND, Ns};
use crate::cluster::{Policies, SimCluster};
use crate::flows::{Flows, LinkId};

pub(super) struct SimExecutor {
    node: Node,
    pub links: Links,
    /// Replicas that other executors can fetch from this one.
    pub replicas: BTreeMap<u32, Replica>,
    /// For each object that the executor was told to hold, the holders it can fetch the object
    /// from.
    pub to_hold: BTreeMap<u32, Box<[Holder]>>,
    /// The page cache in front of the store's disk.
    pub pages: PageCache,
    /// The load that was last reported to the dispatcher.
    told: ExecutorLoad,
    /// The decider found no room for the output that was just written.
    pub lacks_room: bool,
    /// Number of tasks that run.
    pub running: u32,
    /// Bytes of the objects that are in the store or being fetched.
    stored_bytes: u64,
}

/// The links of a node.
#[derive(Clone, Copy)]
pub(super) struct Links {
    pub card_in: LinkId,
    pub card_out: LinkId,
    pub client: Option<LinkId>,
    pub disk_read: Option<LinkId>,
    pub disk_write: Option<LinkId>,
}

#[derive(Clone, Copy)]
pub(super) enum Replica {
    Whole,
    /// The number of the fetch that brings the object.
    Partial(u32),
}

/// Executors by their numbers. Numbers count up and are not reused.
#[derive(Default)]
pub(super) struct SimExecutors(Vec<Option<Box<SimExecutor>>>);

impl SimExecutors {
    /// Adds an executor and returns its number.
    pub fn add(&mut self, executor: SimExecutor) -> u32 {
        self.0.push(Some(Box::new(executor)));
        self.0.len() as u32 - 1
    }

    /// The number that the next executor will have.
    pub fn next(&self) -> u32 {
        self.0.len() as u32
    }

    pub fn remove(&mut self, executor: u32) -> SimExecutor {
        *self.0[executor as usize].take().expect("the executor is there")
    }

    pub fn has(&self, executor: u32) -> bool {
        self.get(executor).is_some()
    }

    pub fn get(&self, executor: u32) -> Option<&SimExecutor> {
        self.0[executor as usize].as_deref()
    }

    pub fn get_mut(&mut self, executor: u32) -> Option<&mut SimExecutor> {
        self.0[executor as usize].as_deref_mut()
    }
}

impl Index<usize> for SimExecutors {
    type Output = SimExecutor;

    fn index(&self, executor: usize) -> &SimExecutor {
        self.get(executor as u32).expect("the executor is there")
    }
}

impl IndexMut<usize> for SimExecutors {
    fn index_mut(&mut self, executor: usize) -> &mut SimExecutor {
        self.get_mut(executor as u32).expect("the executor is there")
    }
}

impl Links {
    /// The links of a machine, whose disk is slower by the factor `slowness`.
    pub fn new(cluster: &SimCluster, flows: &mut Flows, slowness: f64) -> Self {
        Links {
            card_in: flows.link(cluster.card_bytes_per_s),
            card_out: flows.link(cluster.card_bytes_per_s),
            client: cluster.storage.client_bytes_per_s.map(|rate| flows.link(rate)),
            disk_read: cluster.disk.map(|disk| flows.link(disk.read_bytes_per_s / slowness)),
            disk_write: cluster.disk.map(|disk| flows.link(disk.write_bytes_per_s / slowness)),
        }
    }
}

impl SimExecutor {
    pub fn new(
        cluster: &SimCluster,
        policies: &Policies,
        links: Links,
        pages: PageCache,
        seed: u64,
    ) -> Self {
        let limits = StoreLimits {
            bytes: cluster.cache_bytes,
            inodes: u64::MAX,
            floor_bytes: 0,
            floor_inodes: 0,
        };
        let overlap = Overlap { is_on: policies.overlap, ..Overlap::default() };
        let (capacity, max_fetches) = (SimExecutor::capacity(cluster), cluster.max_fetches());
        let node = Node::new(
            capacity,
            limits,
            policies.eviction,
            policies.caches(),
            overlap,
            max_fetches,
            seed,
        );
        let (replicas, to_hold) = (BTreeMap::new(), BTreeMap::new());
        let (told, lacks_room, running, stored_bytes) = (ExecutorLoad::default(), false, 0, 0);
        SimExecutor {
            node,
            links,
            replicas,
            to_hold,
            pages,
            told,
            lacks_room,
            running,
            stored_bytes,
        }
    }

    /// Counts an object that is stored or fetched.
    pub fn store(&mut self, cluster: &SimCluster, size_bytes: u64) {
        self.stored_bytes += size_bytes;
        assert!(
            self.stored_bytes <= cluster.cache_bytes,
            "a store has {} bytes",
            self.stored_bytes
        );
    }

    /// Stops counting an object whose fetch failed.
    pub fn unstore(&mut self, object: u32, size_bytes: u64) {
        self.replicas.remove(&object);
        self.stored_bytes -= size_bytes;
    }

    /// Number of tasks that run.
    pub fn running(&self) -> u64 {
        self.running.into()
    }

    pub fn capacity(cluster: &SimCluster) -> Resources {
        Resources { cpus_milli: cluster.cpus * 1000, ..Resources::default() }
    }
}

impl Run<'_> {
    pub(super) fn task_assigned(&mut self, executor: u32, task: u32) {
        self.tasks[task].executor = executor;
        let inputs = self.inputs_of(task, self.owner(task));
        let (task, need) = (self.tasks.id_of(task), Resources::default());
        self.tell_node(executor, Event::Assigned { task, inputs, need, priority: 0 });
    }

    /// Which tasks share the replicas of a task's inputs.
    pub(super) fn owner(&self, task: u32) -> Owner {
        if self.caches { Owner::All } else { Owner::Task(task) }
    }

    pub(super) fn tell_node(&mut self, by: u32, event: Event) {
        let mut effects = std::mem::take(&mut self.node_effects);
        let executor = &mut self.executors[by as usize];
        executor.node.handle(event, &mut effects);
        let (load, told) = (executor.node.load(), executor.told);
        if (load.staging, load.lent_milli) != (told.staging, told.lent_milli) {
            executor.told = load;
            let lent_milli = load.lent_milli.min(u32::MAX.into()) as u32;
            self.say(Fact::Staging { executor: by, lent_milli, light_bytes: load.light_bytes });
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::Fetch { object, task } => {
                    let size_bytes = self.workload.size_bytes(self.plan.outputs.object_of(object));
                    self.executors[by as usize].store(self.cluster, size_bytes);
                    let task = task.map(|task| self.number_of(by, task));
                    self.fetch(by, object, task);
                }
                Effect::Evict { object } => self.evict(by, self.plan.outputs.object_of(object)),
                Effect::Start { task, reads, .. } => self.start(self.number_of(by, task), reads),
                Effect::GiveBack { task } => {
                    self.say(Fact::Returned { executor: by, task: self.number_of(by, task) });
                }
                Effect::Refuse { task, for_now, .. } => {
                    let end = if for_now { End::NoRoom } else { End::Refused };
                    self.say(Fact::Ended {
                        executor: by,
                        task: self.number_of(by, task),
                        ran_us: 0,
                        end,
                    });
                }
                Effect::Fail { task, .. } => {
                    let (task, end) = (self.number_of(by, task), End::Starved);
                    self.say(Fact::Ended { executor: by, task, ran_us: 0, end });
                }
                Effect::Kill { task } => {
                    let task = self.number_of(by, task);
                    let attempt = self.tasks[task].attempt;
                    self.events
                        .schedule(self.now, SimEvent::Killed { executor: by, task, attempt });
                }
                Effect::Suspend { .. } | Effect::Resume { .. } => {
                    unreachable!("all tasks have one priority")
                }
                Effect::Lend { .. } | Effect::Granted { .. } => {
                    unreachable!("no task of a simulation lends processors")
                }
                Effect::Expected { .. } => unreachable!("no object is handed over in a simulation"),
                Effect::Held { object } => {
                    self.say(Fact::Stored {
                        executor: by,
                        object: self.plan.outputs.object_of(object),
                    });
                }
                Effect::NotHeld { object, .. } => {
                    self.say(Fact::NotHeld {
                        executor: by,
                        object: self.plan.outputs.object_of(object),
                    });
                }
                Effect::CannotKeep { .. } => self.executors[by as usize].lacks_room = true,
            }
        }
        self.node_effects = effects;
    }

    fn evict(&mut self, by: u32, object: u32) {
        let executor = &mut self.executors[by as usize];
        executor.stored_bytes -= self.workload.size_bytes(object);
        if self.caches {
            executor.replicas.remove(&object);
            executor.pages.forget(object);
            self.say(Fact::Evicted { executor: by, object });
        }
    }

    /// Looks up an object that another executor could not fetch from this one, and reports if it is
    /// not there.
    pub(super) fn verify(&mut self, executor: u32, object: u32) {
        if !self.executors[executor as usize].replicas.contains_key(&object) {
            self.say(Fact::Evicted { executor, object });
        }
    }

    /// The number of a task of an executor.
    pub(super) fn number_of(&self, executor: u32, task: TaskId) -> u32 {
        self.plan.number(self.dispatcher_of(executor), task)
    }

    // ---- tasks

    /// Starts a task: it reads cached inputs from memory and the others from disk, then computes.
    fn start(&mut self, number: u32, reads: Reads) {
        let task = &self.tasks[number];
        let executor = &mut self.executors[task.executor as usize];
        executor.running += 1;
        assert!(
            executor.running <= self.cluster.cpus,
            "{} tasks are in its slots",
            executor.running
        );
        let disk = executor.links.disk_read.filter(|_| self.caches || self.is_warm);
        let is_on_disk = |object: &&u32| disk.is_some() && !executor.pages.touch(**object);
        let on_disk = task.inputs.iter().filter(is_on_disk);
        let from_disk = on_disk.map(|object| self.workload.size_bytes(*object)).sum::<u64>();
        let from_memory_s = (reads.bytes() - from_disk) as f64 / self.cluster.memory_bytes_per_s;
        let task = &mut self.tasks[number];
        (task.started, task.is_running, task.step, task.reads) =
            (self.now, true, TaskStep::Computing, reads);
        task.computes_ns = task.compute_us * MICROSECOND + (from_memory_s * 1e9) as Ns;
        self.outcome.reads += reads;
        self.outcome.course.note_reads(reads);
        self.running += 1;
        match disk {
            Some(disk) if from_disk > 0 => {
                let tag = Tag::OfTask(number).number();
                task.flow = Some(self.flows.start(self.now, from_disk as f64, &[disk], None, tag));
            }
            _ => self.has_read(number),
        }
    }

    /// Aborts a task whose executor is gone.
    pub(super) fn break_off(&mut self, number: u32) {
        let task = &mut self.tasks[number];
        self.running -= u64::from(std::mem::take(&mut task.is_running));
        if let Some(flow) = task.flow.take() {
            self.flows.stop(self.now, flow);
        }
    }
}
