//! Keeping chunks at as many nodes as they are to be at.
//!
//! A leader looks at all it leads, a little at each tick and again and again: where a chunk is at too few members, it has others
//! fetch it, and writes who has it now. It also has what is left of renames finished, and each node erases what nobody
//! needs to know any more.
//!
//! What is in hand, and who fetches what of it from whom, is in `lacking.rs`.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::disk::following;
use crate::lacking::{Lacking, Loads, MAX_REPAIRS, Repair, Repairs};
use crate::message::Body;
use crate::node::{Node, Turn};
use crate::placement::place;
use crate::record::{Entry, Stored, Version};
use crate::serve::Then;

/// So many names are looked at in a tick.
pub const MAX_LOOKS: usize = 1000;
/// All leaders together have a node fetch about so many chunks ahead, so that it goes on while they hear that it has one.
pub const FETCHES_AHEAD: usize = 32;
/// So many new replicas of one file are written at the latest, while others are made.
const WRITTEN_TOGETHER: usize = 64;

/// A chunk is fetched by one of so many nodes that the ring has first for it: who of them has least to do. With the first
/// alone some of 8 nodes had twice as much to do as the mean.
const CHOICES: u8 = 8;

/// So many times as long as for a member that is missing is waited for those who fetch for a file, from the last that had.
const FETCH_PATIENCE: u64 = 12;

impl Node {
    /// Looks at some names, and goes on with what is under way.
    pub(crate) fn repair(&mut self, turn: &mut Turn) {
        self.repairs.avoided.retain(|_, until_us| turn.now_us < *until_us);
        for repair in self.repairs.files.values_mut().filter(|repair| turn.now_us >= repair.until_us) {
            repair.lacking.clear();
            repair.awaited.clear();
        }
        let is_over = |(_, repair): &(&FileName, &Repair)| repair.in_hand() == 0;
        let over: Vec<FileName> = self.repairs.files.iter().filter(is_over).map(|(name, _)| name.clone()).collect();
        over.iter().for_each(|name| self.write_fetched(name, turn));
        self.ask_again(turn);
        self.look(turn);
        self.hand_out(turn);
    }

    /// Looks at names, until there is enough in hand.
    fn look(&mut self, turn: &mut Turn) {
        for _ in 0..MAX_LOOKS {
            if turn.now_us < self.repairs.rest_until_us || self.repairs.in_hand() >= MAX_REPAIRS {
                break;
            }
            let (at, from) = core::mem::take(&mut self.repairs.place);
            let Some(partition) = self.rounds.range(at..).next().map(|(partition, _)| *partition) else {
                let has_passed = core::mem::take(&mut self.repairs.has_passed);
                let rest_us = match self.has_settled() {
                    // What is not served yet was passed over.
                    false => 0,
                    true if has_passed => self.config.resend_us,
                    true => self.config.patience_us,
                };
                self.repairs.rest_until_us = turn.now_us + rest_us;
                break;
            };
            let from = if partition == at { from } else { String::new() };
            self.repairs.place = match turn.disk.first(partition, &from) {
                Some((name, stored)) => match self.look_at(partition, &name, stored, turn) {
                    true => (partition, following(name.as_str())),
                    false => (partition, name.as_str().to_owned()),
                },
                None => (partition + 1, String::new()),
            };
        }
    }

    /// Tells whether all that is to be done for a name is in hand.
    fn look_at(&mut self, partition: u16, name: &FileName, stored: Stored, turn: &mut Turn) -> bool {
        let Some(place) = &self.place else { return true };
        let base = place.view.base;
        if stored.is_swept(base) && self.rounds.get(&partition).is_some_and(|round| round.view >= base) {
            turn.disk.erase(partition, name);
        }
        if !self.serves(partition) {
            return true;
        }
        if self.work.contains_key(name) || self.expects(name, &stored, turn) {
            self.repairs.has_passed = true;
            return true;
        }
        match stored.entry {
            Entry::File(record) => self.take_up(name, stored.version, &record, turn),
            entry => {
                self.tell_moved(name, &entry, turn);
                true
            }
        }
    }

    /// Takes in hand what too few have of a file, as far as there is room; tells whether that is all.
    fn take_up(&mut self, name: &FileName, version: Version, record: &FileRecord, turn: &mut Turn) -> bool {
        let Some(view_place) = &self.place else { return true };
        let (members, ring) = (&view_place.view.members, &view_place.ring);
        let mut room = MAX_REPAIRS - self.repairs.in_hand();
        let Repairs { files, avoided, .. } = &mut self.repairs;
        let until_us = turn.now_us + FETCH_PATIENCE * self.config.patience_us;
        let mut repair = match files.remove(name) {
            Some(repair) if repair.version == version => repair,
            _ => Repair::new(version, turn.now_us, until_us),
        };
        let mut is_all = true;
        for chunk in &record.chunks {
            let has: Vec<NodeId> = chunk.replicas.iter().copied().filter(|node| members.contains(node)).collect();
            let count = usize::from(record.replication).saturating_sub(has.len() + repair.coming(chunk.object));
            if has.is_empty() {
                self.lost.add(name, chunk, false);
                continue;
            }
            if count == 0 || self.lost.are_bad(name, chunk) {
                continue;
            }
            let may_take =
                |node| !has.contains(&node) && !avoided.contains_key(&node) && !repair.brings(chunk.object, node);
            let able = place(ring, chunk.object, CHOICES.max(record.replication), None, may_take);
            let count = count.min(able.len());
            is_all &= count <= room;
            let count = count.min(room);
            if count > 0 {
                room -= count;
                let chunk = Chunk { replicas: has, ..chunk.clone() };
                repair.lacking.entry(chunk.object).or_insert(Lacking { chunk, count: 0, able }).count += count;
            }
        }
        if repair.in_hand() > 0 || !repair.fetched.is_empty() {
            files.insert(name.clone(), repair);
        }
        is_all
    }

