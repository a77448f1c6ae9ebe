//! Resources that tasks hold. Memory and processors of each task are limited and measured here, by
//! control groups where this process may make them, or else by looking at the task's processes from
//! time to time. `core/node` decides which GPUs and cores a task has; here is what that means to
//! the system.
//!
//! | part | contents |
//! | --- | --- |
//! | `limit_mode` | how limits are kept, as configured |
//! | `task_group` | groups of slots, and of tasks that ask for memory |
//! | `delegation` | controllers of version 2 for groups of tasks |
//! | `memory_files` | limits and counters of a group's memory, in both versions of control groups |
//! | `gpus` | GPUs of the node, and the variables by which a task gets its own |
//! | `topology` | the cores that this process may use |
//! | `process_table` | memory of all processes of a task, from `/proc` |

use std::fs::File;
use std::time::{Duration, Instant};

use eyas_types::Resources;
use eyas_types::units::format_bytes;
use rustix::process::Pid;
use rustix::thread::CpuSet;

pub(crate) mod delegation;
pub(crate) mod gpus;
pub(crate) mod limit_mode;
pub(crate) mod memory_files;
pub(crate) mod process_table;
pub(crate) mod task_group;
pub(crate) mod topology;

use limit_mode::{LimitMode, LimitOptions};
use memory_files::GroupUsage;
use process_table::ProcessTable;
use task_group::{SlotGroups, TaskGroup, TaskGroups};

/// Time between two looks at a task's memory while its limit is kept by looking.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time between two looks at a task's memory otherwise: only for its peak, and for processes that
/// the kernel killed.
const PEAK_EVERY: Duration = Duration::from_secs(1);
/// Time until the first look at a task in a group. The time until the next one is twice as long
/// each time, up to [`PEAK_EVERY`].
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// How this executor keeps the limits of tasks.
pub(crate) struct TaskResources {
    options: LimitOptions,
    table: ProcessTable,
}

/// A task that has used more memory than it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryExcess {
    pub used_bytes: u64,
    pub asked_bytes: u64,
    /// Whether the kernel has refused more memory and killed a process.
    pub by_kernel: bool,
}

impl MemoryExcess {
    /// The reason of the task's failure, for people.
    pub fn reason(self) -> String {
        let (used, asked) = (format_bytes(self.used_bytes), format_bytes(self.asked_bytes));
        let what = match self.by_kernel {
            true => format!(
                "it needed more memory when it used {used} of the {asked} that it asked for"
            ),
            false => format!("it used {used} of memory and asked for {asked}"),
        };
        format!("{what}: ask for more with --memory SIZE (`memory` in job files)")
    }
}

/// The limits of one run of a task, which are kept while it runs.
pub(crate) struct RunLimits<'a> {
    mode: LimitMode,
    /// A limit of memory.
    memory_bytes: Option<u64>,
    cores: &'a [u32],
    /// The group of this task alone.
    own: Option<TaskGroup>,
    /// The group of the slot, with earlier tasks' cached files.
    slot: &'a mut SlotGroups,
    table: &'a ProcessTable,
    /// Time between the next two looks.
    look_every: Duration,
    next_look: Instant,
    /// Whether the kernel could not limit the memory of the group.
    is_unlimited: bool,
    sampled_bytes: u64,
    /// Most cached files of the group that were seen.
    cached_bytes: u64,
}

impl TaskResources {
    pub fn new(options: LimitOptions) -> Self {
        TaskResources { options, table: ProcessTable::default() }
    }

    /// Prepares the limits of a task that is going to run in this thread's slot, with `groups` if
    /// there are any, and pinned to `cores` if there are any. A worker is in a group of its own, as
    /// the slot's group is emptied after each command.
    ///
    /// # Errors
    /// If the task's group cannot be made.
    pub fn prepare<'a>(
        &'a self,
        groups: Option<&TaskGroups>,
        slot: &'a mut SlotGroups,
        need: &Resources,
        cores: &'a [u32],
        is_worker: bool,
    ) -> std::io::Result<RunLimits<'a>> {
        let has_cpu_quota = self.options.has_cpu_quota;
        let mut own = None;
        if let Some(groups) = groups {
            groups.enter_slot(slot, need.cpus_milli, has_cpu_quota)?;
            let has_own =
                self.memory_limit(true, need).is_some() || is_worker && groups.has_slots();
            own = has_own.then(|| groups.task_group(need.cpus_milli, has_cpu_quota)).transpose()?;
        }
        Ok(self.resume(groups.is_some(), slot, own, need, cores))
    }

    /// The limits of a further call of a worker, which is in the group `own` if it has asked for
    /// memory.
    pub fn resume<'a>(
        &'a self,
        has_groups: bool,
        slot: &'a mut SlotGroups,
        own: Option<TaskGroup>,
        need: &Resources,
        cores: &'a [u32],
    ) -> RunLimits<'a> {
        let mode = if has_groups { LimitMode::Cgroup } else { self.options.mode };
        let memory_bytes = self.memory_limit(has_groups, need);
        let look_every = match memory_bytes {
            _ if own.is_some() || slot.has_memory() => FIRST_LOOK,
            Some(_) => LOOK_EVERY,
            None => PEAK_EVERY,
        };
        let (next_look, table) = (Instant::now() + look_every, &self.table);
        RunLimits {
            mode,
            memory_bytes,
            cores,
            own,
            slot,
            table,
            look_every,
            next_look,
            is_unlimited: false,
            sampled_bytes: 0,
            cached_bytes: 0,
        }
    }

    fn memory_limit(&self, has_groups: bool, need: &Resources) -> Option<u64> {
        let is_off = !has_groups && self.options.mode == LimitMode::Off;
        Some(need.memory_bytes).filter(|bytes| *bytes > 0 && !is_off)
    }
}

