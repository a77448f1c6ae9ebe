//! Names of a cluster's files, `lfn://NAME`: listed and changed.

use std::path::PathBuf;

use eyas_client::types::named::check_name;
use eyas_client::types::{Name, NameChange, Sha256};
use eyas_client::{Client, bare_name, change_names, find_names, url_of_place};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::cluster_error::error;
use crate::objects::object;
use crate::session::cluster_of;
use crate::waiting::wait_once;

/// Places of a name: the name, its places, and the size and the SHA-256 of the content.
type Entry = (PyBackedBytes, Vec<PyBackedBytes>, Option<u64>, Option<String>);

/// Registers places of files under names, or removes places; without a place, it removes the name.
/// All changes are made, or none.
#[pyfunction]
#[pyo3(signature = (entries, *, removes=false, cluster=None, access=None))]
pub fn change_file_names(
    py: Python<'_>,
    entries: Vec<Entry>,
    removes: bool,
    cluster: Option<String>,
    access: Option<PathBuf>,
) -> PyResult<u64> {
    let changes = entries.iter().map(|entry| change_of(entry, removes));
    let changes = changes.collect::<PyResult<Vec<_>>>()?;
    let access = cluster_of(access, cluster).and_then(|cluster| cluster.access()).map_err(error)?;
    let changing = async {
        let mut client = Client::connect(&access).await.map_err(error)?;
        change_names(&mut client, changes).await.map_err(error)
    };
    wait_once(py, changing)
}

fn change_of((name, places, size_bytes, sha256): &Entry, removes: bool) -> PyResult<NameChange> {
    let name = bare_name(&Name::from(&name[..]));
    let place = |place: &PyBackedBytes| url_of_place(&Name::from(&place[..])).map_err(error);
    let places = places.iter().map(place).collect::<PyResult<Vec<_>>>()?;
    if removes {
        return Ok(NameChange::Unregister { name, places });
    }
    check_name(&name).map_err(error)?;
    let sha256 = sha256.as_deref().map(str::parse::<Sha256>).transpose().map_err(error)?;
    Ok(NameChange::Register { name, places, size_bytes: *size_bytes, sha256 })
}

/// The files whose names match a pattern; all of them without one.
#[pyfunction]
#[pyo3(signature = (pattern=None, *, cluster=None, access=None))]
pub fn file_names<'py>(
    py: Python<'py>,
    pattern: Option<PyBackedBytes>,
    cluster: Option<String>,
    access: Option<PathBuf>,
) -> PyResult<Bound<'py, PyAny>> {
    let pattern = pattern.map(|pattern| bare_name(&Name::from(&pattern[..])));
    let access = cluster_of(access, cluster).and_then(|cluster| cluster.access()).map_err(error)?;
    let finding = async {
        let mut client = Client::connect(&access).await.map_err(error)?;
        find_names(&mut client, pattern.as_ref()).await.map_err(error)
    };
    object(py, &serde_json::to_value(wait_once(py, finding)?).map_err(error)?)
}
