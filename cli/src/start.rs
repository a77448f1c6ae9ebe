//! Starting processes: a dispatcher, an executor, a cluster on this machine.

use std::future::poll_fn;
use std::path::Path;
use std::process::ExitCode;
use std::task::Poll;
use std::time::{Duration, Instant};

use eyas_client::types::Resources;
use eyas_client::types::units::format_count;
use eyas_client::{Cluster, ClusterError};
use eyas_executor::StopSignal;
use eyas_node::{Limits, Overlap};
use eyas_session::{Access, AccessError};
use eyas_wire::DataMode;
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::allocation::{Allocation, memory_limit};
use crate::command::{
    DispatcherArgs, ExecutorArgs, NodeArgs, OwnedArgs, PlacementArgs, Reach, ShapeArgs, StartCommand, labels,
    named_amounts,
};
use crate::detach::Detached;
use crate::local::LocalCluster;
use crate::print::{PrintError, out, say};
use crate::{Failure, detach, show};

/// What a process prints when it can be used. Before that, it prints what the user is to know, line by line.
pub(crate) const READY: &str = "ready";
/// Between two looks for the access file.
const ACCESS_EVERY: Duration = Duration::from_millis(200);
/// A folder that others write to is removed with as many tries, and pauses between them.
const REMOVE_TRIES: usize = 100;
const REMOVE_EVERY: Duration = Duration::from_millis(10);

