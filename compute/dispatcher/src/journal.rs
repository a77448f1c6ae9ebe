//! The journal: the log of the dispatcher on its disk. One thread writes it, all that has gathered
//! in one transaction, and tells what is on disk; what is on disk can be read by anyone.
//! Transactions are counted, and the count is marked in a second file before anything of them is
//! acknowledged, so that a journal which has lost some is noticed.
//!
//! | table | has, of each job |
//! | --- | --- |
//! | `jobs` | when it was submitted, and the number of its stored job |
//! | `stored` | by that number, the job as it was submitted |
//! | `chunks` | likewise, the chunks of its objects that are files of several chunks |
//! | `current` | other versions of its objects, which tasks read since a retry |
//! | `snapshots` | its state at the last snapshot, which replaces the entries before it |
//! | `entries` | what happened to it since then, other than results |
//! | `results` | the results of its tasks; they stay, so that they can be read at any time |
//! | `summaries` | of an ended job whose snapshot is of its end: what lists of jobs show |
//! | `outputs` | the length of the file with captured output that is too large for `results` |
//!
//! The table `names` has the names of files, which belong to no job.
//!
//! Its size is bounded by the jobs that are remembered (`max_ended_jobs`, `max_output_bytes` in
//! `core/jobs`); for each of them, by [`eyas_jobs::MAX_UNCOVERED`] and the number of its tasks.

mod check;
pub(crate) mod error;
mod mark;
pub(crate) mod output;
mod private_file;
mod read;
mod recent;
mod storing;
mod tables;
#[cfg(test)]
mod tests;
mod write;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use eyas_jobs::{Entry, JobSpec, JobSummary, JournalRecord, Replay};
use eyas_types::dfs::FileSystemId;
use eyas_types::{JobId, Name, NamedFile};
use eyas_wire::client::OutputFile;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend};

pub use self::check::{check_journal, kept_objects};
pub use self::error::JournalError;
use self::error::JournalProblem;
use self::mark::Mark;
use self::output::OutputFiles;
pub(crate) use self::output::OutputRange;
use self::private_file::open_private;
use self::recent::RecentEntries;
use self::storing::{ToStore, ToWrite, remove_unsubmitted};
use self::tables::{
    CHUNKS, CURRENT, ENTRIES, FILE_SYSTEM, FORMAT, HALTS, JOBS, META, NAMES, OUTPUTS, RESULTS,
    SNAPSHOTS, STORED, SUMMARIES, TRANSACTIONS, encode,
};
use self::write::JournalWriter;
pub(crate) use self::write::tell_difference;
use crate::clock::Clock;
use crate::log::{Log, NameUpdates, OutputDetail, RecordNumber, StoredJob};

/// Writes that may wait for the thread; a dispatcher that writes more waits.
const MAX_WAITING_WRITES: usize = 16;
/// Memory for pages. What is written is hardly ever read again, and then the system has it in its
/// own cache; a job of a million tasks must not be in memory a second time.
const CACHE_BYTES: usize = 16 << 20;
/// A file of this many bytes that has less than half of them in use is made smaller when it is
/// opened. To know what is in use, all of it is read.
const COMPACT_FROM_BYTES: u64 = if cfg!(test) { 8 << 20 } else { 256 << 20 };
/// The next transaction begins this long after one with entries, microseconds. A first one begins
/// at once; of many, each has more entries, which costs the disk, and all clients that are told,
/// less.
const PACE_US: u64 = 10_000;

/// How a journal is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct JournalOptions {
    /// The cluster ends with this process, so the journal does not wait for the disk.
    pub is_scratch: bool,
    /// Before a snapshot replaces entries, they are read again and compared with it. What differs
    /// is told in this file.
    pub check: Option<PathBuf>,
}

/// Access to the journal: reads entries, and passes records to the thread that writes them.
#[derive(Clone)]
pub(crate) struct Journal {
    path: Arc<str>,
    database: Arc<Database>,
    outputs: OutputFiles,
    recent: RecentEntries,
    to_write: mpsc::SyncSender<ToWrite>,
    appended: Arc<AtomicU64>,
    /// The number of the next job that is stored before it is submitted.
    next_stored: Arc<AtomicU64>,
}

