//! Decides which client reads a part of a file that several clients are about to read, so that the
//! part crosses the storage once (io-coordination §3).
//!
//! The first client that asks for a part is its *reader*. The others pass it on: each takes it from
//! one that asked before. The first four are a chain, in which each link carries the part once in
//! each direction; after them it branches, so that a part comes to many clients in few steps.
//!
//! A client that did not get a part asks again. If it was sent to another one than the reader, it
//! is sent to the reader then, and otherwise becomes the reader. A part is named by its offset:
//! clients divide a file at the same places.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use eyas_types::StorageFileId;

use crate::event::{ClientId, Request, RequestId, ServerId};

/// Parts whose readers are remembered; of more, the one that was asked for longest ago is
/// forgotten.
const MAX_PARTS: usize = 1 << 16;
/// A reader is assumed to have a part in memory, or to be about to read it, for this long after the
/// last client has asked for it.
const KEPT_US: u64 = 20_000_000;

/// A client that asks for a part again within this time is taken not to have got it.
const AGAIN_US: u64 = 1_000_000;

/// Takers that are a chain.
const CHAIN: usize = 3;
/// Takers of a part that are remembered.
const MAX_TAKERS: usize = 64;

/// Where a client gets a part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// The client reads it from the storage.
    Storage,
    /// This client has it, or is about to read it.
    Client(ClientId),
}

/// The readers of parts of files.
#[derive(Debug, Default)]
pub struct SharedParts {
    parts: BTreeMap<PartName, PartReader>,
    /// The same parts, by the time at which they are forgotten.
    by_time: BTreeSet<(u64, PartName)>,
    /// The same parts, by the requests of their readers.
    by_request: BTreeMap<RequestId, PartName>,
}

/// Server, file and offset.
type PartName = (ServerId, StorageFileId, u64);

#[derive(Debug)]
struct PartReader {
    client: ClientId,
    request: RequestId,
    size_bytes: u64,
    forgotten_at_us: u64,
    /// Clients that were told where to take the part, in the order in which they asked: the last
    /// ones.
    takers: VecDeque<PartTaker>,
    /// Number of takers before these.
    earlier: usize,
}

#[derive(Debug)]
struct PartTaker {
    client: ClientId,
    /// The client that it was told to take the part from, and when.
    from: ClientId,
    told_us: u64,
}

impl PartReader {
    /// The client that this one takes the part from; `None` if it has to read it.
    fn source_for(&mut self, now_us: u64, request: &Request) -> Option<ClientId> {
        let client = request.client;
        if self.client == client || self.size_bytes != request.extent.size_bytes {
            // The reader itself no longer has it; or the file has another size now.
            return None;
        }
        let from = match self.takers.iter().position(|taker| taker.client == client) {
            None => self.next_source(),
            Some(place) => {
                let before = self.takers.remove(place).expect("it was found there");
                let is_again = now_us.saturating_sub(before.told_us) <= AGAIN_US;
                if is_again && before.from == self.client {
                    return None;
                }
                self.client
            }
        };
        self.takers.push_back(PartTaker { client, from, told_us: now_us });
        if self.takers.len() > MAX_TAKERS {
            self.takers.pop_front();
            self.earlier += 1;
        }
        Some(from)
    }

    /// The client from which a further one takes the part.
    fn next_source(&self) -> ClientId {
        let Some(at) = source_of(self.earlier + self.takers.len()) else { return self.client };
        // Of very many, only the last ones are remembered.
        let place = at.checked_sub(self.earlier).unwrap_or(at % self.takers.len().max(1));
        self.takers.get(place).map_or(self.client, |taker| taker.client)
    }
}

/// The place among the takers from which the next one takes a part, if this many have asked before.
/// `None`: from the reader. For example, 1 from 0, 2 from 1, 3 and 4 from 2, 5 and 6 from 3.
fn source_of(takers: usize) -> Option<usize> {
    match takers {
        0..CHAIN => takers.checked_sub(1),
        _ => Some((takers + CHAIN - 2) / 2),
    }
}

