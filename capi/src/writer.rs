//! Writing files of the cluster. Nothing appears before the writer is closed.

use std::ffi::{c_char, c_void};
use std::io::{self, Read};
use std::sync::{Mutex, PoisonError};

use eyas_client::files::{DfsClient, FilesError, WriteOptions};
use eyas_client::types::dfs::{FileName, Format};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::{ClientOwner, EyasClient};
use crate::files::file_name;
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// Bytes that are collected before they are stored.
const PART_BYTES: usize = 256 << 10;

/// Parts that wait to be stored. Beyond them, `eyas_write()` waits.
const MAX_WAITING: usize = 8;

/// A file that is being written. Threads may use one writer at the same time; the order of their bytes is that of their
/// calls.
pub struct EyasWriter {
    _private: [u8; 0],
}

impl Handle for EyasWriter {
    type State = FileWriter;
    const NAME: &'static str = "eyas_writer";
}

/// A file that does not exist yet, or what is appended to a file.
pub struct FileWriter {
    client: ClientOwner,
    name: FileName,
    open: Mutex<Option<OpenWriter>>,
}

struct OpenWriter {
    part: Vec<u8>,
    parts: mpsc::Sender<WriterPart>,
    storing: JoinHandle<Result<(), FilesError>>,
}

enum WriterPart {
    Bytes(Vec<u8>),
    /// All bytes were written: the file may appear.
    End,
}

/// Options of a new file.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasWriteOptions {
    /// The format of the file's records, so that no block ends inside one: `lines`, `csv`, `json-lines`, `fasta`,
    /// `fastq`, `fixed:BYTES`, `length-prefixed:BYTESbe`, `whole`. NULL: by the extension of the name; bytes without
    /// records if it is not known.
    pub format: *const c_char,
    /// Size of its chunks, bytes; 0 for the default.
    pub chunk_bytes: u64,
    /// Number of replicas; 0 for the default.
    pub replication: u32,
    /// 1 to replace a file of this name, which readers see until the writer is closed; 0 for an error if there is one.
    pub replaces: u32,
}

impl EyasWriteOptions {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 24;
}

/// The bytes that a program writes, for the task that stores them.
struct Parts {
    parts: mpsc::Receiver<WriterPart>,
    part: io::Cursor<Vec<u8>>,
    is_over: bool,
}

impl Read for Parts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.part.read(buffer)?;
            if read > 0 || buffer.is_empty() || self.is_over {
                return Ok(read);
            }
            match self.parts.blocking_recv() {
                Some(WriterPart::Bytes(bytes)) => self.part = io::Cursor::new(bytes),
                Some(WriterPart::End) => self.is_over = true,
                None => return Err(io::Error::other("the writer was closed without publishing its file")),
            }
        }
    }
}

/// Begins to write a file. `options` may be NULL; `size` is `sizeof *options`. The file appears, as a whole, when the
/// writer is closed with `eyas_writer_close()`. On success, `*writer` is a handle that has to be closed with this
/// function or with `eyas_writer_discard()`.
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
        // SAFETY: the caller's.
        let (client, name, options) = unsafe {
            let first_size = EyasWriteOptions::FIRST_SIZE;
            (handles::get(client)?, file_name(path)?, pointers::get_struct(options, size, first_size)?)
        };
        let mut write = WriteOptions::of(Format::guess(name.as_str(), false));
        let mut replaces = false;
        if let Some(options) = options {
            // SAFETY: the caller's.
            if let Some(format) = unsafe { pointers::optional_text(options.format, "the format") }? {
                write.format = format.parse().map_err(CallError::invalid)?;
            }
            if options.chunk_bytes > 0 {
                write.chunk_bytes = options.chunk_bytes;
            }
            if options.replication > 0 {
                let replication = options.replication.try_into();
                write.replication = replication.map_err(|_| CallError::invalid("too many replicas"))?;
            }
            replaces = options.replaces != 0;
        }
        let exists = async |files: DfsClient| files.exists(&name).await;
        if !replaces && client.on_files(&format!("creating {name}"), exists)? {
            let message = format!("there is a file {name} already: remove it first, or set `replaces`");
            return Err(CallError::new(EyasStatus::Exists, message));
        }
        let opened = begin(client, name.clone(), |files, parts| async move {
            if replaces {
                files.store_hidden(&name, parts, write, |_| {}).await?.publish(&|| true).await.map(drop)
            } else {
                files.write(&name, parts, write, |_| {}).await.map(drop)
            }
        })?;
        // SAFETY: the caller's.
        unsafe { pointers::put(writer, opened) }
    })
}

