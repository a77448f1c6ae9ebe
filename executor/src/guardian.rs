//! A guardian outlives its executor by a moment: when the executor is gone without a farewell (`kill -9`, a crash), it
//! kills what the executor's tasks left running and removes their sandboxes.
//!
//! It is a process of its own, started by the executor, and waits on a pipe that closes when the executor ends.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox;
use crate::strays::has_variables;
use crate::work::{MARKER, TASK};

/// What the executor says when it has left nothing behind.
const FAREWELL: &[u8] = b"done";
/// Processes may start others and write files while being killed; the search is repeated until it finds none, so often at
/// most, with a pause between.
const SWEEPS: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// The executor's end of the pipe.
pub(crate) struct Guardian {
    child: Child,
    pipe: ChildStdin,
}

impl Guardian {
    /// Starts a guardian: `command`, then the marker and the folder with the sandboxes.
    pub fn start(command: &[String], marker: &str, sandboxes: &Path) -> io::Result<Self> {
        let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        // In a group of its own: an interrupt at the terminal is not for it. And of no task, if this executor is in one.
        command.args(args).arg(marker).arg(sandboxes).process_group(0).env_remove(MARKER).env_remove(TASK);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Guardian { child, pipe })
    }

    /// Nothing runs any more: the guardian may go.
    pub fn dismiss(mut self) {
        let said = self.pipe.write_all(FAREWELL);
        drop(self.pipe);
        if said.is_ok() {
            let _ = self.child.wait();
        }
    }
}

/// What a guardian does: waits for the executor's end, then cleans up after it. `input` is its standard input.
pub fn guard(mut input: impl Read, marker: &str, sandboxes: &Path) {
    let mut said = Vec::new();
    let _ = input.read_to_end(&mut said);
    if said == FAREWELL {
        return;
    }
    for _ in 0..SWEEPS {
        let killed = kill_marked(marker);
        // What was just killed may still be writing.
        let is_removed = sandbox::remove(sandboxes).is_ok();
        // The folder that they were in, unless a new executor has others there.
        let _ = sandboxes.parent().map(std::fs::remove_dir);
        if killed == 0 && is_removed {
            break;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Kills every process whose environment has the marker; how many there were.
fn kill_marked(marker: &str) -> usize {
    let variable = [format!("{MARKER}={marker}")];
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let marked = pids.filter_map(Pid::from_raw).filter(|pid| has_variables(*pid, &variable));
    marked.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_executor_left_is_killed() {
        let marker = format!("guardian-test-{}", std::process::id());
        let mut left = Command::new("sleep").arg("1000").env(MARKER, &marker).spawn().unwrap();
        let mut other = Command::new("sleep").arg("1000").env(MARKER, "another").spawn().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let sandboxes = folder.path().join("sandboxes").join(&marker);
        std::fs::create_dir_all(&sandboxes).unwrap();
        guard(io::empty(), &marker, &sandboxes);
        assert!(!left.wait().unwrap().success());
        assert!(other.try_wait().unwrap().is_none(), "another executor's task was killed");
        assert!(!sandboxes.parent().unwrap().exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn after_a_farewell_nothing_is_touched() {
        let sandboxes = tempfile::tempdir().unwrap();
        guard(FAREWELL, "nobody", sandboxes.path());
        assert!(sandboxes.path().exists());
    }
}
