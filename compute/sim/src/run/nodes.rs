//! The nodes of a run: the shell of `core/node`. It passes events to the decider of each executor
//! and performs the effects: fetches, evictions, attempts at tasks, and messages to dispatchers.

use eyas_node::{Effect, Event, FetchFailure};
use eyas_types::{ObjectId, Origin, Resources, TaskId};

use super::event::{End, ExecutorEvent, FetchEvent, SimEvent, SimFact};
use super::executor::{LeftStore, SimExecutor, SimExecutors};
use super::fetch::{Fetch, Fetches, Source};
use super::network::{Network, Tag};
use super::world::World;
use crate::clock::{MICROSECOND, Ns};
use crate::random::Random;

mod attempts;
mod derived;

/// Gives failing tasks another sequence of random numbers than nodes.
const TASK_DICE: u64 = 0x7461_736b;

pub(super) struct SimNodes {
    executors: SimExecutors,
    fetches: Fetches,
    network: Network,
    /// Decides which attempts fail.
    task_dice: Random,
    /// Room for the effects of a decider.
    effects: Vec<Effect>,
    /// Room for the tags of flows that end in a step.
    ended: Vec<u32>,
}

impl SimNodes {
    pub fn new(network: Network, seed: u64) -> Self {
        SimNodes {
            executors: SimExecutors::default(),
            fetches: Fetches::default(),
            network,
            task_dice: Random::new(seed ^ TASK_DICE),
            effects: Vec::new(),
            ended: Vec::new(),
        }
    }

    // ---- executors that come and go

    /// Adds an executor with the content of its store. Returns its number, and the objects that it
    /// holds with their sizes.
    pub fn join(
        &mut self,
        machine: u32,
        store: LeftStore,
        world: &mut World,
    ) -> (u32, Box<[(ObjectId, u64)]>) {
        let setup = world.setup;
        let of = |object: &u32| (setup.id_of(*object), setup.size_bytes(*object));
        let held: Box<[_]> = store.objects().iter().map(of).collect();
        let number = self.executors.add(machine, store, setup);
        world.holds.add_executor();
        for (object, size_bytes) in held.iter().copied() {
            self.tell(number, Event::Found { object, size_bytes }, world);
        }
        (number, held)
    }

    /// Removes an executor and aborts its tasks and fetches. If its node `serves`, others can still
    /// fetch from the store.
    pub fn leave(
        &mut self,
        executor: u32,
        tasks: Vec<TaskId>,
        serves: bool,
        world: &mut World,
    ) -> SimExecutor {
        let gone = self.executors.remove(executor);
        world.holds.remove_executor(executor);
        for task in tasks {
            let number = world.setup.plan.number(gone.dispatcher(), task);
            if let Some(flow) = world.tasks.break_off(number) {
                self.network.stop(world.agenda.now(), flow);
            }
        }
        self.end_fetches_of(executor, serves, world);
        gone
    }

    /// Ends the fetches of an executor that is gone. If its node no longer `serves`, fetches from
    /// that node get the missing bytes from other sources.
    pub fn end_fetches_of(&mut self, gone: u32, serves: bool, world: &mut World) {
        let SimNodes { executors, fetches, network, .. } = self;
        fetches.end_of_executor(gone, serves, executors, network, world);
    }

    pub fn get(&self, executor: u32) -> Option<&SimExecutor> {
        self.executors.get(executor)
    }

    pub fn has(&self, executor: u32) -> bool {
        self.executors.get(executor).is_some()
    }

    /// Number of executors that ever joined.
    pub fn count(&self) -> u32 {
        self.executors.count()
    }

    /// The machine of an executor that is there or gone.
    pub fn machine_of(&self, executor: u32) -> u32 {
        self.executors.machine_of(executor)
    }

    // ---- events

