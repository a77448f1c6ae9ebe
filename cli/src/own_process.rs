//! This process, and the other processes of eyas that it starts.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;

use crate::error::CliError;

/// What a process prints when it can be used. Before that, it prints what the user should know, line by line.
pub(crate) const READY: &str = "ready";
/// Number of tries to remove a folder that other processes write to, and the pause between two of them.
const REMOVE_TRIES: usize = 100;
const REMOVE_EVERY: Duration = Duration::from_millis(10);

/// The path of this program, for the other processes that it starts.
pub(crate) fn own_path() -> Result<String, CliError> {
    let path = std::env::current_exe()?;
    path.into_os_string().into_string().map_err(|path| format!("the path {path:?} of eyas is not valid UTF-8").into())
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Peers keep connections open; the usual soft limit of 1,024 descriptors is too few for them.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays as it is: {e}");
    }
}

/// Removes a folder in which other processes may be removing theirs at this moment.
pub(crate) async fn remove_folder(folder: &Path) {
    for _ in 0..REMOVE_TRIES {
        match std::fs::remove_dir_all(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => sleep(REMOVE_EVERY).await,
            _ => return,
        }
    }
    tracing::warn!("cannot remove {}", folder.display());
}
