//! Encrypted streams for bulk data: TLS 1.3 over a blocking socket.
//!
//! The calling thread encrypts and decrypts, so no reactor is involved. Buffers hold several TLS
//! records of the largest size and live as long as the connection: a system call moves
//! [`BUFFER_BYTES`] without an allocation. TLS in the kernel (kTLS) would save two copies, but only
//! on kernels with that module; it is not used.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_types::access::Principal;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};

use crate::credentials::{Credentials, SERVER_NAME};
use crate::data::DataKeys;

/// Content of the largest TLS record.
const RECORD_BYTES: usize = 16 << 10;

/// Overhead of a record: a header of 5 bytes, a type, and a tag of 16 bytes.
const OVERHEAD_BYTES: usize = 22;

/// Records per system call.
const RECORDS: usize = 8;

/// Space for TLS's own messages among the records, such as key updates.
const SPARE_BYTES: usize = 256;

/// Size of each buffer.
const BUFFER_BYTES: usize = RECORDS * (RECORD_BYTES + OVERHEAD_BYTES) + SPARE_BYTES;

/// An encrypted connection, authenticated in both directions.
pub struct SealedStream {
    tcp: Arc<TcpStream>,
    tls: Tls,
    incoming: Incoming,
    /// Decrypted content that was not read yet: the rest of a record.
    rest: Vec<u8>,
    rest_at: usize,
    outgoing: Outgoing,
}

enum Tls {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// Received, encrypted bytes.
#[derive(Default)]
struct Incoming {
    buffer: Vec<u8>,
    from: usize,
    to: usize,
}

/// Encrypted bytes to be sent.
#[derive(Default)]
struct Outgoing {
    buffer: Vec<u8>,
    filled: usize,
}

/// Destination of decrypted bytes; the excess is kept for the next read.
struct Sink<'a> {
    into: &'a mut [u8],
    filled: usize,
    rest: &'a mut Vec<u8>,
}

/// The result of one step of TLS.
enum Step {
    /// More steps are possible now.
    Again,
    /// Content was decrypted.
    Decrypted,
    /// The handshake needs more input.
    Blocked,
    /// TLS needs more input, and content may be sent. The given content was encrypted.
    Ready,
    /// The peer has closed its side.
    Closed,
}

impl SealedStream {
    /// Performs the handshake as the client, until `deadline`.
    ///
    /// # Errors
    /// If a side does not accept the other, or the deadline is over.
    pub fn client(tcp: Arc<TcpStream>, keys: &DataKeys, deadline: Instant) -> io::Result<Self> {
        let name = ServerName::try_from(SERVER_NAME).expect("a valid name");
        let tls = UnbufferedClientConnection::new(keys.client(), name).map_err(io::Error::other)?;
        SealedStream::greeted(tcp, Tls::Client(tls), deadline)
    }

    /// Performs the handshake as the server, until `deadline`.
    ///
    /// # Errors
    /// If a side does not accept the other, or the deadline is over.
    pub fn server(tcp: Arc<TcpStream>, keys: &DataKeys, deadline: Instant) -> io::Result<Self> {
        let tls = UnbufferedServerConnection::new(keys.server()).map_err(io::Error::other)?;
        SealedStream::greeted(tcp, Tls::Server(tls), deadline)
    }

    fn greeted(tcp: Arc<TcpStream>, tls: Tls, deadline: Instant) -> io::Result<Self> {
        let (incoming, outgoing) = (Incoming::default(), Outgoing::default());
        let mut stream =
            SealedStream { tcp, tls, incoming, rest: Vec::new(), rest_at: 0, outgoing };
        while stream.is_greeting() {
            match stream.step(&mut [], None)?.0 {
                Step::Again | Step::Decrypted | Step::Ready => {}
                Step::Blocked => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    stream.tcp.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
                    if stream.incoming.fill(&stream.tcp)? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Step::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        // The last message of the handshake may still have to be sent.
        while matches!(stream.step(&mut [], None)?.0, Step::Again) {}
        Ok(stream)
    }

    /// The socket, to set deadlines.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The peer's principal.
    pub fn peer(&self) -> Option<Principal> {
        let shown = match &self.tls {
            Tls::Client(tls) => tls.peer_certificates(),
            Tls::Server(tls) => tls.peer_certificates(),
        };
        Credentials::peer(shown).ok()
    }

    /// Encrypts `content`, and sends it except the part that stays in the buffer.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn put(&mut self, mut content: &[u8]) -> io::Result<()> {
        while !content.is_empty() {
            let records = self.outgoing.room() / (RECORD_BYTES + OVERHEAD_BYTES);
            if records == 0 {
                self.send()?;
                continue;
            }
            let (now, later) = content.split_at(content.len().min(records * RECORD_BYTES));
            loop {
                match self.step(&mut [], Some(now))?.0 {
                    Step::Ready => break,
                    Step::Again | Step::Decrypted => {}
                    Step::Blocked | Step::Closed => return Err(io::ErrorKind::BrokenPipe.into()),
                }
            }
            content = later;
        }
        Ok(())
    }

    /// Sends the rest of the buffer.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn send(&mut self) -> io::Result<()> {
        self.outgoing.send(&self.tcp)
    }

