//! Writing files of the cluster. Nothing appears before the writer is closed.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_client::files::{Background, DfsClient, FileWriter, FilesError, WriteOptions};
use eyas_client::types::dfs::{FileName, Format, RecordFormat};

use crate::client::{ClientOwner, EyasClient};
use crate::files::file_name;
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// A file that is being written. Threads may use one writer at the same time; the order of their
/// bytes is that of their calls.
pub struct EyasWriter {
    _private: [u8; 0],
}

impl Handle for EyasWriter {
    type State = OpenWriter;
    const NAME: &'static str = "eyas_writer";
}

/// A file that does not exist yet, what is appended to a file, or changes of a file.
pub struct OpenWriter {
    client: ClientOwner,
    name: FileName,
    state: Mutex<WriterState>,
}

enum WriterState {
    Open(FileWriter),
    /// The file is being published.
    Closing(Background<Result<(), FilesError>>),
    /// A write has failed, or the writer is closed.
    Over,
}

/// Options of a new file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasWriteOptions {
    /// The format of the file's records, so that no block ends inside one: `lines`, `csv`,
    /// `json-lines`, `fasta`, `fastq`, `fixed:BYTES`, `length-prefixed:BYTESbe`, `bgzf`, `bzip2`,
    /// `zstd`, `whole`. NULL: by the name and the content, as `eyas dfs put` guesses.
    pub format: *const c_char,
    /// Size of its chunks, bytes; 0 for the default.
    pub chunk_bytes: u64,
    /// Number of replicas; 0 for the default.
    pub replication: u32,
    /// 1 to replace a file of this name, which readers see until the writer is closed; 0 for an
    /// error if there is one.
    pub replaces: u32,
}

impl EyasWriteOptions {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 24;
}

/// Begins to write a file. `options` may be NULL; `size` is `sizeof *options`. The file appears, as
/// a whole, when the writer is closed with `eyas_writer_close()`. On success, `*writer` is a handle
/// that has to be closed with this function or with `eyas_writer_discard()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_create(
    client: *mut EyasClient,
    path: *const c_char,
    options: *const EyasWriteOptions,
    size: usize,
    writer: *mut *mut EyasWriter,
) -> EyasStatus {
    call(|| {
        pointers::check(writer)?;
        // SAFETY: the caller passes NULL, or a struct of as many bytes as it says.
        let (client, name, options) = unsafe {
            let first_size = EyasWriteOptions::FIRST_SIZE;
            (
                handles::get(client)?,
                file_name(path)?,
                pointers::get_struct(options, size, first_size)?,
            )
        };
        let mut write = WriteOptions::of(RecordFormat::of_name(name.as_str()));
        let mut replaces = false;
        if let Some(options) = options {
            // SAFETY: the caller passes NULL, or text that ends with NUL.
            if let Some(format) = unsafe { pointers::optional_text(options.format, "the format") }?
            {
                write.format = format.parse::<Format>().map_err(CallError::invalid)?.into();
            }
            if options.chunk_bytes > 0 {
                write.chunk_bytes = options.chunk_bytes;
            }
            if options.replication > 0 {
                let replication = options.replication.try_into();
                write.replication =
                    replication.map_err(|_| CallError::invalid("too many replicas"))?;
            }
            replaces = options.replaces != 0;
        }
        let opened = begin(client, name.clone(), async |files| {
            FileWriter::create(files, name, write, replaces).await
        })?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(writer, opened) }
    })
}

/// Begins to append to a file. All that is written appears at once when the writer is closed with
/// `eyas_writer_close()`; its status is `EYAS_STATUS_CHANGED` if another client has changed the
/// file since. On success, `*writer` is a handle as that of `eyas_create()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_append(
    client: *mut EyasClient,
    path: *const c_char,
    writer: *mut *mut EyasWriter,
) -> EyasStatus {
    call(|| {
        pointers::check(writer)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        let (client, name) = unsafe { (handles::get(client)?, file_name(path)?) };
        let opened =
            begin(client, name.clone(), async |files| FileWriter::append(files, name).await)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(writer, opened) }
    })
}

/// Begins to change a file at any offset. If there is none and `creates` is 1, a new file is begun.
/// All changes appear at once when the writer is closed with `eyas_writer_close()`; its status is
/// `EYAS_STATUS_CHANGED` if another client has changed the file since. Only chunks with changed
/// bytes are stored again, all of them by `eyas_writer_close()`, which so takes long for many
/// changes. `eyas_write()` goes on where the last write has ended, at first at the beginning. On
/// success, `*writer` is a handle as that of `eyas_create()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_edit(
    client: *mut EyasClient,
    path: *const c_char,
    creates: u32,
    writer: *mut *mut EyasWriter,
) -> EyasStatus {
    call(|| {
        pointers::check(writer)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let (client, name) = unsafe { (handles::get(client)?, file_name(path)?) };
        let creates =
            (creates != 0).then(|| WriteOptions::of(RecordFormat::of_name(name.as_str())));
        let opened = begin(client, name.clone(), async |files| {
            FileWriter::edit(files, name, creates).await
        })?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(writer, opened) }
    })
}

