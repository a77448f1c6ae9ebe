//! One-at-a-time: one request for each node, which is granted as soon as one node is free.

use super::Provisioning;

pub(super) struct OneAtATime;

impl Provisioning for OneAtATime {
    fn request(&self, _: u32) -> u32 {
        1
    }
}
