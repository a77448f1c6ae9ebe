//! Writing: content is cut at the borders of its records, each chunk goes to its replicas in a chain, and when all are
//! there the file appears, whole.

use std::collections::BTreeSet;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eyas_blocks::format::{Cutter, Ending};
use eyas_ring::{FileAnswer, FileOperation, replica_targets};
use eyas_store::Checksum;
use eyas_types::ObjectId;
use eyas_types::dfs::{
    Chunk, DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION, FileId, FileName, FileRecord, Format, MAX_CHUNKS, NodeId,
};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::client::calls::{ANSWER_DEADLINE, Replies};
use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::{DfsClient, File, PAUSE, unexpected};
use crate::protocol::{Member, RequestBody, ResponseBody};

/// Chunks on their way to nodes at a time.
const CHUNKS_TOGETHER: usize = 4;

/// A chunk is held in memory, by its writer and its readers: no record may be longer.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;

/// A chunk that a node has begun to store is there by then.
const STORE_DEADLINE: Duration = Duration::from_secs(130);

/// Chunks of no file are given up after a day: a file that takes so long to be written is not.
const MAX_WRITING: Duration = Duration::from_secs(12 * 3600);

/// Read of a source at a time.
const READ_BYTES: usize = 1 << 20;

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// What its records are.
    pub format: Format,
    /// Size of its chunks, bytes.
    pub chunk_bytes: u64,
    /// Replicas of each chunk; as many as there are nodes, if they are fewer.
    pub replication: u8,
}

impl WriteOptions {
    /// The usual, for records of this kind.
    pub fn of(format: Format) -> Self {
        WriteOptions { format, chunk_bytes: DEFAULT_CHUNK_BYTES, replication: DEFAULT_REPLICATION }
    }
}

/// What a source gives, cut.
enum Piece {
    Chunk(Vec<u8>),
    Failed(FilesError),
}

impl DfsClient {
    /// Writes a new file, which appears when it is whole. Tells `see` how many bytes are stored so far.
    ///
    /// # Errors
    /// `Exists`; `Invalid` if the content has no such records, or is too large; `Full`, `Unreachable`; `Local` if the source
    /// fails. Nothing appears then.
    pub async fn write(
        &self,
        name: &FileName,
        source: impl Read + Send + 'static,
        options: WriteOptions,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        if self.exists(name).await? {
            return Err(FilesError::exists(name));
        }
        let WriteOptions { format, chunk_bytes, replication } = options;
        let id = FileId(random()?);
        let cutter = Cutter::new(format, chunk_bytes);
        let chunks = self.store_all(name, id, cutter, source, Vec::new(), 0, replication, see).await?;
        let record = FileRecord { id, format, chunk_bytes, replication, modified_us: now_us(), chunks };
        let op = FileOperation::Create { name: name.clone(), record: record.clone() };
        match self.operate(op).await? {
            FileAnswer::Done { version } => Ok(File { name: name.clone(), record, version }),
            _ => Err(unexpected()),
        }
    }

    /// Adds to a file, all at once. Tells `see` how many bytes are stored so far.
    ///
    /// # Errors
    /// As [`write`](Files::write); `NotFound`; `Changed` if somebody else changes it meanwhile: nothing is added then.
    pub async fn append(
        &self,
        name: &FileName,
        source: impl Read + Send + 'static,
        see: impl FnMut(u64),
    ) -> Result<File, FilesError> {
        let file = self.stat(name).await?;
        let FileRecord { id, format, chunk_bytes, replication, .. } = file.record;
        let mut kept = file.record.chunks.clone();
        // Its last record may go on.
        let last = match kept.pop() {
            Some(_) => self.chunk(&file, kept.len()).await?,
            None => Vec::new(),
        };
        let offset = kept.iter().map(|chunk| chunk.size_bytes).sum();
        let cutter = Cutter::resume(format, chunk_bytes, offset);
        let more = self.store_all(name, id, cutter, source, last, kept.len(), replication, see).await?;
        kept.extend(more);
        let record = FileRecord { modified_us: now_us(), chunks: kept, ..file.record.clone() };
        self.replace(file, record).await
    }

