//! An executor's life: joins the dispatcher, works, and comes back after losing it.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use eyas_dfs::{NodeError, Site};
use eyas_node::Node;
use eyas_session::private::PrivateError;
use eyas_session::{Access, Certified, DataKeys, OUTBOX_MESSAGES, Session, SessionError, dial, outbox};
use eyas_store::{ObjectStore, Storage, StorageError, StoreError};
use eyas_transfer::{Fetcher, PeerLimits, PeerServer, Peers};
use eyas_types::ObjectId;
use eyas_wire::Role;
use eyas_wire::executor::{FromExecutor, Registration, ToExecutor};
use eyas_wire::trust::SecretText;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::brain::{Desk, tick_every};
use crate::cgroup::Cgroup;
use crate::claim::{claim, claim_inner};
use crate::config::Config;
use crate::files::Files;
use crate::guardian::Guardian;
use crate::incarnation::Incarnation;
use crate::lease::{Lease, Moment};
use crate::stop::Stop;
use crate::strays::Strays;
use crate::tokens::Tokens;
use crate::turns::Turns;
use crate::work::Workshop;
use crate::{leftovers, sandbox};

/// First and longest wait between two tries to reach the dispatcher.
const REDIAL: Duration = Duration::from_millis(100);
const REDIAL_MOST: Duration = Duration::from_secs(5);
/// What runs must have ended so long after it was killed; see the grace of a killed process.
const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// An executor that holds objects and is told to stop leaves by then at the latest, whether others have them or not.
const RETIRE_DEADLINE: Duration = Duration::from_secs(60);

/// The dispatcher must have welcomed this executor by then; after a restart it may have much to read first.
const WELCOME_DEADLINE: Duration = Duration::from_secs(60);
/// Objects of a store that are named in the registration itself, which has to fit in a frame; others follow.
// Few where it is tested, so that tests meet it.
const MAX_HELD_AT_ONCE: usize = if cfg!(debug_assertions) { 4 } else { 1 << 20 };

/// Why an executor has ended, or could not begin.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The dispatcher could not be reached for as long as was allowed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What shall be emulated cannot be.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The dispatcher does not take it.
    #[error("{0}")]
    Refused(String),
    /// Its folder is not its own.
    #[error("cannot use the folder: {0}")]
    Folder(#[from] PrivateError),
    /// Its node of the file system cannot be.
    #[error(transparent)]
    Files(#[from] NodeError),
    /// The system would not let us.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
}

/// What lasts over sessions.
struct Executor {
    config: Config,
    access: Access,
    workshop: Arc<Workshop>,
    fetcher: Fetcher,
    peers: Peers,
    server: Arc<PeerServer>,
    files: Option<Files>,
}

/// How a session ended.
enum Ended {
    Stopped,
    Lost(SessionError),
}

/// Runs an executor until it is stopped, by `stop` or by the dispatcher. Bytes are moved on the runtime that this is
/// called in. Session and brain have a thread of their own, where one step follows the other without waking anyone: it
/// is what short tasks wait for.
///
/// # Errors
/// If its store cannot be opened, or the dispatcher cannot be reached for longer than the settings allow.
pub async fn run(config: Config, access: Access, stop: Stop) -> Result<(), ExecutorError> {
    let movers = Handle::current();
    let live = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| ExecutorError::Io { what: "cannot start".into(), source })?;
        runtime.block_on(live(config, access, stop, movers))
    };
    let ended = tokio::task::spawn_blocking(live).await;
    ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
}

