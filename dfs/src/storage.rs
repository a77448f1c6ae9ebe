//! The cluster's files as persistent storage: `eyas:///path` as inputs and outputs of tasks.

use std::future::Future;
use std::io::{Read, Seek};
use std::ops::Range;

use eyas_store::{ClusterFiles, FileParts, StorageError, StorageErrorKind, StoredContent};
use eyas_types::Version;
use eyas_types::dfs::{Chunk, FileName, FileRecord, Format};
use tokio::sync::OnceCell;

use crate::client::{DfsClient, FilesError, FilesErrorKind, HiddenFile, Reading, WriteOptions};
use crate::space::BoxedFuture;

/// Number of bytes by which content is found to be text.
const PROBE_BYTES: u64 = 4096;

/// Connects to the file system.
type Connect = dyn Fn() -> BoxedFuture<Result<DfsClient, StorageError>> + Send + Sync;

/// The files of a cluster, to which this process connects when the first of them is used.
pub struct FilesStorage {
    connect: Box<Connect>,
    client: OnceCell<DfsClient>,
}

impl FilesStorage {
    /// Connects with `connect`. If that fails, the next use of a file tries again.
    pub fn new<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<DfsClient, StorageError>> + Send + 'static,
    {
        FilesStorage { connect: Box::new(move || Box::pin(connect())), client: OnceCell::new() }
    }

    async fn client(&self) -> Result<&DfsClient, StorageError> {
        self.client.get_or_try_init(|| (self.connect)()).await
    }
}

#[async_trait::async_trait]
impl ClusterFiles for FilesStorage {
    async fn stat(&self, name: &str) -> Result<Version, StorageError> {
        let file = self.client().await?.stat(&named(name)?).await?;
        Ok(version_of(&file.record))
    }

    async fn blocks(&self, name: &str) -> Result<Vec<Version>, StorageError> {
        let file = self.client().await?.stat(&named(name)?).await?;
        Ok(file.record.chunks.iter().map(version_of_chunk).collect())
    }

    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageError> {
        let listed = self.client().await?.list(folder).await?;
        Ok(listed.into_iter().map(|listing| listing.name.as_str().to_owned()).collect())
    }

    async fn read(&self, name: &str, version: &Version, offset: u64) -> Result<Box<dyn FileParts>, StorageError> {
        let client = self.client().await?;
        let file = client.stat(&named(name)?).await?;
        let part = part_of(&file.record, version)
            .ok_or_else(|| StorageError::changed(format_args!("eyas://{name}"), "it has other content"))?;
        Ok(Box::new(client.read_range(&file, part.start + offset..part.end)))
    }

    async fn store(&self, name: &str, mut content: std::fs::File) -> Result<Box<dyn StoredContent>, StorageError> {
        let (client, name) = (self.client().await?, named(name)?);
        let unreadable = |error: std::io::Error| StorageError::local("cannot read an output", error);
        let mut beginning = Vec::new();
        (&content).take(PROBE_BYTES).read_to_end(&mut beginning).map_err(unreadable)?;
        content.rewind().map_err(unreadable)?;
        let again = content.try_clone().map_err(unreadable)?;
        let guessed = Format::guess(name.base_name(), !beginning.contains(&0));
        let hidden = match client.store_hidden(&name, content, WriteOptions::of(guessed)).await {
            // It does not have the format that its name promises, so it is stored without records.
            Err(error) if error.kind == FilesErrorKind::Invalid => {
                (&again).rewind().map_err(unreadable)?;
                client.store_hidden(&name, again, WriteOptions::of(Format::Fixed { record_bytes: 1 })).await?
            }
            stored => stored?,
        };
        Ok(Box::new(hidden))
    }
}

#[async_trait::async_trait]
impl FileParts for Reading {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(Reading::next(self).await?)
    }
}

#[async_trait::async_trait]
impl StoredContent for HiddenFile {
    async fn publish(&self) -> Result<Version, StorageError> {
        Ok(version_of(&HiddenFile::publish(self).await?.record))
    }
}

fn named(name: &str) -> Result<FileName, StorageError> {
    name.parse().map_err(|error: eyas_types::dfs::FileNameError| {
        StorageError::new(StorageErrorKind::Invalid, error.to_string())
    })
}

/// The version of a file: its chunk if it has only one, otherwise a digest of the sizes and checksums of its chunks.
fn version_of(record: &FileRecord) -> Version {
    match &record.chunks[..] {
        [chunk] => version_of_chunk(chunk),
        chunks => {
            let mut hasher = blake3::Hasher::new();
            for chunk in chunks {
                hasher.update(&chunk.size_bytes.to_le_bytes()).update(&chunk.checksum.to_le_bytes());
            }
            let digest = hasher.finalize().to_hex();
            Version::Etag { etag: digest[..32].to_owned(), size_bytes: record.size_bytes() }
        }
    }
}

fn version_of_chunk(chunk: &Chunk) -> Version {
    Version::Chunk { chunk: chunk.object, checksum: chunk.checksum, size_bytes: chunk.size_bytes }
}

/// The part of a file that has the content of this version: a chunk, or the whole file. Content that was written again
/// counts.
fn part_of(record: &FileRecord, version: &Version) -> Option<Range<u64>> {
    let Version::Chunk { chunk: object, checksum, size_bytes } = version else {
        return (version_of(record) == *version).then(|| 0..record.size_bytes());
    };
    let is_it = |chunk: &&Chunk| chunk.object == *object;
    let has_it = |chunk: &&Chunk| (chunk.checksum, chunk.size_bytes) == (*checksum, *size_bytes);
    let chunk = record.chunks.iter().find(is_it).or_else(|| record.chunks.iter().find(has_it))?;
    let before = record.chunks.iter().take_while(|other| other.object != chunk.object);
    let start = before.map(|chunk| chunk.size_bytes).sum();
    Some(start..start + size_bytes)
}

impl From<FilesError> for StorageError {
    fn from(error: FilesError) -> Self {
        let kind = match error.kind {
            FilesErrorKind::NotFound => StorageErrorKind::NotFound,
            FilesErrorKind::NotAllowed => StorageErrorKind::Denied,
            FilesErrorKind::Changed | FilesErrorKind::Exists => StorageErrorKind::Changed,
            FilesErrorKind::Invalid => StorageErrorKind::Invalid,
            FilesErrorKind::Full => StorageErrorKind::NoSpace,
            FilesErrorKind::Lost | FilesErrorKind::Unreachable => StorageErrorKind::Unreachable,
            FilesErrorKind::Local => StorageErrorKind::Local,
        };
        StorageError::new(kind, error.message)
    }
}
