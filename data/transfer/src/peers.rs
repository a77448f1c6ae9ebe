//! Connections to peers, which are kept and reused, and what was measured of each peer: its
//! latency, its rate, and whether to avoid it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use eyas_session::{DataKeys, proxy};
use eyas_store::{Checksum, Incoming, Limiter};
use eyas_types::ObjectId;
use tokio::sync::Semaphore;

use crate::connection::{nonce, read_message};
use crate::error::{PeerError, PeerErrorKind};
use crate::limits::{MAX_PEERS, MAX_RANGE_BYTES, PeerLimits};
use crate::link::{AfterSend, Link};
use crate::protocol::{
    self, PeerKey, PeerSession, TO_THE_END, TransferReply, TransferRequest, Welcome,
};
use crate::push::push;
use crate::receive::{BUFFER_BYTES, ContentHeader, Patience, receive_object, receive_range};

/// Maximum number of buffers that are kept for later transfers.
const MAX_BUFFERS: usize = 8;

/// The rate of smaller transfers is not measured.
const MEASURED_BYTES: u64 = 1 << 20;

/// Assumed rate before anything was measured, bytes per second.
const NOMINAL_BYTES_PER_S: f64 = 1e9;

/// A peer that sent damaged data is avoided for this multiple of the time for a silent peer.
const CORRUPT_AVOID_FACTOR: u32 = 10;

/// Connections to other nodes' servers. Clones share them.
#[derive(Clone)]
pub struct Peers(Arc<Inner>);

pub(crate) struct Inner {
    keys: DataKeys,
    pub limits: PeerLimits,
    pub link_in: Limiter,
    peers: Mutex<Table>,
    buffers: Mutex<Vec<Vec<u8>>>,
}

struct Table {
    peers: HashMap<SocketAddr, Peer>,
    /// Measurements over all peers.
    pace: Pace,
    /// The time when idle connections were last closed.
    swept: Instant,
}

struct Peer {
    permits: Arc<Semaphore>,
    idle: Vec<Connection>,
    avoid: Option<(Instant, &'static str)>,
    pace: Pace,
    /// The proxy of the peer.
    proxy: Option<SocketAddr>,
}

pub(crate) struct Connection {
    pub link: Link,
    session: PeerSession,
    last_used: Instant,
}

/// Moving averages of what was measured of a peer.
#[derive(Clone, Copy, Default)]
struct Pace {
    rtt_s: Option<f64>,
    bytes_per_s: Option<f64>,
}

/// A failed request. It may be repeated if the server may have closed the connection while it was
/// idle.
pub(crate) struct TransferFailure {
    pub error: PeerError,
    pub may_be_stale: bool,
}

/// A transfer that was interrupted.
#[derive(Debug)]
pub struct InterruptedTransfer {
    /// The reason.
    pub error: PeerError,
    /// The object with the bytes received so far, from which the next source can continue; `None`
    /// if they are of no use.
    pub rest: Option<Incoming>,
}

fn learn(average: &mut Option<f64>, seen: f64) {
    *average = Some(average.map_or(seen, |average| (3.0 * average + seen) / 4.0));
}

impl Peers {
    /// Does not connect yet.
    pub fn new(keys: DataKeys, limits: PeerLimits, link_in: Limiter) -> Self {
        let table = Table { peers: HashMap::new(), pace: Pace::default(), swept: Instant::now() };
        Peers(Arc::new(Inner {
            keys,
            limits,
            link_in,
            peers: Mutex::new(table),
            buffers: Mutex::default(),
        }))
    }

    /// The same peers over the same network link, with connections and limits of their own.
    pub fn with_limits(&self, limits: PeerLimits) -> Self {
        Peers::new(self.0.keys.clone(), limits, self.0.link_in.clone())
    }

    /// Receives the rest of an object from the peer at `addr` and publishes it in the store. If the
    /// object `is_expected` at the peer, the peer may still be waiting for it. With `is_choosy`, a
    /// slow peer is given up. A transfer in progress continues even if no caller waits for it.
    ///
    /// # Errors
    /// `NotHere`, `Busy`, `Unreachable`, `Avoided`, `Corrupt`, `Slow`: try another source. `Full`,
    /// `Local`: no source can help.
    pub async fn fetch(
        &self,
        addr: SocketAddr,
        into: Incoming,
        is_expected: bool,
        is_choosy: bool,
    ) -> Result<Checksum, InterruptedTransfer> {
        let (return_buffer, returned_buffer) = std::sync::mpsc::channel();
        let fetched = self.with_peer(addr, move |inner| {
            let mut into = Some(into);
            let fetched = inner.fetch(addr, &mut into, is_expected, is_choosy);
            // If the caller is gone, the object is dropped.
            let _ = return_buffer.send(into);
            fetched
        });
        fetched.await.map_err(|error| InterruptedTransfer {
            error,
            rest: returned_buffer.try_recv().ok().flatten(),
        })
    }

