//! Finding the stores of the nodes on this machine, and remembering which of their chunks are
//! undamaged.
//!
//! A task learns the folder of the store from its executor. Any other client asks the nodes that
//! have the address of this machine. A node may be in a container and name a folder that is another
//! one here, so the client compares the folder with what the node sees: the kernel, the device and
//! the inode.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, NodeId};
use rustix::io::{ReadWriteFlags, preadv2};
use tokio::sync::OnceCell;

use super::checks::SharedChecks;
use super::file_state::FileState;
use crate::near::node::NearNode;
use crate::protocol::{Member, RequestBody, ResponseBody};
use crate::routes::Routes;

/// Maximum number of chunks that are remembered. When it is reached, all of them are forgotten.
const MAX_CHUNKS: usize = 1 << 14;

/// The stores of the nodes on this machine, and their chunks.
pub(crate) struct NearStores {
    pub(super) routes: Arc<Routes>,
    /// The node on this machine, if its executor has told it. Otherwise the nodes are asked.
    pub(super) near: Option<NearNode>,
    /// The address of this machine, as nodes see it.
    own_address: Option<IpAddr>,
    told: Mutex<ToldFolders>,
    chunks: NearChunks,
    /// The account on which the node on this machine keeps chunks that are opened.
    memory: OnceLock<u128>,
}

/// What is known of the chunks in the stores on this machine.
#[derive(Default)]
struct NearChunks {
    known: Mutex<HashMap<ObjectId, Arc<NearChunk>>>,
    /// What other processes have checked.
    checks: Arc<SharedChecks>,
}

/// What nodes have said of their folders. They are asked again after the view has changed: they may
/// have been started with other folders.
#[derive(Default)]
struct ToldFolders {
    /// How often the view had been asked for.
    refreshed: u64,
    folders: HashMap<NodeId, Arc<OnceCell<Option<PathBuf>>>>,
    /// Nodes that this process cannot hand content over to: they belong to other users, or their
    /// disks cannot do it.
    only_read: BTreeSet<NodeId>,
}

/// A chunk in a store on this machine.
pub(crate) struct NearChunk {
    /// The last result of a check.
    check: Mutex<Check>,
    checks: Arc<SharedChecks>,
    /// Number of parts that were read before the chunk was checked.
    parts: AtomicU32,
    /// Their bytes.
    bytes: AtomicU64,
}

/// The result of a check of the file of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Check {
    /// It was not checked.
    #[default]
    None,
    /// It matched its checksum in this state.
    Good(FileState),
    /// It did not, or cannot be read.
    Bad,
}

/// The open file of a chunk that matched its checksum.
#[derive(Debug)]
pub struct CheckedFile {
    pub(super) file: File,
    /// The state of the file then.
    pub(super) state: FileState,
}

impl NearChunk {
    fn new(checks: Arc<SharedChecks>) -> Self {
        NearChunk {
            check: Mutex::default(),
            checks,
            parts: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Whether the file of the chunk matched its checksum, in this state.
    pub fn is_checked(&self, chunk: &Chunk, state: FileState) -> bool {
        *lock(&self.check) == Check::Good(state) || self.checks.have(state, chunk.checksum)
    }

    /// The file of the chunk matches its checksum in this state.
    pub fn set_checked(&self, chunk: &Chunk, state: FileState) {
        *lock(&self.check) = Check::Good(state);
        self.checks.add(state, chunk.checksum);
    }

    /// The file of the chunk does not match its checksum, or cannot be read. It may have been good
    /// before.
    pub fn set_bad(&self) {
        *lock(&self.check) = Check::Bad;
    }

    /// Whether the file was checked; `None` if it is bad.
    pub fn was_checked(&self) -> Option<bool> {
        match *lock(&self.check) {
            Check::None => Some(false),
            Check::Good(_) => Some(true),
            Check::Bad => None,
        }
    }

    /// Counts a part. Returns the number of parts, and their bytes.
    pub fn count_part(&self, bytes: u64) -> (u32, u64) {
        let parts = self.parts.fetch_add(1, Ordering::Relaxed) + 1;
        (parts, self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes)
    }
}

/// What became of a read of an open chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContentRead {
    /// The buffer is full.
    Done,
    /// The disk has to be waited for.
    Waits,
    /// The file has changed since it was checked, or cannot be read.
    Changed,
}

impl CheckedFile {
    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// An open file in its present state, which is still to be checked; `None` if the file was
    /// deleted.
    pub(crate) fn of(file: File) -> Option<Self> {
        let state = FileState::of(&file)?;
        Some(CheckedFile { file, state })
    }

