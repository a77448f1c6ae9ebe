//! Files whose content may not be on the disks of its nodes: it is forced there soon after it was
//! written, and until then the file can fall back to the version before.
//!
//! A client may write a file, and see it, before its chunks are on the disks. The record then keeps
//! the last version that is there, with its chunks. The leader has the nodes of the new chunks
//! force them to their disks, and then forgets the version before. If all nodes of a new chunk
//! answer that it is bad, as after a power failure of all of them, the file gets the version before
//! back; a new file, which has none, is removed. While a node is away, which may have the chunk,
//! the file waits for it.
//!
//! To forget the version before is a second write of the record. Programs that close thousands of
//! small files would pay for it what they pay for the first one, so files that were written in the
//! same half second go together: each node has one question with all its chunks, forces them to its
//! disk at once, and gives one answer. The records that follow from the answer share a transaction
//! of the leader, a frame to each replica, and a transaction there.
//!
//! The state here is in memory only. The next leader finds the files when it scans the names.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{FileName, FileRecord, NodeId};

use crate::after_write::AfterWrite;
use crate::decision::dropped;
use crate::event::{Config, Effect, FileChunks};
use crate::membership::RingMembership;
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::serve::LedNames;
use crate::step::Step;

/// Maximum number of files that a leader has forced to the disks at a time. Further ones are found
/// by a later scan.
pub const MAX_SYNCING: usize = 4096;

/// Maximum number of files whose nodes are asked in one tick. Their records are messages to the
/// replicas soon, of which a bounded number waits.
pub const MAX_SYNCED_TOGETHER: usize = 1024;

/// When that many chunks of files are to be forced to the disks in a tick, further files wait for
/// the next one.
pub const MAX_SYNCED_CHUNKS: usize = 1 << 14;

/// Content is forced to the disks this long after it was written, as a multiple of
/// `Config::resend_us`, or up to one `Config::resend_us` later, together with what is written until
/// then. Files that are removed or written again within that time cost no sync.
const WRITTEN_PATIENCE: u64 = 3;

/// Nodes are asked again after this multiple of `Config::resend_us`, and then each time after twice
/// as long: a node that has just started may not have heard the first question.
const FIRST_PATIENCE: u64 = 4;

/// The longest time after which they are asked again, as a multiple of `Config::patience_us`.
const SYNC_PATIENCE: u64 = 4;

/// Number of nodes that must have a chunk on their disks, if that many have the chunk: 2 of 3
/// nodes, or the only one if the replicas of the other two are bad. Clients that wait for the disks
/// wait for as many.
const ENOUGH: usize = 2;

#[derive(Default)]
pub(crate) struct SyncingFiles(BTreeMap<FileName, SyncingFile>);

struct SyncingFile {
    version: RecordVersion,
    /// When the nodes are asked next.
    due_us: u64,
    /// When they were asked for this version.
    asked_us: Option<u64>,
    /// Number of times that they were asked for it.
    times: u32,
    /// The nodes that have answered for this version, with the chunks that are bad there. Their
    /// other chunks are on their disks.
    answers: BTreeMap<NodeId, BTreeSet<ObjectId>>,
}

impl SyncingFile {
    fn new(version: RecordVersion, due_us: u64) -> Self {
        SyncingFile { version, due_us, asked_us: None, times: 0, answers: BTreeMap::new() }
    }
}

impl SyncingFiles {
    /// Has a version forced to the disks at this time, or earlier if an earlier version was about
    /// to be.
    fn add(&mut self, name: &FileName, version: RecordVersion, due_us: u64) {
        let due_us = match self.0.get(name) {
            Some(known) if known.version == version => return,
            Some(known) if known.asked_us.is_none() => due_us.min(known.due_us),
            Some(_) => due_us,
            None if self.0.len() >= MAX_SYNCING => return,
            None => due_us,
        };
        self.0.insert(name.clone(), SyncingFile::new(version, due_us));
    }

    /// A view has begun: leaders scan their names anew.
    pub fn enter_view(&mut self) {
        self.0.clear();
    }

    /// An entry was written. Content that a client has written waits a little for more; that of a
    /// file whose replicas have changed does not.
    pub fn written(
        &mut self,
        config: &Config,
        name: &FileName,
        (version, entry): (RecordVersion, &NameEntry),
        then: &AfterWrite,
        now_us: u64,
    ) {
        match entry {
            NameEntry::File(record) if record.unsynced.is_some() => {
                let is_own = matches!(then, AfterWrite::Done { request: None, .. });
                let due_us = if is_own { now_us } else { due_us(config.resend_us, now_us) };
                self.add(name, version, due_us);
            }
            _ => drop(self.0.remove(name)),
        }
    }

    /// A scan has found a file.
    pub fn resume(
        &mut self,
        name: &FileName,
        version: RecordVersion,
        record: &FileRecord,
        now_us: u64,
    ) {
        if record.unsynced.is_some() {
            self.add(name, version, now_us);
        }
    }

    pub fn validate(&self) {
        assert!(self.0.len() <= MAX_SYNCING);
    }
}

/// When content that a client has written now is forced to the disks. With 0.5 s to answer a
/// message, content of the times 0.1 s, 0.3 s and 0.5 s is all due at 2 s: 1.5 s later, rounded up
/// to a multiple of 0.5 s.
fn due_us(together_us: u64, now_us: u64) -> u64 {
    (now_us + WRITTEN_PATIENCE * together_us).next_multiple_of(together_us)
}

