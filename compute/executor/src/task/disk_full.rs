//! Whether the node's own disk is full. Tasks on a full disk fail within milliseconds, one after
//! the other, so such a node would fail all tasks of a job. These failures count as the node's.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{statfs, statvfs};
use rustix::io::Errno;

/// Written to test the disk. A disk that takes this much was not full, unless the task's output
/// says so.
const PROBE_BYTES: usize = 64 << 10;
/// Size of the blocks in which `stat(2)` counts.
pub(crate) const BLOCK_BYTES: u64 = 512;
/// The end of a task's output that is searched for [`FULL`].
const TAIL_BYTES: usize = 4 << 10;

/// Text that programs print when a disk or a quota is full: of the C library, of Rust, of Java.
const FULL: [&str; 5] =
    ["No space left on device", "Disk quota exceeded", "ENOSPC", "(os error 28)", "(os error 122)"];

/// A disk with less than this free is short: another task may have written to it a moment before,
/// and has ended since.
const SHORT_BYTES: u64 = 64 << 20;

/// File systems on a node's own disks or in its memory, by their numbers in `statfs(2)`.
const LOCAL: [u32; 8] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x2fc1_2fc1, // ZFS
    0x794c_7630, // overlayfs
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
];

/// Whether the disk under a folder is full, which may have failed a task. `printed` is the task's
/// output; it counts if less than `floor_bytes` are free.
pub(crate) fn is_full(folder: &Path, floor_bytes: u64, printed: &[&[u8]]) -> bool {
    let is_short = || statvfs(folder).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < floor_bytes);
    (says_full(printed) && is_short()) || probe(folder).is_err_and(|e| is_no_room(&e))
}

/// With less free than this, a disk is short of space for a task that has written this much:
/// another one like it may have left as much since.
pub(crate) fn short_bytes(floor_bytes: u64, written_bytes: u64) -> u64 {
    floor_bytes.max(SHORT_BYTES).max(written_bytes.saturating_mul(2))
}

/// Whether two folders are on the same disk.
pub(crate) fn share_disk(folder: &Path, other: &Path) -> bool {
    let disk = |folder: &Path| fs::metadata(folder).map(|found| found.dev()).ok();
    disk(folder).is_some_and(|here| disk(other) == Some(here))
}

/// Bytes on the disk of the files in a folder that have no name elsewhere. Files that cannot be
/// looked at do not count.
pub(crate) fn written_bytes(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => written_bytes(&entry.path()),
        Ok(found) if found.is_file() && found.nlink() == 1 => found.blocks() * BLOCK_BYTES,
        _ => 0,
    });
    bytes.sum()
}

/// Whether a folder is on a file system of this node alone.
pub(crate) fn is_local(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|system| LOCAL.contains(&(system.f_type as u32)))
}

/// Whether an error means that space, inodes or quota are used up.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

/// Whether the end of a task's output says that a disk is full.
pub(crate) fn says_full(printed: &[&[u8]]) -> bool {
    printed.iter().any(|text| {
        let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_BYTES)..]);
        FULL.iter().any(|words| tail.contains(words))
    })
}

/// Writes a small file: the only test that covers quotas, inodes and space reserved for others.
fn probe(folder: &Path) -> io::Result<()> {
    let name = format!(".eyas-probe-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = folder.join(name);
    let mut content = vec![0; PROBE_BYTES];
    // Content that no file system can compress.
    blake3::Hasher::new()
        .update(path.as_os_str().as_encoded_bytes())
        .finalize_xof()
        .fill(&mut content);
    let written = File::create_new(&path).and_then(|mut file| file.write_all(&content));
    // If the file was not made, there is nothing to remove.
    let _ = fs::remove_file(&path);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_about_a_full_disk_counts_only_if_the_disk_is_short() {
        let folder = tempfile::tempdir().unwrap();
        let printed: &[&[u8]] = &[b"", b"sort: write failed: /tmp/x: No space left on device\n"];
        assert!(!is_full(folder.path(), 0, printed));
        assert!(is_full(folder.path(), u64::MAX, printed));
        assert!(!is_full(folder.path(), u64::MAX, &[b"exit", b""]));
        assert!(
            !is_full(&folder.path().join("gone"), u64::MAX, printed),
            "a folder that is not there is not full"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_end_of_the_output_counts() {
        let mut long = b"ENOSPC".to_vec();
        long.extend([b' '; TAIL_BYTES]);
        assert!(!says_full(&[&long]));
        long.extend(b"write error: Disk quota exceeded");
        assert!(says_full(&[&long]));
    }
}