    /// Fills the buffer with the bytes from `begin`. Without `may_wait`, only if they are in the
    /// memory of the system. With `checks`, only if the file has not changed since it was checked.
    pub(super) fn read(
        &self,
        begin: u64,
        into: &mut [u8],
        may_wait: bool,
        checks: bool,
    ) -> ContentRead {
        let is_read = match may_wait {
            true => self.file.read_exact_at(into, begin).is_ok(),
            false if read_cached(&self.file, into, begin).is_none() => return ContentRead::Waits,
            false => true,
        };
        let is_same = is_read && (!checks || FileState::of(&self.file) == Some(self.state));
        if is_same { ContentRead::Done } else { ContentRead::Changed }
    }
}

impl NearChunks {
    /// What is known of a chunk.
    fn of(&self, object: ObjectId) -> Arc<NearChunk> {
        let mut chunks = lock(&self.known);
        if chunks.len() >= MAX_CHUNKS && !chunks.contains_key(&object) {
            chunks.clear();
        }
        chunks
            .entry(object)
            .or_insert_with(|| Arc::new(NearChunk::new(self.checks.clone())))
            .clone()
    }
}

impl NearStores {
    pub fn new(routes: Arc<Routes>, near: Option<NearNode>) -> Self {
        let own_address = own_address(&routes.seeds);
        NearStores {
            routes,
            near,
            own_address,
            told: Mutex::default(),
            chunks: NearChunks::default(),
            memory: OnceLock::new(),
        }
    }

    /// The node on this machine keeps chunks that are opened from now on in memory, on this
    /// account. The first call counts.
    pub fn set_memory(&self, account: u128) {
        let _ = self.memory.set(account);
    }

    /// Lets the node on this machine keep a chunk that was just read, if it is to keep any.
    pub(super) async fn keep_in_memory(&self, object: ObjectId) {
        let Some(account) = self.memory.get().copied() else { return };
        let known = self.routes.known();
        let Some(member) = self.node().and_then(|node| known.members.get(&node)) else { return };
        let asked = RequestBody::KeepInMemory { account, objects: vec![object] };
        if let Err(error) = self.routes.calls.ask_once(member.address, asked).await {
            tracing::debug!("chunk {object} does not stay in memory: {error}");
        }
    }

    /// The node on this machine, if its executor has told it.
    pub fn node(&self) -> Option<NodeId> {
        self.near.as_ref().map(|near| near.node)
    }

    /// Whether an address is that of this machine, as nodes see it.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.own_address == Some(address)
    }

    /// What is known of a chunk.
    pub fn chunk(&self, object: ObjectId) -> Arc<NearChunk> {
        self.chunks.of(object)
    }

    /// Nothing more is handed over to a node.
    pub fn only_read(&self, node: NodeId) {
        self.told().only_read.insert(node);
    }

