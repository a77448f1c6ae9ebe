//! Records of runs: for a week, a run that has not succeeded as a whole leaves one, by which
//! `eyas run --resume` goes on.
//!
//! A record is a folder in eyas's home. In it is `run.json`, and `ended`, to which a byte and a
//! fingerprint are added for each task whose result has been delivered: byte 0 if the task has
//! succeeded, 1 if not. A run locks `ended` as long as it lives. A record appears whole, by rename.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eyas_client::types::{JobId, Name, Status, shown};
use eyas_client::{PrivateFolder, TaskFingerprint, home};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::unix_us;
use crate::error::CliError;
use crate::print::say;
use crate::words::command_line;

/// Records in eyas's home: the newest are kept, up to this number.
const MAX_RECORDS: usize = 100;
/// Records in eyas's home are kept for this long.
const MAX_RECORD_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A fingerprint, and whether the task has succeeded, bytes.
const ENTRY_BYTES: usize = 1 + TaskFingerprint::BYTES;
/// The version of the files of a record.
const FORMAT: u32 = 1;
const HEADER: &str = "run.json";
const ENDED: &str = "ended";

/// A run that another one cannot go on with.
#[derive(Debug, Error)]
#[error(
    "the run that began {age} ago in this folder is still under way: wait for its end, or end it. \
     It is `eyas {words}`"
)]
struct UnderWay {
    age: String,
    words: String,
}

/// How a task has ended in an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierEnd {
    Succeeded,
    Failed,
}

/// What a record has besides the tasks that have ended.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct RunHeader {
    format: u32,
    /// The folder in which the run was started.
    folder: Name,
    /// Its command line, without the name of the program.
    pub words: Vec<Name>,
    /// The command of the tasks, without lists behind it.
    command: Vec<Name>,
    /// Number of tasks.
    tasks: u64,
    /// On a cluster that stays, the dispatcher's address and the job.
    pub job: Option<(String, JobId)>,
}

impl RunHeader {
    /// The header of a run in the current folder.
    ///
    /// # Errors
    /// If there is no current folder.
    pub fn new(
        words: Vec<Name>,
        command: Vec<Name>,
        tasks: usize,
        job: Option<(String, JobId)>,
    ) -> Result<Self, CliError> {
        let (format, folder) = (FORMAT, current_folder()?);
        Ok(RunHeader { format, folder, words, command, tasks: tasks as u64, job })
    }
}

/// The record of a run under way.
pub(super) struct RunRecord {
    path: PathBuf,
    file: BufWriter<File>,
    fingerprints: Vec<TaskFingerprint>,
    /// Number of tasks that have succeeded, and that have failed.
    ended: [u64; 2],
    /// Whether the record stays when all tasks have succeeded, as for a command that is repeated
    /// with `--resume` until nothing is left.
    stays: bool,
}

impl RunRecord {
    /// Begins a record. The tasks that are `done` are in it from the beginning, and the record of
    /// the run that has done them is removed. Returns `None` if there is no home for records.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn begin(
        header: &RunHeader,
        fingerprints: Vec<TaskFingerprint>,
        done: &[Option<EarlierEnd>],
        earlier: Option<EarlierRun>,
        stays: bool,
    ) -> Result<Option<Self>, CliError> {
        let Ok(folder) = records_folder() else { return Ok(None) };
        PrivateFolder::make(&folder)?.close()?;
        // Names sort by age. One with a dot is not a record yet.
        let name = format!("{:017}-{}", unix_us(), std::process::id());
        let (path, unfinished) = (folder.join(&name), folder.join(format!(".{name}")));
        let begin = || -> Result<RunRecord, CliError> {
            fs::create_dir(&unfinished)?;
            fs::write(unfinished.join(HEADER), serde_json::to_vec(header)?)?;
            let file = File::create(unfinished.join(ENDED))?;
            // Some file systems have no locks.
            let _ = file.try_lock();
            let file = BufWriter::new(file);
            let mut record =
                RunRecord { path: path.clone(), file, fingerprints, ended: [0; 2], stays };
            for (index, end) in done.iter().enumerate() {
                if let Some(end) = end {
                    record.add(index, *end)?;
                }
            }
            record.flush()?;
            fs::rename(&unfinished, &path)?;
            Ok(record)
        };
        let record = begin().inspect_err(|_| drop(fs::remove_dir_all(&unfinished)))?;
        if let Some(earlier) = earlier {
            let _ = fs::remove_dir_all(&earlier.path);
        }
        remove_old(&folder);
        Ok(Some(record))
    }

    fn add(&mut self, index: usize, end: EarlierEnd) -> io::Result<()> {
        let byte = u8::from(end == EarlierEnd::Failed);
        self.ended[usize::from(byte)] += 1;
        self.file.write_all(&[byte])?;
        self.file.write_all(self.fingerprints[index].bytes())
    }

    /// Notes that the result of a task has been delivered.
    pub fn delivered(&mut self, index: u32, status: &Status) -> io::Result<()> {
        match status {
            Status::Cancelled => Ok(()),
            Status::Succeeded => self.add(index as usize, EarlierEnd::Succeeded),
            _ => self.add(index as usize, EarlierEnd::Failed),
        }
    }

    /// Passes on what was noted.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Ends the record, which is removed if nothing is left. Returns the number of tasks that have
    /// failed, and of those that are left.
    pub fn end(self) -> [u64; 2] {
        let [succeeded, failed] = self.ended;
        let left = (self.fingerprints.len() as u64).saturating_sub(succeeded + failed);
        if failed + left == 0 && !self.stays {
            let _ = fs::remove_dir_all(&self.path);
        }
        [failed, left]
    }
}

