//! Files that are striped over the servers of a storage (io-coordination §5.3).

use alloc::vec::Vec;
use core::num::{NonZeroU32, NonZeroU64};

use eyas_types::Extent;
use serde::{Deserialize, Serialize};

/// How the files of a storage are striped over its servers: one stripe after the other, in turns,
/// from the first server on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Striping {
    /// Number of servers.
    pub servers: NonZeroU32,
    /// Bytes of a stripe.
    pub stripe_bytes: NonZeroU64,
}

/// What of some bytes of a file is on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripedPart {
    /// Index of the server within the storage, from 0.
    pub server: u32,
    /// The bytes in the server's own part of the file, which consists of its stripes without the
    /// others between them.
    pub extent: Extent,
}

impl Striping {
    /// The parts of these bytes, by server; servers that have none of them are left out. For
    /// example, with stripes of 5 on two servers, the bytes from 0 to 15 are 10 on the first and 5
    /// on the second.
    pub fn parts(&self, bytes: Extent) -> Vec<StripedPart> {
        let stripes =
            u64::from(self.servers.get()).min((bytes.end() / self.stripe_bytes).saturating_add(1));
        let part = |server: u32| {
            let offset = self.own_offset(server, bytes.offset);
            let size_bytes = self.own_offset(server, bytes.end()) - offset;
            StripedPart { server, extent: Extent { offset, size_bytes } }
        };
        // A file that ends within the first stripes is not on the servers after them.
        (0..u32::try_from(stripes).unwrap_or(u32::MAX))
            .map(part)
            .filter(|part| part.extent.size_bytes > 0)
            .collect()
    }

    /// Number of the server's own bytes before this offset of a file.
    fn own_offset(&self, server: u32, offset: u64) -> u64 {
        let (stripe, servers) = (self.stripe_bytes.get(), u64::from(self.servers.get()));
        let (number, within) = (offset / stripe, offset % stripe);
        let (rounds, last) = (number / servers, number % servers);
        let server = u64::from(server);
        let more = match server < last {
            true => stripe,
            false if server == last => within,
            false => 0,
        };
        rounds * stripe + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn striping(servers: u32, stripe_bytes: u64) -> Striping {
        let servers = NonZeroU32::new(servers).unwrap();
        Striping { servers, stripe_bytes: NonZeroU64::new(stripe_bytes).unwrap() }
    }

    fn parts(striping: Striping, offset: u64, size_bytes: u64) -> Vec<(u32, u64, u64)> {
        let parts = striping.parts(Extent { offset, size_bytes });
        parts.iter().map(|part| (part.server, part.extent.offset, part.extent.size_bytes)).collect()
    }

    #[test]
    fn stripes_go_to_the_servers_in_turns() {
        let two = striping(2, 5);
        assert_eq!(parts(two, 0, 15), [(0, 0, 10), (1, 0, 5)], "the paper's figure 5, call R1");
        assert_eq!(parts(two, 15, 10), [(0, 10, 5), (1, 5, 5)], "and R2");
        assert_eq!(parts(two, 7, 2), [(1, 2, 2)]);
        assert_eq!(parts(two, 9, 2), [(0, 5, 1), (1, 4, 1)]);
        assert_eq!(parts(two, 9, 0), []);
        assert_eq!(parts(striping(1, 5), 3, 40), [(0, 3, 40)]);
        assert_eq!(parts(striping(u32::MAX, u64::MAX), 3, 40), [(0, 3, 40)]);
    }

    #[test]
    fn each_byte_is_on_one_server_and_neighbours_continue_each_other() {
        for (servers, stripe) in [(1, 1), (2, 3), (3, 4), (5, 1)] {
            let striping = striping(servers, stripe);
            for middle in 0..70 {
                let sum = |offset, size| {
                    parts(striping, offset, size).iter().map(|part| part.2).sum::<u64>()
                };
                assert_eq!(sum(0, middle), middle);
                assert_eq!(sum(middle, 31), 31);
                for (server, offset, _) in parts(striping, middle, 31) {
                    let before = parts(striping, 0, middle);
                    let end = before.iter().find(|part| part.0 == server).map_or(0, |part| part.2);
                    assert_eq!(offset, end, "{servers} servers, stripes of {stripe}, {middle}");
                }
            }
        }
    }
}
