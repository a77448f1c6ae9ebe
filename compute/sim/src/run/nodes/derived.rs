//! Derived copies on a node: what tasks make of their inputs, once for all tasks of the node, or
//! get from other nodes. A task that needs a copy which its node lacks asks the dispatcher, in its
//! slot, and waits until it is told to fetch the copy or to make it.

use eyas_node::{Event, FetchFailure};
use eyas_types::{CopyNews, ObjectId};

use super::SimNodes;
use crate::clock::MICROSECOND;
use crate::run::event::{ExecutorEvent, SimEvent, SimFact};
use crate::run::executor::{Replica, SimMaking};
use crate::run::world::World;

impl SimNodes {
    /// The objects that are staged for a task: its inputs, or derived copies in their places where
    /// the node has them, or lacks the input and was told which nodes have the copy.
    pub(super) fn stored_inputs(
        &self,
        by: u32,
        task: u32,
        world: &World,
    ) -> Box<[(ObjectId, u64)]> {
        let (setup, executor) = (world.setup, &self.executors[by]);
        let entry = &world.tasks[task];
        let sources = setup.inputs(&entry.inputs, setup.owner(task));
        if setup.copies().is_none() {
            return sources;
        }
        let placed_by = setup.placed_by(&entry.inputs);
        let is_hinted =
            |copy: &u32| entry.hints.iter().any(|hint| placed_by[hint.input as usize] == *copy);
        let stored = entry.inputs.iter().map(|object| {
            let has = |object: u32| executor.size_of(setup.id_of(object)).is_some();
            let copy = setup.copy_of(*object);
            copy.filter(|copy| has(*copy) || !has(*object) && is_hinted(copy)).unwrap_or(*object)
        });
        let stored = setup.inputs(&stored.collect::<Vec<_>>(), setup.owner(task));
        // Copies that are made on the node may exceed the store while the task reads them.
        if executor.can_hold(&stored) { stored } else { sources }
    }

    /// Goes on with the derived copies that a task reads. With the last of them, it reads its
    /// inputs.
    pub(super) fn derive_next(&mut self, number: u32, world: &mut World) {
        let setup = world.setup;
        let (by, attempt) = (world.tasks[number].executor, world.tasks[number].attempt);
        while let Some(source) = world.tasks[number].inputs.get(world.tasks[number].copies).copied()
        {
            let Some(copy) = setup.copy_of(source) else {
                world.tasks.has_copy(number);
                continue;
            };
            let executor = &mut self.executors[by];
            if let Some(making) = executor.makings.get_mut(&copy) {
                return making.waiting.push((number, attempt));
            }
            match executor.replica(copy) {
                Some(Replica::Whole) => self.has_copy(by, number, (copy, None), world),
                // It is on its way for a task that is staged.
                Some(Replica::Partial(_)) => {
                    let waiting = vec![(number, attempt)];
                    executor.makings.insert(copy, SimMaking { waiting, ..SimMaking::default() });
                    return;
                }
                None => {
                    let by_task = Some((number, attempt));
                    executor
                        .makings
                        .insert(copy, SimMaking { by: by_task, ..SimMaking::default() });
                    let (executor, news) = (by, CopyNews::Wanted);
                    return world.say(SimFact::Copy { executor, object: copy, news });
                }
            }
        }
        self.read_inputs(number, world);
    }

    /// A task reads a derived copy that its node has; the decider keeps it until the task has
    /// ended.
    fn has_copy(
        &mut self,
        by: u32,
        number: u32,
        (copy, took_us): (u32, Option<u64>),
        world: &mut World,
    ) {
        let (setup, task) = (world.setup, world.tasks.id_of(number));
        let (source, object) = (setup.id_of(!copy), setup.id_of(copy));
        let size_bytes = setup.size_bytes(copy);
        world.tasks.has_copy(number);
        self.tell(by, Event::Derived { task, source, object, size_bytes, took_us }, world);
    }

    /// Whether a derived copy is being made on the node, or fetched for a task that has a slot. If
    /// so, the decider waits for it, and no fetch begins.
    pub(super) fn is_made(&mut self, by: u32, object: u32) -> bool {
        let making = self.executors[by].makings.get_mut(&object);
        making.map(|making| making.is_awaited = true).is_some()
    }

