//! Sessions: a connection, proofs of both keys by TLS, one greeting in each direction, then frames
//! in both directions.
//!
//! Over TCP, frames are inside TLS. Over a [local socket](crate::local_socket), TLS ends with the
//! greetings.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use eyas_types::access::Principal;
use eyas_wire::frame::{MAX_FRAME_BYTES, MAX_HELLO_BYTES};
use eyas_wire::{DataMode, Hello, Role};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::access::Access;
use crate::credentials::{Credentials, SERVER_NAME, TrustWatch};
use crate::frames::{FrameReader, FrameWriter, read_hello, write_hello};
use crate::local_socket::{self, RecordStream};
use crate::proxy::dial_through;
use crate::session_error::{SessionError, ended, not_trusted, unreachable};

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
    pub trust: TrustWatch,
    /// The newest minor version of the protocol that both sides have. Messages of later ones must
    /// not be sent.
    pub minor: u16,
    /// How the peer exchanges bulk data.
    pub data: DataMode,
    /// Whether the peer is a process of the same user on this host, connected by a local socket.
    pub is_local: bool,
}

/// Accepts peers that have a key of the cluster. Has no deadline; [`Listener`](crate::Listener) has
/// one.
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
        let remote = stream
            .peer_addr()
            .map_or_else(|_| "a closed connection".into(), |address| address.to_string());
        let greeted = self.greet(stream, &remote).await?;
        let role = greeted.hello.role;
        Ok((greeted.over_tcp()?, role))
    }

    /// The same for a peer that has connected by the local socket of the listener at `address`.
    pub(crate) async fn accept_local(
        &self,
        stream: UnixStream,
        address: SocketAddr,
    ) -> Result<(Session, Role), SessionError> {
        let remote = local_socket::far_end(address);
        let greeted = self.greet(RecordStream::new(stream), &remote.to_string()).await?;
        let role = greeted.hello.role;
        Ok((greeted.over_local_socket(address, remote)?, role))
    }

    async fn greet<S>(&self, stream: S, remote: &str) -> Result<GreetedConnection<S>, SessionError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let tls = TlsAcceptor::from(self.credentials.server().clone());
        let stream = tls.accept(stream).await.map_err(|e| not_trusted(remote, &e))?;
        let mut stream = TlsStream::Server(stream);
        let trust = trust_of(&stream, &self.credentials, remote)?;
        let is_dispatcher = self.role == Role::Dispatcher;
        let told = is_dispatcher.then(|| self.credentials.trust().for_principal(trust.holder()));
        let own = Hello::new(self.role, self.data, told);
        write_hello(&mut stream, &own, remote).await?;
        let hello = read_hello(&mut stream, MAX_HELLO_BYTES, remote).await?;
        agree(&own, &hello, remote)?;
        Ok(GreetedConnection { stream, trust, hello })
    }
}

/// Connects to the dispatcher that `access` names, or to [a node](Access::of_node).
///
/// # Errors
/// If the peer cannot be reached, belongs to another cluster, or speaks another version.
pub async fn dial(access: &Access, role: Role) -> Result<Session, SessionError> {
    let late = || {
        unreachable(
            &access.dispatcher,
            io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"),
        )
    };
    timeout(DIAL_DEADLINE, connect(access, role)).await.map_err(|_| late())?
}

/// Connects through the proxy if there is one, by a local socket if there is one, otherwise by TCP.
async fn connect(access: &Access, role: Role) -> Result<Session, SessionError> {
    let address = &access.dispatcher;
    if let Some(proxy) = access.proxy() {
        let stream =
            dial_through(proxy.inside, address).await.map_err(|e| unreachable(address, e))?;
        return greet(access, role, stream).await?.over_tcp();
    }
    let found = match tokio::net::lookup_host(address).await {
        Ok(found) => found.collect::<Vec<_>>(),
        // No name service knows the host. If it is this one, its processes still meet.
        Err(error) => {
            return connect_here(access, role).await.ok_or_else(|| unreachable(address, error));
        }
    };
    for remote in &found {
        let Some(stream) = local_socket::connect(*remote).await else { continue };
        match greet(access, role, RecordStream::new(stream)).await {
            Ok(greeted) => {
                return greeted.over_local_socket(local_socket::far_end(*remote), *remote);
            }
            // The listener does not accept this process there, or is about to end.
            Err(SessionError::Unreachable { .. } | SessionError::Ended { .. }) => {}
            Err(refused) => return Err(refused),
        }
    }
    let stream = TcpStream::connect(&found[..]).await.map_err(|e| unreachable(address, e))?;
    greet(access, role, stream).await?.over_tcp()
}

/// Connects by the local socket of a dispatcher on this host that listens on all of its addresses.
async fn connect_here(access: &Access, role: Role) -> Option<Session> {
    let port = access.dispatcher.rsplit_once(':')?.1.parse().ok()?;
    let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = local_socket::connect(remote).await?;
    let greeted = greet(access, role, RecordStream::new(stream)).await.ok()?;
    greeted.over_local_socket(local_socket::far_end(remote), remote).ok()
}

