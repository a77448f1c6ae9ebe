//! The journal: what must survive the dispatcher. One thread writes it, all that has gathered in one transaction, and
//! tells what is on disk; anyone may read what is. Transactions are counted, and the count is marked in a second file
//! before anything of them is acknowledged, so that a journal which has lost some is noticed.

mod format1;
mod mark;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use eyas_jobs::{Entry, JobSpec, JournalRecord};
use eyas_types::JobId;
use eyas_types::dfs::FileSystemId;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, Table, TableDefinition};
use serde::Serialize;
use thiserror::Error;

use crate::clock::Clock;
use mark::Mark;

/// Jobs as they were submitted, in parts that follow each other: a value is written, read and cached as a whole.
const JOBS: TableDefinition<(u32, u32), &[u8]> = TableDefinition::new("jobs");
/// Bytes of a job in one part.
const PART_BYTES: usize = 1 << 20;
/// What happened to each, in order.
const ENTRIES: TableDefinition<(u32, u64), &[u8]> = TableDefinition::new("entries");
/// The journal's own version, and which the cluster's file system is.
const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const FILE_SYSTEM: &str = "file_system";
/// How many transactions there were.
const TRANSACTIONS: &str = "transactions";
const VERSION: u64 = 2;
/// Writes that may wait for the thread; who writes more waits, which holds the whole dispatcher back.
const MAX_WAITING_WRITES: usize = 16;
/// Memory for pages. What is written is hardly ever read again, and then the system has it in its own cache; a job of a
/// million tasks must not stay here a second time.
const CACHE_BYTES: usize = 16 << 20;
/// A file of so many bytes that has less than half of them in use is made smaller when it is opened. To know what is in
/// use, all of it is read.
const COMPACT_FROM_BYTES: u64 = if cfg!(test) { 8 << 20 } else { 256 << 20 };
/// The next transaction begins this long after one with entries, microseconds. A first one begins at once; of many, each
/// takes more with it, which costs the disk, and all who are told of it, less.
const PACE_US: u64 = 10_000;

/// Why the journal cannot be used.
#[derive(Debug, Error)]
#[error("the journal {path}: {why}")]
pub struct JournalError {
    path: String,
    why: String,
}

/// What is on disk now; one for each [`JournalRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenRecord {
    Job(JobId),
    /// All entries of the job before this number.
    Entries(JobId, u64),
    Forgotten(JobId),
}

/// Where entries are read, and put to be written.
#[derive(Clone)]
pub(crate) struct Journal {
    database: Arc<Database>,
    records: mpsc::SyncSender<JournalRecord>,
}

impl Journal {
    /// Opens the journal, or makes a new one. `written` is called from its thread for all that gets on disk; when writing
    /// fails, `failed` is, and nothing is written any more. What ends with this process need not survive it
    /// (`is_scratch`): the disk is not waited for.
    pub fn open(
        path: &Path,
        is_scratch: bool,
        written: impl Fn(Vec<WrittenRecord>) + Send + 'static,
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
        let transactions = prepare(&database).map_err(error)?;
        let mark = match is_scratch {
            true => None,
            false => Some(Mark::open(path, transactions).map_err(|e| error(e.to_string()))?),
        };
        let file_bytes = std::fs::metadata(path).map_err(|e| error(e.to_string()))?.len();
        if file_bytes >= COMPACT_FROM_BYTES {
            compact(&mut database, file_bytes).map_err(|e| error(e.to_string()))?;
        }
        let database = Arc::new(database);
        let (records, waiting) = mpsc::sync_channel(MAX_WAITING_WRITES);
        let (database_of_thread, path) = (database.clone(), path.display().to_string());
        let write = move || {
            let (clock, mut earliest_us, mut transactions) = (Clock::new(), 0, transactions);
            while let Ok(first) = waiting.recv() {
                std::thread::sleep(Duration::from_micros(clock.until_us(earliest_us)));
                let batch: Vec<_> = std::iter::once(first).chain(waiting.try_iter()).collect();
                if batch.iter().any(|record| matches!(record, JournalRecord::Entry { .. })) {
                    earliest_us = clock.now_us() + PACE_US;
                }
                transactions += 1;
                let done = write_all(&database_of_thread, &batch, transactions).map_err(|e| e.to_string());
                let marked = done.and_then(|done| match &mark {
                    Some(mark) => mark.set(transactions).map(|()| done).map_err(|e| e.to_string()),
                    None => Ok(done),
                });
                match marked {
                    Ok(done) => written(done),
                    Err(e) => {
                        let why = format!("cannot be written: {e}; is the disk full?");
                        return failed(JournalError { path, why });
                    }
                }
            }
        };
        std::thread::Builder::new().name("journal".into()).spawn(write).map_err(|e| error(e.to_string()))?;
        Ok(Journal { database, records })
    }

