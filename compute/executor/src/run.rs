//! Start and end of an executor, and the loop of its sessions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use eyas_dfs::PreparedNode;
use eyas_files::NearNode;
use eyas_session::{Access, BindAddress, DataKeys, Session};
use eyas_store::{Limits, ObjectStore, Storage, StorageOrder};
use eyas_transfer::{Fetcher, PeerLimits, PeerServer, Peers};
use eyas_types::ObjectId;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::sleep;

use crate::cluster_files::{self, KnownFilesNodes};
use crate::config::ExecutorConfig;
use crate::error::ExecutorError;
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
use crate::session::{KILL_DEADLINE, SessionEnd, SessionHost, reconnect};
use crate::stop::StopSignal;
use crate::storage_turns::StorageTurns;
use crate::task::contents::Contents;
use crate::task::prepared::PreparedFolders;
use crate::task::sandbox::kept::KeptSandboxes;
use crate::task::tokens::Tokens;
use crate::task::{MAX_DELIVERIES, TaskRunner, sandbox};

/// Runs an executor until `stop` or the dispatcher stops it. The executor prepares its folder, and
/// then waits for `access`, because its dispatcher may be starting too; it ends if the sender is
/// dropped. Bytes are moved on the runtime of the caller. Session and core have a thread of their
/// own, so that no thread wakes another between two steps; this shortens short tasks.
///
/// # Errors
/// If the store cannot be opened, or the dispatcher cannot be reached within the configured
/// reconnection time.
pub async fn run(
    config: ExecutorConfig,
    access: oneshot::Receiver<Access>,
    stop: StopSignal,
) -> Result<(), ExecutorError> {
    let movers = Handle::current();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(io("cannot start"))?;
        runtime.block_on(run_executor(config, access, stop, movers))
    };
    let ended = tokio::task::spawn_blocking(run).await;
    ended.unwrap_or_else(eyas_panics::resume)
}

async fn run_executor(
    config: ExecutorConfig,
    access: oneshot::Receiver<Access>,
    mut stop: StopSignal,
    movers: Handle,
) -> Result<(), ExecutorError> {
    let prepared = PreparedExecutor::prepare(config)?;
    let access = tokio::select! {
        access = access => access,
        _ = stop.wait() => return Ok(()),
    };
    let Ok(access) = access else { return Ok(()) };
    let session = tokio::select! {
        session = reconnect(&access, prepared.config.reconnect) => session?,
        _ = stop.wait() => return Ok(()),
    };
    let PreparedExecutor { config, marker, sandboxes, store, found, limits, guardian, group } =
        prepared;
    let keys = DataKeys::of(&access);
    let bind_address =
        BindAddress { ip: config.address.unwrap_or(session.local.ip()), ports: config.ports };
    let server = serve_peers(&bind_address, &store, &keys, &limits)?;
    let peers = Peers::new(keys, PeerLimits::default(), limits.link_in.clone());
    let storage = Storage::ordered(limits, storage_turns(&config)?, marker.clone());
    let files = files_node(&config, &store, bind_address)?;
    let files_nodes = provide_files(&storage, &access, files.as_ref(), &config);
    let strays = Strays::adopt();
    if let Err(e) = &strays {
        tracing::info!("processes that leave their task's process group will not be found: {e}");
    }
    let fetcher = Fetcher::new(store.clone(), storage.clone(), peers.clone());
    let runner = Arc::new(TaskRunner {
        name: config.name.clone(),
        marker,
        eyas: config.eyas.clone(),
        tokens: Tokens::open(&config.tokens_folder(), access.proxy())?,
        files_node: files.as_ref().map(|files| files.announced().node),
        copy_folders: CopyFolders::new(&sandboxes),
        sandboxes,
        folders: AtomicU64::new(0),
        kept: KeptSandboxes::default(),
        contents: Contents::new(store.clone(), &config.limits),
        store,
        storage,
        fetcher: fetcher.clone(),
        strays: strays.ok(),
        group,
        resources: TaskResources::new(config.task_limits),
        gpus: config.gpus.clone(),
        stop: stop.clone(),
        floor_bytes: config.limits.floor_bytes,
        prepared: PreparedFolders::default(),
        movers,
        deliveries: Arc::new(Semaphore::new(MAX_DELIVERIES)),
    });
    let host = SessionHost {
        config,
        access,
        runner,
        fetcher,
        peers,
        server: Arc::new(server),
        files,
        files_nodes,
    };
    serve(&host, session, found, &mut stop).await?;
    leave(&host, guardian).await;
    Ok(())
}

/// What an executor has on its node before it knows its dispatcher.
struct PreparedExecutor {
    config: ExecutorConfig,
    /// Its name in the environment of its processes, and of folders and control groups.
    marker: String,
    sandboxes: PathBuf,
    store: ObjectStore,
    /// The objects that were in the store, with their sizes in bytes.
    found: Vec<(ObjectId, u64)>,
    limits: Limits,
    guardian: Option<Guardian>,
    group: EnteringCgroup,
}

impl PreparedExecutor {
    fn prepare(config: ExecutorConfig) -> Result<Self, ExecutorError> {
        let marker = Incarnation::own().map_err(io("cannot read /proc"))?.to_string();
        // Each executor has its own folder, so that the guardian of a dead executor cannot remove
        // those of its successor.
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
            std::fs::create_dir_all(folder)
                .map_err(io(&format!("cannot make {}", folder.display())))?;
        }
        let limits = config.emulation.limits(&config.emulation_folder)?;
        let guardian = match &config.guardian {
            Some(command) => {
                let guardian = Guardian::start(command, &marker, &sandboxes);
                Some(guardian.map_err(io("cannot start the executor's guardian"))?)
            }
            None => None,
        };
        // After the guardian, which must not be a member.
        let group = enter_group(&config, &marker)?;
        Ok(PreparedExecutor { config, marker, sandboxes, store, found, limits, guardian, group })
    }
}

