//! `eyas pool …`: pools of nodes that a batch system grants when tasks wait.

use clap::{Args, Subcommand};
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units;
use eyas_wire::pool::{PoolsRequest, RequestFile};
use eyas_wire::view::pool::PoolView;

use crate::clock::unix_ms;
use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::pool_args::PoolArgs;
use crate::pool_file::{DescribedPool, PoolFileArgs};
use crate::print::{out, say, text};
use crate::show::{self, Table};

#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Add a pool: nodes are requested from the batch system when tasks wait, and given back when
    /// they are idle
    Add(Box<PoolAddArgs>),
    /// List all pools
    List(PoolListArgs),
    /// Show a pool with its requests and what happened last
    Show {
        /// Name of the pool
        name: String,
    },
    /// Request no further nodes; nodes that have joined stay as long as they have work
    Pause {
        /// Name of the pool
        name: String,
    },
    /// Request nodes again
    Resume {
        /// Name of the pool
        name: String,
    },
    /// Withdraw the requests of a pool, give back its nodes after their running tasks, and forget
    /// the pool
    Remove {
        /// Name of the pool
        name: String,
        /// End running tasks; they run again on other nodes
        #[arg(long)]
        force: bool,
    },
    /// Print what the nodes of a request have written on standard error
    Log {
        /// Name of the pool
        name: String,
        /// Number of the request, as `eyas pool show` lists it [default: the latest]
        request: Option<u64>,
        /// Print standard output of the nodes instead
        #[arg(long, conflicts_with = "script")]
        stdout: bool,
        /// Print the script that was submitted instead
        #[arg(long)]
        script: bool,
    },
    /// Ask the batch system whether it would accept a request of the pool, without submitting it
    Try {
        /// Name of the pool
        name: String,
    },
}

#[derive(Args)]
pub(crate) struct PoolListArgs {
    /// List the pools that pools files describe, for `eyas pool add` and `eyas run --pool`
    #[arg(long)]
    available: bool,
    #[command(flatten)]
    files: PoolFileArgs,
}

#[derive(Args)]
pub(crate) struct PoolAddArgs {
    /// Batch system: slurm, sge, pbs, htcondor, kubernetes, ssh (hosts), or local (processes on
    /// the dispatcher's host); or a pool that a pools file describes
    system: String,
    /// Name of the pool [default: its name in the pools file]
    name: Option<String>,
    #[command(flatten)]
    files: PoolFileArgs,
    /// Add the pool without asking the batch system first whether it would accept a request
    #[arg(long)]
    no_try: bool,
    #[command(flatten)]
    shape: PoolArgs,
}

