//! `eyas io mount`: a mount whose server runs under the library of `eyas io run`, and so is ordered
//! like any program.
//!
//! The command replaces its process by the server, which is this program again. So the agent stays
//! as long as the server runs.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use eyas_passthrough::{MountPlace, OrderedMount};

use super::preload::is_loaded;
use super::run::{PATHS, ProgramOrderArgs, real_paths};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::interrupt::{Signals, interrupted_by};
use crate::own_process::own_path;
use crate::print::out;

#[derive(Args)]
pub(crate) struct IoMountArgs {
    /// Folder whose files are ordered, on any file system
    folder: PathBuf,
    /// Empty folder on which they appear [default: FOLDER itself; until the mount ends, programs
    /// then find the ordered files there]
    place: Option<PathBuf>,
    /// The folder does not change while it is mounted: look up each name once
    #[arg(long = "static")]
    is_static: bool,
    #[command(flatten)]
    order: ProgramOrderArgs,
}

/// Replaces this process by the server of the mount, with the library loaded.
pub(super) fn mount(args: &IoMountArgs, access: &Path) -> Result<ExitCode, CliError> {
    let MountPlace { folder, place } =
        MountPlace::check(&args.folder, args.place.as_ref().unwrap_or(&args.folder))?;
    let mut command = Command::new(own_path()?);
    command.args(["io", "serve-mount"]).args([&folder, &place]);
    if args.is_static {
        command.arg("--static");
    }
    if let Some(paths) = real_paths(&[folder])? {
        command.env(PATHS, paths);
    }
    args.order.apply(&mut command, access)?;
    Err(format!("cannot start the server of the mount: {}", command.exec()).into())
}

/// Serves the mount until it is unmounted or an interrupt.
pub(super) async fn serve_mount(
    folder: &Path,
    place: &Path,
    is_static: bool,
) -> Result<ExitCode, CliError> {
    if !is_loaded() {
        return Err(
            "the library that orders requests was not loaded into the server of the mount, \
                    so nothing is mounted: the requests would not be ordered. Start the mount with \
                    `eyas io mount`, and an `eyas` that is linked with the C library"
                .into(),
        );
    }
    let signals = Signals::listen();
    eyas_executor::raise_descriptor_limit();
    let on = MountPlace::check(folder, place)?;
    let mut mount = OrderedMount::begin(&on, is_static, own_path()?.as_ref()).await?;
    let (folder, place) = (on.folder.display(), on.place.display());
    out!("eyas io mount: {folder} is ordered at {place}; end it with Ctrl-C or: umount {place}")?;
    tokio::select! {
        ended = mount.ended() => ended?,
        () = interrupted_by(signals, false) => mount.end().await?,
    }
    Ok(ExitCode::SUCCESS)
}
