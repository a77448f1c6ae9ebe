//! Programs one behind the other, each reading what the one before writes: killed together, and well only if all are.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStdin, Command};

/// Most memory that sorting takes before it goes to the disk, as `sort` reads it.
const SORT_MEMORY: &str = "256M";

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

    /// What the last writes, if that is a pipe.
    ///
    /// # Errors
    /// If it cannot be read outside of an executor of futures.
    pub fn output(&mut self) -> io::Result<Option<std::fs::File>> {
        let output = self.programs.last_mut().and_then(|(_, last)| last.stdout.take());
        output.map(|output| output.into_owned_fd().map(Into::into)).transpose()
    }

    /// Waits until all have ended. Dropped before, nothing is lost by it.
    ///
    /// # Errors
    /// Which of them failed, and how.
    pub async fn wait(&mut self) -> Result<(), String> {
        while let Some((name, program)) = self.programs.get_mut(self.ended) {
            let status = program.wait().await.map_err(|error| format!("cannot wait for `{name}`: {error}"))?;
            if !status.success() {
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
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or(0)),
    }
}
