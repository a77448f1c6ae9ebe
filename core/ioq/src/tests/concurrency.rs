//! Concurrency found on simulated storages. A read consists of pieces. Each piece occupies one of
//! the storage's channels for the time of its bytes, plus a seek unless it continues the channel's
//! previous piece.

use super::*;

const SECOND: u64 = 1_000_000;
/// Largest request of a kernel's read-ahead.
const PIECE: u64 = 128 << 10;

#[derive(Clone, Copy, Debug)]
struct Storage {
    channels: usize,
    seek_us: u64,
    /// From the end of a piece to the beginning of the same read's next one.
    latency_us: u64,
    bytes_per_us: u64,
}

const DISK: Storage = Storage { channels: 1, seek_us: 8_000, latency_us: 0, bytes_per_us: 150 };
const FLASH: Storage = Storage { channels: 8, seek_us: 0, latency_us: 2_000, bytes_per_us: 150 };
const LINK: Storage = Storage { channels: 1, seek_us: 0, latency_us: 0, bytes_per_us: 150 };

/// Clients that always want the next bytes of their files, and their requests.
struct Readers {
    servers: Servers,
    clients: u64,
    sizes: &'static [u64],
    now_us: u64,
    asked: u64,
    offsets: Vec<u64>,
    channels: Vec<(u64 /* free_us */, Option<(u64 /* client */, u64 /* end */)>)>,
    /// Pieces by start time.
    pieces: BTreeSet<(u64, GrantId)>,
    /// Outstanding grants, and what is left of each.
    out: BTreeMap<GrantId, (Grant, Extent)>,
    done_bytes: u64,
}

impl Readers {
    fn new(clients: u64, sizes: &'static [u64], concurrency: Option<u32>) -> Self {
        let budget = Budget { concurrency, ..Budget::default() };
        let mut servers = Servers::new();
        servers.serve(ServerId(0), Config { budget, ..Config::default() });
        let mut readers = Readers {
            servers,
            clients,
            sizes,
            now_us: 0,
            asked: 0,
            offsets: vec![0; clients as usize],
            channels: vec![],
            pieces: BTreeSet::new(),
            out: BTreeMap::new(),
            done_bytes: 0,
        };
        (0..clients).for_each(|client| readers.ask(client));
        readers
    }

    fn ask(&mut self, client: u64) {
        self.asked += 1;
        let place = self.asked / self.clients + client;
        let size = self.sizes[place as usize % self.sizes.len()];
        let offset = &mut self.offsets[client as usize];
        *offset += size;
        let request = read(self.asked, client, *offset - size, size);
        self.tell(Event::Asked(vec![request]));
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.servers.handle(self.now_us, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Granted(grant) => {
                    self.pieces.insert((self.now_us, grant.id));
                    let left = grant.extent;
                    self.out.insert(grant.id, (grant, left));
                }
                Effect::Revoked { client, grant, .. } => {
                    // The rest is not read; the client asks for something else.
                    self.out.remove(&grant);
                    self.ask(client.0);
                }
                Effect::Uncoordinated { .. } => panic!("{effect:?}"),
            }
        }
    }

    /// Reads for some seconds, and returns megabytes a second.
    fn read(&mut self, storage: Storage, seconds: u64) -> f64 {
        self.channels.resize(storage.channels, (0, None));
        let (until_us, before) = (self.now_us + seconds * SECOND, self.done_bytes);
        while self.now_us < until_us {
            let piece_us = self.pieces.first().map(|(at_us, _)| *at_us);
            let next_us = self
                .servers
                .next_timeout()
                .into_iter()
                .chain(piece_us)
                .min()
                .expect("something goes on");
            self.now_us = self.now_us.max(next_us);
            match piece_us {
                Some(at_us) if at_us <= self.now_us => self.piece(storage),
                _ => self.tell(Event::Tick),
            }
        }
        (self.done_bytes - before) as f64 / 1e6 / seconds as f64
    }

    /// Sends the next piece of a read to a channel, or ends the read.
    fn piece(&mut self, storage: Storage) {
        let (_, id) = self.pieces.pop_first().expect("there is one");
        // Revoked or done.
        let Some((grant, left)) = self.out.get_mut(&id) else { return };
        if left.size_bytes == 0 {
            let (grant, bytes) = (grant.clone(), grant.extent.size_bytes);
            self.out.remove(&id);
            self.done_bytes += bytes;
            let client = grant.client;
            self.tell(Event::Completed {
                client,
                server: ServerId(0),
                grant: id,
                bytes,
                took_us: None,
            });
            return self.ask(client.0);
        }
        let bytes = left.size_bytes.min(PIECE);
        let here = (grant.client.0, left.offset);
        let channel =
            self.channels.iter_mut().min_by_key(|(free_us, _)| *free_us).expect("there is one");
        let seek_us = if channel.1 == Some(here) { 0 } else { storage.seek_us };
        channel.0 = channel.0.max(self.now_us) + seek_us + bytes / storage.bytes_per_us;
        *left = Extent { offset: left.offset + bytes, size_bytes: left.size_bytes - bytes };
        channel.1 = Some((here.0, left.offset));
        self.pieces.insert((channel.0 + storage.latency_us, id));
    }

    fn concurrency(&self) -> (u64, u64) {
        let stats = self.servers.stats(ServerId(0)).remove(0);
        (stats.small_concurrency, stats.concurrency)
    }
}

const SMALL: &[u64] = &[64 << 10];
const LARGE: &[u64] = &[8 << 20];
/// Sizes as read-ahead windows grow.
const GROWING: &[u64] = &[64 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 8 << 20, 8 << 20, 8 << 20];

#[test]
fn a_disk_with_one_arm_is_given_one_at_a_time() {
    for (sizes, clients, seconds) in
        [(SMALL, 8, 20), (LARGE, 8, 60), (GROWING, 8, 60), (LARGE, 2, 60)]
    {
        for storage in [DISK, LINK] {
            let [found, said] = [None, Some(1)]
                .map(|number| Readers::new(clients, sizes, number).read(storage, seconds));
            assert!(
                found > 0.97 * said,
                "{clients} of {sizes:?}, {storage:?}: {found} of {said} MB/s"
            );
        }
    }
}

#[test]
fn a_parallel_storage_is_used_in_parallel() {
    // Two large reads at a time could cost a disk much, so their search takes longest.
    for (sizes, seconds) in [(SMALL, 2), (GROWING, 20), (LARGE, 20)] {
        let mut readers = Readers::new(16, sizes, None);
        let begin = readers.read(FLASH, seconds);
        let found = readers.read(FLASH, 20);
        let said = Readers::new(16, sizes, Some(16)).read(FLASH, 20);
        assert!(
            found > 0.97 * said,
            "{sizes:?}: {found} of {said} MB/s, {begin} at first, {:?}",
            readers.concurrency()
        );
    }
}

#[test]
fn a_storage_that_becomes_a_disk_gets_fewer_grants_again() {
    let mut readers = Readers::new(8, GROWING, None);
    readers.read(FLASH, 20);
    assert!(readers.concurrency().1 >= 4, "{:?}", readers.concurrency());
    readers.read(DISK, 100);
    let (found, said) = (readers.read(DISK, 50), Readers::new(8, GROWING, Some(1)).read(DISK, 50));
    assert!(found > 0.97 * said, "{found} of {said} MB/s, {:?}", readers.concurrency());
}
