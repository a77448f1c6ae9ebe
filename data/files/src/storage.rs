//! The cluster's files as persistent storage: `eyas:///path` as inputs and outputs of tasks.

use std::fs::Metadata;
use std::future::Future;
use std::io::{Read, Seek};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::pin::Pin;
use std::sync::Arc;

use eyas_store::{
    ClusterFiles, ContentPart, FileParts, FoundFile, StorageError, StorageErrorKind, StoredContent,
};
use eyas_types::dfs::{Chunk, FileKind, FileName, FileRecord, PROBED_BYTES, RecordFormat};
use eyas_types::{FileMode, ObjectId, Version};
use tokio::sync::Mutex;

use crate::record_index::{RecordIndex, RecordStart};
use crate::{
    ChunkStream, Creation, DfsClient, File, FilePart, FilesError, FilesErrorKind, HiddenFile,
    SparseFile, WriteOptions,
};

/// Connects to the file system.
type Connect =
    dyn Fn() -> Pin<Box<dyn Future<Output = Result<DfsClient, StorageError>> + Send>> + Send + Sync;

/// The files of a cluster, to which this process connects when the first of them is used.
pub struct FilesStorage {
    connect: Box<Connect>,
    /// Cleared when no node of the file system answers: others may have taken their places.
    client: Mutex<Option<DfsClient>>,
}

impl FilesStorage {
    /// Connects with `connect`. If that fails, the next use of a file tries again.
    pub fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<DfsClient, StorageError>> + Send + 'static,
    {
        FilesStorage { connect: Box::new(move || Box::pin(connect())), client: Mutex::default() }
    }

    async fn client(&self) -> Result<DfsClient, StorageError> {
        let mut client = self.client.lock().await;
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let connected = (self.connect)().await?;
        Ok(client.insert(connected).clone())
    }

    /// Looks a file up.
    async fn file(&self, name: &str) -> Result<(DfsClient, File), StorageError> {
        let (client, name) = (self.client().await?, named(name)?);
        let file = self.answered(client.stat(&name).await).await?;
        Ok((client, file))
    }

    /// The attributes of an output: the permissions of its file, less the umask, but it is open to
    /// no user to whom the file that it replaces is closed.
    async fn creation_of(
        &self,
        client: &DfsClient,
        name: &FileName,
        file: &Metadata,
    ) -> Result<Creation, StorageError> {
        let mode = FileMode::of_copy(file.mode());
        let mode = match client.lookup(name).await {
            Ok(File { record, .. }) if record.kind == FileKind::File => {
                mode.replacing(record.attributes.mode.into())
            }
            Err(error) if error.kind != FilesErrorKind::NotFound => {
                return self.answered(Err(error)).await;
            }
            _ => mode,
        };
        Ok(Creation::of_process(mode.bits() as u16))
    }

    /// An answer of the file system.
    async fn answered<T>(&self, answer: Result<T, FilesError>) -> Result<T, StorageError> {
        if answer.as_ref().is_err_and(|error| error.kind == FilesErrorKind::Unreachable) {
            *self.client.lock().await = None;
        }
        Ok(answer?)
    }
}

#[async_trait::async_trait]
impl ClusterFiles for FilesStorage {
    async fn look_up(&self, name: &str) -> Result<Arc<dyn FoundFile>, StorageError> {
        let (files, file) = self.file(name).await?;
        Ok(Arc::new(LookedUpFile { records: RecordIndex::new(files, file.clone()), file }))
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let listed = self.client().await?.list(folder).await;
        let listed = self.answered(listed).await?;
        Ok(listed.into_iter().map(|listing| listing.name.as_str().to_owned()).collect())
    }

    async fn read(
        &self,
        name: &str,
        version: &Version,
        offset: u64,
    ) -> Result<Box<dyn FileParts>, StorageError> {
        let (client, file) = self.file(name).await?;
        let part = part_of(&file.record, version).ok_or_else(|| {
            StorageError::changed(format_args!("eyas://{name}"), "it has other content")
        })?;
        Ok(Box::new(client.read_range(&file, part.start + offset..part.end)))
    }

