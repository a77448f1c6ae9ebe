//! A simulated cluster: the deciders of dispatchers and executors (`core/jobs`, `core/sched`,
//! `core/node`) on modelled clocks, disks and networks.
//!
//! Every decision is made by the code that real clusters run. The simulator owns the world around
//! that code: when an event happens, how long it takes, and which process learns of it when. The
//! simulator must never choose a task, a node, a source or an object to evict. The same seed gives
//! the same run on any machine.

#![forbid(unsafe_code)]

pub mod arrival;
pub mod audit;
pub mod bound;
pub mod caching;
pub mod clock;
pub mod cluster;
pub mod file;
pub mod flows;
pub mod index;
pub mod model;
pub mod nodes;
pub mod outcome;
pub mod paper;
pub mod random;
mod run;
pub mod scenario;
pub mod trace;
pub mod workload;

pub use run::{
    ExecutorFarm, FarmCommand, FarmEnd, FarmReport, MAX_TASKS, all_local_s, run, run_audited,
    run_watched, with_farm,
};
