//! The commands of `eyas`, and the dispatch of each to its handler.
//!
//! A command has its arguments and its handler in one file. Commands do not use each other; code
//! that several commands share is in the files beside this one.

mod access;
mod catalog;
mod cluster;
mod completion;
mod dfs;
mod events;
mod executor;
mod explain;
mod io;
mod job;
mod map;
mod mount;
pub(crate) mod mount_helper;
mod pool;
mod proxy;
mod push;
mod report;
mod run;
mod shim;
mod simulate;
mod start;
mod stop;
mod submit;
mod task;
pub(crate) mod top;
mod web;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::connect;
use crate::door::{self, Door};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::hints;

/// Runs many short tasks over shared data: tasks run where their data is
#[derive(Parser)]
#[command(name = "eyas", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Eyas {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a command for each of many files, lines or numbers
    Run(Box<run::RunArgs>),
    /// Submit the jobs of a job file
    Submit(submit::SubmitArgs),
    /// List, show, wait for, cancel or retry jobs; get their kept outputs
    #[command(subcommand)]
    Job(job::JobCommand),
    /// List, show or cancel tasks; print or get their outputs
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Explain why a task waits, or where it ran and why
    Explain(explain::ExplainArgs),
    /// List or stop executors
    #[command(subcommand)]
    Executor(executor::ExecutorCommand),
    /// Request nodes from a batch system when tasks wait
    #[command(subcommand)]
    Pool(Box<pool::PoolCommand>),
    /// Show which executors hold an object; keep names of files
    #[command(subcommand)]
    Catalog(catalog::CatalogCommand),
    /// Copy objects to executors before tasks need them
    Push(push::PushArgs),
    /// Use the cluster's own file system
    #[command(
        subcommand,
        after_help = "The file system is on the disks of executors that were started with --dfs."
    )]
    Dfs(Box<dfs::DfsCommand>),
    /// Mount the cluster's file system on a folder of this machine
    Mount(Box<mount::MountArgs>),
    /// Run a program over blocks of files in the cluster's file system
    Map(Box<map::MapArgs>),
    /// Make commands of Slurm that run jobs on eyas, for workflow systems
    Shim(shim::ShimArgs),
    /// Order the reads and writes of programs on slow storage
    #[command(subcommand)]
    Io(io::IoCommand),
    /// Show, replace or revoke the cluster's keys
    #[command(subcommand)]
    Access(access::AccessCommand),
    /// Write the report of a job
    Report(report::ReportArgs),
    /// Watch executors, jobs and rates of the cluster
    Top(top::TopArgs),
    /// Show what has happened in the cluster: jobs and executors
    Events(events::EventsArgs),
    /// Serve the cluster over HTTP: an API and a live page
    #[command(
        after_help = "The URL that is printed has a token, without which requests are refused; \
                      each start has a new one. Jobs that are submitted over HTTP run as the \
                      user of this command, and relative paths in them are below the folder \
                      where the command was started. See docs/guides/web.md."
    )]
    Web(web::WebArgs),
    /// Start a dispatcher, an executor, or a cluster on this machine
    #[command(subcommand)]
    Start(Box<start::StartCommand>),
    /// Pass on connections of executors that cannot reach the dispatcher
    Proxy(proxy::ProxyArgs),
    /// Stop the cluster: its executors, then its dispatcher
    Stop,
    /// List the clusters of this machine, or remove stopped ones
    #[command(subcommand)]
    Cluster(cluster::ClusterCommand),
    /// Simulate a cluster and its workload, or estimate its run time
    #[command(subcommand, alias = "sim")]
    Simulate(simulate::SimulateCommand),
    /// Print a completion script for a shell
    Completion(completion::CompletionArgs),
    /// Write the manual pages
    Man(completion::ManArgs),
    #[command(hide = true)]
    Guard { executor: String, sandboxes: PathBuf },
    #[command(hide = true)]
    GuardMount,
    #[command(hide = true)]
    ShimCall(shim::ShimCallArgs),
    #[command(hide = true, subcommand)]
    Worker(worker::WorkerCommand),
}

