//! Connections to the dispatcher, for all commands.

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::JobId;
use eyas_client::{Client, ClientError};
use eyas_session::{Access, SessionError};

use crate::error::CliError;
use crate::global::{GlobalArgs, WhichJob};

/// Connects to the dispatcher of the selected cluster.
pub(crate) async fn connect(global: &GlobalArgs) -> Result<Client, CliError> {
    connect_to(&global.cluster()?.access()?, global).await
}

/// Connects with an access file that was already read.
pub(crate) async fn connect_to(access: &Access, global: &GlobalArgs) -> Result<Client, CliError> {
    Client::connect(access).await.map_err(|error| explain(error, access, global))
}

/// Adds to the error of an unreachable dispatcher what to do: most likely the cluster was stopped.
fn explain(error: ClientError, access: &Access, global: &GlobalArgs) -> CliError {
    let ClientError::Session(SessionError::Unreachable { address, source }) = error else {
        return error.into();
    };
    let (cluster, option) = (&access.cluster, global.cluster_option());
    let remove = match global.access {
        Some(_) => String::new(),
        None => format!(
            "; `eyas cluster remove {}` removes the files of a stopped cluster",
            global.cluster_name()
        ),
    };
    format!(
        "the cluster `{cluster}` does not answer: nothing listens at its dispatcher's address \
         {address} ({source}). If the cluster was stopped, start it again with `eyas start local \
         {option}` or `eyas start dispatcher {option}`{remove}"
    )
    .into()
}

/// The error for an answer that does not fit the request.
pub(crate) fn unexpected<T>() -> Result<T, CliError> {
    Err(ClientError::Unexpected.into())
}

/// The id of the selected job.
pub(crate) async fn job_of(client: &mut Client, which: WhichJob) -> Result<JobId, CliError> {
    match which {
        WhichJob::Id(job) => Ok(job),
        WhichJob::Last => match client.ask(FromClient::Jobs { job: None }).await? {
            ToClient::Jobs(jobs) => {
                let last = jobs.iter().map(|job| job.job).max();
                Ok(last.ok_or("the cluster has no job: submit one with `eyas submit FILE`")?)
            }
            _ => unexpected(),
        },
    }
}
