//! Standard input of the program of a task: the chunks that the program reads, one after the other.

use std::io::ErrorKind;
use std::sync::Arc;

use eyas_dfs::{DfsClient, File, FilesError, FilesErrorKind};
use eyas_types::dfs::FileRecord;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::task::JoinHandle;

use super::worker::WorkError;

/// Standard input of the program.
#[derive(Default)]
pub(super) struct Input {
    pub pipe: Option<Sender>,
    /// The present chunk, and the number of its bytes that the program has read.
    pub fed: Option<(Vec<u8>, usize)>,
    /// The present chunk, while it is read from the file system.
    pub loading: Option<Loading>,
    /// The next chunk, which is read ahead.
    pub ahead: Option<Loading>,
}

/// A chunk that is read in the background. Dropping it stops the read.
pub(super) struct Loading {
    pub chunk: u32,
    content: JoinHandle<Result<Vec<u8>, FilesError>>,
}

impl Input {
    pub fn wants_chunk(&self) -> bool {
        self.pipe.is_some() && self.fed.is_none() && self.loading.is_none()
    }

    /// Waits until the program has read some bytes, and returns their number; or until a chunk has arrived, and returns
    /// `None`. The future may be dropped and the method called again.
    pub async fn advance(&mut self) -> Result<Option<usize>, WorkError> {
        if let Some(loading) = &mut self.loading {
            let content = (&mut loading.content).await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))?;
            (self.loading, self.fed) = (None, Some((content, 0)));
            return Ok(None);
        }
        let (Some(pipe), Some((content, at))) = (&mut self.pipe, &mut self.fed) else {
            return std::future::pending().await;
        };
        match pipe.write(&content[*at..]).await {
            Ok(bytes) => {
                *at += bytes;
                Ok(Some(bytes))
            }
            // The program has closed its standard input.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.pipe = None;
                Ok(None)
            }
            Err(error) => Err(WorkError::Input(error)),
        }
    }

    /// Whether the program has read all of the present chunk. If so, drops the chunk.
    pub fn is_fed(&mut self) -> bool {
        self.fed.take_if(|(content, at)| *at == content.len()).is_some()
    }
}

impl Loading {
    /// Begins to read `chunk` of the run, which has this index in `file`.
    pub fn begin(chunk: u32, files: DfsClient, file: Arc<File>, index: usize) -> Self {
        let content = tokio::spawn(async move {
            match files.chunk(&file, index).await {
                Err(error) if error.kind == FilesErrorKind::Lost => {}
                read => return read,
            }
            // The record may be old: the chunk may have replicas on other nodes now.
            let now = files.stat(&file.name).await?;
            let object = |record: &FileRecord| record.chunks.get(index).map(|chunk| chunk.object);
            if object(&now.record) != object(&file.record) {
                return Err(FilesError::changed(&file.name));
            }
            files.chunk(&now, index).await
        });
        Loading { chunk, content }
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.content.abort();
    }
}