async fn live(config: Config, access: Access, mut stop: Stop, movers: Handle) -> Result<(), ExecutorError> {
    let marker = Incarnation::own().map_err(|source| ExecutorError::Io { what: "cannot read /proc".into(), source })?;
    let marker = marker.to_string();
    // Each executor's own, so that the guardian of one that has died cannot take them from its successor.
    let sandboxes = config.sandbox_folder().join(&marker);
    let io = |what: &str, path: &PathBuf| {
        let what = format!("cannot {what} {}", path.display());
        move |source| ExecutorError::Io { what, source }
    };
    claim(&config.folder)?;
    claim_inner(&config.store_folder())?;
    let (store, found) = ObjectStore::open(config.store_folder())?;
    // What an earlier executor left in the same folder, which is now ours.
    end_leftovers(&config.sandbox_folder());
    let _ = sandbox::remove(&config.sandbox_folder());
    claim_inner(&sandboxes)?;
    if config.emulation.storage_bytes_per_s.is_some() {
        std::fs::create_dir_all(&config.emulation_folder).map_err(io("make", &config.emulation_folder))?;
    }
    let limits = config.emulation.limits(&config.emulation_folder)?;
    let guardian = match &config.guardian {
        Some(command) => {
            Some(Guardian::start(command, &marker, &sandboxes).map_err(io("start a guardian for", &sandboxes))?)
        }
        None => None,
    };
    // After the guardian, which is not to be in it.
    let is_gone = |name: &str| name.parse::<Incarnation>().is_ok_and(|executor| executor.is_gone());
    let group = Cgroup::enter(&marker, is_gone);
    if let Err(e) = &group {
        tracing::debug!("no control group of our own, what tasks leave is found by its environment: {e}");
    }
    let mut session = tokio::select! {
        session = redial(&access, config.reconnect) => session?,
        _ = stop.wait() => return Ok(()),
    };
    let keys = DataKeys::of(&access);
    let listener = TcpListener::bind((session.local.ip(), 0)).map_err(io("listen for peers beside", &sandboxes))?;
    let server = PeerServer::start(
        listener,
        store.clone(),
        keys.clone(),
        PeerLimits::default(),
        (limits.link_in.clone(), limits.link_out.clone()),
    );
    let server = server.map_err(io("serve peers from", &sandboxes))?;
    let peers = Peers::new(keys, PeerLimits::default(), limits.link_in.clone());
    let order = match &config.io {
        Some(path) => Some(Turns::start(path).map_err(io("ask for turns by", path))?),
        None => None,
    };
    let storage = Storage::ordered(limits, order);
    let strays = Strays::adopt();
    if let Err(e) = &strays {
        tracing::info!("processes that leave their task's group will not be found: {e}");
    }
    let files = match config.has_files {
        true => {
            claim_inner(&config.files_folder())?;
            let site = Site::open(&config.files_folder(), session.local.ip())?;
            Some(Files::new(site, store.clone(), config.limits.floor_bytes))
        }
        // All that is damaged can be fetched again.
        false => {
            store.mark_irreplaceable([]);
            None
        }
    };
    let workshop = Arc::new(Workshop {
        name: config.name.clone(),
        marker,
        eyas: config.eyas.clone(),
        tokens: Tokens::open(&config.tokens_folder())?,
        files_node: files.as_ref().map(|files| files.announced().node),
        sandboxes,
        folders: AtomicU64::new(0),
        store: store.clone(),
        storage: storage.clone(),
        strays: strays.ok(),
        stop: stop.clone(),
        floor_bytes: config.limits.floor_bytes,
        movers,
    });
    let fetcher = Fetcher::new(store, storage, peers.clone());
    let executor = Executor { config, access, workshop, fetcher, peers, server: Arc::new(server), files };
    let mut held = found;
    loop {
        match executor.serve(session, &held, &mut stop).await? {
            Ended::Stopped => break,
            Ended::Lost(why) => tracing::warn!("{why}; trying to come back"),
        }
        held = executor.workshop.store.ids();
        session = tokio::select! {
            session = redial(&executor.access, executor.config.reconnect) => session?,
            _ = stop.wait() => break,
        };
    }
    // Slots' threads still put away what they had ready; each has the workshop until then.
    let deadline = Instant::now() + KILL_DEADLINE;
    while Arc::strong_count(&executor.workshop) > 1 && Instant::now() < deadline {
        sleep(Duration::from_millis(1)).await;
    }
    if group.is_err() || group.is_ok_and(Cgroup::leave) {
        leftovers::end(&executor.workshop.marker);
    }
    let _ = sandbox::remove(&executor.config.sandbox_folder());
    if let Some(guardian) = guardian {
        guardian.dismiss();
    }
    Ok(())
}

