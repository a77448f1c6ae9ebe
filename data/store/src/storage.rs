//! Persistent storage: where objects come from and results go. It is slow, shared, and may change
//! at any time.
//!
//! An object is read at exactly the version that its job was promised, which is checked before and
//! after the read. A file is written completely or not at all. Temporary failures are retried a
//! bounded number of times.

mod cluster;
mod file;
mod named;
mod places;
mod remote;
mod sink;
pub(crate) mod stream;

pub use cluster::{ClusterFile, ClusterFiles, ContentPart, FileParts, FoundFile, StoredContent};
pub use file::{output_mode, remove_copies};
pub use places::{FileNames, PlacesOfFile};
pub(crate) use stream::is_stream;

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use eyas_types::name::scheme_of;
use eyas_types::named::NAMED;
use eyas_types::{
    Extent, FileMode, Name, ObjectSpec, Operation, PlaceId, StorageFileId, StorageLocation,
};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::checksum::Checksum;
use crate::emulation::Limits;
use crate::error::{StorageError, StorageErrorKind};
use crate::glob::path_of;
use crate::incoming::Incoming;
use crate::order::{ORDERED_OUTPUT_BYTES, StorageOrder, StorageTurn, TurnRequest, WaitForTurn};
use crate::url::{SourceUrl, text_of};
use places::MeasuredPlaces;
use remote::Remote;
use sink::Sink;

/// Maximum number of tries of a request, including the first. With [`SILENCE_TIMEOUT`], a silent
/// server is given up after less than a minute and a half.
const MAX_TRIES: u32 = 4;

/// A try has failed if the server sent nothing for this time.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// Pause after the first try. It doubles after each try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Bytes read and written at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// Access to persistent storage of all kinds. Clones share connections.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

struct Inner {
    limits: Limits,
    remote: Remote,
    order: Option<Arc<dyn StorageOrder>>,
    /// The files of the cluster, for processes that belong to one.
    files: OnceLock<Arc<dyn ClusterFiles>>,
    /// The names of a cluster's files, for clients.
    names: OnceLock<Arc<dyn FileNames>>,
    /// A part of the names of hidden copies.
    mark: String,
    /// What was measured of places of named files.
    places: MeasuredPlaces,
}

impl Storage {
    /// Does not connect yet. S3 takes its credentials, region and endpoint from the usual `AWS_*`
    /// variables and `~/.aws` at its first use.
    pub fn new(limits: Limits) -> Self {
        Storage::ordered(limits, None, String::new())
    }

    /// The same, but fetches and outputs wait for their turns if an `order` is given. The hidden
    /// copies of outputs have `mark` in their names, by which [`remove_copies`] finds them when
    /// this process has been killed.
    pub fn ordered(limits: Limits, order: Option<Arc<dyn StorageOrder>>, mark: String) -> Self {
        Storage(Arc::new(Inner {
            limits,
            remote: Remote::new(SILENCE_TIMEOUT),
            order,
            files: OnceLock::new(),
            names: OnceLock::new(),
            mark,
            places: MeasuredPlaces::new(),
        }))
    }

    /// The same, but retries after a shorter silence of the server.
    pub fn impatient(limits: Limits, silence: Duration) -> Self {
        Storage(Arc::new(Inner {
            limits,
            remote: Remote::new(silence),
            order: None,
            files: OnceLock::new(),
            names: OnceLock::new(),
            mark: String::new(),
            places: MeasuredPlaces::new(),
        }))
    }

    /// Gives access to the files of a cluster. The first call counts.
    pub fn provide_files(&self, files: Arc<dyn ClusterFiles>) {
        let _ = self.0.files.set(files);
    }

    /// Gives access to the names of a cluster's files. The first call counts.
    pub fn provide_names(&self, names: Arc<dyn FileNames>) {
        let _ = self.0.names.set(names);
    }

    fn names(&self, url: &Name) -> Result<&Arc<dyn FileNames>, StorageError> {
        self.0.names.get().ok_or_else(|| names_a_file(url))
    }

