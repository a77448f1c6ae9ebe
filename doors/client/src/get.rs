//! Downloads the outputs that a job keeps in the cluster. The dispatcher names the executors that
//! hold an output, and the client fetches the output from one of them, as executors fetch from each
//! other. No content goes through the dispatcher.
//!
//! A file is downloaded into a hidden folder inside the destination, and is renamed when it is
//! complete and its checksum is right. The download waits for outputs that are not written yet, and
//! for lost outputs that are computed again.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use eyas_session::DataKeys;
use eyas_store::{Hasher, Limiter, Limits, ObjectStore, Storage, StoreError, path_of};
use eyas_transfer::{FetchError, FetchErrorKind, Fetcher, PeerHolder, PeerLimits, Peers};
use eyas_types::{JobId, Name, ObjectId, ObjectSpec, Version, units};
use eyas_wire::client::{FromClient, KeptOutput, ToClient};
use eyas_wire::executor::TransferAddress;
use tempfile::TempDir;
use thiserror::Error;

use crate::client::{Client, WatchEvent};
use crate::client_error::ClientError;

/// Shortest pause before the client asks again for outputs that are not there yet. A round over the
/// outputs of many tasks takes long; the pause is then as long as the round, but at most
/// `ROUND_PAUSE_MAX`.
const ROUND_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause before the client asks again for outputs that are not there yet.
const ROUND_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Number of attempts to fetch a file from its holders.
const MAX_TRIES: u32 = 5;
/// Buffer for reading a file that exists already.
const BUFFER_BYTES: usize = 1 << 20;

/// Which kept outputs to download, and where to.
#[derive(Clone, Debug)]
pub struct GetRequest {
    /// The job that keeps the outputs.
    pub job: JobId,
    /// Index of one task, whose files are written directly into the folder. Without it, the
    /// outputs of all tasks are downloaded, each into a folder with the index of its task.
    pub task: Option<u32>,
    /// Names of the files to download; all kept files if empty.
    pub files: Vec<Name>,
    /// The destination, a folder. It is created if it does not exist.
    pub to: PathBuf,
    /// Whether existing files with other content are replaced.
    pub replaces: bool,
}

/// Progress of a download.
#[derive(Clone, Copy, Debug)]
pub enum GetProgress<'a> {
    /// A file is complete, at this path.
    File(&'a Path),
    /// The download waits for this number of tasks and files.
    Waits(u64),
    /// The dispatcher was lost, or has answered again.
    Dispatcher(&'a WatchEvent),
}

/// Why a download ended before all files were complete. Files that were complete before stay.
#[derive(Debug, Error)]
pub enum GetError {
    /// The dispatcher did not list the kept outputs.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Some tasks did not succeed, so they left no outputs.
    #[error(
        "{} of job {job} did not succeed and left no outputs: `eyas task list {job} --failed` \
         shows the failures",
        units::format_count(*.tasks, "task")
    )]
    Unsuccessful {
        /// The job.
        job: JobId,
        /// Number of tasks that did not succeed.
        tasks: u64,
    },
    /// A file that was asked for is not among the kept outputs.
    #[error("{owner} keeps no file `{file}` in the cluster")]
    NoFile {
        /// The job or task, such as `job 3`.
        owner: String,
        /// The file.
        file: Name,
    },
    /// The job or task keeps no output for download.
    #[error(
        "{0} keeps no outputs in the cluster for download: only outputs with `keep = true` and \
         without `to` can be downloaded"
    )]
    NothingKept(String),
    /// The name of an output would put the file outside of the destination.
    #[error("`{0}` leads out of the destination folder")]
    Outside(Name),
    /// A file with other content exists.
    #[error(
        "{} exists already: choose another folder with --to, or replace the file with --force",
        .0.display()
    )]
    Exists(PathBuf),
    /// A folder cannot be created or written to.
    #[error("cannot write to {}: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file cannot be written or renamed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk of the destination is full.
    #[error(
        "{} has no room for `{file}`: free some space, or choose another folder with --to",
        folder.display()
    )]
    Full {
        /// The destination.
        folder: PathBuf,
        /// The file.
        file: Name,
    },
    /// The output was lost more often than it may be computed again.
    #[error("all copies of `{0}` were lost, each time it was computed: submit the job again")]
    Lost(Name),
    /// No holder of a file delivered it.
    #[error("{0}. Check that the executors that hold the file can be reached from this machine")]
    Fetch(FetchError),
}

