//! Outcomes of tasks: status, times, reads, captured output and delivered files.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;
use crate::id::{PlaceId, TaskId};
use crate::object::ObjectSpec;
use crate::units::format_duration_us;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// The command has ended with exit code 0, and all outputs were delivered.
    Succeeded,
    /// The command has ended with another exit code.
    Exited(i32),
    /// The command was killed by a signal that eyas did not send.
    Signalled(i32),
    /// The command has exceeded its time limit and was killed.
    TimedOut,
    /// The task was cancelled by a user.
    Cancelled,
    /// Eyas could not run the task or deliver its outputs.
    Failed(Failure),
}

/// Why eyas could not run a task or deliver its outputs.
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
    /// No source of an input delivered it.
    Input,
    /// An input has changed since the job was submitted.
    InputChanged,
    /// The program could not be started.
    Start,
    /// An output is missing or could not be written.
    Output,
    /// This node cannot take the task, for instance because its store is too small. Another node
    /// may take it.
    Node,
    /// A task whose output this task reads has failed.
    Dependency,
    /// No executor can ever run the task, or none could for the configured time.
    Unplaceable,
    /// An input that only executors keep could not be fetched. The input is computed again, or the
    /// task tries again.
    Lost,
    /// This node has no room for the task now, for instance because its disk is full. Another node
    /// may take it, and later this node may.
    NodeFull,
    /// Another task of the job has claimed the destination of one of the outputs.
    Claimed,
    /// The task used more memory than it asked for, and was killed. It would do so again, so it is
    /// not retried.
    Memory,
}

/// What limits the time of a task: the option, and the key of a job file.
const TIMEOUT: &str = "--timeout (`timeout` in a job file)";

/// How the [`reason`](Failure::reason) of a task begins that never ran, because a task whose output
/// it reads did not succeed. What failed first is told by that task.
pub const NEEDS_OUTPUT: &str = "it needs an output of ";

impl FailureKind {
    /// Whether a retry can help. Failures of the kinds `Node` and `NodeFull` do not use up a retry.
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            FailureKind::Input | FailureKind::Output | FailureKind::Node | FailureKind::NodeFull
        )
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

/// Inputs from one kind of source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Number of inputs.
    pub count: u64,
    /// Bytes of all these inputs.
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

/// Kind of source that delivered an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The node's own store had the object already.
    Local,
    /// The store of another node.
    Peer,
    /// Persistent storage.
    Persistent,
    /// Files of the cluster, whose chunks are in stores of nodes.
    Files {
        /// Bytes that came from the executor's own node. The other bytes came from other nodes.
        own_bytes: u64,
    },
}

/// Inputs that were read from files of the cluster. A chunk that the node's own store has as an
/// object is not one of them: that is a local read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReads {
    /// Number of inputs.
    pub count: u64,
    /// Bytes of chunks on the executor's own node.
    pub own_bytes: u64,
    /// Bytes of chunks on other nodes.
    pub other_bytes: u64,
}

impl FileReads {
    /// All bytes of these inputs.
    pub fn bytes(&self) -> u64 {
        self.own_bytes + self.other_bytes
    }
}

/// Inputs by kind of source. The paper calls the kinds cache hit local, cache hit global and cache
/// miss (data-diffusion §5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// Inputs from the node's own store.
    pub local: Amount,
    /// Inputs from stores of other nodes.
    pub peer: Amount,
    /// Inputs from persistent storage.
    pub persistent: Amount,
    /// Inputs from files of the cluster.
    pub files: FileReads,
}

impl Reads {
    /// All bytes read.
    pub fn bytes(&self) -> u64 {
        self.local.bytes + self.peer.bytes + self.persistent.bytes + self.files.bytes()
    }

    /// All inputs read.
    pub fn count(&self) -> u64 {
        self.local.count + self.peer.count + self.persistent.count + self.files.count
    }

