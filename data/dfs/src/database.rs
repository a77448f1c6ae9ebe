//! The durable state of a node of the file system, in one file: its state of the ring, the records
//! it keeps, and the list of its chunks.
//!
//! The ring's decider reads through [`Database::read`]. When it wants to save something, it
//! continues in [`Database::save`], where it sees its own changes, and all changes become durable
//! together.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use eyas_ring::{PersistentState, Records, Save, Stored, View};
use eyas_types::dfs::{FileName, FileNameError, FileSystemId, NodeId};
use redb::{
    Database as Redb, ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageError, Table, TableDefinition,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

mod chunks;
mod runs;
#[cfg(test)]
mod tests;

pub(crate) use runs::RunSave;

/// Single values: the node's id, its state of the ring.
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");
/// The round of each partition of the ring.
const ROUNDS: TableDefinition<u16, &[u8]> = TableDefinition::new("rounds");
/// Records of files, by partition and name.
const RECORDS: TableDefinition<(u16, &str), &[u8]> = TableDefinition::new("records");
/// The chunks of this node.
const CHUNKS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("chunks");

/// The state of runs that this node leads: by run, in order.
const RUNS: TableDefinition<(u128, u64), &[u8]> = TableDefinition::new("runs of pieces");

/// The format; `database/formats.txt` has what it consists of. `database/fixtures/` has a database
/// of each format that was released, and a test reads them.
const VERSION: u32 = 5;
/// Size of the page cache. For 8 nodes on one machine it stays below 1 GiB in total. The operating
/// system caches other pages.
const CACHE_BYTES: usize = 96 << 20;

/// A failure of the database.
#[derive(Debug, Error)]
#[error("the file system's database {path}: {why}")]
pub struct DatabaseError {
    path: String,
    why: String,
}

/// A value in the database cannot be decoded.
#[derive(Debug, Error)]
#[error("has a value that cannot be decoded ({0})")]
pub(crate) struct BadValue(postcard::Error);

/// A chunk of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnChunk {
    /// Size of the chunk.
    pub size_bytes: u64,
    /// Checksum of the chunk, as in the store.
    pub checksum: u64,
}

pub(crate) struct Database {
    redb: Redb,
    path: PathBuf,
    waiting: chunks::WaitingChanges,
}

impl Database {
    /// Opens the database, or creates one with a new id for the node.
    pub fn open(path: &Path) -> Result<Self, DatabaseError> {
        let failed = |why: String| DatabaseError { path: path.display().to_string(), why };
        // Readable for this user only.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path);
        let file = file.map_err(|e| failed(e.to_string()))?;
        let redb =
            Redb::builder().set_cache_size(CACHE_BYTES).create_file(file).map_err(|e| match e {
                redb::DatabaseError::DatabaseAlreadyOpen => {
                    failed("is in use by another executor".into())
                }
                e => failed(format!(
                    "{e}. If it is damaged, move it away: the node then joins as a new one, and \
                     gets its data from the others"
                )),
            })?;
        let database =
            Database { redb, path: path.to_owned(), waiting: chunks::WaitingChanges::default() };
        database.prepare().map_err(|e| failed(e.to_string()))?;
        match database.meta::<u32>("version")? {
            Some(VERSION) => Ok(database),
            Some(other) => Err(failed(format!(
                "was written by another version of eyas (format {other}; this one has {VERSION}): \
                 use that version, or move the file away: the node then joins as a new one, and \
                 gets its data from the others"
            ))),
            None => Err(failed("is not a database of eyas: move it away".into())),
        }
    }

