//! A file that a program writes: one piece after the other, or at any offset. Nothing appears
//! before the writer is finished.

mod edit;
mod sequence;

use eyas_types::dfs::FileName;

use edit::FileEdit;
use sequence::SequenceWriter;

use crate::error::FilesError;
use crate::{DfsClient, WriteOptions};

/// A file that does not exist yet, or changes of a file. If it is dropped, nothing appears.
pub struct FileWriter(Kind);

enum Kind {
    /// A new file, or what is appended to a file, is stored while it is written.
    Sequence(SequenceWriter),
    /// Changes at any offset are stored at the end.
    Edit(Box<FileEdit>),
}

impl FileWriter {
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
        Ok(FileWriter(Kind::Sequence(
            SequenceWriter::create(files, name, options, replaces).await?,
        )))
    }

    /// Begins to append to a file. All that is written appears at once.
    ///
    /// # Errors
    /// As [`stat`](DfsClient::stat); `NotAllowed`.
    pub async fn append(files: DfsClient, name: FileName) -> Result<Self, FilesError> {
        Ok(FileWriter(Kind::Sequence(SequenceWriter::append(files, name).await?)))
    }

    /// Begins to change the present version of a file at any offset; with `creates`, a new file of
    /// these options if there is none. All changes appear at once, and only chunks with changed
    /// bytes are stored again. Until then, the bytes are in memory while they are few, otherwise in
    /// a file without a name in the folder for temporary files.
    ///
    /// # Errors
    /// As [`stat`](DfsClient::stat); `NotAllowed`.
    pub async fn edit(
        files: DfsClient,
        name: FileName,
        creates: Option<WriteOptions>,
    ) -> Result<Self, FilesError> {
        Ok(FileWriter(Kind::Edit(Box::new(FileEdit::begin(files, name, creates).await?))))
    }

    /// Collects bytes that need not be stored yet. Returns those for which
    /// [`write`](FileWriter::write) has to be called.
    pub fn collect<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match &mut self.0 {
            Kind::Sequence(writer) => writer.collect(bytes),
            Kind::Edit(_) => bytes,
        }
    }

    /// Writes bytes at the end of what was written before: of changes, behind the last of them, at
    /// first at the beginning of the file.
    ///
    /// # Errors
    /// That of an earlier write that has failed since; then nothing will appear. Of changes, as
    /// [`write_at`](FileWriter::write_at), which this waits for on the thread that polls it.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), FilesError> {
        match &mut self.0 {
            Kind::Sequence(writer) => writer.write(bytes).await,
            Kind::Edit(edit) => edit.write_at(edit.position(), bytes),
        }
    }

    /// Writes bytes at an offset. Bytes between the end of the file and the offset become zeros.
    /// May wait for the disk with the temporary files.
    ///
    /// # Errors
    /// `Invalid` if the writer was not begun with [`edit`](FileWriter::edit), or if the file would
    /// be too large; `Local` if the temporary file cannot be written, and after any change that has
    /// failed: nothing will appear then.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.editing()?.write_at(offset, bytes)
    }

    /// Cuts the file off at this size, or appends zeros to it.
    ///
    /// # Errors
    /// As [`write_at`](FileWriter::write_at).
    pub fn set_size(&mut self, size_bytes: u64) -> Result<(), FilesError> {
        self.editing()?.set_size(size_bytes)
    }

    /// Size of the file with the changes.
    ///
    /// # Errors
    /// `Invalid` if the writer was not begun with [`edit`](FileWriter::edit).
    pub fn size_bytes(&mut self) -> Result<u64, FilesError> {
        Ok(self.editing()?.size_bytes())
    }

    /// Fills the buffer with the bytes from `offset`, with the changes, as far as the file has
    /// them. Returns their number. Changes are read on the thread that polls this, which may wait
    /// for the disk with the temporary files.
    ///
    /// # Errors
    /// As [`write_at`](FileWriter::write_at), and as [`read`](crate::FileReader::read).
    pub async fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, FilesError> {
        self.editing()?.read(offset, buffer).await
    }

    /// Makes all that was written appear. The file is on the disks of a quorum of the nodes that
    /// should have it then.
    ///
    /// # Errors
    /// `Local` after a change that has failed. As [`write`](DfsClient::write),
    /// [`append`](DfsClient::append), [`publish`](crate::HiddenFile::publish) and
    /// [`rewrite`](DfsClient::rewrite).
    pub async fn finish(self) -> Result<(), FilesError> {
        match self.0 {
            Kind::Sequence(writer) => writer.finish().await,
            Kind::Edit(edit) => edit.finish().await,
        }
    }

    fn editing(&mut self) -> Result<&mut FileEdit, FilesError> {
        match &mut self.0 {
            Kind::Edit(edit) => Ok(edit),
            Kind::Sequence(_) => Err(FilesError::invalid(
                "this file is written from its beginning to its end: open it to be changed, to \
                 write at an offset",
            )),
        }
    }
}
