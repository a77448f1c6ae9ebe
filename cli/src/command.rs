//! What can be typed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use eyas_client::types::{Distribution, JobId, Name, PlacementPolicy, TaskId, units};
use eyas_client::{Cluster, ClusterError, array};

pub(crate) use crate::command::dfs::{DfsCommand, FileShapeArgs};
pub(crate) use crate::command::node::{NodeArgs, labels, named_amounts};
use crate::print::{self, PrintError};
use crate::{
    access::AccessCommand, get::PlaceArgs, io::IoCommand, map::MapArgs, model::ModelArgs, push::PushArgs, report::Form,
    sim::SimCommand, worker::WorkerCommand,
};

mod dfs;
mod node;
pub(crate) mod words;

/// Runs very many short tasks over very much shared data, and brings work and data together.
#[derive(Parser)]
#[command(name = "eyas", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Eyas {
    #[command(flatten)]
    pub reach: Reach,
    #[command(subcommand)]
    pub command: Command,
}

/// Which cluster is meant, and how answers are written.
#[derive(Args)]
pub(crate) struct Reach {
    /// The cluster of that name [default: $EYAS_CLUSTER, else `default`]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    pub cluster: Option<String>,
    /// The cluster with that access file [default: $EYAS_ACCESS]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "cluster", help_heading = "Global options")]
    pub access: Option<PathBuf>,
    /// Answer in JSON, with a `schema_version`
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
}

impl Reach {
    /// The cluster that is meant.
    pub fn cluster(&self) -> Result<Cluster, ClusterError> {
        match (&self.access, &self.cluster) {
            (Some(access), _) => Ok(Cluster::with_access(access)),
            (None, Some(name)) => Cluster::named(name),
            (None, None) => Cluster::implied(),
        }
    }

