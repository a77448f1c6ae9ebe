//! Layouts of the files that programs have open, on storages that stripe files over servers.
//!
//! A layout is looked up with the first request for a file, by the descriptor that the program has
//! of it. A storage whose first file has no layout is not asked again.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use eyas_ioq::FileLayout;

use super::read_ahead::FileKey;

mod beegfs;
mod lustre;

/// Storages and files whose layouts are remembered. Beyond that, all are forgotten, and looked up
/// again.
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
    /// Looks up the layout of a file that a process has open, unless it is known.
    pub fn look_up(&mut self, key: FileKey, process: u32) {
        if matches!(self.storages.get(&key.0), Some(None)) || self.files.contains_key(&key) {
            return;
        }
        // It may have closed the file meanwhile.
        let Some(path) = path_of(key, process) else { return };
        if self.files.len() >= MAX_REMEMBERED || self.storages.len() >= MAX_REMEMBERED {
            *self = FileLayouts::default();
        }
        let readers: &[ReadLayout] = match self.storages.get(&key.0) {
            Some(Some(reader)) => &[*reader],
            _ => &[lustre::read, beegfs::read],
        };
        let mut found = None;
        for reader in readers {
            found = reader(&path).filter(FileLayout::is_valid);
            if found.is_some() {
                self.storages.insert(key.0, Some(*reader));
                break;
            }
        }
        self.storages.entry(key.0).or_insert(None);
        self.files.insert(key, found.map(Arc::new));
    }

    /// Layout of a file, if it is known.
    pub fn known(&self, key: FileKey) -> Option<Arc<FileLayout>> {
        self.files.get(&key).cloned().flatten()
    }

    /// Whether the storage stripes files.
    pub fn are_told_by(&self, device: u64) -> bool {
        matches!(self.storages.get(&device), Some(Some(_)))
    }

    /// A program has closed a file, whose layout may change before it is opened again.
    pub fn closed(&mut self, key: FileKey) {
        self.files.remove(&key);
    }
}

/// A path to a file that a process has open.
fn path_of((device, inode): FileKey, process: u32) -> Option<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    descriptors.flatten().take(MAX_SOUGHT).map(|descriptor| descriptor.path()).find(|path| {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (device, inode))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_storages_have_no_layout() {
        let file = tempfile::tempfile().unwrap();
        let found = file.metadata().unwrap();
        let key = (found.dev(), found.ino());
        let process = std::process::id();
        assert_eq!(fs::metadata(path_of(key, process).unwrap()).unwrap().ino(), key.1);
        let mut layouts = FileLayouts::default();
        layouts.look_up((key.0, u64::MAX), process);
        assert!(layouts.storages.is_empty(), "the file is not open, so nothing is known");
        layouts.look_up(key, process);
        assert_eq!(layouts.known(key), None);
        assert!(!layouts.are_told_by(key.0) && layouts.storages.len() == 1);
    }
}