    /// Connects to a peer through its proxy from now on, unless this process is behind the same
    /// proxy.
    pub(crate) fn note_proxy(&self, addr: SocketAddr, proxy: Option<SocketAddr>) {
        let mut table = self.0.table();
        if proxy.is_some() || table.peers.contains_key(&addr) {
            self.0.peer(&mut table, addr).proxy = proxy;
        }
    }

    /// Stops avoiding a peer, until it fails again.
    pub fn forgive(&self, addr: SocketAddr) {
        if let Some(peer) = self.0.table().peers.get_mut(&addr) {
            peer.avoid = None;
        }
    }

    /// Estimated time to fetch `bytes` from the peer at `addr`, which serves `others` other nodes.
    /// Based on measurements of this peer, or else of other peers.
    pub fn estimate(&self, addr: SocketAddr, bytes: u64, others: u32) -> Duration {
        let table = self.0.table();
        let pace = table.peers.get(&addr).map_or(Pace::default(), |peer| peer.pace);
        let bytes_per_s =
            pace.bytes_per_s.or(table.pace.bytes_per_s).unwrap_or(NOMINAL_BYTES_PER_S);
        let rtt_s = pace.rtt_s.or(table.pace.rtt_s).unwrap_or(0.0);
        Duration::from_secs_f64(rtt_s + bytes as f64 * f64::from(1 + others) / bytes_per_s)
    }

    /// Pushes an object to the peer at `addr`, which expects it. Returns when the peer has stored
    /// it.
    ///
    /// # Errors
    /// `NotHere` if the peer does not expect it; `Busy`, `Unreachable`, `Avoided` if the peer did
    /// not confirm that it has stored it.
    pub async fn push(
        &self,
        addr: SocketAddr,
        id: ObjectId,
        content: Arc<Vec<u8>>,
    ) -> Result<(), PeerError> {
        self.with_peer(addr, move |inner| {
            inner.request(addr, |connection| push(inner, addr, connection, id, &content))
        })
        .await
    }