    /// The dispatcher says where to fetch a derived copy, or that it is to be made.
    pub(super) fn derive(&mut self, by: u32, copy: u32, world: &mut World) {
        let holders = world.holds.get(by, copy).map_or(0, <[_]>::len);
        let Some((task, attempt)) = self.executors[by].makings.get(&copy).and_then(|it| it.by)
        else {
            let (executor, object, news) = (by, copy, CopyNews::Stopped);
            return world.say(SimFact::Copy { executor, object, news });
        };
        if holders == 0 {
            return make(by, (task, attempt), copy, world);
        }
        let id = world.setup.id_of(copy);
        let SimNodes { executors, fetches, network, .. } = self;
        executors[by].reserve(copy, world.setup);
        fetches.begin(by, id, None, executors, network, world);
    }

    /// A task has made a derived copy.
    pub(super) fn made(&mut self, by: u32, run: (u32, u32), copy: u32, world: &mut World) {
        if !world.tasks.runs(run.0, by, run.1) {
            return;
        }
        let Some(made) = world.setup.copies() else { return };
        let executor = &mut self.executors[by];
        executor.reserve(copy, world.setup);
        executor.store(copy);
        world.metrics.copy_made();
        let news = CopyNews::Made { size_bytes: made.size_bytes, took_us: made.takes_us };
        world.say(SimFact::Copy { executor: by, object: copy, news });
        self.copy_is_here(by, copy, made.takes_us, world);
    }

    /// Another node has sent a derived copy.
    pub(super) fn copy_came(&mut self, by: u32, copy: u32, took_us: u64, world: &mut World) {
        if let Some((task, _)) = self.executors[by].makings.get(&copy).and_then(|it| it.by) {
            world.tasks.was_sent_copy(task, world.setup.size_bytes(copy));
        }
        self.copy_is_here(by, copy, took_us, world);
    }

    /// No node has sent a derived copy: the task makes it.
    pub(super) fn no_copy_came(&mut self, by: u32, copy: u32, world: &mut World) {
        match self.executors[by].makings.get(&copy).and_then(|making| making.by) {
            Some(run) => make(by, run, copy, world),
            None => self.wake_readers(by, copy, world),
        }
    }

    /// A derived copy is in the store, and its task and those that wait go on.
    fn copy_is_here(&mut self, by: u32, copy: u32, took_us: u64, world: &mut World) {
        let setup = world.setup;
        let task = self.executors[by].makings.get(&copy).and_then(|making| making.by);
        match task {
            Some((task, _)) => self.has_copy(by, task, (copy, Some(took_us)), world),
            // Its task was killed.
            None => {
                let (object, size_bytes) = (setup.id_of(copy), setup.size_bytes(copy));
                self.tell(by, Event::Found { object, size_bytes }, world);
            }
        }
        if let Some((task, attempt)) = task
            && let Some(making) = self.executors[by].makings.get_mut(&copy)
        {
            making.is_awaited = false;
            making.waiting.insert(0, (task, attempt));
        }
        self.wake_readers(by, copy, world);
    }

    /// Tasks that waited for a derived copy go on.
    pub(super) fn wake_readers(&mut self, by: u32, copy: u32, world: &mut World) {
        let Some(making) = self.executors[by].makings.remove(&copy) else { return };
        if making.is_awaited {
            let (object, failure) = (world.setup.id_of(copy), FetchFailure::Unavailable);
            self.tell(by, Event::FetchFailed { object, failure }, world);
        }
        for (task, attempt) in making.waiting {
            if world.tasks.runs(task, by, attempt) {
                self.derive_next(task, world);
            }
        }
    }

    /// The derived copies that an attempt at a task makes or gets.
    pub(super) fn makings_of(&self, by: u32, run: (u32, u32)) -> Vec<u32> {
        let makings = self.executors[by].makings.iter();
        makings.filter(|(_, making)| making.by == Some(run)).map(|(copy, _)| *copy).collect()
    }

    /// The task that made or got a derived copy was killed: another one does, unless the copy is on
    /// its way.
    pub(super) fn stopped(&mut self, by: u32, copy: u32, world: &mut World) {
        let (executor, object, news) = (by, copy, CopyNews::Stopped);
        world.say(SimFact::Copy { executor, object, news });
        match self.executors[by].replica(copy) {
            Some(_) => {
                let making = self.executors[by].makings.get_mut(&copy);
                making.into_iter().for_each(|making| making.by = None);
            }
            None => self.wake_readers(by, copy, world),
        }
    }
}

/// A task makes a derived copy, in its slot.
fn make(executor: u32, (task, attempt): (u32, u32), copy: u32, world: &mut World) {
    let Some(made) = world.setup.copies() else { return };
    let what = ExecutorEvent::Made { task, attempt, copy };
    let event = SimEvent::AtExecutor { executor, what };
    world.agenda.schedule_after(made.takes_us * MICROSECOND, event);
}
