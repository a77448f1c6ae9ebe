//! Takes objects from peers: connections kept and reused, a few transfers at a time with each, what arrives held to
//! size and checksum before the store sees it.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use eyas_store::{Checksum, Limiter, ObjectStore};
use eyas_types::ObjectId;
use tokio::sync::Semaphore;

use crate::connection::{nonce, read_message};
use crate::error::{PeerError, PeerErrorKind};
use crate::limits::{MAX_PEERS, MAX_RANGE_BYTES, PeerLimits};
use crate::protocol::{self, PeerKey, Reply, Request, Session, TO_THE_END, Welcome};

/// Received at a time: what stays in a core's cache between the socket, the checksum and the file.
const BUFFER_BYTES: usize = 128 << 10;

/// Buffers kept for the next transfers.
const MAX_BUFFERS: usize = 8;

/// Asked of the kernel for each connection, where it grants that much: the sender then seldom waits for the receiver,
/// and the two wake each other less often. `benches/loopback.rs` measures twice the rate of the kernel's own choice.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// How much longer than from a silent peer to keep away from one that sent damaged data.
const CORRUPT_AVOID_FACTOR: u32 = 10;

/// Connections to other nodes' servers. Clones share them.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

struct Inner {
    key: PeerKey,
    limits: PeerLimits,
    link_in: Limiter,
    peers: Mutex<Table>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

struct Table {
    peers: HashMap<SocketAddr, Peer>,
    /// When connections that are too old were last closed.
    swept: Instant,
}

struct Peer {
    permits: Arc<Semaphore>,
    idle: Vec<Connection>,
    avoid: Option<(Instant, &'static str)>,
}

struct Connection {
    stream: TcpStream,
    session: Session,
    last_used: Instant,
}

/// Whether a failed request may have hit a connection that the server had closed in its idle time.
struct Failure {
    error: PeerError,
    may_be_stale: bool,
}

impl Peers {
    /// No connection yet.
    pub fn new(key: PeerKey, limits: PeerLimits, link_in: Limiter) -> Self {
        let table = Table { peers: HashMap::new(), swept: Instant::now() };
        Peers(Arc::new(Inner { key, limits, link_in, peers: Mutex::new(table), buffers: Mutex::default() }))
    }

    /// Brings the object from the peer at `addr` into `store`. A transfer that has begun runs to its end even if no one
    /// waits for it any more.
    ///
    /// # Errors
    /// `NotHere`, `Busy`, `Unreachable`, `Avoided`, `Corrupt`: try another source. `Full`, `Local`: none can help.
    pub async fn fetch(
        &self,
        addr: SocketAddr,
        id: ObjectId,
        size_bytes: u64,
        executable: bool,
        store: &ObjectStore,
    ) -> Result<Checksum, PeerError> {
        let store = store.clone();
        self.with_peer(addr, move |inner| {
            let mut buffer = inner.take_buffer();
            let received = inner.request(addr, |connection| {
                let into = Into { id, size_bytes, executable, store: &store };
                receive_object(inner, addr, connection, &into, &mut buffer)
            });
            inner.give_buffer(buffer);
            received
        })
        .await
    }

