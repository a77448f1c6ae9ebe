//! Strays: processes of a task that left its process group, as `setsid`, daemons and GNU `timeout` do. When their parents
//! end they become children of this process, which is how they are found; whose they are, their environment tells. One
//! that has cleared its environment is not found.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, set_child_subreaper,
    test_kill_process_group, waitpid,
};

/// While strays are killed, others may come from them; they are looked for so often at most, with a pause between.
const SWEEPS: usize = 500;
const PAUSE: Duration = Duration::from_millis(2);
/// A process without an environment is looked at again so often.
const UNCLEAR_SWEEPS: usize = 5;

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
        let number = process.as_raw_nonzero();
        // Where this is not there (a kernel without it), orphans are better off with their usual parent.
        let orphans = File::open(format!("/proc/{number}/task/{number}/children"))?;
        set_child_subreaper(Some(process))?;
        Ok(Strays { orphans, sweeping: Mutex::new(()) })
    }

    /// Kills all strays that have these variables in their environment. Their `group` was killed; when the last of it is
    /// gone, all its orphans have come.
    pub fn kill(&self, group: Pid, variables: &[String]) {
        let mut killed = BTreeSet::new();
        for sweep in 0..SWEEPS {
            // The group first: when the last of it has ended, its orphans are here.
            let is_left = test_kill_process_group(group).is_ok();
            // Most often there is nothing.
            if self.orphans().is_empty() && !is_left {
                return;
            }
            let mut is_unsettled = is_left;
            let alone = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
            for pid in self.orphans() {
                if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
                    continue;
                }
                let environment = environment(pid);
                if has(&environment, variables) {
                    let _ = kill_process(pid, Signal::KILL);
                    killed.insert(pid.as_raw_nonzero());
                }
                // What was killed has its children for a while yet, and no environment; what starts another program has
                // none for a moment.
                is_unsettled |=
                    killed.contains(&pid.as_raw_nonzero()) || environment.is_empty() && sweep < UNCLEAR_SWEEPS;
            }
            drop(alone);
            if !is_unsettled {
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

/// Sends a signal to all processes that have these variables, wherever they are, those in their task's group among them.
/// While they are looked for, others may come from them: until none is new. This process is never one of them.
pub(crate) fn signal_marked(variables: &[String], signal: Signal) {
    if variables.is_empty() {
        return;
    }
    let this = getpid();
    let mut signalled = BTreeSet::new();
    for _ in 0..SWEEPS {
        let mut is_settled = true;
        for pid in processes() {
            if pid == this || signalled.contains(&pid.as_raw_nonzero().get()) {
                continue;
            }
            // Held first, so that what is signalled is what was looked at.
            let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if has_variables(pid, variables) && pidfd_send_signal(&held, signal).is_ok() {
                signalled.insert(pid.as_raw_nonzero().get());
                is_settled = false;
            }
        }
        if is_settled {
            return;
        }
    }
    tracing::warn!(?variables, "some processes of a task start others faster than they are signalled");
}

/// All processes that there are now.
pub(crate) fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids: Vec<_> =
        entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect();
    pids.into_iter()
}

/// Whether a process has ended, though it may not be reaped.
pub(crate) fn has_ended(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    matches!(state, None | Some('Z' | 'X'))
}

/// Whether a process has all these variables, each with its value.
pub(crate) fn has_variables(process: Pid, variables: &[String]) -> bool {
    has(&environment(process), variables)
}

fn environment(process: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default()
}

/// Without variables it is nobody: signals are sent to whoever has them.
fn has(environment: &[u8], variables: &[String]) -> bool {
    !variables.is_empty()
        && variables
            .iter()
            .all(|variable| environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn without_variables_it_is_nobody() {
        assert!(!has(b"A=1\0B=2\0", &[]) && !has_variables(getpid(), &[]));
        assert!(has(b"A=1\0B=2\0", &["B=2".into()]) && !has(b"A=1\0", &["A=".into()]));
    }

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
