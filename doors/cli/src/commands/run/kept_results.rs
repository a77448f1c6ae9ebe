//! What `eyas run --reuse` keeps from one temporary cluster to the next: the dispatcher's journal,
//! one for each folder in which such runs are started.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use eyas_client::types::units::format_bytes;
use eyas_client::{PrivateFolder, home};
use tokio::time::sleep;

use crate::error::CliError;
use crate::print::say;

/// Journals in eyas's home: the last ones that were used are kept, up to this number.
const MAX_JOURNALS: usize = 20;
/// A journal that no run has used for this long is removed.
const MAX_JOURNAL_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A journal that is larger, with the output in it, is not kept.
const MAX_JOURNAL_BYTES: u64 = 1 << 30;
/// A disk with less free space than this has no room for a journal.
const MIN_FREE_BYTES: u64 = 16 << 20;
/// What the names of the journal's files begin with.
const JOURNAL: &str = "journal";
const JOURNAL_FILE: &str = "journal.redb";
/// A journal that another dispatcher has open must be closed within this time.
const CLOSE_DEADLINE: Duration = Duration::from_secs(30);
const CLOSE_PAUSE: Duration = Duration::from_millis(20);
/// The file that the run locks that uses the journal.
const LOCK: &str = "lock";

/// The journal of earlier runs in the current folder, which this run uses alone.
pub(super) struct KeptResults {
    folder: PathBuf,
    _lock: File,
}

impl KeptResults {
    /// Takes the journal; begins one if there is none. Returns `None` if another run uses it, or
    /// if it cannot be used, and says so: all tasks run then.
    pub async fn take() -> Option<Self> {
        let kept = KeptResults::lock().unwrap_or_else(|error| {
            say!("results of earlier runs are not reused, so all tasks run: {error}");
            None
        })?;
        // The dispatcher of a killed run ends a moment after its run.
        let began = Instant::now();
        while kept.is_open() && began.elapsed() < CLOSE_DEADLINE {
            sleep(CLOSE_PAUSE).await;
        }
        if kept.says_that_disk_is_full() { None } else { Some(kept) }
    }

    /// The cluster did not start with the journal, for this reason. If the journal is why, says so,
    /// and returns what the cluster is to be started with: a new journal, or none.
    ///
    /// # Errors
    /// The reason, if the journal is not why.
    pub fn after_failed_start(self, error: CliError) -> Result<Option<Self>, CliError> {
        if self.says_that_disk_is_full() {
            return Ok(None);
        }
        let Err(damage) = self.check() else { return Err(error) };
        say!("the results of earlier runs are damaged, and are not reused: {damage}");
        let _ = fs::remove_dir_all(&self.folder);
        drop(self);
        Ok(KeptResults::lock().ok().flatten())
    }

    /// Says so if the disk has no room for the journal.
    fn says_that_disk_is_full(&self) -> bool {
        let free_bytes = rustix::fs::statvfs(&self.folder)
            .map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        let is_full = free_bytes < MIN_FREE_BYTES;
        if is_full {
            say!(
                "results of earlier runs are not reused, and those of this one are not kept, \
                 because the disk of {} has only {} free: all tasks run. Free some space, or set \
                 EYAS_HOME to a folder on another disk",
                self.folder.display(),
                format_bytes(free_bytes)
            );
        }
        is_full
    }

    /// Whether a dispatcher has the journal open.
    fn is_open(&self) -> bool {
        let journal = File::open(self.folder.join(JOURNAL_FILE));
        journal.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Whether a dispatcher can go on with the journal.
    fn check(&self) -> Result<(), CliError> {
        let journal = self.folder.join(JOURNAL_FILE);
        if journal.exists() {
            eyas_dispatcher::kept_objects(&journal)?;
        }
        Ok(())
    }

    fn lock() -> Result<Option<Self>, CliError> {
        let journals = home()?.join("reuse");
        PrivateFolder::make(&journals)?.close()?;
        let here = std::env::current_dir()?;
        let folder = journals.join(name_for(&here));
        remove_old(&journals, &folder);
        PrivateFolder::make(&folder)?;
        let lock = File::options().create(true).append(true).open(folder.join(LOCK))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                say!(
                    "another run with --reuse is under way in this folder: this one runs all \
                     tasks, and its results are not reused"
                );
                return Ok(None);
            }
            // Some file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        lock.set_modified(SystemTime::now())?;
        let kept = KeptResults { folder, _lock: lock };
        // A killed run may have left the keys of its cluster.
        kept.remove_all_but_journal()?;
        Ok(Some(kept))
    }

