//! The nodes of the file system as a client knows them: which of them lead and keep what, and how
//! to reach them.
//!
//! A node that is asked by mistake answers with the current leader, or with another view. Then, and
//! when a node does not answer, the client asks all nodes that it knows for the current view.

pub(crate) mod gather;
pub(crate) mod recover;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_ring::{Refusal, Ring, View, majority};
use eyas_types::access::Behalf;
use eyas_types::dfs::NodeId;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::backoff::Backoff;
use crate::calls::{ANSWER_DEADLINE, Calls};
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::protocol::{DfsMembership, Member, NodeLoad, RequestBody, ResponseBody, Usage};

/// Nodes may join within this time after the client has connected. A file that is written later has
/// fewer replicas at first if nodes are missing.
const GATHER_DEADLINE: Duration = Duration::from_secs(10);

/// When one node has answered, further answers are awaited for this time, since they may be more
/// recent.
const OTHERS_DEADLINE: Duration = Duration::from_millis(50);

/// The nodes of the file system, and the connections to them.
pub(crate) struct Routes {
    pub calls: Arc<Calls>,
    /// Addresses to ask when none of the known nodes answers.
    pub seeds: Vec<SocketAddr>,
    known: Arc<Mutex<KnownNodes>>,
    /// Number of times that the nodes were asked for the current view.
    refreshed: Arc<AtomicU64>,
    /// An operation that is temporarily impossible is tried again for this time.
    pub patience: Duration,
    /// Until this time, the client waits for nodes that are about to join.
    gathers_until: Instant,
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
    /// Some of them that did not answer when they were asked for the view. Nodes take longer to
    /// notice it.
    unreachable: Arc<BTreeSet<NodeId>>,
}

impl KnownNodes {
    /// Number of members that are alive, which can store chunks.
    pub fn size(&self) -> usize {
        self.view.members.iter().filter(|node| self.members.contains_key(node)).count()
    }

    /// Members of the view that are not alive, or did not answer.
    pub fn missing(&self) -> Vec<NodeId> {
        let is_missing =
            |node: &&NodeId| !self.members.contains_key(node) || self.unreachable.contains(node);
        self.view.members.iter().filter(is_missing).copied().collect()
    }

    /// The reason why files cannot be used, and what to do.
    pub fn why_at_rest(&self) -> String {
        let missing = self.missing();
        let (count, all) = (missing.len(), self.view.members.len());
        let names = missing.iter().map(|node| node.to_string()).collect::<Vec<_>>().join(", ");
        let are = if count == 1 { "is" } else { "are" };
        match count {
            0 => "the nodes of the file system have not agreed on its members yet; try again in a \
                  moment"
                .into(),
            _ if all - count < majority(all) => format!(
                "{count} of the {all} nodes of the file system {are} missing: {names}. It needs \
                 {} nodes: start the executors of the missing nodes again with their folders; if \
                 they never come back, see `eyas dfs recover`",
                majority(all)
            ),
            _ => format!(
                "{count} of the {all} nodes of the file system {are} missing: {names}. The others \
                 have not agreed yet to continue without them; try again in a moment, or start \
                 their executors again with their folders"
            ),
        }
    }

    /// The reason why a member could not answer until the deadline.
    fn why_refused(&self, node: NodeId, refusal: &Refusal) -> String {
        let why = match refusal {
            Refusal::NotYet => "its view is not settled, or a file is being renamed",
            Refusal::OtherView { .. } => "its view changes",
            Refusal::Busy => "it has too many requests",
            _ => return self.why_at_rest(),
        };
        match self.missing().is_empty() {
            true => format!(
                "node {node} of the file system cannot answer yet: {why}; try again in a moment"
            ),
            false => self.why_at_rest(),
        }
    }
}

impl Routes {
    /// Asks the nodes at these addresses for the current view. An operation that is temporarily
    /// impossible will be tried again for `patience`.
    pub async fn find(
        calls: Arc<Calls>,
        seeds: Vec<SocketAddr>,
        patience: Duration,
    ) -> Result<Self, FilesError> {
        let deadline = Instant::now() + patience;
        let known = discover(&calls, &seeds.iter().copied().collect(), deadline).await?;
        let (known, refreshed) = (Arc::new(Mutex::new(known)), Arc::default());
        let gathers_until = Instant::now() + GATHER_DEADLINE;
        Ok(Routes { calls, seeds, known, refreshed, patience, gathers_until })
    }

    /// The same nodes and connections, for requests on behalf of a user.
    pub fn on_behalf(&self, behalf: Behalf) -> Result<Self, FilesError> {
        Ok(Routes {
            calls: Arc::new(self.calls.on_behalf(behalf)?),
            seeds: self.seeds.clone(),
            known: self.known.clone(),
            refreshed: self.refreshed.clone(),
            patience: self.patience,
            gathers_until: self.gathers_until,
        })
    }

    pub fn known(&self) -> KnownNodes {
        self.lock().clone()
    }

