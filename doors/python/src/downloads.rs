//! Downloads of files that calls keep in the cluster.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use eyas_client::types::{JobId, Name};
use eyas_client::{Client, Cluster, DownloadFolder, GetRequest, ScratchFolder};
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::cluster_error::error;
use crate::waiting::{ProcessConnection, runtime_of_threads, wait};

/// Threads that receive.
const THREADS: usize = 1;

/// Time for which a dispatcher that cannot be reached is dialled again.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum number of connections that wait for the next download.
const MAX_IDLE: usize = 4;

/// What downloads use again.
#[derive(Default)]
struct DownloadPool {
    /// Connections that wait for the next download.
    idle: Mutex<Vec<Client>>,
    results: OnceLock<ResultFolder>,
}

/// A folder for results. Making folders takes longer than the download of a small result.
struct ResultFolder {
    hidden: DownloadFolder,
    /// Dropped last: the other one is in it.
    place: ScratchFolder,
}

impl ResultFolder {
    /// Makes one inside of a folder; without it, where Python makes temporary files: Python passes
    /// over folders that do not exist.
    fn make(py: Python<'_>, above: Option<&Path>) -> PyResult<Self> {
        let above = match above {
            Some(above) => above.to_owned(),
            None => py.import("tempfile")?.call_method0("gettempdir")?.extract::<PathBuf>()?,
        };
        let place = ScratchFolder::make(&above, "results")?;
        let hidden = DownloadFolder::inside(place.path()).map_err(error)?;
        Ok(ResultFolder { hidden, place })
    }
}

/// The connections over which files of one cluster are downloaded. They are kept, because dialling
/// takes longer than the download of a small file.
pub(crate) struct Downloads {
    cluster: Cluster,
    /// Where the folder for results is made.
    above_results: Option<PathBuf>,
    /// Those of the process that has made them.
    used: Mutex<Option<Arc<ProcessConnection<DownloadPool>>>>,
}

impl Downloads {
    pub fn new(cluster: Cluster, above_results: Option<PathBuf>) -> Self {
        Downloads { cluster, above_results, used: Mutex::default() }
    }

    /// Downloads a file of a task into a folder.
    pub fn fetch(
        &self,
        py: Python<'_>,
        job: JobId,
        task: u32,
        file: Name,
        folder: PathBuf,
    ) -> PyResult<()> {
        let hidden = DownloadFolder::inside(&folder).map_err(error)?;
        let connected = self.connected()?;
        self.fetch_through(py, &connected, &hidden, request(job, task, file, folder))
    }

    /// Downloads the result of a task, and returns its path. It is the caller's to remove.
    pub fn fetch_result(
        &self,
        py: Python<'_>,
        job: JobId,
        task: u32,
        file: Name,
    ) -> PyResult<OsString> {
        let connected = self.connected()?;
        let (_, DownloadPool { results, .. }) = parts(&connected);
        if results.get().is_none() {
            // If two threads make one, one of them is dropped.
            let _ = results.set(ResultFolder::make(py, self.above_results.as_deref())?);
        }
        let Some(results) = results.get() else { unreachable!("it was set") };
        let to = results.place.path().to_owned();
        let path = to.join(OsStr::from_bytes(file.as_bytes()));
        self.fetch_through(py, &connected, &results.hidden, request(job, task, file, to))?;
        Ok(path.into_os_string())
    }

    fn fetch_through(
        &self,
        py: Python<'_>,
        connected: &ProcessConnection<DownloadPool>,
        hidden: &DownloadFolder,
        request: GetRequest,
    ) -> PyResult<()> {
        let (runtime, DownloadPool { idle, .. }) = parts(connected);
        let download = async {
            let known = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut client = match known {
                Some(client) => client,
                None => {
                    let access = self.cluster.access().map_err(|why| why.to_string())?;
                    Client::connect(&access).await.map_err(|why| why.to_string())?
                }
            };
            client
                .get_through(hidden, &request, PATIENCE, |_| ())
                .await
                .map_err(|why| why.to_string())?;
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MAX_IDLE {
                idle.push(client);
            }
            Ok::<(), String>(())
        };
        wait(py, runtime, download)?.map_err(error)
    }

    /// Ends the connections.
    pub fn close(&self) {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(used);
    }

    fn connected(&self) -> PyResult<Arc<ProcessConnection<DownloadPool>>> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        match used.as_ref().filter(|connected| connected.parts().is_some()) {
            Some(connected) => Ok(connected.clone()),
            None => {
                let runtime = runtime_of_threads(THREADS).map_err(error)?;
                let connected = Arc::new(ProcessConnection::new(runtime, DownloadPool::default()));
                Ok(used.insert(connected).clone())
            }
        }
    }
}

fn parts(connected: &ProcessConnection<DownloadPool>) -> (&Runtime, &DownloadPool) {
    connected.parts().unwrap_or_else(|| unreachable!("it was made by this process"))
}

fn request(job: JobId, task: u32, file: Name, to: PathBuf) -> GetRequest {
    GetRequest { job, task: Some(task), files: vec![file], to, replaces: true }
}