    /// Adds one input of `bytes`.
    pub fn add(&mut self, origin: Origin, bytes: u64) {
        match origin {
            Origin::Local => self.local.add(bytes),
            Origin::Peer => self.peer.add(bytes),
            Origin::Persistent => self.persistent.add(bytes),
            Origin::Files { own_bytes } => {
                self.files.count += 1;
                self.files.own_bytes += own_bytes.min(bytes);
                self.files.other_bytes += bytes.saturating_sub(own_bytes);
            }
        }
    }
}

impl core::ops::AddAssign for Reads {
    fn add_assign(&mut self, other: Reads) {
        self.local += other.local;
        self.peer += other.peer;
        self.persistent += other.persistent;
        self.files.count += other.files.count;
        self.files.own_bytes += other.files.own_bytes;
        self.files.other_bytes += other.files.other_bytes;
    }
}

/// Report of an executor about one attempt of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How the attempt ended.
    pub status: Status,
    /// Time from the task's arrival at the executor to its start: it waited for inputs and for a
    /// slot.
    pub waited_us: u64,
    /// Time from the start of the process until it had ended and its outputs were copied, without
    /// the time for which it was suspended. Outputs that are then synced and published outside of
    /// the task's slot count as delivery.
    pub ran_us: u64,
    /// Time for which the task was suspended in favour of tasks of higher priority.
    pub suspended_us: u64,
    /// Processor time of the process and the children that it has waited for.
    pub cpu_us: u64,
    /// Most memory that the processes of the task used together, without files that the kernel
    /// caches; 0 if unknown.
    pub peak_memory_bytes: u64,
    /// Where the inputs came from.
    pub reads: Reads,
    /// Captured standard output.
    #[serde(with = "serde_bytes")]
    pub stdout: Vec<u8>,
    /// Captured standard error.
    #[serde(with = "serde_bytes")]
    pub stderr: Vec<u8>,
    /// Bytes of standard output and standard error beyond the capture limit, which were discarded.
    pub cut_bytes: u64,
    /// Delivered files, in the order of the template's outputs. Files that match one glob follow
    /// each other.
    pub outputs: Vec<Delivered>,
    /// If the task did not run: the earlier task with the same command and inputs whose result was
    /// reused.
    pub reused: Option<TaskId>,
    /// With `cost` placement: the estimate at the time when the task was placed.
    pub estimate: Option<Estimate>,
}

impl Outcome {
    /// How the attempt ended, for people. `limit_us` is the task's limit on its time, if it is
    /// known.
    pub fn in_words(&self, limit_us: Option<u64>) -> String {
        self.in_words_about(limit_us, TIMEOUT)
    }

    /// The same for people who set the limit with this option.
    pub fn in_words_about(&self, limit_us: Option<u64>, option: &str) -> String {
        let ran = format_duration_us(self.ran_us);
        match (&self.status, limit_us.map(format_duration_us)) {
            (Status::TimedOut, Some(limit)) => {
                format!(
                    "timed out: it ran {ran} and may run {limit}: give it more time with {option}"
                )
            }
            (Status::TimedOut, None) => {
                format!("timed out after {ran}: give it more time with {option}")
            }
            (status, _) => status.to_string(),
        }
    }
}

/// The standard output of a call's task: the call's answer, and what it has printed.
pub fn call_output(mut answer: Vec<u8>, printed: &[u8]) -> Vec<u8> {
    answer.extend_from_slice(printed);
    answer.extend_from_slice(&(printed.len() as u64).to_le_bytes());
    answer
}

/// The answer of a call, and what it has printed, of the [standard output](call_output) of its
/// task. Both are empty if no worker has got the call.
pub fn split_call_output(stdout: &[u8]) -> (&[u8], &[u8]) {
    let Some((content, length)) = stdout.split_last_chunk::<8>() else { return (&[], &[]) };
    let printed = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    content.split_at(content.len().saturating_sub(printed))
}

