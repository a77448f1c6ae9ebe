//! The size and the free space of the cluster's file system.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use eyas_files::DfsClient;
use fuser::ReplyStatfs;
use tokio::task::JoinSet;

use crate::failure::MountFailure;

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

/// Asks for the space.
pub(crate) struct SpaceGauge {
    dfs: DfsClient,
    /// Number of replicas of new files.
    replication: u8,
    /// The space when it was last asked for.
    known: Mutex<Option<(ClusterSpace, Instant)>>,
}

impl ClusterSpace {
    pub fn reply(self, reply: ReplyStatfs) {
        let free = self.free_bytes / BLOCK_BYTES;
        let all = free + self.used_bytes.div_ceil(BLOCK_BYTES);
        let block = BLOCK_BYTES as u32;
        reply.statfs(all, free, free, FREE_INODES, FREE_INODES, block, NAME_BYTES, block);
    }
}

/// Number of bytes that can be written, when each is stored on this number of nodes with these free
/// bytes.
fn writable(mut free: Vec<u64>, replicas: u64) -> u64 {
    free.sort_unstable_by(|one, other| other.cmp(one));
    let all: u64 = free.iter().sum();
    // A node stores each byte once at most: what the largest ones have beyond the rest is of no
    // use.
    let (mut rest, mut left) = (all, replicas);
    for most in free {
        if left <= 1 || most <= rest / left {
            break;
        }
        (rest, left) = (rest - most, left - 1);
    }
    rest / left.max(1)
}

impl SpaceGauge {
    pub fn new(dfs: DfsClient, replication: u8) -> Self {
        SpaceGauge { dfs, replication, known: Mutex::default() }
    }

    /// The space of all nodes that answer, as files with the replicas of this mount use it.
    pub async fn space(&self) -> Result<ClusterSpace, MountFailure> {
        let known = self.known.lock().ok().and_then(|known| *known);
        if let Some((space, at)) = known
            && at.elapsed() < REMEMBERED
        {
            return Ok(space);
        }
        let (mut used_bytes, mut free, mut asked) = (0, Vec::new(), JoinSet::new());
        for member in self.dfs.membership().await?.alive {
            let files = self.dfs.clone();
            asked.spawn(async move { files.usage(&member).await });
        }
        while let Some(Ok(usage)) = asked.join_next().await {
            if let Ok(usage) = usage {
                used_bytes += usage.bytes;
                free.push(usage.free_bytes);
            }
        }
        let replicas = u64::from(self.replication).clamp(1, free.len().max(1) as u64);
        let space = ClusterSpace {
            used_bytes: used_bytes / replicas,
            free_bytes: writable(free, replicas),
        };
        if let Ok(mut known) = self.known.lock() {
            *known = Some((space, Instant::now()));
        }
        Ok(space)
    }
}

#[cfg(test)]
mod tests {
    use super::writable;

    #[test]
    fn writable_space_counts_each_byte_once() {
        for (free, replicas, expected) in [
            (&[][..], 1, 0),
            (&[10, 20, 30], 1, 60),
            (&[30, 30, 30], 3, 30),
            (&[10, 20, 30], 3, 10),
            (&[10, 20, 30], 2, 30),
            (&[1, 2, 100], 2, 3),
            (&[0, 100], 2, 0),
            (&[50, 60, 1, 1], 2, 52),
            (&[10, 10, 10, 10, 10], 3, 16),
        ] {
            assert_eq!(writable(free.to_vec(), replicas), expected, "{free:?}");
        }
    }
}
