//! A pipeline of programs, as a shell makes one with `|`. The programs are killed together, and the pipeline succeeds
//! only if each program does.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;
use tokio::process::{Child, ChildStdin, Command};

/// Memory that `sort` uses before it writes to disk, in the notation of its option `-S`.
const SORT_MEMORY: &str = "256M";

/// A shell whose last command was killed by signal N ends with the exit code 128 + N.
const SHELL_SIGNAL: i32 = 128;

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
    /// The end of a program cannot be waited for.
    #[error("cannot wait for `{program}`: {source}")]
    Wait {
        /// Name of the program.
        program: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A program failed.
    #[error("`{program}` {}", describe(*.status))]
    Failed {
        /// Name of the program.
        program: String,
        /// The exit code or signal of the program.
        status: ExitStatus,
    },
}

/// Programs that run. Dropping the pipeline kills them, with all processes that they have started.
pub(crate) struct Pipeline {
    programs: Vec<(String, Child)>,
    /// Number of programs that have ended successfully, from the front.
    ended: usize,
}

impl Pipeline {
    /// Starts the programs. The last one writes to `output`. Also returns the pipe from which the first one reads.
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub fn start(commands: Vec<Command>, output: Stdio) -> Result<(Self, ChildStdin), PipelineError> {
        let (mut programs, mut input) = (Vec::<(String, Child)>::new(), None);
        let (count, mut output) = (commands.len(), Some(output));
        for (index, mut command) in commands.into_iter().enumerate() {
            let name = command.as_std().get_program().to_string_lossy().into_owned();
            let failed = |source| PipelineError::Start { program: name.clone(), source };
            let stdin = match programs.last_mut().and_then(|(_, before)| before.stdout.take()) {
                Some(before) => before.try_into().map_err(failed)?,
                None => Stdio::piped(),
            };
            let is_last = index + 1 == count;
            let stdout = output.take_if(|_| is_last).unwrap_or_else(Stdio::piped);
            let mut child = command.stdin(stdin).stdout(stdout).process_group(0).spawn().map_err(failed)?;
            input = input.or(child.stdin.take());
            programs.push((name, child));
        }
        Ok((Pipeline { programs, ended: 0 }, input.expect("the first program has a pipe")))
    }

    /// Waits until all programs have ended. The future may be dropped and the method called again.
    ///
    /// # Errors
    /// If a program failed.
    pub async fn wait(&mut self) -> Result<(), PipelineError> {
        let last = self.programs.len() - 1;
        while let Some((name, program)) = self.programs.get_mut(self.ended) {
            let waited = program.wait().await;
            let status = waited.map_err(|source| PipelineError::Wait { program: name.clone(), source })?;
            // A program that is killed because the next one stopped reading has not failed: `yes | head -n 1` succeeds.
            let pipe = Some(Signal::PIPE.as_raw());
            let is_cut_off = status.signal() == pipe || status.code() == pipe.map(|signal| SHELL_SIGNAL + signal);
            let has_succeeded = status.success() || is_cut_off && self.ended < last;
            if !has_succeeded {
                return Err(PipelineError::Failed { program: name.clone(), status });
            }
            self.ended += 1;
        }
        Ok(())
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        for (_, program) in &self.programs {
            // A program that has ended and was waited for has no id.
            if let Some(group) = program.id().and_then(|id| Pid::from_raw(id as i32)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// The user's program. A program that is an input of the task is in the sandbox, and not on the `PATH`.
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

/// Sorts lines by key, and lines with the same key as a whole, by their bytes. So the output does not depend on the
/// order of the input.
pub(crate) fn sort(scratch: &Path) -> Command {
    let mut command = Command::new("sort");
    command.args(["-t", "\t", "-k", "1,1", "-S", SORT_MEMORY, "-T"]).arg(scratch).env("LC_ALL", "C");
    command
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
    async fn run(commands: Vec<Command>, input: &str) -> Result<String, PipelineError> {
        let mut file: File = tempfile::tempfile().unwrap();
        let (mut pipeline, mut pipe) = Pipeline::start(commands, file.try_clone().unwrap().into())?;
        // Writing fails if the program does not read its input, which is allowed.
        let _ = pipe.write_all(input.as_bytes()).await;
        drop(pipe);
        pipeline.wait().await?;
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut output = String::new();
        file.read_to_string(&mut output).unwrap();
        Ok(output)
    }

    fn shells(commands: &[&str]) -> Vec<Command> {
        commands.iter().map(|command| shell(command)).collect()
    }

    #[tokio::test]
    async fn programs_read_what_those_before_write_and_all_have_to_end_well() {
        assert_eq!(run(shells(&["cat", "sort", "tr a b"]), "c\na\n").await.unwrap(), "b\nc\n");
        assert_eq!(run(shells(&["yes", "head -n 1"]), "").await.unwrap(), "y\n");
        for (commands, expected) in [
            (shells(&["cat", "exit 3", "cat"]), "exit code 3"),
            (shells(&["kill -9 $$", "cat"]), "signal 9"),
            (vec![program(&["no-such-program".into()])], "no-such-program"),
        ] {
            let error = run(commands, "x").await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[tokio::test]
    async fn lines_are_sorted_by_key_and_then_by_all() {
        let scratch = tempfile::tempdir().unwrap();
        let lines = "b\t1\na b\t2\na\t9\na\t10\nä\nZ\n";
        let sorted = "Z\na\t10\na\t9\na b\t2\nb\t1\nä\n";
        assert_eq!(run(vec![sort(scratch.path())], lines).await.unwrap(), sorted);
    }

    #[tokio::test]
    async fn what_is_dropped_is_killed_with_what_it_has_started() {
        let (mut reader, writer) = io::pipe().unwrap();
        drop(Pipeline::start(shells(&["sleep 1000 & sleep 1000"]), writer.into()).unwrap());
        // The pipe ends when no process holds its other end.
        let read = tokio::task::spawn_blocking(move || reader.read(&mut [0]).unwrap());
        assert_eq!(timeout(Duration::from_secs(30), read).await.expect("all are dead").unwrap(), 0);
    }
}
