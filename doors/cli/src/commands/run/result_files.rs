//! Files that a run writes besides printing results: a list of tasks (`--joblog`), and the output
//! of each task (`--results`).

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use eyas_client::TaskTexts;
use eyas_client::messages::TaskResult;
use eyas_client::types::task::STREAMS;
use eyas_client::types::{Name, Status, Template, shown};
use eyas_store::path_of;

use super::run_records::RunRecord;
use crate::error::CliError;
use crate::print::say;
use crate::words::{command_line, field_of_csv};

/// Columns of the list of tasks.
const COLUMNS: &str = "task,executor,start_unix_s,queued_s,run_s,processor_s,memory_bytes,\
                       exit_code,signal,status,item,command";

/// A CSV file with a line for each task that has ended.
pub(super) struct TaskLog {
    path: PathBuf,
    file: BufWriter<File>,
    texts: TaskTexts,
    submitted: SystemTime,
}

impl TaskLog {
    /// Begins the file. One that is there is replaced, unless lines are to be added to it.
    pub fn begin(path: &Path, texts: TaskTexts, adds: bool) -> Result<Self, CliError> {
        let mut options = File::options();
        let options = options.create(true).write(true).append(adds).truncate(!adds);
        let begun = options.open(path).and_then(|file| {
            let is_new = file.metadata()?.len() == 0;
            let mut file = BufWriter::new(file);
            if is_new {
                writeln!(file, "{COLUMNS}")?;
            } else if !ends_with_line(path)? {
                // A killed run has left a part of a line.
                writeln!(file)?;
            }
            file.flush()?;
            Ok(file)
        });
        let file = begun.map_err(|e| format!("cannot write {}: {e}", path.display()))?;
        Ok(TaskLog { path: path.to_owned(), file, texts, submitted: SystemTime::now() })
    }

    fn write(&mut self, result: &TaskResult) -> io::Result<()> {
        let TaskResult { index, executor, queued_us, outcome, .. } = result;
        let before_start = Duration::from_micros(queued_us + outcome.waited_us);
        let start = (self.submitted + before_start).duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = |us: u64| us as f64 / 1e6;
        let (exit_code, signal) = match outcome.status {
            Status::Succeeded => ("0".into(), String::new()),
            Status::Exited(code) => (code.to_string(), String::new()),
            Status::Signalled(signal) => (String::new(), signal.to_string()),
            _ => (String::new(), String::new()),
        };
        write!(
            self.file,
            "{index},{executor},{:.6},{:.6},{:.6},{:.6},{},{exit_code},{signal},",
            start.as_secs_f64(),
            seconds(queued_us + outcome.waited_us),
            seconds(outcome.ran_us),
            seconds(outcome.cpu_us),
            outcome.peak_memory_bytes,
        )?;
        let command = self.texts.command(*index);
        let status = outcome.status.to_string();
        let fields = [status.as_bytes(), &self.texts.item(*index), &command_line(&command)];
        for (position, field) in fields.into_iter().enumerate() {
            self.file.write_all(if position > 0 { b"," } else { b"" })?;
            self.file.write_all(&field_of_csv(field))?;
        }
        self.file.write_all(b"\n")
    }
}

