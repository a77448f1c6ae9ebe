//! The list of this node's chunks, and the content of some small ones.
//!
//! A change that need not be durable at once waits in memory for the next transaction, of whatever
//! kind. A transaction of its own would wait for the disk behind those of the ring.
//!
//! A few small chunks become durable with their content in the database, in the transaction that
//! records them: to sync their files would cost several writes to the disk each. The content is
//! removed when the files were synced later.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyas_types::ObjectId;
use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::{CHUNKS, Database, DatabaseError, OwnChunk, bytes_of, of_bytes};

/// Content of chunks whose files may not be on the disk.
pub(super) const CONTENTS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("contents");

/// Changes of the list that are in no transaction: the new record of a chunk, or `None` if it is
/// removed.
#[derive(Default)]
pub(super) struct WaitingChanges(Mutex<BTreeMap<ObjectId, Option<OwnChunk>>>);

impl WaitingChanges {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Option<OwnChunk>>> {
        // No update of the map can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Database {
    /// The chunks of this node, without changes that wait.
    pub fn chunks(&self) -> Result<Vec<(ObjectId, OwnChunk)>, DatabaseError> {
        let chunks = || -> Result<Vec<_>, redb::Error> {
            let chunks = self.redb.begin_read()?.open_table(CHUNKS)?;
            chunks
                .iter()?
                .map(|entry| {
                    entry
                        .map(|(key, value)| (key.value(), value.value().to_vec()))
                        .map_err(Into::into)
                })
                .collect()
        };
        let chunks = chunks().map_err(|e| self.failed(e))?;
        let chunk = |(object, chunk): &([u8; 16], Vec<u8>)| {
            of_bytes(chunk).map(|chunk| (ObjectId(*object), chunk))
        };
        chunks.iter().map(chunk).collect::<Result<_, _>>().map_err(|why| self.failed(why))
    }

    /// Records chunks. The records become durable with the next [`sync`](Self::sync) or other save.
    pub fn own(&self, own: &[(ObjectId, OwnChunk)]) {
        self.waiting.lock().extend(own.iter().map(|(object, chunk)| (*object, Some(*chunk))));
    }

    /// Records chunks. The records are durable when this returns.
    pub fn own_durably(&self, own: &[(ObjectId, OwnChunk)]) -> Result<(), DatabaseError> {
        self.own(own);
        self.sync()
    }

    /// Records chunks with their content. Both are durable when this returns.
    pub fn own_with_contents(
        &self,
        own: &[(ObjectId, OwnChunk, Vec<u8>)],
    ) -> Result<(), DatabaseError> {
        let write = || -> Result<(), redb::Error> {
            let write = self.redb.begin_write()?;
            {
                let mut contents = write.open_table(CONTENTS)?;
                for (object, _, content) in own {
                    contents.insert(object.0, &**content)?;
                }
            }
            self.own(&own.iter().map(|(object, chunk, _)| (*object, *chunk)).collect::<Vec<_>>());
            self.commit(write)
        };
        write().map_err(|e| self.failed(e))
    }

    /// The content of chunks whose files may not be on the disk.
    pub fn contents(&self) -> Result<Vec<(ObjectId, Vec<u8>)>, DatabaseError> {
        let contents = || -> Result<Vec<_>, redb::Error> {
            let contents = self.redb.begin_read()?.open_table(CONTENTS)?;
            let entry = |entry: Result<_, redb::StorageError>| -> Result<_, redb::Error> {
                let (key, value): (redb::AccessGuard<[u8; 16]>, redb::AccessGuard<&[u8]>) = entry?;
                Ok((ObjectId(key.value()), value.value().to_vec()))
            };
            contents.iter()?.map(entry).collect()
        };
        contents().map_err(|e| self.failed(e))
    }

    /// Removes the content of chunks whose files are on the disk.
    pub fn forget_contents(&self, objects: &[ObjectId]) -> Result<(), DatabaseError> {
        let write = || -> Result<(), redb::Error> {
            let mut write = self.redb.begin_write()?;
            write.set_durability(Durability::None)?;
            {
                let mut contents = write.open_table(CONTENTS)?;
                for object in objects {
                    contents.remove(object.0)?;
                }
            }
            self.commit(write)
        };
        write().map_err(|e| self.failed(e))
    }

    /// Removes records of chunks, with the durability of [`own`](Self::own).
    pub fn disown(&self, objects: &[ObjectId]) {
        self.waiting.lock().extend(objects.iter().map(|object| (*object, None)));
    }

    /// Makes the records of chunks durable.
    pub fn sync(&self) -> Result<(), DatabaseError> {
        let write = || self.commit(self.redb.begin_write()?);
        write().map_err(|e| self.failed(e))
    }

    /// Commits a transaction together with the changes of the list that wait.
    pub(super) fn commit(&self, write: WriteTransaction) -> Result<(), redb::Error> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let committed = record(&write, &waiting).and_then(|()| Ok(write.commit()?));
        if committed.is_err() {
            let mut later = self.waiting.lock();
            for (object, change) in waiting {
                later.entry(object).or_insert(change);
            }
        }
        committed
    }
}

fn record(
    write: &WriteTransaction,
    changes: &BTreeMap<ObjectId, Option<OwnChunk>>,
) -> Result<(), redb::Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let (mut chunks, mut contents) = (write.open_table(CHUNKS)?, write.open_table(CONTENTS)?);
    for (object, change) in changes {
        match change {
            Some(chunk) => drop(chunks.insert(object.0, &*bytes_of(chunk))?),
            None => {
                chunks.remove(object.0)?;
                contents.remove(object.0)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_for_the_next_transaction_and_the_last_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("files.redb");
        let (one, two) = (ObjectId([1; 16]), ObjectId([2; 16]));
        let chunk = |size_bytes| OwnChunk { size_bytes, checksum: 0 };
        {
            let database = Database::open(&path).unwrap();
            database.own(&[(one, chunk(1)), (two, chunk(2))]);
            assert!(database.chunks().unwrap().is_empty(), "they wait");
            database.next_epoch().unwrap();
            database.disown(&[one]);
            database.own(&[(two, chunk(3))]);
            database.sync().unwrap();
            database.own(&[(one, chunk(4))]);
        }
        assert_eq!(Database::open(&path).unwrap().chunks().unwrap(), [(two, chunk(3))]);
    }

    #[test]
    fn content_stays_until_it_or_its_chunk_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("files.redb")).unwrap();
        let chunk = OwnChunk { size_bytes: 2, checksum: 0 };
        let entry = |object: u8| (ObjectId([object; 16]), chunk, vec![object, 0]);
        database.own_with_contents(&[entry(1), entry(2)]).unwrap();
        assert_eq!(database.chunks().unwrap().len(), 2);
        database.disown(&[ObjectId([1; 16])]);
        database.sync().unwrap();
        assert_eq!(database.contents().unwrap(), [(ObjectId([2; 16]), vec![2, 0])]);
        database.forget_contents(&[ObjectId([2; 16])]).unwrap();
        assert!(database.contents().unwrap().is_empty());
        assert_eq!(database.chunks().unwrap(), [(ObjectId([2; 16]), chunk)]);
    }
}
