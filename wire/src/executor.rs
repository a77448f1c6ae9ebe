//! Between dispatcher and executor. Commands go down, facts come up.

use std::net::SocketAddr;

use eyas_types::dfs::{FileSystemId, NodeId};
use eyas_types::matching::Labels;
use eyas_types::{
    ExecutorId, ExecutorLoad, JobId, Name, ObjectId, ObjectSpec, Origin, Outcome, PlaceId, Resources, TaskId,
    TaskTemplate, Value,
};
use serde::{Deserialize, Serialize};

use crate::trust::{SecretText, Trust};

/// Facts from an executor, in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromExecutor {
    /// Its first message.
    Register(Box<Registration>),
    /// It is alive; sent regularly.
    Heartbeat {
        /// Bytes that its disk has for inputs and sandboxes: what is free, and what its store could give up.
        free_disk_bytes: u64,
    },
    /// Its store has an object.
    Stored {
        /// Which.
        object: ObjectId,
        /// Its size.
        size_bytes: u64,
    },
    /// It has fetched an object, and is about to say that its store has it.
    Fetched {
        /// Which.
        object: ObjectId,
        /// From where.
        from: Origin,
        /// How long that took, microseconds.
        took_us: u64,
    },
    /// Its store no longer has an object.
    Evicted {
        /// Which.
        object: ObjectId,
    },
    /// It does not have an object that it was to hold, and cannot.
    NotHeld {
        /// Which.
        object: ObjectId,
        /// Why, for a person.
        reason: String,
    },
    /// It has done with a task.
    Ended {
        /// Which.
        task: TaskId,
        /// Which try, as assigned.
        attempt: u32,
        /// What became of it.
        outcome: Box<Outcome>,
    },
    /// It gives a recalled task back unstarted.
    Returned {
        /// Which.
        task: TaskId,
        /// Which try, as assigned.
        attempt: u32,
    },
    /// A task is about to let its outputs appear at these places. Answered by `Claimed`.
    Claim {
        /// Which.
        task: TaskId,
        /// Which try, as assigned.
        attempt: u32,
        /// Where, each place once.
        places: Vec<PlaceId>,
    },
    /// It has looked at outputs in persistent storage.
    Checked {
        /// Of which task.
        task: TaskId,
        /// Whether all of them are there as they were written.
        is_unchanged: bool,
    },
    /// It has to leave, and holds objects that others may not have: it stays until it is told to stop.
    Retiring,
    /// How its load stands, told when what it stages or has suspended changes, and now and then.
    Load(ExecutorLoad),
    /// It has suspended a task, for one of higher priority.
    Suspended {
        /// Which.
        task: TaskId,
    },
    /// A suspended task goes on.
    Resumed {
        /// Which.
        task: TaskId,
    },
    /// It leaves in good order: nothing runs any more.
    Leaving,
}

/// What an executor is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Name for people, usually the host's.
    pub name: String,
    /// The host's name.
    pub host: String,
    /// Its labels, which expressions of tasks ask for.
    pub labels: Labels,
    /// Which tasks it accepts, as a match expression; any if there is none.
    pub accept: Option<String>,
    /// Its process on that host.
    pub process: u32,
    /// The name of that process, which no other has; its tasks carry it.
    pub incarnation: String,
    /// What it has for tasks.
    pub capacity: Resources,
    /// Bytes its store may hold.
    pub store_bytes: u64,
    /// Where peers fetch from its store.
    pub transfer: SocketAddr,
    /// Its part in the file system, if it has one.
    pub files: Option<FilesNode>,
    /// What its store holds from earlier.
    pub held: Vec<(ObjectId, u64)>,
}

/// A node of the file system, in an executor's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesNode {
    /// Which.
    pub node: NodeId,
    /// Where it takes sessions.
    pub address: SocketAddr,
    /// Of which file system it is, if it has joined one.
    pub system: Option<FileSystemId>,
}

