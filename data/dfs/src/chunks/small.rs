//! Groups of small chunks, whose content comes with the request: they are written one after the
//! other, and become durable together.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use eyas_files::SMALL_CHUNK_BYTES;
use eyas_files::protocol::{ChunkSpec, SmallChunk, SmallContent, StoreFailure};
use eyas_ring::{FileChunks, RecordVersion};
use eyas_store::{Checksum, Seal, StoreError, StoreErrorKind};
use eyas_types::ObjectId;
use eyas_types::dfs::FileName;
use tokio::task::block_in_place;

use crate::chunks::{ChunkError, NodeChunks, OwnedChunk, Reservation};
use crate::database::OwnChunk;

/// Maximum number of bytes of chunks in an answer to a reader.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

impl NodeChunks {
    /// Stores small chunks. If `is_durable` is set, they are on the disk when this returns. Returns
    /// one value for each chunk.
    pub async fn store_all(
        &self,
        chunks: &[SmallChunk],
        is_durable: bool,
    ) -> Vec<Result<(), StoreFailure>> {
        let mut results = vec![Ok(()); chunks.len()];
        let mut reserved = Vec::with_capacity(chunks.len());
        // All groups reserve space in one order, so that no two of them wait for each other.
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.sort_by_key(|index| chunks[*index].object);
        let is_same = |one: &usize, other: &usize| chunks[*one].object == chunks[*other].object;
        for same in order.chunk_by(is_same) {
            let (index, chunk) = (same[0], &chunks[same[0]]);
            let size_bytes = chunk.content.len() as u64;
            let wanted = ChunkSpec { object: chunk.object, size_bytes, checksum: chunk.checksum };
            match self.prepare(wanted).await {
                Ok(reservation) => reserved.push((index, wanted, reservation)),
                Err(error) => results[index] = Err(failure(&error)),
            }
        }
        let mut written: Vec<(usize, Option<Reservation<'_>>, OwnedEntry)> =
            Vec::with_capacity(reserved.len());
        // While this thread blocks, another one runs its other tasks. Handing them over costs time,
        // so it is done once for the whole group.
        block_in_place(|| {
            for (index, wanted, reservation) in reserved {
                let ChunkSpec { object, size_bytes, checksum } = wanted;
                match reservation
                    .map_or(Ok(None), |reservation| self.write(reservation, &chunks[index].content))
                {
                    Ok(reservation) => written.push((
                        index,
                        reservation,
                        (object, OwnChunk { size_bytes, checksum }),
                    )),
                    Err(error) => results[index] = Err(failure(&error)),
                }
            }
        });
        let entries: Vec<OwnedEntry> = written.iter().map(|(.., entry)| *entry).collect();
        let recorded = self.record(&entries, is_durable).await;
        let mut arrived = Vec::with_capacity(written.len());
        for (index, reservation, _) in written {
            match (&recorded, reservation) {
                (Ok(()), reservation) => arrived.extend(reservation.map(Reservation::stored)),
                (Err(error), reservation) => {
                    results[index] = Err(failure(error));
                    // The result is reported above.
                    drop(
                        reservation
                            .map(|reservation| reservation.finish(Err(ChunkError::NoSource))),
                    );
                }
            }
        }
        self.room.arrived_all(&arrived);
        for same in order.chunk_by(is_same) {
            same[1..].iter().for_each(|index| results[*index] = results[same[0]].clone());
        }
        results
    }

    /// Records chunks that were written as chunks of this node.
    async fn record(
        &self,
        entries: &[OwnedEntry],
        is_durable: bool,
    ) -> Result<(), Arc<ChunkError>> {
        match is_durable && !entries.is_empty() {
            true => self.durable.sync(entries.to_vec()).await?,
            false => self.database.own(entries),
        }
        self.store.mark_irreplaceable(entries.iter().map(|(object, _)| *object));
        let mut own = self.own();
        for (object, chunk) in entries {
            let stored = OwnedChunk::stored(*chunk, own.get(object));
            own.insert(*object, stored);
        }
        Ok(())
    }

    /// Reads small chunks of this node. Returns one value for each chunk. Blocks.
    pub fn contents(&self, objects: &[ObjectId]) -> Vec<SmallContent> {
        let (mut contents, mut answer_bytes) = (Vec::with_capacity(objects.len()), 0);
        for object in objects {
            let size_bytes = self.own().get(object).map_or(0, |own| own.chunk.size_bytes);
            contents.push(match fits(&mut answer_bytes, size_bytes) {
                true => self.content(*object),
                false => {
                    SmallContent::Failed(format!("an answer has at most {MAX_ANSWER_BYTES} bytes"))
                }
            });
        }
        contents
    }

    fn content(&self, object: ObjectId) -> SmallContent {
        // A task of this node may have written to the chunk through its link.
        if !self.is_own(object) || self.store.verify_seal(object) != Seal::Intact {
            return SmallContent::Missing;
        }
        match self.store.content(object) {
            Ok(content) => SmallContent::Whole(content),
            Err(error) if error.kind == StoreErrorKind::NotHere => SmallContent::Missing,
            Err(error) => SmallContent::Failed(error.to_string()),
        }
    }

    /// Begins to write a chunk to the disk, so that [`sync`](Self::sync) has less to wait for.
    pub fn start_writing(&self, object: ObjectId) {
        if let Err(error) = self.store.start_writing(object) {
            tracing::debug!(
                %object, %error,
                "a chunk is not written to the disk before it is synced"
            );
        }
    }

    /// Forces chunks of this node to the disk. They stay here for another day if no file has them
    /// yet.
    pub async fn sync(&self, objects: &[ObjectId]) -> Result<(), Arc<ChunkError>> {
        if objects.is_empty() {
            return Ok(());
        }
        let entry = |object: &ObjectId| self.own().get(object).map(|own| (*object, own.chunk));
        let entries: Vec<OwnedEntry> = objects.iter().filter_map(entry).collect();
        if entries.len() < objects.len() {
            return Err(Arc::new(ChunkError::NotHere));
        }
        // The client still needs them for a file that has not appeared.
        objects.iter().for_each(|object| self.renew(*object));
        self.durable.sync(entries).await
    }

    /// Forces chunks to the disk for the leader of their files, and returns the files with those
    /// that are missing or damaged here. A chunk that is here and was not recorded is recorded.
    /// Files are left out if the disk fails now, and if another call has begun with them.
    pub async fn secure(&self, mut files: Vec<FileChunks>) -> Vec<FileChunks> {
        let _securing = PendingSync::begin(self, &mut files);
        let objects: Vec<ObjectId> = files.iter().flat_map(|file| &file.objects).copied().collect();
        let mut bad: BTreeSet<ObjectId> = self.audited(&objects).await.into_iter().collect();
        // After a start of the node, each chunk is read once.
        block_in_place(|| {
            files.retain(|file| match self.damaged_of(file, &bad) {
                Ok(damaged) => {
                    bad.extend(damaged);
                    true
                }
                Err(error) => {
                    tracing::warn!(
                        "cannot read chunks of {}; its leader asks again: {error}",
                        file.name
                    );
                    false
                }
            });
        });
        loop {
            let good: Vec<ObjectId> = files.iter().flat_map(|file| good_of(file, &bad)).collect();
            let Err(error) = self.sync(&good).await else { break };
            // Chunks may have been deleted meanwhile.
            let gone = if error.is_not_here() { self.audited(&good).await } else { Vec::new() };
            if gone.is_empty() {
                tracing::warn!(
                    "cannot force chunks of files to the disk; their leaders ask again: {error}"
                );
                return Vec::new();
            }
            bad.extend(gone);
        }
        files.iter_mut().for_each(|file| file.objects.retain(|object| bad.contains(object)));
        files
    }

    /// Reads those chunks of a file that were not read since the start of the node, and returns
    /// damaged ones. Blocks.
    fn damaged_of(
        &self,
        file: &FileChunks,
        bad: &BTreeSet<ObjectId>,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let mut damaged = Vec::new();
        for object in good_of(file, bad) {
            if !self.store.verify(object)? {
                damaged.push(object);
            }
        }
        Ok(damaged)
    }

    /// Writes a chunk to the store. Blocks.
    fn write<'a>(
        &self,
        reservation: Reservation<'a>,
        content: &[u8],
    ) -> Result<Option<Reservation<'a>>, ChunkError> {
        let ChunkSpec { object, checksum, .. } = reservation.wanted;
        if Checksum::of(content).0 != checksum {
            return reservation.finish(Err(ChunkError::OtherPush)).map(|()| None);
        }
        match self.store.put(object, content) {
            Ok(_) => Ok(Some(reservation)),
            Err(error) => reservation.finish(Err(error.into())).map(|()| None),
        }
    }
}

