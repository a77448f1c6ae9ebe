//! Audits and scrubbing, which find missing and damaged chunks that no program reads.
//!
//! From time to time, a leader asks the nodes that should have chunks of its files whether they do.
//! Missing chunks are repaired. The nodes learn from the questions which of their chunks still
//! belong to a file. Each node also reads its own chunks, one after the other. A damaged chunk is
//! moved aside, so the next audit finds it missing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_ring::{Event, Records, Ring};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileRecord, NodeId};
use thiserror::Error;
use tokio::task::JoinError;
use tokio::time::sleep;

use crate::auditors::AUDIT_EVERY;
use crate::database::DatabaseError;
use crate::links::ToPeer;
use crate::node_shared::NodeShared;

/// Shortest pause between two audits, when nodes ask for them.
// Short in tests, so that they can wait for two.
const AUDITS_APART: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 200 } else { 2000 });

/// Chunks that a client has left when its connection ended are deleted after this time, if no file
/// has them: the client may have given them to a file just before, or may connect again and renew
/// them. `MAX_UNRENEWED` in `data/files/src/replicas/unclaimed.rs` has to be shorter.
// Short in tests, so that they can wait for it.
const LEFT_PATIENCE: Duration =
    if cfg!(debug_assertions) { Duration::from_secs(1) } else { Duration::from_secs(20) };

/// Number of files that are audited in one step.
const FILES_TOGETHER: usize = 64;

/// Pause before a step in which there are files. Most partitions of a small file system have none.
const PAUSE: Duration = Duration::from_millis(20);

/// A chunk belongs to no file if no leader has asked for it within this time, while all leaders
/// were auditing.
const MAX_UNAUDITED: Duration = Duration::from_secs(24 * 3600);

/// Rate at which a node reads its chunks to check them, bytes per second. A full disk of 10 TB
/// takes four days.
pub(crate) const SCRUB_BYTES_PER_S: u64 = 32 << 20;

/// Audits all files that this node leads, again and again, and deletes chunks that belong to no
/// file.
pub(crate) async fn audit(shared: Arc<NodeShared>) {
    loop {
        let soon = async {
            sleep(AUDITS_APART).await;
            shared.audit_soon.notified().await;
        };
        tokio::select! {
            () = sleep(AUDIT_EVERY) => {}
            () = soon => {}
        }
        let Some(view) = shared.settled_view() else { continue };
        let ring = Ring::new(&view);
        let led =
            (0..ring.partitions()).filter(|partition| ring.replicas(*partition)[0] == shared.node);
        if let Err(error) =
            audit_all(led, |partition, from| audit_some(shared.clone(), partition, from)).await
        {
            // Chunks of the files that were not audited must not count as chunks of no file.
            tracing::warn!(
                %error,
                "an audit of the files that this node leads has failed; the next one begins anew"
            );
            continue;
        }
        for member in view.members.iter().filter(|member| **member != shared.node) {
            shared.send(*member, ToPeer::Audited);
        }
        let all_since = {
            let (mut auditors, now) = (shared.auditors(), Instant::now());
            auditors.heard(shared.node, now);
            auditors.all_since(&view.members, now)
        };
        let is_long = |since: Instant| since.elapsed() >= MAX_UNAUDITED;
        if !all_since.is_some_and(is_long) {
            continue;
        }
        let stale = shared.chunks.not_audited_since(Instant::now() - MAX_UNAUDITED);
        if !stale.is_empty() {
            tracing::info!(count = stale.len(), "deleted chunks that belong to no file");
        }
        shared.chunks.drop(&stale);
        shared.chunks.drop_damaged_before(Instant::now() - MAX_UNAUDITED);
    }
}

