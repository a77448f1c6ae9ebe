//! The journal on a disk: what was written is there again, also of a released version.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use eyas_formats::Formats;
use eyas_jobs::{Entry, JobEnd, JobSnapshot, JobSpec, JobSummary, Phase, Replay};
use eyas_types::course::JobState;
use eyas_types::outcome::FailureKind;
use eyas_types::task::{InputFrom, PartOfFile, WorkingFolder};
use eyas_types::template::{InputListEnd, PathPart, TemplatePart};
use eyas_types::{
    DeliverWhen, Distribution, FileMode, ObjectId, ObjectSpec, Outcome, Program, Status, TaskItem,
    TaskResult, TaskTemplate, Version,
};

use redb::ReadableTableMetadata;

use super::output::{OUTPUT_BESIDE_BYTES, OutputRange};
use super::read::StoredEntry;
use super::tables::*;
use super::*;

const JOB: JobId = JobId(7);

fn result(index: u32) -> TaskResult {
    let outcome = Outcome::of(Status::Exited(index as i32));
    TaskResult { index, attempt: 0, executor: "n1".into(), queued_us: 1, delivery_us: 2, outcome }
}

fn end(index: u32, at_us: u64) -> JobEnd {
    JobEnd { at_us, ready_us: 3, output_bytes: 0, result: result(index) }
}

/// Waits until its thread has ended, and with it the use of the file.
fn close(journal: Journal) {
    let Journal { database, to_write, .. } = journal;
    drop(to_write);
    while Arc::strong_count(&database) > 1 {
        std::thread::yield_now();
    }
}

fn open_at(path: &Path, durable: &mpsc::Sender<RecordNumber>) -> Result<Journal, JournalError> {
    let durable = durable.clone();
    let options = JournalOptions { is_scratch: false, check: Some(path.with_extension("differs")) };
    Journal::open(path, options, move |number| _ = durable.send(number), |e| panic!("{e}"))
}

/// Waits until all that was appended is on disk.
fn settle(journal: &Journal, durable: &mpsc::Receiver<RecordNumber>) {
    let appended = journal.appended.load(Ordering::Relaxed);
    while durable.recv_timeout(Duration::from_secs(30)).unwrap() < appended {}
}

/// Results of a job, without the places of their output.
fn results(journal: &Journal, numbers: Range<u64>, captured: OutputDetail) -> Vec<Entry> {
    let read = journal.results(JOB, numbers, captured).unwrap();
    read.into_iter().map(|(entry, _)| entry).collect()
}

/// Entries of a job in the tables, in order.
fn entries_of(journal: &Journal, job: JobId) -> Vec<Entry> {
    let read = journal.database.begin_read().unwrap();
    let mut all = BTreeMap::new();
    for table in [ENTRIES, RESULTS] {
        for row in read.open_table(table).unwrap().range((job.0, 0)..(job.0, u64::MAX)).unwrap() {
            let (key, row) = row.unwrap();
            all.insert(
                key.value().1,
                StoredEntry::decode(job, key.value().1, row.value()).unwrap().entry,
            );
        }
    }
    all.into_values().collect()
}

fn spec_at(journal: &Journal, job: JobId) -> JobSpec {
    let read = journal.database.begin_read().unwrap();
    let stored = read.open_table(JOBS).unwrap().get(job.0).unwrap().unwrap().value().0;
    postcard::from_bytes(&read_parts(&read.open_table(STORED).unwrap(), stored).unwrap().unwrap())
        .unwrap()
}

fn tasks(count: usize) -> JobSpec {
    let mut spec =
        JobSpec { templates: vec![TaskTemplate::new(Program::Noop)], ..JobSpec::default() };
    spec.push(&vec![TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }; count])
        .unwrap();
    spec
}

