//! Open files and folders.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::Errno;

use crate::failure::MountFailure;
use crate::folders::FolderReader;
use crate::inode::Inode;

/// An open file or folder.
pub(crate) enum OpenHandle {
    File(OpenContent),
    Folder(tokio::sync::Mutex<FolderReader>),
}

impl OpenHandle {
    pub fn folder(&self) -> Result<&tokio::sync::Mutex<FolderReader>, MountFailure> {
        match self {
            OpenHandle::Folder(reader) => Ok(reader),
            OpenHandle::File(_) => Err(Errno::ENOTDIR.into()),
        }
    }
}

/// An open file.
pub(crate) struct OpenContent {
    pub node: Arc<Inode>,
    pub may_write: bool,
}

/// The handles that the kernel has, by their numbers.
pub(crate) struct OpenHandles {
    table: Mutex<HashMap<u64, Arc<OpenHandle>>>,
    next: AtomicU64,
}

impl OpenHandles {
    pub fn new() -> Self {
        OpenHandles { table: Mutex::default(), next: AtomicU64::new(1) }
    }

    /// Gives the kernel a handle.
    fn open(&self, handle: OpenHandle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.table().insert(number, Arc::new(handle));
        number
    }

    /// Gives the kernel a handle of a file.
    pub fn open_file(&self, node: Arc<Inode>, may_write: bool) -> u64 {
        node.state().opened(may_write);
        self.open(OpenHandle::File(OpenContent { node, may_write }))
    }

    /// Gives the kernel a handle of a folder.
    pub fn open_folder(&self, reader: FolderReader) -> u64 {
        self.open(OpenHandle::Folder(tokio::sync::Mutex::new(reader)))
    }

    pub fn get(&self, number: u64) -> Result<Arc<OpenHandle>, MountFailure> {
        self.table().get(&number).cloned().ok_or_else(|| Errno::EBADF.into())
    }

    pub fn close(&self, number: u64) -> Option<Arc<OpenHandle>> {
        self.table().remove(&number)
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, Arc<OpenHandle>>> {
        // No update of the table panics half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
