//! Facts about processes of this machine, from `/proc`.

use std::fs::{self, File};
use std::io::Read;

use rustix::process::Pid;

/// Most environments are smaller.
const MOST_ENVIRONMENTS_BYTES: usize = 64 << 10;

/// All processes of this machine.
pub(crate) fn processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids: Vec<_> = entries
        .filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect();
    pids.into_iter()
}

/// When a process was started, in ticks since the boot, and its state, as a letter of
/// proc_pid_stat(5).
pub(crate) fn start_and_state(process: i32) -> Option<(u64, char)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The process's name is in parentheses, and may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // Fields 22 and 3 of proc_pid_stat(5).
    Some((fields.get(19)?.parse().ok()?, fields.first()?.chars().next()?))
}

/// Whether a process has ended, even if it has not been reaped.
pub(crate) fn has_ended(process: Pid) -> bool {
    let state = start_and_state(process.as_raw_nonzero().get()).map(|(_, state)| state);
    matches!(state, None | Some('Z' | 'X'))
}

/// Whether a process has all these variables, each written as `NAME=VALUE`.
#[cfg(test)]
pub(crate) fn has_variables(process: Pid, variables: &[String]) -> bool {
    contains_all(&environment(process), variables)
}

/// The environment of a process; empty if it cannot be read. Its end is missing if the process has
/// executed another program meanwhile, so most environments are read at once.
pub(crate) fn environment(process: Pid) -> Vec<u8> {
    let mut environment = Vec::with_capacity(MOST_ENVIRONMENTS_BYTES);
    if let Ok(mut file) = File::open(format!("/proc/{}/environ", process.as_raw_nonzero())) {
        // After an error, the environment ends with what was read before.
        let _ = file.read_to_end(&mut environment);
    }
    environment
}

/// Whether an environment was read to its end: each variable ends with a zero byte.
pub(crate) fn is_whole(environment: &[u8]) -> bool {
    environment.ends_with(b"\0")
}

/// Whether a process that has no environment may get one: it may just be executing a program. It
/// has not ended, is no thread of the kernel, and has not started before `since`, in ticks since
/// the boot, as services have that have cleared their environment for good.
pub(crate) fn can_have_environment(process: Pid, since: u64) -> bool {
    let number = process.as_raw_nonzero().get();
    start_and_state(number).is_some_and(|(start, state)| start >= since && state != 'Z')
        && fs::read_link(format!("/proc/{number}/exe")).is_ok()
}

/// Whether an environment contains all of the variables. `false` without variables: processes with
/// these variables are signalled, and no list must mean all processes.
pub(crate) fn contains_all(environment: &[u8], variables: &[String]) -> bool {
    let contains = |variable: &String| {
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    !variables.is_empty() && variables.iter().all(contains)
}

#[cfg(test)]
mod tests {
    use rustix::process::getpid;

    use super::*;

    #[test]
    fn without_variables_no_process_matches() {
        assert!(!contains_all(b"A=1\0B=2\0", &[]) && !has_variables(getpid(), &[]));
        assert!(
            contains_all(b"A=1\0B=2\0", &["B=2".into()]) && !contains_all(b"A=1\0", &["A=".into()])
        );
    }

    #[test]
    fn a_running_process_has_not_ended() {
        assert!(!has_ended(getpid()));
    }
}