    fn prepare(&self) -> Result<(), redb::Error> {
        let write = self.redb.begin_write()?;
        {
            let mut meta = write.open_table(META)?;
            if meta.is_empty()? {
                let mut number = [0; 8];
                rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())
                    .map_err(|errno| redb::StorageError::Io(errno.into()))?;
                meta.insert("version", &*bytes_of(&VERSION))?;
                meta.insert("node", &*bytes_of(&NodeId(u64::from_le_bytes(number))))?;
            }
            write.open_table(ROUNDS)?;
            write.open_table(RECORDS)?;
            write.open_table(CHUNKS)?;
            write.open_table(chunks::CONTENTS)?;
            write.open_table(RUNS)?;
        }
        write.commit()?;
        Ok(())
    }

    fn failed(&self, why: impl std::fmt::Display) -> DatabaseError {
        DatabaseError { path: self.path.display().to_string(), why: why.to_string() }
    }

    fn meta<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, DatabaseError> {
        let read = || -> Result<_, redb::Error> {
            let value = self.redb.begin_read()?.open_table(META)?.get(key)?;
            Ok(value.map(|value| value.value().to_vec()))
        };
        let value = read().map_err(|e| self.failed(e))?;
        value.map(|value| of_bytes(&value).map_err(|why| self.failed(why))).transpose()
    }

    /// The id of the node.
    pub fn node(&self) -> Result<NodeId, DatabaseError> {
        self.meta("node")?.ok_or_else(|| self.failed("has no node id"))
    }

    /// The file system that the node has joined, if any.
    pub fn file_system(&self) -> Result<Option<FileSystemId>, DatabaseError> {
        Ok(self.meta::<View>("view")?.map(|view| view.system))
    }

    /// The state that the ring's decider has saved.
    pub fn saved(&self) -> Result<PersistentState, DatabaseError> {
        let rounds = || -> Result<Vec<_>, redb::Error> {
            let rounds = self.redb.begin_read()?.open_table(ROUNDS)?;
            rounds
                .iter()?
                .map(|entry| {
                    entry
                        .map(|(key, value)| (key.value(), value.value().to_vec()))
                        .map_err(Into::into)
                })
                .collect()
        };
        let rounds = rounds().map_err(|e| self.failed(e))?;
        let rounds = rounds
            .iter()
            .map(|(partition, round)| of_bytes(round).map(|round| (*partition, round)));
        Ok(PersistentState {
            boots: self.meta("boots")?.unwrap_or_default(),
            view: self.meta("view")?,
            settled: self.meta("settled")?.unwrap_or_default(),
            acceptor: self.meta("acceptor")?.unwrap_or_default(),
            rounds: rounds.collect::<Result<_, _>>().map_err(|why| self.failed(why))?,
        })
    }

    /// Lets `decide` read the records.
    pub fn read<T>(
        &self,
        decide: impl FnOnce(&RecordsView<ReadOnlyTable<Key, &[u8]>>) -> T,
    ) -> Result<T, DatabaseError> {
        let look = || -> Result<_, redb::Error> {
            Ok(RecordsView(self.redb.begin_read()?.open_table(RECORDS)?))
        };
        look().map(|look| decide(&look)).map_err(|e| self.failed(e))
    }

    /// Lets `decide` read the records and save changes. Returns when the changes are durable.
    pub fn save<T>(&self, decide: impl FnOnce(&mut Tables) -> T) -> Result<T, DatabaseError> {
        let save = || -> Result<_, redb::Error> {
            let write = self.redb.begin_write()?;
            let decided = {
                let mut tables = Tables {
                    meta: write.open_table(META)?,
                    rounds: write.open_table(ROUNDS)?,
                    records: RecordsView(write.open_table(RECORDS)?),
                };
                decide(&mut tables)
            };
            self.commit(write)?;
            Ok(decided)
        };
        save().map_err(|e| self.failed(e))
    }
}

/// Key of a record: partition and name.
type Key = (u16, &'static str);

/// The records in the database.
///
/// If the database fails in the middle of a decision, the decision cannot be completed. The thread
/// panics, which ends the node.
pub(crate) struct RecordsView<T>(T);

/// The tables that can be changed.
pub(crate) struct Tables<'a> {
    meta: Table<'a, &'static str, &'static [u8]>,
    rounds: Table<'a, u16, &'static [u8]>,
    pub records: RecordsView<Table<'a, Key, &'static [u8]>>,
}

impl<T: ReadableTable<Key, &'static [u8]>> Records for RecordsView<T> {
    fn get(&self, partition: u16, name: &FileName) -> Option<Stored> {
        let value = self.0.get((partition, name.as_str())).unwrap_or_else(|e| broken(&e));
        value.map(|value| of_bytes(value.value()).unwrap_or_else(|e| broken(&e)))
    }

    fn first(&self, partition: u16, from: &str) -> Option<(FileName, Stored)> {
        let next = self.0.range((partition, from)..).unwrap_or_else(|e| broken(&e)).next()?;
        let (key, value) = next.unwrap_or_else(|e| broken(&e));
        let (of, name) = key.value();
        let name = || name.parse().unwrap_or_else(|e: FileNameError| broken(&e));
        (of == partition).then(|| (name(), of_bytes(value.value()).unwrap_or_else(|e| broken(&e))))
    }
}

impl Tables<'_> {
    /// Applies a change that the decider wants to save.
    pub fn apply(&mut self, save: &Save) {
        self.try_apply(save).unwrap_or_else(|e| broken(&e));
    }

    fn try_apply(&mut self, save: &Save) -> Result<(), StorageError> {
        match save {
            Save::Boots(boots) => drop(self.meta.insert("boots", &*bytes_of(boots))?),
            Save::View(view) => drop(self.meta.insert("view", &*bytes_of(view))?),
            Save::Settled(view) => drop(self.meta.insert("settled", &*bytes_of(view))?),
            Save::Acceptor(acceptor) => drop(self.meta.insert("acceptor", &*bytes_of(acceptor))?),
            Save::Round { partition, round } => {
                drop(self.rounds.insert(partition, &*bytes_of(round))?)
            }
            Save::Record { partition, name, stored } => {
                drop(self.records.0.insert((*partition, name.as_str()), &*bytes_of(stored))?);
            }
            Save::Erase { partition, name } => {
                drop(self.records.0.remove((*partition, name.as_str()))?)
            }
            Save::Clear { partition } => {
                let after = (*partition, "")..(partition.saturating_add(1), "");
                self.records.0.retain_in::<(u16, &str), _>(after, |_, _| false)?;
            }
        }
        Ok(())
    }
}

fn broken(error: &dyn std::fmt::Display) -> ! {
    panic!("the file system's database has failed: {error}")
}

fn bytes_of<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("every value can be encoded")
}

fn of_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadValue> {
    postcard::from_bytes(bytes).map_err(BadValue)
}
