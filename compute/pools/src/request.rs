//! The plan of a request for nodes, and its folder on disk: the script, what the nodes print, and
//! the request's state.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eyas_provision::{BatchJobId, PoolRequest, request_name};
use eyas_wire::pool::PoolOptions;

use crate::batch_error::BatchError;

/// File with the state of a request.
const STATE: &str = "request.toml";

/// File with the script of a request.
pub(crate) const SCRIPT: &str = "script.sh";

/// File with the name of the host of a request, which its script writes if the batch system does
/// not name it.
pub(crate) const HOST_FILE: &str = "host";

/// The mark of a plan that is tried and never submitted.
pub(crate) const TRIED_MARK: &str = "try";

/// What is requested.
#[derive(Clone, Debug)]
pub(crate) struct RequestPlan {
    pub pool: String,
    pub number: u64,
    pub nodes: u32,
    /// The part of the request's name that no other request has, also none of another dispatcher
    /// or an earlier pool.
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
    /// Name of the request in the batch system, by which the request is looked for. No option of
    /// the user replaces it.
    pub fn name(&self) -> String {
        request_name(&self.pool, self.number, &self.mark)
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
        access(&self.folder)
    }
}

/// Makes a folder that only its owner can use.
pub(crate) fn make_private_folder(folder: &Path) -> Result<(), BatchError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|why| BatchError::file(folder, &why))
}

/// A mark for a new job of no pool.
pub(crate) fn new_mark() -> String {
    format!("{:08x}", random() & 0xffff_ffff)
}

/// A random number.
pub(crate) fn random() -> u64 {
    // Each `RandomState` has keys from the system's source of randomness.
    RandomState::new().hash_one(0)
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
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// A submitted request, as its batch system knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchJob {
    /// The batch system's id.
    pub id: String,
    /// The cluster of the batch system, if there are several.
    pub cluster: Option<String>,
    /// The request's folder.
    pub folder: PathBuf,
}

impl BatchJob {
    /// The part of it that is the batch system's.
    pub fn into_id(self) -> BatchJobId {
        BatchJobId { id: self.id, cluster: self.cluster }
    }
}

/// Path of the access file for the nodes of a request, in its folder.
pub(crate) fn access(folder: &Path) -> PathBuf {
    folder.join("access.toml")
}

/// Writes the state of a request into its folder.
pub(crate) fn save(request: &PoolRequest, folder: &Path) -> Result<(), BatchError> {
    make_private_folder(folder)?;
    let path = folder.join(STATE);
    let text =
        toml::to_string(request).map_err(|e| BatchError::file(&path, &io::Error::other(e)))?;
    write_private(&path, text.as_bytes(), 0o600).map_err(|why| BatchError::file(&path, &why))
}

/// Reads the state of a request from its folder.
pub(crate) fn load(folder: &Path) -> Result<PoolRequest, BatchError> {
    let path = folder.join(STATE);
    let text = std::fs::read_to_string(&path).map_err(|why| BatchError::file(&path, &why))?;
    toml::from_str(&text).map_err(|e| BatchError::file(&path, &io::Error::other(e)))
}
