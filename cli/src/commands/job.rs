//! `eyas job …`: manages submitted jobs.

use clap::Subcommand;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::units::format_count;

use crate::connect::{connect, job_of, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::get::{self, DestinationArgs};
use crate::global::{GlobalArgs, ReconnectArgs, WhichJob};
use crate::interrupt::Interrupt;
use crate::print::say;
use crate::show;
use crate::waiting::{self, ProgressDisplay};

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// List all jobs
    List,
    /// Show one job
    Show {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
    },
    /// Wait for the end of jobs; the exit code is 0 if all of their tasks succeeded
    Wait {
        /// Ids of the jobs; `last` is the job that was submitted last
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<WhichJob>,
        #[command(flatten)]
        reconnect: ReconnectArgs,
    },
    /// Copy the outputs that a job keeps in the cluster to this machine, into one folder for each task
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
    },
    /// Let executors evict the outputs that an ended job keeps in the cluster
    Release {
        /// The job's id, or `last` for the job that was submitted last
        job: WhichJob,
    },
    /// Forget ended jobs: their results, their captured output, and the outputs that they keep in the cluster
    Forget {
        /// Ids of the jobs; `last` is the job that was submitted last
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<WhichJob>,
    },
}

pub(crate) async fn job(command: JobCommand, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    match command {
        JobCommand::List => {
            let ToClient::Jobs(jobs) = client.ask(FromClient::Jobs { job: None }).await? else { return unexpected() };
            print(&jobs, global)?;
        }
        JobCommand::Show { job } => {
            let job = job_of(&mut client, job).await?;
            let answer = client.ask(FromClient::Jobs { job: Some(job) }).await?;
            let ToClient::Jobs(jobs) = answer else { return unexpected() };
            print(&jobs, global)?;
        }
        JobCommand::Wait { jobs, reconnect } => {
            let mut ids = Vec::new();
            for which in jobs {
                ids.push(job_of(&mut client, which).await?);
            }
            let (progress, interrupt) = (ProgressDisplay::begin(), Interrupt::listen());
            return waiting::wait_for_all(&mut client, &ids, reconnect, progress, interrupt, global).await;
        }
        JobCommand::Get { job, destination } => {
            let job = job_of(&mut client, job).await?;
            return get::get(&mut client, job, None, Vec::new(), destination, global).await;
        }
        JobCommand::Cancel { job } => {
            let job = job_of(&mut client, job).await?;
            let count = done(client.ask(FromClient::Cancel { job, task: None }).await?)?;
            if global.json {
                show::json("tasks", &count)?;
            } else {
                say!("cancelled {} of job {job}", format_count(count, "task"));
            }
        }
        JobCommand::Retry { job } => {
            let job = job_of(&mut client, job).await?;
            let count = done(client.ask(FromClient::Retry { job }).await?)?;
            if global.json {
                show::json("tasks", &count)?;
            } else {
                say!("job {job} continues: {} to run again", format_count(count, "task"));
            }
        }
        JobCommand::Release { job } => {
            let job = job_of(&mut client, job).await?;
            let count = done(client.ask(FromClient::Release { job }).await?)?;
            if global.json {
                show::json("objects", &count)?;
            } else {
                say!("released {} of job {job}", format_count(count, "object"));
            }
        }
        JobCommand::Forget { jobs } => {
            let mut ids = Vec::new();
            for which in jobs {
                ids.push(job_of(&mut client, which).await?);
            }
            for job in &ids {
                done(client.ask(FromClient::Forget { job: *job }).await?)?;
            }
            let count = ids.len() as u64;
            if global.json {
                show::json("jobs", &count)?;
            } else {
                say!("forgot {}", format_count(count, "job"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(jobs: &[eyas_client::view::JobView], global: &GlobalArgs) -> Result<(), CliError> {
    if global.json { show::json("jobs", jobs) } else { show::jobs(jobs) }
}

fn done(answer: ToClient) -> Result<u64, CliError> {
    match answer {
        ToClient::Done(count) => Ok(count),
        _ => unexpected(),
    }
}