/// One of several nearly equal parts of a list, by its number from 0.
pub fn part<T: Clone>(all: &[T], number: usize, of: usize) -> Vec<T> {
    let of = of.max(1);
    let number = number.min(of - 1);
    all[all.len() * number / of..all.len() * (number + 1) / of].to_vec()
}

impl RunLimits<'_> {
    /// Files of groups to which the task's first process writes 0 before it executes its program.
    pub fn groups_to_enter(&self) -> &[File] {
        self.own.as_ref().map_or(&[], TaskGroup::entrances)
    }

    /// Limits the memory of the task, whose first process has just executed its program. Before,
    /// that process shared the memory of this one: the kernel, if it lacked memory, would have
    /// killed both.
    pub fn begin(&mut self) {
        let Some((group, bytes)) = self.own.as_ref().zip(self.memory_bytes) else { return };
        if let Err(e) = group.limit(bytes) {
            // It has used more already, which the next look finds.
            tracing::debug!("cannot limit the memory of a task: {e}");
            self.is_unlimited = true;
            self.next_look = Instant::now();
        }
    }

    /// The group of a worker, which stays for further calls, and the most memory that was seen. If
    /// the worker `has_died`, also tells whether the kernel has killed it for want of memory.
    pub fn end_call(mut self, has_died: bool) -> (Option<TaskGroup>, u64, Option<MemoryExcess>) {
        let usage = self.own.as_ref().filter(|_| has_died).and_then(TaskGroup::usage);
        let excess = usage.and_then(|usage| self.kernel_excess(&usage));
        (self.own.take(), self.sampled_bytes, excess)
    }

    /// The cores to which the task's processes are pinned; `None` if they are not.
    pub fn cores(&self) -> Option<CpuSet> {
        let mut set = CpuSet::new();
        self.cores
            .iter()
            .map(|core| *core as usize)
            .filter(|core| *core < CpuSet::MAX_CPU)
            .for_each(|core| set.set(core));
        (set.count() > 0).then_some(set)
    }

    /// When the task's memory is to be looked at again; `None` if it is not.
    pub fn next_look(&self) -> Option<Instant> {
        (self.mode != LimitMode::Off).then_some(self.next_look)
    }

    /// Looks at the memory of the task, if it is time to. Returns what it has used too much.
    pub fn look(&mut self, leader: Pid, marks: &[String]) -> Option<MemoryExcess> {
        let now = Instant::now();
        if self.mode == LimitMode::Off || now < self.next_look {
            return None;
        }
        self.next_look = now + self.look_every;
        match self.group_usage() {
            Some(usage) => {
                self.look_every = (self.look_every * 2).min(PEAK_EVERY);
                self.sampled_bytes = self.sampled_bytes.max(usage.now_bytes);
                self.cached_bytes = self.cached_bytes.max(usage.cached_bytes);
                self.kernel_excess(&usage)
                    .or_else(|| self.excess(usage.now_bytes).filter(|_| self.is_unlimited))
            }
            None => {
                let used_bytes =
                    self.table.memory_of(leader, marks, self.memory_bytes, self.look_every / 2);
                self.sampled_bytes = self.sampled_bytes.max(used_bytes);
                self.excess(used_bytes)
            }
        }
    }

    fn excess(&self, used_bytes: u64) -> Option<MemoryExcess> {
        let asked_bytes = self.memory_bytes.filter(|asked| used_bytes > *asked)?;
        Some(MemoryExcess { used_bytes, asked_bytes, by_kernel: false })
    }

    /// Kills the processes that the task has left in its group, and tells its peak of memory.
    /// `largest_bytes` is that of its largest process, if it is known. Also tells whether the
    /// kernel has killed a process for want of memory.
    pub fn end(&mut self, largest_bytes: u64) -> (u64, Option<MemoryExcess>) {
        let usage = self.group_usage();
        let excess = usage.as_ref().and_then(|usage| self.kernel_excess(usage));
        match self.own.take() {
            Some(group) => drop(group),
            None => self.slot.kill_left(),
        }
        let peak_bytes = match usage {
            Some(GroupUsage { peak_bytes: Some(peak_bytes), cached_bytes, .. }) => peak_bytes
                .saturating_sub(self.cached_bytes.max(cached_bytes))
                .max(self.sampled_bytes),
            _ if self.sampled_bytes > 0 => self.sampled_bytes,
            _ => largest_bytes,
        };
        (peak_bytes, excess)
    }

    fn group_usage(&self) -> Option<GroupUsage> {
        match &self.own {
            Some(group) => group.usage(),
            None => self.slot.usage(),
        }
    }

    fn kernel_excess(&self, usage: &GroupUsage) -> Option<MemoryExcess> {
        let asked_bytes = self.memory_bytes.filter(|_| usage.was_killed)?;
        let used_bytes = usage.peak_bytes.unwrap_or(asked_bytes).min(asked_bytes);
        Some(MemoryExcess { used_bytes, asked_bytes, by_kernel: true })
    }
}

#[cfg(test)]
impl RunLimits<'static> {
    /// No limits.
    pub fn none() -> Self {
        let resources: &'static TaskResources =
            Box::leak(Box::new(TaskResources::new(LimitOptions::default())));
        let slot: &'static mut SlotGroups = Box::leak(Box::default());
        resources
            .prepare(None, slot, &Resources::default(), &[], false)
            .expect("without groups nothing can fail")
    }
}
