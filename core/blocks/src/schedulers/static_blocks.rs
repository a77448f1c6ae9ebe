//! Static blocks: all chunks are divided evenly in advance, with local replicas where possible, as
//! HDFS does.

use alloc::vec::Vec;

use super::scheduler::{AssignedChunks, AssignmentInput, BlockScheduler, evenly};

pub(super) struct Static;

impl BlockScheduler for Static {
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks> {
        evenly(0, input.chunks, input.free, input.slots)
    }
}
