//! Authorization: the requests that a key or token permits, and those that are permitted on behalf
//! of a user.

use eyas_files::protocol::{RequestBody, RunRequest};
use eyas_ring::FileOperation;
use eyas_types::access::{Behalf, FilesScope, KeyRole, Principal};
use eyas_types::dfs::FileName;

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
        RequestBody::Membership | RequestBody::StoreFolder => true,
        RequestBody::Usage | RequestBody::Loads => true,
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
        RequestBody::OpenMemory(_) | RequestBody::KeepInMemory { .. } => false,
        RequestBody::ReleaseMemory { .. } => false,
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
        // Only on an account that a client has opened.
        RequestBody::KeepInMemory { .. } => true,
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
                && matches!(
                    request,
                    RunRequest::Spec
                        | RunRequest::Attend(_)
                        | RunRequest::Claim(_)
                        | RunRequest::Status
                )
        }
        RequestBody::Tell { run, .. } => scope.holds(&run.folder()),
        RequestBody::Check { .. } | RequestBody::Changes { .. } => false,
        RequestBody::Usage | RequestBody::Loads => false,
        // They copy objects that the scope does not name.
        RequestBody::Derive { .. } | RequestBody::Cut(_) => false,
        // The executor tells its tasks.
        RequestBody::StoreFolder => false,
        // Only clients with keys open and release accounts.
        RequestBody::OpenMemory(_) | RequestBody::ReleaseMemory { .. } => false,
    }
}

/// Whether a request may be made on behalf of a user, by a client whose key permits it.
pub(crate) fn is_allowed_for(behalf: &Behalf, what: &RequestBody) -> bool {
    let may_write = behalf.may_write();
    match what {
        RequestBody::Membership => true,
        // A client learns the ids of chunks only from records that the user may read.
        RequestBody::Contents { .. } => true,
        RequestBody::Operate(operation) => permits(behalf, operation),
        RequestBody::OperateAll(operations) => {
            operations.iter().all(|operation| permits(behalf, operation))
        }
        // A chunk belongs to no file before its file is created, and is deleted if it never does.
        RequestBody::Store { .. }
        | RequestBody::StoreAll { .. }
        | RequestBody::Take { .. }
        | RequestBody::Renew { .. }
        | RequestBody::Discard { .. }
        | RequestBody::Sync { .. } => may_write,
        RequestBody::Derive { from, .. } => may_write && behalf.reads(from),
        RequestBody::Bad { name, .. } => behalf.reads(name),
        RequestBody::MayWrite { name } => behalf.writes(name),
        RequestBody::Changes { folder, .. } => behalf.holds(folder),
        RequestBody::Run { run, request } => {
            let may_ask = match request {
                RunRequest::Spec | RunRequest::Status => true,
                RunRequest::Attend(_) | RunRequest::Claim(_) | RunRequest::Close => may_write,
                RunRequest::Open(spec) => {
                    may_write && spec.files.iter().all(|file| behalf.reads(&file.name))
                }
            };
            behalf.holds(&run.folder()) && may_ask
        }
        RequestBody::Tell { run, .. } => may_write && behalf.holds(&run.folder()),
        // They name no file, and use memory of nodes.
        RequestBody::OpenMemory(_) | RequestBody::KeepInMemory { .. } => false,
        RequestBody::ReleaseMemory { .. } => false,
        // They name no file.
        RequestBody::Check { .. } | RequestBody::StoreFolder | RequestBody::Cut(_) => false,
        RequestBody::Usage | RequestBody::Loads => false,
    }
}

/// Names of files, as far as a holder or a user may use them.
trait PermittedNames {
    fn reads(&self, name: &FileName) -> bool;
    fn writes(&self, name: &FileName) -> bool;
    /// Whether all of a folder may be listed.
    fn holds(&self, folder: &str) -> bool;
}

impl PermittedNames for FilesScope {
    fn reads(&self, name: &FileName) -> bool {
        FilesScope::reads(self, name)
    }

