//! `eyas mount`: the cluster's files in a folder of this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use eyas_client::files::FilesOrigin;
use eyas_client::types::dfs::{DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION};
use eyas_client::types::units;
use eyas_mount::{Mount, MountOptions};

use crate::connect::connect;
use crate::detach::detach;
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::interrupt::interrupted;
use crate::own_process::{READY, own_path};
use crate::print::{out, say};

#[derive(Args)]
pub(crate) struct MountArgs {
    /// Folder on which the files of the cluster appear
    folder: PathBuf,
    /// Folder on a local disk for files that are being written [default: the temporary folder]
    #[arg(long, value_name = "FOLDER")]
    scratch: Option<PathBuf>,
    /// Time after which an operation fails with EIO if the cluster does not answer, for example
    /// without a quorum
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "30s",
        value_parser = units::parse_duration_us
    )]
    timeout: u64,
    /// Size of the chunks of new files
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    chunk_size: Option<u64>,
    /// Number of replicas of new files
    #[arg(long, value_name = "N", default_value_t = DEFAULT_REPLICATION)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    replicas: u8,
    /// Let programs read files only
    #[arg(long)]
    read_only: bool,
    /// Let other users use the mount, with the permissions of each file [default: only if root
    /// mounts]
    #[arg(long)]
    allow_other: bool,
    /// Run in the background, and return when the folder is mounted
    #[arg(long)]
    detach: bool,
}

pub(crate) async fn mount(args: MountArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    if args.detach {
        let detached = detach(global.cluster()?.client_log_path(), "the mount").await?;
        say!("mounted on {}; log: {}", args.folder.display(), detached.log.display());
        return Ok(ExitCode::SUCCESS);
    }
    eyas_executor::raise_descriptor_limit();
    let timeout = Duration::from_micros(args.timeout);
    let mut client = connect(global).await?;
    let waits =
        || say!("the dispatcher has just started; waiting for an executor that keeps files");
    let files = client.files_within(timeout, waits).await?;
    files.set_door(FilesOrigin::Mount);
    let options = MountOptions {
        cluster: global.cluster_name(),
        scratch: args.scratch.unwrap_or_else(std::env::temp_dir),
        timeout,
        chunk_bytes: args.chunk_size.unwrap_or(DEFAULT_CHUNK_BYTES),
        replication: args.replicas,
        is_read_only: args.read_only,
        eyas: own_path()?.into(),
        is_for_all_users: args.allow_other || rustix::process::geteuid().is_root(),
    };
    let mut mount = Mount::begin(files, &args.folder, &options).await?;
    out!("{READY}")?;
    tokio::select! {
        ended = mount.ended() => ended?,
        () = interrupted(false) => mount.end().await?,
    }
    Ok(ExitCode::SUCCESS)
}
