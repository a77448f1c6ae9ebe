//! Open files or folders, by the handles that the kernel has of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::FileHandle;
use rustix::io::{Errno, Result};

use crate::nodes::PassedNode;

/// Open files, or open folders. There are at most as many as this process may have descriptors.
pub(crate) struct PassedHandles<T> {
    table: Mutex<HandleTable<T>>,
    next: AtomicU64,
}

/// Open files or folders, each with its entry, whose descriptor stays open as long.
type HandleTable<T> = HashMap<u64, (Arc<T>, PassedNode)>;

impl<T> PassedHandles<T> {
    pub fn new() -> Self {
        PassedHandles { table: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Gives the kernel a handle.
    pub fn open(&self, opened: T, node: PassedNode) -> FileHandle {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.table().insert(number, (Arc::new(opened), node));
        FileHandle(number)
    }

    pub fn get(&self, handle: FileHandle) -> Result<Arc<T>> {
        self.table().get(&handle.0).map(|(opened, _)| opened.clone()).ok_or(Errno::BADF)
    }

    /// Takes a handle back. The file is closed with the last request that uses it.
    pub fn close(&self, handle: FileHandle) -> Option<(Arc<T>, PassedNode)> {
        self.table().remove(&handle.0)
    }

    fn table(&self) -> MutexGuard<'_, HandleTable<T>> {
        // No update of the table panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
