//! `eyas explain`: shows why a task waits, or where it ran and why; and of a pool or its nodes, why
//! no node comes, why a node stays, and why it left.

use std::str::FromStr;

use clap::Args;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::TaskId;
use eyas_client::{Client, ClientError};
use eyas_wire::pool::PoolsRequest;
use eyas_wire::view::pool::PoolView;

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::out;
use crate::show;

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// A task, as JOB.INDEX; or the name of a pool or of a node of a pool
    #[arg(value_name = "TASK|POOL|NODE")]
    subject: Subject,
}

#[derive(Clone)]
enum Subject {
    Task(TaskId),
    /// A pool or a node.
    Named(String),
}

impl FromStr for Subject {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.parse().map_or_else(|_| Subject::Named(text.into()), Subject::Task))
    }
}

pub(crate) async fn explain(args: &ExplainArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    let task = match &args.subject {
        Subject::Task(task) => *task,
        Subject::Named(name) => return explain_nodes(&mut client, name, global.json).await,
    };
    match client.ask(FromClient::Explain { task }).await? {
        ToClient::Explained(explanation) if global.json => show::json("explanation", &explanation)?,
        ToClient::Explained(explanation) => show::explanation(&explanation)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains the nodes of the pool with that name, or the node with that name.
async fn explain_nodes(
    client: &mut Client,
    name: &str,
    is_json: bool,
) -> Result<ExitCode, CliError> {
    let mut because = Vec::new();
    for pool in show(client, None).await? {
        let Some(pool) = show(client, Some(pool.pool)).await?.pop() else { continue };
        let is_pool = pool.pool == name;
        because.extend(is_pool.then(|| why_no_node_comes(&pool)));
        let here = pool.node_list.iter().filter(|node| is_pool || node.node == name);
        because.extend(here.map(|node| {
            format!("Node {} on {} is {}: {}.", node.node, node.host, node.state, node.why)
        }));
        let departed = pool.departed.iter().filter(|node| is_pool || node.node == name);
        because.extend(
            departed.map(|node| {
                format!("Node {} has left pool {}: {}.", node.node, pool.pool, node.why)
            }),
        );
    }
    if because.is_empty() {
        let known = "`eyas pool list` lists pools, `eyas executor list` nodes, and `eyas task \
                     list` the tasks of a job";
        return Err(format!("`{name}` is no task, pool, or node of a pool: {known}").into());
    }
    match is_json {
        true => show::json("because", &because)?,
        false => because.iter().try_for_each(|sentence| out!("{sentence}"))?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(client: &mut Client, name: Option<String>) -> Result<Vec<PoolView>, CliError> {
    match client.ask(FromClient::Pools(PoolsRequest::Show { name })).await? {
        ToClient::Pools(pools) => Ok(pools),
        _ => Err(ClientError::Unexpected.into()),
    }
}

/// A sentence about nodes that do not come.
fn why_no_node_comes(pool: &PoolView) -> String {
    let name = &pool.pool;
    match (&pool.why, &pool.waits) {
        (Some(why), _) => {
            format!("Pool {name} is {} and requests no nodes now: {why}.", pool.state)
        }
        (None, Some(waits)) => format!("Pool {name} waits for nodes: {waits}."),
        (None, None)
            if pool.wanted > pool.nodes && pool.nodes + pool.draining >= pool.max_nodes =>
        {
            format!("Pool {name} has its maximum of {} nodes (--max-nodes).", pool.max_nodes)
        }
        (None, None) => format!(
            "Pool {name} requests no more nodes: it has {}, and the waiting tasks are worth {}.",
            pool.nodes, pool.wanted
        ),
    }
}
