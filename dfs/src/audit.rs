//! What keeps chunks as they are to be, while nobody reads them.
//!
//! A leader asks now and then whoever is to have chunks of its files whether they do; what is missing is repaired. The
//! asked learn so which of their chunks are still of use. And each node reads its own chunks, one after the other: one that
//! is damaged is kept aside, and so found missing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_ring::{Event, Records, Ring};
use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileRecord, NodeId};
use tokio::time::sleep;

use crate::node::NodeShared;
use crate::protocol::ToPeer;

/// After an audit of all its files, a leader begins the next so much later.
// Often where it is tested, so that tests meet it.
const AUDIT_EVERY: Duration = if cfg!(debug_assertions) { Duration::from_secs(2) } else { Duration::from_secs(600) };

/// Files that are audited at a time.
const FILES_TOGETHER: usize = 64;

/// Between them.
const PAUSE: Duration = Duration::from_millis(20);

/// A chunk that no leader has asked for so long, while all leaders were asking, is of no file any more.
const MAX_UNAUDITED: Duration = Duration::from_secs(24 * 3600);

/// Who has not ended an audit for so long does not ask, it seems.
const MISSED_AUDITS: u32 = 3;

/// Bytes that a node reads in a second to see whether its chunks are good. A full disk of 10 TB takes four days.
const SCRUB_BYTES_PER_S: f64 = (32 << 20) as f64;

/// Who has asked for all chunks of their files, and when.
#[derive(Default)]
pub(crate) struct Auditors {
    last: BTreeMap<NodeId, Instant>,
    /// Since when all members have asked, again and again.
    all_since: Option<Instant>,
}

impl Auditors {
    /// A leader has asked for all.
    pub fn heard(&mut self, leader: NodeId, now: Instant) {
        self.last.insert(leader, now);
    }

    /// Since when all of these have been asking, without a gap; nothing if one does not. What nobody has asked for meanwhile,
    /// nobody leads.
    fn all_since(&mut self, members: &BTreeSet<NodeId>, now: Instant) -> Option<Instant> {
        let patience = AUDIT_EVERY * MISSED_AUDITS;
        let asks = |node: &NodeId| self.last.get(node).is_some_and(|last| now - *last < patience);
        self.all_since = match members.iter().all(asks) {
            true => self.all_since.or(Some(now)),
            false => None,
        };
        self.all_since
    }
}

/// Asks for the chunks of all files that this node leads, again and again; collects chunks that nobody asks for.
pub(crate) async fn audit(shared: Arc<NodeShared>) {
    loop {
        sleep(AUDIT_EVERY).await;
        let Some(view) = shared.settled_view() else { continue };
        let ring = Ring::new(&view);
        for partition in (0..ring.partitions()).filter(|partition| ring.replicas(*partition)[0] == shared.node) {
            let mut from = String::new();
            while let Some(next) = audit_some(&shared, partition, from).await {
                from = next;
                sleep(PAUSE).await;
            }
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
            tracing::info!(count = stale.len(), "chunks are of no file any more; dropped");
        }
        shared.chunks.drop(&stale);
        shared.chunks.drop_damaged_before(Instant::now() - MAX_UNAUDITED);
    }
}

/// Audits files of a partition; tells from which name on there may be more.
async fn audit_some(shared: &Arc<NodeShared>, partition: u16, from: String) -> Option<String> {
    let looking = shared.clone();
    let look = move || looking.database.read(|records| files_from(records, partition, from));
    let (files, next) = match tokio::task::spawn_blocking(look).await.ok()? {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "files cannot be audited");
            return None;
        }
    };
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
    next
}

/// Some of the files of a partition, and from which name on there may be more.
fn files_from(records: &impl Records, partition: u16, from: String) -> (Vec<(FileName, FileRecord)>, Option<String>) {
    let (mut files, mut from) = (Vec::new(), from);
    for _ in 0..FILES_TOGETHER {
        let Some((name, stored)) = records.first(partition, &from) else { return (files, None) };
        // No name has a NUL, so that none is between.
        from = format!("{name}\0");
        files.extend(stored.entry.file().map(|record| (name, record.clone())));
    }
    (files, Some(from))
}

/// Who is to have which chunks.
fn holders(record: &FileRecord) -> BTreeMap<NodeId, Vec<ObjectId>> {
    let mut holders = BTreeMap::<_, Vec<_>>::new();
    for chunk in &record.chunks {
        for node in &chunk.replicas {
            holders.entry(*node).or_default().push(chunk.object);
        }
    }
    holders
}

/// Reads this node's chunks, one after the other, again and again.
pub(crate) async fn scrub(shared: Arc<NodeShared>) {
    loop {
        sleep(AUDIT_EVERY).await;
        for (object, chunk) in shared.chunks.all() {
            let reading = shared.clone();
            let _ = tokio::task::spawn_blocking(move || reading.chunks.scrub(object)).await;
            sleep(Duration::from_secs_f64(chunk.size_bytes as f64 / SCRUB_BYTES_PER_S)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::{Chunk, FileId, Format};

    use super::*;

    #[test]
    fn only_while_all_ask_does_silence_say_something() {
        let (members, began) = (BTreeSet::from([NodeId(1), NodeId(2)]), Instant::now());
        let at = |audits: u32| began + AUDIT_EVERY * audits;
        let mut auditors = Auditors::default();
        auditors.heard(NodeId(1), at(0));
        assert_eq!(auditors.all_since(&members, at(0)), None);
        auditors.heard(NodeId(2), at(1));
        assert_eq!(auditors.all_since(&members, at(1)), Some(at(1)));
        auditors.heard(NodeId(1), at(2));
        assert_eq!(auditors.all_since(&members, at(3)), Some(at(1)));
        // The second has missed three.
        auditors.heard(NodeId(1), at(4));
        assert_eq!(auditors.all_since(&members, at(4)), None);
        auditors.heard(NodeId(2), at(5));
        assert_eq!(auditors.all_since(&members, at(5)), Some(at(5)), "it begins anew");
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
            id: FileId(1),
            format: Format::Lines,
            chunk_bytes: 1,
            replication: 2,
            modified_us: 0,
            chunks: vec![chunk(1, &[7, 8]), chunk(2, &[8, 9])],
        };
        let object = |number: u8| ObjectId([number; 16]);
        let asked = [(7, vec![object(1)]), (8, vec![object(1), object(2)]), (9, vec![object(2)])];
        assert_eq!(holders(&record), asked.map(|(node, objects)| (NodeId(node), objects)).into());
    }
}
