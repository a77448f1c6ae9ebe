//! The `eyas` command: one binary for users and for every process of a cluster.
//!
//! It turns command lines into requests, and answers into text, and decides nothing. Results go to
//! standard output, messages of eyas to standard error. Exit codes: 0 if everything succeeded, 1 if
//! a task or a request failed, 2 if the command line is wrong, 130 after an interrupt.

#![deny(unsafe_code)]
// See `print`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod allocation;
mod allocator;
mod clock;
mod commands;
mod connect;
mod detach;
mod door;
mod error;
mod exit_code;
mod gather;
mod get;
mod global;
mod graph;
mod help;
mod hints;
mod interrupt;
mod local;
mod log;
mod network_args;
mod node_args;
mod other_names;
mod own_process;
mod pool_args;
mod pool_file;
mod print;
mod reasons;
mod report;
mod shared_disk;
mod shim;
mod show;
mod trace;
mod waiting;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::CommandFactory;

use commands::{Command, Eyas};
pub use exit_code::ExitCode;

/// Runs the command. `words` are the command line, with the name of the program. `program` is the
/// path of the program, for the other processes that it starts; the file that this process executes
/// if it is `None`.
pub fn run(words: &[OsString], program: Option<PathBuf>) -> ExitCode {
    own_process::set_own(words, program);
    if let Some(called) = commands::mount_helper::called(words) {
        return print::fail(&called);
    }
    let command = help::arranged(hints::with_negative_numbers(Eyas::command()), words);
    let parsed = command.try_get_matches_from(words).and_then(|matches| Eyas::read(&matches));
    let eyas = match parsed {
        Ok(eyas) => eyas,
        Err(wrong) => return print::explain(&hints::with_hint(wrong, words)),
    };
    if eyas.command.is_daemon() {
        eyas_executor::close_inherited();
    }
    // A guardian must outlive its executor; it needs neither log nor runtime.
    if let Command::Guard { executor, sandboxes } = &eyas.command {
        eyas_executor::guardian::run(executor, sandboxes);
        return ExitCode::SUCCESS;
    }
    if let Command::GuardMount = &eyas.command {
        eyas_mount::guardian::run();
        return ExitCode::SUCCESS;
    }
    allocator::keep_memory();
    log::start(eyas.command.is_process());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(e) => return print::fail(&e.into()),
    };
    // On a worker thread, a task wakes the next task without waking another thread first.
    let done = runtime.block_on(async {
        let running = tokio::spawn(commands::run(eyas));
        running.await.unwrap_or_else(eyas_panics::resume)
    });
    // The command does not wait for blocking reads in the background, such as a read of standard
    // input.
    runtime.shutdown_background();
    done.unwrap_or_else(|e| print::fail(&e))
}
