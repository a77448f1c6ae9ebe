//! The content of a file that a program still reads while the file is removed or replaced. The
//! nodes make copies of its chunks, as hard links, that belong to no file: they are deleted when
//! the program has closed the file, or a day after the program's process was killed.

use std::sync::Arc;
use std::time::Duration;

use eyas_ring::Listing;
use eyas_types::dfs::{Chunk, FileId, FileName, FileNameError, FileRecord};
use tokio::time::sleep;

use crate::copy::{Copies, specs_of};
use crate::error::{FilesError, FilesErrorKind};
use crate::file::File;
use crate::protocol::{ChunkSpec, Member};
use crate::random::random;

/// The beginning of names under which copies appear for a moment, so that removing the file deletes
/// them.
const REMOVED: &str = "/.eyas-removed-";

/// Number of hexadecimal digits of an id.
const ID_DIGITS: usize = 32;

/// Maximum number of such files that a client removes which other clients have left.
const MAX_LEFT_FILES: u32 = 1000;

/// Copies are renewed after this time: nodes delete chunks that belong to no file after a day.
const RENEW_AFTER: Duration = Duration::from_secs(8 * 3600);

/// Pause after nodes did not answer a renewal.
const RENEW_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Copies of the chunks of a file that may be removed meanwhile.
#[derive(Debug)]
pub struct RetainedFile(Arc<File>);

impl Copies {
    /// Copies the chunks of a file on the nodes that have them. No byte of them is transferred.
    pub async fn retain(&self, file: &File) -> Result<Arc<RetainedFile>, FilesError> {
        let id = FileId(random()?);
        let specs = specs_of(id, &file.record.chunks);
        let replicas = self.derive_chunks(file, &specs, false).await;
        let chunk = |(spec, replicas): (ChunkSpec, Vec<Member>)| {
            let ChunkSpec { object, size_bytes, checksum } = spec;
            let replicas: Vec<_> = replicas.iter().map(|member| member.node).collect();
            let chunk = Chunk { object, size_bytes, checksum, replicas };
            (chunk.is_hole() || !chunk.replicas.is_empty()).then_some(chunk)
        };
        let chunks: Vec<Chunk> = specs.into_iter().zip(replicas).filter_map(chunk).collect();
        let is_whole = chunks.len() == file.record.chunks.len();
        let record = FileRecord { id, quota: None, unsynced: None, chunks, ..file.record.clone() };
        let name = format!("{REMOVED}{id}").parse();
        let name: FileName =
            name.map_err(|error: FileNameError| FilesError::invalid(error.to_string()))?;
        let retained =
            Arc::new(RetainedFile(Arc::new(File { name, record, version: file.version })));
        if !is_whole {
            if let Err(error) = self.release(&retained).await {
                tracing::debug!("copies of some chunks of {} stay for a day: {error}", file.name);
            }
            return Err(FilesError::unreachable(format!(
                "no node can copy the content of {}",
                file.name
            )));
        }
        let (replicas, renewed) = (self.replicas.clone(), Arc::downgrade(&retained));
        tokio::spawn(async move {
            let mut pause = RENEW_AFTER;
            loop {
                sleep(pause).await;
                let Some(retained) = renewed.upgrade() else { return };
                let FileRecord { chunks, replication, .. } = &retained.0.record;
                let chunks: Vec<_> = chunks.iter().collect();
                let is_renewed = replicas.sync_chunks(*replication, &chunks).await.is_ok();
                pause = if is_renewed { RENEW_AFTER } else { RENEW_AGAIN_AFTER };
            }
        });
        Ok(retained)
    }

    /// Deletes copies. If this fails, the nodes delete them after a day.
    pub async fn release(&self, retained: &RetainedFile) -> Result<(), FilesError> {
        let File { name, record, .. } = &*retained.0;
        self.names.create_record(name, record.clone()).await?;
        self.names.remove_listed(&Listing::of(name.clone(), record)).await
    }

    /// Removes files that clients have left which were killed while they deleted copies.
    pub async fn remove_left_copies(&self) -> Result<(), FilesError> {
        let listed = self.folders.list_folder("", REMOVED, MAX_LEFT_FILES).await?;
        for left in listed.entries.iter().filter(|entry| is_copy(&entry.name)) {
            match self.names.remove_listed(left).await {
                Err(error) if error.kind != FilesErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether this is a name that only [`Copies::release`] gives.
fn is_copy(name: &FileName) -> bool {
    let id = name.as_str().strip_prefix(REMOVED).unwrap_or_default();
    id.len() == ID_DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit())
}

impl RetainedFile {
    /// The copies, to be read as a file.
    pub fn file(&self) -> &Arc<File> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_known() {
        assert!(is_copy(&format!("{REMOVED}{}", FileId(7)).parse().unwrap()));
        for other in [
            "/.eyas-removed-",
            "/.eyas-removed-7",
            "/a",
            "/.eyas-removed-00000000000000000000000000000xyz",
        ] {
            assert!(!is_copy(&other.parse().unwrap()), "{other}");
        }
    }
}
