//! A file that a program writes from its beginning to its end. Its content is stored meanwhile.

use std::io::{self, Read};

use eyas_types::dfs::{FileName, Format, RecordFormat};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::error::{FilesError, FilesErrorKind};
use crate::{DfsClient, HiddenFile, WriteOptions};

/// Bytes that are collected before they are stored.
const PART_BYTES: usize = 256 << 10;

/// Parts that wait to be stored. Beyond them, [`SequenceWriter::write`] waits.
const MAX_WAITING: usize = 8;

/// A file that does not exist yet, or what is appended to a file. If it is dropped, nothing
/// appears.
pub(super) struct SequenceWriter {
    part: Vec<u8>,
    parts: mpsc::Sender<WriterPart>,
    storing: JoinHandle<Result<Option<HiddenFile>, FilesError>>,
}

enum WriterPart {
    Bytes(Vec<u8>),
    /// All bytes were written: the file may appear.
    End,
}

/// The bytes that a program writes, for the task that stores them.
struct Parts {
    parts: mpsc::Receiver<WriterPart>,
    part: io::Cursor<Vec<u8>>,
    is_over: bool,
}

impl Parts {
    /// The format of the content. One that is only guessed is guessed by the first bytes, which are
    /// awaited.
    async fn format(&mut self, name: &FileName, given: RecordFormat) -> RecordFormat {
        if !given.is_guessed {
            return given;
        }
        match self.parts.recv().await {
            Some(WriterPart::Bytes(bytes)) => self.part = io::Cursor::new(bytes),
            Some(WriterPart::End) => self.is_over = true,
            // The next read says so.
            None => {}
        }
        RecordFormat::guessed(Format::guess(name.base_name(), self.part.get_ref()).of_stream())
    }
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
                None => {
                    return Err(io::Error::other(
                        "the writer was closed without publishing its file",
                    ));
                }
            }
        }
    }
}

impl SequenceWriter {
    /// Begins a new file, whose format is guessed again by its content if it is a guess. With
    /// `replaces`, it takes the place of the file that has the name when it appears. Needs a
    /// runtime.
    ///
    /// # Errors
    /// `Exists` if there is a file and `replaces` is not set; `IsFolder`, `NotAllowed`,
    /// `Unreachable`.
    pub async fn create(
        files: DfsClient,
        name: FileName,
        options: WriteOptions,
        replaces: bool,
    ) -> Result<Self, FilesError> {
        match files.lookup(&name).await {
            Ok(present) if present.record.kind.is_folder() && replaces => {
                return Err(FilesError::is_folder(&name));
            }
            Ok(_) if !replaces => {
                let message =
                    format!("there is a file {name} already: remove it first, or set `replaces`");
                return Err(FilesError::new(FilesErrorKind::Exists, message));
            }
            Err(error) if error.kind != FilesErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
        files.check_may_write(&name).await?;
        Ok(SequenceWriter::begin(|mut parts| async move {
            let options =
                WriteOptions { format: parts.format(&name, options.format).await, ..options };
            if replaces {
                files.store_hidden(&name, parts, options, |_| {}).await.map(Some)
            } else {
                files.write(&name, parts, options, |_| {}).await.map(|_| None)
            }
        }))
    }

    /// Begins to append to a file. All that is written appears at once.
    ///
    /// # Errors
    /// As [`stat`](DfsClient::stat); `NotAllowed`.
    pub async fn append(files: DfsClient, name: FileName) -> Result<Self, FilesError> {
        files.stat(&name).await?;
        files.check_may_write(&name).await?;
        Ok(SequenceWriter::begin(|parts| async move {
            files.append(&name, parts, |_| {}).await.map(|_| None)
        }))
    }

    fn begin<F>(store: impl FnOnce(Parts) -> F) -> Self
    where
        F: Future<Output = Result<Option<HiddenFile>, FilesError>> + Send + 'static,
    {
        let (parts, receiver) = mpsc::channel(MAX_WAITING);
        let storing = tokio::spawn(store(Parts {
            parts: receiver,
            part: io::Cursor::default(),
            is_over: false,
        }));
        SequenceWriter { part: Vec::new(), parts, storing }
    }

    /// Collects bytes that need not be stored yet. Returns those for which
    /// [`write`](SequenceWriter::write) has to be called.
    pub fn collect<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.part.len() + bytes.len() >= PART_BYTES {
            return bytes;
        }
        self.part.extend_from_slice(bytes);
        &[]
    }

    /// Writes bytes at the end of what was written before.
    ///
    /// # Errors
    /// That of an earlier write that has failed since; then nothing will appear.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), FilesError> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(now);
            bytes = later;
            if self.part.len() == PART_BYTES {
                let part = std::mem::replace(&mut self.part, Vec::with_capacity(PART_BYTES));
                self.send(WriterPart::Bytes(part)).await?;
            }
        }
        Ok(())
    }

    /// Makes all that was written appear. The file is on the disks of a quorum of the nodes that
    /// should have it then.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write), [`publish`](HiddenFile::publish) and
    /// [`append`](DfsClient::append).
    pub async fn finish(mut self) -> Result<(), FilesError> {
        let part = std::mem::take(&mut self.part);
        self.send(WriterPart::Bytes(part)).await?;
        self.send(WriterPart::End).await?;
        match self.stored().await? {
            Some(hidden) => hidden.publish(&|| true).await.map(drop),
            None => Ok(()),
        }
    }

    /// Passes a part on. If storing has failed, the error is that of storing.
    async fn send(&mut self, part: WriterPart) -> Result<(), FilesError> {
        match self.parts.send(part).await {
            Ok(()) => Ok(()),
            Err(_) => self.stored().await.map(drop),
        }
    }

    /// The result of storing.
    async fn stored(&mut self) -> Result<Option<HiddenFile>, FilesError> {
        let stored = (&mut self.storing).await;
        stored.unwrap_or_else(eyas_panics::resume)
    }
}
