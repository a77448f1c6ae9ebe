//! Provisioning: how many nodes are asked of a batch system when, and which are given back (data-diffusion §2.1).
//!
//! [`Provisioner`] is a pure state machine beside the [scheduler](crate::Scheduler): it hears how much there is to do and
//! which nodes there are, and says what to ask for, what to withdraw, and who shall leave. A policy says how many nodes
//! the work is for, and how they are asked for: batch systems grant small requests sooner and few requests sooner.
//!
//! Adding a policy touches its own file and [`of`].

mod additive;
mod all_at_once;
mod demand;
mod exponential;
mod measured;
mod one_at_a_time;
mod provisioner;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;

use eyas_types::{ExecutorId, ProvisioningPolicy};

pub use measured::Measured;
pub use provisioner::{MAX_AWAY, MAX_REQUESTS, Provisioner};

/// How a provisioner decides.
#[derive(Clone, Debug)]
pub struct Config {
    /// The policy.
    pub policy: ProvisioningPolicy,
    /// Nodes that are there always, as far as they are granted.
    pub min_nodes: u32,
    /// No more than so many are asked for.
    pub max_nodes: u32,
    /// Tasks that a node can run at the same time.
    pub slots: u32,
    /// For how long each node is asked for, microseconds.
    pub walltime_us: u64,
    /// So long before its walltime ends a node is given no more tasks, and another is asked for, microseconds.
    pub notice_us: u64,
    /// A node leaves after so long without a task (30 s in the paper), microseconds.
    pub idle_us: u64,
    /// `demand` has what waits done in so long, microseconds: ten seconds, for which people wait before they turn to something
    /// else (Nielsen, Usability Engineering, 1993), unless they say otherwise.
    pub target_us: u64,
    /// Nothing is asked for so long after a request has failed; twice as long after each further one, microseconds.
    pub backoff_us: u64,
    /// But never for longer than this, microseconds.
    pub max_backoff_us: u64,
}

impl Default for Config {
    fn default() -> Self {
        const MINUTE_US: u64 = 60_000_000;
        Config {
            policy: ProvisioningPolicy::Demand,
            min_nodes: 0,
            max_nodes: 100,
            slots: 1,
            walltime_us: 60 * MINUTE_US,
            notice_us: 2 * MINUTE_US,
            idle_us: MINUTE_US / 2,
            target_us: MINUTE_US / 6,
            backoff_us: 5_000_000,
            max_backoff_us: 10 * MINUTE_US,
        }
    }
}

/// What there is to do, and how long such things take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tasks that wait for a slot.
    pub waiting: u64,
    /// Tasks that have one.
    pub running: u64,
    /// All tasks that ever came.
    pub arrived: u64,
    /// How long a task has its slot, on average, microseconds; 0 if that is not known yet.
    pub task_us: u64,
    /// How long a node's link is busy with what a task lacks, on average, microseconds.
    pub transfer_us: u64,
    /// How long a node is there for each task that ends, as far as tasks wait for what had to leave a full store, microseconds.
    pub again_us: u64,
    /// Nodes that hold what tasks read and persistent storage could not give in their place.
    pub holding: u64,
}

/// A request for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is so much to do. Told about once a second, and when much has changed.
    Work(Work),
    /// A node is there, without a task.
    NodeJoined {
        /// Its executor.
        node: ExecutorId,
        /// The request that it was granted for, also if that was withdrawn too late. `None`: somebody else started it, and it
        /// is not ours to give back.
        request: Option<RequestId>,
        /// The executor that it was until it was said to have left, if it is one that has found the way back.
        was: Option<ExecutorId>,
    },
    /// A node has a task.
    NodeBusy {
        /// Which.
        node: ExecutorId,
    },
    /// A node has none any more.
    NodeIdle {
        /// Which.
        node: ExecutorId,
    },
    /// A node that was to leave can, as [`Scheduler::is_emptied`](crate::Scheduler::is_emptied) says.
    NodeEmptied {
        /// Which.
        node: ExecutorId,
    },
    /// A node is gone, for whatever reason; it may come back.
    NodeLeft {
        /// Which.
        node: ExecutorId,
    },
    /// What has not come yet of a request is not going to.
    RequestFailed {
        /// Which.
        request: RequestId,
    },
    /// It is as late as [`Provisioner::next_timeout`] said.
    TimePassed,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask for nodes.
    Request {
        /// The request's id, never used before.
        request: RequestId,
        /// How many.
        nodes: u32,
        /// For how long, microseconds.
        walltime_us: u64,
    },
    /// Take back a request, as far as it has not been granted.
    Withdraw {
        /// Which.
        request: RequestId,
    },
    /// Give a node no more tasks, have others hold what only it has that is needed, then say `NodeEmptied`.
    Drain {
        /// Which.
        node: ExecutorId,
    },
    /// Give a node back.
    Release {
        /// Which.
        node: ExecutorId,
    },
}

/// One provisioning policy.
pub trait Provisioning: Send {
    /// For how many nodes of so many slots there is work, when so many tasks come in a microsecond.
    fn wanted(&self, work: &Work, _arriving_per_us: f64, slots: u32) -> u64 {
        (work.waiting + work.running).div_ceil(slots.into())
    }

    /// How many nodes the next request is for, at most, after `earlier` ones since there were last enough.
    fn request(&self, earlier: u32) -> u32;

    /// Whether nodes leave that are not idle, when fewer would have been enough all the time.
    fn consolidates(&self) -> bool {
        false
    }
}

/// The policy of that name.
pub fn of(policy: ProvisioningPolicy, target_us: u64) -> Box<dyn Provisioning> {
    match policy {
        ProvisioningPolicy::OneAtATime => Box::new(one_at_a_time::OneAtATime),
        ProvisioningPolicy::Additive => Box::new(additive::Additive),
        ProvisioningPolicy::Exponential => Box::new(exponential::Exponential),
        ProvisioningPolicy::AllAtOnce => Box::new(all_at_once::AllAtOnce),
        ProvisioningPolicy::Demand => Box::new(demand::Demand { target_us }),
    }
}

/// Nobody asks for a node because of what rounding left.
const NEARLY_NOTHING: f64 = 1e-6;

fn round_up(nodes: f64) -> u64 {
    let whole = nodes as u64;
    whole + u64::from(nodes - whole as f64 > NEARLY_NOTHING)
}