    /// Whether a cluster was named, on the command line or in the environment.
    pub fn is_named(&self) -> bool {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.access.is_some() || self.cluster.is_some() || is_set("EYAS_ACCESS") || is_set("EYAS_CLUSTER")
    }
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a command over many files, and wait for it; on a local cluster of its own unless one is named
    Run(Box<RunArgs>),
    /// Submit the jobs of a job file
    Submit(SubmitArgs),
    /// Jobs: list, show, wait, get, cancel, retry, release, forget
    #[command(subcommand)]
    Job(JobCommand),
    /// Tasks: list, show, log, get, cancel
    #[command(subcommand)]
    Task(TaskCommand),
    /// Say why a task waits, or where it went and why
    Explain {
        /// The task, as JOB.INDEX
        task: TaskId,
    },
    /// Executors: list, stop
    #[command(subcommand)]
    Executor(ExecutorCommand),
    /// The catalog: which executors hold an object
    #[command(subcommand)]
    Catalog(CatalogCommand),
    /// Have executors fetch objects before tasks want them
    Push(PushArgs),
    /// Files of the cluster's own file system, on executors that were started with --dfs
    #[command(subcommand)]
    Dfs(Box<DfsCommand>),
    /// Run a program over the blocks of files of the cluster's file system: each reads its block on standard input
    Map(Box<MapArgs>),
    /// Programs that share slow storage without trampling each other
    #[command(subcommand)]
    Io(IoCommand),
    /// Keys of the cluster: show, rotate, revoke
    #[command(subcommand)]
    Access(AccessCommand),
    /// Write a job's report
    Report(ReportArgs),
    /// Watch the cluster: its executors, jobs and rates, as they change
    Top(TopArgs),
    /// Start a dispatcher, an executor, or a whole cluster on this machine
    #[command(subcommand)]
    Start(Box<StartCommand>),
    /// Stop the cluster
    Stop,
    /// Simulate a cluster: the same decisions on modelled nodes, disks and networks
    #[command(subcommand)]
    Sim(SimCommand),
    /// Say how long a workload would take on a cluster, by the papers' abstract model
    Model(Box<ModelArgs>),
    /// Print a completion script for a shell
    Completion {
        /// Which shell
        shell: Shell,
    },
    /// Write the manual pages
    Man {
        /// Where to
        #[arg(default_value = ".")]
        folder: PathBuf,
    },
    #[command(hide = true)]
    Guard { executor: String, sandboxes: PathBuf },
    #[command(hide = true, subcommand)]
    Worker(WorkerCommand),
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// One task for each file that the pattern names, which it reads (in quotes; again for more); s3://BUCKET/PATTERN names
    /// objects. A command without a
    /// placeholder for the item gets {} as its last word
    #[arg(long, value_name = "GLOB", conflicts_with_all = ["each_line", "array"], value_parser = words::name())]
    pub each: Vec<Name>,
    /// One task for each line of a file (`-`: standard input). A command without a placeholder for the item gets {} as its
    /// last word
    #[arg(long, value_name = "FILE", conflicts_with = "array", value_parser = words::name())]
    pub each_line: Option<Name>,
    /// One task for each number of a range, such as 1-100 or 0-90:10. The command stays as it is: write {} where the
    /// number goes
    #[arg(long, value_name = "RANGE", value_parser = parse_range)]
    pub array: Option<String>,
    /// Never add {} to the command
    #[arg(long)]
    pub no_append: bool,
    /// Cut lines in columns {1}, {2} … at this text
    #[arg(long, value_name = "TEXT", requires = "each_line")]
    pub colsep: Option<String>,
    /// A file that every task reads, or a pattern of files; may have placeholders (again for more)
    #[arg(long, short = 'i', value_name = "PATH", value_parser = words::name())]
    pub input: Vec<Name>,
    /// The same, and every executor that may run the tasks fetches it ahead of them (again for more)
    #[arg(long, value_name = "PATH", value_parser = words::name())]
    pub broadcast: Vec<Name>,
    /// How those go to executors: chain; or, for comparison, spanning-tree (all inputs if none is named, before any task)
    #[arg(long, value_name = "HOW", default_value = "chain")]
    pub distribution: Distribution,
    /// A file or glob that every task writes in its sandbox, and where it goes: FILE[=DESTINATION] (again for more)
    #[arg(long, short = 'o', value_name = "FILE[=TO]", value_parser = words::name())]
    pub output: Vec<Name>,
    /// Run each task in a folder of its own (implied by --output)
    #[arg(long, conflicts_with = "folder")]
    pub sandbox: bool,
    /// Working folder, seen by all nodes [default: the current one]
    #[arg(long, value_name = "PATH", value_parser = words::name())]
    pub folder: Option<Name>,
    /// Environment variable; the value may have placeholders (again for more)
    #[arg(long, short = 'e', value_name = "NAME=VALUE", value_parser = words::variable())]
    pub env: Vec<(String, Name)>,
    /// Processors that a task takes
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub cpus: f64,
    /// Memory that a task takes
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub memory: Option<u64>,
    /// Disk that a task's sandbox takes
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub disk: Option<u64>,
    /// Another resource that a task takes, such as gpu=1 (again for more)
    #[arg(long, value_name = "NAME=N", value_parser = node::parse_amount)]
    pub resource: Vec<(String, u64)>,
    /// Tasks of higher priority go first, and may suspend running ones of lower [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Run tasks only where this is true, such as 'node.labels.site == "a"'
    #[arg(long, value_name = "EXPR")]
    pub requirements: Option<String>,
    /// Of several executors that are free, prefer that for which this number is highest, such as local_bytes
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    pub rank: Option<String>,
    /// Kill a task that runs longer; what it was suspended for does not count
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration_us)]
    pub timeout: Option<u64>,
    /// Try a failed task again so often
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
    /// Do not run what was run before for a job with --reuse, and whose result is still there
    #[arg(long)]
    pub reuse: bool,
    /// Keep no more of each task's stdout and stderr
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes)]
    pub capture: Option<u64>,
    /// Print results in the order of the items
    #[arg(long, short = 'k')]
    pub keep_order: bool,
    /// The job's name [default: the program's]
    #[arg(long)]
    pub name: Option<String>,
    /// Write the report to FILE (.html, .csv or .json), or `none` to skip it (again for more) [default: a file in eyas's
    /// home]
    #[arg(long, value_name = "FILE", value_parser = parse_report)]
    pub report: Vec<String>,
    /// Do nothing in each task but have its inputs there
    #[arg(long, conflicts_with = "command")]
    pub noop: bool,
    #[command(flatten)]
    pub reconnect: ReconnectArgs,
    #[command(flatten)]
    pub shape: ShapeArgs,
    /// The command, with placeholders {} {.} {/} {//} {/.} {1} … {#} {%} {input:1} …
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "noop", value_parser = words::name())]
    pub command: Vec<Name>,
}