    /// Gives a file another record, also where it was written meanwhile who has its chunks.
    pub(super) async fn replace(&self, mut file: File, mut record: FileRecord) -> Result<File, FilesError> {
        loop {
            let (name, version) = (file.name.clone(), file.version);
            let changed = match self.operate(FileOperation::Replace { name, version, record: record.clone() }).await {
                Ok(FileAnswer::Done { version }) => return Ok(File { record, version, ..file }),
                Ok(_) => return Err(unexpected()),
                Err(error) if error.kind == FilesErrorKind::Changed => error,
                Err(error) => return Err(error),
            };
            let now = self.stat(&file.name).await?;
            if now.record.is_as_written(&record) {
                // It was done, and the answer lost.
                return Ok(now);
            }
            if !now.record.is_as_written(&file.record) {
                return Err(changed);
            }
            for (chunk, now) in record.chunks.iter_mut().zip(&now.record.chunks) {
                if chunk.object == now.object {
                    chunk.replicas.clone_from(&now.replicas);
                }
            }
            file = now;
        }
    }

    /// Stores all that follows what there is already of a chunk; `before` it are so many chunks.
    #[expect(clippy::too_many_arguments, reason = "a file's shape, taken apart: a new one has no record yet")]
    async fn store_all(
        &self,
        name: &FileName,
        id: FileId,
        cutter: Cutter,
        source: impl Read + Send + 'static,
        begun: Vec<u8>,
        before: usize,
        replication: u8,
        mut see: impl FnMut(u64),
    ) -> Result<Vec<Chunk>, FilesError> {
        let began = Instant::now();
        self.gather(replication.into(), |_| {}).await?;
        let (sender, mut pieces) = mpsc::channel(1);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = cut(cutter, source, begun, &sender) {
                let _ = sender.blocking_send(Piece::Failed(error));
            }
        });
        let (mut chunks, mut under_way) = (Vec::<Option<Chunk>>::new(), JoinSet::new());
        let mut stored_bytes = 0;
        loop {
            let is_full = under_way.len() >= CHUNKS_TOGETHER;
            tokio::select! {
                Some(stored) = under_way.join_next() => {
                    let (place, chunk): (usize, Result<Chunk, FilesError>) =
                        stored.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                    let chunk = chunk?;
                    stored_bytes += chunk.size_bytes;
                    see(stored_bytes);
                    chunks[place] = Some(chunk);
                }
                piece = pieces.recv(), if !is_full => match piece {
                    Some(Piece::Chunk(content)) => {
                        let place = chunks.len();
                        if before + place == MAX_CHUNKS {
                            return Err(too_many_chunks(name));
                        }
                        chunks.push(None);
                        let files = self.clone();
                        under_way.spawn(async move { (place, files.store(id, content, replication).await) });
                    }
                    Some(Piece::Failed(error)) => return Err(error),
                    None => break,
                },
            }
        }
        while let Some(stored) = under_way.join_next().await {
            let (place, chunk) = stored.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
            let chunk = chunk?;
            stored_bytes += chunk.size_bytes;
            see(stored_bytes);
            chunks[place] = Some(chunk);
        }
        if began.elapsed() > MAX_WRITING {
            let message = format!("{name} took more than 12 hours to be written: write it in parts, with append");
            return Err(FilesError::invalid(message));
        }
        Ok(chunks.into_iter().flatten().collect())
    }

    /// Stores a chunk on as many nodes as it is to have replicas, other ones if some cannot take it.
    pub(super) async fn store(&self, id: FileId, content: Vec<u8>, replication: u8) -> Result<Chunk, FilesError> {
        let (size_bytes, checksum) = (content.len() as u64, Checksum::of(&content).0);
        let object = Chunk::object_of(id, size_bytes, checksum);
        let content = Arc::new(content);
        let chunk = OutgoingChunk { object, size_bytes, checksum, content };
        let (mut replicas, mut full, mut failed) = (Vec::<Member>::new(), BTreeSet::new(), BTreeSet::new());
        let (deadline, mut pause, mut why) = (self.deadline(), PAUSE, None);
        loop {
            let known = self.known();
            let may_take = |node: NodeId| {
                let member = known.members.get(&node);
                let has_room = member.is_some_and(|member| member.free_bytes >= size_bytes);
                has_room && !full.contains(&node) && !failed.contains(&node)
            };
            let wanted = replica_targets(&known.ring, object, replication, None, may_take);
            let has = |node: &NodeId| replicas.iter().any(|replica| replica.node == *node);
            let further: Vec<_> =
                wanted.iter().filter(|node| !has(node)).filter_map(|node| known.members.get(node)).collect();
            let lacking = usize::from(replication).min(known.size()).saturating_sub(replicas.len());
            let further = &further[..further.len().min(lacking)];
            // Where some nodes are down or full, fewer will do for now, as long as there is more than one: the leader has
            // the others made when it can.
            let is_enough = replicas.len() >= usize::from(replication).min(2).min(known.size()).max(1);
            if further.is_empty() {
                if is_enough {
                    break;
                }
                if failed.is_empty() || Instant::now() >= deadline {
                    return Err(why.unwrap_or_else(|| no_room(size_bytes)));
                }
                failed.clear();
                self.pause(&mut pause).await;
            }
            for (member, stored) in self.chain(&chunk, replicas.first(), further).await {
                match stored {
                    Ok(()) => replicas.push(member),
                    Err(error) => {
                        tracing::info!(node = %member.node, "a node does not take a chunk: {error}");
                        match error.kind {
                            FilesErrorKind::Full => full.insert(member.node),
                            _ => failed.insert(member.node),
                        };
                        why = Some(error);
                    }
                }
            }
            if !failed.is_empty() {
                // A node that died is known to have soon.
                self.refresh(deadline).await?;
            }
        }
        Ok(Chunk { object, size_bytes, checksum, replicas: replicas.iter().map(|replica| replica.node).collect() })
    }

    /// Has a chunk stored by these nodes: one gets it from who has it, or from here, the next from that one while it comes.
    /// Who has no room is left out of the chain. Tells who has it, and of those who do not, whose fault that is.
    pub(crate) async fn chain(
        &self,
        chunk: &OutgoingChunk,
        from: Option<&Member>,
        to: &[&Member],
    ) -> Vec<(Member, Result<(), FilesError>)> {
        let mut source = from.map(|member| member.transfer);
        let (mut links, mut ended) = (Vec::new(), Vec::new());
        for member in to.iter().map(|member| **member) {
            match self.begin(&member, chunk, source).await {
                Ok(begun) => {
                    let (files, chunk) = (self.clone(), chunk.clone());
                    let brings = source.is_none();
                    links.push((
                        member,
                        tokio::spawn(async move { files.store_on(&member, chunk, begun, brings).await }),
                    ));
                    source = Some(member.transfer);
                }
                Err(error) => ended.push((member, Err(error))),
            }
        }
        let mut is_broken = false;
        for (member, link) in links {
            let stored = link.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
            // Behind the first that breaks the chain, nobody can be blamed.
            if stored.is_ok() || !is_broken {
                is_broken |= stored.is_err();
                ended.push((member, stored));
            }
        }
        ended
    }

    /// Asks a node to store a chunk; none if it has it already.
    async fn begin(
        &self,
        member: &Member,
        chunk: &OutgoingChunk,
        from: Option<SocketAddr>,
    ) -> Result<Option<Replies>, FilesError> {
        let OutgoingChunk { object, size_bytes, checksum, .. } = *chunk;
        let mut replies =
            self.0.calls.ask(member.address, RequestBody::Store { object, size_bytes, checksum, from }).await?;
        let ready = timeout(ANSWER_DEADLINE, replies.next()).await.unwrap_or_else(|_| Err(silent(member)));
        match ready? {
            ResponseBody::Ready => Ok(Some(replies)),
            ResponseBody::Stored(stored) => {
                stored.map(|()| None).map_err(|why| not_stored(member, FilesErrorKind::Full, &why))
            }
            _ => Err(unexpected()),
        }
    }

    /// Waits until a node that has room for a chunk has stored it, which this client `brings` or another node gives.
    async fn store_on(
        &self,
        member: &Member,
        chunk: OutgoingChunk,
        begun: Option<Replies>,
        brings: bool,
    ) -> Result<(), FilesError> {
        let Some(mut replies) = begun else { return Ok(()) };
        if brings {
            let pushed = self.0.peers.push(member.transfer, chunk.object, chunk.content).await;
            pushed.map_err(|error| FilesError::unreachable(error.message))?;
        }
        let stored = timeout(STORE_DEADLINE, replies.next()).await.unwrap_or_else(|_| Err(silent(member)));
        match stored? {
            ResponseBody::Stored(stored) => stored.map_err(|why| not_stored(member, FilesErrorKind::Unreachable, &why)),
            _ => Err(unexpected()),
        }
    }
}