    fn files(&self, url: &[u8]) -> Result<&Arc<dyn ClusterFiles>, StorageError> {
        self.0.files.get().ok_or_else(|| cluster::not_connected(url))
    }

    /// Parses a URL. A request to shared storage waits until the emulation permits it.
    async fn request<'a>(&self, url: &'a [u8]) -> Result<SourceUrl<'a>, StorageError> {
        let parsed = SourceUrl::of(url)?;
        if !matches!(parsed, SourceUrl::Cluster(_) | SourceUrl::Named(_)) {
            self.0.limits.request().await;
        }
        Ok(parsed)
    }

    /// The current version of the object at `url`. Objects that are no files of a file system are
    /// not executable.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Unreachable`; `Invalid` if `url` names no file, or something without
    /// a version.
    pub async fn stat(&self, url: &Name) -> Result<ObjectSpec, StorageError> {
        if url.starts_with(NAMED.as_bytes()) {
            return Ok(self.stat_named(std::slice::from_ref(url)).await?.remove(0));
        }
        self.stat_at(url).await
    }

    /// The same, for a URL that says where the content is.
    async fn stat_at(&self, url: &Name) -> Result<ObjectSpec, StorageError> {
        match self.request(url).await? {
            SourceUrl::File(path) => {
                let (path, url) = (path.to_path_buf(), url.clone());
                blocking(move || retry_blocking(|| file::stat(&path, &url))).await
            }
            SourceUrl::Http(_) | SourceUrl::S3 { .. } => {
                let version = self.0.remote.stat(text_of(url)?).await?;
                Ok(ObjectSpec { source: url.clone(), version, mode: FileMode::READABLE })
            }
            SourceUrl::Cluster(_) => Ok(self.cluster_file(url).await?.whole()),
            SourceUrl::Named(_) => Err(names_a_file(url)),
        }
    }

    /// Looks up a file of the cluster.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`; `Invalid` if `url` names no file of the cluster.
    pub async fn cluster_file(&self, url: &Name) -> Result<ClusterFile, StorageError> {
        ClusterFile::look_up(self.files(url)?.as_ref(), url).await
    }

    /// Looks up files of the cluster. Returns them with their URLs.
    ///
    /// # Errors
    /// As [`Storage::cluster_file`], for the first file that has an error.
    pub async fn cluster_files(
        &self,
        urls: Vec<Name>,
    ) -> Result<Vec<(Name, ClusterFile)>, StorageError> {
        let mut found = Vec::with_capacity(urls.len());
        for url in urls {
            let file = self.cluster_file(&url).await?;
            found.push((url, file));
        }
        Ok(found)
    }

    /// The URLs of objects that begin with `prefix`: of the objects of a bucket, of the files of
    /// the cluster, or of files with names. With the URL of the bucket alone, all of its objects.
    /// Folders on file systems cannot be listed.
    ///
    /// # Errors
    /// `Denied`, `Unreachable`; `Invalid` if `prefix` is neither in a bucket nor in the cluster.
    pub async fn list(&self, prefix: &Name) -> Result<Vec<Name>, StorageError> {
        if let Some(start) = prefix.strip_prefix(b"eyas://") {
            let start = text_of(start)?;
            let folder = start.rsplit_once('/').map_or("", |(folder, _)| folder);
            let names = self
                .files(prefix)?
                .list(folder)
                .await?
                .into_iter()
                .filter(|name| name.starts_with(start));
            return Ok(names.map(|name| Name::from(format!("eyas://{name}"))).collect());
        }
        if prefix.starts_with(NAMED.as_bytes()) {
            return self.names(prefix)?.list(prefix).await;
        }
        self.0.limits.request().await;
        let found = self.0.remote.list(text_of(prefix)?).await?;
        Ok(found.into_iter().map(Name::from).collect())
    }

    /// Fetches the object into the store.
    ///
    /// # Errors
    /// `Changed` if the source is not, or does not remain, at the version of `spec`; `Full` if the
    /// disk of the store is full; `NotFound`, `Denied`, `Unreachable`, `Invalid`, `Local`.
    pub async fn fetch(
        &self,
        spec: &ObjectSpec,
        into: Incoming,
    ) -> Result<FetchedContent, StorageError> {
        self.read(spec, into).await
    }

    /// The current versions of objects, in their order. Files are looked up in one step, which
    /// wakes one thread.
    ///
    /// # Errors
    /// As [`Storage::stat`], for the first object that has an error.
    pub async fn stat_all(&self, urls: Vec<Name>) -> Result<Vec<ObjectSpec>, StorageError> {
        let is_file = |url: &Name| matches!(SourceUrl::of(url), Ok(SourceUrl::File(_)));
        if urls.iter().all(is_file) {
            for _ in &urls {
                self.0.limits.request().await;
            }
            let stat = |url: &Name| match SourceUrl::of(url)? {
                SourceUrl::File(path) => retry_blocking(|| file::stat(path, url)),
                _ => unreachable!("all of them are files"),
            };
            return blocking(move || urls.iter().map(stat).collect()).await;
        }
        // Names are looked up in one step.
        let is_named = |url: &&Name| url.starts_with(NAMED.as_bytes());
        let named: Vec<_> = urls.iter().filter(is_named).cloned().collect();
        let mut named = match named.is_empty() {
            true => Vec::new(),
            false => self.stat_named(&named).await?,
        }
        .into_iter()
        .peekable();
        let mut objects = Vec::with_capacity(urls.len());
        for url in &urls {
            objects.push(match named.next_if(|object| object.source == *url) {
                Some(object) => object,
                None => self.stat(url).await?,
            });
        }
        Ok(objects)
    }

    /// Resolves the symbolic links in the folders of output URLs. Missing folders are created.
    ///
    /// # Errors
    /// `Denied`, `NoSpace`, `Unreachable`; `Invalid` where nothing can be written.
    pub async fn locate(&self, urls: Vec<Name>) -> Result<Vec<Spot>, StorageError> {
        let locate = move || {
            // Many files go to few folders.
            let mut folders = HashMap::new();
            let spot = |url: Name| {
                let at = match SourceUrl::of(&url)? {
                    SourceUrl::File(path) => {
                        Some(retry_blocking(|| file::locate(path, &url, &mut folders))?)
                    }
                    SourceUrl::S3 { .. } | SourceUrl::Cluster(_) => None,
                    SourceUrl::Named(_) => {
                        let message = format!(
                            "cannot write `{url}`: a name stands for files that exist; write to a \
                             path, s3://bucket/key or eyas:///path, and register that"
                        );
                        return Err(StorageError::new(StorageErrorKind::Invalid, message));
                    }
                    SourceUrl::Http(_) => {
                        let how = "eyas only reads from http; write to a path, s3://bucket/key or \
                                   eyas:///path";
                        let message = format!("cannot write `{url}`: {how}");
                        return Err(StorageError::new(StorageErrorKind::Invalid, message));
                    }
                };
                Ok(Spot { url, path: at })
            };
            urls.into_iter().map(spot).collect()
        };
        here(locate).await
    }

    /// Copies `file` to storage, but does not publish it yet, and does not wait until the copy is
    /// on disk. A bucket has no renames, so for a bucket [`publish`](Self::publish) does all of the
    /// work; also for a device or a pipe, which is written to and not replaced. Where the copy
    /// waits for turns, `is_wanted` is asked before each.
    ///
    /// # Errors
    /// `Denied`, `NoSpace`, `Unreachable`; `Invalid` where nothing can be written; `Local` if
    /// `file` cannot be read; `Withdrawn` if it is no longer wanted.
    pub async fn copy(
        &self,
        file: &Path,
        spot: &Spot,
        is_wanted: impl Fn() -> bool + Send + 'static,
    ) -> Result<UnsyncedOutput, StorageError> {
        match (self.request(&spot.url).await?, &spot.path) {
            (SourceUrl::Cluster(name), _) => {
                let content = cluster::store(self.files(&spot.url)?.as_ref(), name, file).await?;
                Ok(UnsyncedOutput(CopiedAt::Cluster { content, url: spot.url.clone() }))
            }
            (_, Some(path)) if stream::is_stream(path) => Ok(UnsyncedOutput(CopiedAt::Stream {
                file: file.to_path_buf(),
                path: path.clone(),
                url: spot.url.clone(),
            })),
            (_, Some(path)) => {
                let (from, path, url) = (file.to_path_buf(), path.clone(), spot.url.clone());
                let (shared, turns) = (self.0.clone(), self.turns());
                let copy = move || {
                    let turns = turns.as_deref().map(|turns| (turns, &is_wanted as &dyn Fn() -> _));
                    file::copy(&from, (&path, &url), &shared.limits, turns, &shared.mark)
                };
                let copied = here(move || retry_blocking(copy));
                Ok(UnsyncedOutput(CopiedAt::File(Box::new(copied.await?))))
            }
            (_, None) => Ok(UnsyncedOutput(CopiedAt::S3 {
                file: file.to_path_buf(),
                url: text_of(&spot.url)?.to_owned(),
            })),
        }
    }

    /// Waits until a copy is on disk. Afterwards, publishing it takes one rename. A failure is
    /// final: the system does not say which bytes it has lost.
    ///
    /// # Errors
    /// As [`Storage::copy`].
    pub async fn sync(&self, copied: UnsyncedOutput) -> Result<UnpublishedOutput, StorageError> {
        match copied.0 {
            CopiedAt::File(file) => {
                here(move || Ok(UnpublishedOutput(UnpublishedAt::File(Box::new(file.sync()?)))))
                    .await
            }
            CopiedAt::S3 { file, url } => Ok(UnpublishedOutput(UnpublishedAt::S3 { file, url })),
            CopiedAt::Stream { file, path, url } => {
                Ok(UnpublishedOutput(UnpublishedAt::Stream { file, path, url }))
            }
            CopiedAt::Cluster { content, url } => {
                Ok(UnpublishedOutput(UnpublishedAt::Cluster { content, url }))
            }
        }
    }

    /// Creates a folder if it does not exist.
    ///
    /// # Errors
    /// As [`Storage::copy`]; `Invalid` for buckets and the cluster's files, which have no folders.
    pub async fn make_folder(&self, spot: &Spot) -> Result<(), StorageError> {
        let Some(path) = spot.path.clone() else {
            let message = format!(
                "cannot make the folder `{}`: buckets and the cluster's file system have no \
                 folders",
                spot.url
            );
            return Err(StorageError::new(StorageErrorKind::Invalid, message));
        };
        let url = spot.url.clone();
        let make = move || {
            std::fs::create_dir_all(&path)
                .map_err(|e| StorageError::file("make the folder", &url, &e))
        };
        here(make).await
    }

    /// Publishes a prepared output, completely or not at all, and returns the new version.
    /// `may_appear` is called just before; it may block.
    ///
    /// # Errors
    /// As [`Storage::copy`]; `Withdrawn` if `may_appear` returns `false`.
    pub async fn publish(
        &self,
        prepared: UnpublishedOutput,
        may_appear: impl Fn() -> bool + Sync,
    ) -> Result<ObjectSpec, StorageError> {
        match prepared.0 {
            UnpublishedAt::File(file) if may_appear() => here(move || file.publish()).await,
            UnpublishedAt::Cluster { content, url } => {
                Ok(cluster::object(&url, content.publish(&may_appear).await?))
            }
            UnpublishedAt::File(_) => {
                Err(StorageError::new(StorageErrorKind::Withdrawn, "it is no longer wanted"))
            }
            UnpublishedAt::Stream { file, path, url } => {
                // On this thread: it waits for the reader of a pipe.
                let write = || stream::write(&file, &path, &url, &may_appear);
                match Handle::current().runtime_flavor() {
                    RuntimeFlavor::MultiThread => tokio::task::block_in_place(write),
                    _ => write(),
                }
            }
            UnpublishedAt::S3 { file, url } => {
                // Whatever keeps the file from being read is told by the upload.
                let size_bytes = file.metadata().map_or(0, |metadata| metadata.len());
                let turn = if size_bytes < ORDERED_OUTPUT_BYTES {
                    None
                } else {
                    let (place, id) = (SourceUrl::of(url.as_bytes())?, PlaceId::of(url.as_bytes()));
                    self.whole(&place, id.0, Operation::Write, size_bytes).await
                };
                let turn = Mutex::new(turn);
                // All is written then, and the answer may take long.
                let may_appear = || {
                    drop(turn.lock().unwrap_or_else(PoisonError::into_inner).take());
                    may_appear()
                };
                self.0.remote.put(&file, &url, &self.0.limits, may_appear).await
            }
        }
    }

    async fn read<S: Sink + Send + 'static>(
        &self,
        spec: &ObjectSpec,
        into: S,
    ) -> Result<FetchedContent, StorageError> {
        if into.size_bytes() != spec.size_bytes() {
            let message =
                format!("`{}` has another size than was announced to the store", spec.source);
            return Err(StorageError::new(StorageErrorKind::Invalid, message));
        }
        let checksum = match self.request(&spec.source).await? {
            SourceUrl::Cluster(name) => {
                return cluster::read(self.files(&spec.source)?.as_ref(), name, spec, into).await;
            }
            SourceUrl::File(path) => {
                let (path, spec, limits) =
                    (path.to_path_buf(), spec.clone(), self.0.limits.clone());
                let turns = self.turns();
                blocking(move || {
                    let (mut into, turns) = (into, turns.as_deref());
                    retry_blocking(|| file::read(&path, &spec, &mut into, &limits, turns))?;
                    into.finish()
                })
                .await
            }
            place @ (SourceUrl::Http(_) | SourceUrl::S3 { .. }) => {
                // One turn for the whole object, since several ranges are fetched at the same time.
                let (id, size_bytes) = (spec.id().0, spec.size_bytes());
                let _turn = self.whole(&place, id, Operation::Read, size_bytes).await;
                self.0.remote.read(spec, into, &self.0.limits).await
            }
            SourceUrl::Named(_) => return Err(names_a_file(&spec.source)),
        };
        Ok(FetchedContent { checksum: checksum?, near_bytes: 0 })
    }

    /// Waits for turns on threads that may block, if there are turns.
    fn turns(&self) -> Option<Box<WaitForTurn>> {
        let (order, runtime) = (self.0.order.clone()?, Handle::current());
        Some(Box::new(move |request| runtime.block_on(order.turn(request))))
    }

    /// The turn to read or write a whole object that is not in a file, if there are turns.
    async fn whole(
        &self,
        place: &SourceUrl<'_>,
        id: [u8; 16],
        operation: Operation,
        size_bytes: u64,
    ) -> Option<StorageTurn> {
        let order = self.0.order.as_ref()?;
        let location = match place {
            SourceUrl::S3 { bucket, .. } => format!("s3://{bucket}"),
            SourceUrl::Http(url) => url.split('/').take(3).collect::<Vec<_>>().join("/"),
            SourceUrl::File(_) | SourceUrl::Cluster(_) | SourceUrl::Named(_) => return None,
        };
        let [number @ .., _, _, _, _, _, _, _, _] = id;
        let request = TurnRequest {
            location: StorageLocation::Url(location),
            file: StorageFileId(u64::from_le_bytes(number)),
            operation,
            extent: Extent { offset: 0, size_bytes },
        };
        order.turn(request).await
    }
}

