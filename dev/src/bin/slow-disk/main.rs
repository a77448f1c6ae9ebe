//! A shared disk that is slow as spinning disks are, for tests and experiments: a file system that passes everything on
//! to a folder, and answers reads and writes when a disk of the given seek time and rate would have. It exists because
//! what reorders requests can only be judged where their order costs something, and no machine of a developer or of CI
//! has such a disk. It must never change what programs read.
//!
//!     slow-disk mount SOURCE MOUNTPOINT --state FILE [--seek-ms 8] [--megabytes-per-second 150] [--iops N] ...
//!     slow-disk stat FILE            what the disk has done so far, as JSON
//!     slow-disk forget FILE          its server has nothing in memory any more
//!
//! Several mounts with one state file are nodes that share one disk; with `--memory-megabytes`, a file server that keeps in
//! memory what was read and written last. With `--channels` it serves so many requests at a time. A mount is much as one of NFS: its node's kernel
//! caches pages, reads ahead, and drops what it has of a file whose size or time it finds changed, for which it looks every
//! few seconds. It writes through. It keeps locks to itself, so processes of other mounts do not see them. Metadata costs
//! nothing.
//!
//! It serves until its standard input ends, or until it is unmounted. It needs Linux, root and `/dev/fuse`, but no part of
//! libfuse.

#![forbid(unsafe_code)]

mod answers;
mod filesystem;
mod memory;
mod model;
mod state;
mod tree;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use clap::{Args, Parser, Subcommand};
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::fs::Mode;
use rustix::mount::UnmountFlags;
use rustix::process::{Resource, Rlimit};

use crate::filesystem::SlowFiles;
use crate::model::Rates;
use crate::state::{Costs, MAX_CHANNELS, SharedDisk};

#[derive(Parser)]
#[command(about = "A shared disk that is slow as spinning disks are")]
struct Words {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show a folder's files as if they lay on the disk
    Mount(Mount),
    /// Drop what the disk's server has in memory
    Forget {
        /// The file that its mounts share
        state: PathBuf,
    },
    /// Say what the disk has done so far, as JSON
    Stat {
        /// The file that its mounts share
        state: PathBuf,
    },
}

#[derive(Args)]
struct Mount {
    /// Where the files are
    source: PathBuf,
    /// Where they are to be seen
    mountpoint: PathBuf,
    /// What all mounts of one disk share; made anew if it is not there. It does not outlive a restart of the machine: best
    /// put it under /dev/shm
    #[arg(long)]
    state: PathBuf,
    /// What a request costs that does not begin where the last one ended
    #[arg(long, default_value_t = 8.0)]
    seek_ms: f64,
    /// How fast bytes come and go; 0: as fast as they can
    #[arg(long, default_value_t = 150.0)]
    megabytes_per_second: f64,
    /// At most so many requests a second; 0: any number
    #[arg(long, default_value_t = 0.0)]
    iops: f64,
    /// Requests that are served at a time, each as fast as one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=MAX_CHANNELS))]
    channels: u64,
    /// What the server keeps in memory, of what was read and written last
    #[arg(long, default_value_t = 0)]
    memory_megabytes: u64,
    /// How fast what is in memory comes; 0: as fast as it can
    #[arg(long, default_value_t = 0.0)]
    memory_megabytes_per_second: f64,
    /// Between this mount and the disk and back: each request is answered so much later, and the disk is not busy with it
    #[arg(long, default_value_t = 0)]
    latency_us: u64,
    /// Keep nothing in this mount's memory: every read is a request
    #[arg(long)]
    uncached: bool,
}

fn main() -> ExitCode {
    let done = match Words::parse().command {
        Command::Mount(mount) => serve(&mount),
        Command::Forget { state } => SharedDisk::forget(&state).map_err(|error| named(&state, &error)),
        Command::Stat { state } => SharedDisk::counters(&state).map(|counters| println!("{counters}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slow-disk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Mounts, says `ready`, and serves until standard input ends or somebody unmounts it.
fn serve(asked: &Mount) -> io::Result<()> {
    let costs = Costs {
        rates: Rates::new(asked.seek_ms, asked.megabytes_per_second, asked.iops, asked.channels),
        memory_sets: memory::sets(asked.memory_megabytes * 1_000_000),
        memory_bytes_per_s: (asked.memory_megabytes_per_second * 1e6) as u64,
    };
    let disk = SharedDisk::open(&asked.state, costs).map_err(|error| named(&asked.state, &error))?;
    raise_open_files()?;
    // The kernel has applied that of whoever makes a file.
    rustix::process::umask(Mode::empty());
    let files = SlowFiles::new(&asked.source, disk, asked.latency_us, asked.uncached)
        .map_err(|error| named(&asked.source, &error))?;
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("slow-disk".into()), MountOption::DefaultPermissions];
    config.acl = SessionACL::All;
    let mountpoint = fs::canonicalize(&asked.mountpoint).map_err(|error| named(&asked.mountpoint, &error))?;
    let session = Session::new(files, &mountpoint, &config)?;
    println!("ready");
    io::stdout().flush()?;
    thread::spawn(move || end_with_input(&mountpoint));
    session.run()
}

/// Unmounts when standard input ends. Detached first: whoever is in there still must not keep this process.
fn end_with_input(mountpoint: &Path) {
    let mut ignored = [0; 64];
    while io::stdin().read(&mut ignored).is_ok_and(|read| read > 0) {}
    let code = match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("slow-disk: {}: {error}", mountpoint.display());
            1
        }
    };
    std::process::exit(code);
}

/// Every file that the kernel remembers is open here; as many as this process may have.
fn raise_open_files() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
