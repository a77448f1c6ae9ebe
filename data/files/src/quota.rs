//! Quotas of folders. The client that writes checks them, so they bound programs that are
//! well-behaved, as in CephFS.
//!
//! A folder's record has its quota. The members say how much is below the folder; each adds up the
//! names that it leads. A client asks at most once a second, and counts the entries that it has
//! added since. A file counts when it appears, so several clients that write at the same time can
//! exceed a quota by all files that appear within a second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_ring::{FileAnswer, FileOperation, Refusal};
use eyas_types::dfs::{FileName, FileRecord, Quota};
use eyas_types::units::{format_bytes, format_count};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use crate::calls::Calls;
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::file::File;
use crate::names::Names;
use crate::protocol::{RequestBody, ResponseBody};
use crate::routes::Routes;
use crate::runs::spec::OWN_FOLDER;

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

/// The quotas of folders, and how much is in them. They are asked for with the rights of the key,
/// also by a client that asks on behalf of a user: folders above that of the user may have quotas.
pub(crate) struct Quotas {
    routes: Arc<Routes>,
    names: Arc<Names>,
    known: KnownQuotas,
    /// Whether the members are being asked for [`Quotas::may_grow`].
    is_refreshing: AtomicBool,
}

/// The quotas that a client has seen, by folder.
#[derive(Default)]
struct KnownQuotas(Mutex<HashMap<FileName, Arc<KnownQuota>>>);

struct KnownQuota {
    since: Instant,
    /// Set when the folder was looked at.
    quota: OnceCell<Option<Quota>>,
    /// Locked while the members are asked, so that they are asked once.
    asking: tokio::sync::Mutex<()>,
    used: Mutex<Option<QuotaUse>>,
    /// The quota and the use that were known before, for checks that do not wait.
    before: Option<(Quota, FolderUsage)>,
}

/// The use of a folder.
struct QuotaUse {
    /// When the members have answered, or have not answered in time.
    told: Instant,
    /// Their answer, with what this client has added since.
    used: Result<FolderUsage, FilesError>,
}

/// An addition to the use of folders, which counts until the members are asked again. Dropping it
/// takes it back.
#[must_use]
pub(crate) struct Charge {
    more: FolderUsage,
    /// The folders, with the time of the members' answer.
    folders: Vec<(Arc<KnownQuota>, Instant)>,
}

impl Charge {
    /// The addition was made.
    pub fn keep(mut self) {
        self.folders.clear();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        for (folder, charged) in &self.folders {
            if let Some(QuotaUse { told, used: Ok(used) }) = &mut *folder.used()
                && told == charged
            {
                used.bytes = used.bytes.saturating_sub(self.more.bytes);
                used.files = used.files.saturating_sub(self.more.files);
            }
        }
    }
}

impl KnownQuota {
    fn new(quota: Option<Option<Quota>>) -> Arc<Self> {
        let quota = OnceCell::new_with(quota);
        let (asking, used) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(KnownQuota { since: Instant::now(), quota, asking, used, before: None })
    }

    /// An entry in place of this one, which is old.
    fn renewed(&self) -> Arc<Self> {
        let (quota, before) = (OnceCell::new(), self.latest());
        let (asking, used) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(KnownQuota { since: Instant::now(), quota, asking, used, before })
    }

    /// The quota, if the folder has one, and the use of the folder, as far as they are known.
    fn latest(&self) -> Option<(Quota, FolderUsage)> {
        match (self.quota.get(), &*self.used()) {
            (Some(None), _) => None,
            (Some(Some(quota)), Some(QuotaUse { used: Ok(used), .. })) => Some((*quota, *used)),
            _ => self.before,
        }
    }

    /// Whether the members need not be asked again. A failure is known for the same time: callers
    /// that have waited for the answer must not wait for another one, each in turn.
    fn is_current(&self) -> bool {
        self.used().as_ref().is_some_and(|used| used.told.elapsed() <= USE_KNOWN_FOR)
    }

