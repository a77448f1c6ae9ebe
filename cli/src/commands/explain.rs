//! `eyas explain`: shows why a task waits, or where it ran and why.

use std::process::ExitCode;

use clap::Args;
use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::TaskId;

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::global::GlobalArgs;
use crate::show;

#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// The task, as JOB.INDEX
    task: TaskId,
}

pub(crate) async fn explain(args: &ExplainArgs, global: &GlobalArgs) -> Result<ExitCode, CliError> {
    match connect(global).await?.ask(FromClient::Explain { task: args.task }).await? {
        ToClient::Explained(explanation) if global.json => show::json("explanation", &explanation)?,
        ToClient::Explained(explanation) => show::explanation(&explanation)?,
        _ => return unexpected(),
    }
    Ok(ExitCode::SUCCESS)
}