/// A name of a file where a place is needed.
fn names_a_file(url: &Name) -> StorageError {
    let message = format!(
        "`{url}` is the name of a file, which only inputs of jobs can be: see its places with \
         `eyas catalog query`"
    );
    StorageError::new(StorageErrorKind::Invalid, message)
}

/// Content that was fetched into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchedContent {
    /// Checksum of the content.
    pub checksum: Checksum,
    /// Bytes of a file of the cluster that came from the node on this machine.
    pub near_bytes: u64,
}

/// A location in persistent storage for an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spot {
    url: Name,
    /// For a file system: the path, with symbolic links in its folder resolved.
    path: Option<PathBuf>,
}

impl Spot {
    /// The URL as the user wrote it.
    pub fn url(&self) -> &Name {
        &self.url
    }

    /// The folder on a file system in which the file will be.
    pub fn folder(&self) -> Option<&Path> {
        self.path.as_deref().and_then(Path::parent)
    }

    /// Whether its URL alone says where it is: no symbolic link and no `..` leads there.
    pub fn is_direct(&self) -> bool {
        let given = scheme_of(&self.url).map_or(&[][..], |(_, path)| path);
        self.path.as_ref().is_none_or(|path| path_of(given).components().eq(path.components()))
    }

    /// The id of the location, which is the same for all paths that lead to it.
    pub fn place(&self) -> PlaceId {
        match &self.path {
            Some(path) => PlaceId::of(path.as_os_str().as_bytes()),
            None => PlaceId::of(&self.url),
        }
    }
}

