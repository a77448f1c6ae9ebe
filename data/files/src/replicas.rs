//! Replicas: each chunk is sent to its nodes in a chain. If a node cannot store it, another one is
//! tried.

mod durable;
pub(crate) mod unclaimed;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_ring::replica_targets;
use eyas_store::is_zeros;
use eyas_transfer::Peers;
use eyas_types::dfs::{Chunk, NodeId};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::backoff::Backoff;
use crate::calls::{ANSWER_DEADLINE, Replies};
use crate::chunk_sizes::SMALL_CHUNK_BYTES;
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::groups::{Groups, OutgoingSmallChunk};
use crate::near::NearStores;
use crate::outgoing::{OutgoingChunk, STORE_DEADLINE, silent};
use crate::protocol::{Member, RequestBody, ResponseBody, SmallChunk, StoreFailure};
use crate::routes::{KnownNodes, Routes};

/// If all nodes are full, and some of them are about to delete chunks that clients have left, a
/// chunk is offered to them again for this time. They delete such chunks some 30 s after a client
/// has gone.
const ROOM_PATIENCE: Duration = Duration::from_secs(60);

/// Stores chunks on the nodes that should have them.
pub(crate) struct Replicas {
    pub routes: Arc<Routes>,
    near: Arc<NearStores>,
    peers: Peers,
    /// Small chunks that are stored at the same time go together.
    small_chunks: Groups<OutgoingSmallChunk>,
    /// Chunks that no file gets are deleted on it.
    runtime: Handle,
}

impl Replicas {
    pub fn new(routes: Arc<Routes>, near: Arc<NearStores>, peers: Peers, runtime: Handle) -> Self {
        let small_chunks = Groups::new(routes.calls.clone());
        Replicas { routes, near, peers, small_chunks, runtime }
    }

    /// Stores a chunk on as many nodes as it should have replicas. If a node cannot store it,
    /// another one is tried. A small chunk is on their disks then, if it is to be durable. Zeros
    /// become a hole, which no node stores.
    pub async fn store(&self, chunk: OutgoingChunk, replication: u8) -> Result<Chunk, FilesError> {
        if is_zeros(&chunk.content) {
            return Ok(Chunk::hole(chunk.size_bytes, chunk.checksum));
        }
        self.replicate(chunk, Vec::new(), replication).await
    }

    /// Stores a chunk on further nodes, until it has as many replicas as it should have. Without
    /// content, the nodes in `replicas` have it.
    pub async fn replicate(
        &self,
        chunk: OutgoingChunk,
        mut replicas: Vec<Member>,
        replication: u8,
    ) -> Result<Chunk, FilesError> {
        let OutgoingChunk { object, size_bytes, checksum, .. } = chunk;
        let mut failures = FailedNodes::default();
        let room_deadline = Instant::now() + ROOM_PATIENCE;
        let (deadline, mut pause) = (self.routes.deadline(), Backoff::default());
        let mut tries = 0;
        loop {
            let known = self.routes.known();
            let may_take = |node: NodeId| {
                let member = known.members.get(&node);
                let has_room = member.is_some_and(|member| member.free_bytes >= size_bytes);
                has_room && !failures.include(node)
            };
            let wanted = replica_targets(&known.ring, object, replication, None, may_take);
            let has = |node: &NodeId| replicas.iter().any(|replica| replica.node == *node);
            let further: Vec<_> = wanted
                .iter()
                .filter(|node| !has(node))
                .filter_map(|node| known.members.get(node))
                .collect();
            let lacking = usize::from(replication).min(known.size()).saturating_sub(replicas.len());
            let further = &further[..further.len().min(lacking)];
            // If nodes are down or full, fewer replicas are enough for now, but at least two: the
            // leader makes the others when it can.
            let is_enough = replicas.len() >= enough_replicas(replication, known.size());
            if further.is_empty() {
                if is_enough {
                    break;
                }
                let may_get_room = !failures.full_now.is_empty() && Instant::now() < room_deadline;
                if !may_get_room && (failures.failed.is_empty() || Instant::now() >= deadline) {
                    return Err(failures.last.unwrap_or_else(|| no_room(size_bytes)));
                }
                failures.failed.clear();
                failures.full_now.clear();
                pause.wait().await;
            }
            let stored = match (1..=SMALL_CHUNK_BYTES).contains(&chunk.content.len()) {
                true => self.send_small(&chunk, further).await,
                false => {
                    let source = source_of_try(tries, &replicas, &known);
                    tries += 1;
                    self.chain(&chunk, source, further).await
                }
            };
            for (member, stored) in stored {
                match stored {
                    Ok(()) => replicas.push(member),
                    Err(error) => failures.add(member.node, error)?,
                }
            }
            if !failures.failed.is_empty() {
                // Other nodes will soon know that a node has died.
                self.routes.refresh(deadline).await?;
            }
        }
        Ok(Chunk {
            object,
            size_bytes,
            checksum,
            replicas: replicas.iter().map(|replica| replica.node).collect(),
        })
    }

