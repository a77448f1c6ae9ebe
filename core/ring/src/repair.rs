//! Keeping chunks at as many nodes as they are to be at.
//!
//! A leader looks at all it leads, a little at each tick and again and again: where a chunk is at too few members, it has others
//! fetch it, and writes who has it now. It also has what is left of renames finished, and each node erases what nobody
//! needs to know any more.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::disk::following;
use crate::event::Effect;
use crate::message::Body;
use crate::node::{Node, Turn};
use crate::placement::place;
use crate::record::{Entry, Stored, Version};
use crate::serve::Then;

/// So many names are looked at in a tick.
pub const MAX_LOOKS: usize = 1000;
/// A leader has so many chunks fetched at a time.
pub const MAX_REPAIRS: usize = 64;
/// A node fetches so many chunks for leaders at a time; more are refused, and tried elsewhere.
pub const MAX_FETCHES: usize = 128;

/// What is being repaired, by this node as a leader and for others.
#[derive(Default)]
pub(crate) struct Repairs {
    /// Files of which chunks are being fetched, as a leader.
    files: BTreeMap<FileName, Repair>,
    /// What this node is fetching, for which leaders and files.
    fetching: BTreeMap<ObjectId, BTreeSet<(NodeId, FileName)>>,
    /// Nodes that could not fetch, and until when they are not asked.
    avoided: BTreeMap<NodeId, u64>,
    /// The next to be looked at.
    place: (u16, String),
}

struct Repair {
    /// Of the file's record.
    version: Version,
    /// Chunks that are being fetched, and who fetches them.
    awaited: BTreeSet<(ObjectId, NodeId)>,
    fetched: BTreeSet<(ObjectId, NodeId)>,
    /// When it is given up to wait.
    until_us: u64,
}

impl Repairs {
    pub fn validate(&self) {
        assert!(self.files.values().map(|repair| repair.awaited.len()).sum::<usize>() <= MAX_REPAIRS);
        assert!(self.files.values().all(|repair| !repair.awaited.is_empty()), "a repair waits for nothing");
        assert!(self.fetching.len() <= MAX_FETCHES && self.fetching.values().all(|whom| !whom.is_empty()));
    }
}

impl Node {
    /// Looks at some names, and goes on with what is under way.
    pub(crate) fn repair(&mut self, turn: &mut Turn) {
        let late = self.repairs.files.iter().filter(|(_, repair)| turn.now_us >= repair.until_us);
        let late: Vec<FileName> = late.map(|(name, _)| name.clone()).collect();
        late.iter().for_each(|name| self.end_repair(name, turn));
        self.repairs.avoided.retain(|_, until_us| turn.now_us < *until_us);
        for _ in 0..MAX_LOOKS {
            let (at, from) = core::mem::take(&mut self.repairs.place);
            let Some(partition) = self.rounds.range(at..).next().map(|(partition, _)| *partition) else { break };
            let from = if partition == at { from } else { String::new() };
            match turn.disk.first(partition, &from) {
                Some((name, stored)) => {
                    self.repairs.place = (partition, following(name.as_str()));
                    self.look_at(partition, &name, stored, turn);
                }
                None => self.repairs.place = (partition + 1, String::new()),
            }
        }
    }

    fn look_at(&mut self, partition: u16, name: &FileName, stored: Stored, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let base = place.view.base;
        if stored.is_swept(base) && self.rounds.get(&partition).is_some_and(|round| round.view >= base) {
            turn.disk.erase(partition, name);
        }
        if !self.serves(partition) || self.work.contains_key(name) || self.expects(name, &stored, turn) {
            return;
        }
        match stored.entry {
            Entry::File(record) => self.repair_file(name, stored.version, &record, turn),
            entry => self.tell_moved(name, &entry, turn),
        }
    }