    fn is_greeting(&self) -> bool {
        match &self.tls {
            Tls::Client(tls) => tls.is_handshaking(),
            Tls::Server(tls) => tls.is_handshaking(),
        }
    }

    /// Performs the next step of TLS. Returns how many bytes were decrypted into `into`.
    fn step(&mut self, into: &mut [u8], content: Option<&[u8]>) -> io::Result<(Step, usize)> {
        let stepped = self.step_once(into, content);
        if stepped.is_err() {
            self.send_alert();
        }
        stepped
    }

    /// Sends the TLS alert for an error, if there is one; it may get lost. The received bytes must
    /// not be processed again, so TLS is only called while it has something to send, which it does
    /// before it processes input.
    fn send_alert(&mut self) {
        while self.has_to_send() {
            if self.step_once(&mut [], None).is_err() {
                return;
            }
        }
        let _ = self.send();
    }

    fn has_to_send(&self) -> bool {
        match &self.tls {
            Tls::Client(tls) => tls.wants_write(),
            Tls::Server(tls) => tls.wants_write(),
        }
    }

    fn step_once(&mut self, into: &mut [u8], content: Option<&[u8]>) -> io::Result<(Step, usize)> {
        let SealedStream { tcp, tls, incoming, rest, outgoing, .. } = self;
        let mut sink = Sink { into, filled: 0, rest };
        let (used, step) = match tls {
            Tls::Client(tls) => {
                handle(tls.process_tls_records(incoming.bytes()), tcp, outgoing, &mut sink, content)
            }
            Tls::Server(tls) => {
                handle(tls.process_tls_records(incoming.bytes()), tcp, outgoing, &mut sink, content)
            }
        };
        let filled = sink.filled;
        incoming.used(used);
        Ok((step?, filled))
    }
}

/// Performs the action that TLS requests. Returns how many encrypted bytes were consumed.
fn handle<D>(
    status: UnbufferedStatus<'_, '_, D>,
    tcp: &TcpStream,
    outgoing: &mut Outgoing,
    sink: &mut Sink<'_>,
    content: Option<&[u8]>,
) -> (usize, io::Result<Step>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        Ok(ConnectionState::EncodeTlsData(mut message)) => match message.encode(outgoing.free()) {
            Ok(bytes) => Ok(outgoing.add(bytes)),
            Err(EncodeError::InsufficientSize(_)) => {
                Err(io::Error::other("a message of TLS is too long"))
            }
            Err(error) => Err(io::Error::other(error)),
        },
        Ok(ConnectionState::TransmitTlsData(message)) => outgoing.send(tcp).map(|()| {
            message.done();
            Step::Again
        }),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    sink.put(record.payload);
                }
                Some(Err(error)) => break Err(io::Error::new(io::ErrorKind::InvalidData, error)),
                None => break Ok(Step::Decrypted),
            }
        },
        Ok(ConnectionState::WriteTraffic(mut traffic)) => match content {
            Some(content) => match traffic.encrypt(content, outgoing.free()) {
                Ok(bytes) => {
                    outgoing.add(bytes);
                    Ok(Step::Ready)
                }
                Err(EncryptError::InsufficientSize(_)) => {
                    Err(io::Error::other("a record of TLS is too long"))
                }
                Err(error) => Err(io::Error::other(error)),
            },
            None => Ok(Step::Ready),
        },
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Blocked),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Closed),
        Ok(_) => Err(io::Error::other("TLS requests an unsupported action")),
    };
    (discard, step)
}

impl Read for SealedStream {
    /// The end of the TCP connection counts as an end of the stream: the protocol inside has its
    /// own lengths and authenticated replies.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.rest_at < self.rest.len() {
            let left = &self.rest[self.rest_at..];
            let length = left.len().min(into.len());
            into[..length].copy_from_slice(&left[..length]);
            self.rest_at += length;
            return Ok(length);
        }
        self.rest.clear();
        self.rest_at = 0;
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            match self.step(into, None)? {
                (Step::Decrypted, length @ 1..) => return Ok(length),
                (Step::Again | Step::Decrypted, _) => {}
                (Step::Closed, _) => return Ok(0),
                (Step::Blocked | Step::Ready, _) => {
                    if self.incoming.fill(&self.tcp)? == 0 {
                        return Ok(0);
                    }
                }
            }
        }
    }
}