    pub fn handle(&mut self, executor: u32, what: ExecutorEvent, world: &mut World) {
        let setup = world.setup;
        let dispatcher = self.executors[executor].dispatcher();
        let event = match what {
            ExecutorEvent::Assigned { task } => {
                world.tasks.arrives_at(task, executor);
                self.executors[executor].expect_again(&world.tasks[task].inputs);
                let inputs = self.stored_inputs(executor, task, world);
                assigned(task, inputs, world)
            }
            ExecutorEvent::Recall { task } => {
                Event::Recalled { task: setup.plan.task_id(dispatcher, task) }
            }
            ExecutorEvent::Cancel { task } => {
                Event::Cancelled { task: setup.plan.task_id(dispatcher, task) }
            }
            ExecutorEvent::Hold { object } => {
                self.executors[executor].expect_again(&[object]);
                Event::Hold { object: setup.id_of(object), size_bytes: setup.size_bytes(object) }
            }
            ExecutorEvent::Release { object } => {
                world.holds.remove(executor, object);
                Event::Release { object: setup.id_of(object) }
            }
            ExecutorEvent::Verify { object } => {
                // Another executor could not fetch the object from this one.
                if self.executors[executor].replica(object).is_none() {
                    world.say(SimFact::Evicted { executor, object });
                }
                return;
            }
            ExecutorEvent::Computed { task, attempt } => {
                return self.computed(executor, task, attempt, world);
            }
            ExecutorEvent::Derive { copy } => return self.derive(executor, copy, world),
            ExecutorEvent::Made { task, attempt, copy } => {
                return self.made(executor, (task, attempt), copy, world);
            }
            ExecutorEvent::Killed { task, attempt } => {
                return self.killed(executor, task, attempt, world);
            }
        };
        self.tell(executor, event, world);
    }

    pub fn handle_fetch(&mut self, fetch: u32, asked: u32, what: FetchEvent, world: &mut World) {
        if !self.fetches.awaits(fetch, asked) {
            return;
        }
        let SimNodes { executors, fetches, network, .. } = self;
        match what {
            FetchEvent::Requested => match fetches.source(fetch) {
                Source::Here => self.fetched(fetch, world),
                Source::Peer { .. } | Source::Storage => {
                    fetches.answered(fetch, executors, network, world);
                }
            },
            FetchEvent::RelayTimeout => fetches.relay_timed_out(fetch, world),
            FetchEvent::Fails => {
                let fetch = fetches.fail(fetch, executors, network, world);
                let Fetch { by, id, object, is_derived, .. } = fetch;
                if is_derived {
                    return self.no_copy_came(by, object, world);
                }
                let failure = FetchFailure::Unavailable;
                self.tell(by, Event::FetchFailed { object: id, failure }, world);
                self.wake_readers(by, object, world);
            }
        }
    }

    /// The next instant at which bytes arrive.
    pub fn next_end(&mut self) -> Option<Ns> {
        self.network.next_end()
    }

    /// Goes on with the fetches and the tasks whose bytes have arrived.
    pub fn end_flows(&mut self, world: &mut World) {
        let mut ended = std::mem::take(&mut self.ended);
        self.network.end_by(world.agenda.now(), &mut ended);
        for tag in ended.drain(..) {
            match Tag::of(tag) {
                Tag::Fetch(fetch) => self.fetched(fetch, world),
                Tag::OfTask(task) => self.flow_of_task_ended(task, world),
            }
        }
        self.ended = ended;
    }

    /// Shares the links among the flows that there are at the end of a step.
    pub fn settle(&mut self) {
        self.network.settle();
    }

    fn fetched(&mut self, number: u32, world: &mut World) {
        let setup = world.setup;
        let Fetch { by, id, object, is_for_task, is_derived, began, from, .. } =
            self.fetches.end(number);
        let took_us = (world.agenda.now() - began) / MICROSECOND;
        let from = match from {
            Source::Peer { .. } => Origin::Peer,
            Source::Storage => Origin::Persistent,
            Source::Here => Origin::Local,
        };
        world.metrics.fetched(from, setup.size_bytes(object), is_for_task);
        let told_us = took_us.try_into().unwrap_or(u32::MAX);
        world.say(SimFact::Fetched { executor: by, object, from, took_us: told_us });
        if setup.caches {
            self.executors[by].store(object);
            world.say(SimFact::Stored { executor: by, object });
        }
        if is_derived {
            return self.copy_came(by, object, took_us, world);
        }
        self.tell(by, Event::Fetched { object: id, from, took_us }, world);
        self.wake_readers(by, object, world);
    }

