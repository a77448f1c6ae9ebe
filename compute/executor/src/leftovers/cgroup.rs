//! The control group of an executor. The executor and all processes that come from it are members,
//! whatever they do with their sessions, parents and environments, so the processes that an
//! executor leaves are found reliably. Where the system does not let this user make a group, there
//! is none, and processes are found by their environment.
//!
//! Both versions of control groups are used, without the limits of any controller: version 2 where
//! it is mounted, or else a hierarchy of version 1 that changes nothing for its members. Groups of
//! tasks, which have limits, are made by `resources`; they are removed here.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use rustix::process::Pid;

use crate::resources::task_group::{NoTaskGroups, TaskGroups};

/// Prefix of group names, before the executor's name.
const PREFIX: &str = "eyas-";
/// Hierarchies of version 1 that may be used. Others count usage, or need settings.
const PLAIN: [&str; 2] = ["freezer", "pids"];
/// End of the name of the group with an executor's guardian, where it has one.
const GUARDIAN: &str = "-guardian";
/// All hierarchies in which an executor may have groups.
const ALL: [&str; 4] = ["freezer", "pids", "memory", "cpu"];
pub(crate) const MEMBERS: &str = "cgroup.procs";

/// One tree of groups.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// Controllers of the hierarchy as in `/proc/PID/cgroup`; empty for version 2.
    controllers: String,
    /// The mount point, and the group that is mounted there.
    mounted: PathBuf,
    root: PathBuf,
}

/// The group of this executor.
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// Makes a group with an executor's name and moves this process into it. Removes empty groups
    /// beside it whose executor `is_gone`.
    ///
    /// # Errors
    /// The reason of the last hierarchy that was tried.
    pub fn enter(name: &str, is_gone: &dyn Fn(&str) -> bool) -> io::Result<Self> {
        let mut failed = io::Error::from(io::ErrorKind::Unsupported);
        for parent in own_folders(&PLAIN) {
            remove_of_gone(&parent, is_gone);
            let folder = parent.join(group_name(name));
            let entered = fs::create_dir(&folder).and_then(|()| {
                // 0 means the writing process.
                fs::write(folder.join(MEMBERS), "0").inspect_err(|_| drop(fs::remove_dir(&folder)))
            });
            match entered {
                Ok(()) => return Ok(Cgroup { folder }),
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    /// Moves this process out of the group, before its other members are killed. Whether it has
    /// left.
    pub fn leave(&self) -> bool {
        self.folder.parent().is_some_and(|outer| leave_to(outer, &self.folder))
    }

    /// Removes the group of the guardian, which has ended.
    pub fn remove_guardians(&self) {
        let _ = fs::remove_dir(guardians_group(&self.folder));
    }
}

/// Enters a group on a thread of its own: the kernel may take 10 ms. The executor joins the cluster
/// meanwhile, and the first task waits.
pub(crate) struct EnteringCgroup {
    thread: Mutex<Option<JoinHandle<EnteredGroups>>>,
    entered: OnceLock<EnteredGroups>,
}

/// The groups of this executor, as far as it has them.
pub(crate) struct EnteredGroups {
    pub own: io::Result<Cgroup>,
    pub tasks: Result<TaskGroups, NoTaskGroups>,
}

impl EnteringCgroup {
    /// Begins what [`Cgroup::enter`] does, and then `make` with the group of this process.
    pub fn begin(
        name: String,
        is_gone: impl Fn(&str) -> bool + Send + 'static,
        make: impl FnOnce(&str, &dyn Fn(&str) -> bool) -> Result<TaskGroups, NoTaskGroups>
        + Send
        + 'static,
    ) -> Self {
        let enter = move || {
            let own = Cgroup::enter(&name, &is_gone);
            if let Err(e) = &own {
                tracing::debug!(
                    "cannot make a control group ({e}); processes of tasks are found by their \
                     environment"
                );
            }
            EnteredGroups { own, tasks: make(&name, &is_gone) }
        };
        let thread = std::thread::Builder::new().name("control-group".into()).spawn(enter);
        let entered = thread
            .as_ref()
            .err()
            .map_or_else(OnceLock::new, |e| OnceLock::from(EnteredGroups::failed(e.kind())));
        EnteringCgroup { thread: Mutex::new(thread.ok()), entered }
    }

    /// Waits until this process has entered the group, or cannot.
    pub fn wait(&self) -> &EnteredGroups {
        self.entered.get_or_init(|| {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            let entered = thread.and_then(|thread| thread.join().ok());
            // The thread has panicked.
            entered.unwrap_or_else(|| EnteredGroups::failed(io::ErrorKind::Other))
        })
    }
}

impl EnteredGroups {
    fn failed(kind: io::ErrorKind) -> Self {
        EnteredGroups { own: Err(kind.into()), tasks: Err(NoTaskGroups::Memory) }
    }
}

/// Moves this process from an executor's group to the group above it, if it was started in the
/// executor's group.
pub(crate) fn step_out(name: &str) {
    let group = group_name(name);
    for folder in own_folders(&PLAIN) {
        let own = folder.ancestors().find(|part| part.ends_with(&group));
        let Some(outer) = own.and_then(Path::parent) else { continue };
        // If this fails, this process is killed with the others.
        leave_to(outer, &outer.join(&group));
    }
}

/// Moves this process from an executor's group to the one around it, or, if that has inner groups
/// with limits and so cannot have processes, to the group of the guardian. Whether it has left.
fn leave_to(outer: &Path, group: &Path) -> bool {
    let leaf = guardians_group(group);
    fs::write(outer.join(MEMBERS), "0").is_ok()
        || (leaf.is_dir() || fs::create_dir(&leaf).is_ok())
            && fs::write(leaf.join(MEMBERS), "0").is_ok()
}

/// The group of the guardian of the executor with this group.
fn guardians_group(group: &Path) -> PathBuf {
    let name = group.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    group.with_file_name(format!("{name}{GUARDIAN}"))
}

/// Moves the guardian of an executor, a child of this process, from `outer` to a group of its own
/// there.
pub(crate) fn move_guardian_out(outer: &Path, name: &str) {
    let leaf = guardians_group(&outer.join(group_name(name)));
    let members = fs::read_to_string(outer.join(MEMBERS)).unwrap_or_default();
    let own = members.lines().filter(|pid| is_own_child(pid));
    for pid in own {
        let _ = fs::create_dir(&leaf);
        let _ = fs::write(leaf.join(MEMBERS), pid);
    }
}

fn is_own_child(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Field 4 of proc_pid_stat(5), after the name in parentheses.
    let parent = stat
        .rsplit_once(')')
        .and_then(|(_, fields)| fields.split_ascii_whitespace().nth(1)?.parse().ok());
    parent == Some(std::process::id())
}

/// The groups of an executor that a process is in, directly or in a group inside them.
pub(crate) fn groups_of(process: Pid, name: &str) -> Vec<PathBuf> {
    let Ok(memberships) = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero()))
    else {
        return Vec::new();
    };
    // The usual case.
    if !memberships.contains(name) {
        return Vec::new();
    }
    let group = group_name(name);
    folders(&hierarchies(&ALL), &memberships)
        .filter_map(|folder| {
            Some(folder.ancestors().find(|part| part.ends_with(&group))?.to_owned())
        })
        .collect()
}

