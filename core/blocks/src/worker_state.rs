//! What is known of a worker beside what it holds: how far and how fast it is. None of it is saved.

use crate::chunks::NodeIndex;
use crate::measures::{ReadRate, duration_us};

pub(crate) struct WorkerState {
    /// Where it is. Unknown after a restart, until it asks.
    pub node: Option<NodeIndex>,
    /// Chunks of its block that it has read, their bytes, and the bytes that it has read in all.
    pub done: u32,
    pub done_bytes: u64,
    pub read_bytes: u64,
    /// Of its block.
    pub block_bytes: u64,
    /// So many chunks of its block it may begin without asking. Never less than it was told.
    pub confirmed: u32,
    /// It was told that there is no more, or works through a block that another has, too.
    pub is_ending: bool,
    pub rate: ReadRate,
    /// When it had its first chunks, and when it was last seen to read.
    pub began_us: u64,
    pub progressed_us: u64,
    pub expires_us: u64,
    /// Its key among those from whom others take.
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

    /// It has so many bytes more to read.
    pub fn begin(&mut self, now_us: u64, bytes: u64) {
        if self.block_bytes == 0 {
            (self.began_us, self.progressed_us) = (now_us, now_us);
        }
        self.block_bytes += bytes;
    }

    pub fn left_bytes(&self) -> u64 {
        self.block_bytes.saturating_sub(self.read_bytes)
    }

    /// How long it is expected to go on, microseconds: as its rate says, and as long again as it has shown nothing.
    pub fn left_us(&self, now_us: u64) -> u64 {
        let by_rate = self.rate.map_or(0, |rate| duration_us(self.left_bytes(), rate));
        by_rate.max(now_us.saturating_sub(self.progressed_us))
    }
}