impl Executor {
    /// One session with the dispatcher, from registration to its end. Nothing runs any more when it returns.
    async fn serve(&self, session: Session, held: &[(ObjectId, u64)], stop: &mut Stop) -> Result<Ended, ExecutorError> {
        let Session { mut reader, writer, .. } = session;
        let (outbox, send) = outbox::<FromExecutor>(writer);
        let sending = tokio::spawn(send);
        let (at_once, later) = held.split_at(held.len().min(MAX_HELD_AT_ONCE));
        let registration = Registration {
            name: self.config.name.clone(),
            host: self.config.host.clone(),
            labels: self.config.labels.clone(),
            accept: self.config.accept.clone(),
            process: std::process::id(),
            incarnation: self.workshop.marker.clone(),
            capacity: self.config.capacity.clone(),
            store_bytes: self.config.limits.bytes,
            transfer: self.server.addr(),
            files: self.files.as_ref().map(Files::announced),
            held: at_once.to_vec(),
        };
        let registered = Moment::now();
        // The outbox is new and empty.
        let _ = outbox.post(vec![FromExecutor::Register(Box::new(registration))]);
        let welcome = async {
            loop {
                let commands = self.learn(reader.next().await?);
                if !commands.is_empty() {
                    return Ok(commands);
                }
            }
        };
        let first = tokio::select! {
            first = timeout(WELCOME_DEADLINE, welcome) => first,
            _ = stop.wait() => return Ok(Ended::Stopped),
        };
        let first = match first {
            Ok(Ok(first)) => first,
            Ok(Err(why)) => return Ok(Ended::Lost(why)),
            Err(_) => {
                let (address, why) = (self.access.dispatcher.clone(), "it did not answer in time".to_owned());
                return Ok(Ended::Lost(SessionError::Ended { address, why }));
            }
        };
        let mut first = first.into_iter();
        let (executor, caching, heartbeat_us, lease_us, files) = match first.next() {
            Some(ToExecutor::Welcome { executor, caching, heartbeat_us, lease_us, files }) => {
                (executor, caching, heartbeat_us, lease_us, files)
            }
            Some(ToExecutor::Refused(why)) => return Err(ExecutorError::Refused(why)),
            _ => {
                let why = "the dispatcher did not welcome this executor".to_owned();
                return Ok(Ended::Lost(SessionError::Protocol { address: self.access.dispatcher.clone(), why }));
            }
        };
        tracing::info!(%executor, name = self.config.name, held = held.len(), "joined {}", self.access.cluster);
        for part in if caching { later } else { &[] }.chunks(OUTBOX_MESSAGES) {
            let stored =
                |(object, size_bytes): &(_, _)| FromExecutor::Stored { object: *object, size_bytes: *size_bytes };
            // Of an end of the connection, the session tells.
            let _ = outbox.put(part.iter().map(stored).collect()).await;
        }
        let lease = Lease::new(registered, Duration::from_micros(lease_us));
        let desk = Desk::new(self.node(caching), caching, self.workshop.clone(), self.fetcher.clone(), lease);
        let mut ticks = interval(tick_every(Duration::from_micros(heartbeat_us)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        if let Some(node) = &self.files {
            // Before anything leaves for want of room; what comes from now on, the brain is told of.
            node.account_to(&desk);
            desk.brain().pin_found(node.chunks()?);
        }
        desk.brain().found(held);
        if let (Some(node), Some(place)) = (&self.files, files) {
            let (transfers, movers) = ((&self.peers, &self.server), &self.workshop.movers);
            node.welcomed(place, &self.access, transfers, movers).await?;
        }
        let receive = async {
            desk.brain().commands(first.collect());
            while !desk.brain().stopped {
                match reader.next().await {
                    Ok(commands) => desk.brain().commands(self.learn(commands)),
                    Err(why) => return Ended::Lost(why),
                }
            }
            Ended::Stopped
        };
        tokio::pin!(receive);
        let mut retires_until = None;
        let ended = loop {
            let retired = async {
                match retires_until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = desk.due() => {
                    let facts = desk.brain().take_facts();
                    if outbox.put(facts).await.is_err() {
                        let (address, why) = (self.access.dispatcher.clone(), "it was closed".to_owned());
                        break Ended::Lost(SessionError::Ended { address, why });
                    }
                }
                ended = &mut receive => break ended,
                _ = ticks.tick() => desk.brain().tick(),
                _ = stop.wait(), if retires_until.is_none() => match desk.brain().retire() {
                    true => retires_until = Some(tokio::time::Instant::now() + RETIRE_DEADLINE),
                    false => break Ended::Stopped,
                },
                () = retired => break Ended::Stopped,
            }
        };
        wind_down(&desk, matches!(ended, Ended::Stopped)).await;
        self.workshop.tokens.forget_all();
        if matches!(ended, Ended::Stopped) {
            let mut facts = desk.brain().take_facts();
            facts.push(FromExecutor::Leaving);
            let _ = outbox.put(facts).await;
            drop(outbox);
            let _ = timeout(KILL_DEADLINE, sending).await;
        } else {
            sending.abort();
        }
        Ok(ended)
    }

    /// Takes over the keys and the trust that the dispatcher tells of; the other commands.
    fn learn(&self, commands: Vec<ToExecutor>) -> Vec<ToExecutor> {
        let is_of_keys = |command: &ToExecutor| matches!(command, ToExecutor::Key { .. } | ToExecutor::Trust(_));
        if !commands.iter().any(is_of_keys) {
            return commands;
        }
        let credentials = self.access.credentials();
        let other = |command| match command {
            ToExecutor::Trust(trust) => {
                credentials.learn(*trust);
                None
            }
            ToExecutor::Key { certificate, key: SecretText(key) } => {
                match credentials.adopt(&Certified { certificate, key }) {
                    Ok(()) => tracing::info!("has a new key of the cluster: {}", credentials.holder()),
                    Err(why) => tracing::error!("the dispatcher's new key cannot be used: {why}"),
                }
                None
            }
            command => Some(command),
        };
        commands.into_iter().filter_map(other).collect()
    }

    fn node(&self, caching: bool) -> Node {
        Node::new(
            self.config.capacity.clone(),
            self.config.limits,
            self.config.eviction,
            caching,
            self.config.overlap,
            self.config.max_fetches(),
            u64::from(std::process::id()),
        )
    }
}

/// Reaches the dispatcher, trying again for so long; what will not get better with time is not tried again.
async fn redial(access: &Access, patience: Duration) -> Result<Session, SessionError> {
    let deadline = Instant::now() + patience;
    let mut wait = REDIAL;
    loop {
        match dial(access, Role::Executor).await {
            Ok(session) => return Ok(session),
            Err(e) if !matches!(e, SessionError::Unreachable { .. } | SessionError::Ended { .. }) => return Err(e),
            Err(e) if Instant::now() + wait > deadline => return Err(e),
            Err(_) => sleep(wait).await,
        }
        wait = (wait * 2).min(REDIAL_MOST);
    }
}

/// Kills what runs and waits until it has ended, and until what is being fetched is there, unless the executor stops for good.
/// Commands that still come are for a session that has ended.
async fn wind_down(desk: &Desk, for_good: bool) {
    let wait = async {
        loop {
            let is_idle = {
                let mut brain = desk.brain();
                brain.kill_all();
                if for_good {
                    brain.abandon_fetches();
                }
                brain.is_idle()
            };
            if is_idle {
                break;
            }
            desk.changed().await;
        }
    };
    if timeout(KILL_DEADLINE, wait).await.is_err() {
        tracing::warn!("some tasks or fetches have not ended in time");
    }
}

/// Ends what runs of executors that had this folder before and were killed with their guardians: their sandboxes are still
/// there, under their names.
fn end_leftovers(sandboxes: &Path) {
    let entries = std::fs::read_dir(sandboxes).into_iter().flatten().flatten();
    for executor in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        if !leftovers::end(&executor) {
            tracing::warn!(
                executor,
                "some processes that an earlier executor in this folder has left cannot be killed"
            );
        }
    }
}