#[test]
fn what_was_written_is_there_after_opening_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let journal = open_at(&path, &sender).unwrap();
    // Of more than one part.
    let spec = JobSpec { name: "survey".repeat(PART_BYTES / 4), ..JobSpec::default() };
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(spec.clone()) });
    let entries = [
        Entry::Results { ends: vec![end(0, 4), end(1, 5)], samples: vec![Default::default()] },
        Entry::Retried { tasks: vec![1], paused_us: 6 },
        Entry::Cancelled(vec![2]),
        Entry::Results { ends: vec![end(1, 9)], samples: Vec::new() },
    ];
    for (number, entry) in entries.iter().enumerate() {
        journal.append(JournalRecord::Entry {
            job: JOB,
            number: number as u64,
            entry: Arc::new(entry.clone()),
        });
    }
    settle(&journal, &done);
    assert_eq!(results(&journal, 1..4, OutputDetail::Whole), entries[3..]);
    close(journal);
    let again = open_at(&path, &sender).unwrap();
    assert_eq!(again.jobs().unwrap(), [(JOB, None)]);
    assert_eq!((spec_at(&again, JOB), entries_of(&again, JOB)), (spec, entries.to_vec()));
}

/// A job whose encoding has several parts, of which each object has a chunk.
fn large_job(objects: u32) -> JobSpec {
    let version = |number: u32| Version::Modified { mtime_ns: 1, size_bytes: number.into() };
    let object = |number| ObjectSpec {
        source: format!("file:///{}/{number}", "survey".repeat(20)).into(),
        version: version(number),
        mode: FileMode::READABLE,
    };
    let mut spec = tasks(2);
    spec.push_objects((0..objects).map(object).collect()).unwrap();
    spec.push_chunks(
        (0..objects).map(|number| (number, vec![(ObjectId([7; 16]), u64::from(number))])).collect(),
    );
    spec
}

#[test]
fn a_job_is_stored_part_by_part_and_goes_unless_it_is_submitted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let journal = open_at(&path, &sender).unwrap();
    let mut spec = large_job(20_000);
    let stored = |journal: &Journal| {
        let read = journal.database.begin_read().unwrap();
        let parts = |table| read.open_table(table).unwrap().len().unwrap();
        (parts(STORED), parts(CHUNKS))
    };
    // What is written in between is on disk before the job is.
    let (of_others, is_over) = (journal.clone(), Arc::new(AtomicBool::new(false)));
    let until = is_over.clone();
    let others = std::thread::spawn(move || {
        let mut appended = 0;
        while !until.load(Ordering::Relaxed) {
            appended = of_others.append(JournalRecord::Forget { job: JobId(99) });
        }
        appended
    });
    let first = journal.store(&spec).unwrap();
    let while_stored = done.try_iter().count();
    is_over.store(true, Ordering::Relaxed);
    let appended = others.join().unwrap();
    while done.recv_timeout(Duration::from_secs(30)).unwrap() < appended {}
    let (parts, chunks) = stored(&journal);
    assert!(
        parts > 2 && chunks == 1 && while_stored > 2,
        "{parts} parts, {while_stored} transactions"
    );
    spec.stored = Some(first.number());
    first.keep();
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(spec.clone()) });
    settle(&journal, &done);
    let second = journal.store(&spec).unwrap();
    assert_eq!(stored(&journal), (2 * parts, 2 * chunks));
    drop(second);
    journal.append(JournalRecord::Job { job: JobId(8), spec: Arc::new(tasks(1)) });
    settle(&journal, &done);
    assert_eq!(stored(&journal), (parts + 1, chunks));
    // A dispatcher that is killed removes nothing.
    std::mem::forget(journal.store(&spec).unwrap());
    let copy = folder.path().join("copy.redb");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::copy(path.with_extension("mark"), copy.with_extension("mark")).unwrap();
    let journal = open_at(&copy, &sender).unwrap();
    assert_eq!((stored(&journal), journal.jobs().unwrap().len()), ((parts + 1, chunks), 2));
    let read = journal.replay(JOB).unwrap().into_job();
    assert!(read.spec.objects == spec.objects && read.spec.chunks == spec.chunks);
    assert!(journal.store(&spec).unwrap().number() > spec.stored.unwrap());
    journal.append(JournalRecord::Forget { job: JOB });
    settle(&journal, &done);
    assert_eq!(stored(&journal), (1, 0));
}

