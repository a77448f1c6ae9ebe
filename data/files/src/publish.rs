//! Files that are stored first and appear later, in place of the file that has their name.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use eyas_ring::{FileAnswer, FileOperation};
use eyas_types::dfs::{
    Attributes, Chunk, FileKind, FileName, FileRecord, NamedAttributes, Unsynced,
};

use crate::backoff::Backoff;
use crate::error::{FilesError, FilesErrorKind, unexpected};
use crate::file::File;
use crate::folders::Folders;
use crate::names::Names;
use crate::quota::{FolderUsage, Quotas};
use crate::replicas::unclaimed::UnclaimedChunks;
use crate::routes::Routes;
use crate::uploads::FileDraft;
use crate::write::options::WriteOptions;

/// Gives names to content that is stored.
pub(crate) struct Publisher {
    routes: Arc<Routes>,
    names: Arc<Names>,
    folders: Arc<Folders>,
    quotas: Arc<Quotas>,
}

/// The stored content of a file that has not appeared. If it never does, the nodes delete its
/// chunks.
pub struct HiddenFile {
    publisher: Arc<Publisher>,
    name: FileName,
    record: FileRecord,
    unclaimed: UnclaimedChunks,
    makes_parents: bool,
}

impl HiddenFile {
    /// A file whose chunks are stored.
    pub(crate) fn of(
        publisher: &Arc<Publisher>,
        draft: FileDraft<'_>,
        options: WriteOptions,
        chunks: Vec<Chunk>,
    ) -> Self {
        let WriteOptions { format, chunk_bytes, replication, creation, .. } = options;
        let unsynced = (!options.is_durable).then(Unsynced::default);
        let record = FileRecord::without_content(draft.id, FileKind::File, creation.attributes());
        let record = FileRecord { format, chunk_bytes, replication, chunks, unsynced, ..record };
        HiddenFile {
            publisher: publisher.clone(),
            name: draft.name.clone(),
            record,
            unclaimed: draft.unclaimed,
            makes_parents: creation.makes_parents,
        }
    }

    /// Gives the file named attributes.
    pub(crate) fn with_named(mut self, named: NamedAttributes) -> Self {
        self.record.named = named;
        self
    }

    /// Makes the file appear.
    ///
    /// # Errors
    /// `Exists` if there is a file of this name; `Unreachable`.
    pub(crate) async fn create(self) -> Result<File, FilesError> {
        let HiddenFile { publisher, name, record, mut unclaimed, makes_parents, .. } = self;
        if makes_parents {
            publisher.folders.make_parents(&name).await?;
        }
        let charge =
            publisher.quotas.charge(&name, None, FolderUsage::added(None, &record)).await?;
        let operation = FileOperation::Create { name: name.clone(), record: record.clone() };
        let answer = unclaimed.give(&publisher.names, operation).await;
        let created = publisher.names.created(&name, record, answer, unclaimed.is_unsure).await?;
        charge.keep();
        Ok(created)
    }

    /// Makes the file appear. A file that has the name is replaced: readers find one of the two at
    /// any time. Of clients that publish under one name at the same time, the last one wins.
    /// `may_appear` is called just before each try; the result is `None` if it is false.
    ///
    /// # Errors
    /// `Changed` if an answer was lost and another client has changed the name since: the file may
    /// have appeared and may have been replaced, so its chunks may be deleted. `Lost` if the
    /// content was deleted, as the client had no connections to its nodes for some time.
    /// `IsFolder`, `NotFolder`, `Quota`, `Unreachable`.
    pub async fn publish(
        self,
        may_appear: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<File>, FilesError> {
        let HiddenFile { publisher, name, record, unclaimed, makes_parents } = self;
        if makes_parents {
            publisher.folders.make_parents(&name).await?;
        }
        publisher.appear(&name, &record, unclaimed, true, may_appear).await
    }
}

impl Publisher {
    pub fn new(names: Arc<Names>, folders: Arc<Folders>) -> Self {
        let (routes, quotas) = (folders.routes.clone(), folders.quotas.clone());
        Publisher { routes, names, folders, quotas }
    }