    fn used(&self) -> MutexGuard<'_, Option<QuotaUse>> {
        // Each change is a single assignment.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the quota and the use are known and not old, so that the members need not be asked.
    fn is_known(&self) -> bool {
        self.quota.get().is_some_and(|quota| quota.is_none() || self.is_current())
    }

    /// Fails if it is known that the folder has a quota that does not permit `more` under `name`.
    fn check(
        &self,
        folder: &FileName,
        name: &FileName,
        more: FolderUsage,
    ) -> Result<(), FilesError> {
        self.latest().map_or(Ok(()), |(quota, used)| within(&quota, used, more, folder, name))
    }
}

impl KnownQuotas {
    /// The client has seen a folder with this quota.
    fn seen(&self, folder: &FileName, quota: Option<Quota>) {
        let mut known = self.lock();
        if known.len() < MAX_QUOTAS_KNOWN || known.contains_key(folder) {
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
            *entry = entry.renewed();
        }
        entry.clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileName, Arc<KnownQuota>>> {
        // Each change is a single insertion.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quotas {
    pub fn new(routes: Arc<Routes>, names: Arc<Names>) -> Self {
        Quotas {
            routes,
            names,
            known: KnownQuotas::default(),
            is_refreshing: AtomicBool::new(false),
        }
    }

    /// The client has seen a folder with this quota.
    pub fn seen(&self, folder: &FileName, quota: Option<Quota>) {
        self.known.seen(folder, quota);
    }

    /// The use of a folder: of everything below it.
    pub async fn folder_usage(&self, folder: &str) -> Result<FolderUsage, FilesError> {
        folder_usage(&self.routes, folder).await
    }

    /// Checks that `more` may be added under a name, and counts it until the result is dropped.
    /// Folders that `from` is in as well, the name that an entry has now, are not concerned.
    pub async fn charge(
        &self,
        name: &FileName,
        from: Option<&FileName>,
        more: FolderUsage,
    ) -> Result<Charge, FilesError> {
        let mut charge = Charge { more, folders: Vec::new() };
        if more == FolderUsage::default() || name.is_within(OWN_FOLDER) {
            return Ok(charge);
        }
        for folder in folders_above(name, from) {
            self.charge_folder(&folder, name, &mut charge).await?;
        }
        Ok(charge)
    }

    /// Fails if it is known here that quotas do not permit a file to grow by `more_bytes`. Does not
    /// wait: if something is not known, or was known more than a second ago, the members are asked
    /// in the background, for the next call.
    pub fn may_grow(
        self: &Arc<Self>,
        name: &FileName,
        more_bytes: u64,
        runtime: &Handle,
    ) -> Result<(), FilesError> {
        let more = FolderUsage { bytes: more_bytes, files: 0 };
        let folders: Vec<_> =
            folders_above(name, None).map(|folder| (self.known.of(&folder), folder)).collect();
        let is_known = folders.iter().all(|(known, _)| known.is_known());
        if !is_known && !self.is_refreshing.swap(true, Ordering::AcqRel) {
            let (quotas, name) = (self.clone(), name.clone());
            runtime.spawn(async move {
                // An addition that is taken back at once. If it is refused, the next call says so.
                let one = FolderUsage { bytes: 1, files: 0 };
                let _ = quotas.charge(&name, None, one).await;
                quotas.is_refreshing.store(false, Ordering::Release);
            });
        }
        folders.iter().try_for_each(|(known, folder)| known.check(folder, name, more))
    }

    /// Whether a folder that `name` is in, and `from` is not in, has a quota.
    pub async fn has_quota(
        &self,
        name: &FileName,
        from: Option<&FileName>,
    ) -> Result<bool, FilesError> {
        for folder in folders_above(name, from) {
            let known = self.known.of(&folder);
            if known.quota.get_or_try_init(|| self.quota_of(&folder)).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn charge_folder(
        &self,
        folder: &FileName,
        name: &FileName,
        charge: &mut Charge,
    ) -> Result<(), FilesError> {
        let (known, more) = (self.known.of(folder), charge.more);
        let Some(quota) = known.quota.get_or_try_init(|| self.quota_of(folder)).await? else {
            return Ok(());
        };
        let _asking = if known.is_current() { None } else { Some(known.asking.lock().await) };
        // Another caller may have asked meanwhile.
        if !known.is_current() {
            let used = self.folder_usage(folder.as_str()).await;
            *known.used() = Some(QuotaUse { told: Instant::now(), used });
        }
        let mut used = known.used();
        let Some(QuotaUse { told, used }) = &mut *used else {
            unreachable!("the members were asked")
        };
        let used = used.as_mut().map_err(|error| error.clone())?;
        within(quota, *used, more, folder, name)?;
        *used = used.with(more);
        charge.folders.push((known.clone(), *told));
        Ok(())
    }

    async fn quota_of(&self, folder: &FileName) -> Result<Option<Quota>, FilesError> {
        match self.names.lookup(folder).await {
            Ok(File { record, .. }) => Ok(record.quota),
            // The token of a job may write below a folder that it may not see.
            Err(error)
                if matches!(error.kind, FilesErrorKind::NotFound | FilesErrorKind::NotAllowed) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// The use of a folder: of everything below it.
pub(crate) async fn folder_usage(routes: &Routes, folder: &str) -> Result<FolderUsage, FilesError> {
    let ask = |calls: Arc<Calls>, address, view| {
        let folder = folder.to_owned();
        async move {
            let operation = FileOperation::Use { view, folder };
            loop {
                match calls.ask_once(address, RequestBody::Operate(operation.clone())).await? {
                    ResponseBody::Operated(Ok(FileAnswer::Used { bytes, files })) => {
                        return Ok(Ok(FolderUsage { bytes, files }));
                    }
                    // However long it takes: each request reads further names.
                    ResponseBody::Operated(Err(Refusal::StillCounting)) => {}
                    ResponseBody::Operated(Err(refusal)) => return Ok(Err(refusal)),
                    _ => return Err(unexpected()),
                }
            }
        }
    };
    let parts = routes.ask_all(ask).await?;
    Ok(parts.into_iter().fold(FolderUsage::default(), FolderUsage::with))
}

impl FolderUsage {
    fn with(self, other: FolderUsage) -> Self {
        FolderUsage {
            bytes: self.bytes.saturating_add(other.bytes),
            files: self.files.saturating_add(other.files),
        }
    }

    /// The growth of the use of the folders above when a record replaces another one.
    pub(crate) fn added(before: Option<&FileRecord>, after: &FileRecord) -> Self {
        let size_before = before.map_or(0, FileRecord::size_bytes);
        FolderUsage {
            bytes: after.size_bytes().saturating_sub(size_before),
            files: u64::from(before.is_none()),
        }
    }
}

/// Fails if a quota of `folder` does not permit `more` under `name`.
fn within(
    quota: &Quota,
    used: FolderUsage,
    more: FolderUsage,
    folder: &FileName,
    name: &FileName,
) -> Result<(), FilesError> {
    let exceeds = |limit: Option<u64>, used: u64, more: u64| {
        limit.filter(|limit| more > 0 && used.saturating_add(more) > *limit)
    };
    if let Some(limit) = exceeds(quota.bytes, used.bytes, more.bytes) {
        let [limit, used, more] = [limit, used.bytes, more.bytes].map(format_bytes);
        return Err(over(folder, &limit, &used, &format!("{name} needs {more} more")));
    }
    if let Some(limit) = exceeds(quota.files, used.files, more.files) {
        let limit = format_count(limit, "file");
        let needed = match more.files {
            1 => format!("{name} would be one more"),
            count => format!("{name} needs {count} more"),
        };
        return Err(over(folder, &limit, &used.files.to_string(), &needed));
    }
    Ok(())
}

/// The folders that `name` is in, and `from` is not in.
fn folders_above(
    name: &FileName,
    from: Option<&FileName>,
) -> impl Iterator<Item = FileName> + Send {
    let above = std::iter::successors(name.parent(), FileName::parent);
    above.filter(move |folder| from.is_none_or(|from| !from.is_within(folder.as_str())))
}

fn over(folder: &FileName, limit: &str, used: &str, needed: &str) -> FilesError {
    let message = format!(
        "{folder} has a quota of {limit}, and {used} are used: {needed}. Remove files, or change \
         the quota with `eyas dfs quota set`"
    );
    FilesError::new(FilesErrorKind::Quota, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_counts_until_it_is_dropped_or_the_members_are_asked_again() {
        let folder = KnownQuota::new(None);
        let usage = |bytes, files| FolderUsage { bytes, files };
        let tell = |used| {
            let told = Instant::now();
            *folder.used() = Some(QuotaUse { told, used: Ok(used) });
            told
        };
        let used = || folder.used().as_ref().map(|used| used.used.clone().unwrap());
        let told = tell(usage(15, 3));
        let charge = || Charge { more: usage(5, 1), folders: vec![(folder.clone(), told)] };
        drop(charge());
        assert_eq!(used(), Some(usage(10, 2)));
        charge().keep();
        assert_eq!(used(), Some(usage(10, 2)));
        let late = charge();
        // The clock of a system may be coarse.
        while tell(usage(15, 3)) == told {}
        drop(late);
        assert_eq!(used(), Some(usage(15, 3)), "the members did not count it");
    }

    #[test]
    fn growth_beyond_a_known_quota_is_refused() {
        let (folder, name) = ("/a".parse().unwrap(), "/a/b".parse().unwrap());
        let bytes = |bytes| FolderUsage { bytes, files: 0 };
        let quota = Quota { bytes: Some(100), files: None };
        let [unknown, none, limited] = [None, Some(None), Some(Some(quota))].map(KnownQuota::new);
        let check = |known: &KnownQuota, more| {
            known.check(&folder, &name, bytes(more)).map_err(|error| error.kind)
        };
        assert_eq!((unknown.is_known(), none.is_known(), limited.is_known()), (false, true, false));
        assert!([&unknown, &none, &limited].into_iter().all(|known| check(known, 1000).is_ok()));
        *limited.used() = Some(QuotaUse { told: Instant::now(), used: Ok(bytes(60)) });
        assert!(limited.is_known());
        assert_eq!(
            (check(&limited, 40), check(&limited, 41)),
            (Ok(()), Err(FilesErrorKind::Quota))
        );
        let renewed = limited.renewed();
        assert!(!renewed.is_known());
        assert_eq!(check(&renewed, 41), Err(FilesErrorKind::Quota));
        *limited.used() =
            Some(QuotaUse { told: Instant::now(), used: Err(FilesError::unreachable("silent")) });
        assert_eq!(check(&limited, 1000), Ok(()));
    }

    #[test]
    fn callers_that_wait_for_silent_members_share_one_failure() {
        let folder = KnownQuota::new(None);
        assert!(!folder.is_current());
        let fail = |told| {
            *folder.used() = Some(QuotaUse { told, used: Err(FilesError::unreachable("silent")) })
        };
        fail(Instant::now());
        assert!(folder.is_current());
        fail(Instant::now() - 2 * USE_KNOWN_FOR);
        assert!(!folder.is_current());
    }

    #[test]
    fn a_full_map_learns_of_folders_that_it_has() {
        let known = KnownQuotas::default();
        let name = |number: usize| format!("/{number}").parse::<FileName>().unwrap();
        (0..=MAX_QUOTAS_KNOWN).for_each(|number| known.seen(&name(number), None));
        let quota = Some(Quota { bytes: Some(1), files: None });
        known.seen(&name(7), quota);
        assert_eq!(known.of(&name(7)).quota.get(), Some(&quota));
        assert_eq!(known.lock().len(), MAX_QUOTAS_KNOWN);
    }
}