/// The hidden folder into which files are downloaded. Several downloads may use it, also at the
/// same time.
pub struct DownloadFolder {
    store: ObjectStore,
    /// Removes the folder with its content when it is dropped.
    _folder: TempDir,
}

impl DownloadFolder {
    /// Makes the hidden folder inside a destination, which is created if it does not exist.
    ///
    /// # Errors
    /// If a folder cannot be created.
    pub fn inside(to: &Path) -> Result<Self, GetError> {
        let failed = |source| GetError::Folder { folder: to.to_owned(), source };
        fs::create_dir_all(to).map_err(failed)?;
        let folder = tempfile::Builder::new()
            .prefix(".eyas-")
            .suffix(".tmp")
            .tempdir_in(to)
            .map_err(failed)?;
        let (store, _) = ObjectStore::open(folder.path())?;
        Ok(DownloadFolder { store, _folder: folder })
    }

    async fn download(
        &self,
        fetcher: &Fetcher,
        output: &KeptOutput,
        path: &Path,
        replaces: bool,
    ) -> Result<(), GetError> {
        let holder = |TransferAddress { address, proxy }: &TransferAddress| PeerHolder {
            addr: *address,
            proxy: *proxy,
            is_relay: false,
            others: 0,
        };
        let holders = output.holders.iter().map(holder);
        fetcher
            .fetch(&output.object, &holders.collect::<Vec<_>>())
            .await
            .map_err(GetError::Fetch)?;
        let folder = path.parent().unwrap_or(path);
        fs::create_dir_all(folder)
            .map_err(|source| GetError::Folder { folder: folder.to_owned(), source })?;
        Ok(self.store.hand_out(output.object.id(), path, output.object.mode, replaces)?)
    }
}

/// State of one `Client::get`.
struct Download<'a> {
    request: &'a GetRequest,
    folder: &'a DownloadFolder,
    fetcher: Fetcher,
    /// Paths of the files that are complete.
    complete: HashSet<PathBuf>,
    /// Failed attempts to fetch an object.
    tries: HashMap<ObjectId, u32>,
    /// Number of tasks and files that the present round found not to be there yet.
    awaited: u64,
    /// Number of tasks that the present round found to have left no outputs.
    unsuccessful: u64,
}

