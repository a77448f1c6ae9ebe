//! Groups of small chunks, whose content comes with the request: they are written one after the other, and become
//! durable together.

use std::sync::Arc;

use eyas_store::{Checksum, StoreErrorKind};
use eyas_types::ObjectId;
use tokio::task::block_in_place;

use crate::chunks::{ChunkError, ChunkSpec, NodeChunks, OwnedChunk, Reservation};
use crate::database::OwnChunk;
use crate::protocol::{SmallChunk, StoreFailure};

impl NodeChunks {
    /// Stores small chunks. If `is_durable` is set, they are on the disk when this returns. Returns one value for each
    /// chunk.
    pub async fn store_all(&self, chunks: &[SmallChunk], is_durable: bool) -> Vec<Result<(), StoreFailure>> {
        let mut results = vec![Ok(()); chunks.len()];
        let mut written: Vec<(usize, Option<Reservation<'_>>, OwnedEntry)> = Vec::new();
        // All groups reserve space in one order, so that no two of them wait for each other.
        let mut order: Vec<usize> = (0..chunks.len()).collect();
        order.sort_by_key(|place| chunks[*place].object);
        let is_same = |one: &usize, other: &usize| chunks[*one].object == chunks[*other].object;
        for same in order.chunk_by(is_same) {
            let (place, chunk) = (same[0], &chunks[same[0]]);
            let size_bytes = chunk.content.len() as u64;
            let wanted = ChunkSpec { object: chunk.object, size_bytes, checksum: chunk.checksum };
            match self.write(wanted, &chunk.content).await {
                Ok(reservation) => {
                    let own = OwnChunk { size_bytes, checksum: chunk.checksum };
                    written.push((place, reservation, (chunk.object, own)));
                }
                Err(error) => results[place] = Err(failure(&error)),
            }
        }
        let entries: Vec<OwnedEntry> = written.iter().map(|(.., entry)| *entry).collect();
        let recorded = match is_durable && !entries.is_empty() {
            true => self.durable.sync(entries.clone()).await,
            false => block_in_place(|| self.database.own_all(&entries)).map_err(|error| Arc::new(error.into())),
        };
        if recorded.is_ok() {
            self.store.mark_irreplaceable(entries.iter().map(|(object, _)| *object));
            self.own().extend(entries.iter().map(|(object, own)| (*object, OwnedChunk::audited_now(*own))));
        }
        for (place, reservation, _) in written {
            if let Err(error) = &recorded {
                results[place] = Err(failure(error));
            }
            if let Some(reservation) = reservation {
                // The result is reported above.
                let _ = reservation.finish(recorded.as_ref().copied().map_err(|_| ChunkError::NoSource));
            }
        }
        for same in order.chunk_by(is_same) {
            same[1..].iter().for_each(|place| results[*place] = results[same[0]].clone());
        }
        results
    }

    /// Forces chunks of this node to the disk.
    pub async fn sync(&self, objects: &[ObjectId]) -> Result<(), Arc<ChunkError>> {
        let entry = |object: &ObjectId| self.own().get(object).map(|own| (*object, own.chunk));
        let entries: Vec<OwnedEntry> = objects.iter().filter_map(entry).collect();
        if entries.len() < objects.len() {
            return Err(Arc::new(ChunkError::NotHere));
        }
        self.durable.sync(entries).await
    }

    /// Writes a chunk to the store. `None` if it is there already.
    async fn write(&self, wanted: ChunkSpec, content: &[u8]) -> Result<Option<Reservation<'_>>, ChunkError> {
        let Some(reservation) = self.prepare(wanted).await? else { return Ok(None) };
        if Checksum::of(content).0 != wanted.checksum {
            return reservation.finish(Err(ChunkError::OtherPush)).map(|()| None);
        }
        match block_in_place(|| self.store.put(wanted.object, content)) {
            Ok(_) => Ok(Some(reservation)),
            Err(error) => reservation.finish(Err(error.into())).map(|()| None),
        }
    }
}

type OwnedEntry = (ObjectId, OwnChunk);

fn failure(error: &ChunkError) -> StoreFailure {
    match error {
        ChunkError::Space(_) => StoreFailure::NoSpace(error.to_string()),
        ChunkError::Store(error) if error.kind == StoreErrorKind::Full => StoreFailure::NoSpace(error.to_string()),
        error => StoreFailure::Failed(error.to_string()),
    }
}
