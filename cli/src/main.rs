//! The `eyas` command: one binary for users and for every process of a cluster.
//!
//! It converts words to requests and answers to words, and decides nothing. Results go to standard output, eyas's own
//! words to standard error. Exit codes: 0 if everything asked for succeeded, 1 if a task or request failed, 2 if the
//! command line is wrong, 130 after an interrupt.

#![forbid(unsafe_code)]
// See `print`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod access;
mod allocation;
mod ask;
mod command;
mod detach;
mod dfs;
mod get;
mod interrupt;
mod io;
mod local;
mod log;
mod map;
mod model;
mod print;
mod push;
mod report;
mod run;
mod show;
mod sim;
mod start;
mod top;
mod trace;
mod waiting;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use command::{Command, Eyas};

/// What went wrong, for a person. The command ends with exit code 1; with 2 if it is a [`clap::Error`].
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let eyas = match Eyas::try_parse() {
        Ok(eyas) => eyas,
        Err(wrong) => return print::explain(&wrong),
    };
    // A guardian must outlive everything else and needs nothing.
    if let Command::Guard { executor, sandboxes } = &eyas.command {
        eyas_executor::guardian::run(executor, sandboxes);
        return ExitCode::SUCCESS;
    }
    log::start(matches!(eyas.command, Command::Start(_)));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return print::fail(&e.into()),
    };
    // On a worker, where one step wakes the next without waking another thread first.
    let done = runtime.block_on(async {
        let acting = tokio::spawn(act(eyas));
        acting.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()))
    });
    // What still waits in the background, such as standard input, does not hold the command back.
    runtime.shutdown_background();
    done.unwrap_or_else(|e| print::fail(&e))
}

async fn act(eyas: Eyas) -> Result<ExitCode, Failure> {
    let Eyas { command, reach } = eyas;
    match command {
        Command::Run(args) => run::run(args, &reach).await,
        Command::Submit(args) => ask::submit(args, &reach).await,
        Command::Dfs(what) => dfs::dfs(*what, &reach).await,
        Command::Map(args) => map::map(*args, &reach).await,
        Command::Io(what) => io::io(what, &reach).await,
        Command::Worker(what) => worker::worker(what, &reach).await,
        Command::Job(which) => ask::job(which, &reach).await,
        Command::Task(which) => ask::task(which, &reach).await,
        Command::Explain { task } => ask::explain(task, &reach).await,
        Command::Executor(which) => ask::executor(which, &reach).await,
        Command::Catalog(which) => ask::catalog(which, &reach).await,
        Command::Access(what) => access::access(what, &reach).await,
        Command::Push(args) => push::push(args, &reach).await,
        Command::Report(args) => ask::report(args, &reach).await,
        Command::Top(args) => top::top(args, &reach).await,
        Command::Start(which) => start::start(*which, &reach).await,
        Command::Sim(which) => sim::sim(which, &reach).await,
        Command::Stop => ask::stop(&reach).await,
        Command::Model(args) => model::model(&args, &reach),
        Command::Completion { shell } => {
            command::print_completion(shell)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Man { folder } => {
            command::write_man_pages(&folder)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Guard { .. } => Ok(ExitCode::SUCCESS),
    }
}
