//! `eyas run`: prepares a job, connects to a cluster or starts one, submits the job, prints
//! progress and results, writes the report, and stops the cluster that it started.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::{Distribution, JobId, Name, shown, units};
use eyas_client::view::{JobReport, JobView};
use eyas_client::{CPUS, Client, ClientError, Draft, SourceError, TaskTexts, check_range, home};
use eyas_session::private::{PrivateFolder, temporary_folder};
use eyas_session::{Access, SessionError, trusted};
use tokio::sync::mpsc;

use crate::connect::{connect_to, unexpected};
use crate::error::{CliError, FAILED, INTERRUPTED, ValueError};
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::Interrupt;
use crate::local::LocalFolders;
use crate::node_args::{SHAPE_HEADINGS, ShapeArgs, parse_amount};
use crate::pool_file::PoolFileArgs;
use crate::print::say;
use crate::waiting::{self, ProgressDisplay};
use crate::{report as pages, show, words};
use draft::draft;
use halt::HaltWatch;
use in_job::InJobArgs;
use job_watch::JobWatch;
use lists::CommandAndLists;
use own_cluster::{RunPool, private_folder, start_own};
use result_args::ResultArgs;
use result_printer::{PrintOptions, ResultPrinter};

mod draft;
mod dry_run;
mod halt;
mod in_job;
mod job_watch;
mod lists;
mod own_cluster;
mod result_args;
mod result_files;
mod result_printer;
mod tag;

