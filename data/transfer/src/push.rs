//! Pushes: objects that are sent to a node that expects them. A client brings objects this way that
//! no node has yet.
//!
//! The receiver declares beforehand which object it expects, and provides the [`Incoming`] to write
//! it to ([`PeerServer::expect`]). So a push can only fill what was reserved for it. While it
//! arrives, the object is relayed like any other that is being received. An interrupted push
//! continues where it stopped when the object is pushed again.
//!
//! [`PeerServer::expect`]: crate::PeerServer::expect

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use eyas_store::{Checksum, Incoming, Limiter, PIECE_BYTES};
use eyas_types::ObjectId;
use tokio::sync::oneshot;

use crate::error::PeerErrorKind;
use crate::limits::PeerLimits;
use crate::link::{AfterSend, Link};
use crate::peers::{Connection, Inner, TransferFailure};
use crate::protocol::{PeerSession, PieceHeader, PieceKind, TransferReply, TransferRequest};
use crate::receive::{BUFFER_BYTES, ContentHeader, Patience, Pieces};

/// The objects that a server expects.
#[derive(Default)]
pub(crate) struct Expectations(Mutex<HashMap<ObjectId, Expectation>>);

struct Expectation {
    /// `None` while a client is pushing the object.
    into: Option<Incoming>,
    stored: oneshot::Sender<Checksum>,
}

/// An expected object. It is expected as long as this value lives.
pub struct ExpectedObject {
    expectations: Arc<Expectations>,
    id: ObjectId,
    stored: oneshot::Receiver<Checksum>,
}

impl ExpectedObject {
    /// Waits until the object is in the store, and returns its checksum. `None` if it was damaged,
    /// the store failed, or the same object was expected anew.
    pub async fn stored(mut self) -> Option<Checksum> {
        (&mut self.stored).await.ok()
    }
}

impl Drop for ExpectedObject {
    fn drop(&mut self) {
        self.stored.close();
        let mut waiting = self.expectations.waiting();
        if waiting.get(&self.id).is_some_and(|waiting| waiting.stored.is_closed()) {
            waiting.remove(&self.id);
        }
    }
}

impl Expectations {
    /// Expects the object that is written to `into`.
    pub fn expect(self: &Arc<Self>, into: Incoming) -> ExpectedObject {
        let ((stored, to_come), id) = (oneshot::channel(), into.id());
        self.waiting().insert(id, Expectation { into: Some(into), stored });
        ExpectedObject { expectations: self.clone(), id, stored: to_come }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<ObjectId, Expectation>> {
        // No update of the map can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, id: ObjectId) -> Option<Incoming> {
        self.waiting().get_mut(&id)?.into.take()
    }

    /// Makes the object available to the next client that pushes it, if it is still expected.
    fn put_back(&self, into: Incoming) {
        if let Some(waiting) = self.waiting().get_mut(&into.id()) {
            waiting.into = Some(into);
        }
    }

    fn stored(&self, id: ObjectId, checksum: Checksum) {
        if let Some(waiting) = self.waiting().remove(&id) {
            // If no one waits for the object, it is in the store all the same.
            let _ = waiting.stored.send(checksum);
        }
    }

    fn give_up(&self, id: ObjectId) {
        self.waiting().remove(&id);
    }

    /// The server's side of a push.
    pub fn receive(
        &self,
        link: &mut Link,
        peer: SocketAddr,
        session: &PeerSession,
        request: TransferRequest,
        link_in: &Limiter,
        limits: &PeerLimits,
    ) -> io::Result<()> {
        let answer = |link: &mut Link, reply| link.send(&session.reply(reply), AfterSend::Nothing);
        let Some(mut into) = self.take(request.id) else {
            return answer(link, TransferReply::NotHere);
        };
        if request.length != into.size_bytes() {
            self.put_back(into);
            return answer(link, TransferReply::NoSuchRange);
        }
        let offset = into.written_bytes();
        answer(link, TransferReply::Wanted { offset })?;
        let follows = ContentHeader {
            size_bytes: request.length,
            checksum: None,
            length: request.length - offset,
        };
        let patience = Patience { stall: limits.stall_timeout, is_choosy: false };
        let received = Pieces::new(peer, link, link_in, limits.stall_timeout, follows, patience)
            .and_then(|mut pieces| pieces.receive(&mut into, &mut vec![0; BUFFER_BYTES]));
        let (id, is_whole) = (into.id(), into.written_bytes() == into.size_bytes());
        match received {
            Ok(()) => match into.commit() {
                Ok(checksum) => {
                    self.stored(id, checksum);
                    answer(link, TransferReply::Stored)
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot store what was pushed");
                    self.give_up(id);
                    answer(link, TransferReply::Failed)
                }
            },
            // All bytes have arrived, and their checksum is wrong, so none can be trusted.
            Err(failure) if is_whole && failure.error.kind == PeerErrorKind::Corrupt => {
                self.give_up(id);
                answer(link, TransferReply::Failed)
            }
            Err(failure) => {
                self.put_back(into);
                Err(io::Error::other(failure.error))
            }
        }
    }
}

/// The client's side of a push.
pub(crate) fn push(
    inner: &Inner,
    addr: SocketAddr,
    connection: &mut Connection,
    id: ObjectId,
    content: &[u8],
) -> Result<(), TransferFailure> {
    let size_bytes = content.len() as u64;
    let request =
        TransferRequest { id, offset: 0, length: size_bytes, expected: false, is_push: true };
    let offset = match connection.exchange(addr, request, inner.limits.stall_timeout)? {
        TransferReply::Wanted { offset } if offset <= size_bytes => offset,
        TransferReply::NoSuchRange => {
            return Err(TransferFailure::of(
                PeerErrorKind::NotHere,
                addr,
                "expects it in another size",
            ));
        }
        TransferReply::NotHere => {
            return Err(TransferFailure::of(
                PeerErrorKind::NotHere,
                addr,
                "does not expect what it was to get",
            ));
        }
        _ => {
            return Err(TransferFailure::unreachable(
                addr,
                "does not take what it was to get".into(),
            ));
        }
    };
    let rest = &content[offset as usize..];
    send_pieces(&mut connection.link, rest, size_bytes)
        .and_then(|()| send_end(&mut connection.link, Checksum::of(content)))
        .map_err(|error| {
            TransferFailure::unreachable(addr, format!("stopped taking what it was given: {error}"))
        })?;
    match connection.answer(addr, inner.limits.stall_timeout)? {
        TransferReply::Stored => Ok(()),
        _ => Err(TransferFailure::unreachable(addr, "could not store what it was given".into())),
    }
}

fn send_pieces(link: &mut Link, content: &[u8], had_bytes: u64) -> io::Result<()> {
    for piece in content.chunks(PIECE_BYTES) {
        let header =
            PieceHeader { kind: PieceKind::Content, length: piece.len() as u32, had_bytes };
        link.send(&header.to_bytes(), AfterSend::More)?;
        link.send(piece, AfterSend::More)?;
        // The next piece follows, or the end.
        link.send(&Checksum::of(piece).0.to_le_bytes(), AfterSend::More)?;
    }
    Ok(())
}

fn send_end(link: &mut Link, checksum: Checksum) -> io::Result<()> {
    link.send(
        &PieceHeader { kind: PieceKind::End, length: 0, had_bytes: 0 }.to_bytes(),
        AfterSend::More,
    )?;
    link.send(&checksum.0.to_le_bytes(), AfterSend::Nothing)
}