/// Groups of an executor beside those of this process, even if they have no members.
pub(crate) fn beside(name: &str) -> Vec<PathBuf> {
    let outer = |folder: PathBuf| {
        let is_guardians =
            folder.to_str().is_some_and(|folder| folder.ends_with(&format!("{name}{GUARDIAN}")));
        if is_guardians { folder.parent().map(Path::to_owned) } else { Some(folder) }
    };
    let groups =
        own_folders(&ALL).into_iter().filter_map(outer).map(|folder| folder.join(group_name(name)));
    groups.filter(|folder| folder.is_dir()).collect()
}

/// Kills all members at once, where the kernel can.
pub(crate) fn kill(folder: &Path) {
    // The file exists since Linux 5.14 in version 2. Otherwise members are killed one by one. No
    // file is made here.
    let _ =
        fs::OpenOptions::new().write(true).open(folder.join("cgroup.kill")).and_then(|mut file| {
            use std::io::Write;
            file.write_all(b"1")
        });
}

/// Removes a group without members, and the groups inside it. Whether it is gone.
pub(crate) fn remove(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inner.for_each(|entry| _ = remove(&entry.path()));
    match fs::remove_dir(folder) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            tracing::debug!("cannot remove the control group {}: {e}", folder.display());
            false
        }
        _ => true,
    }
}

/// The name of the groups of an executor.
pub(crate) fn group_name(executor: &str) -> String {
    format!("{PREFIX}{executor}")
}