    /// The time at which an operation that begins now is given up.
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Asks all known nodes for the current view.
    pub async fn refresh(&self, deadline: Instant) -> Result<(), FilesError> {
        let known = self.known();
        let with_seeds = |known: &KnownNodes| -> BTreeSet<SocketAddr> {
            known
                .members
                .values()
                .map(|member| member.address)
                .chain(self.seeds.iter().copied())
                .collect()
        };
        let fresh = discover(&self.calls, &with_seeds(&known), deadline).await?;
        self.calls.keep(&with_seeds(&fresh));
        *self.lock() = fresh;
        self.refreshed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Number of times that the nodes were asked for the current view. What was known of them
    /// before may be old.
    pub fn refreshed(&self) -> u64 {
        self.refreshed.load(Ordering::Acquire)
    }

    /// The current view and the nodes that are alive.
    pub async fn membership(&self) -> Result<DfsMembership, FilesError> {
        self.refresh(self.deadline()).await?;
        let KnownNodes { view, is_settled, members, .. } = self.known();
        let alive = members.values().copied().collect();
        Ok(DfsMembership {
            system: view.system,
            view: Some(Arc::unwrap_or_clone(view)),
            is_settled,
            alive,
        })
    }

    /// The chunks and the free space of a node.
    pub async fn usage(&self, member: &Member) -> Result<Usage, FilesError> {
        match self.calls.ask_once(member.address, RequestBody::Usage).await? {
            ResponseBody::Usage(usage) => Ok(usage),
            _ => Err(unexpected()),
        }
    }

    /// The loads of all nodes, as one of the members knows them.
    pub async fn loads(&self, member: &Member) -> Result<Vec<(NodeId, NodeLoad)>, FilesError> {
        match self.calls.ask_once(member.address, RequestBody::Loads).await? {
            ResponseBody::Loads(loads) => Ok(loads),
            _ => Err(unexpected()),
        }
    }

    /// Asks all members of the current view, and repeats this until all of them have answered in
    /// one view. `ask` is told the address of a member and the number of the view. Its result is a
    /// refusal if the member cannot answer now.
    pub async fn ask_all<T, F>(
        &self,
        ask: impl Fn(Arc<Calls>, SocketAddr, u64) -> F,
    ) -> Result<Vec<T>, FilesError>
    where
        T: Send + 'static,
        F: Future<Output = Result<Result<T, Refusal>, FilesError>> + Send + 'static,
    {
        let deadline = self.deadline();
        let mut pause = Backoff::default();
        loop {
            let known = self.known();
            match self.ask_members(&known, &ask).await {
                Ok(Ok(parts)) => return Ok(parts),
                Ok(Err(_)) if Instant::now() < deadline => {}
                Ok(Err((node, refusal))) => {
                    return Err(FilesError::unreachable(known.why_refused(node, &refusal)));
                }
                Err(error) if error.kind == FilesErrorKind::Unreachable => {
                    if Instant::now() >= deadline {
                        let is_missing = !known.missing().is_empty();
                        return Err(if is_missing {
                            FilesError::unreachable(known.why_at_rest())
                        } else {
                            error
                        });
                    }
                }
                Err(error) => return Err(error),
            }
            pause.wait().await;
            self.refresh(deadline).await?;
        }
    }

    /// The answers of all members of one view; or a member that cannot answer now, and why.
    async fn ask_members<T, F>(
        &self,
        known: &KnownNodes,
        ask: &impl Fn(Arc<Calls>, SocketAddr, u64) -> F,
    ) -> Result<Result<Vec<T>, (NodeId, Refusal)>, FilesError>
    where
        T: Send + 'static,
        F: Future<Output = Result<Result<T, Refusal>, FilesError>> + Send + 'static,
    {
        let (mut parts, mut asked) = (Vec::new(), JoinSet::new());
        for node in &known.view.members {
            let missing = || FilesError::unreachable(format!("node {node} is not reachable"));
            let member = known.members.get(node).ok_or_else(missing)?;
            let (node, asking) =
                (*node, ask(self.calls.clone(), member.address, known.view.number));
            asked.spawn(async move { (node, asking.await) });
        }
        while let Some(part) = asked.join_next().await {
            let (node, part) = part.unwrap_or_else(eyas_panics::resume);
            match part? {
                Ok(part) => parts.push(part),
                Err(refusal) => return Ok(Err((node, refusal))),
            }
        }
        Ok(Ok(parts))
    }

    fn lock(&self) -> MutexGuard<'_, KnownNodes> {
        // The value is only ever replaced as a whole.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks these nodes for the current view until one of them is a member of a file system. Returns
/// the latest view.
async fn discover(
    calls: &Arc<Calls>,
    addresses: &BTreeSet<SocketAddr>,
    deadline: Instant,
) -> Result<KnownNodes, FilesError> {
    let mut pause = Backoff::default();
    loop {
        let mut last = FilesError::unreachable("no node of the file system is known");
        let mut newest: Option<(View, bool, Vec<Member>)> = None;
        let mut failed = BTreeSet::new();
        let mut asked = JoinSet::new();
        for address in addresses.iter().copied() {
            let calls = calls.clone();
            asked.spawn(async move {
                (address, calls.ask_once(address, RequestBody::Membership).await)
            });
        }
        // When one node has answered, slow nodes are not waited for.
        let mut until = Instant::now() + ANSWER_DEADLINE;
        while let Ok(Some(answered)) = timeout_at(until.into(), asked.join_next()).await {
            match answered.unwrap_or_else(eyas_panics::resume) {
                (
                    _,
                    Ok(ResponseBody::Membership(
                        _,
                        DfsMembership { view: Some(view), is_settled, alive, .. },
                    )),
                ) => {
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
                        "the node at {address} has not joined the file system yet, because no \
                         member of it answers: start the executors that kept files again in their \
                         folders; node {} founded the file system. If they never come back, see \
                         docs/guides/files.md",
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
            let unreachable =
                Arc::new(alive.iter().filter(has_failed).map(|member| member.node).collect());
            let members = Arc::new(alive.into_iter().map(|member| (member.node, member)).collect());
            return Ok(KnownNodes { view: Arc::new(view), is_settled, ring, members, unreachable });
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        pause.wait().await;
    }
}
