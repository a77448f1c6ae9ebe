//! Files of chunks that processes of this user have checked on this machine, so that each of many
//! short programs need not check them again.
//!
//! They are records of 64 bytes in a file in shared memory, which only this user can open and which
//! is gone after the next start of the machine. A record tells the state of a file, the checksum of
//! its content, and when that was found. Each process appends records, and reads the records of
//! other processes.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::file_state::FileState;

/// Where files in shared memory are.
const SHARED_MEMORY: &str = "/dev/shm";

/// Bytes of a record: seven numbers, and eight bytes that are 0. So a record is never on two pages,
/// and a write without room leaves no part of it.
const RECORD_BYTES: usize = 64;

/// Maximum size of the file of checks. When it is reached, a new file is begun.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Content that was checked longer ago is checked again, as disks can damage what they keep.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// A checked file: its state, and the checksum of its content.
type FileCheck = (FileState, u64);

/// The checks of this user on this machine. Without the file there are none.
#[derive(Debug)]
pub(crate) struct SharedChecks {
    path: PathBuf,
    log: Mutex<Option<Log>>,
}

/// The file, as far as it was read.
#[derive(Debug)]
struct Log {
    file: File,
    read_bytes: u64,
    end: End,
    /// When files were checked, in seconds since 1970.
    checked_s: HashMap<FileCheck, u64>,
}

/// Whether the log can still be used.
#[derive(Clone, Copy, Debug)]
enum End {
    /// It can be used.
    Open,
    /// Another process has removed it: it is opened again.
    Removed,
    /// It has its maximum size, or is damaged: a new one is begun.
    Full,
}

impl Default for SharedChecks {
    fn default() -> Self {
        let path = Path::new(SHARED_MEMORY).join(format!("eyas-checked-{}", geteuid().as_raw()));
        SharedChecks { path, log: Mutex::default() }
    }
}

impl SharedChecks {
    /// Whether a file in this state was checked not long ago.
    pub fn have(&self, state: FileState, checksum: u64) -> bool {
        self.with_log(|log| log.has(&(state, checksum), now_s())).unwrap_or_default()
    }

    /// A file in this state has content with this checksum.
    pub fn add(&self, state: FileState, checksum: u64) {
        self.with_log(|log| log.add(&(state, checksum), now_s()));
    }

    fn with_log<T>(&self, work: impl FnOnce(&mut Log) -> Option<T>) -> Option<T> {
        // A panic leaves a part of the records unread, at most.
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match log.as_ref().map(|log| log.end) {
            Some(End::Full) => {
                // Other processes may have begun a new file meanwhile, which is removed then, too.
                let _ = fs::remove_file(&self.path);
                *log = None;
            }
            Some(End::Removed) => *log = None,
            Some(End::Open) | None => {}
        }
        if log.is_none() {
            *log = Log::open(&self.path);
        }
        work(log.as_mut()?)
    }
}

impl Log {
    /// `None` if the file cannot be used, or could be another user's.
    fn open(path: &Path) -> Option<Self> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let opened = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(flags)
            .open(path);
        let file = opened.ok()?;
        let found = file.metadata().ok()?;
        let is_own =
            found.is_file() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
        is_own.then(|| Log { file, read_bytes: 0, end: End::Open, checked_s: HashMap::new() })
    }

    fn has(&mut self, checked: &FileCheck, now_s: u64) -> Option<bool> {
        let is_known =
            |log: &Log| log.checked_s.get(checked).is_some_and(|then_s| is_recent(*then_s, now_s));
        if !is_known(self) {
            self.read_on(now_s)?;
        }
        Some(is_known(self))
    }

    fn add(&mut self, checked: &FileCheck, now_s: u64) -> Option<()> {
        self.checked_s.insert(*checked, now_s);
        // One write: records of several processes do not mix.
        self.file.write_all(&record(checked, now_s)).ok()
    }

    /// Reads what was appended since.
    fn read_on(&mut self, now_s: u64) -> Option<()> {
        let found = self.file.metadata().ok()?;
        let size_bytes = found.len();
        if found.nlink() == 0 {
            self.end = End::Removed;
        } else if size_bytes >= MAX_FILE_BYTES || size_bytes % RECORD_BYTES as u64 != 0 {
            self.end = End::Full;
        }
        let whole_bytes =
            size_bytes.min(2 * MAX_FILE_BYTES) / RECORD_BYTES as u64 * RECORD_BYTES as u64;
        let mut records = vec![0; whole_bytes.saturating_sub(self.read_bytes) as usize];
        self.file.read_exact_at(&mut records, self.read_bytes).ok()?;
        self.read_bytes += records.len() as u64;
        let parsed = records.chunks_exact(RECORD_BYTES).map(parsed);
        self.checked_s.extend(parsed.filter(|(_, then_s)| is_recent(*then_s, now_s)));
        Some(())
    }
}

