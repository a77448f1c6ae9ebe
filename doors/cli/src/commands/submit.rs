//! `eyas submit`: submits the job of a job file, or drives the steps of one with map steps.

mod steps;

use clap::Args;
use eyas_client::types::{Distribution, JobId};
use eyas_client::{Client, Draft, TaskTexts, read_job_file, read_job_steps};

use crate::commands::run::print_commands;
use crate::connect::connect;
use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::Interrupt;
use crate::print::out;
use crate::show;
use crate::waiting::{self, ProgressDisplay};

#[derive(Args)]
#[command(mut_arg("reconnect", |reconnect| reconnect.requires("wait")))]
pub(crate) struct SubmitArgs {
    /// The job file: TOML, or JSON lines if the name ends in .jsonl
    file: String,
    /// Priority of tasks without a priority in the file; tasks of higher priority go first
    /// [default: the file's, else 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// How inputs with `broadcast` are copied to the executors: chain or spanning-tree [default:
    /// the file's, else chain]
    #[arg(long, value_name = "METHOD")]
    distribution: Option<Distribution>,
    /// Wait for the end of the job; the exit code is 0 if all tasks succeeded and no output was
    /// cut for want of room in the journal
    #[arg(long, short = 'w')]
    wait: bool,
    /// Run only what is out of date: use the results of earlier jobs with --reuse that ran the same
    /// command on the same versions of the inputs
    #[arg(long, visible_alias = "update")]
    reuse: bool,
    /// `never`: run all tasks, even if the first 20 fail in the same way. Otherwise the job stops
    /// then
    #[arg(long, value_name = "RULE", value_parser = ["never"], hide_possible_values = true)]
    halt: Option<String>,
    /// Print the command of each task, or of each step of a file with [[map]] tables, and submit
    /// nothing
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    #[command(flatten)]
    reconnect: ReconnectArgs,
}

pub(crate) async fn submit(args: SubmitArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut interrupt = Interrupt::listen();
    if (args.wait || args.dry_run)
        && let Some(steps) = read_job_steps(&args.file)?
    {
        return steps::run(&args, &steps, global, interrupt).await;
    }
    let progress = ProgressDisplay::begin();
    if args.dry_run {
        let draft = draft_file(&args, global, &progress).await;
        progress.clear();
        print_commands(&TaskTexts::of(&draft?), &[])?;
        return Ok(ExitCode::SUCCESS);
    }
    let submitted = submit_file(&args, global, &progress, &mut interrupt).await;
    let Some((mut client, job)) = submitted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    match global.json {
        // There is one answer: with `--wait`, it is the state of the ended job.
        true if args.wait => {}
        true => show::json("job", &job)?,
        false => progress.suspend(|| out!("{job}"))?,
    }
    if args.wait {
        return waiting::wait_for_all(
            &mut client,
            &[job],
            args.reconnect,
            progress,
            interrupt,
            global,
        )
        .await;
    }
    progress.clear();
    Ok(ExitCode::SUCCESS)
}

/// Submits a job file; returns `None` after an interrupt.
async fn submit_file(
    args: &SubmitArgs,
    global: &GlobalArgs,
    progress: &ProgressDisplay,
    interrupt: &mut Interrupt,
) -> Result<Option<(Client, JobId)>, CliError> {
    let draft = tokio::select! {
        draft = draft_file(args, global, progress) => draft?,
        () = interrupt.received() => return Ok(None),
    };
    if draft.is_empty() {
        return Err(
            format!("{} has no tasks: {}", args.file, how_to_write_a_task(&args.file)).into()
        );
    }
    let mut client = connect(global).await?;
    let job = waiting::submit(&mut client, draft, progress, interrupt).await?;
    Ok(job.map(|job| (client, job)))
}

/// The job of the file, as the options change it.
async fn draft_file(
    args: &SubmitArgs,
    global: &GlobalArgs,
    progress: &ProgressDisplay,
) -> Result<Draft, CliError> {
    let cluster = global.cluster()?;
    let read = read_job_file(&args.file, args.priority, &cluster, progress.preparing());
    let mut draft = read.await?;
    args.apply(&mut draft);
    Ok(draft)
}

impl SubmitArgs {
    /// Lets the options change a job of the file.
    fn apply(&self, draft: &mut Draft) {
        if self.reuse {
            draft.reuse_results();
        }
        if self.halt.is_some() {
            draft.halt_if_all_fail(false);
        }
        if let Some(distribution) = self.distribution {
            draft.distribute(distribution);
        }
    }
}

fn how_to_write_a_task(file: &str) -> &'static str {
    if file.ends_with(".toml") {
        "write [[task]] on a line, and below it a line such as command = [\"wc\", \"-l\", \
         \"in.txt\"]"
    } else {
        "write a task on each line, such as {\"command\": [\"wc\", \"-l\", \"in.txt\"]}"
    }
}
