//! The operations of a client on files (elastic-blocks listing 1).
//!
//! A client has one owner for each part of its work, with the state and the other owners that it
//! needs. What the client itself does is to pass each call on to its owner.

mod content;
mod entries;

use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eyas_blocks::{TaskAnswer, TaskClaim};
use eyas_session::{Access, DataKeys};
use eyas_store::Limiter;
use eyas_transfer::{PeerLimits, Peers};
use eyas_types::access::{Behalf, FilesAccess};
use eyas_types::dfs::{FileName, NodeId};
use tokio::runtime::Handle;

use crate::calls::Calls;
use crate::changes::Changes;
use crate::copy::Copies;
use crate::error::FilesError;
use crate::file::File;
use crate::folders::Folders;
use crate::memory::ChunkMemory;
use crate::names::Names;
use crate::near::NearStores;
use crate::near::node::NearNode;
use crate::protocol::{DfsMembership, FilesOrigin, Member, NodeLoad, Usage};
use crate::publish::Publisher;
use crate::quota::Quotas;
use crate::read::ChunkReader;
use crate::rename::Renames;
use crate::replicas::Replicas;
use crate::routes::Routes;
use crate::routes::gather::JoinProgress;
use crate::routes::recover::Recovery;
use crate::runs::spec::{RunAddress, RunSpec, RunStatus};
use crate::runs::{RunAttendance, RunCalls};
use crate::upkeep::{Upkeep, VerifyReport};
use crate::uploads::Uploads;
use crate::write::Writes;

/// A client of a cluster's files. Clones share its connections.
#[derive(Clone)]
pub struct DfsClient(Arc<ClientOwners>);

/// The owners of the parts of a client's work.
struct ClientOwners {
    /// Which nodes there are, and the connections to them.
    routes: Arc<Routes>,
    /// What has a name, at its leader.
    names: Arc<Names>,
    /// Folders, links and lists.
    folders: Arc<Folders>,
    /// Content, from the replicas of its chunks.
    chunks: Arc<ChunkReader>,
    /// New content of files.
    writes: Arc<Writes>,
    /// Files of content that nodes have already.
    copies: Copies,
    renames: Renames,
    /// Replicas that are lost, damaged or on the wrong nodes.
    upkeep: Upkeep,
    /// Jobs over blocks.
    runs: Arc<RunCalls>,
    shared: SharedOwners,
}

/// The owners that a client shares with those that ask on behalf of users.
#[derive(Clone)]
struct SharedOwners {
    /// What may be added to folders.
    quotas: Arc<Quotas>,
    /// The stores of nodes on this machine.
    near: Arc<NearStores>,
    /// Transfers of chunks.
    peers: Peers,
    /// The runtime on which the client works in the background.
    runtime: Handle,
}

impl ClientOwners {
    fn new(routes: Arc<Routes>, shared: SharedOwners) -> Result<Self, FilesError> {
        let SharedOwners { quotas, near, peers, runtime } = shared.clone();
        let names = Arc::new(Names::new(routes.clone()));
        let folders = Arc::new(Folders::new(routes.clone(), names.clone(), quotas.clone()));
        let chunks = ChunkReader::new(routes.clone(), names.clone(), near.clone(), peers.clone())?;
        let chunks = Arc::new(chunks);
        let replicas = Arc::new(Replicas::new(routes.clone(), near, peers, runtime));
        let publisher = Arc::new(Publisher::new(names.clone(), folders.clone()));
        let uploads = Uploads::new(quotas, replicas.clone());
        let writes =
            Writes::new(names.clone(), folders.clone(), chunks.clone(), uploads, publisher.clone());
        let writes = Arc::new(writes);
        let copies = Copies::new(
            names.clone(),
            folders.clone(),
            chunks.clone(),
            replicas.clone(),
            publisher.clone(),
        );
        let renames = Renames::new(names.clone(), folders.clone(), writes.clone());
        let upkeep = Upkeep::new(names.clone(), replicas, publisher);
        let runs = Arc::new(RunCalls::new(routes.clone()));
        Ok(ClientOwners {
            routes,
            names,
            folders,
            chunks,
            writes,
            copies,
            renames,
            upkeep,
            runs,
            shared,
        })
    }
}

