//! `eyas start …`: starts a dispatcher, an executor, or a local cluster.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use eyas_client::types::matching::Labels;
use eyas_client::types::units::{self, format_bytes, format_count};
use eyas_client::types::{GPU, Resources};
use eyas_client::{Cluster, ClusterError};
use eyas_executor::{Gpus, LimitOptions, LoadOptions, PoolNode, StopSignal, usable_cores};
use eyas_node::{Overlap, StoreLimits};
use eyas_session::private::{PrivateFolder, temporary_folder};
use eyas_session::{Access, AccessError, Proxy, own_address, raise_descriptor_limit};
use eyas_store::stored_objects;
use eyas_web::{WebPlace, WebServer};
use eyas_wire::DataMode;
use tokio::io::AsyncReadExt;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::allocation::{Allocation, memory_limit};
use crate::commands::dfs::own_by_map;
use crate::detach::BackgroundProcess;
use crate::error::{CliError, ValueError};
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::{Signals, interrupted, interrupted_by};
use crate::local::{DEFAULT_CACHE_BYTES, LocalCluster, LocalFolders};
use crate::network_args::NetworkArgs;
use crate::node_args::{NodeArgs, PlacementArgs, ShapeArgs, labels, named_amounts};
use crate::own_process::{EMULATED, READY, host_name, own_path, refuse_used, remove_folder};
use crate::print::{PrintError, out, say};
use crate::{detach, shared_disk, show};

/// Time between two checks for the access file.
const ACCESS_EVERY: Duration = Duration::from_millis(200);

#[derive(Subcommand)]
pub(crate) enum StartCommand {
    /// Start a dispatcher, in the foreground unless --detach is given
    Dispatcher(DispatcherArgs),
    /// Start an executor, in the foreground
    Executor(ExecutorArgs),
    /// Start a dispatcher and executors on this machine
    Local {
        #[command(flatten)]
        shape: ShapeArgs,
        /// Also serve the live page and the HTTP API on this machine, as `eyas web` does, and
        /// print the URL
        #[arg(long)]
        web: bool,
        /// Return once the cluster is ready, and leave it running in the background
        #[arg(long, conflicts_with = "owned")]
        detach: bool,
        #[command(flatten)]
        owned: OwnedArgs,
    },
}

#[derive(Args)]
pub(crate) struct DispatcherArgs {
    /// Address and port to listen on; port 0 is the last port of this cluster, or any free port
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:0")]
    listen: SocketAddr,
    /// Host name or address at which executors and clients reach the dispatcher [default: this
    /// host's name]
    #[arg(long, value_name = "HOST", conflicts_with = "interface")]
    advertise: Option<String>,
    #[command(flatten)]
    network: NetworkArgs,
    /// Send data between nodes and clients unencrypted, in a closed network; all executors must
    /// also use this option
    #[arg(long)]
    plain_data: bool,
    /// Interval at which executors report; an executor that misses several reports counts as lost
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "3s",
        value_parser = units::parse_duration_us
    )]
    heartbeat: u64,
    /// Return once the dispatcher is ready, and leave it running in the background
    #[arg(long, conflicts_with = "owned")]
    detach: bool,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    owned: OwnedArgs,
}

#[derive(Args)]
pub(crate) struct ExecutorArgs {
    /// Name of the executor [default: the name of the node in a Slurm allocation, else of the
    /// host]
    #[arg(long)]
    name: Option<String>,
    /// Folder for store and sandboxes, on a disk of the node. In the allocation of a batch system,
    /// each executor uses a subfolder with its name [default: a folder in the temporary folder]
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    reconnect: ReconnectArgs,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// The request of a pool for which this executor is started
    #[arg(long, hide = true, value_name = "POOL/NUMBER", value_parser = parse_request)]
    request: Option<(String, u64)>,
    /// Time after which the batch system ends this node
    #[arg(long, hide = true, requires = "request", value_parser = units::parse_duration_us)]
    time_limit: Option<u64>,
    /// Number of executors that share the machine: each offers this part of the resources that no
    /// option sets
    #[arg(long, hide = true, default_value_t = 1)]
    share: u32,
    /// Number of this executor among those that share the machine, from 0
    #[arg(long, hide = true, default_value_t = 0)]
    part: u32,
    /// Connect only when standard input has its first byte: by then the dispatcher has written the
    /// access file
    #[arg(long, hide = true, requires_all = ["owned", "folder"])]
    wait_for_input: bool,
    #[command(flatten)]
    owned: OwnedArgs,
}

