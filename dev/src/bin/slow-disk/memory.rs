//! Model of a file server's memory: a pure decision without clock or I/O.
//!
//! The memory is a set-associative cache of blocks of 64 pages. Each block belongs to one of many
//! small sets, so it is found without reading the whole state file; the least recently used block
//! of a set is evicted. A cached page is available to all readers, but not before the disk has read
//! it.

use std::io;

use crate::model::{Direction, Disk, Rates, Request, bytes_ns};

const PAGE_BYTES: u64 = 4 << 10;
/// Bytes of a block: one page for each bit of a word.
pub const BLOCK_BYTES: u64 = 64 * PAGE_BYTES;
const WAYS: usize = 8;

/// A cached block of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub file: u64,
    pub number: u64,
    /// One bit for each cached page.
    pub pages: u64,
    /// When the last of them will have been read.
    pub ready_ns: u64,
    pub used: u64,
}

pub type Set = [Block; WAYS];

/// Storage of the sets.
pub trait Sets {
    /// Number of sets. 0: no memory.
    fn count(&self) -> u64;
    fn load(&self, place: u64) -> io::Result<Set>;
    fn save(&mut self, place: u64, set: &Set) -> io::Result<()>;
}

/// Number of sets for a memory of this size.
pub fn sets(bytes: u64) -> u64 {
    bytes / (BLOCK_BYTES * WAYS as u64)
}

/// Speed and counters of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub bytes_per_s: u64,
    pub free_at_ns: u64,
    /// Bytes served from memory alone.
    pub bytes: u64,
    pub uses: u64,
}

impl Memory {
    /// Serves a request that arrives now, with a disk behind the memory. Returns when it is done.
    pub fn serve(
        &mut self,
        sets: &mut impl Sets,
        disk: &mut Disk,
        rates: &Rates,
        now_ns: u64,
        request: Request,
    ) -> io::Result<u64> {
        if sets.count() == 0 {
            return Ok(disk.serve(rates, now_ns, request));
        }
        let end = request.offset + request.bytes;
        let mut done_ns = now_ns;
        let mut missing: Option<Request> = None;
        let mut read = |missing: Option<Request>| {
            done_ns = done_ns.max(missing.map_or(0, |request| disk.serve(rates, now_ns, request)));
        };
        let (mut at, mut found_bytes, mut ready_ns) = (request.offset, 0, 0);
        while at < end {
            let block = find(&sets.load(place(request.file, at, sets.count()))?, request.file, at);
            let block_end = (at / BLOCK_BYTES + 1) * BLOCK_BYTES;
            while at < end.min(block_end) {
                let next = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(end);
                if request.direction == Direction::Read && block.pages & page(at) != 0 {
                    ready_ns = ready_ns.max(block.ready_ns);
                    found_bytes += next - at;
                    read(missing.take());
                } else {
                    let begin = missing.map_or(at, |missing| missing.offset);
                    missing = Some(Request { offset: begin, bytes: next - begin, ..request });
                }
                at = next;
            }
        }
        read(missing);
        if found_bytes > 0 {
            self.bytes += found_bytes;
            self.free_at_ns = self.free_at_ns.max(now_ns) + bytes_ns(found_bytes, self.bytes_per_s);
            done_ns = done_ns.max(self.free_at_ns).max(ready_ns);
        }
        self.keep(sets, request, done_ns)?;
        Ok(done_ns)
    }

    /// Marks all pages of a request as cached from `ready_ns` on.
    fn keep(&mut self, sets: &mut impl Sets, request: Request, ready_ns: u64) -> io::Result<()> {
        let end = request.offset + request.bytes;
        let mut at = request.offset;
        while at < end {
            let place = place(request.file, at, sets.count());
            let mut set = sets.load(place)?;
            let mut block = find(&set, request.file, at);
            let next = ((at / BLOCK_BYTES + 1) * BLOCK_BYTES).min(end);
            let new = (at / PAGE_BYTES..next.div_ceil(PAGE_BYTES))
                .fold(0, |pages, number| pages | page(number * PAGE_BYTES));
            self.uses += 1;
            if new & !block.pages != 0 {
                block.ready_ns = block.ready_ns.max(ready_ns);
            }
            (block.pages, block.used) = (block.pages | new, self.uses);
            let is_it = |other: &Block| (other.file, other.number) == (block.file, block.number);
            let way = set.iter().position(is_it);
            let oldest = || (0..WAYS).min_by_key(|way| set[*way].used).expect("there are some");
            set[way.unwrap_or_else(oldest)] = block;
            sets.save(place, &set)?;
            at = next;
        }
        Ok(())
    }
}

