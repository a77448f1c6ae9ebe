//! Publications that are tried again, and those at the end of the mount.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::Errno;

use super::Mounted;
use crate::failure::MountFailure;
use crate::inode::Inode;
use crate::unpublished::UnpublishedFile;

/// Pause between two rounds of tries.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(2);

impl Mounted {
    /// The publication of a file has failed. If no program has the file open for writing, it is
    /// tried again later, or its changes are dropped.
    pub(super) async fn not_closed(&self, node: &Arc<Inode>, failure: &MountFailure) {
        if !node.state().is_abandoned() {
            return;
        }
        if let Err(why) = self.unpublished.add(node, failure) {
            self.publisher.give_up(node, &why, self.shown()).await;
        }
    }

    /// Tries to publish the files whose publication has failed, again and again.
    pub async fn publish_again(self: Arc<Self>) {
        loop {
            tokio::time::sleep(TRY_AGAIN_AFTER).await;
            for _ in 0..self.unpublished.count() {
                let Some(file) = self.unpublished.take_next() else { break };
                if !self.publish_file_again(file).await {
                    break;
                }
            }
        }
    }

    /// Tries to publish a file whose publication has failed. Returns whether the cluster seems to
    /// be reachable.
    async fn publish_file_again(&self, file: UnpublishedFile) -> bool {
        let node = file.node.clone();
        // A program that has opened it meanwhile publishes it when it closes it.
        if !node.state().is_abandoned() {
            return true;
        }
        match self.publish(&node, true).await {
            Ok(()) => {
                tracing::warn!("changes of {} are published now", self.entries.shown_name(&node));
                node.drop_draft();
            }
            Err(failure) if self.unpublished.add_again(file, &failure) => {
                return failure.errno.code() != libc::EIO;
            }
            Err(failure) => {
                self.publisher.give_up(&node, &failure.reason(), self.shown()).await;
            }
        }
        self.entries.inodes.published(&node);
        true
    }

    /// Publishes all drafts at the end of the mount, and waits for publications that are under way.
    /// Once the cluster has not answered, only for as long as one operation may take. Then deletes
    /// what was kept of removed files.
    pub async fn end(&self) {
        let mut deadline = None;
        for node in self.entries.inodes.with_drafts() {
            let published = match deadline {
                Some(deadline) if Instant::now() >= deadline => Err(Errno::EIO.into()),
                _ => self.publish(&node, true).await,
            };
            let Err(failure) = published else { continue };
            if failure.errno.code() == libc::EIO {
                deadline = deadline.or(Some(Instant::now() + self.timeout));
            }
            let name = self.entries.shown_name(&node);
            tracing::warn!("changes of {name} are lost: {}", failure.reason());
        }
        self.removed.release_all(&self.entries.inodes).await;
    }
}