    /// Reads `length` bytes from `offset` of an object of the peer at `addr`.
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
            let request = TransferRequest { id, offset, length, expected: false, is_push: false };
            let patience = Patience { stall: inner.limits.relay_patience, is_choosy: false };
            inner.request(addr, |connection| {
                receive_range(inner, addr, connection, request, patience)
            })
        })
        .await
    }

    /// Runs `work` on a blocking thread, when the limit of transfers with `addr` permits.
    async fn with_peer<T: Send + 'static>(
        &self,
        addr: SocketAddr,
        work: impl FnOnce(&Inner) -> Result<T, PeerError> + Send + 'static,
    ) -> Result<T, PeerError> {
        let gone = |_| PeerError::unreachable(addr, "was not asked: the process is shutting down");
        let permits = self.0.permits(addr)?;
        let permit = permits.acquire_owned().await.map_err(|_| gone(()))?;
        // The peer may have failed in another transfer while this one waited.
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
    fn fetch(
        &self,
        addr: SocketAddr,
        into: &mut Option<Incoming>,
        is_expected: bool,
        is_choosy: bool,
    ) -> Result<Checksum, PeerError> {
        let patience = Patience { stall: self.limits.relay_patience, is_choosy };
        let incoming = into.as_mut().expect("the caller has put it there");
        let mut buffer = self.take_buffer();
        let received = self.request(addr, |connection| {
            let (started, offset) = (Instant::now(), incoming.written_bytes());
            let (id, expected) = (incoming.id(), is_expected);
            let request =
                TransferRequest { id, offset, length: TO_THE_END, expected, is_push: false };
            let received =
                receive_object(self, addr, connection, request, incoming, patience, &mut buffer);
            self.saw_rate(addr, incoming.written_bytes() - offset, started.elapsed());
            received
        });
        self.give_buffer(buffer);
        match received {
            Ok(()) => Ok(into.take().expect("it was there above").commit()?),
            Err(error) => {
                let is_bad_whole = error.kind == PeerErrorKind::Corrupt
                    && incoming.written_bytes() == incoming.size_bytes();
                if is_bad_whole || matches!(error.kind, PeerErrorKind::Full | PeerErrorKind::Local)
                {
                    *into = None;
                }
                Err(error)
            }
        }
    }

    fn saw_rate(&self, addr: SocketAddr, bytes: u64, took: Duration) {
        if bytes >= MEASURED_BYTES {
            let bytes_per_s = bytes as f64 / took.as_secs_f64();
            self.saw(addr, |pace| learn(&mut pace.bytes_per_s, bytes_per_s));
        }
    }

    /// Records a measurement, for one peer and for all peers together.
    fn saw(&self, addr: SocketAddr, learn: impl Fn(&mut Pace)) {
        let mut table = self.table();
        learn(&mut table.pace);
        if let Some(peer) = table.peers.get_mut(&addr) {
            learn(&mut peer.pace);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // No update of the map can panic half-way.
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permits(&self, addr: SocketAddr) -> Result<Arc<Semaphore>, PeerError> {
        let mut table = self.table();
        let peer = self.peer(&mut table, addr);
        match peer.avoid {
            Some((until, why)) if Instant::now() < until => Err(PeerError::new(
                PeerErrorKind::Avoided,
                addr,
                format_args!("was not asked: a moment ago it {why}"),
            )),
            _ => Ok(peer.permits.clone()),
        }
    }

    /// What is known of a peer.
    fn peer<'a>(&self, table: &'a mut Table, addr: SocketAddr) -> &'a mut Peer {
        let peers = &mut table.peers;
        if peers.len() >= MAX_PEERS && !peers.contains_key(&addr) {
            peers.retain(|_, peer| Arc::strong_count(&peer.permits) > 1);
        }
        peers.entry(addr).or_insert_with(|| Peer {
            permits: Arc::new(Semaphore::new(self.limits.max_transfers_per_peer)),
            idle: Vec::new(),
            avoid: None,
            pace: Pace::default(),
            proxy: None,
        })
    }

    /// Records a peer to avoid for a while.
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

    /// Makes one request, on a kept connection if there is one. If the server has closed that
    /// connection, the request is repeated on a new one.
    fn request<T>(
        &self,
        addr: SocketAddr,
        mut work: impl FnMut(&mut Connection) -> Result<T, TransferFailure>,
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

    /// Keeps the connection if it is between two requests. Otherwise closes it.
    fn finish<T>(
        &self,
        addr: SocketAddr,
        connection: Connection,
        done: Result<T, TransferFailure>,
    ) -> Result<T, PeerError> {
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
            move |error: std::io::Error| {
                PeerError::unreachable(addr, format_args!("{what}: {error}"))
            }
        };
        let started = Instant::now();
        let proxy = self.table().peers.get(&addr).and_then(|peer| peer.proxy);
        let connected = match &proxy::way(self.keys.proxy(), proxy)[..] {
            [] => TcpStream::connect_timeout(&addr, self.limits.connect_timeout),
            [proxy, further @ ..] => proxy::connect_through(
                *proxy,
                further,
                &addr.to_string(),
                self.limits.connect_timeout,
            ),
        };
        let stream = Arc::new(connected.map_err(failed("cannot be reached"))?);
        let rtt_s = started.elapsed().as_secs_f64();
        self.saw(addr, |pace| learn(&mut pace.rtt_s, rtt_s));
        let key = PeerKey(self.keys.secrets()[0]);
        let greet = || {
            stream.set_nodelay(true)?;
            set_receive_buffer(&stream, self.limits.receive_buffer_bytes)?;
            stream.set_write_timeout(Some(self.limits.stall_timeout))?;
            let deadline = Instant::now() + self.limits.handshake_timeout;
            let mut link = Link::client(stream.clone(), &self.keys, deadline)?;
            let client = nonce()?;
            link.send(&protocol::hello(&key, &client), AfterSend::Nothing)?;
            let answer = read_message(&mut link, self.limits.handshake_timeout)?;
            answer
                .map(|answer| (link, client, answer))
                .ok_or_else(|| ErrorKind::UnexpectedEof.into())
        };
        let (link, client, answer) =
            greet().map_err(|error: std::io::Error| match error.kind() {
                // A server also closes the connection if it refuses this side, or if only one of
                // the two sides uses TLS.
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                    let why = "closed the connection: check that both nodes have the same cluster \
                               key, and that both or neither use --plain-data";
                    PeerError::unreachable(addr, why)
                }
                _ => failed("did not answer")(error),
            })?;
        match protocol::read_welcome(&key, &client, &answer) {
            Some((Welcome::Ready, server)) => {
                let session = PeerSession::new(&key, &client, &server);
                Ok(Connection { link, session, last_used: Instant::now() })
            }
            Some((Welcome::Busy, _)) => {
                Err(PeerError::new(PeerErrorKind::Busy, addr, "has too many connections"))
            }
            None => Err(PeerError::unreachable(addr, "does not know the cluster's key")),
        }
    }

    fn take_idle(&self, addr: SocketAddr) -> Option<Connection> {
        self.table()
            .peers
            .get_mut(&addr)?
            .idle
            .pop()
            .filter(|connection| connection.is_fresh(&self.limits))
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

    /// Sends `request` and returns the connection's further data.
    pub fn ask(
        &mut self,
        addr: SocketAddr,
        request: TransferRequest,
        timeout: Duration,
    ) -> Result<ContentHeader, TransferFailure> {
        match self.exchange(addr, request, timeout)? {
            TransferReply::Here { size_bytes, checksum, length } => {
                Ok(ContentHeader { size_bytes, checksum: Some(checksum), length })
            }
            TransferReply::Coming { size_bytes, length } => {
                Ok(ContentHeader { size_bytes, checksum: None, length })
            }
            TransferReply::NotHere => {
                Err(TransferFailure::of(PeerErrorKind::NotHere, addr, "does not have it"))
            }
            TransferReply::NoSuchRange => {
                Err(TransferFailure::of(PeerErrorKind::NotHere, addr, "has no such range of it"))
            }
            TransferReply::Failed => {
                Err(TransferFailure::unreachable(addr, "cannot read its store".into()))
            }
            TransferReply::Wanted { .. } | TransferReply::Stored => Err(strange_answer(addr)),
        }
    }

    /// Sends `request`, and returns the answer.
    pub fn exchange(
        &mut self,
        addr: SocketAddr,
        request: TransferRequest,
        timeout: Duration,
    ) -> Result<TransferReply, TransferFailure> {
        let stale = |what: String| TransferFailure {
            error: PeerError::unreachable(addr, what),
            may_be_stale: true,
        };
        let message = self.session.request(request);
        self.link
            .send(&message, AfterSend::Nothing)
            .map_err(|error| stale(format!("cannot be asked: {error}")))?;
        self.answer(addr, timeout)
    }

    /// The next answer to the last request.
    pub fn answer(
        &mut self,
        addr: SocketAddr,
        timeout: Duration,
    ) -> Result<TransferReply, TransferFailure> {
        match read_message(&mut self.link, timeout) {
            Ok(Some(reply)) => self.session.read_reply(&reply).ok_or_else(|| strange_answer(addr)),
            Ok(None) => {
                let error = PeerError::unreachable(addr, "closed the connection");
                Err(TransferFailure { error, may_be_stale: true })
            }
            Err(error) => {
                Err(TransferFailure::unreachable(addr, format!("did not answer: {error}")))
            }
        }
    }
}

