//! The files of a cluster, for `eyas.fs`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_client::files::{
    BlockHolder, BlockPlace, Creation, DfsClient, FileReader, FileWriter, FilesError,
    FilesErrorKind, RenameOptions, WriteOptions,
};
use eyas_client::types::dfs::{
    AttributeChange, FileName, FileNameError, Format, FormatError, RecordFormat, SetCondition,
};
use eyas_client::{Client, ClientError};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyConnectionError, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::io::Errno;
use tokio::runtime::Runtime;
use tokio::task::{JoinError, JoinSet};

use crate::buffers;
use crate::entries::{FileChunk, FileEntry};
use crate::session::cluster_of;
use crate::waiting::{ProcessConnection, connect, runtime_of_threads, wait};

/// Threads that work in the background.
const THREADS: usize = 2;

/// How long an operation that is temporarily impossible is retried.
const PATIENCE: Duration = Duration::from_secs(20);

/// Entries that are listed together.
const PAGE: u32 = 4096;

/// Entries that are removed at the same time.
const REMOVED_TOGETHER: usize = 256;

/// Offset, size, number of the block, and the nodes that have a chunk with the addresses of their
/// hosts.
type Place = (u64, u64, usize, Vec<(String, Option<String>)>);

/// A connection to the files of a cluster.
pub(crate) struct FilesConnection(ProcessConnection<DfsClient>);

impl FilesConnection {
    /// The runtime and the files, if this is the process that has connected.
    pub(crate) fn parts(&self) -> PyResult<(&Runtime, &DfsClient)> {
        self.0.parts().ok_or_else(|| {
            let message =
                "this was opened before a fork, by the parent of this process: open it again";
            PyOSError::new_err((Errno::BADF.raw_os_error(), message))
        })
    }

    /// Waits for work on the files. Other threads of Python run meanwhile, and signals are handled.
    pub(crate) fn wait<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = Result<T, FilesError>> + Send,
    ) -> PyResult<T> {
        self.wait_for(py, work)?.map_err(os_error)
    }

    /// Does the same as [`wait`](Self::wait) for work with any result.
    pub(crate) fn wait_for<T: Send>(
        &self,
        py: Python<'_>,
        work: impl Future<Output = T> + Send,
    ) -> PyResult<T> {
        wait(py, self.parts()?.0, work)
    }
}

/// The exception of an error. `OSError` becomes the class of its number.
pub(crate) fn os_error(error: FilesError) -> PyErr {
    let number = match error.kind {
        FilesErrorKind::Unreachable => return unreachable(error.message),
        FilesErrorKind::NotFound => Errno::NOENT,
        FilesErrorKind::Exists => Errno::EXIST,
        FilesErrorKind::IsFolder => Errno::ISDIR,
        FilesErrorKind::NotFolder => Errno::NOTDIR,
        FilesErrorKind::NotEmpty => Errno::NOTEMPTY,
        FilesErrorKind::NotAllowed => Errno::ACCESS,
        FilesErrorKind::Quota => Errno::DQUOT,
        FilesErrorKind::Changed => Errno::STALE,
        FilesErrorKind::Invalid => Errno::INVAL,
        FilesErrorKind::WrongFormat => Errno::BADMSG,
        FilesErrorKind::NoAttribute => Errno::NODATA,
        FilesErrorKind::Full | FilesErrorKind::FullNow | FilesErrorKind::AttributesFull => {
            Errno::NOSPC
        }
        FilesErrorKind::Lost | FilesErrorKind::Local => Errno::IO,
    };
    PyOSError::new_err((number.raw_os_error(), error.message))
}

fn unreachable(why: impl ToString) -> PyErr {
    PyConnectionError::new_err((Errno::HOSTUNREACH.raw_os_error(), why.to_string()))
}

pub(crate) fn connect_error(error: ClientError) -> PyErr {
    match error {
        ClientError::Files(error) => os_error(error),
        error => unreachable(error),
    }
}

fn file_name(path: &str) -> PyResult<FileName> {
    path.parse().map_err(|error: FileNameError| {
        PyOSError::new_err((Errno::INVAL.raw_os_error(), error.to_string()))
    })
}

/// A connection to the files of a cluster.
#[pyclass(frozen)]
pub struct FilesSession(Arc<FilesConnection>);

