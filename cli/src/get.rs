//! `eyas job get` and `eyas task get`: what is kept in the cluster becomes files here.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use eyas_client::types::units::format_count;
use eyas_client::types::{JobId, Name};
use eyas_client::{Brought, Client, Wish};
use eyas_store::name_of;

use crate::command::{Reach, ReconnectArgs};
use crate::interrupt::INTERRUPTED;
use crate::print::{self, say};
use crate::start::interrupted;
use crate::{Failure, show};

/// Where files are brought to.
#[derive(Args)]
pub(crate) struct PlaceArgs {
    /// The folder; it is made if it is not there
    #[arg(long, value_name = "FOLDER", default_value = ".", value_parser = parse_folder)]
    to: PathBuf,
    /// Replace files that are there and are not the same
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    reconnect: ReconnectArgs,
}

fn parse_folder(text: &str) -> Result<PathBuf, String> {
    match text.contains("://") {
        true => Err("name a folder of this machine; what is to go elsewhere needs a `to` in the job file".into()),
        false => Ok(text.into()),
    }
}

/// Prints the path of each file as it appears.
pub(crate) async fn get(
    client: &mut Client,
    job: JobId,
    task: Option<u32>,
    files: Vec<Name>,
    place: PlaceArgs,
    reach: &Reach,
) -> Result<ExitCode, Failure> {
    let PlaceArgs { to, force, reconnect } = place;
    let wish = Wish { job, task, files, to, replaces: force };
    let mut brought: Vec<Name> = Vec::new();
    let mut waits = 0;
    let mut printed = Ok(());
    let see = |what: Brought<'_>| match what {
        Brought::File(path) => {
            if !reach.json {
                // What cannot be printed is brought all the same; the first failure is told at the end.
                let now = print::path(path);
                printed = std::mem::replace(&mut printed, Ok(())).and(now);
            }
            brought.push(name_of(path));
        }
        Brought::Waits(count) if count != waits => {
            say!("waiting for {count} more, which are being written");
            waits = count;
        }
        Brought::Waits(_) => {}
    };
    let got = tokio::select! {
        // Listened for before anything is there that would stay behind.
        biased;
        () = interrupted(false) => return Ok(ExitCode::from(INTERRUPTED)),
        got = client.get(&wish, reconnect.patience(), see) => got?,
    };
    printed?;
    match reach.json {
        true => show::json("files", &brought)?,
        false => say!("{} in {}", format_count(got, "file"), wish.to.display()),
    }
    Ok(ExitCode::SUCCESS)
}
