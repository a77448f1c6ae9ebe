//! A pipeline of programs, as a shell makes one with `|`. The programs are killed together, and the
//! pipeline succeeds only if each program does.

use std::io::{self, BufReader, PipeReader, PipeWriter};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::net::unix::pipe::Sender;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::line_sort::{BUFFER_BYTES, sort_lines};

/// A shell whose last command was killed by signal N ends with the exit code 128 + N.
const SHELL_SIGNAL: i32 = 128;

/// The exit code by which a filter says that no line of its input matched. Errors have other codes.
const NO_MATCH: i32 = 1;

/// Programs of which [`NO_MATCH`] is known. Of any other program, 1 may be an error.
const FILTERS: &[&str] = &["bzgrep", "egrep", "fgrep", "grep", "rg", "xzgrep", "zgrep", "zstdgrep"];

/// Programs that pass on the exit codes of others.
const SHELLS: &[&str] = &["bash", "dash", "ksh", "sh", "zsh"];

/// Smallest size of the pipe of a program, with which it begins.
pub(super) const MIN_PIPE_BYTES: usize = 4 << 10;

/// Size of the pipes between programs, where the system allows it. The default is 64 KiB; larger
/// pipes need fewer switches between the programs.
pub(crate) const PIPE_BYTES: usize = 1 << 20;

