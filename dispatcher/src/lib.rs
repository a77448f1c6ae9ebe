//! The dispatcher: accepts jobs, keeps the queue and the catalog, places tasks.
//!
//! The shell around [`eyas_jobs::Jobs`], which decides what becomes of jobs, and [`eyas_sched::Scheduler`], which decides
//! where tasks run. One task, the core, owns all state and
//! never waits; around it are a task for each connection and the journal's thread. What a client was told of a
//! job is on disk: that it is accepted, cancelled or run again, how far it is, and each result. `kill -9` makes none of
//! it untrue.

#![forbid(unsafe_code)]

mod answers;
mod client_session;
mod clock;
mod dispatcher_core;
mod durable_replies;
mod executor_session;
mod executors;
mod expressions;
mod journal;
mod keys;
mod rights;
mod serve;
mod trace;

pub use keys::KeysError;
pub use serve::{DispatcherConfig, DispatcherError, Running, start};
