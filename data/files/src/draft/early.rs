//! Storing the content of a file while a program still writes it.
//!
//! When a program has written the first chunk of a file from its beginning on, a task begins to
//! store the chunks behind it. When the file is closed or synced, only the last ones are missing.
//! If a program changes bytes that it has written before, the stored chunks are not used: the file
//! is then stored as a whole when it is published.

use std::fs::File as ScratchFile;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use eyas_types::dfs::FileName;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

use crate::error::FilesError;
use crate::write::rewrite::UnclaimedContent;
use crate::{DfsClient, WriteOptions};

/// Maximum number of files that are stored early at the same time, each by a thread. Further files
/// are stored when they are published.
const MAX_FILES: usize = 8;

/// The places for files that are stored early.
pub struct EarlyUploads(Arc<Semaphore>);

/// A file that is stored while it is written. Dropping it ends that.
#[derive(Debug)]
pub struct EarlyStore {
    progress: Arc<Progress>,
    storing: JoinHandle<Result<UnclaimedContent, FilesError>>,
    _place: OwnedSemaphorePermit,
}

/// How far the program is.
#[derive(Debug, Default)]
struct Progress {
    written: Mutex<WriteProgress>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct WriteProgress {
    bytes: u64,
    /// Whether no more bytes follow.
    is_complete: bool,
    /// Whether the stored chunks are not wanted.
    is_void: bool,
}

/// The bytes that the program has written, as they come.
struct WrittenBytes {
    scratch: Arc<ScratchFile>,
    progress: Arc<Progress>,
    at: u64,
}

impl Default for EarlyUploads {
    fn default() -> Self {
        EarlyUploads(Arc::new(Semaphore::new(MAX_FILES)))
    }
}

impl EarlyUploads {
    /// Begins to store a scratch file: its first `bytes`, and then what is appended. The content
    /// replaces `replaced_bytes` in the cluster. `None` if too many files are being stored.
    pub fn begin(
        &self,
        (dfs, runtime): (&DfsClient, &Handle),
        name: FileName,
        options: WriteOptions,
        scratch: Arc<ScratchFile>,
        bytes: u64,
        replaced_bytes: u64,
    ) -> Option<EarlyStore> {
        let place = self.0.clone().try_acquire_owned().ok()?;
        let progress = Arc::new(Progress::default());
        progress.set(|written| written.bytes = bytes);
        let source = WrittenBytes { scratch, progress: progress.clone(), at: 0 };
        let dfs = dfs.clone();
        let storing = runtime
            .spawn(async move { dfs.store_early(&name, source, options, replaced_bytes).await });
        Some(EarlyStore { progress, storing, _place: place })
    }
}

impl EarlyStore {
    /// The program has written all bytes up to here.
    pub fn wrote(&self, bytes: u64) {
        self.progress.set(|written| written.bytes = bytes);
    }

    /// The program has written all bytes of the file. Returns when they are stored; `None` if that
    /// has failed.
    pub async fn finish(mut self) -> Option<UnclaimedContent> {
        self.progress.set(|written| written.is_complete = true);
        match (&mut self.storing).await {
            Ok(Ok(content)) => Some(content),
            Ok(Err(error)) => {
                tracing::debug!("a file was not stored while it was written: {error}");
                None
            }
            Err(error) => {
                tracing::warn!("a file was not stored while it was written: {error}");
                None
            }
        }
    }
}

impl Drop for EarlyStore {
    fn drop(&mut self) {
        self.progress.set(|written| written.is_void = true);
        self.storing.abort();
    }
}

impl Progress {
    fn set(&self, change: impl FnOnce(&mut WriteProgress)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `bytes` are written, or the program has ended.
    fn wait(&self, bytes: u64) -> WriteProgress {
        let is_waiting = |written: &mut WriteProgress| {
            written.bytes < bytes && !written.is_complete && !written.is_void
        };
        *self.changed.wait_while(self.lock(), is_waiting).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, WriteProgress> {
        // No update of the values panics half-way.
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Read for WrittenBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let written = self.progress.wait(self.at + buffer.len() as u64);
        if written.is_void {
            return Err(io::Error::other("the bytes that were written have changed"));
        }
        let length = (written.bytes - self.at).min(buffer.len() as u64) as usize;
        self.scratch.read_exact_at(&mut buffer[..length], self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::scratch::Scratch;

    fn scratch() -> Arc<ScratchFile> {
        Arc::new(Scratch::file_in(&std::env::temp_dir()).unwrap())
    }

    #[test]
    fn a_reader_follows_the_program_to_the_end() {
        let scratch = scratch();
        let progress = Arc::new(Progress::default());
        let mut source =
            WrittenBytes { scratch: scratch.clone(), progress: progress.clone(), at: 0 };
        let reader = std::thread::spawn(move || {
            let mut content = Vec::new();
            source.read_to_end(&mut content).map(|_| content)
        });
        let mut model = Vec::new();
        for number in 0..100_u8 {
            let block = vec![number; 1000];
            scratch.write_all_at(&block, model.len() as u64).unwrap();
            model.extend(block);
            progress.set(|written| written.bytes = model.len() as u64);
        }
        progress.set(|written| written.is_complete = true);
        assert!(reader.join().unwrap().unwrap() == model);
    }

    #[test]
    fn a_reader_of_bytes_that_have_changed_fails() {
        let (scratch, progress) = (scratch(), Arc::new(Progress::default()));
        let mut source = WrittenBytes { scratch, progress: progress.clone(), at: 0 };
        let reader = std::thread::spawn(move || source.read(&mut [0; 10]));
        progress.set(|written| written.is_void = true);
        assert!(reader.join().unwrap().is_err());
    }
}
