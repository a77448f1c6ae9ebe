//! What became of a task.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::id::{PlaceId, TaskId};
use crate::object::ObjectSpec;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Exit code 0 and every output delivered.
    Succeeded,
    /// Another exit code.
    Exited(i32),
    /// Killed by a signal that eyas did not send.
    Signalled(i32),
    /// Ran past its time limit and was killed.
    TimedOut,
    /// Cancelled by its user.
    Cancelled,
    /// Did not run, or what it wrote could not be delivered; says what, where, and what to do.
    Failed(Failure),
}

/// Why eyas itself could not bring a task to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The kind, which decides whether another node or another try can help.
    pub kind: FailureKind,
    /// A message for people, which names the object or file and the node, and says what to do.
    pub reason: String,
}

/// Kinds of [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// An input is nowhere to be had.
    Input,
    /// An input is not the version that the job was promised.
    InputChanged,
    /// The program could not be started.
    Start,
    /// An output is missing or could not be written.
    Output,
    /// This node cannot take the task (too small a store, a fault of its own): another may.
    Node,
    /// A task whose output this one needs has failed.
    Dependency,
    /// No executor can ever run it, or none could for so long that it was given up.
    Unplaceable,
    /// An input that is kept in the cluster alone could not be had: it is made again, or the task tries again.
    Lost,
    /// This node has no room for the task now (full disk, no file descriptors left): another may, and later this one
    /// too.
    NodeFull,
    /// Another task of the job has an output at the place of one of its outputs.
    Claimed,
}

impl FailureKind {
    /// Whether trying again can help. `Node` and `NodeFull` are not counted as a try at all.
    pub fn is_retryable(self) -> bool {
        matches!(self, FailureKind::Input | FailureKind::Output | FailureKind::Node | FailureKind::NodeFull)
    }
}

impl Status {
    /// Whether the task succeeded.
    pub fn is_success(&self) -> bool {
        matches!(self, Status::Succeeded)
    }

    /// Whether a retry, if the task has any left, can help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Status::Succeeded | Status::Cancelled => false,
            Status::Exited(_) | Status::Signalled(_) | Status::TimedOut => true,
            Status::Failed(failure) => failure.kind.is_retryable(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Succeeded => f.write_str("succeeded"),
            Status::Exited(code) => write!(f, "exit code {code}"),
            Status::Signalled(signal) => write!(f, "killed by signal {signal}"),
            Status::TimedOut => f.write_str("timed out"),
            Status::Cancelled => f.write_str("cancelled"),
            Status::Failed(failure) => write!(f, "failed: {}", failure.reason),
        }
    }
}

/// How many inputs came from one kind of place, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Inputs.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    /// Adds one input of `bytes`.
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

impl core::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Amount) {
        self.count += other.count;
        self.bytes += other.bytes;
    }
}

/// The source from which a node got an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// It was in the node's store already.
    Local,
    /// A peer's store.
    Peer,
    /// Persistent storage.
    Persistent,
}

/// Reads of inputs by source: the paper's cache hit local, cache hit global, cache miss (data-diffusion §5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// This node's own store.
    pub local: Amount,
    /// A peer's store.
    pub peer: Amount,
    /// Persistent storage.
    pub persistent: Amount,
}

impl Reads {
    /// All bytes read.
    pub fn bytes(&self) -> u64 {
        self.local.bytes + self.peer.bytes + self.persistent.bytes
    }

    /// All inputs read.
    pub fn count(&self) -> u64 {
        self.local.count + self.peer.count + self.persistent.count
    }
}

impl core::ops::AddAssign for Reads {
    fn add_assign(&mut self, other: Reads) {
        self.local += other.local;
        self.peer += other.peer;
        self.persistent += other.persistent;
    }
}

/// An executor's report on one attempt at a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// From arrival at the executor to its start: waiting for a slot and for inputs.
    pub waited_us: u64,
    /// From start to end of its process, and delivery of its outputs, less what it was suspended for.
    pub ran_us: u64,
    /// How long it was suspended, for tasks of higher priority.
    pub suspended_us: u64,
    /// Processor time of the process and its waited-for children.
    pub cpu_us: u64,
    /// Reads of its inputs, by source.
    pub reads: Reads,
    /// Captured standard output.
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    /// Captured standard error.
    #[serde(with = "serde_bytes")]
    pub stderr: Vec<u8>,
    /// Bytes of stdout and stderr that were past the bound and are lost.
    pub cut_bytes: u64,
    /// Delivered files, in the order of the template's outputs; the files of a glob follow each other.
    pub outputs: Vec<Delivered>,
    /// The task did not run: this is the result of another that did the same.
    pub reused: Option<TaskId>,
    /// The estimate when the task was placed, under policies that estimate.
    pub estimate: Option<Estimate>,
}

/// One file written to persistent storage, or kept in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Place in the template's outputs.
    pub output: u16,
    /// The place of the file, and its version there.
    pub object: ObjectSpec,
    /// The place that the task has claimed for it; none of what is in the cluster alone, or where the job says it is.
    pub place: Option<PlaceId>,
}

/// A task's end, as its job's books have it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Index in its job.
    pub index: u32,
    /// How often it had been assigned before.
    pub attempt: u32,
    /// The executor's name.
    pub executor: String,
    /// Microseconds from submission of the job to the task's assignment (`WQ` of data-diffusion §5.1.7 counts from when
    /// the task could run).
    pub queued_us: u64,
    /// Microseconds for delivery of task and result: what is neither queue nor executor.
    pub delivery_us: u64,
    /// The executor's report.
    pub outcome: Outcome,
}

impl Outcome {
    /// An outcome with nothing but a status.
    pub fn of(status: Status) -> Self {
        Outcome {
            status,
            waited_us: 0,
            ran_us: 0,
            suspended_us: 0,
            cpu_us: 0,
            reads: Reads::default(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            cut_bytes: 0,
            outputs: Vec::new(),
            reused: None,
            estimate: None,
        }
    }

    /// A failure of eyas's own.
    pub fn failed(kind: FailureKind, reason: impl Into<String>) -> Self {
        Outcome::of(Status::Failed(Failure { kind, reason: reason.into() }))
    }
}

/// How an executor has done with a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// For good.
    Finished,
    /// It is to be tried again, anywhere.
    Again,
    /// It was given back before it started.
    Returned,
    /// It failed here within moments: another executor tries it next, if there is one that takes tasks and has not
    /// tried it.
    Elsewhere,
    /// This executor cannot take it; another may.
    Refused,
}
