//! `eyas job get` and `eyas task get`: what is kept in the cluster becomes files here.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use eyas_client::types::JobId;
use eyas_client::types::units::format_count;
use eyas_client::{Brought, Client, Wish};

use crate::command::{Reach, ReconnectArgs};
use crate::interrupt::INTERRUPTED;
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
    files: Vec<String>,
    place: PlaceArgs,
    reach: &Reach,
) -> Result<ExitCode, Failure> {
    let PlaceArgs { to, force, reconnect } = place;
    let wish = Wish { job, task, files, to, replaces: force };
    let mut brought: Vec<PathBuf> = Vec::new();
    let mut waits = 0;
    let see = |what: Brought<'_>| match what {
        Brought::File(path) => {
            if !reach.json {
                println!("{}", path.display());
            }
            brought.push(path.to_owned());
        }
        Brought::Waits(count) if count != waits => {
            eprintln!("eyas: waiting for {count} more, which are being written");
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
    match reach.json {
        true => show::json("files", &brought)?,
        false => eprintln!("eyas: {} in {}", format_count(got, "file"), wish.to.display()),
    }
    Ok(ExitCode::SUCCESS)
}
