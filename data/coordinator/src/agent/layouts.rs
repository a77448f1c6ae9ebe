//! Layouts of the files that programs have open, on storages that stripe files over servers.
//!
//! A layout is looked up with the first request for a file, by the descriptor that the program has
//! of it, and only on file systems that are known to tell layouts: the agent must not wait for
//! others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use eyas_ioq::FileLayout;

use super::program_file::FileKey;
use crate::storage_name::file_system;

mod beegfs;
mod lustre;

/// Storages, and files, that are remembered. Beyond that, all are forgotten, and looked up again.
const MAX_REMEMBERED: usize = 1 << 14;
/// Descriptors of a program among which a file is sought.
const MAX_SOUGHT: usize = 1 << 12;

/// Reads the layout of the file at a path; `None` if it has none.
type ReadLayout = fn(&PathBuf) -> Option<FileLayout>;

#[derive(Default)]
pub(super) struct FileLayouts {
    /// How each storage, by device, tells layouts, if it does.
    storages: BTreeMap<u64, Option<ReadLayout>>,
    files: BTreeMap<FileKey, Option<Arc<FileLayout>>>,
}

impl FileLayouts {
    /// Looks up the layout of a file that a process has open, unless that was done already. Returns
    /// whether the storage tells layouts.
    pub fn look_up(&mut self, key: FileKey, process: u32) -> bool {
        if self.files.len() >= MAX_REMEMBERED || self.storages.len() >= MAX_REMEMBERED {
            *self = FileLayouts::default();
        }
        let reader = *self.storages.entry(key.0).or_insert_with(|| reader_of(key.0));
        let Some(reader) = reader else { return false };
        self.files.entry(key).or_insert_with(|| {
            // The process may have closed the file meanwhile.
            let layout = reader(&path_of(key, process)?)?;
            layout.is_valid().then(|| Arc::new(layout))
        });
        true
    }

    /// Layout of a file, if it is known.
    pub fn known(&self, key: FileKey) -> Option<Arc<FileLayout>> {
        self.files.get(&key).cloned().flatten()
    }

    /// A program has closed a file, whose layout may change before it is opened again.
    pub fn closed(&mut self, key: FileKey) {
        self.files.remove(&key);
    }
}

/// How the file system on a device tells layouts.
fn reader_of(device: u64) -> Option<ReadLayout> {
    match file_system(device)?.as_str() {
        "lustre" => Some(lustre::read),
        "beegfs" => Some(beegfs::read),
        _ => None,
    }
}

/// A path to a file that a process has open.
fn path_of((device, inode): FileKey, process: u32) -> Option<PathBuf> {
    let process = PathBuf::from(format!("/proc/{process}"));
    let descriptors = fs::read_dir(process.join("fd")).ok()?;
    descriptors.flatten().take(MAX_SOUGHT).find_map(|descriptor| {
        // Before the file itself is looked at, which may be on a storage that does not answer.
        let told = fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()));
        if told.is_ok_and(|told| is_another(&told, inode)) {
            return None;
        }
        let path = descriptor.path();
        let found = fs::metadata(&path).ok()?;
        ((found.dev(), found.ino()) == (device, inode)).then_some(path)
    })
}

/// Whether the kernel says that a descriptor is of a file with another number, which it says since
/// Linux 5.14.
fn is_another(told: &str, inode: u64) -> bool {
    let number = told.lines().find_map(|line| line.strip_prefix("ino:"));
    number.is_some_and(|number| number.trim() != inode.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_storages_have_no_layout() {
        let file = tempfile::tempfile().unwrap();
        let found = file.metadata().unwrap();
        let key = (found.dev(), found.ino());
        let mut layouts = FileLayouts::default();
        assert!(!layouts.look_up(key, std::process::id()));
        assert_eq!(layouts.known(key), None);
    }

    #[test]
    fn a_file_is_found_among_the_descriptors_of_a_process() {
        let file = tempfile::tempfile().unwrap();
        let found = file.metadata().unwrap();
        let process = std::process::id();
        let path = path_of((found.dev(), found.ino()), process).unwrap();
        assert_eq!(fs::metadata(path).unwrap().ino(), found.ino());
        assert_eq!(path_of((found.dev(), u64::MAX), process), None);
        assert!(is_another("pos:\t0\nflags:\t0\nmnt_id:\t29\nino:\t12\n", 1));
        assert!(!is_another("pos:\t0\nino:\t12\n", 12));
        assert!(!is_another("pos:\t0\n", 12), "an older kernel");
    }

    #[test]
    fn a_file_is_looked_up_once_until_it_is_closed() {
        let mut layouts = FileLayouts::default();
        layouts.storages.insert(7, Some(|_| panic!("the file is not open")));
        let key = (7, u64::MAX);
        assert!(layouts.look_up(key, std::process::id()));
        assert!(layouts.files.contains_key(&key));
        layouts.closed(key);
        assert!(layouts.files.is_empty());
    }
}
