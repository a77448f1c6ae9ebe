//! Starting processes: a dispatcher, an executor, a cluster on this machine.

use std::future::poll_fn;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use eyas_client::types::Resources;
use eyas_client::types::units::format_count;
use eyas_executor::Stop;
use eyas_node::{Limits, Overlap};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::command::{
    DispatcherArgs, ExecutorArgs, NodeArgs, OwnedArgs, PlacementArgs, Reach, StartCommand, labels, named_amounts,
};
use crate::local::LocalCluster;
use crate::print::{out, say};
use crate::{Failure, show};

/// What a process prints when it can be used. Before that, it prints what the user is to know, line by line.
pub(crate) const READY: &str = "ready";

/// `eyas start …`
pub(crate) async fn start(which: StartCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    match which {
        StartCommand::Dispatcher(args) => dispatcher(args, reach).await?,
        StartCommand::Executor(args) => executor(args, reach).await?,
        StartCommand::Local { shape, detach: true } => LocalCluster::detach(&reach.cluster()?, &shape).await?,
        StartCommand::Local { shape, detach: false } => {
            let cluster = reach.cluster()?;
            let local = LocalCluster::start(cluster.folder(), &name_of(reach), &shape, false).await?;
            say!(
                "{} up; reach the cluster with {}. Stop with Ctrl-C or `eyas stop`.",
                format_count(shape.nodes.into(), "executor"),
                how_to_reach(reach)
            );
            local.news.iter().try_for_each(|line| out!("{line}"))?;
            out!("{READY}")?;
            local.wait(interrupted(false)).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn dispatcher(args: DispatcherArgs, reach: &Reach) -> Result<(), Failure> {
    raise_descriptor_limit();
    let cluster = reach.cluster()?;
    let advertise = args.advertise.or_else(|| args.listen.ip().is_unspecified().then(host_name));
    let config = eyas_dispatcher::Config {
        cluster: name_of(reach),
        folder: cluster.folder().to_owned(),
        listen: args.listen,
        advertise,
        scheduler: scheduler(&args.placement)?,
        is_ephemeral: args.owned.ephemeral,
        heartbeat: Duration::from_micros(args.heartbeat.max(1000)),
    };
    let (stop, stopped) = watch::channel(false);
    let running = eyas_dispatcher::start(config, stopped).await?;
    if !args.owned.owned {
        say!("the dispatcher listens on {}", running.access.dispatcher);
        say!("start executors with `eyas start executor --access {}`", running.access_path.display());
    }
    running.unfinished.iter().try_for_each(|job| out!("{}", show::unfinished(job)))?;
    out!("{READY}")?;
    tokio::spawn(async move {
        interrupted(args.owned.owned).await;
        stop.send_replace(true);
    });
    let ended = running.wait().await;
    if args.owned.ephemeral {
        let _ = std::fs::remove_dir_all(cluster.folder());
    }
    Ok(ended?)
}

async fn executor(args: ExecutorArgs, reach: &Reach) -> Result<(), Failure> {
    let cluster = reach.cluster()?;
    let access = cluster.access()?;
    let name = args.name.unwrap_or_else(host_name);
    let folder = match args.folder {
        Some(folder) => folder,
        None => {
            std::env::temp_dir().join(format!("eyas-{}-{}-{name}", rustix::process::getuid().as_raw(), access.cluster))
        }
    };
    raise_descriptor_limit();
    let config = eyas_executor::Config {
        name,
        host: host_name(),
        labels: labels(&args.node.label)?,
        accept: args.node.accept.clone(),
        capacity: capacity(&args.node, args.share)?,
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
        access: std::path::absolute(cluster.access_path())?,
        reconnect: args.reconnect.patience(),
        guardian: Some(vec![own_path()?, "guard".into()]),
    };
    let (switch, stop) = Stop::new();
    let OwnedArgs { owned, ephemeral } = args.owned;
    tokio::spawn(async move {
        interrupted(owned).await;
        switch.press();
        // The switch must stay while the executor may look at it.
        std::future::pending::<()>().await;
    });
    let ended = eyas_executor::run(config, access, stop).await;
    if ephemeral {
        let _ = std::fs::remove_dir_all(folder);
    }
    Ok(ended?)
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

fn capacity(args: &NodeArgs, share: u32) -> Result<Resources, Failure> {
    let machine = eyas_executor::default_capacity();
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

fn how_to_reach(reach: &Reach) -> String {
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
