//! Files whose publication has failed after the last program that wrote to them has closed them.
//! The program got the error; its changes stay in the draft, which programs of this mount see, and
//! are published when that is possible again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_files::ContentDraft;
use fuser::Errno;

use crate::failure::MountFailure;
use crate::inode::Inode;

/// Maximum number of files whose publication is tried again. The changes of further ones are
/// dropped.
const MAX_UNPUBLISHED_FILES: usize = 1000;

/// Maximum size of their drafts in the scratch folder. Changes beyond it are dropped.
const MAX_UNPUBLISHED_BYTES: u64 = 4 << 30;

/// Time after which changes that still cannot be published are dropped.
const MAX_UNPUBLISHED_TIME: Duration = Duration::from_secs(24 * 3600);

/// The files whose publication is tried again, in the order of the tries.
#[derive(Debug, Default)]
pub(crate) struct UnpublishedFiles(Mutex<VecDeque<UnpublishedFile>>);

#[derive(Debug)]
pub(crate) struct UnpublishedFile {
    pub node: Arc<Inode>,
    /// When its publication has failed first.
    since: Instant,
}

impl UnpublishedFiles {
    fn files(&self) -> MutexGuard<'_, VecDeque<UnpublishedFile>> {
        // No update of the queue panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.files().len()
    }

    /// The publication of a file has failed: it is tried again later. If it cannot be, this fails
    /// with the reason, and its changes are to be dropped.
    pub fn add(&self, node: &Arc<Inode>, failure: &MountFailure) -> Result<(), String> {
        if !is_temporary(failure.errno) {
            return Err(failure.reason());
        }
        let mut files = self.files();
        if files.iter().any(|file| Arc::ptr_eq(&file.node, node)) {
            return Ok(());
        }
        if files.len() >= MAX_UNPUBLISHED_FILES {
            return Err(format!("{MAX_UNPUBLISHED_FILES} files wait to be published already"));
        }
        let scratch_bytes =
            |node: &Arc<Inode>| node.state().draft().map_or(0, ContentDraft::scratch_bytes);
        let stored = files.iter().map(|file| &file.node).chain([node]).map(scratch_bytes);
        if stored.sum::<u64>() > MAX_UNPUBLISHED_BYTES {
            return Err(format!(
                "the files that wait to be published have more than {MAX_UNPUBLISHED_BYTES} bytes"
            ));
        }
        files.push_back(UnpublishedFile { node: node.clone(), since: Instant::now() });
        Ok(())
    }

    /// The file that is to be tried next.
    pub fn take_next(&self) -> Option<UnpublishedFile> {
        self.files().pop_front()
    }

    /// Adds a file whose publication has failed again. Returns whether it has; otherwise its
    /// changes are to be dropped.
    pub fn add_again(&self, file: UnpublishedFile, failure: &MountFailure) -> bool {
        let is_hopeful = is_temporary(failure.errno) && file.since.elapsed() < MAX_UNPUBLISHED_TIME;
        if is_hopeful {
            self.files().push_back(file);
        }
        is_hopeful
    }
}

/// Whether the same publication may succeed later.
fn is_temporary(errno: Errno) -> bool {
    [libc::EIO, libc::ENOSPC, libc::EDQUOT].contains(&errno.code())
}