fn is_recent(then_s: u64, now_s: u64) -> bool {
    now_s.checked_sub(then_s).is_some_and(|age_s| age_s <= MAX_AGE.as_secs())
}

fn record((state, checksum): &FileCheck, checked_s: u64) -> Vec<u8> {
    let FileState { device, inode, size_bytes, modified_s, modified_ns } = *state;
    let numbers =
        [device, inode, size_bytes, modified_s as u64, modified_ns as u64, *checksum, checked_s, 0];
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn parsed(record: &[u8]) -> (FileCheck, u64) {
    let number = |place: usize| {
        u64::from_le_bytes(record[8 * place..8 * place + 8].try_into().expect("8 bytes"))
    };
    let (modified_s, modified_ns) = (number(3) as i64, number(4) as i64);
    let state = FileState {
        device: number(0),
        inode: number(1),
        size_bytes: number(2),
        modified_s,
        modified_ns,
    };
    ((state, number(5)), number(6))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn state(inode: u64) -> FileState {
        FileState { device: 1, inode, size_bytes: 3, modified_s: -4, modified_ns: 5 }
    }

    fn checks(path: &Path) -> SharedChecks {
        SharedChecks { path: path.to_owned(), log: Mutex::default() }
    }

    #[test]
    fn checks_of_one_process_are_known_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checked");
        let (one, other) = (checks(&path), checks(&path));
        assert!(!other.have(state(1), 7));
        one.add(state(1), 7);
        one.add(state(2), 7);
        assert!(one.have(state(1), 7) && other.have(state(1), 7) && other.have(state(2), 7));
        assert!(!other.have(state(1), 8) && !other.have(state(3), 7));
        assert!(checks(&path).have(state(2), 7));
    }

    #[test]
    fn checks_do_not_count_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(&folder.path().join("checked")).unwrap();
        log.add(&(state(1), 7), 10_000).unwrap();
        let last_s = 10_000 + MAX_AGE.as_secs();
        assert_eq!(log.has(&(state(1), 7), last_s), Some(true));
        assert_eq!(log.has(&(state(1), 7), last_s + 1), Some(false));
        assert_eq!(log.has(&(state(1), 7), 9_999), Some(false), "the clock was set back");
    }

    #[test]
    fn a_file_of_others_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("checked"), folder.path().join("link"));
        checks(&path).add(state(1), 7);
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(!checks(&link).have(state(1), 7));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(!checks(&path).have(state(1), 7));
        assert!(!checks(Path::new("/proc/none")).have(state(1), 7));
    }

    #[test]
    fn a_file_that_is_damaged_or_full_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checked");
        checks(&path).add(state(1), 7);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&[1; 30]).unwrap();
        let damaged = checks(&path);
        assert!(damaged.have(state(1), 7));
        damaged.add(state(2), 7);
        assert!(checks(&path).have(state(2), 7) && !checks(&path).have(state(1), 7));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(MAX_FILE_BYTES).unwrap();
        let full = checks(&path);
        assert!(full.have(state(2), 7));
        full.add(state(3), 7);
        assert!(fs::metadata(&path).unwrap().len() < 1000);
        assert!(!checks(&path).have(state(2), 7) && checks(&path).have(state(3), 7));
    }

    #[test]
    fn a_file_that_another_process_has_removed_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checked");
        let one = checks(&path);
        one.add(state(1), 7);
        fs::remove_file(&path).unwrap();
        assert!(!one.have(state(2), 7));
        one.add(state(2), 7);
        assert!(checks(&path).have(state(2), 7));
    }
}
