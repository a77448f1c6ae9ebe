//! `eyas run --resume`: goes on with an earlier run. For a week, a run that has not succeeded as a
//! whole leaves a record: its command line, and the fingerprints of the tasks that have ended.
//!
//! A record is a folder in eyas's home. In it is `run.json`, and `ended`, to which a byte and a
//! fingerprint are added for each task that has ended: byte 0 if it has succeeded, 1 if not. The
//! run locks `ended` as long as it lives.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use eyas_client::types::units::format_count;
use eyas_client::types::{Name, Status};
use eyas_client::{Draft, PrivateFolder, TaskFingerprint, home};
use serde::{Deserialize, Serialize};

use crate::clock::unix_s;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::own_process::own_words;
use crate::print::say;

/// Records in eyas's home: the newest are kept, up to this number.
const MAX_RECORDS: usize = 100;
/// Records in eyas's home are kept for this long.
const MAX_RECORD_AGE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A fingerprint, and whether the task has succeeded, bytes.
const ENTRY_BYTES: usize = 1 + TaskFingerprint::BYTES;
/// The version of the files of a record.
const FORMAT: u32 = 1;

/// Whether a run goes on with an earlier one.
#[derive(Args, Clone, Default)]
pub(crate) struct ResumeArgs {
    /// Go on with the last run in this folder that did not finish: run the tasks that have not
    /// run. Write `eyas run --resume` alone, or with the whole command
    #[arg(long, conflicts_with = "resume_failed")]
    resume: bool,
    /// Go on with it, and run the tasks that have failed again, too
    #[arg(long)]
    resume_failed: bool,
    /// The words of the earlier run, if this one has none of its own.
    #[arg(skip)]
    words: Option<Vec<Name>>,
}

impl ResumeArgs {
    pub fn is_given(&self) -> bool {
        self.resume || self.resume_failed
    }

    /// Whether the command line is that of the earlier run.
    pub(super) fn has_earlier_words(&self) -> bool {
        self.words.is_some()
    }

    /// The words of the run that is to go on, and the arguments that go with them.
    ///
    /// # Errors
    /// If there is no such run.
    pub fn earlier_words(&self) -> Result<(Vec<OsString>, ResumeArgs), CliError> {
        let earlier = EarlierRun::newest(None)?.ok_or(
            "no run in this folder has tasks left. A run that has failed tasks, or was \
             interrupted, is remembered for a week, for the folder in which it was started",
        )?;
        let words = earlier.header.words;
        let of_system = words.iter().map(|word| OsString::from_vec(word.to_vec())).collect();
        Ok((of_system, ResumeArgs { words: Some(words), ..self.clone() }))
    }

    /// The words that describe this run.
    fn own_words(&self) -> Vec<Name> {
        if let Some(words) = &self.words {
            return words.clone();
        }
        let mut is_option = true;
        let is_of_run = |word: &OsString| {
            is_option &= word != "--";
            !is_option || word != "--resume" && word != "--resume-failed"
        };
        own_words().filter(is_of_run).map(|word| Name::from(word.into_vec())).collect()
    }
}

/// What a run does of a draft, and what is written for the run that goes on with it.
#[derive(Default)]
pub(super) struct Resumption {
    /// Whether an earlier run has done the task, by the task's index; empty without such a run.
    pub done: Vec<bool>,
    /// Number of those that have failed.
    pub failed: u64,
    fingerprints: Vec<TaskFingerprint>,
    earlier: Option<EarlierRun>,
}

impl Resumption {
    /// Looks up what an earlier run has done, if this one goes on with it.
    ///
    /// # Errors
    /// If the records of earlier runs cannot be read.
    pub fn of(draft: &Draft, command: &[Name], args: &ResumeArgs) -> Result<Self, CliError> {
        let earlier = match args.is_given() {
            true => EarlierRun::newest(args.words.is_none().then_some(command))?,
            false => None,
        };
        if args.is_given() && earlier.is_none() {
            say!("no earlier run of this command in this folder is known, so all tasks run");
        }
        // What a run of one task leaves is as simple to run anew.
        if draft.len() < 2 && !args.is_given() {
            return Ok(Resumption::default());
        }
        let fingerprints = draft.fingerprints();
        let (mut done, mut failed) = (Vec::new(), 0);
        if let Some(earlier) = &earlier {
            done = earlier.done(&fingerprints, args.resume_failed);
            let has_failed =
                |index: &usize| done[*index] && !earlier.has_succeeded(&fingerprints[*index]);
            failed = (0..done.len()).filter(has_failed).count() as u64;
        }
        Ok(Resumption { done, failed, fingerprints, earlier })
    }