#[test]
fn other_versions_of_objects_replace_those_of_the_submission() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let journal = open_at(&path, &sender).unwrap();
    let mut spec = large_job(10);
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(spec.clone()) });
    for size_bytes in [70, 71] {
        let version = Version::Modified { mtime_ns: 2, size_bytes };
        let current = vec![(3, ObjectSpec { version, ..spec.objects[3].clone() })];
        spec.replace_objects(current.clone());
        journal.append(JournalRecord::Objects { job: JOB, current });
    }
    settle(&journal, &done);
    close(journal);
    let journal = open_at(&path, &sender).unwrap();
    assert_eq!(journal.replay(JOB).unwrap().job().spec.objects, spec.objects);
    journal.append(JournalRecord::Forget { job: JOB });
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(large_job(10)) });
    settle(&journal, &done);
    assert_eq!(journal.replay(JOB).unwrap().job().spec.objects, large_job(10).objects);
}

#[test]
fn chunks_of_objects_are_kept_until_the_job_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let journal = open_at(&path, &sender).unwrap();
    let id = |number: u32| ObjectId(u128::from(number).to_le_bytes());
    // Of more than one part.
    let chunks: Vec<_> =
        (0..2 * PART_BYTES as u32 / 16).map(|number| (id(number), 4 << 20)).collect();
    let spec = JobSpec { chunks: BTreeMap::from([(id(7), chunks)]), ..tasks(1) };
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(spec.clone()) });
    settle(&journal, &done);
    close(journal);
    let journal = open_at(&path, &sender).unwrap();
    assert!(journal.load_written(JOB).unwrap().job().spec.chunks == spec.chunks);
    journal.append(JournalRecord::Forget { job: JOB });
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(tasks(1)) });
    settle(&journal, &done);
    assert!(journal.load_written(JOB).unwrap().job().spec.chunks.is_empty());
}

#[test]
fn a_file_that_is_mostly_unused_is_made_smaller() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let open = || open_at(&path, &sender).unwrap();
    let bytes = || std::fs::metadata(&path).unwrap().len();
    let journal = open();
    // Two jobs in turns, so that what stays lies between what goes.
    for number in 0..300 {
        for job in [JobId(1), JobId(2)] {
            let outcome = Outcome {
                stdout: vec![number as u8; OUTPUT_BESIDE_BYTES as usize - 1],
                ..Outcome::of(Status::Succeeded)
            };
            let ends = vec![JobEnd { result: TaskResult { outcome, ..result(0) }, ..end(0, 0) }];
            let entry = Arc::new(Entry::Results { ends, samples: Vec::new() });
            journal.append(JournalRecord::Entry { job, number, entry });
        }
    }
    settle(&journal, &done);
    journal.append(JournalRecord::Forget { job: JobId(1) });
    // Of the other, a bit stays.
    journal.append(JournalRecord::Job { job: JobId(2), spec: Arc::default() });
    settle(&journal, &done);
    let kept = journal.results(JobId(2), 0..u64::MAX, OutputDetail::Whole).unwrap();
    close(journal);
    let full = bytes();
    let again = open();
    assert!(bytes() < full, "{full} bytes before, {} after", bytes());
    assert_eq!(again.results(JobId(2), 0..u64::MAX, OutputDetail::Whole).unwrap(), kept);
}

#[test]
fn a_journal_that_has_lost_what_was_acknowledged_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let open = || open_at(&path, &sender);
    let journal = open().unwrap();
    close(journal);
    let empty = std::fs::read(&path).unwrap();
    let journal = open().unwrap();
    journal.append(JournalRecord::Job { job: JobId(1), spec: Arc::default() });
    settle(&journal, &done);
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
    assert_eq!(open().unwrap().jobs().unwrap().len(), 1);
}

#[test]
fn a_file_that_is_no_journal_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    std::fs::write(&path, [7; 5000]).unwrap();
    for is_scratch in [false, true] {
        let options = JournalOptions { is_scratch, check: None };
        let opened = Journal::open(&path, options, |_| {}, |_| {});
        assert!(opened.err().unwrap().to_string().contains("journal.redb"));
    }
}

