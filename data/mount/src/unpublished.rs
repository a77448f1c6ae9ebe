//! Files whose publication has failed after the last program that wrote to them has closed them.
//! The program got the error; its changes stay in the draft, which programs of this mount see, and
//! are published when that is possible again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_files::ContentDraft;
use fuser::Errno;

use crate::failure::MountFailure;
use crate::mounted::Mounted;
use crate::nodes::Inode;

/// Maximum number of files whose publication is tried again. The changes of further ones are
/// dropped.
const MAX_UNPUBLISHED_FILES: usize = 1000;

/// Maximum size of their drafts in the scratch folder. Changes beyond it are dropped.
const MAX_UNPUBLISHED_BYTES: u64 = 4 << 30;

/// Time after which changes that still cannot be published are dropped.
const MAX_UNPUBLISHED_TIME: Duration = Duration::from_secs(24 * 3600);

/// Pause between two rounds of tries.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// The files whose publication is tried again, in the order of the tries.
#[derive(Debug, Default)]
pub(crate) struct UnpublishedFiles(Mutex<VecDeque<UnpublishedFile>>);

#[derive(Debug)]
struct UnpublishedFile {
    node: Arc<Inode>,
    /// When its publication has failed first.
    since: Instant,
}

impl UnpublishedFiles {
    fn files(&self) -> MutexGuard<'_, VecDeque<UnpublishedFile>> {
        // No update of the queue panics half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file, unless it is there already. Fails with the bound that would be exceeded.
    fn add(&self, node: &Arc<Inode>) -> Result<(), String> {
        let mut files = self.files();
        if files.iter().any(|file| Arc::ptr_eq(&file.node, node)) {
            return Ok(());
        }
        if files.len() >= MAX_UNPUBLISHED_FILES {
            return Err(format!("{MAX_UNPUBLISHED_FILES} files wait to be published already"));
        }
        let scratch_bytes =
            |node: &Arc<Inode>| node.state().draft.as_ref().map_or(0, ContentDraft::scratch_bytes);
        let stored = files.iter().map(|file| &file.node).chain([node]).map(scratch_bytes);
        if stored.sum::<u64>() > MAX_UNPUBLISHED_BYTES {
            return Err(format!(
                "the files that wait to be published have more than {MAX_UNPUBLISHED_BYTES} bytes"
            ));
        }
        files.push_back(UnpublishedFile { node: node.clone(), since: Instant::now() });
        Ok(())
    }
}

impl Mounted {
    /// The publication of a file has failed. If no program has the file open for writing, it is
    /// tried again later, or its changes are dropped.
    pub async fn not_closed(&self, node: &Arc<Inode>, failure: &MountFailure) {
        if !node.state().is_abandoned() {
            return;
        }
        let added = if is_temporary(failure.errno) {
            self.unpublished_files.add(node)
        } else {
            Err(failure.reason())
        };
        if let Err(why) = added {
            self.give_up(node, &why).await;
        }
    }

    /// Tries to publish the files whose publication has failed, again and again.
    pub async fn publish_again(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TRY_AGAIN_AFTER).await;
            let waiting = self.unpublished_files.files().len();
            for _ in 0..waiting {
                let Some(file) = self.unpublished_files.files().pop_front() else { break };
                if !self.publish_file_again(file).await {
                    break;
                }
            }
        }
    }

    /// Tries to publish a file whose publication has failed. Returns whether the cluster seems to
    /// be reachable.
    async fn publish_file_again(&self, file: UnpublishedFile) -> bool {
        // A program that has opened it meanwhile publishes it when it closes it.
        if !file.node.state().is_abandoned() {
            return true;
        }
        match self.publish(&file.node, true).await {
            Ok(()) => {
                tracing::warn!("changes of {} are published now", self.shown_name(&file.node));
                self.drop_draft(&file.node);
                self.nodes.published(&file.node);
                true
            }
            Err(failure)
                if is_temporary(failure.errno) && file.since.elapsed() < MAX_UNPUBLISHED_TIME =>
            {
                self.unpublished_files.files().push_back(file);
                failure.errno.code() != libc::EIO
            }
            Err(failure) => {
                self.give_up(&file.node, &failure.reason()).await;
                self.nodes.published(&file.node);
                true
            }
        }
    }

    /// Drops the changes of a file that no program has open for writing: the file of the cluster is
    /// visible again.
    async fn give_up(&self, node: &Inode, why: &str) {
        let _publishing = node.publishing.lock().await;
        let is_new = {
            let mut state = node.state();
            if !state.is_abandoned() {
                return;
            }
            (state.draft, state.is_late) = (None, false);
            !state.is_published
        };
        tracing::warn!("changes of {} are dropped: {why}", self.shown_name(node));
        match self.nodes.name(node.number).filter(|_| is_new) {
            Some(name) => drop(self.nodes.removed(&name)),
            None => self.invalidate(node),
        }
    }

    /// Publishes all drafts at the end of the mount, and waits for publications that are under way.
    /// Once the cluster has not answered, only for as long as one operation may take.
    pub async fn publish_all(&self) {
        let mut deadline = None;
        for node in self.nodes.with_drafts() {
            let published = match deadline {
                Some(deadline) if Instant::now() >= deadline => Err(Errno::EIO.into()),
                _ => self.publish(&node, true).await,
            };
            let Err(failure) = published else { continue };
            if failure.errno.code() == libc::EIO {
                deadline = deadline.or(Some(Instant::now() + self.timeout));
            }
            tracing::warn!("changes of {} are lost: {}", self.shown_name(&node), failure.reason());
        }
    }
}

/// Whether the same publication may succeed later.
fn is_temporary(errno: Errno) -> bool {
    [libc::EIO, libc::ENOSPC, libc::EDQUOT].contains(&errno.code())
}
