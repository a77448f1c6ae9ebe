//! Keeping chunks at as many nodes as they are to be at.
//!
//! A leader looks at all it leads, a little at each tick and again and again: where a chunk is at too few members, it has others
//! fetch it, and writes who has it now. It also has what is left of renames finished, and each node erases what nobody
//! needs to know any more.

use alloc::borrow::ToOwned;
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
use crate::ring::Ring;
use crate::serve::Then;

/// So many names are looked at in a tick.
pub const MAX_LOOKS: usize = 1000;
/// A leader has so many chunks fetched at a time.
pub const MAX_REPAIRS: usize = 64;
/// A node fetches so many chunks for leaders at a time; more are refused, and tried elsewhere.
pub const MAX_FETCHES: usize = 128;

/// Of so many nodes that could fetch a chunk, those are asked that fetch least. The ring alone gives some of 8 nodes twice as
/// much as the mean, and then all wait for their links.
const CHOICES: u8 = 8;

/// So many times as long as for a member that is missing is waited for one that fetches.
const FETCH_PATIENCE: u64 = 12;

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
    /// All was looked at; again from then on.
    rest_until_us: u64,
}

struct Repair {
    /// Of the file's record.
    version: Version,
    /// Chunks that are being fetched, and who fetches them.
    awaited: BTreeMap<(ObjectId, NodeId), Chunk>,
    fetched: BTreeSet<(ObjectId, NodeId)>,
    /// When they were asked.
    asked_us: u64,
    /// When it is given up to wait.
    until_us: u64,
}

impl Repairs {
    /// A view has begun: what was enough may be so no more, and who is no member is not waited for. Others that fetched for
    /// the same file say at once that they have, when they are asked again.
    pub fn enter_view(&mut self, members: &BTreeSet<NodeId>) {
        (self.place, self.rest_until_us) = Default::default();
        self.files.retain(|_, repair| repair.awaited.keys().all(|(_, node)| members.contains(node)));
    }

    /// How many chunks are being fetched for this node's files.
    fn awaited(&self) -> usize {
        self.files.values().map(|repair| repair.awaited.len()).sum()
    }

    pub fn validate(&self) {
        assert!(self.awaited() <= MAX_REPAIRS);
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
        self.ask_repairs(turn);
        self.repairs.avoided.retain(|_, until_us| turn.now_us < *until_us);
        for _ in 0..MAX_LOOKS {
            if turn.now_us < self.repairs.rest_until_us || self.repairs.awaited() >= MAX_REPAIRS {
                break;
            }
            let (at, from) = core::mem::take(&mut self.repairs.place);
            let Some(partition) = self.rounds.range(at..).next().map(|(partition, _)| *partition) else {
                // What is not served yet was passed over.
                let rest_us = if self.has_settled() { self.config.patience_us } else { 0 };
                self.repairs.rest_until_us = turn.now_us + rest_us;
                break;
            };
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
        if files.contains_key(name) {
            return;
        }
        let mut room = MAX_REPAIRS - self.repairs.awaited();
        let members = &view_place.view.members;
        let mut fetching = BTreeMap::<NodeId, usize>::new();
        let under_way = files.values().flat_map(|repair| repair.awaited.keys());
        under_way.for_each(|(_, node)| *fetching.entry(*node).or_default() += 1);
        let mut awaited = BTreeMap::new();
        for chunk in &record.chunks {
            let has: Vec<NodeId> = chunk.replicas.iter().copied().filter(|node| members.contains(node)).collect();
            let lacking = usize::from(record.replication).saturating_sub(has.len()).min(room);
            if lacking == 0 || has.is_empty() {
                continue;
            }
            let may_take = |node: NodeId| !has.contains(&node) && !avoided.contains_key(&node);
            for node in who_fetches(&view_place.ring, chunk.object, lacking, &mut fetching, may_take) {
                room -= 1;
                awaited.insert((chunk.object, node), Chunk { replicas: has.clone(), ..chunk.clone() });
            }
        }
        if !awaited.is_empty() {
            let until_us = turn.now_us + FETCH_PATIENCE * self.config.patience_us;
            let repair = Repair { version, awaited, fetched: BTreeSet::new(), asked_us: 0, until_us };
            self.repairs.files.insert(name.clone(), repair);
            self.ask_repairs(turn);
        }
    }

    /// Asks those who are to fetch, again if they did not answer: who has done it says so at once.
    fn ask_repairs(&mut self, turn: &mut Turn) {
        let mut asked = Vec::new();
        for (name, repair) in &mut self.repairs.files {
            if turn.now_us >= repair.asked_us + self.config.resend_us {
                repair.asked_us = turn.now_us;
                let of_file = repair.awaited.iter();
                asked.extend(of_file.map(|((_, node), chunk)| (*node, name.clone(), chunk.clone())));
            }
        }
        asked.into_iter().for_each(|(node, name, chunk)| self.send(node, Body::Have { name, chunk }, turn));
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
        if repair.awaited.remove(&(object, node)).is_none() {
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
        // There may be more to do for it; and for all that was not looked at yet.
        let at = (place.ring.partition(name), name.as_str().to_owned());
        if turn.now_us < self.repairs.rest_until_us || at < self.repairs.place {
            self.repairs.place = at;
        }
        self.repairs.rest_until_us = 0;
        self.put_record(name, record, turn);
    }

    /// Replicas are damaged or missing: they are not counted on, if there are others.
    pub(crate) fn bad(&mut self, name: &FileName, objects: Vec<ObjectId>, node: NodeId, turn: &mut Turn) {
        let Some(Some(Stored { entry: Entry::File(mut record), .. })) = self.served(name, turn) else { return };
        let (objects, mut has_changed) = (BTreeSet::from_iter(objects), false);
        let is_bad = |chunk: &&mut Chunk| objects.contains(&chunk.object) && chunk.replicas.len() > 1;
        for chunk in record.chunks.iter_mut().filter(is_bad) {
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

/// Who is to fetch a chunk: of the first on the ring those that are `fetching` least, who fetch one more then.
fn who_fetches(
    ring: &Ring,
    object: ObjectId,
    lacking: usize,
    fetching: &mut BTreeMap<NodeId, usize>,
    may_take: impl FnMut(NodeId) -> bool,
) -> Vec<NodeId> {
    let mut able = place(ring, object, CHOICES.max(lacking as u8), None, may_take);
    able.sort_by_key(|node| fetching.get(node).copied());
    able.truncate(lacking);
    able.iter().for_each(|node| *fetching.entry(*node).or_default() += 1);
    able
}

#[cfg(test)]
mod tests {
    use eyas_types::dfs::FileSystemId;

    use super::*;
    use crate::view::View;

    const SYSTEM: FileSystemId = FileSystemId(1);

    #[test]
    fn all_fetch_as_much_as_others() {
        let members: BTreeSet<NodeId> = (1..8).map(NodeId).collect();
        let ring = Ring::new(&View { members: members.clone(), ..View::founded_by(SYSTEM, NodeId(1), 8, 3) });
        let mut fetching = BTreeMap::new();
        let objects = (0..210).map(|number| ObjectId([number; 16]));
        for object in objects {
            let has: Vec<NodeId> = place(&ring, object, 2, None, |_| true);
            let who = who_fetches(&ring, object, 1, &mut fetching, |node| !has.contains(&node));
            assert!(who.len() == 1 && !has.contains(&who[0]));
        }
        assert!(members.iter().all(|node| (28..=32).contains(&fetching[node])), "{fetching:?}");
    }
}
