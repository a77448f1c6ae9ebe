//! `eyas:///path` URLs: files of the cluster's own file system. The room that knows the file system provides the
//! access, because this room knows no peers.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use eyas_types::object::is_kept_name;
use eyas_types::{Name, ObjectSpec, Version, shown};

use super::blocking;
use super::sink::Sink;
use crate::checksum::Checksum;
use crate::error::{StorageError, StorageErrorKind};
use crate::url::SourceUrl;

/// The files of a cluster. Names begin with `/`.
#[async_trait::async_trait]
pub trait ClusterFiles: Send + Sync {
    /// The present version of a file.
    async fn stat(&self, name: &str) -> Result<Version, StorageError>;

    /// The versions of the blocks of a file, in its order. Each is an object of its own: some whole records.
    async fn blocks(&self, name: &str) -> Result<Vec<Version>, StorageError>;

    /// The version of a range of bytes of a file. The range is cut at the end of the file.
    async fn part(&self, name: &str, range: Range<u64>) -> Result<Version, StorageError>;

    /// The names of the files in a folder and its subfolders. The root is the empty text.
    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageError>;

    /// Opens a file, or a part of it, at a version, to be read from an offset to its end.
    async fn read(&self, name: &str, version: &Version, offset: u64) -> Result<Box<dyn FileParts>, StorageError>;

    /// Stores the content of a file that is to have this name. The content is durable then, and not visible yet.
    async fn store(&self, name: &str, content: File) -> Result<Box<dyn StoredContent>, StorageError>;
}

/// The content of a file that is being read.
#[async_trait::async_trait]
pub trait FileParts: Send {
    /// The next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StorageError>;
}

/// Stored content without a name. If it never gets one, the file system deletes it.
#[async_trait::async_trait]
pub trait StoredContent: Send + Sync {
    /// Gives the content its name. A file that has the name is replaced. `may_appear` is called just before each try,
    /// and may block.
    async fn publish(&self, may_appear: &(dyn Fn() -> bool + Sync)) -> Result<Version, StorageError>;
}

pub(super) async fn read<S: Sink + Send + 'static>(
    files: &dyn ClusterFiles,
    name: &str,
    spec: &ObjectSpec,
    mut into: S,
) -> Result<Checksum, StorageError> {
    let mut parts = files.read(name, &spec.version, into.written_bytes()).await?;
    while let Some(part) = parts.next().await? {
        into = blocking(move || into.write(&part).map(|()| into)).await?;
    }
    blocking(move || into.finish()).await
}

pub(super) async fn store(
    files: &dyn ClusterFiles,
    name: &str,
    file: &Path,
) -> Result<Box<dyn StoredContent>, StorageError> {
    let unreadable = |error| StorageError::local(format!("cannot read `{}`", file.display()), error);
    files.store(name, File::open(file).map_err(unreadable)?).await
}

/// Files of the cluster are not executable.
pub(super) fn object(url: &Name, version: Version, executable: Option<bool>) -> ObjectSpec {
    ObjectSpec { source: url.clone(), version, executable: executable.unwrap_or(false) }
}

pub(super) fn not_connected(url: &[u8]) -> StorageError {
    let url = shown(url);
    let message = format!("`{url}` is a file of a cluster, and no cluster is named: add --cluster");
    StorageError::new(StorageErrorKind::Invalid, message)
}

/// The name of a file of the cluster.
pub(super) fn name_of(url: &[u8]) -> Result<&str, StorageError> {
    if !is_kept_name(url)
        && let SourceUrl::Cluster(name) = SourceUrl::of(url)?
    {
        return Ok(name);
    }
    let url = shown(url);
    let message = format!("`{url}` cannot be read in parts: only files of the cluster, eyas:///PATH, can");
    Err(StorageError::new(StorageErrorKind::Invalid, message))
}
