//! Repair: keeps every chunk on as many nodes as its file's replication demands.
//!
//! A leader scans all names that it leads, some at each tick, again and again. Where a chunk has too few replicas, it
//! asks other nodes to fetch it and then updates the record. The scan also completes unfinished renames, and erases
//! obsolete entries.
//!
//! `under_replicated.rs` has the state of the repairs, and decides which node fetches which chunk from where.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::message::MessageBody;
use crate::node::{RingNode, Step};
use crate::placement::replica_targets;
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::record_view::following;
use crate::serve::AfterWrite;
use crate::under_replicated::{Loads, MAX_REPAIRS, Repair, Repairs, UnderReplicated};

/// Maximum number of names that are scanned in a tick.
pub const MAX_NAMES_SCANNED: usize = 1000;
/// Target number of chunks that a node has to fetch for all leaders together, so that it is busy while leaders hear of
/// its progress.
pub const FETCHES_AHEAD: usize = 32;
/// When this number of new replicas of one file have been made, the record is updated, even if others are still being
/// made.
const WRITTEN_TOGETHER: usize = 64;

/// A chunk is fetched by the least loaded of this number of nodes that follow it on the ring. With the first alone,
/// some of 8 nodes had twice the mean load.
const CANDIDATES_PER_CHUNK: u8 = 8;

/// A leader waits for the fetches of a file for this multiple of `Config::patience_us` after the last one succeeded.
const FETCH_PATIENCE: u64 = 12;

impl RingNode {
    /// Scans some names and advances the repairs in progress.
    pub(crate) fn repair(&mut self, step: &mut Step) {
        self.repairs.avoided.retain(|_, until_us| step.now_us < *until_us);
        for repair in self.repairs.files.values_mut().filter(|repair| step.now_us >= repair.until_us) {
            repair.under_replicated.clear();
            repair.awaited.clear();
        }
        let is_over = |(_, repair): &(&FileName, &Repair)| repair.in_progress() == 0;
        let over: Vec<FileName> = self.repairs.files.iter().filter(is_over).map(|(name, _)| name.clone()).collect();
        over.iter().for_each(|name| self.write_fetched(name, step));
        self.ask_again(step);
        self.scan_names(step);
        self.assign_fetches(step);
    }

    /// Scans names until enough repairs are in progress.
    fn scan_names(&mut self, step: &mut Step) {
        for _ in 0..MAX_NAMES_SCANNED {
            if step.now_us < self.repairs.rest_until_us || self.repairs.in_progress() >= MAX_REPAIRS {
                break;
            }
            let (at, from) = core::mem::take(&mut self.repairs.cursor);
            let Some(partition) = self.rounds.range(at..).next().map(|(partition, _)| *partition) else {
                let has_passed = core::mem::take(&mut self.repairs.has_passed);
                let rest_us = if !self.has_settled() {
                    // Partitions that are not served yet were skipped.
                    0
                } else if has_passed {
                    self.config.resend_us
                } else {
                    self.config.patience_us
                };
                self.repairs.rest_until_us = step.now_us + rest_us;
                break;
            };
            let from = if partition == at { from } else { String::new() };
            self.repairs.cursor = match step.records.first(partition, &from) {
                Some((name, stored)) => {
                    let is_done = self.check_name(partition, &name, stored, step);
                    (partition, if is_done { following(name.as_str()) } else { name.as_str().to_owned() })
                }
                None => (partition + 1, String::new()),
            };
        }
    }

    /// Checks one name. Returns whether all repairs that it needs are in progress.
    fn check_name(&mut self, partition: u16, name: &FileName, stored: Stored, step: &mut Step) -> bool {
        let Some(current) = &self.current else { return true };
        let base = current.view.base;
        if stored.is_obsolete(base) && self.rounds.get(&partition).is_some_and(|round| round.view >= base) {
            step.records.erase(partition, name);
        }
        if !self.serves(partition) {
            return true;
        }
        if self.pending.contains_key(name) || self.expects(name, &stored, step) {
            self.repairs.has_passed = true;
            return true;
        }
        match stored.entry {
            NameEntry::File(record) => {
                self.resume_sync(name, stored.version, &record, step);
                self.start_repair(name, stored.version, &record, step)
            }
            entry => {
                self.tell_moved(name, &entry, step);
                true
            }
        }
    }