    /// Has other nodes fetch the chunks of a file that too few have.
    fn repair_file(&mut self, name: &FileName, version: Version, record: &FileRecord, turn: &mut Turn) {
        let Some(view_place) = &self.place else { return };
        let Repairs { files, avoided, .. } = &self.repairs;
        let mut room = MAX_REPAIRS.saturating_sub(files.values().map(|repair| repair.awaited.len()).sum());
        if files.contains_key(name) {
            return;
        }
        let members = &view_place.view.members;
        let mut asked = Vec::new();
        for chunk in &record.chunks {
            let has: Vec<NodeId> = chunk.replicas.iter().copied().filter(|node| members.contains(node)).collect();
            let lacking = usize::from(record.replication).saturating_sub(has.len()).min(room);
            if lacking == 0 || has.is_empty() {
                continue;
            }
            let may_take = |node: NodeId| !has.contains(&node) && !avoided.contains_key(&node);
            for node in place(&view_place.ring, chunk.object, lacking as u8, None, may_take) {
                room -= 1;
                asked.push((node, Chunk { replicas: has.clone(), ..chunk.clone() }));
            }
        }
        if asked.is_empty() {
            return;
        }
        let awaited = asked.iter().map(|(node, chunk)| (chunk.object, *node)).collect();
        let until_us = turn.now_us + self.config.patience_us;
        let repair = Repair { version, awaited, fetched: BTreeSet::new(), until_us };
        self.repairs.files.insert(name.clone(), repair);
        asked.into_iter().for_each(|(node, chunk)| self.send(node, Body::Have { name: name.clone(), chunk }, turn));
    }

    /// A leader wants this node to have a chunk.
    pub(crate) fn have(&mut self, leader: NodeId, name: FileName, chunk: Chunk, turn: &mut Turn) {
        let object = chunk.object;
        let fetching = &mut self.repairs.fetching;
        if fetching.len() >= MAX_FETCHES && !fetching.contains_key(&object) {
            return self.send(leader, Body::Has { name, object, is_here: false }, turn);
        }
        let Chunk { size_bytes, checksum, replicas: from, .. } = chunk;
        let for_whom = fetching.entry(object).or_default();
        if for_whom.is_empty() {
            turn.disk.effects.push(Effect::Fetch { object, size_bytes, checksum, from });
        }
        for_whom.insert((leader, name));
    }

    /// A chunk is in the store, or not to be had.
    pub(crate) fn fetched(&mut self, object: ObjectId, is_here: bool, turn: &mut Turn) {
        for (leader, name) in self.repairs.fetching.remove(&object).into_iter().flatten() {
            self.send(leader, Body::Has { name, object, is_here }, turn);
        }
    }

    /// A node has a chunk, or cannot have it.
    pub(crate) fn has(&mut self, node: NodeId, name: &FileName, object: ObjectId, is_here: bool, turn: &mut Turn) {
        let avoided_until_us = turn.now_us + self.config.patience_us;
        let Some(repair) = self.repairs.files.get_mut(name) else { return };
        if !repair.awaited.remove(&(object, node)) {
            return;
        }
        if is_here {
            repair.fetched.insert((object, node));
        } else {
            self.repairs.avoided.insert(node, avoided_until_us);
        }
        if repair.awaited.is_empty() {
            self.end_repair(name, turn);
        }
    }

    /// Writes who has the chunks of a file now.
    fn end_repair(&mut self, name: &FileName, turn: &mut Turn) {
        let Some(Repair { version, fetched, .. }) = self.repairs.files.remove(name) else { return };
        let Some(Some(Stored { version: is, entry: Entry::File(mut record) })) = self.served(name, turn) else {
            return;
        };
        let Some(place) = self.place.as_ref().filter(|_| is == version && !fetched.is_empty()) else { return };
        for chunk in &mut record.chunks {
            let new = fetched.iter().filter(|(object, _)| *object == chunk.object).map(|(_, node)| *node);
            let new: Vec<NodeId> = new.filter(|node| !chunk.replicas.contains(node)).collect();
            chunk.replicas.extend(new);
            let has = chunk.replicas.iter().filter(|node| place.view.members.contains(node)).count();
            if has >= record.replication.into() {
                chunk.replicas.retain(|node| place.view.members.contains(node));
            }
        }
        self.put_record(name, record, turn);
    }

    /// A replica is damaged or missing: it is not counted on, if there is another.
    pub(crate) fn bad(&mut self, name: &FileName, object: ObjectId, node: NodeId, turn: &mut Turn) {
        let Some(Some(Stored { entry: Entry::File(mut record), .. })) = self.served(name, turn) else { return };
        let mut has_changed = false;
        for chunk in record.chunks.iter_mut().filter(|chunk| chunk.object == object && chunk.replicas.len() > 1) {
            let before = chunk.replicas.len();
            chunk.replicas.retain(|replica| *replica != node);
            has_changed |= chunk.replicas.len() < before;
        }
        if has_changed {
            self.put_record(name, record, turn);
        }
    }

    fn put_record(&mut self, name: &FileName, record: FileRecord, turn: &mut Turn) {
        let then = Then::Done { request: None, dropped: BTreeMap::new() };
        self.put(name, Entry::File(record), then, turn);
    }
}
