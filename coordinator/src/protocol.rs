//! What agents and the coordinator say to each other, in frames of `eyas_session`.

use std::collections::BTreeMap;
use std::time::Duration;

use eyas_ioq::{ClassId, GrantId, ServerStats};
use eyas_types::{Extent, Operation, StorageFileId};
use serde::{Deserialize, Serialize};

/// Both sides say something that often.
pub(crate) const BEAT: Duration = Duration::from_millis(200);
/// Who has said nothing for so long is taken for gone.
pub(crate) const SILENCE: Duration = Duration::from_millis(700);
/// Longest name of a storage, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 4096;
/// Storages that one agent may name.
pub(crate) const MAX_STORAGES: usize = 1024;

/// What an agent says, or who wants to know how things are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToCoordinator {
    /// From now on it calls the storage of that name by its next number, from 0 on.
    Storage(String),
    /// It wants turns.
    Ask(Vec<Wish>),
    /// It has done what it was granted, with so many bytes, in so long from when it heard of it.
    Done { storage: u32, grant: GrantId, bytes: u64, took_us: u64 },
    /// It does not want a turn any more.
    Cancel { storage: u32, request: u64 },
    /// Its programs go ahead at a storage from now on, or do not any more: order gains them nothing there.
    LeftAlone { storage: u32, is_left: bool },
    /// It is there.
    Alive,
    /// It wants to know how things are. Answered by [`ToAgent::Status`].
    Status,
}

/// A turn that an agent wants.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// The agent's; later ones have greater numbers.
    pub request: u64,
    pub storage: u32,
    pub class: ClassId,
    pub file: StorageFileId,
    pub operation: Operation,
    pub extent: Extent,
}

/// What an agent is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum ToAgent {
    /// Go with these, all together, and say when they are done.
    Granted { storage: u32, grant: GrantId, requests: Vec<u64> },
    /// Go, and say nothing more.
    Unordered { request: u64 },
    /// It has taken too long: others go.
    Revoked { storage: u32, grant: GrantId },
    /// Order these requests, whatever is gained by it: there are rules to be kept.
    Always { storage: u32 },
    /// The coordinator is there.
    Alive,
    /// How things are.
    Status(Status),
}

/// How things are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Agents that are there.
    pub agents: u64,
    /// What the classes are called that are treated apart.
    pub classes: BTreeMap<ClassId, String>,
    /// What became of the requests to each storage, by its name.
    pub storages: Vec<(String, ServerStats)>,
    /// How many agents leave their programs alone with a storage, by its name.
    pub left_alone: BTreeMap<String, u64>,
}
