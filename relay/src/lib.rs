//! A relay: passes on connections between nodes that cannot reach each other, such as those of a batch system and a
//! dispatcher outside of its network. It runs where both sides can reach it, on a login node.
//!
//! A process names its target when it connects ([`eyas_session::relay`]). The relay connects to processes of its
//! cluster only: to the dispatcher, and to the addresses that the dispatcher names. The processes at both ends prove
//! their keys to each other and encrypt what they send, so the relay needs no trust beyond that of a switch.

#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eyas_session::{Door, PROOF_DEADLINE, Proven, has_spoken, keep_alive, relay};
use thiserror::Error;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};

/// Largest number of connections that are passed on at the same time.
pub const MAX_CONNECTIONS: usize = 16_384;

/// A target has to accept a connection within this time.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// A process that has just joined is waited for, until the dispatcher names it.
const NAMED_DEADLINE: Duration = Duration::from_secs(5);

/// Pause after the system could not accept a connection, most likely because descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that are held of each direction of a connection.
const BUFFER_BYTES: usize = 128 << 10;

/// The processes that a relay connects to.
#[derive(Clone)]
pub struct Targets {
    /// `HOST:PORT` of the dispatcher, as in access files.
    dispatcher: Arc<str>,
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
    #[error("{MAX_CONNECTIONS} connections are passed on already")]
    Full,
    #[error("{target} cannot be reached from the relay: {source}")]
    Unreachable { target: String, source: io::Error },
}

impl Targets {
    /// The dispatcher at this address, and no executor yet.
    pub fn new(dispatcher: &str) -> (Targets, TargetsTeller) {
        let (tell_known, known) = watch::channel(Arc::default());
        let (tell_wanted, wanted) = watch::channel(0);
        let targets = Targets { dispatcher: dispatcher.into(), known, wanted: Arc::new(tell_wanted) };
        (targets, TargetsTeller { known: tell_known, wanted })
    }

    /// Whether the relay may connect to a target. Waits a while for an address that the dispatcher has not named.
    async fn has(&mut self, target: &str) -> bool {
        if *target == *self.dispatcher {
            return true;
        }
        let Ok(address) = target.parse::<SocketAddr>() else { return false };
        if self.known.borrow_and_update().contains(&address) {
            return true;
        }
        self.wanted.send_modify(|count| *count += 1);
        let named = self.known.wait_for(|known| known.contains(&address));
        timeout(NAMED_DEADLINE, named).await.is_ok_and(|named| named.is_ok())
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
            // The relay has ended.
            std::future::pending::<()>().await;
        }
    }
}

/// Passes on connections, until the future is dropped.
pub async fn serve(listener: TcpListener, targets: Targets) {
    let door = Door::new("the relay's port");
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let (mut stream, remote) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                door.cannot_accept(&error);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (close, closed) = oneshot::channel();
        let guest = door.enter(remote.ip(), move || {
            // This fails only if the request has been read.
            let _ = close.send(());
        });
        let (mut targets, permits) = (targets.clone(), permits.clone());
        tokio::spawn(async move {
            let request = async {
                has_spoken(&stream).await;
                guest.spoke();
                let target = timeout(PROOF_DEADLINE, relay::read_request(&mut stream)).await.ok()?.ok()?;
                // The targets have doors of their own, and see the address of the relay.
                let allowed = targets.has(&target).await;
                Some((target, allowed, guest.prove()))
            };
            let asked = tokio::select! {
                asked = request => asked,
                Ok(()) = closed => None,
            };
            let Some((target, is_allowed, proven)) = asked else { return };
            let connected = match (is_allowed, permits.try_acquire_owned()) {
                (false, _) => Err(Refusal::Unknown(target)),
                (true, Err(_)) => Err(Refusal::Full),
                (true, Ok(permit)) => connect(target).await.map(|to| (to, permit)),
            };
            match connected {
                Ok((to, _permit)) => pass_on(stream, to, proven).await,
                Err(refusal) => {
                    tracing::info!("refused a connection of {remote}: {refusal}");
                    // The process may be gone.
                    let _ = relay::answer(&mut stream, Some(&refusal.to_string())).await;
                }
            }
        });
    }
}

async fn connect(target: String) -> Result<TcpStream, Refusal> {
    match timeout(CONNECT_DEADLINE, TcpStream::connect(&target)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(Refusal::Unreachable { target, source }),
        Err(_) => Err(Refusal::Unreachable { target, source: io::ErrorKind::TimedOut.into() }),
    }
}

/// Passes on bytes in both directions, until both have ended or one has failed.
async fn pass_on(mut from: TcpStream, mut to: TcpStream, _counted: Proven) {
    let passed = async {
        for stream in [&from, &to] {
            stream.set_nodelay(true)?;
            keep_alive(stream)?;
        }
        relay::answer(&mut from, None).await?;
        copy_bidirectional_with_sizes(&mut from, &mut to, BUFFER_BYTES, BUFFER_BYTES).await
    };
    if let Err(error) = passed.await {
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

    async fn connected(relay: SocketAddr, target: SocketAddr) -> io::Result<std::net::TcpStream> {
        let connect = move || relay::connect_through(relay, &[], &target.to_string(), Duration::from_secs(10));
        tokio::task::spawn_blocking(connect).await.unwrap()
    }

    #[tokio::test]
    async fn bytes_pass_through_two_relays() {
        let ((first, address), (second, further)) = (listener().await, listener().await);
        let (target, target_address) = listener().await;
        // Only the second relay may connect to the target.
        let ((to_second, first_teller), (to_target, second_teller)) = (Targets::new("no:1"), Targets::new("no:1"));
        first_teller.tell([further]);
        second_teller.tell([target_address]);
        let relaying = [tokio::spawn(serve(first, to_second)), tokio::spawn(serve(second, to_target))];
        let connect = move || {
            let (target, deadline) = (target_address.to_string(), Duration::from_secs(10));
            relay::connect_through(address, &[further], &target, deadline)
        };
        let stream = tokio::task::spawn_blocking(connect).await.unwrap().unwrap();
        let (mut arrived, _) = target.accept().await.unwrap();
        arrived.write_all(b"x").await.unwrap();
        let read = move || {
            let mut byte = [0];
            io::Read::read_exact(&mut &stream, &mut byte).map(|()| byte)
        };
        assert_eq!(tokio::task::spawn_blocking(read).await.unwrap().unwrap(), *b"x");
        relaying.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test]
    async fn bytes_pass_to_known_targets_only() {
        let (relay, address) = listener().await;
        let ((target, target_address), (_, other)) = (listener().await, listener().await);
        let (targets, mut teller) = Targets::new("nowhere:1");
        let relaying = tokio::spawn(serve(relay, targets));
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
        assert!(refused.contains("is no dispatcher, executor or node of this cluster"), "{refused}");
        relaying.abort();
    }
}
