//! An executor: the decider of its node, and what that wants done.

use std::collections::BTreeMap;

use eyas_node::{Effect, Event, Limits, Node, Overlap};
use eyas_types::{Load, Reads, Resources, TaskId};

use super::page_cache::PageCache;
use super::{Fact, Happening, Holder, Owner, Run, Tag, id_of_task, object_of};
use crate::clock::{MICROSECOND, Ns};
use crate::cluster::{Cluster, Policies};
use crate::flows::{Flows, LinkId};

pub(super) struct Executor {
    node: Node,
    pub links: Links,
    /// What others can get here.
    pub replicas: BTreeMap<u32, Replica>,
    /// Who can give what it was told to hold.
    pub to_hold: BTreeMap<u32, Box<[Holder]>>,
    /// Of its store on disk.
    pub pages: PageCache,
    /// What the dispatcher was told of the load.
    told: Load,
}

/// What bytes pass at a node.
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
    /// The fetch that brings it.
    Partial(u32),
}

impl Executor {
    pub fn new(cluster: &Cluster, policies: &Policies, flows: &mut Flows, object_bytes: u64, seed: u64) -> Self {
        let links = Links {
            card_in: flows.link(cluster.card_bytes_per_s),
            card_out: flows.link(cluster.card_bytes_per_s),
            client: cluster.storage.client_bytes_per_s.map(|rate| flows.link(rate)),
            disk_read: cluster.disk.map(|disk| flows.link(disk.read_bytes_per_s)),
            disk_write: cluster.disk.map(|disk| flows.link(disk.write_bytes_per_s)),
        };
        let limits = Limits { bytes: cluster.cache_bytes, inodes: u64::MAX, floor_bytes: 0, floor_inodes: 0 };
        let overlap = Overlap { is_on: policies.overlap, ..Overlap::default() };
        let (capacity, max_fetches) = (Executor::capacity(cluster), cluster.max_fetches());
        let node = Node::new(capacity, limits, policies.eviction, policies.caches(), overlap, max_fetches, seed);
        let pages = PageCache::new((cluster.page_cache_bytes / object_bytes.max(1)) as usize);
        let (replicas, to_hold) = (BTreeMap::new(), BTreeMap::new());
        Executor { node, links, replicas, to_hold, pages, told: Load::default() }
    }

    pub fn capacity(cluster: &Cluster) -> Resources {
        Resources { cpus_milli: cluster.cpus * 1000, ..Resources::default() }
    }
}

impl Run<'_> {
    pub(super) fn given(&mut self, executor: u32, task: u32) {
        self.tasks[task].executor = executor;
        let inputs = self.inputs_of(task, self.owner(task));
        let need = Resources::default();
        self.tell_node(executor, Event::Assigned { task: id_of_task(task), inputs, need, priority: 0 });
    }

    /// Who shares what a task reads.
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
                Effect::Fetch { object, task } => self.fetch(by, object, task.map(|task| task.index)),
                Effect::Evict { object } => self.evict(by, object_of(object)),
                Effect::Start { task, reads, .. } => self.start(task, reads),
                Effect::GiveBack { task } => self.say(Fact::Returned { executor: by, task: task.index }),
                Effect::Refuse { task, .. } => self.say(Fact::Refused { executor: by, task: task.index }),
                Effect::Fail { .. } | Effect::Kill { .. } => unreachable!("all inputs exist, and no task is cancelled"),
                Effect::Suspend { .. } | Effect::Resume { .. } => unreachable!("all tasks have one priority"),
                Effect::Held { object } => self.say(Fact::Stored { executor: by, object: object_of(object) }),
                Effect::NotHeld { object, .. } => {
                    self.say(Fact::NotHeld { executor: by, object: object_of(object) });
                }
                Effect::CannotKeep { .. } => unreachable!("tasks have no outputs"),
            }
        }
        self.node_effects = effects;
    }

    fn evict(&mut self, by: u32, object: u32) {
        if self.caches {
            let executor = &mut self.executors[by as usize];
            executor.replicas.remove(&object);
            executor.pages.forget(object);
            self.say(Fact::Evicted { executor: by, object });
        }
    }

    // ---- tasks

    /// A task reads what is in the page cache from there, all else from disk, and computes.
    fn start(&mut self, id: TaskId, reads: Reads) {
        let number = id.index;
        let task = &self.tasks[number];
        let executor = &mut self.executors[task.executor as usize];
        let disk = executor.links.disk_read.filter(|_| self.caches || self.is_warm);
        let is_on_disk = |object: &&u32| disk.is_some() && !executor.pages.touch(**object);
        let on_disk = task.inputs.iter().filter(is_on_disk);
        let from_disk = on_disk.map(|object| self.workload.size_bytes(*object)).sum::<u64>();
        let from_memory_s = (reads.bytes() - from_disk) as f64 / self.cluster.memory_bytes_per_s;
        let task = &mut self.tasks[number];
        task.started = self.now;
        task.computes_ns = task.compute_us * MICROSECOND + (from_memory_s * 1e9) as Ns;
        self.outcome.waited_ns += u128::from(self.now - task.arrived);
        self.outcome.reads += reads;
        self.outcome.course.note_reads(reads);
        self.running += 1;
        match disk {
            Some(disk) if from_disk > 0 => {
                self.flows.start(self.now, from_disk as f64, &[disk], None, Tag::Read(number).number());
            }
            _ => self.has_read(number),
        }
    }

    pub(super) fn has_read(&mut self, task: u32) {
        let at = self.now + self.tasks[task].computes_ns;
        self.clock.plan(at, Happening::Computed { task });
    }

    pub(super) fn computed(&mut self, number: u32) {
        let task = &self.tasks[number];
        let (executor, ran_ns) = (task.executor, self.now - task.started);
        let ran_us = ran_ns / MICROSECOND;
        self.outcome.ran_ns += u128::from(ran_ns);
        self.outcome.ideal_ns = self.outcome.ideal_ns.max(task.arrived + ran_ns);
        self.outcome.computed_ns += u128::from(task.compute_us * MICROSECOND);
        self.running -= 1;
        self.tell_node(executor, Event::Ended { task: id_of_task(number) });
        self.say(Fact::Ended { executor, task: number, ran_us: ran_us.min(u32::MAX.into()) as u32 });
    }
}
