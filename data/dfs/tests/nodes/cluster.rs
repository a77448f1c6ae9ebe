//! Nodes of a file system in this process, each with its own folder, store and sockets.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_dfs::{BoxedFuture, ChunkSpace, DfsNode, PreparedNode, SpaceError};
use eyas_files::{Creation, DfsClient, FilesError, NearNode, WriteOptions};
use eyas_session::{Access, Authority, BindAddress, DataKeys};
use eyas_store::{Limiter, ObjectStore};
use eyas_transfer::{PeerLimits, PeerServer, Peers};
use eyas_types::access::{FilesScope, KeyId, KeyRole, Principal};
use eyas_types::dfs::{FileName, FileSystemId, Format, RecordFormat};
use eyas_types::{JobId, ObjectId};
use eyas_wire::executor::FileSystemMembership;
use eyas_wire::trust::Trust;
use rustix::net::{Shutdown, getpeername, shutdown};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use tempfile::TempDir;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Deadline of everything that tests wait for.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The space of a node that has enough.
const UNLIMITED: u64 = 1 << 40;

const SYSTEM: FileSystemId = FileSystemId(1);

pub struct Cluster {
    authority: Authority,
    access: Access,
    pub nodes: Vec<Node>,
    folders: Vec<PathBuf>,
    /// Folders that are removed at the end.
    own: Vec<TempDir>,
    /// Whether the nodes read their chunks again and again.
    scrubs: bool,
}

pub struct Node {
    pub node: DfsNode,
    pub store: ObjectStore,
    server: Arc<PeerServer>,
    place: usize,
}

/// A store with this much space.
struct Disk {
    store: ObjectStore,
    bytes: u64,
}

impl ChunkSpace for Disk {
    fn reserve(&self, _: ObjectId, size_bytes: u64) -> BoxedFuture<Result<(), SpaceError>> {
        let is_full = self.store.total_bytes() + size_bytes > self.bytes;
        Box::pin(async move {
            if is_full { Err(SpaceError::NoSpace("its disk is full".into())) } else { Ok(()) }
        })
    }

    fn arrived(&self, _: ObjectId, _: bool) {}

    fn release(&self, chunk: ObjectId) {
        self.store.remove(chunk).unwrap();
    }

    fn free_bytes(&self) -> u64 {
        // A full node is asked, too.
        if self.bytes == 0 {
            UNLIMITED
        } else {
            self.bytes.saturating_sub(self.store.total_bytes())
        }
    }
}

impl Cluster {
    /// Starts this number of nodes, and waits until all have joined.
    pub async fn of(count: usize) -> Self {
        Cluster::with_space(count, UNLIMITED).await
    }

    /// Starts nodes with this much space, and waits until all have joined.
    pub async fn with_space(count: usize, bytes: u64) -> Self {
        Cluster::empty().joined_by(count, bytes).await
    }

    /// Starts nodes that find damage only when a client reads.
    pub async fn without_scrub(count: usize) -> Self {
        Cluster { scrubs: false, ..Cluster::empty() }.joined_by(count, UNLIMITED).await
    }

    async fn joined_by(mut self, count: usize, bytes: u64) -> Self {
        for _ in 0..count {
            self.join_with(bytes).await;
        }
        self.settles().await;
        self
    }

    fn empty() -> Self {
        let authority = Authority::create();
        let own = authority.issue(Principal::Key(KeyId(1), KeyRole::Admin)).unwrap();
        let access =
            Access::new("test", "127.0.0.1:1", authority.certificate(), own, Trust::default())
                .unwrap();
        Cluster {
            authority,
            access,
            nodes: Vec::new(),
            folders: Vec::new(),
            own: Vec::new(),
            scrubs: true,
        }
    }

    /// Starts nodes in these folders, and waits until all are members.
    pub async fn at(folders: &[PathBuf]) -> Self {
        let mut cluster = Cluster::empty();
        cluster.folders = folders.to_vec();
        for place in 0..folders.len() {
            cluster.start(place, false).await;
        }
        cluster.settles().await;
        cluster
    }

    /// Another node joins.
    pub async fn join(&mut self, is_full: bool) {
        self.join_with(if is_full { 0 } else { UNLIMITED }).await;
    }

    async fn join_with(&mut self, bytes: u64) {
        let own = tempfile::tempdir().unwrap();
        self.folders.push(own.path().to_owned());
        self.own.push(own);
        self.start_with(self.folders.len() - 1, bytes).await;
    }

    /// Restarts a node in its folder.
    pub async fn start(&mut self, place: usize, is_full: bool) {
        self.start_with(place, if is_full { 0 } else { UNLIMITED }).await;
    }

    async fn start_with(&mut self, place: usize, bytes: u64) {
        let folder = self.folders[place].clone();
        // Tasks of the node that has ended release its folder soon.
        let mut opened = None;
        eventually("the folder is free", async || {
            let both = (
                ObjectStore::open(folder.join("store")),
                PreparedNode::open(
                    &folder.join("files"),
                    BindAddress { ip: LOCALHOST, ports: None },
                ),
            );
            opened = if let (Ok((store, _)), Ok(site)) = both { Some((store, site)) } else { None };
            opened.is_some()
        })
        .await;
        let (store, site) = opened.unwrap();
        let site = if self.scrubs { site } else { site.with_scrub_rate(0) };
        let unlimited = (Limiter::unlimited(), Limiter::unlimited());
        let keys = DataKeys::of(&self.access);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = PeerServer::start(
            listener,
            store.clone(),
            keys.clone(),
            PeerLimits::default(),
            unlimited,
        );
        let server = Arc::new(server.unwrap());
        let peers = Peers::new(keys, PeerLimits::default(), Limiter::unlimited());
        let room = Arc::new(Disk { store: store.clone(), bytes });
        let parts = (store.clone(), peers, server.clone());
        let belongs =
            FileSystemMembership { system: SYSTEM, founds: place == 0, nodes: self.addresses() };
        let node = DfsNode::start(site, &belongs, self.access.clone(), parts, room).await;
        self.nodes.push(Node { node: node.unwrap(), store, server, place });
    }

