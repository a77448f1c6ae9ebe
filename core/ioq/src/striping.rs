//! Files that are striped over the servers of a storage (io-coordination §5.3).

use alloc::collections::BTreeMap;
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

/// Where the bytes of one file are, as its file system tells it: regions of the file, by offset,
/// each up to the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout(pub Vec<StripedRegion>);

/// A part of a file whose stripes are on servers in turns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripedRegion {
    /// First byte.
    pub offset: u64,
    /// Bytes of a stripe, at least 1. Stripes are counted from the beginning of the file.
    pub stripe_bytes: u64,
    /// Servers of the storage, from 0. There are at most [`MAX_SERVERS`].
    pub servers: Vec<u32>,
}

/// Servers that files can be striped over.
pub const MAX_SERVERS: u32 = 1024;

/// Regions of a file that a layout can have.
const MAX_REGIONS: usize = 64;

/// What of some bytes of a file is on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripedPart {
    /// Index of the server within the storage, from 0.
    pub server: u32,
    /// The bytes in the server's own part of the file, which consists of its stripes without the
    /// others between them.
    pub extent: Extent,
}

impl FileLayout {
    /// Whether the regions follow each other, and each has servers that there can be.
    pub fn is_valid(&self) -> bool {
        let FileLayout(regions) = self;
        let has_servers = |region: &StripedRegion| {
            region.stripe_bytes > 0
                && (1..=MAX_SERVERS as usize).contains(&region.servers.len())
                && region.servers.iter().all(|server| *server < MAX_SERVERS)
        };
        (1..=MAX_REGIONS).contains(&regions.len())
            && regions.iter().all(has_servers)
            && regions.windows(2).all(|two| two[0].offset < two[1].offset)
    }

    /// The parts of these bytes, by server. A server has one part: of several regions, the sum. For
    /// bytes before the first region, there is none.
    pub fn parts(&self, bytes: Extent) -> Vec<StripedPart> {
        let FileLayout(regions) = self;
        let mut parts = BTreeMap::<u32, Extent>::new();
        for (place, region) in regions.iter().enumerate() {
            let end = regions.get(place + 1).map_or(u64::MAX, |next| next.offset);
            let (begin, end) = (bytes.offset.max(region.offset), bytes.end().min(end));
            let servers = u32::try_from(region.servers.len()).ok().and_then(NonZeroU32::new);
            let Some((servers, stripe_bytes)) = servers.zip(NonZeroU64::new(region.stripe_bytes))
            else {
                continue;
            };
            if begin >= end {
                continue;
            }
            let striping = Striping { servers, stripe_bytes };
            for part in striping.parts(Extent { offset: begin, size_bytes: end - begin }) {
                let server = region.servers[part.server as usize];
                let whole = parts.entry(server).or_insert(Extent { size_bytes: 0, ..part.extent });
                whole.size_bytes += part.extent.size_bytes;
            }
        }
        parts.into_iter().map(|(server, extent)| StripedPart { server, extent }).collect()
    }
}

impl Striping {
    /// One server that has whole files.
    pub const ONE_SERVER: Striping =
        Striping { servers: NonZeroU32::MIN, stripe_bytes: NonZeroU64::MAX };

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

    fn layout(regions: &[(u64, u64, &[u32])]) -> FileLayout {
        let region = |&(offset, stripe_bytes, servers): &(u64, u64, &[u32])| StripedRegion {
            offset,
            stripe_bytes,
            servers: servers.to_vec(),
        };
        FileLayout(regions.iter().map(region).collect())
    }

    #[test]
    fn each_region_of_a_file_has_its_own_servers() {
        let layout = layout(&[(0, 5, &[7]), (10, 5, &[3, 9]), (40, 10, &[9, 7])]);
        assert!(layout.is_valid());
        let parts = |offset, size_bytes| {
            let parts = layout.parts(Extent { offset, size_bytes });
            let part = |part: StripedPart| (part.server, part.extent.size_bytes);
            parts.into_iter().map(part).collect::<Vec<_>>()
        };
        assert_eq!(parts(0, 10), [(7, 10)]);
        assert_eq!(parts(5, 10), [(3, 5), (7, 5)]);
        assert_eq!(parts(10, 20), [(3, 10), (9, 10)]);
        assert_eq!(
            parts(35, 15),
            [(9, 15)],
            "the last stripe of one region, the first of the next"
        );
        assert_eq!(parts(30, u64::MAX - 30).len(), 3);
        for offset in 0..60 {
            for size in 0..60 {
                let all: u64 = parts(offset, size).iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(all, size, "{offset}, {size}");
            }
        }
    }

    #[test]
    fn layouts_that_no_file_has_are_refused() {
        let many = [0; MAX_SERVERS as usize + 1];
        for refused in [
            layout(&[]),
            layout(&[(0, 1, &[])]),
            layout(&[(0, 0, &[1])]),
            layout(&[(0, 1, &[MAX_SERVERS])]),
            layout(&[(0, 1, &many)]),
            layout(&[(5, 1, &[0]), (5, 1, &[0])]),
        ] {
            assert!(!refused.is_valid(), "{refused:?}");
        }
        assert_eq!(layout(&[(0, 1, &[])]).parts(Extent { offset: 0, size_bytes: 5 }), []);
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
