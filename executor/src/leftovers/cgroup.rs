//! The control group of an executor. The executor and all processes that come from it are members, whatever they do
//! with their sessions, parents and environments, so the processes that an executor leaves are found reliably. Where
//! the system does not let this user make a group, there is none, and processes are found by their environment.
//!
//! Both versions of control groups are used, without the limits of any controller: version 2 where it is mounted, or
//! else a hierarchy of version 1 that changes nothing for its members.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use rustix::process::Pid;

/// Prefix of group names, before the executor's name.
const PREFIX: &str = "eyas-";
/// Hierarchies of version 1 that may be used. Others count usage, or need settings.
const PLAIN: [&str; 2] = ["freezer", "pids"];
const MEMBERS: &str = "cgroup.procs";

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
    /// Makes a group with an executor's name and moves this process into it. Removes empty groups beside it whose
    /// executor `is_gone`.
    ///
    /// # Errors
    /// The reason of the last hierarchy that was tried.
    pub fn enter(name: &str, is_gone: impl Fn(&str) -> bool) -> io::Result<Self> {
        let mut failed = io::Error::from(io::ErrorKind::Unsupported);
        for parent in own_folders() {
            remove_empty(&parent, &is_gone);
            let folder = parent.join(format!("{PREFIX}{name}"));
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

    /// Moves this process out of the group, before its other members are killed. Whether it has left.
    pub fn leave(&self) -> bool {
        let left = self.folder.parent().map(|parent| fs::write(parent.join(MEMBERS), "0"));
        left.is_some_and(|left| left.is_ok())
    }
}

/// Enters a group on a thread of its own: the kernel may take 10 ms. The executor joins the cluster meanwhile, and the
/// first task waits.
pub(crate) struct EnteringCgroup {
    thread: Mutex<Option<JoinHandle<io::Result<Cgroup>>>>,
    entered: OnceLock<io::Result<Cgroup>>,
}

impl EnteringCgroup {
    /// Begins what [`Cgroup::enter`] does.
    pub fn begin(name: String, is_gone: impl Fn(&str) -> bool + Send + 'static) -> Self {
        let enter = move || {
            let entered = Cgroup::enter(&name, is_gone);
            if let Err(e) = &entered {
                tracing::debug!("cannot make a control group ({e}); processes of tasks are found by their environment");
            }
            entered
        };
        let thread = std::thread::Builder::new().name("control-group".into()).spawn(enter);
        let failed = thread.as_ref().err().map(|e| io::Error::from(e.kind()));
        let entered = failed.map_or_else(OnceLock::new, |e| OnceLock::from(Err(e)));
        EnteringCgroup { thread: Mutex::new(thread.ok()), entered }
    }

    /// Waits until this process has entered the group, or cannot.
    pub fn wait(&self) -> &io::Result<Cgroup> {
        self.entered.get_or_init(|| {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            let broken = || io::Error::other("its thread has panicked");
            thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| Err(broken()))
        })
    }
}

/// Moves this process from an executor's group to the group above it, if it was started in the executor's group.
pub(crate) fn step_out(name: &str) {
    for folder in own_folders() {
        let is_it = folder.file_name().is_some_and(|last| last.to_str() == Some(&format!("{PREFIX}{name}")));
        if let (true, Some(parent)) = (is_it, folder.parent()) {
            // If this fails, this process is killed with the others.
            let _ = fs::write(parent.join(MEMBERS), "0");
        }
    }
}

/// The groups of an executor that a process is in, directly or in a group inside them.
pub(crate) fn groups_of(process: Pid, name: &str) -> Vec<PathBuf> {
    let Ok(memberships) = fs::read_to_string(format!("/proc/{}/cgroup", process.as_raw_nonzero())) else {
        return Vec::new();
    };
    // The usual case.
    if !memberships.contains(name) {
        return Vec::new();
    }
    let group = format!("{PREFIX}{name}");
    folders(&hierarchies(), &memberships)
        .filter_map(|folder| Some(folder.ancestors().find(|part| part.ends_with(&group))?.to_owned()))
        .collect()
}

