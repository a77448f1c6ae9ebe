//! AstroPortal: a web portal and a service of the Virtual Observatory that stack survey images with
//! eyas, after "Accelerating Large-scale Data Exploration through Data Diffusion", section 6.2.
//!
//! The portal knows eyas only over HTTP, and lets strangers set checked values, never commands. A
//! job goes from a list of positions (`positions`) over the frames that show them (`find`) to tasks
//! of `stack` (`runner`), and from their outcome (`collect`) to results (`results`). People come in
//! by `pages`, programs by `uws`; both pass `admission`.

#![forbid(unsafe_code)]

mod account_pages;
mod accounts;
mod admission;
mod attempts;
mod availability;
mod clock;
mod cluster_api;
mod collect;
mod console;
mod datalink;
mod find;
mod html;
mod job_store;
mod lifecycle;
mod listener;
mod outcome_files;
mod pages;
mod params;
mod portal;
mod position_files;
mod position_list;
mod positions;
mod problem;
mod record;
mod results;
mod runner;
mod runner_error;
mod secrets;
mod sessions;
mod slots;
mod surveys;
mod trusted_clock;
mod upload;
mod usage;
mod uws;
mod uws_documents;
mod vosi;
mod votable_in;
mod votable_out;
mod whole_file;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;

use crate::accounts::{AccountBook, Role};
use crate::attempts::SignInAttempts;
use crate::availability::Availability;
use crate::cluster_api::ClusterApi;
use crate::job_store::JobStore;
use crate::portal::Portal;
use crate::sessions::Sessions;
use crate::slots::{AccountSlots, MAX_RUNNING_OF_ACCOUNT, MAX_WAITS_OF_ACCOUNT};
use crate::surveys::Surveys;
use crate::usage::Usage;
use crate::whole_file::{make_private_folder, open_lock};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A portal that stacks survey images on a cluster of eyas.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: PortalCommand,
}

#[derive(Subcommand)]
enum PortalCommand {
    /// Serve the portal until Ctrl-C
    Serve(ServeArgs),
    /// Add, change, list and remove accounts
    Account {
        #[command(subcommand)]
        command: AccountCommand,
        /// Folder with the accounts of the portal
        #[arg(long, value_name = "FOLDER", global = true, default_value = "portal")]
        state: PathBuf,
    },
}

#[derive(Args)]
struct ServeArgs {
    /// URL of `eyas web`, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    eyas: String,
    /// File with a token of `eyas web token create --scope submit`
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// File that describes the surveys
    #[arg(long, value_name = "FILE")]
    surveys: PathBuf,
    /// Folder for accounts and jobs, which only the user of the portal sees
    #[arg(long, value_name = "FOLDER", default_value = "portal")]
    state: PathBuf,
    /// Folder for the files of jobs, at the same path on all nodes
    #[arg(long, value_name = "FOLDER", default_value = "portal-work")]
    work: PathBuf,
    /// The program `stack`, at the same path on all nodes; by default beside this program
    #[arg(long, value_name = "FILE")]
    stack: Option<PathBuf>,
    /// Address to listen on; port 0 stands for any free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Name under which browsers reach the portal; for addresses other than loopback, and behind a
    /// reverse proxy
    #[arg(long, value_name = "NAME", value_parser = admission::allowed_name)]
    allow_host: Vec<String>,
    /// Days after which a job and its results are deleted
    #[arg(long, value_name = "DAYS", default_value_t = 30,
        value_parser = clap::value_parser!(u16).range(1..=3660))]
    keep_days: u16,
}

#[derive(Subcommand)]
enum AccountCommand {
    /// Add an account; its password is read from the terminal or the standard input
    Add {
        /// Name of the account
        name: String,
        /// Rights: read, submit or admin
        #[arg(long, default_value = "submit")]
        role: Role,
        /// Object-frames that its jobs may stack in 24 hours
        #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
        quota: u64,
    },
    /// List accounts: name, role, quota, number of tokens
    List,
    /// Remove an account with its tokens and sessions; its jobs stay
    Remove {
        /// Name of the account
        name: String,
    },
    /// Change the role or the quota of an account
    #[command(group(clap::ArgGroup::new("change").required(true).multiple(true)))]
    Set {
        /// Name of the account
        name: String,
        /// Rights: read, submit or admin
        #[arg(long, group = "change")]
        role: Option<Role>,
        /// Object-frames that its jobs may stack in 24 hours
        #[arg(long, value_name = "NUMBER", group = "change")]
        quota: Option<u64>,
    },
    /// Revoke all tokens of an account; its page revokes single ones
    Revoke {
        /// Name of the account
        name: String,
    },
    /// Change the password of an account, which ends its sessions and keeps its tokens
    Passwd {
        /// Name of the account
        name: String,
    },
    /// Make a token for programs, and print it
    Token {
        /// Name of the account
        name: String,
        /// Name of the token
        #[arg(long, default_value = "program")]
        label: String,
        /// Rights: read, submit or admin, up to those of the account
        #[arg(long, default_value = "submit")]
        role: Role,
        /// Days after which the token is refused
        #[arg(long, default_value_t = 30,
            value_parser = clap::value_parser!(u16).range(1..=366))]
        days: u16,
    },
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "astroportal=info".into()),
        )
        .init();
    let done = match Arguments::parse().command {
        PortalCommand::Serve(args) => serve(args),
        PortalCommand::Account { command, state } => on_accounts(&state, command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Without a standard error, there is no reader.
            let _ = writeln!(io::stderr(), "astroportal: {why}");
            ExitCode::FAILURE
        }
    }
}