    /// Puts something to be written. Writing that has failed was told of before.
    pub fn write(&self, record: JournalRecord) {
        let _ = self.records.send(record);
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

/// Makes the tables where they are not there, brings an earlier format to the present one, and tells how many
/// transactions there were.
fn prepare(database: &Database) -> Result<u64, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let write = database.begin_write().map_err(|e| text(&e))?;
    let transactions;
    {
        let mut meta = write.open_table(META).map_err(|e| text(&e))?;
        let version = meta.get("version").map_err(|e| text(&e))?.map(|version| version.value());
        match version {
            None | Some(VERSION) => {}
            Some(1) => {
                tracing::info!("the journal is brought from format 1 to format {VERSION}");
                format1::migrate(&write)?;
            }
            Some(other) => return Err(format!("has version {other}, this eyas reads 1 to {VERSION}")),
        }
        meta.insert("version", VERSION).map_err(|e| text(&e))?;
        transactions = meta.get(TRANSACTIONS).map_err(|e| text(&e))?.map_or(0, |count| count.value());
        write.open_table(JOBS).map_err(|e| text(&e))?;
        write.open_table(ENTRIES).map_err(|e| text(&e))?;
    }
    write.commit().map_err(|e| text(&e))?;
    Ok(transactions)
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

fn write_all(
    database: &Database,
    batch: &[JournalRecord],
    transactions: u64,
) -> Result<Vec<WrittenRecord>, redb::Error> {
    let mut done = Vec::new();
    let write = database.begin_write()?;
    {
        let mut jobs = write.open_table(JOBS)?;
        let mut entries = write.open_table(ENTRIES)?;
        for record in batch {
            match record {
                JournalRecord::Job { job, spec } => {
                    put_job(&mut jobs, job.0, spec)?;
                    done.push(WrittenRecord::Job(*job));
                }
                JournalRecord::Entry { job, number, entry } => {
                    entries.insert((job.0, *number), &encode(&**entry)[..])?;
                    done.push(WrittenRecord::Entries(*job, number + 1));
                }
                JournalRecord::Forget { job } => {
                    jobs.retain_in((job.0, 0)..=(job.0, u32::MAX), |_, _| false)?;
                    entries.retain_in((job.0, 0)..(job.0, u64::MAX), |_, _| false)?;
                    done.push(WrittenRecord::Forgotten(*job));
                }
            }
        }
        write.open_table(META)?.insert(TRANSACTIONS, transactions)?;
    }
    write.commit()?;
    Ok(done)
}

/// Puts a job in the table, in parts.
fn put_job(jobs: &mut Table<'_, (u32, u32), &[u8]>, job: u32, spec: &JobSpec) -> Result<(), redb::StorageError> {
    for (number, part) in encode(spec).chunks(PART_BYTES).enumerate() {
        jobs.insert((job, number as u32), part)?;
    }
    Ok(())
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("jobs and entries can be encoded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_jobs::Items;
    use eyas_jobs::JobEnd;
    use eyas_types::outcome::Delivered;
    use eyas_types::{ObjectSpec, Outcome, Status, TaskId, TaskResult};
    use eyas_types::{Program, Template, WorkingFolder};
    use format1::{Entry1, Outcome1, Result1, Spec1, Template1};

    fn result(index: u32) -> TaskResult {
        let outcome = Outcome::of(Status::Exited(index as i32));
        TaskResult { index, attempt: 0, executor: "n1".into(), queued_us: 1, delivery_us: 2, outcome }
    }

    fn end(index: u32, at_us: u64) -> JobEnd {
        JobEnd { at_us, ready_us: 3, result: result(index) }
    }

    /// Waits until its thread has ended, and with it the use of the file.
    fn close(journal: Journal) {
        let Journal { database, records } = journal;
        drop(records);
        while Arc::strong_count(&database) > 1 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_was_written_is_there_after_opening_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.redb");
        let (sender, done) = mpsc::channel();
        let open = |sender: mpsc::Sender<Vec<WrittenRecord>>| {
            Journal::open(&path, false, move |written| drop(sender.send(written)), |e| panic!("{e}")).unwrap()
        };
        let journal = open(sender.clone());
        // Of more than one part.
        let spec = JobSpec { name: "survey".repeat(PART_BYTES / 4), ..JobSpec::default() };
        journal.write(JournalRecord::Job { job: JobId(7), spec: Arc::new(spec.clone()) });
        let entries = [
            Entry::Results { ends: vec![end(0, 4), end(1, 5)], samples: vec![Default::default()] },
            Entry::Retried { tasks: vec![1], paused_us: 6 },
            Entry::Cancelled(vec![2]),
            Entry::Results { ends: vec![end(1, 9)], samples: Vec::new() },
        ];
        for (number, entry) in entries.iter().enumerate() {
            journal.write(JournalRecord::Entry {
                job: JobId(7),
                number: number as u64,
                entry: Arc::new(entry.clone()),
            });
        }
        let mut written = Vec::new();
        while !written.contains(&WrittenRecord::Entries(JobId(7), 4)) {
            written.extend(done.recv_timeout(std::time::Duration::from_secs(30)).unwrap());
        }
        assert_eq!(written[0], WrittenRecord::Job(JobId(7)));
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
                let ends = vec![JobEnd { result: TaskResult { outcome, ..result(0) }, ..end(0, 0) }];
                let entry = Arc::new(Entry::Results { ends, samples: Vec::new() });
                journal.write(JournalRecord::Entry { job, number, entry });
            }
        }
        let before = journal.clone();
        let is_written = |job| before.read(job, 15, 16).unwrap().len() == 1;
        while !(is_written(JobId(1)) && is_written(JobId(2))) {
            done.recv_timeout(Duration::from_secs(30)).unwrap();
        }
        drop(before);
        journal.write(JournalRecord::Forget { job: JobId(1) });
        // Of the other, a bit stays.
        journal.write(JournalRecord::Job { job: JobId(2), spec: Arc::default() });
        while !done.recv_timeout(Duration::from_secs(30)).unwrap().contains(&WrittenRecord::Job(JobId(2))) {}
        let kept = journal.read(JobId(2), 0, u64::MAX).unwrap();
        close(journal);
        let full = bytes();
        let again = open();
        assert!(bytes() < full, "{full} bytes before, {} after", bytes());
        assert_eq!(again.read(JobId(2), 0, u64::MAX).unwrap(), kept);
    }

    #[test]
    fn format_1_is_read_and_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.redb");
        let tasks = || vec![1, 2];
        let object = ObjectSpec::kept(TaskId { job: JobId(7), index: 0 }, "out", 7, "content", false);
        let result1 = |index| Result1 {
            index,
            attempt: 0,
            executor: "n1".into(),
            queued_us: 1,
            delivery_us: 2,
            outcome: Outcome1 {
                status: Status::Exited(index as i32),
                waited_us: 0,
                ran_us: 0,
                suspended_us: 0,
                cpu_us: 0,
                reads: Default::default(),
                stdout: Vec::new(),
                stderr: Vec::new(),
                cut_bytes: 0,
                outputs: vec![(3, object.clone())],
                reused: None,
                estimate: None,
            },
        };
        let template = |program| Template1 {
            program,
            env: vec![("A".into(), Template::literal("b"))],
            folder: WorkingFolder::Sandbox,
            base: "/".into(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            resources: Default::default(),
            priority: 3,
            requirements: None,
            rank: Some("local_bytes".into()),
            timeout_us: Some(9),
            retries: 2,
            capture_bytes: 10,
        };
        let spec1 = || Spec1 {
            name: "earlier".into(),
            templates: vec![template(Program::Noop), template(Program::Command(vec![Template::literal("true")]))],
            objects: vec![object.clone()],
            items: Items::default(),
            submitted_unix_ms: 5,
            reuse: true,
            broadcast: vec![0],
            distribution: Default::default(),
        };
        let written = [
            Entry1::Results { at_us: 100, results: vec![result1(0), result1(1)] },
            Entry1::Retried(tasks()),
            Entry1::Recomputed(tasks()),
            Entry1::Released,
            Entry1::Cancelled(tasks()),
        ];
        {
            let database = Database::create(&path).unwrap();
            let write = database.begin_write().unwrap();
            write.open_table(META).unwrap().insert("version", 1).unwrap();
            for (number, part) in encode(&spec1()).chunks(7).enumerate() {
                write.open_table(JOBS).unwrap().insert((7, number as u32), part).unwrap();
            }
            for (number, entry) in written.iter().enumerate() {
                write.open_table(ENTRIES).unwrap().insert((7, number as u64), &encode(entry)[..]).unwrap();
            }
            write.commit().unwrap();
        }
        let outputs = || vec![Delivered { output: 3, object: object.clone(), place: None }];
        let result = |index| {
            let TaskResult { outcome, .. } = result(index);
            TaskResult { outcome: Outcome { outputs: outputs(), ..outcome }, ..result(index) }
        };
        let ends = [0, 1].map(|index| JobEnd { at_us: 100, ready_us: 97, result: result(index) }).into();
        let expected = [
            Entry::Results { ends, samples: Vec::new() },
            Entry::Retried { tasks: tasks(), paused_us: 0 },
            Entry::Recomputed { tasks: tasks(), paused_us: 0 },
            Entry::Released,
            Entry::Cancelled(tasks()),
        ];
        for _ in 0..2 {
            let journal = Journal::open(&path, false, |_| {}, |e| panic!("{e}")).unwrap();
            assert_eq!(journal.read(JobId(7), 0, u64::MAX).unwrap(), expected);
            assert_eq!(journal.read_jobs().unwrap(), [(JobId(7), JobSpec::from(spec1()))]);
            close(journal);
        }
    }

    #[test]
    fn a_journal_that_has_lost_what_was_acknowledged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.redb");
        let (sender, done) = mpsc::channel();
        let open = || {
            let sender = sender.clone();
            Journal::open(&path, false, move |written| drop(sender.send(written)), |e| panic!("{e}"))
        };
        let journal = open().unwrap();
        close(journal);
        let empty = std::fs::read(&path).unwrap();
        let journal = open().unwrap();
        journal.write(JournalRecord::Job { job: JobId(1), spec: Arc::default() });
        assert_eq!(done.recv_timeout(Duration::from_secs(30)).unwrap(), [WrittenRecord::Job(JobId(1))]);
        close(journal);
        let whole = std::fs::read(&path).unwrap();
        for older in [empty, Vec::new()] {
            std::fs::write(&path, older).unwrap();
            let why = open().err().expect("it is refused").to_string();
            assert!(why.contains("1 were acknowledged") && why.contains("journal.mark"), "{why}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(open().is_err(), "also where it is gone");
        std::fs::write(&path, whole).unwrap();
        assert_eq!(open().unwrap().read_jobs().unwrap().len(), 1);
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
