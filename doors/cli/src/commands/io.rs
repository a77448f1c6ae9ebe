//! `eyas io …`: orders the reads and writes of programs on slow shared storage.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use eyas_client::types::units;
use eyas_client::{ClusterError, home};
use eyas_coordinator::agent::{self, AgentConfig, AgentError, OrderedBy};
use eyas_coordinator::ioq::{Policy, Striping};
use eyas_coordinator::{
    MAX_JUNCTION_PERCENT, MIN_FACTOR, StorageRules, parse_patience, parse_policy, parse_quantum,
    parse_stripe, serve, status,
};
use eyas_session::Access;
use tokio::net::TcpListener;

use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::interrupted;
use crate::own_process::{READY, host_name};
use crate::print::{out, say};

mod mount;
mod preload;
mod rules;
mod run;
mod show;

use mount::{IoMountArgs, mount, serve_mount};
use rules::rules;
use run::{IoRunArgs, agent_folder, run};

#[derive(Subcommand)]
pub(crate) enum IoCommand {
    /// Run a program whose reads and writes of shared storage wait for their turn
    Run(IoRunArgs),
    /// Mount a folder so that the reads and writes of all programs that use the mount wait for
    /// their turn, also of programs that `eyas io run` cannot order
    Mount(IoMountArgs),
    /// Run the coordinator, which orders the requests of all nodes that share eyas's home or have
    /// the access file
    Serve(ServeArgs),
    /// Show the requests at the coordinator; without a coordinator, those at the agent of this node
    Status {
        /// Print metrics in the format of Prometheus
        #[arg(long)]
        metrics: bool,
    },
    /// Serve a mount under the library that orders requests; `eyas io mount` starts it
    #[command(hide = true)]
    ServeMount {
        /// Folder with the content
        folder: PathBuf,
        /// The mount point
        place: PathBuf,
        /// The folder does not change
        #[arg(long = "static")]
        is_static: bool,
    },
    /// Run the agent of this user's programs on this node; `eyas io run` starts it
    #[command(hide = true)]
    Agent {
        /// Folder of the agent
        folder: PathBuf,
        /// Order only the requests of this node
        #[arg(long)]
        here: bool,
        /// Run in the background
        #[arg(long)]
        detach: bool,
    },
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0 is the last port of this coordinator, or any free
    /// port
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:0")]
    listen: SocketAddr,
    /// Host name or address at which nodes reach the coordinator [default: this host's name]
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// File of rules for storages and job classes (see docs/guides/io.md) [default: io/rules.toml
    /// in eyas's home, if it exists]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    order: OrderArgs,
}

/// Rules for storages that the file of rules does not name.
#[derive(Args)]
struct OrderArgs {
    /// Order of the requests: fifo, sjf, wsjf, wsjf-paper, mlf or sojf [default: mlf]
    #[arg(long, value_name = "POLICY", value_parser = parse_policy)]
    policy: Option<Policy>,
    /// With wsjf, wsjf-paper and sojf: a request that has waited this long goes before all that
    /// have not [default: 500ms]
    #[arg(long, value_name = "DURATION", value_parser = parse_patience)]
    patience: Option<u64>,
    /// With wsjf and wsjf-paper: a run at a smaller offset of the same file goes first, if it is
    /// larger by at most this many percent [default: 10]
    #[arg(
        long,
        value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(0..=i64::from(MAX_JUNCTION_PERCENT))
    )]
    junction: Option<u32>,
    /// With mlf: number of bytes that a request may have to be served in its first round [default:
    /// 1MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_quantum)]
    quantum: Option<u64>,
    /// With mlf: growth of the quantum with each further round [default: 2]
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(i64::from(MIN_FACTOR)..)
    )]
    factor: Option<u32>,
    /// Join contiguous requests into runs of up to this size [default: 16MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_run: Option<u64>,
    /// Keep a storage idle for up to this long, for a request that continues where the last
    /// request ended [default: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    window: Option<u64>,
    /// Number of simultaneous requests: 1 for one disk, more for an object store [default:
    /// measured]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroU32>,
    /// Grant a request this long after the predicted end of the request before it, instead of
    /// waiting for the actual end
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    predict: Option<u64>,
    /// Files are striped over this many servers, in stripes of this size: each server gets a queue
    /// of its own
    #[arg(long, value_name = "COUNT,SIZE", value_parser = parse_stripe)]
    stripe: Option<Striping>,
}