/// Options of processes that end with the process that has started them.
#[derive(Args, Clone, Copy)]
pub(crate) struct OwnedArgs {
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    owned: bool,
    /// Remove the process's folder at the end
    #[arg(long, hide = true, requires = "owned")]
    ephemeral: bool,
}

pub(crate) async fn start(
    command: StartCommand,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    match command {
        StartCommand::Dispatcher(args) => dispatcher(args, global).await?,
        StartCommand::Executor(args) => executor(args, global).await?,
        StartCommand::Local { shape, web, detach, owned } => {
            local(&shape, web, detach, owned, global).await?
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn local(
    shape: &ShapeArgs,
    has_web: bool,
    is_detached: bool,
    owned: OwnedArgs,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    let cluster = global.cluster()?.startable()?;
    detach::refuse_if_running(&cluster, global).await?;
    let executors = format_count(shape.nodes.into(), "executor");
    let stores = cluster.stores_at_start(shape.node.dfs)?;
    refuse_to_lose(&cluster, &stores, shape.nodes)?;
    shared_disk::warn(&stores, shared_disk::SET_HOME);
    if is_detached {
        let BackgroundProcess { log, mut messages } =
            detach::detach(cluster.log_path(), "the cluster").await?;
        let url = if has_web { messages.pop() } else { None };
        detach::print_messages(&messages);
        say!("{executors} ready; log: {}", log.display());
        return Ok(url.iter().try_for_each(|url| out!("{url}"))?);
    }
    if owned.ephemeral {
        refuse_used(cluster.folder(), cluster.access_path())?;
    }
    // The folder of a cluster may not exist yet.
    PrivateFolder::make(cluster.folder())?;
    let ephemeral = owned.ephemeral;
    let folders = LocalFolders {
        state: cluster.folder().to_owned(),
        stores,
        ephemeral,
        keeps_state: false,
        is_reachable: false,
    };
    // An address that cannot be used is told before the cluster starts.
    let web = match has_web {
        true => Some(WebServer::listen(cluster, WebPlace::default())?),
        false => None,
    };
    let (local, _) = LocalCluster::start(folders, &global.cluster_name(), shape).await?;
    if web.is_some() {
        // Each open page has a connection. The processes of the cluster, and so their tasks, have
        // the limit of the caller: they run already.
        raise_descriptor_limit();
    }
    let option = global.cluster_option();
    say!(
        "{executors} ready; use the cluster with {option}, stop it with Ctrl-C or `eyas stop \
         {option}`"
    );
    // The URL is the last message before the cluster counts as ready, also in the background.
    let url = web.iter().map(|web| format!("eyas web: {}", web.url()));
    say_ready(local.messages.iter().cloned().chain(url))?;
    // Dropped with this function, the set ends the server.
    let mut servers = JoinSet::new();
    web.into_iter().for_each(|web| drop(servers.spawn(web.serve())));
    local.wait(interrupted(owned.owned)).await;
    Ok(())
}

/// Refuses a start with fewer executors than before if only those that are missing have an output
/// that a job keeps.
fn refuse_to_lose(cluster: &Cluster, stores: &Path, nodes: u32) -> Result<(), CliError> {
    let (here, missing): (Vec<_>, Vec<_>) =
        Cluster::executors_in(stores).into_iter().partition(|it| *it <= nodes);
    if missing.is_empty() {
        return Ok(());
    }
    let objects = |number: &u32| stored_objects(&stores.join(format!("n{number}/store")));
    let mut kept = eyas_dispatcher::kept_objects(&cluster.journal_path())?;
    here.iter().flat_map(objects).for_each(|object| _ = kept.remove(&object));
    let Some(last) =
        missing.iter().rfind(|number| objects(number).iter().any(|object| kept.contains(object)))
    else {
        return Ok(());
    };
    Err(format!(
        "only executor n{last} of an earlier start has some outputs that jobs keep: start the \
         cluster with --nodes {last}. To start it with fewer, release the outputs first (`eyas \
         job release JOB`), or remove the folder {}; then the tasks run again",
        stores.join(format!("n{last}")).display()
    )
    .into())
}

async fn dispatcher(args: DispatcherArgs, global: &GlobalArgs) -> Result<(), CliError> {
    eyas_executor::raise_descriptor_limit();
    let cluster = global.cluster()?.startable()?;
    let OwnedArgs { owned, ephemeral } = args.owned;
    if !owned {
        detach::refuse_if_running(&cluster, global).await?;
    }
    let own = args.network.address()?.map(|address| address.to_string());
    let advertise = match own.or(args.advertise) {
        Some(name) => Some(name).inspect(|name| warn_if_unknown(name)),
        None if args.listen.ip().is_unspecified() => Some(name_for_others(host_name())),
        None => None,
    };
    args.placement.check()?;
    if args.detach {
        let BackgroundProcess { log, messages } =
            detach::detach(cluster.log_path(), "the dispatcher").await?;
        detach::print_messages(&messages);
        announce(&cluster.access()?, cluster.access_path());
        say!("its log is {}", log.display());
        return Ok(());
    }
    if ephemeral {
        refuse_used(cluster.folder(), cluster.access_path())?;
    }
    let config = eyas_dispatcher::DispatcherConfig {
        cluster: global.cluster_name(),
        folder: cluster.folder().to_owned(),
        listen: args.listen,
        ports: args.network.ports,
        advertise,
        scheduler: scheduler(&args.placement),
        is_ephemeral: ephemeral,
        data: data_mode(args.plain_data),
        heartbeat: Duration::from_micros(args.heartbeat.max(1000)),
        processes: detach::own_names(),
        eyas: own_path()?.into(),
        check_journal: std::env::var_os("EYAS_CHECK_JOURNAL").map(Into::into),
    };
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        interrupted(owned).await;
        stop.send_replace(true);
        // The sender must live until the dispatcher ends.
        std::future::pending::<()>().await;
    });
    let ended = match eyas_dispatcher::start(config, stopped).await {
        Ok(running) => {
            if !owned {
                announce(&running.access, &running.access_path);
            }
            let printed = say_ready(running.unfinished.iter().map(show::unfinished));
            // If the owner has already ended, this process ends by itself.
            if !owned {
                printed?;
            }
            running.wait().await
        }
        Err(e) => Err(e),
    };
    if ephemeral {
        remove_folder(cluster.folder()).await;
    }
    Ok(ended?)
}

/// The name of this host, or an address if no name service knows the name. Other hosts ask the same
/// services.
fn name_for_others(host: String) -> String {
    let Err(error) = resolve(&host) else { return host };
    let address = own_address();
    say!(
        "the name of this host, `{host}`, does not resolve ({error}): executors and clients reach \
         the dispatcher at {address}. `--advertise NAME` names another address"
    );
    address.to_string()
}

fn warn_if_unknown(name: &str) {
    if let Err(error) = resolve(name) {
        say!(
            "`{name}` does not resolve on this host ({error}): where it does not resolve either, \
             executors and clients cannot reach the dispatcher. `--advertise ADDRESS` with the \
             address of this host avoids that"
        );
    }
}

fn resolve(host: &str) -> std::io::Result<()> {
    (host, 0).to_socket_addrs().map(drop)
}

/// Prints messages for the user, and then the line that says that this process is ready.
fn say_ready(mut messages: impl Iterator<Item = String>) -> Result<(), PrintError> {
    messages.try_for_each(|line| out!("{line}"))?;
    out!("{READY}")
}

/// Prints how executors join the cluster.
fn announce(access: &Access, path: &Path) {
    say!("the dispatcher listens on {}", access.dispatcher);
    say!("start executors with `eyas start executor --access {}`", path.display());
}

async fn executor(args: ExecutorArgs, global: &GlobalArgs) -> Result<(), CliError> {
    let OwnedArgs { owned, ephemeral } = args.owned;
    let cluster = global.cluster()?;
    // Meanwhile the dispatcher may start.
    let gpus = tokio::spawn(Gpus::find());
    let access = match args.wait_for_input {
        true => None,
        false => {
            let patience = if owned { Duration::ZERO } else { args.reconnect.patience() };
            Some(wait_for_access(&cluster, patience).await?)
        }
    };
    let allocation = Allocation::current().unwrap_or_default();
    let name = args.name.clone().or_else(|| allocation.name.clone());
    let name = name.or_else(|| of_request(&args)).unwrap_or_else(host_name);
    // What a node of a pool has stored is of no use once the node was given back.
    let is_removed = ephemeral || args.request.is_some() && args.folder.is_none();
    let is_in_allocation = !owned && allocation != Allocation::default();
    let cluster_name = access.as_ref().map_or("", |access| &access.cluster);
    let folder = executor_folder(&args, &name, is_in_allocation, cluster_name);
    if ephemeral {
        refuse_used(&folder, global.cluster()?.access_path())?;
    }
    let proxy = access.as_ref().and_then(Access::proxy);
    refuse_files_behind(proxy.as_ref(), &args.node)?;
    let users = args.node.users.as_deref().map(std::path::absolute).transpose()?;
    if let (Some(map), Some(access)) = (&users, &access) {
        own_by_map(map, access)?;
    }
    eyas_executor::raise_descriptor_limit();
    check_store_size(&args.node, &folder);
    if !owned {
        shared_disk::warn(&folder, shared_disk::NAME_FOLDER);
    }
    let data = data_mode(args.node.plain_data);
    let gpus = gpus.await.unwrap_or_default();
    let config = executor_config(args, name, folder.clone(), (&allocation, gpus), proxy, &cluster)?;
    let (switch, stop) = StopSignal::new();
    let (give_access, given) = oneshot::channel();
    let of_cluster = global.cluster()?;
    // From here on, a signal leaves no folder behind.
    let mut signals = Signals::listen();
    tokio::spawn(async move {
        let access = tokio::select! {
            access = access_now(access, &of_cluster, users.as_deref()) => access,
            () = signals.next() => None,
        };
        if let Some(access) = access {
            // The executor may have failed to prepare its folder.
            let _ = give_access.send(access.with_data(data));
            interrupted_by(signals, owned).await;
        }
        switch.press();
        // The switch must live until the executor ends.
        std::future::pending::<()>().await;
    });
    let ended = eyas_executor::run(config, given, stop).await;
    if is_removed {
        remove_folder(&folder).await;
    }
    if ephemeral {
        // The dispatcher may have removed the cluster's folder just before this executor created
        // its own folder in it. A folder that is not empty still belongs to another executor, and
        // is not removed.
        let _ = std::fs::remove_dir(cluster.folder());
    }
    Ok(ended?)
}

fn refuse_files_behind(proxy: Option<&Proxy>, node: &NodeArgs) -> Result<(), CliError> {
    if proxy.is_some() && node.dfs {
        return Err("an executor behind a proxy cannot keep files of the cluster (--dfs), \
                    because other nodes cannot reach it directly: start it without --dfs"
            .into());
    }
    Ok(())
}

/// The name of an executor that a pool has requested.
fn of_request(args: &ExecutorArgs) -> Option<String> {
    args.request.as_ref().map(|(pool, number)| format!("{pool}-{number}"))
}

fn executor_folder(
    args: &ExecutorArgs,
    name: &str,
    is_in_allocation: bool,
    cluster: &str,
) -> PathBuf {
    let own = name.replace('/', "-");
    match &args.folder {
        // All nodes of an allocation get the same command line, but each executor needs a folder of
        // its own.
        Some(folder) if is_in_allocation => folder.join(own),
        Some(folder) => folder.clone(),
        None => {
            let user = rustix::process::getuid().as_raw();
            let request = of_request(args).map(|request| format!("-{request}")).unwrap_or_default();
            temporary_folder().join(format!("eyas-{user}-{cluster}{request}-{own}"))
        }
    }
}

fn executor_config(
    args: ExecutorArgs,
    name: String,
    folder: PathBuf,
    (allocation, gpus): (&Allocation, Gpus),
    proxy: Option<Proxy>,
    cluster: &Cluster,
) -> Result<eyas_executor::ExecutorConfig, CliError> {
    let (part, share) = (args.part as usize, args.share as usize);
    let (capacity, gpus) = capacity(&args.node, args.share, allocation, gpus.part(part, share))?;
    let mut labels = with_site(labels(&args.node.label)?, proxy);
    gpus.add_labels(&mut labels);
    Ok(eyas_executor::ExecutorConfig {
        name,
        host: host_name(),
        labels,
        accept: args.node.accept.clone(),
        capacity,
        origin: args.request.map(|(pool, request)| PoolNode {
            pool,
            request,
            until: until(args.time_limit),
        }),
        gpus,
        cores: if args.node.pin {
            eyas_executor::part(&usable_cores(), part, share)
        } else {
            Vec::new()
        },
        task_limits: LimitOptions { mode: args.node.limits, has_cpu_quota: args.node.cpu_quota },
        limits: StoreLimits {
            bytes: args.node.cache.unwrap_or(DEFAULT_CACHE_BYTES),
            inodes: args.node.cache_objects,
            floor_bytes: args.node.keep_free,
            // The bound by bytes mostly bounds inodes as well; 1,000 inodes are left to other
            // programs.
            floor_inodes: 1000,
        },
        address: args.network.address()?,
        ports: args.network.ports,
        has_files: args.node.dfs,
        audit_bytes: args.node.audit_bytes,
        files_memory_bytes: args.node.dfs_memory,
        load: LoadOptions { period: args.node.load_period, weight: args.node.load_weight },
        eviction: args.node.eviction,
        overlap: Overlap {
            is_on: !args.node.no_overlap,
            data_intensive_bytes: args.node.data_intensive,
            data_intensive_us: args.node.data_intensive_time,
        },
        emulation: args.node.emulate,
        // Executors of one cluster on one machine share the emulated limits; all of them have this
        // access file.
        emulation_folder: cluster.folder().join(EMULATED),
        folder,
        io: args.node.io.as_deref().map(std::path::absolute).transpose()?,
        io_class: args.node.io_class,
        eyas: own_path()?.into(),
        reconnect: args.reconnect.patience(),
        guardian: Some(vec![own_path()?, "guard".into()]),
    })
}

/// The access to the cluster, once it is there; nothing if it cannot be used, which is said.
async fn access_now(
    known: Option<Access>,
    cluster: &Cluster,
    users: Option<&Path>,
) -> Option<Access> {
    let access = match known {
        Some(access) => access,
        None => access_after_input(cluster).await?,
    };
    // What the map lacks for a key that has arrived just now is said, as for an access file that
    // cannot be read.
    let owned = users.map_or(Ok(()), |map| own_by_map(map, &access).map(drop));
    owned.inspect_err(|error| say!("{error}")).ok()?;
    Some(access)
}

/// The labels of an executor. Executors behind a proxy are a site of their own unless their user
/// says otherwise: one of them reads a file from persistent storage and passes it on to the others,
/// and the proxy carries only what persistent storage does not have.
fn with_site(mut labels: Labels, proxy: Option<Proxy>) -> Labels {
    if let Some(proxy) = proxy {
        labels.entry("site".to_owned()).or_insert_with(|| format!("proxy-{}", proxy.outside));
    }
    labels
}

/// Reads the access file once standard input has its first byte. `None` if standard input ends
/// instead, because the dispatcher did not start, or if the file cannot be read, which is said.
async fn access_after_input(cluster: &Cluster) -> Option<Access> {
    tokio::io::stdin().read_u8().await.ok()?;
    cluster.access().inspect_err(|error| say!("{error}")).ok()
}

/// Reads the access file. Waits for the file, because a dispatcher that was started at the same
/// time may not have written it yet.
async fn wait_for_access(cluster: &Cluster, patience: Duration) -> Result<Access, CliError> {
    let deadline = Instant::now() + patience;
    let mut has_said = false;
    loop {
        match cluster.access() {
            Err(ClusterError::Access(AccessError::Missing { path }))
                if Instant::now() < deadline =>
            {
                if !std::mem::replace(&mut has_said, true) {
                    say!(
                        "waiting for the access file {}, which the dispatcher writes when it \
                         starts",
                        path.display()
                    );
                }
                sleep(ACCESS_EVERY).await;
            }
            found => return Ok(found?),
        }
    }
}

/// Warns of a store that cannot grow to its size, or that cannot hold any object. It is not an
/// error, because tasks without inputs still run.
fn check_store_size(args: &NodeArgs, folder: &Path) {
    let Some(disk) = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok()) else {
        return;
    };
    let disk_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
    let Some(most_bytes) = disk_bytes.checked_sub(args.keep_free).filter(|bytes| *bytes > 0) else {
        let less =
            if disk_bytes > 1_000_000_000 { "1GB".into() } else { format!("{}B", disk_bytes / 10) };
        say!(
            "--keep-free {} leaves no room for a store: the disk of {} has {} in all. Keep less \
             of it free, such as --keep-free {less}, or use a folder on another disk with --folder",
            format_bytes(args.keep_free),
            folder.display(),
            format_bytes(disk_bytes)
        );
        return;
    };
    if let Some(cache) = args.cache.filter(|bytes| *bytes > most_bytes) {
        say!(
            "--cache {} is more than the disk of {} can hold: the disk has {} in all, and \
             --keep-free keeps {} of it free. The store grows to {} at most",
            format_bytes(cache),
            folder.display(),
            format_bytes(disk_bytes),
            format_bytes(args.keep_free),
            format_bytes(most_bytes)
        );
    }
}

