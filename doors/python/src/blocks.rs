//! Runs over elastic blocks of files, for `Executor.map_blocks` (elastic-blocks §3.2).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_client::files::blocks::DEFAULT_TERM_US;
use eyas_client::files::{ChunkMemory, FilesErrorKind, RunAddress};
use eyas_client::types::dfs::FileName;
use eyas_client::{BlockRun, BlockWorker, ClusterFilesError, RunOptions, cluster_files_to_read};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use tokio::time::{Instant, sleep};

use crate::files::{self, FilesConnection, FilesSession};

/// How often the leader of a run is asked whether it is complete.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// How far a run is.
#[pyclass(frozen, get_all, module = "eyas._eyas")]
pub struct FilesRunStatus {
    /// Number of chunks that are not committed.
    missing_chunks: u32,
    /// Names of the outputs.
    outputs: Vec<String>,
}

/// Memory of the nodes in which chunks of files stay from run to run.
#[pyclass(frozen)]
pub struct FilesMemory {
    connection: Arc<FilesConnection>,
    /// `None` when it was released.
    memory: Mutex<Option<Arc<ChunkMemory>>>,
}

#[pymethods]
impl FilesMemory {
    /// Opens an account for up to this many bytes on each node.
    #[staticmethod]
    fn open(py: Python<'_>, session: &FilesSession, limit_bytes: u64) -> PyResult<Self> {
        let connection = session.connection();
        let memory = connection.wait(py, connection.parts()?.1.keep_in_memory(limit_bytes))?;
        let memory = Mutex::new(Some(Arc::new(memory)));
        Ok(FilesMemory { connection: connection.clone(), memory })
    }

    /// Number of the account, for workers.
    #[getter]
    fn number(&self) -> PyResult<u128> {
        Ok(self.held()?.number())
    }

    /// Chunks and bytes in it on all nodes, and why some are not in it.
    fn usage(&self, py: Python<'_>) -> PyResult<(u64, u64, Option<String>)> {
        let memory = self.held()?;
        let used = self.connection.wait_for(py, memory.usage())?;
        Ok((used.chunks, used.bytes, used.failure))
    }

    /// Releases the memory; again, it does nothing.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Some(memory) = self.memory().take() else { return Ok(()) };
        // Another thread that asks what is in it drops it soon. Nodes then release it themselves.
        let Some(memory) = Arc::into_inner(memory) else { return Ok(()) };
        self.connection.wait_for(py, memory.release())
    }
}

impl FilesMemory {
    fn memory(&self) -> MutexGuard<'_, Option<Arc<ChunkMemory>>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> PyResult<Arc<ChunkMemory>> {
        let released = || PyValueError::new_err("this memory was released: open another one");
        self.memory().clone().ok_or_else(released)
    }
}

/// A part of a file, of whole records.
#[pyclass(frozen, get_all, module = "eyas._eyas")]
pub struct FilesPiece {
    file: String,
    /// Place of it in the file, bytes.
    offset: u64,
    content: Py<PyBytes>,
}

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
    fn open(
        py: Python<'_>,
        session: &FilesSession,
        patterns: Vec<String>,
        workers: u32,
    ) -> PyResult<Self> {
        let connection = session.connection();
        let (_, files) = connection.parts()?;
        let mut names = Vec::<FileName>::new();
        for pattern in patterns {
            names.extend(
                connection
                    .wait_for(py, cluster_files_to_read(files, &pattern))?
                    .map_err(name_error)?,
            );
        }
        let run = connection.wait(
            py,
            BlockRun::open(files.clone(), &names, RunOptions::new(workers, DEFAULT_TERM_US)),
        )?;
        let names = names.iter().map(|name| name.as_str().to_owned()).collect();
        Ok(FilesRun { connection: connection.clone(), run: Arc::new(run), files: names })
    }

    /// Joins a run that another process has opened, by its address. The chunks that the session
    /// reads from now on stay in the memory with this number.
    #[staticmethod]
    fn join(
        py: Python<'_>,
        session: &FilesSession,
        address: &str,
        memory: Option<u128>,
    ) -> PyResult<Self> {
        let connection = session.connection();
        if let Some(number) = memory {
            connection.parts()?.1.set_memory(number);
        }
        let address = address
            .parse::<RunAddress>()
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
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

    /// Waits until all chunks are committed, or for `timeout_s`.
    fn wait(&self, py: Python<'_>, timeout_s: f64) -> PyResult<FilesRunStatus> {
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
        let missing_chunks = if status.is_complete {
            0
        } else {
            self.chunks().saturating_sub(status.committed_chunks).max(1)
        };
        let outputs =
            self.run.outputs(&status).iter().map(|name| name.as_str().to_owned()).collect();
        Ok(FilesRunStatus { missing_chunks, outputs })
    }

    /// Begins a block, which has no piece at first.
    fn begin(&self, py: Python<'_>) -> PyResult<FilesBlock> {
        let worker = self.connection.wait(py, self.run.begin())?;
        let worker = Mutex::new(Some(Arc::new(worker)));
        Ok(FilesBlock {
            connection: self.connection.clone(),
            worker,
            is_taken: AtomicBool::new(false),
        })
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
    is_taken: AtomicBool,
}

#[pymethods]
impl FilesBlock {
    /// The next piece. `None` if the block has no more, or if it was taken.
    fn next(&self, py: Python<'_>) -> PyResult<Option<FilesPiece>> {
        let worker = self.worker().clone().ok_or_else(over)?;
        match self.connection.wait_for(py, worker.next())? {
            Ok(None) => Ok(None),
            Ok(Some(piece)) => {
                let (file, content) =
                    (piece.file.as_str().to_owned(), PyBytes::new(py, &piece.content).unbind());
                Ok(Some(FilesPiece { file, offset: piece.offset, content }))
            }
            Err(error) if error.kind == FilesErrorKind::Changed => {
                self.is_taken.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(files::os_error(error)),
        }
    }

    /// Whether other workers have processed the block: its results are to be discarded.
    #[getter]
    fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
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
    PyOSError::new_err(
        "this block was committed or left, or another thread uses it: begin another one",
    )
}

fn name_error(error: ClusterFilesError) -> PyErr {
    match error {
        ClusterFilesError::Client(error) => files::connect_error(error),
        ClusterFilesError::NoMatch(_) | ClusterFilesError::Local { .. } => {
            PyFileNotFoundError::new_err(error.to_string())
        }
        error => PyValueError::new_err(error.to_string()),
    }
}
