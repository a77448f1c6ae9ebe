//! A request for nodes, and its folder on disk: the script, what the nodes print, and the request's state.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyas_wire::pool::PoolOptions;
use eyas_wire::view::pool::NodeRequestView;
use serde::{Deserialize, Serialize};

use crate::batch_command::BatchError;
use crate::script;
use crate::systems::BatchSystem;

/// A request that the batch system does not know this many times in a row is over.
pub(crate) const MAX_UNKNOWN: u32 = 3;

/// File with the state of a request.
const STATE: &str = "request.toml";

/// File with the script of a request.
pub(crate) const SCRIPT: &str = "script.sh";

/// File with the name of the host of a request, which its script writes if the batch system does not name it.
pub(crate) const HOST_FILE: &str = "host";

/// What is requested.
#[derive(Clone, Debug)]
pub(crate) struct RequestPlan {
    pub pool: String,
    pub number: u64,
    pub nodes: u32,
    /// The part of the request's name that no other request has, also none of another dispatcher or an earlier pool.
    pub mark: String,
    pub options: Arc<PoolOptions>,
    /// Hosts that are not to be used, because requests have failed there.
    pub excluded: Vec<String>,
    /// The request's own folder.
    pub folder: PathBuf,
    /// The `eyas` program.
    pub eyas: PathBuf,
}

impl RequestPlan {
    /// Name of the request in the batch system, by which the request is looked for. No option of the user replaces it.
    pub fn name(&self) -> String {
        format!("eyas-{}-{}-{}", self.pool, self.number, self.mark)
    }

    /// Path of the script.
    pub fn script(&self) -> PathBuf {
        self.folder.join(SCRIPT)
    }

    /// Path of the file with the name of the host.
    pub fn host_file(&self) -> PathBuf {
        self.folder.join(HOST_FILE)
    }

    /// Path of the access file for the nodes.
    pub fn access(&self) -> PathBuf {
        self.folder.join("access.toml")
    }

    /// Makes the folder with script and access file.
    pub fn write(&self, system: &dyn BatchSystem, access: &str) -> Result<(), BatchError> {
        let cannot = |path: &Path| {
            let path = path.to_owned();
            move |why| BatchError::file(&path, &why)
        };
        make_private_folder(&self.folder)?;
        write_private(&self.access(), access.as_bytes(), 0o600).map_err(cannot(&self.access()))?;
        let text = script::text(self, system);
        write_private(&self.script(), text.as_bytes(), 0o700).map_err(cannot(&self.script()))
    }
}

/// Makes a folder that only its owner can use.
pub(crate) fn make_private_folder(folder: &Path) -> Result<(), BatchError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|why| BatchError::file(folder, &why))
}

/// A mark for a new request.
pub(crate) fn new_mark() -> String {
    // Each `RandomState` has keys from the system's source of randomness.
    format!("{:08x}", RandomState::new().hash_one(0) & 0xffff_ffff)
}

/// Writes a file that only the owner can read: all of it, or none.
pub(crate) fn write_private(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write;
    let new = path.with_extension("new");
    // A file that a crash left may have another mode.
    match std::fs::remove_file(&new) {
        Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// A submitted request, as its batch system knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchJob {
    /// The batch system's id.
    pub id: String,
    /// The cluster of the batch system, if there are several.
    pub cluster: Option<String>,
    /// The request's folder.
    pub folder: PathBuf,
}

/// Legal moves: `Submitting → Pending → Running → Ended`; from each of them to `Ended`, and from `Running` back to
/// `Pending` when the batch system queues the request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RequestPhase {
    Submitting,
    Pending,
    Running,
    Ended,
}

impl RequestPhase {
    pub fn name(self) -> &'static str {
        match self {
            RequestPhase::Submitting => "submitting",
            RequestPhase::Pending => "pending",
            RequestPhase::Running => "running",
            RequestPhase::Ended => "ended",
        }
    }
}

/// The state of a request, as it is kept on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PoolRequest {
    pub nodes: u32,
    pub phase: RequestPhase,
    /// Number of nodes that ever joined.
    pub joined: u32,
    /// No node of the request is wanted any longer.
    pub is_withdrawn: bool,
    /// It ended before a node joined, and was not withdrawn.
    pub has_failed: bool,
    pub requested_unix_ms: u64,
    /// See [`RequestPlan::mark`].
    #[serde(default)]
    pub mark: String,
    /// The request in the batch system, once it is submitted.
    pub job: Option<BatchJob>,
    /// What the batch system says of it.
    pub says: Option<String>,
    /// The host on which it runs or ran, if the batch system says it and it is one host.
    pub host: Option<String>,
    /// Number of its nodes that are connected.
    #[serde(skip)]
    pub present: u32,
    /// Time from which a node that should have joined, or an end that should have come, is overdue, microseconds.
    #[serde(skip)]
    pub waits_since_us: Option<u64>,
    /// Number of times in a row that the batch system did not know it.
    #[serde(skip)]
    pub unknown: u32,
    /// Whether its submission is over, and it is not known whether the batch system has the request.
    #[serde(skip)]
    pub is_unclear: bool,
}

impl PoolRequest {
    pub fn new(nodes: u32, now_unix_ms: u64) -> Self {
        PoolRequest {
            nodes,
            phase: RequestPhase::Submitting,
            joined: 0,
            is_withdrawn: false,
            has_failed: false,
            requested_unix_ms: now_unix_ms,
            mark: new_mark(),
            job: None,
            says: None,
            host: None,
            present: 0,
            waits_since_us: None,
            unknown: 0,
            is_unclear: false,
        }
    }

    /// Number of nodes that may still join.
    pub fn missing(&self) -> u32 {
        if self.phase == RequestPhase::Ended || self.is_withdrawn { 0 } else { self.nodes.saturating_sub(self.joined) }
    }

    pub fn is_over(&self) -> bool {
        self.phase == RequestPhase::Ended && self.present == 0
    }

    /// Whether a node that joins now is of no use.
    pub fn is_unwanted(&self) -> bool {
        (self.is_withdrawn || self.phase == RequestPhase::Ended) && self.present == 0
    }

    /// Writes the state into the request's folder.
    pub fn save(&self, folder: &Path) -> Result<(), BatchError> {
        make_private_folder(folder)?;
        let path = folder.join(STATE);
        let text = toml::to_string(self).map_err(|e| BatchError::file(&path, &io::Error::other(e)))?;
        write_private(&path, text.as_bytes(), 0o600).map_err(|why| BatchError::file(&path, &why))
    }

    /// Reads the state from a request's folder.
    pub fn load(folder: &Path) -> Result<Self, BatchError> {
        let path = folder.join(STATE);
        let text = std::fs::read_to_string(&path).map_err(|why| BatchError::file(&path, &why))?;
        toml::from_str(&text).map_err(|e| BatchError::file(&path, &io::Error::other(e)))
    }

    pub fn view(&self, number: u64) -> NodeRequestView {
        NodeRequestView {
            request: number,
            job: self.job.as_ref().map(|job| job.id.clone()),
            nodes: self.nodes,
            joined: self.joined,
            state: self.phase.name().into(),
            says: self.says.clone(),
            host: self.host.clone(),
            requested_unix_ms: self.requested_unix_ms,
            has_failed: self.has_failed,
        }
    }
}
