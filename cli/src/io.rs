//! `eyas io …`: programs share slow storage without trampling each other.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use eyas_client::types::units;
use eyas_client::{ClusterError, home};
use eyas_coordinator::agent::{self, AgentError, Deciding, Setup};
use eyas_coordinator::ioq::Policy;
use eyas_coordinator::{Rules, Treatment, parse_policy, serve, status};
use eyas_session::Access;
use tokio::net::TcpListener;

use crate::Failure;
use crate::command::Reach;
use crate::io::run::{RunArgs, agent_folder, run};
use crate::print::{out, say};
use crate::start::{READY, host_name, interrupted, raise_descriptor_limit};

mod run;
mod show;

#[derive(Subcommand)]
pub(crate) enum IoCommand {
    /// Run a program whose reads and writes of shared storage wait for their turn
    Run(RunArgs),
    /// Be the coordinator of storages: programs on all nodes that share eyas's home, or have its access file, wait for
    /// their turn there
    Serve(ServeArgs),
    /// Say how requests stand: at the coordinator, or at this node's agent if there is none
    Status {
        /// As Prometheus reads it
        #[arg(long)]
        metrics: bool,
    },
    /// Be the agent that this user's programs on this node ask; `run` starts it
    #[command(hide = true)]
    Agent {
        /// Its folder
        folder: PathBuf,
        /// By itself, for this node alone
        #[arg(long)]
        here: bool,
        /// In the background
        #[arg(long)]
        detach: bool,
    },
}

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// Listen there
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:0")]
    listen: SocketAddr,
    /// The name or address by which nodes reach this one [default: the host's name]
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Treat storages and job classes as this file says (see docs/guides/io.md) [default: rules.toml in the home's folder `io`, if it is
    /// there]
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    #[command(flatten)]
    order: OrderArgs,
}

/// How storages are treated of which the rules say nothing else.
#[derive(Args)]
struct OrderArgs {
    /// Whose turn it is: fifo, sjf, wsjf, wsjf-paper, mlf, sojf [default: mlf]
    #[arg(long, value_name = "POLICY", value_parser = parse_policy)]
    policy: Option<Policy>,
    /// Contiguous requests go as one up to this size [default: 16MiB]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    max_run: Option<u64>,
    /// Hold an idle storage for so long for what would go on where the last request ended [default: 1ms]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    window: Option<u64>,
    /// Let so many go at a time: 1 for one disk, many for an object store [default: as many as show to be good]
    #[arg(long, value_name = "N")]
    concurrency: Option<NonZeroU32>,
    /// Let the next go so much after the one before is predicted to be done, instead of when it says so
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    predict: Option<u64>,
}

impl OrderArgs {
    /// What is said here goes before what the rules say of all storages.
    fn overrule(self, treatment: Treatment) -> Treatment {
        Treatment {
            policy: self.policy.or(treatment.policy),
            max_run: self.max_run.or(treatment.max_run),
            window: self.window.or(treatment.window),
            concurrency: self.concurrency.or(treatment.concurrency),
            predict: self.predict.or(treatment.predict),
            ..treatment
        }
    }
}

/// The rules in that file; without one, those in eyas's home, or none.
fn rules(named: Option<PathBuf>) -> Result<Rules, Failure> {
    let usual = || home().ok().map(|home| home.join("io").join("rules.toml")).filter(|path| path.exists());
    Ok(named.or_else(usual).map(|path| Rules::load(&path)).transpose()?.unwrap_or_default())
}

/// `eyas io …`
pub(crate) async fn io(what: IoCommand, reach: &Reach) -> Result<ExitCode, Failure> {
    match what {
        IoCommand::Run(args) => run(&args, &access_path(reach)?),
        IoCommand::Serve(args) => be_coordinator(args, access_path(reach)?).await,
        IoCommand::Status { metrics } => {
            let path = access_path(reach)?;
            let status = match path.exists() {
                true => status(&Access::load(&path)?).await?,
                false => agent::status(&agent_folder(None)).map_err(|e| format!("no agent runs on this node: {e}"))?,
            };
            show::status(&status, metrics, reach.json)?;
            Ok(ExitCode::SUCCESS)
        }
        IoCommand::Agent { detach: true, .. } => {
            run::detach()?;
            Ok(ExitCode::SUCCESS)
        }
        IoCommand::Agent { folder, here, detach: false } => {
            raise_descriptor_limit();
            let order = match here {
                true => Deciding::Here(rules(None)?),
                false => Deciding::There(Access::load(&access_path(reach)?)?),
            };
            match agent::run(&Setup { folder, order, idle: agent::IDLE }) {
                // Two were started at once.
                Ok(()) | Err(AgentError::RunsAlready(_)) => Ok(ExitCode::SUCCESS),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Where the coordinator's access file is: where `--access` says, else in eyas's home, which nodes share.
fn access_path(reach: &Reach) -> Result<PathBuf, ClusterError> {
    match &reach.access {
        Some(path) => Ok(path.clone()),
        None => Ok(home()?.join("io").join("access.toml")),
    }
}

/// Orders requests until it is told to stop. Started again with its old access file, it has its old port and secret, so
/// that agents find it again.
async fn be_coordinator(args: ServeArgs, path: PathBuf) -> Result<ExitCode, Failure> {
    let mut rules = rules(args.rules)?;
    rules.default = args.order.overrule(rules.default);
    let before = path.exists().then(|| Access::load(&path)).transpose()?;
    let port_before = before.as_ref().and_then(|access| access.dispatcher.rsplit_once(':')?.1.parse().ok());
    let mut listen = args.listen;
    if let (0, Some(port)) = (listen.port(), port_before) {
        listen.set_port(port);
    }
    let listener = TcpListener::bind(listen).await.map_err(|e| format!("cannot listen on {listen}: {e}"))?;
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