    async fn store(
        &self,
        name: &str,
        mut content: std::fs::File,
    ) -> Result<Box<dyn StoredContent>, StorageError> {
        let (client, name) = (self.client().await?, named(name)?);
        let unreadable =
            |error: std::io::Error| StorageError::local("cannot read an output", error);
        let creation =
            self.creation_of(&client, &name, &content.metadata().map_err(unreadable)?).await?;
        let options = |format| WriteOptions { creation, ..WriteOptions::of(format) };
        let mut beginning = Vec::new();
        (&content).take(PROBED_BYTES as u64).read_to_end(&mut beginning).map_err(unreadable)?;
        content.rewind().map_err(unreadable)?;
        let again = content.try_clone().map_err(unreadable)?;
        let guessed = RecordFormat::guess(name.base_name(), &beginning);
        let hidden =
            match client.store_hidden(&name, SparseFile(content), options(guessed), |_| {}).await {
                // It does not have the format that its name promises, so it is stored without
                // records.
                Err(error) if error.kind == FilesErrorKind::WrongFormat => {
                    (&again).rewind().map_err(unreadable)?;
                    let plain = guessed.with(guessed.without_records());
                    client.store_hidden(&name, SparseFile(again), options(plain), |_| {}).await?
                }
                stored => self.answered(stored).await?,
            };
        Ok(Box::new(hidden))
    }
}

/// A file, as it was when it was looked up.
struct LookedUpFile {
    file: File,
    records: RecordIndex,
}

#[async_trait::async_trait]
impl FoundFile for LookedUpFile {
    fn whole(&self) -> Version {
        version_of(&self.file.record)
    }

    fn blocks(&self) -> Vec<Version> {
        let record = &self.file.record;
        let version = |chunks: &[Chunk]| match chunks {
            [chunk] => version_of_chunk(chunk),
            _ => version_of(record),
        };
        record.blocks().map(version).collect()
    }

    fn part(&self, range: Range<u64>) -> Result<Version, StorageError> {
        let record = &self.file.record;
        let all = record.size_bytes();
        let part = range.start..range.end.min(all);
        if part.is_empty() {
            return Err(beyond_end(&self.file.name, all, "bytes", range.start));
        }
        let chunk = places(record).find(|(_, place)| *place == part).map(|(chunk, _)| chunk);
        let (offset, size_bytes) = (part.start, part.end - part.start);
        Ok(chunk.map_or_else(
            || Version::Part { etag: digest_of(record), offset, size_bytes },
            version_of_chunk,
        ))
    }

    fn chunks(&self, version: &Version) -> Vec<(ObjectId, u64)> {
        let record = &self.file.record;
        let part = part_of(record, version).unwrap_or_default();
        let is_in = |place: &Range<u64>| place.start < part.end && part.start < place.end;
        let chunks = places(record).filter(|(chunk, place)| is_in(place) && !chunk.is_hole());
        chunks.map(|(chunk, _)| (chunk.object, chunk.size_bytes)).collect()
    }

    async fn records(&self, range: Range<u64>) -> Result<Version, StorageError> {
        let start = match self.records.start_of(range.start).await? {
            RecordStart::At(offset) => offset,
            RecordStart::Beyond { records } => {
                return Err(beyond_end(&self.file.name, records, "records", range.start));
            }
        };
        let end = match range.end {
            u64::MAX => u64::MAX,
            end => match self.records.start_of(end).await? {
                RecordStart::At(offset) => offset,
                RecordStart::Beyond { .. } => u64::MAX,
            },
        };
        self.part(start..end)
    }
}

fn beyond_end(name: &FileName, all: u64, of: &str, from: u64) -> StorageError {
    let message = format!(
        "`eyas://{name}` has {all} {of}, and so none from {from} on: the range is beyond its end"
    );
    StorageError::new(StorageErrorKind::Invalid, message)
}

#[async_trait::async_trait]
impl FileParts for ChunkStream {
    async fn next(&mut self) -> Result<Option<ContentPart>, StorageError> {
        Ok(self.next_part().await?.map(|part| match part {
            FilePart::Bytes(bytes) => ContentPart::Bytes(bytes),
            FilePart::Hole(bytes) => ContentPart::Hole(bytes),
        }))
    }

    fn near_bytes(&self) -> u64 {
        ChunkStream::near_bytes(self)
    }
}

#[async_trait::async_trait]
impl StoredContent for HiddenFile {
    async fn publish(
        self: Box<Self>,
        may_appear: &(dyn Fn() -> bool + Sync),
    ) -> Result<Version, StorageError> {
        match HiddenFile::publish(*self, may_appear).await? {
            Some(file) => Ok(version_of(&file.record)),
            None => Err(StorageError::new(StorageErrorKind::Withdrawn, "it is no longer wanted")),
        }
    }
}

fn named(name: &str) -> Result<FileName, StorageError> {
    name.parse().map_err(|error: eyas_types::dfs::FileNameError| {
        StorageError::new(StorageErrorKind::Invalid, error.to_string())
    })
}

/// The version of a file: its chunk if it has only one, otherwise a digest of its content.
fn version_of(record: &FileRecord) -> Version {
    match &record.chunks[..] {
        [chunk] => version_of_chunk(chunk),
        _ => Version::Etag { etag: digest_of(record), size_bytes: record.size_bytes() },
    }
}

