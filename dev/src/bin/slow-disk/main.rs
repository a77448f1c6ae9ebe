//! An emulated slow shared disk, for tests and experiments: a file system that passes everything on
//! to a folder, and answers reads and writes when a disk with the given seek time and rate would
//! have. Software that reorders requests can only be judged where the order matters, and
//! development and CI machines have no such disks. It must never change what programs read.
//!
//! ```text
//! slow-disk mount SOURCE MOUNTPOINT --state FILE [--seek-ms 8]
//!                                [--megabytes-per-second 150] [--iops N] ...
//! slow-disk stat FILE            prints the disk's counters as JSON
//! slow-disk forget FILE          clears the memory of the disk's server
//! ```
//!
//! Several mounts with one state file are nodes that share one disk. With `--memory-megabytes`, the
//! disk belongs to a file server that caches what was read and written last. With `--channels N`,
//! it serves N requests at a time; with `--stripe-bytes`, each channel is a server that has every
//! Nth stripe of a file. A mount behaves much like an NFS mount: the node's kernel caches
//! pages, reads ahead, and drops cached pages of a file whose size or time has changed, which it
//! checks every few seconds. Writes go through to the disk. Locks are local to a mount. Metadata
//! operations take no time, but for changes of folders with `--change-ms`.
//!
//! It serves until its standard input ends or it is unmounted. It needs Linux, root and
//! `/dev/fuse`, but not libfuse.

#![forbid(unsafe_code)]

mod answers;
mod filesystem;
mod layouts;
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
use crate::layouts::{LayoutsOf, TellableLayout};
use crate::model::Rates;
use crate::state::{Costs, MAX_CHANNELS, SharedDisk};

#[derive(Parser)]
#[command(about = "An emulated slow shared disk")]
struct Words {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show a folder's files as if they were on a slow disk
    Mount(Mount),
    /// Clear the memory of the disk's server
    Forget {
        /// State file of the disk
        state: PathBuf,
    },
    /// Print the disk's counters as JSON
    Stat {
        /// State file of the disk
        state: PathBuf,
    },
}

#[derive(Args)]
struct Mount {
    /// Folder with the files
    source: PathBuf,
    /// Folder to mount on
    mountpoint: PathBuf,
    /// State file that all mounts of the disk share; created if missing. It is not valid after a
    /// reboot, so put it under /dev/shm
    #[arg(long)]
    state: PathBuf,
    /// Milliseconds that a request costs that does not continue the previous one
    #[arg(long, default_value_t = 8.0)]
    seek_ms: f64,
    /// Transfer rate; 0: unlimited
    #[arg(long, default_value_t = 150.0)]
    megabytes_per_second: f64,
    /// Transfer rate of writes; 0: unlimited [default: that of reads]
    #[arg(long)]
    write_megabytes_per_second: Option<f64>,
    /// Milliseconds that a request costs in addition that begins at the first byte of a file
    #[arg(long, default_value_t = 0.0)]
    open_ms: f64,
    /// Milliseconds of each change of a folder; the disk does one at a time
    #[arg(long, default_value_t = 0.0)]
    change_ms: f64,
    /// Requests a second; 0: unlimited
    #[arg(long, default_value_t = 0.0)]
    iops: f64,
    /// Requests that are served at a time, each at full speed
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=MAX_CHANNELS)
    )]
    channels: u64,
    /// Files are striped over the channels, in stripes of this many bytes; 0: they are not
    #[arg(long, default_value_t = 0)]
    stripe_bytes: u64,
    /// Tell how files are striped as this file system does
    #[arg(long, requires = "stripe_bytes")]
    layouts: Option<LayoutsOf>,
    /// Megabytes of recently read and written data that the server keeps in memory
    #[arg(long, default_value_t = 0)]
    memory_megabytes: u64,
    /// Transfer rate from the server's memory; 0: unlimited
    #[arg(long, default_value_t = 0.0)]
    memory_megabytes_per_second: f64,
    /// Network latency: each answer is delayed by this time, while the disk is free
    #[arg(long, default_value_t = 0)]
    latency_us: u64,
    /// Cache nothing on this mount: every read is a request
    #[arg(long)]
    uncached: bool,
}

fn main() -> ExitCode {
    let done = match Words::parse().command {
        Command::Mount(mount) => serve(&mount),
        Command::Forget { state } => {
            SharedDisk::forget(&state).map_err(|error| named(&state, &error))
        }
        Command::Stat { state } => {
            SharedDisk::counters(&state).map(|counters| println!("{counters}"))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slow-disk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Mounts, prints `ready`, and serves until standard input ends or the file system is unmounted.
fn serve(asked: &Mount) -> io::Result<()> {
    let rate = asked.megabytes_per_second;
    let written = asked.write_megabytes_per_second.unwrap_or(rate);
    let costs = Costs {
        rates: Rates {
            stripe_bytes: asked.stripe_bytes,
            written_bytes_per_s: (written * 1e6) as u64,
            open_ns: (asked.open_ms * 1e6) as u64,
            change_ns: (asked.change_ms * 1e6) as u64,
            ..Rates::new(asked.seek_ms, rate, asked.iops, asked.channels)
        },
        memory_sets: memory::sets(asked.memory_megabytes * 1_000_000),
        memory_bytes_per_s: (asked.memory_megabytes_per_second * 1e6) as u64,
    };
    let disk =
        SharedDisk::open(&asked.state, costs).map_err(|error| named(&asked.state, &error))?;
    raise_open_files()?;
    // The kernel has already applied the caller's umask.
    rustix::process::umask(Mode::empty());
    let layout = asked.layouts.map(|told_as| TellableLayout {
        told_as,
        servers: asked.channels as u16,
        stripe_bytes: asked.stripe_bytes as u32,
    });
    let files = SlowFiles::new(&asked.source, disk, asked.latency_us, asked.uncached, layout)
        .map_err(|error| named(&asked.source, &error))?;
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("slow-disk".into()), MountOption::DefaultPermissions];
    if let Some(layout) = layout {
        config.mount_options.push(MountOption::CUSTOM(format!("subtype={}", layout.file_system())));
    }
    config.acl = SessionACL::All;
    let mountpoint =
        fs::canonicalize(&asked.mountpoint).map_err(|error| named(&asked.mountpoint, &error))?;
    let session = Session::new(files, &mountpoint, &config)?;
    println!("ready");
    io::stdout().flush()?;
    thread::spawn(move || end_with_input(&mountpoint));
    session.run()
}

/// Unmounts when standard input ends. Detaches first, so that open files do not keep this process
/// alive.
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

/// Raises the limit of open files to its maximum: every file that the kernel remembers is open
/// here.
fn raise_open_files() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    Ok(rustix::process::setrlimit(
        Resource::Nofile,
        Rlimit { current: limit.maximum, maximum: limit.maximum },
    )?)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}", path.display()))
}