/// Set of a byte. Consecutive blocks are in different sets.
fn place(file: u64, offset: u64, sets: u64) -> u64 {
    (file.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).wrapping_add(offset / BLOCK_BYTES) % sets
}

/// Block of a byte; empty if it is not cached.
fn find(set: &Set, file: u64, offset: u64) -> Block {
    let number = offset / BLOCK_BYTES;
    let found =
        set.iter().find(|block| (block.file, block.number) == (file, number) && block.used > 0);
    found.copied().unwrap_or(Block { file, number, ..Block::default() })
}

fn page(offset: u64) -> u64 {
    1 << (offset / PAGE_BYTES % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    impl Sets for Vec<Set> {
        fn count(&self) -> u64 {
            self.len() as u64
        }

        fn load(&self, place: u64) -> io::Result<Set> {
            Ok(self[place as usize])
        }

        fn save(&mut self, place: u64, set: &Set) -> io::Result<()> {
            self[place as usize] = *set;
            Ok(())
        }
    }

    struct Server {
        memory: Memory,
        sets: Vec<Set>,
        rates: Rates,
        disk: Disk,
    }

    impl Server {
        /// 10 ms for a seek, 100 bytes a microsecond, ten times that from memory.
        fn new(bytes: u64) -> Self {
            let rates = Rates::new(10.0, 100.0, 0.0, 1);
            let memory = Memory { bytes_per_s: 1_000_000_000, ..Memory::default() };
            Server {
                memory,
                sets: vec![Set::default(); sets(bytes) as usize],
                rates,
                disk: Disk::new(&rates),
            }
        }

        fn serve(&mut self, now_ns: u64, direction: Direction, offset: u64, bytes: u64) -> u64 {
            let request = Request { direction, file: 7, offset, bytes };
            self.memory.serve(&mut self.sets, &mut self.disk, &self.rates, now_ns, request).unwrap()
        }

        fn read(&mut self, now_ns: u64, offset: u64, bytes: u64) -> u64 {
            self.serve(now_ns, Direction::Read, offset, bytes)
        }

        fn blocks(&mut self, numbers: std::ops::Range<u64>) {
            for number in numbers {
                self.read(0, number * BLOCK_BYTES, BLOCK_BYTES);
            }
        }
    }

    #[test]
    fn reads_from_memory_cost_the_disk_nothing() {
        let mut server = Server::new(64 << 20);
        let done_ns = server.read(0, 0, 1_024_000);
        assert_eq!(done_ns, 10 * MS + 10_240_000);
        assert_eq!(server.read(done_ns, 0, 1_024_000), done_ns + 1_024_000);
        assert_eq!(
            (server.disk.requests, server.disk.read_bytes, server.memory.bytes),
            (1, 1_024_000, 1_024_000)
        );
    }

    #[test]
    fn a_read_of_blocks_that_are_being_read_waits_for_them() {
        let mut server = Server::new(64 << 20);
        let done_ns = server.read(0, 0, 100 << 10);
        assert_eq!(server.read(MS, 0, 100 << 10), done_ns);
        assert_eq!(server.disk.requests, 1);
    }

    #[test]
    fn only_missing_blocks_are_read() {
        let mut server = Server::new(64 << 20);
        server.read(0, 8 << 10, 4 << 10);
        server.read(0, 248 << 10, 16 << 10);
        server.read(0, 0, 256 << 10);
        // One before the first, and one between both; written bytes are cached as well.
        assert_eq!(
            (server.disk.requests, server.disk.read_bytes, server.memory.bytes),
            (4, 264 << 10, 12 << 10)
        );
        server.serve(0, Direction::Write, 1 << 20, 5_000);
        server.read(0, 1 << 20, 8 << 10);
        assert_eq!((server.disk.requests, server.disk.written_bytes), (5, 5_000));
    }

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut server = Server::new(4 << 20);
        for round in 0..2 {
            server.blocks(0..16);
            assert_eq!(server.disk.read_bytes, 4 << 20, "in round {round}");
        }
        // The first block is used again, so the second is evicted.
        server.read(0, 0, 1);
        server.blocks(16..18);
        let before = server.disk.requests;
        server.read(0, 0, 1);
        assert_eq!(server.disk.requests, before);
    }

    #[test]
    fn without_memory_there_is_the_disk_alone() {
        let mut server = Server::new(0);
        server.read(0, 0, 4_096);
        server.read(0, 0, 4_096);
        assert_eq!((server.disk.requests, server.memory.bytes), (2, 0));
    }
}