    /// Starts repairs of the chunks of a file, up to the limit. Returns whether all that are needed have been started.
    fn start_repair(&mut self, name: &FileName, version: RecordVersion, record: &FileRecord, step: &mut Step) -> bool {
        let Some(current) = &self.current else { return true };
        let (members, ring) = (&current.view.members, &current.ring);
        let mut room = MAX_REPAIRS - self.repairs.in_progress();
        let Repairs { files, avoided, .. } = &mut self.repairs;
        let until_us = step.now_us + FETCH_PATIENCE * self.config.patience_us;
        let mut repair = match files.remove(name) {
            Some(repair) if repair.version == version => repair,
            _ => Repair::new(version, step.now_us, until_us),
        };
        let mut is_all = true;
        for chunk in record.chunks.iter().filter(|chunk| !chunk.is_hole()) {
            let has: Vec<NodeId> = chunk.replicas.iter().copied().filter(|node| members.contains(node)).collect();
            let count = usize::from(record.replication).saturating_sub(has.len() + repair.expected(chunk.object));
            if has.is_empty() {
                self.lost.add(name, chunk, false);
                continue;
            }
            if count == 0 || self.lost.are_bad(name, chunk) {
                continue;
            }
            let may_take =
                |node| !has.contains(&node) && !avoided.contains_key(&node) && !repair.is_fetching(chunk.object, node);
            let candidates =
                replica_targets(ring, chunk.object, CANDIDATES_PER_CHUNK.max(record.replication), None, may_take);
            let count = count.min(candidates.len());
            is_all &= count <= room;
            let count = count.min(room);
            if count > 0 {
                room -= count;
                let chunk = Chunk { replicas: has, ..chunk.clone() };
                repair
                    .under_replicated
                    .entry(chunk.object)
                    .or_insert(UnderReplicated { chunk, count: 0, candidates })
                    .count += count;
            }
        }
        if repair.in_progress() > 0 || !repair.fetched.is_empty() {
            files.insert(name.clone(), repair);
        }
        is_all
    }

    /// Assigns fetches to nodes, up to the number that they may have ahead.
    fn assign_fetches(&mut self, step: &mut Step) {
        let Some(current) = &self.current else { return };
        let ahead = (FETCHES_AHEAD / current.view.members.len()).max(1);
        let mut loads = Loads::of(&self.repairs);
        let mut asked = Vec::new();
        while let Some(choice) = self.repairs.next_fetch(&loads, ahead) {
            let chunk = self.repairs.start_fetch(&choice, &mut loads);
            asked.push((choice.target, MessageBody::FetchChunk { name: choice.name, chunk }));
        }
        asked.into_iter().for_each(|(node, body)| self.send(node, body, step));
    }

    /// Repeats requests that were not answered. A node that has the chunk already answers at once.
    fn ask_again(&mut self, step: &mut Step) {
        let mut asked = Vec::new();
        for (name, repair) in &mut self.repairs.files {
            if step.now_us >= repair.asked_us + self.config.resend_us {
                repair.asked_us = step.now_us;
                let of_file = repair.awaited.iter();
                asked.extend(of_file.map(|((_, node), chunk)| (*node, name.clone(), chunk.clone())));
            }
        }
        asked
            .into_iter()
            .for_each(|(node, name, chunk)| self.send(node, MessageBody::FetchChunk { name, chunk }, step));
    }

    /// A node has fetched a chunk, or cannot.
    pub(crate) fn chunk_status(
        &mut self,
        node: NodeId,
        name: &FileName,
        object: ObjectId,
        is_here: bool,
        step: &mut Step,
    ) {
        let patience_us = self.config.patience_us;
        let Some(repair) = self.repairs.files.get_mut(name) else { return };
        if repair.awaited.remove(&(object, node)).is_none() {
            return;
        }
        if is_here {
            repair.fetched.insert((object, node));
            repair.until_us = step.now_us + FETCH_PATIENCE * patience_us;
        } else {
            self.repairs.avoided.insert(node, step.now_us + patience_us);
        }
        if repair.in_progress() == 0 || repair.fetched.len() >= WRITTEN_TOGETHER {
            self.write_fetched(name, step);
        }
        if self.repairs.in_progress() < MAX_REPAIRS / 2 {
            self.scan_names(step);
        }
        self.assign_fetches(step);
    }

