//! The durable state of the runs that this node leads: the specification of each, and its records
//! in order.

use std::sync::Arc;

use eyas_blocks::Record;
use eyas_files::{BlockRunId, RunSpec};
use redb::{Durability, ReadableDatabase, ReadableTable};

use super::{Database, DatabaseError, META, RUNS, bytes_of, of_bytes};

/// A change of the state of a run.
pub(crate) enum RunSave {
    /// The specification of a new run.
    Spec(BlockRunId, Arc<RunSpec>),
    /// The next record of a run, with its number from 0.
    Record(BlockRunId, u64, Record),
    /// The run is forgotten.
    Forget(BlockRunId),
}

/// Key of a run's specification; its records follow.
const SPEC: u64 = 0;

impl Database {
    /// A number that increases with each call, also after a crash.
    pub fn next_epoch(&self) -> Result<u32, DatabaseError> {
        let epoch = self.meta::<u32>("epoch")?.unwrap_or_default() + 1;
        let write = || -> Result<(), redb::Error> {
            let write = self.redb.begin_write()?;
            write.open_table(META)?.insert("epoch", &*bytes_of(&epoch))?;
            self.commit(write)
        };
        write().map(|()| epoch).map_err(|e| self.failed(e))
    }

    /// All runs with their records.
    pub fn runs(&self) -> Result<Vec<(BlockRunId, RunSpec, Vec<Record>)>, DatabaseError> {
        let entries = || -> Result<Vec<_>, redb::Error> {
            let runs = self.redb.begin_read()?.open_table(RUNS)?;
            runs.iter()?
                .map(|entry| {
                    entry
                        .map(|(key, value)| (key.value(), value.value().to_vec()))
                        .map_err(Into::into)
                })
                .collect()
        };
        let mut runs: Vec<(BlockRunId, RunSpec, Vec<Record>)> = Vec::new();
        for ((run, number), value) in entries().map_err(|e| self.failed(e))? {
            match runs.last_mut().filter(|(last, ..)| last.0 == run) {
                Some((.., records)) => {
                    records.push(of_bytes(&value).map_err(|why| self.failed(why))?)
                }
                None if number == SPEC => {
                    runs.push((
                        BlockRunId(run),
                        of_bytes(&value).map_err(|why| self.failed(why))?,
                        Vec::new(),
                    ));
                }
                None => {
                    return Err(self.failed(format!(
                        "has records of run {run:032x}, but not its specification"
                    )));
                }
            }
        }
        Ok(runs)
    }

    /// Applies changes in order. If the changes were promised to anyone, returns when they are
    /// durable.
    pub fn save_runs(&self, saves: &[RunSave], is_promised: bool) -> Result<(), DatabaseError> {
        if saves.is_empty() && !is_promised {
            return Ok(());
        }
        let write = || -> Result<(), redb::Error> {
            let mut write = self.redb.begin_write()?;
            if !is_promised {
                write.set_durability(Durability::None)?;
            }
            {
                let mut runs = write.open_table(RUNS)?;
                for save in saves {
                    match save {
                        RunSave::Spec(run, spec) => {
                            drop(runs.insert((run.0, SPEC), &*bytes_of(&**spec))?)
                        }
                        RunSave::Record(run, number, record) => {
                            drop(runs.insert((run.0, SPEC + 1 + number), &*bytes_of(record))?);
                        }
                        RunSave::Forget(run) => {
                            runs.retain_in((run.0, 0)..=(run.0, u64::MAX), |_, _| false)?
                        }
                    }
                }
            }
            self.commit(write)
        };
        write().map_err(|e| self.failed(e))
    }
}
