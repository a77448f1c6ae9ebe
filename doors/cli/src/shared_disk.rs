//! Warns of a store on a file system that nodes share, such as NFS: a store is of use because it is
//! faster than the storage from which inputs come.

use std::path::Path;

use crate::print::say;

/// File systems that nodes share over a network, by their numbers in `statfs(2)`. FUSE is not among
/// them, because its number says nothing about where the files are.
const SHARED: [(u32, &str); 11] = [
    (0x6969, "NFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x00c3_6400, "CephFS"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x0000_517b, "SMB"),
    (0x5346_414f, "AFS"),
    (0x2003_0528, "OrangeFS"),
    (0xaad7_aaea, "PanFS"),
];

/// How a local cluster with a name gets its stores on a local disk.
pub(crate) const SET_HOME: &str = "set EYAS_HOME to a folder of yours there, such as \
                                   EYAS_HOME=/local/disk/eyas, for all commands";
/// The same for a cluster that `eyas run` starts.
pub(crate) const SET_TMPDIR: &str = "set TMPDIR to a folder there, such as TMPDIR=/local/disk";
/// The same for an executor.
pub(crate) const NAME_FOLDER: &str = "name a folder there, such as --folder /local/disk/eyas";

/// Warns if a folder for stores, which may not exist yet, is on a file system that nodes share.
pub(crate) fn warn(folder: &Path, remedy: &str) {
    let found = folder.ancestors().find_map(|folder| rustix::fs::statfs(folder).ok());
    if let Some(warning) = found.and_then(|found| warning(found.f_type as u32, folder, remedy)) {
        say!("{warning}");
    }
}

/// The warning for a folder on a file system with this number; `None` on a local disk.
fn warning(number: u32, folder: &Path, remedy: &str) -> Option<String> {
    let (_, name) = SHARED.iter().find(|(shared, _)| *shared == number)?;
    let folder = folder.display();
    Some(format!(
        "the stores are in {folder}, which is on {name}: tasks read from these stores no faster \
         than from shared storage. To use a local disk, {remedy}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_on_file_systems_that_nodes_share_are_warned_of() {
        for (number, name) in [
            (0x6969, Some("NFS")),
            (0x0bd0_0bd0, Some("Lustre")),
            (0x4750_4653, Some("GPFS")),
            (0xfe53_4d42, Some("SMB")),
            (0xef53, None),      // ext4
            (0x5846_5342, None), // XFS
            (0x9123_683e, None), // Btrfs
            (0x2fc1_2fc1, None), // ZFS
            (0x0102_1994, None), // tmpfs
            (0x794c_7630, None), // overlayfs
            (0x6573_5546, None), // FUSE
        ] {
            let said = warning(number, Path::new("/home/me/.cache/eyas"), SET_HOME);
            assert_eq!(said.is_some(), name.is_some(), "{number:#x}: {said:?}");
            for part in
                name.into_iter().flat_map(|name| [name, "/home/me/.cache/eyas", "EYAS_HOME="])
            {
                assert!(said.as_ref().is_some_and(|said| said.contains(part)), "{part}: {said:?}");
            }
        }
    }
}
