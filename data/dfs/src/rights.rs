//! Authorization: the requests that a key or token permits.

use eyas_files::protocol::{RequestBody, RunRequest};
use eyas_ring::FileOperation;
use eyas_types::access::{FilesScope, KeyRole, Principal};

/// Whether a holder may send this request. The token of a job permits requests within its `scope`.
pub(crate) fn is_allowed(
    holder: Principal,
    scope: Option<&FilesScope>,
    what: &RequestBody,
) -> bool {
    match (holder, scope) {
        (Principal::Key(_, role), _) if matches!(what, RequestBody::Changes { .. }) => {
            role == KeyRole::Admin
        }
        (Principal::Key(_, KeyRole::Admin | KeyRole::Submit | KeyRole::Executor), _) => true,
        (Principal::Key(_, KeyRole::Read), _) => only_reads(what),
        (Principal::Job(_), Some(scope)) => is_within(scope, what),
        (Principal::Job(_), None) | (Principal::Dispatcher, _) => false,
    }
}

fn only_reads(what: &RequestBody) -> bool {
    match what {
        RequestBody::Membership | RequestBody::Usage | RequestBody::StoreFolder => true,
        RequestBody::Check { .. } | RequestBody::Contents { .. } => true,
        RequestBody::Operate(operation) => is_look(operation),
        RequestBody::OperateAll(operations) => operations.iter().all(is_look),
        RequestBody::Run { request, .. } => {
            matches!(request, RunRequest::Spec | RunRequest::Status)
        }
        RequestBody::Store { .. } | RequestBody::StoreAll { .. } | RequestBody::Sync { .. } => {
            false
        }
        RequestBody::Take { .. } | RequestBody::Derive { .. } | RequestBody::Cut(_) => false,
        RequestBody::Bad { .. } | RequestBody::Tell { .. } | RequestBody::Changes { .. } => false,
        RequestBody::Discard { .. } | RequestBody::MayWrite { .. } => false,
        RequestBody::Renew { .. } => false,
    }
}

fn is_look(operation: &FileOperation) -> bool {
    matches!(
        operation,
        FileOperation::Stat { .. } | FileOperation::List { .. } | FileOperation::Use { .. }
    )
}

fn is_within(scope: &FilesScope, what: &RequestBody) -> bool {
    match what {
        RequestBody::Membership => true,
        // A client learns the ids of chunks only from records that it may read.
        RequestBody::Contents { .. } => true,
        RequestBody::Operate(operation) => permits(scope, operation),
        RequestBody::OperateAll(operations) => {
            operations.iter().all(|operation| permits(scope, operation))
        }
        // A chunk belongs to no file before its file is created, and is deleted if it never does.
        RequestBody::Store { .. }
        | RequestBody::StoreAll { .. }
        | RequestBody::Take { .. }
        | RequestBody::Discard { .. }
        | RequestBody::Renew { .. }
        | RequestBody::Sync { .. } => !scope.folders.is_empty(),
        RequestBody::Bad { name, .. } => scope.reads(name),
        RequestBody::MayWrite { name } => scope.writes(name),
        RequestBody::Run { run, request } => {
            scope.holds(&run.folder())
                && matches!(request, RunRequest::Spec | RunRequest::Attend(_) | RunRequest::Status)
        }
        RequestBody::Tell { run, .. } => scope.holds(&run.folder()),
        RequestBody::Check { .. } | RequestBody::Usage | RequestBody::Changes { .. } => false,
        // They copy objects that the scope does not name.
        RequestBody::Derive { .. } | RequestBody::Cut(_) => false,
        // The executor tells its tasks.
        RequestBody::StoreFolder => false,
    }
}

fn permits(scope: &FilesScope, operation: &FileOperation) -> bool {
    match operation {
        FileOperation::Stat { name } => scope.reads(name),
        FileOperation::Create { name, .. }
        | FileOperation::Replace { name, .. }
        | FileOperation::SetAttributes { name, .. }
        | FileOperation::Remove { name, .. } => scope.writes(name),
        FileOperation::Rename { from, to, .. } => scope.writes(from) && scope.writes(to),
        FileOperation::List { folder, .. } | FileOperation::Use { folder, .. } => {
            scope.holds(folder)
        }
        FileOperation::Recover { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_files::BlockRunId;
    use eyas_types::JobId;
    use eyas_types::access::KeyId;
    use eyas_types::dfs::{FileId, FileName};

    #[test]
    fn each_holder_may_ask_what_it_is_for() {
        let (own, other) = (BlockRunId(1), BlockRunId(2));
        let scope = FilesScope {
            reads: ["/sky.csv".parse().unwrap()].into(),
            folders: [own.folder()].into(),
        };
        let stat = |name: FileName| RequestBody::Operate(FileOperation::Stat { name });
        let remove =
            |name: FileName| RequestBody::Operate(FileOperation::Remove { name, id: FileId(1) });
        let run = |run, request| RequestBody::Run { run, request };
        fn all<const COUNT: usize>(names: [&str; COUNT]) -> RequestBody {
            let stats = names.map(|name| FileOperation::Stat { name: name.parse().unwrap() });
            RequestBody::OperateAll(stats.to_vec())
        }
        // Columns: submit key, read key, token of a job with this scope, token of a job without a
        // scope.
        for (what, may) in [
            (RequestBody::Membership, [true, true, true, false]),
            (RequestBody::Usage, [true, true, false, false]),
            (RequestBody::StoreFolder, [true, true, false, false]),
            (stat("/sky.csv".parse().unwrap()), [true, true, true, false]),
            (stat("/other.csv".parse().unwrap()), [true, true, false, false]),
            (remove("/sky.csv".parse().unwrap()), [true, false, false, false]),
            (stat(own.file("map-1")), [true, true, true, false]),
            (remove(own.file("map-1")), [true, false, true, false]),
            (remove(other.file("map-1")), [true, false, false, false]),
            (all(["/sky.csv"]), [true, true, true, false]),
            (all(["/sky.csv", "/other.csv"]), [true, true, false, false]),
            (
                RequestBody::StoreAll { chunks: Vec::new(), is_durable: true },
                [true, false, true, false],
            ),
            (RequestBody::Sync { objects: Vec::new() }, [true, false, true, false]),
            (RequestBody::Renew { objects: Vec::new() }, [true, false, true, false]),
            (
                RequestBody::MayWrite { name: "/sky.csv".parse().unwrap() },
                [true, false, false, false],
            ),
            (RequestBody::MayWrite { name: own.file("map-1") }, [true, false, true, false]),
            (RequestBody::Contents { objects: Vec::new() }, [true, true, true, false]),
            (
                RequestBody::Derive { derived: Vec::new(), is_for_file: true },
                [true, false, false, false],
            ),
            (run(own, RunRequest::Spec), [true, true, true, false]),
            (run(other, RunRequest::Spec), [true, true, false, false]),
            (run(own, RunRequest::Close), [true, false, false, false]),
        ] {
            let key = |role| is_allowed(Principal::Key(KeyId(1), role), None, &what);
            let token = |scope| is_allowed(Principal::Job(JobId(7)), scope, &what);
            let answers =
                [key(KeyRole::Submit), key(KeyRole::Read), token(Some(&scope)), token(None)];
            assert_eq!(answers, may, "{what:?}");
        }
    }
}
