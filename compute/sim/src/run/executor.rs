//! Executors: each has the decider of its node, a store, and a page cache in front of the store's
//! disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Index, IndexMut};

use eyas_node::{Effect, Event, Node, Overlap, StoreLimits};
use eyas_types::{ExecutorLoad, ObjectId, Resources};

use super::page_cache::PageCache;
use super::world::Setup;
use crate::cluster::SimCluster;

pub(super) struct SimExecutor {
    /// Number of its dispatcher.
    dispatcher: usize,
    node: Node,
    /// Replicas that other executors can fetch from this one.
    replicas: BTreeMap<u32, Replica>,
    /// Objects that it was to fetch, and will not.
    given_up: BTreeSet<u32>,
    pages: PageCache,
    /// The load that was last reported to the dispatcher.
    told: ExecutorLoad,
    /// The decider found no room for the output that was just written.
    lacks_room: bool,
    /// Number of tasks that run.
    running: u32,
    /// Bytes of the objects that are in the store or being fetched.
    stored_bytes: u64,
    /// Derived copies that tasks make or get, by their numbers.
    pub makings: BTreeMap<u32, SimMaking>,
}

/// A derived copy that a task makes or gets, for other tasks of its node, too.
#[derive(Default)]
pub(super) struct SimMaking {
    /// The task, and the number of its attempt. `None` if the copy is fetched before any task that
    /// reads it has a slot.
    pub by: Option<(u32, u32)>,
    /// Attempts that wait for it.
    pub waiting: Vec<(u32, u32)>,
    /// Whether the decider waits for it as for any object that is fetched.
    pub is_awaited: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Replica {
    Whole,
    /// The number of the fetch that brings the object.
    Partial(u32),
}

/// Content of the store of a node without an executor.
pub(super) struct LeftStore {
    objects: Vec<u32>,
    pages: PageCache,
}

/// Executors by their numbers. Numbers count up and are not reused.
#[derive(Default)]
pub(super) struct SimExecutors {
    present: Vec<Option<Box<SimExecutor>>>,
    /// The machine of each executor that ever joined.
    machines: Vec<u32>,
}

impl SimExecutors {
    /// Adds an executor and returns its number.
    pub fn add(&mut self, machine: u32, store: LeftStore, setup: &Setup) -> u32 {
        let number = self.count();
        let seed = setup.seed ^ u64::from(number);
        let dispatcher = setup.dispatcher_of_machine(machine);
        self.present.push(Some(Box::new(SimExecutor::new(setup, dispatcher, store, seed))));
        self.machines.push(machine);
        number
    }

    /// Number of executors that ever joined.
    pub fn count(&self) -> u32 {
        self.present.len() as u32
    }

    pub fn remove(&mut self, executor: u32) -> SimExecutor {
        *self.present[executor as usize].take().expect("the executor is there")
    }

    pub fn get(&self, executor: u32) -> Option<&SimExecutor> {
        self.present[executor as usize].as_deref()
    }

    /// The machine of an executor that is there or gone.
    pub fn machine_of(&self, executor: u32) -> u32 {
        self.machines[executor as usize]
    }
}

impl Index<u32> for SimExecutors {
    type Output = SimExecutor;

    fn index(&self, executor: u32) -> &SimExecutor {
        self.get(executor).expect("the executor is there")
    }
}

impl IndexMut<u32> for SimExecutors {
    fn index_mut(&mut self, executor: u32) -> &mut SimExecutor {
        self.present[executor as usize].as_deref_mut().expect("the executor is there")
    }
}

impl LeftStore {
    pub fn empty(setup: &Setup) -> Self {
        let pages = setup.cluster.page_cache_bytes / setup.workload.object_bytes().max(1);
        LeftStore { objects: Vec::new(), pages: PageCache::new(pages as usize) }
    }

    pub fn objects(&self) -> &[u32] {
        &self.objects
    }
}

impl SimExecutor {
    fn new(setup: &Setup, dispatcher: usize, store: LeftStore, seed: u64) -> Self {
        let Setup { cluster, policies, .. } = setup;
        let limits = StoreLimits {
            bytes: cluster.cache_bytes,
            inodes: u64::MAX,
            floor_bytes: 0,
            floor_inodes: 0,
        };
        let node = Node::new(
            SimExecutor::capacity(cluster),
            limits,
            policies.eviction,
            setup.caches,
            Overlap { is_on: policies.overlap, ..Overlap::default() },
            cluster.max_fetches(),
            seed,
        );
        let LeftStore { objects, pages } = store;
        let mut executor = SimExecutor {
            dispatcher,
            node,
            replicas: objects.iter().map(|object| (*object, Replica::Whole)).collect(),
            given_up: BTreeSet::new(),
            pages,
            told: ExecutorLoad::default(),
            lacks_room: false,
            running: 0,
            stored_bytes: 0,
            makings: BTreeMap::new(),
        };
        objects.iter().for_each(|object| executor.reserve(*object, setup));
        executor
    }

