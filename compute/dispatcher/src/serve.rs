//! A dispatcher's life: opens its folder, listens, and works until it is stopped.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eyas_pools::{PoolOrder, PoolsConfig, PoolsHandle};
use eyas_sched::Scheduler;
use eyas_session::private::{PrivateError, PrivateFolder};
use eyas_session::{
    Access, BindAddress, Listener, PortRange, Session, SessionAcceptor, SessionError,
    listen as listen_at,
};
use eyas_types::access::KeyRole;
use eyas_wire::view::JobView;
use eyas_wire::{DataMode, Role};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::dispatcher_core::{self, CoreConfig, CoreInbox, DispatcherCore};
use crate::journal::{Journal, JournalError, JournalOptions};
use crate::keys::{Keys, KeysError};
use crate::log::Log;
use crate::names::NamedFiles;
use crate::service::{Caller, DispatcherHandle};
use crate::{client_session, executor_session};

/// Messages that may wait for the core. Sessions with more messages wait, and so do their
/// executors.
const MAX_WAITING_MESSAGES: usize = 4096;
/// Once the core has ended, sessions have this long to send their last messages.
const SESSIONS_DEADLINE: Duration = Duration::from_secs(2);

/// Settings of a dispatcher.
#[derive(Clone, Debug)]
pub struct DispatcherConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The dispatcher's folder, with journal and access file. One dispatcher uses it at a time.
    pub folder: PathBuf,
    /// Address to listen on. Port 0: the earlier port of the cluster in this folder, or any free
    /// one.
    pub listen: SocketAddr,
    /// The ports to choose from, if the cluster is new and `listen` has port 0.
    pub ports: Option<PortRange>,
    /// Host by which others reach it, if not the address it listens on.
    pub advertise: Option<String>,
    /// How tasks are placed.
    pub scheduler: eyas_sched::Config,
    /// The folder is deleted at the end, so its content need not survive a crash.
    pub is_ephemeral: bool,
    /// Time between heartbeats of an executor.
    pub heartbeat: Duration,
    /// Names of the processes that end with the dispatcher: its own and its owner's.
    pub processes: Vec<String>,
    /// How the cluster moves bulk data.
    pub data: DataMode,
    /// The `eyas` program, which nodes of pools run.
    pub eyas: PathBuf,
    /// In tests: compare what the journal has with what is in memory, and tell differences in this
    /// file.
    pub check_journal: Option<PathBuf>,
}

/// Why a dispatcher has ended, or could not begin.
#[derive(Debug, Error)]
pub enum DispatcherError {
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}; {}", other_port(.address, *.was_used_before))]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// Whether the port is the one that this cluster used before, and that no option names.
        was_used_before: bool,
        /// Why not.
        source: std::io::Error,
    },
    /// The cluster's folder cannot be used.
    #[error("cannot keep a cluster here: {0}")]
    Folder(#[from] PrivateError),
    /// The cluster's keys cannot be read or written.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The journal cannot be used, or not any longer.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The dispatcher stopped because of a defect.
    #[error("the dispatcher broke off: {0}; what it had accepted is in its journal")]
    Broken(tokio::task::JoinError),
    /// The jobs in the journal cannot be read.
    #[error("cannot go on with the jobs in {folder}: {source}; move the folder away to begin anew")]
    Recovery {
        /// The cluster's folder.
        folder: PathBuf,
        /// The error of the journal.
        source: JournalError,
    },
}

/// Advice for a port that another program uses.
fn other_port(address: &SocketAddr, was_used_before: bool) -> String {
    let port = address.port();
    if was_used_before {
        format!(
            "this cluster used port {port} before, and its access files name that port. Stop the \
             program that listens there (perhaps another dispatcher of this cluster; `ss -ltnp` \
             lists programs and ports), start another cluster with --cluster NAME, or choose \
             another port with --listen HOST:PORT"
        )
    } else {
        "choose another address or port with --listen HOST:PORT; port 0 is any free one".into()
    }
}

