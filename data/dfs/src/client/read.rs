//! Reading: each chunk is read from any replica, near and fast ones first, and checked against its checksum. A bad
//! replica is reported, and the next one is tried.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_store::Checksum;
use eyas_transfer::PeerErrorKind;
use eyas_types::dfs::Chunk;
use tokio::task::JoinHandle;

use crate::client::error::{FilesError, FilesErrorKind};
use crate::client::groups::WantedSmallChunk;
use crate::client::{DfsClient, File, PAUSE, SMALL_CHUNK_BYTES};
use crate::protocol::{Member, SmallContent};

/// Number of chunks that are fetched ahead.
const CHUNKS_AHEAD: usize = 4;

/// Number of bytes of a chunk that are requested at a time.
const RANGE_BYTES: u64 = 16 << 20;

/// Content that may not be on the disks, and that no node can deliver, is read again for this time: until then, its
/// leader brings the version before back.
const UNSYNCED_PATIENCE: Duration = Duration::from_secs(10);

/// A reader of a range of a file. It returns parts of chunks in order.
pub struct Reading {
    files: DfsClient,
    file: Arc<File>,
    /// The parts that are not being fetched yet: index of the chunk and range in it.
    rest: VecDeque<(usize, Range<u64>)>,
    ahead: VecDeque<Ahead>,
    near_bytes: u64,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilePart {
    /// These bytes.
    Bytes(Vec<u8>),
    /// This number of zeros, which no node stores.
    Hole(u64),
}

/// A part that is next.
enum Ahead {
    Fetched(JoinHandle<Result<ReadPart, FilesError>>),
    Hole(u64),
}

/// A part of a chunk.
struct ReadPart {
    content: Vec<u8>,
    /// Whether the part came from the node on this machine.
    is_near: bool,
}

impl Reading {
    /// The bytes of the next part, also if they are a hole; `None` at the end.
    ///
    /// # Errors
    /// `Lost` if no replica of a chunk can be read.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, FilesError> {
        Ok(self.next_part().await?.map(|part| match part {
            FilePart::Bytes(bytes) => bytes,
            FilePart::Hole(bytes) => vec![0; bytes as usize],
        }))
    }

    /// The next part; `None` at the end.
    ///
    /// # Errors
    /// `Lost` if no replica of a chunk can be read.
    pub async fn next_part(&mut self) -> Result<Option<FilePart>, FilesError> {
        while self.ahead.len() < CHUNKS_AHEAD
            && let Some((place, range)) = self.rest.pop_front()
        {
            let (files, file) = (self.files.clone(), self.file.clone());
            self.ahead.push_back(match file.record.chunks[place].is_hole() {
                true => Ahead::Hole(range.end - range.start),
                false => Ahead::Fetched(tokio::spawn(async move { files.part(&file, place, range).await })),
            });
        }
        match self.ahead.pop_front() {
            None => Ok(None),
            Some(Ahead::Hole(bytes)) => Ok(Some(FilePart::Hole(bytes))),
            Some(Ahead::Fetched(fetched)) => {
                let fetched = fetched.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
                let ReadPart { content, is_near } = fetched?;
                self.near_bytes += if is_near { content.len() as u64 } else { 0 };
                Ok(Some(FilePart::Bytes(content)))
            }
        }
    }

    /// Number of bytes that the node on this machine has delivered.
    pub fn near_bytes(&self) -> u64 {
        self.near_bytes
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        for ahead in &self.ahead {
            if let Ahead::Fetched(fetched) = ahead {
                fetched.abort();
            }
        }
    }
}

/// A replica could not be read.
struct BadPart {
    /// Whether the replica is missing or damaged, and must be reported.
    is_bad: bool,
    why: String,
}

impl DfsClient {
    /// Reads a whole file.
    pub fn read(&self, file: &File) -> Reading {
        self.read_range(file, 0..file.record.size_bytes())
    }

