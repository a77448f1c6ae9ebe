//! Which requests the key or token of a session allows.

use eyas_types::JobId;
use eyas_types::access::{KeyRole, Principal};
use eyas_wire::client::FromClient;
use eyas_wire::pool::PoolsRequest;
use thiserror::Error;

/// A request that the session's key or token does not allow.
#[derive(Debug, Error)]
pub(crate) enum NotAllowed {
    #[error(
        "the token of job {0} is good for that job and its files alone; to do more, name an access file with --access"
    )]
    Token(JobId),
    #[error(
        "{holder} is not permitted to {what}: an admin can make an access file for that with \
         `eyas access show --role {role} -o FILE`"
    )]
    Key { holder: Principal, what: &'static str, role: &'static str },
}

/// Requests, by what they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// Looks at one job.
    Job(JobId),
    /// Looks for nodes of the file system, which have rules of their own.
    Files,
    /// Looks at anything.
    Read,
    /// Has work done, or undone.
    Submit,
    /// Changes the cluster.
    Admin,
}

/// Whether a holder may ask that; for the token of a job, whether that `has_files` is part of it.
///
/// # Errors
/// Why not, for a person.
pub(crate) fn may_ask(holder: Principal, has_files: bool, request: &FromClient) -> Result<(), NotAllowed> {
    let need = need(request);
    let may = match holder {
        Principal::Key(_, KeyRole::Admin) => true,
        Principal::Key(_, KeyRole::Submit) => need <= Need::Submit,
        Principal::Key(_, KeyRole::Read) => need <= Need::Read,
        Principal::Key(_, KeyRole::Executor) | Principal::Dispatcher => false,
        Principal::Job(own) => need == Need::Job(own) || need == Need::Files && has_files,
    };
    if may {
        return Ok(());
    }
    Err(match (holder, need) {
        (Principal::Job(own), _) => NotAllowed::Token(own),
        (holder, Need::Admin) => NotAllowed::Key { holder, what: "change the cluster", role: "admin" },
        (holder, Need::Submit) => NotAllowed::Key { holder, what: "submit, change or end jobs", role: "submit" },
        (holder, _) => NotAllowed::Key { holder, what: "look at the cluster", role: "read" },
    })
}

fn need(request: &FromClient) -> Need {
    match request {
        FromClient::Watch { job, .. }
        | FromClient::WatchHere { job, .. }
        | FromClient::Jobs { job: Some(job) }
        | FromClient::Tasks { job, .. }
        | FromClient::Failures { job, .. }
        | FromClient::Report { job }
        | FromClient::Kept { job, .. }
        | FromClient::Inputs { job, .. }
        | FromClient::Trace { job, .. } => Need::Job(*job),
        FromClient::Log { task } | FromClient::Explain { task } => Need::Job(task.job),
        FromClient::FilesNodes => Need::Files,
        FromClient::Jobs { job: None }
        | FromClient::Executors
        | FromClient::Addresses
        | FromClient::Catalog { .. }
        | FromClient::Pools(PoolsRequest::Show { .. }) => Need::Read,
        FromClient::Submit { .. }
        | FromClient::Objects(_)
        | FromClient::Chunks(_)
        | FromClient::Items(_)
        | FromClient::Numbers { .. }
        | FromClient::Withdraw
        | FromClient::Commit
        | FromClient::Push(_)
        | FromClient::Cancel { .. }
        | FromClient::Retry { .. }
        | FromClient::Release { .. }
        | FromClient::Forget { .. }
        | FromClient::Attach { .. }
        | FromClient::Templates(_)
        | FromClient::Unneeded { .. }
        | FromClient::CancelWaiting
        | FromClient::Close => Need::Submit,
        FromClient::ForgetFiles
        | FromClient::Stop
        | FromClient::StopExecutor { .. }
        | FromClient::Keys(_)
        | FromClient::Pools(_) => Need::Admin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::TaskId;
    use eyas_types::access::KeyId;
    use eyas_wire::client::KeysRequest;

    #[test]
    fn each_role_may_ask_what_it_is_for() {
        let job = |job| FromClient::Report { job: JobId(job) };
        let log = |job| FromClient::Log { task: TaskId { job: JobId(job), index: 0 } };
        // Admin, submit, read, executor, token of job 7.
        for (request, may) in [
            (FromClient::Keys(KeysRequest::List), [true, false, false, false, false]),
            (FromClient::Stop, [true, false, false, false, false]),
            (FromClient::Commit, [true, true, false, false, false]),
            (FromClient::Cancel { job: JobId(7), task: None }, [true, true, false, false, false]),
            (FromClient::Forget { job: JobId(7) }, [true, true, false, false, false]),
            (FromClient::Executors, [true, true, true, false, false]),
            (FromClient::Jobs { job: None }, [true, true, true, false, false]),
            (job(8), [true, true, true, false, false]),
            (job(7), [true, true, true, false, true]),
            (log(8), [true, true, true, false, false]),
            (log(7), [true, true, true, false, true]),
            (FromClient::FilesNodes, [true, true, true, false, true]),
        ] {
            let keys = [KeyRole::Admin, KeyRole::Submit, KeyRole::Read, KeyRole::Executor];
            let holders = keys.map(|role| Principal::Key(KeyId(1), role)).into_iter().chain([Principal::Job(JobId(7))]);
            let answers: Vec<_> = holders.map(|holder| may_ask(holder, true, &request).is_ok()).collect();
            assert_eq!(answers, may, "{request:?}");
        }
    }

    #[test]
    fn who_is_refused_is_told_which_key_would_do() {
        let reader = Principal::Key(KeyId(4), KeyRole::Read);
        may_ask(Principal::Job(JobId(7)), false, &FromClient::FilesNodes).unwrap_err();
        let why = may_ask(reader, false, &FromClient::Commit).unwrap_err().to_string();
        assert!(why.contains("k4") && why.contains("--role submit"), "{why}");
        let why = may_ask(Principal::Job(JobId(7)), true, &FromClient::Stop).unwrap_err().to_string();
        assert!(why.contains("job 7"), "{why}");
    }
}