/// Reports in eyas's home: the newest are kept, up to this number.
const MAX_REPORTS: usize = 100;
/// Reports in eyas's home are kept for this long.
const MAX_REPORT_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Run one task for each file that matches GLOB; the task reads this file (may be repeated).
    /// Write the pattern in quotes; s3://BUCKET/PATTERN matches objects, eyas:///PATTERN files of
    /// the cluster. A command without a placeholder gets {} as its last word
    #[arg(
        long,
        value_name = "GLOB",
        conflicts_with_all = ["each_block", "each_line", "array"],
        value_parser = words::name()
    )]
    each: Vec<Name>,
    /// Run one task for each block of the files of the cluster that match GLOB, eyas:///PATTERN;
    /// the task reads this block, which has whole records (may be repeated)
    #[arg(
        long,
        value_name = "GLOB",
        conflicts_with_all = ["each_line", "array"],
        value_parser = words::name()
    )]
    each_block: Vec<Name>,
    /// Run one task for each line of FILE; `-` is standard input. A command without a placeholder
    /// gets {} as its last word
    #[arg(long, value_name = "FILE", conflicts_with = "array", value_parser = words::name())]
    each_line: Option<Name>,
    /// Run one task for each number of a range, such as 1-100, 0-90:10 or 0-1:0.25; for each
    /// combination if repeated. Write {} where the command needs the number, {1} and {2} for
    /// those of several ranges
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true, value_parser = parse_range)]
    array: Vec<Name>,
    /// Do not add {} to a command without a placeholder
    #[arg(long)]
    no_append: bool,
    /// Split lines at TEXT into columns {1}, {2} …
    #[arg(long, value_name = "TEXT", requires = "each_line")]
    colsep: Option<String>,
    /// A file that every task reads, or a pattern of files; may contain placeholders (may be
    /// repeated)
    #[arg(long, short = 'i', value_name = "PATH", value_parser = words::name())]
    input: Vec<Name>,
    /// An input that is copied to every executor that may run the tasks, before the tasks need it
    /// (may be repeated)
    #[arg(long, value_name = "PATH", value_parser = words::name())]
    broadcast: Vec<Name>,
    /// How broadcast inputs are copied to the executors: chain; or, for comparison, spanning-tree,
    /// which copies them before the first task starts (without --broadcast: all inputs)
    #[arg(long, value_name = "METHOD", default_value = "chain")]
    distribution: Distribution,
    /// A file, or a pattern of files, that every task writes in its sandbox, and the destination
    /// (may be repeated)
    #[arg(long, short = 'o', value_name = "FILE[=DESTINATION]", value_parser = words::name())]
    output: Vec<Name>,
    /// Run each task in a folder of its own, which is removed afterwards; implied by --output
    #[arg(long, conflicts_with = "folder")]
    sandbox: bool,
    /// Working folder of the tasks, on storage that all nodes share [default: the current folder]
    #[arg(long, value_name = "PATH", value_parser = words::name())]
    folder: Option<Name>,
    /// Run tasks with outputs in the current folder and not in folders of their own. A word of the
    /// command that is the FILE of an output becomes a path in $EYAS_SANDBOX; the file is taken
    /// from there
    #[arg(long, conflicts_with_all = ["folder", "sandbox"])]
    in_place: bool,
    /// Give each task private copies of its inputs, which it may write, in place of hard links
    #[arg(long)]
    copy_inputs: bool,
    /// Set an environment variable; the value may contain placeholders (may be repeated)
    #[arg(long, short = 'e', value_name = "NAME=VALUE", value_parser = words::variable())]
    env: Vec<(String, Name)>,
    /// Number of processors for each task, such as 2 or 0.5
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = parse_cpus)]
    cpus: f64,
    /// Memory for each task, such as 2GB; a task that uses more is killed
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    memory: Option<u64>,
    /// Disk space for each task's sandbox, such as 10GB; counted, not enforced
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    disk: Option<u64>,
    /// Another resource for each task, such as gpu=1 (may be repeated)
    #[arg(long, value_name = "NAME=N", value_parser = parse_amount)]
    resource: Vec<(String, u64)>,
    /// Priority: tasks of higher priority go first, and may suspend running tasks of lower
    /// priority [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,
    /// Run tasks only on executors for which this expression is true, such as 'node.labels.site ==
    /// "a"'
    #[arg(long, value_name = "EXPR")]
    requirements: Option<String>,
    /// Prefer the free executor with the highest value of this expression, such as local_bytes
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    rank: Option<String>,
    /// Kill a task that has run for this long, not counting time during which it was suspended
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    timeout: Option<u64>,
    /// Number of retries after a failure
    #[arg(long, value_name = "N", default_value_t = 0)]
    retries: u32,
    /// Use the results of earlier jobs with --reuse that ran the same command on the same inputs
    #[arg(long)]
    reuse: bool,
    /// Print up to this much of each task's standard output, and of its standard error. If a task
    /// writes more, the exit code is 1. Output beyond 1 MiB is printed when all tasks have ended
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, default_value = "1GiB")]
    max_output: u64,
    /// Print and remember only this much of them, up to 16MiB; what is cut off does not change the
    /// exit code
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = units::parse_bytes,
        conflicts_with = "max_output"
    )]
    capture: Option<u64>,
    /// Print results in the order of the items
    #[arg(long, short = 'k')]
    keep_order: bool,
    #[command(flatten)]
    results: ResultArgs,
    /// Name of the job [default: the name of the program]
    #[arg(long)]
    name: Option<String>,
    /// Write the report to FILE (.html, .csv or .json), or `none` to skip it (may be repeated)
    /// [default: a file in eyas's home, which keeps the last 100 reports for 30 days]
    #[arg(long, value_name = "FILE", value_parser = parse_report)]
    report: Vec<String>,
    /// Run no command: a task ends when its inputs are on its node
    #[arg(long, conflicts_with = "command")]
    noop: bool,
    /// Run the job on nodes of this batch system, or of this pool of a pools file; they are
    /// requested for the job alone
    #[arg(long, value_name = "SYSTEM|POOL", conflicts_with_all = ["cluster", "access"])]
    pool: Option<String>,
    #[command(flatten)]
    pool_files: PoolFileArgs,
    /// Options of that pool, as for `eyas pool add`, such as '--max-nodes 4 -- --partition=long'
    #[arg(
        long,
        value_name = "OPTIONS",
        requires = "pool",
        allow_hyphen_values = true,
        default_value = ""
    )]
    pool_options: String,
    #[command(flatten)]
    in_job: InJobArgs,
    #[command(flatten)]
    reconnect: ReconnectArgs,
    /// Run N tasks at a time on this machine, on one executor [default: two executors with a task
    /// for each processor]
    #[arg(
        long,
        short = 'j',
        value_name = "N",
        help_heading = "Local cluster",
        conflicts_with_all = ["cluster", "access", "pool", "nodes", "slots"],
        value_parser = clap::value_parser!(u32).range(1..=65536)
    )]
    jobs: Option<u32>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// Options of `shape` that are on the command line.
    #[arg(skip)]
    shape_given: Vec<String>,
    /// The command, with placeholders {} {.} {/} {//} {/.} {1} … {#} {%} {input:1} … {inputs}; \{}
    /// is {} itself. Lists of items may follow: ::: ITEM… or :::: FILE…, and :::+ for a list that
    /// is linked to the one before it
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "noop",
        value_parser = words::name()
    )]
    command: Vec<Name>,
}