    /// Updates a file's record with its new replicas. If an operation on the file is in progress, this is tried again
    /// later.
    fn write_fetched(&mut self, name: &FileName, step: &mut Step) {
        let has_come = self.repairs.files.get(name).is_some_and(|repair| !repair.fetched.is_empty());
        if has_come && self.pending.contains_key(name) {
            return;
        }
        let Some(mut repair) = self.repairs.files.remove(name).filter(|_| has_come) else { return };
        let Some(Some(Stored { version, entry: NameEntry::File(mut record) })) = self.served(name, step) else {
            return;
        };
        let Some(current) = &self.current else { return };
        let at = (current.ring.partition(name), name.as_str().to_owned());
        if version != repair.version {
            return self.rescan_from(at, step);
        }
        let fetched = core::mem::take(&mut repair.fetched);
        let mut is_whole = true;
        for chunk in record.chunks.iter_mut().filter(|chunk| !chunk.is_hole()) {
            let new = fetched.iter().filter(|(object, _)| *object == chunk.object).map(|(_, node)| *node);
            let new: Vec<NodeId> = new.filter(|node| !chunk.replicas.contains(node)).collect();
            chunk.replicas.extend(new);
            let has = chunk.replicas.iter().filter(|node| current.view.members.contains(node)).count();
            if has >= record.replication.into() {
                chunk.replicas.retain(|node| current.view.members.contains(node));
            }
            is_whole &= has + repair.expected(chunk.object) >= record.replication.into();
        }
        if !is_whole {
            self.rescan_from(at, step);
        }
        repair.version = self.put_record(name, record, step);
        if repair.in_progress() > 0 {
            self.repairs.files.insert(name.clone(), repair);
        }
    }

    /// Moves the scan back to a name for which there may be more to do.
    fn rescan_from(&mut self, at: (u16, String), step: &Step) {
        if step.now_us < self.repairs.rest_until_us || at < self.repairs.cursor {
            self.repairs.cursor = at;
        }
        self.repairs.rest_until_us = 0;
    }

    /// Scans a name again for which there may be more to do.
    pub(crate) fn rescan_name(&mut self, name: &FileName, step: &Step) {
        if let Some(current) = &self.current {
            self.rescan_from((current.ring.partition(name), name.as_str().to_owned()), step);
        }
    }

    /// Replicas are damaged or missing, and are removed from the record. If there are no others, the record keeps
    /// them, and a good replica is searched for. Of content that may not be on the disks, all nodes are asked instead:
    /// a node that has just started may have a chunk that it has not recorded.
    pub(crate) fn bad_replicas(&mut self, name: &FileName, objects: Vec<ObjectId>, node: NodeId, step: &mut Step) {
        let Some(Some(Stored { entry: NameEntry::File(mut record), .. })) = self.served(name, step) else { return };
        let (mut objects, mut has_changed) = (BTreeSet::from_iter(objects), false);
        if record.unsynced.is_some() {
            let unsynced = record.unsynced_chunks().map(|chunk| chunk.object);
            let doubted = unsynced.filter(|object| objects.remove(object)).count();
            if doubted > 0 {
                self.sync_again(name, step);
            }
        }
        let is_bad = |chunk: &&mut Chunk| objects.contains(&chunk.object) && chunk.replicas.contains(&node);
        for chunk in record.chunks.iter_mut().filter(is_bad) {
            if chunk.replicas.len() == 1 {
                self.lost.add(name, chunk, true);
            } else {
                chunk.replicas.retain(|replica| *replica != node);
                has_changed = true;
            }
        }
        if has_changed {
            self.rescan_name(name, step);
            self.put_record(name, record, step);
        }
    }

    pub(crate) fn put_record(&mut self, name: &FileName, record: FileRecord, step: &mut Step) -> RecordVersion {
        let then = AfterWrite::Done { request: None, dropped: BTreeMap::new() };
        self.put(name, NameEntry::File(record), then, step)
    }
}
