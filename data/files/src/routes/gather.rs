//! Waits for nodes that are about to join. A cluster that has just been started has one member at
//! first. A file written at this moment would have one replica, and would be lost with the first
//! node that dies.

use std::time::Instant;

use crate::backoff::Backoff;
use crate::error::FilesError;
use crate::routes::{KnownNodes, Routes};

/// The number of nodes that have joined, and the number to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinProgress {
    /// Members that are alive.
    pub joined: usize,
    /// Number of nodes to wait for: the replication of a file, or the number of known nodes if it
    /// is smaller.
    pub wanted: usize,
}

impl JoinProgress {
    /// Whether enough nodes have joined.
    pub fn is_enough(&self) -> bool {
        self.joined >= self.wanted
    }
}

impl Routes {
    /// Waits until `count` nodes have joined, or all known nodes if they are fewer, and until the
    /// file system can lose some of them. Waits no longer than `GATHER_DEADLINE`. Calls `see` once
    /// if there is anything to wait for. Returns the final state.
    pub async fn gather(
        &self,
        count: usize,
        see: impl FnOnce(JoinProgress),
    ) -> Result<JoinProgress, FilesError> {
        let wanted = count.min(self.seeds.len());
        let (mut see, mut pause) = (Some(see), Backoff::default());
        loop {
            let known = self.known();
            let gathering = JoinProgress { joined: known.size(), wanted };
            if known.has_gathered(wanted) || Instant::now() >= self.gathers_until {
                return Ok(gathering);
            }
            if let Some(see) = see.take() {
                see(gathering);
            }
            pause.wait().await;
            self.refresh(self.deadline()).await?;
        }
    }
}

impl KnownNodes {
    /// Whether enough nodes have joined and no valid entry depends on fewer nodes: the next view
    /// still reads from the members of views before the last settled one.
    fn has_gathered(&self, wanted: usize) -> bool {
        let is_with_enough =
            self.is_settled || self.view.sources.iter().all(|members| members.len() >= wanted);
        self.size() >= wanted && is_with_enough
    }
}
