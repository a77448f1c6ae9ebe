//! Reading: each chunk is read from any replica, near and fast ones first, and checked against its
//! checksum. A bad replica is reported, and the next one is tried.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_blocks::format::piece_ends;
use eyas_reading::{ChunkHolder, ChunkMap, in_order};
use eyas_store::Checksum;
use eyas_transfer::{PeerErrorKind, Peers};
use eyas_types::dfs::{Chunk, FileRecord};

use crate::backoff::Backoff;
use crate::chunk_sizes::SMALL_CHUNK_BYTES;
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::groups::{Groups, WantedSmallChunk};
use crate::names::Names;
use crate::near::{ChunkContent, Division, NearStores, OpenChunk, undivided};
use crate::places::{BlockPlace, places_of};
use crate::protocol::{Member, SmallContent};
use crate::random::random;
use crate::routes::Routes;

/// Number of bytes of a chunk that are requested at a time.
const RANGE_BYTES: u64 = 16 << 20;

/// Content that may not be on the disks, and that no node can deliver, is read again for this time:
/// until then, its leader brings the version before back.
const UNSYNCED_PATIENCE: Duration = Duration::from_secs(10);

/// A part of a chunk.
pub(crate) struct ReadPart {
    pub content: Vec<u8>,
    /// Whether the part came from the node on this machine.
    pub is_near: bool,
}

/// A replica could not be read.
struct BadPart {
    /// Whether the replica is missing or damaged, and must be reported.
    is_bad: bool,
    why: String,
}

/// Reads chunks of files from their replicas.
pub(crate) struct ChunkReader {
    routes: Arc<Routes>,
    names: Arc<Names>,
    pub near: Arc<NearStores>,
    peers: Peers,
    /// Small chunks that are read at the same time come together.
    small_reads: Groups<WantedSmallChunk>,
    /// Random number that distributes reads of different clients over equal replicas.
    turn: usize,
}

impl ChunkReader {
    pub fn new(
        routes: Arc<Routes>,
        names: Arc<Names>,
        near: Arc<NearStores>,
        peers: Peers,
    ) -> Result<Self, FilesError> {
        let (small_reads, turn) = (Groups::new(routes.calls.clone()), random()? as usize);
        Ok(ChunkReader { routes, names, near, peers, small_reads, turn })
    }

    /// Where the chunks of a file are, in order. If a node that has one is not known to be alive,
    /// the nodes are asked once which are; if none answers, the places are those that this client
    /// knows.
    pub async fn places(&self, file: &File) -> Vec<BlockPlace> {
        let members = self.routes.known().members;
        let mut holders = file.record.chunks.iter().flat_map(|chunk| &chunk.replicas);
        if !holders.all(|node| members.contains_key(node))
            && let Err(error) = self.routes.refresh(Instant::now()).await
        {
            tracing::debug!("no node says which nodes are alive: {error}");
        }
        places_of(&file.record, &self.routes.known().members, self.near.node())
    }

    /// Opens the chunk with this index.
    pub async fn open(
        &self,
        file: &File,
        index: usize,
        division: Division,
    ) -> Result<OpenChunk, FilesError> {
        if let Some(opened) = self.near.open(&file.record.chunks[index], division).await {
            return Ok(opened);
        }
        let (content, Division { format, pieces, .. }) = (self.chunk(file, index).await?, division);
        let ends = piece_ends(format, &content, pieces)
            .unwrap_or_else(|_| undivided(content.len(), pieces));
        Ok(OpenChunk { content: ChunkContent::Bytes(content), ends })
    }

    /// The chunk with this index, divided into this number of pieces. `Changed` if another client
    /// has replaced it.
    pub async fn open_chunk(
        &self,
        file: &File,
        index: usize,
        pieces: u32,
        may_map: bool,
    ) -> Result<OpenChunk, FilesError> {
        let division = Division { format: *file.record.format, pieces, may_map };
        match self.open(file, index, division).await {
            Err(lost) if lost.kind == FilesErrorKind::Lost => {
                let now = self.names.stat(&file.name).await?;
                let object =
                    |record: &FileRecord| record.chunks.get(index).map(|chunk| chunk.object);
                let is_same = object(&now.record) == object(&file.record);
                Err(if is_same { lost } else { FilesError::changed(&file.name) })
            }
            opened => opened,
        }
    }

    /// The content of the chunk with this index.
    pub async fn chunk(&self, file: &File, index: usize) -> Result<Vec<u8>, FilesError> {
        Ok(self.part(file, index, 0..file.record.chunks[index].size_bytes).await?.content)
    }

    /// Reads a part of a chunk: from the store of the node on this machine if possible, otherwise
    /// from the first replica that can be read. If this fails, the chunk may have moved since the
    /// file was opened, and its current replicas are tried.
    pub async fn part(
        &self,
        file: &File,
        index: usize,
        range: Range<u64>,
    ) -> Result<ReadPart, FilesError> {
        let chunk = &file.record.chunks[index];
        if chunk.is_hole() {
            return Ok(ReadPart {
                content: vec![0; (range.end - range.start) as usize],
                is_near: false,
            });
        }
        if let Some(content) = self.near.read_local(chunk, range.clone()).await {
            return Ok(ReadPart { content, is_near: true });
        }
        let lost = match self.part_of(file, index, chunk, range.clone()).await {
            Err(lost) => lost,
            read => return read,
        };
        self.routes.refresh(Instant::now()).await?;
        let (until, mut pause) = (Instant::now() + UNSYNCED_PATIENCE, Backoff::default());
        loop {
            let Ok(File { record, .. }) = self.names.stat(&file.name).await else {
                return Err(lost);
            };
            let is_same = |now: &&Chunk| now.object == chunk.object && record.id == file.record.id;
            let Some(now) = record.chunks.iter().find(is_same) else { return Err(lost) };
            match self.part_of(file, index, now, range.clone()).await {
                // A power failure may have taken it. The leader is about to find that out, or a
                // node that has it is about to come back, perhaps under another address.
                Err(_) if record.unsynced.is_some() && Instant::now() < until => {
                    pause.wait().await;
                    self.routes.refresh(until).await?;
                }
                read => return read,
            }
        }
    }

