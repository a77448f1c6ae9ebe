//! `eyas job …`: manages submitted jobs.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, ObjectSpec};
use eyas_client::{ChangedInput, Client, name_of_user};

use crate::connect::{connect, job_of, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::get::{self, DestinationArgs};
use crate::global::{GlobalArgs, ReconnectArgs, WhichJob};
use crate::graph::{self, GraphPicture};
use crate::interrupt::Interrupt;
use crate::print::{self, say};
use crate::show;
use crate::waiting::{self, ProgressDisplay};

/// Names of changed inputs in one message.
const MAX_NAMES: usize = 5;

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// List all jobs, the oldest first
    List {
        /// List only jobs that this user has submitted
        #[arg(long)]
        mine: bool,
    },
    /// Show one job
    Show {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
    },
    /// Wait for the end of jobs; the exit code is 0 if all of their tasks succeeded and no output
    /// was cut for want of room in the journal
    Wait {
        /// Ids of the jobs; `last` is the job that was submitted last
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<WhichJob>,
        #[command(flatten)]
        reconnect: ReconnectArgs,
    },
    /// Copy the outputs that a job keeps in the cluster to this machine, into one folder for each
    /// task
    Get {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
        #[command(flatten)]
        destination: DestinationArgs,
    },
    /// Cancel the tasks of a job that have not ended
    Cancel {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
    },
    /// Run the failed and cancelled tasks of an ended job again
    Retry {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
        /// Read inputs that have changed since the submission as they are now
        #[arg(long)]
        current: bool,
    },
    /// Draw the graph of a job: a box for each template with the states of its tasks, and an arrow
    /// for each template whose outputs another one reads
    Graph {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
        /// Write the graph to FILE instead of standard output
        #[arg(long, short = 'o', value_name = "FILE")]
        output: Option<PathBuf>,
        /// Format of the graph [default: that of FILE by its ending, else svg]
        #[arg(long, value_enum)]
        format: Option<GraphFormat>,
    },
    /// Let executors evict the outputs that an ended job keeps in the cluster
    Release {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
    },
    /// Forget ended jobs: their results, their captured output, and the outputs that they keep in
    /// the cluster
    Forget {
        /// Ids of the jobs; `last` is the job that was submitted last
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<WhichJob>,
    },
}

/// The format of a graph.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum GraphFormat {
    /// A picture for browsers and documents
    Svg,
    /// The language of Graphviz, for other programs that draw
    Dot,
}

