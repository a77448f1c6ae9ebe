//! Whether the node's own disk has room. A task that finds it full fails in milliseconds, and the next one after it: the
//! node would swallow the job. Such a failure is the node's.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{statfs, statvfs};
use rustix::io::Errno;

/// Written to find out. A disk that takes this much did not fail a task by being full, unless the task says so.
const PROBE_BYTES: usize = 64 << 10;
/// The end of what a task wrote, where it says why it failed.
const TAIL_BYTES: usize = 4 << 10;

/// What programs print when a disk or a quota is full: the C library's words, Rust's and Java's numbers.
const FULL: [&str; 5] = ["No space left on device", "Disk quota exceeded", "ENOSPC", "(os error 28)", "(os error 122)"];

/// File systems on disks of one node or in its memory, by their numbers in `statfs(2)`.
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

/// Whether the disk under a folder is full, so that a task which failed may have failed by that. `said` is what the task
/// wrote; it is believed where less than `floor_bytes` are free.
pub(crate) fn is_full(folder: &Path, floor_bytes: u64, said: &[&[u8]]) -> bool {
    let is_short = || statvfs(folder).is_ok_and(|disk| disk.f_bavail * disk.f_frsize < floor_bytes);
    (says_full(said) && is_short()) || probe(folder).is_err_and(|e| is_no_room(&e))
}

/// Whether a folder is on a file system of this node alone.
pub(crate) fn is_local(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|system| LOCAL.contains(&(system.f_type as u32)))
}

/// Whether an error is for want of space, inodes or quota.
pub(crate) fn is_no_room(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOSPC | Errno::DQUOT))
}

fn says_full(said: &[&[u8]]) -> bool {
    said.iter().any(|text| {
        let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL_BYTES)..]);
        FULL.iter().any(|words| tail.contains(words))
    })
}

/// Writes a small file: only that meets quotas, inodes and what is reserved for others alike.
fn probe(folder: &Path) -> io::Result<()> {
    let name = format!(".eyas-probe-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = folder.join(name);
    let mut content = vec![0; PROBE_BYTES];
    // What no file system can compress.
    blake3::Hasher::new().update(path.as_os_str().as_encoded_bytes()).finalize_xof().fill(&mut content);
    let written = File::create_new(&path).and_then(|mut file| file.write_all(&content));
    // If it was not made, there is nothing to remove.
    let _ = fs::remove_file(&path);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_with_room_is_not_full_whatever_a_task_says_unless_it_is_short() {
        let folder = tempfile::tempdir().unwrap();
        let said: &[&[u8]] = &[b"", b"sort: write failed: /tmp/x: No space left on device\n"];
        assert!(!is_full(folder.path(), 0, said));
        assert!(is_full(folder.path(), u64::MAX, said));
        assert!(!is_full(folder.path(), u64::MAX, &[b"exit", b""]));
        assert!(!is_full(&folder.path().join("gone"), u64::MAX, said), "a folder that is not there is not full");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_the_end_of_what_a_task_says_counts() {
        let mut long = b"ENOSPC".to_vec();
        long.extend([b' '; TAIL_BYTES]);
        assert!(!says_full(&[&long]));
        long.extend(b"write error: Disk quota exceeded");
        assert!(says_full(&[&long]));
    }
}