    /// Stores a small chunk on these nodes, with other small chunks that are on their way.
    async fn send_small(
        &self,
        chunk: &OutgoingChunk,
        to: &[&Member],
    ) -> Vec<(Member, Result<(), FilesError>)> {
        let OutgoingChunk { object, checksum, is_durable, .. } = *chunk;
        let send = |member: &&Member| {
            let chunk = SmallChunk { object, checksum, content: chunk.content.to_vec() };
            (
                **member,
                self.small_chunks.ask(member.address, OutgoingSmallChunk { chunk, is_durable }),
            )
        };
        let sent: Vec<_> = to.iter().map(send).collect();
        let mut ended = Vec::with_capacity(sent.len());
        for (member, answer) in sent {
            let stored = answer
                .await
                .and_then(|answer| answer.map_err(|failure| not_stored(&member, failure)));
            ended.push((member, stored));
        }
        ended
    }

    /// Stores a chunk on these nodes, in a chain: the first node gets it from a node that has it,
    /// or from this client; each further node gets it from the one before it while it arrives. A
    /// node on the machine of this client is the first one, and takes the content from a file.
    /// Nodes without space are skipped. Returns the nodes that have the chunk now, and the nodes
    /// that have failed.
    pub async fn chain(
        &self,
        chunk: &OutgoingChunk,
        from: Option<&Member>,
        to: &[&Member],
    ) -> Vec<(Member, Result<(), FilesError>)> {
        let mut source = from.map(|member| member.transfer);
        let (mut links, mut ended) = (Vec::new(), Vec::new());
        let mut to = to.to_vec();
        if source.is_none()
            && !chunk.content.is_empty()
            && let Some((place, store)) = self.near.writable_near(&to).await
        {
            let near = to[place];
            if let Some(stored) = self.near.hand_over(&self.routes.calls, near, store, chunk).await
            {
                to.remove(place);
                if stored.is_ok() {
                    source = Some(near.transfer);
                }
                ended.push((*near, stored));
            }
        }
        for member in to.into_iter().copied() {
            match self.begin(&member, chunk, source).await {
                Ok(begun) => {
                    let (peers, chunk) = (self.peers.clone(), chunk.clone());
                    let brings = source.is_none();
                    links.push((
                        member,
                        tokio::spawn(async move {
                            store_on(&peers, &member, chunk, begun, brings).await
                        }),
                    ));
                    source = Some(member.transfer);
                }
                Err(error) => ended.push((member, Err(error))),
            }
        }
        let mut is_broken = false;
        for (member, link) in links {
            let stored = link.await.unwrap_or_else(eyas_panics::resume);
            // Failures after the first one in the chain may be its consequences, and are not
            // counted.
            if stored.is_ok() || !is_broken {
                is_broken |= stored.is_err();
                ended.push((member, stored));
            }
        }
        ended
    }

