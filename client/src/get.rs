//! Brings what a job keeps in the cluster to this machine, straight from the executors that hold it, as they fetch from
//! each other: the dispatcher says who has what, and no content goes through it.
//!
//! A file comes into a hidden folder beside its place, and is renamed when it is whole and its checksum right. What is not
//! written yet, or was lost and is made again, is waited for.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use eyas_session::{Access, DataKeys};
use eyas_store::{Hasher, Limiter, Limits, ObjectStore, Storage, StoreError, path_of};
use eyas_transfer::{FetchError, FetchErrorKind, Fetcher, PeerHolder, PeerLimits, Peers};
use eyas_types::{JobId, Name, ObjectId, ObjectSpec, Version, units};
use eyas_wire::client::{FromClient, KeptOutput, ToClient};
use tempfile::TempDir;
use thiserror::Error;

use crate::client::{Client, ClientError};

/// What is not there yet is asked for again after so long, and at most so long where the look at all took long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_MOST: Duration = Duration::from_secs(10);
/// A file that those who are said to have it do not give is asked for so many times.
const MAX_TRIES: u32 = 5;
/// Read at a time of a file that is there already.
const BUFFER_BYTES: usize = 1 << 20;

/// What is to be brought, and where to.
#[derive(Clone, Debug)]
pub struct Wish {
    /// What this job keeps.
    pub job: JobId,
    /// Of this task alone, whose files then stand in the folder itself, else in one for each task.
    pub task: Option<u32>,
    /// Only these files; all if none is named.
    pub files: Vec<Name>,
    /// The folder, which is made if it is not there.
    pub to: PathBuf,
    /// Whether other files in their places are replaced.
    pub replaces: bool,
}

/// What is seen of it.
#[derive(Clone, Copy, Debug)]
pub enum Brought<'a> {
    /// A file is there, whole.
    File(&'a Path),
    /// So many tasks and files are waited for.
    Waits(u64),
}

/// Why not everything was brought. What was brought before stays.
#[derive(Debug, Error)]
pub enum GetError {
    /// The dispatcher did not say what there is.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// There is nothing of the kind.
    #[error("{0}")]
    Nothing(String),
    /// Something else is in its place.
    #[error("{} is there already: choose another folder with --to, or replace what is there with --force", .0.display())]
    Exists(PathBuf),
    /// The folder cannot be used.
    #[error("cannot write to {}: {source}", folder.display())]
    Folder {
        /// Which folder.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The folder's file system failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The folder's disk is full.
    #[error("{} has no room for `{file}`: free some, or choose another folder with --to", folder.display())]
    Full {
        /// Which folder.
        folder: PathBuf,
        /// The file.
        file: Name,
    },
    /// It was lost too often.
    #[error("`{0}` was lost with the executors that kept it, as often as it was made again: submit the job again")]
    Lost(Name),
    /// Those who have it do not give it.
    #[error("{0}. Check that the executors that have it can be reached from this machine")]
    Fetch(FetchError),
}

/// The hidden folder into which files come.
struct Landing {
    store: ObjectStore,
    fetcher: Fetcher,
    /// Removed with all that is in it.
    _folder: TempDir,
}

impl Landing {
    fn beside(to: &Path, access: &Access) -> Result<Self, GetError> {
        let failed = |source| GetError::Folder { folder: to.to_owned(), source };
        fs::create_dir_all(to).map_err(failed)?;
        let folder = tempfile::Builder::new().prefix(".eyas-").suffix(".tmp").tempdir_in(to).map_err(failed)?;
        let (store, _) = ObjectStore::open(folder.path())?;
        let peers = Peers::new(DataKeys::of(access), PeerLimits::default(), Limiter::unlimited());
        let fetcher = Fetcher::new(store.clone(), Storage::new(Limits::default()), peers);
        Ok(Landing { store, fetcher, _folder: folder })
    }