    /// Replaces the content of a file. Repeats this if only the replicas, by repair, or the
    /// attributes were changed in the meantime. `unclaimed` are the chunks that were stored for the
    /// record.
    pub async fn replace(
        &self,
        mut file: File,
        mut record: FileRecord,
        mut unclaimed: UnclaimedChunks,
    ) -> Result<File, FilesError> {
        let charge = self
            .quotas
            .charge(&file.name, None, FolderUsage::added(Some(&file.record), &record))
            .await?;
        loop {
            let (name, version) = (file.name.clone(), file.version);
            let replace = FileOperation::Replace { name, version, record: record.clone() };
            let changed = match unclaimed.give(&self.names, replace).await {
                Ok(FileAnswer::Done { version }) => {
                    charge.keep();
                    return Ok(File { record, version, ..file });
                }
                Ok(_) => return Err(unexpected()),
                Err(error) if error.kind == FilesErrorKind::Changed => error,
                Err(error) => return Err(error),
            };
            let now = self.names.stat(&file.name).await?;
            let is_synced = record.unsynced.is_some() || now.record.unsynced.is_none();
            if now.record.is_as_written(&record) && is_synced {
                // The operation was done, and its answer was lost.
                return Ok(now);
            }
            if !now.record.is_as_written(&file.record) {
                return Err(changed);
            }
            let Attributes { modified_ns, changed_ns, .. } = record.attributes;
            record.attributes = Attributes { modified_ns, changed_ns, ..now.record.attributes };
            record.named.clone_from(&now.record.named);
            let repaired: HashMap<_, _> =
                now.record.chunks.iter().map(|chunk| (chunk.object, &chunk.replicas)).collect();
            for chunk in &mut record.chunks {
                if let Some(replicas) = repaired.get(&chunk.object) {
                    chunk.replicas.clone_from(replicas);
                }
            }
            file = now;
        }
    }

