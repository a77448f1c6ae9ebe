//! The size and the free space of the cluster's file system.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fuser::ReplyStatfs;
use tokio::task::JoinSet;

use crate::failure::MountFailure;
use crate::mounted::Mounted;

/// Time for which an answer is used again.
const REMEMBERED: Duration = Duration::from_secs(2);

/// Size of a block in `statfs`.
const BLOCK_BYTES: u64 = 4096;

/// Longest name of an entry.
const NAME_BYTES: u32 = 255;

/// A number of free inodes: there is no bound on files.
const FREE_INODES: u64 = 1 << 40;

/// The space of all nodes together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterSpace {
    used_bytes: u64,
    free_bytes: u64,
}

/// The space when it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct KnownSpace(Mutex<Option<(ClusterSpace, Instant)>>);

impl ClusterSpace {
    pub fn reply(self, reply: ReplyStatfs) {
        let free = self.free_bytes / BLOCK_BYTES;
        let all = free + self.used_bytes.div_ceil(BLOCK_BYTES);
        let block = BLOCK_BYTES as u32;
        reply.statfs(all, free, free, FREE_INODES, FREE_INODES, block, NAME_BYTES, block);
    }
}

impl Mounted {
    /// The space of all nodes that answer. Replicas count as often as they are stored.
    pub async fn space(&self) -> Result<ClusterSpace, MountFailure> {
        let known = self.known_space.0.lock().ok().and_then(|known| *known);
        if let Some((space, at)) = known
            && at.elapsed() < REMEMBERED
        {
            return Ok(space);
        }
        let (mut space, mut asked) = (ClusterSpace { used_bytes: 0, free_bytes: 0 }, JoinSet::new());
        for member in self.namespace.dfs.membership().await?.alive {
            let files = self.namespace.dfs.clone();
            asked.spawn(async move { files.usage(&member).await });
        }
        while let Some(Ok(usage)) = asked.join_next().await {
            if let Ok(usage) = usage {
                space.used_bytes += usage.bytes;
                space.free_bytes += usage.free_bytes;
            }
        }
        if let Ok(mut known) = self.known_space.0.lock() {
            *known = Some((space, Instant::now()));
        }
        Ok(space)
    }
}
