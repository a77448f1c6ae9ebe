//! Files of chunks that processes of this user have checked on this machine, so that each of many short programs need
//! not check them again.
//!
//! They are records of 56 bytes in a file in shared memory, which only this user can open and which is gone after the
//! next start of the machine. A record tells the state of a file, the checksum that its content had, and when. Processes
//! append records and read what others have appended.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::stores::FileState;

/// Where files in shared memory are.
const SHARED_MEMORY: &str = "/dev/shm";

/// Bytes of a record: seven numbers.
const RECORD_BYTES: usize = 56;

/// Maximum size of the file. When it is reached, a new one is begun.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Content that was checked longer ago is checked again, as disks can damage what they keep.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// What was checked: the state of a file, and the checksum of its content.
type Checked = (FileState, u64);

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
    /// When files were checked, in seconds since 1970.
    checked_s: HashMap<Checked, u64>,
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
        if log.as_ref().is_some_and(|log| log.read_bytes >= MAX_FILE_BYTES) {
            // Other processes may have begun a new file meanwhile, which is removed then, too.
            let _ = fs::remove_file(&self.path);
            *log = None;
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
        let opened = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path);
        let file = opened.ok()?;
        let found = file.metadata().ok()?;
        let is_own = found.is_file() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0;
        is_own.then(|| Log { file, read_bytes: 0, checked_s: HashMap::new() })
    }

    fn has(&mut self, checked: &Checked, now_s: u64) -> Option<bool> {
        let is_recent = |then_s: &u64| now_s.checked_sub(*then_s).is_some_and(|age_s| age_s <= MAX_AGE.as_secs());
        if !self.checked_s.get(checked).is_some_and(is_recent) {
            self.read_on()?;
        }
        Some(self.checked_s.get(checked).is_some_and(is_recent))
    }

    fn add(&mut self, checked: &Checked, now_s: u64) -> Option<()> {
        self.checked_s.insert(*checked, now_s);
        // One write: records of several processes do not mix.
        self.file.write_all(&record(checked, now_s)).ok()
    }

    /// Reads what was appended since.
    fn read_on(&mut self) -> Option<()> {
        let whole_bytes = self.file.metadata().ok()?.len() / RECORD_BYTES as u64 * RECORD_BYTES as u64;
        let new_bytes = whole_bytes.min(2 * MAX_FILE_BYTES).saturating_sub(self.read_bytes);
        let mut records = vec![0; new_bytes as usize];
        self.file.read_exact_at(&mut records, self.read_bytes).ok()?;
        self.read_bytes += new_bytes;
        for record in records.chunks_exact(RECORD_BYTES) {
            let (checked, checked_s) = parsed(record);
            self.checked_s.insert(checked, checked_s);
        }
        Some(())
    }
}

fn record((state, checksum): &Checked, checked_s: u64) -> Vec<u8> {
    let FileState { device, inode, size_bytes, modified_s, modified_ns } = *state;
    let numbers = [device, inode, size_bytes, modified_s as u64, modified_ns as u64, *checksum, checked_s];
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn parsed(record: &[u8]) -> (Checked, u64) {
    let number = |place: usize| u64::from_le_bytes(record[8 * place..8 * place + 8].try_into().expect("8 bytes"));
    let (modified_s, modified_ns) = (number(3) as i64, number(4) as i64);
    let state = FileState { device: number(0), inode: number(1), size_bytes: number(2), modified_s, modified_ns };
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
    fn what_one_process_has_checked_others_know() {
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
    fn a_file_that_is_full_or_damaged_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("checked");
        checks(&path).add(state(1), 7);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(&[1; 30]).unwrap();
        assert!(checks(&path).have(state(1), 7));
        OpenOptions::new().write(true).open(&path).unwrap().set_len(MAX_FILE_BYTES + 100).unwrap();
        let full = checks(&path);
        assert!(full.have(state(1), 7));
        full.add(state(2), 7);
        assert!(fs::metadata(&path).unwrap().len() < 1000);
        assert!(!checks(&path).have(state(1), 7) && checks(&path).have(state(2), 7));
    }
}
