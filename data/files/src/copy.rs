//! Copies: new files whose chunks are made on the nodes that have their content, so that no byte of
//! it crosses the network. A copy is a file of its own: its chunks are other objects, and removing
//! either file leaves the other.

pub(crate) mod retained;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eyas_types::dfs::{Chunk, FileId, FileName, Format, MAX_CHUNKS, NodeId, RecordFormat};
use eyas_types::{FileMode, ObjectId, ObjectSpec, shown};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::calls::Calls;
use crate::entries::Creation;
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::file::File;
use crate::folders::Folders;
use crate::names::Names;
use crate::outgoing::OutgoingChunk;
use crate::protocol::{
    ChunkSpec, CutChunk, CutFailure, CutRequest, Member, RequestBody, ResponseBody,
};
use crate::publish::{HiddenFile, Publisher};
use crate::read::ChunkReader;
use crate::replicas::{Replicas, not_stored};
use crate::routes::Routes;
use crate::uploads::{FileDraft, too_many_chunks};
use crate::write::options::WriteOptions;

/// Chunks that a node is asked to make with one request.
const DERIVED_TOGETHER: usize = 256;

/// Chunks whose further replicas are made at the same time.
const REPLICATED_TOGETHER: usize = 4;

/// Time for a node to make the chunks of one request.
const DERIVE_DEADLINE: Duration = Duration::from_secs(300);

/// Options of a file that is made of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOptions {
    /// The format of its records; chosen by the name and the first bytes if missing.
    pub format: Option<Format>,
    /// Target size of its chunks, bytes.
    pub chunk_bytes: u64,
    /// Number of replicas of each chunk.
    pub replication: u8,
}

/// Makes files of what nodes have already.
pub(crate) struct Copies {
    routes: Arc<Routes>,
    names: Arc<Names>,
    folders: Arc<Folders>,
    chunks: Arc<ChunkReader>,
    replicas: Arc<Replicas>,
    publisher: Arc<Publisher>,
}

impl Copies {
    pub fn new(
        names: Arc<Names>,
        folders: Arc<Folders>,
        chunks: Arc<ChunkReader>,
        replicas: Arc<Replicas>,
        publisher: Arc<Publisher>,
    ) -> Self {
        Copies { routes: folders.routes.clone(), names, folders, chunks, replicas, publisher }
    }

    /// Copies a file with its named attributes. Every node makes the new chunks of the chunks that
    /// it has; only replicas that are missing are sent from node to node.
    pub async fn copy(
        &self,
        from: &File,
        to: &FileName,
        replication: u8,
    ) -> Result<File, FilesError> {
        if self.routes.calls.behalf().is_some() {
            // The file may have been looked up by a client that may see more.
            self.names.lookup(&from.name).await?;
        }
        let record = &from.record;
        let chunk_bytes = record.chunk_bytes;
        let creation = Creation::of_process(record.attributes.mode);
        let options =
            WriteOptions { chunk_bytes, replication, creation, ..WriteOptions::of(record.format) };
        self.folders.prepare_name(to, creation).await?;
        self.routes.gather(replication.into(), |_| {}).await?;
        let mut draft = FileDraft::new(&self.replicas, to, replication)?;
        let mut specs = specs_of(draft.id, &record.chunks);
        specs.iter().for_each(|spec| draft.unclaimed.add(spec.object));
        let mut replicas = self.derive_chunks(from, &specs, true).await;
        self.store_missing(from, &draft, (&mut specs, &mut replicas)).await?;
        let made = specs.into_iter().zip(replicas).collect();
        let copy = self.complete_derived(&draft, made).await?;
        let copy = HiddenFile::of(&self.publisher, draft, options, copy);
        copy.with_named(record.named.clone()).create().await
    }

    /// Stores the chunks of a copy that no node has made.
    async fn store_missing(
        &self,
        from: &File,
        draft: &FileDraft<'_>,
        (specs, replicas): (&mut [ChunkSpec], &mut [Vec<Member>]),
    ) -> Result<(), FilesError> {
        for (index, replicas) in
            replicas.iter_mut().enumerate().filter(|(_, replicas)| replicas.is_empty())
        {
            if from.record.chunks[index].is_hole() {
                continue;
            }
            // Its nodes are gone, or full: the content goes through this process.
            let chunk = OutgoingChunk::of(draft.id, self.chunks.chunk(from, index).await?, false);
            let stored = self.replicas.store(chunk, draft.replication).await?;
            if stored.is_hole() {
                specs[index] = spec_like(&stored);
                continue;
            }
            let members = self.routes.known().members;
            replicas.extend(stored.replicas.iter().filter_map(|node| members.get(node)));
            if replicas.is_empty() {
                return Err(FilesError::unreachable(
                    "the nodes that have just stored a chunk are not reachable",
                ));
            }
        }
        Ok(())
    }

