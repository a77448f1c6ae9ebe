//! A node of the file system: takes part in gossip and in the ring, keeps records and chunks, and
//! serves clients.
//!
//! Decisions are made in the thread of [`RingThread`](crate::ring_thread::RingThread). Work that
//! waits for the network or the disk runs in tasks. A node that is dropped ends at once, as if its
//! process had died; other nodes notice.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use eyas_files::protocol::{ChunkSpec, NodeLoad};
use eyas_ring::{Event, FileChunks, RingMessage};
use eyas_session::{Access, BindAddress, DataKeys, Listener, SessionAcceptor, listen};
use eyas_store::ObjectStore;
use eyas_transfer::{PeerServer, Peers};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileSystemId, NodeId};
use eyas_wire::Role;
use eyas_wire::executor::FileSystemMembership;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};

use crate::audit;
use crate::change_log::ChangeLog;
use crate::change_log::DEFAULT_AUDIT_BYTES;
use crate::chunks::NodeChunks;
use crate::database::{Database, DatabaseError};
use crate::gossip::{Gossip, LiveNodes, Neighbour};
use crate::links::NodeLinks;
use crate::links::ToPeer;
use crate::load::{LoadMeter, LoadOptions};
use crate::memory;
use crate::node_shared::{Identity, NodeShared};
use crate::ring_thread::{RingEffects, RingInput, RingState, RingThread};
use crate::runs::{self, RunInput, Runs};
use crate::serve;
use crate::space::ChunkSpace;

/// Number of ports that are tried until one is free for both sessions and gossip.
const PORT_TRIES: usize = 16;

/// Maximum number of inputs that wait for the ring's thread, each of them the messages of a frame
/// or the operations of a request. When it is reached, messages of other nodes are lost, and
/// clients are told to ask again.
const MAX_QUEUED_INPUTS: usize = 1 << 12;

/// Interval at which a node publishes its free space and makes its list of chunks durable.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// A node that is not started yet, but has its id and its address.
pub struct PreparedNode {
    folder: PathBuf,
    database: Database,
    node: NodeId,
    system: Option<FileSystemId>,
    listener: TcpListener,
    socket: UdpSocket,
    address: SocketAddr,
    audit_bytes: u64,
    scrub_bytes_per_s: u64,
    load: LoadOptions,
    memory_bytes: u64,
}

/// The reason why a node cannot be started.
#[derive(Debug, Error)]
pub enum NodeError {
    /// The node's durable state cannot be read or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The folder of the node belongs to another file system than the cluster's.
    #[error(
        "{folder} belongs to file system {own}, and the cluster's is {cluster}. To let this node \
         join the cluster's file system, move {folder} away, with the data of {own}. To continue \
         with {own}, stop all executors that keep files, call `eyas dfs recover --anew`, and \
         start this executor first"
    )]
    OtherFileSystem {
        /// The folder.
        folder: String,
        /// The file system of the folder.
        own: FileSystemId,
        /// The file system of the cluster.
        cluster: FileSystemId,
    },
    /// The operating system reported an error.
    #[error("the file system's node cannot {what}: {source}")]
    Io {
        /// The action that failed.
        what: String,
        /// The error.
        source: io::Error,
    },
}

/// A running node.
pub struct DfsNode {
    shared: Arc<NodeShared>,
    /// The threads of the ring and of the runs.
    threads: Vec<JoinHandle<()>>,
    _tasks: JoinSet<()>,
}

impl PreparedNode {
    /// Opens the state of a node in its own `folder`, and creates it if it does not exist. Other
    /// nodes reach the node at `address`.
    ///
    /// # Errors
    /// If the database cannot be opened, or the network cannot be used.
    pub fn open(folder: &Path, address: BindAddress) -> Result<Self, NodeError> {
        std::fs::create_dir_all(folder).map_err(failed(&format!("make {}", folder.display())))?;
        let database = Database::open(&folder.join("files.redb"))?;
        let (node, system) = (database.node()?, database.file_system()?);
        let (listener, socket) = bind(address).map_err(failed("listen"))?;
        let address = listener.local_addr().map_err(failed("listen"))?;
        Ok(PreparedNode {
            folder: folder.to_owned(),
            database,
            node,
            system,
            listener,
            socket,
            address,
            audit_bytes: DEFAULT_AUDIT_BYTES,
            scrub_bytes_per_s: audit::SCRUB_BYTES_PER_S,
            load: LoadOptions::DEFAULT,
            memory_bytes: 0,
        })
    }

    /// Sets the maximum size of the audit log; with 0, there is none.
    pub fn with_audit_bytes(self, audit_bytes: u64) -> Self {
        PreparedNode { audit_bytes, ..self }
    }

