//! Nodes on this machine, each with a store and a server, for tests.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use eyas_session::{Access, DataKeys};
use eyas_store::{Checksum, Limiter, Limits, ObjectStore, Storage};
use eyas_transfer::{PeerError, PeerHolder, PeerLimits, PeerServer, Peers};
use eyas_types::{FileMode, ObjectId, ObjectSpec};
use eyas_wire::DataMode;

pub const ID: ObjectId = ObjectId([0xab; 16]);
/// Everything that a test waits for happens within this time, also on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// The access file that all nodes of these tests share.
static ACCESS: LazyLock<Access> = LazyLock::new(|| Access::create("test", "127.0.0.1:1"));

pub fn keys() -> DataKeys {
    DataKeys::of(&ACCESS)
}

/// The same, for a cluster that does not encrypt.
pub fn plain() -> DataKeys {
    DataKeys::of(&ACCESS.clone().with_data(DataMode::Plain))
}

/// Keys of another cluster.
pub fn strange(mode: DataMode) -> DataKeys {
    DataKeys::of(&Access::create("another", "127.0.0.1:1").with_data(mode))
}

pub struct Node {
    pub dir: tempfile::TempDir,
    pub store: ObjectStore,
    pub server: PeerServer,
    pub peers: Peers,
}

impl Node {
    pub fn new() -> Self {
        Node::with(keys(), limits())
    }

    pub fn with(keys: DataKeys, limits: PeerLimits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = ObjectStore::open(dir.path().join("store")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = PeerServer::start(
            listener,
            store.clone(),
            keys.clone(),
            limits,
            (Limiter::unlimited(), Limiter::unlimited()),
        )
        .unwrap();
        Node { dir, store, server, peers: Peers::new(keys, limits, Limiter::unlimited()) }
    }

    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    pub fn put(&self, id: ObjectId, content: &[u8]) {
        let mut incoming = self.store.begin(id, content.len() as u64, FileMode::READABLE).unwrap();
        incoming.write(content).unwrap();
        incoming.commit().unwrap();
    }

    /// Fetches into the store. The rest of an interrupted transfer is dropped.
    pub async fn fetch(
        &self,
        addr: SocketAddr,
        id: ObjectId,
        size: usize,
    ) -> Result<Checksum, PeerError> {
        let into = self.store.begin(id, size as u64, FileMode::READABLE).unwrap();
        self.peers.fetch(addr, into, false, false).await.map_err(|broken| broken.error)
    }

    pub fn get(&self, id: ObjectId) -> Vec<u8> {
        let mut content = Vec::new();
        self.store.open_object(id).unwrap().file.read_to_end(&mut content).unwrap();
        content
    }

    /// Changes a byte on disk, which only the checksum reveals.
    pub fn damage(&self, id: ObjectId) {
        let path = self.object_file(id);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        (&file).write_all(b"?").unwrap();
        file.set_modified(modified).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    }

    pub fn object_file(&self, id: ObjectId) -> PathBuf {
        let folder = self.dir.path().join(format!("store/objects/{:02x}", id.0[0]));
        fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
    }

    pub fn partial_files(&self) -> usize {
        fs::read_dir(self.dir.path().join("store/partial")).unwrap().count()
    }
}

/// Short for tests that wait for them, long enough not to expire by accident.
pub fn limits() -> PeerLimits {
    PeerLimits {
        handshake_timeout: Duration::from_secs(2),
        avoid: Duration::from_secs(60),
        ..PeerLimits::default()
    }
}

/// A file in persistent storage, with its promised version.
pub async fn source(node: &Node, name: &str, size: usize) -> ObjectSpec {
    let path = node.dir.path().join(name);
    std::fs::write(&path, content(size)).unwrap();
    let url = eyas_store::url_of(path.to_str().unwrap()).unwrap();
    Storage::new(Limits::default()).stat(&url).await.unwrap()
}

/// A holder that has the whole object and no other transfers.
pub fn holder(addr: SocketAddr) -> PeerHolder {
    PeerHolder { addr, proxy: None, is_relay: false, others: 0 }
}

pub fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at / 3) as u8).collect()
}

/// Everything that the server at `addr` sends to a client that sends `bytes`, until it closes the
/// connection.
pub fn tell(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The server may close before all bytes are sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it did not close")
        }
    }
    answer
}
