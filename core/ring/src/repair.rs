//! Keeping chunks at as many nodes as they are to be at.
//!
//! A leader looks at all it leads, a little at each tick and again and again: where a chunk is at too few members, it has others
//! fetch it, and writes who has it now. It also has what is left of renames finished, and each node erases what nobody
//! needs to know any more.
//!
//! Who fetches what is decided late: a node is asked for a few chunks ahead, and for another when it has one. Leaders do not know of
//! each other's wants, nor what else links carry; so who is slower gets less to do, and all have done at about the same time.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::ObjectId;
use eyas_types::dfs::{Chunk, FileName, FileRecord, NodeId};

use crate::disk::following;
use crate::message::Body;
use crate::node::{Node, Turn};
use crate::placement::place;
use crate::record::{Entry, Stored, Version};
use crate::serve::Then;

/// So many names are looked at in a tick.
pub const MAX_LOOKS: usize = 1000;
/// A leader has so many replicas in hand that are made, or are to be.
pub const MAX_REPAIRS: usize = 256;
/// All leaders together have a node fetch about so many chunks ahead, so that it goes on while they hear that it has one.
pub const FETCHES_AHEAD: usize = 32;
/// So many new replicas of one file are written at the latest, while others are made.
const WRITTEN_TOGETHER: usize = 64;

/// A chunk is fetched by one of so many nodes that the ring has first for it: who of them has least to do. With the first
/// alone some of 8 nodes had twice as much to do as the mean.
const CHOICES: u8 = 8;

/// So many times as long as for a member that is missing is waited for those who fetch for a file, from the last that had.
const FETCH_PATIENCE: u64 = 12;

/// What this node has repaired as a leader.
#[derive(Default)]
pub(crate) struct Repairs {
    files: BTreeMap<FileName, Repair>,
    /// Nodes that could not fetch, and until when they are not asked.
    avoided: BTreeMap<NodeId, u64>,
    /// The next to be looked at.
    place: (u16, String),
    /// Names were passed over that something is being done to.
    has_passed: bool,
    /// All was looked at; again from then on.
    rest_until_us: u64,
}

/// Of a file.
struct Repair {
    /// Of its record.
    version: Version,
    /// Chunks that further nodes are to fetch.
    lacking: BTreeMap<ObjectId, Lacking>,
    /// Chunks that are being fetched, and who fetches them; their replicas are who has them, and who is to give them is first.
    awaited: BTreeMap<(ObjectId, NodeId), Chunk>,
    /// What is not written yet.
    fetched: BTreeSet<(ObjectId, NodeId)>,
    /// When they were asked.
    asked_us: u64,
    /// When it is given up to wait.
    until_us: u64,
}

struct Lacking {
    /// Its replicas are who has it.
    chunk: Chunk,
    /// How many are to fetch it.
    count: usize,
    /// Who may.
    able: Vec<NodeId>,
}

/// What a node has to do for this leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    fetches: usize,
    takes_bytes: u64,
    gives_bytes: u64,
}

/// Who is to fetch a chunk of a file, and from whom.
struct Choice {
    name: FileName,
    object: ObjectId,
    taker: NodeId,
    giver: NodeId,
}

impl Repair {
    fn new(version: Version, asked_us: u64, until_us: u64) -> Self {
        let (lacking, awaited, fetched) = Default::default();
        Repair { version, lacking, awaited, fetched, asked_us, until_us }
    }

    /// Whether a node fetches a chunk, or just did.
    fn brings(&self, object: ObjectId, node: NodeId) -> bool {
        self.awaited.contains_key(&(object, node)) || self.fetched.contains(&(object, node))
    }

    /// How many have a chunk that its record does not tell of, or will.
    fn coming(&self, object: ObjectId) -> usize {
        let all = (object, NodeId(u64::MIN))..=(object, NodeId(u64::MAX));
        let lacking = self.lacking.get(&object).map_or(0, |lacking| lacking.count);
        lacking + self.awaited.range(all.clone()).count() + self.fetched.range(all).count()
    }

    fn in_hand(&self) -> usize {
        self.awaited.len() + self.lacking.values().map(|lacking| lacking.count).sum::<usize>()
    }
}

impl Repairs {
    /// A view has begun: what was enough may be so no more, and who is no member is not waited for.
    pub fn enter_view(&mut self, members: &BTreeSet<NodeId>) {
        (self.place, self.has_passed, self.rest_until_us) = Default::default();
        for repair in self.files.values_mut() {
            repair.lacking.clear();
            repair.awaited.retain(|(_, node), _| members.contains(node));
        }
        self.files.retain(|_, repair| repair.in_hand() > 0 || !repair.fetched.is_empty());
    }

    /// How many replicas are made, or are to be.
    fn in_hand(&self) -> usize {
        self.files.values().map(Repair::in_hand).sum()
    }

    /// What each node has to do.
    fn loads(&self) -> BTreeMap<NodeId, Load> {
        let mut loads = BTreeMap::new();
        for ((_, taker), chunk) in self.files.values().flat_map(|repair| &repair.awaited) {
            add(&mut loads, *taker, chunk.replicas[0], chunk.size_bytes);
        }
        loads
    }

