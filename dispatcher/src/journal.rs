//! The journal: what must survive the dispatcher. One thread writes it, all that has gathered in one transaction, and
//! tells what is on disk; anyone may read what is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use eyas_types::JobId;
use eyas_types::dfs::FileSystemId;
use eyas_wire::client::TaskResult;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::job::JobSpec;

/// Jobs as they were submitted, in parts that follow each other: a value is written, read and cached as a whole.
const JOBS: TableDefinition<(u32, u32), &[u8]> = TableDefinition::new("jobs");
/// Bytes of a job in one part.
const PART_BYTES: usize = 1 << 20;
/// What happened to each, in order.
const ENTRIES: TableDefinition<(u32, u64), &[u8]> = TableDefinition::new("entries");
/// The journal's own version, and which the cluster's file system is.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const FILE_SYSTEM: &str = "file_system";
const VERSION: u64 = 1;
/// Writes that may wait for the thread; who writes more waits, which holds the whole dispatcher back.
const MAX_WAITING_WRITES: usize = 16;
/// Memory for pages. What is written is hardly ever read again, and then the system has it in its own cache; a job of a
/// million tasks must not stay here a second time.
const CACHE_BYTES: usize = 16 << 20;
/// A file of so many bytes that has less than half of them in use is made smaller when it is opened. To know what is in
/// use, all of it is read.
const COMPACT_FROM_BYTES: u64 = if cfg!(test) { 8 << 20 } else { 256 << 20 };
/// So long after a transaction with entries, the next one begins. A first one begins at once; of many, each takes more
/// with it, which costs the disk, and all who are told of it, less.
const PACE: Duration = Duration::from_millis(10);

/// What happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// Tasks ended, so long after submission.
    Results { at_us: u64, results: Vec<TaskResult> },
    /// Failed or cancelled tasks were queued again.
    Retried(Vec<u32>),
    /// Tasks that had succeeded were queued again, because what they left in the cluster was lost.
    Recomputed(Vec<u32>),
    /// What its tasks left in the cluster need not be kept any longer.
    Released,
    /// Tasks that executors had were told to end; each is cancelled unless it has another result afterwards.
    Cancelled(Vec<u32>),
}

impl Entry {
    /// The results it has.
    pub fn results(&self) -> &[TaskResult] {
        match self {
            Entry::Results { results, .. } => results,
            Entry::Retried(_) | Entry::Recomputed(_) | Entry::Released | Entry::Cancelled(_) => &[],
        }
    }

    /// The same, taken out of it.
    pub fn into_results(self) -> Vec<TaskResult> {
        match self {
            Entry::Results { results, .. } => results,
            Entry::Retried(_) | Entry::Recomputed(_) | Entry::Released | Entry::Cancelled(_) => Vec::new(),
        }
    }
}

/// Why the journal cannot be used.
#[derive(Debug, Error)]
#[error("the journal {path}: {why}")]
pub struct JournalError {
    path: String,
    why: String,
}

/// What is to be written.
pub(crate) enum Write {
    Job { job: JobId, spec: Arc<JobSpec> },
    Entry { job: JobId, number: u64, entry: Arc<Entry> },
    Forget { job: JobId },
}

/// What is on disk now; one for each [`Write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Job(JobId),
    /// All entries of the job before this number.
    Entries(JobId, u64),
    Forgotten(JobId),
}

/// Where entries are read, and put to be written.
#[derive(Clone)]
pub(crate) struct Journal {
    database: Arc<Database>,
    writes: mpsc::SyncSender<Write>,
}

impl Journal {
    /// Opens the journal, or makes a new one. `written` is called from its thread for all that gets on disk; when writing
    /// fails, `failed` is, and nothing is written any more. What ends with this process need not survive it
    /// (`is_scratch`): the disk is not waited for.
    pub fn open(
        path: &Path,
        is_scratch: bool,
        written: impl Fn(Vec<Written>) + Send + 'static,
        failed: impl FnOnce(JournalError) + Send + 'static,
    ) -> Result<Self, JournalError> {
        let error = |why: String| JournalError { path: path.display().to_string(), why };
        let file = open_private(path).map_err(|e| error(e.to_string()))?;
        let mut builder = Database::builder();
        builder.set_cache_size(CACHE_BYTES);
        let database = match is_scratch {
            true => builder.create_with_backend(Scratch(file)),
            false => builder.create(path),
        };
        let mut database = database.map_err(|e| error(e.to_string()))?;
        check_version(&database).map_err(error)?;
        let file_bytes = std::fs::metadata(path).map_err(|e| error(e.to_string()))?.len();
        if file_bytes >= COMPACT_FROM_BYTES {
            compact(&mut database, file_bytes).map_err(|e| error(e.to_string()))?;
        }
        let database = Arc::new(database);
        let (writes, waiting) = mpsc::sync_channel(MAX_WAITING_WRITES);
        let (database_of_thread, path) = (database.clone(), path.display().to_string());
        let write = move || {
            let mut earliest = Instant::now();
            while let Ok(first) = waiting.recv() {
                std::thread::sleep(earliest.saturating_duration_since(Instant::now()));
                let batch: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
                if batch.iter().any(|write| matches!(write, Write::Entry { .. })) {
                    earliest = Instant::now() + PACE;
                }
                match write_all(&database_of_thread, &batch) {
                    Ok(done) => written(done),
                    Err(e) => {
                        return failed(JournalError {
                            path,
                            why: format!("cannot be written: {e}; is the disk full?"),
                        });
                    }
                }
            }
        };
        std::thread::Builder::new().name("journal".into()).spawn(write).map_err(|e| error(e.to_string()))?;
        Ok(Journal { database, writes })
    }