    /// Reads `length` bytes from `offset` of the object that the peer at `addr` has.
    ///
    /// # Errors
    /// As [`Peers::fetch`]; `NotHere` also if the object has no such range.
    ///
    /// # Panics
    /// If `length` is more than [`MAX_RANGE_BYTES`].
    pub async fn read_range(
        &self,
        addr: SocketAddr,
        id: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<Vec<u8>, PeerError> {
        assert!(length <= MAX_RANGE_BYTES, "a range is read into memory");
        self.with_peer(addr, move |inner| {
            inner.request(addr, |connection| receive_range(inner, addr, connection, Request { id, offset, length }))
        })
        .await
    }

    /// Runs `work` on a blocking thread, in its turn among the transfers with `addr`.
    async fn with_peer<T: Send + 'static>(
        &self,
        addr: SocketAddr,
        work: impl FnOnce(&Inner) -> Result<T, PeerError> + Send + 'static,
    ) -> Result<T, PeerError> {
        let gone = |_| PeerError::unreachable(addr, "was not asked: the process is shutting down");
        let permits = self.0.permits(addr)?;
        let permit = permits.acquire_owned().await.map_err(|_| gone(()))?;
        // It may have failed for another transfer while this one waited.
        self.0.permits(addr)?;
        let inner = self.0.clone();
        let working = tokio::task::spawn_blocking(move || {
            let result = work(&inner);
            inner.note(addr, &result);
            drop(permit);
            result
        });
        match working.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(gone(())),
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // No update of the map can panic half-way.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permits(&self, addr: SocketAddr) -> Result<Arc<Semaphore>, PeerError> {
        let peers = &mut self.table().peers;
        if peers.len() >= MAX_PEERS && !peers.contains_key(&addr) {
            peers.retain(|_, peer| Arc::strong_count(&peer.permits) > 1);
        }
        let peer = peers.entry(addr).or_insert_with(|| Peer {
            permits: Arc::new(Semaphore::new(self.limits.max_transfers_per_peer)),
            idle: Vec::new(),
            avoid: None,
        });
        match peer.avoid {
            Some((until, why)) if Instant::now() < until => {
                Err(PeerError::new(PeerErrorKind::Avoided, addr, format_args!("was not asked: a moment ago it {why}")))
            }
            _ => Ok(peer.permits.clone()),
        }
    }

    /// Remembers a peer that is better left alone for a while.
    fn note<T>(&self, addr: SocketAddr, result: &Result<T, PeerError>) {
        let (factor, why) = match result.as_ref().err().map(|error| error.kind) {
            Some(PeerErrorKind::Unreachable) => (1, "did not answer"),
            Some(PeerErrorKind::Corrupt) => (CORRUPT_AVOID_FACTOR, "sent damaged data"),
            _ => return,
        };
        if let Some(peer) = self.table().peers.get_mut(&addr) {
            peer.avoid = Some((Instant::now() + self.limits.avoid * factor, why));
            peer.idle.clear();
        }
    }

    /// Makes one request: on a kept connection if there is one, and once more on a new one if the kept one turns out to
    /// be closed.
    fn request<T>(
        &self,
        addr: SocketAddr,
        mut work: impl FnMut(&mut Connection) -> Result<T, Failure>,
    ) -> Result<T, PeerError> {
        if let Some(mut kept) = self.take_idle(addr) {
            match work(&mut kept) {
                Err(failure) if failure.may_be_stale => {}
                done => return self.finish(addr, kept, done),
            }
        }
        let mut connection = self.connect(addr)?;
        let done = work(&mut connection);
        self.finish(addr, connection, done)
    }

    /// Keeps the connection if it is between two requests, and closes it otherwise.
    fn finish<T>(&self, addr: SocketAddr, connection: Connection, done: Result<T, Failure>) -> Result<T, PeerError> {
        let is_clean = match &done {
            Ok(_) => true,
            Err(failure) => failure.error.kind == PeerErrorKind::NotHere,
        };
        if is_clean {
            self.keep_idle(addr, connection);
        }
        done.map_err(|failure| failure.error)
    }

