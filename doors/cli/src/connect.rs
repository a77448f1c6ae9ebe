//! Connections to the dispatcher, for all commands.

use eyas_client::messages::NO_SUCH_JOB;
use eyas_client::types::{JobId, TaskId};
use eyas_client::{Client, ClientError, Cluster};
use eyas_session::{Access, SessionError};

use crate::error::CliError;
use crate::global::{GlobalArgs, WhichJob, WhichTask};

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

/// Adds to the error that a job does not exist which cluster was asked, and which others there are:
/// the job may be one of theirs.
pub(crate) fn with_cluster(error: CliError, global: &GlobalArgs) -> CliError {
    let is_no_job = matches!(
        error.downcast_ref(),
        Some(ClientError::Refused(why)) if why.starts_with(NO_SUCH_JOB)
    );
    if !is_no_job {
        return error;
    }
    let here = match &global.access {
        Some(access) => format!("the cluster of {}", access.display()),
        None => format!("the cluster `{}`", global.cluster_name()),
    };
    let mut others = Cluster::names().unwrap_or_default();
    others.retain(|name| global.access.is_some() || *name != global.cluster_name());
    let others: Vec<_> = others.iter().map(|name| format!("`--cluster {name}`")).collect();
    let elsewhere = match others.is_empty() {
        true => String::new(),
        false => format!("; a job of another cluster is named with {}", others.join(" or ")),
    };
    format!("{error}. This is {here}{elsewhere}").into()
}

/// The id of the selected task.
pub(crate) async fn task_of(client: &mut Client, which: WhichTask) -> Result<TaskId, CliError> {
    Ok(TaskId { job: job_of(client, which.job).await?, index: which.index })
}

/// The id of the selected job.
pub(crate) async fn job_of(client: &mut Client, which: WhichJob) -> Result<JobId, CliError> {
    match which {
        WhichJob::Id(job) => Ok(job),
        WhichJob::Last => {
            let last = client.last_job().await?;
            Ok(last.ok_or("the cluster has no job: submit one with `eyas submit FILE`")?)
        }
    }
}