/// Whether a file ends with a whole line.
fn ends_with_line(path: &Path) -> io::Result<bool> {
    let (mut file, mut last) = (File::open(path)?, [0]);
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// A folder for the output of each task.
pub(super) struct ResultsFolder {
    folder: Template,
    texts: TaskTexts,
}

impl ResultsFolder {
    /// With a placeholder in `folder`, each task has a folder of this name; otherwise it has one in
    /// `folder`, with its index as its name.
    pub fn new(folder: &Name, texts: TaskTexts) -> Result<Self, CliError> {
        let folder = Template::parse(folder);
        let results = ResultsFolder { folder, texts };
        let can_repeat = results.folder.has_value() && !results.folder.has_number();
        let mut known = HashMap::new();
        for index in (0..results.texts.len() as u32).filter(|_| can_repeat) {
            let folder = results.folder_of(index);
            if let Some(other) = known.insert(folder, index) {
                return Err(format!(
                    "the tasks {other} and {index} have the same folder `{}` for their output: \
                     write {{#}} in --results, which is the number of the task",
                    shown(results.folder_of(index).as_os_str().as_bytes())
                )
                .into());
            }
        }
        Ok(results)
    }

    fn folder_of(&self, index: u32) -> PathBuf {
        let folder = path_of(&self.texts.expand(&self.folder, index)).to_owned();
        let is_own = self.folder.has_value() || self.folder.has_number();
        if is_own { folder } else { folder.join(index.to_string()) }
    }

    /// Writes the output of a task: what its result has, and in `fetched`, whole streams that are
    /// too large for a result.
    fn write(
        &self,
        result: &TaskResult,
        fetched: Option<&Path>,
    ) -> Result<(), (PathBuf, io::Error)> {
        let folder = self.folder_of(result.index);
        fs::create_dir_all(&folder).map_err(|error| (folder.clone(), error))?;
        for (name, content) in STREAMS.iter().zip([&result.outcome.stdout, &result.outcome.stderr])
        {
            let file = folder.join(name);
            let written = match fetched.map(|fetched| fetched.join(name)) {
                Some(whole) if whole.exists() => fs::copy(whole, &file).map(drop),
                _ => fs::write(&file, content),
            };
            written.map_err(|error| (file, error))?;
        }
        Ok(())
    }
}

/// The files of a run. After a first error, nothing more is written to the one that has it.
#[derive(Default)]
pub(super) struct ResultFiles {
    pub log: Option<TaskLog>,
    pub folder: Option<ResultsFolder>,
    /// What a run needs that goes on with this one.
    pub record: Option<RunRecord>,
    /// Whether some output was not written to its files.
    lost_results: bool,
    /// What could not be written, and why.
    pub errors: Vec<String>,
}

impl ResultFiles {
    /// Notes the time at which the job was accepted.
    pub fn submitted_now(&mut self) {
        if let Some(log) = &mut self.log {
            log.submitted = SystemTime::now();
        }
    }

    /// Notes the end of a task in the list of tasks.
    pub fn ended(&mut self, result: &TaskResult) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.write(result)
        {
            self.log_failed(&error);
        }
    }

    /// Notes for later runs that the result of a task has been printed and written as a whole.
    pub fn delivered(&mut self, result: &TaskResult) {
        if let Some(record) = self.record.as_mut().filter(|_| !self.lost_results)
            && let Err(error) = record.delivered(result.index, &result.outcome.status)
        {
            self.record_failed(&error.into());
        }
    }

    /// Passes on the lines so far.
    pub fn flush(&mut self) {
        if let Some(record) = &mut self.record
            && let Err(error) = record.flush()
        {
            self.record_failed(&error.into());
        }
        if let Some(log) = &mut self.log
            && let Err(error) = log.file.flush()
        {
            self.log_failed(&error);
        }
    }

    /// The run goes on, but none can go on with it.
    pub fn record_failed(&mut self, error: &CliError) {
        self.record = None;
        say!(
            "`eyas run --resume` will not know of this run, whose record cannot be written: {error}"
        );
    }

    fn log_failed(&mut self, error: &io::Error) {
        if let Some(log) = self.log.take() {
            self.errors.push(format!("{} ends before the job did: {error}", log.path.display()));
            // What is left in the buffer cannot be written, either.
            drop(log.file.into_parts());
        }
    }

    /// Writes the output of a task.
    pub fn write(&mut self, result: &TaskResult, fetched: Option<&Path>) {
        if let Some(folder) = &self.folder
            && let Err((path, error)) = folder.write(result, fetched)
        {
            self.errors.push(format!(
                "cannot write {}, and no output of later tasks was written to files: {error}",
                path.display()
            ));
            self.folder = None;
            self.lost_results = true;
        }
    }
}