    /// Ends a node without a message to the others.
    pub fn end(&mut self, node: usize) -> usize {
        let node = self.nodes.remove(node);
        node.place
    }

    pub fn folder(&self, node: usize) -> &Path {
        &self.folders[self.nodes[node].place]
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.node.address()).collect()
    }

    /// Breaks all connections to the nodes, those of clients and those of other nodes.
    pub fn break_connections(&self) {
        let this = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let addresses = self.addresses().into_iter().map(|address| address.to_string());
        let (addresses, mut broken) = (addresses.collect::<Vec<_>>(), 0);
        for entry in fs::read_dir("/proc/self/fd").unwrap() {
            let number = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
            // A descriptor may be closed meanwhile, or be no socket.
            let Ok(socket) = pidfd_getfd(&this, number, PidfdGetfdFlags::empty()) else { continue };
            let Ok(Some(peer)) = getpeername(&socket) else { continue };
            // On one machine, the name of a Unix socket ends with the address.
            let peer = format!("{peer:?}");
            if addresses.iter().any(|address| peer.contains(address)) {
                shutdown(&socket, Shutdown::Both).unwrap();
                broken += 1;
            }
        }
        assert!(broken > 0, "no connection was found");
    }

    /// Waits until exactly these nodes are members.
    pub async fn settles(&self) {
        let files = self.files().await;
        eventually("all are members", async || {
            let membership = files.membership().await.unwrap();
            let members = membership.view.map_or(0, |view| view.members.len());
            members == self.nodes.len() && membership.alive.len() == self.nodes.len()
        })
        .await;
        for node in &self.nodes {
            assert!(node.node.is_ready(DEADLINE).await, "a node does not settle");
        }
    }

    pub async fn files(&self) -> DfsClient {
        self.client(None).await
    }

    /// A client on the machine of a node, which can read the node's store.
    pub async fn files_near(&self, node: usize) -> DfsClient {
        let store = Some(self.nodes[node].store.dir().to_owned());
        self.client(Some(NearNode { node: self.nodes[node].node.node(), store })).await
    }

    /// A client that sees no store, as on another machine.
    pub async fn files_far(&self) -> DfsClient {
        let node = self.nodes[0].node.node();
        self.client(Some(NearNode { node, store: None })).await
    }

    /// A client with the token of a job, whose tasks may use these files.
    pub async fn files_of_job(&self, scope: FilesScope) -> DfsClient {
        let job = JobId(7);
        self.access.credentials().learn(Trust { jobs: [(job, scope)].into(), ..Trust::default() });
        let own = self.authority.issue(Principal::Job(job)).unwrap();
        let access =
            Access::new("test", "127.0.0.1:1", self.authority.certificate(), own, Trust::default())
                .unwrap();
        DfsClient::connect(access, self.addresses(), None, DEADLINE).await.unwrap()
    }

    async fn client(&self, near: Option<NearNode>) -> DfsClient {
        DfsClient::connect(self.access.clone(), self.addresses(), near, DEADLINE).await.unwrap()
    }

    /// A client of another runtime.
    pub fn connecting(&self) -> impl Future<Output = DfsClient> + Send + use<> {
        let (access, addresses) = (self.access.clone(), self.addresses());
        async { DfsClient::connect(access, addresses, None, DEADLINE).await.unwrap() }
    }

    /// Number of bytes that all nodes have sent.
    pub fn served_bytes(&self) -> u64 {
        self.nodes.iter().map(|node| node.server.served().bytes).sum()
    }
}

/// Waits for a fact.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn name(text: &str) -> FileName {
    text.parse().unwrap()
}

/// Lines, some of which end at multiples of the chunk size.
pub fn lines(bytes: usize) -> Vec<u8> {
    let mut content = Vec::with_capacity(bytes + 100);
    let mut number: u64 = 1;
    while content.len() < bytes {
        number =
            number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = (number >> 33) as usize % 90;
        content.extend(std::iter::repeat_n(b'a' + (number >> 40) as u8 % 26, length));
        content.push(b'\n');
    }
    content
}

/// Chunks of 64 KiB.
pub const SMALL: WriteOptions = WriteOptions {
    format: RecordFormat { format: Format::Lines, is_guessed: false },
    chunk_bytes: 64 << 10,
    replication: 3,
    is_durable: true,
    creation: Creation { mode: 0o644, uid: 1, gid: 1, modified_ns: None, makes_parents: true },
};

pub async fn write(
    files: &DfsClient,
    file: &str,
    content: &[u8],
) -> Result<eyas_files::File, FilesError> {
    files.write(&name(file), std::io::Cursor::new(content.to_vec()), SMALL, |_| {}).await
}

pub async fn content_of(files: &DfsClient, file: &str) -> Vec<u8> {
    let file = files.stat(&name(file)).await.unwrap();
    let (mut reading, mut content) = (files.read(&file), Vec::new());
    while let Some(part) = reading.next().await.unwrap() {
        content.extend(part);
    }
    content
}