fn on_accounts(state: &Path, command: AccountCommand) -> Result<(), String> {
    let done = match command {
        AccountCommand::Add { name, role, quota } => console::add(state, &name, role, quota),
        AccountCommand::List => console::list(state),
        AccountCommand::Remove { name } => console::remove(state, &name),
        AccountCommand::Set { name, role, quota } => console::set(state, &name, role, quota),
        AccountCommand::Revoke { name } => console::revoke(state, &name),
        AccountCommand::Passwd { name } => console::set_password(state, &name),
        AccountCommand::Token { name, label, role, days } => {
            console::make_token(state, &name, &label, role, days)
        }
    };
    done.map_err(|why| why.to_string())
}

/// The program `stack`, and its version.
fn stack_program(named: Option<PathBuf>) -> Result<(PathBuf, String), String> {
    let beside = std::env::current_exe().map(|own| own.with_file_name("stack"));
    let path = named.or(beside.ok()).unwrap_or_else(|| "stack".into());
    let path = std::path::absolute(&path).unwrap_or(path);
    let printed = Command::new(&path).arg("--version").output();
    let printed = printed.map_err(|why| {
        format!("cannot run {}: {why}; name the program `stack` with --stack", path.display())
    })?;
    Ok((path, String::from_utf8_lossy(&printed.stdout).trim().to_owned()))
}

fn serve(args: ServeArgs) -> Result<(), String> {
    if !args.listen.ip().is_loopback() && args.allow_host.is_empty() {
        return Err(format!(
            "{} can be reached from other machines: say with --allow-host NAME under which name \
             browsers reach it, or listen on 127.0.0.1",
            args.listen
        ));
    }
    // One provider of ciphers is linked; a second call would find it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|why| format!("cannot start threads: {why}"))?;
    runtime.block_on(async {
        let portal = Arc::new(open(&args)?);
        let failed = |why| {
            format!("cannot listen on {}: {why}; name another address with --listen", args.listen)
        };
        let listener = TcpListener::bind(args.listen).await.map_err(failed)?;
        let own = listener.local_addr().map_err(failed)?;
        writeln!(io::stdout(), "astroportal: http://{own}/").map_err(|why| why.to_string())?;
        let mut end = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|why| why.to_string())?;
        tokio::select! {
            served = listener::serve(listener, portal, args.allow_host) => {
                served.map_err(|why| why.to_string())
            }
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = end.recv() => Ok(()),
        }
    })
}

fn open(args: &ServeArgs) -> Result<Portal, String> {
    let (stack, stack_version) = stack_program(args.stack.clone())?;
    let surveys = Surveys::read(&args.surveys).map_err(|why| why.to_string())?;
    let state = &args.state;
    let of_state = |why: io::Error| {
        format!("cannot use {}: {why}; name another folder with --state", state.display())
    };
    make_private_folder(state).map_err(of_state)?;
    let lock = open_lock(&state.join("portal.lock"));
    let lock = lock.map_err(of_state)?;
    lock.try_lock().map_err(|_| {
        format!("another portal uses {}: stop it, or name another --state", state.display())
    })?;
    // The lock is held until the process ends.
    std::mem::forget(lock);
    let work = std::path::absolute(&args.work).map_err(of_state)?;
    std::fs::create_dir_all(&work).map_err(|why| {
        format!("cannot use {}: {why}; name another folder with --work", work.display())
    })?;
    let kept_ms = u64::from(args.keep_days) * DAY_MS;
    let token_file = args.token_file.clone();
    std::fs::read_to_string(&token_file).map_err(|why| {
        format!("cannot read {}: {why}; name another file with --token-file", token_file.display())
    })?;
    Ok(Portal {
        surveys,
        accounts: AccountBook::in_folder(state),
        sessions: Sessions::open(state).map_err(of_state)?,
        attempts: SignInAttempts::default(),
        jobs: JobStore::open(state).map_err(|why| why.to_string())?,
        usage: Usage::open(state).map_err(|why| why.to_string())?,
        slots: AccountSlots::of(MAX_RUNNING_OF_ACCOUNT),
        waits: AccountSlots::of(MAX_WAITS_OF_ACCOUNT),
        cluster: ClusterApi::new(&args.eyas, token_file).map_err(|why| why.to_string())?,
        availability: Availability::default(),
        work,
        stack,
        stack_version,
        kept_ms,
    })
}
