//! `eyas job get` and `eyas task get`: copies outputs that are kept in the cluster to files on this
//! machine.

use std::path::PathBuf;

use clap::Args;
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name};
use eyas_client::{Client, GetProgress, GetRequest};
use eyas_store::name_of;

use crate::error::{CliError, INTERRUPTED, ValueError};
use crate::exit_code::ExitCode;
use crate::global::{GlobalArgs, ReconnectArgs};
use crate::interrupt::interrupted;
use crate::print::{self, say};
use crate::show;

/// Destination of the files.
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

fn parse_folder(text: &str) -> Result<PathBuf, ValueError> {
    if text.contains("://") { Err(ValueError::LocalFolder(text.into())) } else { Ok(text.into()) }
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
    let request = GetRequest { job, task, files, to, replaces: force };
    let mut brought: Vec<Name> = Vec::new();
    let mut waits = 0;
    let mut printed = Ok(());
    let see = |what: GetProgress<'_>| match what {
        GetProgress::File(path) => {
            if !global.json {
                // An error of printing does not stop the copies; the first such error is returned
                // at the end.
                let result = print::path(path);
                printed = std::mem::replace(&mut printed, Ok(())).and(result);
            }
            brought.push(name_of(path));
        }
        GetProgress::Waits(count) if count != waits => {
            say!("waiting for {}, which tasks are writing", format_count(count, "more file"));
            waits = count;
        }
        GetProgress::Waits(_) => {}
        GetProgress::Dispatcher(seen) => show::seen(seen),
    };
    let got = tokio::select! {
        // Checked first, so that an interrupt that has already come leaves no file.
        biased;
        () = interrupted(false) => return Ok(ExitCode::from(INTERRUPTED)),
        got = client.get(&request, reconnect.patience(), see) => got?,
    };
    printed?;
    if global.json {
        show::json("files", &brought)?;
    } else {
        say!("{} in {}", format_count(got, "file"), request.to.display());
    }
    Ok(ExitCode::SUCCESS)
}
