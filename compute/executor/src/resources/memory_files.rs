//! The files of a control group about its memory: limit, usage, peak, and kills by the kernel.
//! Versions 1 and 2 have other names for them. Pages of files that the kernel caches count to a
//! group too, but the kernel gives them back when the group needs memory; so they are told apart
//! here.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// A version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupVersion {
    One,
    Two,
}

/// Memory of a group, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupUsage {
    /// Without cached files.
    pub now_bytes: u64,
    /// Cached files now.
    pub cached_bytes: u64,
    /// With the files that were cached then. `None` where the kernel does not count it.
    pub peak_bytes: Option<u64>,
    /// Whether the kernel has killed a process because the group was at its limit.
    pub was_killed: bool,
}

/// Writes to a file of a group, which exists.
pub(crate) fn set(group: &Path, file: &str, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(group.join(file))?.write_all(value.as_bytes())
}

impl GroupVersion {
    /// Limits the memory of a group. Processes do not continue in swap space instead.
    pub fn limit(self, group: &Path, bytes: u64) -> io::Result<()> {
        let bytes = bytes.to_string();
        match self {
            GroupVersion::One => {
                set(group, "memory.limit_in_bytes", &bytes)?;
                // The file exists where the kernel counts swap space.
                let _ = set(group, "memory.memsw.limit_in_bytes", &bytes);
            }
            GroupVersion::Two => {
                set(group, "memory.max", &bytes)?;
                let _ = set(group, "memory.swap.max", "0");
                // All of the task ends, not only its largest process.
                let _ = set(group, "memory.oom.group", "1");
            }
        }
        Ok(())
    }

    /// Begins to count the peak again. Whether the kernel does so.
    pub fn reset_peak(self, group: &Path) -> bool {
        match self {
            GroupVersion::One => set(group, "memory.max_usage_in_bytes", "0").is_ok(),
            // The file resets only what is read through the same descriptor.
            GroupVersion::Two => false,
        }
    }

    /// The memory of a group; `None` if it cannot be read.
    pub fn usage(self, group: &Path) -> Option<GroupUsage> {
        let read = |file: &str| fs::read_to_string(group.join(file)).ok();
        let number = |file: &str| read(file)?.trim().parse::<u64>().ok();
        let (now, peak, inactive, active, kills) = match self {
            GroupVersion::One => (
                "memory.usage_in_bytes",
                "memory.max_usage_in_bytes",
                "total_inactive_file",
                "total_active_file",
                "memory.oom_control",
            ),
            GroupVersion::Two => {
                ("memory.current", "memory.peak", "inactive_file", "active_file", "memory.events")
            }
        };
        let stat = read("memory.stat")?;
        let cached_bytes = value_of(&stat, inactive)? + value_of(&stat, active)?;
        let kills = read(kills).unwrap_or_default();
        Some(GroupUsage {
            now_bytes: number(now)?.saturating_sub(cached_bytes),
            cached_bytes,
            peak_bytes: number(peak),
            was_killed: value_of(&kills, "oom_kill").is_some_and(|count| count > 0),
        })
    }
}

/// The number beside a name, in lines of names and numbers.
fn value_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_read_in_both_versions_and_cached_files_apart() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(GroupVersion::One.usage(folder.path()), None);
        write(
            "memory.stat",
            "inactive_file 30\nactive_file 10\ntotal_inactive_file 300\ntotal_active_file 100\n",
        );
        write("memory.usage_in_bytes", "900\n");
        write("memory.max_usage_in_bytes", "1900\n");
        write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        let expected = GroupUsage {
            now_bytes: 500,
            cached_bytes: 400,
            peak_bytes: Some(1900),
            was_killed: true,
        };
        assert_eq!(GroupVersion::One.usage(folder.path()), Some(expected));
        write("memory.current", "90\n");
        write("memory.events", "low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\noom_group_kill 0\n");
        let expected =
            GroupUsage { now_bytes: 50, cached_bytes: 40, peak_bytes: None, was_killed: false };
        assert_eq!(GroupVersion::Two.usage(folder.path()), Some(expected));
        write("memory.peak", "140\n");
        assert_eq!(GroupVersion::Two.usage(folder.path()).unwrap().peak_bytes, Some(140));
    }
}
