//! The executors of a simulated cluster for a dispatcher that is a real one: "the entire stack",
//! with "emulated" transfers (data-diffusion §5.3).
//!
//! The farm is the part of a [run](super) without dispatchers: the decider of each node, the links
//! and the storage between them, and tasks that compute for a time. Its shell passes on the
//! dispatcher's commands, and what the executors report. Time is what the shell says, so that a
//! thousand nodes run beside a dispatcher at the pace of a clock.

use eyas_sched::{Hint, Holder};
use eyas_types::{ExecutorLoad, Origin, Reads};

use super::event::{End, ExecutorEvent, SimEvent, SimFact};
use super::executor::LeftStore;
use super::machines::FailureDice;
use super::network::Network;
use super::nodes::SimNodes;
use super::world::{Setup, World};
use crate::clock::Ns;
use crate::cluster::{Policies, SimCluster};
use crate::outcome::RunOutcome;
use crate::workload::Workload;

/// Executors without a dispatcher. Tasks and objects have their numbers in the workload; an
/// executor has the number of its node.
pub struct ExecutorFarm<'a> {
    world: World<'a>,
    nodes: SimNodes,
}

/// A command of the dispatcher to an executor.
#[derive(Clone, Debug)]
pub enum FarmCommand {
    /// A task to run.
    Assign {
        /// The task.
        task: u32,
        /// Number of earlier assignments.
        attempt: u32,
        /// Inputs, each with the executors that may have it, in the order in which to try them.
        holders: Vec<(u32, Box<[Holder]>)>,
    },
    /// Give back a task if it has not started.
    Recall {
        /// The task.
        task: u32,
    },
    /// Kill a task.
    Cancel {
        /// The task.
        task: u32,
    },
    /// Hold an object.
    Hold {
        /// The object.
        object: u32,
        /// Executors that may have it.
        holders: Box<[Holder]>,
    },
    /// Stop holding an object.
    Release {
        /// The object.
        object: u32,
    },
    /// Report an object if it is not in the store.
    Verify {
        /// The object.
        object: u32,
    },
}

/// What an executor reports to the dispatcher.
#[derive(Clone, Debug, PartialEq)]
pub enum FarmReport {
    /// An attempt at a task has ended.
    Ended {
        /// The task.
        task: u32,
        /// Number of earlier assignments.
        attempt: u32,
        /// Time for which it ran, microseconds.
        ran_us: u32,
        /// Where its inputs came from.
        reads: Reads,
        /// How it ended.
        end: FarmEnd,
    },
    /// A recalled task that has not started.
    Returned {
        /// The task.
        task: u32,
        /// Number of earlier assignments.
        attempt: u32,
    },
    /// An object was fetched.
    Fetched {
        /// The object.
        object: u32,
        /// The source.
        from: Origin,
        /// Duration, microseconds.
        took_us: u32,
    },
    /// The store has an object.
    Stored {
        /// The object.
        object: u32,
    },
    /// An object cannot be held.
    NotHeld {
        /// The object.
        object: u32,
    },
    /// The store no longer has an object.
    Evicted {
        /// The object.
        object: u32,
    },
    /// The load has changed.
    Load(ExecutorLoad),
}

/// How an attempt at a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarmEnd {
    /// It has succeeded.
    Succeeded,
    /// It was cancelled.
    Cancelled,
    /// Its node cannot take it, now or ever.
    Refused,
}