/// `POOL/NUMBER`: a request of a pool.
fn parse_request(text: &str) -> Result<(String, u64), ValueError> {
    let parsed = text
        .split_once('/')
        .and_then(|(pool, number)| Some((pool.to_owned(), number.parse().ok()?)));
    parsed.ok_or_else(|| ValueError::Request(text.into()))
}

/// When the batch system ends this node: it says so itself, or else the time limit begins now.
fn until(limit_us: Option<u64>) -> Option<Instant> {
    let now = Instant::now();
    now.checked_add(Duration::from_micros(limit_us?))
}

fn data_mode(is_plain: bool) -> DataMode {
    if is_plain { DataMode::Plain } else { DataMode::Encrypted }
}

fn scheduler(args: &PlacementArgs) -> eyas_sched::Config {
    eyas_sched::Config {
        policy: args.policy,
        utilisation_threshold: args.utilisation.unwrap_or(0.9),
        min_cache_hit: args.min_cache_hit.unwrap_or(0.0),
        window: args.window,
        patience: args.patience,
        ..eyas_sched::Config::default()
    }
}

/// The resources that an executor offers to tasks: the values of options, else its share of the
/// resources that this process may use. Also returns the GPUs among them.
fn capacity(
    args: &NodeArgs,
    share: u32,
    allocation: &Allocation,
    gpus: Gpus,
) -> Result<(Resources, Gpus), CliError> {
    let mut machine = eyas_executor::default_capacity();
    if let Some(processors) = allocation.processors {
        machine.cpus_milli = machine.cpus_milli.min(processors.saturating_mul(1000));
    }
    let limits = [allocation.memory_bytes, memory_limit()].into_iter().flatten();
    machine.memory_bytes = limits.fold(machine.memory_bytes, u64::min);
    let share = u64::from(share.max(1));
    let mut named = named_amounts(&args.node_resource)?;
    let gpus = match named.iter().find(|(name, _)| name == GPU) {
        Some((_, count)) => gpus.limited(*count),
        None => {
            named.extend(Some((GPU.to_owned(), gpus.count())).filter(|(_, count)| *count > 0));
            named.sort();
            gpus
        }
    };
    let resources = Resources {
        cpus_milli: match args.slots {
            Some(slots) => slots.saturating_mul(1000),
            None => (machine.cpus_milli / 1000 / share as u32).max(1) * 1000,
        },
        memory_bytes: args
            .node_memory
            .unwrap_or((machine.memory_bytes / share).saturating_sub(args.dfs_memory)),
        disk_bytes: machine.disk_bytes / share,
        named,
    };
    Ok((resources, gpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_whose_name_is_unknown_is_reached_at_an_address() {
        // No name service asks for a part of a name that has over 63 letters.
        assert!(name_for_others("x".repeat(64)).parse::<std::net::IpAddr>().is_ok());
        assert_eq!(name_for_others("localhost".into()), "localhost");
    }
}
