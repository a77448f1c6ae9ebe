//! Folders in which Python finds what it runs: code and pickles.

use std::path::PathBuf;

use eyas_client::{PrivateError, PrivateFolder, trusted};
use pyo3::exceptions::PyPermissionError;
use pyo3::prelude::*;

/// Mode of folders that are made. Nodes may run as another user, who reads them.
const OPEN_TO_READERS: u32 = 0o755;

/// Checks a folder in which files are read by name, and makes it if it is missing. Raises an
/// `OSError` if another user could replace a file of this user in it. With `is_own`, only this user
/// may write to it.
#[pyfunction]
#[pyo3(signature = (path, *, is_own=false))]
pub fn trusted_folder(path: PathBuf, is_own: bool) -> PyResult<()> {
    let checked = trusted::folder(&path, OPEN_TO_READERS);
    let checked = checked
        .and_then(|real| if is_own { PrivateFolder::claim(&real).map(drop) } else { Ok(()) });
    checked.map_err(|why| match &why {
        PrivateError::Io { source, .. } => {
            std::io::Error::new(source.kind(), why.to_string()).into()
        }
        _ => PyPermissionError::new_err(why.to_string()),
    })
}
