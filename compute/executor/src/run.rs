//! Start and end of an executor, and the loop of its sessions.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use eyas_dfs::{NearNode, NodeError, PreparedNode};
use eyas_session::private::PrivateError;
use eyas_session::{Access, BindAddress, DataKeys, SessionError};
use eyas_store::{ObjectStore, Storage, StorageError, StoreError};
use eyas_transfer::{Fetcher, PeerLimits, PeerServer, Peers};
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::cluster_files::{self, KnownFilesNodes};
use crate::config::ExecutorConfig;
use crate::files_node::ExecutorFilesNode;
use crate::leftovers;
use crate::leftovers::cgroup::{Cgroup, EnteringCgroup};
use crate::leftovers::copies::{self, CopyFolders};
use crate::leftovers::guardian::Guardian;
use crate::leftovers::incarnation::Incarnation;
use crate::private_folder::{make_inner_private, make_private};
use crate::process::strays::Strays;
use crate::resources::TaskResources;
use crate::resources::limit_mode::LimitMode;
use crate::resources::task_group::{NoTaskGroups, TaskGroups};
use crate::session::{SessionEnd, SessionHost, reconnect};
use crate::stop::StopSignal;
use crate::storage_turns::StorageTurns;
use crate::task::sandbox::kept::KeptSandboxes;
use crate::task::tokens::Tokens;
use crate::task::{MAX_DELIVERIES, TaskRunner, sandbox};

