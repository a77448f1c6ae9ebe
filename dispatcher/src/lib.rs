//! The dispatcher: accepts jobs, keeps the queue and the catalog, places tasks.
//!
//! The shell around [`eyas_sched::Scheduler`], which decides. One task, the brain, owns all state and
//! never waits; around it are a task for each connection and the journal's thread. What a client was told is on disk:
//! a job is accepted, and a result shown, only once the journal has it, so that `kill -9` loses neither.

#![forbid(unsafe_code)]

mod answers;
mod brain;
mod client_session;
mod executor_session;
mod executors;
mod job;
mod journal;
mod refusals;
mod serve;

pub use serve::{Config, DispatcherError, Running, start};
