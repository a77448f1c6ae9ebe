//! A listener for sessions. Any process may connect; peers that prove a key of the cluster are
//! accepted.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use eyas_wire::Role;
use rustix::net::RecvFlags;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::admission::{Admission, Guest, PROOF_DEADLINE};
use crate::connection::{Session, SessionAcceptor};
use crate::local_socket::{self, is_of_this_user};
use crate::session_error::{SessionError, ended};

/// Pause after the system could not accept a connection, most likely because descriptors have run
/// out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener with its [`Admission`]. Peers of the same user on this host may also come by its
/// local socket.
pub struct Listener {
    tcp: TcpListener,
    local: Option<LocalListener>,
    acceptor: SessionAcceptor,
    admission: Admission,
}

struct LocalListener {
    socket: UnixListener,
    /// Address of the TCP port.
    address: SocketAddr,
}

/// A new connection.
enum NewConnection {
    Tcp(TcpStream, SocketAddr),
    Local(UnixStream, SocketAddr),
}

impl Listener {
    /// A listener for peers that `acceptor` accepts; `name` is its name in the log.
    pub fn new(tcp: TcpListener, acceptor: SessionAcceptor, name: &'static str) -> Self {
        let local = tcp.local_addr().ok().and_then(|address| {
            let socket = local_socket::listen(address)?;
            Some(LocalListener { socket, address })
        });
        Listener { tcp, local, acceptor, admission: Admission::new(name) }
    }

    /// Waits for a connection, and returns the future of its greeting, for the caller to run beside
    /// others. Cancel safe.
    pub async fn next(
        &self,
    ) -> impl Future<Output = Result<(Session, Role), SessionError>> + Send + use<> {
        let arrived = self.accept().await;
        let remote = arrived.remote();
        let (close, closed) = oneshot::channel();
        let guest = self.admission.enter(remote.ip(), move || {
            // This fails only if the greeting has ended.
            let _ = close.send(());
        });
        let acceptor = self.acceptor.clone();
        async move {
            tokio::select! {
                greeted = timeout(PROOF_DEADLINE, greet(arrived, acceptor, guest)) => {
                    greeted.unwrap_or_else(|_| {
                        Err(ended(&remote.to_string(), "it did not prove its key in time"))
                    })
                }
                Ok(()) = closed => {
                    Err(ended(
                        &remote.to_string(),
                        "it had not proven a key when newer connections arrived",
                    ))
                }
            }
        }
    }

    async fn accept(&self) -> NewConnection {
        loop {
            let accepted = tokio::select! {
                accepted = self.tcp.accept() => {
                    accepted.map(|(stream, remote)| Some(NewConnection::Tcp(stream, remote)))
                }
                accepted = accept_local(self.local.as_ref()) => accepted,
            };
            match accepted {
                Ok(Some(arrived)) => return arrived,
                Ok(None) => {}
                Err(error) => {
                    self.admission.cannot_accept(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Waits for a connection by the local socket. `None` if it is of another user, who has to use TCP.
async fn accept_local(listener: Option<&LocalListener>) -> io::Result<Option<NewConnection>> {
    let Some(LocalListener { socket, address }) = listener else {
        return std::future::pending().await;
    };
    let (stream, _) = socket.accept().await?;
    Ok(is_of_this_user(&stream).then_some(NewConnection::Local(stream, *address)))
}

impl NewConnection {
    fn remote(&self) -> SocketAddr {
        match self {
            NewConnection::Tcp(_, remote) => *remote,
            NewConnection::Local(_, address) => local_socket::far_end(*address),
        }
    }

    async fn has_spoken(&self) {
        match self {
            NewConnection::Tcp(stream, _) => has_spoken(stream).await,
            // An error shows again when the stream is read.
            NewConnection::Local(stream, _) => {
                drop(stream.async_io(Interest::READABLE, || peek(stream)).await)
            }
        }
    }
}

/// Waits until a peer has sent a byte, or has closed the connection. Takes nothing from the stream.
/// (A stream may be reported as readable without a byte.)
pub async fn has_spoken(stream: &TcpStream) {
    // An error shows again when the stream is read.
    let _ = stream.async_io(Interest::READABLE, || peek(stream)).await;
}

/// Looks at the first byte, without taking it.
fn peek(socket: impl AsFd) -> io::Result<()> {
    rustix::net::recv(socket, &mut [0_u8], RecvFlags::PEEK)?;
    Ok(())
}

async fn greet(
    arrived: NewConnection,
    acceptor: SessionAcceptor,
    guest: Guest,
) -> Result<(Session, Role), SessionError> {
    arrived.has_spoken().await;
    guest.spoke();
    let accepted = match arrived {
        NewConnection::Tcp(stream, _) => acceptor.accept(stream).await,
        NewConnection::Local(stream, address) => acceptor.accept_local(stream, address).await,
    };
    if let Err(error @ SessionError::OtherDataMode { .. }) = &accepted {
        tracing::warn!("{error}");
    }
    let (mut session, role) = accepted?;
    session.reader.keep(guest.prove());
    Ok((session, role))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::admission::MAX_UNPROVEN_PER_ADDRESS;
    use crate::connection::dial;
    use std::io::Write;
    use tokio::io::AsyncReadExt;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn silent_connections_do_not_keep_a_peer_out() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let access = Access::create("test", &address.to_string());
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let mut silent = Vec::new();
        let (mut greetings, mut sessions) = (JoinSet::new(), JoinSet::new());
        for _ in 0..=MAX_UNPROVEN_PER_ADDRESS {
            silent.push(TcpStream::connect(address).await.unwrap());
            greetings.spawn(listener.next().await);
        }
        let why =
            greetings.join_next().await.unwrap().unwrap().err().expect("the first is displaced");
        assert!(why.to_string().contains("newer connections arrived"), "{why}");
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "it is closed");
        sessions.spawn(async move { listener.next().await.await.map(|(_, role)| role) });
        dial(&access, Role::Client).await.unwrap();
        assert_eq!(sessions.join_next().await.unwrap().unwrap().unwrap(), Role::Client);
    }

    #[tokio::test]
    async fn silent_connections_have_not_spoken() {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let access = Access::create("test", &address.to_string());
        let listener = Listener::new(tcp, SessionAcceptor::new(&access, Role::Dispatcher), "test");
        let (mut silent, mut greetings) = (Vec::new(), JoinSet::new());
        for _ in 0..8 {
            silent.push(std::net::TcpStream::connect(address).unwrap());
            let arrived = listener.accept().await;
            greetings.spawn(async move { arrived.has_spoken().await });
        }
        sleep(Duration::from_millis(50)).await;
        assert!(greetings.try_join_next().is_none());
        silent[0].write_all(b"x").unwrap();
        greetings.join_next().await.unwrap().unwrap();
    }
}
