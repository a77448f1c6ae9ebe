//! Control groups of version 2 for tasks. There a group has either processes or inner groups with
//! limits, so this process moves to a leaf of its own, and its guardian to another one:
//!
//! ```text
//! GROUP                       where this executor was started; enables its controllers inside
//!   eyas-EXECUTOR             the executor's group, in which all its tasks end with it
//!     executor                this process
//!     task-1, task-2          tasks
//!   eyas-EXECUTOR-guardian    its guardian, which outlives it
//! ```
//!
//! The system must have delegated GROUP to this user, as `systemd-run --scope -p Delegate=yes`
//! does. If other processes are in GROUP, such as the shell that started the executor, the kernel
//! refuses.

use std::fs;
use std::path::{Path, PathBuf};

use super::memory_files::set;
use super::task_group::{NoTaskGroups, at};
use crate::leftovers::cgroup::{self, MEMBERS};

/// The leaf with the executor's process.
pub(crate) const LEAF: &str = "executor";
/// File with the controllers that the groups inside a group have.
const INNER_CONTROLLERS: &str = "cgroup.subtree_control";

/// The group of an executor whose inner groups have controllers.
pub(crate) struct DelegatedGroup {
    pub folder: PathBuf,
    pub has_cpu: bool,
}

/// Makes controllers available to groups of tasks. This process is in the executor's group, and
/// then in its leaf.
///
/// # Errors
/// If the system does not let this process do so. This process is in the executor's group as
/// before.
pub(crate) fn begin(executor: &str) -> Result<DelegatedGroup, NoTaskGroups> {
    let folder = cgroup::own_group_of_version_2()
        .filter(|folder| folder.ends_with(cgroup::group_name(executor)));
    let folder = folder.ok_or(NoTaskGroups::Memory)?;
    let outer = folder.parent().ok_or(NoTaskGroups::Memory)?.to_owned();
    let has = |group: &Path, file: &str, controller: &str| {
        let text = fs::read_to_string(group.join(file)).unwrap_or_default();
        text.split_ascii_whitespace().any(|word| word == controller)
    };
    let available: Vec<&str> = ["memory", "cpu"]
        .into_iter()
        .filter(|name| has(&outer, "cgroup.controllers", name))
        .collect();
    if !available.contains(&"memory") {
        return Err(NoTaskGroups::Memory);
    }
    let enable = |group: &Path, controllers: &[&str]| {
        let missing: Vec<_> =
            controllers.iter().filter(|name| !has(group, INNER_CONTROLLERS, name)).collect();
        let words: Vec<_> = missing.into_iter().map(|name| format!("+{name}")).collect();
        if words.is_empty() { Ok(()) } else { set(group, INNER_CONTROLLERS, &words.join(" ")) }
    };
    let leaf = folder.join(LEAF);
    let moved = fs::create_dir(&leaf).and_then(|()| set(&leaf, MEMBERS, "0"));
    let enabled = moved.map_err(at(&leaf)).and_then(|()| {
        cgroup::move_guardian_out(&outer, executor);
        enable(&outer, &available).map_err(at(&outer.join(INNER_CONTROLLERS)))?;
        enable(&folder, &available).map_err(at(&folder.join(INNER_CONTROLLERS)))
    });
    if let Err(e) = enabled {
        let _ = set(&folder, MEMBERS, "0");
        let _ = fs::remove_dir(&leaf);
        return Err(e);
    }
    Ok(DelegatedGroup { has_cpu: available.contains(&"cpu"), folder })
}
