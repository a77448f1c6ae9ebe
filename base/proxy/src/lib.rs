//! A proxy: passes on connections between nodes that cannot reach each other, such as those of a
//! batch system and a dispatcher outside of its network. It runs where both sides can reach it, on
//! a login node.
//!
//! A process names its target when it connects ([`eyas_session::proxy`]). The proxy connects to
//! processes of its cluster only: to the dispatcher, and to the addresses that the dispatcher
//! names, but not to itself. The processes at both ends prove their keys to each other and encrypt
//! what they send, so the proxy needs no trust beyond that of a switch. It sees no proof itself:
//! the target closes a connection without one within [`PROOF_DEADLINE`], so that a connection which
//! is older than that has a key. Until then it is a guest at the proxy.

#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use eyas_session::{Admission, Guest, PROOF_DEADLINE, Proxy, has_spoken, keep_alive, proxy};
use thiserror::Error;
use tokio::io::{AsyncWriteExt, BufReader, copy_buf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};

/// Largest number of connections that are passed on at the same time.
pub const MAX_CONNECTIONS: usize = 16_384;

/// Largest number of proven connections from one address, or from one /64 network of IPv6. It may
/// be another proxy.
const MAX_PER_ADDRESS: usize = 4096;

/// Largest number of connections that have not proven a key.
const MAX_UNPROVEN: usize = 2048;

/// Largest number of connections from one address, or from one /64 network of IPv6, that have not
/// proven a key.
const MAX_UNPROVEN_PER_ADDRESS: usize = 256;

/// A connection that is passed on for this time has proven a key, or its target would have closed
/// it.
const PROVEN_AFTER: Duration = PROOF_DEADLINE.saturating_add(Duration::from_secs(1));

/// A process has to close its end of a connection this time after the far end was closed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// A target has to accept a connection within this time.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// A process that has just joined is waited for, until the dispatcher names it.
const NAMED_DEADLINE: Duration = Duration::from_secs(5);

/// Pause after the system could not accept a connection, most likely because descriptors have run
/// out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that are held of each direction of a connection.
const BUFFER_BYTES: usize = 128 << 10;

/// The processes that a proxy connects to.
#[derive(Clone)]
pub struct Targets {
    /// `HOST:PORT` of the dispatcher, as in access files.
    dispatcher: Arc<str>,
    /// Addresses of the proxy itself.
    own: [SocketAddr; 2],
    known: watch::Receiver<Arc<HashSet<SocketAddr>>>,
    wanted: Arc<watch::Sender<u64>>,
}

/// The other end of [`Targets`]: where the addresses that the dispatcher names are told.
pub struct TargetsTeller {
    known: watch::Sender<Arc<HashSet<SocketAddr>>>,
    wanted: watch::Receiver<u64>,
}

/// Why a connection is not passed on.
#[derive(Debug, Error)]
enum Refusal {
    #[error("{0} is no dispatcher, executor or node of this cluster")]
    Unknown(String),
    #[error("{0} is this proxy: name the process behind it")]
    Itself(String),
    #[error("{0} connections are passed on already")]
    Full(usize),
    #[error("{target} cannot be reached from the proxy: {source}")]
    Unreachable { target: String, source: io::Error },
}

impl Targets {
    /// The dispatcher at this address, and no executor yet, for the proxy with these addresses.
    pub fn new(dispatcher: &str, own: Proxy) -> (Targets, TargetsTeller) {
        let (tell_known, known) = watch::channel(Arc::default());
        let (tell_wanted, wanted) = watch::channel(0);
        let (dispatcher, own, wanted_by) =
            (dispatcher.into(), [own.inside, own.outside], Arc::new(tell_wanted));
        (
            Targets { dispatcher, own, known, wanted: wanted_by },
            TargetsTeller { known: tell_known, wanted },
        )
    }