    /// Asks a node to store a chunk; `None` if the node has it already.
    async fn begin(
        &self,
        member: &Member,
        chunk: &OutgoingChunk,
        from: Option<SocketAddr>,
    ) -> Result<Option<Replies>, FilesError> {
        let OutgoingChunk { object, size_bytes, checksum, is_durable, .. } = *chunk;
        let request = RequestBody::Store { object, size_bytes, checksum, from, is_durable };
        let mut replies = self.routes.calls.ask(member.address, request).await?;
        let ready =
            timeout(ANSWER_DEADLINE, replies.next()).await.unwrap_or_else(|_| Err(silent(member)));
        match ready? {
            ResponseBody::Ready => Ok(Some(replies)),
            ResponseBody::Stored { failure: None } => Ok(None),
            // A node that cannot begin is passed over as one without space.
            ResponseBody::Stored { failure: Some(StoreFailure::Failed(why)) } => {
                Err(not_stored(member, StoreFailure::NoSpace(why)))
            }
            ResponseBody::Stored { failure: Some(failure) } => Err(not_stored(member, failure)),
            _ => Err(unexpected()),
        }
    }
}

/// The replica from which others get the chunk. If one fails, the next try has another one.
fn source_of_try<'a>(
    tries: usize,
    replicas: &'a [Member],
    known: &KnownNodes,
) -> Option<&'a Member> {
    let is_alive = |member: &&Member| known.members.contains_key(&member.node);
    let sources: Vec<_> = replicas.iter().filter(is_alive).collect();
    sources.get(tries % sources.len().max(1)).copied().or(replicas.first())
}

/// Waits until a node has stored a chunk. The chunk is pushed by this client (`brings`) or fetched
/// from another node.
async fn store_on(
    peers: &Peers,
    member: &Member,
    chunk: OutgoingChunk,
    begun: Option<Replies>,
    brings: bool,
) -> Result<(), FilesError> {
    let Some(mut replies) = begun else { return Ok(()) };
    if brings {
        let pushed = peers.push(member.transfer, chunk.object, chunk.content).await;
        pushed.map_err(|error| FilesError::unreachable(error.message))?;
    }
    let stored =
        timeout(STORE_DEADLINE, replies.next()).await.unwrap_or_else(|_| Err(silent(member)));
    match stored? {
        ResponseBody::Stored { failure: None } => Ok(()),
        ResponseBody::Stored {
            failure:
                Some(
                    StoreFailure::NoSpace(why)
                    | StoreFailure::NoSpaceNow(why)
                    | StoreFailure::Failed(why),
                ),
        } => Err(not_stored(member, StoreFailure::Failed(why))),
        _ => Err(unexpected()),
    }
}

/// The number of replicas with which a chunk counts as stored. If nodes are down or full, this is
/// fewer than it should have, but at least two.
pub(crate) fn enough_replicas(replication: u8, nodes: usize) -> usize {
    usize::from(replication).min(2).min(nodes).max(1)
}

/// Nodes that have not stored a chunk.
#[derive(Default)]
struct FailedNodes {
    full: BTreeSet<NodeId>,
    /// Nodes that are full until they have deleted chunks that clients have left.
    full_now: BTreeSet<NodeId>,
    failed: BTreeSet<NodeId>,
    /// The last failure.
    last: Option<FilesError>,
}

impl FailedNodes {
    fn include(&self, node: NodeId) -> bool {
        [&self.full, &self.full_now, &self.failed].iter().any(|nodes| nodes.contains(&node))
    }

    /// Adds a node. Returns an error if no other node will store the chunk.
    fn add(&mut self, node: NodeId, error: FilesError) -> Result<(), FilesError> {
        tracing::info!(%node, "a node did not store a chunk: {error}");
        match error.kind {
            FilesErrorKind::NotAllowed => return Err(error),
            FilesErrorKind::Full => self.full.insert(node),
            FilesErrorKind::FullNow => self.full_now.insert(node),
            _ => self.failed.insert(node),
        };
        self.last = Some(error);
        Ok(())
    }
}

fn no_room(bytes: u64) -> FilesError {
    FilesError::new(FilesErrorKind::Full, format!("no node has space for a chunk of {bytes} bytes"))
}

pub(crate) fn not_stored(member: &Member, failure: StoreFailure) -> FilesError {
    let (kind, why) = match failure {
        StoreFailure::NoSpace(why) => (FilesErrorKind::Full, why),
        StoreFailure::NoSpaceNow(why) => (FilesErrorKind::FullNow, why),
        StoreFailure::Failed(why) => (FilesErrorKind::Unreachable, why),
    };
    FilesError::new(kind, format!("node {} cannot store a chunk: {why}", member.node))
}
