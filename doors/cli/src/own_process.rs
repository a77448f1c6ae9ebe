//! This process, and the other processes of eyas that it starts.

use std::env;
use std::ffi::OsString;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use eyas_session::private::temporary_folder;
use tokio::time::sleep;

use crate::error::CliError;

/// The line that a process prints when it is ready. Lines before it are messages for the user.
pub(crate) const READY: &str = "ready";
/// The folder in a cluster's folder through which its executors share the state of what they
/// emulate.
pub(crate) const EMULATED: &str = "emulated";
/// Number of attempts to remove a folder to which other processes write.
const REMOVE_TRIES: usize = 100;
/// Time between two attempts to remove a folder.
const REMOVE_EVERY: Duration = Duration::from_millis(10);

/// The command line, and the path of the program if it is not the file that this process executes.
static OWN: OnceLock<(Vec<OsString>, Option<PathBuf>)> = OnceLock::new();

/// Remembers the command line, with the name of the program, and the path of the program if it is
/// not the file that this process executes. A process has one command line.
pub(crate) fn set_own(words: &[OsString], path: Option<PathBuf>) {
    let _ = OWN.set((words.to_vec(), path));
}

/// The words after the name of the program.
pub(crate) fn own_words() -> impl Iterator<Item = OsString> {
    OWN.get().into_iter().flat_map(|(words, _)| words.iter().skip(1).cloned())
}

/// The path of this program, for the other processes that it starts.
pub(crate) fn own_path() -> Result<String, CliError> {
    let path = OWN.get().and_then(|(_, path)| path.clone()).map_or_else(env::current_exe, Ok)?;
    path.into_os_string()
        .into_string()
        .map_err(|path| format!("the path {path:?} of eyas is not valid UTF-8").into())
}

/// The folder of this user on this node for the agents of coordinated I/O and the library that
/// programs load.
pub(crate) fn io_runtime_folder() -> PathBuf {
    match env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("eyas-io"),
        None => temporary_io_folder(),
    }
}

/// The folder for the same content in the temporary folder, for nodes without a usable runtime
/// folder.
pub(crate) fn temporary_io_folder() -> PathBuf {
    temporary_folder().join(format!("eyas-io-{}", rustix::process::getuid().as_raw()))
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Refuses a folder that is to be removed at the end, but has other content than the access file of
/// the cluster. Executors of the same cluster may have begun their folders in it: `n1`, `n2` and so
/// on, and [`EMULATED`].
pub(crate) fn refuse_used(folder: &Path, access: &Path) -> Result<(), CliError> {
    let Ok(mut entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let is_of_executor = |name: &str| {
        name == EMULATED
            || name.strip_prefix('n').is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let is_own = |entry: &DirEntry| {
        entry.path() == access || entry.file_name().to_str().is_some_and(is_of_executor)
    };
    match entries.find(|entry| !entry.as_ref().is_ok_and(is_own)) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{} is not empty, and --ephemeral would remove all of it at the end: name a new folder",
            folder.display()
        )
        .into()),
    }
}

/// Removes a folder in which other processes may be removing their own folders at the same time.
pub(crate) async fn remove_folder(folder: &Path) {
    for _ in 0..REMOVE_TRIES {
        match std::fs::remove_dir_all(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => sleep(REMOVE_EVERY).await,
            _ => return,
        }
    }
    tracing::warn!("cannot remove {}", folder.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_executors_do_not_count_as_content_of_a_user() {
        for (name, is_refused) in [
            ("access.toml", false),
            ("n1", false),
            ("n12", false),
            (EMULATED, false),
            ("n", true),
            ("notes", true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join(name)).unwrap();
            assert_eq!(
                refuse_used(folder.path(), &folder.path().join("access.toml")).is_err(),
                is_refused,
                "{name}"
            );
        }
        assert!(refuse_used(Path::new("/nowhere"), Path::new("/nowhere/access.toml")).is_ok());
    }
}
