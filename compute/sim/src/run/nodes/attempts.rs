//! The course of an attempt at a task on its executor: it reads its inputs, computes, and writes
//! its outputs; then the executor reports how it ended.

use eyas_node::Event;
use eyas_types::Reads;

use super::SimNodes;
use crate::clock::{MICROSECOND, Ns};
use crate::flows::LinkId;
use crate::run::event::{End, ExecutorEvent, SimEvent, SimFact};
use crate::run::network::Tag;
use crate::run::task::{SimTask, TaskStep};
use crate::run::world::{Setup, World};

impl SimNodes {
    /// Starts a task: it makes or gets the derived copies of its inputs that its node lacks.
    pub(super) fn start(&mut self, number: u32, reads: Reads, world: &mut World) {
        self.executors[world.tasks[number].executor].begin_task(world.setup.cluster);
        world.tasks.start(number, reads, world.agenda.now());
        world.metrics.started(reads);
        self.derive_next(number, world);
    }

    /// A task has all that it reads: cached inputs are read from memory and the others from disk.
    /// Then the task computes.
    pub(super) fn read_inputs(&mut self, number: u32, world: &mut World) {
        let setup = world.setup;
        let task = &world.tasks[number];
        let disk = self.network.disk_read(self.executors.machine_of(task.executor));
        let disk = disk.filter(|_| setup.caches || setup.is_warm);
        let executor = &mut self.executors[task.executor];
        let read = task.inputs.iter().map(|object| setup.copy_of(*object).unwrap_or(*object));
        let (mut from_disk, mut bytes) = (0, 0);
        for object in read {
            bytes += setup.size_bytes(object);
            if disk.is_some() && !executor.touch(object) {
                from_disk += setup.size_bytes(object);
            }
        }
        let from_memory_s = (bytes - from_disk) as f64 / setup.cluster.memory_bytes_per_s;
        let computes_us = task.compute_us + made_by_task_us(setup, task);
        world.tasks.reads_all(number, computes_us * MICROSECOND + (from_memory_s * 1e9) as Ns);
        match disk {
            Some(disk) if from_disk > 0 => self.begin_flow(number, from_disk, &[disk], world),
            _ => has_read(number, world),
        }
    }

    fn begin_flow(&mut self, number: u32, bytes: u64, way: &[LinkId], world: &mut World) {
        let (now, tag) = (world.agenda.now(), Tag::OfTask(number));
        world.tasks.flow_begins(number, self.network.start(now, bytes as f64, way, None, tag));
    }

    /// The bytes that a task reads or writes have arrived.
    pub(super) fn flow_of_task_ended(&mut self, number: u32, world: &mut World) {
        match world.tasks.flow_ends(number) {
            TaskStep::Deriving => unreachable!("no bytes of the task flow"),
            TaskStep::Computing => has_read(number, world),
            TaskStep::Delivering => self.keep(number, world),
            TaskStep::Keeping => self.delivered(number, world),
        }
    }

    /// An attempt at a task has computed.
    pub(super) fn computed(&mut self, by: u32, number: u32, attempt: u32, world: &mut World) {
        if !world.tasks.runs(number, by, attempt) {
            return;
        }
        let failed_tries = world.setup.cluster.failures.failed_tries;
        if world.tasks[number].outputs.is_empty() && failed_tries == 0.0 {
            return self.end_try(by, number, End::Succeeded, world);
        }
        if self.task_dice.share() < failed_tries {
            return self.end_try(by, number, End::Failed, world);
        }
        self.deliver(number, world);
    }

    /// Writes the outputs for persistent storage, then the outputs that the node keeps.
    fn deliver(&mut self, number: u32, world: &mut World) {
        world.tasks.takes_step(number, TaskStep::Delivering);
        let bytes = bytes_written(number, false, world);
        world.metrics.written(bytes);
        if bytes == 0 {
            return self.keep(number, world);
        }
        let machine = self.executors.machine_of(world.tasks[number].executor);
        self.begin_flow(number, bytes, &self.network.way_to_storage(machine), world);
    }

