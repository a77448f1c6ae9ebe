//! Folders. A folder is an entry of its own, and the names below it do not depend on that entry: no
//! record lists them.
//!
//! A client that creates a file makes the folders above it first. It remembers folders that it has
//! seen, so that ten thousand files in one folder cost one more operation. A folder may lose its
//! entry while names are below it, if it is removed while another client creates a file in it, and
//! in file systems of earlier versions. The next list of the folder above then puts the entry back.

pub(crate) mod list;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use eyas_ring::{FileOperation, Listing};
use eyas_types::dfs::{FileId, FileKind, FileName, FileRecord, MAX_NAME_BYTES, Quota};
use tokio::sync::OnceCell;

use crate::backoff::Backoff;
use crate::entries::Creation;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::names::Names;
use crate::quota::{FolderUsage, Quotas};
use crate::random::random;
use crate::routes::Routes;
use crate::runs::spec::OWN_FOLDER;

/// Maximum number of folders that a client remembers. When there are more, it forgets all.
const MAX_KNOWN: usize = 4096;

/// After this time, a client looks at a folder again.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The folders of the file system, and what is in them.
pub(crate) struct Folders {
    pub routes: Arc<Routes>,
    names: Arc<Names>,
    pub quotas: Arc<Quotas>,
    known: KnownFolders,
}

/// Folders that exist, or that are being made.
#[derive(Default)]
struct KnownFolders(Mutex<HashMap<FileName, KnownFolder>>);

struct KnownFolder {
    since: Instant,
    /// Whether the folder exists; false if this client may not make it. Set when that is known.
    made: Arc<OnceCell<bool>>,
}

impl KnownFolders {
    /// The cell of a folder, which is set if it is known whether the folder exists.
    fn cell(&self, folder: &FileName) -> Arc<OnceCell<bool>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN && !known.contains_key(folder) {
            known.clear();
        }
        let new = || KnownFolder { since: Instant::now(), made: Arc::default() };
        let entry = known.entry(folder.clone()).or_insert_with(new);
        if entry.since.elapsed() > KNOWN_FOR {
            *entry = new();
        }
        entry.made.clone()
    }

    /// A folder, with everything below it, may have been removed.
    pub fn forget(&self, folder: &FileName) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| !name.is_within(folder.as_str()));
    }
}

impl Folders {
    pub fn new(routes: Arc<Routes>, names: Arc<Names>, quotas: Arc<Quotas>) -> Self {
        Folders { routes, names, quotas, known: KnownFolders::default() }
    }

    /// A folder, with everything below it, may have been removed or moved.
    pub fn forget(&self, folder: &FileName) {
        self.known.forget(folder);
    }

    /// Checks that a name is free, and makes the folders above it if that is wanted.
    pub async fn prepare_name(
        &self,
        name: &FileName,
        creation: Creation,
    ) -> Result<(), FilesError> {
        match self.names.lookup(name).await {
            Ok(there) => return Err(FilesError::exists(name, there.record.kind.is_folder())),
            Err(error) if error.kind == FilesErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if creation.makes_parents { self.make_parents(name).await } else { Ok(()) }
    }

    /// Makes a folder.
    pub async fn make_folder(
        &self,
        name: &FileName,
        creation: Creation,
    ) -> Result<File, FilesError> {
        let made = self.create_entry(name, FileKind::Folder, creation).await?;
        let _ = self.known.cell(name).set(true);
        Ok(made)
    }

    /// Makes a symbolic link. The target is not checked.
    pub async fn make_symbolic_link(
        &self,
        name: &FileName,
        target: &str,
        creation: Creation,
    ) -> Result<File, FilesError> {
        if target.is_empty() || target.len() > MAX_NAME_BYTES || target.contains('\0') {
            return Err(FilesError::invalid(format!(
                "{name} cannot be a link to `{target}`: a target has 1 to {MAX_NAME_BYTES} bytes, \
                 and no NUL byte"
            )));
        }
        self.create_entry(name, FileKind::SymbolicLink(target.to_owned()), creation).await
    }

    /// Creates a folder or a link.
    async fn create_entry(
        &self,
        name: &FileName,
        kind: FileKind,
        creation: Creation,
    ) -> Result<File, FilesError> {
        if creation.makes_parents {
            self.make_parents(name).await?;
        }
        let record = FileRecord::without_content(FileId(random()?), kind, creation.attributes());
        self.create_within_quota(name, record).await
    }

    /// Creates an entry if the quotas of its folders permit it.
    async fn create_within_quota(
        &self,
        name: &FileName,
        record: FileRecord,
    ) -> Result<File, FilesError> {
        let charge = self.quotas.charge(name, None, FolderUsage::added(None, &record)).await?;
        let created = self.names.create_record(name, record).await?;
        charge.keep();
        Ok(created)
    }

    /// Sets or removes the quota of a folder. Other clients notice it within 5 s. What is there
    /// already may exceed it; then nothing can be added.
    pub async fn set_quota(
        &self,
        folder: &FileName,
        quota: Option<Quota>,
    ) -> Result<(), FilesError> {
        let (deadline, mut pause) = (self.routes.deadline(), Backoff::default());
        loop {
            let File { record, version, .. } = self.names.lookup(folder).await?;
            if !record.kind.is_folder() {
                return Err(FilesError::not_folder(folder));
            }
            let record = FileRecord { quota, ..record };
            match self
                .names
                .operate(FileOperation::Replace { name: folder.clone(), version, record })
                .await
            {
                Err(error)
                    if error.kind == FilesErrorKind::Changed && Instant::now() < deadline => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    self.quotas.seen(folder, quota);
                    return Ok(());
                }
            }
            pause.wait().await;
        }
    }

