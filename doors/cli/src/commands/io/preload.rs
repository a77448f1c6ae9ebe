//! The library that `eyas io run` loads into programs: a file beside the command if there is one,
//! else the copy inside the command, which is written to a private folder.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use eyas_coordinator::agent;
use eyas_session::trusted;
use rustix::fs::StatVfsMountFlags;

use crate::error::CliError;
use crate::own_process::{io_runtime_folder, own_path, temporary_io_folder};

const LIBRARY: &str = "libeyas_preload.so";
/// The beginning of the names of its files.
const LIBRARY_NAME: &str = "libeyas_preload";
/// The content of the library, which `build.rs` has built.
const CONTENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libeyas_preload.so"));

/// The path of the library, for the loader.
pub(super) fn library() -> Result<PathBuf, CliError> {
    match beside_command()? {
        Some(library) => loadable(library),
        None => write_private(),
    }
}

/// Whether the loader has loaded the library into this process.
pub(super) fn is_loaded() -> bool {
    let is_it =
        |line: &str| line.rsplit_once('/').is_some_and(|(_, name)| name.starts_with(LIBRARY_NAME));
    fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.lines().any(is_it))
}

/// A library that was installed with the command: in the same folder, or in the folder for
/// libraries of packages. One that another user could replace is not loaded.
fn beside_command() -> Result<Option<PathBuf>, CliError> {
    let own = PathBuf::from(own_path()?);
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [
        folder.join(LIBRARY),
        folder.join("../lib/eyas").join(LIBRARY),
        folder.join("../lib").join(LIBRARY),
    ];
    Ok(places.iter().find_map(|place| trusted::file(place).ok()))
}

/// Writes the library to the first private folder from which the loader can load it.
fn write_private() -> Result<PathBuf, CliError> {
    let mut refusals = Vec::new();
    for folder in [io_runtime_folder(), temporary_io_folder()] {
        match write_to(&folder.join("lib")) {
            Ok(library) => return Ok(library),
            Err(error) => refusals.push(error.to_string()),
        }
    }
    refusals.dedup();
    Err(format!("cannot write {LIBRARY} for the loader: {}", refusals.join("; ")).into())
}

/// Writes the library to a folder. The name of the file has a hash of the content, so that
/// different versions of the command can be used at the same time.
fn write_to(folder: &Path) -> Result<PathBuf, CliError> {
    agent::make_folder(folder)?;
    if rustix::fs::statvfs(folder)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(format!(
            "{} is mounted with `noexec`: set TMPDIR to another folder",
            folder.display()
        )
        .into());
    }
    let library =
        loadable(folder.join(format!("libeyas_preload-{}.so", env!("EYAS_PRELOAD_HASH"))))?;
    let is_there = fs::read(&library).is_ok_and(|content| content == CONTENT);
    if !is_there {
        // Written to a temporary file first, so that no program loads an incomplete library.
        let mut file = tempfile::Builder::new().prefix(".eyas-").tempfile_in(folder)?;
        file.write_all(CONTENT)?;
        file.persist(&library)?;
    }
    Ok(library)
}

/// Refuses a path that the loader would split at a space or a colon.
fn loadable(library: PathBuf) -> Result<PathBuf, CliError> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "{} has a space or a colon in its path, and cannot be loaded",
            library.display()
        )
        .into());
    }
    Ok(library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_where_the_loader_finds_it() {
        assert!(loadable("/opt/eyas/lib/libeyas_preload.so".into()).is_ok());
        for path in ["/opt/my programs/libeyas_preload.so", "/opt/eyas:2/libeyas_preload.so"] {
            let error = loadable(path.into()).expect_err("it cannot be loaded").to_string();
            assert!(error.contains(path), "{error}");
        }
    }

    #[test]
    fn the_library_is_written_once_and_again_when_it_was_damaged() {
        let private = tempfile::tempdir().unwrap();
        let folder = private.path().join("eyas-io/lib");
        let library = write_to(&folder).unwrap();
        assert_eq!(fs::read(&library).unwrap(), CONTENT);
        fs::write(&library, "damaged").unwrap();
        assert_eq!(write_to(&folder).unwrap(), library);
        assert_eq!(fs::read(&library).unwrap(), CONTENT);
    }
}