    fn keep(&mut self, number: u32, world: &mut World) {
        world.tasks.takes_step(number, TaskStep::Keeping);
        let machine = self.executors.machine_of(world.tasks[number].executor);
        match (self.network.disk_write(machine), bytes_written(number, true, world)) {
            (Some(disk), bytes @ 1..) => self.begin_flow(number, bytes, &[disk], world),
            _ => self.delivered(number, world),
        }
    }

    /// All outputs of a task are written. The node holds the kept ones, if it has room for all of
    /// them.
    fn delivered(&mut self, number: u32, world: &mut World) {
        let setup = world.setup;
        let SimTask { executor, outputs, .. } = &world.tasks[number];
        let executor = *executor;
        let is_kept = |object: &u32| setup.plan.outputs.is_kept(*object);
        let kept: Vec<u32> = outputs.iter().copied().filter(is_kept).collect();
        for object in kept.iter().copied() {
            let was_known = self.executors[executor].replica(object).is_some();
            let produced = Event::Produced {
                task: world.tasks.id_of(number),
                object: setup.id_of(object),
                size_bytes: setup.size_bytes(object),
            };
            self.tell(executor, produced, world);
            if self.executors[executor].take_lack_of_room() {
                for object in &kept {
                    self.tell(executor, Event::Release { object: setup.id_of(*object) }, world);
                }
                return self.end_try(executor, number, End::NoRoom, world);
            }
            if !was_known {
                self.executors[executor].reserve(object, setup);
                self.executors[executor].store(object);
            }
            world.say(SimFact::Stored { executor, object });
        }
        self.end_try(executor, number, End::Succeeded, world);
    }

    /// An attempt at a task ends on its executor.
    fn end_try(&mut self, executor: u32, number: u32, end: End, world: &mut World) {
        let ran_us = world.tasks.end(number, world.agenda.now()) / MICROSECOND;
        if end == End::Succeeded {
            world.metrics.computed(world.tasks[number].compute_us);
        }
        self.executors[executor].end_task();
        self.tell(executor, Event::Ended { task: world.tasks.id_of(number) }, world);
        let ran_us = ran_us.min(u32::MAX.into()) as u32;
        world.say(SimFact::Ended { executor, task: number, ran_us, end });
    }

    /// An attempt at a task is killed because the task was cancelled.
    pub(super) fn killed(&mut self, executor: u32, number: u32, attempt: u32, world: &mut World) {
        if !world.tasks.runs(number, executor, attempt) {
            return;
        }
        if let Some(flow) = world.tasks.stop_flow(number) {
            self.network.stop(world.agenda.now(), flow);
        }
        let copies = self.makings_of(executor, (number, attempt));
        self.end_try(executor, number, End::Killed, world);
        copies.into_iter().for_each(|copy| self.stopped(executor, copy, world));
    }
}

/// Time in which a task makes, for itself alone, what it reads of its inputs, microseconds.
fn made_by_task_us(setup: &Setup, task: &SimTask) -> u64 {
    let made = setup.workload.derivation().filter(|_| setup.copies().is_none());
    let count = task.inputs.iter().filter(|object| **object < setup.workload.objects()).count();
    made.map_or(0, |made| made.takes_us * count as u64)
}

/// A task has read its inputs, and computes.
fn has_read(number: u32, world: &mut World) {
    let SimTask { executor, attempt, computes_ns, .. } = world.tasks[number];
    let what = ExecutorEvent::Computed { task: number, attempt };
    world.agenda.schedule_after(computes_ns, SimEvent::AtExecutor { executor, what });
}

/// Size of the outputs of a task that its node keeps, or of those for persistent storage.
fn bytes_written(number: u32, is_kept: bool, world: &World) -> u64 {
    let setup = world.setup;
    let outputs = world.tasks[number].outputs.iter();
    let written = outputs.filter(|object| setup.plan.outputs.is_kept(**object) == is_kept);
    written.map(|object| setup.size_bytes(*object)).sum()
}