    /// Has every node make copies of the chunks of a file that it has. Returns the nodes that have
    /// made each of them. Copies that are not for a file stay for a day.
    pub async fn derive_chunks(
        &self,
        from: &File,
        specs: &[ChunkSpec],
        is_for_file: bool,
    ) -> Vec<Vec<Member>> {
        let chunks = &from.record.chunks;
        let mut by_node = BTreeMap::<NodeId, Vec<usize>>::new();
        for (index, chunk) in chunks.iter().enumerate() {
            chunk.replicas.iter().for_each(|node| by_node.entry(*node).or_default().push(index));
        }
        let (members, mut deriving) = (self.routes.known().members, JoinSet::new());
        for (node, indices) in by_node {
            let Some(member) = members.get(&node).copied() else { continue };
            let derived: Vec<_> =
                indices.iter().map(|index| (chunks[*index].object, specs[*index])).collect();
            let (calls, from) = (self.routes.calls.clone(), from.name.clone());
            deriving.spawn(async move {
                (member, indices, derive_on(&calls, &member, &from, &derived, is_for_file).await)
            });
        }
        let mut replicas = vec![Vec::<Member>::new(); specs.len()];
        while let Some(derived) = deriving.join_next().await {
            let (member, indices, derived) = derived.unwrap_or_else(eyas_panics::resume);
            for (index, made) in indices.into_iter().zip(derived) {
                match made {
                    Ok(()) => replicas[index].push(member),
                    Err(error) => {
                        tracing::info!(node = %member.node, "a node did not copy a chunk: {error}")
                    }
                }
            }
        }
        replicas
    }

    /// Makes a file of an object, of which the first of these nodes that has it cuts the chunks.
    /// The file has the permissions of the object, less the umask.
    pub async fn copy_object(
        &self,
        object: &ObjectSpec,
        nodes: &[SocketAddr],
        to: &FileName,
        options: CopyOptions,
    ) -> Result<File, FilesError> {
        let creation = Creation::of_process(FileMode::of_copy(object.mode.bits()).bits() as u16);
        let (object, base_name) = (object.id(), shown(object.base_name()).to_string());
        self.folders.prepare_name(to, creation).await?;
        self.routes.gather(options.replication.into(), |_| {}).await?;
        let members = self.routes.known().members;
        let holders = members.values().filter(|member| nodes.contains(&member.address));
        let missing = format!("no node of the file system has object {object}: try again");
        let is_guessed = options.format.is_none();
        let mut why = FilesError::new(FilesErrorKind::NotFound, missing);
        for member in holders {
            let cut = match self.cut_on(member, (object, &base_name), to, options).await {
                Err((true, _)) if options.format.is_none() => {
                    // It does not have the format that its name promises, so it is stored without
                    // records.
                    let is_compressed = Format::of_name(&base_name) == Some(Format::Whole);
                    let format = if is_compressed { Format::Whole } else { Format::BYTES };
                    let options = CopyOptions { format: Some(format), ..options };
                    self.cut_on(member, (object, &base_name), to, options).await
                }
                cut => cut,
            };
            match cut {
                Ok((draft, format, specs)) => {
                    let CopyOptions { chunk_bytes, replication, .. } = options;
                    let options = WriteOptions {
                        chunk_bytes,
                        replication,
                        creation,
                        ..WriteOptions::of(RecordFormat { format, is_guessed })
                    };
                    let chunks = specs.into_iter().map(|spec| (spec, vec![*member])).collect();
                    let made = self.complete_derived(&draft, chunks).await?;
                    return HiddenFile::of(&self.publisher, draft, options, made).create().await;
                }
                Err((true, error)) => return Err(error),
                Err((false, error)) => why = error,
            }
        }
        Err(why)
    }