impl From<OrderArgs> for StorageRules {
    fn from(options: OrderArgs) -> Self {
        StorageRules {
            policy: options.policy,
            patience: options.patience,
            junction: options.junction,
            quantum: options.quantum,
            factor: options.factor,
            max_run: options.max_run,
            window: options.window,
            concurrency: options.concurrency,
            predict: options.predict,
            stripe: options.stripe,
            ..StorageRules::default()
        }
    }
}

pub(crate) async fn io(what: IoCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    match what {
        IoCommand::Run(args) => run(&args, &access_path(global)?),
        IoCommand::Mount(args) => mount(&args, &access_path(global)?),
        IoCommand::ServeMount { folder, place, is_static } => {
            serve_mount(&folder, &place, is_static).await
        }
        IoCommand::Serve(args) => run_coordinator(args, access_path(global)?).await,
        IoCommand::Status { metrics } => {
            let path = access_path(global)?;
            let (status, configs) = match path.exists() {
                true => status(&Access::load(&path)?).await?,
                false => agent::status(&agent_folder(None)).map_err(|e| {
                    format!(
                        "no agent runs on this node ({e}): start a program with `eyas io run`, or \
                         a coordinator with `eyas io serve`"
                    )
                })?,
            };
            show::status(&status, &configs, metrics, global.json)?;
            Ok(ExitCode::SUCCESS)
        }
        IoCommand::Agent { detach: true, .. } => {
            run::detach()?;
            Ok(ExitCode::SUCCESS)
        }
        IoCommand::Agent { folder, here, detach: false } => {
            eyas_executor::raise_descriptor_limit();
            let order = match here {
                true => OrderedBy::Agent(rules(None)?),
                false => OrderedBy::Coordinator {
                    access: Access::load(&access_path(global)?)?,
                    keys: home()?.join("io"),
                },
            };
            match agent::run(&AgentConfig { folder, order, idle: agent::IDLE }) {
                // Another agent was started at the same time.
                Ok(()) | Err(AgentError::RunsAlready(_)) => Ok(ExitCode::SUCCESS),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Path of the coordinator's access file: that of `--access`, else one in eyas's home, which nodes
/// share.
fn access_path(global: &GlobalArgs) -> Result<PathBuf, ClusterError> {
    match &global.access {
        Some(path) => Ok(path.clone()),
        None => Ok(home()?.join("io").join("access.toml")),
    }
}

/// Runs the coordinator until an interrupt. A coordinator that finds its old access file uses the
/// same port and secret again, so that agents can reconnect.
async fn run_coordinator(args: ServeArgs, path: PathBuf) -> Result<ExitCode, CliError> {
    let rules = rules(args.rules)?.overruled(args.order.into())?;
    let before = path.exists().then(|| Access::load(&path)).transpose()?;
    let port_before =
        before.as_ref().and_then(|access| access.dispatcher.rsplit_once(':')?.1.parse().ok());
    let mut listen = args.listen;
    if let (0, Some(port)) = (listen.port(), port_before) {
        listen.set_port(port);
    }
    let listener =
        TcpListener::bind(listen).await.map_err(|e| format!("cannot listen on {listen}: {e}"))?;
    let local = listener.local_addr()?;
    let host = args.advertise.unwrap_or_else(|| match local.ip().is_unspecified() {
        true => host_name(),
        false => local.ip().to_string(),
    });
    let address = format!("{host}:{}", local.port());
    let access = match before {
        Some(access) => access.moved_to("io", &address),
        None => Access::create("io", &address),
    };
    access.save(&path)?;
    say!("the coordinator listens on {address}; its access file is {}", path.display());
    out!("{READY}")?;
    tokio::select! {
        () = serve(listener, &access, rules) => {}
        () = interrupted(false) => {}
    }
    Ok(ExitCode::SUCCESS)
}