/// Killed tasks have to end within this time; it is longer than the grace of a killed process.
pub(crate) const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// Why an executor has ended, or could not start.
#[derive(Debug, Error)]
pub enum ExecutorError {
    /// The dispatcher could not be reached within the reconnection time.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Storage cannot be emulated as configured.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The dispatcher does not accept this executor.
    #[error("{0}")]
    Refused(String),
    /// Other users can change the executor's folder.
    #[error("cannot use the folder: {0}")]
    Folder(#[from] PrivateError),
    /// The node of the file system cannot start.
    #[error(transparent)]
    Files(#[from] NodeError),
    /// Tasks cannot be limited as configured.
    #[error(
        "cannot limit tasks by control groups: {0}; use --limits auto or --limits poll, without --cpu-quota, or have \
         the system delegate a control group to this user"
    )]
    Limits(String),
    /// A system call has failed.
    #[error("{what}: {source}")]
    Io {
        /// The attempted step.
        what: String,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Runs an executor until `stop` or the dispatcher stops it. The executor prepares its folder, and then waits for
/// `access`, because its dispatcher may be starting too; it ends if the sender is dropped. Bytes are moved on the
/// runtime of the caller. Session and core have a thread of their own, so that no thread wakes another between two
/// steps; this shortens short tasks.
///
/// # Errors
/// If the store cannot be opened, or the dispatcher cannot be reached within the configured reconnection time.
pub async fn run(
    config: ExecutorConfig,
    access: oneshot::Receiver<Access>,
    stop: StopSignal,
) -> Result<(), ExecutorError> {
    let movers = Handle::current();
    let live = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(io("cannot start"))?;
        runtime.block_on(live(config, access, stop, movers))
    };
    let ended = tokio::task::spawn_blocking(live).await;
    ended.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
}

async fn live(
    config: ExecutorConfig,
    access: oneshot::Receiver<Access>,
    mut stop: StopSignal,
    movers: Handle,
) -> Result<(), ExecutorError> {
    let marker = Incarnation::own().map_err(io("cannot read /proc"))?.to_string();
    // Each executor has its own folder, so that the guardian of a dead executor cannot remove those of its successor.
    let sandboxes = config.sandbox_folder().join(&marker);
    make_private(&config.folder)?;
    make_inner_private(&config.store_folder())?;
    let (store, found) = ObjectStore::open(config.store_folder())?;
    // An earlier executor in this folder may have left processes and sandboxes.
    end_leftovers(&config.sandbox_folder());
    let _ = sandbox::remove(&config.sandbox_folder());
    make_inner_private(&sandboxes)?;
    if config.emulation.storage_bytes_per_s.is_some() {
        let folder = &config.emulation_folder;
        std::fs::create_dir_all(folder).map_err(io(&format!("cannot make {}", folder.display())))?;
    }
    let limits = config.emulation.limits(&config.emulation_folder)?;
    let guardian = match &config.guardian {
        Some(command) => {
            Some(Guardian::start(command, &marker, &sandboxes).map_err(io("cannot start the executor's guardian"))?)
        }
        None => None,
    };
    // After the guardian, which must not be a member.
    let is_gone = |name: &str| name.parse::<Incarnation>().is_ok_and(|executor| executor.is_gone());
    let (mode, capacity_milli) = (config.task_limits.mode, config.capacity.cpus_milli);
    let group = EnteringCgroup::begin(marker.clone(), is_gone, move |executor, is_gone| {
        let groups = TaskGroups::make(mode, executor, capacity_milli, is_gone);
        say_limits(mode, &groups);
        groups
    });
    if mode == LimitMode::Cgroup || config.task_limits.has_cpu_quota {
        match &group.wait().tasks {
            Err(e) => return Err(ExecutorError::Limits(e.to_string())),
            Ok(groups) if config.task_limits.has_cpu_quota && !groups.has_cpu() => {
                return Err(ExecutorError::Limits("no controller `cpu` is available to this process".into()));
            }
            Ok(_) => {}
        }
    }
    let access = tokio::select! {
        access = access => access,
        _ = stop.wait() => return Ok(()),
    };
    let Ok(access) = access else { return Ok(()) };
    let mut session = tokio::select! {
        session = reconnect(&access, config.reconnect) => session?,
        _ = stop.wait() => return Ok(()),
    };
    let keys = DataKeys::of(&access);
    let place = BindAddress { ip: config.address.unwrap_or(session.local.ip()), ports: config.ports };
    let listener = place.tcp().map_err(io("cannot listen for other executors"))?;
    let server = PeerServer::start(
        listener,
        store.clone(),
        keys.clone(),
        PeerLimits::default(),
        (limits.link_in.clone(), limits.link_out.clone()),
    );
    let server = server.map_err(io("cannot serve other executors"))?;
    let peers = Peers::new(keys, PeerLimits::default(), limits.link_in.clone());
    let turns = match &config.io {
        Some(path) => {
            let failed = io(&format!("cannot use the I/O coordinator's access file {}", path.display()));
            Some(StorageTurns::start(path).map_err(failed)?)
        }
        None => None,
    };
    let storage = Storage::ordered(limits, turns, marker.clone());
    let strays = Strays::adopt();
    if let Err(e) = &strays {
        tracing::info!("processes that leave their task's process group will not be found: {e}");
    }
    let files = if config.has_files {
        make_inner_private(&config.files_folder())?;
        let site = PreparedNode::open(&config.files_folder(), place)?.with_audit_bytes(config.audit_bytes);
        Some(ExecutorFilesNode::new(site, store.clone(), config.limits.floor_bytes))
    } else {
        // Every damaged object can be fetched again.
        store.mark_irreplaceable([]);
        None
    };
    let files_nodes = Arc::new(KnownFilesNodes::default());
    let near = files.as_ref().map(|files| {
        let announced = files.announced();
        files_nodes.learn([announced.address]);
        NearNode { node: announced.node, store: Some(config.store_folder()) }
    });
    storage.provide_files(Arc::new(cluster_files::storage(access.clone(), files_nodes.clone(), near)));
    let runner = Arc::new(TaskRunner {
        name: config.name.clone(),
        marker,
        eyas: config.eyas.clone(),
        tokens: Tokens::open(&config.tokens_folder(), access.relay())?,
        files_node: files.as_ref().map(|files| files.announced().node),
        copy_folders: CopyFolders::new(&sandboxes),
        sandboxes,
        folders: AtomicU64::new(0),
        kept: KeptSandboxes::default(),
        store: store.clone(),
        storage: storage.clone(),
        strays: strays.ok(),
        group,
        resources: TaskResources::new(config.task_limits),
        gpus: config.gpus.clone(),
        stop: stop.clone(),
        floor_bytes: config.limits.floor_bytes,
        movers,
        deliveries: Arc::new(Semaphore::new(MAX_DELIVERIES)),
    });
    let fetcher = Fetcher::new(store, storage, peers.clone());
    let host = SessionHost { config, access, runner, fetcher, peers, server: Arc::new(server), files, files_nodes };
    let mut held = found;
    loop {
        match host.serve(session, &held, &mut stop).await? {
            SessionEnd::Stopped => break,
            SessionEnd::Lost(why) => tracing::warn!("{why}; reconnecting"),
        }
        held = host.runner.store.ids();
        session = tokio::select! {
            session = reconnect(&host.access, host.config.reconnect) => session?,
            _ = stop.wait() => break,
        };
    }
    // The threads of slots still remove their spare sandboxes; each has a reference to the runner until then.
    let deadline = Instant::now() + KILL_DEADLINE;
    while Arc::strong_count(&host.runner) > 1 && Instant::now() < deadline {
        sleep(Duration::from_millis(1)).await;
    }
    let group = &host.runner.group.wait().own;
    if group.as_ref().map_or(true, Cgroup::leave) {
        leftovers::end(&host.runner.marker);
    }
    let _ = sandbox::remove(&host.config.sandbox_folder());
    if let Some(guardian) = guardian {
        guardian.dismiss();
        if let Ok(group) = group {
            group.remove_guardians();
        }
    }
    Ok(())
}

fn io(what: &str) -> impl FnOnce(std::io::Error) -> ExecutorError + use<> {
    let what = what.to_owned();
    move |source| ExecutorError::Io { what, source }
}

/// Says in the log how the limits of tasks are kept, and why not by control groups.
fn say_limits(mode: LimitMode, groups: &Result<TaskGroups, NoTaskGroups>) {
    match (mode, groups) {
        (LimitMode::Off, _) => tracing::info!("tasks are not limited (--limits off)"),
        (_, Ok(groups)) => tracing::info!("{}", groups.describe()),
        (_, Err(e)) => tracing::info!(
            "memory of tasks is limited by looking at their processes, and processors are not limited; not by control \
             groups, because {e}"
        ),
    }
}

/// Kills processes of executors that had this folder before and were killed together with their guardians, and removes
/// their copies of outputs. The names of those executors are the names of folders in `sandboxes`.
fn end_leftovers(sandboxes: &Path) {
    let entries = std::fs::read_dir(sandboxes).into_iter().flatten().flatten();
    for executor in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        if !leftovers::end(&executor) {
            tracing::warn!(executor, "cannot kill some processes of an earlier executor in this folder");
        }
        copies::remove(&sandboxes.join(&executor), &executor);
    }
}
