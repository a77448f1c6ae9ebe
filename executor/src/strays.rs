//! Strays: processes of a task that left its process group, as `setsid`, daemons and GNU `timeout` do. When their parents
//! end they become children of this process, which is how they are found; whose they are, their environment tells. One
//! that has cleared its environment is not found.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, test_kill_process_group, waitpid,
};

/// While strays are killed, others may come from them; they are looked for so often at most, with a pause between.
const SWEEPS: usize = 500;
const PAUSE: Duration = Duration::from_millis(2);

/// Finds strays.
pub(crate) struct Strays {
    /// The children of our first thread, to which orphans come; all others are of threads of their own.
    orphans: File,
    /// One looks at a time, so that none signals what another has just reaped.
    sweeping: Mutex<()>,
}

impl Strays {
    /// From now on orphans come to this process.
    pub fn adopt() -> io::Result<Self> {
        let process = getpid();
        set_child_subreaper(Some(process))?;
        let number = process.as_raw_nonzero();
        let orphans = File::open(format!("/proc/{number}/task/{number}/children"))?;
        Ok(Strays { orphans, sweeping: Mutex::new(()) })
    }

    /// Kills all strays that have these variables in their environment. Their `group` was killed; when the last of it is
    /// gone, all its orphans have come.
    pub fn kill(&self, group: Pid, variables: &[String]) {
        for _ in 0..SWEEPS {
            let is_left = || test_kill_process_group(group).is_ok();
            // Most often there is nothing.
            if self.orphans().is_empty() && !is_left() {
                return;
            }
            let found = {
                let _alone = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
                let orphans = self.orphans().into_iter();
                let alive = orphans.filter(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
                let ours = alive.filter(|pid| has_variables(*pid, variables));
                ours.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
            };
            if found == 0 && !is_left() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
        tracing::warn!(?variables, "some processes that a task has left cannot be killed");
    }

    fn orphans(&self) -> Vec<Pid> {
        let mut text = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = self.orphans.read_at(&mut piece, text.len() as u64) {
            text.extend_from_slice(&piece[..count]);
        }
        let numbers = str::from_utf8(&text).unwrap_or_default().split_ascii_whitespace();
        numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?)).collect()
    }
}

/// Whether a process has all these variables, each with its value.
pub(crate) fn has_variables(process: Pid, variables: &[String]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
    variables.iter().all(|variable| environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn strays_of_one_task_are_killed_with_what_they_started_and_others_live() {
        let strays = Strays::adopt().unwrap();
        let start = |task: &str| {
            // Two generations outside the group, whose parents are gone when the shell is.
            let script = "setsid sh -c 'sleep 1000 >&- 2>&- & echo $!; exec >&- 2>&-; wait' &
                          setsid sleep 1001 >&- 2>&- & echo $!";
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("STRAY_TEST", task).process_group(0).stdout(Stdio::piped());
            let child = command.spawn().unwrap();
            let group = Pid::from_child(&child);
            let output = child.wait_with_output().unwrap();
            let numbers = String::from_utf8(output.stdout).unwrap();
            let pids = numbers.split_whitespace().map(|number| Pid::from_raw(number.parse().unwrap()).unwrap());
            (group, pids.collect::<Vec<_>>())
        };
        let ((group, ours), (other_group, others)) = (start("ours"), start("others"));
        assert_eq!((ours.len(), others.len()), (2, 2));
        strays.kill(group, &["STRAY_TEST=ours".into()]);
        assert!(!ours.iter().any(|pid| has_variables(*pid, &["STRAY_TEST=ours".into()])));
        assert!(others.iter().all(|pid| has_variables(*pid, &["STRAY_TEST=others".into()])));
        strays.kill(other_group, &["STRAY_TEST=others".into()]);
        assert!(!others.iter().any(|pid| has_variables(*pid, &["STRAY_TEST=others".into()])));
    }
}
