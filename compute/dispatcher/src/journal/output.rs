//! Captured output that is too large for the database: a file for each job, in a folder beside the
//! journal. Output is appended, and is on disk before the entry that refers to it. The file goes
//! with its job.
//!
//! The journal records the length of each file. What is in a file beyond that was never
//! acknowledged: it is cut off when the journal is opened again. All files together have no more
//! than `max_output_bytes` of `core/jobs`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use eyas_jobs::{Entry, JobEnd, output_bytes};
use eyas_types::{JobId, Name, Outcome, TaskResult};
use eyas_wire::client::{OutputFile, OutputInFile};
use redb::{Database, ReadableDatabase, ReadableTable, Table};
use serde::{Deserialize, Serialize};

use super::error::JournalProblem;
use super::private_file::open_private;
use super::tables::OUTPUTS;

/// A task's output of at least this many bytes goes to the file of its job. Smaller output is in
/// the database, where many results are read at once.
pub(super) const OUTPUT_BESIDE_BYTES: u64 = 64 << 10;

/// The place of a result's captured output in its file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct OutputRange {
    /// Index of the result in its entry.
    pub(super) end: u32,
    offset: u64,
    stdout_bytes: u64,
    stderr_bytes: u64,
    /// Beginning of the BLAKE3 hash of standard output and standard error.
    checksum: [u8; 16],
}

impl OutputRange {
    /// The same output, of the result at another index in its entry.
    pub(super) fn of_end(self, end: u32) -> Self {
        OutputRange { end, ..self }
    }

    /// The place for a client that reads the file itself, unless the result is one of the first
    /// `skipped` in its entry.
    pub fn for_client(self, skipped: u32) -> Option<OutputInFile> {
        let OutputRange { end, offset, stdout_bytes, stderr_bytes, checksum } = self;
        let result = end.checked_sub(skipped)?;
        Some(OutputInFile { result, offset, stdout_bytes, stderr_bytes, checksum })
    }
}

/// The folder of the files.
#[derive(Clone, Debug)]
pub(super) struct OutputFiles {
    folder: PathBuf,
}

/// Files that a transaction appends to.
pub(super) struct OutputAppender<'a> {
    files: &'a OutputFiles,
    open: BTreeMap<JobId, File>,
}

impl OutputFiles {
    pub fn beside(journal: &Path) -> Self {
        OutputFiles { folder: journal.with_extension("output") }
    }

    fn path(&self, job: JobId) -> PathBuf {
        self.folder.join(job.0.to_string())
    }

    /// Cuts off what was never acknowledged, and removes files of jobs that are forgotten. Output
    /// that is missing is an error if all of it `is_needed`; if not, it is one when it is read.
    pub fn recover(&self, database: &Database, is_needed: bool) -> Result<(), JournalProblem> {
        let lengths = database.begin_read()?.open_table(OUTPUTS)?;
        for row in lengths.iter()? {
            let (job, bytes) = row?;
            let (job, bytes) = (JobId(job.value()), bytes.value());
            let file = File::options().write(true).open(self.path(job));
            let wrong = match file {
                Err(e) if e.kind() == io::ErrorKind::NotFound => "missing",
                Err(e) => return Err(e.into()),
                Ok(file) if file.metadata()?.len() < bytes => "shorter than what was acknowledged",
                Ok(file) => {
                    file.set_len(bytes)?;
                    continue;
                }
            };
            if is_needed {
                return Err(self.damaged(job, wrong));
            }
            tracing::warn!("{}", self.damaged(job, wrong));
        }
        let names = match fs::read_dir(&self.folder) {
            Ok(names) => names,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        for name in names {
            let name = name?;
            let job = name.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if let Some(job) = job
                && lengths.get(job)?.is_none()
            {
                fs::remove_file(name.path())?;
            }
        }
        Ok(())
    }

    /// The file of a job, for a client that reads it itself.
    pub fn for_client(&self, job: JobId) -> Result<OutputFile, JournalProblem> {
        let path = std::path::absolute(self.path(job))?;
        let found = fs::metadata(&path).map_err(|_| self.damaged(job, "missing"))?;
        let path = Name::from(path.as_os_str().as_bytes());
        Ok(OutputFile { path, device: found.dev(), inode: found.ino() })
    }

    pub fn append(&self) -> OutputAppender<'_> {
        OutputAppender { files: self, open: BTreeMap::new() }
    }