    /// Of all that is lacking: what can be taken by who has least to take, of no more than so many chunks, and of that, what is with
    /// who has least to give.
    fn choose(&self, loads: &BTreeMap<NodeId, Load>, ahead: usize) -> Option<Choice> {
        let load = |node: &NodeId| loads.get(node).copied().unwrap_or_default();
        let lacking =
            self.files.iter().flat_map(|(name, repair)| repair.lacking.iter().map(move |of| (name, repair, of)));
        let choices = lacking.filter_map(|(name, repair, (object, Lacking { chunk, able, .. }))| {
            let may_take = |node: &&NodeId| {
                let is_free = load(node).fetches < ahead && !self.avoided.contains_key(node);
                is_free && !repair.brings(*object, **node)
            };
            let taker = able.iter().filter(may_take).min_by_key(|node| load(node).takes_bytes)?;
            let giver = chunk.replicas.iter().min_by_key(|node| load(node).gives_bytes)?;
            Some(((load(taker).takes_bytes, load(giver).gives_bytes), name, *object, *taker, *giver))
        });
        let (_, name, object, taker, giver) = choices.min_by_key(|(cost, ..)| *cost)?;
        Some(Choice { name: name.clone(), object, taker, giver })
    }

    /// What was chosen is awaited; the chunk, with who is to give it first.
    fn begin(&mut self, Choice { name, object, taker, giver }: &Choice) -> Chunk {
        let repair = self.files.get_mut(name).expect("it was chosen there");
        let lacking = repair.lacking.get_mut(object).expect("it was chosen there");
        let mut chunk = lacking.chunk.clone();
        chunk.replicas.sort_by_key(|node| node != giver);
        lacking.count -= 1;
        if lacking.count == 0 {
            repair.lacking.remove(object);
        }
        repair.awaited.insert((*object, *taker), chunk.clone());
        chunk
    }

    pub fn validate(&self) {
        assert!(self.in_hand() <= MAX_REPAIRS);
        for repair in self.files.values() {
            assert!(repair.in_hand() > 0 || !repair.fetched.is_empty(), "a repair waits for nothing");
            assert!(repair.lacking.values().all(|lacking| lacking.count > 0));
        }
    }
}

fn add(loads: &mut BTreeMap<NodeId, Load>, taker: NodeId, giver: NodeId, size_bytes: u64) {
    let takes = loads.entry(taker).or_default();
    takes.fetches += 1;
    takes.takes_bytes += size_bytes;
    loads.entry(giver).or_default().gives_bytes += size_bytes;
}

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
            if count == 0 || has.is_empty() {
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
        let mut loads = self.repairs.loads();
        let mut asked = Vec::new();
        while let Some(choice) = self.repairs.choose(&loads, ahead) {
            let chunk = self.repairs.begin(&choice);
            add(&mut loads, choice.taker, choice.giver, chunk.size_bytes);
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

    fn put_record(&mut self, name: &FileName, record: FileRecord, turn: &mut Turn) -> Version {
        let then = Then::Done { request: None, dropped: BTreeMap::new() };
        self.put(name, Entry::File(record), then, turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Round;
    use crate::ring::Ring;
    use crate::view::View;

    fn name(number: usize) -> FileName {
        alloc::format!("/{number}").parse().unwrap()
    }

    /// What a lost node had of 24 chunks in each of these many files is lacking.
    fn after_a_loss(files: usize) -> Repairs {
        let members: BTreeSet<NodeId> = (1..8).map(NodeId).collect();
        let ring = Ring::new(&View { members, ..View::founded_by(NodeId(1), 8, 3) });
        let mut repairs = Repairs::default();
        for file in 0..files {
            let version = Version { round: Round::default(), sequence: 1 };
            let mut repair = Repair::new(version, 0, 0);
            for number in 0..24 {
                let object = ObjectId([file as u8 * 24 + number; 16]);
                let replicas = place(&ring, object, 2, None, |_| true);
                let able = place(&ring, object, CHOICES, None, |node| !replicas.contains(&node));
                let chunk = Chunk { object, size_bytes: 1 + u64::from(number % 3), checksum: 0, replicas };
                repair.lacking.insert(object, Lacking { chunk, count: 1, able });
            }
            repairs.files.insert(name(file), repair);
        }
        repairs
    }

    #[test]
    fn all_take_and_give_as_much_as_others() {
        let mut repairs = after_a_loss(8);
        let mut loads = BTreeMap::new();
        while let Some(choice) = repairs.choose(&loads, usize::MAX) {
            let chunk = repairs.begin(&choice);
            assert!(chunk.replicas[0] == choice.giver && !chunk.replicas.contains(&choice.taker));
            add(&mut loads, choice.taker, choice.giver, chunk.size_bytes);
        }
        assert_eq!((repairs.loads(), repairs.in_hand()), (loads.clone(), 192));
        // 384 bytes in all, 55 for each of the seven.
        let is_even = |bytes: u64| (50..=60).contains(&bytes);
        assert!(loads.values().all(|load| is_even(load.takes_bytes) && is_even(load.gives_bytes)), "{loads:?}");
    }

    #[test]
    fn who_cannot_take_more_is_passed_over() {
        let mut repairs = after_a_loss(1);
        repairs.avoided.insert(NodeId(3), 1);
        let mut loads = BTreeMap::new();
        while let Some(choice) = repairs.choose(&loads, 2) {
            let chunk = repairs.begin(&choice);
            add(&mut loads, choice.taker, choice.giver, chunk.size_bytes);
        }
        let fetches = loads.into_iter().map(|(node, load)| (node.0, load.fetches));
        assert_eq!(fetches.collect::<Vec<_>>(), [(1, 2), (2, 2), (3, 0), (4, 2), (5, 2), (6, 2), (7, 2)]);
        assert_eq!(repairs.in_hand(), 24);
    }
}
