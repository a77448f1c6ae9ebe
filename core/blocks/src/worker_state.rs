//! The state of a worker beside its block: its progress and its rate. It is not saved.

use crate::chunks::NodeIndex;
use crate::measures::{ReadRate, duration_us};

pub(crate) struct WorkerState {
    /// The worker's node. Unknown after a restart until the worker asks.
    pub node: Option<NodeIndex>,
    /// Chunks of its block that it has read, their bytes, and all bytes that it has read.
    pub done: u32,
    pub done_bytes: u64,
    pub read_bytes: u64,
    /// Size of its block.
    pub block_bytes: u64,
    /// Number of chunks of its block that it may begin without asking. Never less than it was
    /// told.
    pub confirmed: u32,
    /// Whether it was told that there are no more chunks, or has a block of which there is a copy.
    pub is_ending: bool,
    pub rate: ReadRate,
    /// When it got its first chunks, and when it last made progress.
    pub began_us: u64,
    pub progressed_us: u64,
    pub expires_us: u64,
    /// Its key in the list of workers from which others take chunks.
    pub tail_us: Option<u64>,
}

impl WorkerState {
    pub fn new(node: Option<NodeIndex>, rate: ReadRate) -> Self {
        WorkerState {
            node,
            done: 0,
            done_bytes: 0,
            read_bytes: 0,
            block_bytes: 0,
            confirmed: 0,
            is_ending: false,
            rate,
            began_us: 0,
            progressed_us: 0,
            expires_us: 0,
            tail_us: None,
        }
    }

    /// The worker was granted `bytes` more.
    pub fn begin(&mut self, now_us: u64, bytes: u64) {
        if self.block_bytes == 0 {
            (self.began_us, self.progressed_us) = (now_us, now_us);
        }
        self.block_bytes += bytes;
    }

    pub fn left_bytes(&self) -> u64 {
        self.block_bytes.saturating_sub(self.read_bytes)
    }

    /// Expected remaining time, microseconds: from its rate, but at least the time in which it has
    /// made no progress. With 40 MB left at 10 MB/s it is 4 s, and 30 s if nothing was read in the
    /// last 30 s.
    pub fn left_us(&self, now_us: u64) -> u64 {
        let by_rate = self.rate.map_or(0, |rate| duration_us(self.left_bytes(), rate));
        by_rate.max(now_us.saturating_sub(self.progressed_us))
    }
}
