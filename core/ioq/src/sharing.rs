//! Decides which client reads a part of a file that several clients are about to read, so that the
//! part crosses the storage once (io-coordination §3).
//!
//! The first client that asks for a part is its *reader*. The others take the part from the reader,
//! which has it in memory for a while. One that did not get it asks again, and becomes the reader.
//! A part is named by its offset: clients divide a file at the same places.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::StorageFileId;

use crate::event::{ClientId, Request, RequestId, ServerId};

/// Parts whose readers are remembered; of more, the one that was asked for longest ago is
/// forgotten.
const MAX_PARTS: usize = 1 << 16;
/// A reader is assumed to have a part in memory, or to be about to read it, for this long after the
/// last client has asked for it.
const KEPT_US: u64 = 20_000_000;

/// A client that asks for a part again within this time did not get it from the reader.
const AGAIN_US: u64 = 1_000_000;

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
    /// Clients that were sent to the reader, and when.
    sent: BTreeMap<ClientId, u64>,
}

impl PartReader {
    /// Whether the client gets the part from the reader.
    fn is_source_for(&self, now_us: u64, request: &Request) -> bool {
        let sent_us = self.sent.get(&request.client);
        self.client != request.client
            && self.size_bytes == request.extent.size_bytes
            && sent_us.is_none_or(|sent_us| now_us.saturating_sub(*sent_us) > AGAIN_US)
    }
}

impl SharedParts {
    /// A client asks to read a part.
    pub fn ask(&mut self, now_us: u64, request: &Request) -> PartSource {
        self.forget_old(now_us);
        let name = (request.server, request.file, request.extent.offset);
        let before = self.remove(&name);
        let (reader, source) = match before {
            Some(mut reader) if reader.is_source_for(now_us, request) => {
                reader.sent.insert(request.client, now_us);
                let source = PartSource::Client(reader.client);
                (reader, source)
            }
            // The reader does not have it; or the file has another size now.
            _ => {
                let reader = PartReader {
                    client: request.client,
                    request: request.id,
                    size_bytes: request.extent.size_bytes,
                    forgotten_at_us: 0,
                    sent: BTreeMap::new(),
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
        let of_file = self.parts.range((server, file, 0)..=(server, file, u64::MAX));
        let of_client = of_file.filter(|(_, reader)| reader.client == client);
        let closed: Vec<_> = of_client.map(|(name, _)| *name).collect();
        for name in &closed {
            self.remove(name);
        }
    }

    /// A client has disconnected.
    pub fn gone(&mut self, client: ClientId) {
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
        assert_eq!(parts.ask(2, &request(3, 3, 0)), PartSource::Client(ClientId(1)));
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
    fn a_client_that_did_not_get_a_part_becomes_its_reader() {
        let mut parts = SharedParts::default();
        let _ = parts.ask(0, &request(1, 1, 0));
        for id in 2..4 {
            let source = parts.ask(id, &request(id, id, 0));
            assert_eq!(source, PartSource::Client(ClientId(1)));
        }
        assert_eq!(parts.ask(4, &request(4, 3, 0)), PartSource::Storage, "it asks again");
        assert_eq!(parts.ask(5, &request(5, 2, 0)), PartSource::Client(ClientId(3)));
        let later = AGAIN_US + 6;
        let source = parts.ask(later, &request(6, 2, 0));
        assert_eq!(source, PartSource::Client(ClientId(3)), "it had the part");
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
