//! The format of a file's records: choosing another one, and guessing it again under a new name.
//! Another format has other borders, so the content is cut and stored anew.

use std::io::{self, Read};

use eyas_blocks::format::Cutter;
use eyas_types::dfs::{FileName, FileRecord, Format, PROBED_BYTES, RecordFormat};
use tokio::runtime::Handle;

use crate::chunk_stream::ChunkStream;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::replicas::unclaimed::UnclaimedChunks;
use crate::uploads::FileDraft;
use crate::write::Writes;

/// A file of up to this size is cut anew when it is renamed and its new name promises another
/// format. To cut a larger one takes longer than a rename may.
const MAX_RECUT_BYTES: u64 = 1 << 30;

impl Writes {
    /// Gives a file another format. Its content is cut and stored anew, unless the new format can
    /// be cut anywhere.
    pub async fn set_format(&self, file: &File, format: RecordFormat) -> Result<File, FilesError> {
        let FileRecord { format: present, chunk_bytes, replication, .. } = file.record;
        if *format == *present || format.accepts_any_chunks() {
            let record = FileRecord { format, ..file.record.clone() };
            return self
                .publisher
                .replace(file.clone(), record, UnclaimedChunks::new(&self.uploads.replicas))
                .await;
        }
        let draft = FileDraft::new(&self.uploads.replicas, &file.name, replication)?;
        let mut draft = FileDraft { replaced_bytes: file.record.size_bytes(), ..draft };
        let content = Content {
            reading: self.chunks.read(file),
            runtime: Handle::current(),
            part: Vec::new(),
            at: 0,
        };
        let cutter = Cutter::storing(*format, chunk_bytes, 0);
        let chunks =
            self.uploads.store_all(&mut draft, cutter, content, Vec::new(), 0, |_| {}).await?;
        let record = FileRecord { format, chunks, ..file.record.clone() };
        self.publisher.replace(file.clone(), record, draft.unclaimed).await
    }

    /// Guesses the format of a file again that had another name, unless a user has chosen the
    /// format. A file that does not have the format of its new name, or is too large to be cut now,
    /// keeps the format that it has.
    pub async fn guess_again(&self, from: &FileName, to: &FileName) -> Result<(), FilesError> {
        if Format::of_name(from.base_name()) == Format::of_name(to.base_name()) {
            return Ok(());
        }
        let file = self.names.lookup(to).await?;
        let (format, size_bytes) = (file.record.format, file.record.size_bytes());
        if !format.is_guessed {
            return Ok(());
        }
        let beginning = self.chunks.read_at(&file, 0, size_bytes.min(PROBED_BYTES as u64)).await?;
        let guessed = RecordFormat::guess(to.base_name(), &beginning);
        if guessed == format {
            return Ok(());
        }
        if size_bytes > MAX_RECUT_BYTES && !guessed.accepts_any_chunks() {
            tracing::warn!(
                "{to} has more than {MAX_RECUT_BYTES} bytes, and is still divided into records of \
                 {}: `eyas dfs set --records {} {to}` divides it anew",
                *format,
                *guessed
            );
            return Ok(());
        }
        match self.set_format(&file, guessed).await {
            Err(error)
                if matches!(error.kind, FilesErrorKind::WrongFormat | FilesErrorKind::Changed) =>
            {
                Ok(())
            }
            set => set.map(drop),
        }
    }
}

/// The content of a file, for a thread that may wait.
struct Content {
    reading: ChunkStream,
    runtime: Handle,
    part: Vec<u8>,
    at: usize,
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.part.len() {
            self.part = self
                .runtime
                .block_on(self.reading.next())
                .map_err(io::Error::other)?
                .unwrap_or_default();
            self.at = 0;
        }
        let read = (&self.part[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}
