//! Static blocks: all chunks are split evenly in advance, where they are as far as possible, as HDFS does.

use alloc::vec::Vec;

use super::{Outlook, Scheduler, Share, evenly};

pub(super) struct Static;

impl Scheduler for Static {
    fn shares(&self, outlook: &Outlook) -> Vec<Share> {
        evenly(0, outlook.chunks, outlook.free, outlook.slots)
    }
}
