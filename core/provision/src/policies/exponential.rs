//! Exponential: requests for one node, two nodes, four nodes … For example 7 requests for 100
//! nodes: the last one is for 37.

use super::Provisioning;

pub(super) struct Exponential;

impl Provisioning for Exponential {
    fn request(&self, earlier: u32) -> u32 {
        1_u32.checked_shl(earlier).unwrap_or(u32::MAX)
    }
}