/// Where a node of the file system belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesPlace {
    /// The cluster's file system.
    pub system: FileSystemId,
    /// Whether it is this node that begins it, if it has not.
    pub founds: bool,
    /// Where some of the others are.
    pub nodes: Vec<SocketAddr>,
}

/// Commands to an executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToExecutor {
    /// The answer to its registration.
    Welcome {
        /// Its id from now on.
        executor: ExecutorId,
        /// Whether it keeps what it reads (all policies but first-available).
        caching: bool,
        /// How often it must be heard of.
        heartbeat_us: u64,
        /// For so long after it sent a heartbeat that was answered, its silence alone does not have its tasks given to
        /// others.
        lease_us: u64,
        /// Where its node of the file system belongs, if it has one.
        files: Option<FilesPlace>,
    },
    /// It may not be an executor of this cluster: why, for a person. The last message.
    Refused(String),
    /// The key to prove itself with from now on; the one that it has is about to end.
    Key {
        /// Its certificate, PEM.
        certificate: String,
        /// The key itself, PEM.
        key: SecretText,
    },
    /// What the cluster trusts from now on.
    Trust(Box<Trust>),
    /// The token of a job, an access file for its tasks; before the first template of the job.
    Token {
        /// Which job.
        job: JobId,
        /// The access file.
        access: SecretText,
    },
    /// The answer to a heartbeat.
    Heard,
    /// A template that assignments will name.
    Template {
        /// The job.
        job: JobId,
        /// Its place in the job's templates.
        template: u16,
        /// The template.
        spec: Box<TaskTemplate>,
    },
    /// A task to run.
    Assign(Assignment),
    /// A task to give back if it has not started.
    Recall {
        /// Which.
        task: TaskId,
    },
    /// A task to kill.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// An object to hold: to fetch if it is not there, and not to evict. Answered by `Stored`, or by `NotHeld`.
    Hold {
        /// Which.
        object: ObjectSpec,
        /// Peers that may have it, the first to be tried first.
        holders: Vec<PeerHint>,
    },
    /// An object that need not be held any longer.
    Release {
        /// Which.
        object: ObjectId,
    },
    /// An object that others could not get. Answered by `Evicted` if it is damaged or not there.
    Verify {
        /// Which.
        object: ObjectId,
    },
    /// The answer to a claim.
    Claimed {
        /// Of which task.
        task: TaskId,
        /// The first place that another task of the job has, and that task's index; none if all places are the task's
        /// own.
        by_other: Option<(PlaceId, u32)>,
    },
    /// Outputs in persistent storage to look at. Answered by `Checked`.
    Check {
        /// The task that writes them.
        task: TaskId,
        /// What was there when they were written.
        objects: Vec<ObjectSpec>,
    },
    /// A job whose templates are no longer needed.
    ForgetJob {
        /// Which.
        job: JobId,
    },
    /// What an executor on the same host has left running, which was lost: its tasks are others' now. To be killed, if
    /// that executor is not there.
    EndLeftovers {
        /// Its name, as in its registration.
        incarnation: String,
    },
    /// Kill what runs, and leave.
    Stop,
}

/// A task for an executor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// Which.
    pub task: TaskId,
    /// How often it was assigned before.
    pub attempt: u32,
    /// Place in the job's templates; sent before.
    pub template: u16,
    /// What its placeholders stand for.
    pub values: Vec<Value>,
    /// Its inputs, the template's first.
    pub inputs: Vec<AssignedInput>,
}

/// An input of an assigned task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AssignedInput {
    /// The object.
    pub object: ObjectSpec,
    /// Its name in the sandbox; the last component of its source where this is `None`.
    pub name: Option<Name>,
    /// Peers that may give it, the first to be tried first.
    pub holders: Vec<PeerHint>,
}

/// A peer that may give an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerHint {
    /// Where it gives objects.
    pub transfer: SocketAddr,
    /// It is receiving the object itself, or about to.
    pub is_relay: bool,
    /// To how many others it gives objects.
    pub others: u32,
}
