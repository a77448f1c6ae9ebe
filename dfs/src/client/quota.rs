//! Quotas of folders. The client that writes checks them, so they bound programs that are well-behaved, as in CephFS.
//!
//! A folder's record has its quota. The members say how much is below the folder; each adds up the names that it leads.
//! A client asks at most once a second, and counts what it has written since. So several clients that write at the same
//! time can exceed a quota by what all of them write in a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::dfs::{FileName, FileRecord, Quota};
use eyas_types::units::{format_bytes, format_count};
use tokio::sync::OnceCell;

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::{DfsClient, File, PAUSE, unexpected};
use crate::protocol::{RequestBody, ResponseBody};
use crate::runs::OWN_FOLDER;

/// For this time, a client does not look again whether a folder has a quota.
const QUOTA_KNOWN_FOR: Duration = Duration::from_secs(5);

/// For this time, a client does not ask again how much is below a folder.
const USE_KNOWN_FOR: Duration = Duration::from_secs(1);

/// Maximum number of folders whose quotas a client remembers. When there are more, it forgets all.
const MAX_QUOTAS_KNOWN: usize = 4096;

/// The size and the number of the entries below a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolderUsage {
    /// Size of all files, bytes. Replicas do not count.
    pub bytes: u64,
    /// Number of files, folders and links.
    pub files: u64,
}

/// The quotas that a client has seen, by folder.
#[derive(Default)]
pub(super) struct KnownQuotas(Mutex<HashMap<FileName, Arc<KnownQuota>>>);

struct KnownQuota {
    since: Instant,
    /// Set when the folder was looked at.
    quota: OnceCell<Option<Quota>>,
    /// Locked while the members are asked, so that they are asked once.
    used: tokio::sync::Mutex<Option<Used>>,
}

/// The use of a folder.
struct Used {
    /// When the members were asked.
    asked: Instant,
    /// Their answer.
    usage: FolderUsage,
    /// What this client has written since.
    written: FolderUsage,
}

impl KnownQuota {
    fn new(quota: Option<Option<Quota>>) -> Arc<Self> {
        let quota = OnceCell::new_with(quota);
        Arc::new(KnownQuota { since: Instant::now(), quota, used: tokio::sync::Mutex::default() })
    }
}

impl KnownQuotas {
    /// The client has seen a folder with this quota.
    pub fn seen(&self, folder: &FileName, quota: Option<Quota>) {
        let mut known = self.lock();
        if known.len() < MAX_QUOTAS_KNOWN {
            known.insert(folder.clone(), KnownQuota::new(Some(quota)));
        }
    }

    fn of(&self, folder: &FileName) -> Arc<KnownQuota> {
        let mut known = self.lock();
        if known.len() >= MAX_QUOTAS_KNOWN && !known.contains_key(folder) {
            known.clear();
        }
        let entry = known.entry(folder.clone()).or_insert_with(|| KnownQuota::new(None));
        if entry.since.elapsed() > QUOTA_KNOWN_FOR {
            *entry = KnownQuota::new(None);
        }
        entry.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileName, Arc<KnownQuota>>> {
        // Each change is a single insertion.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DfsClient {
    /// Sets or removes the quota of a folder. Other clients notice it within 5 s. What is there already may exceed it;
    /// then nothing can be added.
    ///
    /// # Errors
    /// `NotFound`, `NotFolder`, `Changed`, `Unreachable`.
    pub async fn set_quota(&self, folder: &FileName, quota: Option<Quota>) -> Result<(), FilesError> {
        let (deadline, mut pause) = (self.deadline(), PAUSE);
        loop {
            let File { record, version, .. } = self.lookup(folder).await?;
            if !record.kind.is_folder() {
                return Err(FilesError::not_folder(folder));
            }
            let record = FileRecord { quota, ..record };
            match self.operate(FileOperation::Replace { name: folder.clone(), version, record }).await {
                Err(error) if error.kind == FilesErrorKind::Changed && Instant::now() < deadline => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    self.0.quotas.seen(folder, quota);
                    return Ok(());
                }
            }
            self.pause(&mut pause).await;
        }
    }

    /// The use of a folder: of everything below it.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn folder_usage(&self, folder: &str) -> Result<FolderUsage, FilesError> {
        let ask = |files: DfsClient, address, view| {
            let folder = folder.to_owned();
            async move {
                let operation = FileOperation::Use { view, folder };
                match files.0.calls.ask_once(address, RequestBody::Operate(operation)).await? {
                    ResponseBody::Operated(Ok(FileAnswer::Used { bytes, files })) => {
                        Ok(Some(FolderUsage { bytes, files }))
                    }
                    ResponseBody::Operated(Err(_)) => Ok(None),
                    _ => Err(unexpected()),
                }
            }
        };
        let parts = self.ask_all(ask).await?;
        Ok(parts.into_iter().fold(FolderUsage::default(), FolderUsage::with))
    }