    /// Reads a part of a chunk from the first replica that has it.
    async fn part_of(
        &self,
        file: &File,
        index: usize,
        chunk: &Chunk,
        range: Range<u64>,
    ) -> Result<ReadPart, FilesError> {
        let mut tried = Vec::new();
        for member in self.in_order(chunk, index) {
            let node = member.node;
            let read = match range == (0..chunk.size_bytes)
                && chunk.size_bytes <= SMALL_CHUNK_BYTES as u64
            {
                true => self.small_from(&member, chunk).await,
                false => self.part_from(member.transfer, chunk, range.clone()).await,
            };
            match read {
                Ok(content) => {
                    return Ok(ReadPart { content, is_near: Some(node) == self.near.node() });
                }
                Err(BadPart { is_bad, why }) => {
                    if is_bad {
                        self.names.tell_bad(&file.name, vec![chunk.object], node).await;
                    }
                    tried.push(why);
                }
            }
        }
        let why = if tried.is_empty() {
            "no node that has it answers".to_owned()
        } else {
            tried.join("; ")
        };
        let start: u64 = file.record.chunks[..index].iter().map(|chunk| chunk.size_bytes).sum();
        let last = (start + chunk.size_bytes).saturating_sub(1);
        let message = format!(
            "chunk {index} (bytes {start} to {last}) of {} cannot be read: {why}. `eyas dfs \
             verify` says what is lost",
            file.name
        );
        Err(FilesError::new(FilesErrorKind::Lost, message))
    }

    /// Reads a small chunk from one replica, with other small chunks that are read meanwhile.
    async fn small_from(&self, member: &Member, chunk: &Chunk) -> Result<Vec<u8>, BadPart> {
        let Member { node, address, .. } = *member;
        let wanted = WantedSmallChunk { object: chunk.object, size_bytes: chunk.size_bytes };
        match self.small_reads.ask(address, wanted).await {
            Ok(SmallContent::Whole(content)) if Checksum::of(&content).0 == chunk.checksum => {
                Ok(content)
            }
            Ok(SmallContent::Whole(_)) => {
                Err(BadPart { is_bad: true, why: format!("node {node} has other content for it") })
            }
            Ok(SmallContent::Missing) => {
                Err(BadPart { is_bad: true, why: format!("node {node} does not have it") })
            }
            Ok(SmallContent::Failed(why)) => {
                Err(BadPart { is_bad: false, why: format!("node {node} cannot read it: {why}") })
            }
            Err(error) => Err(BadPart { is_bad: false, why: error.message }),
        }
    }

    /// Reads from one replica. The error says whether the replica is bad, and why.
    async fn part_from(
        &self,
        addr: SocketAddr,
        chunk: &Chunk,
        range: Range<u64>,
    ) -> Result<Vec<u8>, BadPart> {
        let mut part = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let length = RANGE_BYTES.min(range.end - at);
            match self.peers.read_range(addr, chunk.object, at, length).await {
                Ok(bytes) if part.is_empty() => part = bytes,
                Ok(bytes) => part.extend_from_slice(&bytes),
                Err(error) => {
                    let is_bad = matches!(
                        error.kind,
                        PeerErrorKind::NotHere
                            | PeerErrorKind::Corrupt
                            | PeerErrorKind::OtherVersion
                    );
                    return Err(BadPart { is_bad, why: error.message });
                }
            }
            at += length;
        }
        let is_whole = range == (0..chunk.size_bytes);
        if is_whole && Checksum::of(&part).0 != chunk.checksum {
            return Err(BadPart {
                is_bad: true,
                why: format!("peer {addr} has other content for it"),
            });
        }
        Ok(part)
    }

    /// The holders of a chunk in the order in which they are tried.
    fn in_order(&self, chunk: &Chunk, index: usize) -> Vec<Member> {
        let known = self.routes.known();
        let alive = chunk.replicas.iter().filter_map(|node| known.members.get(node));
        let members: Vec<Member> = alive.copied().collect();
        let holder = |Member { node, transfer, .. }: &Member| ChunkHolder {
            is_other: Some(*node) != self.near.node(),
            is_remote: !self.near.is_own(transfer.ip()),
            time_us: self.peers.estimate(*transfer, chunk.size_bytes, 0).as_micros() as u64,
        };
        let holders: Vec<ChunkHolder> = members.iter().map(holder).collect();
        in_order(&holders, self.turn.wrapping_add(index))
            .into_iter()
            .map(|holder| members[holder])
            .collect()
    }
}

/// Where the chunks of a file are.
pub(crate) fn chunk_map(record: &FileRecord) -> ChunkMap {
    ChunkMap::new(record.chunks.iter().map(|chunk| chunk.size_bytes))
}