    /// Removes the file of a job that is forgotten.
    pub fn remove(&self, job: JobId) -> io::Result<()> {
        match fs::remove_file(self.path(job)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Puts the output of an entry's results back to them.
    pub fn restore(
        &self,
        job: JobId,
        entry: &mut Entry,
        places: &[OutputRange],
    ) -> Result<(), JournalProblem> {
        let Entry::Results { ends, .. } = entry else { return Ok(()) };
        if places.is_empty() {
            return Ok(());
        }
        let file = File::open(self.path(job)).map_err(|_| self.damaged(job, "missing"))?;
        for place in places {
            let Some(end) = ends.get_mut(place.end as usize) else {
                return Err(JournalProblem::DamagedJob(job));
            };
            self.restore_one(job, &file, place, &mut end.result.outcome)?;
        }
        Ok(())
    }

    fn restore_one(
        &self,
        job: JobId,
        file: &File,
        place: &OutputRange,
        outcome: &mut Outcome,
    ) -> Result<(), JournalProblem> {
        let bytes = place.stdout_bytes.saturating_add(place.stderr_bytes);
        if file.metadata()?.len() < place.offset.saturating_add(bytes) {
            return Err(self.damaged(job, "shorter than what was acknowledged"));
        }
        outcome.stdout = vec![0; place.stdout_bytes as usize];
        outcome.stderr = vec![0; place.stderr_bytes as usize];
        file.read_exact_at(&mut outcome.stdout, place.offset)?;
        file.read_exact_at(&mut outcome.stderr, place.offset + place.stdout_bytes)?;
        if checksum(outcome) != place.checksum {
            return Err(self.damaged(job, "damaged"));
        }
        Ok(())
    }

    fn damaged(&self, job: JobId, wrong: &'static str) -> JournalProblem {
        JournalProblem::DamagedOutput { job, path: self.path(job).display().to_string(), wrong }
    }
}

impl OutputAppender<'_> {
    /// Writes the large output of an entry's results to the file of their job. Returns the entry
    /// without it, if it has any.
    pub fn take_large(
        &mut self,
        job: JobId,
        entry: &Entry,
        lengths: &mut Table<'_, u32, u64>,
    ) -> Result<Option<(Entry, Vec<OutputRange>)>, JournalProblem> {
        let Entry::Results { ends, samples } = entry else { return Ok(None) };
        if !ends.iter().any(is_large) {
            return Ok(None);
        }
        let mut offset = lengths.get(job.0)?.map_or(0, |bytes| bytes.value());
        let file = self.file(job)?;
        let (mut places, mut others) = (Vec::new(), Vec::with_capacity(ends.len()));
        for (index, end) in ends.iter().enumerate() {
            if !is_large(end) {
                others.push(end.clone());
                continue;
            }
            let outcome = &end.result.outcome;
            let (stdout_bytes, stderr_bytes) =
                (outcome.stdout.len() as u64, outcome.stderr.len() as u64);
            file.write_all_at(&outcome.stdout, offset)?;
            file.write_all_at(&outcome.stderr, offset + stdout_bytes)?;
            let (end_index, checksum) = (index as u32, checksum(outcome));
            places.push(OutputRange {
                end: end_index,
                offset,
                stdout_bytes,
                stderr_bytes,
                checksum,
            });
            offset += stdout_bytes + stderr_bytes;
            others.push(without_output(end));
        }
        lengths.insert(job.0, offset)?;
        Ok(Some((Entry::Results { ends: others, samples: samples.clone() }, places)))
    }

    fn file(&mut self, job: JobId) -> io::Result<&File> {
        if let std::collections::btree_map::Entry::Vacant(vacant) = self.open.entry(job) {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.files.folder)?;
            vacant.insert(open_private(&self.files.path(job))?);
        }
        Ok(&self.open[&job])
    }

    /// Has all that was appended on disk.
    pub fn sync(self) -> io::Result<()> {
        if self.open.is_empty() {
            return Ok(());
        }
        self.open.values().try_for_each(File::sync_data)?;
        File::open(&self.files.folder)?.sync_all()
    }
}

fn is_large(end: &JobEnd) -> bool {
    output_bytes(&end.result.outcome) >= OUTPUT_BESIDE_BYTES
}

/// Bytes of an entry's output that are not in the database.
pub(super) fn large_bytes(entry: &Entry) -> u64 {
    entry
        .ends()
        .iter()
        .filter(|end| is_large(end))
        .map(|end| output_bytes(&end.result.outcome))
        .sum()
}

fn checksum(outcome: &Outcome) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&outcome.stdout).update(&outcome.stderr);
    let hash = hasher.finalize();
    std::array::from_fn(|byte| hash.as_bytes()[byte])
}

/// The end without its captured output, which is not copied.
fn without_output(end: &JobEnd) -> JobEnd {
    let TaskResult { index, attempt, ref executor, queued_us, delivery_us, ref outcome } =
        end.result;
    let outcome = Outcome {
        status: outcome.status.clone(),
        waited_us: outcome.waited_us,
        ran_us: outcome.ran_us,
        suspended_us: outcome.suspended_us,
        cpu_us: outcome.cpu_us,
        peak_memory_bytes: outcome.peak_memory_bytes,
        reads: outcome.reads,
        stdout: Vec::new(),
        stderr: Vec::new(),
        cut_bytes: outcome.cut_bytes,
        outputs: outcome.outputs.clone(),
        reused: outcome.reused,
        estimate: outcome.estimate,
    };
    let result =
        TaskResult { index, attempt, executor: executor.clone(), queued_us, delivery_us, outcome };
    JobEnd { result, ..*end }
}