    /// Has a node cut an object into the chunks of a new file. An error says whether the content is
    /// the cause.
    async fn cut_on<'a>(
        &self,
        member: &Member,
        (object, base_name): (ObjectId, &str),
        to: &'a FileName,
        options: CopyOptions,
    ) -> Result<(FileDraft<'a>, Format, Vec<ChunkSpec>), (bool, FilesError)> {
        let CopyOptions { mut format, chunk_bytes, replication } = options;
        let mut draft =
            FileDraft::new(&self.replicas, to, replication).map_err(|error| (false, error))?;
        let id = draft.id;
        let (mut specs, mut from) = (Vec::new(), 0);
        loop {
            let base_name = base_name.to_owned();
            let request =
                RequestBody::Cut(CutRequest { object, id, base_name, format, chunk_bytes, from });
            match ask_to_derive(&self.routes.calls, member, request)
                .await
                .map_err(|error| (false, error))?
            {
                ResponseBody::Cut(part) => {
                    let cut = specs.len();
                    specs.extend(part.chunks.iter().map(|chunk| match *chunk {
                        CutChunk { size_bytes, checksum, is_hole: true } => {
                            spec_like(&Chunk::hole(size_bytes, checksum))
                        }
                        CutChunk { size_bytes, checksum, is_hole: false } => {
                            spec_of(id, size_bytes, checksum)
                        }
                    }));
                    specs[cut..].iter().for_each(|spec| draft.unclaimed.add(spec.object));
                    if specs.len() > MAX_CHUNKS {
                        return Err((false, too_many_chunks(to)));
                    }
                    match part.next {
                        Some(next) => (from, format) = (next, Some(part.format)),
                        None => return Ok((draft, part.format, specs)),
                    }
                }
                ResponseBody::NotCut(CutFailure::Format(why)) => {
                    return Err((true, FilesError::new(FilesErrorKind::WrongFormat, why)));
                }
                ResponseBody::NotCut(CutFailure::NotStored(failure)) => {
                    return Err((false, not_stored(member, failure)));
                }
                _ => return Err((false, unexpected())),
            }
        }
    }

    /// Makes the missing replicas of chunks that some nodes have made, and forces all
    /// of them to the disks.
    async fn complete_derived(
        &self,
        draft: &FileDraft<'_>,
        chunks: Vec<(ChunkSpec, Vec<Member>)>,
    ) -> Result<Vec<Chunk>, FilesError> {
        let FileDraft { replication, is_durable, .. } = *draft;
        let mut made: Vec<Option<Chunk>> = vec![None; chunks.len()];
        let (mut rest, mut under_way) = (chunks.into_iter().enumerate(), JoinSet::new());
        loop {
            while under_way.len() < REPLICATED_TOGETHER
                && let Some((index, (spec, replicas))) = rest.next()
            {
                let (replicating, ChunkSpec { object, size_bytes, checksum }) =
                    (self.replicas.clone(), spec);
                let hole = Chunk::hole(size_bytes, checksum);
                if hole.object == object {
                    made[index] = Some(hole);
                    continue;
                }
                let chunk = OutgoingChunk {
                    object,
                    size_bytes,
                    checksum,
                    is_durable,
                    content: Arc::default(),
                };
                under_way.spawn(async move {
                    (index, replicating.replicate(chunk, replicas, replication).await)
                });
            }
            let Some(replicated) = under_way.join_next().await else { break };
            let (index, chunk) = replicated.unwrap_or_else(eyas_panics::resume);
            made[index] = Some(chunk?);
        }
        let chunks: Vec<Chunk> = made.into_iter().flatten().collect();
        self.replicas.sync_chunks(replication, &chunks.iter().collect::<Vec<_>>()).await?;
        Ok(chunks)
    }
}

/// Has a node make chunks of objects. Returns one value for each.
async fn derive_on(
    calls: &Calls,
    member: &Member,
    from: &FileName,
    derived: &[(ObjectId, ChunkSpec)],
    is_for_file: bool,
) -> Vec<Result<(), FilesError>> {
    let mut results = Vec::with_capacity(derived.len());
    for part in derived.chunks(DERIVED_TOGETHER) {
        let (from, derived) = (from.clone(), part.to_vec());
        let request = RequestBody::Derive { from, derived, is_for_file };
        match ask_to_derive(calls, member, request).await {
            Ok(ResponseBody::Derived(made)) if made.len() == part.len() => {
                let made = made
                    .into_iter()
                    .map(|failure| failure.map_or(Ok(()), |why| Err(not_stored(member, why))));
                results.extend(made);
            }
            Ok(_) => results.extend(part.iter().map(|_| Err(unexpected()))),
            Err(error) => results.extend(part.iter().map(|_| Err(error.clone()))),
        }
    }
    results
}

async fn ask_to_derive(
    calls: &Calls,
    member: &Member,
    request: RequestBody,
) -> Result<ResponseBody, FilesError> {
    let answered = async { calls.ask(member.address, request).await?.next().await };
    let late = || FilesError::unreachable(format!("node {} does not answer", member.node));
    timeout(DERIVE_DEADLINE, answered).await.unwrap_or_else(|_| Err(late()))
}

/// The copies of chunks for a file with this id.
fn specs_of(id: FileId, chunks: &[Chunk]) -> Vec<ChunkSpec> {
    let spec = |chunk: &Chunk| match chunk.is_hole() {
        true => spec_like(chunk),
        false => spec_of(id, chunk.size_bytes, chunk.checksum),
    };
    chunks.iter().map(spec).collect()
}

fn spec_of(id: FileId, size_bytes: u64, checksum: u64) -> ChunkSpec {
    ChunkSpec { object: Chunk::object_of(id, size_bytes, checksum), size_bytes, checksum }
}

fn spec_like(chunk: &Chunk) -> ChunkSpec {
    ChunkSpec { object: chunk.object, size_bytes: chunk.size_bytes, checksum: chunk.checksum }
}