#[pymethods]
impl FilesSession {
    /// Connects to the files of the cluster with this access file or name, or of the one that
    /// `eyas` commands use by default. In a call or task, that is the cluster that runs it.
    #[new]
    #[pyo3(signature = (*, cluster=None, access=None))]
    fn new(py: Python<'_>, cluster: Option<String>, access: Option<PathBuf>) -> PyResult<Self> {
        let access = cluster_of(access, cluster)
            .and_then(|cluster| cluster.access())
            .map_err(unreachable)?;
        let connecting = async {
            let mut client = Client::connect(&access).await.map_err(connect_error)?;
            client.files_within(PATIENCE, || {}).await.map_err(connect_error)
        };
        let (runtime, files) = connect(py, runtime_of_threads(THREADS)?, connecting)?;
        Ok(FilesSession(Arc::new(FilesConnection(ProcessConnection::new(runtime, files)))))
    }

    /// Process that has connected.
    #[getter]
    fn process(&self) -> u32 {
        self.0.0.process()
    }

    /// Looks up a file, folder or link.
    fn stat(&self, py: Python<'_>, path: &str) -> PyResult<FileEntry> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, async { files.lookup(&name).await.map(FileEntry::from) })
    }

    /// The entries of a folder; with `recursive`, all entries below it.
    #[pyo3(signature = (path, *, recursive=false))]
    fn list(&self, py: Python<'_>, path: &str, recursive: bool) -> PyResult<Vec<FileEntry>> {
        let (_, files) = self.0.parts()?;
        let list = async {
            if recursive {
                let mut entries = files.list_entries(path).await?;
                entries.retain(|entry| entry.name.as_str() != path.trim_end_matches('/'));
                return Ok(entries);
            }
            let (mut entries, mut from) = (Vec::new(), Some(String::new()));
            while let Some(next) = from {
                let page = files.list_folder(path, &next, PAGE).await?;
                entries.extend(page.entries);
                from = page.next;
            }
            Ok(entries)
        };
        Ok(self.0.wait(py, list)?.into_iter().map(FileEntry::from).collect())
    }

    /// The chunks of a file.
    fn chunks(&self, py: Python<'_>, path: &str) -> PyResult<Vec<FileChunk>> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        let file = self.0.wait(py, files.stat(&name))?;
        Ok(file.record.chunks.iter().map(FileChunk::from).collect())
    }

    /// Where the chunks of a file are: offset, size, number of the block, and the nodes with their
    /// hosts.
    fn places(&self, py: Python<'_>, path: &str) -> PyResult<Vec<Place>> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        let find = async { Ok(files.places(&files.stat(&name).await?).await) };
        let places = self.0.wait(py, find)?;
        let holders = |place: &BlockPlace| {
            let holder = |holder: &BlockHolder| {
                (holder.node.to_string(), holder.host().map(|host| host.to_string()))
            };
            place.holders.iter().map(holder).collect()
        };
        Ok(places
            .iter()
            .map(|place| (place.offset, place.size_bytes, place.block, holders(place)))
            .collect())
    }