/// A file that was written to persistent storage, or is kept in stores of executors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Index of the output in the template.
    pub output: u16,
    /// Location and version of the file.
    pub object: ObjectSpec,
    /// The place that the task has claimed for the file. `None` if the file is in stores of
    /// executors only, or if its destination was known before the task ran.
    pub place: Option<PlaceId>,
}

/// The end of a task, as its job records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Index of the task in its job.
    pub index: u32,
    /// Number of earlier assignments of the task.
    pub attempt: u32,
    /// Name of the executor.
    pub executor: String,
    /// Microseconds from submission of the job to the task's assignment. (`WQ` of data-diffusion
    /// §5.1.7 begins when the task can run.)
    pub queued_us: u64,
    /// Microseconds for sending the task to the executor, syncing outputs outside of its slot, and
    /// sending the result back.
    pub delivery_us: u64,
    /// The executor's report.
    pub outcome: Outcome,
}

impl Outcome {
    /// An outcome with this status; everything else is zero or empty.
    pub fn of(status: Status) -> Self {
        Outcome {
            status,
            waited_us: 0,
            ran_us: 0,
            suspended_us: 0,
            cpu_us: 0,
            peak_memory_bytes: 0,
            reads: Reads::default(),
            stdout: Vec::new(),
            stderr: Vec::new(),
            cut_bytes: 0,
            outputs: Vec::new(),
            reused: None,
            estimate: None,
        }
    }

    /// An outcome with the status [`Failed`](Status::Failed).
    pub fn failed(kind: FailureKind, reason: impl Into<String>) -> Self {
        Outcome::of(Status::Failed(Failure { kind, reason: reason.into() }))
    }
}

/// How an assignment of a task to an executor has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssignmentEnd {
    /// The task has ended, and will not run again.
    Finished,
    /// The task is retried, on any executor.
    Again,
    /// The task had started, and its executor was ended before it could end. It is tried again,
    /// behind other tasks.
    Interrupted,
    /// The executor gave the task back before it started.
    Returned,
    /// The task failed quickly on this executor. The retry goes to an executor that has not tried
    /// the task, if there is one that takes tasks.
    Elsewhere,
    /// This executor cannot take the task; another one may.
    Refused,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_of_the_cluster_counts_by_where_its_bytes_were() {
        let mut reads = Reads::default();
        reads.add(Origin::Peer, 5);
        reads.add(Origin::Files { own_bytes: 4 }, 10);
        reads.add(Origin::Files { own_bytes: 12 }, 10);
        assert_eq!(reads.files, FileReads { count: 2, own_bytes: 14, other_bytes: 6 });
        assert_eq!((reads.count(), reads.bytes()), (3, 25));
    }

    #[test]
    fn an_answer_and_what_was_printed_are_told_apart() {
        for (answer, printed) in [("", ""), ("answer", ""), ("", "printed"), ("answer", "printed")]
        {
            let stdout = call_output(answer.into(), printed.as_bytes());
            assert_eq!(split_call_output(&stdout), (answer.as_bytes(), printed.as_bytes()));
        }
        for stdout in [&b""[..], b"short", &[0xff; 20]] {
            assert!(split_call_output(stdout).0.is_empty(), "no call has this output");
        }
    }

    #[test]
    fn a_timeout_is_said_with_the_limit_and_the_time() {
        let outcome = Outcome { ran_us: 1_010_000, ..Outcome::of(Status::TimedOut) };
        let said = outcome.in_words(Some(1_000_000));
        assert_eq!(
            said,
            "timed out: it ran 1.01 s and may run 1.00 s: give it more time with --timeout \
             (`timeout` in a job file)"
        );
        let said = outcome.in_words_about(Some(500_000), "timeout");
        assert_eq!(
            said,
            "timed out: it ran 1.01 s and may run 500.0 ms: give it more time with timeout"
        );
        let said = outcome.in_words(None);
        assert_eq!(
            said,
            "timed out after 1.01 s: give it more time with --timeout (`timeout` in a job file)"
        );
        assert_eq!(Outcome::of(Status::Exited(3)).in_words(Some(5)), "exit code 3");
    }
}
