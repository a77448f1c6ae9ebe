//! The operations of a client on files: write, read from any offset, append, rename, remove, and query metadata
//! (elastic-blocks listing 1).
//!
//! A client finds the leader of a name itself, from the view that it knows. A node that is asked by mistake answers
//! with the current leader. Chunks are transferred directly between clients and nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_ring::{FileAnswer, FileOperation, Listing, RecordVersion, Refusal, Ring, View, majority};
use eyas_session::{Access, DataKeys};
use eyas_store::Limiter;
use eyas_transfer::{PeerLimits, Peers};
use eyas_types::access::{KeyRole, Principal};
use eyas_types::dfs::{FileKind, FileName, FileRecord, NodeId};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout, timeout_at};

use crate::calls::{ANSWER_DEADLINE, Calls};
use crate::error::{FilesError, FilesErrorKind};
use crate::folders::KnownFolders;
use crate::gather::GATHER_DEADLINE;
use crate::groups::{Groups, OutgoingSmallChunk, WantedSmallChunk};
use crate::near::{NearNode, NearStores};
use crate::places::{self, BlockPlace};
use crate::protocol::{DfsMembership, Member, RequestBody, ResponseBody, Usage};
use crate::quota::KnownQuotas;
use crate::write;

/// First and longest pause between two tries of an operation that is temporarily impossible.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MOST: Duration = Duration::from_millis(500);

/// When one node has answered, further answers are awaited for this time, since they may be more recent.
const OTHERS_DEADLINE: Duration = Duration::from_millis(50);

/// An operation that has failed waits for this time to say which nodes are missing.
const REASON_DEADLINE: Duration = Duration::from_secs(1);

/// A client of a cluster's files. Clones share its connections.
#[derive(Clone)]
pub struct DfsClient(pub(crate) Arc<SharedClient>);

pub(crate) struct SharedClient {
    pub calls: Arc<Calls>,
    pub operations: Groups<FileOperation>,
    pub small_chunks: Groups<OutgoingSmallChunk>,
    pub small_reads: Groups<WantedSmallChunk>,
    pub folders: KnownFolders,
    pub quotas: KnownQuotas,
    pub peers: Peers,
    /// Addresses to ask when none of the known nodes answers.
    pub seeds: Vec<SocketAddr>,
    pub known: Mutex<KnownNodes>,
    pub patience: Duration,
    /// Until this time, the client waits for nodes that are about to join.
    pub gathers_until: Instant,
    /// The node on this machine, if there is one. Its replicas are read first.
    pub near: Option<NearNode>,
    pub near_stores: NearStores,
    /// The address of this machine, as nodes see it.
    pub own_address: Option<IpAddr>,
    /// The runtime on which the client works in the background.
    pub runtime: Handle,
    /// Random number that distributes reads of different clients over equal replicas.
    pub turn: usize,
}

/// The client's knowledge of the file system.
#[derive(Clone)]
pub(crate) struct KnownNodes {
    pub view: Arc<View>,
    /// Whether all partitions have a quorum in the view.
    pub is_settled: bool,
    pub ring: Arc<Ring>,
    /// Members that are alive, as far as a node knows.
    pub members: Arc<BTreeMap<NodeId, Member>>,
    /// Some of them that did not answer when they were asked for the view. Nodes take longer to notice it.
    pub unreachable: Arc<BTreeSet<NodeId>>,
}

impl KnownNodes {
    /// Number of members that are alive, which can store chunks.
    pub fn size(&self) -> usize {
        self.view.members.iter().filter(|node| self.members.contains_key(node)).count()
    }

    /// Members of the view that are not alive, or did not answer.
    pub fn missing(&self) -> Vec<NodeId> {
        let is_missing = |node: &&NodeId| !self.members.contains_key(node) || self.unreachable.contains(node);
        self.view.members.iter().filter(is_missing).copied().collect()
    }

    /// The reason why files cannot be used, and what to do.
    pub fn why_at_rest(&self) -> String {
        let missing = self.missing();
        let (count, all) = (missing.len(), self.view.members.len());
        let names = missing.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(", ");
        let are = if count == 1 { "is" } else { "are" };
        match count {
            0 => "the nodes of the file system have not agreed on its members yet; try again in a moment".into(),
            _ if all - count < majority(all) => format!(
                "{count} of the {all} nodes of the file system {are} missing: {names}. It needs {} nodes: start the \
                 executors of the missing nodes again with their folders; if they never come back, see \
                 `eyas dfs recover`",
                majority(all)
            ),
            _ => format!(
                "{count} of the {all} nodes of the file system {are} missing: {names}. The others have not agreed yet \
                 to continue without them; try again in a moment, or start their executors again with their folders"
            ),
        }
    }
}

