//! A file, a folder or a symbolic link that the kernel knows.
//!
//! The lock of an entry's state is held for moments: never while something is awaited, and never
//! while the lock of the tables in `inodes.rs` is taken, whose holder may wait for it.

mod attributes;
mod state;
#[cfg(test)]
mod tests;
mod uses;
mod version;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_files::{File, SentRecords};
use eyas_types::dfs::FileId;

use crate::cluster_entry::ClusterEntry;

pub(crate) use self::state::{CacheAtOpen, InodeState, TRUSTED};

/// The inode number of the root.
pub(crate) const ROOT: u64 = 1;

/// A file, a folder or a symbolic link.
#[derive(Debug)]
pub(crate) struct Inode {
    pub number: u64,
    pub id: FileId,
    /// Held while a draft is published, or while the entry is renamed or removed.
    pub publishing: tokio::sync::Mutex<()>,
    /// The records with which publications of the draft were tried since the last one that
    /// succeeded.
    pub sent: SentRecords,
    state: Mutex<InodeState>,
}

impl Inode {
    pub fn new(number: u64, found: &ClusterEntry, is_published: bool) -> Self {
        let (publishing, sent) = (tokio::sync::Mutex::default(), SentRecords::default());
        let state = Mutex::new(InodeState::new(found, is_published));
        Inode { number, id: found.id, publishing, sent, state }
    }

    pub fn state(&self) -> MutexGuard<'_, InodeState> {
        // No update of the state panics half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The published version, if it is known.
    pub fn file(&self) -> Option<Arc<File>> {
        self.state().file().cloned()
    }

    /// Drops a draft that is published and that no program writes to.
    pub fn drop_draft(&self) {
        // The publication that is under way drops it.
        let Ok(_publishing) = self.publishing.try_lock() else { return };
        self.state().drop_unneeded_draft();
    }
}