    /// Sets the rate at which the node reads its chunks to check them, bytes per second; with 0, it
    /// does not.
    pub fn with_scrub_rate(self, scrub_bytes_per_s: u64) -> Self {
        PreparedNode { scrub_bytes_per_s, ..self }
    }

    /// Sets how the node measures its load.
    pub fn with_load(self, load: LoadOptions) -> Self {
        PreparedNode { load, ..self }
    }

    /// Sets the maximum size of the chunks that clients may keep in memory, bytes; without it, they
    /// keep none.
    pub fn with_memory(self, memory_bytes: u64) -> Self {
        PreparedNode { memory_bytes, ..self }
    }

    /// The id of the node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The file system that the node has joined, if any.
    pub fn file_system(&self) -> Option<FileSystemId> {
        self.system
    }

    /// The chunks of the node, with their sizes.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn chunks(&self) -> Result<Vec<(ObjectId, u64)>, NodeError> {
        Ok(self
            .database
            .chunks()?
            .into_iter()
            .map(|(object, chunk)| (object, chunk.size_bytes))
            .collect())
    }

    /// The address at which the node will accept sessions.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl DfsNode {
    /// Starts a node of this file system on the current runtime. Its chunks are in `store`, from
    /// which `server` sends them.
    ///
    /// # Errors
    /// If the folder belongs to another file system, the database cannot be read, or the network
    /// cannot be used.
    pub async fn start(
        prepared: PreparedNode,
        membership: &FileSystemMembership,
        access: Access,
        (store, peers, server): (ObjectStore, Peers, Arc<PeerServer>),
        room: Arc<dyn ChunkSpace>,
    ) -> Result<Self, NodeError> {
        let PreparedNode { folder, database, node, system, listener, socket, address, .. } =
            prepared;
        let changes =
            ChangeLog::open(&folder, prepared.audit_bytes).map_err(failed("open the audit log"))?;
        let identity = Identity { folder, system: system.unwrap_or(membership.system) };
        identity.may_be_of(membership.system)?;
        let saved = database.saved()?;
        let database = Arc::new(database);
        let me = Neighbour::new(address, server.addr(), room.free_bytes());
        let gossip_id = format!("{}/{}", access.cluster, membership.system);
        let keys = DataKeys::of(&access);
        let gossip = Gossip::start(&gossip_id, keys, node, me, socket, &membership.nodes).await;
        let gossip = gossip.map_err(failed("gossip"))?;
        let mut alive = gossip.alive().await;
        let (ring_inputs, ring_receiver) = mpsc::sync_channel(MAX_QUEUED_INPUTS);
        let (tell_runs, runs_told) = mpsc::sync_channel(runs::MAX_QUEUED_INPUTS);
        let (abandon, abandoned) = tokio::sync::mpsc::channel(runs::MAX_ABANDONED);
        let runs = Runs::open(database.clone(), runs_told, abandon)?;
        let (tell_state, state) = watch::channel(RingState::default());
        let chunks = NodeChunks::open(database.clone(), store, peers, server, room.clone())?
            .with_memory(prepared.memory_bytes);
        let links = NodeLinks::new(node, membership.system, access.clone());
        let neighbours = Mutex::new(alive.now());
        let shared = Arc::new(NodeShared {
            node,
            identity,
            address,
            database: database.clone(),
            chunks,
            links,
            credentials: access.credentials().clone(),
            changes,
            ring_inputs,
            runs: tell_runs,
            state,
            gossip,
            room,
            neighbours,
            auditors: Mutex::default(),
            audit_soon: Notify::new(),
        });
        let ring = eyas_ring::Config::new(membership.system, node);
        let ring = eyas_ring::Config { found: membership.founds, ..ring };
        let shell = NodeEffects { shared: shared.clone(), runtime: Handle::current() };
        let ring_thread = RingThread::new(ring, saved, database, shell, ring_receiver, tell_state);
        let threads = vec![start_ring(ring_thread, StopGossip(shared.clone()))?, start_runs(runs)?];
        let listener = listener
            .set_nonblocking(true)
            .and_then(|()| tokio::net::TcpListener::from_std(listener));
        let acceptor = SessionAcceptor::new(&access, Role::Node);
        let listener =
            Listener::new(listener.map_err(failed("listen"))?, acceptor, "the file system's port");
        let mut tasks = upkeep(&shared, prepared.load, prepared.scrub_bytes_per_s);
        tasks.spawn(serve::accept(shared.clone(), listener));
        tasks.spawn(watch_alive(shared.clone(), alive));
        tasks.spawn(runs::abandoned::remove(access.clone(), (node, address), abandoned));
        Ok(DfsNode { shared, threads, _tasks: tasks })
    }

    /// The address at which the node accepts sessions.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The id of the node.
    pub fn node(&self) -> NodeId {
        self.shared.node
    }

    /// The file system that the node has joined, if any.
    pub fn file_system(&self) -> Option<FileSystemId> {
        self.shared.state.borrow().view.as_ref().map(|view| view.system)
    }

    /// Checks that the node belongs, or may join, to this file system.
    ///
    /// # Errors
    /// If it belongs to another one. The message says what to do.
    pub fn may_be_of(&self, system: FileSystemId) -> Result<(), NodeError> {
        self.shared.identity.may_be_of(system)
    }

    /// Sends gossip to other nodes.
    pub fn greet(&self, seeds: &[SocketAddr]) {
        seeds
            .iter()
            .filter(|seed| **seed != self.shared.address)
            .for_each(|seed| self.shared.gossip.greet(*seed));
    }

    /// The chunks of the node, with their sizes.
    pub fn chunks(&self) -> Vec<(ObjectId, u64)> {
        self.shared
            .chunks
            .all()
            .into_iter()
            .map(|(object, chunk)| (object, chunk.size_bytes))
            .collect()
    }

    /// Waits until the node is in a view and serves all partitions that it leads. Returns `false`
    /// if this takes longer than `patience`.
    pub async fn is_ready(&self, patience: Duration) -> bool {
        let mut state = self.shared.state.clone();
        let ready = state.wait_for(|state| state.view.is_some() && state.is_settled);
        matches!(timeout(patience, ready).await, Ok(Ok(_)))
    }
}