/// A dispatcher at work.
pub struct RunningDispatcher {
    /// The dispatcher's own access: where it listens.
    pub access: Access,
    /// Path of the access file that clients and executors need.
    pub access_path: PathBuf,
    /// Jobs from the journal that have not ended and continue.
    pub unfinished: Vec<JobView>,
    work: JoinHandle<()>,
    failed: mpsc::Receiver<JournalError>,
}

impl RunningDispatcher {
    /// Waits until it has been stopped.
    ///
    /// # Errors
    /// If it cannot go on: its journal cannot be written.
    pub async fn wait(mut self) -> Result<(), DispatcherError> {
        tokio::select! {
            ended = &mut self.work => ended.map_err(DispatcherError::Broken),
            Some(error) = self.failed.recv() => Err(error.into()),
        }
    }
}

/// Starts a dispatcher. It stops when a client asks for that, or when `stop` changes.
///
/// # Errors
/// If it cannot listen, or its folder cannot be used.
pub async fn start(
    config: DispatcherConfig,
    stop: watch::Receiver<bool>,
) -> Result<RunningDispatcher, DispatcherError> {
    let folder = &config.folder;
    let (listener, keys) = listen(&config).await?;
    let (calls_sender, calls) = mpsc::channel(MAX_WAITING_MESSAGES);
    let (executors_sender, messages) = mpsc::channel(MAX_WAITING_MESSAGES);
    let (failed_sender, failed) = mpsc::channel(1);
    let (durable_sender, durable) = watch::channel(0);
    let journal = Journal::open(
        &folder.join("journal.redb"),
        JournalOptions { is_scratch: config.is_ephemeral, check: config.check_journal.clone() },
        move |number| _ = durable_sender.send_replace(number),
        move |error| drop(failed_sender.blocking_send(error)),
    )?;
    let policy = config.scheduler.policy;
    let scheduler = Scheduler::new(config.scheduler.clone());
    let log: Arc<dyn Log> = Arc::new(journal);
    let of_core = CoreConfig {
        policy: policy.name().into(),
        caching: eyas_sched::caches(policy),
        heartbeat: config.heartbeat,
        processes: config.processes.clone(),
    };
    let unreadable = |source| DispatcherError::Recovery { folder: folder.clone(), source };
    let names = Arc::new(NamedFiles::open(log.clone()).map_err(unreadable)?);
    let mut core = DispatcherCore::new(of_core, scheduler, log.clone(), names.clone());
    core.recover().map_err(unreadable)?;
    let unfinished = core.views().unfinished();
    core.executors.give_tokens(keys.clone());
    keys.begin()?;
    let (access, access_path) = (keys.access().clone(), keys.access_path());
    tracing::info!(cluster = access.cluster, "listens on {}", access.dispatcher);
    let listener = Listener::new(
        listener,
        SessionAcceptor::new(&access, Role::Dispatcher),
        "the dispatcher's port",
    );
    let (pools, orders, closing) = start_pools(&config, &core, keys.clone());
    core.pools.attach(pools.clone());
    let dispatcher = DispatcherHandle {
        calls: calls_sender,
        executors: executors_sender,
        log,
        keys: keys.clone(),
        pools,
        names,
        events: core.replies.events(),
    };
    let accepting = tokio::spawn(accept(listener, dispatcher));
    let inbox = CoreInbox { calls, messages, durable, orders, stop };
    let differences = config.check_journal.clone();
    let work = tokio::spawn(async move {
        tokio::select! {
            () = dispatcher_core::run(core, inbox, differences) => {}
            () = keys.keep() => {}
        }
        // Both end when the core has.
        let _ = accepting.await;
        let _ = closing.await;
    });
    Ok(RunningDispatcher { access, access_path, unfinished, work, failed })
}