/// Begins to append to a file. All that is written appears at once when the writer is closed with
/// `eyas_writer_close()`; its status is `EYAS_STATUS_CHANGED` if another client has changed the file since. On success,
/// `*writer` is a handle as that of `eyas_create()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_append(
    client: *mut EyasClient,
    path: *const c_char,
    writer: *mut *mut EyasWriter,
) -> EyasStatus {
    call(|| {
        pointers::check(writer)?;
        // SAFETY: the caller's.
        let (client, name) = unsafe { (handles::get(client)?, file_name(path)?) };
        client.on_files(&format!("opening {name}"), async |files| files.stat(&name).await)?;
        let opened =
            begin(
                client,
                name.clone(),
                |files, parts| async move { files.append(&name, parts, |_| {}).await.map(drop) },
            )?;
        // SAFETY: the caller's.
        unsafe { pointers::put(writer, opened) }
    })
}

/// Begins to store what the program will write.
fn begin<F: Future<Output = Result<(), FilesError>> + Send + 'static>(
    client: ClientOwner,
    name: FileName,
    store: impl FnOnce(DfsClient, Parts) -> F,
) -> Result<*mut EyasWriter, CallError> {
    let files = client.on_files(&format!("opening {name}"), async |files| Ok(files))?;
    let (parts, receiver) = mpsc::channel(MAX_WAITING);
    let storing = client.spawn(store(files, Parts { parts: receiver, part: io::Cursor::default(), is_over: false }));
    let open = Mutex::new(Some(OpenWriter { part: Vec::new(), parts, storing }));
    Ok(handles::open(FileWriter { client, name, open }))
}

/// Writes bytes at the end of what was written before. The status may be that of an earlier write that has failed
/// since; then nothing will appear, and the writer has to be closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_write(writer: *mut EyasWriter, bytes: *const c_void, length: usize) -> EyasStatus {
    call(|| {
        let writer = handles::get(writer)?;
        // SAFETY: the caller's.
        let mut bytes = unsafe { pointers::bytes(bytes, length, "the content") }?;
        let mut state = writer.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = state.as_mut().ok_or_else(|| writer.failed_before())?;
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - open.part.len()));
            open.part.extend_from_slice(now);
            bytes = later;
            if open.part.len() == PART_BYTES {
                let part = WriterPart::Bytes(std::mem::replace(&mut open.part, Vec::with_capacity(PART_BYTES)));
                if let Err(failure) = writer.send(open, part) {
                    *state = None;
                    return Err(failure);
                }
            }
        }
        Ok(())
    })
}

/// Makes all that was written appear, and closes the writer, also if this fails. When it returns `EYAS_STATUS_OK`, the
/// file is on the disks of a quorum of the nodes that should have it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_writer_close(writer: *mut EyasWriter) -> EyasStatus {
    call(|| {
        let writer = handles::close(writer)?;
        let mut state = writer.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = state.take().ok_or_else(|| writer.failed_before())?;
        let part = std::mem::take(&mut open.part);
        writer.send(&mut open, WriterPart::Bytes(part))?;
        writer.send(&mut open, WriterPart::End)?;
        writer.client.wait(&format!("writing {}", writer.name), stored(&mut open))
    })
}

/// Closes the writer. Nothing that was written appears.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_writer_discard(writer: *mut EyasWriter) -> EyasStatus {
    call(|| handles::close(writer).map(drop))
}

impl FileWriter {
    /// Passes a part on. If storing has failed, the error is that of storing.
    fn send(&self, open: &mut OpenWriter, part: WriterPart) -> Result<(), CallError> {
        self.client.wait(&format!("writing {}", self.name), async {
            match open.parts.send(part).await {
                Ok(()) => Ok(()),
                Err(_) => stored(open).await,
            }
        })
    }

    fn failed_before(&self) -> CallError {
        let message = format!("an earlier write of {} has failed: nothing of it appears", self.name);
        CallError::new(EyasStatus::Local, message)
    }
}

/// The result of storing.
async fn stored(open: &mut OpenWriter) -> Result<(), CallError> {
    let stored = (&mut open.storing).await;
    stored.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic())).map_err(CallError::from)
}
