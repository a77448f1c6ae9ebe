//! One session of an executor with the dispatcher, from registration to the last task's end, and
//! reconnection after a session was lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_node::Node;
use eyas_session::{
    Access, DirectSender, FrameReader, KeyAndCertificate, OUTBOX_MESSAGES, Outbox, Session,
    SessionError, dial, outbox_with_direct,
};
use eyas_transfer::{Fetcher, PeerServer, Peers};
use eyas_types::ObjectId;
use eyas_wire::Role;
use eyas_wire::executor::{FromExecutor, Registration, ToExecutor, TransferAddress};
use eyas_wire::trust::SecretText;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};

use crate::cluster_files::KnownFilesNodes;
use crate::config::{ExecutorConfig, PoolNode};
use crate::error::ExecutorError;
use crate::executor_core::{CoreHandle, tick_every};
use crate::files_node::ExecutorFilesNode;
use crate::stop::StopSignal;
use crate::task::TaskRunner;
use crate::task::lease::{Lease, Moment};

/// Killed tasks have to end within this time; it is longer than the grace of a killed process.
pub(crate) const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// First and longest wait between two attempts to reach the dispatcher.
const REDIAL: Duration = Duration::from_millis(100);
const REDIAL_MOST: Duration = Duration::from_secs(5);

/// An executor that holds objects and is told to stop leaves after this time, even if no other
/// executor has them.
const RETIRE_DEADLINE: Duration = Duration::from_secs(60);

/// The dispatcher has to welcome this executor within this time. After a restart it may have a long
/// journal to read.
const WELCOME_DEADLINE: Duration = Duration::from_secs(60);

// Small in debug builds, so that tests reach it.
/// Number of stored objects that the registration names, because it has to fit in a frame; the
/// others follow.
const MAX_HELD_AT_ONCE: usize = if cfg!(debug_assertions) { 4 } else { 1 << 20 };

/// The parts of an executor that outlive a session.
pub(crate) struct SessionHost {
    pub config: ExecutorConfig,
    pub access: Access,
    pub runner: Arc<TaskRunner>,
    pub fetcher: Fetcher,
    pub peers: Peers,
    pub server: Arc<PeerServer>,
    pub files: Option<ExecutorFilesNode>,
    pub files_nodes: Arc<KnownFilesNodes>,
}

/// How a session ended.
pub(crate) enum SessionEnd {
    /// For good, by an order.
    Stopped,
    /// The connection was lost.
    Lost(SessionError),
}

impl SessionHost {
    /// Runs one session with the dispatcher. No task runs when it returns.
    pub async fn serve(
        &self,
        session: Session,
        held: &[(ObjectId, u64)],
        stop: &mut StopSignal,
    ) -> Result<SessionEnd, ExecutorError> {
        let Session { mut reader, writer, minor, .. } = session;
        let (outbox, direct, send) = outbox_with_direct::<FromExecutor>(writer);
        let sending = tokio::spawn(send);
        let (at_once, later) = held.split_at(held.len().min(MAX_HELD_AT_ONCE));
        let registered = Moment::now();
        // The outbox is new and empty.
        let _ = outbox.post(vec![FromExecutor::Register(Box::new(self.registration(at_once)))]);
        let first = tokio::select! {
            first = self.first_commands(&mut reader) => first,
            _ = stop.wait() => return Ok(SessionEnd::Stopped),
        };
        let mut commands = match first {
            Ok(first) => first.into_iter(),
            Err(why) => return Ok(SessionEnd::Lost(why)),
        };
        let (executor, caching, heartbeat_us, lease_us, files) = match commands.next() {
            Some(ToExecutor::Welcome { executor, caching, heartbeat_us, lease_us, files }) => {
                (executor, caching, heartbeat_us, lease_us, files)
            }
            Some(ToExecutor::Refused(why)) => return Err(ExecutorError::Refused(why)),
            _ => {
                let address = self.access.dispatcher.clone();
                let why = "the dispatcher did not welcome this executor".to_owned();
                return Ok(SessionEnd::Lost(SessionError::Protocol { address, why }));
            }
        };
        tracing::info!(
            %executor, name = self.config.name, held = held.len(),
            "joined {}",
            self.access.cluster
        );
        if caching {
            report_stored(&outbox, later).await;
        }
        let lease = Lease::new(registered, Duration::from_micros(lease_us));
        let core = self.core(caching, lease, held, (direct, minor))?;
        if let (Some(node), Some(membership)) = (&self.files, files) {
            let (transfers, movers) = ((&self.peers, &self.server), &self.runner.movers);
            node.welcomed(membership, &self.access, transfers, movers).await?;
        }
        let receiving = self.receive(&core, &mut reader, commands.collect());
        let ended = self
            .exchange(&core, receiving, &outbox, Duration::from_micros(heartbeat_us), stop)
            .await;
        wind_down(&core, matches!(ended, SessionEnd::Stopped)).await;
        self.runner.tokens.forget_all();
        if matches!(ended, SessionEnd::Stopped) {
            let mut facts = core.lock().take_facts();
            facts.push(FromExecutor::Leaving);
            let _ = outbox.put(facts).await;
            drop(outbox);
            let _ = timeout(KILL_DEADLINE, sending).await;
        } else {
            sending.abort();
        }
        Ok(ended)
    }