    /// Refuses a target to which the proxy may not connect. Waits a while for an address that the
    /// dispatcher has not named.
    async fn check(&mut self, target: &str) -> Result<(), Refusal> {
        if *target == *self.dispatcher {
            return Ok(());
        }
        let unknown = || Refusal::Unknown(target.to_owned());
        let address = target.parse::<SocketAddr>().map_err(|_| unknown())?;
        if self.own.contains(&address) {
            return Err(Refusal::Itself(target.to_owned()));
        }
        if self.known.borrow_and_update().contains(&address) {
            return Ok(());
        }
        self.wanted.send_modify(|count| *count += 1);
        let named = self.known.wait_for(|known| known.contains(&address));
        let is_named = timeout(NAMED_DEADLINE, named).await.is_ok_and(|named| named.is_ok());
        if is_named { Ok(()) } else { Err(unknown()) }
    }
}

impl TargetsTeller {
    /// Replaces the addresses.
    pub fn tell(&self, addresses: impl IntoIterator<Item = SocketAddr>) {
        self.known.send_replace(Arc::new(addresses.into_iter().collect()));
    }

    /// Returns when a process has asked for an address that is not known.
    pub async fn wanted(&mut self) {
        if self.wanted.changed().await.is_err() {
            // The proxy has ended.
            std::future::pending::<()>().await;
        }
    }
}

/// Bounds of a proxy.
struct Bounds {
    connections: usize,
    unproven: usize,
    unproven_per_address: usize,
    close_deadline: Duration,
}

/// Passes on connections, until the future is dropped.
pub async fn serve(listener: TcpListener, targets: Targets) {
    let bounds = Bounds {
        connections: MAX_CONNECTIONS,
        unproven: MAX_UNPROVEN,
        unproven_per_address: MAX_UNPROVEN_PER_ADDRESS,
        close_deadline: CLOSE_DEADLINE,
    };
    serve_within(listener, targets, bounds).await;
}

async fn serve_within(listener: TcpListener, targets: Targets, bounds: Bounds) {
    let admission =
        Admission::with_bounds("the proxy's port", bounds.unproven, bounds.unproven_per_address);
    let permits = Arc::new(Semaphore::new(bounds.connections));
    let own_port = listener.local_addr().map_or(0, |own| own.port());
    loop {
        let (stream, remote) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                admission.cannot_accept(&error);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (close, closed) = oneshot::channel();
        let guest = admission.enter(remote.ip(), move || {
            // This fails only if the connection has proven a key.
            let _ = close.send(());
        });
        let visit = Visit { stream, remote, guest, own_port, targets: targets.clone() };
        let visit = visit.serve(permits.clone(), bounds.connections, bounds.close_deadline);
        tokio::spawn(async move {
            tokio::select! {
                () = visit => {}
                Ok(()) = closed => {}
            }
        });
    }
}

/// A connection to the proxy.
struct Visit {
    stream: TcpStream,
    remote: SocketAddr,
    guest: Guest,
    own_port: u16,
    targets: Targets,
}

impl Visit {
    async fn serve(
        mut self,
        permits: Arc<Semaphore>,
        max_connections: usize,
        close_deadline: Duration,
    ) {
        has_spoken(&self.stream).await;
        self.guest.spoke();
        let request = timeout(PROOF_DEADLINE, proxy::read_request(&mut self.stream)).await;
        let Ok(Ok(target)) = request else { return };
        let connected = async {
            self.targets.check(&target).await?;
            let permit = permits.try_acquire_owned().map_err(|_| Refusal::Full(max_connections))?;
            Ok::<_, Refusal>((connect(target, self.own_port).await?, permit))
        };
        match connected.await {
            Ok((to, _permit)) => pass_on(self.stream, to, self.guest, close_deadline).await,
            Err(refusal) => {
                tracing::info!("refused a connection of {}: {refusal}", self.remote);
                // The process may be gone.
                let _ = proxy::answer(&mut self.stream, Some(&refusal.to_string())).await;
            }
        }
    }
}

