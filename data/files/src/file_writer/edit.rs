//! Changes of a file at any offset. They are a draft until they are published, as those of programs
//! of a mount.

use std::ops::Range;
use std::sync::Arc;

use eyas_types::dfs::{FileName, MAX_CHUNKS};
use tokio::runtime::Handle;

use crate::draft::ContentDraft;
use crate::draft::content::DraftContent;
use crate::entries::now_ns;
use crate::error::{FilesError, FilesErrorKind};
use crate::write::rewrite::{Change, NewContent, SentRecords, without_records};
use crate::{DfsClient, FileReader, WriteOptions};

/// A file that is being changed.
pub(super) struct FileEdit {
    files: DfsClient,
    name: FileName,
    /// Reads the version that is changed; `None` for a new file.
    base: Option<FileReader>,
    draft: ContentDraft,
    options: WriteOptions,
    /// Where the last write has ended.
    position: u64,
    /// Whether a change has failed, so that nothing appears.
    has_failed: bool,
}

impl FileEdit {
    pub async fn begin(
        files: DfsClient,
        name: FileName,
        creates: Option<WriteOptions>,
    ) -> Result<Self, FilesError> {
        let base = match (FileReader::open(files.clone(), &name).await, creates) {
            (Err(error), Some(_)) if error.kind == FilesErrorKind::NotFound => None,
            (opened, _) => Some(opened?),
        };
        files.check_may_write(&name).await?;
        let options = match (&base, creates) {
            (Some(base), _) => {
                let record = &base.file().record;
                WriteOptions { chunk_bytes: record.chunk_bytes, ..WriteOptions::of(record.format) }
            }
            (None, creates) => creates.ok_or_else(|| FilesError::not_found(&name))?,
        };
        let draft =
            ContentDraft::new(&std::env::temp_dir(), base.as_ref().map(|base| base.file().clone()));
        Ok(FileEdit { files, name, base, draft, options, position: 0, has_failed: false })
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn size_bytes(&self) -> u64 {
        self.draft.size_bytes()
    }

    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.change(|edit| {
            let end = edit.fits(offset.checked_add(bytes.len() as u64))?;
            if !bytes.is_empty() {
                edit.draft.write(offset, bytes, false).map_err(|error| edit.not_kept(&error))?;
            }
            edit.position = end;
            Ok(())
        })
    }

    pub fn set_size(&mut self, size_bytes: u64) -> Result<(), FilesError> {
        self.change(|edit| {
            let size_bytes = edit.fits(Some(size_bytes))?;
            edit.draft.set_size(size_bytes).map_err(|error| edit.not_kept(&error))
        })
    }

    /// Notes if a change fails: it may be done in part.
    fn change(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), FilesError>,
    ) -> Result<(), FilesError> {
        self.check()?;
        let changed = change(self);
        self.has_failed = changed.is_err();
        changed
    }

    /// Refuses everything after a change that has failed.
    fn check(&self) -> Result<(), FilesError> {
        if !self.has_failed {
            return Ok(());
        }
        let message = format!(
            "an earlier change of {} has failed: nothing of its changes appears",
            self.name
        );
        Err(FilesError::new(FilesErrorKind::Local, message))
    }

    /// Bytes of the base go to the buffer, and are not kept.
    pub async fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        self.check()?;
        let end = offset.saturating_add(buffer.len() as u64).min(self.draft.size_bytes());
        if offset >= end {
            return Ok(0);
        }
        let (mut rest, mut at) = (&mut buffer[..(end - offset) as usize], offset);
        for Range { start, end } in self.draft.missing(offset..end) {
            let Some(base) = &self.base else { break };
            let (own, later) = rest.split_at_mut((start - at) as usize);
            let (of_base, later) = later.split_at_mut((end - start) as usize);
            self.draft.read_into(at, own).map_err(|error| self.not_kept(&error))?;
            base.read(start, of_base).await?;
            (rest, at) = (later, end);
        }
        self.draft.read_into(at, rest).map_err(|error| self.not_kept(&error))?;
        Ok((end - offset) as usize)
    }

    pub async fn finish(mut self) -> Result<(), FilesError> {
        self.check()?;
        if !self.draft.is_dirty() {
            return Ok(());
        }
        let snapshot = Arc::new(self.draft.begin_publication());
        let (size_bytes, changed): (u64, Vec<_>) = (snapshot.size_bytes, snapshot.changed());
        let content =
            DraftContent { dfs: self.files.clone(), snapshot, runtime: Handle::current() };
        let FileEdit { files, name, base, options, .. } = &self;
        let Some(base) = base else {
            let format = match options.format.is_guessed {
                true => content.format(name).await.map_err(|error| self.not_kept(&error))?,
                false => options.format,
            };
            let options = WriteOptions { format, ..*options };
            let write = async |options| {
                files.write(name, content.reader(0..size_bytes), options, |_| {}).await
            };
            return match write(options).await {
                // Only the beginning has the format that was guessed by it.
                Err(error) if error.kind == FilesErrorKind::WrongFormat && format.is_guessed => {
                    write(without_records(options)).await.map(drop)
                }
                written => written.map(drop),
            };
        };
        let format = content.format(name).await.map_err(|error| self.not_kept(&error))?;
        let now_ns = now_ns();
        let change = Change {
            content: &content,
            size_bytes,
            changed: &changed,
            modified_ns: now_ns,
            changed_ns: now_ns,
            is_durable: true,
            format: Some(format),
        };
        match files.rewrite(base.file(), change, None, &SentRecords::default()).await {
            // Bytes of the version could not be read: another client may have replaced it, and its
            // chunks are gone.
            Err(error) if matches!(error.kind, FilesErrorKind::Local | FilesErrorKind::Lost) => {
                let is_replaced = match files.lookup(name).await {
                    Ok(now) => !now.record.is_as_written(&base.file().record),
                    Err(error) => error.kind == FilesErrorKind::NotFound,
                };
                Err(if is_replaced { FilesError::changed(name) } else { error })
            }
            changed => changed.map(drop),
        }
    }

    /// The size, if the file can have it. Files with larger chunks can be larger.
    fn fits(&self, size_bytes: Option<u64>) -> Result<u64, FilesError> {
        let most = self.options.chunk_bytes.saturating_mul(MAX_CHUNKS as u64);
        let too_large = || {
            let message = format!(
                "{} cannot have more than {most} bytes: write it with larger chunks",
                self.name
            );
            FilesError::invalid(message)
        };
        size_bytes.filter(|size_bytes| *size_bytes <= most).ok_or_else(too_large)
    }

    fn not_kept(&self, error: &std::io::Error) -> FilesError {
        FilesError::local(
            &format!("changes of {} cannot be kept in a temporary file", self.name),
            error,
        )
    }
}