    async fn bring(&self, output: &KeptOutput, place: &Path, replaces: bool) -> Result<(), GetError> {
        let holders = output.holders.iter().map(|addr| PeerHolder { addr: *addr, is_relay: false, others: 0 });
        self.fetcher.fetch(&output.object, &holders.collect::<Vec<_>>()).await.map_err(GetError::Fetch)?;
        let folder = place.parent().unwrap_or(place);
        fs::create_dir_all(folder).map_err(|source| GetError::Folder { folder: folder.to_owned(), source })?;
        Ok(self.store.hand_out(output.object.id(), place, replaces)?)
    }
}

/// How far a wish is fulfilled.
struct Getting<'a> {
    wish: &'a Wish,
    landing: Landing,
    brought: HashSet<PathBuf>,
    /// How often what could not be had was asked for.
    tries: HashMap<ObjectId, u32>,
    /// Tasks and files that are to come.
    awaited: u64,
    /// Tasks that have left nothing.
    unsuccessful: u64,
}

impl Client {
    /// Brings what a job keeps in the cluster for its user into a folder; how many files that were. Waits for tasks that
    /// have not ended, and for what is made again. A dispatcher that is lost is dialled for as long as there is
    /// `patience`.
    ///
    /// # Errors
    /// What keeps the next file from being brought; or that there is none.
    pub async fn get(
        &mut self,
        wish: &Wish,
        patience: Duration,
        mut see: impl FnMut(Brought<'_>),
    ) -> Result<u64, GetError> {
        let landing = Landing::beside(&wish.to, self.access())?;
        let (brought, tries) = (HashSet::new(), HashMap::new());
        let mut getting = Getting { wish, landing, brought, tries, awaited: 0, unsuccessful: 0 };
        loop {
            let began = Instant::now();
            (getting.awaited, getting.unsuccessful) = (0, 0);
            self.look(&mut getting, patience, &mut see).await?;
            if getting.awaited == 0 {
                return getting.end();
            }
            see(Brought::Waits(getting.awaited));
            // A job of very many tasks is not asked about all the time.
            tokio::time::sleep(began.elapsed().clamp(LOOK_AGAIN, LOOK_AGAIN_MOST)).await;
        }
    }

    /// Brings what is there now.
    async fn look(
        &mut self,
        getting: &mut Getting<'_>,
        patience: Duration,
        see: &mut impl FnMut(Brought<'_>),
    ) -> Result<(), GetError> {
        let job = getting.wish.job;
        let (from, to) = getting.wish.task.map_or((0, u32::MAX), |task| (task, task.saturating_add(1)));
        // Who is said to have it reads all of it: once is enough.
        let tried_once = getting.tries.iter().filter(|(_, tries)| **tries == 1);
        let mut doubted = tried_once.map(|(object, _)| *object).collect();
        let mut next = Some(from);
        while let Some(from) = next {
            let request = FromClient::Kept { job, from, to, doubted: std::mem::take(&mut doubted) };
            let ToClient::Kept(part) = self.ask_again(request, patience).await? else {
                return Err(ClientError::Unexpected.into());
            };
            for (place, output) in getting.lacking(&part.outputs).await? {
                getting.bring(output, place, see).await?;
            }
            getting.awaited += part.unfinished;
            getting.unsuccessful += part.unsuccessful;
            next = part.next;
        }
        Ok(())
    }
}

impl Getting<'_> {
    /// Of these outputs those that are wished for and are not there yet, with their places, where nothing else is.
    async fn lacking<'a>(&mut self, outputs: &'a [KeptOutput]) -> Result<Vec<(PathBuf, &'a KeptOutput)>, GetError> {
        let mut lacking = Vec::new();
        for output in outputs {
            let Some(place) = self.wish.place(output)?.filter(|place| !self.brought.contains(place)) else { continue };
            if !self.wish.replaces && place.symlink_metadata().is_ok() {
                if !is_same(&place, &output.object).await {
                    return Err(GetError::Exists(place));
                }
                // As an earlier wish has brought it.
                self.brought.insert(place);
                continue;
            }
            lacking.push((place, output));
        }
        Ok(lacking)
    }

