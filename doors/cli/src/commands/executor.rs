//! `eyas executor …`: lists and stops executors.

use clap::Subcommand;
use eyas_client::messages::{FromClient, ToClient};

use crate::connect::{connect, unexpected};
use crate::error::CliError;
use crate::exit_code::ExitCode;
use crate::global::GlobalArgs;
use crate::print::say;
use crate::show;

#[derive(Subcommand)]
pub(crate) enum ExecutorCommand {
    /// List all executors
    List,
    /// Stop an executor; its tasks run on other executors
    Stop {
        /// Name or id of the executor, as `eyas executor list` shows them
        executor: String,
    },
}

pub(crate) async fn executor(
    command: ExecutorCommand,
    global: &GlobalArgs,
) -> Result<ExitCode, CliError> {
    let mut client = connect(global).await?;
    match command {
        ExecutorCommand::List => match client.ask(FromClient::Executors).await? {
            ToClient::Executors(executors) if global.json => show::json("executors", &executors)?,
            ToClient::Executors(executors) => show::executors(&executors)?,
            _ => return unexpected(),
        },
        ExecutorCommand::Stop { executor } => {
            match client.ask(FromClient::StopExecutor { executor: executor.clone() }).await? {
                ToClient::Done(count) if global.json => show::json("executors", &count)?,
                ToClient::Done(_) => {
                    say!("executor {executor} is stopping; its tasks run on other executors")
                }
                _ => return unexpected(),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