/// Begins to store what the program will write.
fn begin(
    client: ClientOwner,
    name: FileName,
    open: impl AsyncFnOnce(DfsClient) -> Result<FileWriter, FilesError>,
) -> Result<*mut EyasWriter, CallError> {
    let state = Mutex::new(WriterState::Open(client.on_files(&format!("opening {name}"), open)?));
    Ok(handles::open(OpenWriter { client, name, state }))
}

/// Writes bytes at the end of what was written before. The status may be that of an earlier write
/// that has failed since; then nothing will appear, and the writer has to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_write(
    writer: *mut EyasWriter,
    bytes: *const c_void,
    length: usize,
) -> EyasStatus {
    call(|| {
        let writer = handles::get(writer)?;
        // SAFETY: the caller passes as many bytes as it says.
        let bytes = unsafe { pointers::bytes(bytes, length, "the content") }?;
        let mut state = writer.lock();
        let open = writer.open(&mut state)?;
        match open.collect(bytes) {
            [] => Ok(()),
            rest => writer
                .client
                .wait(&writer.what(), open.write(rest))
                .inspect_err(|_| *state = WriterState::Over),
        }
    })
}

/// Writes bytes at an offset, with a writer of `eyas_edit()`. Bytes between the end of the file and
/// the offset become zeros. After a failure, nothing of all changes will appear, and the writer has
/// to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_write_at(
    writer: *mut EyasWriter,
    offset: u64,
    bytes: *const c_void,
    length: usize,
) -> EyasStatus {
    call(|| {
        let writer = handles::get(writer)?;
        // SAFETY: the caller passes as many bytes as it says.
        let bytes = unsafe { pointers::bytes(bytes, length, "the content") }?;
        writer.change(|open| open.write_at(offset, bytes))
    })
}

/// Cuts the file off at this size, or appends zeros to it, with a writer of `eyas_edit()`. After a
/// failure, nothing of all changes will appear, and the writer has to be closed.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_writer_set_size(writer: *mut EyasWriter, size_bytes: u64) -> EyasStatus {
    call(|| handles::get(writer)?.change(|open| open.set_size(size_bytes)))
}

/// Makes all that was written appear, and closes the writer, also if this fails. When it returns
/// `EYAS_STATUS_OK`, the file is on the disks of a quorum of the nodes that should have it. After
/// `EYAS_STATUS_TIMED_OUT`, the writer is not closed yet, and the work goes on: call this again to
/// wait for it, or `eyas_writer_discard()` to end it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_writer_close(writer: *mut EyasWriter) -> EyasStatus {
    call(|| {
        let closed = handles::get(writer)?.publish();
        if !closed.as_ref().is_err_and(|error| error.status == EyasStatus::TimedOut) {
            handles::close(writer)?;
        }
        closed
    })
}

/// Closes the writer. Nothing that was written appears, unless `eyas_writer_close()` has begun to
/// make it appear.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_writer_discard(writer: *mut EyasWriter) -> EyasStatus {
    call(|| handles::close(writer).map(drop))
}

impl OpenWriter {
    fn change(
        &self,
        change: impl FnOnce(&mut FileWriter) -> Result<(), FilesError>,
    ) -> Result<(), CallError> {
        Ok(change(self.open(&mut self.lock())?)?)
    }

    /// The file, if it can be written to.
    fn open<'a>(&self, state: &'a mut WriterState) -> Result<&'a mut FileWriter, CallError> {
        match state {
            WriterState::Open(open) => Ok(open),
            WriterState::Closing(_) => {
                let message =
                    format!("{} is being closed: close the writer again, or discard it", self.name);
                Err(CallError::invalid(message))
            }
            WriterState::Over => Err(self.failed_before()),
        }
    }

    /// Makes what was written appear. If this takes too long, the work goes on, and the next call
    /// waits for it.
    fn publish(&self) -> Result<(), CallError> {
        let mut state = self.lock();
        let mut publishing = match std::mem::replace(&mut *state, WriterState::Over) {
            WriterState::Open(open) => self.client.begin(open.finish()),
            WriterState::Closing(publishing) => publishing,
            WriterState::Over => return Err(self.failed_before()),
        };
        let published = self.client.wait(&self.what(), publishing.done());
        if published.as_ref().is_err_and(|error| error.status == EyasStatus::TimedOut) {
            *state = WriterState::Closing(publishing);
        }
        published
    }

    fn lock(&self) -> MutexGuard<'_, WriterState> {
        // Each change of the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the work in messages.
    fn what(&self) -> String {
        format!("writing {}", self.name)
    }

    fn failed_before(&self) -> CallError {
        let message =
            format!("an earlier write of {} has failed: nothing of it appears", self.name);
        CallError::new(EyasStatus::Local, message)
    }
}
