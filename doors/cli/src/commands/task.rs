//! `eyas task …`: lists, shows and cancels tasks, and gets their output.

use clap::Subcommand;
use eyas_client::Client;
use eyas_client::messages::{FromClient, TaskResult, ToClient};
use eyas_client::types::shown::{MAX_QUOTED_CHARS, shortened};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name, Status, TaskId};
use eyas_client::view::TaskView;
use serde_json::json;

use crate::connect::{connect, job_of, task_of, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::get::{self, DestinationArgs};
use crate::global::{GlobalArgs, WhichJob, WhichTask};
use crate::print::{self, out, say};
use crate::{show, words};

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
    /// Print the standard output of a task; for a failed task, also its standard error
    Log {
        /// The task, as JOB.INDEX; JOB may be `last`
        task: WhichTask,
        /// Print the standard error of the task instead
        #[arg(long)]
        stderr: bool,
    },
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
        TaskCommand::Log { task, stderr } => {
            let task = task_of(&mut client, task).await?;
            log(&mut client, task, stderr, global).await?;
        }
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

async fn log(
    client: &mut Client,
    task: TaskId,
    only_stderr: bool,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    match client.ask(FromClient::Log { task }).await? {
        ToClient::Log(None) => Err(format!(
            "task {task} has not ended, so it has no log yet: `eyas explain {task}` shows its state"
        )
        .into()),
        ToClient::Log(Some(result)) => {
            let ToClient::Explained(explanation) = client.ask(FromClient::Explain { task }).await?
            else {
                return unexpected();
            };
            if global.json {
                return print_log_as_json(&explanation.task, &result);
            }
            say_how_it_ran(&explanation.task);
            print_log(&result, only_stderr)
        }
        _ => unexpected(),
    }
}

/// Says the command of a task that has ended, and where it ran. Standard output has the output of
/// the task alone.
fn say_how_it_ran(task: &TaskView) {
    if !task.command.is_empty() {
        let on = task.executor.as_ref().map_or_else(String::new, |name| format!(" on {name}"));
        let command = shortened(&show::command_line(&task.command), MAX_QUOTED_CHARS).into_owned();
        say!("task {}{on}: {command}", task.task);
    }
}

fn print_log(result: &TaskResult, only_stderr: bool) -> Result<(), CliError> {
    let outcome = &result.outcome;
    let has_failed = !matches!(outcome.status, Status::Succeeded | Status::Cancelled);
    if only_stderr {
        print::bytes(&outcome.stderr)?;
    } else {
        print::bytes(&outcome.stdout)?;
        if has_failed {
            print::bytes_to_stderr(&outcome.stderr);
            say!("the task did not succeed: {}", outcome.in_words(None));
        }
    }
    if outcome.cut_bytes > 0 {
        say!("{}", show::cut(outcome.cut_bytes));
    }
    Ok(())
}

fn print_log_as_json(task: &TaskView, result: &TaskResult) -> Result<(), CliError> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let outcome = &result.outcome;
    let log = json!({
        "command": task.command,
        "status": outcome.in_words(None),
        "stdout": text(&outcome.stdout),
        "stderr": text(&outcome.stderr),
        "cut_bytes": outcome.cut_bytes,
    });
    show::json("log", &log)
}