    /// Makes a folder, and those above it that are missing.
    fn make_folder(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, async {
            files.make_folder(&name, Creation::of_process(0o777)).await.map(drop)
        })
    }

    /// Removes a file or link.
    fn remove(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, files.remove(&name))
    }

    /// Removes an empty folder.
    fn remove_folder(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, files.remove_folder(&name))
    }

    /// Removes a folder with everything in it.
    fn remove_tree(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, remove_tree(files, &name))
    }

    /// Renames a file, link or folder. A file replaces a file.
    fn rename(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        let (from, to, (_, files)) = (file_name(from)?, file_name(to)?, self.0.parts()?);
        self.0.wait(
            py,
            files.rename(
                &from,
                &to,
                RenameOptions { replaces: true, makes_parents: true, keeps_format: false },
            ),
        )
    }

    /// Copies a file to a name that is free. The nodes copy the chunks that they have.
    fn copy(&self, py: Python<'_>, from: &str, to: &str) -> PyResult<()> {
        let (from, to, (_, files)) = (file_name(from)?, file_name(to)?, self.0.parts()?);
        self.0.wait(py, async {
            let file = files.stat(&from).await?;
            files.copy(&file, &to, file.record.replication).await.map(drop)
        })
    }

    /// Sets the time of the last write, nanoseconds since 1970.
    fn set_modified(&self, py: Python<'_>, path: &str, modified_ns: u64) -> PyResult<()> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        let change =
            AttributeChange { modified_ns: Some(modified_ns), ..AttributeChange::default() };
        self.0.wait(py, async { files.set_attributes(&name, &change).await.map(drop) })
    }

    /// Sets a named attribute of a file, folder or link.
    fn set_attribute(
        &self,
        py: Python<'_>,
        path: &str,
        name: &str,
        value: Vec<u8>,
    ) -> PyResult<()> {
        let (file, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, async {
            files.set_named_attribute(&file, name, value, SetCondition::None).await.map(drop)
        })
    }

    /// Removes a named attribute of a file, folder or link.
    fn remove_attribute(&self, py: Python<'_>, path: &str, name: &str) -> PyResult<()> {
        let (file, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.0.wait(py, async { files.remove_named_attribute(&file, name).await.map(drop) })
    }

    /// Opens a file for reading, at its present version.
    fn open(&self, py: Python<'_>, path: &str) -> PyResult<OpenedFile> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        let open = self.0.wait(py, FileReader::open(files.clone(), &name))?;
        Ok(OpenedFile { connection: self.0.clone(), open })
    }

    /// Begins a file, which appears, or replaces the file that has the name, when it is published.
    /// `format` is that of its records.
    #[pyo3(signature = (path, *, exclusive=false, format=None, chunk_bytes=None, replicas=None))]
    fn create(
        &self,
        py: Python<'_>,
        path: &str,
        exclusive: bool,
        format: Option<&str>,
        chunk_bytes: Option<u64>,
        replicas: Option<u8>,
    ) -> PyResult<WrittenFile> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        let format = match format {
            Some(format) => {
                let format = format.parse::<Format>();
                format
                    .map_err(|error: FormatError| PyValueError::new_err(error.to_string()))?
                    .into()
            }
            None => RecordFormat::of_name(name.as_str()),
        };
        let mut options = WriteOptions::of(format);
        options.chunk_bytes = chunk_bytes.filter(|bytes| *bytes > 0).unwrap_or(options.chunk_bytes);
        options.replication =
            replicas.filter(|replicas| *replicas > 0).unwrap_or(options.replication);
        self.write(py, FileWriter::create(files.clone(), name, options, !exclusive))
    }

    /// Begins to append to a file. All of it appears when it is published.
    fn append(&self, py: Python<'_>, path: &str) -> PyResult<WrittenFile> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.write(py, FileWriter::append(files.clone(), name))
    }

    /// Begins to change a file at any offset. All changes appear when they are published.
    fn edit(&self, py: Python<'_>, path: &str) -> PyResult<WrittenFile> {
        let (name, (_, files)) = (file_name(path)?, self.0.parts()?);
        self.write(py, FileWriter::edit(files.clone(), name, None))
    }
}

impl FilesSession {
    pub(crate) fn connection(&self) -> &Arc<FilesConnection> {
        &self.0
    }

    fn write(
        &self,
        py: Python<'_>,
        begin: impl Future<Output = Result<FileWriter, FilesError>> + Send,
    ) -> PyResult<WrittenFile> {
        let writer = Mutex::new(Some(self.0.wait(py, begin)?));
        Ok(WrittenFile { connection: self.0.clone(), writer })
    }
}

/// Removes a folder and everything below it, the deepest folders first.
async fn remove_tree(files: &DfsClient, name: &FileName) -> Result<(), FilesError> {
    let (folders, others): (Vec<_>, Vec<_>) = files
        .list_entries(name.as_str())
        .await?
        .into_iter()
        .partition(|entry| entry.kind.is_folder());
    let mut removing = JoinSet::new();
    for entry in others {
        if removing.len() == REMOVED_TOGETHER {
            removed(removing.join_next().await)?;
        }
        let files = files.clone();
        removing.spawn(async move { files.remove_listed(&entry).await });
    }
    while let Some(done) = removing.join_next().await {
        removed(Some(done))?;
    }
    // The list is sorted, so a folder comes before those in it.
    for folder in folders.into_iter().rev() {
        removed(Some(Ok(files.remove_folder(&folder.name).await)))?;
    }
    Ok(())
}

