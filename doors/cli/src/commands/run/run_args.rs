//! Options of `eyas run`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use eyas_client::types::{Distribution, Name, units};
use eyas_client::{CPUS, SourceError, check_range};

use super::lists::CommandAndLists;
use super::result_args::ResultArgs;
use super::resume::ResumeArgs;
use crate::error::ValueError;
use crate::global::ReconnectArgs;
use crate::node_args::{SHAPE_HEADINGS, ShapeArgs, parse_amount};
use crate::pool_file::PoolFileArgs;
use crate::words::OutputWord;
use crate::{help, report as pages, words};

/// Lines that the tests run.
const EXAMPLES: &str = "\
Examples:
  eyas run --each 'texts/*.txt' -- wc -w {}
  eyas run --each-line list.txt --cpus 0.5 -- echo {}
  eyas run -j 2 -- wc -w {} ::: texts/*.txt";

#[derive(Args)]
#[command(arg = help::option_for_all(), after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// The command, with placeholders {} {.} {/} {//} {/.} {1} … {#} {%} {input:1} … {input:*}
    /// {inputs}; \{} is {} itself. With --each and --each-line, a command without a placeholder
    /// gets {} as its last word. Lists of items may follow: ::: ITEM… or :::: FILE…, and :::+ for a
    /// list that is linked to the one before it
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present_any = ["noop", "resume", "resume_failed"],
        value_parser = words::name()
    )]
    pub(super) command: Vec<Name>,
    /// Run one task for each file that matches GLOB; the task reads this file (may be repeated).
    /// Write GLOB in quotes; it may be s3://… or eyas:///…
    #[arg(
        long,
        value_name = "GLOB",
        conflicts_with_all = ["each_block", "each_line", "array"],
        value_parser = words::name(),
        help_heading = "Items"
    )]
    pub(super) each: Vec<Name>,
    /// Run one task for each block of the files of the cluster that match GLOB, eyas:///PATTERN;
    /// the task reads this block, which has whole records (may be repeated)
    #[arg(
        long,
        value_name = "GLOB",
        conflicts_with_all = ["each_line", "array"],
        value_parser = words::name(),
        help_heading = "Items"
    )]
    pub(super) each_block: Vec<Name>,
    /// Run one task for each line of FILE; `-` is standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "array",
        value_parser = words::name(),
        help_heading = "Items"
    )]
    pub(super) each_line: Option<Name>,
    /// Run one task for each number of a range, such as 1-100, 0-90:10 or 0-1:0.25; for each
    /// combination if repeated. Write {} where the command needs the number, {1} and {2} for
    /// those of several ranges
    #[arg(
        long,
        value_name = "RANGE",
        allow_hyphen_values = true,
        value_parser = parse_range,
        help_heading = "Items"
    )]
    pub(super) array: Vec<Name>,
    /// Do not add {} to a command without a placeholder
    #[arg(long, help_heading = "Items")]
    pub(super) no_append: bool,
    /// Split lines at TEXT into columns {1}, {2} …
    #[arg(long, value_name = "TEXT", requires = "each_line", help_heading = "Items")]
    pub(super) colsep: Option<String>,
    /// A file that every task reads, or a pattern; may have placeholders (may be repeated).
    /// `,decompress` unpacks it, `,with=COMMAND` makes a folder of it, once on each node
    #[arg(
        long,
        short = 'i',
        value_name = "PATH",
        value_parser = words::name(),
        help_heading = "Inputs and outputs"
    )]
    pub(super) input: Vec<Name>,
    /// An input that is copied to every executor that may run the tasks, before the tasks need it
    /// (may be repeated)
    #[arg(
        long,
        value_name = "PATH",
        value_parser = words::name(),
        help_heading = "Inputs and outputs"
    )]
    pub(super) broadcast: Vec<Name>,
    /// How broadcast inputs are copied to the executors: chain; or, for comparison, spanning-tree,
    /// which copies them before the first task starts (without --broadcast: all inputs)
    #[arg(
        long,
        value_name = "METHOD",
        default_value = "chain",
        help_heading = "Inputs and outputs"
    )]
    pub(super) distribution: Distribution,
    /// A file, or a pattern of files, that every task writes in its sandbox, and its destination
    /// (may be repeated). `,when=failure` delivers it if the task fails, `,when=always` anyway
    #[arg(
        long,
        short = 'o',
        value_name = "FILE[=DESTINATION][,when=WHEN]",
        value_parser = words::output(),
        help_heading = "Inputs and outputs"
    )]
    pub(super) output: Vec<OutputWord>,
    /// Run each task in a folder of its own, which is removed afterwards; implied by --output
    #[arg(long, conflicts_with = "folder", help_heading = "Inputs and outputs")]
    pub(super) sandbox: bool,
    /// Working folder of the tasks, on storage that all nodes share [default: the current folder]
    #[arg(
        long,
        value_name = "PATH",
        value_parser = words::name(),
        help_heading = "Inputs and outputs"
    )]
    pub(super) folder: Option<Name>,
    /// Run tasks with outputs in the current folder. A word of the command that is the FILE of an
    /// output becomes a path in $EYAS_SANDBOX, from which the file is taken
    #[arg(long, conflicts_with_all = ["folder", "sandbox"], help_heading = "Inputs and outputs")]
    pub(super) in_place: bool,
    /// Give each task private copies of its inputs, which it may write, in place of hard links
    #[arg(long, help_heading = "Inputs and outputs")]
    pub(super) copy_inputs: bool,
    /// Decompress inputs that are compressed with gzip, bzip2, xz or zstd: each node decompresses a
    /// file once, and tasks find the content under its name without .gz, .bz2, .xz or .zst
    #[arg(long, help_heading = "Inputs and outputs")]
    pub(super) decompress: bool,
    /// Set an environment variable; the value may contain placeholders (may be repeated)
    #[arg(
        long,
        short = 'e',
        value_name = "NAME=VALUE",
        value_parser = words::variable(),
        help_heading = "Tasks"
    )]
    pub(super) env: Vec<(String, Name)>,
    /// Number of processors for each task, such as 2 or 0.5
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1.0,
        value_parser = parse_cpus,
        help_heading = "Tasks"
    )]
    pub(super) cpus: f64,
    /// Memory for each task, such as 2GB; a task that uses more is killed
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, help_heading = "Tasks")]
    pub(super) memory: Option<u64>,
    /// Disk space for each task's sandbox, such as 10GB; counted, not enforced
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, help_heading = "Tasks")]
    pub(super) disk: Option<u64>,
    /// Another resource for each task, such as gpu=1 (may be repeated)
    #[arg(long, value_name = "NAME=N", value_parser = parse_amount, help_heading = "Tasks")]
    pub(super) resource: Vec<(String, u64)>,
    /// Priority: tasks of higher priority go first, and may suspend running tasks of lower
    /// priority [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Tasks")]
    pub(super) priority: Option<i32>,
    /// Run tasks only on executors for which this expression is true, such as 'node.labels.site ==
    /// "a"'
    #[arg(long, value_name = "EXPR", help_heading = "Tasks")]
    pub(super) requirements: Option<String>,
    /// Prefer the free executor with the highest value of this expression, such as node.cpus, less
    /// transfer_seconds
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = "Tasks")]
    pub(super) rank: Option<String>,
    /// Kill a task that has run for this long, without the time of suspensions
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = units::parse_duration_us,
        help_heading = "Tasks"
    )]
    pub(super) timeout: Option<u64>,
    /// Number of retries after a failure
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Tasks")]
    pub(super) retries: u32,
    /// Run only what is out of date: use the results of earlier jobs with --reuse that ran the same
    /// command on the same versions of the inputs
    #[arg(long, visible_alias = "update", help_heading = "Tasks")]
    pub(super) reuse: bool,
    /// Print up to this much of each task's standard output, and of its standard error. If a task
    /// writes more, the exit code is 1. Output beyond 1 MiB is printed when all tasks have ended
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = units::parse_bytes,
        default_value = "1GiB",
        help_heading = "Results"
    )]
    pub(super) max_output: u64,
    /// Print and remember only this much of them, up to 16MiB; what is cut off does not change the
    /// exit code
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = units::parse_bytes,
        conflicts_with = "max_output",
        help_heading = "Results"
    )]
    pub(super) capture: Option<u64>,
    /// Print results in the order of the items
    #[arg(long, short = 'k', help_heading = "Results")]
    pub(super) keep_order: bool,
    #[command(flatten, next_help_heading = "Results")]
    pub(super) results: ResultArgs,
    #[command(flatten, next_help_heading = "Job")]
    pub(super) resume: ResumeArgs,
    /// Name of the job [default: the name of the program]
    #[arg(long, help_heading = "Job")]
    pub(super) name: Option<String>,
    /// Write the report to FILE (.html, .csv or .json), or `none` to skip it (may be repeated)
    /// [default: a file in eyas's home, which keeps the last 100 reports for 30 days]
    #[arg(long, value_name = "FILE", value_parser = parse_report, help_heading = "Results")]
    pub(super) report: Vec<String>,
    /// Run no command: a task ends when its inputs are on its node
    #[arg(long, conflicts_with = "command", help_heading = "Tasks")]
    pub(super) noop: bool,
    /// Run the job on nodes of this batch system, or of this pool of a pools file; they are
    /// requested for the job alone
    #[arg(
        long,
        value_name = "SYSTEM|POOL",
        conflicts_with_all = ["cluster", "access"],
        help_heading = "Batch systems"
    )]
    pub(super) pool: Option<String>,
    #[command(flatten, next_help_heading = "Batch systems")]
    pub(super) pool_files: PoolFileArgs,
    /// Options of that pool, as for `eyas pool add`, such as '--max-nodes 4 -- --partition=long'
    #[arg(
        long,
        value_name = "OPTIONS",
        requires = "pool",
        allow_hyphen_values = true,
        default_value = "",
        help_heading = "Batch systems"
    )]
    pub(super) pool_options: String,
    #[command(flatten)]
    pub(super) in_job: InJobArgs,
    #[command(flatten, next_help_heading = "Job")]
    pub(super) reconnect: ReconnectArgs,
    /// Run N tasks at a time on this machine, on one executor [default: two executors, or one for
    /// a single task, with a task for each processor]
    #[arg(
        long,
        short = 'j',
        value_name = "N",
        help_heading = "Local cluster",
        conflicts_with_all = ["cluster", "access", "pool", "nodes", "slots"],
        value_parser = clap::value_parser!(u32).range(1..=65536)
    )]
    pub(super) jobs: Option<u32>,
    #[command(flatten)]
    pub(super) shape: ShapeArgs,
    /// Options of `shape` that are on the command line.
    #[arg(skip)]
    pub(super) shape_given: Vec<String>,
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

impl RunArgs {
    /// The shape of a local cluster for a number of tasks: the user's, or one executor for as many
    /// tasks as `-j` says. A second executor is of no use to a single task, and takes time to
    /// start.
    pub(super) fn shape(&self, tasks: usize) -> ShapeArgs {
        let mut shape = self.shape.clone();
        if tasks == 1 && !self.gives_nodes() {
            shape.nodes = 1;
        }
        if let Some(jobs) = self.jobs {
            shape.nodes = 1;
            shape.node.slots = Some((f64::from(jobs) * self.cpus).ceil() as u32);
        }
        shape
    }

    /// The words of the run to go on with, without the name of the program, if this command line
    /// has no command of its own.
    ///
    /// # Errors
    /// If there is no such run, or if there are other options than `--resume`.
    pub fn earlier_words(
        &self,
        matches: &ArgMatches,
    ) -> Result<Option<(Vec<OsString>, ResumeArgs)>, clap::Error> {
        if !self.resume.is_given() || !self.command.is_empty() || self.noop {
            return Ok(None);
        }
        let command = RunArgs::augment_args(clap::Command::new("run"));
        let is_other = |arg: &&clap::Arg| {
            !["resume", "resume_failed", "dry_run"].contains(&arg.get_id().as_str())
                && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        };
        let wrong = |kind, why: String| Err(clap::Error::raw(kind, format!("{why}\n")));
        if let Some(other) = command.get_arguments().find(is_other) {
            let other = other.get_long().unwrap_or_default();
            let resume = self.resume.option();
            return wrong(
                ErrorKind::ArgumentConflict,
                format!(
                    "--{other} needs the command of the tasks: write the whole command line again, \
                     with {resume}, or `eyas run {resume}` alone"
                ),
            );
        }
        match self.resume.earlier_words() {
            Ok(words) => Ok(Some(words)),
            Err(why) => wrong(ErrorKind::ValueValidation, why.to_string()),
        }
    }

    /// These are the arguments of an earlier run, with which this one goes on.
    pub fn go_on(&mut self, resume: ResumeArgs, is_dry: bool) {
        self.resume = resume;
        self.results.dry_run |= is_dry;
    }

    /// Whether commands are printed, and none runs.
    pub fn is_dry_run(&self) -> bool {
        self.results.dry_run
    }

    /// Whether `--nodes` is on the command line.
    pub(super) fn gives_nodes(&self) -> bool {
        self.shape_given.iter().any(|option| option == "--nodes")
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

    pub(super) fn why_no_tasks(&self) -> String {
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

/// Whether the dispatcher runs in a batch job.
#[derive(Args)]
pub(super) struct InJobArgs {
    /// Run the dispatcher in a batch job of its own, with one processor; this command waits and
    /// prints. The job goes on if this command is killed
    #[arg(long, requires = "pool", help_heading = "Batch systems")]
    dispatcher_in_job: bool,
    /// Time limit of the dispatcher's job [default: 1d]
    #[arg(
        long,
        value_name = "DURATION",
        requires = "dispatcher_in_job",
        value_parser = units::parse_duration_us,
        help_heading = "Batch systems"
    )]
    pub dispatcher_time_limit: Option<u64>,
    /// The folder of the cluster, for the command in the job
    #[arg(
        long,
        value_name = "PATH",
        hide = true,
        requires = "pool",
        conflicts_with = "dispatcher_in_job"
    )]
    run_folder: Option<PathBuf>,
}

impl InJobArgs {
    /// Whether this process only waits.
    pub fn is_elsewhere(&self) -> bool {
        self.dispatcher_in_job
    }

    /// The folder of the cluster, if it was chosen by the process that waits.
    pub fn folder(&self) -> Option<&Path> {
        self.run_folder.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use clap::FromArgMatches;

    use super::*;
    use crate::global::GlobalArgs;

    /// Number of executors that a cluster of the job's own gets, for a number of tasks.
    fn nodes(words: &[&str], tasks: usize) -> u32 {
        let command = GlobalArgs::augment_args(clap::Command::new("run"));
        let command = RunArgs::augment_args(command);
        let words = [&["run"], words, &["--", "true"]].concat();
        let matches = command.try_get_matches_from(words).unwrap();
        let mut args = RunArgs::from_arg_matches(&matches).unwrap();
        args.note_given(&matches);
        args.shape(tasks).nodes
    }

    #[test]
    fn a_single_task_gets_one_executor_unless_the_user_says_how_many() {
        assert_eq!((nodes(&[], 1), nodes(&[], 2)), (1, 2));
        assert_eq!((nodes(&["--nodes", "2"], 1), nodes(&["--nodes", "3"], 2)), (2, 3));
        assert_eq!(nodes(&["-j", "4"], 8), 1);
    }
}
