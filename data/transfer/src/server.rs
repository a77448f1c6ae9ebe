//! Sends this node's objects to peers, whole ones and those that are still being received, and
//! receives objects that are expected. Each connection has a thread. Plain data is sent with
//! `sendfile` from the page cache.
//!
//! The server reads messages of a fixed size. It sends nothing, not even an error, before a message
//! has proved that its sender knows the cluster's key. Until then an [`Admission`] bounds the
//! connections; afterwards they are counted, in total and by address. Slow and silent connections
//! are closed. An object that is found damaged is removed and not sent.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eyas_session::{Admission, DataKeys, Guest};
use eyas_store::{
    ArrivalEnd, ArrivalProgress, Checksum, Incoming, Limiter, ObjectStore, PIECE_BYTES,
    PartialReplica, Seal, Segment, Segments, StoreErrorKind,
};
use rustix::net::Shutdown;

use crate::connection::{nonce, read_message};
use crate::limits::PeerLimits;
use crate::link::{AfterSend, Link};
use crate::protocol::{
    self, PeerKey, PeerSession, PieceHeader, PieceKind, TransferReply, TransferRequest, Welcome,
};
use crate::push::{Expectations, ExpectedObject};

/// Time to wait for an expected object before the peer is told that it is not here.
const EXPECTED_PATIENCE: Duration = Duration::from_secs(2);

/// Interval at which a peer is told that there is no more of an object yet.
const WAIT_EVERY: Duration = Duration::from_secs(1);

/// Pause before the next accept when the process has run out of a resource.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that the kernel queues until they are accepted. The standard library asks for 128,
/// which a burst fills.
const BACKLOG: i32 = 1024;

/// Stack size of a connection's thread. It needs little; pieces are on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Maximum size of a hole in one message; a larger one takes several. A multiple of a piece.
const MAX_HOLE_BYTES: u64 = 1 << 30;

/// Serves a store to peers until it is dropped.
pub struct PeerServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// Counters of the bytes that a server has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Number of objects and ranges that were sent completely.
    pub count: u64,
    /// Bytes of content sent.
    pub bytes: u64,
}

struct Shared {
    listener: TcpListener,
    store: ObjectStore,
    keys: DataKeys,
    limits: PeerLimits,
    link_in: Limiter,
    link_out: Limiter,
    expectations: Arc<Expectations>,
    stopping: AtomicBool,
    admission: Admission,
    connections: Mutex<Connections>,
    served_count: AtomicU64,
    served_bytes: AtomicU64,
}

/// All connections that have a thread, so that a stop can cut them; counted by address once they
/// are admitted.
#[derive(Default)]
struct Connections {
    next: u64,
    open: HashMap<u64, Arc<TcpStream>>,
    admitted: usize,
    admitted_from: HashMap<IpAddr, usize>,
}