    fn registration(&self, held: &[(ObjectId, u64)]) -> Registration {
        Registration {
            name: self.config.name.clone(),
            host: self.config.host.clone(),
            labels: self.config.labels.clone(),
            accept: self.config.accept.clone(),
            process: std::process::id(),
            incarnation: self.runner.marker.clone(),
            capacity: self.config.capacity.clone(),
            store_bytes: self.config.limits.bytes,
            transfer: TransferAddress {
                address: self.server.addr(),
                proxy: self.access.proxy().map(|proxy| proxy.outside),
            },
            files: self.files.as_ref().map(ExecutorFilesNode::announced),
            origin: self.config.origin.as_ref().map(PoolNode::announced),
            held: held.to_vec(),
        }
    }

    /// Waits for the answer to the registration, and the commands that come with it.
    async fn first_commands(
        &self,
        reader: &mut FrameReader,
    ) -> Result<Vec<ToExecutor>, SessionError> {
        let first = async {
            loop {
                let commands = self.take_own(reader.next().await?);
                if !commands.is_empty() {
                    return Ok(commands);
                }
            }
        };
        timeout(WELCOME_DEADLINE, first).await.unwrap_or_else(|_| {
            let why = "the dispatcher did not answer in time".to_owned();
            Err(SessionError::Ended { address: self.access.dispatcher.clone(), why })
        })
    }

    /// Passes the dispatcher's commands to the core until the core stops or the connection ends.
    async fn receive(
        &self,
        core: &CoreHandle,
        reader: &mut FrameReader,
        first: Vec<ToExecutor>,
    ) -> SessionEnd {
        core.lock().commands(first);
        while !core.lock().stopped {
            match reader.next().await {
                Ok(commands) => core.lock().commands(self.take_own(commands)),
                Err(why) => return SessionEnd::Lost(why),
            }
        }
        SessionEnd::Stopped
    }

