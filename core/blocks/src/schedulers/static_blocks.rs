//! Static blocks: all chunks are split evenly in advance, where they are as far as possible, as HDFS does.

use alloc::vec::Vec;

use super::{AssignedChunks, AssignmentInput, BlockScheduler, evenly};

pub(super) struct Static;

impl BlockScheduler for Static {
    fn shares(&self, input: &AssignmentInput) -> Vec<AssignedChunks> {
        evenly(0, input.chunks, input.free, input.slots)
    }
}