    fn connect(&self, addr: SocketAddr) -> Result<Connection, PeerError> {
        let failed = |what: &'static str| {
            move |error: std::io::Error| PeerError::unreachable(addr, format_args!("{what}: {error}"))
        };
        let stream =
            TcpStream::connect_timeout(&addr, self.limits.connect_timeout).map_err(failed("cannot be reached"))?;
        let greet = || {
            stream.set_nodelay(true)?;
            enlarge_receive_buffer(&stream)?;
            stream.set_write_timeout(Some(self.limits.stall_timeout))?;
            let client = nonce()?;
            (&stream).write_all(&protocol::hello(&self.key, &client))?;
            Ok((client, read_message(&stream, self.limits.handshake_timeout)?))
        };
        let (client, answer) = greet().map_err(failed("did not answer"))?;
        let Some(answer) = answer else {
            return Err(PeerError::unreachable(addr, "closed the connection: check that it has the same cluster key"));
        };
        match protocol::read_welcome(&self.key, &client, &answer) {
            Some((Welcome::Ready, server)) => {
                let session = Session::new(&self.key, &client, &server);
                Ok(Connection { stream, session, last_used: Instant::now() })
            }
            Some((Welcome::Busy, _)) => Err(PeerError::new(PeerErrorKind::Busy, addr, "has too many connections")),
            None => Err(PeerError::unreachable(addr, "does not know the cluster's key")),
        }
    }

    fn take_idle(&self, addr: SocketAddr) -> Option<Connection> {
        self.table().peers.get_mut(&addr)?.idle.pop().filter(|connection| connection.is_fresh(&self.limits))
    }

    fn keep_idle(&self, addr: SocketAddr, mut connection: Connection) {
        connection.last_used = Instant::now();
        let mut table = self.table();
        if table.swept.elapsed() > self.limits.idle_timeout / 2 {
            table.swept = connection.last_used;
            for peer in table.peers.values_mut() {
                peer.idle.retain(|kept| kept.is_fresh(&self.limits));
            }
        }
        if let Some(peer) = table.peers.get_mut(&addr)
            && peer.idle.len() < self.limits.max_transfers_per_peer
        {
            peer.idle.push(connection);
        }
    }

    fn take_buffer(&self) -> Vec<u8> {
        let kept = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| vec![0; BUFFER_BYTES])
    }

    fn give_buffer(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if buffers.len() < MAX_BUFFERS {
            buffers.push(buffer);
        }
    }
}

impl Connection {
    fn is_fresh(&self, limits: &PeerLimits) -> bool {
        self.last_used.elapsed() < limits.idle_timeout / 2
    }

    /// Sends `request`, and returns what comes of it: the object's size and checksum, and how many bytes follow.
    fn ask(&mut self, addr: SocketAddr, request: Request, timeout: Duration) -> Result<(u64, Checksum, u64), Failure> {
        let stale = |what: String| Failure { error: PeerError::unreachable(addr, what), may_be_stale: true };
        let message = self.session.request(request);
        (&self.stream).write_all(&message).map_err(|error| stale(format!("cannot be asked: {error}")))?;
        let reply = match read_message(&self.stream, timeout) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Err(stale("closed the connection".into())),
            Err(error) => return Err(Failure::unreachable(addr, format!("did not answer: {error}"))),
        };
        match self.session.read_reply(&reply) {
            Some(Reply::Here { size_bytes, checksum, length }) => Ok((size_bytes, checksum, length)),
            Some(Reply::NotHere) => Err(Failure::of(PeerErrorKind::NotHere, addr, "does not have it")),
            Some(Reply::NoSuchRange) => Err(Failure::of(PeerErrorKind::NotHere, addr, "has no such range of it")),
            Some(Reply::Failed) => Err(Failure::unreachable(addr, "cannot read its store".into())),
            None => Err(Failure::unreachable(addr, "answered what it was not asked".into())),
        }
    }
}

impl Failure {
    fn of(kind: PeerErrorKind, addr: SocketAddr, what: impl std::fmt::Display) -> Self {
        Failure { error: PeerError::new(kind, addr, what), may_be_stale: false }
    }

    fn unreachable(addr: SocketAddr, what: String) -> Self {
        Failure::of(PeerErrorKind::Unreachable, addr, what)
    }
}

impl From<eyas_store::StoreError> for Failure {
    fn from(error: eyas_store::StoreError) -> Self {
        Failure { error: error.into(), may_be_stale: false }
    }
}