fn version_of_chunk(chunk: &Chunk) -> Version {
    Version::Chunk { chunk: chunk.object, checksum: chunk.checksum, size_bytes: chunk.size_bytes }
}

/// A digest of the content of a file: of the sizes and checksums of its chunks.
fn digest_of(record: &FileRecord) -> String {
    let mut hasher = blake3::Hasher::new();
    for chunk in &record.chunks {
        hasher.update(&chunk.size_bytes.to_le_bytes()).update(&chunk.checksum.to_le_bytes());
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The chunks of a file, and the bytes of the file that are in each.
fn places(record: &FileRecord) -> impl Iterator<Item = (&Chunk, Range<u64>)> {
    let mut end = 0;
    record.chunks.iter().map(move |chunk| {
        let start = end;
        end += chunk.size_bytes;
        (chunk, start..end)
    })
}

/// The place in a file of the content that `version` names. A file that was written again with the
/// same content has the same places.
fn part_of(record: &FileRecord, version: &Version) -> Option<Range<u64>> {
    match version {
        Version::Chunk { chunk: object, checksum, size_bytes } => {
            let is_it = |(chunk, _): &(&Chunk, _)| chunk.object == *object;
            let has_it = |(chunk, _): &(&Chunk, _)| {
                (chunk.checksum, chunk.size_bytes) == (*checksum, *size_bytes)
            };
            places(record)
                .find(is_it)
                .or_else(|| places(record).find(has_it))
                .map(|(_, place)| place)
        }
        Version::Part { etag, offset, size_bytes } => {
            (digest_of(record) == *etag).then(|| *offset..offset + size_bytes)
        }
        version => (version_of(record) == *version).then(|| 0..record.size_bytes()),
    }
}

impl From<FilesError> for StorageError {
    fn from(error: FilesError) -> Self {
        let kind = match error.kind {
            FilesErrorKind::NotFound => StorageErrorKind::NotFound,
            FilesErrorKind::NotAllowed => StorageErrorKind::Denied,
            FilesErrorKind::Changed | FilesErrorKind::Exists => StorageErrorKind::Changed,
            FilesErrorKind::Invalid
            | FilesErrorKind::WrongFormat
            | FilesErrorKind::IsFolder
            | FilesErrorKind::NotFolder
            | FilesErrorKind::NotEmpty
            | FilesErrorKind::NoAttribute => StorageErrorKind::Invalid,
            FilesErrorKind::Full
            | FilesErrorKind::FullNow
            | FilesErrorKind::Quota
            | FilesErrorKind::AttributesFull => StorageErrorKind::NoSpace,
            FilesErrorKind::Lost | FilesErrorKind::Unreachable => StorageErrorKind::Unreachable,
            FilesErrorKind::Local => StorageErrorKind::Local,
        };
        StorageError::new(kind, error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::dfs::{Attributes, FileId, FileKind, NodeId};

    fn file(chunks: &[(u64, u64)]) -> FileRecord {
        let id = FileId(7);
        let chunk = |(checksum, size_bytes): &(u64, u64)| Chunk {
            object: Chunk::object_of(id, *size_bytes, *checksum),
            size_bytes: *size_bytes,
            checksum: *checksum,
            replicas: vec![NodeId(1)],
        };
        let chunks = chunks.iter().map(chunk).collect();
        let record = FileRecord::without_content(id, FileKind::File, Attributes::default());
        FileRecord { chunk_bytes: 10, replication: 1, chunks, ..record }
    }

    #[test]
    fn versions_name_the_bytes_that_they_were_made_for() {
        let (one, many) = (file(&[(1, 10)]), file(&[(1, 10), (2, 20), (3, 5)]));
        let Version::Chunk { chunk, .. } = version_of(&one) else { panic!("one chunk") };
        assert_eq!(chunk, one.chunks[0].object);
        assert_eq!(part_of(&one, &version_of(&one)), Some(0..10));
        assert_eq!(part_of(&many, &version_of(&many)), Some(0..35));
        let second = version_of_chunk(&many.chunks[1]);
        assert_eq!(part_of(&many, &second), Some(10..30));
        let part = |record| Version::Part { etag: digest_of(record), offset: 5, size_bytes: 20 };
        assert_eq!(part_of(&many, &part(&many)), Some(5..25));
        let other = file(&[(1, 10), (9, 20), (3, 5)]);
        for version in [version_of(&many), second.clone(), part(&many)] {
            assert_eq!(part_of(&other, &version), None);
        }
        // The same content is found again in a file that was written anew.
        let mut again = many.clone();
        again.chunks.iter_mut().for_each(|chunk| chunk.object.0[0] ^= 1);
        assert_eq!(part_of(&again, &second), Some(10..30));
        assert_eq!(part_of(&again, &part(&many)), Some(5..25));
    }
}