impl Sink<'_> {
    fn put(&mut self, content: &[u8]) {
        let length = content.len().min(self.into.len() - self.filled);
        let (now, later) = content.split_at(length);
        self.into[self.filled..self.filled + length].copy_from_slice(now);
        self.filled += length;
        self.rest.extend_from_slice(later);
    }
}

impl Incoming {
    fn bytes(&mut self) -> &mut [u8] {
        &mut self.buffer[self.from..self.to]
    }

    fn used(&mut self, bytes: usize) {
        self.from += bytes;
    }

    /// Receives as many bytes as fit; 0 if the peer has closed.
    fn fill(&mut self, mut tcp: &TcpStream) -> io::Result<usize> {
        self.buffer.resize(BUFFER_BYTES, 0);
        // At most a part of one record is left over.
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.to == self.buffer.len() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a record is longer than TLS has them",
            ));
        }
        loop {
            match tcp.read(&mut self.buffer[self.to..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                Ok(bytes) => {
                    self.to += bytes;
                    return Ok(bytes);
                }
            }
        }
    }
}

impl Outgoing {
    fn room(&self) -> usize {
        BUFFER_BYTES - SPARE_BYTES - self.filled.min(BUFFER_BYTES - SPARE_BYTES)
    }

    fn free(&mut self) -> &mut [u8] {
        self.buffer.resize(BUFFER_BYTES, 0);
        &mut self.buffer[self.filled..]
    }

    fn add(&mut self, bytes: usize) -> Step {
        self.filled += bytes;
        Step::Again
    }

    fn send(&mut self, mut tcp: &TcpStream) -> io::Result<()> {
        tcp.write_all(&self.buffer[..self.filled])?;
        self.filled = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::thread::{JoinHandle, spawn};

    use super::*;
    use crate::access::Access;

    type GreetingResult = io::Result<SealedStream>;

    fn keys() -> DataKeys {
        DataKeys::of(&Access::create("test", "127.0.0.1:1"))
    }

    fn in_time() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// A server that greets one client.
    fn serve(keys: DataKeys, deadline: Instant) -> (SocketAddr, JoinHandle<GreetingResult>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (
            address,
            spawn(move || SealedStream::server(Arc::new(listener.accept()?.0), &keys, deadline)),
        )
    }

    fn dial(address: SocketAddr, keys: &DataKeys) -> GreetingResult {
        SealedStream::client(Arc::new(TcpStream::connect(address)?), keys, in_time())
    }

    #[test]
    fn content_of_any_size_crosses_both_ways() {
        let keys = keys();
        let (address, serving) = serve(keys.clone(), in_time());
        let mut client = dial(address, &keys).unwrap();
        let mut server = serving.join().unwrap().unwrap();
        let sizes =
            [0, 1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, BUFFER_BYTES, 3_000_000];
        let content = |size: usize| (0..size).map(|at| (at / 5) as u8).collect::<Vec<_>>();
        let echoing = spawn(move || {
            for size in sizes {
                let mut echo = vec![0; size];
                server.read_exact(&mut echo).unwrap();
                server.put(&echo).unwrap();
                server.send().unwrap();
            }
            server
        });
        for size in sizes {
            // In two parts that do not align with records.
            let (said, mut heard) = (content(size), vec![0; size]);
            let (first, second) = said.split_at(size / 3);
            client.put(first).unwrap();
            client.put(second).unwrap();
            client.send().unwrap();
            client.read_exact(&mut heard).unwrap();
            assert!(heard == said, "{size} bytes");
        }
        drop(client);
        assert_eq!(echoing.join().unwrap().read(&mut [0]).unwrap(), 0, "the stream has ended");
    }

    #[test]
    fn the_key_of_another_cluster_is_refused_and_a_silent_peer_times_out() {
        let (address, serving) = serve(keys(), in_time());
        assert!(dial(address, &keys()).is_err());
        assert!(serving.join().unwrap().is_err());
        let (address, serving) = serve(keys(), Instant::now() + Duration::from_millis(10));
        let _silent = TcpStream::connect(address).unwrap();
        let error = serving.join().unwrap().err().expect("the peer was silent");
        assert!(
            matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock),
            "{error}"
        );
    }
}