impl SharedParts {
    /// A client asks to read a part.
    pub fn ask(&mut self, now_us: u64, request: &Request) -> PartSource {
        self.forget_old(now_us);
        let name = (request.server, request.file, request.extent.offset);
        let before = self.remove(&name).map(|mut reader| {
            let from = reader.source_for(now_us, request);
            (reader, from)
        });
        let (reader, source) = match before {
            Some((reader, Some(from))) => (reader, PartSource::Client(from)),
            _ => {
                let reader = PartReader {
                    client: request.client,
                    request: request.id,
                    size_bytes: request.extent.size_bytes,
                    forgotten_at_us: 0,
                    takers: VecDeque::new(),
                    earlier: 0,
                };
                (reader, PartSource::Storage)
            }
        };
        let forgotten_at_us = now_us.saturating_add(KEPT_US);
        self.by_time.insert((forgotten_at_us, name));
        self.by_request.insert(reader.request, name);
        self.parts.insert(name, PartReader { forgotten_at_us, ..reader });
        if self.parts.len() > MAX_PARTS
            && let Some((_, oldest)) = self.by_time.first().copied()
        {
            self.remove(&oldest);
        }
        source
    }

    /// A client no longer wants its turn, and has not read the part.
    pub fn cancelled(&mut self, request: RequestId) {
        if let Some(name) = self.by_request.get(&request).copied() {
            self.remove(&name);
        }
    }

    /// A client has closed a file, and gives no parts of it any longer.
    pub fn closed(&mut self, client: ClientId, server: ServerId, file: StorageFileId) {
        let mut closed = Vec::new();
        for (name, reader) in self.parts.range_mut((server, file, 0)..=(server, file, u64::MAX)) {
            reader.takers.retain(|taker| taker.client != client);
            if reader.client == client {
                closed.push(*name);
            }
        }
        for name in &closed {
            self.remove(name);
        }
    }

    /// A client has disconnected.
    pub fn gone(&mut self, client: ClientId) {
        for reader in self.parts.values_mut() {
            reader.takers.retain(|taker| taker.client != client);
        }
        self.forget(|_, reader| reader.client == client);
    }

    /// A server is no longer known.
    pub fn forget_server(&mut self, server: ServerId) {
        self.forget(|(of, _, _), _| *of == server);
    }

    fn forget(&mut self, is_it: impl Fn(&PartName, &PartReader) -> bool) {
        let forgotten = self.parts.iter().filter(|(name, reader)| is_it(name, reader));
        let forgotten: Vec<_> = forgotten.map(|(name, _)| *name).collect();
        for name in &forgotten {
            self.remove(name);
        }
    }

