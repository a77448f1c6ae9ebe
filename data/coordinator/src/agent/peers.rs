//! Agents of one user on several nodes, which pass parts of files on to each other, so that each
//! part crosses the storage once.
//!
//! An agent takes a part from the agent that the coordinator names. That one has the part in
//! memory, or is about to read it or to take it from another one, and says so until then. A part
//! comes with the version of its file.
//!
//! Only agents of one user talk to each other. They prove it with a key that lies in the user's own
//! folder, which the nodes share.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use eyas_board::{VersionOf, wait};
use eyas_session::{Access, AccessError, Listener, Session, SessionAcceptor, SessionError, dial};
use eyas_wire::Role;
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::parts::{GivenPart, OpenPart, PartAnswer, PartWanted, TakenPart};
use super::program_file::ProgramFile;

/// Interval at which an agent says that it will send a part.
const STEP: Duration = Duration::from_millis(100);
/// An agent that says nothing for this time is taken to be gone.
const SILENCE: Duration = Duration::from_millis(500);
/// Longest wait for a part.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Longest wait for a part that this agent is taking itself. Then the agent that wants it asks the
/// reader of the part, which waits for the storage only.
const MAX_TAKING: Duration = Duration::from_secs(2);
/// Connections to one agent.
const CONNECTIONS: usize = 3;
/// Other agents whose connections are kept.
const MAX_PEERS: usize = 64;
/// Connections of other agents.
const MAX_GUESTS: usize = 1024;
/// Parts that are read for other agents at a time.
const MAX_READING: usize = 32;
/// An agent that could not be reached is not tried again for this time.
const UNREACHABLE: Duration = Duration::from_secs(10);

/// What another agent wants, and where the answer goes.
pub(crate) type PartQuestion<F> = (PartWanted, oneshot::Sender<Option<OpenPart<F>>>);

/// The other agents of the user.
#[derive(Clone)]
pub(super) struct AgentPeers(Arc<AgentPeersInner>);

struct AgentPeersInner {
    access: Access,
    port: u16,
    runtime: runtime::Handle,
    peers: Mutex<HashMap<SocketAddr, Arc<PeerAgent>>>,
}

impl AgentPeers {
    /// Listens for other agents with the key in this folder, which is made if it is missing. `ask`
    /// is told what they want; it returns false when this agent has ended.
    ///
    /// # Errors
    /// If the key cannot be used, or no port or thread is left.
    pub fn start(
        folder: &Path,
        ask: impl Fn(PartQuestion<File>) -> bool + Send + Sync + 'static,
    ) -> io::Result<AgentPeers> {
        let access = shared_key(&folder.join("agents.toml")).map_err(io::Error::other)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let any = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        let listener = std::net::TcpListener::bind(&any.map(|ip| SocketAddr::new(ip, 0))[..])?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let peers = AgentPeers(Arc::new(AgentPeersInner {
            access: access.clone(),
            port,
            runtime: runtime.handle().clone(),
            peers: Mutex::default(),
        }));
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let acceptor = SessionAcceptor::new(&access, Role::Agent);
            serve(Listener::new(listener, acceptor, "the agent's port"), Arc::new(ask)).await;
            io::Result::Ok(())
        };
        let run = move || {
            if let Err(error) = runtime.block_on(serve) {
                tracing::warn!("cannot listen for other agents: {error}");
            }
        };
        thread::Builder::new().name("peers".to_owned()).spawn(run)?;
        Ok(peers)
    }

    /// The port for other agents.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// What the agents of one user have in common, and no others.
    pub fn group(&self) -> [u8; 32] {
        self.0.access.fingerprint()
    }

    /// Takes a part from the agent at this address, in the background.
    pub fn take(
        &self,
        from: SocketAddr,
        wanted: PartWanted,
        file: Arc<File>,
        done: impl FnOnce(Result<TakenPart, NoPart>) + Send + 'static,
    ) {
        let (peer, asked) = (self.0.peer(from), Instant::now());
        let access = self.0.access.clone().moved_to("agents", &from.to_string());
        self.0.runtime.spawn(async move {
            let taking = async {
                let part = peer.take(access, wanted, asked).await?;
                let taken = spawn_blocking(move || part.taken(&*file)).await;
                taken.unwrap_or_else(eyas_panics::resume).ok_or(NoPart::Refused)
            };
            let part = timeout(MAX_WAIT, taking).await.unwrap_or(Err(NoPart::Silent));
            if let Err(why) = &part {
                tracing::info!("no part of a file came from the agent at {from}: {why}");
            }
            done(part);
        });
    }
}

