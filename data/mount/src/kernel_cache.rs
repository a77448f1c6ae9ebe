//! What the kernel has cached of files.

use std::sync::OnceLock;

use fuser::{INodeNo, Notifier};
use tokio::runtime::Handle;

use crate::inode::Inode;

/// The kernel's cache, in which content and attributes become invalid.
pub(crate) struct KernelCache {
    /// Tells the kernel; set when the file system is mounted.
    notifier: OnceLock<Notifier>,
    runtime: Handle,
}

impl KernelCache {
    pub fn new(runtime: Handle) -> Self {
        KernelCache { notifier: OnceLock::new(), runtime }
    }

    /// The file system is mounted.
    pub fn mounted(&self, notifier: Notifier) {
        // A file system is mounted once.
        let _ = self.notifier.set(notifier);
    }

    /// The kernel forgets the attributes that it has cached of a file, and asks for them again.
    pub fn invalidate_attributes(&self, node: &Inode) {
        if let Some(notifier) = self.notifier.get() {
            // The kernel may have forgotten the file.
            let _ = notifier.inval_inode(INodeNo(node.number), -1, 0);
        }
    }

    /// The kernel forgets the content that it has cached of a file. Does not wait for the kernel,
    /// which may wait for an answer of this process.
    pub fn invalidate(&self, node: &Inode) {
        let Some(notifier) = self.notifier.get().cloned() else { return };
        node.state().forget_cached();
        let number = INodeNo(node.number);
        self.runtime.spawn_blocking(move || {
            if let Err(error) = notifier.inval_inode(number, 0, 0) {
                tracing::debug!("the kernel does not forget a cached file: {error}");
            }
        });
    }
}