#[test]
fn large_output_is_in_the_file_of_its_job_and_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let journal = open_at(&path, &sender).unwrap();
    let with_output = |index, bytes: usize| {
        let outcome = Outcome {
            stdout: vec![1; bytes],
            stderr: vec![2; bytes],
            ..Outcome::of(Status::Succeeded)
        };
        JobEnd {
            output_bytes: 2 * bytes as u64,
            result: TaskResult { outcome, ..result(index) },
            ..end(index, 1)
        }
    };
    let large = OUTPUT_BESIDE_BYTES as usize;
    let first = Entry::Results {
        ends: vec![with_output(0, large), with_output(1, 9)],
        samples: Vec::new(),
    };
    let second = Entry::Results {
        ends: vec![with_output(2, 7), with_output(3, large / 2)],
        samples: Vec::new(),
    };
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(tasks(4)) });
    for (number, entry) in [&first, &second].into_iter().enumerate() {
        journal.append(JournalRecord::Entry {
            job: JOB,
            number: number as u64,
            entry: Arc::new(entry.clone()),
        });
    }
    settle(&journal, &done);
    let file = folder.path().join("journal.output/7");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 3 * OUTPUT_BESIDE_BYTES);
    assert_eq!(results(&journal, 0..2, OutputDetail::Whole), [first.clone(), second.clone()]);
    // At first from memory, then from the file.
    for _ in 0..2 {
        assert_eq!(results(&journal, 0..2, OutputDetail::New), [first.clone(), second.clone()]);
        assert!(journal.recent.take(JOB, 0..2).is_empty());
    }
    let short = results(&journal, 0..2, OutputDetail::Short);
    let lengths: Vec<_> =
        short.iter().flat_map(Entry::ends).map(|end| end.result.outcome.stdout.len()).collect();
    assert_eq!(lengths, [0, 9, 7, 0]);
    close(journal);
    assert_eq!(check_journal(&path).unwrap(), 1);
    // Bytes that were never acknowledged are cut off; missing acknowledged bytes are an error.
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&whole[..], b"cut short"].concat()).unwrap();
    std::fs::write(folder.path().join("journal.output/8"), "of a job that is forgotten").unwrap();
    close(open_at(&path, &sender).unwrap());
    assert_eq!(std::fs::read(&file).unwrap(), whole);
    assert!(!folder.path().join("journal.output/8").exists());
    std::fs::write(&file, &whole[1..]).unwrap();
    let why = open_at(&path, &sender).err().expect("it is refused").to_string();
    assert!(
        why.contains("shorter than")
            && why.contains("journal.output/7")
            && why.contains("journal.mark"),
        "{why}"
    );
    std::fs::remove_file(folder.path().join("journal.mark")).unwrap();
    let journal = open_at(&path, &sender).unwrap();
    assert!(journal.results(JOB, 0..2, OutputDetail::Whole).is_err());
    std::fs::write(&file, [&[9], &whole[1..]].concat()).unwrap();
    assert!(
        journal
            .results(JOB, 0..2, OutputDetail::Whole)
            .unwrap_err()
            .to_string()
            .contains("damaged")
    );
    journal.append(JournalRecord::Forget { job: JOB });
    settle(&journal, &done);
    assert!(!file.exists() && journal.jobs().unwrap().is_empty());
}

#[test]
fn output_that_cannot_be_written_is_not_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let ((sender, done), (failed_sender, failed)) = (mpsc::channel(), mpsc::channel());
    let open = || {
        let (sender, failed_sender) = (sender.clone(), failed_sender.clone());
        let failed = move |e: JournalError| drop(failed_sender.send(e.to_string()));
        Journal::open(
            &path,
            JournalOptions::default(),
            move |number| _ = sender.send(number),
            failed,
        )
        .unwrap()
    };
    let journal = open();
    // A file in place of the folder fails as a full disk does: after the transaction has begun.
    std::fs::write(folder.path().join("journal.output"), "").unwrap();
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(tasks(1)) });
    settle(&journal, &done);
    let outcome =
        Outcome { stdout: vec![1; OUTPUT_BESIDE_BYTES as usize], ..Outcome::of(Status::Succeeded) };
    let ends = vec![JobEnd { result: TaskResult { outcome, ..result(0) }, ..end(0, 1) }];
    let entry = Arc::new(Entry::Results { ends, samples: Vec::new() });
    journal.append(JournalRecord::Entry { job: JOB, number: 0, entry });
    let why = failed.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(why.contains("cannot be written") && why.contains("is the disk full?"), "{why}");
    assert!(done.try_recv().is_err() && journal.recent.take(JOB, 0..1).is_empty());
    close(journal);
    std::fs::remove_file(folder.path().join("journal.output")).unwrap();
    let journal = open();
    assert!(
        journal.jobs().unwrap().len() == 1
            && results(&journal, 0..1, OutputDetail::Whole).is_empty()
    );
    close(journal);
}