/// An output that is copied, perhaps not on disk yet, and not published. If it is dropped, it is
/// removed.
pub struct UnsyncedOutput(CopiedAt);

enum CopiedAt {
    /// A file with a hidden name in the folder of the destination.
    File(Box<file::CopiedFile>),
    S3 {
        file: PathBuf,
        url: String,
    },
    /// A device or a pipe.
    Stream {
        file: PathBuf,
        path: PathBuf,
        url: Name,
    },
    Cluster {
        content: Box<dyn StoredContent>,
        url: Name,
    },
}

impl UnsyncedOutput {
    /// Whether publishing it reads the task's file once more.
    pub fn needs_source(&self) -> bool {
        matches!(self.0, CopiedAt::S3 { .. } | CopiedAt::Stream { .. })
    }
}

/// An output that is on disk and not published. If it is dropped, it is removed.
pub struct UnpublishedOutput(UnpublishedAt);

enum UnpublishedAt {
    /// A file with a hidden name in the same folder.
    File(Box<file::PreparedFile>),
    S3 {
        file: PathBuf,
        url: String,
    },
    /// A device or a pipe.
    Stream {
        file: PathBuf,
        path: PathBuf,
        url: Name,
    },
    Cluster {
        content: Box<dyn StoredContent>,
        url: Name,
    },
}