impl Eyas {
    /// Reads a command line that was taken apart.
    pub fn read(matches: &ArgMatches) -> Result<Eyas, clap::Error> {
        let mut eyas = Eyas::from_arg_matches(matches)?;
        if let (Command::Run(args), Some((_, matches))) = (&mut eyas.command, matches.subcommand())
        {
            args.note_given(matches);
            if let Some((words, resume)) = args.earlier_words(matches)? {
                return Eyas::read_earlier(&words, resume, args.is_dry_run(), eyas.global);
            }
        }
        Ok(eyas)
    }

    /// Reads the command line of an earlier run, with which `eyas run --resume` goes on.
    fn read_earlier(
        words: &[OsString],
        resume: run::ResumeArgs,
        is_dry_run: bool,
        global: GlobalArgs,
    ) -> Result<Eyas, clap::Error> {
        let command = hints::with_negative_numbers(Eyas::command()).no_binary_name(true);
        let mut earlier = Eyas::read(&command.try_get_matches_from(words)?)?;
        if let Command::Run(args) = &mut earlier.command {
            args.go_on(resume, is_dry_run);
        }
        if global.cluster.is_some() || global.access.is_some() {
            earlier.global = global;
        }
        Ok(earlier)
    }
}

impl Command {
    /// Whether this command lives longer than its caller may want: a process of a cluster, or one
    /// that serves programs.
    pub fn is_daemon(&self) -> bool {
        let serves = |command: &io::IoCommand| {
            matches!(command, io::IoCommand::Serve(_) | io::IoCommand::Agent { .. })
        };
        self.is_process()
            || matches!(self, Command::Guard { .. } | Command::GuardMount)
            || matches!(self, Command::Io(command) if serves(command))
    }

    /// Whether this command is a process of a cluster.
    pub fn is_process(&self) -> bool {
        matches!(self, Command::Start(_) | Command::Mount(_) | Command::Proxy(_) | Command::Web(_))
    }
}

/// Runs a command to its end.
pub(crate) async fn run(Eyas { command, global }: Eyas) -> Result<ExitCode, CliError> {
    match &command {
        Command::Run(_) => door::set(Door::CommandLine),
        Command::Submit(_) => door::set(Door::JobFile),
        _ => {}
    }
    handle(command, &global).await.map_err(|error| connect::with_cluster(error, &global))
}

async fn handle(command: Command, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    match command {
        Command::Run(args) => run::run(args, global).await,
        Command::Submit(args) => submit::submit(args, global).await,
        Command::Dfs(command) => dfs::dfs(*command, global).await,
        Command::Mount(args) => mount::mount(*args, global).await,
        Command::Map(args) => map::map(*args, global).await,
        Command::Shim(args) => shim::shim(&args, global).await,
        Command::ShimCall(args) => shim::command(&args, global).await,
        Command::Io(command) => io::io(command, global).await,
        Command::Worker(command) => worker::worker(command, global).await,
        Command::Job(command) => job::job(command, global).await,
        Command::Task(command) => task::task(command, global).await,
        Command::Explain(args) => explain::explain(&args, global).await,
        Command::Executor(command) => executor::executor(command, global).await,
        Command::Pool(command) => pool::pool(*command, global).await,
        Command::Catalog(command) => catalog::catalog(command, global).await,
        Command::Access(command) => access::access(command, global).await,
        Command::Push(args) => push::push(args, global).await,
        Command::Report(args) => report::report(args, global).await,
        Command::Top(args) => top::top(args, global).await,
        Command::Events(args) => events::events(args, global).await,
        Command::Web(args) => web::web(args, global).await,
        Command::Proxy(args) => proxy::proxy(args, global).await,
        Command::Start(command) => start::start(*command, global).await,
        Command::Simulate(command) => simulate::simulate(command, global).await,
        Command::Stop => stop::stop(global).await,
        Command::Cluster(command) => cluster::cluster(&command, global).await,
        Command::Completion(args) => completion::print(&args, Eyas::command()),
        Command::Man(args) => completion::write_man_pages(&args, Eyas::command()),
        Command::Guard { .. } | Command::GuardMount => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Eyas::command().debug_assert();
    }
}