fn silent(member: &Member) -> FilesError {
    FilesError::unreachable(format!("node {} does not answer", member.node))
}

fn no_room(bytes: u64) -> FilesError {
    FilesError::new(FilesErrorKind::Full, format!("no node has room for a chunk of {bytes} bytes"))
}

fn not_stored(member: &Member, kind: FilesErrorKind, why: &str) -> FilesError {
    FilesError::new(kind, format!("node {} cannot store a chunk: {why}", member.node))
}

/// A chunk on its way to nodes.
#[derive(Clone)]
pub(crate) struct OutgoingChunk {
    pub object: ObjectId,
    pub size_bytes: u64,
    pub checksum: u64,
    /// Nothing where a node has it.
    pub content: Arc<Vec<u8>>,
}

/// Reads a source to its end, behind what has `begun` a chunk, and sends it on in chunks.
fn cut(
    mut cutter: Cutter,
    mut source: impl Read,
    begun: Vec<u8>,
    chunks: &mpsc::Sender<Piece>,
) -> Result<(), FilesError> {
    let bad = |error: eyas_blocks::format::BadContent| FilesError::invalid(error.to_string());
    let (mut fresh, mut chunk) = (begun, Vec::new());
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let mut bytes = &fresh[..];
        while let Some(end) = cutter.cut(bytes).map_err(bad)? {
            chunk.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end..];
            if chunks.blocking_send(Piece::Chunk(std::mem::take(&mut chunk))).is_err() {
                return Ok(());
            }
        }
        chunk.extend_from_slice(bytes);
        if chunk.len() > MAX_CHUNK_BYTES {
            let message = format!("it has a record of more than {MAX_CHUNK_BYTES} bytes; is this its format?");
            return Err(FilesError::invalid(message));
        }
        let read = loop {
            match source.read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FilesError::local("cannot read what is to be written", &error)),
                Ok(read) => break read,
            }
        };
        if read == 0 {
            break;
        }
        fresh.clear();
        fresh.extend_from_slice(&buffer[..read]);
    }
    let _: Ending = cutter.finish().map_err(bad)?;
    if !chunk.is_empty() {
        // Whoever does not take it any more has failed.
        let _ = chunks.blocking_send(Piece::Chunk(chunk));
    }
    Ok(())
}

fn too_many_chunks(name: &FileName) -> FilesError {
    FilesError::invalid(format!("{name} would have more than {MAX_CHUNKS} chunks: write it with larger ones"))
}

/// A number that nobody else draws.
pub(crate) fn random() -> Result<u128, FilesError> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| FilesError::local("cannot draw a number", &errno.into()))?;
    Ok(u128::from_le_bytes(bytes))
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
