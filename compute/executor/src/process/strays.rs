//! Strays: processes of a task that have left its process group, as `setsid`, daemons and GNU
//! `timeout` do. When their parents end, they become children of this process, which is how they
//! are found. Their environment tells which task they belong to; a process that has cleared its
//! environment is not found.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper, test_kill_process_group, waitpid,
};

use super::procfs::{
    can_have_environment, contains_all, environment, is_whole, processes, start_and_state,
};

/// While strays are killed, they may start others. The search is repeated up to this number of
/// times, with [`PAUSE`] between two searches.
const SWEEPS: usize = 500;
const PAUSE: Duration = Duration::from_millis(2);
/// Searches that look again at a process without an environment.
const UNCLEAR_SWEEPS: usize = 5;
/// A process that executes another program is looked at so often until it has its environment.
const UNCLEAR_LOOKS: usize = 50;

/// Finds and kills strays.
pub(crate) struct Strays {
    /// The list of children of this process's first thread, the new parent of orphans. All other
    /// children belong to other threads.
    orphans: File,
    /// One search at a time, so that no search signals a process that another one has just reaped.
    sweeping: Mutex<()>,
}

impl Strays {
    /// Makes this process the parent of orphans.
    pub fn adopt() -> io::Result<Self> {
        let process = getpid();
        let number = process.as_raw_nonzero();
        // A kernel without this file cannot list orphans; they then keep their usual parent.
        let orphans = File::open(format!("/proc/{number}/task/{number}/children"))?;
        set_child_subreaper(Some(process))?;
        Ok(Strays { orphans, sweeping: Mutex::new(()) })
    }

    /// Kills all strays that have these variables in their environment. Their process `group` was
    /// killed before; once its last process is gone, all its orphans are children of this process.
    /// Whether none is left.
    pub fn kill(&self, group: Pid, variables: &[String]) -> bool {
        let mut killed = BTreeSet::new();
        for sweep in 0..SWEEPS {
            // The group first: once its last process has ended, its orphans are here.
            let is_left = test_kill_process_group(group).is_ok();
            // The usual case.
            if self.orphans().is_empty() && !is_left {
                return true;
            }
            let mut is_unsettled = is_left;
            let alone = self.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
            for pid in self.orphans() {
                if !matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)) {
                    continue;
                }
                let environment = environment(pid);
                if contains_all(&environment, variables) {
                    let _ = kill_process(pid, Signal::KILL);
                    killed.insert(pid.as_raw_nonzero());
                }
                // A killed process keeps its children for a while, and has no environment. A
                // process that executes another program has none for a moment.
                is_unsettled |= killed.contains(&pid.as_raw_nonzero())
                    || !is_whole(&environment) && sweep < UNCLEAR_SWEEPS;
            }
            drop(alone);
            if !is_unsettled {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        tracing::warn!(?variables, "cannot kill some processes that a task has left");
        false
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

/// Sends a signal to all processes with these variables, also to those in their task's process
/// group. Repeats the search until it finds no new process. Never signals this process.
pub(crate) fn signal_marked(variables: &[String], signal: Signal) {
    if variables.is_empty() {
        return;
    }
    let this = getpid();
    // Processes of tasks are younger than this one.
    let own_start = start_and_state(this.as_raw_nonzero().get()).map_or(0, |(start, _)| start);
    let mut signalled = BTreeSet::new();
    for _ in 0..SWEEPS {
        let mut is_settled = true;
        let mut unclear = Vec::new();
        for pid in processes() {
            if pid == this || signalled.contains(&pid.as_raw_nonzero().get()) {
                continue;
            }
            match signal_if_marked(pid, variables, signal) {
                Mark::Signalled => {
                    signalled.insert(pid.as_raw_nonzero().get());
                    is_settled = false;
                }
                Mark::Unclear => unclear.push(pid),
                Mark::Other => {}
            }
        }
        // A process that executes another program has no environment for a moment.
        for _ in 0..UNCLEAR_LOOKS {
            unclear.retain(|pid| match signal_if_marked(*pid, variables, signal) {
                Mark::Signalled => {
                    signalled.insert(pid.as_raw_nonzero().get());
                    is_settled = false;
                    false
                }
                Mark::Unclear => can_have_environment(*pid, own_start),
                Mark::Other => false,
            });
            if unclear.is_empty() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        if is_settled {
            return;
        }
    }
    tracing::warn!(
        ?variables,
        "some processes of a task start others faster than they can be signalled"
    );
}

/// What the environment of a process says.
enum Mark {
    Signalled,
    /// It has none, or the end of it is missing.
    Unclear,
    Other,
}

fn signal_if_marked(pid: Pid, variables: &[String], signal: Signal) -> Mark {
    // The descriptor comes first, so that the signal goes to the process whose environment was
    // read.
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return Mark::Other };
    let environment = environment(pid);
    if contains_all(&environment, variables) && pidfd_send_signal(&held, signal).is_ok() {
        return Mark::Signalled;
    }
    if is_whole(&environment) { Mark::Other } else { Mark::Unclear }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    use super::super::procfs::has_variables;
    use super::*;

    #[test]
    fn a_process_that_executes_another_program_is_signalled() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("again");
        std::fs::write(&script, "exec sh \"$0\"").unwrap();
        let mut again = Command::new("sh");
        again.arg(&script).env("STRAY_TEST", "again").process_group(0);
        let mut child = again.spawn().unwrap();
        let marks = ["STRAY_TEST=again".to_owned()];
        let state = || start_and_state(child.id() as i32).map(|(_, state)| state);
        for round in 0..100 {
            signal_marked(&marks, Signal::STOP);
            let deadline = Instant::now() + Duration::from_secs(30);
            while state() != Some('T') {
                assert!(Instant::now() < deadline, "round {round}: it was missed");
                std::thread::sleep(PAUSE);
            }
            signal_marked(&marks, Signal::CONT);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn strays_of_one_task_are_killed_with_what_they_started_and_others_live() {
        let strays = Strays::adopt().unwrap();
        let start = |task: &str| {
            // Two generations outside the group, whose parents are gone when the shell is.
            let script = "setsid sh -c 'sleep 1000 >&- 2>&- & echo $!; exec >&- 2>&-; wait' &
                          setsid sleep 1001 >&- 2>&- & echo $!";
            let mut command = Command::new("sh");
            command
                .args(["-c", script])
                .env("STRAY_TEST", task)
                .process_group(0)
                .stdout(Stdio::piped());
            let child = command.spawn().unwrap();
            let group = Pid::from_child(&child);
            let output = child.wait_with_output().unwrap();
            let numbers = String::from_utf8(output.stdout).unwrap();
            let pids = numbers
                .split_whitespace()
                .map(|number| Pid::from_raw(number.parse().unwrap()).unwrap());
            (group, pids.collect::<Vec<_>>())
        };
        let ((group, ours), (other_group, others)) = (start("ours"), start("others"));
        assert_eq!((ours.len(), others.len()), (2, 2));
        assert!(strays.kill(group, &["STRAY_TEST=ours".into()]));
        assert!(!ours.iter().any(|pid| has_variables(*pid, &["STRAY_TEST=ours".into()])));
        assert!(others.iter().all(|pid| has_variables(*pid, &["STRAY_TEST=others".into()])));
        assert!(strays.kill(other_group, &["STRAY_TEST=others".into()]));
        assert!(!others.iter().any(|pid| has_variables(*pid, &["STRAY_TEST=others".into()])));
    }
}