/// The group of this process in the hierarchy of version 1 with a controller.
pub(crate) fn own_folder(controller: &str) -> Option<PathBuf> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hierarchies = hierarchies(&[controller]);
    let of_version_1 = hierarchies.iter().find(|hierarchy| !hierarchy.controllers.is_empty())?;
    folders(std::slice::from_ref(of_version_1), &memberships).next()
}

/// The group of this process in version 2.
pub(crate) fn own_group_of_version_2() -> Option<PathBuf> {
    own_folders(&[]).into_iter().next()
}

/// The groups of this process in version 2 and in these hierarchies of version 1, in this order.
fn own_folders(controllers: &[&str]) -> Vec<PathBuf> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    folders(&hierarchies(controllers), &memberships).collect()
}

/// Removes groups without members whose executor `is_gone`, and the groups inside them.
pub(crate) fn remove_of_gone(parent: &Path, is_gone: &dyn Fn(&str) -> bool) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_str().is_some_and(|name| is_group_of_gone(name, is_gone)) {
            // The kernel refuses to remove one with members.
            remove(&entry.path());
        }
    }
}

fn is_group_of_gone(name: &str, is_gone: &dyn Fn(&str) -> bool) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|name| is_gone(name.strip_suffix(GUARDIAN).unwrap_or(name)))
}

fn hierarchies(controllers: &[&str]) -> Vec<Hierarchy> {
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default(), controllers)
}

/// Version 2 and the hierarchies of version 1 with these controllers, in this order, from
/// `/proc/self/mountinfo`.
fn parse_mounts(text: &str, controllers: &[&str]) -> Vec<Hierarchy> {
    let mut found: Vec<(usize, Hierarchy)> = Vec::new();
    for line in text.lines() {
        let Some((mount, system)) = line.split_once(" - ") else { continue };
        let mount: Vec<&str> = mount.split(' ').collect();
        let system: Vec<&str> = system.split(' ').collect();
        let ([_, _, _, root, mounted, ..], [kind, _, options, ..]) = (&mount[..], &system[..])
        else {
            continue;
        };
        let place = |option: &str| controllers.iter().position(|controller| *controller == option);
        let (rank, controllers) = match *kind {
            "cgroup2" => (0, String::new()),
            "cgroup" => {
                match options.split(',').find_map(|option| Some((place(option)?, option))) {
                    Some((place, option)) => (1 + place, option.to_owned()),
                    None => continue,
                }
            }
            _ => continue,
        };
        found.push((rank, Hierarchy { controllers, mounted: mounted.into(), root: root.into() }));
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, hierarchy)| hierarchy).collect()
}

/// The folders of a process's groups, from its `/proc/PID/cgroup`.
fn folders<'a>(
    hierarchies: &'a [Hierarchy],
    memberships: &'a str,
) -> impl Iterator<Item = PathBuf> + use<'a> {
    hierarchies.iter().filter_map(|hierarchy| {
        let path = memberships.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers
                .split(',')
                .any(|controller| controller == hierarchy.controllers)
                .then_some(path)
        })?;
        let path = path.trim_end_matches(" (deleted)");
        Some(hierarchy.mounted.join(Path::new(path).strip_prefix(&hierarchy.root).ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_is_preferred_and_groups_are_found_where_they_are_mounted() {
        let mounts = "\
            30 23 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755\n\
            31 30 0:27 / /sys/fs/cgroup/memory rw shared:1 - cgroup cgroup rw,memory\n\
            32 30 0:28 / /sys/fs/cgroup/cpu,pids rw - cgroup cgroup rw,cpu,pids\n\
            33 30 0:29 /docker/abc /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
            34 30 0:30 / /sys/fs/cgroup/unified rw shared:2 - cgroup2 cgroup2 rw\n";
        let found = parse_mounts(mounts, &PLAIN);
        let names: Vec<_> = found.iter().map(|hierarchy| hierarchy.controllers.as_str()).collect();
        assert_eq!(names, ["", "freezer", "pids"]);
        let memberships = "12:cpu,pids:/batch\n5:freezer:/docker/abc/inner\n4:memory:/x\n\
                           0::/user.slice/a b (deleted)\n";
        let folders: Vec<_> = folders(&found, memberships).collect();
        let expected = [
            "/sys/fs/cgroup/unified/user.slice/a b",
            "/sys/fs/cgroup/freezer/inner",
            "/sys/fs/cgroup/cpu,pids/batch",
        ];
        assert_eq!(folders, expected.map(PathBuf::from));
        // A group that is not below what is mounted cannot be reached.
        assert_eq!(super::folders(&found, "5:freezer:/elsewhere\n").count(), 0);
    }
}