/// Files whose chunks are being forced to the disk. A leader that waits for long asks again.
struct PendingSync<'a> {
    chunks: &'a NodeChunks,
    files: Vec<(FileName, RecordVersion)>,
}

impl<'a> PendingSync<'a> {
    /// Begins with these files, and leaves out those with which another call has begun.
    fn begin(chunks: &'a NodeChunks, files: &mut Vec<FileChunks>) -> Self {
        let mut securing = chunks.securing.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| securing.insert((file.name.clone(), file.version)));
        PendingSync {
            chunks,
            files: files.iter().map(|file| (file.name.clone(), file.version)).collect(),
        }
    }
}

impl Drop for PendingSync<'_> {
    fn drop(&mut self) {
        let mut securing = self.chunks.securing.lock().unwrap_or_else(PoisonError::into_inner);
        self.files.iter().for_each(|file| _ = securing.remove(file));
    }
}

type OwnedEntry = (ObjectId, OwnChunk);

/// The chunks of a file that are not among these.
fn good_of<'a>(
    file: &'a FileChunks,
    bad: &'a BTreeSet<ObjectId>,
) -> impl Iterator<Item = ObjectId> + 'a {
    file.objects.iter().filter(|object| !bad.contains(object)).copied()
}

/// Whether a chunk of this size still fits in an answer. If so, the chunk counts. One that does not
/// fit leaves the room to those after it.
fn fits(answer_bytes: &mut u64, size_bytes: u64) -> bool {
    let fits =
        size_bytes <= SMALL_CHUNK_BYTES as u64 && *answer_bytes + size_bytes <= MAX_ANSWER_BYTES;
    *answer_bytes += if fits { size_bytes } else { 0 };
    fits
}

pub(crate) fn failure(error: &ChunkError) -> StoreFailure {
    match error {
        ChunkError::Space(_) => StoreFailure::NoSpace(error.to_string()),
        ChunkError::SpaceSoon(_) => StoreFailure::NoSpaceNow(error.to_string()),
        ChunkError::Store(error) if error.kind == StoreErrorKind::Full => {
            StoreFailure::NoSpace(error.to_string())
        }
        error => StoreFailure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_that_does_not_fit_leaves_the_room_to_others() {
        let small = SMALL_CHUNK_BYTES as u64;
        let mut bytes = 0;
        assert!(!fits(&mut bytes, MAX_ANSWER_BYTES) && !fits(&mut bytes, u64::MAX / 2));
        let count = MAX_ANSWER_BYTES / small;
        assert!((0..count).all(|_| fits(&mut bytes, small)));
        assert!(!fits(&mut bytes, small) && bytes == count * small);
        let left = MAX_ANSWER_BYTES - bytes;
        assert!(fits(&mut bytes, left) && !fits(&mut bytes, 1));
    }
}