/// A file at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Name of the file.
    pub name: FileName,
    /// The metadata and chunks of the file.
    pub record: FileRecord,
    /// The version, by which changes are detected.
    pub(crate) version: RecordVersion,
}

impl DfsClient {
    /// Whether the key of this client permits it to write files. What a token of a job permits is not known here.
    pub fn may_write(&self) -> bool {
        !matches!(self.0.calls.holder(), Principal::Key(_, KeyRole::Read))
    }

    /// Fails if the token or key of this client does not permit it to write a file, so that a program learns that when
    /// it opens the file and not when it closes it. Keys that may write every file need no question.
    ///
    /// # Errors
    /// `NotAllowed`.
    pub async fn check_may_write(&self, name: &FileName) -> Result<(), FilesError> {
        if matches!(self.0.calls.holder(), Principal::Key(_, role) if role != KeyRole::Read) {
            return Ok(());
        }
        let known = self.known();
        let Some(leader) = known.members.get(&known.ring.leader(name)) else { return Ok(()) };
        match self.0.calls.ask_once(leader.address, RequestBody::MayWrite { name: name.clone() }).await {
            Err(FilesError { kind: FilesErrorKind::NotAllowed, message }) => {
                Err(FilesError::new(FilesErrorKind::NotAllowed, format!("{name} cannot be written: {message}")))
            }
            // If the node does not answer, the write itself asks another one.
            _ => Ok(()),
        }
    }

    /// Connects to the file system of the cluster of `access`, some of whose nodes are at `seeds`. Replicas on the
    /// node `near` are preferred for reads, and are read from the files of its store if possible. An operation that is
    /// temporarily impossible is retried for `patience`.
    ///
    /// # Errors
    /// `Unreachable` if none of the nodes answers as a member of a file system; `Local`.
    pub async fn connect(
        access: Access,
        seeds: Vec<SocketAddr>,
        near: Option<NearNode>,
        patience: Duration,
    ) -> Result<Self, FilesError> {
        let peers = Peers::new(DataKeys::of(&access), PeerLimits::default(), Limiter::unlimited());
        let calls = Arc::new(Calls::new(access));
        let deadline = Instant::now() + patience;
        let known = Mutex::new(discover(&calls, &seeds.iter().copied().collect(), deadline).await?);
        let gathers_until = Instant::now() + GATHER_DEADLINE;
        let (own_address, turn) = (own_address(&seeds), write::random()? as usize);
        let (operations, small_chunks) = (Groups::new(calls.clone()), Groups::new(calls.clone()));
        let small_reads = Groups::new(calls.clone());
        Ok(DfsClient(Arc::new(SharedClient {
            calls,
            operations,
            small_chunks,
            small_reads,
            folders: KnownFolders::default(),
            quotas: KnownQuotas::default(),
            peers,
            seeds,
            known,
            patience,
            gathers_until,
            near,
            near_stores: NearStores::default(),
            own_address,
            runtime: Handle::current(),
            turn,
        })))
    }

    /// The node on this machine, if there is one.
    pub fn near(&self) -> Option<NodeId> {
        self.0.near.as_ref().map(|near| near.node)
    }

    /// The current version of a file.
    ///
    /// # Errors
    /// `NotFound`; `IsFolder`; `Invalid` for a symbolic link, which only a mount follows; `Unreachable`.
    pub async fn stat(&self, name: &FileName) -> Result<File, FilesError> {
        let file = self.lookup(name).await?;
        match &file.record.kind {
            FileKind::File => Ok(file),
            FileKind::Folder => Err(FilesError::is_folder(name)),
            FileKind::SymbolicLink(target) => Err(FilesError::invalid(format!(
                "{name} is a symbolic link to `{target}`, which only a mount follows: give the name of the file"
            ))),
        }
    }

    /// The current version of a file, folder or symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `Unreachable`.
    pub async fn lookup(&self, name: &FileName) -> Result<File, FilesError> {
        match self.operate(FileOperation::Stat { name: name.clone() }).await? {
            FileAnswer::Found { version, record } => Ok(File { name: name.clone(), record, version }),
            _ => Err(unexpected()),
        }
    }

    /// Whether there is a file, folder or link of this name.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn exists(&self, name: &FileName) -> Result<bool, FilesError> {
        match self.lookup(name).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind == FilesErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Where the chunks of a file are, in order. If a node that has one is not known to be alive, the nodes are asked
    /// once which are; if none answers, the places are those that this client knows.
    pub async fn places(&self, file: &File) -> Vec<BlockPlace> {
        let members = self.known().members;
        let mut holders = file.record.chunks.iter().flat_map(|chunk| &chunk.replicas);
        if !holders.all(|node| members.contains_key(node))
            && let Err(error) = self.refresh(Instant::now()).await
        {
            tracing::debug!("no node says which nodes are alive: {error}");
        }
        places::places_of(&file.record, &self.known().members, self.near())
    }