    /// Puts something to be written. Writing that has failed was told of before.
    pub fn write(&self, write: Write) {
        let _ = self.writes.send(write);
    }

    /// Which the cluster's file system is: the first that this was asked for. On disk when it returns.
    pub fn file_system(&self, candidate: FileSystemId) -> Result<FileSystemId, String> {
        let file_system = || -> Result<FileSystemId, redb::Error> {
            let write = self.database.begin_write()?;
            let known = write.open_table(META)?.get(FILE_SYSTEM)?.map(|system| FileSystemId(system.value()));
            if known.is_none() {
                write.open_table(META)?.insert(FILE_SYSTEM, candidate.0)?;
                write.commit()?;
            }
            Ok(known.unwrap_or(candidate))
        };
        file_system().map_err(|e| e.to_string())
    }

    /// Whether the cluster has one.
    pub fn has_file_system(&self) -> Result<bool, String> {
        let has = || -> Result<bool, redb::Error> {
            Ok(self.database.begin_read()?.open_table(META)?.get(FILE_SYSTEM)?.is_some())
        };
        has().map_err(|e| e.to_string())
    }

    /// Forgets it. On disk when it returns.
    pub fn forget_file_system(&self) -> Result<(), String> {
        let forget = || -> Result<(), redb::Error> {
            let write = self.database.begin_write()?;
            write.open_table(META)?.remove(FILE_SYSTEM)?;
            Ok(write.commit()?)
        };
        forget().map_err(|e| e.to_string())
    }

    /// All jobs as they were submitted, oldest first.
    pub fn read_jobs(&self) -> Result<Vec<(JobId, JobSpec)>, String> {
        let read = self.database.begin_read().map_err(|e| e.to_string())?;
        let jobs = read.open_table(JOBS).map_err(|e| e.to_string())?;
        let mut encoded: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for row in jobs.iter().map_err(|e| e.to_string())? {
            let (key, part) = row.map_err(|e| e.to_string())?;
            encoded.entry(key.value().0).or_default().extend_from_slice(part.value());
        }
        let decode = |(job, spec): (u32, Vec<u8>)| match postcard::from_bytes(&spec) {
            Ok(spec) => Ok((JobId(job), spec)),
            Err(e) => Err(format!("job {job} cannot be decoded: {e}")),
        };
        encoded.into_iter().map(decode).collect()
    }

    /// Entries of a job from `from` on and before `to`.
    pub fn read(&self, job: JobId, from: u64, to: u64) -> Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        self.replay(job, from, to, |entry| entries.push(entry))?;
        Ok(entries)
    }

    /// Takes the same one after the other: all of a job's output may be more than there is memory.
    pub fn replay(&self, job: JobId, from: u64, to: u64, mut take: impl FnMut(Entry)) -> Result<(), String> {
        let read = self.database.begin_read().map_err(|e| e.to_string())?;
        let entries = read.open_table(ENTRIES).map_err(|e| e.to_string())?;
        for row in entries.range((job.0, from)..(job.0, to)).map_err(|e| e.to_string())? {
            let (_, entry) = row.map_err(|e| e.to_string())?;
            let entry = postcard::from_bytes(entry.value());
            take(entry.map_err(|e| format!("an entry of job {job} cannot be decoded: {e}"))?);
        }
        Ok(())
    }
}

/// Opens the file, and makes it if it is not there, so that only its owner can read what commands were run and what they
/// wrote.
fn open_private(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
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

fn check_version(database: &Database) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let write = database.begin_write().map_err(|e| text(&e))?;
    {
        let mut meta = write.open_table(META).map_err(|e| text(&e))?;
        let version = meta.get("version").map_err(|e| text(&e))?.map(|version| version.value());
        match version {
            None => drop(meta.insert("version", VERSION).map_err(|e| text(&e))?),
            Some(VERSION) => {}
            Some(other) => return Err(format!("has version {other}, this eyas reads {VERSION}")),
        }
        write.open_table(JOBS).map_err(|e| text(&e))?;
        write.open_table(ENTRIES).map_err(|e| text(&e))?;
    }
    write.commit().map_err(|e| text(&e))
}

/// Gives back what forgotten jobs took on the disk, where that is most of the file.
fn compact(database: &mut Database, file_bytes: u64) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    let stats = write.stats()?;
    write.abort()?;
    if stats.allocated_pages() * (stats.page_size() as u64) < file_bytes / 2 {
        tracing::info!(file_bytes, "the journal is made smaller");
        database.compact()?;
    }
    Ok(())
}

