//! The mark beside the journal: the number of the last transaction that was acknowledged. A journal
//! that is missing, was replaced by an older copy, or has lost its newest pages to a damaged disk
//! is a valid journal of fewer transactions; only the mark tells that there were more.
//!
//! The file has two places of a number and its checksum, which are written in turn, so that a write
//! that is cut short leaves the other.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Bytes from one place to the other: a disk's sector, which is written as a whole.
const PLACE_BYTES: u64 = 512;
const MAGIC: [u8; 8] = *b"eyasmark";

/// Why a mark and its journal cannot be used together.
#[derive(Debug, Error)]
pub(crate) enum MarkError {
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
    #[error(
        "{path} is damaged, so it is not known whether the journal is complete: if you trust the \
         journal, remove {path}"
    )]
    Damaged { path: String },
    #[error(
        "it is too old: it has {found} transactions, but {acknowledged} were acknowledged, so \
         jobs or results are missing. Restore the journal from a complete copy; or, to go on \
         without what is missing, remove {path}"
    )]
    Older { path: String, found: u64, acknowledged: u64 },
}

/// The open file.
#[derive(Debug)]
pub(super) struct Mark {
    file: File,
    path: PathBuf,
}

/// Path of the mark of a journal.
pub(super) fn path_of(journal: &Path) -> PathBuf {
    journal.with_extension("mark")
}

impl Mark {
    /// Opens the mark beside a journal that has `found` transactions; makes it where there is none.
    pub fn open(journal: &Path, found: u64) -> Result<Self, MarkError> {
        let path = path_of(journal);
        let in_words = path.display().to_string();
        let io = |source| MarkError::Io { path: in_words.clone(), source };
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path);
        let mark = Mark { file: file.map_err(io)?, path };
        if mark.file.metadata().map_err(io)?.len() > 0 {
            let places = [0, 1].map(|place| mark.read(place));
            let Some(acknowledged) = places.into_iter().flatten().max() else {
                return Err(MarkError::Damaged { path: in_words });
            };
            if found < acknowledged {
                return Err(MarkError::Older { path: in_words, found, acknowledged });
            }
        }
        mark.set(found)?;
        if let Some(folder) = mark.path.parent() {
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
        }
        Ok(mark)
    }

    fn read(&self, place: u64) -> Option<u64> {
        let mut bytes = [0; 24];
        self.file.read_exact_at(&mut bytes, place * PLACE_BYTES).ok()?;
        let number = u64::from_le_bytes(bytes[8..16].try_into().ok()?);
        (bytes == encode(number)).then_some(number)
    }

    /// Marks that this many transactions are on disk. On disk itself when it returns.
    pub fn set(&self, transactions: u64) -> Result<(), MarkError> {
        let write = || {
            self.file.write_all_at(&encode(transactions), transactions % 2 * PLACE_BYTES)?;
            self.file.sync_data()
        };
        write().map_err(|source| MarkError::Io { path: self.path.display().to_string(), source })
    }
}

fn encode(number: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    let digest = blake3::hash(&bytes[..16]);
    bytes[16..].copy_from_slice(&digest.as_bytes()[..8]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_with_less_than_was_acknowledged_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.redb");
        let mark = Mark::open(&journal, 0).unwrap();
        (1..=7).for_each(|number| mark.set(number).unwrap());
        assert!(matches!(
            Mark::open(&journal, 6),
            Err(MarkError::Older { found: 6, acknowledged: 7, .. })
        ));
        assert!(
            Mark::open(&journal, 8).is_ok(),
            "one that was written and not acknowledged is no loss"
        );
        assert!(Mark::open(&journal, 7).is_err());
    }

    #[test]
    fn a_write_that_is_cut_short_leaves_the_number_before() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("journal.redb");
        let mark = Mark::open(&journal, 6).unwrap();
        mark.set(7).unwrap();
        mark.file.write_all_at(b"garbage", PLACE_BYTES + 4).unwrap();
        assert!(Mark::open(&journal, 6).is_ok());
        for place in [0, 1] {
            mark.file.write_all_at(b"garbage", place * PLACE_BYTES + 4).unwrap();
        }
        assert!(matches!(Mark::open(&journal, 9), Err(MarkError::Damaged { .. })));
    }
}