    /// Removes a file or a symbolic link.
    ///
    /// # Errors
    /// `NotFound`, `IsFolder`, `Unreachable`.
    pub async fn remove(&self, name: &FileName) -> Result<(), FilesError> {
        let record = self.lookup(name).await?.record;
        if record.kind.is_folder() {
            return Err(FilesError::is_folder(name));
        }
        self.operate(FileOperation::Remove { name: name.clone(), id: record.id }).await.map(drop)
    }

    /// Removes a file or link that was listed, or the one that has its name now.
    ///
    /// # Errors
    /// `NotFound`, `IsFolder`, `Unreachable`.
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

    /// The current view and the nodes that are alive.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn membership(&self) -> Result<DfsMembership, FilesError> {
        self.refresh(self.deadline()).await?;
        let KnownNodes { view, is_settled, members, .. } = self.known();
        let alive = members.values().copied().collect();
        Ok(DfsMembership { system: view.system, view: Some(Arc::unwrap_or_clone(view)), is_settled, alive })
    }

    /// The chunks and the free space of a node.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn usage(&self, member: &Member) -> Result<Usage, FilesError> {
        match self.0.calls.ask_once(member.address, RequestBody::Usage).await? {
            ResponseBody::Usage(usage) => Ok(usage),
            _ => Err(unexpected()),
        }
    }

    /// Has the leader carry out an operation. Follows the leader when it changes.
    pub(crate) async fn operate(&self, op: FileOperation) -> Result<FileAnswer, FilesError> {
        self.operate_once(op, &mut false).await
    }

    /// The same. Sets `is_unsure` if an answer was lost: the operation may have been done, although the leader refused
    /// it later.
    pub(crate) async fn operate_once(&self, op: FileOperation, is_unsure: &mut bool) -> Result<FileAnswer, FilesError> {
        let name = name_of(&op).clone();
        let deadline = self.deadline();
        let (mut pause, mut leader) = (PAUSE, None);
        let mut last = None;
        loop {
            let known = self.known();
            let asked = leader.take().unwrap_or_else(|| known.ring.leader(&name));
            let reply = match known.members.get(&asked) {
                Some(member) => self.ask_leader(member.address, &op).await,
                None => Err(FilesError::unreachable(format!("the leader of {name}, node {asked}, is not reachable"))),
            };
            match reply {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(refusal)) => match refusal {
                    Refusal::NotFound => return Err(FilesError::not_found(absent(&op))),
                    Refusal::Exists { is_folder, .. } => return Err(FilesError::exists(&name, is_folder)),
                    Refusal::Changed => return Err(FilesError::changed(absent(&op))),
                    Refusal::NotLeader { leader: other, view } if view == known.view.number => leader = Some(other),
                    Refusal::NotLeader { .. } | Refusal::OtherView { .. } => self.refresh(deadline).await?,
                    Refusal::NotYet | Refusal::Busy => {}
                    Refusal::Unknown => *is_unsure = true,
                    Refusal::HasMajority | Refusal::Missing(_) | Refusal::StillCounting => return Err(unexpected()),
                },
                Err(error) if error.kind == FilesErrorKind::NotAllowed => return Err(error),
                Err(error) => {
                    // A node that is not known was not asked.
                    *is_unsure |= known.members.contains_key(&asked);
                    last = Some(error);
                    self.refresh(deadline).await?;
                }
            }
            if Instant::now() >= deadline {
                // A leader that refuses may not know yet that other nodes are missing.
                let _ = timeout(REASON_DEADLINE, self.refresh(deadline)).await;
                let known = self.known();
                return Err(match last {
                    Some(error) if known.missing().is_empty() => error,
                    _ => FilesError::unreachable(format!(
                        "{name} cannot be used now. {}",
                        sentence(&known.why_at_rest())
                    )),
                });
            }
            if leader.is_none() {
                self.pause(&mut pause).await;
            }
        }
    }

    /// Asks a node for an operation. Operations on one name go together with others that are asked for meanwhile.
    async fn ask_leader(
        &self,
        address: SocketAddr,
        operation: &FileOperation,
    ) -> Result<Result<FileAnswer, Refusal>, FilesError> {
        // An operation on two names may take longer, and others must not wait for it.
        if !matches!(operation, FileOperation::Rename { .. }) {
            match self.0.operations.ask(address, operation.clone()).await {
                // Perhaps another operation of the group is not permitted.
                Err(error) if error.kind == FilesErrorKind::NotAllowed => {}
                answered => return answered,
            }
        }
        match self.0.calls.ask_once(address, RequestBody::Operate(operation.clone())).await? {
            ResponseBody::Operated(answer) => Ok(answer),
            _ => Err(unexpected()),
        }
    }

    /// Asks all known nodes for the current view.
    pub(crate) async fn refresh(&self, deadline: Instant) -> Result<(), FilesError> {
        let known = self.known();
        let with_seeds = |known: &KnownNodes| -> BTreeSet<SocketAddr> {
            known.members.values().map(|member| member.address).chain(self.0.seeds.iter().copied()).collect()
        };
        let fresh = discover(&self.0.calls, &with_seeds(&known), deadline).await?;
        let known_addresses = with_seeds(&fresh);
        self.0.calls.keep(&known_addresses);
        self.0.operations.keep(&known_addresses);
        self.0.small_chunks.keep(&known_addresses);
        self.0.small_reads.keep(&known_addresses);
        self.0.near_stores.forget_folders();
        *self.lock() = fresh;
        Ok(())
    }

    pub(crate) async fn pause(&self, pause: &mut Duration) {
        sleep(*pause).await;
        *pause = (*pause * 2).min(PAUSE_MOST);
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.0.patience
    }

    pub(crate) fn known(&self) -> KnownNodes {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, KnownNodes> {
        // The value is only ever replaced as a whole.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks these nodes for the current view until one of them is a member of a file system. Returns the latest view.
async fn discover(
    calls: &Arc<Calls>,
    addresses: &BTreeSet<SocketAddr>,
    deadline: Instant,
) -> Result<KnownNodes, FilesError> {
    let mut pause = PAUSE;
    loop {
        let mut last = FilesError::unreachable("no node of the file system is known");
        let mut newest: Option<(View, bool, Vec<Member>)> = None;
        let mut failed = BTreeSet::new();
        let mut asked = JoinSet::new();
        for address in addresses.iter().copied() {
            let calls = calls.clone();
            asked.spawn(async move { (address, calls.ask_once(address, RequestBody::Membership).await) });
        }
        // When one node has answered, slow nodes are not waited for.
        let mut until = Instant::now() + ANSWER_DEADLINE;
        while let Ok(Some(answered)) = timeout_at(until.into(), asked.join_next()).await {
            match answered.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())) {
                (_, Ok(ResponseBody::Membership(_, DfsMembership { view: Some(view), is_settled, alive, .. }))) => {
                    let is_news = |(known, was_settled, _): &(View, bool, _)| {
                        (known.number, *was_settled) < (view.number, is_settled)
                    };
                    if newest.as_ref().is_none_or(is_news) {
                        newest = Some((view, is_settled, alive));
                    }
                    until = until.min(Instant::now() + OTHERS_DEADLINE);
                }
                (address, Ok(ResponseBody::Membership(_, DfsMembership { system, .. }))) => {
                    last = FilesError::unreachable(format!(
                        "the node at {address} has not joined the file system yet, because no member of it answers: \
                         start the executors that kept files again in their folders; node {} founded the file system. \
                         If they never come back, see docs/guides/files.md",
                        system.founder()
                    ));
                }
                (_, Ok(_)) => last = unexpected(),
                (address, Err(error)) => {
                    failed.insert(address);
                    last = error;
                }
            }
        }
        if let Some((view, is_settled, alive)) = newest {
            let ring = Arc::new(Ring::new(&view));
            let has_failed = |member: &&Member| failed.contains(&member.address);
            let unreachable = Arc::new(alive.iter().filter(has_failed).map(|member| member.node).collect());
            let members = Arc::new(alive.into_iter().map(|member| (member.node, member)).collect());
            return Ok(KnownNodes { view: Arc::new(view), is_settled, ring, members, unreachable });
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MOST);
    }
}

/// The address of this machine on the route to one of these nodes.
fn own_address(nodes: &[SocketAddr]) -> Option<IpAddr> {
    nodes.iter().find_map(|node| {
        let any: IpAddr = if node.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        // Nothing is sent.
        socket.connect(node).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
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

/// The text with a capital first letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn unexpected() -> FilesError {
    FilesError::unreachable(
        "a node of the file system sent an unexpected answer: use the same version of eyas on all nodes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_knows_its_own_address() {
        let here = "127.0.0.1:9".parse().unwrap();
        assert_eq!(own_address(&[here]), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(own_address(&[]), None);
    }
}
