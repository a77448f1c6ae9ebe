//! Connections between processes of one user on one host. Beside its TCP port, a listener has a
//! Unix socket whose name is the address of the port. A process that dials an address of its own
//! host tries that socket first.
//!
//! Over the socket, both sides prove their keys by the same TLS handshake as over TCP, and greet
//! each other inside TLS. Frames that follow are not encrypted: they do not leave the kernel, and
//! the kernel says that the process at the other end belongs to the same user. A process of that
//! user could also read the memory of either side. Any other peer is refused, and uses TCP.
//!
//! Names are abstract: they are no files, each network namespace has its own, as it has its own
//! ports, and a name is free when its process has ended. Another user may take a name first; then
//! the listener has no local socket, and its peers see another user's process behind the name, and
//! use TCP.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use tokio::net::{UnixListener, UnixStream};

use crate::trusted::UNKNOWN_USER;

/// Length of the header of a TLS record; its last two bytes are the length of the rest.
const RECORD_HEADER_BYTES: usize = 5;
/// Bytes of one read during the handshake.
const READ_BYTES: usize = 4096;

/// The local socket of a listener at `address`. `None` if there can be none; peers then use TCP.
pub(crate) fn listen(address: SocketAddr) -> Option<UnixListener> {
    let listener = UnixListener::bind(name_of(address));
    listener.inspect_err(|e| tracing::debug!("no local socket beside {address}: {e}")).ok()
}

/// A connection to the local socket of a listener at `address`, if this host has one of this user.
pub(crate) async fn connect(address: SocketAddr) -> Option<UnixStream> {
    if !is_of_this_host(address) {
        return None;
    }
    for name in [address, SocketAddr::new(unspecified(address.ip()), address.port())] {
        if let Ok(stream) = UnixStream::connect(name_of(name)).await
            && is_of_this_user(&stream)
        {
            return Some(stream);
        }
    }
    None
}

/// Whether the process at the other end belongs to the user of this process, and sees the same file
/// systems. A process in a container that shares the network does not, even if its user has the
/// same number.
pub(crate) fn is_of_this_user(stream: &UnixStream) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    is_same_user(peer.uid(), geteuid().as_raw()) && peer.pid().is_some_and(sees_same_files)
}

/// Whether a process has the mount namespace of this process. The kernel answers only if this
/// process may inspect that one.
fn sees_same_files(process: i32) -> bool {
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    namespace(&process.to_string()).is_some_and(|theirs| Some(theirs) == namespace("self"))
}

/// The address of a process at the other end of a local socket: the same host, and no port.
pub(crate) fn far_end(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, 0)
}

/// Whether two processes belong to one user. Users that a container does not map all look the same.
fn is_same_user(peer: u32, own: u32) -> bool {
    peer == own && peer != UNKNOWN_USER
}

fn name_of(address: SocketAddr) -> String {
    format!("\0eyas-session/{}/{address}", geteuid().as_raw())
}

fn unspecified(ip: IpAddr) -> IpAddr {
    if ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Whether packets to `address` stay on this host: the host sends them from the same address.
/// Nothing is sent.
fn is_of_this_host(address: SocketAddr) -> bool {
    let source = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((unspecified(address.ip()), 0))?;
        socket.connect(address)?;
        Ok(socket.local_addr()?.ip())
    };
    source().is_ok_and(|source| source == address.ip())
}

/// A connection that TLS reads no further than the end of a record. So nothing that follows the
/// last record is lost when TLS ends.
pub(crate) struct RecordStream {
    stream: UnixStream,
    header: [u8; RECORD_HEADER_BYTES],
    /// Bytes of the header that have been read.
    header_bytes: usize,
    /// Bytes of the record, without its header, that have not been read.
    left: usize,
}

impl RecordStream {
    pub fn new(stream: UnixStream) -> Self {
        RecordStream { stream, header: [0; RECORD_HEADER_BYTES], header_bytes: 0, left: 0 }
    }

    /// The connection, after the end of a record.
    pub fn into_inner(self) -> UnixStream {
        self.stream
    }

    /// Bytes that may be read now: the rest of a header, or of a record.
    fn limit(&self) -> usize {
        if self.left > 0 { self.left } else { RECORD_HEADER_BYTES - self.header_bytes }
    }