impl Client {
    /// Downloads outputs that a job keeps in the cluster for its user, and returns the number of
    /// files. Waits for tasks that have not ended, and for lost outputs that are computed again. If
    /// the dispatcher is lost, the client dials it for up to `patience` each time.
    ///
    /// # Errors
    /// The reason why the next file cannot be downloaded, or that there is no file to download.
    pub async fn get(
        &mut self,
        request: &GetRequest,
        patience: Duration,
        see: impl FnMut(GetProgress<'_>),
    ) -> Result<u64, GetError> {
        self.get_through(&DownloadFolder::inside(&request.to)?, request, patience, see).await
    }

    /// The same with a hidden folder that further downloads use, too. It must be on the disk of the
    /// destination.
    ///
    /// # Errors
    /// As for [`get`](Client::get).
    pub async fn get_through(
        &mut self,
        folder: &DownloadFolder,
        request: &GetRequest,
        patience: Duration,
        mut see: impl FnMut(GetProgress<'_>),
    ) -> Result<u64, GetError> {
        let fetcher =
            Fetcher::new(folder.store.clone(), Storage::new(Limits::default()), self.peers());
        let (complete, tries) = (HashSet::new(), HashMap::new());
        let mut download =
            Download { request, folder, fetcher, complete, tries, awaited: 0, unsuccessful: 0 };
        loop {
            let began = Instant::now();
            (download.awaited, download.unsuccessful) = (0, 0);
            self.download_available(&mut download, patience, &mut see).await?;
            if download.awaited == 0 {
                return download.end();
            }
            see(GetProgress::Waits(download.awaited));
            // A listing of a million tasks costs the dispatcher much, so it is not requested all
            // the time.
            tokio::time::sleep(began.elapsed().clamp(ROUND_PAUSE_MIN, ROUND_PAUSE_MAX)).await;
        }
    }

    /// Connections to executors, which stay for later downloads.
    fn peers(&mut self) -> Peers {
        let keys = DataKeys::of(self.access());
        let unlimited = || Peers::new(keys, PeerLimits::default(), Limiter::unlimited());
        self.peers.get_or_insert_with(unlimited).clone()
    }

    /// Does one round: downloads the outputs that executors hold now.
    async fn download_available(
        &mut self,
        download: &mut Download<'_>,
        patience: Duration,
        see: &mut impl FnMut(GetProgress<'_>),
    ) -> Result<(), GetError> {
        let job = download.request.job;
        let (from, to) =
            download.request.task.map_or((0, u32::MAX), |task| (task, task.saturating_add(1)));
        // A holder of a doubted object verifies its copy by reading all of it, so the doubt is
        // reported once only.
        let tried_once = download.tries.iter().filter(|(_, tries)| **tries == 1);
        let mut doubted = tried_once.map(|(object, _)| *object).collect();
        let mut next = Some(from);
        while let Some(from) = next {
            let request = FromClient::Kept { job, from, to, doubted: std::mem::take(&mut doubted) };
            let lost_or_back = |seen: &WatchEvent| see(GetProgress::Dispatcher(seen));
            let ToClient::Kept(part) = self.ask_again(request, patience, lost_or_back).await?
            else {
                return Err(ClientError::Unexpected.into());
            };
            for (path, output) in download.missing(&part.outputs).await? {
                download.download(output, path, see).await?;
            }
            download.awaited += part.unfinished;
            download.unsuccessful += part.unsuccessful;
            next = part.next;
        }
        Ok(())
    }
}

impl Download<'_> {
    /// The outputs that the request asks for and that are not complete yet, each with its path.
    /// Fails if a path is taken by another file.
    async fn missing<'a>(
        &mut self,
        outputs: &'a [KeptOutput],
    ) -> Result<Vec<(PathBuf, &'a KeptOutput)>, GetError> {
        let mut missing = Vec::new();
        for output in outputs {
            let path = self.request.path_of_output(output)?;
            let Some(path) = path.filter(|path| !self.complete.contains(path)) else { continue };
            if !self.request.replaces && path.symlink_metadata().is_ok() {
                if !is_same(&path, &output.object).await {
                    return Err(GetError::Exists(path));
                }
                // An earlier download has written the file.
                self.complete.insert(path);
                continue;
            }
            missing.push((path, output));
        }
        Ok(missing)
    }

    async fn download(
        &mut self,
        output: &KeptOutput,
        path: PathBuf,
        see: &mut impl FnMut(GetProgress<'_>),
    ) -> Result<(), GetError> {
        let source = &output.object.source;
        if output.is_lost {
            return Err(GetError::Lost(source.clone()));
        }
        if output.holders.is_empty() {
            self.awaited += 1;
            return Ok(());
        }
        match self.folder.download(&self.fetcher, output, &path, self.request.replaces).await {
            Ok(()) => {
                see(GetProgress::File(&path));
                self.tries.remove(&output.object.id());
                self.complete.insert(path);
            }
            Err(GetError::Fetch(error)) if error.kind == FetchErrorKind::Full => {
                return Err(GetError::Full {
                    folder: self.request.to.clone(),
                    file: source.clone(),
                });
            }
            Err(GetError::Fetch(error)) if error.kind != FetchErrorKind::Local => {
                // In the next round, another executor may hold the object.
                let tries = self.tries.entry(output.object.id()).or_default();
                *tries += 1;
                if *tries == MAX_TRIES {
                    return Err(GetError::Fetch(error));
                }
                self.awaited += 1;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn end(self) -> Result<u64, GetError> {
        let GetRequest { job, task, files, .. } = self.request;
        if self.unsuccessful > 0 {
            return Err(GetError::Unsuccessful { job: *job, tasks: self.unsuccessful });
        }
        let owner = task.map_or(format!("job {job}"), |task| format!("task {job}.{task}"));
        let is_missing =
            |file: &&Name| !self.complete.contains(&self.request.to.join(path_of(file)));
        if let Some(file) = files.iter().find(is_missing) {
            return Err(GetError::NoFile { owner, file: file.clone() });
        }
        if self.complete.is_empty() {
            return Err(GetError::NothingKept(owner));
        }
        Ok(self.complete.len() as u64)
    }
}

impl GetRequest {
    /// The path of an output in the destination; `None` if the request does not ask for this
    /// output.
    fn path_of_output(&self, output: &KeptOutput) -> Result<Option<PathBuf>, GetError> {
        let file = output.object.kept_file().unwrap_or_default();
        if !self.files.is_empty()
            && !self.files.iter().any(|requested| requested.as_bytes() == file)
        {
            return Ok(None);
        }
        let is_inside =
            |file: &Path| file.components().all(|part| matches!(part, Component::Normal(_)));
        if file.is_empty() || !is_inside(path_of(file)) {
            return Err(GetError::Outside(output.object.source.clone()));
        }
        let folder = if self.task.is_some() {
            self.to.clone()
        } else {
            self.to.join(output.task.index.to_string())
        };
        Ok(Some(folder.join(path_of(file))))
    }
}

/// Whether a file has the content of a kept object. The version of a kept object is its checksum.
async fn is_same(path: &Path, object: &ObjectSpec) -> bool {
    let Version::Etag { etag, size_bytes } = object.version.clone() else { return false };
    if !path
        .symlink_metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() == size_bytes)
    {
        return false;
    }
    let path = path.to_owned();
    let sum = move || -> io::Result<String> {
        let (mut file, mut hasher, mut buffer) =
            (File::open(path)?, Hasher::new(), vec![0; BUFFER_BYTES]);
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(hasher.finish().to_string()),
                count => hasher.update(&buffer[..count]),
            }
        }
    };
    matches!(tokio::task::spawn_blocking(sum).await, Ok(Ok(sum)) if sum == etag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{FileMode, TaskId};

    #[test]
    fn names_never_lead_out_of_the_folder() {
        let path = |file: &str, task: Option<u32>, files: &[&str]| {
            let id = TaskId { job: JobId(1), index: 2 };
            let object = ObjectSpec::kept(id, file.as_bytes(), 0, "", FileMode::READABLE);
            let output = KeptOutput { task: id, object, holders: Vec::new(), is_lost: false };
            let files = files.iter().map(|file| (*file).into()).collect();
            let request =
                GetRequest { job: JobId(1), task, files, to: "to".into(), replaces: false };
            request
                .path_of_output(&output)
                .ok()
                .map(|path| path.map(|path| path.display().to_string()))
        };
        for (file, task, files, expected) in [
            ("a", None, &[][..], Some(Some("to/2/a".into()))),
            ("a/b c", Some(2), &[], Some(Some("to/a/b c".into()))),
            ("a", Some(2), &["b"], Some(None)),
            ("a", Some(2), &["b", "a"], Some(Some("to/a".into()))),
            ("../a", None, &[], None),
            ("a/../../b", None, &[], None),
            ("/a", None, &[], None),
            ("", None, &[], None),
        ] {
            assert_eq!(path(file, task, files), expected, "{file}");
        }
    }
}