/// A run that is over. Its record is locked, so that no other run goes on with it.
pub(super) struct EarlierRun {
    path: PathBuf,
    pub header: RunHeader,
    /// Number of tasks with a fingerprint that have succeeded, and that have failed.
    ended: HashMap<TaskFingerprint, [u32; 2]>,
    _lock: File,
}

impl EarlierRun {
    /// The newest run in the current folder that has tasks left.
    ///
    /// # Errors
    /// If a run in the folder is under way.
    pub fn with_tasks_left() -> Result<Option<Self>, CliError> {
        let is_unfinished = |run: &EarlierRun| {
            let succeeded = run.ended.values().map(|[succeeded, _]| u64::from(*succeeded));
            usize::from(succeeded.sum::<u64>() < run.header.tasks)
        };
        EarlierRun::find(is_unfinished, |_| true)
    }

    /// The run in the current folder that has done most of these tasks; of several, the newest.
    ///
    /// # Errors
    /// If a run of this command in the folder is under way.
    pub fn of_tasks(
        fingerprints: &[TaskFingerprint],
        command: &[Name],
    ) -> Result<Option<Self>, CliError> {
        let shared = |run: &EarlierRun| {
            fingerprints.iter().filter(|fingerprint| run.ended.contains_key(fingerprint)).count()
        };
        EarlierRun::find(shared, |header| header.command == command)
    }

    /// The run in the current folder with the highest rank above 0; of several, the newest.
    fn find(
        rank: impl Fn(&EarlierRun) -> usize,
        waits_for: impl Fn(&RunHeader) -> bool,
    ) -> Result<Option<Self>, CliError> {
        let (folder, mut best) = (current_folder()?, None);
        for path in records(&records_folder()?) {
            // A record that another version of eyas has written, or that is damaged.
            let Some(header) = read_header(&path).filter(|header| header.folder == folder) else {
                continue;
            };
            match EarlierRun::open(&path, header) {
                Ok(Some(run)) => {
                    let (rank, highest) = (rank(&run), best.as_ref().map_or(0, |(rank, _)| *rank));
                    if rank > highest {
                        best = Some((rank, run));
                    }
                }
                Ok(None) => {
                    let header = read_header(&path).filter(&waits_for);
                    if let Some(header) = header {
                        return Err(under_way(&path, &header).into());
                    }
                }
                Err(error) => say!("the record {} cannot be read: {error}", path.display()),
            }
        }
        Ok(best.map(|(_, run)| run))
    }

    /// Opens a record. `None` if its run is under way.
    fn open(path: &Path, header: RunHeader) -> io::Result<Option<Self>> {
        let mut file = File::open(path.join(ENDED))?;
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Ok(None);
        }
        let ended = read_ended(&mut file)?;
        Ok(Some(EarlierRun { path: path.to_owned(), header, ended, _lock: file }))
    }

    /// When it began, and its command line.
    pub fn in_words(&self) -> String {
        let words = shown(&command_line(&self.header.words)).to_string();
        format!("the run that began {} ago: eyas {words}", age(&self.path))
    }

    /// How the tasks with these fingerprints have ended in this run; `None` for those that run in
    /// the next one, to which failed tasks belong if they run `again`.
    pub fn ends(&self, fingerprints: &[TaskFingerprint], again: bool) -> Vec<Option<EarlierEnd>> {
        let mut left = self.ended.clone();
        let end = |fingerprint: &TaskFingerprint| match left.get_mut(fingerprint) {
            Some([succeeded, _]) if *succeeded > 0 => {
                *succeeded -= 1;
                Some(EarlierEnd::Succeeded)
            }
            Some([_, failed]) if *failed > 0 => {
                *failed -= 1;
                (!again).then_some(EarlierEnd::Failed)
            }
            _ => None,
        };
        fingerprints.iter().map(end).collect()
    }
}

fn under_way(path: &Path, header: &RunHeader) -> UnderWay {
    UnderWay { age: age(path), words: shown(&command_line(&header.words)).to_string() }
}