/// Greets the peer over a new connection.
async fn greet<S>(
    access: &Access,
    role: Role,
    stream: S,
) -> Result<GreetedConnection<S>, SessionError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (address, credentials) = (&access.dispatcher, access.credentials());
    let config =
        if access.is_of_node() { credentials.to_node() } else { credentials.to_dispatcher() };
    let name = ServerName::try_from(SERVER_NAME).expect("a valid name");
    let stream = TlsConnector::from(config.clone()).connect(name, stream).await;
    // A broken connection does not mean missing trust: the dispatcher may be stopping or starting.
    let broken = |e: io::Error| {
        if is_refusal(&e) { not_trusted(address, &e) } else { unreachable(address, e) }
    };
    let mut stream = TlsStream::Client(stream.map_err(broken)?);
    let trust = trust_of(&stream, credentials, address)?;
    // The peer sends first. If it does not accept the key, it closes the connection; data that it
    // has not read by then would make the system drop its alert.
    let hello = read_hello(&mut stream, MAX_FRAME_BYTES, address).await;
    let mut hello = hello.map_err(|e| refused(e, credentials.holder()))?;
    if let Some(told) = hello.trust.take().filter(|_| trust.holder() == Principal::Dispatcher) {
        credentials.learn(told);
    }
    let own = Hello::new(role, access.data(), None);
    write_hello(&mut stream, &own, address).await?;
    agree(&own, &hello, address)?;
    Ok(GreetedConnection { stream, trust, hello })
}

/// A connection whose peer has proven its key and has greeted.
struct GreetedConnection<S> {
    stream: TlsStream<S>,
    trust: TrustWatch,
    hello: Hello,
}

impl GreetedConnection<TcpStream> {
    /// The session: frames are inside TLS.
    fn over_tcp(self) -> Result<Session, SessionError> {
        let GreetedConnection { stream, trust, hello } = self;
        let minor = hello.minor();
        let tcp = stream.get_ref().0;
        let addresses = tcp.peer_addr().and_then(|remote| Ok((tcp.local_addr()?, remote)));
        let (local, remote) = addresses.map_err(|e| ended("a new connection", &e.to_string()))?;
        // Messages are batched in frames already.
        tcp.set_nodelay(true).map_err(|e| ended(&remote.to_string(), &e.to_string()))?;
        keep_alive(tcp).map_err(|e| ended(&remote.to_string(), &e.to_string()))?;
        let (reader, writer) = tokio::io::split(stream);
        let address = remote.to_string();
        let (reader, writer) =
            (FrameReader::new(reader, &address), FrameWriter::new(writer, &address));
        Ok(Session {
            reader,
            writer,
            local,
            remote,
            trust,
            minor,
            data: hello.data,
            is_local: false,
        })
    }
}

impl GreetedConnection<RecordStream> {
    /// The session: TLS has done its work, and frames follow as they are.
    fn over_local_socket(
        self,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Session, SessionError> {
        let GreetedConnection { stream, trust, hello } = self;
        let minor = hello.minor();
        let stream = match stream {
            TlsStream::Client(stream) => stream.into_inner().0,
            TlsStream::Server(stream) => stream.into_inner().0,
        };
        let address = remote.to_string();
        let (reader, writer) = local_socket::split(stream.into_inner())
            .map_err(|e| ended(&address, &e.to_string()))?;
        // One system call receives the length of a frame and, most often, all of it.
        let reader = FrameReader::new(BufReader::new(reader), &address);
        let writer = FrameWriter::new(writer, &address);
        let (data, is_local) = (hello.data, true);
        Ok(Session { reader, writer, local, remote, trust, minor, data, is_local })
    }
}

/// Watches the peer that has proven its key.
fn trust_of<S>(
    stream: &TlsStream<S>,
    credentials: &Credentials,
    address: &str,
) -> Result<TrustWatch, SessionError> {
    let peer = Credentials::peer(stream.get_ref().1.peer_certificates()).map_err(|e| {
        let (address, why) = (address.to_owned(), e.to_string());
        SessionError::NotTrusted { address, alert: None, why }
    })?;
    Ok(credentials.watch_trust(peer))
}

/// Ends the session if both sides exchange bulk data in different ways. Both have received the
/// other's greeting.
fn agree(own: &Hello, theirs: &Hello, address: &str) -> Result<(), SessionError> {
    if own.agrees_with(theirs) {
        return Ok(());
    }
    Err(SessionError::OtherDataMode { address: address.to_owned(), ours: own.data })
}

/// Makes the system detect that the peer's host is gone, even if this side only receives.
///
/// # Errors
/// If the connection has ended.
pub fn keep_alive(stream: &TcpStream) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS)
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

/// Whether TLS has failed, and not the connection below it.
fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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
            let (mut session, role) =
                acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
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
            let (mut session, _) =
                acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
            session.reader.next::<String>().await.unwrap()
        };
        let send = async {
            let mut session = dial(&access, Role::Client).await.unwrap();
            let sent = session.writer.send(&["x".repeat(MAX_FRAME_BYTES)]).await;
            let Err(SessionError::TooLarge { bytes, .. }) = sent else { panic!("{sent:?}") };
            assert!(bytes > MAX_FRAME_BYTES, "{bytes}");
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
        let acceptor =
            SessionAcceptor::new(&access.clone().with_data(DataMode::Plain), Role::Dispatcher);
        let accept = async || acceptor.accept(listener.accept().await.unwrap().0).await;
        let (served, dialled) = tokio::join!(accept(), dial(&access, Role::Executor));
        for (error, ours) in
            [(served.err(), "was started with"), (dialled.err(), "this process encrypts")]
        {
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
        let error =
            dial(&Access::create("test", &address), Role::Client).await.err().expect("no listener");
        assert!(matches!(error, SessionError::Unreachable { .. }), "{error}");
    }
}
