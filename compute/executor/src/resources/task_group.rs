//! Control groups of tasks. Each slot has a group that its tasks use one after another; a task that
//! asks for memory has a group of its own, because memory that an earlier task has left in a shared
//! folder would count to it.
//!
//! In version 1 the thread of a slot is a member of the slot's group, and the processes that the
//! thread starts are members from their start, so a task costs nothing. In version 2 only whole
//! processes can be members, and moving one takes the kernel some milliseconds. So there only tasks
//! with groups of their own are in groups.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use thiserror::Error;

use super::delegation;
use super::limit_mode::LimitMode;
use super::memory_files::{GroupUsage, GroupVersion, set};
use crate::leftovers::cgroup;

/// Processes may start others while they are killed. The search is repeated up to this number of
/// times, with [`PAUSE`] between two searches.
const SWEEPS: usize = 500;
const PAUSE: Duration = Duration::from_millis(2);
/// Period of a processor quota, microseconds.
const QUOTA_PERIOD_US: u64 = 100_000;
/// The kernel's smallest quota, microseconds.
const MIN_QUOTA_US: u64 = 1_000;

/// Why there are no groups of tasks.
#[derive(Debug, Error)]
pub(crate) enum NoTaskGroups {
    #[error("this executor was told not to use them")]
    Unwanted,
    #[error("no controller `memory` of control groups is available to this process")]
    Memory,
    #[error("cannot use {file}: {source}")]
    Io { file: String, source: io::Error },
}

/// The folders in which the groups of an executor's tasks are.
pub(crate) struct TaskGroups {
    version: GroupVersion,
    memory: PathBuf,
    /// The same folder in version 2; `None` if processors cannot be limited.
    cpu: Option<PathBuf>,
    /// Number of groups made so far.
    made: AtomicU64,
}

/// The groups of one slot. They belong to the slot's thread, which is a member in version 1.
#[derive(Default)]
pub(crate) struct SlotGroups {
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
    cpus_milli: Option<u32>,
    counts_peak: bool,
}

/// The group of one task.
pub(crate) struct TaskGroup {
    version: GroupVersion,
    folder: PathBuf,
    entrances: Vec<File>,
}

pub(super) fn at(file: &Path) -> impl FnOnce(io::Error) -> NoTaskGroups + use<> {
    let file = file.display().to_string();
    move |source| NoTaskGroups::Io { file, source }
}

impl TaskGroups {
    /// Makes the folders for an executor with these processors.
    ///
    /// # Errors
    /// If the system does not let this process do so.
    pub fn make(
        mode: LimitMode,
        executor: &str,
        capacity_milli: u32,
        is_gone: &dyn Fn(&str) -> bool,
    ) -> Result<Self, NoTaskGroups> {
        if !matches!(mode, LimitMode::Auto | LimitMode::Cgroup) {
            return Err(NoTaskGroups::Unwanted);
        }
        match cgroup::own_folder("memory") {
            Some(parent) => TaskGroups::in_version_1(&parent, executor, capacity_milli, is_gone),
            None => TaskGroups::in_version_2(executor),
        }
    }

    fn in_version_1(
        parent: &Path,
        executor: &str,
        capacity_milli: u32,
        is_gone: &dyn Fn(&str) -> bool,
    ) -> Result<Self, NoTaskGroups> {
        let make = |parent: &Path| -> io::Result<PathBuf> {
            cgroup::remove_of_gone(parent, is_gone);
            let folder = parent.join(cgroup::group_name(executor));
            fs::create_dir(&folder)?;
            // This thread ends soon; slots' threads will be moved in the same way.
            set(&folder, "tasks", "0").inspect_err(|_| drop(fs::remove_dir(&folder)))?;
            Ok(folder)
        };
        let memory = make(parent).map_err(at(parent))?;
        let cpu = cgroup::own_folder("cpu").and_then(|parent| {
            let folder = make(&parent).ok()?;
            // All tasks together have the weight of this executor's processors against other
            // processes.
            let _ = set(&folder, "cpu.shares", &shares(capacity_milli));
            Some(folder)
        });
        Ok(TaskGroups { version: GroupVersion::One, memory, cpu, made: AtomicU64::new(0) })
    }

