//! Additive: requests for one node, two nodes, three nodes … For example 14 requests for 100 nodes.

use super::Provisioning;

pub(super) struct Additive;

impl Provisioning for Additive {
    fn request(&self, earlier: u32) -> u32 {
        earlier.saturating_add(1)
    }
}