fn strange_answer(addr: SocketAddr) -> TransferFailure {
    TransferFailure::unreachable(addr, "answered what it was not asked".into())
}

impl TransferFailure {
    pub fn of(kind: PeerErrorKind, addr: SocketAddr, what: impl std::fmt::Display) -> Self {
        TransferFailure { error: PeerError::new(kind, addr, what), may_be_stale: false }
    }

    pub fn unreachable(addr: SocketAddr, what: String) -> Self {
        TransferFailure::of(PeerErrorKind::Unreachable, addr, what)
    }
}

impl From<eyas_store::StoreError> for TransferFailure {
    fn from(error: eyas_store::StoreError) -> Self {
        TransferFailure { error: error.into(), may_be_stale: false }
    }
}

/// A buffer size that is set ends the kernel's automatic tuning. So a size that the kernel would
/// reduce is not set.
fn set_receive_buffer(stream: &TcpStream, bytes: usize) -> std::io::Result<()> {
    static MOST_BYTES: OnceLock<usize> = OnceLock::new();
    let most_bytes = *MOST_BYTES.get_or_init(|| {
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").ok();
        most.and_then(|most| most.trim().parse().ok()).unwrap_or(0)
    });
    if bytes <= most_bytes {
        rustix::net::sockopt::set_socket_recv_buffer_size(stream, bytes)?;
    }
    Ok(())
}