    /// Writes a record, for which the chunks `unclaimed` were stored, in place of the file that has
    /// the name. The same file keeps its named attributes. Without `looks`, the name is expected to
    /// be free, and only looked at if it is not. `may_appear` is called just before each try; the
    /// result is `None` if it is false.
    pub async fn appear(
        &self,
        name: &FileName,
        record: &FileRecord,
        mut unclaimed: UnclaimedChunks,
        mut looks: bool,
        may_appear: &(dyn Fn() -> bool + Sync),
    ) -> Result<Option<File>, FilesError> {
        let (deadline, mut pause) = (self.routes.deadline(), Backoff::default());
        let mut tries = Tries { record, over: None };
        loop {
            let present = match looks {
                false => None,
                true => match self.names.lookup(name).await {
                    Ok(present) if present.record.kind.is_folder() => {
                        return Err(FilesError::is_folder(name));
                    }
                    Ok(present) => Some(present),
                    Err(error) if error.kind == FilesErrorKind::NotFound => None,
                    Err(error) => return Err(error),
                },
            };
            let before = present.as_ref().map(|present| &present.record);
            match tries.outcome(unclaimed.is_unsure, before) {
                Some(true) => return Ok(present),
                Some(false) => return Err(FilesError::changed(name)),
                None => {}
            }
            let charge = self.quotas.charge(name, None, FolderUsage::added(before, record)).await?;
            if !may_appear() {
                return Ok(None);
            }
            tries.over = looks.then(|| before.cloned());
            looks = true;
            let (name, mut record) = (name.clone(), record.clone());
            if let Some(before) = before.filter(|before| before.id == record.id) {
                record.named.clone_from(&before.named);
            }
            let is_new = present.is_none();
            let operation = match present {
                Some(present) => FileOperation::Replace {
                    name: name.clone(),
                    version: present.version,
                    record: record.clone(),
                },
                None => FileOperation::Create { name: name.clone(), record: record.clone() },
            };
            match unclaimed.give(&self.names, operation).await {
                Ok(FileAnswer::Done { version }) => {
                    charge.keep();
                    return Ok(Some(File { name, record, version }));
                }
                Ok(_) => return Err(unexpected()),
                // A file of this id was removed since.
                Err(error) if error.kind == FilesErrorKind::Changed && is_new => return Err(error),
                // Another client was faster.
                Err(FilesError {
                    kind:
                        FilesErrorKind::Exists | FilesErrorKind::Changed | FilesErrorKind::NotFound,
                    ..
                }) if Instant::now() < deadline => pause.wait().await,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The tries to write a record under a name.
struct Tries<'a> {
    record: &'a FileRecord,
    /// The record that the name had before the last try; `None` if nobody looked.
    over: Option<Option<FileRecord>>,
}

impl Tries<'_> {
    /// Whether a try was done, now that the name has this record; `None` if another try is right.
    /// It is not if a try may have been done and another client has changed the name since: the
    /// chunks of the record may be deleted. `is_unsure` says that an answer was lost: a try may
    /// have been done, although the leader refused it later.
    fn outcome(&self, is_unsure: bool, present: Option<&FileRecord>) -> Option<bool> {
        // The replicas change with repairs.
        let is_same = |one: &FileRecord, other: &FileRecord| {
            one.is_as_written(other) && one.attributes == other.attributes
        };
        let is_unchanged = match (&self.over, present) {
            (Some(Some(over)), Some(present)) => is_same(over, present),
            (Some(None) | None, None) => true,
            _ => false,
        };
        match present {
            _ if !is_unsure => None,
            Some(present) if is_same(present, self.record) => Some(true),
            _ if is_unchanged => None,
            _ => Some(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::ObjectId;
    use eyas_types::dfs::{Attributes, FileId, NodeId};

    use super::*;

    #[test]
    fn a_lost_answer_and_another_client_end_the_tries() {
        let record = |object: u8, replicas: &[u64]| {
            let (object, replicas) =
                (ObjectId([object; 16]), replicas.iter().copied().map(NodeId).collect());
            let chunks = vec![Chunk { object, size_bytes: 1, checksum: 0, replicas }];
            FileRecord {
                chunks,
                ..FileRecord::without_content(FileId(1), FileKind::File, Attributes::default())
            }
        };
        let own = record(1, &[1, 2]);
        let outcome = |is_unsure,
                       over: Option<Option<&FileRecord>>,
                       present: Option<&FileRecord>| {
            Tries { record: &own, over: over.map(|over| over.cloned()) }.outcome(is_unsure, present)
        };
        let (before, repaired, other) = (record(2, &[1]), record(2, &[1, 3]), record(3, &[1]));
        assert_eq!(outcome(false, None, Some(&other)), None, "all tries were refused");
        assert_eq!(
            outcome(true, Some(Some(&before)), Some(&record(1, &[2, 3]))),
            Some(true),
            "and was repaired"
        );
        assert_eq!(outcome(true, Some(Some(&before)), Some(&repaired)), None);
        assert_eq!(outcome(true, Some(Some(&before)), Some(&other)), Some(false));
        assert_eq!(outcome(true, Some(Some(&before)), None), Some(false));
        assert_eq!((outcome(true, Some(None), None), outcome(true, None, None)), (None, None));
        assert_eq!(
            (outcome(true, Some(None), Some(&other)), outcome(true, None, Some(&other))),
            (Some(false), Some(false))
        );
        let touched =
            FileRecord { attributes: Attributes { mode: 1, ..own.attributes }, ..own.clone() };
        assert_eq!(
            outcome(true, Some(Some(&touched)), Some(&touched)),
            None,
            "the try only changes attributes"
        );
    }
}
