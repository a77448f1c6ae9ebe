//! Repair: keeps every chunk on as many nodes as its file's replication demands.
//!
//! A leader scans all names that it leads (`scan.rs`). Where a chunk has too few replicas, it asks
//! other nodes to fetch it and then updates the record. The scan also completes unfinished renames,
//! and erases obsolete entries.
//!
//! `under_replicated.rs` has the state of the repairs, and decides which node fetches which chunk
//! from where. `lost.rs` has the chunks that cannot be repaired.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::lost::LostChunks;
use crate::membership::RingMembership;
use crate::message::MessageBody;
use crate::placement::replica_targets;
use crate::record::{NameEntry, RecordVersion, Stored};
use crate::record_view::following;
use crate::rename::tell_moved;
use crate::replica::PartitionReplicas;
use crate::scan::NameScan;
use crate::serve::LedNames;
use crate::step::Step;
use crate::under_replicated::{Loads, MAX_REPAIRS, Repair, Repairs, UnderReplicated};

/// Maximum number of names that are scanned in a tick.
pub const MAX_NAMES_SCANNED: usize = 1000;
/// Target number of chunks that a node has to fetch for all leaders together, so that it is busy
/// while leaders hear of its progress. Each of 8 members has a node fetch up to 4, and each of 50
/// members 1.
pub const FETCHES_AHEAD: usize = 32;
/// When this number of new replicas of one file have been made, the record is updated, even if
/// others are still being made.
const WRITTEN_TOGETHER: usize = 64;

/// A chunk is fetched by the least loaded of this number of nodes that follow it on the ring. With
/// the first alone, some of 8 nodes had twice the mean load.
const CANDIDATES_PER_CHUNK: u8 = 8;

/// A leader waits for the fetches of a file for this multiple of `Config::patience_us` after the
/// last one succeeded. With the default configuration, that is 60 s.
const FETCH_PATIENCE: u64 = 12;

/// Keeps the chunks of the files that this node leads on enough nodes.
#[derive(Default)]
pub(crate) struct ChunkRepair {
    scan: NameScan,
    repairs: Repairs,
    lost: LostChunks,
}

impl ChunkRepair {
    /// A view with these members has begun. All chunks are checked again.
    pub fn enter_view(&mut self, members: &BTreeSet<NodeId>) {
        self.scan = NameScan::default();
        self.repairs.enter_view(members);
        self.lost.enter_view();
    }

    /// Scans some names and advances the repairs in progress.
    pub fn repair(
        &mut self,
        here: &RingMembership,
        replicas: &PartitionReplicas,
        names: &mut LedNames,
        step: &mut Step,
    ) {
        let over = self.repairs.give_up(step.now_us);
        over.iter().for_each(|name| self.write_fetched(here, names, name, step));
        self.ask_again(here, step);
        self.scan_names(here, replicas, names, step);
        self.assign_fetches(here, step);
    }

    /// Searches for lost chunks.
    pub fn search(&mut self, here: &RingMembership, names: &LedNames, step: &mut Step) {
        self.lost.search(here, names, step);
    }

    /// Scans names until enough repairs are in progress.
    fn scan_names(
        &mut self,
        here: &RingMembership,
        replicas: &PartitionReplicas,
        names: &mut LedNames,
        step: &mut Step,
    ) {
        for _ in 0..MAX_NAMES_SCANNED {
            if self.scan.is_resting(step.now_us) || self.repairs.in_progress() >= MAX_REPAIRS {
                break;
            }
            let Some((partition, from)) = self.scan.position(replicas.rounds()) else {
                self.scan.rest(&here.config, names.partitions.have_settled(here), step.now_us);
                break;
            };
            match step.records.first(partition, &from) {
                Some((name, stored)) => {
                    erase_if_obsolete(here, replicas, (partition, &name), &stored, step);
                    let is_done = self.check_name(here, names, (partition, &name), stored, step);
                    let next =
                        if is_done { following(name.as_str()) } else { name.as_str().to_owned() };
                    self.scan.go_to(partition, next);
                }
                None => self.scan.go_to(partition + 1, String::new()),
            }
        }
    }

    /// Checks one name. Returns whether all repairs that it needs are in progress.
    fn check_name(
        &mut self,
        here: &RingMembership,
        names: &mut LedNames,
        (partition, name): (u16, &FileName),
        stored: Stored,
        step: &mut Step,
    ) -> bool {
        if !names.partitions.serves(here, partition) {
            return true;
        }
        if names.pending.contains_key(name) || names.expects(here, name, &stored, step) {
            self.scan.pass();
            return true;
        }
        match stored.entry {
            NameEntry::File(record) => {
                names.syncing.resume(name, stored.version, &record, step.now_us);
                self.start_repair(here, name, stored.version, &record, step.now_us)
            }
            entry => {
                tell_moved(here, name, &entry, step);
                true
            }
        }
    }