pub(crate) async fn job(command: JobCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    match command {
        JobCommand::List { mine } => {
            let ToClient::Jobs(mut jobs) = client.ask(FromClient::Jobs { job: None }).await? else {
                return unexpected();
            };
            let user = name_of_user();
            jobs.retain(|job| !mine || job.owner.user == user);
            print_jobs(&jobs, global)?;
        }
        JobCommand::Show { job } => {
            let job = job_of(&mut client, job).await?;
            let answer = client.ask(FromClient::Jobs { job: Some(job) }).await?;
            let ToClient::Jobs(jobs) = answer else { return unexpected() };
            print_jobs(&jobs, global)?;
        }
        JobCommand::Wait { jobs, reconnect } => {
            let ids = jobs_of(&mut client, jobs).await?;
            let (progress, interrupt) = (ProgressDisplay::begin(), Interrupt::listen());
            return waiting::wait_for_all(
                &mut client,
                &ids,
                reconnect,
                progress,
                interrupt,
                global,
            )
            .await;
        }
        JobCommand::Get { job, destination } => {
            let job = job_of(&mut client, job).await?;
            return get::get(&mut client, job, None, Vec::new(), destination, global).await;
        }
        JobCommand::Cancel { job } => {
            let job = job_of(&mut client, job).await?;
            let count = done(client.ask(FromClient::Cancel { job, task: None }).await?)?;
            print_count(
                "tasks",
                count,
                &format!("cancelled {} of job {job}", format_count(count, "task")),
                global,
            )?;
        }
        JobCommand::Retry { job, current } => {
            let job = job_of(&mut client, job).await?;
            retry(&mut client, job, current, global).await?;
        }
        JobCommand::Graph { job, output, format } => {
            let job = job_of(&mut client, job).await?;
            draw(&mut client, job, output.as_deref(), format, global).await?;
        }
        JobCommand::Release { job } => {
            let job = job_of(&mut client, job).await?;
            let count = done(client.ask(FromClient::Release { job }).await?)?;
            print_count(
                "objects",
                count,
                &format!("released {} of job {job}", format_count(count, "object")),
                global,
            )?;
        }
        JobCommand::Forget { jobs } => {
            let ids = jobs_of(&mut client, jobs).await?;
            forget(&mut client, &ids, global).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn jobs_of(client: &mut Client, jobs: Vec<WhichJob>) -> Result<Vec<JobId>, CliError> {
    let mut ids = Vec::with_capacity(jobs.len());
    for job in jobs {
        ids.push(job_of(client, job).await?);
    }
    Ok(ids)
}

/// Prints how many things a command has changed: as JSON under this name, or as a sentence.
fn print_count(
    name: &str,
    count: u64,
    sentence: &str,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    if global.json {
        return show::json(name, &count);
    }
    say!("{sentence}");
    Ok(())
}

async fn forget(client: &mut Client, jobs: &[JobId], global: &GlobalArgs) -> Result<(), CliError> {
    for job in jobs {
        done(client.ask(FromClient::Forget { job: *job }).await?)?;
    }
    let count = jobs.len() as u64;
    print_count("jobs", count, &format!("forgot {}", format_count(count, "job")), global)
}

/// Prints the graph of a job, or writes it to a file.
async fn draw(
    client: &mut Client,
    job: JobId,
    output: Option<&Path>,
    format: Option<GraphFormat>,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    let ending = output.and_then(Path::extension).and_then(|ending| ending.to_str());
    let format = match (format, ending) {
        (Some(format), _) => format,
        (None, None | Some("svg")) => GraphFormat::Svg,
        (None, Some("dot" | "gv")) => GraphFormat::Dot,
        (None, Some(other)) => {
            return Err(format!(
                "a graph is no .{other} file: end the name in .svg or .dot. Programs such as \
                 `rsvg-convert` or `dot` make other pictures of these"
            )
            .into());
        }
    };
    let answer = client.ask(FromClient::Jobs { job: Some(job) }).await?;
    let ToClient::Jobs(jobs) = answer else { return unexpected() };
    let found = client.graph(job).await?;
    if global.json {
        if output.is_some() {
            return Err("--json prints the graph on standard output: leave -o out".into());
        }
        return show::json("graph", &found);
    }
    let Some(view) = jobs.first() else { return unexpected() };
    let picture = GraphPicture::of(view, &found);
    let text = match format {
        GraphFormat::Svg => graph::svg(&picture),
        GraphFormat::Dot => graph::dot(&picture),
    };
    let Some(path) = output else { return Ok(print::text(&text)?) };
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    say!("the graph is in {}", path.display());
    Ok(())
}

/// Runs the tasks of a job again that have not succeeded; with inputs as they are now if `current`
/// is set.
async fn retry(
    client: &mut Client,
    job: JobId,
    current: bool,
    global: &GlobalArgs,
) -> Result<(), CliError> {
    let changed = client.changed_inputs(&global.cluster()?, job).await?;
    let current = match current {
        true => changed.into_iter().map(as_now).collect::<Result<_, _>>()?,
        false => unchanged(job, &changed)?,
    };
    let count = done(client.ask(FromClient::Retry { job, current }).await?)?;
    let said = match count {
        0 => format!("nothing to retry: no task of job {job} has failed or was cancelled"),
        _ => format!(
            "job {job} continues: {} to run again; wait for it with `eyas job wait {job}{}`",
            format_count(count, "task"),
            global.named_option()
        ),
    };
    print_count("tasks", count, &said, global)
}

/// An input as it is now.
fn as_now(ChangedInput { place, now, .. }: ChangedInput) -> Result<(u32, ObjectSpec), CliError> {
    let now = now.map_err(|e| format!("an input cannot be read as it is now: {e}"))?;
    Ok((place, now))
}

/// No versions, if no input has changed.
fn unchanged(job: JobId, changed: &[ChangedInput]) -> Result<Vec<(u32, ObjectSpec)>, CliError> {
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<_> =
        changed.iter().take(MAX_NAMES).map(|input| format!("`{}`", input.before.source)).collect();
    let more = if changed.len() > MAX_NAMES { ", …" } else { "" };
    Err(format!(
        "{} of job {job} changed since the job was submitted: {}{more}. Nothing runs again. Add \
         --current to read such inputs as they are now, or submit the job again",
        format_count(changed.len() as u64, "input"),
        names.join(", ")
    )
    .into())
}

fn print_jobs(jobs: &[eyas_client::view::JobView], global: &GlobalArgs) -> Result<(), CliError> {
    if global.json { show::json("jobs", jobs) } else { show::jobs(jobs) }
}

fn done(answer: ToClient) -> Result<u64, CliError> {
    match answer {
        ToClient::Done(count) => Ok(count),
        _ => unexpected(),
    }
}