    /// Receives commands and sends what the core reports, until the session ends. When it is told
    /// to stop, an executor first lets others fetch the objects that no other one has.
    async fn exchange(
        &self,
        core: &CoreHandle,
        receiving: impl Future<Output = SessionEnd>,
        outbox: &Outbox<FromExecutor>,
        heartbeat: Duration,
        stop: &mut StopSignal,
    ) -> SessionEnd {
        tokio::pin!(receiving);
        let mut ticks = interval(tick_every(heartbeat));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut retires_until = None;
        loop {
            let retired = async {
                match retires_until {
                    Some(until) => sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = core.due() => {
                    if core.send_facts(outbox).await.is_err() {
                        let (address, why) =
                            (self.access.dispatcher.clone(), "it was closed".to_owned());
                        return SessionEnd::Lost(SessionError::Ended { address, why });
                    }
                }
                ended = &mut receiving => return ended,
                _ = ticks.tick() => core.lock().tick(heartbeat),
                _ = stop.wait(), if retires_until.is_none() => {
                    if !core.lock().retire() {
                        return SessionEnd::Stopped;
                    }
                    retires_until = Some(tokio::time::Instant::now() + RETIRE_DEADLINE);
                }
                () = retired => return SessionEnd::Stopped,
            }
        }
    }

    /// Adopts the keys, the trust and the nodes of the file system among the commands; returns the
    /// commands for the core.
    fn take_own(&self, commands: Vec<ToExecutor>) -> Vec<ToExecutor> {
        let is_own = |command: &ToExecutor| {
            matches!(
                command,
                ToExecutor::Key { .. } | ToExecutor::Trust(_) | ToExecutor::FilesNodes(_)
            )
        };
        if !commands.iter().any(is_own) {
            return commands;
        }
        let credentials = self.access.credentials();
        let other = |command| match command {
            ToExecutor::Trust(trust) => {
                credentials.learn(*trust);
                None
            }
            ToExecutor::FilesNodes(nodes) => {
                self.files_nodes.learn(nodes);
                None
            }
            ToExecutor::Key { certificate, key: SecretText(key) } => {
                match credentials.adopt(&KeyAndCertificate { certificate, key }) {
                    Ok(()) => tracing::info!(
                        "this executor has a new key of the cluster: {}",
                        credentials.holder()
                    ),
                    Err(why) => {
                        tracing::error!("cannot use the new key from the dispatcher: {why}")
                    }
                }
                None
            }
            command => Some(command),
        };
        commands.into_iter().filter_map(other).collect()
    }

    /// A core that knows the objects and chunks in the store.
    fn core(
        &self,
        caching: bool,
        lease: Lease,
        held: &[(ObjectId, u64)],
        direct: (DirectSender<FromExecutor>, u16),
    ) -> Result<Arc<CoreHandle>, ExecutorError> {
        let (runner, fetcher) = (self.runner.clone(), self.fetcher.clone());
        let core = CoreHandle::new(self.node(caching), caching, runner, fetcher, lease, direct);
        if let Some(node) = &self.files {
            // Before any object is evicted. From now on the core is told of every chunk that
            // arrives.
            node.account_to(&core);
            core.lock().chunks_found(node.chunks()?);
        }
        core.lock().found(held);
        Ok(core)
    }

    fn node(&self, caching: bool) -> Node {
        let mut node = Node::new(
            self.config.capacity.clone(),
            self.config.limits,
            self.config.eviction,
            caching,
            self.config.overlap,
            self.config.max_fetches(),
            u64::from(std::process::id()),
        );
        node.pin_to(self.config.cores.clone());
        node
    }
}

/// Tells the dispatcher of objects in the store that the registration had no room for.
async fn report_stored(outbox: &Outbox<FromExecutor>, held: &[(ObjectId, u64)]) {
    let stored = |(object, size_bytes): &(ObjectId, u64)| FromExecutor::Stored {
        object: *object,
        size_bytes: *size_bytes,
    };
    for part in held.chunks(OUTBOX_MESSAGES) {
        // If the connection has ended, the session reports it later.
        let _ = outbox.put(part.iter().map(stored).collect()).await;
    }
}

/// Connects to the dispatcher, with retries for up to `patience`. Errors that a retry cannot change
/// end it at once.
pub(crate) async fn reconnect(
    access: &Access,
    patience: Duration,
) -> Result<Session, SessionError> {
    let deadline = Instant::now() + patience;
    let mut wait = REDIAL;
    let mut is_said = false;
    loop {
        match dial(access, Role::Executor).await {
            Ok(session) => return Ok(session),
            Err(e)
                if !matches!(e, SessionError::Unreachable { .. } | SessionError::Ended { .. }) =>
            {
                return Err(e);
            }
            Err(e) if Instant::now() + wait > deadline => return Err(e),
            Err(e) => {
                if !std::mem::replace(&mut is_said, true) {
                    tracing::warn!("{e}; trying again for up to {} s", patience.as_secs());
                }
                sleep(wait).await;
            }
        }
        wait = (wait * 2).min(REDIAL_MOST);
    }
}

/// Kills running tasks, and waits until they and all fetches have ended; fetches are aborted if the
/// executor stops `for_good`. The session has ended, so commands that still arrive are ignored.
async fn wind_down(core: &CoreHandle, for_good: bool) {
    let wait = async {
        loop {
            let is_idle = {
                let mut brain = core.lock();
                brain.kill_all();
                if for_good {
                    brain.abandon_fetches();
                }
                brain.is_idle()
            };
            if is_idle {
                break;
            }
            core.changed().await;
        }
    };
    if timeout(KILL_DEADLINE, wait).await.is_err() {
        tracing::warn!(
            "some tasks or fetches have not ended {} s after they were stopped",
            KILL_DEADLINE.as_secs()
        );
    }
}