    async fn bring(
        &mut self,
        output: &KeptOutput,
        place: PathBuf,
        see: &mut impl FnMut(Brought<'_>),
    ) -> Result<(), GetError> {
        let source = &output.object.source;
        if output.is_lost {
            return Err(GetError::Lost(source.clone()));
        }
        if output.holders.is_empty() {
            self.awaited += 1;
            return Ok(());
        }
        match self.landing.bring(output, &place, self.wish.replaces).await {
            Ok(()) => {
                see(Brought::File(&place));
                self.tries.remove(&output.object.id());
                self.brought.insert(place);
            }
            Err(GetError::Fetch(error)) if error.kind == FetchErrorKind::Full => {
                return Err(GetError::Full { folder: self.wish.to.clone(), file: source.clone() });
            }
            Err(GetError::Fetch(error)) if error.kind != FetchErrorKind::Local => {
                // Another executor may have it by then, or it is made again.
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
        let Wish { job, task, files, .. } = self.wish;
        let whose = task.map_or(format!("job {job}"), |task| format!("task {job}.{task}"));
        let lacks = |file: &&Name| !self.brought.contains(&self.wish.to.join(path_of(file)));
        match files.iter().find(lacks) {
            _ if self.unsuccessful > 0 => Err(GetError::Nothing(format!(
                "{} of job {job} did not succeed, and left nothing: `eyas task list {job} --failed` shows what failed",
                units::format_count(self.unsuccessful, "task")
            ))),
            Some(file) => Err(GetError::Nothing(format!("{whose} keeps no file `{file}` in the cluster"))),
            None if self.brought.is_empty() => Err(GetError::Nothing(format!(
                "{whose} keeps nothing in the cluster for its user: that are outputs with `keep = true` and without `to`"
            ))),
            None => Ok(self.brought.len() as u64),
        }
    }
}

impl Wish {
    /// Where an output goes, if it is wished for.
    fn place(&self, output: &KeptOutput) -> Result<Option<PathBuf>, GetError> {
        let file = output.object.kept_file().unwrap_or_default();
        if !self.files.is_empty() && !self.files.iter().any(|wished| wished.as_bytes() == file) {
            return Ok(None);
        }
        let is_inside = |file: &Path| file.components().all(|part| matches!(part, Component::Normal(_)));
        if file.is_empty() || !is_inside(path_of(file)) {
            return Err(GetError::Nothing(format!("`{}` leads out of the folder", output.object.source)));
        }
        let folder = if self.task.is_some() { self.to.clone() } else { self.to.join(output.task.index.to_string()) };
        Ok(Some(folder.join(path_of(file))))
    }
}

/// Whether a file has the content of a kept object, whose version is its checksum.
async fn is_same(place: &Path, object: &ObjectSpec) -> bool {
    let Version::Etag { etag, size_bytes } = object.version.clone() else { return false };
    if !place.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == size_bytes) {
        return false;
    }
    let place = place.to_owned();
    let sum = move || -> io::Result<String> {
        let (mut file, mut hasher, mut buffer) = (File::open(place)?, Hasher::new(), vec![0; BUFFER_BYTES]);
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
    use eyas_types::TaskId;

    #[test]
    fn names_never_lead_out_of_the_folder() {
        let place = |file: &str, task: Option<u32>, files: &[&str]| {
            let id = TaskId { job: JobId(1), index: 2 };
            let object = ObjectSpec::kept(id, file.as_bytes(), 0, "", false);
            let output = KeptOutput { task: id, object, holders: Vec::new(), is_lost: false };
            let files = files.iter().map(|file| (*file).into()).collect();
            let wish = Wish { job: JobId(1), task, files, to: "to".into(), replaces: false };
            wish.place(&output).ok().map(|place| place.map(|place| place.display().to_string()))
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
            assert_eq!(place(file, task, files), expected, "{file}");
        }
    }
}