impl Identity {
    fn may_be_of(&self, cluster: FileSystemId) -> Result<(), NodeError> {
        let (own, folder) = (self.system, self.folder.display().to_string());
        if own == cluster {
            Ok(())
        } else {
            Err(NodeError::OtherFileSystem { folder, own, cluster })
        }
    }
}

/// Stops the gossip of a node whose ring thread has ended for any reason, so that the others
/// continue without it.
struct StopGossip(Arc<NodeShared>);

impl Drop for StopGossip {
    fn drop(&mut self) {
        self.0.gossip.end();
    }
}

impl Drop for DfsNode {
    fn drop(&mut self) {
        let _ = self.shared.ring_inputs.send(RingInput::End);
        let _ = self.shared.runs.send(runs::RunInput::End);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the file system's node has panicked");
            }
        }
    }
}

/// Carries out the effects of the ring's decider.
struct NodeEffects {
    shared: Arc<NodeShared>,
    runtime: Handle,
}

impl RingEffects for NodeEffects {
    fn send(&self, to: NodeId, messages: Vec<RingMessage>) {
        self.shared.send_all(
            to,
            messages.into_iter().map(|message| ToPeer::Ring(Box::new(message))).collect(),
        );
    }

    fn fetch(&self, object: ObjectId, size_bytes: u64, checksum: u64, from: Vec<NodeId>) {
        let (shared, wanted) = (self.shared.clone(), ChunkSpec { object, size_bytes, checksum });
        self.runtime.spawn(async move {
            let from = shared.transfers(&from);
            // The chunk may be here already, and damaged.
            let scrubbing = shared.clone();
            let scrubbed = tokio::task::spawn_blocking(move || scrubbing.chunks.scrub(object));
            scrubbed.await.unwrap_or_default();
            let fetched = match shared.chunks.prepare(wanted).await {
                Ok(Some(reservation)) => reservation.fetch(&from, false).await,
                Ok(None) => Ok(()),
                Err(why) => Err(why),
            };
            let event = match fetched {
                Ok(()) => Event::Fetched { object },
                Err(why) => {
                    tracing::info!(%object, "a chunk was not replicated to this node: {why}");
                    Event::FetchFailed { object }
                }
            };
            // This event is not repeated and must not be dropped, so it waits for space in the
            // queue. It fails only when the thread has ended.
            tokio::task::spawn_blocking(move || {
                drop(shared.ring_inputs.send(RingInput::Events(vec![event])))
            });
        });
    }

    fn search(&self, name: FileName, objects: Vec<ObjectId>) {
        let shared = self.shared.clone();
        let members = shared
            .state
            .borrow()
            .view
            .iter()
            .flat_map(|view| view.members.clone())
            .collect::<Vec<_>>();
        for member in members.into_iter().filter(|member| *member != shared.node) {
            shared.send(member, ToPeer::Search { name: name.clone(), objects: objects.clone() });
        }
        self.runtime.spawn(async move {
            let objects = shared.chunks.search(&objects).await;
            if !objects.is_empty() {
                shared.tell(Event::GoodReplicas { name, objects, node: shared.node });
            }
        });
    }