    fn writes(&self, name: &FileName) -> bool {
        FilesScope::writes(self, name)
    }

    fn holds(&self, folder: &str) -> bool {
        FilesScope::holds(self, folder)
    }
}

impl PermittedNames for Behalf {
    fn reads(&self, name: &FileName) -> bool {
        Behalf::reads(self, name)
    }

    fn writes(&self, name: &FileName) -> bool {
        Behalf::writes(self, name)
    }

    fn holds(&self, folder: &str) -> bool {
        Behalf::holds(self, folder)
    }
}

fn permits(scope: &impl PermittedNames, operation: &FileOperation) -> bool {
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
    use eyas_blocks::{Event as BlockEvent, TaskBlock, TaskClaim, TaskNumber, WorkerId};
    use eyas_files::{BlockRunId, MemoryAccount};
    use eyas_ring::{ListDepth, RecordVersion, Replaceable, Round};
    use eyas_types::JobId;
    use eyas_types::access::{FilesAccess, KeyId};
    use eyas_types::dfs::{Attributes, FileId, FileKind, FileRecord, NodeId};

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
        let account = MemoryAccount { number: 1, limit_bytes: 1 };
        // Columns: submit key, read key, token of a job with this scope, token of a job without a
        // scope.
        for (what, may) in [
            (RequestBody::Membership, [true, true, true, false]),
            (RequestBody::Usage, [true, true, false, false]),
            (RequestBody::Loads, [true, true, false, false]),
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
                RequestBody::Derive {
                    from: "/sky.csv".parse().unwrap(),
                    derived: Vec::new(),
                    is_for_file: true,
                },
                [true, false, false, false],
            ),
            (RequestBody::OpenMemory(account), [true, false, false, false]),
            (
                RequestBody::KeepInMemory { account: 1, objects: Vec::new() },
                [true, false, true, false],
            ),
            (RequestBody::ReleaseMemory { account: 1 }, [true, false, false, false]),
            (run(own, RunRequest::Spec), [true, true, true, false]),
            (run(other, RunRequest::Spec), [true, true, false, false]),
            (run(own, RunRequest::Claim(claim())), [true, false, true, false]),
            (run(other, RunRequest::Claim(claim())), [true, false, false, false]),
            (run(own, RunRequest::Close), [true, false, false, false]),
        ] {
            let key = |role| is_allowed(Principal::Key(KeyId(1), role), None, &what);
            let token = |scope| is_allowed(Principal::Job(JobId(7)), scope, &what);
            let answers =
                [key(KeyRole::Submit), key(KeyRole::Read), token(Some(&scope)), token(None)];
            assert_eq!(answers, may, "{what:?}");
        }
    }

    fn claim() -> TaskClaim {
        TaskBlock::new(TaskNumber(1), NodeId(1)).claim()
    }

    /// Each kind of request, with the answer to it for a name below the user's folder: 0 if it is
    /// refused, 1 if it is permitted to users that may write, 2 if it is permitted to all.
    fn requests(file: &str, other: &str) -> Vec<(RequestBody, u8)> {
        let name = |text: &str| text.parse::<FileName>().unwrap();
        let (file, other) = (name(file), name(other));
        let folder = file.parent().unwrap();
        let record =
            || FileRecord::without_content(FileId(1), FileKind::File, Attributes::default());
        let version = RecordVersion { round: Round { view: 1, boot: 1 }, sequence: 1 };
        let rename = |from: &FileName, to: &FileName| FileOperation::Rename {
            from: from.clone(),
            version,
            id: FileId(1),
            to: to.clone(),
            over: Replaceable::Nothing,
        };
        let list = |depth| FileOperation::List {
            view: 1,
            folder: folder.to_string(),
            from: String::new(),
            most: 1,
            depth,
        };
        let stat = FileOperation::Stat { name: file.clone() };
        let create = FileOperation::Create { name: file.clone(), record: record() };
        let operations = [
            (stat.clone(), 2),
            (list(ListDepth::OneLevel), 2),
            (list(ListDepth::All), 2),
            (FileOperation::Use { view: 1, folder: folder.to_string() }, 2),
            (create.clone(), 1),
            (FileOperation::Replace { name: file.clone(), version, record: record() }, 1),
            (FileOperation::Remove { name: file.clone(), id: FileId(1) }, 1),
            (
                FileOperation::SetAttributes {
                    name: file.clone(),
                    version,
                    attributes: Attributes::default(),
                    named: None,
                },
                1,
            ),
            (rename(&file, &other), 1),
            (rename(&other, &file), 1),
            (FileOperation::Recover { without: [].into(), now_s: 1 }, 0),
        ];
        let own = BlockRunId(1);
        let run = |request| RequestBody::Run { run: own, request };
        let mut requests = vec![
            (RequestBody::OperateAll(vec![stat.clone(), stat.clone()]), 2),
            (RequestBody::OperateAll(vec![stat, create]), 1),
            (RequestBody::Bad { name: file.clone(), objects: Vec::new(), node: NodeId(1) }, 2),
            (RequestBody::MayWrite { name: file.clone() }, 1),
            (RequestBody::Derive { from: file, derived: Vec::new(), is_for_file: true }, 1),
            (RequestBody::Changes { folder: folder.to_string(), since_us: 0, from: None }, 2),
            // The folder of a run is that of no user.
            (run(RunRequest::Spec), 0),
            (run(RunRequest::Status), 0),
            (run(RunRequest::Attend(WorkerId(1))), 0),
            (run(RunRequest::Claim(claim())), 0),
            (run(RunRequest::Close), 0),
            (RequestBody::Tell { run: own, event: BlockEvent::Gone { worker: WorkerId(1) } }, 0),
            (RequestBody::Check { objects: Vec::new(), thoroughly: true }, 0),
            (RequestBody::Usage, 0),
            (RequestBody::Loads, 0),
            (RequestBody::StoreFolder, 0),
        ];
        requests.extend(operations.map(|(operation, may)| (RequestBody::Operate(operation), may)));
        requests
    }

    #[test]
    fn a_request_on_behalf_of_a_user_concerns_the_folder_of_the_user() {
        let behalf = |access| Behalf::new("anna", "/a", access).unwrap();
        let (reader, writer) = (behalf(FilesAccess::Read), behalf(FilesAccess::Write));
        for (what, may) in requests("/a/b/file", "/a/other") {
            let answers = (is_allowed_for(&reader, &what), is_allowed_for(&writer, &what));
            assert_eq!(answers, (may == 2, may >= 1), "{what:?}");
        }
        for (file, other) in
            [("/b/x/file", "/a/other"), ("/ab/x/file", "/a/other"), ("/ab/x/file", "/ab/other")]
        {
            for (what, _) in requests(file, other) {
                assert!(!is_allowed_for(&writer, &what), "{what:?}");
            }
        }
        // Chunks have no names.
        for (what, may) in [
            (RequestBody::Membership, (true, true)),
            (RequestBody::Contents { objects: Vec::new() }, (true, true)),
            (RequestBody::StoreAll { chunks: Vec::new(), is_durable: true }, (false, true)),
            (RequestBody::Sync { objects: Vec::new() }, (false, true)),
            (RequestBody::Renew { objects: Vec::new() }, (false, true)),
            (RequestBody::Discard { objects: Vec::new() }, (false, true)),
        ] {
            let answers = (is_allowed_for(&reader, &what), is_allowed_for(&writer, &what));
            assert_eq!(answers, may, "{what:?}");
        }
        // The folder itself is not the user's to change.
        let remove = FileOperation::Remove { name: "/a".parse().unwrap(), id: FileId(1) };
        assert!(!is_allowed_for(&writer, &RequestBody::Operate(remove)));
        let all = Behalf::new("root", "/", FilesAccess::Write).unwrap();
        let status = RequestBody::Run { run: BlockRunId(1), request: RunRequest::Status };
        assert!(is_allowed_for(&all, &status));
    }
}