/// What is expected, and where it goes.
struct Into<'a> {
    id: ObjectId,
    size_bytes: u64,
    executable: bool,
    store: &'a ObjectStore,
}

fn receive_object(
    inner: &Inner,
    addr: SocketAddr,
    connection: &mut Connection,
    into: &Into<'_>,
    buffer: &mut [u8],
) -> Result<Checksum, Failure> {
    let request = Request { id: into.id, offset: 0, length: TO_THE_END };
    // The server may have to read the whole object first to verify it.
    let (size_bytes, checksum, length) = connection.ask(addr, request, inner.limits.stall_timeout)?;
    if (size_bytes, length) != (into.size_bytes, into.size_bytes) {
        let what = format!("says that object {} has {size_bytes} bytes; it has {}", into.id, into.size_bytes);
        return Err(Failure::of(PeerErrorKind::Corrupt, addr, what));
    }
    let mut incoming = into.store.begin(into.id, into.size_bytes, into.executable)?;
    receive(inner, addr, connection, length, buffer, |bytes| Ok(incoming.write(bytes)?))?;
    if incoming.checksum() != checksum {
        let what = format!("sent object {} damaged", into.id);
        return Err(Failure::of(PeerErrorKind::Corrupt, addr, what));
    }
    Ok(incoming.commit()?)
}

fn receive_range(
    inner: &Inner,
    addr: SocketAddr,
    connection: &mut Connection,
    request: Request,
) -> Result<Vec<u8>, Failure> {
    let (size_bytes, whole, length) = connection.ask(addr, request, inner.limits.stall_timeout)?;
    if length != request.length {
        return Err(Failure::of(PeerErrorKind::Corrupt, addr, "sends another range than it was asked for"));
    }
    let mut range = Vec::with_capacity(length as usize);
    let mut buffer = vec![0; BUFFER_BYTES.min(length as usize)];
    receive(inner, addr, connection, length, &mut buffer, |bytes| {
        range.extend_from_slice(bytes);
        Ok(())
    })?;
    let expected = if length < size_bytes {
        let mut trailer = [0; 8];
        receive(inner, addr, connection, 8, &mut [0; 8], |bytes| {
            trailer.copy_from_slice(bytes);
            Ok(())
        })?;
        Checksum(u64::from_le_bytes(trailer))
    } else {
        whole
    };
    if Checksum::of(&range) != expected {
        return Err(Failure::of(
            PeerErrorKind::Corrupt,
            addr,
            format!("sent a range of object {} damaged", request.id),
        ));
    }
    Ok(range)
}

/// A size that is set ends the kernel's own tuning, so one that the kernel would cut down is better not set.
fn enlarge_receive_buffer(stream: &TcpStream) -> std::io::Result<()> {
    static IS_GRANTED: OnceLock<bool> = OnceLock::new();
    let is_granted = *IS_GRANTED.get_or_init(|| {
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
        most.and_then(|most| most.trim().parse().ok()).is_some_and(|most: usize| most >= RECEIVE_BUFFER_BYTES)
    });
    if is_granted {
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, RECEIVE_BUFFER_BYTES)?;
    }
    Ok(())
}

/// Hands on `length` bytes as they come, in full buffers.
fn receive(
    inner: &Inner,
    addr: SocketAddr,
    connection: &Connection,
    length: u64,
    buffer: &mut [u8],
    mut hand_on: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::unreachable(addr, format!("stopped in the middle: {error}"));
    connection.stream.set_read_timeout(Some(inner.limits.stall_timeout)).map_err(failed)?;
    let mut left = length;
    while left > 0 {
        let wanted = buffer.len().min(left as usize);
        (&connection.stream).read_exact(&mut buffer[..wanted]).map_err(failed)?;
        inner.link_in.take_blocking(wanted as u64);
        hand_on(&buffer[..wanted])?;
        left -= wanted as u64;
    }
    Ok(())
}