async fn connect(target: String, own_port: u16) -> Result<TcpStream, Refusal> {
    let stream = match timeout(CONNECT_DEADLINE, TcpStream::connect(&target)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(source)) => return Err(Refusal::Unreachable { target, source }),
        Err(_) => {
            return Err(Refusal::Unreachable { target, source: io::ErrorKind::TimedOut.into() });
        }
    };
    // An address of this host that no option has named.
    let ends = stream.peer_addr().and_then(|peer| Ok((peer, stream.local_addr()?.ip())));
    match ends {
        Ok((peer, local)) if peer.port() == own_port && is_of_host(peer.ip(), local) => {
            Err(Refusal::Itself(target))
        }
        _ => Ok(stream),
    }
}

/// Whether a connection from `local` to `peer` stays on this host.
fn is_of_host(peer: IpAddr, local: IpAddr) -> bool {
    peer == local || peer.to_canonical().is_loopback()
}

/// Passes on bytes in both directions, until both have ended, the far end was closed, or one
/// direction has failed. The process at the near end may close its direction first, and receive the
/// rest.
async fn pass_on(mut from: TcpStream, mut to: TcpStream, guest: Guest, close_deadline: Duration) {
    let passed = async {
        for stream in [&from, &to] {
            stream.set_nodelay(true)?;
            keep_alive(stream)?;
        }
        proxy::answer(&mut from, None).await?;
        let ((from, mut near), (to, mut far)) = (from.split(), to.split());
        let (mut from, mut to) = (
            BufReader::with_capacity(BUFFER_BYTES, from),
            BufReader::with_capacity(BUFFER_BYTES, to),
        );
        let mut there = pin!(async {
            copy_buf(&mut from, &mut far).await?;
            far.shutdown().await
        });
        let back = async {
            copy_buf(&mut to, &mut near).await?;
            near.shutdown().await
        };
        tokio::select! {
            back = back => {
                back?;
                // All bytes are sent to the near end. Closing now would lose bytes that the near
                // end has not read.
                timeout(close_deadline, there).await.unwrap_or(Ok(()))
            }
            Err(error) = &mut there => Err(error),
        }
    };
    let mut passed = pin!(passed);
    let ended = tokio::select! {
        ended = &mut passed => ended,
        () = sleep(PROVEN_AFTER) => match guest.prove_up_to(MAX_PER_ADDRESS) {
            Some(_proven) => passed.await,
            None => {
                Err(io::Error::other(format!(
                    "{MAX_PER_ADDRESS} connections of its address are passed on already"
                )))
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection has ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// The addresses of a proxy that no target has.
    const ELSEWHERE: Proxy = {
        let nowhere = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 1);
        Proxy { inside: nowhere, outside: nowhere }
    };

    async fn connected(proxy: SocketAddr, target: SocketAddr) -> io::Result<std::net::TcpStream> {
        let connect = move || {
            proxy::connect_through(proxy, &[], &target.to_string(), Duration::from_secs(10))
        };
        tokio::task::spawn_blocking(connect).await.unwrap()
    }

    #[tokio::test]
    async fn bytes_pass_through_two_proxies() {
        let ((first, address), (second, further)) = (listener().await, listener().await);
        let (target, target_address) = listener().await;
        // Only the second proxy may connect to the target.
        let ((to_second, first_teller), (to_target, second_teller)) =
            (Targets::new("no:1", ELSEWHERE), Targets::new("no:1", ELSEWHERE));
        first_teller.tell([further]);
        second_teller.tell([target_address]);
        let proxying =
            [tokio::spawn(serve(first, to_second)), tokio::spawn(serve(second, to_target))];
        let connect = move || {
            let (target, deadline) = (target_address.to_string(), Duration::from_secs(10));
            proxy::connect_through(address, &[further], &target, deadline)
        };
        let stream = tokio::task::spawn_blocking(connect).await.unwrap().unwrap();
        let (mut arrived, _) = target.accept().await.unwrap();
        arrived.write_all(b"x").await.unwrap();
        let read = move || {
            let mut byte = [0];
            io::Read::read_exact(&mut &stream, &mut byte).map(|()| byte)
        };
        assert_eq!(tokio::task::spawn_blocking(read).await.unwrap().unwrap(), *b"x");
        proxying.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn bytes_pass_to_known_targets_only() {
        let (proxy, address) = listener().await;
        let ((target, target_address), (_, other)) = (listener().await, listener().await);
        let (targets, mut teller) = Targets::new("nowhere:1", ELSEWHERE);
        let proxying = tokio::spawn(serve(proxy, targets));
        // The target is named when it is asked for.
        let naming = tokio::spawn(async move {
            teller.wanted().await;
            teller.tell([target_address]);
            teller
        });
        let stream = connected(address, target_address).await.unwrap();
        let _teller = naming.await.unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut near = TcpStream::from_std(stream).unwrap();
        let (mut far, _) = target.accept().await.unwrap();
        near.write_all(b"there").await.unwrap();
        near.shutdown().await.unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "there");
        far.write_all(b"back").await.unwrap();
        drop(far);
        heard.clear();
        near.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "back");
        let refused = connected(address, other).await.unwrap_err().to_string();
        assert!(
            refused.contains("is no dispatcher, executor or node of this cluster"),
            "{refused}"
        );
        proxying.abort();
    }

    #[tokio::test]
    async fn a_proxy_does_not_connect_to_itself() {
        // It listens on all addresses of this host, and others know it by one more.
        let proxy = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = proxy.local_addr().unwrap().port();
        let [here, also_here] = [1, 2].map(|last| SocketAddr::from(([127, 0, 0, last], port)));
        let (targets, teller) = Targets::new("nowhere:1", ELSEWHERE);
        teller.tell([here, also_here, ELSEWHERE.outside]);
        let proxying = tokio::spawn(serve(proxy, targets));
        for itself in [here, also_here, ELSEWHERE.outside] {
            let refused = connected(here, itself).await.unwrap_err().to_string();
            assert!(refused.contains("is this proxy"), "{refused}");
        }
        proxying.abort();
    }

    /// Two unproven connections from one address, one passed on at a time.
    const NARROW: Bounds = Bounds {
        connections: 1,
        unproven: 8,
        unproven_per_address: 2,
        close_deadline: Duration::ZERO,
    };
    const DEADLINE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn a_connection_ends_when_its_far_end_is_closed() {
        let ((proxy, address), (target, target_address)) = (listener().await, listener().await);
        let (targets, _teller) = Targets::new(&target_address.to_string(), ELSEWHERE);
        let proxying = tokio::spawn(serve_within(proxy, targets, NARROW));
        let _near = connected(address, target_address).await.unwrap();
        let full = connected(address, target_address).await.unwrap_err().to_string();
        assert!(full.contains("1 connections are passed on already"), "{full}");
        drop(target.accept().await.unwrap());
        // The near end is open and silent.
        let next = async {
            while connected(address, target_address).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        timeout(DEADLINE, next).await.expect("the proxy still keeps a connection that has ended");
        proxying.abort();
    }

    #[tokio::test]
    async fn a_named_target_is_no_proof() {
        let ((proxy, address), (target, target_address)) = (listener().await, listener().await);
        let (targets, _teller) = Targets::new(&target_address.to_string(), ELSEWHERE);
        let proxying =
            tokio::spawn(serve_within(proxy, targets, Bounds { connections: 8, ..NARROW }));
        let mut passed = Vec::new();
        for _ in 0..3 {
            let near = connected(address, target_address).await.unwrap();
            passed.push((near, target.accept().await.unwrap().0));
        }
        // The oldest of three was closed for the last one, at both ends.
        let (near, mut far) = passed.swap_remove(0);
        timeout(DEADLINE, far.read_u8()).await.expect("it is passed on still").unwrap_err();
        near.set_read_timeout(Some(DEADLINE)).unwrap();
        assert_eq!(io::Read::read(&mut &near, &mut [0]).unwrap_or(0), 0);
        proxying.abort();
    }
}