    /// Makes a folder and the folders above it, as far as they are missing.
    pub async fn make_folders(&self, name: &FileName) -> Result<(), FilesError> {
        match self.make_missing(name).await? {
            true => Ok(()),
            false => Err(FilesError::new(
                FilesErrorKind::NotAllowed,
                format!("folder {name} cannot be made: the key or token does not permit it"),
            )),
        }
    }

    /// Makes a folder and the folders above it, as far as they are missing. Returns whether the
    /// folder is there: this client may be permitted to write below a folder that it may not make.
    async fn make_missing(&self, name: &FileName) -> Result<bool, FilesError> {
        let mut missing = Vec::new();
        let mut folder = Some(name.clone()).filter(|name| !name.is_within(OWN_FOLDER));
        while let Some(name) = folder {
            let cell = self.known.cell(&name);
            if cell.initialized() {
                break;
            }
            folder = name.parent();
            missing.push((name, cell));
        }
        for (name, cell) in missing.into_iter().rev() {
            cell.get_or_try_init(|| self.make_if_missing(&name)).await?;
        }
        Ok(self.known.cell(name).get().copied().unwrap_or(true))
    }

    /// Makes the folders above a name, as far as they are missing.
    pub async fn make_parents(&self, name: &FileName) -> Result<(), FilesError> {
        match name.parent() {
            Some(parent) => self.make_missing(&parent).await.map(drop),
            None => Ok(()),
        }
    }

    /// Makes a folder. Returns whether it is there, and not only refused.
    async fn make_if_missing(&self, name: &FileName) -> Result<bool, FilesError> {
        let attributes = Creation::of_process(0o777).attributes();
        let record = FileRecord::without_content(FileId(random()?), FileKind::Folder, attributes);
        match self.create_within_quota(name, record).await {
            Err(error) if error.kind == FilesErrorKind::Exists => {
                match self.names.lookup(name).await {
                    Ok(there) if !there.record.kind.is_folder() => {
                        Err(FilesError::not_folder(name))
                    }
                    Ok(there) => {
                        self.quotas.seen(name, there.record.quota);
                        Ok(true)
                    }
                    // Another client has removed it just now.
                    Err(error) if error.kind == FilesErrorKind::NotFound => Ok(true),
                    Err(error) => Err(error),
                }
            }
            Err(error) if error.kind == FilesErrorKind::NotAllowed => {
                let there = self.names.lookup(name).await;
                Ok(there.is_ok_and(|there| there.record.kind.is_folder()))
            }
            Err(error) => Err(error),
            Ok(_) => {
                self.quotas.seen(name, None);
                Ok(true)
            }
        }
    }

    /// Removes an empty folder. If another client creates a file in it at the same time, the folder
    /// stays.
    pub async fn remove_folder(&self, name: &FileName) -> Result<(), FilesError> {
        let record = self.names.lookup(name).await?.record;
        if !record.kind.is_folder() {
            return Err(FilesError::not_folder(name));
        }
        if !self.is_empty(name).await? {
            return Err(FilesError::not_empty(name));
        }
        let removed =
            self.names.operate(FileOperation::Remove { name: name.clone(), id: record.id }).await;
        self.known.forget(name);
        removed?;
        if self.is_empty(name).await? {
            return Ok(());
        }
        self.put_back(name, record).await?;
        Err(FilesError::not_empty(name))
    }

    /// Puts the entry of a folder back, below which names were found. `None` if they are gone.
    pub async fn put_folder_back(&self, folder: &FileName) -> Result<Option<Listing>, FilesError> {
        if self.is_empty(folder).await? {
            return Ok(None);
        }
        let attributes =
            Creation { mode: 0o755, uid: 0, gid: 0, modified_ns: None, makes_parents: false }
                .attributes();
        let record = FileRecord::without_content(FileId(random()?), FileKind::Folder, attributes);
        let record = self.put_back(folder, record).await?;
        Ok(record.map(|record| Listing::of(folder.clone(), &record)))
    }

    /// Creates the entry of a folder unless another client has done so. Returns what has the name
    /// then.
    async fn put_back(
        &self,
        folder: &FileName,
        record: FileRecord,
    ) -> Result<Option<FileRecord>, FilesError> {
        match self.names.create_record(folder, record.clone()).await {
            Err(error) if error.kind == FilesErrorKind::Exists => {
                match self.names.lookup(folder).await {
                    Err(error) if error.kind == FilesErrorKind::NotFound => Ok(None),
                    there => there.map(|there| Some(there.record)),
                }
            }
            // This client may only read.
            Err(error) if error.kind == FilesErrorKind::NotAllowed => Ok(Some(record)),
            put => put.map(|put| Some(put.record)),
        }
    }
}