impl DfsClient {
    /// Connects to the file system of the cluster of `access`, some of whose nodes are at `seeds`.
    /// Replicas on the node `near` are preferred for reads, and are read from the files of its
    /// store if possible. An operation that is temporarily impossible is retried for `patience`.
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
        let routes = Arc::new(Routes::find(Arc::new(Calls::new(access)), seeds, patience).await?);
        let names = Arc::new(Names::new(routes.clone()));
        let quotas = Arc::new(Quotas::new(routes.clone(), names));
        let near = Arc::new(NearStores::new(routes.clone(), near));
        let shared = SharedOwners { quotas, near, peers, runtime: Handle::current() };
        Ok(DfsClient(Arc::new(ClientOwners::new(routes, shared)?)))
    }

    /// A client for the user `principal`, with the connections of this one. The nodes refuse what
    /// is not below the folder `prefix` (`/` is the root), and, with
    /// [`Read`](FilesAccess::Read), what would change anything; the folder itself can only be
    /// looked at. The audit log names the user beside the key. If this client is for a user
    /// itself, the new one can only be for the same user, with no more.
    ///
    /// # Errors
    /// `Invalid` if the name of the user or of the folder is not possible; `NotAllowed`, `Local`.
    pub fn on_behalf(
        &self,
        principal: &str,
        prefix: &str,
        access: FilesAccess,
    ) -> Result<Self, FilesError> {
        let behalf = Behalf::new(principal, prefix, access)
            .map_err(|error| FilesError::invalid(error.to_string()))?;
        let routes = Arc::new(self.0.routes.on_behalf(behalf)?);
        Ok(DfsClient(Arc::new(ClientOwners::new(routes, self.0.shared.clone())?)))
    }

    /// States the door through which this process uses the files, for the audit log.
    pub fn set_door(&self, door: FilesOrigin) {
        self.0.routes.calls.set_door(door);
    }

    /// The acknowledged changes of files below a folder since a time in microseconds since 1970, in
    /// order of time.
    ///
    /// # Errors
    /// `NotAllowed`, `Unreachable`.
    pub async fn changes(&self, folder: &str, since_us: u64) -> Result<Changes, FilesError> {
        Changes::since(self.0.routes.clone(), folder, since_us).await
    }

    /// The current view and the nodes that are alive.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn membership(&self) -> Result<DfsMembership, FilesError> {
        self.0.routes.membership().await
    }

    /// The chunks and the free space of a node.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn usage(&self, member: &Member) -> Result<Usage, FilesError> {
        self.0.routes.usage(member).await
    }

    /// The loads of all nodes, as one of the members knows them.
    ///
    /// # Errors
    /// `Unreachable`; `Invalid` if the member is of an earlier version of eyas.
    pub async fn loads(&self, member: &Member) -> Result<Vec<(NodeId, NodeLoad)>, FilesError> {
        self.0.routes.loads(member).await
    }

    /// Waits until `count` nodes have joined, or all known nodes if they are fewer, and until the
    /// file system can lose some of them. Waits no longer than `GATHER_DEADLINE`. Calls `see` once
    /// if there is anything to wait for. Returns the final state.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn gather(
        &self,
        count: usize,
        see: impl FnOnce(JoinProgress),
    ) -> Result<JoinProgress, FilesError> {
        self.0.routes.gather(count, see).await
    }

    /// Lets the file system continue without these nodes, which must be all that are missing. Data
    /// that only they had is lost.
    ///
    /// # Errors
    /// `Invalid` if no recovery is needed, or if one of the nodes is alive; `Unreachable`.
    pub async fn recover(&self, without: &BTreeSet<NodeId>) -> Result<Recovery, FilesError> {
        self.0.routes.recover(without).await
    }

    /// Opens an account for chunks that stay in memory, up to this many bytes on each node.
    ///
    /// # Errors
    /// `Local` if the system has no random numbers.
    pub async fn keep_in_memory(&self, limit_bytes: u64) -> Result<ChunkMemory, FilesError> {
        ChunkMemory::begin(self.0.routes.clone(), limit_bytes).await
    }

    /// Lets the node on this machine keep the chunks that this client opens, on the account with
    /// this number, which another client has opened. The first call counts.
    pub fn set_memory(&self, account: u128) {
        self.0.chunks.near.set_memory(account);
    }

    /// The node on this machine, if there is one.
    pub fn near(&self) -> Option<NodeId> {
        self.0.chunks.near.node()
    }

    /// Checks the replicas of a file, and has the nodes read them if `thoroughly` is set. If none
    /// of a chunk's nodes has it, all other nodes are asked. Missing and damaged replicas are
    /// reported to the leader.
    ///
    /// # Errors
    /// `Unreachable`.
    pub async fn verify(&self, file: &File, thoroughly: bool) -> Result<VerifyReport, FilesError> {
        self.0.upkeep.verify(file, thoroughly).await
    }

    /// Restores the lost chunks of a file from a `copy` of it. Returns their number.
    ///
    /// # Errors
    /// `Invalid` if the copy has other content; `Local` if it cannot be read; as
    /// [`write`](DfsClient::write).
    pub async fn restore(
        &self,
        name: &FileName,
        copy: impl Read + Seek,
    ) -> Result<usize, FilesError> {
        self.0.upkeep.restore(name, copy).await
    }

    /// Moves replicas of a file to the nodes where they now belong. Returns the number of replicas
    /// that were moved. Readers are not disturbed: the old replica is deleted only when the new one
    /// is stored.
    ///
    /// # Errors
    /// `Changed` if another client changes the file at the same time; `Unreachable`.
    pub async fn rebalance(&self, file: &File) -> Result<u64, FilesError> {
        self.0.upkeep.rebalance(file).await
    }

    /// Opens a run on the node that leads its first file. Returns its address.
    ///
    /// # Errors
    /// `Invalid` if it has no file, or too many chunks; `Unreachable`.
    pub async fn open_run(&self, spec: RunSpec) -> Result<RunAddress, FilesError> {
        self.0.runs.open_run(spec).await
    }

    /// The specification of a run.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn run_spec(&self, address: RunAddress) -> Result<RunSpec, FilesError> {
        self.0.runs.run_spec(address).await
    }

    /// The status of a run.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn run_status(&self, address: RunAddress) -> Result<RunStatus, FilesError> {
        self.0.runs.run_status(address).await
    }

    /// Ends a run. Its workers get no further answers.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn close_run(&self, address: RunAddress) -> Result<(), FilesError> {
        self.0.runs.close_run(address).await
    }

    /// Sends a message of an attempt of a task to the leader of its run, and returns the answer.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Invalid` if the leader is of an earlier version;
    /// `Unreachable`.
    pub async fn claim_task(
        &self,
        address: RunAddress,
        claim: TaskClaim,
    ) -> Result<TaskAnswer, FilesError> {
        self.0.runs.claim_task(address, claim).await
    }

    /// Registers a new worker of a run.
    ///
    /// # Errors
    /// `NotFound` if the run no longer exists; `Unreachable`.
    pub async fn attend_run(&self, address: RunAddress) -> Result<RunAttendance, FilesError> {
        self.0.runs.attend_run(address).await
    }

    /// What reads chunks, for readers that outlive a call.
    pub(crate) fn chunks(&self) -> &Arc<ChunkReader> {
        &self.0.chunks
    }

    /// The runtime on which the client works in the background.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.shared.runtime
    }
}