/// The time since the record was begun.
fn age(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    let began_us = name.and_then(|name| name.split_once('-')?.0.parse().ok());
    let age_s = unix_us().saturating_sub(began_us.unwrap_or_default()) / 1_000_000;
    match age_s {
        0..120 => format!("{age_s} s"),
        120..7200 => format!("{} min", age_s / 60),
        7200..172_800 => format!("{} h", age_s / 3600),
        _ => format!("{} days", age_s / 86400),
    }
}

fn records_folder() -> Result<PathBuf, CliError> {
    Ok(home()?.join("resume"))
}

fn current_folder() -> Result<Name, CliError> {
    let folder = std::env::current_dir();
    let folder = folder.map_err(|e| format!("the current folder cannot be used: {e}"))?;
    Ok(folder.into_os_string().into_vec().into())
}

/// The folders of all records, the newest first.
fn records(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_whole = |name: &std::ffi::OsString| !name.as_encoded_bytes().starts_with(b".");
    let names = entries.map(|entry| entry.file_name()).filter(is_whole);
    let mut paths: Vec<_> = names.map(|name| folder.join(name)).collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    paths
}

fn read_header(path: &Path) -> Option<RunHeader> {
    let header: RunHeader = serde_json::from_slice(&fs::read(path.join(HEADER)).ok()?).ok()?;
    let is_run = header.words.iter().any(|word| *word == "run");
    (header.format == FORMAT && is_run).then_some(header)
}

/// Reads which tasks have ended. A killed run may have left a part of an entry.
fn read_ended(file: &mut File) -> io::Result<HashMap<TaskFingerprint, [u32; 2]>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let mut ended = HashMap::<_, [u32; 2]>::new();
    for entry in bytes.as_chunks::<ENTRY_BYTES>().0 {
        let [has_failed, fingerprint @ ..] = *entry;
        ended.entry(TaskFingerprint::from_bytes(fingerprint)).or_default()
            [usize::from(has_failed != 0)] += 1;
    }
    Ok(ended)
}

/// Removes the records that are too old or too many. Errors are ignored: the next run tries again.
fn remove_old(folder: &Path) {
    let is_under_way = |path: &Path| {
        let file = File::open(path.join(ENDED));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    };
    for (index, path) in records(folder).iter().enumerate() {
        let written = fs::metadata(path.join(ENDED)).and_then(|file| file.modified());
        let is_old =
            written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > MAX_RECORD_AGE));
        if (index >= MAX_RECORDS || is_old) && !is_under_way(path) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: u8) -> TaskFingerprint {
        TaskFingerprint::from_bytes([number; TaskFingerprint::BYTES])
    }

    fn file_with(bytes: &[u8]) -> File {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        File::open(file.path()).unwrap()
    }

    #[test]
    fn an_entry_that_a_killed_run_has_begun_is_left_out() {
        let entries = [(0, 1), (1, 2), (0, 1)];
        let mut bytes: Vec<u8> = entries
            .iter()
            .flat_map(|(failed, number)| [&[*failed][..], fingerprint(*number).bytes()].concat())
            .collect();
        bytes.extend([0, 3, 3]);
        let ended = read_ended(&mut file_with(&bytes)).unwrap();
        assert_eq!(ended, HashMap::from([(fingerprint(1), [2, 0]), (fingerprint(2), [0, 1])]));
    }

    #[test]
    fn of_tasks_that_are_the_same_as_many_are_done_as_have_ended() {
        let header = RunHeader::new(Vec::new(), Vec::new(), 5, None).unwrap();
        let ended = HashMap::from([(fingerprint(1), [1, 1]), (fingerprint(2), [0, 1])]);
        let earlier = EarlierRun { path: PathBuf::new(), header, ended, _lock: file_with(b"") };
        let tasks = [1, 1, 1, 2, 3].map(fingerprint);
        let (succeeded, failed) = (Some(EarlierEnd::Succeeded), Some(EarlierEnd::Failed));
        assert_eq!(earlier.ends(&tasks, true), [succeeded, None, None, None, None]);
        assert_eq!(earlier.ends(&tasks, false), [succeeded, failed, None, failed, None]);
    }

    #[test]
    fn old_records_are_removed_and_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MAX_RECORDS + 2 {
            let path = folder.path().join(format!("{number:017}-1"));
            fs::create_dir(&path).unwrap();
            File::create(path.join(ENDED)).unwrap();
        }
        let week_old = File::options()
            .write(true)
            .open(folder.path().join(format!("{MAX_RECORDS:017}-1/{ENDED}")))
            .unwrap();
        let now = std::time::SystemTime::now();
        week_old.set_modified(now - MAX_RECORD_AGE - Duration::from_secs(60)).unwrap();
        remove_old(folder.path());
        let left = records(folder.path());
        assert_eq!(left.len(), MAX_RECORDS - 1);
        assert!(left[0].ends_with(format!("{:017}-1", MAX_RECORDS + 1)));
    }
}