    /// Says what is left of this number of tasks. Returns the exit code if none is.
    pub fn say(&self, tasks: u64) -> Option<ExitCode> {
        let done = self.done.iter().filter(|is_done| **is_done).count() as u64;
        if self.done.is_empty() {
            return None;
        }
        let failed = match self.failed {
            0 => String::new(),
            failed => format!(", and {failed} of them failed"),
        };
        say!("{done} of {} ran before{failed}", format_count(tasks, "task"));
        if done < tasks {
            return None;
        }
        how_to_resume(self.failed, 0).iter().for_each(|line| say!("{line}"));
        Some(if self.failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Begins the record of this run. `None` if it needs none.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn begin_record(
        &mut self,
        command: &[Name],
        args: &ResumeArgs,
    ) -> Result<Option<RunRecord>, CliError> {
        let fingerprints = std::mem::take(&mut self.fingerprints);
        // Without a home, as in some containers, there is no place for records.
        let folder = records_folder();
        let Some(folder) = folder.ok().filter(|_| !fingerprints.is_empty()) else {
            return Ok(None);
        };
        PrivateFolder::make(&folder)?.close()?;
        let path = new_folder(&folder)?;
        let header = RunHeader {
            format: FORMAT,
            folder: current_folder()?,
            words: args.own_words(),
            command: command.to_vec(),
        };
        fs::write(path.join("run.json"), serde_json::to_vec(&header)?)?;
        let file = File::create(path.join("ended"))?;
        // Some file systems have no locks.
        let _ = file.try_lock();
        let file = BufWriter::new(file);
        let mut record =
            RunRecord { path, file, fingerprints, ended: [0; 2], stays: args.is_given() };
        if let Some(earlier) = self.earlier.take() {
            for index in (0..self.done.len()).filter(|index| self.done[*index]) {
                let has_failed = !earlier.has_succeeded(&record.fingerprints[index]);
                record.add(index, has_failed)?;
            }
            record.flush()?;
            let _ = fs::remove_dir_all(&earlier.path);
        }
        remove_old(&folder);
        Ok(Some(record))
    }
}

/// What `run.json` has.
#[derive(Serialize, Deserialize)]
struct RunHeader {
    format: u32,
    /// The folder in which the run was started.
    folder: Name,
    /// Its command line, without the name of the program.
    words: Vec<Name>,
    /// The command of the tasks, with the lists behind it.
    command: Vec<Name>,
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
    fn add(&mut self, index: usize, has_failed: bool) -> io::Result<()> {
        self.ended[usize::from(has_failed)] += 1;
        self.file.write_all(&[u8::from(has_failed)])?;
        self.file.write_all(self.fingerprints[index].bytes())
    }

    /// Notes that a task has ended.
    pub fn ended(&mut self, index: u32, status: &Status) -> io::Result<()> {
        match status {
            Status::Cancelled => Ok(()),
            status => self.add(index as usize, *status != Status::Succeeded),
        }
    }

    /// Passes on what was noted.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Ends the record. Returns what is said of how to go on, if tasks are left.
    pub fn end(self) -> Option<String> {
        let [succeeded, failed] = self.ended;
        let left = (self.fingerprints.len() as u64).saturating_sub(succeeded + failed);
        if failed + left == 0 && !self.stays {
            let _ = fs::remove_dir_all(&self.path);
        }
        how_to_resume(failed, left)
    }
}

/// A run that has ended, or was killed.
struct EarlierRun {
    path: PathBuf,
    header: RunHeader,
    /// Number of tasks with a fingerprint that have succeeded, and that have failed.
    ended: HashMap<TaskFingerprint, [u32; 2]>,
}

impl EarlierRun {
    /// The newest run in the current folder that is over; with `command`, the newest one of this
    /// command.
    ///
    /// # Errors
    /// If the records cannot be read.
    fn newest(command: Option<&[Name]>) -> Result<Option<Self>, CliError> {
        let folder = current_folder()?;
        for path in records(&records_folder()?) {
            // A record that another version of eyas has written, or of which a part is missing.
            let Some(header) = read_header(&path) else { continue };
            if header.folder == folder
                && !is_under_way(&path)
                && command.is_none_or(|command| header.command == command)
            {
                let ended = read_ended(&path.join("ended"))?;
                return Ok(Some(EarlierRun { path, header, ended }));
            }
        }
        Ok(None)
    }

    fn has_succeeded(&self, fingerprint: &TaskFingerprint) -> bool {
        self.ended.get(fingerprint).is_some_and(|[succeeded, _]| *succeeded > 0)
    }

    /// Which of the tasks with these fingerprints have succeeded in this run; and those that have
    /// failed in it, unless they run `again`.
    fn done(&self, fingerprints: &[TaskFingerprint], again: bool) -> Vec<bool> {
        let count = |[succeeded, failed]: &[u32; 2]| succeeded + if again { 0 } else { *failed };
        let mut left: HashMap<_, u32> =
            self.ended.iter().map(|(fingerprint, ended)| (fingerprint, count(ended))).collect();
        let is_done = |fingerprint: &TaskFingerprint| match left.get_mut(fingerprint) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        };
        fingerprints.iter().map(is_done).collect()
    }
}

fn records_folder() -> Result<PathBuf, CliError> {
    Ok(home()?.join("resume"))
}

fn current_folder() -> Result<Name, CliError> {
    Ok(std::env::current_dir()?.into_os_string().into_vec().into())
}

/// Makes a folder for a new record. Names sort by age.
fn new_folder(records: &Path) -> io::Result<PathBuf> {
    let name = format!("{:012}-{}", unix_s(), std::process::id());
    let path = records.join(name);
    fs::create_dir(&path)?;
    Ok(path)
}

/// The folders of all records, the newest first.
fn records(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    paths
}

fn read_header(path: &Path) -> Option<RunHeader> {
    let header: RunHeader = serde_json::from_slice(&fs::read(path.join("run.json")).ok()?).ok()?;
    (header.format == FORMAT).then_some(header)
}

/// Whether the run still runs.
fn is_under_way(path: &Path) -> bool {
    let lock = File::open(path.join("ended")).map(|file| file.try_lock().is_err_and(is_locked));
    lock.unwrap_or(false)
}

fn is_locked(error: TryLockError) -> bool {
    matches!(error, TryLockError::WouldBlock)
}

/// Reads which tasks have ended. A killed run may have left a part of an entry.
fn read_ended(path: &Path) -> io::Result<HashMap<TaskFingerprint, [u32; 2]>> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
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
    for (index, path) in records(folder).iter().enumerate() {
        let written = fs::metadata(path.join("ended")).and_then(|file| file.modified());
        let is_old =
            written.is_ok_and(|written| written.elapsed().is_ok_and(|age| age > MAX_RECORD_AGE));
        if (index >= MAX_RECORDS || is_old) && !is_under_way(path) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// What an interrupted or failed run says of how to go on.
pub(super) fn how_to_resume(failed: u64, left: u64) -> Option<String> {
    let again = || {
        format!("`eyas run --resume-failed` runs the {} again", format_count(failed, "failed task"))
    };
    let rest = || {
        let are_left = if left == 1 { "task that is" } else { "tasks that are" };
        format!("`eyas run --resume` runs the {left} {are_left} left")
    };
    match (failed, left) {
        (0, 0) => None,
        (_, 0) => Some(again()),
        (0, _) => Some(rest()),
        _ => Some(format!("{}; {}, too", rest(), again())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(number: u8) -> TaskFingerprint {
        TaskFingerprint::from_bytes([number; TaskFingerprint::BYTES])
    }

    #[test]
    fn an_entry_that_a_killed_run_has_begun_is_left_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let entries = [(0, 1), (1, 2), (0, 1)];
        let mut bytes: Vec<u8> = entries
            .iter()
            .flat_map(|(failed, number)| [&[*failed][..], fingerprint(*number).bytes()].concat())
            .collect();
        bytes.extend([0, 3, 3]);
        fs::write(file.path(), bytes).unwrap();
        let ended = read_ended(file.path()).unwrap();
        assert_eq!(ended, HashMap::from([(fingerprint(1), [2, 0]), (fingerprint(2), [0, 1])]));
        assert!(read_ended(Path::new("/no/such/file")).unwrap().is_empty());
    }

    #[test]
    fn as_many_tasks_are_done_as_have_ended() {
        let header = RunHeader {
            format: FORMAT,
            folder: Name::default(),
            words: Vec::new(),
            command: Vec::new(),
        };
        let ended = HashMap::from([(fingerprint(1), [2, 0]), (fingerprint(2), [0, 1])]);
        let earlier = EarlierRun { path: PathBuf::new(), header, ended };
        let tasks = [1, 1, 1, 2, 3].map(fingerprint);
        assert_eq!(earlier.done(&tasks, true), [true, true, false, false, false]);
        assert_eq!(earlier.done(&tasks, false), [true, true, false, true, false]);
    }

    #[test]
    fn old_records_are_removed_and_the_newest_stay() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..MAX_RECORDS + 2 {
            let path = folder.path().join(format!("{number:012}-1"));
            fs::create_dir(&path).unwrap();
            File::create(path.join("ended")).unwrap();
        }
        let week_old = File::options()
            .write(true)
            .open(folder.path().join(format!("{:012}-1/ended", MAX_RECORDS)))
            .unwrap();
        let now = std::time::SystemTime::now();
        week_old.set_modified(now - MAX_RECORD_AGE - Duration::from_secs(60)).unwrap();
        remove_old(folder.path());
        let left = records(folder.path());
        assert_eq!(left.len(), MAX_RECORDS - 1);
        assert!(left[0].ends_with(format!("{:012}-1", MAX_RECORDS + 1)));
    }

    #[test]
    fn what_is_said_names_the_option_for_what_is_left() {
        let said = |failed, left| how_to_resume(failed, left).unwrap_or_default();
        assert_eq!(said(0, 0), "");
        assert_eq!(said(0, 1), "`eyas run --resume` runs the 1 task that is left");
        assert_eq!(said(2, 0), "`eyas run --resume-failed` runs the 2 failed tasks again");
        assert_eq!(
            said(1, 3),
            "`eyas run --resume` runs the 3 tasks that are left; `eyas run --resume-failed` runs \
             the 1 failed task again, too"
        );
    }
}
