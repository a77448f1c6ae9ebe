//! `eyas:///path` URLs: files of the cluster's own file system. The room that knows the file system
//! provides the access, because this room knows no peers.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use eyas_types::object::is_kept_name;
use eyas_types::{FileMode, Name, ObjectId, ObjectSpec, Version, shown};

use super::sink::Sink;
use super::{FetchedContent, blocking};
use crate::error::{StorageError, StorageErrorKind};
use crate::url::SourceUrl;

/// The files of a cluster. Names begin with `/`.
#[async_trait::async_trait]
pub trait ClusterFiles: Send + Sync {
    /// Looks a file up.
    async fn look_up(&self, name: &str) -> Result<Arc<dyn FoundFile>, StorageError>;

    /// The names of the files in a folder and its subfolders. The root is the empty text.
    async fn list(&self, folder: &str) -> Result<Vec<String>, StorageError>;

    /// Opens a file, or a part of it, at a version, to be read from an offset to its end.
    async fn read(
        &self,
        name: &str,
        version: &Version,
        offset: u64,
    ) -> Result<Box<dyn FileParts>, StorageError>;

    /// Stores the content of a file that is to have this name. The content is durable then, and not
    /// visible yet.
    async fn store(
        &self,
        name: &str,
        content: File,
    ) -> Result<Box<dyn StoredContent>, StorageError>;
}

/// A file as it was when it was looked up: all versions are of the same content.
#[async_trait::async_trait]
pub trait FoundFile: Send + Sync {
    /// The version of the whole file.
    fn whole(&self) -> Version;

    /// The versions of the blocks, in the order of the file. Each is an object of its own: some
    /// whole records.
    fn blocks(&self) -> Vec<Version>;

    /// The version of a range of bytes. The range is cut at the end of the file.
    fn part(&self, range: Range<u64>) -> Result<Version, StorageError>;

    /// The chunks that have the content of a version of this file, with their sizes.
    fn chunks(&self, version: &Version) -> Vec<(ObjectId, u64)>;

    /// The version of a range of records, counted from 0. The range is cut at the end of the file.
    /// Reads the file up to the last of these records, if their sizes differ.
    async fn records(&self, range: Range<u64>) -> Result<Version, StorageError>;
}

/// A file of a cluster that was looked up once. Its objects are all of the same content, even if
/// the file is replaced meanwhile.
#[derive(Clone)]
pub struct ClusterFile {
    url: Name,
    found: Arc<dyn FoundFile>,
}

impl ClusterFile {
    pub(super) async fn look_up(
        files: &dyn ClusterFiles,
        url: &Name,
    ) -> Result<Self, StorageError> {
        Ok(ClusterFile { found: files.look_up(name_of(url)?).await?, url: url.clone() })
    }

    /// The whole file.
    pub fn whole(&self) -> ObjectSpec {
        object(&self.url, self.found.whole())
    }

    /// The blocks, in the order of the file: some whole records each.
    pub fn blocks(&self) -> impl Iterator<Item = ObjectSpec> {
        self.found.blocks().into_iter().map(|version| object(&self.url, version))
    }

    /// The chunks that have the content of one of its objects, with their sizes.
    pub fn chunks(&self, object: &ObjectSpec) -> Vec<(ObjectId, u64)> {
        self.found.chunks(&object.version)
    }

    /// A range of bytes. It is cut at the end of the file.
    ///
    /// # Errors
    /// `Invalid` if the file has none of these bytes.
    pub fn part(&self, range: Range<u64>) -> Result<ObjectSpec, StorageError> {
        Ok(object(&self.url, self.found.part(range)?))
    }

    /// A range of records, counted from 0. It is cut at the end of the file. The file is read up to
    /// the last of these records, unless all records have the same size; what was read once is not
    /// read again.
    ///
    /// # Errors
    /// `Invalid` if the file has none of these records, or does not have its format; `Unreachable`.
    pub async fn records(&self, range: Range<u64>) -> Result<ObjectSpec, StorageError> {
        Ok(object(&self.url, self.found.records(range).await?))
    }
}

/// A part of a file's content.
pub enum ContentPart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This number of zeros, which take no space.
    Hole(u64),
}

/// The content of a file that is being read.
#[async_trait::async_trait]
pub trait FileParts: Send {
    /// The next part; `None` at the end.
    async fn next(&mut self) -> Result<Option<ContentPart>, StorageError>;

    /// Number of bytes that the node on this machine has delivered.
    fn near_bytes(&self) -> u64;
}

/// Stored content without a name. If it never gets one, the file system deletes it.
#[async_trait::async_trait]
pub trait StoredContent: Send + Sync {
    /// Gives the content its name. A file that has the name is replaced. `may_appear` is called
    /// just before each try, and may block.
    async fn publish(
        self: Box<Self>,
        may_appear: &(dyn Fn() -> bool + Sync),
    ) -> Result<Version, StorageError>;
}

pub(super) async fn read<S: Sink + Send + 'static>(
    files: &dyn ClusterFiles,
    name: &str,
    spec: &ObjectSpec,
    mut into: S,
) -> Result<FetchedContent, StorageError> {
    let mut parts = files.read(name, &spec.version, into.written_bytes()).await?;
    while let Some(part) = parts.next().await? {
        let write = move || match part {
            ContentPart::Bytes(bytes) => into.write(&bytes).map(|()| into),
            ContentPart::Hole(bytes) => into.skip(bytes).map(|()| into),
        };
        into = blocking(write).await?;
    }
    let (checksum, near_bytes) = (blocking(move || into.finish()).await?, parts.near_bytes());
    Ok(FetchedContent { checksum, near_bytes })
}

pub(super) async fn store(
    files: &dyn ClusterFiles,
    name: &str,
    file: &Path,
) -> Result<Box<dyn StoredContent>, StorageError> {
    let unreadable =
        |error| StorageError::local(format!("cannot read `{}`", file.display()), error);
    files.store(name, File::open(file).map_err(unreadable)?).await
}

/// Files of the cluster are not executable.
pub(super) fn object(url: &Name, version: Version) -> ObjectSpec {
    ObjectSpec { source: url.clone(), version, mode: FileMode::READABLE }
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
    let message =
        format!("`{url}` cannot be read in parts: only files of the cluster, eyas:///PATH, can");
    Err(StorageError::new(StorageErrorKind::Invalid, message))
}
