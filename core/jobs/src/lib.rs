//! The life of jobs: what may run, what is tried again, what is made again, what is over, and what
//! must be durable.
//!
//! [`Jobs`] is a pure state machine: facts come in as [`Event`]s with the time at which they are
//! told, what is to be done goes out as [`Effect`]s, and the same events give the same effects. It
//! must never read a clock, block, or know which executor a task is best placed on: that is
//! `core/sched`, which it never meets. The shell passes what one decider says on to the other.
//!
//! Everything that must survive a crash is a [`JournalRecord`]: a job as it was submitted, and the
//! [`Entry`]s of what happened to it. Applying a job's entries in their order ([`Replay`]) gives
//! the same job again.
//!
//! | file | decides |
//! | --- | --- |
//! | `queueing.rs` | which tasks may run, and when a new job's tasks are queued |
//! | `dependencies.rs` | what tasks wait for, found when a job is checked |
//! | `ends.rs` | what an end means: retries, refusals, dependents |
//! | `losses.rs` | which tasks an executor's loss is counted against |
//! | `health.rs` | which executors are set aside, and for how long |
//! | `lineage.rs` | which kept outputs are missing, and which tasks make them again |
//! | `borrowing.rs` | which kept outputs are held because tasks of other jobs read them |
//! | `reuse.rs` | which results of earlier jobs stand for new ones |
//! | `refusals.rs` | when a task that no executor could take is offered again, and when it fails |
//! | `requests.rs` | cancel, retry and release |
//! | `attached.rs` | jobs that belong to a client's connection, which adds tasks while they run |
//! | `retention.rs` | snapshots, which ended jobs are in memory, and which are forgotten |
//! | `log.rs` | what is durable, and what it means when it is read again |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod attached;
mod borrowing;
mod claims;
mod dependencies;
mod ends;
mod event;
mod health;
mod items;
mod job;
mod jobs;
mod lineage;
mod log;
mod losses;
mod queueing;
mod refusals;
mod requests;
mod retention;
mod reuse;
mod spec;
#[cfg(test)]
mod tests;

pub use dependencies::Dependencies;
pub use event::{Effect, Event, JobsAction, SchedulerOrder};
pub use items::Items;
pub use job::{
    Job, JobSnapshot, JobSummary, NewJob, Phase, RetainedOutput, TaskState, output_bytes,
};
pub use jobs::{Config, Jobs};
pub use lineage::{MAX_RECOMPUTATIONS, RETURN_GRACE_US};
pub use log::{Entry, JobEnd, JournalRecord, Replay};
pub use losses::{MAX_INTERRUPTIONS, MAX_LOSSES};
pub use retention::MAX_UNCOVERED;
pub use spec::{
    Compile, Extension, InvalidExpression, JobSpec, MAX_TERMS, SpecError, StoredNumber, TaskError,
};