impl Journal {
    /// Opens the journal, or makes a new one. `durable` is called from its thread with the number
    /// of the last record that is on disk; when writing fails, `failed` is, and nothing is written
    /// any longer.
    pub fn open(
        path: &Path,
        options: JournalOptions,
        durable: impl Fn(RecordNumber) + Send + 'static,
        failed: impl FnOnce(JournalError) + Send + 'static,
    ) -> Result<Self, JournalError> {
        let in_words: Arc<str> = path.display().to_string().into();
        let path_of_error = in_words.clone();
        let error = move |problem| JournalError { path: path_of_error.to_string(), problem };
        let outputs = OutputFiles::beside(path);
        let writer = open(path, options, outputs.clone()).map_err(&error)?;
        let database = writer.database();
        let (to_write, waiting) = mpsc::sync_channel(MAX_WAITING_WRITES);
        let next_stored = writer.next_stored();
        let recent = RecentEntries::default();
        let for_watchers = recent.clone();
        let write = move || {
            if let Err(problem) = keep_writing(durable, &waiting, &for_watchers, writer) {
                failed(error(JournalProblem::Unwritten(Box::new(problem))));
            }
        };
        let thread = std::thread::Builder::new().name("journal".into()).spawn(write);
        thread.map_err(|e| JournalError { path: in_words.to_string(), problem: e.into() })?;
        Ok(Journal {
            path: in_words,
            database,
            outputs,
            recent,
            to_write,
            appended: Arc::default(),
            next_stored,
        })
    }

    fn error(&self, problem: JournalProblem) -> JournalError {
        JournalError { path: self.path.to_string(), problem }
    }
}

impl Log for Journal {
    fn append(&self, record: JournalRecord) -> RecordNumber {
        let number = self.appended.fetch_add(1, Ordering::Relaxed) + 1;
        // Writing that has failed was told of before.
        let _ = self.to_write.send(ToWrite::Record(number, record));
        number
    }

    fn store(&self, spec: &JobSpec) -> Option<StoredJob> {
        storing::store(&self.to_write, &self.next_stored, spec)
    }

    fn jobs(&self) -> Result<Vec<(JobId, Option<JobSummary>)>, JournalError> {
        self.read_jobs().map_err(|problem| self.error(problem))
    }

    fn replay(&self, job: JobId) -> Result<Replay, JournalError> {
        self.load_written(job).map_err(|problem| self.error(problem))
    }

    fn results(
        &self,
        job: JobId,
        entries: Range<u64>,
        captured: OutputDetail,
    ) -> Result<Vec<(Entry, Vec<OutputRange>)>, JournalError> {
        let read = match captured {
            OutputDetail::New => self.read_new_results(job, entries),
            _ => self.read_results(job, entries, captured),
        };
        read.map_err(|problem| self.error(problem))
    }

    fn output_file(&self, job: JobId) -> Result<OutputFile, JournalError> {
        self.outputs.for_client(job).map_err(|problem| self.error(problem))
    }

    fn file_system(&self, candidate: FileSystemId) -> Result<FileSystemId, JournalError> {
        let file_system = || -> Result<FileSystemId, JournalProblem> {
            let write = self.database.begin_write()?;
            let known = write
                .open_table(META)?
                .get(FILE_SYSTEM)?
                .map(|system| FileSystemId(system.value()));
            if known.is_none() {
                write.open_table(META)?.insert(FILE_SYSTEM, candidate.0)?;
                write.commit()?;
            }
            Ok(known.unwrap_or(candidate))
        };
        file_system().map_err(|problem| self.error(problem))
    }

    fn has_file_system(&self) -> Result<bool, JournalError> {
        let has = || -> Result<bool, JournalProblem> {
            Ok(self.database.begin_read()?.open_table(META)?.get(FILE_SYSTEM)?.is_some())
        };
        has().map_err(|problem| self.error(problem))
    }

    fn forget_file_system(&self) -> Result<(), JournalError> {
        let forget = || -> Result<(), JournalProblem> {
            let write = self.database.begin_write()?;
            write.open_table(META)?.remove(FILE_SYSTEM)?;
            Ok(write.commit()?)
        };
        forget().map_err(|problem| self.error(problem))
    }

    fn names(&self) -> Result<Vec<(Name, NamedFile)>, JournalError> {
        self.read_names().map_err(|problem| self.error(problem))
    }