    fn sync(&self, node: NodeId, files: Vec<FileChunks>) {
        if node != self.shared.node {
            return self.shared.send(node, ToPeer::Sync(files));
        }
        let shared = self.shared.clone();
        self.runtime.spawn(async move {
            let bad = shared.chunks.secure(files).await;
            shared.tell(Event::Synced { node, bad });
        });
    }

    fn drop(&self, objects: &[ObjectId]) {
        self.shared.chunks.drop(objects);
    }
}

async fn watch_alive(shared: Arc<NodeShared>, mut alive: LiveNodes) {
    let mut told = BTreeMap::new();
    loop {
        let now = alive.now();
        shared.links.keep(|node| now.contains_key(&node));
        let nodes = now.keys().copied().collect();
        *shared.neighbours() = now;
        shared.tell(Event::Alive(nodes));
        let loads = shared.loads();
        // If the thread is overloaded, the next change tells all of them.
        if loads != told && shared.runs.try_send(RunInput::Loads(loads.clone())).is_ok() {
            told = loads;
        }
        if !alive.changed().await {
            tracing::error!("the file system's gossip has ended");
            return;
        }
    }
}

async fn keep_told(shared: Arc<NodeShared>) {
    let mut ticks = interval(REPORT_EVERY);
    loop {
        ticks.tick().await;
        let syncing = shared.clone();
        if let Ok(Err(error)) = tokio::task::spawn_blocking(move || syncing.database.sync()).await {
            tracing::warn!(%error, "cannot make the list of this node's chunks durable");
        }
        audit::reclaim(&shared);
        // What clients have left goes when room is needed.
        shared.gossip.tell_free(shared.room.free_bytes() + shared.chunks.left_bytes()).await;
    }
}

/// Starts what a node does by itself, without any request.
fn upkeep(shared: &Arc<NodeShared>, load: LoadOptions, scrub_bytes_per_s: u64) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(keep_told(shared.clone()));
    tasks.spawn(keep_load_told(shared.clone(), load));
    tasks.spawn(release_memory(shared.clone()));
    tasks.spawn(audit::audit(shared.clone()));
    if scrub_bytes_per_s > 0 {
        tasks.spawn(audit::scrub(shared.clone(), scrub_bytes_per_s));
    }
    tasks
}

/// Releases memory of clients that have gone.
async fn release_memory(shared: Arc<NodeShared>) {
    let mut ticks = interval(memory::RELEASE_EVERY);
    loop {
        ticks.tick().await;
        shared.chunks.locked().release_old();
    }
}

/// Measures this node's load, and publishes it when it has changed.
async fn keep_load_told(shared: Arc<NodeShared>, options: LoadOptions) {
    let mut meter = LoadMeter::begin(shared.chunks.store_folder(), options.weight);
    let mut told: Option<NodeLoad> = None;
    let mut ticks = interval_at(Instant::now() + options.period, options.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Reads a few small files, all of them made by the kernel in memory.
        let load = meter.measure();
        if told.is_none_or(|told| load.differs_from(told)) {
            shared.gossip.tell_load(load).await;
            told = Some(load);
        }
    }
}

/// Starts the thread of the ring. The node's gossip ends with it.
fn start_ring(
    ring: RingThread<NodeEffects>,
    gossip: StopGossip,
) -> Result<JoinHandle<()>, NodeError> {
    thread("dfs-ring", move || {
        let _gossip = gossip;
        if let Err(error) = ring.run() {
            tracing::error!("{error}; this node leaves the file system");
        }
    })
}

fn start_runs(runs: Runs) -> Result<JoinHandle<()>, NodeError> {
    thread("dfs-runs", move || {
        if let Err(error) = runs.run() {
            tracing::error!("{error}; the runs that this node led are lost");
        }
    })
}

fn thread(name: &str, live: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, NodeError> {
    std::thread::Builder::new().name(name.into()).spawn(live).map_err(failed("start its threads"))
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> NodeError {
    let what = what.to_owned();
    move |source| NodeError::Io { what, source }
}

/// Binds one port for both TCP and UDP.
fn bind(address: BindAddress) -> io::Result<(TcpListener, UdpSocket)> {
    let both = |socket_address| {
        let listener = listen(socket_address)?;
        let socket = UdpSocket::bind(listener.local_addr()?)?;
        Ok((listener, socket))
    };
    let mut tries = 0;
    loop {
        tries += 1;
        match address.bind(both) {
            // Another process has the same port for UDP.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.ports.is_none()
                    && tries < PORT_TRIES => {}
            bound => return bound,
        }
    }
}