    pub fn capacity(cluster: &SimCluster) -> Resources {
        Resources { cpus_milli: cluster.cpus * 1000, ..Resources::default() }
    }

    /// Number of its dispatcher.
    pub fn dispatcher(&self) -> usize {
        self.dispatcher
    }

    // ---- the decider

    /// Passes an event to the decider. Returns the load of the node if it has to be reported.
    pub fn handle(&mut self, event: Event, effects: &mut Vec<Effect>) -> Option<ExecutorLoad> {
        self.node.handle(event, effects);
        let (load, told) = (self.node.load(), self.told);
        if (load.staging, load.lent_milli) == (told.staging, told.lent_milli) {
            return None;
        }
        self.told = load;
        Some(load)
    }

    /// The load that was last reported to the dispatcher.
    pub fn load(&self) -> ExecutorLoad {
        self.told
    }

    /// The decider finds no room for an output.
    pub fn finds_no_room(&mut self) {
        self.lacks_room = true;
    }

    /// Whether the decider found no room for the output that was just written.
    pub fn take_lack_of_room(&mut self) -> bool {
        std::mem::take(&mut self.lacks_room)
    }

    /// Size of an object, if the decider has it.
    pub fn size_of(&self, id: ObjectId) -> Option<u64> {
        self.node.size_of(id)
    }

    /// Whether the store can hold objects of these sizes together.
    pub fn can_hold(&self, inputs: &[(ObjectId, u64)]) -> bool {
        self.node.can_hold(inputs.iter().map(|(_, size_bytes)| *size_bytes))
    }

    // ---- tasks

    /// Number of tasks that run.
    pub fn running(&self) -> u32 {
        self.running
    }

    pub fn begin_task(&mut self, cluster: &SimCluster) {
        self.running += 1;
        assert!(self.running <= cluster.cpus, "{} tasks are in its slots", self.running);
    }

    pub fn end_task(&mut self) {
        self.running -= 1;
    }

    // ---- the store

    pub fn replica(&self, object: u32) -> Option<Replica> {
        self.replicas.get(&object).copied()
    }

    /// Counts an object that is stored or fetched.
    pub fn reserve(&mut self, object: u32, setup: &Setup) {
        self.stored_bytes += setup.size_bytes(object);
        // What tasks make of their inputs may exceed the store as long as they read it.
        let has_room = self.stored_bytes <= setup.cluster.cache_bytes || setup.copies().is_some();
        assert!(has_room, "a store has {} bytes", self.stored_bytes);
    }

    /// An object that was to be fetched will not be.
    pub fn give_up(&mut self, object: u32) {
        self.given_up.insert(object);
    }

    /// Objects are to be fetched, unless they are there.
    pub fn expect_again(&mut self, objects: &[u32]) {
        if !self.given_up.is_empty() {
            objects.iter().for_each(|object| _ = self.given_up.remove(object));
        }
    }

    pub fn has_given_up(&self, object: u32) -> bool {
        self.given_up.contains(&object)
    }

    /// An object whose bytes are reserved will be there when this fetch ends.
    pub fn expect(&mut self, object: u32, fetch: u32) {
        self.replicas.insert(object, Replica::Partial(fetch));
    }

    /// An object whose bytes are reserved is there.
    pub fn store(&mut self, object: u32) {
        self.replicas.insert(object, Replica::Whole);
        self.pages.touch(object);
    }

    /// Stops counting an object whose fetch failed.
    pub fn no_longer_expect(&mut self, object: u32, setup: &Setup) {
        self.replicas.remove(&object);
        self.stored_bytes -= setup.size_bytes(object);
    }

    pub fn evict(&mut self, object: u32, setup: &Setup) {
        self.stored_bytes -= setup.size_bytes(object);
        if setup.caches {
            self.replicas.remove(&object);
            self.pages.forget(object);
        }
    }

    /// Reads an object of the store. Returns whether it was in the page cache.
    pub fn touch(&mut self, object: u32) -> bool {
        self.pages.touch(object)
    }

    /// What remains in the store when the executor is gone.
    pub fn into_store(self) -> LeftStore {
        let whole =
            self.replicas.into_iter().filter(|(_, replica)| matches!(replica, Replica::Whole));
        LeftStore { objects: whole.map(|(object, _)| object).collect(), pages: self.pages }
    }
}