    /// Checks that `more` may be added under a name, and counts it as written if `is_written` is set. Folders that
    /// `from` is in as well, the name that an entry has now, are not checked.
    ///
    /// # Errors
    /// `Quota`, `Unreachable`.
    pub(super) async fn charge(
        &self,
        name: &FileName,
        from: Option<&FileName>,
        more: FolderUsage,
        is_written: bool,
    ) -> Result<(), FilesError> {
        if more == FolderUsage::default() || name.is_within(OWN_FOLDER) {
            return Ok(());
        }
        let mut above = name.parent();
        while let Some(folder) = above {
            if from.is_none_or(|from| !from.is_within(folder.as_str())) {
                self.charge_folder(&folder, name, more, is_written).await?;
            }
            above = folder.parent();
        }
        Ok(())
    }

    async fn charge_folder(
        &self,
        folder: &FileName,
        name: &FileName,
        more: FolderUsage,
        is_written: bool,
    ) -> Result<(), FilesError> {
        let known = self.0.quotas.of(folder);
        let Some(quota) = known.quota.get_or_try_init(|| self.quota_of(folder)).await? else { return Ok(()) };
        let mut used = known.used.lock().await;
        if used.as_ref().is_none_or(|used| used.asked.elapsed() > USE_KNOWN_FOR) {
            let (asked, usage) = (Instant::now(), self.folder_usage(folder.as_str()).await?);
            *used = Some(Used { asked, usage, written: FolderUsage::default() });
        }
        let Some(Used { usage, written, .. }) = &mut *used else { unreachable!("it was set above") };
        let before = usage.with(*written);
        let exceeds = |limit: Option<u64>, used: u64, more: u64| {
            limit.filter(|limit| more > 0 && used.saturating_add(more) > *limit)
        };
        if let Some(limit) = exceeds(quota.bytes, before.bytes, more.bytes) {
            let [limit, used, more] = [limit, before.bytes, more.bytes].map(format_bytes);
            return Err(over(folder, &limit, &used, &format!("{name} needs {more} more")));
        }
        if let Some(limit) = exceeds(quota.files, before.files, more.files) {
            let limit = format_count(limit, "file");
            return Err(over(folder, &limit, &before.files.to_string(), &format!("{name} would be one more")));
        }
        if is_written {
            *written = written.with(more);
        }
        Ok(())
    }

    async fn quota_of(&self, folder: &FileName) -> Result<Option<Quota>, FilesError> {
        match self.lookup(folder).await {
            Ok(File { record, .. }) => Ok(record.quota),
            // The token of a job may write below a folder that it may not see.
            Err(error) if matches!(error.kind, FilesErrorKind::NotFound | FilesErrorKind::NotAllowed) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl FolderUsage {
    fn with(self, other: FolderUsage) -> Self {
        FolderUsage { bytes: self.bytes.saturating_add(other.bytes), files: self.files.saturating_add(other.files) }
    }

    /// What a record adds to the use of its folders when it replaces another one.
    pub(super) fn added(before: Option<&FileRecord>, after: &FileRecord) -> Self {
        let size_before = before.map_or(0, FileRecord::size_bytes);
        FolderUsage { bytes: after.size_bytes().saturating_sub(size_before), files: u64::from(before.is_none()) }
    }
}

fn over(folder: &FileName, limit: &str, used: &str, needed: &str) -> FilesError {
    let message = format!(
        "{folder} has a quota of {limit}, and {used} are used: {needed}. Remove files, or change the quota with `eyas \
         dfs quota set`"
    );
    FilesError::new(FilesErrorKind::Quota, message)
}