/// Starts the executors of `cluster`, one for each of its nodes, with empty stores, and passes them
/// to `drive`. The workload says what its tasks read and how long they compute; its tasks are
/// assigned by the commands only, whatever their times of arrival. Messages between the dispatcher
/// and the executors take the time that they take, and not that of the cluster's description.
///
/// # Panics
/// If the workload writes outputs, which a farm does not deliver, or nodes make derived copies of
/// its objects.
pub fn with_farm<A>(
    cluster: &SimCluster,
    policies: &Policies,
    workload: &dyn Workload,
    seed: u64,
    drive: impl FnOnce(&mut ExecutorFarm<'_>) -> A,
) -> A {
    let cluster =
        SimCluster { message_ns: 0, catalog_delay_ns: 0, dispatchers: 1, ..cluster.clone() };
    let setup = Setup::new(&cluster, policies, workload, seed);
    drive(&mut ExecutorFarm::new(&setup))
}

impl<'a> ExecutorFarm<'a> {
    fn new(setup: &'a Setup<'a>) -> Self {
        let Setup { cluster, seed, .. } = *setup;
        assert!(setup.copies().is_none(), "executors of a farm make no derived copies");
        let mut network = Network::new(cluster);
        let mut dice = FailureDice::new(&cluster.failures, seed);
        (0..cluster.nodes).for_each(|_| network.add_machine(cluster, dice.is_slow()));
        let mut world = World::new_again(setup);
        let mut index = 0;
        while let Some(arrival) = world.tasks.next_arrival(Ns::MAX) {
            assert!(arrival.outputs.is_empty(), "a farm delivers no outputs");
            world.tasks.add(arrival, index, &setup.plan.outputs);
            index += 1;
        }
        let mut nodes = SimNodes::new(network, seed);
        for machine in 0..cluster.nodes {
            nodes.join(machine, LeftStore::empty(setup), &mut world);
        }
        ExecutorFarm { world, nodes }
    }

    /// Number of executors.
    pub fn executors(&self) -> u32 {
        self.nodes.count()
    }

    /// Bytes that executors have fetched so far from each other and from storage, and what tasks
    /// have read; nothing else is counted.
    pub fn outcome(&self) -> &RunOutcome {
        self.world.metrics.outcome()
    }

    /// The time of the next thing that happens by itself.
    pub fn next_at(&mut self) -> Option<Ns> {
        [self.world.agenda.next_at(), self.nodes.next_end()].into_iter().flatten().min()
    }

    /// A command of the dispatcher arrives at an executor. The farm has advanced to this moment.
    pub fn command(&mut self, executor: u32, command: FarmCommand) {
        let World { tasks, holds, agenda, .. } = &mut self.world;
        let what = match command {
            FarmCommand::Assign { task, attempt, holders } => {
                let inputs = &tasks[task].inputs;
                let hints = holders.into_iter().filter_map(|(object, holders)| {
                    let input = inputs.iter().position(|input| *input == object)? as u32;
                    Some(Hint { input, holders })
                });
                let hints = hints.collect();
                tasks.assign(task, hints, attempt, agenda.now());
                ExecutorEvent::Assigned { task }
            }
            FarmCommand::Recall { task } => ExecutorEvent::Recall { task },
            FarmCommand::Cancel { task } => ExecutorEvent::Cancel { task },
            FarmCommand::Hold { object, holders } => {
                holds.insert(executor, object, holders);
                ExecutorEvent::Hold { object }
            }
            FarmCommand::Release { object } => ExecutorEvent::Release { object },
            FarmCommand::Verify { object } => ExecutorEvent::Verify { object },
        };
        self.nodes.handle(executor, what, &mut self.world);
    }

    /// Lets everything happen that happens until `now`, and appends what executors report, in
    /// order, each with its number.
    pub fn advance(&mut self, now: Ns, reports: &mut Vec<(u32, FarmReport)>) {
        self.nodes.settle();
        while let Some(next) = self.next_at().filter(|next| *next <= now) {
            self.world.agenda.advance(next);
            while let Some(event) = self.world.agenda.next_event() {
                self.handle(event, reports);
            }
            self.nodes.end_flows(&mut self.world);
            self.nodes.settle();
        }
        self.world.agenda.advance(now);
    }

    fn handle(&mut self, event: SimEvent, reports: &mut Vec<(u32, FarmReport)>) {
        match event {
            SimEvent::FactArrives(fact) => {
                let executor = fact.executor().expect("only executors speak in a farm");
                reports.extend(self.report(executor, fact).map(|report| (executor, report)));
            }
            SimEvent::AtExecutor { executor, what } => {
                self.nodes.handle(executor, what, &mut self.world);
            }
            SimEvent::OfFetch { fetch, asked, what } => {
                self.nodes.handle_fetch(fetch, asked, what, &mut self.world);
            }
            _ => unreachable!("nothing else happens in a farm"),
        }
    }

    fn report(&self, executor: u32, fact: SimFact) -> Option<FarmReport> {
        let tasks = &self.world.tasks;
        Some(match fact {
            SimFact::Ended { task, ran_us, end, .. } => {
                let (attempt, reads) = (tasks[task].attempt, tasks[task].reads);
                let end = match end {
                    End::Succeeded => FarmEnd::Succeeded,
                    End::Killed => FarmEnd::Cancelled,
                    End::Refused | End::NoRoom => FarmEnd::Refused,
                    End::Failed | End::Starved => unreachable!("no task fails in a farm"),
                };
                FarmReport::Ended { task, attempt, ran_us, reads, end }
            }
            SimFact::Returned { task, .. } => {
                FarmReport::Returned { task, attempt: tasks[task].attempt }
            }
            SimFact::Fetched { object, from, took_us, .. } => {
                FarmReport::Fetched { object, from, took_us }
            }
            SimFact::Stored { object, .. } => FarmReport::Stored { object },
            SimFact::NotHeld { object, .. } => FarmReport::NotHeld { object },
            SimFact::Evicted { object, .. } => FarmReport::Evicted { object },
            SimFact::Staging { .. } => FarmReport::Load(self.nodes.get(executor)?.load()),
            SimFact::Copy { .. } => unreachable!("executors of a farm make no derived copies"),
            SimFact::Ready
            | SimFact::Gone { .. }
            | SimFact::Retiring { .. }
            | SimFact::Left { .. } => {
                unreachable!("executors of a farm stay")
            }
        })
    }
}