/// Groups of an executor beside those of this process, even if they have no members.
pub(crate) fn beside(name: &str) -> Vec<PathBuf> {
    let groups = own_folders().into_iter().map(|folder| folder.join(format!("{PREFIX}{name}")));
    groups.filter(|folder| folder.is_dir()).collect()
}

/// Kills all members at once, where the kernel can.
pub(crate) fn kill(folder: &Path) {
    // The file exists since Linux 5.14 in version 2. Otherwise members are killed one by one. No file is made here.
    let _ = fs::OpenOptions::new().write(true).open(folder.join("cgroup.kill")).and_then(|mut file| {
        use std::io::Write;
        file.write_all(b"1")
    });
}

/// Removes a group without members, and the groups inside it.
pub(crate) fn remove(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let inner = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    inner.for_each(|entry| remove(&entry.path()));
    if let Err(e) = fs::remove_dir(folder) {
        tracing::debug!("cannot remove the control group {}: {e}", folder.display());
    }
}

/// The groups of this process in the hierarchies that may be used, preferred hierarchy first.
fn own_folders() -> Vec<PathBuf> {
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    folders(&hierarchies(), &memberships).collect()
}

fn remove_empty(parent: &Path, is_gone: &impl Fn(&str) -> bool) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries {
        if entry.file_name().to_str().and_then(|name| name.strip_prefix(PREFIX)).is_some_and(is_gone) {
            // The kernel refuses to remove one with members.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

fn hierarchies() -> Vec<Hierarchy> {
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The hierarchies that may be used, the preferred one first, from `/proc/self/mountinfo`.
fn parse_mounts(text: &str) -> Vec<Hierarchy> {
    let mut found: Vec<(usize, Hierarchy)> = Vec::new();
    for line in text.lines() {
        let Some((mount, system)) = line.split_once(" - ") else { continue };
        let mount: Vec<&str> = mount.split(' ').collect();
        let system: Vec<&str> = system.split(' ').collect();
        let ([_, _, _, root, mounted, ..], [kind, _, options, ..]) = (&mount[..], &system[..]) else { continue };
        let plain = |option: &str| PLAIN.iter().position(|plain| *plain == option);
        let (rank, controllers) = match *kind {
            "cgroup2" => (0, String::new()),
            "cgroup" => match options.split(',').find_map(|option| Some((plain(option)?, option))) {
                Some((place, option)) => (1 + place, option.to_owned()),
                None => continue,
            },
            _ => continue,
        };
        found.push((rank, Hierarchy { controllers, mounted: mounted.into(), root: root.into() }));
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, hierarchy)| hierarchy).collect()
}

/// The folders of a process's groups, from its `/proc/PID/cgroup`.
fn folders<'a>(hierarchies: &'a [Hierarchy], memberships: &'a str) -> impl Iterator<Item = PathBuf> + use<'a> {
    hierarchies.iter().filter_map(|hierarchy| {
        let path = memberships.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            controllers.split(',').any(|controller| controller == hierarchy.controllers).then_some(path)
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
        let found = parse_mounts(mounts);
        let names: Vec<_> = found.iter().map(|hierarchy| hierarchy.controllers.as_str()).collect();
        assert_eq!(names, ["", "freezer", "pids"]);
        let memberships =
            "12:cpu,pids:/batch\n5:freezer:/docker/abc/inner\n4:memory:/x\n0::/user.slice/a b (deleted)\n";
        let folders: Vec<_> = folders(&found, memberships).collect();
        let expected =
            ["/sys/fs/cgroup/unified/user.slice/a b", "/sys/fs/cgroup/freezer/inner", "/sys/fs/cgroup/cpu,pids/batch"];
        assert_eq!(folders, expected.map(PathBuf::from));
        // A group that is not below what is mounted cannot be reached.
        assert_eq!(super::folders(&found, "5:freezer:/elsewhere\n").count(), 0);
    }
}
