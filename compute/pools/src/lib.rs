//! Pools: nodes that are requested from batch systems when tasks wait, and given back when they are
//! idle.
//!
//! The shell of [`eyas_provision`], which decides: the shell runs the commands, writes the files
//! and reads the clock. One task, the actor ([`PoolsHandle::start`]), has the state of all pools.
//! Commands of batch systems run in tasks of their own and send their results to the actor, so no
//! command delays another pool or the dispatcher. The dispatcher publishes its state and receives
//! orders ([`ClusterState`], [`PoolOrder`]).
//!
//! It must never decide where a task runs, how many nodes the work is worth, or what becomes of a
//! request.
//!
//! | module | contents |
//! | --- | --- |
//! | `cluster` | what pools and the dispatcher tell each other |
//! | `actor` | all pools: answers to clients, states of requests, the work that each pool is told |
//! | `pool` | one pool: what its decider is told, and what it says; the pool's files |
//! | `request`, `script` | one request, its folder and its script |
//! | `lone_job` | a batch job for a dispatcher |
//! | `batch_system` | what a batch system must do |
//! | `systems`, `batch_command` | the batch systems and their commands |

#![forbid(unsafe_code)]

mod actor;
mod batch_command;
mod batch_error;
mod batch_system;
mod clock;
mod cluster;
mod lone_job;
mod pool;
mod request;
mod script;
mod store;
mod systems;

pub use actor::{PoolsAnswer, PoolsConfig, PoolsError, PoolsHandle};
pub use batch_error::BatchError;
pub use cluster::{ClusterState, MAX_POOLS, PoolOrder};
pub use eyas_provision::{FittingWork, NodeShape, PoolNodeState};
pub use lone_job::{LoneCommand, LoneJob, LoneState};