/// What was to be removed may be gone already.
fn removed(done: Option<Result<Result<(), FilesError>, JoinError>>) -> Result<(), FilesError> {
    match done.transpose().unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())) {
        Some(Err(error)) if error.kind != FilesErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A file that is open for reading.
#[pyclass(frozen)]
pub struct OpenedFile {
    connection: Arc<FilesConnection>,
    open: FileReader,
}

#[pymethods]
impl OpenedFile {
    /// Size of the file in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.open.size_bytes()
    }

    /// Reads up to `length` bytes from `offset`.
    fn read_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.min(self.size().saturating_sub(offset)) as usize;
        buffers::filled(py, length, |buffer| self.read(py, offset, buffer))
    }

    /// The ranges of the file that are not holes: the first byte and the end of each.
    fn data(&self) -> Vec<(u64, u64)> {
        let (mut ranges, mut end) = (Vec::<(u64, u64)>::new(), 0);
        for chunk in &self.open.file().record.chunks {
            let start = end;
            end += chunk.size_bytes;
            match ranges.last_mut() {
                _ if chunk.is_hole() => {}
                Some((_, last)) if *last == start => *last = end,
                _ => ranges.push((start, end)),
            }
        }
        ranges
    }

    /// Fills a buffer with the bytes from `offset`, and returns their number. It is less than the
    /// size of the buffer only at the end of the file.
    fn read_into(&self, py: Python<'_>, offset: u64, mut buffer: PyBuffer<u8>) -> PyResult<usize> {
        self.read(py, offset, buffers::bytes_mut(&mut buffer)?)
    }
}

impl OpenedFile {
    fn read(&self, py: Python<'_>, offset: u64, buffer: &mut [u8]) -> PyResult<usize> {
        self.connection.parts()?;
        // The thread waits for the result anyway, so it may as well wait for a disk.
        match py.detach(|| self.open.read_local(offset, buffer)) {
            Some(read) => Ok(read),
            None => self.connection.wait(py, self.open.read_on_this_thread(offset, buffer)),
        }
    }
}

/// A file that is being written. Nothing appears before it is published.
#[pyclass(frozen)]
pub struct WrittenFile {
    connection: Arc<FilesConnection>,
    /// `None` when it was published or discarded, or when a write has failed.
    writer: Mutex<Option<FileWriter>>,
}

#[pymethods]
impl WrittenFile {
    /// Writes bytes at the end.
    fn write(&self, py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<usize> {
        let bytes = buffers::bytes(&buffer)?;
        let mut writer = self.take()?;
        self.connection.wait(py, writer.write(bytes))?;
        *self.lock() = Some(writer);
        Ok(bytes.len())
    }

    /// Writes bytes at an offset of a file that is edited.
    fn write_at(&self, py: Python<'_>, offset: u64, buffer: PyBuffer<u8>) -> PyResult<usize> {
        let bytes = buffers::bytes(&buffer)?;
        py.detach(|| self.edited(|writer| writer.write_at(offset, bytes)))?;
        Ok(bytes.len())
    }

    /// Cuts a file that is edited off at this size, or appends zeros to it.
    fn set_size(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        py.detach(|| self.edited(|writer| writer.set_size(size)))
    }

    /// Size of a file that is edited, bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        self.edited(FileWriter::size_bytes)
    }

    /// Fills a buffer with the bytes from `offset` of a file that is edited, and returns their
    /// number. It is less than the size of the buffer only at the end of the file.
    fn read_into(&self, py: Python<'_>, offset: u64, mut buffer: PyBuffer<u8>) -> PyResult<usize> {
        let into = buffers::bytes_mut(&mut buffer)?;
        let mut writer = self.take()?;
        let read = self.connection.wait(py, writer.read(offset, into));
        *self.lock() = Some(writer);
        read
    }

    /// Makes the file, or what is appended, appear.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        let writer = self.take()?;
        self.connection.wait(py, writer.finish())
    }

    /// Drops what was written.
    fn discard(&self) {
        let writer = self.lock().take();
        if self.connection.parts().is_err() {
            std::mem::forget(writer);
        }
    }
}

impl WrittenFile {
    /// Does something with a file that is edited. If it fails, the changes before it remain.
    fn edited<T>(
        &self,
        work: impl FnOnce(&mut FileWriter) -> Result<T, FilesError>,
    ) -> PyResult<T> {
        let mut writer = self.take()?;
        let done = work(&mut writer).map_err(os_error);
        *self.lock() = Some(writer);
        done
    }

    fn take(&self) -> PyResult<FileWriter> {
        self.connection.parts()?;
        let message =
            "an earlier write has failed, or another thread writes: nothing of this file appears";
        self.lock().take().ok_or_else(|| PyOSError::new_err((Errno::IO.raw_os_error(), message)))
    }

    fn lock(&self) -> MutexGuard<'_, Option<FileWriter>> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WrittenFile {
    fn drop(&mut self) {
        self.discard();
    }
}