impl AgentPeersInner {
    fn peer(&self, address: SocketAddr) -> Arc<PeerAgent> {
        let mut peers = lock(&self.peers);
        // Agents come and go with their programs.
        if peers.len() >= MAX_PEERS {
            peers.retain(|_, peer| Arc::strong_count(peer) > 1);
        }
        peers.entry(address).or_insert_with(|| Arc::new(PeerAgent::new())).clone()
    }
}

/// Why no part came from another agent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPart {
    /// The connection is not made yet. Later parts may come.
    #[error("the connection is still being made")]
    NotConnected,
    /// The other agent says nothing.
    #[error("it said nothing for {} ms", SILENCE.as_millis())]
    Silent,
    /// The file is changing.
    #[error("its file is changing")]
    Refused,
    /// The other agent does not have it, or this one has closed the file.
    #[error("it does not have it")]
    Missing,
    /// The connection could not be made, or was lost.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Another agent.
struct PeerAgent {
    /// One for each connection that is allowed.
    permits: Semaphore,
    /// Connections that are not in use.
    idle: Mutex<Vec<Session>>,
    /// When the agent last failed to answer.
    failed: Mutex<Option<Instant>>,
    /// Held while a connection is being made: one is made after the other.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Since when a connection has been under way.
    dialling: Mutex<Option<Instant>>,
    /// When the agent could not be reached.
    unreachable: Mutex<Option<Instant>>,
}

impl PeerAgent {
    fn new() -> Self {
        PeerAgent {
            permits: Semaphore::new(CONNECTIONS),
            idle: Mutex::default(),
            failed: Mutex::default(),
            turn: Arc::default(),
            dialling: Mutex::default(),
            unreachable: Mutex::default(),
        }
    }

    async fn take(
        self: Arc<Self>,
        access: Access,
        wanted: PartWanted,
        asked: Instant,
    ) -> Result<GivenPart, NoPart> {
        let _permit = self.permits.acquire().await.expect("it is never closed");
        // What waited behind a part that did not come does not wait as long again.
        if lock(&self.failed).is_some_and(|failed| failed > asked) {
            return Err(NoPart::Silent);
        }
        let idle = lock(&self.idle).pop();
        let mut session = match idle {
            Some(session) => session,
            None => self.clone().connect(access).await?,
        };
        let part = ask_for(&mut session, wanted).await;
        match &part {
            Ok(_) | Err(NoPart::Refused | NoPart::Missing) => lock(&self.idle).push(session),
            Err(_) => *lock(&self.failed) = Some(Instant::now()),
        }
        part
    }

    /// A connection: one that is not in use, or a new one. If making it takes long, it serves a
    /// later part.
    async fn connect(self: Arc<Self>, access: Access) -> Result<Session, NoPart> {
        if lock(&self.dialling).is_some_and(|since| since.elapsed() > SILENCE) {
            return Err(NoPart::NotConnected);
        }
        timeout(SILENCE, self.dial(access)).await.unwrap_or(Err(NoPart::NotConnected))
    }

    async fn dial(self: Arc<Self>, access: Access) -> Result<Session, NoPart> {
        let turn = self.turn.clone().lock_owned().await;
        if let Some(session) = lock(&self.idle).pop() {
            return Ok(session);
        }
        if lock(&self.unreachable).is_some_and(|since| since.elapsed() < UNREACHABLE) {
            return Err(NoPart::Silent);
        }
        *lock(&self.dialling) = Some(Instant::now());
        let (sender, connected) = oneshot::channel();
        tokio::spawn(async move {
            let dialled = dial(&access, Role::Agent).await;
            *lock(&self.dialling) = None;
            *lock(&self.unreachable) = dialled.is_err().then(Instant::now);
            if let Err(Ok(session)) = sender.send(dialled) {
                lock(&self.idle).push(session);
            }
            drop(turn);
        });
        Ok(connected.await.map_err(|_| NoPart::NotConnected)??)
    }
}

