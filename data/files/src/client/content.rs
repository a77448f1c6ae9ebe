//! Content: reading, writing and copying files.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use eyas_types::dfs::{Chunk, FileId, FileName, RecordFormat};
use eyas_types::{ObjectId, ObjectSpec};

use crate::chunk_stream::ChunkStream;
use crate::client::DfsClient;
use crate::copy::CopyOptions;
use crate::copy::retained::RetainedFile;
use crate::error::FilesError;
use crate::file::File;
use crate::near::OpenChunk;
use crate::places::BlockPlace;
use crate::publish::HiddenFile;
use crate::source::ContentSource;
use crate::write::options::WriteOptions;
use crate::write::rewrite::{Change, NewFile, SentRecords, UnclaimedContent};

impl DfsClient {
    /// Reads a whole file.
    pub fn read(&self, file: &File) -> ChunkStream {
        self.0.chunks.read(file)
    }

    /// Reads `length` bytes from `offset`.
    ///
    /// # Errors
    /// `NotFound` if the file is shorter; `Lost`.
    pub async fn read_at(
        &self,
        file: &File,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, FilesError> {
        self.0.chunks.read_at(file, offset, length).await
    }

    /// The content of the chunk with this index.
    ///
    /// # Errors
    /// `Lost` if no replica of it can be read.
    ///
    /// # Panics
    /// If the file has no such chunk.
    pub async fn chunk(&self, file: &File, index: usize) -> Result<Vec<u8>, FilesError> {
        self.0.chunks.chunk(file, index).await
    }

    /// Reads a range of a file, up to the end of the file.
    pub fn read_range(&self, file: &File, wanted: Range<u64>) -> ChunkStream {
        self.0.chunks.read_range(file, wanted)
    }

    /// Where the chunks of a file are, in order. If a node that has one is not known to be alive,
    /// the nodes are asked once which are; if none answers, the places are those that this client
    /// knows.
    pub async fn places(&self, file: &File) -> Vec<BlockPlace> {
        self.0.chunks.places(file).await
    }

    /// The chunk with this index, divided into this number of pieces. The content is the file of
    /// the chunk if a node on this machine has it, otherwise its bytes. With `may_map`, the file is
    /// mapped into memory while it is checked, instead of copied: the process ends if another
    /// program shortens the file meanwhile, so only processes that do nothing else may set it.
    ///
    /// # Errors
    /// `Changed` if another client has replaced the content; `Lost` if no replica of it can be
    /// read.
    ///
    /// # Panics
    /// If the file has no such chunk.
    pub async fn open_chunk(
        &self,
        file: &File,
        index: usize,
        pieces: u32,
        may_map: bool,
    ) -> Result<OpenChunk, FilesError> {
        self.0.chunks.open_chunk(file, index, pieces, may_map).await
    }

    /// Reads a part of a chunk from the store of a node on this machine; `None` if the part has to
    /// be requested. The whole chunk is checked first, unless that was done before. So the first
    /// small parts of a chunk are requested.
    pub async fn read_local(&self, chunk: &Chunk, range: Range<u64>) -> Option<Vec<u8>> {
        self.0.chunks.near.read_local(chunk, range).await
    }

    /// Writes a new file, which appears when it is complete. Calls `see` with the number of bytes
    /// stored so far.
    ///
    /// # Errors
    /// `Exists`; `WrongFormat` if the content does not have this format; `Invalid` if it is too
    /// large; `Full`, `Unreachable`; `Local` if the source fails. No file appears then.
    pub async fn write(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        self.0.writes.write(name, source, options, see).await
    }

    /// Writes a new file whose content is in memory. Many such files can be written at the same
    /// time; their chunks and names go to the nodes in groups.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write).
    pub async fn write_content(
        &self,
        name: &FileName,
        content: Vec<u8>,
        options: WriteOptions,
    ) -> Result<File, FilesError> {
        self.0.writes.write_content(name, content, options).await
    }

    /// Appends to a file, completely or not at all. Calls `see` with the number of bytes stored so
    /// far.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write); `NotFound`; `Changed` if another client changes the file at
    /// the same time. Nothing is appended then.
    pub async fn append(
        &self,
        name: &FileName,
        source: impl ContentSource,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        self.0.writes.append(name, source, see).await
    }

    /// Stores the content of a file that appears when it is [published](HiddenFile::publish). With
    /// [`is_durable`](WriteOptions::is_durable), the content is on the disks of the nodes when this
    /// returns. Calls `see` with the number of bytes that are stored.
    ///
    /// # Errors
    /// `WrongFormat` if the content does not have this format; `Invalid` if it is too large;
    /// `Full`, `Unreachable`; `Local` if the source fails.
    pub async fn store_hidden(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<HiddenFile, FilesError> {
        self.0.writes.store_hidden(name, source, options, see).await
    }

    /// Writes a file, which appears when it is complete, and replaces a file that has the name.
    /// `stored` is the whole content, if it is stored already. With `is_there`, a file that has the
    /// name is expected, which may have the same id, and keeps its named attributes then.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write).
    pub async fn write_with_id(
        &self,
        name: &FileName,
        file: NewFile,
        change: Change<'_>,
        stored: Option<UnclaimedContent>,
        options: WriteOptions,
        is_there: bool,
    ) -> Result<File, FilesError> {
        self.0.writes.write_with_id(name, file, change, stored, options, is_there).await
    }

    /// Creates an empty file with this id.
    ///
    /// # Errors
    /// `Exists`, `Quota`, `Unreachable`.
    pub async fn create_empty(
        &self,
        name: &FileName,
        id: FileId,
        options: WriteOptions,
    ) -> Result<File, FilesError> {
        self.0.writes.create_empty(name, id, options).await
    }

    /// Forces these chunks of a file to the disks of their nodes; the others are there. Returns the
    /// file, which no longer falls back to the version before.
    ///
    /// # Errors
    /// `Unreachable` if fewer nodes than needed have them on their disks.
    pub async fn make_durable(
        &self,
        file: &File,
        objects: &BTreeSet<ObjectId>,
    ) -> Result<File, FilesError> {
        self.0.writes.make_durable(file, objects).await
    }

    /// Changes parts of a file. `stored` is the whole content, if it is stored already. If the new
    /// content does not have the format of the file, the file has no records afterwards. Adds the
    /// new record to `sent` before a node gets it.
    ///
    /// # Errors
    /// `Changed` if another client has changed the content since `file` was looked up; `NotFound`,
    /// `Full`, `Unreachable`; `Invalid` if the file would have too many chunks.
    pub async fn rewrite(
        &self,
        file: &File,
        change: Change<'_>,
        stored: Option<UnclaimedContent>,
        sent: &SentRecords,
    ) -> Result<File, FilesError> {
        self.0.writes.rewrite(file, change, stored, sent).await
    }

    /// Stores the content of a file while it is still being written, to be given to
    /// [`write_with_id`](DfsClient::write_with_id) or [`rewrite`](DfsClient::rewrite). The nodes
    /// begin to write it to their disks. It replaces this number of bytes, which quotas do not
    /// count twice.
    ///
    /// # Errors
    /// As [`write`](DfsClient::write).
    pub async fn store_early(
        &self,
        name: &FileName,
        source: impl ContentSource,
        options: WriteOptions,
        replaced_bytes: u64,
    ) -> Result<UnclaimedContent, FilesError> {
        self.0.writes.store_early(name, source, options, replaced_bytes).await
    }

    /// Gives a file another format. Its content is cut and stored anew, unless the new format can
    /// be cut anywhere.
    ///
    /// # Errors
    /// `WrongFormat` if the content does not have this format; `Changed` if another client changes
    /// the file at the same time; `Full`, `Lost`, `Unreachable`. The file stays as it is then.
    pub async fn set_format(&self, file: &File, format: RecordFormat) -> Result<File, FilesError> {
        self.0.writes.set_format(file, format).await
    }

    /// Copies a file with its named attributes. Every node makes the new chunks of the chunks that
    /// it has; only replicas that are missing are sent from node to node.
    ///
    /// # Errors
    /// `Exists`; `Full`, `Lost`, `Unreachable`. No file appears then.
    pub async fn copy(
        &self,
        from: &File,
        to: &FileName,
        replication: u8,
    ) -> Result<File, FilesError> {
        self.0.copies.copy(from, to, replication).await
    }

    /// Makes a file of an object, of which the first of these nodes that has it cuts the chunks.
    /// The file has the permissions of the object, less the umask.
    ///
    /// # Errors
    /// `Exists`; `NotFound` if none of the nodes has the object; `WrongFormat` if the content has
    /// another one; `Full`, `Unreachable`. No file appears then.
    pub async fn copy_object(
        &self,
        object: &ObjectSpec,
        nodes: &[SocketAddr],
        to: &FileName,
        options: CopyOptions,
    ) -> Result<File, FilesError> {
        self.0.copies.copy_object(object, nodes, to, options).await
    }

    /// Copies the chunks of a file on the nodes that have them. No byte of them is transferred.
    ///
    /// # Errors
    /// `Unreachable` if no node can copy one of the chunks, for example for lack of space.
    pub async fn retain(&self, file: &File) -> Result<Arc<RetainedFile>, FilesError> {
        self.0.copies.retain(file).await
    }

    /// Deletes copies. If this fails, the nodes delete them after a day.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn release(&self, retained: &RetainedFile) -> Result<(), FilesError> {
        self.0.copies.release(retained).await
    }

    /// Removes files that clients have left which were killed while they deleted copies.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn remove_left_copies(&self) -> Result<(), FilesError> {
        self.0.copies.remove_left_copies().await
    }
}