#[test]
fn a_snapshot_replaces_entries_and_earlier_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let (sender, done) = mpsc::channel();
    let journal = open_at(&path, &sender).unwrap();
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(tasks(3)) });
    let large = |index| {
        let outcome =
            Outcome { stdout: vec![index as u8; 100_000], ..Outcome::of(Status::Exited(1)) };
        JobEnd {
            output_bytes: 100_000,
            result: TaskResult { outcome, ..result(index) },
            ..end(index, 1)
        }
    };
    let entries = [
        Entry::Results { ends: vec![large(0), large(1), large(2)], samples: Vec::new() },
        Entry::Retried { tasks: vec![0, 2], paused_us: 6 },
        Entry::Results { ends: vec![large(2)], samples: Vec::new() },
        Entry::Samples(vec![Default::default()]),
        Entry::Results { ends: vec![large(0)], samples: Vec::new() },
        Entry::Released,
    ];
    let mut replay = Replay::new(JOB, tasks(3));
    for (number, entry) in entries.iter().enumerate() {
        replay.apply(entry.clone());
        journal.append(JournalRecord::Entry {
            job: JOB,
            number: number as u64,
            entry: Arc::new(entry.clone()),
        });
    }
    let summary = replay.job().summary();
    let snapshot = Arc::new(replay.job().snapshot());
    let record = |drops_results| {
        let (summary, snapshot) = (Some(Box::new(summary.clone())), snapshot.clone());
        JournalRecord::Snapshot { job: JOB, snapshot, summary, drops_results }
    };
    journal.append(record(false));
    settle(&journal, &done);
    let expected = [&entries[0], &entries[2], &entries[4]].map(Clone::clone);
    assert_eq!(results(&journal, 0..9, OutputDetail::Whole), expected);
    assert_eq!(entries_of(&journal, JOB).len(), 3);
    assert_eq!(journal.replay(JOB).unwrap().job().snapshot(), *snapshot);
    assert_eq!(journal.jobs().unwrap(), [(JOB, Some(summary.clone()))]);
    journal.append(record(true));
    settle(&journal, &done);
    let first = Entry::Results { ends: vec![large(1)], samples: Vec::new() };
    assert_eq!(
        results(&journal, 0..9, OutputDetail::Whole),
        [first, entries[2].clone(), entries[4].clone()]
    );
    // It goes on.
    let again = Entry::Retried { tasks: vec![1], paused_us: 7 };
    journal.append(JournalRecord::Entry { job: JOB, number: 6, entry: Arc::new(again.clone()) });
    settle(&journal, &done);
    replay.apply(again);
    assert!(journal.replay(JOB).unwrap().job().snapshot().agrees_with(&replay.job().snapshot()));
    assert_eq!(journal.jobs().unwrap(), [(JOB, None)]);
    close(journal);
    assert!(!path.with_extension("differs").exists());
}

/// Makes the fixture of the present format: a job with another version of its object, results, a
/// loss and a cancelled task, and its snapshot.
fn write_fixture(path: &Path) {
    let (sender, done) = mpsc::channel();
    let journal = open_at(path, &sender).unwrap();
    let mut replay = Replay::new(JOB, fixture_spec(1));
    journal.append(JournalRecord::Job { job: JOB, spec: Arc::new(fixture_spec(1)) });
    journal.append(JournalRecord::Objects {
        job: JOB,
        current: vec![(0, fixture_spec(2).objects[0].clone())],
    });
    let entries = fixture_entries();
    for (number, entry) in entries.iter().enumerate() {
        journal.append(JournalRecord::Entry {
            job: JOB,
            number: number as u64,
            entry: Arc::new(entry.clone()),
        });
    }
    settle(&journal, &done);
    // It replaces all entries but the last one, and the results, which stay.
    entries[..entries.len() - 1].iter().for_each(|entry| replay.apply(entry.clone()));
    let snapshot = Arc::new(replay.into_job().snapshot());
    journal.append(JournalRecord::Snapshot {
        job: JOB,
        snapshot,
        summary: None,
        drops_results: false,
    });
    settle(&journal, &done);
    close(journal);
}

