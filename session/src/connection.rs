//! Sessions: TCP, TLS, one greeting in each direction, then frames in both directions.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use eyas_types::access::Principal;
use eyas_wire::frame::{self, Frame, HEADER_BYTES, MAX_FRAME_BYTES, MAX_HELLO_BYTES};
use eyas_wire::{DataMode, Hello, Role};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::access::Access;
use crate::credentials::{Credentials, SERVER_NAME, TrustWatch};
use crate::door::Proven;

/// A peer has to answer a new connection within this time.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);

/// TCP keepalive: idle time before the first probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
/// TCP keepalive: time between two probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// TCP keepalive: number of unanswered probes after which the connection ends.
const KEEPALIVE_PROBES: u32 = 3;
/// The connection ends if the peer does not acknowledge data for this long.
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// Why there is no connection, or no longer.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No process listens there, or the network does not reach it.
    #[error("cannot reach {address}: {source}")]
    Unreachable {
        /// The address.
        address: String,
        /// The reason.
        source: io::Error,
    },
    /// The peer belongs to another cluster, or is not eyas.
    #[error(
        "{address} was reached but refused this access file ({why}): use the access file of the cluster that runs there"
    )]
    NotTrusted {
        /// The address.
        address: String,
        /// The TLS alert of the peer, if it sent one.
        alert: Option<AlertDescription>,
        /// The TLS error.
        why: String,
    },
    /// The peer no longer accepts this key.
    #[error("{address} was reached but no longer accepts {holder}: {why}")]
    Dead {
        /// The address.
        address: String,
        /// The principal of the key.
        holder: Principal,
        /// The reason, and what the user can do.
        why: &'static str,
    },
    /// The peer sent something that is not a valid message.
    #[error("{address}: {why}")]
    Protocol {
        /// The peer.
        address: String,
        /// The mistake.
        why: String,
    },
    /// A message is too large.
    #[error("a message of {bytes} bytes for {address} is too large: at most {MAX_FRAME_BYTES} bytes are possible")]
    TooLarge {
        /// The peer.
        address: String,
        /// Size of the message.
        bytes: usize,
    },
    /// The peer exchanges bulk data in another way.
    #[error("{address} {}", other(*.ours))]
    OtherDataMode {
        /// The peer.
        address: String,
        /// How this side exchanges bulk data.
        ours: DataMode,
    },
    /// The connection has ended.
    #[error("the connection to {address} has ended: {why}")]
    Ended {
        /// The peer.
        address: String,
        /// The reason.
        why: String,
    },
}

/// Both halves of a connection.
pub struct Session {
    /// The receiving half.
    pub reader: FrameReader,
    /// The sending half.
    pub writer: FrameWriter,
    /// The address of this side.
    pub local: SocketAddr,
    /// The address of the peer.
    pub remote: SocketAddr,
    /// The peer, and whether it is still trusted.
    pub standing: TrustWatch,
    /// How the peer exchanges bulk data.
    pub data: DataMode,
}

/// The receiving half.
pub struct FrameReader {
    stream: ReadHalf<TlsStream<TcpStream>>,
    address: String,
    body: Vec<u8>,
    /// Counts the connection at the listener's door while it is read; only where it was accepted.
    proven: Option<Proven>,
}

/// The sending half.
pub struct FrameWriter {
    stream: WriteHalf<TlsStream<TcpStream>>,
    address: String,
}

/// Accepts peers that have a key of the cluster. Has no deadline; [`Listener`](crate::Listener) has one.
#[derive(Clone)]
pub struct SessionAcceptor {
    credentials: Credentials,
    role: Role,
    data: DataMode,
}

impl SessionAcceptor {
    /// An acceptor for the cluster of `access`, in a process with this `role`.
    pub fn new(access: &Access, role: Role) -> Self {
        SessionAcceptor { credentials: access.credentials().clone(), role, data: access.data() }
    }

    /// Greets a peer that has connected. Returns the session and the peer's role.
    ///
    /// # Errors
    /// If the peer has no accepted key, or speaks another protocol or version.
    pub async fn accept(&self, stream: TcpStream) -> Result<(Session, Role), SessionError> {
        let remote = address_of(stream.peer_addr());
        let tls = TlsAcceptor::from(self.credentials.server().clone());
        let stream = tls.accept(stream).await.map_err(|e| not_trusted(&remote, &e))?;
        let mut session = Session::over(TlsStream::Server(stream), &self.credentials)?;
        let is_dispatcher = self.role == Role::Dispatcher;
        let trust = is_dispatcher.then(|| self.credentials.trust().for_principal(session.standing.holder()));
        let own = Hello::new(self.role, self.data, trust);
        session.writer.send(std::slice::from_ref(&own)).await?;
        let hello = session.reader.hello(MAX_HELLO_BYTES).await?;
        session.agree(&own, &hello)?;
        Ok((session, hello.role))
    }
}

