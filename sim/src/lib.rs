//! A simulated cluster: the dispatcher's and the executors' own deciders (`eyas-sched`, `eyas-node`) on modelled clocks,
//! disks and networks.
//!
//! What is decided here is decided by the code that real clusters run. The simulator owns what surrounds it: when
//! something happens, how long it takes, and who is told of it when. It must never choose a task, a node, a source or an
//! object to evict. The same seed gives the same run, on any machine.

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

pub use run::{MAX_TASKS, all_local_s, run, run_audited, run_watched};