    /// Reads `length` bytes from `offset`.
    ///
    /// # Errors
    /// `NotFound` if the file is shorter; `Lost`.
    pub async fn read_at(&self, file: &File, offset: u64, length: u64) -> Result<Vec<u8>, FilesError> {
        let size_bytes = file.record.size_bytes();
        let Some(end) = offset.checked_add(length).filter(|end| *end <= size_bytes) else {
            let message = format!("{} has {size_bytes} bytes, not {length} from {offset} on", file.name);
            return Err(FilesError::new(FilesErrorKind::NotFound, message));
        };
        let mut start = 0;
        for (place, chunk) in file.record.chunks.iter().enumerate() {
            if offset >= start && end <= start + chunk.size_bytes {
                return Ok(self.part(file, place, offset - start..end - start).await?.content);
            }
            start += chunk.size_bytes;
        }
        let mut reading = self.read_range(file, offset..end);
        let mut read = Vec::new();
        while let Some(part) = reading.next().await? {
            read.extend_from_slice(&part);
        }
        Ok(read)
    }

    /// The content of the chunk with this index.
    ///
    /// # Errors
    /// `Lost` if no replica of it can be read.
    ///
    /// # Panics
    /// If the file has no such chunk.
    pub async fn chunk(&self, file: &File, place: usize) -> Result<Vec<u8>, FilesError> {
        Ok(self.part(file, place, 0..file.record.chunks[place].size_bytes).await?.content)
    }

    /// Reads a range of a file, up to the end of the file.
    pub fn read_range(&self, file: &File, wanted: Range<u64>) -> Reading {
        let (mut rest, mut start) = (VecDeque::new(), 0);
        for (place, chunk) in file.record.chunks.iter().enumerate() {
            let end = start + chunk.size_bytes;
            let part = wanted.start.max(start)..wanted.end.min(end);
            if !part.is_empty() {
                rest.push_back((place, part.start - start..part.end - start));
            }
            start = end;
        }
        Reading { files: self.clone(), file: Arc::new(file.clone()), rest, ahead: VecDeque::new(), near_bytes: 0 }
    }

    /// Reads a part of a chunk: from the store of the node on this machine if possible, otherwise from the first
    /// replica that can be read. If this fails, the chunk may have moved since the file was opened, and its current
    /// replicas are tried.
    async fn part(&self, file: &File, place: usize, range: Range<u64>) -> Result<ReadPart, FilesError> {
        let chunk = &file.record.chunks[place];
        if chunk.is_hole() {
            return Ok(ReadPart { content: vec![0; (range.end - range.start) as usize], is_near: false });
        }
        if let Some(content) = self.part_near(chunk, range.clone(), false).await {
            return Ok(ReadPart { content, is_near: true });
        }
        let lost = match self.part_of(file, place, chunk, range.clone()).await {
            Err(lost) => lost,
            read => return read,
        };
        self.refresh(Instant::now()).await?;
        let (until, mut pause) = (Instant::now() + UNSYNCED_PATIENCE, PAUSE);
        loop {
            let Ok(File { record, .. }) = self.stat(&file.name).await else { return Err(lost) };
            let is_same = |now: &&Chunk| now.object == chunk.object && record.id == file.record.id;
            let Some(now) = record.chunks.iter().find(is_same) else { return Err(lost) };
            match self.part_of(file, place, now, range.clone()).await {
                // A power failure may have taken it. The leader is about to find that out, or a node that has it
                // is about to come back, perhaps under another address.
                Err(_) if record.unsynced.is_some() && Instant::now() < until => {
                    self.pause(&mut pause).await;
                    self.refresh(until).await?;
                }
                read => return read,
            }
        }
    }

