//! Name of a storage, the same on all nodes.

use std::fs;

use eyas_types::StorageLocation;

/// Types of file systems whose mount source means the same storage on every node; `fuse.*` as well.
const SHARED: &[&str] = &[
    "nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse", "cifs", "smb3", "pvfs2", "panfs",
    "ocfs2", "gfs2", "afs", "9p",
];

/// Types of file systems whose files have the same numbers and times on every node, and whose
/// kernel knows the present ones when a file is opened. High-level FUSE file systems number files
/// in the order in which a node looks at them.
const NUMBERED: &[&str] = &["nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "ocfs2", "gfs2"];

/// Whether the number of a file is the same on all nodes, and its times tell its version.
pub(crate) fn has_versions(location: &StorageLocation) -> bool {
    let StorageLocation::Device(device) = location else { return false };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount(&mounts, &number(*device)).is_some_and(|(kind, _)| NUMBERED.contains(&kind))
}

/// The type of the mounts of `eyas io mount`, as `data/passthrough/src/session.rs` has it.
const ORDERED: &str = "fuse.eyas-io";

/// Whether the device is a mount of `eyas io mount`: its server orders the requests of all programs
/// to the folder below it.
pub(crate) fn is_ordered_below(device: u64) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mount(&mounts, &number(device)).is_some_and(|(kind, _)| kind == ORDERED)
}

/// Type of the file system on a device, without the prefix of those in user space.
pub(crate) fn file_system(device: u64) -> Option<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let (kind, _) = mount(&mounts, &number(device))?;
    Some(kind.strip_prefix("fuse.").unwrap_or(kind).to_owned())
}

/// Name of a storage, the same on all nodes that share it.
pub(crate) fn shared_name(location: &StorageLocation) -> String {
    match location {
        StorageLocation::Device(device) => name(*device),
        StorageLocation::Url(url) => url.clone(),
    }
}

/// Names of the servers of a storage: its own name, if there is one server.
pub(crate) fn server_names(storage: &str, servers: usize) -> Vec<String> {
    match servers {
        0 | 1 => vec![storage.to_owned()],
        _ => (0..servers).map(|place| format!("{storage}, server {place}")).collect(),
    }
}

/// Mount source of a device: `server:/export` for NFS. The source of a node's own disk, or the
/// device number if there is no source, gets the node's name in front.
fn name(device: u64) -> String {
    let number = number(device);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_node =
        |source: &str| format!("{}:{source}", rustix::system::uname().nodename().to_string_lossy());
    match mount(&mounts, &number) {
        Some((kind, source)) if is_shared(kind) => source.to_owned(),
        Some((_, source)) => of_node(source),
        None => of_node(&number),
    }
}

/// Number of a device, as the kernel writes it.
fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Type and source of a device, from `/proc/self/mountinfo` (proc(5)).
fn mount<'a>(mounts: &'a str, number: &str) -> Option<(&'a str, &'a str)> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_it = before.split(' ').nth(2) == Some(number);
        let mut words = after.split(' ');
        let (kind, source) = (words.next()?, words.next()?);
        (is_it && source != "none").then_some((kind, source))
    })
}

fn is_shared(kind: &str) -> bool {
    SHARED.contains(&kind) || kind.starts_with("fuse.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw,relatime shared:5 - proc none rw
98 1 0:52 / /home rw,relatime shared:60 - nfs4 files:/home rw,vers=4.2
99 1 0:53 /data /data rw master:1 - fuse.sshfs store:/data rw
25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
";

    #[test]
    fn a_storage_is_called_by_its_source() {
        assert_eq!(mount(MOUNTS, "0:52"), Some(("nfs4", "files:/home")));
        assert_eq!(mount(MOUNTS, "0:53"), Some(("fuse.sshfs", "store:/data")));
        assert_eq!(mount(MOUNTS, "0:21"), None, "it has none");
        assert_eq!(mount(MOUNTS, "0:5"), None, "it is not there");
    }

    #[test]
    fn disks_of_two_nodes_are_two_even_if_their_sources_are_the_same() {
        let is_shared = |number| mount(MOUNTS, number).is_some_and(|(kind, _)| is_shared(kind));
        assert_eq!(["0:52", "0:53", "8:1"].map(is_shared), [true, true, false]);
    }
}