    fn told(&self) -> MutexGuard<'_, ToldFolders> {
        let (mut told, refreshed) = (lock(&self.told), self.routes.refreshed());
        if told.refreshed != refreshed {
            *told = ToldFolders { refreshed, ..ToldFolders::default() };
        }
        told
    }

    /// The store of a node on this machine that has a chunk, or that may have it.
    pub async fn store_near(&self, chunk: &Chunk) -> Option<PathBuf> {
        if let Some(near) = &self.near {
            return near.store.clone();
        }
        let known = self.routes.known();
        for member in chunk.replicas.iter().filter_map(|node| known.members.get(node)) {
            if let Some(folder) = self.folder_near(member).await {
                return Some(folder);
            }
        }
        None
    }

    /// The first of these nodes that is on this machine and whose store this process may write to:
    /// its place in the list, and the folder of the store.
    pub async fn writable_near(&self, members: &[&Member]) -> Option<(usize, PathBuf)> {
        for (place, member) in members.iter().enumerate() {
            if self.told().only_read.contains(&member.node) {
                continue;
            }
            let folder = match &self.near {
                Some(near) => near.store.clone().filter(|_| near.node == member.node),
                None => self.folder_near(member).await,
            };
            if let Some(folder) = folder {
                return Some((place, folder));
            }
        }
        None
    }

    /// The folder of a node's store, if this process sees it.
    async fn folder_near(&self, member: &Member) -> Option<PathBuf> {
        let address = member.transfer.ip();
        if !address.is_loopback() && !self.is_own(address) {
            return None;
        }
        let folder = self.told().folders.entry(member.node).or_default().clone();
        folder.get_or_init(|| self.ask_store(member)).await.clone()
    }

    /// Asks a node for the folder of its store; `None` if this process does not see the folder.
    async fn ask_store(&self, member: &Member) -> Option<PathBuf> {
        match self.routes.calls.ask_once(member.address, RequestBody::StoreFolder).await {
            Ok(ResponseBody::StoreFolder(folder)) => folder?.here(),
            answered => {
                tracing::debug!(
                    node = %member.node, ?answered,
                    "a node on this machine does not name its store"
                );
                None
            }
        }
    }
}

/// The address of this machine on the route to one of these nodes.
fn own_address(nodes: &[SocketAddr]) -> Option<IpAddr> {
    nodes.iter().find_map(|node| {
        let any: IpAddr = if node.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        // Nothing is sent.
        socket.connect(node).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// Reads a range of a file. With `at_once`, only if it is in the memory of the system.
pub(super) fn read_range(file: &File, range: Range<u64>, at_once: bool) -> Option<Vec<u8>> {
    let mut part = vec![0; (range.end - range.start) as usize];
    match at_once {
        true => read_cached(file, &mut part, range.start)?,
        false => file.read_exact_at(&mut part, range.start).ok()?,
    }
    Some(part)
}

/// Reads from a file what is in the memory of the system; `None` if the disk has to be waited for.
fn read_cached(file: &File, into: &mut [u8], offset: u64) -> Option<()> {
    let mut filled = 0;
    while filled < into.len() {
        let mut rest = [io::IoSliceMut::new(&mut into[filled..])];
        match preadv2(file, &mut rest, offset + filled as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) | Err(_) => return None,
            Ok(read) => filled += read,
        }
    }
    Some(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No update of the values behind these locks panics half-way.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_good_chunk_may_become_bad_and_good_again() {
        let near = NearChunks::default();
        let known = near.of(ObjectId([7; 16]));
        let chunk =
            Chunk { object: ObjectId([7; 16]), size_bytes: 5, checksum: 1, replicas: Vec::new() };
        let state =
            |inode| FileState { device: 1, inode, size_bytes: 5, modified_s: 0, modified_ns: 0 };
        assert_eq!(known.was_checked(), Some(false));
        known.set_checked(&chunk, state(1));
        assert_eq!(known.was_checked(), Some(true));
        known.set_bad();
        assert_eq!(known.was_checked(), None, "its parts are requested");
        known.set_checked(&chunk, state(2));
        assert_eq!((known.was_checked(), known.is_checked(&chunk, state(2))), (Some(true), true));
    }

    #[test]
    fn the_known_chunks_are_bounded() {
        let near = NearChunks::default();
        for number in 0..=MAX_CHUNKS as u32 {
            let mut object = ObjectId([0; 16]);
            object.0[..4].copy_from_slice(&number.to_le_bytes());
            near.of(object);
        }
        assert_eq!(lock(&near.known).len(), 1);
    }
}