    fn change_names(&self, updates: &NameUpdates) -> Result<(), JournalError> {
        let change = || -> Result<(), JournalProblem> {
            let write = self.database.begin_write()?;
            let mut table = write.open_table(NAMES)?;
            for (name, file) in updates {
                match file {
                    Some(file) => drop(table.insert(&name[..], &encode(file)[..])?),
                    None => drop(table.remove(&name[..])?),
                }
            }
            drop(table);
            Ok(write.commit()?)
        };
        change().map_err(|problem| self.error(problem))
    }
}

/// Opens the database and what is beside it.
fn open(
    path: &Path,
    options: JournalOptions,
    outputs: OutputFiles,
) -> Result<JournalWriter, JournalProblem> {
    let file = open_private(path)?;
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let mut database = if options.is_scratch {
        builder.create_with_backend(Scratch(file))?
    } else {
        builder.create(path)?
    };
    let transactions = prepare(&database)?;
    let has_mark = mark::path_of(path).exists();
    let mark = if options.is_scratch { None } else { Some(Mark::open(path, transactions)?) };
    // Without a mark, what was acknowledged is not known.
    outputs.recover(&database, has_mark)?;
    let file_bytes = std::fs::metadata(path)?.len();
    if file_bytes >= COMPACT_FROM_BYTES {
        compact(&mut database, file_bytes)?;
    }
    let next_stored = remove_unsubmitted(&database)?;
    Ok(JournalWriter::new(Arc::new(database), outputs, mark, transactions, next_stored, options))
}

/// Writes what comes, all that has gathered at a time, until no more can come.
fn keep_writing(
    // Dropped after the writer, so that the file is free when this is.
    durable: impl Fn(RecordNumber),
    waiting: &mpsc::Receiver<ToWrite>,
    recent: &RecentEntries,
    mut writer: JournalWriter,
) -> Result<(), JournalProblem> {
    let (clock, mut earliest_us) = (Clock::new(), 0);
    while let Ok(first) = waiting.recv() {
        std::thread::sleep(Duration::from_micros(clock.until_us(earliest_us)));
        let (mut last, mut batch, mut to_store) = (None, Vec::new(), Vec::new());
        for next in std::iter::once(first).chain(waiting.try_iter()) {
            match next {
                ToWrite::Record(number, record) => {
                    last = Some(number);
                    batch.push(record);
                }
                ToWrite::Store(part) => to_store.push(part),
            }
        }
        if batch.iter().any(|record| matches!(record, JournalRecord::Entry { .. })) {
            earliest_us = clock.now_us() + PACE_US;
        }
        writer.write(&to_store, &batch)?;
        to_store.into_iter().for_each(ToStore::written);
        recent.add(batch);
        if let Some(last) = last {
            durable(last);
        }
    }
    Ok(())
}

/// A file that never waits for its disk.
#[derive(Debug)]
struct Scratch(File);

impl StorageBackend for Scratch {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }
}

/// Makes the tables where they are not there, and tells how many transactions there were.
fn prepare(database: &Database) -> Result<u64, JournalProblem> {
    let write = database.begin_write()?;
    let transactions;
    {
        let mut meta = write.open_table(META)?;
        let format = meta.get("version")?.map(|format| format.value());
        if let Some(other) = format.filter(|format| *format != FORMAT) {
            return Err(JournalProblem::Format { found: other, own: FORMAT });
        }
        meta.insert("version", FORMAT)?;
        transactions = meta.get(TRANSACTIONS)?.map_or(0, |count| count.value());
        [STORED, CHUNKS, SNAPSHOTS]
            .into_iter()
            .try_for_each(|table| write.open_table(table).map(drop))?;
        write.open_table(JOBS)?;
        write.open_table(CURRENT)?;
        [ENTRIES, RESULTS].into_iter().try_for_each(|table| write.open_table(table).map(drop))?;
        write.open_table(SUMMARIES)?;
        write.open_table(HALTS)?;
        write.open_table(OUTPUTS)?;
        write.open_table(NAMES)?;
    }
    write.commit()?;
    Ok(transactions)
}

/// Gives back what forgotten jobs took on the disk, where that is most of the file.
fn compact(database: &mut Database, file_bytes: u64) -> Result<(), JournalProblem> {
    let write = database.begin_write()?;
    let stats = write.stats()?;
    write.abort()?;
    if stats.allocated_pages() * (stats.page_size() as u64) < file_bytes / 2 {
        tracing::info!(file_bytes, "the journal is made smaller");
        database.compact()?;
    }
    Ok(())
}