/// The shape of a cluster on one machine.
#[derive(Args, Clone)]
pub(crate) struct ShapeArgs {
    /// Executors of a local cluster
    #[arg(long, value_name = "N", help_heading = "Local cluster", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub nodes: u32,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub placement: PlacementArgs,
}

/// How tasks are placed.
#[derive(Args, Clone)]
pub(crate) struct PlacementArgs {
    /// How tasks are placed: fa, mch, mcu, gcc, cost
    #[arg(long, value_name = "POLICY", help_heading = "Placement", default_value = "cost")]
    pub policy: PlacementPolicy,
    /// Utilisation above which gcc waits for the holders of data
    #[arg(long, value_name = "SHARE", help_heading = "Placement", default_value_t = 0.9)]
    pub utilisation: f64,
    /// Tasks looked at in one decision [default: 100 for each executor, at least 2,500]
    #[arg(long, value_name = "N", help_heading = "Placement")]
    pub window: Option<u64>,
}

#[derive(Args)]
pub(crate) struct SubmitArgs {
    /// TOML, or JSON lines if the name ends in .jsonl
    pub file: String,
    /// Priority of tasks that do not say theirs; higher goes first [default: the file's, else 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// How inputs that are broadcast go to executors: chain, spanning-tree [default: the file's, else chain]
    #[arg(long, value_name = "HOW")]
    pub distribution: Option<Distribution>,
    /// Wait for the job's end; the exit code says whether it succeeded
    #[arg(long, short = 'w')]
    pub wait: bool,
    /// Do not run what was run before for a job with --reuse, and whose result is still there
    #[arg(long)]
    pub reuse: bool,
    #[command(flatten)]
    pub reconnect: ReconnectArgs,
}

/// What who waits for a dispatcher's answer does when it is gone.
#[derive(Args, Clone, Copy)]
pub(crate) struct ReconnectArgs {
    /// After losing the dispatcher, try to come back for so long
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = units::parse_duration_us)]
    reconnect: u64,
}

impl ReconnectArgs {
    pub fn patience(self) -> Duration {
        Duration::from_micros(self.reconnect)
    }
}

/// A job by its id, or the one that was submitted last.
#[derive(Clone, Copy)]
pub(crate) enum WhichJob {
    Id(JobId),
    Last,
}

impl FromStr for WhichJob {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "last" => Ok(WhichJob::Last),
            id => id.parse().map(WhichJob::Id).map_err(|e| format!("{e}; `last` is the job that was submitted last")),
        }
    }
}

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// All jobs
    List,
    /// One job, by its id, or `last`: the job that was submitted last
    Show { job: WhichJob },
    /// Wait for the end of jobs; the exit code says whether all of them succeeded
    Wait {
        /// Their ids; `last` is the job that was submitted last
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<WhichJob>,
        #[command(flatten)]
        reconnect: ReconnectArgs,
    },
    /// Bring what a job keeps in the cluster to this machine, a folder for each task
    Get {
        job: WhichJob,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Cancel what has not ended of a job
    Cancel { job: WhichJob },
    /// Run failed and cancelled tasks again
    Retry { job: WhichJob },
    /// Let executors evict what an ended job keeps in the cluster
    Release { job: WhichJob },
    /// Forget ended jobs: their results, their captured output, and what they keep in the cluster
    Forget {
        /// Ids of the jobs; `last` is the job that was submitted last
        #[arg(required = true, value_name = "JOB")]
        jobs: Vec<WhichJob>,
    },
}

#[derive(Subcommand)]
pub(crate) enum TaskCommand {
    /// Tasks of a job
    List {
        job: JobId,
        /// Only those that failed
        #[arg(long)]
        failed: bool,
        /// From this index on
        #[arg(long, default_value_t = 0)]
        from: u32,
        /// No more than so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// One task
    Show { task: TaskId },
    /// What a task wrote
    Log {
        task: TaskId,
        /// Its stderr instead of its stdout
        #[arg(long)]
        stderr: bool,
    },
    /// Bring what a task keeps in the cluster to this machine
    Get {
        task: TaskId,
        /// Only these files
        #[arg(value_parser = words::name())]
        files: Vec<Name>,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Cancel a task
    Cancel { task: TaskId },
}

#[derive(Subcommand)]
pub(crate) enum ExecutorCommand {
    /// All executors
    List,
    /// Let an executor leave; what it runs is run elsewhere
    Stop {
        /// Its name or id
        executor: String,
    },
}

#[derive(Subcommand)]
pub(crate) enum CatalogCommand {
    /// Who holds an object
    Show {
        /// Its id, URL or path
        #[arg(value_parser = words::name())]
        object: Name,
    },
}

#[derive(Args)]
pub(crate) struct ReportArgs {
    /// Of which job; `last` is the one that was submitted last
    pub job: WhichJob,
    /// Write the report to FILE (.html, .csv or .json) [default: eyas-report-JOB.html]
    #[arg(long, short = 'o', value_name = "FILE", value_parser = parse_report_path)]
    pub output: Option<PathBuf>,
    /// Compare with this job
    #[arg(long, value_name = "JOB")]
    pub baseline: Option<WhichJob>,
    /// Write when its tasks came, how long they ran and what they read, which `eyas sim run` can run again
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Look again after so long; rates are over this time
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_interval_us)]
    pub interval: u64,
    /// Print one frame as text, from two looks at the cluster, and end; so does --json
    #[arg(long)]
    pub once: bool,
}

