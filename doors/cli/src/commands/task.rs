//! `eyas task …`: lists, shows and cancels tasks, and gets their output.

mod log;

use clap::Subcommand;
use eyas_client::Client;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name};
use eyas_client::view::TaskView;
use serde_json::json;

use crate::connect::{connect, job_of, task_of, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::get::{self, DestinationArgs};
use crate::global::{GlobalArgs, WhichJob, WhichTask};
use crate::print::{out, say};
use crate::{show, words};
use log::LogArgs;

#[derive(Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks of a job
    List {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
        /// List only failed tasks
        #[arg(long)]
        failed: bool,
        /// Start at the task with this index
        #[arg(long, value_name = "INDEX", default_value_t = 0)]
        from: u32,
        /// List up to this many tasks
        #[arg(
            long,
            value_name = "N",
            default_value_t = 100,
            value_parser = clap::value_parser!(u32).range(1..)
        )]
        limit: u32,
    },
    /// Show a task and its command
    Show {
        /// The task, as JOB.INDEX; JOB may be `last`
        task: WhichTask,
    },
    /// Print what a task has written to standard output. If the task still runs or has failed,
    /// also print its standard error
    Log(LogArgs),
    /// Copy the outputs that a task keeps in the cluster to this machine
    Get {
        /// The task, as JOB.INDEX; JOB may be `last`
        task: WhichTask,
        /// Copy only these files
        #[arg(value_parser = words::name())]
        files: Vec<Name>,
        #[command(flatten)]
        destination: DestinationArgs,
    },
    /// Cancel a task
    Cancel {
        /// The task, as JOB.INDEX; JOB may be `last`
        task: WhichTask,
    },
}

pub(crate) async fn task(command: TaskCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    match command {
        TaskCommand::List { job, failed, from, limit } => {
            let job = job_of(&mut client, job).await?;
            list(&mut client, job, failed, from, limit, global).await?
        }
        TaskCommand::Show { task } => {
            let task = task_of(&mut client, task).await?;
            match client.ask(FromClient::Explain { task }).await? {
                ToClient::Explained(explanation) if global.json => {
                    show::json("task", &explanation.task)?
                }
                ToClient::Explained(explanation) => print_task(&explanation.task)?,
                _ => return unexpected(),
            }
        }
        TaskCommand::Log(args) => log::log(&mut client, &args, global).await?,
        TaskCommand::Get { task, files, destination } => {
            let task = task_of(&mut client, task).await?;
            return get::get(&mut client, task.job, Some(task.index), files, destination, global)
                .await;
        }
        TaskCommand::Cancel { task } => {
            let task = task_of(&mut client, task).await?;
            match client.ask(FromClient::Cancel { job: task.job, task: Some(task.index) }).await? {
                ToClient::Done(count) if global.json => show::json("tasks", &count)?,
                ToClient::Done(0) => say!("task {task} has already ended; nothing was cancelled"),
                ToClient::Done(count) => {
                    say!("cancelled {} of job {}: {task}", format_count(count, "task"), task.job)
                }
                _ => return unexpected(),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Lists tasks. If there are more, prints the command that lists them.
async fn list(
    client: &mut Client,
    job: JobId,
    failed: bool,
    from: u32,
    limit: u32,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    let tasks = client.tasks(job, from, limit, failed).await?;
    let next = match tasks.last() {
        Some(last) if tasks.len() == limit as usize => {
            let more = client.tasks(job, last.task.index.saturating_add(1), 1, failed).await?;
            more.first().map(|task| task.task.index)
        }
        _ => None,
    };
    if global.json {
        return show::json_fields(json!({ "tasks": tasks, "next": next }));
    }
    show::tasks(&tasks)?;
    if let Some(next) = next {
        let failed = if failed { " --failed" } else { "" };
        say!(
            "the list stops after {}: list more with --limit N, or continue with `eyas task list \
             {job}{failed} --from {next}`",
            format_count(limit.into(), "task")
        );
    }
    Ok(())
}

fn print_task(task: &TaskView) -> Result<(), CliError> {
    show::tasks(std::slice::from_ref(task))?;
    if !task.command.is_empty() {
        out!("command: {}", show::command_line(&task.command))?;
    }
    Ok(())
}