/// `eyas start …`
pub(crate) async fn start(which: StartCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    match which {
        StartCommand::Dispatcher(args) => dispatcher(args, reach).await?,
        StartCommand::Executor(args) => executor(args, reach).await?,
        StartCommand::Local { shape, detach } => local(&shape, detach, reach).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn local(shape: &ShapeArgs, is_detached: bool, reach: &Reach) -> Result<(), Failure> {
    let cluster = reach.cluster()?;
    detach::refuse_if_running(&cluster, reach).await?;
    let executors = format_count(shape.nodes.into(), "executor");
    if is_detached {
        let Detached { log, news } = detach::detach(&cluster, "the cluster").await?;
        detach::pass_on(&news);
        say!("{executors} up; log: {}", log.display());
        return Ok(());
    }
    let local = LocalCluster::start(cluster.folder(), &name_of(reach), shape, false).await?;
    let reach = how_to_reach(reach);
    say!("{executors} up; reach the cluster with {reach}. Stop with Ctrl-C or `eyas stop {reach}`.");
    say_ready(local.news.iter().cloned())?;
    local.wait(interrupted(false)).await;
    Ok(())
}

async fn dispatcher(args: DispatcherArgs, reach: &Reach) -> Result<(), Failure> {
    raise_descriptor_limit();
    let cluster = reach.cluster()?;
    let OwnedArgs { owned, ephemeral } = args.owned;
    if !owned {
        detach::refuse_if_running(&cluster, reach).await?;
    }
    if args.detach {
        let Detached { log, news } = detach::detach(&cluster, "the dispatcher").await?;
        detach::pass_on(&news);
        announce(&cluster.access()?, cluster.access_path());
        say!("its log is {}", log.display());
        return Ok(());
    }
    let advertise = args.advertise.or_else(|| args.listen.ip().is_unspecified().then(host_name));
    let config = eyas_dispatcher::DispatcherConfig {
        cluster: name_of(reach),
        folder: cluster.folder().to_owned(),
        listen: args.listen,
        advertise,
        scheduler: scheduler(&args.placement)?,
        is_ephemeral: ephemeral,
        data: data_mode(args.plain_data),
        heartbeat: Duration::from_micros(args.heartbeat.max(1000)),
        processes: detach::own_names(),
        check_journal: std::env::var_os("EYAS_CHECK_JOURNAL").map(Into::into),
    };
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        interrupted(owned).await;
        stop.send_replace(true);
        // The switch must stay while the dispatcher may look at it.
        std::future::pending::<()>().await;
    });
    let ended = match eyas_dispatcher::start(config, stopped).await {
        Ok(running) => {
            if !owned {
                announce(&running.access, &running.access_path);
            }
            let said = say_ready(running.unfinished.iter().map(show::unfinished));
            // The owner may be gone already; then this process ends by itself, in good order.
            if !owned {
                said?;
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

/// Prints what is to be known, and that this process can be used.
fn say_ready(mut news: impl Iterator<Item = String>) -> Result<(), PrintError> {
    news.try_for_each(|line| out!("{line}"))?;
    out!("{READY}")
}

/// Says how executors join.
fn announce(access: &Access, path: &Path) {
    say!("the dispatcher listens on {}", access.dispatcher);
    say!("start executors with `eyas start executor --access {}`", path.display());
}

async fn executor(args: ExecutorArgs, reach: &Reach) -> Result<(), Failure> {
    let OwnedArgs { owned, ephemeral } = args.owned;
    let cluster = reach.cluster()?;
    let access = wait_for_access(&cluster, if owned { Duration::ZERO } else { args.reconnect.patience() }).await?;
    let access = access.with_data(data_mode(args.node.plain_data));
    let allocation = Allocation::current().unwrap_or_default();
    let name = args.name.or_else(|| allocation.name.clone()).unwrap_or_else(host_name);
    // All nodes of an allocation are told the same; one folder is one executor's.
    let inner = (!owned && allocation != Allocation::default()).then(|| name.replace('/', "-"));
    let folder = match (args.folder, inner) {
        (Some(folder), Some(inner)) => folder.join(inner),
        (Some(folder), None) => folder,
        (None, _) => {
            std::env::temp_dir().join(format!("eyas-{}-{}-{name}", rustix::process::getuid().as_raw(), access.cluster))
        }
    };
    raise_descriptor_limit();
    let config = eyas_executor::ExecutorConfig {
        name,
        host: host_name(),
        labels: labels(&args.node.label)?,
        accept: args.node.accept.clone(),
        capacity: capacity(&args.node, args.share, &allocation)?,
        limits: Limits {
            bytes: args.node.cache,
            inodes: args.node.cache_objects,
            floor_bytes: args.node.keep_free,
            // Inodes are few where bytes are few; a thousand are left to others.
            floor_inodes: 1000,
        },
        has_files: args.node.dfs,
        eviction: args.node.eviction,
        overlap: Overlap {
            is_on: !args.node.no_overlap,
            data_intensive_bytes: args.node.data_intensive,
            data_intensive_us: args.node.data_intensive_time,
        },
        emulation: args.node.emulate,
        // Executors of one cluster on one machine share what is emulated; all of them have this access file.
        emulation_folder: cluster.folder().join("emulated"),
        folder: folder.clone(),
        io: args.node.io.as_deref().map(std::path::absolute).transpose()?,
        eyas: own_path()?.into(),
        reconnect: args.reconnect.patience(),
        guardian: Some(vec![own_path()?, "guard".into()]),
    };
    let (switch, stop) = StopSignal::new();
    tokio::spawn(async move {
        interrupted(owned).await;
        switch.press();
        // The switch must stay while the executor may look at it.
        std::future::pending::<()>().await;
    });
    let ended = eyas_executor::run(config, access, stop).await;
    if ephemeral {
        remove_folder(&folder).await;
        // Its dispatcher may have ended, and removed that folder, just before this one made its own in it again. One that
        // is not empty is still another's.
        let _ = std::fs::remove_dir(cluster.folder());
    }
    Ok(ended?)
}

/// The access file, which a dispatcher that was started at the same time may still be about to write.
async fn wait_for_access(cluster: &Cluster, patience: Duration) -> Result<Access, Failure> {
    let deadline = Instant::now() + patience;
    let mut has_said = false;
    loop {
        match cluster.access() {
            Err(ClusterError::Access(AccessError::Missing { path })) if Instant::now() < deadline => {
                if !std::mem::replace(&mut has_said, true) {
                    say!("waiting for the access file {}, which a dispatcher writes", path.display());
                }
                sleep(ACCESS_EVERY).await;
            }
            found => return Ok(found?),
        }
    }
}

/// Removes a folder, in which others may be removing theirs at this moment.
pub(crate) async fn remove_folder(folder: &Path) {
    for _ in 0..REMOVE_TRIES {
        match std::fs::remove_dir_all(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => sleep(REMOVE_EVERY).await,
            _ => return,
        }
    }
    tracing::warn!("cannot remove {}", folder.display());
}

fn data_mode(is_plain: bool) -> DataMode {
    if is_plain { DataMode::Plain } else { DataMode::Encrypted }
}

/// The path of this program, for its other processes.
pub(crate) fn own_path() -> Result<String, Failure> {
    let path = std::env::current_exe()?;
    path.into_os_string().into_string().map_err(|path| format!("the path {path:?} of eyas is not valid UTF-8").into())
}

fn scheduler(args: &PlacementArgs) -> Result<eyas_sched::Config, Failure> {
    if !(0.0..=1.0).contains(&args.utilisation) {
        return Err(format!("--utilisation is a share between 0 and 1, not {}", args.utilisation).into());
    }
    if args.window == Some(0) {
        return Err("--window is at least 1".into());
    }
    let (utilisation_threshold, window) = (args.utilisation, args.window);
    Ok(eyas_sched::Config { policy: args.policy, utilisation_threshold, window, ..eyas_sched::Config::default() })
}

/// What an executor has for tasks: what was said, else its share of what this process may use.
fn capacity(args: &NodeArgs, share: u32, allocation: &Allocation) -> Result<Resources, Failure> {
    let mut machine = eyas_executor::default_capacity();
    if let Some(processors) = allocation.processors {
        machine.cpus_milli = machine.cpus_milli.min(processors.saturating_mul(1000));
    }
    let limits = [allocation.memory, memory_limit()].into_iter().flatten();
    machine.memory_bytes = limits.fold(machine.memory_bytes, u64::min);
    let share = u64::from(share.max(1));
    Ok(Resources {
        cpus_milli: match args.slots {
            Some(slots) => slots.saturating_mul(1000),
            None => (machine.cpus_milli / 1000 / share as u32).max(1) * 1000,
        },
        memory_bytes: args.node_memory.unwrap_or(machine.memory_bytes / share),
        disk_bytes: machine.disk_bytes / share,
        named: named_amounts(&args.node_resource)?,
    })
}

pub(crate) fn name_of(reach: &Reach) -> String {
    let implied = || std::env::var("EYAS_CLUSTER").ok().filter(|name| !name.is_empty());
    reach.cluster.clone().or_else(implied).unwrap_or_else(|| "default".into())
}

/// The words that have a command reach this cluster.
pub(crate) fn how_to_reach(reach: &Reach) -> String {
    match (&reach.access, &reach.cluster) {
        (Some(access), _) => format!("--access {}", access.display()),
        (None, Some(name)) => format!("--cluster {name}"),
        (None, None) => format!("--cluster {}", name_of(reach)),
    }
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Peers keep connections open; the usual soft limit of 1,024 descriptors is too few for them.
pub(crate) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!("the limit of open files stays as it is: {e}");
    }
}

/// Returns when this process is told to end: by a signal that terminals and batch systems end jobs with, or, if `owned`,
/// by the end of standard input.
pub(crate) async fn interrupted(owned: bool) {
    let mut kinds = vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::from_raw(Signal::XCPU.as_raw())];
    // Under `nohup` the end of the terminal is none of ours.
    if !is_ignored(Signal::HUP) {
        kinds.push(SignalKind::hangup());
    }
    let Ok(mut signals) = kinds.into_iter().map(signal).collect::<Result<Vec<_>, _>>() else {
        return std::future::pending().await;
    };
    let comes = poll_fn(|context| {
        let is_ready = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    });
    let input_ends = async {
        if !owned {
            std::future::pending::<()>().await;
        }
        let mut input = tokio::io::stdin();
        let mut buffer = [0; 64];
        while matches!(input.read(&mut buffer).await, Ok(count) if count > 0) {}
    };
    tokio::select! {
        () = comes => {}
        () = input_ends => {}
    }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & 1 << (signal.as_raw() - 1) != 0
}