    /// Reads a part of a chunk from the first replica that has it.
    async fn part_of(
        &self,
        file: &File,
        place: usize,
        chunk: &Chunk,
        range: Range<u64>,
    ) -> Result<ReadPart, FilesError> {
        let mut tried = Vec::new();
        for member in self.in_order(chunk, place) {
            let node = member.node;
            let read = match range == (0..chunk.size_bytes) && chunk.size_bytes <= SMALL_CHUNK_BYTES as u64 {
                true => self.small_from(&member, chunk).await,
                false => self.part_from(member.transfer, chunk, range.clone()).await,
            };
            match read {
                Ok(content) => return Ok(ReadPart { content, is_near: Some(node) == self.near() }),
                Err(BadPart { is_bad, why }) => {
                    if is_bad {
                        self.tell_bad(&file.name, vec![chunk.object], node).await;
                    }
                    tried.push(why);
                }
            }
        }
        let why = if tried.is_empty() { "no node that has it answers".to_owned() } else { tried.join("; ") };
        let start: u64 = file.record.chunks[..place].iter().map(|chunk| chunk.size_bytes).sum();
        let last = (start + chunk.size_bytes).saturating_sub(1);
        let message = format!(
            "chunk {place} (bytes {start} to {last}) of {} cannot be read: {why}. `eyas dfs verify` says what is lost",
            file.name
        );
        Err(FilesError::new(FilesErrorKind::Lost, message))
    }

    /// Reads a small chunk from one replica, with other small chunks that are read meanwhile.
    async fn small_from(&self, member: &Member, chunk: &Chunk) -> Result<Vec<u8>, BadPart> {
        let Member { node, address, .. } = *member;
        let wanted = WantedSmallChunk { object: chunk.object, size_bytes: chunk.size_bytes };
        match self.0.small_reads.ask(address, wanted).await {
            Ok(SmallContent::Whole(content)) if Checksum::of(&content).0 == chunk.checksum => Ok(content),
            Ok(SmallContent::Whole(_)) => {
                Err(BadPart { is_bad: true, why: format!("node {node} has other content for it") })
            }
            Ok(SmallContent::Missing) => Err(BadPart { is_bad: true, why: format!("node {node} does not have it") }),
            Ok(SmallContent::Failed(why)) => {
                Err(BadPart { is_bad: false, why: format!("node {node} cannot read it: {why}") })
            }
            Err(error) => Err(BadPart { is_bad: false, why: error.message }),
        }
    }

    /// Reads from one replica. The error says whether the replica is bad, and why.
    async fn part_from(&self, addr: SocketAddr, chunk: &Chunk, range: Range<u64>) -> Result<Vec<u8>, BadPart> {
        let mut part = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let length = RANGE_BYTES.min(range.end - at);
            match self.0.peers.read_range(addr, chunk.object, at, length).await {
                Ok(bytes) if part.is_empty() => part = bytes,
                Ok(bytes) => part.extend_from_slice(&bytes),
                Err(error) => {
                    let is_bad = matches!(error.kind, PeerErrorKind::NotHere | PeerErrorKind::Corrupt);
                    return Err(BadPart { is_bad, why: error.message });
                }
            }
            at += length;
        }
        let is_whole = range == (0..chunk.size_bytes);
        if is_whole && Checksum::of(&part).0 != chunk.checksum {
            return Err(BadPart { is_bad: true, why: format!("peer {addr} has other content for it") });
        }
        Ok(part)
    }

    /// The holders of a chunk in the order in which they are tried: the node on this machine, other nodes on this
    /// machine, then the fastest. Equal ones are ordered differently for each chunk and client, to distribute the
    /// load.
    fn in_order(&self, chunk: &Chunk, place: usize) -> Vec<Member> {
        let known = self.known();
        let alive = chunk.replicas.iter().filter_map(|node| known.members.get(node));
        let mut holders: Vec<Member> = alive.copied().collect();
        if !holders.is_empty() {
            let first = self.0.turn.wrapping_add(place) % holders.len();
            holders.rotate_left(first);
        }
        holders.sort_by_cached_key(|Member { node, transfer, .. }| {
            let magnitude = self.0.peers.estimate(*transfer, chunk.size_bytes, 0).as_micros().checked_ilog2();
            (Some(*node) != self.near(), self.0.own_address != Some(transfer.ip()), magnitude)
        });
        holders
    }
}