async fn ask_for(session: &mut Session, wanted: PartWanted) -> Result<GivenPart, NoPart> {
    session.writer.send(&[wanted]).await?;
    loop {
        let said = timeout(SILENCE, session.reader.next::<PartAnswer>()).await;
        match said.map_err(|_| NoPart::Silent)??.pop() {
            None | Some(PartAnswer::Wait) => {}
            Some(PartAnswer::Part(part)) => return Ok(part),
            Some(PartAnswer::Refused) => return Err(NoPart::Refused),
            Some(PartAnswer::Closed) => return Err(NoPart::Missing),
        }
    }
}

fn lock<A>(mutex: &Mutex<A>) -> MutexGuard<'_, A> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of the user's agents. Of several agents that make it at the same time, one wins.
fn shared_key(path: &Path) -> Result<Access, AccessError> {
    match Access::load(path) {
        Err(AccessError::Missing { .. }) => {
            let own = path.with_extension(format!("{}.toml", std::process::id()));
            Access::create("agents", "").save(&own)?;
            // It fails if another agent was first, whose key then counts.
            let _ = fs::hard_link(&own, path);
            let _ = fs::remove_file(&own);
            Access::load(path)
        }
        loaded => loaded,
    }
}

/// Serves other agents until the future is dropped.
async fn serve(
    listener: Listener,
    ask: Arc<impl Fn(PartQuestion<File>) -> bool + Send + Sync + 'static>,
) {
    let guests = Arc::new(Semaphore::new(MAX_GUESTS));
    let reading = Arc::new(Semaphore::new(MAX_READING));
    loop {
        let guest = guests.clone().acquire_owned().await.expect("it is never closed");
        let greeting = listener.next().await;
        let (ask, reading) = (ask.clone(), reading.clone());
        tokio::spawn(async move {
            let _guest = guest;
            let ended = match greeting.await {
                Ok((session, Role::Agent)) => answer(session, &*ask, &reading).await,
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = ended {
                tracing::debug!("{error}");
            }
        });
    }
}

/// Answers another agent until it disconnects.
async fn answer(
    session: Session,
    ask: &(impl Fn(PartQuestion<File>) -> bool + Send + Sync),
    permits: &Semaphore,
) -> Result<(), SessionError> {
    let Session { mut reader, mut writer, .. } = session;
    loop {
        for wanted in reader.next::<PartWanted>().await? {
            let (sender, open) = oneshot::channel();
            if !ask((wanted, sender)) {
                return Ok(());
            }
            let answer = match open.await {
                Ok(Some(part)) => {
                    let part = Arc::new(part);
                    let mut reading = std::pin::pin!(async {
                        let coming = part.clone();
                        // If it fails, the part is not there.
                        let _ = spawn_blocking(move || wait_for(&coming)).await;
                        // Those that wait do not keep others from what is there.
                        let _permit = permits.acquire().await.expect("it is never closed");
                        spawn_blocking(move || part.answer(SystemTime::now())).await
                    });
                    loop {
                        match timeout(STEP, &mut reading).await {
                            Ok(answer) => break answer.unwrap_or(PartAnswer::Closed),
                            Err(_) => writer.send(&[PartAnswer::Wait]).await?,
                        }
                    }
                }
                _ => PartAnswer::Closed,
            };
            writer.send(&[answer]).await?;
        }
    }
}

/// Waits until the agent has a part in memory, or no longer expects it.
fn wait_for(part: &OpenPart<File>) {
    let Some(version) = part.file.version(VersionOf::Kernel) else { return };
    let limit = if part.is_taken { MAX_TAKING } else { MAX_WAIT };
    let deadline = Instant::now() + limit;
    loop {
        let progress = part.entry.progress.load(Ordering::Acquire);
        if !part.is_coming(&version) || Instant::now() > deadline {
            return;
        }
        wait(&part.entry.progress, progress, STEP);
    }
}