/// Connects to the dispatcher that `access` names, or to [a node](Access::of_node).
///
/// # Errors
/// If the peer cannot be reached, belongs to another cluster, or speaks another version.
pub async fn dial(access: &Access, role: Role) -> Result<Session, SessionError> {
    let address = access.dispatcher.clone();
    let unreachable = |source| SessionError::Unreachable { address: address.clone(), source };
    let greet = async {
        let credentials = access.credentials();
        let config = if access.is_of_node() { credentials.to_node() } else { credentials.to_dispatcher() };
        let stream = TcpStream::connect(&address).await.map_err(unreachable)?;
        let name = ServerName::try_from(SERVER_NAME).expect("a valid name");
        let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
        // A broken connection does not mean missing trust: the dispatcher may be stopping or starting.
        let broken = |e: io::Error| if is_refusal(&e) { not_trusted(&address, &e) } else { unreachable(e) };
        let mut session = Session::over(TlsStream::Client(stream.map_err(broken)?), credentials)?;
        // The peer sends first. If it does not accept the key, it closes the connection; data that it has not read by
        // then would make the system drop its alert.
        let mut hello = session.reader.hello(MAX_FRAME_BYTES).await.map_err(|e| refused(e, credentials.holder()))?;
        if let Some(trust) = hello.trust.take().filter(|_| session.standing.holder() == Principal::Dispatcher) {
            credentials.learn(trust);
        }
        let own = Hello::new(role, access.data(), None);
        session.writer.send(std::slice::from_ref(&own)).await?;
        session.agree(&own, &hello)?;
        Ok(session)
    };
    let late = || unreachable(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"));
    timeout(DIAL_DEADLINE, greet).await.map_err(|_| late())?
}

/// Makes the system detect that the peer's host is gone, even if this side only receives.
fn keep_alive(stream: &TcpStream) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS)
}

impl Session {
    fn over(stream: TlsStream<TcpStream>, credentials: &Credentials) -> Result<Self, SessionError> {
        let (tcp, tls) = stream.get_ref();
        let addresses = tcp.peer_addr().and_then(|remote| Ok((tcp.local_addr()?, remote)));
        let (local, remote) = addresses.map_err(|e| ended("a new connection", &e.to_string()))?;
        // Messages are batched in frames already.
        tcp.set_nodelay(true).map_err(|e| ended(&remote.to_string(), &e.to_string()))?;
        keep_alive(tcp).map_err(|e| ended(&remote.to_string(), &e.to_string()))?;
        let peer = Credentials::peer(tls.peer_certificates()).map_err(|e| {
            let (address, why) = (remote.to_string(), e.to_string());
            SessionError::NotTrusted { address, alert: None, why }
        })?;
        let (reader, writer) = tokio::io::split(stream);
        let address = remote.to_string();
        Ok(Session {
            reader: FrameReader { stream: reader, address: address.clone(), body: Vec::new(), proven: None },
            writer: FrameWriter { stream: writer, address },
            local,
            remote,
            standing: credentials.watch_trust(peer),
            data: DataMode::default(),
        })
    }

    /// Ends the session if both sides exchange bulk data in different ways. Both have received the other's greeting.
    fn agree(&mut self, own: &Hello, theirs: &Hello) -> Result<(), SessionError> {
        self.data = theirs.data;
        if !own.agrees_with(theirs) {
            return Err(SessionError::OtherDataMode { address: self.remote.to_string(), ours: own.data });
        }
        Ok(())
    }
}

impl FrameReader {
    /// Counts the connection as proven until it is dropped.
    pub(crate) fn keep(&mut self, proven: Proven) {
        self.proven = Some(proven);
    }

    /// The messages of the next frame.
    ///
    /// # Errors
    /// If the connection has ended, or the frame cannot be decoded.
    pub async fn next<M: DeserializeOwned>(&mut self) -> Result<Vec<M>, SessionError> {
        self.next_within(MAX_FRAME_BYTES).await
    }