/// Time until nodes that were asked this number of times are asked again: with the default
/// configuration 2 s, 4 s, 8 s, 16 s, and then 20 s each time.
fn wait_us(config: &Config, times: u32) -> u64 {
    let (first_us, most_us) =
        (FIRST_PATIENCE * config.resend_us, SYNC_PATIENCE * config.patience_us);
    first_us.saturating_mul(1 << times.min(32)).min(most_us)
}

impl LedNames {
    /// Has the nodes of files force their chunks to their disks.
    pub fn sync_files(&mut self, here: &RingMembership, step: &mut Step) {
        let due = self.syncing.0.iter().filter(|(_, file)| file.due_us <= step.now_us);
        let due =
            due.filter(|(name, _)| !self.pending.contains_key(*name)).take(MAX_SYNCED_TOGETHER);
        let due: Vec<FileName> = due.map(|(name, _)| name.clone()).collect();
        let (mut of_nodes, mut chunks) = (BTreeMap::<NodeId, Vec<FileChunks>>::new(), 0);
        for name in due {
            if chunks >= MAX_SYNCED_CHUNKS {
                break;
            }
            let Some((version, record)) = self.unsynced(here, &name, step) else {
                self.syncing.0.remove(&name);
                continue;
            };
            let file = self.syncing.0.get_mut(&name).expect("it is one of them");
            if file.version != version {
                *file = SyncingFile::new(version, step.now_us);
            }
            (file.due_us, file.asked_us) =
                (step.now_us + wait_us(&here.config, file.times), Some(step.now_us));
            file.times += 1;
            chunks += record.unsynced_chunks().count();
            for (node, objects) in unsynced_of_nodes(&record) {
                of_nodes.entry(node).or_default().push(FileChunks {
                    name: name.clone(),
                    version,
                    objects,
                });
            }
        }
        step.records
            .effects
            .extend(of_nodes.into_iter().map(|(node, files)| Effect::Sync { node, files }));
    }

    /// A replica of the content seems to be bad: all nodes are asked, unless they were asked just
    /// now.
    pub fn sync_again(&mut self, here: &RingMembership, name: &FileName, step: &Step) {
        let Some((version, record)) = self.unsynced(here, name, step) else { return };
        self.syncing.resume(name, version, &record, step.now_us);
        if let Some(file) = self.syncing.0.get_mut(name) {
            let asked_us = file.asked_us.map_or(0, |asked_us| asked_us + here.config.resend_us);
            file.due_us = file.due_us.min(step.now_us.max(asked_us));
        }
    }

    /// A node has forced its chunks of a file to its disk, but for bad ones. Returns whether the
    /// content is on the disks now; replicas may be missing then.
    pub fn file_synced(
        &mut self,
        here: &RingMembership,
        node: NodeId,
        bad: FileChunks,
        step: &mut Step,
    ) -> bool {
        let FileChunks { ref name, version, objects } = bad;
        let Some(file) = self.syncing.0.get_mut(name).filter(|file| file.version == version) else {
            return false;
        };
        file.answers.insert(node, objects.into_iter().collect());
        let Some((_, mut record)) =
            self.unsynced(here, name, step).filter(|(is, _)| *is == version)
        else {
            return false;
        };
        let answers = &self.syncing.0[name].answers;
        let (mut is_there, mut is_lost) = (true, false);
        for chunk in record.unsynced_chunks() {
            let answered = chunk.replicas.iter().filter_map(|node| answers.get(node));
            let (bad, good): (Vec<_>, Vec<_>) =
                answered.partition(|bad| bad.contains(&chunk.object));
            is_lost |= bad.len() == chunk.replicas.len();
            is_there &= good.len() >= ENOUGH.min(chunk.replicas.len() - bad.len());
        }
        if is_lost {
            let removed = NameEntry::Removed { id: record.id, is_gone: true };
            let entry = record.fallback().map_or(removed, NameEntry::File);
            self.put_instead(here, name, &record, entry, step);
            return false;
        }
        if is_there {
            for chunk in &mut record.chunks {
                chunk.replicas.retain(|node| {
                    !answers.get(node).is_some_and(|bad| bad.contains(&chunk.object))
                });
            }
            let present = record.clone();
            record.unsynced = None;
            self.put_instead(here, name, &present, NameEntry::File(record), step);
        }
        is_there
    }

    /// Writes an entry, after which the chunks that only the present record needs are deleted.
    fn put_instead(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        present: &FileRecord,
        entry: NameEntry,
        step: &mut Step,
    ) {
        let dropped = dropped(present, entry.file());
        self.put(here, name, entry, AfterWrite::Done { request: None, dropped }, step);
    }

    /// The record of a file whose content may not be on the disks, if this node serves it and no
    /// operation on it is in progress.
    fn unsynced(
        &self,
        here: &RingMembership,
        name: &FileName,
        step: &Step,
    ) -> Option<(RecordVersion, FileRecord)> {
        match self.served(here, name, step)?? {
            Stored { version, entry: NameEntry::File(record) } if record.unsynced.is_some() => {
                Some((version, record))
            }
            _ => None,
        }
    }
}

/// The nodes of the chunks of a file that may not be on the disks, with their chunks.
fn unsynced_of_nodes(record: &FileRecord) -> BTreeMap<NodeId, Vec<ObjectId>> {
    let mut of_nodes = BTreeMap::<NodeId, Vec<ObjectId>>::new();
    for chunk in record.unsynced_chunks() {
        chunk
            .replicas
            .iter()
            .for_each(|node| of_nodes.entry(*node).or_default().push(chunk.object));
    }
    of_nodes
}