/// Looks at a cluster are at least so far apart, for the dispatcher's sake.
const MIN_INTERVAL_US: u64 = 100_000;

fn parse_interval_us(text: &str) -> Result<u64, String> {
    let us = units::parse_duration_us(text).map_err(|e| e.to_string())?;
    if us < MIN_INTERVAL_US { Err(format!("`{text}` is too short: write 100ms or more")) } else { Ok(us) }
}

#[derive(Subcommand)]
pub(crate) enum StartCommand {
    /// A dispatcher, in the foreground unless it is detached
    Dispatcher(DispatcherArgs),
    /// An executor, in the foreground
    Executor(ExecutorArgs),
    /// A dispatcher and executors on this machine
    Local {
        #[command(flatten)]
        shape: ShapeArgs,
        /// Return once it is up, and leave it running
        #[arg(long)]
        detach: bool,
    },
}

#[derive(Args)]
pub(crate) struct DispatcherArgs {
    /// Where to listen; port 0 for any
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:0")]
    pub listen: SocketAddr,
    /// Host name or address by which others reach it [default: this host's name]
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Move data between nodes and clients unencrypted, for closed networks; all executors must agree
    #[arg(long)]
    pub plain_data: bool,
    /// How often each executor must be heard of
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = units::parse_duration_us)]
    pub heartbeat: u64,
    /// Return once it is up, and leave it running in the background
    #[arg(long, conflicts_with = "owned")]
    pub detach: bool,
    #[command(flatten)]
    pub placement: PlacementArgs,
    #[command(flatten)]
    pub owned: OwnedArgs,
}

#[derive(Args)]
pub(crate) struct ExecutorArgs {
    /// Name for people [default: the node's name in a Slurm allocation, else the host's]
    #[arg(long)]
    pub name: Option<String>,
    /// Its folder on a disk of the node, for store and sandboxes; in a batch system's allocation, one inside of it with the
    /// executor's name [default: one in the temporary folder]
    #[arg(long, value_name = "PATH")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub reconnect: ReconnectArgs,
    #[command(flatten)]
    pub node: NodeArgs,
    /// Executors that share the machine, for what is not said of each
    #[arg(long, hide = true, default_value_t = 1)]
    pub share: u32,
    #[command(flatten)]
    pub owned: OwnedArgs,
}

/// For processes of a local cluster.
#[derive(Args, Clone, Copy)]
pub(crate) struct OwnedArgs {
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    pub owned: bool,
    /// Remove its folder at the end
    #[arg(long, hide = true, requires = "owned")]
    pub ephemeral: bool,
}

fn parse_range(text: &str) -> Result<String, String> {
    array(text).map(|_| text.to_owned()).map_err(|e| e.to_string())
}

/// Where `--report` writes, or `none`.
fn parse_report(text: &str) -> Result<String, String> {
    if text != "none" {
        parse_report_path(text)?;
    }
    Ok(text.to_owned())
}

/// A report's form is known by its name's ending, before anything is done for it.
pub(crate) fn parse_report_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match Form::of(&path) {
        Some(_) => Ok(path),
        None => Err(format!("`{text}` is no report: its name ends in .html, .csv or .json")),
    }
}

pub(crate) fn print_completion(shell: Shell) -> Result<(), PrintError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Eyas::command(), "eyas", &mut script);
    print::bytes(&script)
}

pub(crate) fn write_man_pages(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(Eyas::command(), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Eyas::command().debug_assert();
    }
}