fn fixture_spec(size_bytes: u64) -> JobSpec {
    let version = Version::Modified { mtime_ns: 1, size_bytes };
    let object =
        ObjectSpec { source: "file:///survey/a".into(), version, mode: FileMode::READABLE };
    let mut spec = JobSpec { submitted_unix_ms: 5, ..tasks(4) };
    spec.push_objects(vec![object]).unwrap();
    spec
}

fn fixture_entries() -> Vec<Entry> {
    vec![
        Entry::Results { ends: vec![end(0, 4)], samples: vec![Default::default()] },
        Entry::Restarted { tasks: vec![1], is_loss: true },
        Entry::Cancelled(vec![2]),
        Entry::Results { ends: vec![end(3, 9)], samples: Vec::new() },
        Entry::Restarted { tasks: vec![1], is_loss: false },
    ]
}

/// With `EYAS_GENERATE=1`, writes the fixture first, which only a new format needs.
#[test]
fn a_journal_of_version_0_1_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("src/journal/fixtures/format{FORMAT}.redb.gz"));
    if std::env::var_os("EYAS_GENERATE").is_some() && !fixture.exists() {
        write_fixture(&path);
        let packed = File::create(&fixture).unwrap();
        let mut packed = flate2::write::GzEncoder::new(packed, flate2::Compression::best());
        io::copy(&mut File::open(&path).unwrap(), &mut packed).unwrap();
        packed.finish().unwrap();
    }
    let mut unpacked = flate2::read::GzDecoder::new(File::open(&fixture).unwrap());
    io::copy(&mut unpacked, &mut File::create(&path).unwrap()).unwrap();
    let journal = open_at(&path, &mpsc::channel().0).unwrap();
    let mut expected = Replay::new(JOB, fixture_spec(2));
    fixture_entries().into_iter().for_each(|entry| expected.apply(entry));
    let (read, expected) = (journal.replay(JOB).unwrap().into_job(), expected.into_job());
    assert_eq!((spec_at(&journal, JOB), read.snapshot()), (fixture_spec(1), expected.snapshot()));
    assert_eq!((&read.spec.objects, read.spec.submitted_unix_ms), (&expected.spec.objects, 5));
    assert_eq!(
        results(&journal, 0..4, OutputDetail::Whole),
        [fixture_entries()[0].clone(), fixture_entries()[3].clone()]
    );
}

#[test]
fn a_journal_has_the_formats_that_were_recorded() {
    Formats::default()
        .with::<JobSpec>()
        .with::<NamedFile>()
        .with::<ObjectSpec>()
        .with::<TaskItem>()
        .with::<(Entry, Vec<OutputRange>)>()
        .with::<Entry>()
        .with::<JobSnapshot>()
        .with::<JobSummary>()
        .with::<Phase>()
        .with::<Distribution>()
        .with::<InputFrom>()
        .with::<PartOfFile>()
        .with::<JobState>()
        .with::<Program>()
        .with::<Status>()
        .with::<FailureKind>()
        .with::<DeliverWhen>()
        .with::<TemplatePart>()
        .with::<PathPart>()
        .with::<InputListEnd>()
        .with::<Version>()
        .with::<WorkingFolder>()
        .assert_recorded(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/journal/formats.txt"),
            (FORMAT as u16, FORMAT_MINOR),
        );
}

#[test]
fn a_journal_of_another_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.redb");
    close(open_at(&path, &mpsc::channel().0).unwrap());
    let database = Database::create(&path).unwrap();
    let write = database.begin_write().unwrap();
    write.open_table(META).unwrap().insert("version", FORMAT + 1).unwrap();
    write.commit().unwrap();
    drop(database);
    let error = open_at(&path, &mpsc::channel().0).err().unwrap().to_string();
    assert!(error.contains(&format!("it has format {}", FORMAT + 1)), "{error}");
}
