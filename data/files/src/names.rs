//! The names of files at their leaders: looking up, creating, changing and removing what has a
//! name.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_ring::{FileAnswer, FileOperation, Listing, Refusal, Replaceable};
use eyas_types::ObjectId;
use eyas_types::access::{Behalf, KeyRole, Principal};
use eyas_types::dfs::{
    AttributeChange, Attributes, FileKind, FileName, FileRecord, NamedChange, NodeId,
};
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::entries::now_ns;
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::file::File;
use crate::groups::Groups;
use crate::protocol::{RequestBody, ResponseBody};
use crate::routes::Routes;

/// An operation that has failed waits for this time to say which nodes are missing.
const REASON_DEADLINE: Duration = Duration::from_secs(1);

/// The names of files, each of which a node leads.
pub(crate) struct Names {
    routes: Arc<Routes>,
    /// Operations on names of one leader go to it together.
    operations: Groups<FileOperation>,
}

/// What must hold just before an operation.
pub(crate) trait Condition: Send {
    /// Fails if it does not hold; with `Unreachable` if that cannot be found out now.
    fn holds(&mut self) -> impl Future<Output = Result<(), FilesError>> + Send;
}

/// No condition.
struct NoCondition;

impl Condition for NoCondition {
    async fn holds(&mut self) -> Result<(), FilesError> {
        Ok(())
    }
}

impl Names {
    pub fn new(routes: Arc<Routes>) -> Self {
        let operations = Groups::new(routes.calls.clone());
        Names { routes, operations }
    }

    /// The current version of a file.
    pub async fn stat(&self, name: &FileName) -> Result<File, FilesError> {
        let file = self.lookup(name).await?;
        match &file.record.kind {
            FileKind::File => Ok(file),
            FileKind::Folder => Err(FilesError::is_folder(name)),
            FileKind::SymbolicLink(target) => Err(FilesError::invalid(format!(
                "{name} is a symbolic link to `{target}`, which only a mount follows: give the \
                 name of the file"
            ))),
        }
    }

    /// The current version of a file, folder or symbolic link.
    pub async fn lookup(&self, name: &FileName) -> Result<File, FilesError> {
        match self.operate(FileOperation::Stat { name: name.clone() }).await? {
            FileAnswer::Found { version, record } => {
                Ok(File { name: name.clone(), record, version })
            }
            _ => Err(unexpected()),
        }
    }

