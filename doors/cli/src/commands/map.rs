//! `eyas map`: runs a program over the blocks of files.

mod block_policy_args;

use std::time::{Duration, Instant};

use clap::Args;
use eyas_client::files::{DfsClient, File, RunStatus};
use eyas_client::types::Status;
use eyas_client::types::dfs::{AttributeChange, DEFAULT_REPLICATION, FileName, Format};
use eyas_client::types::units::{self, format_bytes, format_count, format_duration_us};
use eyas_client::view::files::MapView;
use eyas_client::{
    Client, Cluster, FileOwner, MapEvent, MapJob, MapRun, Reduce, cluster_files_to_read,
};
use eyas_session::Access;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::commands::dfs::OwnerArgs;
use crate::commands::map::block_policy_args::BlockPolicyArgs;
use crate::connect::connect_to;
use crate::error::{CliError, INTERRUPTED};
use crate::exit_code::ExitCode;
use crate::gather::gather;
use crate::global::GlobalArgs;
use crate::interrupt::Interrupt;
use crate::print::{self, say};
use crate::show;
use crate::waiting::ProgressDisplay;

#[derive(Args)]
pub(crate) struct MapArgs {
    /// Files of the file system, or patterns
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Write the output to files part-00000, part-00001 … in this folder of the file system, after
    /// the last block [default: standard output]
    #[arg(long, value_name = "FOLDER")]
    to: Option<String>,
    /// Sort the lines that the program writes by key (the text before the first tab), and pass
    /// them to this shell command
    #[arg(long, value_name = "COMMAND")]
    reduce: Option<String>,
    /// Number of reducers; all lines of a key go to the same reducer
    #[arg(long, value_name = "N", default_value_t = 1, requires = "reduce")]
    reducers: u32,
    /// Shell command that combines the sorted lines of each program before they go to a reducer
    #[arg(long, value_name = "COMMAND", requires = "reduce")]
    combine: Option<String>,
    #[command(flatten)]
    policy: BlockPolicyArgs,
    /// Number of tasks [default: number of slots of all executors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tasks: Option<u32>,
    /// A task that does not report for this long loses its block to other tasks
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = units::parse_duration_us
    )]
    term: u64,
    /// Number of retries after a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Start the program once for each file. $EYAS_FILE, and {file} in the arguments, have the
    /// name of the file; {file} implies this option
    #[arg(long)]
    by_file: bool,
    /// `repeat`: give each program the header first, and not in the place where the file has it.
    /// The header is the first row, the lines with `#` of a .vcf file, the lines with `@` of a
    /// .sam file
    #[arg(long, value_name = "repeat", value_parser = ["repeat"])]
    header: Option<String>,
    /// A local file that the program needs, such as the program itself (may be repeated)
    #[arg(long, short = 'i', value_name = "PATH")]
    input: Vec<String>,
    #[command(flatten)]
    owner: OwnerArgs,
    /// The program that reads the blocks, and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub(crate) async fn map(args: MapArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    let mut interrupt = Interrupt::listen();
    let bar = bar(global.json);
    let Some(view) = run_pass(&args, None, global, &mut interrupt, &bar).await? else {
        return Ok(ExitCode::from(INTERRUPTED));
    };
    match (global.json, &view.files) {
        (true, Some(_)) => show::json("map", &view)?,
        _ => say!("{}", summary(&view)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the program once over all blocks of the files, and shows the progress. Without a folder for
/// the outputs, prints them. The nodes keep the chunks on the account of memory with this number,
/// if there is one. Returns `None` after an interrupt.
pub(crate) async fn run_pass(
    args: &MapArgs,
    memory: Option<u128>,
    global: &GlobalArgs,
    interrupt: &mut Interrupt,
    bar: &ProgressBar,
) -> Result<Option<MapView>, CliError> {
    let began = Instant::now();
    let cluster = global.cluster()?;
    let job = MapJob { memory, ..args.job(&cluster)? };
    let access = cluster.access()?;
    let owner = args.owner.apply(&access)?;
    let (client, connected, files) = tokio::select! {
        named = named(&access, &args.files, global) => named?,
        () = interrupt.received() => return Ok(None),
    };
    let mut mapping = MapJob { files, ..job }.begin_with(client, connected).await?;
    gather(mapping.files(), DEFAULT_REPLICATION.into()).await?;
    bar.reset();
    bar.set_length(mapping.chunks().into());
    let abandoned = "its tasks may continue: list the job with `eyas job list`, and cancel it \
                     with `eyas job cancel`";
    interrupt.set_final_message(Some(abandoned.into()));
    let worked = tokio::select! {
        biased;
        () = interrupt.received() => None,
        done = work(&mut mapping, args.to.is_none(), owner, bar) => Some(done),
    };
    bar.finish_and_clear();
    let ended = mapping.end().await;
    interrupt.set_final_message(None);
    let Some(worked) = worked else { return Ok(None) };
    let (status, files) = worked?;
    ended?;
    Ok(Some(MapView {
        chunks: status.committed_chunks,
        blocks: status.parts.len() as u64,
        stolen: status.stolen,
        speculated: status.speculated,
        bytes: files.iter().map(|file| file.record.size_bytes()).sum(),
        files: args.to.as_ref().map(|_| files.into_iter().map(|file| file.name).collect()),
        elapsed_us: began.elapsed().as_micros() as u64,
    }))
}

impl MapArgs {
    /// The job that the arguments describe, without its files. Inputs may be files of the cluster.
    pub fn job(&self, cluster: &Cluster) -> Result<MapJob, CliError> {
        let reduce = |command: &String| Reduce {
            command: command.clone(),
            reducers: self.reducers,
            combine: self.combine.clone(),
        };
        Ok(MapJob {
            policy: self.policy.policy()?,
            term: Duration::from_micros(self.term),
            tasks: self.tasks,
            retries: self.retries,
            by_file: self.by_file,
            repeats_header: self.header.is_some(),
            inputs: self.input.clone(),
            cluster: Some(cluster.clone()),
            reduce: self.reduce.as_ref().map(reduce),
            to: self.to.clone(),
            ..MapJob::new(Vec::new(), self.program.clone())
        })
    }
}

/// Connections to the dispatcher and the file system, and the files of the file system that match
/// the patterns.
async fn named(
    access: &Access,
    patterns: &[String],
    global: &GlobalArgs,
) -> Result<(Client, DfsClient, Vec<FileName>), CliError> {
    let mut client = connect_to(access, global).await?;
    let files = client.files().await?;
    let mut names = Vec::new();
    for pattern in patterns {
        names.extend(cluster_files_to_read(&files, pattern).await?);
    }
    Ok((client, files, names))
}

/// Runs the job, gives the outputs their owner, and prints them if `is_printed`.
async fn work(
    mapping: &mut MapRun,
    is_printed: bool,
    owner: Option<FileOwner>,
    bar: &ProgressBar,
) -> Result<(RunStatus, Vec<File>), CliError> {
    let mut progress = ProgressDisplay::on(bar.clone());
    let status = mapping.run(|seen| show_seen(seen, bar, &mut progress)).await?;
    let outputs = mapping.outputs().await?;
    if let Some(FileOwner { uid, gid }) = owner {
        // Tasks wrote them, as the users of their executors.
        let change =
            AttributeChange { uid: Some(uid), gid: Some(gid), ..AttributeChange::default() };
        for file in &outputs {
            mapping.files().set_attributes(&file.name, &change).await?;
        }
    }
    if is_printed {
        bar.finish_and_clear();
        print(mapping, &outputs).await?;
    }
    Ok((status, outputs))
}

/// Writes files to standard output, one after the other. Which program has read which chunk is
/// chance, so each text ends with a line feed, also the only one.
async fn print(mapping: &MapRun, files: &[File]) -> Result<(), CliError> {
    for file in files {
        let mut reading = mapping.files().read(file);
        let mut last = None;
        while let Some(part) = reading.next().await? {
            print::bytes(&part)?;
            last = part.last().copied().or(last);
        }
        if *file.record.format == Format::Lines && last.is_some_and(|last| last != b'\n') {
            print::bytes(b"\n")?;
        }
    }
    Ok(())
}

fn show_seen(seen: MapEvent, bar: &ProgressBar, progress: &mut ProgressDisplay) {
    match seen {
        MapEvent::Progress(status) => bar.set_position(status.committed_chunks.into()),
        MapEvent::Tasks(view) => progress.warn(view),
        MapEvent::Result(result) => {
            let outcome = &result.outcome;
            let is_failed = !matches!(outcome.status, Status::Succeeded | Status::Cancelled);
            progress.suspend(|| {
                print::bytes_to_stderr(&outcome.stderr);
                print::bytes_to_stderr(print::end_of_part(&outcome.stderr));
                if outcome.cut_bytes > 0 {
                    say!("{} (of task {})", show::cut(outcome.cut_bytes), result.index);
                }
                if is_failed {
                    say!("task {} did not succeed: {}", result.index, outcome.in_words(None));
                }
            });
        }
        MapEvent::Dispatcher(seen) => progress.see(seen),
    }
}

pub(crate) fn summary(view: &MapView) -> String {
    let MapView { chunks, blocks, stolen, speculated, .. } = view;
    let into = |files: &Vec<FileName>| format!(" in {}", format_count(files.len() as u64, "file"));
    let into = view.files.as_ref().map_or_else(String::new, into);
    format!(
        "{} in {}; {} split for other tasks, {} processed twice; {}{into}, after {}",
        format_count((*chunks).into(), "chunk"),
        format_count(*blocks, "block"),
        format_count((*stolen).into(), "block"),
        format_count((*speculated).into(), "block"),
        format_bytes(view.bytes),
        format_duration_us(view.elapsed_us)
    )
}

/// The bar of a job over blocks, also of one pass after the other.
pub(crate) fn bar(is_hidden: bool) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{prefix}{wide_bar:.green} {pos} of {len} chunks, {elapsed}");
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
    bar.with_style(style.expect("a valid template"))
}