    /// Asks nodes for what is lacking, as many as they are to have ahead.
    fn hand_out(&mut self, turn: &mut Turn) {
        let Some(place) = &self.place else { return };
        let ahead = (FETCHES_AHEAD / place.view.members.len()).max(1);
        let mut loads = Loads::of(&self.repairs);
        let mut asked = Vec::new();
        while let Some(choice) = self.repairs.choose(&loads, ahead) {
            let chunk = self.repairs.begin(&choice, &mut loads);
            asked.push((choice.taker, Body::Have { name: choice.name, chunk }));
        }
        asked.into_iter().for_each(|(node, body)| self.send(node, body, turn));
    }

    /// Asks those again who did not answer: who has done it says so at once.
    fn ask_again(&mut self, turn: &mut Turn) {
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

    /// A node has a chunk, or cannot have it.
    pub(crate) fn has(&mut self, node: NodeId, name: &FileName, object: ObjectId, is_here: bool, turn: &mut Turn) {
        let patience_us = self.config.patience_us;
        let Some(repair) = self.repairs.files.get_mut(name) else { return };
        if repair.awaited.remove(&(object, node)).is_none() {
            return;
        }
        if is_here {
            repair.fetched.insert((object, node));
            repair.until_us = turn.now_us + FETCH_PATIENCE * patience_us;
        } else {
            self.repairs.avoided.insert(node, turn.now_us + patience_us);
        }
        if repair.in_hand() == 0 || repair.fetched.len() >= WRITTEN_TOGETHER {
            self.write_fetched(name, turn);
        }
        if self.repairs.in_hand() < MAX_REPAIRS / 2 {
            self.look(turn);
        }
        self.hand_out(turn);
    }

    /// Writes who has the chunks of a file now, unless something else is being done to it; then it is tried again.
    fn write_fetched(&mut self, name: &FileName, turn: &mut Turn) {
        let has_come = self.repairs.files.get(name).is_some_and(|repair| !repair.fetched.is_empty());
        if has_come && self.work.contains_key(name) {
            return;
        }
        let Some(mut repair) = self.repairs.files.remove(name).filter(|_| has_come) else { return };
        let Some(Some(Stored { version, entry: Entry::File(mut record) })) = self.served(name, turn) else { return };
        let Some(place) = &self.place else { return };
        let at = (place.ring.partition(name), name.as_str().to_owned());
        if version != repair.version {
            return self.look_again(at, turn);
        }
        let fetched = core::mem::take(&mut repair.fetched);
        let mut is_whole = true;
        for chunk in &mut record.chunks {
            let new = fetched.iter().filter(|(object, _)| *object == chunk.object).map(|(_, node)| *node);
            let new: Vec<NodeId> = new.filter(|node| !chunk.replicas.contains(node)).collect();
            chunk.replicas.extend(new);
            let has = chunk.replicas.iter().filter(|node| place.view.members.contains(node)).count();
            if has >= record.replication.into() {
                chunk.replicas.retain(|node| place.view.members.contains(node));
            }
            is_whole &= has + repair.coming(chunk.object) >= record.replication.into();
        }
        if !is_whole {
            self.look_again(at, turn);
        }
        repair.version = self.put_record(name, record, turn);
        if repair.in_hand() > 0 {
            self.repairs.files.insert(name.clone(), repair);
        }
    }

    /// There may be more to do for a name, and for all that was not looked at yet.
    fn look_again(&mut self, at: (u16, String), turn: &Turn) {
        if turn.now_us < self.repairs.rest_until_us || at < self.repairs.place {
            self.repairs.place = at;
        }
        self.repairs.rest_until_us = 0;
    }

    /// Looks at a name again, for which there may be more to do.
    pub(crate) fn look_again_at(&mut self, name: &FileName, turn: &Turn) {
        if let Some(place) = &self.place {
            self.look_again((place.ring.partition(name), name.as_str().to_owned()), turn);
        }
    }

    /// Replicas are damaged or missing: they are not counted on. Where there are no others, the record goes on naming them,
    /// and a good one is searched for.
    pub(crate) fn bad(&mut self, name: &FileName, objects: Vec<ObjectId>, node: NodeId, turn: &mut Turn) {
        let Some(Some(Stored { entry: Entry::File(mut record), .. })) = self.served(name, turn) else { return };
        let (objects, mut has_changed) = (BTreeSet::from_iter(objects), false);
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
            self.look_again_at(name, turn);
            self.put_record(name, record, turn);
        }
    }

    pub(crate) fn put_record(&mut self, name: &FileName, record: FileRecord, turn: &mut Turn) -> Version {
        let then = Then::Done { request: None, dropped: BTreeMap::new() };
        self.put(name, Entry::File(record), then, turn)
    }
}