    async fn hello(&mut self, limit: usize) -> Result<Hello, SessionError> {
        let mut hello = self.next_within::<Hello>(limit).await?;
        let (Some(hello), true) = (hello.pop(), hello.is_empty()) else {
            return Err(protocol(&self.address, "its greeting is not one message"));
        };
        hello.check().map_err(|error| protocol(&self.address, &error.to_string()))?;
        Ok(hello)
    }

    async fn next_within<M: DeserializeOwned>(&mut self, limit: usize) -> Result<Vec<M>, SessionError> {
        let mut header = [0; HEADER_BYTES];
        self.read(&mut header).await?;
        let length = frame::length(header, limit).map_err(|error| protocol(&self.address, &error.to_string()))?;
        let mut body = std::mem::take(&mut self.body);
        body.resize(length, 0);
        self.read(&mut body).await?;
        let messages = frame::decode(&body).map_err(|error| protocol(&self.address, &error.to_string()));
        self.body = body;
        messages
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), SessionError> {
        match self.stream.read_exact(bytes).await {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(ended(&self.address, "it was closed")),
            Err(e) if alert_in(&e).is_some() => Err(not_trusted(&self.address, &e)),
            Err(e) => Err(ended(&self.address, &e.to_string())),
        }
    }
}

impl FrameWriter {
    /// Sends messages in as few frames as possible.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn send<M: Serialize>(&mut self, messages: &[M]) -> Result<(), SessionError> {
        let mut frame = Frame::default();
        for message in messages {
            frame.push(message);
            if frame.is_full() {
                self.send_frame(&mut frame).await?;
            }
        }
        self.send_frame(&mut frame).await
    }

    /// Sends a frame, unless it is empty.
    ///
    /// # Errors
    /// If the connection has ended, or the frame is larger than the peer accepts; then nothing of it is sent.
    pub async fn send_frame(&mut self, frame: &mut Frame) -> Result<(), SessionError> {
        if frame.is_empty() {
            return Ok(());
        }
        let bytes = frame.take();
        if bytes.len() - HEADER_BYTES > MAX_FRAME_BYTES {
            let bytes = bytes.len() - HEADER_BYTES;
            return Err(SessionError::TooLarge { address: self.address.clone(), bytes });
        }
        let sent = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        sent.await.map_err(|e| ended(&self.address, &e.to_string()))
    }

    /// Ends the connection in good order.
    pub async fn close(&mut self) {
        // The peer may be gone already.
        let _ = self.stream.shutdown().await;
    }
}

/// Explains the peer's alert to the owner of the refused key.
fn refused(error: SessionError, holder: Principal) -> SessionError {
    let SessionError::NotTrusted { address, alert: Some(alert), why } = error else { return error };
    let why = match (alert, holder) {
        (AlertDescription::CertificateRevoked, _) => {
            "it was revoked (`eyas access revoke`). Ask the cluster's owner for another access file"
        }
        (AlertDescription::CertificateExpired, Principal::Job(_)) => "the job has ended",
        (AlertDescription::CertificateExpired, _) => {
            "it was replaced (`eyas access rotate`). Copy the cluster's new access file"
        }
        (alert, _) => return SessionError::NotTrusted { address, alert: Some(alert), why },
    };
    SessionError::Dead { address, holder, why }
}

/// Describes a peer that exchanges bulk data in another way than this process.
fn other(ours: DataMode) -> &'static str {
    match ours {
        DataMode::Encrypted => {
            "sends data unencrypted (--plain-data), and this process encrypts it. That is one decision for the whole \
             cluster: start the dispatcher and all executors with --plain-data, or none of them"
        }
        DataMode::Plain => {
            "encrypts data, and this process was started with --plain-data. That is one decision for the whole \
             cluster: start the dispatcher and all executors with --plain-data, or none of them"
        }
    }
}

fn address_of(address: io::Result<SocketAddr>) -> String {
    address.map_or_else(|_| "a closed connection".into(), |address| address.to_string())
}

/// Whether TLS has failed, and not the connection below it.
fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

/// The alert with which the peer has closed the connection.
fn alert_in(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
}

fn not_trusted(address: &str, why: &io::Error) -> SessionError {
    SessionError::NotTrusted { address: address.to_owned(), alert: alert_in(why), why: why.to_string() }
}

fn protocol(address: &str, why: &str) -> SessionError {
    SessionError::Protocol { address: address.to_owned(), why: why.to_owned() }
}