/// Deletes chunks of clients that have gone, once all leaders have audited since and none has asked
/// for them. Asks the leaders to do so.
pub(crate) fn reclaim(shared: &NodeShared) {
    let Some(view) = shared.settled_view() else { return };
    let now = Instant::now();
    let left = shared.chunks.left_before(now.checked_sub(LEFT_PATIENCE).unwrap_or(now));
    if left.is_empty() {
        return;
    }
    let is_over = |since: &Instant| {
        shared.auditors().have_audited_since(&view.members, *since + LEFT_PATIENCE)
    };
    let (over, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, since)| is_over(since));
    let count = shared.chunks.drop_left(&over);
    if count > 0 {
        tracing::info!(count, "deleted chunks that a client has left and that belong to no file");
    }
    if !rest.is_empty() {
        shared.audit_soon.notify_one();
        for member in view.members.iter().filter(|member| **member != shared.node) {
            shared.send(*member, ToPeer::AuditSoon);
        }
    }
}

/// An audit that was not completed.
#[derive(Debug, Error)]
enum AuditError {
    #[error("{0}")]
    Database(#[from] DatabaseError),
    #[error("reading the records has failed: {0}")]
    Reading(#[from] JoinError),
}

/// Audits all files of these partitions with `audit_some`. Where that fails, the other partitions
/// are still audited.
async fn audit_all<E, F: Future<Output = Result<Option<String>, E>>>(
    partitions: impl Iterator<Item = u16>,
    audit_some: impl Fn(u16, String) -> F,
) -> Result<(), E> {
    let mut result = Ok(());
    for partition in partitions {
        let mut from = Some(String::new());
        while let Some(begin) = from {
            from = audit_some(partition, begin).await.unwrap_or_else(|error| {
                result = Err(error);
                None
            });
        }
    }
    result
}

/// Audits some files of a partition. Returns the name from which to continue; `None` at the end of
/// the partition.
async fn audit_some(
    shared: Arc<NodeShared>,
    partition: u16,
    from: String,
) -> Result<Option<String>, AuditError> {
    let looking = shared.clone();
    let look = move || looking.database.read(|records| files_from(records, partition, from));
    let (files, next) = tokio::task::spawn_blocking(look).await??;
    if !files.is_empty() {
        sleep(PAUSE).await;
    }
    for (name, record) in files {
        for (node, objects) in holders(&record) {
            if node == shared.node {
                let objects = shared.chunks.audited(&objects).await;
                if !objects.is_empty() {
                    shared.tell(Event::BadReplicas { name: name.clone(), objects, node });
                }
            } else {
                shared.send(node, ToPeer::Audit { name: name.clone(), objects });
            }
        }
    }
    Ok(next)
}

/// Some files of a partition, and the name from which to continue.
fn files_from(
    records: &impl Records,
    partition: u16,
    from: String,
) -> (Vec<(FileName, FileRecord)>, Option<String>) {
    let (mut files, mut from) = (Vec::new(), from);
    for _ in 0..FILES_TOGETHER {
        let Some((name, stored)) = records.first(partition, &from) else { return (files, None) };
        // Names contain no NUL, so no name is between the two.
        from = format!("{name}\0");
        // Chunks of a file that is being renamed, or replaced by a rename, belong to it until the
        // rename is over.
        files.extend(stored.entry.record().map(|record| (name, record.clone())));
    }
    (files, Some(from))
}

/// The nodes of a file's replicas, with their chunks.
pub(crate) fn holders(record: &FileRecord) -> BTreeMap<NodeId, Vec<ObjectId>> {
    let mut holders = BTreeMap::<_, Vec<_>>::new();
    for chunk in record.needed_chunks() {
        for node in &chunk.replicas {
            holders.entry(*node).or_default().push(chunk.object);
        }
    }
    holders
}

/// Reads this node's chunks, one after the other, again and again, at this rate.
pub(crate) async fn scrub(shared: Arc<NodeShared>, bytes_per_s: u64) {
    loop {
        sleep(AUDIT_EVERY).await;
        for (object, chunk) in shared.chunks.all() {
            let reading = shared.clone();
            let _ = tokio::task::spawn_blocking(move || reading.chunks.scrub(object)).await;
            sleep(Duration::from_secs_f64(chunk.size_bytes as f64 / bytes_per_s as f64)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use eyas_ring::NameEntry;
    use eyas_types::dfs::{Attributes, Chunk, FileId, FileKind};

    use super::*;

    #[tokio::test]
    async fn an_audit_that_fails_in_one_partition_is_not_complete() {
        let audit = async |fails: Option<u16>| {
            let audited = Mutex::new(Vec::new());
            let some = |partition: u16, from: String| {
                audited.lock().unwrap().push((partition, from.clone()));
                let next = from.is_empty().then(|| "more".to_owned());
                std::future::ready(if fails == Some(partition) { Err("no") } else { Ok(next) })
            };
            let result = audit_all([3, 5].into_iter(), some).await;
            let audited = audited.into_inner().unwrap();
            (
                result,
                audited
                    .iter()
                    .map(|(partition, from)| format!("{partition}{from}"))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            audit(None).await,
            (Ok(()), ["3", "3more", "5", "5more"].map(str::to_owned).to_vec())
        );
        assert_eq!(
            audit(Some(5)).await,
            (Err("no"), ["3", "3more", "5"].map(str::to_owned).to_vec())
        );
        assert_eq!(
            audit(Some(3)).await,
            (Err("no"), ["3", "5", "5more"].map(str::to_owned).to_vec())
        );
    }

    /// Records in one partition.
    struct RecordList(BTreeMap<FileName, eyas_ring::Stored>);

    impl Records for RecordList {
        fn get(&self, _: u16, name: &FileName) -> Option<eyas_ring::Stored> {
            self.0.get(name).cloned()
        }

        fn first(&self, _: u16, from: &str) -> Option<(FileName, eyas_ring::Stored)> {
            let found = self.0.iter().find(|(name, _)| name.as_str() >= from);
            found.map(|(name, stored)| (name.clone(), stored.clone()))
        }
    }

    #[test]
    fn files_that_are_being_renamed_are_audited() {
        let version =
            eyas_ring::RecordVersion { round: eyas_ring::Round { view: 1, boot: 1 }, sequence: 1 };
        let name = |name: &str| name.parse::<FileName>().unwrap();
        let record =
            |id| FileRecord::without_content(FileId(id), FileKind::File, Attributes::default());
        let (from, to, id) = (name("/d"), name("/a"), FileId(1));
        let entries = [
            ("/a", NameEntry::Arriving { from: from.clone(), version, id, over: Some(record(2)) }),
            ("/b", NameEntry::Arriving { from, version, id, over: None }),
            ("/c", NameEntry::Removed { id: FileId(3), is_gone: true }),
            ("/d", NameEntry::Departed { to, token: version, record: record(1) }),
            ("/e", NameEntry::File(record(4))),
        ];
        let entries = entries.map(|(of, entry)| (name(of), eyas_ring::Stored { version, entry }));
        let (files, next) = files_from(&RecordList(entries.into()), 0, String::new());
        let ids: Vec<_> = files.iter().map(|(_, record)| record.id.0).collect();
        assert_eq!((ids, next), (vec![2, 1, 4], None));
    }

    #[test]
    fn each_holder_is_asked_for_its_chunks() {
        let chunk = |number: u8, replicas: &[u64]| Chunk {
            object: ObjectId([number; 16]),
            size_bytes: 1,
            checksum: 0,
            replicas: replicas.iter().copied().map(NodeId).collect(),
        };
        let record = FileRecord {
            chunks: vec![chunk(1, &[7, 8]), chunk(2, &[8, 9])],
            ..FileRecord::without_content(FileId(1), FileKind::File, Attributes::default())
        };
        let object = |number: u8| ObjectId([number; 16]);
        let asked = [(7, vec![object(1)]), (8, vec![object(1), object(2)]), (9, vec![object(2)])];
        assert_eq!(holders(&record), asked.map(|(node, objects)| (NodeId(node), objects)).into());
    }
}