    fn have_read(&mut self, bytes: &[u8]) {
        if self.left > 0 {
            self.left -= bytes.len();
            return;
        }
        self.header[self.header_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.header_bytes += bytes.len();
        if self.header_bytes == RECORD_HEADER_BYTES {
            self.left = u16::from_be_bytes([self.header[3], self.header[4]]).into();
            self.header_bytes = 0;
        }
    }
}

impl AsyncRead for RecordStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; READ_BYTES];
        let limit = self.limit().min(into.remaining()).min(READ_BYTES);
        let mut part = ReadBuf::new(&mut bytes[..limit]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        self.have_read(part.filled());
        into.put_slice(part.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RecordStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Both halves of a connection. Nothing waits for room in it, unless there is none.
///
/// A local socket tells each time when its peer has received a message that there is room for
/// another one. tokio's own halves wait for that too, so each message that a process sends would
/// wake the process once more, for nothing.
///
/// # Errors
/// If this process has run out of descriptors.
pub(crate) fn split(stream: UnixStream) -> io::Result<(pipe::Receiver, LocalWriter)> {
    let stream = stream.into_std()?;
    // tokio's type for what is only read: it reads any descriptor.
    let reader = pipe::Receiver::from_owned_fd_unchecked(stream.try_clone()?.into())?;
    Ok((reader, LocalWriter { stream, full: None }))
}

/// The sending half of a connection. When it is dropped, the peer receives the end.
pub(crate) struct LocalWriter {
    stream: StdUnixStream,
    /// While a message has no room: the same connection, which waits for room.
    full: Option<UnixStream>,
}

impl AsyncWrite for LocalWriter {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &mut self.full {
                return Pin::new(full).poll_write(cx, bytes);
            }
            match self.stream.write(bytes) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.full = Some(UnixStream::from_std(self.stream.try_clone()?)?);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The message was sent.
        self.full = None;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        // The peer may be gone already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_error::SessionError;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use crate::access::Access;
    use crate::connection::{Session, SessionAcceptor, dial};
    use crate::listener::Listener;
    use eyas_wire::Role;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    const DEADLINE: Duration = Duration::from_secs(10);

    async fn listener_at(address: &str) -> (TcpListener, Access) {
        let listener = TcpListener::bind(address).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, Access::create("test", &format!("127.0.0.1:{port}")))
    }

    /// A client's session with a listener, and the listener's session with it.
    async fn meet(listener: &Listener, access: &Access) -> (Session, Session) {
        let serve = async {
            loop {
                if let Ok((session, _)) = listener.next().await.await {
                    return session;
                }
            }
        };
        let met = async { tokio::join!(dial(access, Role::Client), serve) };
        let (dialled, served) = timeout(DEADLINE, met).await.expect("in time");
        (dialled.unwrap(), served)
    }

    #[tokio::test]
    async fn processes_of_one_user_meet_over_the_local_socket() {
        for address in ["127.0.0.1:0", "0.0.0.0:0"] {
            let (tcp, access) = listener_at(address).await;
            let listener =
                Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
            let (mut client, mut server) = meet(&listener, &access).await;
            assert!(client.is_local && server.is_local, "{address}");
            assert_eq!(
                (client.remote.to_string(), client.local.port()),
                (access.dispatcher.clone(), 0)
            );
            assert_eq!(server.remote.ip(), client.local.ip());
            let sent: Vec<u64> = (0..200_000).collect();
            let mut received = Vec::new();
            let receive = async {
                while received.len() < sent.len() {
                    received.extend(server.reader.next::<u64>().await.unwrap());
                }
            };
            let send = async { client.writer.send(&sent).await.unwrap() };
            tokio::join!(receive, send);
            assert_eq!(received, sent);
            server.writer.send(&["an answer"]).await.unwrap();
            drop(server);
            assert_eq!(client.reader.next::<String>().await.unwrap(), ["an answer"]);
            let ended = client.reader.next::<String>().await.unwrap_err();
            assert!(matches!(ended, SessionError::Ended { .. }), "{ended}");
        }
    }

    /// No name service asks for a part of a name that has over 63 letters.
    #[tokio::test]
    async fn processes_meet_if_the_name_of_their_host_is_unknown() {
        let (tcp, access) = listener_at("0.0.0.0:0").await;
        let port = tcp.local_addr().unwrap().port();
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let at = |port| access.clone().moved_to("test", &format!("{}:{port}", "x".repeat(64)));
        let (client, _) = meet(&listener, &at(port)).await;
        assert!(client.is_local);
        let nobody = dial(&at(1), Role::Client).await.err().expect("no listener is there");
        assert!(matches!(nobody, SessionError::Unreachable { .. }), "{nobody}");
    }

    #[tokio::test]
    async fn frames_that_follow_the_greeting_at_once_are_not_lost() {
        let (tcp, access) = listener_at("127.0.0.1:0").await;
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let greeting = listener.next();
        let client = tokio::spawn(async move {
            let mut session = dial(&access, Role::Client).await.unwrap();
            session.writer.send(&["at once"]).await.unwrap();
            session
        });
        let (mut server, _) = greeting.await.await.unwrap();
        assert_eq!(server.reader.next::<String>().await.unwrap(), ["at once"]);
        client.await.unwrap();
    }

    #[tokio::test]
    async fn the_key_of_another_cluster_is_refused() {
        let (tcp, access) = listener_at("127.0.0.1:0").await;
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let other = Access::create("theirs", &access.dispatcher);
        let serve = async { listener.next().await.await };
        let (served, dialled) = tokio::join!(serve, dial(&other, Role::Client));
        assert!(matches!(served, Err(SessionError::NotTrusted { .. })));
        assert!(matches!(dialled, Err(SessionError::NotTrusted { .. })));
    }

    /// Where there is no local socket, or it does not lead to the listener, TCP does.
    #[tokio::test]
    async fn otherwise_peers_meet_over_tcp() {
        let (tcp, access) = listener_at("127.0.0.1:0").await;
        let address = tcp.local_addr().unwrap();
        // A process that has taken the name closes every connection, as a listener does with
        // another user's.
        let taken = listen(address).expect("the name is free");
        let closing = tokio::spawn(async move {
            loop {
                drop(taken.accept().await.unwrap());
            }
        });
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let (client, server) = meet(&listener, &access).await;
        assert!(!client.is_local && !server.is_local, "the name was taken");
        closing.abort();
        assert!(closing.await.unwrap_err().is_cancelled());
        let (client, server) = meet(&listener, &access).await;
        assert!(!client.is_local && !server.is_local, "there is no local socket");
    }

    #[test]
    fn another_user_and_a_user_that_is_not_mapped_are_refused() {
        for (peer, own, may) in
            [(1000, 1000, true), (0, 0, true), (1000, 1001, false), (0, 1000, false)]
        {
            assert_eq!(is_same_user(peer, own), may, "{peer} {own}");
        }
        assert!(!is_same_user(UNKNOWN_USER, UNKNOWN_USER));
    }

    #[test]
    fn only_addresses_of_this_host_are_local() {
        for (address, is_local) in
            [("127.0.0.1:7", true), ("192.0.2.1:7", false), ("[2001:db8::1]:7", false)]
        {
            assert_eq!(is_of_this_host(address.parse().unwrap()), is_local, "{address}");
        }
    }

    /// The events for which this process waits at a descriptor.
    fn awaited(descriptor: i32) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().flatten() {
            // Other tests close descriptors meanwhile.
            let Ok(info) = std::fs::read_to_string(entry.path()) else { continue };
            for line in info.lines() {
                let words: Vec<_> = line.split_whitespace().collect();
                if let ["tfd:", of, "events:", events, ..] = words[..]
                    && of == descriptor.to_string()
                {
                    found.push(u32::from_str_radix(events, 16).unwrap());
                }
            }
        }
        found
    }

    #[tokio::test]
    async fn nothing_waits_for_room_unless_there_is_none() {
        const READABLE: u32 = 1;
        const WRITABLE: u32 = 4;
        let (one, other) = UnixStream::pair().unwrap();
        let ((mut reader, writer), (_other_reader, mut other_writer)) =
            (split(one).unwrap(), split(other).unwrap());
        let descriptor = reader.as_raw_fd();
        let events = awaited(descriptor);
        assert!(events.iter().any(|events| events & READABLE != 0), "{events:x?}");
        assert!(events.iter().all(|events| events & WRITABLE == 0), "{events:x?}");
        let sent: Vec<u8> = (0..1 << 22).map(|n: u32| (n % 251) as u8).collect();
        let expected = sent.clone();
        let sending = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut other_writer, &sent).await.unwrap();
            assert!(other_writer.full.is_some(), "it had to wait for room");
            tokio::io::AsyncWriteExt::flush(&mut other_writer).await.unwrap();
            assert!(other_writer.full.is_none());
        });
        let mut received = vec![0; expected.len()];
        timeout(DEADLINE, reader.read_exact(&mut received)).await.unwrap().unwrap();
        sending.await.unwrap();
        assert!(received == expected);
        let end = timeout(DEADLINE, reader.read(&mut received)).await.unwrap();
        assert_eq!(end.unwrap(), 0, "the writer was dropped");
        drop(writer);
    }

    #[tokio::test]
    async fn tls_reads_no_further_than_a_record() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let mut records = RecordStream::new(one);
        let record = [&[22, 3, 3, 1, 0][..], &[7; 256]].concat();
        tokio::io::AsyncWriteExt::write_all(
            &mut other,
            &[&record[..], &record[..], b"clear"].concat(),
        )
        .await
        .unwrap();
        let mut bytes = [0; 1000];
        let mut received = Vec::new();
        for expected in [5, 256, 5, 256] {
            let read = records.read(&mut bytes).await.unwrap();
            assert_eq!(read, expected);
            received.extend_from_slice(&bytes[..read]);
        }
        assert_eq!(received, [&record[..], &record[..]].concat());
        let mut rest = [0; 5];
        records.into_inner().read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"clear");
    }
}
