//! `eyas job get` and `eyas task get`: outputs that are kept in the cluster become files on this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name};
use eyas_client::{Brought, Client, Wish};
use eyas_store::name_of;

use crate::error::CliError;
use crate::error::INTERRUPTED;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::interrupted;
use crate::print::{self, say};
use crate::show;

/// Where files are copied to.
#[derive(Args)]
pub(crate) struct DestinationArgs {
    /// Destination folder; it is created if necessary
    #[arg(long, value_name = "FOLDER", default_value = ".", value_parser = parse_folder)]
    to: PathBuf,
    /// Replace existing files that differ
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reconnect: ReconnectArgs,
}

fn parse_folder(text: &str) -> Result<PathBuf, String> {
    if text.contains("://") {
        return Err(
            "name a folder of this machine; for another destination, write `to` beside the output in the job file"
                .into(),
        );
    }
    Ok(text.into())
}

/// Prints the path of each file as it appears.
pub(crate) async fn get(
    client: &mut Client,
    job: JobId,
    task: Option<u32>,
    files: Vec<Name>,
    destination: DestinationArgs,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let DestinationArgs { to, force, reconnect } = destination;
    let wish = Wish { job, task, files, to, replaces: force };
    let mut brought: Vec<Name> = Vec::new();
    let mut waits = 0;
    let mut printed = Ok(());
    let see = |what: Brought<'_>| match what {
        Brought::File(path) => {
            if !global.json {
                // A path that cannot be printed does not stop the copies; the first error is returned at the end.
                let now = print::path(path);
                printed = std::mem::replace(&mut printed, Ok(())).and(now);
            }
            brought.push(name_of(path));
        }
        Brought::Waits(count) if count != waits => {
            say!("waiting for {}, which tasks are writing", format_count(count, "more file"));
            waits = count;
        }
        Brought::Waits(_) => {}
    };
    let got = tokio::select! {
        // Before the first file exists that would stay behind.
        biased;
        () = interrupted(false) => return Ok(ExitCode::from(INTERRUPTED)),
        got = client.get(&wish, reconnect.patience(), see) => got?,
    };
    printed?;
    if global.json {
        show::json("files", &brought)?;
    } else {
        say!("{} in {}", format_count(got, "file"), wish.to.display());
    }
    Ok(ExitCode::SUCCESS)
}
