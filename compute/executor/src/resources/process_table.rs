//! Memory of a task's processes, from `/proc`: where there are no control groups, this is how a
//! task is noticed that uses more memory than it asked for. All tasks of an executor share one view
//! of the processes, so that many tasks do not each read all of `/proc`.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpid};

use crate::process::procfs::{contains_all, environment, processes};

/// The processes of this machine, as they were a moment ago.
#[derive(Default)]
pub(crate) struct ProcessTable {
    seen: Mutex<Option<(Instant, HashMap<i32, ProcessRow>)>>,
}

struct ProcessRow {
    parent: i32,
    group: i32,
    /// The environment of a child of this process, which may be an orphan of a task.
    environment: Vec<u8>,
}

impl ProcessTable {
    /// Memory of a task: of its first process, all processes that come from it, and those with its
    /// variables. Pages of files do not count. Memory that processes share counts once if the sum
    /// of all would be above `limit_bytes`; else it may count for each. The view of the processes
    /// is no older than `max_age`.
    pub fn memory_of(
        &self,
        leader: Pid,
        marks: &[String],
        limit_bytes: Option<u64>,
        max_age: Duration,
    ) -> u64 {
        let members = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.as_ref().is_none_or(|(at, _)| at.elapsed() > max_age) {
                *seen = Some((Instant::now(), rows()));
            }
            let rows = seen.as_ref().map(|(_, rows)| rows).expect("set above");
            members(rows, leader.as_raw_nonzero().get(), marks)
        };
        let used_bytes = members.iter().map(|pid| own_bytes(*pid)).sum();
        if limit_bytes.is_none_or(|limit| used_bytes <= limit) {
            return used_bytes;
        }
        members.into_iter().map(proportional_bytes).sum()
    }
}

/// Processes of a task.
fn members(rows: &HashMap<i32, ProcessRow>, leader: i32, marks: &[String]) -> HashSet<i32> {
    let is_member = |row: &ProcessRow| row.group == leader || contains_all(&row.environment, marks);
    let mut members = HashSet::from([leader]);
    members.extend(rows.iter().filter(|(_, row)| is_member(row)).map(|(pid, _)| *pid));
    loop {
        let children =
            rows.iter().filter(|(_, row)| members.contains(&row.parent)).map(|(pid, _)| *pid);
        let found: Vec<i32> = children.filter(|pid| !members.contains(pid)).collect();
        if found.is_empty() {
            return members;
        }
        members.extend(found);
    }
}

fn rows() -> HashMap<i32, ProcessRow> {
    let this = getpid().as_raw_nonzero().get();
    let row = |process: Pid| {
        let pid = process.as_raw_nonzero().get();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The process's name is in parentheses, and may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // Fields 4 and 5 of proc_pid_stat(5).
        let (parent, group) = (fields.get(1)?.parse().ok()?, fields.get(2)?.parse().ok()?);
        let environment = if parent == this { environment(process) } else { Vec::new() };
        Some((pid, ProcessRow { parent, group, environment }))
    };
    processes().filter_map(row).collect()
}

/// Memory of a process without pages of files; 0 if the process is gone.
fn own_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["RssAnon:", "RssShmem:"].into_iter().filter_map(|name| kib_of(&text, name)).sum::<u64>() * 1024
}

/// The same, but a page that several processes share counts in parts.
fn proportional_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    ["Pss_Anon:", "Pss_Shmem:"].into_iter().filter_map(|name| kib_of(&text, name)).sum::<u64>()
        * 1024
}

/// The first number of kibibytes beside a name.
fn kib_of(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_the_group_and_all_that_come_from_it() {
        let row = |parent, group| ProcessRow { parent, group, environment: Vec::new() };
        let orphan =
            |environment: &str| ProcessRow { environment: environment.into(), ..row(1, 104) };
        let rows = HashMap::from([
            (100, row(1, 100)),
            // In the group of the leader, a child with a session of its own, and its child.
            (101, row(1, 100)),
            (102, row(101, 102)),
            (103, row(102, 102)),
            (104, orphan("TASK=1\0")),
            (205, orphan("TASK=2\0")),
            // Another task.
            (200, row(1, 200)),
            (201, row(200, 200)),
        ]);
        assert_eq!(
            members(&rows, 100, &["TASK=1".into()]),
            HashSet::from([100, 101, 102, 103, 104])
        );
    }

    #[test]
    fn memory_of_a_process_includes_its_allocations() {
        let held = std::hint::black_box(vec![1u8; 32 << 20]);
        let table = ProcessTable::default();
        let used = table.memory_of(getpid(), &[], None, Duration::ZERO);
        assert!(used > held.len() as u64, "{used}");
        // Above the limit, shared memory counts in parts.
        let proportional = table.memory_of(getpid(), &[], Some(1), Duration::ZERO);
        assert!(proportional > held.len() as u64, "{proportional}");
    }
}