/// Why a pipeline failed. Each message names the program.
#[derive(Debug, Error)]
pub enum PipelineError {
    /// A program cannot be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// Name of the program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The system has no more pipes.
    #[error("cannot make a pipe between programs: {0}")]
    Pipe(io::Error),
    /// The lines that a program reads cannot be sorted.
    #[error("cannot sort the lines that `{program}` reads: {source}")]
    Sort {
        /// Name of the program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The end of a program cannot be waited for.
    #[error("cannot wait for `{program}`: {source}")]
    Wait {
        /// Name of the program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program failed.
    #[error("`{program}` {}{}", describe(*.status), of_shell(.program, *.status))]
    Failed {
        /// Name of the program.
        program: String,
        /// The exit code or signal of the program.
        status: ExitStatus,
    },
}

/// A program of a [`Pipeline`].
pub(crate) struct Stage {
    command: Command,
    /// If the input of the program is sorted: the folder for lines that do not fit in memory.
    sort_folder: Option<PathBuf>,
}

impl Stage {
    /// Sorts the lines that the program reads by key, and lines with the same key as a whole, by
    /// their bytes. So the output does not depend on the order of the input. Lines that do not fit
    /// in memory are in `scratch`.
    pub fn sorted(self, scratch: &Path) -> Self {
        Stage { sort_folder: Some(scratch.to_owned()), ..self }
    }
}

impl From<Command> for Stage {
    fn from(command: Command) -> Self {
        Stage { command, sort_folder: None }
    }
}

/// Programs that run. Dropping the pipeline kills them, with all processes that they have started.
pub(crate) struct Pipeline {
    programs: Vec<RunningStage>,
    /// Number of programs that have ended successfully, from the front.
    ended: usize,
}

struct RunningStage {
    program: String,
    child: Child,
    /// The thread that sorts the input of the program, until it has ended.
    sorting: Option<JoinHandle<io::Result<()>>>,
}

impl Pipeline {
    /// Starts the programs. The last one writes to `output`. Also returns the pipe from which the
    /// first one reads; the pipe has its smallest size.
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub fn start(stages: Vec<Stage>, output: Stdio) -> Result<(Self, Sender), PipelineError> {
        let (mut pipeline, mut output) =
            (Pipeline { programs: Vec::new(), ended: 0 }, Some(output));
        let (mut input, first) = pipe(MIN_PIPE_BYTES)?;
        let count = stages.len();
        for (index, Stage { mut command, sort_folder }) in stages.into_iter().enumerate() {
            let program = command.as_std().get_program().to_string_lossy().into_owned();
            let stdout = output.take_if(|_| index + 1 == count);
            let (next, stdout) = match stdout {
                Some(output) => (None, output),
                None => pipe(PIPE_BYTES).map(|(next, writer)| (Some(next), writer.into()))?,
            };
            let (stdin, sorting) = match sort_folder {
                None => (input, None),
                Some(scratch) => {
                    let (stdin, sorted) = pipe(PIPE_BYTES)?;
                    let unsorted = BufReader::with_capacity(BUFFER_BYTES, input);
                    let sort = move || sort_lines(unsorted, sorted, scratch);
                    (stdin, Some(tokio::task::spawn_blocking(sort)))
                }
            };
            let spawned = command.stdin(stdin).stdout(stdout).process_group(0).spawn();
            let child = spawned
                .map_err(|source| PipelineError::Start { program: program.clone(), source })?;
            pipeline.programs.push(RunningStage { program, child, sorting });
            let Some(next) = next else { break };
            input = next;
        }
        Ok((pipeline, Sender::from_owned_fd(first.into()).map_err(PipelineError::Pipe)?))
    }

    /// Waits until all programs have ended. The future may be dropped and the method called again.
    ///
    /// # Errors
    /// If a program failed, or its input cannot be sorted.
    pub async fn wait(&mut self) -> Result<(), PipelineError> {
        let last = self.programs.len() - 1;
        while let Some(RunningStage { program, child, sorting }) = self.programs.get_mut(self.ended)
        {
            if let Some(running) = sorting {
                let sorted = running.await.unwrap_or_else(eyas_panics::resume);
                *sorting = None;
                sorted
                    .map_err(|source| PipelineError::Sort { program: program.clone(), source })?;
            }
            let waited = child.wait().await;
            let status = waited
                .map_err(|source| PipelineError::Wait { program: program.clone(), source })?;
            // A program that is killed because the next one stopped reading has not failed: `yes |
            // head -n 1` succeeds.
            let pipe = Some(Signal::PIPE.as_raw());
            let is_cut_off = status.signal() == pipe
                || status.code() == pipe.map(|signal| SHELL_SIGNAL + signal);
            let has_succeeded = status.success()
                || is_cut_off && self.ended < last
                || status.code() == Some(NO_MATCH) && is_filter(program);
            if !has_succeeded {
                return Err(PipelineError::Failed { program: program.clone(), status });
            }
            self.ended += 1;
        }
        Ok(())
    }
}

/// A pipe between two programs, or between a program and a thread of this process.
pub(crate) fn pipe(size_bytes: usize) -> Result<(PipeReader, PipeWriter), PipelineError> {
    let (reader, writer) = io::pipe().map_err(PipelineError::Pipe)?;
    // The system refuses if the pipes of this user are too large in sum. The pipe then keeps its
    // size.
    let _ = fcntl_setpipe_size(&writer, size_bytes);
    Ok((reader, writer))
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        for stage in &self.programs {
            // A program that has ended and was waited for has no id.
            if let Some(group) = stage.child.id().and_then(|id| Pid::from_raw(id as i32)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// The user's program. A program that is an input of the task is in the sandbox, and not on the
/// `PATH`.
pub(crate) fn program(words: &[String]) -> Command {
    let (name, arguments) = words.split_first().expect("the command line requires a program");
    let sandbox = std::env::var_os("EYAS_SANDBOX").map(|sandbox| Path::new(&sandbox).join(name));
    let mut command = match sandbox.filter(|path| !name.contains('/') && path.is_file()) {
        Some(path) => Command::new(path),
        None => Command::new(name),
    };
    command.args(arguments);
    command
}

/// A command line for a shell.
pub(crate) fn shell(command: &str) -> Command {
    program(&["sh", "-c", command].map(str::to_owned))
}

/// Whether a program is a filter whose exit code says that no line matched.
fn is_filter(program: &str) -> bool {
    FILTERS.contains(&file_name(program))
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// What may be meant by the exit code of a shell, which is that of its last program.
fn of_shell(program: &str, status: ExitStatus) -> &'static str {
    match SHELLS.contains(&file_name(program)) && status.code() == Some(NO_MATCH) {
        true => "; if a filter in it found no match, write `|| test $? -eq 1` after the filter",
        false => "",
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom};
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::time::timeout;

    use super::*;

    /// Runs a pipeline, and returns the output of its last program.
    async fn run(stages: Vec<Stage>, input: &str) -> Result<String, PipelineError> {
        let mut file: File = tempfile::tempfile().unwrap();
        let (mut pipeline, mut pipe) = Pipeline::start(stages, file.try_clone().unwrap().into())?;
        // Writing fails if the program does not read its input, which is allowed.
        let _ = pipe.write_all(input.as_bytes()).await;
        drop(pipe);
        pipeline.wait().await?;
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut output = String::new();
        file.read_to_string(&mut output).unwrap();
        Ok(output)
    }

    fn shells(commands: &[&str]) -> Vec<Stage> {
        commands.iter().map(|command| shell(command).into()).collect()
    }

    #[tokio::test]
    async fn programs_read_what_those_before_write_and_all_have_to_end_well() {
        assert_eq!(run(shells(&["cat", "sort", "tr a b"]), "c\na\n").await.unwrap(), "b\nc\n");
        assert_eq!(run(shells(&["yes", "head -n 1"]), "").await.unwrap(), "y\n");
        for (commands, expected) in [
            (shells(&["cat", "exit 3", "cat"]), "exit code 3"),
            (shells(&["kill -9 $$", "cat"]), "signal 9"),
            (vec![program(&["no-such-program".into()]).into()], "no-such-program"),
        ] {
            let error = run(commands, "x").await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn a_filter_without_a_match_succeeds_and_a_shell_says_what_to_write() {
        let words = |words: &[&str]| {
            vec![program(&words.iter().map(|w| (*w).into()).collect::<Vec<_>>()).into()]
        };
        assert_eq!(run(words(&["grep", "x"]), "a\nx\n").await.unwrap(), "x\n");
        assert_eq!(run(words(&["grep", "x"]), "a\n").await.unwrap(), "");
        assert_eq!(run(words(&["grep", "-c", "x"]), "a\n").await.unwrap(), "0\n");
        let error = run(words(&["grep", "["]), "a\n").await.unwrap_err().to_string();
        assert!(error.contains("exit code 2"), "{error}");
        let error = run(shells(&["grep x"]), "a\n").await.unwrap_err().to_string();
        assert!(
            error.contains("exit code 1; if a filter in it found no match, write `|| "),
            "{error}"
        );
        assert_eq!(run(shells(&["grep x || test $? -eq 1"]), "a\n").await.unwrap(), "");
        let error = run(words(&["false"]), "a\n").await.unwrap_err().to_string();
        assert!(error.ends_with("`false` ended with exit code 1"), "{error}");
    }

    #[tokio::test]
    async fn lines_are_sorted_by_key_and_then_by_all() {
        let scratch = tempfile::tempdir().unwrap();
        let lines = "b\t1\na b\t2\na\t9\na\t10\nä\na\t9\nZ\n";
        let expected = "Z\na\t10\na\t9\na\t9\na b\t2\nb\t1\nä\n";
        let sorted = |command| Stage::from(shell(command)).sorted(scratch.path());
        assert_eq!(run(vec![sorted("cat")], lines).await.unwrap(), expected);
        assert_eq!(run(vec![shell("cat").into(), sorted("cat")], lines).await.unwrap(), expected);
        assert_eq!(
            run(vec![shell("cat").into(), sorted("head -n 1")], lines).await.unwrap(),
            "Z\n"
        );
        let failed =
            run(vec![shell("exit 3").into(), sorted("cat")], lines).await.unwrap_err().to_string();
        assert!(failed.contains("exit code 3"), "{failed}");
    }

    #[tokio::test]
    async fn lines_that_cannot_be_sorted_are_an_error() {
        let stage = Stage::from(shell("cat")).sorted(Path::new("/nowhere"));
        // More than a sorter holds in memory.
        let lines = ["a", "b"].map(|word| word.repeat(70 << 20)).join("\n");
        let error = run(vec![stage], &lines).await.unwrap_err().to_string();
        assert!(error.contains("cannot sort"), "{error}");
    }

    #[tokio::test]
    async fn a_dropped_pipeline_kills_its_processes_and_their_children() {
        let (mut reader, writer) = io::pipe().unwrap();
        drop(Pipeline::start(shells(&["sleep 1000 & sleep 1000"]), writer.into()).unwrap());
        // The pipe ends when no process holds its other end.
        let read = tokio::task::spawn_blocking(move || reader.read(&mut [0]).unwrap());
        assert_eq!(timeout(Duration::from_secs(30), read).await.expect("all are dead").unwrap(), 0);
    }
}
