//! Runs over elastic blocks of files, for `Executor.map_blocks` (elastic-blocks §3.2).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_client::files::blocks::DEFAULT_TERM_US;
use eyas_client::files::{FilesErrorKind, RunAddress};
use eyas_client::types::dfs::FileName;
use eyas_client::{BlockRun, BlockWorker, ClusterFilesError, cluster_files};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::time::{Instant, sleep};

use crate::files::{self, FilesConnection, FilesSession};

/// How often the leader of a run is asked whether it is complete.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// A run over the blocks of files.
#[pyclass(frozen)]
pub struct FilesRun {
    connection: Arc<FilesConnection>,
    run: Arc<BlockRun>,
    /// The files, in the order of the run; empty in a worker.
    #[pyo3(get)]
    files: Vec<String>,
}

#[pymethods]
impl FilesRun {
    /// Opens a run over the files that match patterns, for about this number of workers.
    #[staticmethod]
    fn open(py: Python<'_>, session: &FilesSession, patterns: Vec<String>, workers: u32) -> PyResult<Self> {
        let connection = session.connection();
        let (_, files) = connection.parts()?;
        let mut names = Vec::<FileName>::new();
        for pattern in patterns {
            names.extend(connection.wait_for(py, cluster_files(files, &pattern))?.map_err(name_error)?);
        }
        let run = connection.wait(py, BlockRun::open(files.clone(), &names, workers, DEFAULT_TERM_US))?;
        let names = names.iter().map(|name| name.as_str().to_owned()).collect();
        Ok(FilesRun { connection: connection.clone(), run: Arc::new(run), files: names })
    }

    /// Joins a run that another process has opened, by its address.
    #[staticmethod]
    fn join(py: Python<'_>, session: &FilesSession, address: &str) -> PyResult<Self> {
        let connection = session.connection();
        let address = address.parse::<RunAddress>().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let run = connection.wait(py, BlockRun::join(connection.parts()?.1.clone(), address))?;
        Ok(FilesRun { connection: connection.clone(), run: Arc::new(run), files: Vec::new() })
    }

    /// The address, by which other processes join.
    #[getter]
    fn address(&self) -> String {
        self.run.address().to_string()
    }

    /// The folder of its outputs.
    #[getter]
    fn folder(&self) -> String {
        self.run.address().run.folder()
    }

    /// Number of chunks of all files.
    #[getter]
    fn chunks(&self) -> u32 {
        self.run.chunks()
    }

    /// Waits until all chunks are committed, or for `timeout_s`. Returns the number of chunks that are not, and the
    /// names of the outputs.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<(u32, Vec<String>)> {
        let status = self.connection.wait(py, async {
            let deadline = Instant::now() + Duration::from_secs_f64(timeout_s);
            loop {
                let status = self.run.status().await?;
                if status.is_complete || Instant::now() >= deadline {
                    return Ok(status);
                }
                sleep(STATUS_INTERVAL).await;
            }
        })?;
        let missing = if status.is_complete { 0 } else { self.chunks().saturating_sub(status.committed_chunks).max(1) };
        Ok((missing, self.run.outputs(&status).iter().map(|name| name.as_str().to_owned()).collect()))
    }

    /// Begins a block, which has no piece at first.
    fn begin(&self, py: Python<'_>) -> PyResult<FilesBlock> {
        let worker = self.connection.wait(py, self.run.begin())?;
        Ok(FilesBlock { connection: self.connection.clone(), worker: Mutex::new(Some(Arc::new(worker))) })
    }

    /// Ends the run, and removes its outputs.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.connection.wait(py, self.run.close())
    }
}

/// A block of a run: the pieces that one worker processes and commits together.
#[pyclass(frozen)]
pub struct FilesBlock {
    connection: Arc<FilesConnection>,
    /// `None` when it was committed or left.
    worker: Mutex<Option<Arc<BlockWorker>>>,
}

#[pymethods]
impl FilesBlock {
    /// The next piece: its file, its place there, and its content. `None` if the block has no more. `False` if other
    /// workers have processed the block: its results are to be discarded.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let worker = self.worker().clone().ok_or_else(over)?;
        let next = self.connection.wait_for(py, worker.next())?;
        match next {
            Ok(None) => Ok(py.None().into_bound(py)),
            Ok(Some(piece)) => {
                let content = PyBytes::new(py, &piece.content);
                (piece.file.as_str(), piece.offset, content).into_bound_py_any(py)
            }
            Err(error) if error.kind == FilesErrorKind::Changed => false.into_bound_py_any(py),
            Err(error) => Err(files::os_error(error)),
        }
    }

    /// Commits the output of all pieces of the block. Returns whether it counts.
    fn commit(&self, py: Python<'_>, output: Vec<u8>) -> PyResult<bool> {
        self.connection.wait(py, self.take()?.commit(output))
    }

    /// Gives the pieces that are not committed to other workers.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let worker = self.take()?;
        self.connection.wait(py, async {
            worker.leave().await;
            Ok(())
        })
    }
}

impl FilesBlock {
    fn worker(&self) -> MutexGuard<'_, Option<Arc<BlockWorker>>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> PyResult<BlockWorker> {
        self.worker().take().and_then(Arc::into_inner).ok_or_else(over)
    }
}

fn over() -> PyErr {
    PyOSError::new_err("this block was committed or left, or another thread uses it: begin another one")
}

fn name_error(error: ClusterFilesError) -> PyErr {
    match error {
        ClusterFilesError::Client(error) => files::connect_error(error),
        ClusterFilesError::NoMatch(_) => PyFileNotFoundError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}
