//! Captured output that a dispatcher on this host has in a file. Reading the file costs less than
//! sending its content.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use eyas_wire::client::{OutputFile, OutputInFile, ResultsHere, TaskResult};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use thiserror::Error;

/// Why captured output cannot be read here. The dispatcher can send it.
#[derive(Debug, Error)]
pub enum OutputFileError {
    /// The file cannot be read.
    #[error("cannot read the captured output in {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The reason.
        source: io::Error,
    },
    /// This process finds another file at the path than the dispatcher.
    #[error("{path} is another file here than at the dispatcher")]
    OtherFile {
        /// The file.
        path: String,
    },
    /// The content differs from the captured output.
    #[error("the captured output in {path} is damaged")]
    Damaged {
        /// The file.
        path: String,
    },
}

/// Reads captured output. The file that was read last stays open.
#[derive(Default)]
pub(crate) struct OutputReader {
    open: Option<(OutputFile, File)>,
}

impl OutputReader {
    /// The results with their captured output.
    pub fn results(&mut self, here: ResultsHere) -> Result<Vec<TaskResult>, OutputFileError> {
        let ResultsHere { mut results, file, outputs } = here;
        let path = || file.path.to_string();
        if self.open.as_ref().is_none_or(|(open, _)| *open != file) {
            let opened = File::open(Path::new(OsStr::from_bytes(&file.path)))
                .and_then(|opened| Ok((opened.metadata()?, opened)));
            let (found, opened) =
                opened.map_err(|source| OutputFileError::Io { path: path(), source })?;
            if (found.dev(), found.ino()) != (file.device, file.inode) {
                return Err(OutputFileError::OtherFile { path: path() });
            }
            self.open = Some((file.clone(), opened));
        }
        let (_, open) = self.open.as_ref().expect("it was opened above");
        let length =
            open.metadata().map_err(|source| OutputFileError::Io { path: path(), source })?.len();
        for place in outputs {
            let end = place
                .offset
                .checked_add(place.stdout_bytes)
                .and_then(|end| end.checked_add(place.stderr_bytes));
            let result = results
                .get_mut(place.result as usize)
                .filter(|_| end.is_some_and(|end| end <= length));
            let Some(result) = result else {
                return Err(OutputFileError::Damaged { path: path() });
            };
            let read =
                read(open, place).map_err(|source| OutputFileError::Io { path: path(), source })?;
            let (stdout, stderr) = read.ok_or_else(|| OutputFileError::Damaged { path: path() })?;
            (result.outcome.stdout, result.outcome.stderr) = (stdout, stderr);
        }
        Ok(results)
    }
}

/// Standard output and standard error at a place, if they are as they were captured.
fn read(file: &File, place: OutputInFile) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let stdout = read_at(file, place.offset, place.stdout_bytes as usize)?;
    let stderr = read_at(file, place.offset + place.stdout_bytes, place.stderr_bytes as usize)?;
    let hash = blake3::Hasher::new().update(&stdout).update(&stderr).finalize();
    Ok(hash.as_bytes().starts_with(&place.checksum).then_some((stdout, stderr)))
}

/// Bytes of a file, read into memory that is not cleared before.
fn read_at(file: &File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let from = offset + bytes.len() as u64;
        match rustix::io::pread(file, spare_capacity(&mut bytes), from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyas_types::{Name, Outcome, Status};

    fn here(path: &Path) -> ResultsHere {
        let (device, inode) =
            std::fs::metadata(path).map_or((0, 0), |found| (found.dev(), found.ino()));
        let outcome = Outcome::of(Status::Succeeded);
        let executor = "n1".into();
        let result =
            TaskResult { index: 7, attempt: 0, executor, queued_us: 0, delivery_us: 0, outcome };
        let hash = blake3::hash(b"outputerror");
        let checksum = std::array::from_fn(|byte| hash.as_bytes()[byte]);
        ResultsHere {
            results: vec![result],
            file: OutputFile { path: Name::from(path.as_os_str().as_bytes()), device, inode },
            outputs: vec![OutputInFile {
                result: 0,
                offset: 4,
                stdout_bytes: 6,
                stderr_bytes: 5,
                checksum,
            }],
        }
    }

    #[test]
    fn captured_output_is_read_where_it_was_written_and_nowhere_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        let missing = OutputReader::default().results(here(&path)).unwrap_err();
        assert!(matches!(missing, OutputFileError::Io { .. }), "{missing}");
        std::fs::write(&path, "xxxxoutputerror").unwrap();
        let mut reader = OutputReader::default();
        let results = reader.results(here(&path)).unwrap();
        assert_eq!(
            (&results[0].outcome.stdout[..], &results[0].outcome.stderr[..]),
            (&b"output"[..], &b"error"[..])
        );
        // The file stays open.
        let asked = here(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(reader.results(asked.clone()).unwrap(), results);
        std::fs::write(&path, "xxxxoutputerror").unwrap();
        let mut other = asked;
        other.file.inode += 1_000_000;
        let other = reader.results(other).unwrap_err();
        assert!(matches!(other, OutputFileError::OtherFile { .. }), "{other}");
        for wrong in ["xxxxoutputerro", "xxxxoutputerr0r", ""] {
            std::fs::write(&path, wrong).unwrap();
            let damaged = OutputReader::default().results(here(&path)).unwrap_err();
            assert!(matches!(damaged, OutputFileError::Damaged { .. }), "{damaged}");
        }
        std::fs::write(&path, "xxxxoutputerror").unwrap();
        let mut beyond = here(&path);
        beyond.outputs[0].offset = u64::MAX - 3;
        assert!(matches!(reader.results(beyond), Err(OutputFileError::Damaged { .. })));
    }
}