/// Begins to enter the control group of this executor. Waits for it if the configuration does not
/// do without.
fn enter_group(config: &ExecutorConfig, marker: &str) -> Result<EnteringCgroup, ExecutorError> {
    let is_gone = |name: &str| name.parse::<Incarnation>().is_ok_and(|executor| executor.is_gone());
    let (mode, capacity_milli) = (config.task_limits.mode, config.capacity.cpus_milli);
    let group = EnteringCgroup::begin(marker.to_owned(), is_gone, move |executor, is_gone| {
        let groups = TaskGroups::make(mode, executor, capacity_milli, is_gone);
        say_limits(mode, &groups);
        groups
    });
    if mode == LimitMode::Cgroup || config.task_limits.has_cpu_quota {
        match &group.wait().tasks {
            Err(e) => return Err(ExecutorError::Limits(e.to_string())),
            Ok(groups) if config.task_limits.has_cpu_quota && !groups.has_cpu() => {
                return Err(ExecutorError::Limits(
                    "no controller `cpu` is available to this process".into(),
                ));
            }
            Ok(_) => {}
        }
    }
    Ok(group)
}

/// Begins to serve objects to other executors.
fn serve_peers(
    bind_address: &BindAddress,
    store: &ObjectStore,
    keys: &DataKeys,
    limits: &Limits,
) -> Result<PeerServer, ExecutorError> {
    let listener = bind_address.tcp().map_err(io("cannot listen for other executors"))?;
    let links = (limits.link_in.clone(), limits.link_out.clone());
    let server =
        PeerServer::start(listener, store.clone(), keys.clone(), PeerLimits::default(), links);
    server.map_err(io("cannot serve other executors"))
}

/// The I/O coordinator's turns, if the configuration names one.
fn storage_turns(config: &ExecutorConfig) -> Result<Option<Arc<dyn StorageOrder>>, ExecutorError> {
    let Some(path) = &config.io else { return Ok(None) };
    let failed = io(&format!("cannot use the I/O coordinator's access file {}", path.display()));
    StorageTurns::start(path, &config.io_class).map(Some).map_err(failed)
}

/// The executor's node of the cluster's file system, if it has one.
fn files_node(
    config: &ExecutorConfig,
    store: &ObjectStore,
    bind_address: BindAddress,
) -> Result<Option<ExecutorFilesNode>, ExecutorError> {
    if !config.has_files {
        // Every damaged object can be fetched again.
        store.mark_irreplaceable([]);
        return Ok(None);
    }
    make_inner_private(&config.files_folder())?;
    let node = PreparedNode::open(&config.files_folder(), bind_address)?
        .with_audit_bytes(config.audit_bytes)
        .with_load(config.load)
        .with_memory(config.files_memory_bytes);
    Ok(Some(ExecutorFilesNode::new(node, store.clone(), config.limits.floor_bytes)))
}

/// Serves one session after the other, until the executor is to stop.
async fn serve(
    host: &SessionHost,
    mut session: Session,
    found: Vec<(ObjectId, u64)>,
    stop: &mut StopSignal,
) -> Result<(), ExecutorError> {
    let mut held = found;
    loop {
        match host.serve(session, &held, stop).await? {
            SessionEnd::Stopped => return Ok(()),
            SessionEnd::Lost(why) => tracing::warn!("{why}; reconnecting"),
        }
        held = host.runner.store.ids();
        session = tokio::select! {
            session = reconnect(&host.access, host.config.reconnect) => session?,
            _ = stop.wait() => return Ok(()),
        };
    }
}

/// Leaves neither processes nor sandboxes on the node.
async fn leave(host: &SessionHost, guardian: Option<Guardian>) {
    // The threads of slots still remove their spare sandboxes; each has a reference to the runner
    // until then.
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
}

/// Lets the storage read files of the cluster, through the node of this executor (`own`) if it has
/// one. Returns the nodes of the file system, of which more are learnt later.
fn provide_files(
    storage: &Storage,
    access: &Access,
    own: Option<&ExecutorFilesNode>,
    config: &ExecutorConfig,
) -> Arc<KnownFilesNodes> {
    let nodes = Arc::new(KnownFilesNodes::default());
    let near = own.map(|own| {
        let announced = own.announced();
        nodes.learn([announced.address]);
        NearNode { node: announced.node, store: Some(config.store_folder()) }
    });
    let files = cluster_files::storage(access.clone(), nodes.clone(), near);
    storage.provide_files(Arc::new(files));
    nodes
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
            "memory of tasks is limited by looking at their processes, and processors are not \
             limited; not by control groups, because {e}"
        ),
    }
}

/// Kills processes of executors that had this folder before and were killed together with their
/// guardians, and removes their copies of outputs. The names of those executors are the names of
/// folders in `sandboxes`.
fn end_leftovers(sandboxes: &Path) {
    let entries = std::fs::read_dir(sandboxes).into_iter().flatten().flatten();
    for executor in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
        if !leftovers::end(&executor) {
            tracing::warn!(
                executor,
                "cannot kill some processes of an earlier executor in this folder"
            );
        }
        copies::remove(&sandboxes.join(&executor), &executor);
    }
}