    fn in_version_2(executor: &str) -> Result<Self, NoTaskGroups> {
        let delegated = delegation::begin(executor)?;
        let cpu = delegated.has_cpu.then(|| delegated.folder.clone());
        Ok(TaskGroups {
            version: GroupVersion::Two,
            memory: delegated.folder,
            cpu,
            made: AtomicU64::new(0),
        })
    }

    /// The version, and whether processors are limited too, for people.
    pub fn describe(&self) -> String {
        let version = match self.version {
            GroupVersion::One => 1,
            GroupVersion::Two => 2,
        };
        let what = if self.cpu.is_some() { "memory and processors" } else { "memory" };
        format!("{what} of tasks are limited by control groups, version {version}")
    }

    /// Whether slots have groups: in version 1.
    pub fn has_slots(&self) -> bool {
        self.version == GroupVersion::One
    }

    /// Whether processors can be limited.
    pub fn has_cpu(&self) -> bool {
        self.cpu.is_some()
    }

    /// Has the calling thread run tasks of this number of processors in the slot's group.
    ///
    /// # Errors
    /// If the group cannot be made.
    pub fn enter_slot(
        &self,
        slot: &mut SlotGroups,
        cpus_milli: u32,
        has_quota: bool,
    ) -> io::Result<()> {
        if self.version == GroupVersion::Two {
            return Ok(());
        }
        if slot.memory.is_none() {
            let name = format!("slot-{}", self.made.fetch_add(1, Ordering::Relaxed) + 1);
            slot.memory = Some(enter(&self.memory.join(&name))?);
        }
        // On a busy machine, the kernel gives a group too little at first when its processes begin
        // to run, which makes short tasks slow. Tasks with one processor each share fairly without
        // groups.
        if slot.cpu.is_none() && (has_quota || cpus_milli != 1000) {
            let name = format!("slot-{}", self.made.fetch_add(1, Ordering::Relaxed) + 1);
            slot.cpu = self.cpu.as_ref().map(|cpu| enter(&cpu.join(&name))).transpose()?;
        }
        if let (Some(cpu), true) = (&slot.cpu, slot.cpus_milli != Some(cpus_milli)) {
            set(cpu, "cpu.shares", &shares(cpus_milli))?;
            if has_quota {
                let quota_us =
                    quota_us(cpus_milli).map_or("-1".into(), |quota_us| quota_us.to_string());
                set(cpu, "cpu.cfs_period_us", &QUOTA_PERIOD_US.to_string())?;
                set(cpu, "cpu.cfs_quota_us", &quota_us)?;
            }
            slot.cpus_milli = Some(cpus_milli);
        }
        if let Some(memory) = &slot.memory {
            slot.counts_peak = self.version.reset_peak(memory);
        }
        Ok(())
    }

    /// Makes the group of a task that asks for memory.
    ///
    /// # Errors
    /// If the group cannot be made.
    pub fn task_group(&self, cpus_milli: u32, has_quota: bool) -> io::Result<TaskGroup> {
        let folder =
            self.memory.join(format!("task-{}", self.made.fetch_add(1, Ordering::Relaxed) + 1));
        fs::create_dir(&folder)?;
        let fill = || {
            let members = match self.version {
                GroupVersion::One => "tasks",
                GroupVersion::Two => {
                    if self.cpu.is_some() {
                        set(&folder, "cpu.weight", &weight(cpus_milli))?;
                    }
                    if let (true, true, Some(quota_us)) =
                        (self.cpu.is_some(), has_quota, quota_us(cpus_milli))
                    {
                        set(&folder, "cpu.max", &format!("{quota_us} {QUOTA_PERIOD_US}"))?;
                    }
                    "cgroup.procs"
                }
            };
            OpenOptions::new().write(true).open(folder.join(members))
        };
        match fill() {
            Ok(entrance) => {
                Ok(TaskGroup { version: self.version, folder, entrances: vec![entrance] })
            }
            Err(e) => {
                let _ = fs::remove_dir(&folder);
                Err(e)
            }
        }
    }
}

/// Makes a group of version 1 and moves the calling thread into it.
fn enter(folder: &Path) -> io::Result<PathBuf> {
    fs::create_dir(folder)?;
    set(folder, "tasks", "0").inspect_err(|_| drop(fs::remove_dir(folder)))?;
    Ok(folder.to_owned())
}

