//! Events of the simulated world, and the messages of executors to their dispatchers.

use eyas_provision::NodeRequestId;
use eyas_types::{CopyNews, Origin};

/// An event of the simulated world.
#[derive(Clone, Copy, Debug)]
pub(super) enum SimEvent {
    /// The next task of the workload arrives.
    TaskArrives,
    /// A message of an executor arrives at its dispatcher.
    FactArrives(SimFact),
    /// A dispatcher has finished a decision, and can read its next message.
    DecisionEnds { dispatcher: u32 },
    /// Something happens at an executor, unless the executor is gone.
    AtExecutor { executor: u32, what: ExecutorEvent },
    /// An executor goes, unless it is gone.
    Goes { executor: u32, how: Departure },
    /// Something happens to a fetch, unless it has asked another source since or has ended.
    OfFetch { fetch: u32, asked: u32, what: FetchEvent },
    /// The regular report of outstanding work reaches the provisioner.
    WorkReport,
    /// A timeout of the provisioner has passed.
    ProvisionerTimeout,
    /// The batch system grants the nodes of a request, or reports that the request failed.
    RequestAnswered { request: NodeRequestId },
    /// The walltime of a node is over: the batch system ends it.
    WalltimeOver { machine: u32, holding: u32 },
    /// A machine that was lost comes back.
    MachineBack { machine: u32 },
    /// An executor connects again.
    ExecutorRejoins { machine: u32 },
    /// A timeout of a dispatcher's `core/jobs` has passed.
    JobsTimeout { dispatcher: u32 },
    /// The oldest journal entry in flight is on disk, unless the dispatcher has died since.
    OnDisk { dispatcher: u32, deaths: u32 },
    /// A dispatcher dies.
    DispatcherDies { dispatcher: u32 },
    /// A dispatcher is started again.
    DispatcherRestarts { dispatcher: u32 },
    /// A request of the client arrives at a dispatcher.
    ClientRequest { dispatcher: u32, request: u32 },
}

/// What happens at an executor: a message of its dispatcher arrives, or an attempt at a task goes
/// on.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExecutorEvent {
    /// An assigned task arrives.
    Assigned { task: u32 },
    /// The request to give back a task arrives.
    Recall { task: u32 },
    /// The request to cancel a task arrives.
    Cancel { task: u32 },
    /// The request to hold an object arrives.
    Hold { object: u32 },
    /// The message that an object need not be held any longer arrives.
    Release { object: u32 },
    /// The request to check for an object arrives.
    Verify { object: u32 },
    /// An attempt at a task has read its inputs and computed.
    Computed { task: u32, attempt: u32 },
    /// The answer to the request for a derived copy arrives: where to fetch the copy, or that it is
    /// to be made.
    Derive { copy: u32 },
    /// An attempt at a task has made a derived copy.
    Made { task: u32, attempt: u32, copy: u32 },
    /// An attempt at a task is killed.
    Killed { task: u32, attempt: u32 },
}

/// How an executor goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Departure {
    /// Its node is lost with its tasks and its store.
    Lost,
    /// Its connection to the dispatcher breaks.
    Disconnected,
    /// It asks to leave in good order.
    Retires,
    /// It asked to leave, and is told that it may.
    Stops,
}

/// What happens to a fetch.
#[derive(Clone, Copy, Debug)]
pub(super) enum FetchEvent {
    /// The request for the object arrives at the source.
    Requested,
    /// The source did not receive in time the object that it was expected to relay.
    RelayTimeout,
    /// All sources have failed.
    Fails,
}

/// A message of an executor to its dispatcher, or a fact about it.
#[derive(Clone, Copy, Debug)]
pub(super) enum SimFact {
    Ready,
    Ended { executor: u32, task: u32, ran_us: u32, end: End },
    Returned { executor: u32, task: u32 },
    Fetched { executor: u32, object: u32, from: Origin, took_us: u32 },
    Stored { executor: u32, object: u32 },
    NotHeld { executor: u32, object: u32 },
    Evicted { executor: u32, object: u32 },
    Copy { executor: u32, object: u32, news: CopyNews },
    Staging { executor: u32, lent_milli: u32, light_bytes: u64 },
    Gone { executor: u32 },
    Retiring { executor: u32 },
    Left { executor: u32 },
}

/// How an attempt at a task ended on its executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Succeeded,
    /// The program failed.
    Failed,
    Killed,
    /// A kept input could not be fetched from any executor.
    Starved,
    /// The store is too small for the inputs.
    Refused,
    /// The store has no room at present for the inputs or the outputs.
    NoRoom,
}

impl SimFact {
    /// The executor that the fact is about.
    pub fn executor(self) -> Option<u32> {
        match self {
            SimFact::Ready => None,
            SimFact::Ended { executor, .. }
            | SimFact::Returned { executor, .. }
            | SimFact::Fetched { executor, .. }
            | SimFact::Stored { executor, .. }
            | SimFact::NotHeld { executor, .. }
            | SimFact::Evicted { executor, .. }
            | SimFact::Copy { executor, .. }
            | SimFact::Staging { executor, .. }
            | SimFact::Gone { executor }
            | SimFact::Retiring { executor }
            | SimFact::Left { executor } => Some(executor),
        }
    }
}