/// Starts the actor of pools.
fn start_pools(
    config: &DispatcherConfig,
    core: &DispatcherCore,
    keys: Arc<Keys>,
) -> (PoolsHandle, mpsc::Receiver<PoolOrder>, JoinHandle<()>) {
    let (orders, received) = mpsc::channel(MAX_WAITING_MESSAGES);
    let issue_access = Arc::new(move || Ok(keys.issue(KeyRole::Executor)?));
    let pools = PoolsConfig {
        folder: config.folder.join("pools"),
        eyas: config.eyas.clone(),
        issue_access,
    };
    let (handle, closing) = PoolsHandle::start(pools, core.pools.subscribe(), orders);
    (handle, received, closing)
}

/// Listens where the cluster was before, if it was, so that the addresses in its access files stay
/// right.
async fn listen(config: &DispatcherConfig) -> Result<(TcpListener, Arc<Keys>), DispatcherError> {
    let keys =
        Keys::open(PrivateFolder::make(&config.folder)?, &config.folder, config.is_ephemeral)?;
    let mut address = config.listen;
    let port_before =
        keys.before.as_ref().and_then(|before| before.rsplit_once(':')?.1.parse().ok());
    let was_used_before = address.port() == 0 && port_before.is_some();
    if let (0, Some(port)) = (address.port(), port_before) {
        address.set_port(port);
    }
    let cannot = |source| DispatcherError::Listen { address, was_used_before, source };
    let bound = match address.port() {
        0 => listen_somewhere(address.ip(), config.ports),
        _ => listen_at(address),
    };
    let bound =
        bound.and_then(|bound| bound.set_nonblocking(true).map(|()| bound)).map_err(cannot)?;
    let listener = TcpListener::from_std(bound).map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    let host = match &config.advertise {
        Some(host) if host.contains(':') => format!("[{host}]"),
        Some(host) => host.clone(),
        None if bound.is_ipv6() => format!("[{}]", bound.ip()),
        None => bound.ip().to_string(),
    };
    let dispatcher = format!("{host}:{}", bound.port());
    Ok((listener, Arc::new(keys.at(&config.cluster, &dispatcher, config.data)?)))
}

/// Listens on a free port of a new cluster. Without a range, it is one that the system gives to no
/// connection, so that it is free when the cluster starts again; if there is none, any port.
fn listen_somewhere(ip: IpAddr, ports: Option<PortRange>) -> io::Result<std::net::TcpListener> {
    let lasting = PortRange::below_ephemeral().filter(|_| ports.is_none());
    let bound = lasting.map(|ports| BindAddress { ip, ports: Some(ports) }.tcp());
    match bound {
        Some(Ok(listener)) => Ok(listener),
        _ => BindAddress { ip, ports }.tcp(),
    }
}

/// Accepts connections until the core has ended, then waits for their sessions.
async fn accept(listener: Listener, dispatcher: DispatcherHandle) {
    let mut sessions = JoinSet::new();
    loop {
        let greeting = tokio::select! {
            greeting = listener.next() => greeting,
            Some(_) = sessions.join_next() => continue,
            () = dispatcher.calls.closed() => break,
        };
        let dispatcher = dispatcher.clone();
        sessions.spawn(async move {
            if let Err(e) = serve(greeting, dispatcher).await {
                tracing::debug!("{e}");
            }
        });
    }
    let all_ended = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(SESSIONS_DEADLINE, all_ended).await.is_err() {
        tracing::debug!("some sessions are cut short");
    }
}

async fn serve(
    greeting: impl Future<Output = Result<(Session, Role), SessionError>>,
    dispatcher: DispatcherHandle,
) -> Result<(), SessionError> {
    let (session, role) = greeting.await?;
    match role {
        Role::Executor => {
            executor_session::serve(session, dispatcher.executors, &dispatcher.keys).await
        }
        Role::Client => {
            let service = Caller::new(dispatcher, session.trust.holder());
            client_session::serve(session, service).await
        }
        Role::Dispatcher | Role::Node | Role::Agent | Role::Coordinator => Ok(()),
    }
}