/// The weight of processors in version 1.
fn shares(cpus_milli: u32) -> String {
    (u64::from(cpus_milli) * 1024 / 1000).clamp(2, 262_144).to_string()
}

/// The weight of processors in version 2.
fn weight(cpus_milli: u32) -> String {
    (cpus_milli / 10).clamp(1, 10_000).to_string()
}

/// A quota of processors; `None` for tasks that ask for none.
fn quota_us(cpus_milli: u32) -> Option<u64> {
    let quota_us = u64::from(cpus_milli) * QUOTA_PERIOD_US / 1000;
    (quota_us > 0).then_some(quota_us.max(MIN_QUOTA_US))
}

impl SlotGroups {
    /// Whether the slot's tasks are in a group that counts their memory.
    pub fn has_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// The memory of the slot's present task.
    pub fn usage(&self) -> Option<GroupUsage> {
        let usage = GroupVersion::One.usage(self.memory.as_ref()?)?;
        Some(GroupUsage { peak_bytes: usage.peak_bytes.filter(|_| self.counts_peak), ..usage })
    }

    /// Kills the processes that a task has left in the group.
    pub fn kill_left(&self) {
        if let Some(memory) = &self.memory {
            kill_members(memory);
        }
    }
}

impl Drop for SlotGroups {
    fn drop(&mut self) {
        for folder in [self.memory.take(), self.cpu.take()].into_iter().flatten() {
            // The thread goes to the group in which the executor was started, which is not removed.
            // If something fails here, the group is removed after the end of the executor.
            let _ = folder.ancestors().nth(2).map(|outer| set(outer, "tasks", "0"));
            let _ = fs::remove_dir(&folder);
        }
    }
}

impl TaskGroup {
    /// Files to which a process writes 0 to become a member.
    pub fn entrances(&self) -> &[File] {
        &self.entrances
    }

    /// Limits the memory of all members together.
    ///
    /// # Errors
    /// If the members use more already, in version 1.
    pub fn limit(&self, memory_bytes: u64) -> io::Result<()> {
        self.version.limit(&self.folder, memory_bytes)
    }

    pub fn usage(&self) -> Option<GroupUsage> {
        self.version.usage(&self.folder)
    }
}

impl Drop for TaskGroup {
    /// Kills all members, and removes the group.
    fn drop(&mut self) {
        cgroup::kill(&self.folder);
        kill_members(&self.folder);
        // A process that was just killed is still a member for a moment.
        for _ in 0..SWEEPS {
            if cgroup::remove(&self.folder) {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Kills all members of a group but this process, one by one, until there is none.
fn kill_members(folder: &Path) {
    let this = getpid();
    // The end of the path is in `/proc/PID/cgroup`, and no other group has it.
    let name = folder.iter().rev().take(2).filter_map(|part| part.to_str()).collect::<Vec<_>>();
    let name = name.into_iter().rev().collect::<Vec<_>>().join("/");
    for _ in 0..SWEEPS {
        let members = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let members = members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
        let mut is_clear = true;
        for member in members.filter(|member| *member != this) {
            is_clear = false;
            // The descriptor comes first, so that the signal goes to the process that was examined.
            let Ok(held) = pidfd_open(member, PidfdFlags::empty()) else { continue };
            let groups = fs::read_to_string(format!("/proc/{}/cgroup", member.as_raw_nonzero()));
            if groups.is_ok_and(|groups| groups.lines().any(|line| line.ends_with(&name))) {
                let _ = pidfd_send_signal(&held, Signal::KILL);
            }
        }
        if is_clear {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    tracing::warn!("cannot kill some processes in the control group {}", folder.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_become_weights_and_quotas() {
        assert_eq!(
            (shares(1000), shares(500), shares(0)),
            ("1024".into(), "512".into(), "2".into())
        );
        assert_eq!((weight(1000), weight(500), weight(0)), ("100".into(), "50".into(), "1".into()));
        assert_eq!((quota_us(2500), quota_us(1), quota_us(0)), (Some(250_000), Some(1_000), None));
    }
}
