//! What a storage is called, so that all nodes call it the same.

use std::fs;

/// The source of the file system that this node sees as that device, as its mount says: `server:/export` for NFS. Else
/// the device's number, which is this node's own.
pub(super) fn name(device: u64) -> String {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    source(&mounts, &number).unwrap_or(number)
}

/// The source of a device in the words of `/proc/self/mountinfo` (proc(5)).
fn source(mounts: &str, number: &str) -> Option<String> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let is_it = before.split(' ').nth(2) == Some(number);
        let source = after.split(' ').nth(1)?;
        (is_it && source != "none").then(|| source.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 0:21 / /proc rw,relatime shared:5 - proc none rw
98 1 0:52 / /home rw,relatime shared:60 - nfs4 files:/home rw,vers=4.2
99 1 0:53 /data /data rw master:1 - fuse.sshfs store:/data rw
";

    #[test]
    fn a_storage_is_called_by_its_source() {
        assert_eq!(source(MOUNTS, "0:52").as_deref(), Some("files:/home"));
        assert_eq!(source(MOUNTS, "0:53").as_deref(), Some("store:/data"));
        assert_eq!(source(MOUNTS, "0:21"), None, "it has none");
        assert_eq!(source(MOUNTS, "0:5"), None, "it is not there");
    }
}