impl PeerServer {
    /// Serves `store` on `listener`, over the node's link in both directions.
    ///
    /// # Errors
    /// If the listener or a thread cannot be set up.
    pub fn start(
        listener: TcpListener,
        store: ObjectStore,
        keys: DataKeys,
        limits: PeerLimits,
        (link_in, link_out): (Limiter, Limiter),
    ) -> io::Result<Self> {
        listener.set_nonblocking(false)?;
        rustix::net::listen(&listener, BACKLOG)?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            listener,
            store,
            keys,
            limits,
            link_in,
            link_out,
            expectations: Arc::default(),
            stopping: AtomicBool::new(false),
            admission: Admission::new("the transfer port"),
            connections: Mutex::default(),
            served_count: AtomicU64::new(0),
            served_bytes: AtomicU64::new(0),
        });
        let accepting = std::thread::Builder::new().name("peer-accept".into()).spawn({
            let shared = shared.clone();
            move || accept(&shared)
        })?;
        Ok(PeerServer { addr, shared, accepting: Some(accepting) })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Expects an object: writes it to `into` when a client pushes it, as long as the returned
    /// value lives.
    pub fn expect(&self, into: Incoming) -> ExpectedObject {
        self.shared.expectations.expect(into)
    }

    /// Number of ranges and bytes that the server has sent.
    pub fn served(&self) -> SendCounters {
        SendCounters {
            count: self.shared.served_count.load(Ordering::Relaxed),
            bytes: self.shared.served_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Drop for PeerServer {
    /// Stops accepting and cuts every connection. Clients continue with other sources.
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the blocked accept, which then checks the flag.
        let _ = rustix::net::shutdown(&self.shared.listener, Shutdown::Both);
        for stream in self.shared.connections().open.values() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        // Counters and a map; no update of them can panic half-way.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }
}

fn accept(shared: &Arc<Shared>) {
    while !shared.is_stopping() {
        let (stream, peer) = match shared.listener.accept() {
            Ok(accepted) => accepted,
            Err(_) if shared.is_stopping() => return,
            Err(error) => {
                shared.admission.cannot_accept(&error);
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let stream = Arc::new(stream);
        let guest = shared.admission.enter(peer.ip(), {
            let stream = stream.clone();
            // Its thread then sees that the connection has ended.
            move || drop(stream.shutdown(std::net::Shutdown::Both))
        });
        let shared = shared.clone();
        let thread = std::thread::Builder::new().name("peer-serve".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(move || {
            let open = OpenConnection::register(&shared, stream);
            match serve(&shared, open.stream.clone(), peer, guest) {
                Ok(()) => {}
                Err(error) => tracing::debug!(%peer, %error, "connection to a peer ended"),
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "cannot start a thread for a peer; closed");
            std::thread::sleep(ACCEPT_PAUSE);
        }
    }
}

/// Serves one client until it closes, sends an invalid message, or times out.
fn serve(
    shared: &Arc<Shared>,
    stream: Arc<TcpStream>,
    peer: SocketAddr,
    guest: Guest,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(shared.limits.stall_timeout))?;
    let deadline = Instant::now() + shared.limits.handshake_timeout;
    stream.set_read_timeout(Some(shared.limits.handshake_timeout))?;
    stream.peek(&mut [0])?;
    guest.spoke();
    let mut link = Link::server(stream, &shared.keys, deadline)?;
    let left = deadline.saturating_duration_since(Instant::now());
    let Some(hello) = read_message(&mut link, left)? else { return Ok(()) };
    let known = |secret| Some((protocol::read_hello(&PeerKey(secret), &hello)?, PeerKey(secret)));
    let Some((client, key)) = shared.keys.secrets().into_iter().find_map(known) else {
        tracing::debug!(%peer, "a stranger; closed without a word");
        return Ok(());
    };
    let _proven = guest.prove();
    let server = nonce()?;
    let admitted = AdmittedConnection::from(shared, peer.ip());
    let welcome = if admitted.is_some() { Welcome::Ready } else { Welcome::Busy };
    link.send(&protocol::welcome(&key, &client, &server, welcome), AfterSend::Nothing)?;
    if admitted.is_none() {
        return Ok(());
    }
    let mut session = PeerSession::new(&key, &client, &server);
    while let Some(message) = read_message(&mut link, shared.limits.idle_timeout)? {
        let Some(request) = session.read_request(&message) else { return Ok(()) };
        if !link.is_trusted(&shared.keys) {
            tracing::debug!(%peer, "closed a connection: the key of the peer is no longer valid");
            return Ok(());
        }
        if request.is_push {
            let Shared { link_in, limits, .. } = &**shared;
            shared.expectations.receive(&mut link, peer, &session, request, link_in, limits)?;
        } else {
            answer(shared, &mut link, &session, request)?;
        }
        if shared.is_stopping() {
            break;
        }
    }
    Ok(())
}

fn answer(
    shared: &Shared,
    link: &mut Link,
    session: &PeerSession,
    request: TransferRequest,
) -> io::Result<()> {
    let patience = if request.expected { EXPECTED_PATIENCE } else { Duration::ZERO };
    match shared.store.arriving(request.id, patience) {
        Some(arriving) => relay(shared, link, session, request, &arriving)?,
        None => give(shared, link, session, request)?,
    }
    Ok(())
}

/// Sends a range of an object that is here.
fn give(
    shared: &Shared,
    link: &mut Link,
    session: &PeerSession,
    request: TransferRequest,
) -> io::Result<()> {
    let refuse = |link: &mut Link, reply| link.send(&session.reply(reply), AfterSend::Nothing);
    // A task of this node may have written to the object through its link. Such an object is
    // removed and not sent.
    if shared.store.verify_seal(request.id) != Seal::Intact {
        return refuse(link, TransferReply::NotHere);
    }
    let object = match shared.store.open_object(request.id) {
        Ok(object) => object,
        Err(error) if error.kind == StoreErrorKind::NotHere => {
            return refuse(link, TransferReply::NotHere);
        }
        Err(error) => {
            tracing::warn!(%error, "cannot serve an object");
            return refuse(link, TransferReply::Failed);
        }
    };
    let size_bytes = object.size_bytes;
    let Some(end) = end_of_range(request, size_bytes) else {
        return refuse(link, TransferReply::NoSuchRange);
    };
    let here =
        TransferReply::Here { size_bytes, checksum: object.checksum, length: end - request.offset };
    // The reply and the first bytes of content share a packet.
    let then = if end > request.offset { AfterSend::More } else { AfterSend::Nothing };
    link.send(&session.reply(here), then)?;
    let known = |place: usize| object.pieces.as_ref().and_then(|pieces| pieces.get(place).copied());
    Pieces { shared, link }.send(
        &object.file,
        request.offset..end,
        size_bytes,
        size_bytes,
        known,
    )?;
    shared.served_count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Sends an object while it is being received.
fn relay(
    shared: &Shared,
    link: &mut Link,
    session: &PeerSession,
    request: TransferRequest,
    arriving: &PartialReplica,
) -> io::Result<()> {
    let size_bytes = arriving.size_bytes;
    let Some(end) = end_of_range(request, size_bytes) else {
        return link.send(&session.reply(TransferReply::NoSuchRange), AfterSend::Nothing);
    };
    let coming = TransferReply::Coming { size_bytes, length: end - request.offset };
    link.send(&session.reply(coming), AfterSend::Nothing)?;
    let mut pieces = Pieces { shared, link };
    let mut at = request.offset;
    loop {
        // The last piece is sent only when the whole object is known to be good.
        let wanted = if at < end { at } else { size_bytes };
        let ArrivalProgress { written_bytes, end: ended } = arriving.wait_past(wanted, WAIT_EVERY);
        match ended {
            _ if at < end && written_bytes > at => {
                let range = at..end.min(written_bytes);
                at = range.end;
                pieces.send(&arriving.file, range, size_bytes, written_bytes, |place| {
                    arriving.piece(place)
                })?;
            }
            Some(ArrivalEnd::Whole(checksum)) => {
                pieces.end(checksum)?;
                break;
            }
            // The peer continues with another source.
            Some(ArrivalEnd::GivenUp) => return Err(io::ErrorKind::ConnectionAborted.into()),
            None => pieces.wait(written_bytes)?,
        }
    }
    shared.served_count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// The end of the requested range, if the object has it.
fn end_of_range(request: TransferRequest, size_bytes: u64) -> Option<u64> {
    let left = size_bytes.checked_sub(request.offset)?;
    match request.length {
        protocol::TO_THE_END => Some(size_bytes),
        length => (length <= left).then(|| request.offset + length),
    }
}

/// Sends content piece by piece.
struct Pieces<'a> {
    shared: &'a Shared,
    link: &'a mut Link,
}

impl Pieces<'_> {
    /// Sends a range of an object. Pieces in a hole of the file are not sent: the peer leaves them
    /// out, too.
    fn send(
        &mut self,
        file: &File,
        range: Range<u64>,
        size_bytes: u64,
        had_bytes: u64,
        known: impl Fn(usize) -> Option<Checksum>,
    ) -> io::Result<()> {
        let pieces_of = |segment| match segment {
            Segment::Data(_) => None,
            Segment::Hole(hole) => {
                let end = if hole.end == size_bytes {
                    hole.end
                } else {
                    hole.end - hole.end % PIECE_BYTES as u64
                };
                Some(hole.start.next_multiple_of(PIECE_BYTES as u64)..end)
                    .filter(|pieces| !pieces.is_empty())
            }
        };
        let holes = Segments::of(file, range.clone()).filter_map(pieces_of);
        let mut at = range.start;
        for hole in holes.chain(std::iter::once(range.end..range.end)) {
            while at < hole.start {
                at += self.send_piece(file, at..range.end, size_bytes, had_bytes, &known)?;
            }
            while at < hole.end {
                let length = MAX_HOLE_BYTES.min(hole.end - at);
                at += length;
                self.go_on()?;
                let header =
                    PieceHeader { kind: PieceKind::Hole, length: length as u32, had_bytes };
                let then = if at < range.end { AfterSend::More } else { AfterSend::Nothing };
                self.link.send(&header.to_bytes(), then)?;
            }
        }
        Ok(())
    }

    fn go_on(&self) -> io::Result<()> {
        match self.shared.is_stopping() {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// Sends the part of `range` that is within one piece of an object. Returns its number of
    /// bytes. If the checksum of the piece is not `known`, or only a part of it is wanted, the
    /// checksum is computed.
    fn send_piece(
        &mut self,
        file: &File,
        range: Range<u64>,
        size_bytes: u64,
        had_bytes: u64,
        known: impl Fn(usize) -> Option<Checksum>,
    ) -> io::Result<u64> {
        self.go_on()?;
        let place = range.start / PIECE_BYTES as u64;
        let piece = place * PIECE_BYTES as u64..((place + 1) * PIECE_BYTES as u64).min(size_bytes);
        let part = range.start..range.end.min(piece.end);
        let length = part.end - part.start;
        let checksum = match known(place as usize).filter(|_| part == piece) {
            Some(checksum) => checksum,
            None => {
                let mut content = vec![0; length as usize];
                file.read_exact_at(&mut content, part.start)?;
                Checksum::of(&content)
            }
        };
        let header = PieceHeader { kind: PieceKind::Content, length: length as u32, had_bytes };
        self.shared.link_out.take_blocking(length);
        self.link.send(&header.to_bytes(), AfterSend::More)?;
        let then = if part.end < range.end { AfterSend::More } else { AfterSend::Nothing };
        self.link.send_file(file, part)?;
        self.link.send(&checksum.0.to_le_bytes(), then)?;
        self.shared.served_bytes.fetch_add(length, Ordering::Relaxed);
        Ok(length)
    }

    fn wait(&mut self, had_bytes: u64) -> io::Result<()> {
        self.go_on()?;
        let header = PieceHeader { kind: PieceKind::Wait, length: 0, had_bytes };
        self.link.send(&header.to_bytes(), AfterSend::Nothing)
    }

    fn end(&mut self, checksum: Checksum) -> io::Result<()> {
        let header = PieceHeader { kind: PieceKind::End, length: 0, had_bytes: 0 };
        self.link.send(&header.to_bytes(), AfterSend::More)?;
        self.link.send(&checksum.0.to_le_bytes(), AfterSend::Nothing)
    }
}

/// An open connection, which a stop can cut.
struct OpenConnection<'a> {
    shared: &'a Shared,
    number: u64,
    stream: Arc<TcpStream>,
}

impl<'a> OpenConnection<'a> {
    fn register(shared: &'a Shared, stream: Arc<TcpStream>) -> Self {
        let mut connections = shared.connections();
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, stream.clone());
        if shared.is_stopping() {
            // The stop came before this connection was in the table.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        OpenConnection { shared, number, stream }
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.shared.connections().open.remove(&self.number);
    }
}

/// An admitted connection, which counts against the limits.
struct AdmittedConnection<'a> {
    shared: &'a Shared,
    ip: IpAddr,
}

impl<'a> AdmittedConnection<'a> {
    fn from(shared: &'a Shared, ip: IpAddr) -> Option<Self> {
        let mut connections = shared.connections();
        let here = connections.admitted_from.get(&ip).copied().unwrap_or(0);
        if connections.admitted >= shared.limits.max_connections
            || here >= shared.limits.max_connections_per_peer
        {
            return None;
        }
        connections.admitted += 1;
        connections.admitted_from.insert(ip, here + 1);
        Some(AdmittedConnection { shared, ip })
    }
}

impl Drop for AdmittedConnection<'_> {
    fn drop(&mut self) {
        let mut connections = self.shared.connections();
        connections.admitted -= 1;
        if let Some(here) = connections.admitted_from.get_mut(&self.ip) {
            *here -= 1;
            if *here == 0 {
                connections.admitted_from.remove(&self.ip);
            }
        }
    }
}