fn write_all(database: &Database, batch: &[Write]) -> Result<Vec<Written>, redb::Error> {
    let mut done = Vec::new();
    let write = database.begin_write()?;
    {
        let mut jobs = write.open_table(JOBS)?;
        let mut entries = write.open_table(ENTRIES)?;
        for what in batch {
            match what {
                Write::Job { job, spec } => {
                    for (number, part) in encode(&**spec).chunks(PART_BYTES).enumerate() {
                        jobs.insert((job.0, number as u32), part)?;
                    }
                    done.push(Written::Job(*job));
                }
                Write::Entry { job, number, entry } => {
                    entries.insert((job.0, *number), &encode(&**entry)[..])?;
                    done.push(Written::Entries(*job, number + 1));
                }
                Write::Forget { job } => {
                    jobs.retain_in((job.0, 0)..=(job.0, u32::MAX), |_, _| false)?;
                    entries.retain_in((job.0, 0)..(job.0, u64::MAX), |_, _| false)?;
                    done.push(Written::Forgotten(*job));
                }
            }
        }
    }
    write.commit()?;
    Ok(done)
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("jobs and entries can be encoded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{Outcome, Status};

    fn result(index: u32) -> TaskResult {
        let outcome = Outcome::of(Status::Exited(index as i32));
        TaskResult { index, attempt: 0, executor: "n1".into(), queued_us: 1, delivery_us: 2, outcome }
    }

    /// Waits until its thread has ended, and with it the use of the file.
    fn close(journal: Journal) {
        let Journal { database, writes } = journal;
        drop(writes);
        while Arc::strong_count(&database) > 1 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_was_written_is_there_after_opening_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.redb");
        let (sender, done) = mpsc::channel();
        let open = |sender: mpsc::Sender<Vec<Written>>| {
            Journal::open(&path, false, move |written| drop(sender.send(written)), |e| panic!("{e}")).unwrap()
        };
        let journal = open(sender.clone());
        // Of more than one part.
        let spec = JobSpec { name: "survey".repeat(PART_BYTES / 4), ..JobSpec::default() };
        journal.write(Write::Job { job: JobId(7), spec: Arc::new(spec.clone()) });
        let entries = [
            Entry::Results { at_us: 5, results: vec![result(0), result(1)] },
            Entry::Retried(vec![1]),
            Entry::Cancelled(vec![2]),
            Entry::Results { at_us: 9, results: vec![result(1)] },
        ];
        for (number, entry) in entries.iter().enumerate() {
            journal.write(Write::Entry { job: JobId(7), number: number as u64, entry: Arc::new(entry.clone()) });
        }
        let mut written = Vec::new();
        while !written.contains(&Written::Entries(JobId(7), 4)) {
            written.extend(done.recv_timeout(std::time::Duration::from_secs(30)).unwrap());
        }
        assert_eq!(written[0], Written::Job(JobId(7)));
        assert_eq!(journal.read(JobId(7), 1, 2).unwrap(), entries[1..2]);
        close(journal);
        let again = open(sender);
        assert_eq!(again.read_jobs().unwrap(), [(JobId(7), spec)]);
        assert_eq!(again.read(JobId(7), 0, u64::MAX).unwrap(), entries);
    }

    #[test]
    fn a_file_that_is_mostly_unused_is_made_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.redb");
        let (sender, done) = mpsc::channel();
        let open = || {
            let sender = sender.clone();
            Journal::open(&path, false, move |written| drop(sender.send(written)), |e| panic!("{e}")).unwrap()
        };
        let bytes = || std::fs::metadata(&path).unwrap().len();
        let journal = open();
        // Two jobs in turns, so that what stays lies between what goes.
        for number in 0..16 {
            for job in [JobId(1), JobId(2)] {
                let outcome = Outcome { stdout: vec![number as u8; 1 << 20], ..Outcome::of(Status::Succeeded) };
                let results = vec![TaskResult { outcome, ..result(0) }];
                journal.write(Write::Entry { job, number, entry: Arc::new(Entry::Results { at_us: 0, results }) });
            }
        }
        let before = journal.clone();
        let is_written = |job| before.read(job, 15, 16).unwrap().len() == 1;
        while !(is_written(JobId(1)) && is_written(JobId(2))) {
            done.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        drop(before);
        journal.write(Write::Forget { job: JobId(1) });
        // Of the other, a bit stays.
        journal.write(Write::Job { job: JobId(2), spec: Arc::default() });
        while !done.recv_timeout(Duration::from_secs(30)).unwrap().contains(&Written::Job(JobId(2))) {}
        let kept = journal.read(JobId(2), 0, u64::MAX).unwrap();
        close(journal);
        let full = bytes();
        let again = open();
        assert!(bytes() < full, "{full} bytes before, {} after", bytes());
        assert_eq!(again.read(JobId(2), 0, u64::MAX).unwrap(), kept);
    }

    #[test]
    fn a_file_that_is_no_journal_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.redb");
        std::fs::write(&path, [7; 5000]).unwrap();
        for is_scratch in [false, true] {
            let opened = Journal::open(&path, is_scratch, |_| {}, |_| {});
            assert!(opened.err().unwrap().to_string().contains("journal.redb"));
        }
    }
}