pub(crate) async fn pool(command: PoolCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let (request, done) = match command {
        PoolCommand::Add(args) => {
            let PoolAddArgs { system: word, name, files, no_try, shape } = *args;
            let (system, shape, is_described) = files.system_and_options(&word, shape)?;
            let name = name.or_else(|| is_described.then_some(word));
            let name = name.ok_or_else(|| {
                format!(
                    "no pools file describes `{system}`; to use it as a batch system, also name \
                     the pool"
                )
            })?;
            let options = Box::new(shape.options(&system)?);
            let done = format!("added pool {name}: nodes are requested when tasks wait");
            (PoolsRequest::Add { name, options, is_tried: !no_try }, done)
        }
        PoolCommand::List(args) if args.available => {
            print_available(&args.files.pools()?, global.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        PoolCommand::List(_) => (PoolsRequest::Show { name: None }, String::new()),
        PoolCommand::Show { name } => (PoolsRequest::Show { name: Some(name) }, String::new()),
        PoolCommand::Pause { name } => {
            let done = format!(
                "pool {name} requests no further nodes; `eyas pool resume {name}` ends that"
            );
            (PoolsRequest::Pause { name }, done)
        }
        PoolCommand::Resume { name } => {
            let done = format!("pool {name} requests nodes when tasks wait");
            (PoolsRequest::Resume { name }, done)
        }
        PoolCommand::Remove { name, force } => {
            let done = format!("pool {name} gives back its nodes, and then is gone");
            (PoolsRequest::Remove { name, is_forced: force }, done)
        }
        PoolCommand::Log { name, request, stdout, script } => {
            let stream = match (stdout, script) {
                (true, _) => RequestFile::Stdout,
                (_, true) => RequestFile::Script,
                _ => RequestFile::Stderr,
            };
            (PoolsRequest::Log { name, request, stream }, String::new())
        }
        PoolCommand::Try { name } => (PoolsRequest::Try { name }, String::new()),
    };
    let in_full = matches!(request, PoolsRequest::Show { name: Some(_) });
    let mut client = connect(global).await?;
    match client.ask(FromClient::Pools(request)).await? {
        ToClient::Pools(pools) if global.json => show::json("pools", &pools)?,
        ToClient::Pools(pools) if in_full => pools.iter().try_for_each(print_one)?,
        ToClient::Pools(pools) => print_all(&pools)?,
        ToClient::PoolText(printed) if global.json => show::json("text", &printed)?,
        ToClient::PoolText(printed) if printed.is_empty() => say!("nothing was printed"),
        ToClient::PoolText(printed) => text(&format!("{}\n", printed.trim_end_matches('\n')))?,
        ToClient::Done(_) if global.json => show::json("done", &true)?,
        ToClient::Done(_) => say!("{done}"),
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_available(pools: &[DescribedPool], is_json: bool) -> Result<(), CliError> {
    if is_json {
        return show::json("available", &pools);
    }
    let mut table = Table::new(&["POOL", "SYSTEM", "FILE", "DESCRIPTION"]);
    for pool in pools {
        let file = pool.file.display().to_string();
        table.row(vec![pool.pool.clone(), pool.system.clone(), file, pool.description.clone()]);
    }
    table.print()
}

fn node_hours(pool: &PoolView) -> String {
    format!("{:.2}", pool.node_seconds / 3600.0)
}

fn print_all(pools: &[PoolView]) -> Result<(), CliError> {
    let mut table = Table::new(&[
        "POOL",
        "SYSTEM",
        "STATE",
        "NODES",
        "REQUESTED",
        "WANTED",
        "MIN",
        "MAX",
        "WAITING",
        "GRANTED",
        "BACK",
        "FAILED",
        "NODE-HOURS",
        "COST",
    ]);
    for pool in pools {
        table.row(vec![
            pool.pool.clone(),
            pool.system.clone(),
            pool.state.clone(),
            pool.nodes.to_string(),
            pool.requested.to_string(),
            pool.wanted.to_string(),
            pool.min_nodes.to_string(),
            pool.max_nodes.to_string(),
            pool.waiting.to_string(),
            pool.nodes_granted.to_string(),
            pool.nodes_given_back.to_string(),
            pool.failures.to_string(),
            node_hours(pool),
            format!("{:.2}", pool.cost),
        ]);
    }
    table.print()
}

fn print_one(pool: &PoolView) -> Result<(), CliError> {
    let now_ms = unix_ms();
    print_all(std::slice::from_ref(pool))?;
    pool.why.iter().try_for_each(|why| out!("why: {why}"))?;
    pool.waits.iter().try_for_each(|waits| out!("waits: {waits}"))?;
    for host in &pool.excluded {
        let left_us = host.until_unix_ms.saturating_sub(now_ms) * 1000;
        out!(
            "excluded: host {} for {}: {}",
            host.host,
            units::format_duration_us(left_us),
            host.why
        )?;
    }
    out!("folder: {}", pool.folder)?;
    if !pool.requests.is_empty() {
        out!()?;
        let mut table = Table::new(&[
            "REQUEST",
            "JOB",
            "STATE",
            "NODES",
            "JOINED",
            "HOST",
            "THE BATCH SYSTEM SAYS",
        ]);
        for request in &pool.requests {
            table.row(vec![
                request.request.to_string(),
                request.job.clone().unwrap_or_else(|| "-".into()),
                if request.has_failed { "failed".into() } else { request.state.clone() },
                request.nodes.to_string(),
                request.joined.to_string(),
                request.host.clone().unwrap_or_else(|| "-".into()),
                request.says.clone().unwrap_or_default(),
            ]);
        }
        table.print()?;
    }
    if !pool.node_list.is_empty() {
        out!()?;
        let mut table = Table::new(&["NODE", "HOST", "REQUEST", "STATE", "TIME LEFT", "WHY"]);
        for node in &pool.node_list {
            table.row(vec![
                node.node.clone(),
                node.host.clone(),
                node.request.to_string(),
                node.state.clone(),
                units::format_duration_us(
                    node.until_unix_ms.saturating_sub(now_ms) / 1000 * 1_000_000,
                ),
                node.why.clone(),
            ]);
        }
        table.print()?;
    }
    if !pool.events.is_empty() {
        out!()?;
        for event in &pool.events {
            let ago_us = now_ms.saturating_sub(event.unix_ms) / 1000 * 1_000_000;
            out!("{} ago: {}", units::format_duration_us(ago_us), event.text)?;
        }
    }
    Ok(())
}