    /// Starts repairs of the chunks of a file, up to the limit. Returns whether all that are needed
    /// have been started. A chunk with replication 3 of which one node has a replica and one is
    /// fetching it needs one more.
    fn start_repair(
        &mut self,
        here: &RingMembership,
        name: &FileName,
        version: RecordVersion,
        record: &FileRecord,
        now_us: u64,
    ) -> bool {
        let Some(current) = &here.current else { return true };
        let (members, ring) = (&current.view.members, &current.ring);
        let mut room = MAX_REPAIRS - self.repairs.in_progress();
        let Repairs { files, avoided } = &mut self.repairs;
        let until_us = now_us + FETCH_PATIENCE * here.config.patience_us;
        let mut repair = match files.remove(name) {
            Some(repair) if repair.version == version => repair,
            _ => Repair::new(version, now_us, until_us),
        };
        let mut is_all = true;
        for chunk in record.chunks.iter().filter(|chunk| !chunk.is_hole()) {
            let has: Vec<NodeId> =
                chunk.replicas.iter().copied().filter(|node| members.contains(node)).collect();
            let count = usize::from(record.replication)
                .saturating_sub(has.len() + repair.expected(chunk.object));
            if has.is_empty() {
                self.lost.add(name, chunk, false);
                continue;
            }
            if count == 0 || self.lost.are_bad(name, chunk) {
                continue;
            }
            let may_take = |node| {
                !has.contains(&node)
                    && !avoided.contains_key(&node)
                    && !repair.is_fetching(chunk.object, node)
            };
            let candidates = replica_targets(
                ring,
                chunk.object,
                CANDIDATES_PER_CHUNK.max(record.replication),
                None,
                may_take,
            );
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
    fn assign_fetches(&mut self, here: &RingMembership, step: &mut Step) {
        let Some(current) = &here.current else { return };
        let ahead = (FETCHES_AHEAD / current.view.members.len()).max(1);
        let mut loads = Loads::of(&self.repairs);
        let mut asked = Vec::new();
        while let Some(choice) = self.repairs.next_fetch(&loads, ahead) {
            let chunk = self.repairs.start_fetch(&choice, &mut loads);
            asked.push((choice.target, MessageBody::FetchChunk { name: choice.name, chunk }));
        }
        asked.into_iter().for_each(|(node, body)| here.send(node, body, step));
    }

    /// Repeats requests that were not answered. A node that has the chunk already answers at once.
    fn ask_again(&mut self, here: &RingMembership, step: &mut Step) {
        for (node, name, chunk) in self.repairs.unanswered(here.config.resend_us, step.now_us) {
            here.send(node, MessageBody::FetchChunk { name, chunk }, step);
        }
    }

    /// A node has fetched a chunk, or cannot. Returns whether the fetch was awaited.
    pub fn fetched(
        &mut self,
        here: &RingMembership,
        node: NodeId,
        name: &FileName,
        (object, is_here): (ObjectId, bool),
        now_us: u64,
    ) -> bool {
        let patience_us = here.config.patience_us;
        let Some(repair) = self.repairs.files.get_mut(name) else { return false };
        if repair.awaited.remove(&(object, node)).is_none() {
            return false;
        }
        if is_here {
            repair.fetched.insert((object, node));
            repair.until_us = now_us + FETCH_PATIENCE * patience_us;
        } else {
            self.repairs.avoided.insert(node, now_us + patience_us);
        }
        true
    }

    /// A fetch for a file has ended: its record is updated if it is time, and other fetches are
    /// started.
    pub fn go_on(
        &mut self,
        here: &RingMembership,
        replicas: &PartitionReplicas,
        names: &mut LedNames,
        name: &FileName,
        step: &mut Step,
    ) {
        let is_time =
            |repair: &Repair| repair.in_progress() == 0 || repair.fetched.len() >= WRITTEN_TOGETHER;
        if self.repairs.files.get(name).is_some_and(is_time) {
            self.write_fetched(here, names, name, step);
        }
        if self.repairs.in_progress() < MAX_REPAIRS / 2 {
            self.scan_names(here, replicas, names, step);
        }
        self.assign_fetches(here, step);
    }

    /// Updates a file's record with its new replicas. If an operation on the file is in progress,
    /// this is tried again later. A chunk with replication 2 that a record names on node a and on
    /// node x, which has left, and that b has fetched, is on a and b from then on.
    fn write_fetched(
        &mut self,
        here: &RingMembership,
        names: &mut LedNames,
        name: &FileName,
        step: &mut Step,
    ) {
        let has_come =
            self.repairs.files.get(name).is_some_and(|repair| !repair.fetched.is_empty());
        if has_come && names.pending.contains_key(name) {
            return;
        }
        let Some(mut repair) = self.repairs.files.remove(name).filter(|_| has_come) else { return };
        let Some(Some(Stored { version, entry: NameEntry::File(mut record) })) =
            names.served(here, name, step)
        else {
            return;
        };
        let Some(current) = &here.current else { return };
        if version != repair.version {
            return self.rescan_name(here, name, step.now_us);
        }
        let fetched = core::mem::take(&mut repair.fetched);
        let mut is_whole = true;
        for chunk in record.chunks.iter_mut().filter(|chunk| !chunk.is_hole()) {
            let new =
                fetched.iter().filter(|(object, _)| *object == chunk.object).map(|(_, node)| *node);
            let new: Vec<NodeId> = new.filter(|node| !chunk.replicas.contains(node)).collect();
            chunk.replicas.extend(new);
            let has =
                chunk.replicas.iter().filter(|node| current.view.members.contains(node)).count();
            if has >= record.replication.into() {
                chunk.replicas.retain(|node| current.view.members.contains(node));
            }
            is_whole &= has + repair.expected(chunk.object) >= record.replication.into();
        }
        if !is_whole {
            self.rescan_name(here, name, step.now_us);
        }
        repair.version = names.put_record(here, name, record, step);
        if repair.in_progress() > 0 {
            self.repairs.files.insert(name.clone(), repair);
        }
    }

    /// Scans a name again for which there may be more to do.
    pub fn rescan_name(&mut self, here: &RingMembership, name: &FileName, now_us: u64) {
        if let Some(current) = &here.current {
            self.scan.go_back_to(current.ring.partition(name), name.as_str(), now_us);
        }
    }

    /// Replicas are damaged or missing, and are removed from the record. If there are no others,
    /// the record keeps them, and a good replica is searched for. Of content that may not be on the
    /// disks, all nodes are asked instead: a node that has just started may have a chunk that it
    /// has not recorded.
    pub fn bad_replicas(
        &mut self,
        here: &RingMembership,
        names: &mut LedNames,
        name: &FileName,
        (node, objects): (NodeId, Vec<ObjectId>),
        step: &mut Step,
    ) {
        let Some(Some(Stored { entry: NameEntry::File(mut record), .. })) =
            names.served(here, name, step)
        else {
            return;
        };
        let (mut objects, mut has_changed) = (BTreeSet::from_iter(objects), false);
        if record.unsynced.is_some() {
            let unsynced = record.unsynced_chunks().map(|chunk| chunk.object);
            let doubted = unsynced.filter(|object| objects.remove(object)).count();
            if doubted > 0 {
                names.sync_again(here, name, step);
            }
        }
        let is_bad =
            |chunk: &&mut Chunk| objects.contains(&chunk.object) && chunk.replicas.contains(&node);
        for chunk in record.chunks.iter_mut().filter(is_bad) {
            if chunk.replicas.len() == 1 {
                self.lost.add(name, chunk, true);
            } else {
                chunk.replicas.retain(|replica| *replica != node);
                has_changed = true;
            }
        }
        if has_changed {
            self.rescan_name(here, name, step.now_us);
            names.put_record(here, name, record, step);
        }
    }

    /// A node has reported good replicas of chunks that were searched for.
    pub fn good_replicas(
        &mut self,
        here: &RingMembership,
        names: &mut LedNames,
        name: &FileName,
        (node, objects): (NodeId, &[ObjectId]),
        step: &mut Step,
    ) {
        let Some(Some(Stored { entry: NameEntry::File(mut record), .. })) =
            names.served(here, name, step)
        else {
            return;
        };
        if !here.is_member(node) {
            return;
        }
        let mut has_changed = false;
        for chunk in record.chunks.iter_mut().filter(|chunk| objects.contains(&chunk.object)) {
            has_changed |= self.lost.found(name, chunk, node);
        }
        self.rescan_name(here, name, step.now_us);
        if has_changed {
            names.put_record(here, name, record, step);
        }
    }

    pub fn validate(&self) {
        self.repairs.validate();
        self.lost.validate();
    }
}

/// Erases an entry of a removed file that is no longer needed.
fn erase_if_obsolete(
    here: &RingMembership,
    replicas: &PartitionReplicas,
    (partition, name): (u16, &FileName),
    stored: &Stored,
    step: &mut Step,
) {
    let Some(current) = &here.current else { return };
    let base = current.view.base;
    if stored.is_obsolete(base) && replicas.count(partition, base) {
        step.records.erase(partition, name);
    }
}
