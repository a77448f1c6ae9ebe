//! `eyas explain`: shows why a task waits, or where it ran and why; and of a pool or its nodes, why
//! no node comes, why a node stays, and why it left.

use std::str::FromStr;

use clap::Args;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::{JobId, TaskId};
use eyas_client::{Client, ClientError};
use eyas_wire::pool::PoolsRequest;
use eyas_wire::view::pool::PoolView;

use crate::connect::{connect, job_of, task_of, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, WhichJob, WhichTask};
use crate::print::out;
use crate::show;

/// Tasks of a job among which one that has not ended is looked for.
const MAX_LOOKED_AT: u32 = 1000;

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// A task, as JOB.INDEX; or a job, of which a task that waits or has failed is explained; or
    /// the name of a pool or of a node of a pool. JOB may be `last`
    #[arg(value_name = "TASK|JOB|POOL|NODE")]
    subject: Subject,
}

#[derive(Clone)]
enum Subject {
    Task(WhichTask),
    Job(WhichJob),
    /// A pool or a node.
    Named(String),
}

impl FromStr for Subject {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let job = || text.parse().map(Subject::Job);
        let named = |_| Subject::Named(text.into());
        Ok(text.parse().map(Subject::Task).or_else(|_| job()).unwrap_or_else(named))
    }
}

pub(crate) async fn explain(args: &ExplainArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    let task = match &args.subject {
        Subject::Task(task) => task_of(&mut client, *task).await?,
        Subject::Job(job) => {
            let job = job_of(&mut client, *job).await?;
            most_telling(&mut client, job).await?
        }
        Subject::Named(name) => return explain_nodes(&mut client, name, global.json).await,
    };
    match client.ask(FromClient::Explain { task }).await? {
        ToClient::Explained(explanation) if global.json => show::json("explanation", &explanation)?,
        ToClient::Explained(explanation) => show::explanation(&explanation)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}

/// The task of a job about which there is most to say: the first that has not ended, else the first
/// that has failed, else the first.
async fn most_telling(client: &mut Client, job: JobId) -> Result<TaskId, CliError> {
    let tasks = client.tasks(job, 0, MAX_LOOKED_AT, false).await?;
    if let Some(task) = tasks.iter().find(|task| task.status.is_none()) {
        return Ok(task.task);
    }
    let failed = client.tasks(job, 0, 1, true).await?;
    let first = failed.first().or(tasks.first()).map(|task| task.task);
    Ok(first.unwrap_or(TaskId { job, index: 0 }))
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
        let known = "`eyas job list` lists jobs, `eyas task list JOB` the tasks of a job, `eyas \
                     pool list` pools, and `eyas executor list` nodes";
        return Err(format!("`{name}` is no task, job, pool, or node of a pool: {known}").into());
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