    /// Whether there is a file, folder or link of this name.
    pub async fn exists(&self, name: &FileName) -> Result<bool, FilesError> {
        match self.lookup(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == FilesErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes a file or a symbolic link.
    pub async fn remove(&self, name: &FileName) -> Result<(), FilesError> {
        let record = self.lookup(name).await?.record;
        if record.kind.is_folder() {
            return Err(FilesError::is_folder(name));
        }
        self.operate(FileOperation::Remove { name: name.clone(), id: record.id }).await.map(drop)
    }

    /// Removes a file or link that was listed, or the one that has its name now.
    pub async fn remove_listed(&self, listing: &Listing) -> Result<(), FilesError> {
        if listing.kind.is_folder() {
            return Err(FilesError::is_folder(&listing.name));
        }
        let (name, id) = (listing.name.clone(), listing.id);
        match self.operate(FileOperation::Remove { name, id }).await {
            Err(error) if error.kind == FilesErrorKind::Changed => self.remove(&listing.name).await,
            removed => removed.map(drop),
        }
    }

    /// Creates an entry, which has a new id unless it is a folder.
    pub async fn create_record(
        &self,
        name: &FileName,
        record: FileRecord,
    ) -> Result<File, FilesError> {
        let operation = FileOperation::Create { name: name.clone(), record: record.clone() };
        let mut is_unsure = false;
        let answer = self.operate_once(operation, &mut is_unsure).await;
        self.created(name, record, answer, is_unsure).await
    }

    /// The entry that an operation has created. `is_unsure` says that an answer was lost.
    pub async fn created(
        &self,
        name: &FileName,
        record: FileRecord,
        answer: Result<FileAnswer, FilesError>,
        is_unsure: bool,
    ) -> Result<File, FilesError> {
        match answer {
            Ok(FileAnswer::Done { version }) => Ok(File { name: name.clone(), record, version }),
            Ok(_) => Err(unexpected()),
            Err(error) if error.kind == FilesErrorKind::Exists && is_unsure => {
                match self.lookup(name).await {
                    // It was created, the answer was lost, and another client has written to it
                    // since.
                    Ok(present) if present.record.id == record.id => Ok(present),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Changes attributes of a file, folder or link. Concurrent changes of other attributes, of the
    /// content and of the replicas are kept.
    pub async fn set_attributes(
        &self,
        name: &FileName,
        change: &AttributeChange,
    ) -> Result<File, FilesError> {
        let change = |record: &FileRecord, _| {
            let attributes = record.attributes.with(change, now_ns());
            Ok(Some(FileRecord { attributes, ..record.clone() }))
        };
        self.change_attributes(name, change).await
    }

    /// Changes a named attribute of a file, folder or link. Concurrent changes of other attributes,
    /// of the content and of the replicas are kept.
    pub async fn change_named(
        &self,
        name: &FileName,
        attribute: &str,
        change: &NamedChange,
    ) -> Result<File, FilesError> {
        let change = |record: &FileRecord, is_unsure| match record.named.with(attribute, change) {
            // An earlier try was done, and its answer was lost.
            Err(_) if is_unsure && change.is_done(&record.named, attribute) => Ok(None),
            Err(error) => Err(FilesError::attribute(name, &error)),
            Ok(named) => {
                let attributes = Attributes { changed_ns: now_ns(), ..record.attributes };
                Ok(Some(FileRecord { attributes, named, ..record.clone() }))
            }
        };
        self.change_attributes(name, change).await
    }

    /// Changes attributes of an entry. `changed` returns the record that is wanted instead of the
    /// present one, or `None` if that is as wanted; it is told whether an answer was lost, so that
    /// the change may have been done.
    async fn change_attributes(
        &self,
        name: &FileName,
        changed: impl Fn(&FileRecord, bool) -> Result<Option<FileRecord>, FilesError>,
    ) -> Result<File, FilesError> {
        let (deadline, mut pause) = (self.routes.deadline(), Backoff::default());
        let mut is_unsure = false;
        loop {
            let present = self.lookup(name).await?;
            let Some(record) = changed(&present.record, is_unsure)? else { return Ok(present) };
            let operation = FileOperation::SetAttributes {
                name: name.clone(),
                version: present.version,
                attributes: record.attributes,
                named: (record.named != present.record.named).then(|| record.named.clone()),
            };
            match self.operate_once(operation, &mut is_unsure).await {
                Ok(FileAnswer::Done { version }) => {
                    return Ok(File { name: name.clone(), record, version });
                }
                Ok(_) => return Err(unexpected()),
                Err(error)
                    if error.kind == FilesErrorKind::Changed && Instant::now() < deadline => {}
                Err(error) => return Err(error),
            }
            pause.wait().await;
        }
    }

    /// Renames one entry.
    pub async fn move_entry(
        &self,
        mut file: File,
        to: &FileName,
        over: Replaceable,
    ) -> Result<(), FilesError> {
        let from = file.name.clone();
        loop {
            let (version, id) = (file.version, file.record.id);
            let rename =
                FileOperation::Rename { from: from.clone(), version, id, to: to.clone(), over };
            let changed = match self.operate(rename).await {
                Err(error) if error.kind == FilesErrorKind::Changed => error,
                Err(error) if error.kind == FilesErrorKind::Exists => {
                    return Err(not_replaced(to, over, error));
                }
                done => return done.map(drop),
            };
            let now = self.lookup(&from).await?;
            // A write or a repair of the same file has changed its record.
            if now.version == version || now.record.id != id {
                return Err(changed);
            }
            file = now;
        }
    }

    /// Whether the key of this client permits it to write files. What a token of a job permits is
    /// not known here.
    pub fn may_write(&self) -> bool {
        let calls = &self.routes.calls;
        !matches!(calls.holder(), Principal::Key(_, KeyRole::Read))
            && calls.behalf().is_none_or(Behalf::may_write)
    }

    /// Fails if the token or key of this client does not permit it to write a file, so that a
    /// program learns that when it opens the file and not when it closes it. Keys that may write
    /// every file need no question.
    pub async fn check_may_write(&self, name: &FileName) -> Result<(), FilesError> {
        let calls = &self.routes.calls;
        let may_all = matches!(calls.holder(), Principal::Key(_, role) if role != KeyRole::Read);
        if may_all && calls.behalf().is_none() {
            return Ok(());
        }
        let known = self.routes.known();
        let Some(leader) = known.members.get(&known.ring.leader(name)) else { return Ok(()) };
        match self
            .routes
            .calls
            .ask_once(leader.address, RequestBody::MayWrite { name: name.clone() })
            .await
        {
            Err(FilesError { kind: FilesErrorKind::NotAllowed, message }) => Err(FilesError::new(
                FilesErrorKind::NotAllowed,
                format!("{name} cannot be written: {message}"),
            )),
            // If the node does not answer, the write itself asks another one.
            _ => Ok(()),
        }
    }

    /// Reports missing or damaged replicas to the leader of a file. If the report is lost, an audit
    /// finds them.
    pub async fn tell_bad(&self, name: &FileName, objects: Vec<ObjectId>, node: NodeId) {
        let known = self.routes.known();
        if let Some(leader) = known.members.get(&known.ring.leader(name)) {
            let bad = RequestBody::Bad { name: name.clone(), objects, node };
            let _ = self.routes.calls.ask(leader.address, bad).await;
        }
    }

    /// Has the leader carry out an operation. Follows the leader when it changes.
    pub async fn operate(&self, op: FileOperation) -> Result<FileAnswer, FilesError> {
        self.operate_once(op, &mut false).await
    }

    /// The same. Sets `is_unsure` if an answer was lost: the operation may have been done, although
    /// the leader refused it later.
    pub async fn operate_once(
        &self,
        op: FileOperation,
        is_unsure: &mut bool,
    ) -> Result<FileAnswer, FilesError> {
        self.operate_if(op, NoCondition, is_unsure).await
    }

    /// The same, if the condition holds just before each try. While it cannot be found out, as
    /// nodes are `Unreachable`, there is no try.
    pub async fn operate_if(
        &self,
        op: FileOperation,
        mut condition: impl Condition,
        is_unsure: &mut bool,
    ) -> Result<FileAnswer, FilesError> {
        let name = name_of(&op).clone();
        let deadline = self.routes.deadline();
        let (mut pause, mut leader) = (Backoff::default(), None);
        let mut last = None;
        loop {
            let known = self.routes.known();
            let asked = leader.take().unwrap_or_else(|| known.ring.leader(&name));
            let mut was_asked = false;
            let reply = match (condition.holds().await, known.members.get(&asked)) {
                (Err(error), _) if error.kind == FilesErrorKind::Unreachable => Err(error),
                (Err(error), _) => return Err(error),
                (Ok(()), Some(member)) => {
                    was_asked = true;
                    self.ask_leader(member.address, &op).await
                }
                (Ok(()), None) => Err(FilesError::unreachable(format!(
                    "the leader of {name}, node {asked}, is not reachable"
                ))),
            };
            match reply {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(refusal)) => match refusal {
                    Refusal::NotFound => return Err(FilesError::not_found(absent(&op))),
                    Refusal::Exists { is_folder, .. } => {
                        return Err(FilesError::exists(&name, is_folder));
                    }
                    Refusal::Changed => return Err(FilesError::changed(absent(&op))),
                    Refusal::NotLeader { leader: other, view } if view == known.view.number => {
                        leader = Some(other)
                    }
                    Refusal::NotLeader { .. } | Refusal::OtherView { .. } => {
                        self.routes.refresh(deadline).await?
                    }
                    Refusal::NotYet | Refusal::Busy => {}
                    Refusal::Unknown => *is_unsure = true,
                    Refusal::HasMajority | Refusal::Missing(_) | Refusal::StillCounting => {
                        return Err(unexpected());
                    }
                },
                Err(error) if error.kind == FilesErrorKind::NotAllowed => return Err(error),
                Err(error) => {
                    *is_unsure |= was_asked;
                    last = Some(error);
                    self.routes.refresh(deadline).await?;
                }
            }
            if Instant::now() >= deadline {
                // A leader that refuses may not know yet that other nodes are missing.
                let _ = timeout(REASON_DEADLINE, self.routes.refresh(deadline)).await;
                let known = self.routes.known();
                return Err(match last {
                    Some(error) if known.missing().is_empty() => error,
                    _ => FilesError::unreachable(format!(
                        "{name} cannot be used now. {}",
                        sentence(&known.why_at_rest())
                    )),
                });
            }
            if leader.is_none() {
                pause.wait().await;
            }
        }
    }

    /// Asks a node for an operation. Operations on one name go together with others that are asked
    /// for meanwhile.
    async fn ask_leader(
        &self,
        address: SocketAddr,
        operation: &FileOperation,
    ) -> Result<Result<FileAnswer, Refusal>, FilesError> {
        // An operation on two names may take longer, and others must not wait for it.
        if !matches!(operation, FileOperation::Rename { .. }) {
            match self.operations.ask(address, operation.clone()).await {
                // Perhaps another operation of the group is not permitted.
                Err(error) if error.kind == FilesErrorKind::NotAllowed => {}
                answered => return answered,
            }
        }
        match self.routes.calls.ask_once(address, RequestBody::Operate(operation.clone())).await? {
            ResponseBody::Operated(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }
}

/// The name whose leader handles the operation.
fn name_of(op: &FileOperation) -> &FileName {
    match op {
        FileOperation::Create { name, .. }
        | FileOperation::Replace { name, .. }
        | FileOperation::SetAttributes { name, .. }
        | FileOperation::Remove { name, .. }
        | FileOperation::Stat { name } => name,
        FileOperation::Rename { to, .. } => to,
        FileOperation::List { .. } | FileOperation::Use { .. } | FileOperation::Recover { .. } => {
            unreachable!("they have no name")
        }
    }
}

/// The name that does not exist, if the operation fails with `NotFound`.
fn absent(op: &FileOperation) -> &FileName {
    match op {
        FileOperation::Rename { from, .. } => from,
        op => name_of(op),
    }
}

fn not_replaced(to: &FileName, over: Replaceable, error: FilesError) -> FilesError {
    match over {
        Replaceable::Nothing => error,
        Replaceable::File => FilesError::is_folder(to),
        Replaceable::Folder => FilesError::not_folder(to),
    }
}

/// The text with a capital first letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
