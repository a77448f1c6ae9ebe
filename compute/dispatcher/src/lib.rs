//! The dispatcher: accepts jobs, keeps queue, catalog and journal, and gives tasks to executors.
//!
//! It is the shell of two deciders: [`eyas_jobs::Jobs`] decides what becomes of jobs, and
//! [`eyas_sched::Scheduler`] decides where tasks run. One task, the core, owns all state and never
//! waits. Its parts, such as `records` and `pushes`, have fields of their own, and return what
//! follows from a change. Around the core are one task for each connection, and the journal's
//! thread. Everything that a client was told about a job is on disk: that it is accepted, cancelled
//! or run again, its progress, and each result. So `kill -9` makes none of it untrue.

#![forbid(unsafe_code)]

mod answers;
mod attached_clients;
mod client_session;
mod clock;
mod copies;
mod deadlines;
mod dispatcher_core;
mod durable_replies;
mod events;
mod executor_session;
mod executors;
mod expressions;
mod journal;
mod keys;
mod log;
mod names;
mod outgoing;
mod pools;
mod printed;
mod pushes;
mod records;
mod rights;
mod serve;
pub mod service;
mod sign_of_life;

pub use executors::NoSuchExecutor;
pub use journal::{JournalError, check_journal, kept_objects};
pub use keys::KeysError;
pub use names::{NameProblem, NamesError};
pub use pushes::PushError;
pub use rights::NotAllowed;
pub use serve::{DispatcherConfig, DispatcherError, RunningDispatcher, start};