    fn forget_old(&mut self, now_us: u64) {
        while let Some((at_us, name)) = self.by_time.first().copied()
            && at_us <= now_us
        {
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &PartName) -> Option<PartReader> {
        let reader = self.parts.remove(name)?;
        self.by_time.remove(&(reader.forgotten_at_us, *name));
        self.by_request.remove(&reader.request);
        Some(reader)
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::{Extent, Operation};

    use super::*;
    use crate::event::ClassId;

    const PART_BYTES: u64 = 1 << 20;

    fn request(id: u64, client: u64, part: u64) -> Request {
        Request {
            id: RequestId(id),
            client: ClientId(client),
            server: ServerId(0),
            class: ClassId::default(),
            file: StorageFileId(7),
            operation: Operation::Read,
            extent: Extent { offset: part * PART_BYTES, size_bytes: PART_BYTES },
            call: None,
        }
    }

    #[test]
    fn the_first_client_reads_and_the_others_take() {
        let mut parts = SharedParts::default();
        assert_eq!(parts.ask(0, &request(1, 1, 0)), PartSource::Storage);
        assert_eq!(parts.ask(1, &request(2, 2, 0)), PartSource::Client(ClientId(1)));
        assert_eq!(parts.ask(2, &request(3, 3, 0)), PartSource::Client(ClientId(2)));
        assert_eq!(parts.ask(3, &request(4, 2, 1)), PartSource::Storage, "another part");
        assert_eq!(parts.ask(4, &request(5, 1, 1)), PartSource::Client(ClientId(2)));
        let other = Request { file: StorageFileId(8), ..request(6, 2, 0) };
        assert_eq!(parts.ask(5, &other), PartSource::Storage, "another file");
        let longer = Extent { offset: 0, size_bytes: 5 };
        let longer = Request { extent: longer, ..request(7, 2, 0) };
        assert_eq!(parts.ask(6, &longer), PartSource::Storage, "the file has another size");
    }

    #[test]
    fn a_reader_that_does_not_have_a_part_is_no_source() {
        let mut parts = SharedParts::default();
        let _ = parts.ask(0, &request(1, 1, 0));
        parts.cancelled(RequestId(1));
        assert_eq!(parts.ask(1, &request(2, 2, 0)), PartSource::Storage, "it was cancelled");
        parts.gone(ClientId(2));
        assert_eq!(parts.ask(2, &request(3, 3, 0)), PartSource::Storage, "it has gone");
        assert_eq!(parts.ask(3, &request(4, 3, 0)), PartSource::Storage, "it asks itself again");
        assert_eq!(parts.ask(KEPT_US, &request(5, 1, 0)), PartSource::Client(ClientId(3)));
        parts.closed(ClientId(3), ServerId(0), StorageFileId(8));
        parts.closed(ClientId(1), ServerId(0), StorageFileId(7));
        assert_eq!(parts.ask(KEPT_US, &request(8, 4, 0)), PartSource::Client(ClientId(3)));
        parts.closed(ClientId(3), ServerId(0), StorageFileId(7));
        assert_eq!(parts.ask(KEPT_US, &request(9, 2, 0)), PartSource::Storage, "it is closed");
        let late = 2 * KEPT_US;
        assert_eq!(parts.ask(late, &request(10, 1, 0)), PartSource::Storage, "it was long ago");
        parts.forget_server(ServerId(0));
        assert_eq!(parts.ask(late, &request(11, 2, 0)), PartSource::Storage);
        parts.gone(ClientId(2));
        assert!(parts.parts.is_empty() && parts.by_time.is_empty() && parts.by_request.is_empty());
    }

    #[test]
    fn takers_pass_a_part_on() {
        let mut parts = SharedParts::default();
        let from: Vec<_> = (0..12)
            .map(|client| match parts.ask(client, &request(client, client, 0)) {
                PartSource::Storage => u64::MAX,
                PartSource::Client(ClientId(from)) => from,
            })
            .collect();
        assert_eq!(from, [u64::MAX, 0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6]);
        for client in 12..1000 {
            let source = parts.ask(client, &request(client, client, 0));
            let PartSource::Client(ClientId(from)) = source else { panic!("it is read") };
            assert!(from < client);
        }
        let reader = parts.parts.values().next().unwrap();
        assert_eq!((reader.takers.len(), reader.earlier), (MAX_TAKERS, 999 - MAX_TAKERS));
    }

    #[test]
    fn a_client_that_did_not_get_a_part_asks_the_reader_and_then_becomes_it() {
        let mut parts = SharedParts::default();
        let mut ask = |now_us, id, client| parts.ask(now_us, &request(id, client, 0));
        let from = |client| PartSource::Client(ClientId(client));
        assert_eq!(
            (ask(0, 1, 1), ask(1, 2, 2), ask(2, 3, 3)),
            (PartSource::Storage, from(1), from(2))
        );
        assert_eq!(ask(3, 4, 3), from(1), "the other taker did not have it");
        assert_eq!(ask(4, 5, 3), PartSource::Storage, "the reader did not either");
        assert_eq!(ask(5, 6, 2), from(3));
        assert_eq!(ask(AGAIN_US + 6, 7, 2), from(3), "it had the part");
    }

    #[test]
    fn a_client_that_has_closed_the_file_passes_nothing_on() {
        let mut parts = SharedParts::default();
        for client in 1..=3 {
            let _ = parts.ask(client, &request(client, client, 0));
        }
        parts.closed(ClientId(3), ServerId(0), StorageFileId(7));
        assert_eq!(parts.ask(4, &request(4, 4, 0)), PartSource::Client(ClientId(2)));
        parts.gone(ClientId(4));
        assert_eq!(parts.ask(5, &request(5, 5, 0)), PartSource::Client(ClientId(2)));
    }

    #[test]
    fn parts_are_bounded_and_the_last_ones_remembered() {
        let mut parts = SharedParts::default();
        for part in 0..=MAX_PARTS as u64 {
            let _ = parts.ask(part, &request(part, 1, part));
        }
        assert_eq!((parts.parts.len(), parts.by_time.len()), (MAX_PARTS, MAX_PARTS));
        let now_us = MAX_PARTS as u64;
        assert_eq!(parts.ask(now_us, &request(1 << 40, 2, 0)), PartSource::Storage);
        let last = request(1 << 41, 2, MAX_PARTS as u64);
        assert_eq!(parts.ask(now_us, &last), PartSource::Client(ClientId(1)));
    }
}