    /// The folder of the dispatcher.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn remove_all_but_journal(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let (entry, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
            if name.as_bytes().starts_with(JOURNAL.as_bytes()) || name == LOCK {
                continue;
            }
            match entry.is_dir() {
                true => fs::remove_dir_all(entry)?,
                false => fs::remove_file(entry)?,
            }
        }
        Ok(())
    }

    /// Keeps the journal for the next run, when the cluster has ended.
    pub fn keep(self) {
        let bytes = size_bytes(&self.folder);
        if bytes > MAX_JOURNAL_BYTES {
            say!(
                "the results in this folder are not kept for --reuse, because they take {}, which \
                 is more than {}",
                format_bytes(bytes),
                format_bytes(MAX_JOURNAL_BYTES)
            );
            let _ = fs::remove_dir_all(&self.folder);
        } else if let Err(error) = self.remove_all_but_journal() {
            tracing::warn!("cannot clean up {}: {error}", self.folder.display());
        }
    }
}

/// The name of the journal's folder.
fn name_for(folder: &Path) -> String {
    blake3::hash(folder.as_os_str().as_bytes()).to_hex()[..16].to_owned()
}

/// The bytes of all files in a folder.
fn size_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size_bytes(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// Removes the journals, but for `used`, that no run has used for long, or that are too many.
/// Errors are ignored: the next run tries again.
fn remove_old(journals: &Path, used: &Path) {
    let folders = fs::read_dir(journals).into_iter().flatten().flatten();
    let mut others: Vec<_> = folders
        .map(|entry| entry.path())
        .filter(|path| path != used)
        .filter_map(|path| Some((fs::metadata(path.join(LOCK)).ok()?.modified().ok()?, path)))
        .collect();
    others.sort_unstable_by(|a, b| b.cmp(a));
    for (index, (last_use, path)) in others.iter().enumerate() {
        let is_old = last_use.elapsed().is_ok_and(|age| age > MAX_JOURNAL_AGE);
        // One that a run uses is locked.
        let is_free = || File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if (index + 1 >= MAX_JOURNALS || is_old) && is_free() {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(journals: &Path, name: &str, age: Duration) -> PathBuf {
        let folder = journals.join(name);
        fs::create_dir_all(&folder).unwrap();
        let lock = File::create(folder.join(LOCK)).unwrap();
        lock.set_modified(SystemTime::now() - age).unwrap();
        folder
    }

    #[test]
    fn journals_that_no_run_uses_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(24 * 3600);
        let [used, old, busy, new] = [("used", 9), ("old", 8), ("busy", 8), ("new", 6)]
            .map(|(name, days)| journal(folder.path(), name, days * day));
        let lock = File::open(busy.join(LOCK)).unwrap();
        lock.try_lock().unwrap();
        remove_old(folder.path(), &used);
        assert_eq!([&used, &old, &busy, &new].map(|path| path.exists()), [true, false, true, true]);
        for number in 0..MAX_JOURNALS {
            journal(folder.path(), &format!("{number}"), day);
        }
        remove_old(folder.path(), &used);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), MAX_JOURNALS + 1);
        assert!(!new.exists(), "it is the oldest that is not in use");
    }

    #[test]
    fn the_journal_alone_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::create_dir_all(path.join("journal.output")).unwrap();
        fs::create_dir_all(path.join("pools/x")).unwrap();
        for name in ["journal.redb", "journal.output/1", "access.toml", LOCK] {
            fs::write(path.join(name), "content").unwrap();
        }
        let lock = File::open(path.join(LOCK)).unwrap();
        KeptResults { folder: path.clone(), _lock: lock }.keep();
        let mut names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["journal.output", "journal.redb", LOCK]);
        assert_eq!(size_bytes(&path), 3 * 7);
    }
}
