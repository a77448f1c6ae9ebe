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
//! [`Jobs`] routes events to parts; each has fields that no other part changes, and gets what else
//! it needs as arguments. A part that finds that tasks end, may run or leave the queue returns
//! them, and [`Jobs`] carries that out (`ends.rs`, `requests.rs`).
//!
//! | part | file | decides |
//! | --- | --- | --- |
//! | `JobTable` | `job_table.rs` | which jobs are remembered, and which of them are in memory |
//! | | `records.rs` | what is written of them, and delivered |
//! | `ReadyQueue` | `queueing.rs` | when tasks of new jobs, and freed tasks, are queued |
//! | | `refusals.rs` | when a task that no executor could take is offered again, or fails |
//! | `Lineage` | `lineage.rs` | which kept outputs are held |
//! | | `lineage/lost.rs` | which of them are missing, and which tasks make them again |
//! | | `lineage/borrowing.rs` | which are held because tasks of other jobs read them |
//! | `Reuse` | `reuse.rs` | which results of earlier jobs stand for new ones |
//! | `PresentExecutors` | `executors.rs` | which executors leave |
//! | | `health.rs` | which executors are set aside, and for how long |
//! | `Retention` | `retention.rs` | snapshots, which ended jobs are in memory, or are forgotten |
//!
//! | file | decides |
//! | --- | --- |
//! | `dependencies.rs` | what tasks wait for, found when a job is checked |
//! | `ends.rs` | what an end means: retries, refusals, dependents |
//! | `halting.rs` | when a job stops because all its tasks fail in the same way |
//! | `losses.rs` | which tasks an executor's loss is counted against |
//! | `requests.rs` | how jobs come, change and go |
//! | `log.rs` | what is durable, and what it means when it is read again |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod claims;
mod config;
mod dependencies;
mod ends;
mod event;
mod executors;
mod halting;
mod health;
mod items;
mod job;
mod job_end;
mod job_table;
mod jobs;
mod lineage;
mod log;
mod losses;
mod queueing;
mod records;
mod refusals;
mod requests;
mod retention;
mod reuse;
mod spec;
mod step;
mod task_ending;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use dependencies::Dependencies;
pub use event::{Effect, Event, JobsAction, SchedulerOrder};
pub use halting::{EQUAL_FAILURES, halted_by};
pub use items::Items;
pub use job::{
    Job, JobSnapshot, JobSummary, NewJob, Phase, RetainedOutput, TaskState, output_bytes,
};
pub use job_end::JobEnd;
pub use jobs::Jobs;
pub use lineage::{MAX_RECOMPUTATIONS, RETURN_GRACE_US};
pub use log::{Entry, JournalRecord, Replay};
pub use losses::{MAX_INTERRUPTIONS, MAX_LOSSES};
pub use retention::MAX_UNCOVERED;
pub use spec::{
    Compile, Extension, InvalidExpression, JobSpec, MAX_TERMS, SpecError, StoredNumber, TaskError,
};