fn parse_range(text: &str) -> Result<Name, SourceError> {
    check_range(text).map(|()| text.into())
}

fn parse_cpus(text: &str) -> Result<f64, ValueError> {
    let cpus = text.parse().ok().filter(|cpus| CPUS.contains(cpus));
    cpus.ok_or_else(|| ValueError::Processors(text.into()))
}

/// A path of a report, or `none`.
fn parse_report(text: &str) -> Result<String, ValueError> {
    if text != "none" {
        pages::parse_path(text)?;
    }
    Ok(text.to_owned())
}

/// Runs a job to its end.
pub(crate) async fn run(args: Box<RunArgs>, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    if args.in_job.is_elsewhere() && !args.results.dry_run {
        return in_job::run(&args).await;
    }
    let (mut interrupt, progress) = (Interrupt::listen(), ProgressDisplay::begin());
    if args.report.is_empty() {
        // The report is written to eyas's home: if there is none, the job is refused before it
        // runs.
        home().map_err(|e| format!("{e}; or skip the report with --report none"))?;
    }
    let on_cluster = on_cluster(&args, global).await?;
    let is_known = on_cluster || global.names_cluster();
    let cluster = is_known.then(|| global.cluster()).transpose()?;
    let drafted = tokio::select! {
        draft = draft(&args, cluster.as_ref(), &progress) => draft.map(Some),
        () = interrupt.received() => Ok(None),
    };
    let Some(draft) = drafted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    if draft.is_empty() {
        say!("no tasks: {}", args.why_no_tasks());
        return Ok(ExitCode::SUCCESS);
    }
    if args.results.dry_run {
        progress.clear();
        dry_run::print_commands(&TaskTexts::of(&draft))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(cluster) = cluster.filter(|_| on_cluster) {
        let access = cluster.access()?;
        let client = connect_to(&access, global).await?;
        let on = global.named_option();
        return run_on(&access, client, draft, &args, Some(&on), progress, interrupt).await;
    }
    let pool = args.pool.as_ref().map(|word| RunPool::new(word, &args)).transpose()?;
    // Nodes of a batch system read the folder, which must be on a disk that they share.
    let temporary = match &pool {
        Some(pool) if pool.is_elsewhere => home()?.join("runs"),
        _ => temporary_folder(),
    };
    if pool.is_some() {
        trusted::folder(&temporary, 0o700)?;
    }
    let folder = args
        .in_job
        .folder()
        .map_or_else(|| private_folder(&temporary), |folder| Ok(folder.to_owned()))?;
    let folders = LocalFolders::ephemeral(&folder);
    let shape = args.shape();
    let (local, client) = tokio::select! {
        local = start_own(folders, &shape, pool) => local,
        () = interrupt.received() => return Ok(ExitCode::from(INTERRUPTED)),
    }?;
    let access = local.access.clone();
    let done = run_on(&access, client, draft, &args, None, progress, interrupt).await;
    local.stop().await;
    done
}

/// Whether the job runs on a cluster that is there: on the one that is named, as with every
/// command; else on `default`, if it runs and no option shapes a cluster of the job's own.
async fn on_cluster(args: &RunArgs, global: &GlobalArgs) -> Result<bool, CliError> {
    if args.pool.is_some() {
        return match args.shape_given.iter().any(|option| option == "--nodes") {
            true => Err(wrong_option(
                "--nodes cannot be used with --pool, whose nodes a batch system grants: write \
                 --pool-options '--max-nodes N'",
            )),
            false => Ok(false),
        };
    }
    if global.names_cluster() {
        return match args.shape_given.first() {
            Some(option) => Err(wrong_option(&format!(
                "{option} is for a cluster that `eyas run` starts for the job, but the job runs \
                 on a cluster that is there ({}): leave {option} out, or name no cluster",
                global.cluster_option()
            ))),
            None => Ok(true),
        };
    }
    // Without a home for clusters, there is none.
    let Ok(cluster) = global.cluster() else { return Ok(false) };
    if !args.shape_given.is_empty() || !cluster.access_path().exists() {
        return Ok(false);
    }
    match Client::connect(&cluster.access()?).await {
        Ok(_) => Ok(true),
        Err(ClientError::Session(SessionError::Unreachable { .. })) => {
            say!(
                "the cluster `{}` does not run, so the job gets a temporary cluster",
                global.cluster_name()
            );
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn wrong_option(why: &str) -> CliError {
    clap::Error::raw(ErrorKind::ArgumentConflict, format!("{why}\n")).into()
}

impl RunArgs {
    /// The shape of a local cluster: the user's, or one executor for as many tasks as `-j` says.
    fn shape(&self) -> ShapeArgs {
        let mut shape = self.shape.clone();
        if let Some(jobs) = self.jobs {
            shape.nodes = 1;
            shape.node.slots = Some((f64::from(jobs) * self.cpus).ceil() as u32);
        }
        shape
    }

    /// Notes which options of the shape are on the command line, and not defaults.
    pub fn note_given(&mut self, matches: &ArgMatches) {
        let command = RunArgs::augment_args(clap::Command::new("run"));
        let is_given = |arg: &&clap::Arg| {
            arg.get_help_heading().is_some_and(|heading| SHAPE_HEADINGS.contains(&heading))
                && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        let given = command.get_arguments().filter(is_given);
        self.shape_given = given.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
    }

    fn why_no_tasks(&self) -> String {
        if CommandAndLists::of(&self.command).has_lists() {
            return "a list behind the command has no items".into();
        }
        match &self.each_line {
            Some(file) if *file == "-" => "standard input has no lines".into(),
            Some(file) => format!("{file} has no lines"),
            None if !self.each_block.is_empty() => {
                "the files are empty, so they have no blocks".into()
            }
            None => "name files with --each, blocks with --each-block, lines with --each-line or \
                     numbers with --array"
                .into(),
        }
    }
}

/// Runs a job on a cluster. `stays` is the option that names it. Without it, this command has
/// started the cluster; then the cluster does not grow, and a task that is too large for it is an
/// error.
async fn run_on(
    access: &Access,
    mut client: Client,
    draft: Draft,
    args: &RunArgs,
    stays: Option<&str>,
    mut progress: ProgressDisplay,
    mut interrupt: Interrupt,
) -> Result<ExitCode, CliError> {
    let is_own = stays.is_none();
    if args.results.bar {
        progress.print_lines();
    }
    let (tasks, texts) = (draft.len() as u64, args.results.texts(&draft));
    let mut files = args.results.files(texts.as_ref()).inspect_err(|_| progress.clear())?;
    let submitted = match is_own {
        // The job ends with its cluster, so it need not be cancelled.
        true => tokio::select! {
            job = client.submit(draft) => job.map(Some).map_err(CliError::from),
            () = interrupt.received() => Ok(None),
        },
        false => waiting::submit(&mut client, draft, &progress, &mut interrupt).await,
    };
    let Some(job) = submitted.inspect_err(|_| progress.clear())? else {
        progress.clear();
        return Ok(ExitCode::from(INTERRUPTED));
    };
    files.submitted_now();
    interrupt.set_final_message(stays.map(|on| waiting::continues(job, on)));
    let (stops, stopped) = mpsc::unbounded_channel();
    let mut output = ResultPrinter::new(
        PrintOptions {
            keep_order: args.keep_order,
            is_joined: tasks > 1,
            job: (!is_own).then_some(job),
            tags: texts.filter(|_| args.results.tag),
        },
        progress,
        files,
        HaltWatch::new(args.results.halt.clone(), tasks),
        stops,
    );
    // Nothing restarts the dispatcher of a cluster that this command has started.
    let patience = if is_own { Duration::ZERO } else { args.reconnect.patience() };
    let watch = JobWatch { access, job, stays, patience };
    let (code, ended) = watch.until_end(&mut client, &mut output, &mut interrupt, stopped).await?;
    output.finish(access, job).await?;
    let code = if output.has_cut() { code_after_cut(code, args) } else { code };
    say!("{}", show::summary(&ended));
    how_to_go_on(&ended, stays, code).iter().for_each(|line| say!("{line}"));
    if let Err(error) = write_reports(access, job, args).await {
        let at = where_results_are(args);
        let again = stays.map_or_else(String::new, |on| report_again(job, on));
        say!("the job's report could not be written: {error}. {at}{again}");
    }
    if let Some(error) = output.error.filter(|error| !error.is_broken_pipe()) {
        return Err(error.into());
    }
    if !output.files.errors.is_empty() {
        return Err(output.files.errors.join("; ").into());
    }
    Ok(ExitCode::from(code))
}

/// How to go on with a job of which tasks did not succeed. `stays` is the option that names a
/// cluster that stays; the job of any other cluster ends with it.
fn how_to_go_on(ended: &JobView, stays: Option<&str>, code: u8) -> Option<String> {
    match stays {
        Some(on) => waiting::again(ended, on),
        None if code == INTERRUPTED && ended.tasks.cancelled > 0 => Some(
            "the job ends with its temporary cluster. On a cluster that stays, `eyas job retry` \
             goes on with such a job: start one with `eyas start local --detach`"
                .into(),
        ),
        None => None,
    }
}

/// The exit code of a job whose output was cut, if it is `code` otherwise.
fn code_after_cut(code: u8, args: &RunArgs) -> u8 {
    // A user who names a limit on what is remembered wants no more.
    if args.capture.is_some() {
        say!(
            "with --capture, cut output does not change the exit code; with --max-output, the exit \
             code is 1"
        );
        return code;
    }
    if code == 0 { FAILED } else { code }
}

async fn write_reports(access: &Access, job: JobId, args: &RunArgs) -> Result<(), CliError> {
    if args.report.iter().all(|path| path == "none") && !args.report.is_empty() {
        return Ok(());
    }
    // The connection of the watch may have been closed in the middle of an answer, so a new one is
    // opened.
    let report = fetch_report(&mut Client::connect(access).await?, job).await?;
    for path in args.report.iter().filter(|path| *path != "none").map(Path::new) {
        pages::write(path, &report, None)?;
        say!("report: {}", path.display());
    }
    if args.report.is_empty() {
        let path = home()?.join("reports");
        let name = format!("{}-{}-{job}.html", unix_s(), std::process::id());
        // Command lines and paths are for their user alone.
        let folder = PrivateFolder::make(&path)?;
        folder.close()?;
        folder.write_for_now(name.as_ref(), pages::html(&report, None).as_bytes())?;
        say!("report: {}", path.join(name).display());
        remove_old_reports(&path);
    }
    Ok(())
}

async fn fetch_report(client: &mut Client, job: JobId) -> Result<JobReport, CliError> {
    match client.ask(FromClient::Report { job }).await? {
        ToClient::Report(report) => Ok(*report),
        _ => unexpected(),
    }
}

/// Removes the reports in eyas's home that are too old or too many. Errors are ignored: the next
/// run tries again.
fn remove_old_reports(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_report =
        |name: &OsStr| Path::new(name).extension().is_some_and(|ending| ending == "html");
    let mut reports: Vec<_> = entries
        .filter(|entry| is_report(&entry.file_name()))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    reports.sort_unstable_by(|a, b| b.cmp(a));
    let is_old = |written: SystemTime| written.elapsed().is_ok_and(|age| age > MAX_REPORT_AGE);
    for (index, (written, path)) in reports.iter().enumerate() {
        if index >= MAX_REPORTS || is_old(*written) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Where the results of the job are, for the message that the report could not be written.
fn where_results_are(args: &RunArgs) -> String {
    let destination = |output: &Name| {
        let (file, to) = words::split_once(output).unwrap_or((output, b"the current folder"));
        format!("`{}` in {}", shown(file), shown(to))
    };
    let outputs: Vec<_> = args.output.iter().map(destination).collect();
    let files = if outputs.is_empty() {
        String::new()
    } else {
        format!(", their files are {}", outputs.join(", "))
    };
    format!("Results are not affected: the output of tasks is on standard output{files}.")
}

fn report_again(job: JobId, on: &str) -> String {
    format!(" `eyas report {job}{on} -o FILE` writes the report to another file.")
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