    // ---- the decider

    fn tell(&mut self, by: u32, event: Event, world: &mut World) {
        let mut effects = std::mem::take(&mut self.effects);
        if let Some(load) = self.executors[by].handle(event, &mut effects) {
            let lent_milli = load.lent_milli.min(u32::MAX.into()) as u32;
            world.say(SimFact::Staging { executor: by, lent_milli, light_bytes: load.light_bytes });
        }
        for effect in effects.drain(..) {
            self.perform(by, effect, world);
        }
        self.effects = effects;
    }

    fn perform(&mut self, by: u32, effect: Effect, world: &mut World) {
        let setup = world.setup;
        let outputs = &setup.plan.outputs;
        let dispatcher = self.executors[by].dispatcher();
        let number = |task| setup.plan.number(dispatcher, task);
        let gives_up = |task, end| SimFact::Ended { executor: by, task, ran_us: 0, end };
        match effect {
            Effect::Fetch { object, .. } if self.is_made(by, outputs.object_of(object)) => {}
            Effect::Fetch { object, task } => {
                let SimNodes { executors, fetches, network, .. } = self;
                executors[by].reserve(outputs.object_of(object), setup);
                fetches.begin(by, object, task.map(number), executors, network, world);
            }
            Effect::Evict { object } => {
                let object = outputs.object_of(object);
                self.executors[by].evict(object, setup);
                if setup.caches {
                    world.say(SimFact::Evicted { executor: by, object });
                }
            }
            Effect::Start { task, reads, .. } => self.start(number(task), reads, world),
            Effect::ReturnTask { task } => {
                world.say(SimFact::Returned { executor: by, task: number(task) });
            }
            Effect::Refuse { task, for_now, .. } => {
                let end = if for_now { End::NoRoom } else { End::Refused };
                world.say(gives_up(number(task), end));
            }
            Effect::Fail { task, object } if setup.is_copy(outputs.object_of(object)) => {
                // It reads the source, as no executor gives the derived copy.
                let task = number(task);
                let sources = setup.inputs(&world.tasks[task].inputs, setup.owner(task));
                self.tell(by, assigned(task, sources, world), world);
            }
            Effect::Fail { task, .. } => world.say(gives_up(number(task), End::Starved)),
            Effect::Kill { task } => {
                let task = number(task);
                let what = ExecutorEvent::Killed { task, attempt: world.tasks[task].attempt };
                world.agenda.schedule_after(0, SimEvent::AtExecutor { executor: by, what });
            }
            Effect::GivenUp { object } => {
                let object = outputs.object_of(object);
                let SimNodes { executors, fetches, network, .. } = self;
                executors[by].give_up(object);
                fetches.given_up(by, object, executors, network, world);
            }
            Effect::Held { object } => {
                world.say(SimFact::Stored { executor: by, object: outputs.object_of(object) });
            }
            Effect::NotHeld { object, .. } => {
                world.say(SimFact::NotHeld { executor: by, object: outputs.object_of(object) });
            }
            Effect::CannotKeep { .. } => self.executors[by].finds_no_room(),
            Effect::Suspend { .. } | Effect::Resume { .. } => {
                unreachable!("all tasks have one priority")
            }
            Effect::Lend { .. } | Effect::Granted { .. } => {
                unreachable!("no task of a simulation lends processors")
            }
            Effect::Expected { .. } => unreachable!("no object is handed over in a simulation"),
        }
    }
}

/// A task with these objects to be staged.
fn assigned(task: u32, inputs: Box<[(ObjectId, u64)]>, world: &World) -> Event {
    let (task, need) = (world.tasks.id_of(task), Resources::default());
    Event::Assigned { task, inputs, need, priority: 0 }
}
