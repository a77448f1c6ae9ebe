//! Programs one behind the other, each reading what the one before writes: killed together, and well only if all are.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, Command};

/// Most memory that sorting takes before it goes to the disk, as `sort` reads it.
const SORT_MEMORY: &str = "256M";

/// A shell whose last command was killed ends with this and the signal's number.
const SHELL_SIGNAL: i32 = 128;

/// Programs that run. Dropped, they are killed, with whatever they have started.
pub(crate) struct Pipeline {
    programs: Vec<(String, Child)>,
    /// Those before have ended well.
    ended: usize,
}

impl Pipeline {
    /// Starts these, the last of which writes to `output`; and where the first reads.
    ///
    /// # Errors
    /// If one of them cannot be started; which, its text says.
    pub fn start(commands: Vec<Command>, output: Stdio) -> Result<(Self, ChildStdin), String> {
        let (mut programs, mut input) = (Vec::<(String, Child)>::new(), None);
        let (count, mut output) = (commands.len(), Some(output));
        for (place, mut command) in commands.into_iter().enumerate() {
            let name = command.as_std().get_program().to_string_lossy().into_owned();
            let failed = |error: io::Error| format!("cannot start `{name}`: {error}");
            let stdin = match programs.last_mut().and_then(|(_, before)| before.stdout.take()) {
                Some(before) => before.try_into().map_err(failed)?,
                None => Stdio::piped(),
            };
            let is_last = place + 1 == count;
            let stdout = output.take_if(|_| is_last).unwrap_or_else(Stdio::piped);
            let mut child = command.stdin(stdin).stdout(stdout).process_group(0).spawn().map_err(failed)?;
            input = input.or(child.stdin.take());
            programs.push((name, child));
        }
        Ok((Pipeline { programs, ended: 0 }, input.expect("the first has a pipe")))
    }

    /// Waits until all have ended. Dropped before, nothing is lost by it.
    ///
    /// # Errors
    /// Which of them failed, and how.
    pub async fn wait(&mut self) -> Result<(), String> {
        let last = self.programs.len() - 1;
        while let Some((name, program)) = self.programs.get_mut(self.ended) {
            let status = program.wait().await.map_err(|error| format!("cannot wait for `{name}`: {error}"))?;
            // Whom the next one has not read to the end is not to blame for it; how that one ends says the rest.
            let pipe = Some(Signal::PIPE.as_raw());
            let is_cut_off = status.signal() == pipe || status.code() == pipe.map(|signal| SHELL_SIGNAL + signal);
            let is_well = status.success() || is_cut_off && self.ended < last;
            if !is_well {
                return Err(format!("`{name}` {}", how(status)));
            }
            self.ended += 1;
        }
        Ok(())
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        for (_, program) in &self.programs {
            // None: it was waited for.
            if let Some(group) = program.id().and_then(|id| Pid::from_raw(id as i32)) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// A program of the user's: one that was brought along is in the sandbox, not on the path.
pub(crate) fn program(words: &[String]) -> Command {
    let (name, arguments) = words.split_first().expect("the command line has asked for it");
    let sandbox = std::env::var_os("EYAS_SANDBOX").map(|sandbox| Path::new(&sandbox).join(name));
    let mut command = match sandbox.filter(|path| !name.contains('/') && path.is_file()) {
        Some(path) => Command::new(path),
        None => Command::new(name),
    };
    command.args(arguments);
    command
}

/// A shell's command.
pub(crate) fn shell(command: &str) -> Command {
    program(&["sh", "-c", command].map(str::to_owned))
}

/// Sorts lines by their key, those of one key by all of them, bytes as they are: whatever order they come in, they go out
/// in one.
pub(crate) fn sort(scratch: &Path) -> Command {
    let mut command = Command::new("sort");
    command.args(["-t", "\t", "-k", "1,1", "-S", SORT_MEMORY, "-T"]).arg(scratch).env("LC_ALL", "C");
    command
}

fn how(status: ExitStatus) -> String {
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

    /// What the last writes, or which fails.
    async fn run(commands: Vec<Command>, input: &str) -> Result<String, String> {
        let mut file: File = tempfile::tempfile().unwrap();
        let (mut pipeline, mut pipe) = Pipeline::start(commands, file.try_clone().unwrap().into())?;
        // Who does not read does not matter.
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
        assert!(run(shells(&["cat", "exit 3", "cat"]), "x").await.unwrap_err().contains("exit code 3"));
        assert!(run(shells(&["kill -9 $$", "cat"]), "").await.unwrap_err().contains("signal 9"));
        assert!(run(vec![program(&["no-such-program".into()])], "").await.unwrap_err().contains("no-such-program"));
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
        // It ends when nobody has its other end any more.
        let read = tokio::task::spawn_blocking(move || reader.read(&mut [0]).unwrap());
        assert_eq!(timeout(Duration::from_secs(30), read).await.expect("all are dead").unwrap(), 0);
    }
}