pub(crate) fn ended(address: &str, why: &str) -> SessionError {
    SessionError::Ended { address: address.to_owned(), why: why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    async fn listener() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    #[tokio::test]
    async fn messages_cross_and_arrive_in_order() {
        let (listener, address) = listener().await;
        let access = Access::create("test", &address);
        let acceptor = SessionAcceptor::new(&access, Role::Dispatcher);
        let serve = async {
            let (mut session, role) = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            let mut received = Vec::new();
            while received.len() < 100_000 {
                received.extend(session.reader.next::<u64>().await.unwrap());
            }
            (role, received)
        };
        let send = async {
            let mut session = dial(&access, Role::Executor).await.unwrap();
            session.writer.send(&(0..100_000u64).collect::<Vec<_>>()).await.unwrap();
            session
        };
        let ((role, received), _session) = tokio::join!(serve, send);
        assert_eq!(role, Role::Executor);
        assert!(received.into_iter().eq(0..100_000));
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_is_not_sent() {
        let (listener, address) = listener().await;
        let access = Access::create("test", &address);
        let acceptor = SessionAcceptor::new(&access, Role::Dispatcher);
        let serve = async {
            let (mut session, _) = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            session.reader.next::<String>().await.unwrap()
        };
        let send = async {
            let mut session = dial(&access, Role::Client).await.unwrap();
            let sent = session.writer.send(&["x".repeat(MAX_FRAME_BYTES)]).await;
            assert!(matches!(sent, Err(SessionError::TooLarge { bytes, .. }) if bytes > MAX_FRAME_BYTES), "{sent:?}");
            session.writer.send(&["small"]).await.unwrap();
            session
        };
        let (received, _session) = tokio::join!(serve, send);
        assert_eq!(received, ["small"]);
    }

    #[tokio::test]
    async fn the_key_of_another_cluster_is_refused() {
        let (listener, address) = listener().await;
        let acceptor = SessionAcceptor::new(&Access::create("ours", &address), Role::Dispatcher);
        let serve = async { acceptor.accept(listener.accept().await.unwrap().0).await };
        let other = Access::create("theirs", &address);
        let (served, dialled) = tokio::join!(serve, dial(&other, Role::Client));
        assert!(matches!(served, Err(SessionError::NotTrusted { .. })));
        let error = dialled.err().expect("refused").to_string();
        assert!(error.contains("access file"), "{error}");
    }

    #[tokio::test]
    async fn both_sides_report_different_data_modes() {
        let (listener, address) = listener().await;
        let access = Access::create("test", &address);
        let acceptor = SessionAcceptor::new(&access.clone().with_data(DataMode::Plain), Role::Dispatcher);
        let accept = async || acceptor.accept(listener.accept().await.unwrap().0).await;
        let (served, dialled) = tokio::join!(accept(), dial(&access, Role::Executor));
        for (error, ours) in [(served.err(), "was started with"), (dialled.err(), "this process encrypts")] {
            let error = error.expect("they part").to_string();
            assert!(error.contains(ours) && error.contains("one decision"), "{error}");
        }
        let (served, dialled) = tokio::join!(accept(), dial(&access, Role::Client));
        assert_eq!((dialled.unwrap().data, served.unwrap().1), (DataMode::Plain, Role::Client));
    }

    #[tokio::test]
    async fn garbage_on_the_port_is_dropped() {
        let (listener, address) = listener().await;
        let acceptor = SessionAcceptor::new(&Access::create("ours", &address), Role::Dispatcher);
        let serve = async { acceptor.accept(listener.accept().await.unwrap().0).await };
        let garbage = async {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            answer
        };
        let (served, answer) = tokio::join!(serve, garbage);
        assert!(served.is_err());
        assert!(!answer.windows(4).any(|w| w == b"eyas"));
    }

    #[tokio::test]
    async fn a_connection_that_breaks_in_its_greeting_may_be_tried_again() {
        let (listener, address) = listener().await;
        let serve = async { drop(listener.accept().await.unwrap()) };
        let access = Access::create("test", &address);
        let ((), dialled) = tokio::join!(serve, dial(&access, Role::Executor));
        let error = dialled.err().expect("it was closed");
        assert!(matches!(error, SessionError::Unreachable { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_port_without_a_listener_is_reported() {
        let (listener, address) = listener().await;
        drop(listener);
        let error = dial(&Access::create("test", &address), Role::Client).await.err().expect("no listener");
        assert!(matches!(error, SessionError::Unreachable { .. }), "{error}");
    }
}