/// Runs `work` on this thread if other threads carry on with what the thread has to do. Outputs are
/// delivered by threads that do nothing else, and each hand-over to another thread costs as much as
/// some of these steps.
async fn here<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => blocking(work).await,
    }
}

/// Runs `work` on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(StorageError::new(StorageErrorKind::Local, "the process is shutting down")),
    }
}

/// Counts the tries of one request.
#[derive(Default)]
struct Tries {
    failed: u32,
}

impl Tries {
    /// The pause before the next try; the error itself if there is no further try.
    fn pause(&mut self, error: StorageError) -> Result<Duration, StorageError> {
        self.failed += 1;
        if !error.kind.is_retryable() || self.failed >= MAX_TRIES {
            return Err(error);
        }
        tracing::warn!("{error}; try {} of {MAX_TRIES} follows", self.failed + 1);
        Ok(FIRST_PAUSE * 2u32.pow(self.failed - 1))
    }

    async fn again(&mut self, error: StorageError) -> Result<(), StorageError> {
        tokio::time::sleep(self.pause(error)?).await;
        Ok(())
    }
}

fn retry_blocking<T>(
    mut attempt: impl FnMut() -> Result<T, StorageError>,
) -> Result<T, StorageError> {
    let mut tries = Tries::default();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) => std::thread::sleep(tries.pause(error)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temporary_errors_are_tried_again_up_to_the_limit() {
        let pauses = |kind| {
            let mut tries = Tries::default();
            std::iter::from_fn(|| tries.pause(StorageError::new(kind, "no")).ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(pauses(StorageErrorKind::NotFound), []);
        assert_eq!(pauses(StorageErrorKind::Changed), []);
        assert_eq!(
            pauses(StorageErrorKind::Unreachable),
            [FIRST_PAUSE, FIRST_PAUSE * 2, FIRST_PAUSE * 4]
        );
    }
}
