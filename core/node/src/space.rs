//! Accounts of the store: what is in it, what is on its way, what is pinned, and whether more fits.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, ObjectId};
use hashbrown::HashMap;

use crate::eviction::{self, Eviction};

/// Bounds on a store. Both bytes and inodes count, and a floor of free space is left to others.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of objects, stored and on their way.
    pub bytes: u64,
    /// Objects, stored and on their way: each is one inode.
    pub inodes: u64,
    /// Bytes that stay free on the disk.
    pub floor_bytes: u64,
    /// Inodes that stay free on the disk.
    pub floor_inodes: u64,
}

/// One object's account.
struct Entry {
    size_bytes: u64,
    /// Tasks that were promised it.
    pins: u32,
    here: bool,
    /// It stays until it is released, also while no task was promised it.
    held: bool,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.here && self.pins == 0 && !self.held
    }

    /// Whether it stays, and not for a task that will end.
    fn stays(&self) -> bool {
        self.here && self.pins == 0 && self.held
    }
}

/// Objects, counted and weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub bytes: u64,
    pub objects: u64,
}

impl Room {
    fn add(&mut self, entry: &Entry) {
        self.bytes += entry.size_bytes;
        self.objects += 1;
    }

    fn take(&mut self, entry: &Entry) {
        self.bytes -= entry.size_bytes;
        self.objects -= 1;
    }
}

pub(crate) struct Space {
    limits: Limits,
    /// What the disk last said it has free, less what was reserved since.
    free: Room,
    entries: HashMap<ObjectId, Entry, IdHash>,
    /// All entries.
    used: Room,
    /// Those that could be evicted.
    idle: Room,
    /// Those that stay though no task was promised them.
    staying: Room,
    policy: Box<dyn Eviction>,
}

impl Space {
    pub fn new(limits: Limits, policy: EvictionPolicy, seed: u64) -> Self {
        Space {
            limits,
            free: Room { bytes: u64::MAX, objects: u64::MAX },
            entries: HashMap::default(),
            used: Room::default(),
            idle: Room::default(),
            staying: Room::default(),
            policy: eviction::of(policy, seed),
        }
    }

    /// What the disk has free, less what was reserved and does not show on the disk.
    pub fn set_free(&mut self, free: Room) {
        self.free = free;
    }

    /// What the disk has for objects and whatever else: what is free above the floor, and all that the store has.
    pub fn disk_bytes(&self) -> u64 {
        self.free.bytes.saturating_add(self.used.bytes).saturating_sub(self.limits.floor_bytes)
    }

    /// What there is for objects that stay, once all that may leave has left.
    pub fn free_bytes(&self) -> u64 {
        self.limits.bytes.min(self.disk_bytes()).saturating_sub(self.staying.bytes)
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limits.bytes
    }

    pub fn limit_objects(&self) -> u64 {
        self.limits.inodes
    }

    pub fn is_here(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.here)
    }

    /// Whether it is here and no task was promised it.
    pub fn is_idle(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(Entry::is_idle)
    }

    /// Whether it is here or on its way.
    pub fn is_known(&self, object: ObjectId) -> bool {
        self.entries.contains_key(&object)
    }

    /// Whether there is anything that cannot leave now but will be free to: promised to a task, or on its way.
    pub fn is_busy(&self) -> bool {
        self.idle.objects + self.staying.objects < self.used.objects
    }

    /// Makes room for `more` within the limits and on the disk. What it evicts for that, of what no task was promised,
    /// is added to `evicted`; where that would not suffice, it evicts nothing and returns false.
    pub fn make_room(&mut self, more: Room, evicted: &mut Vec<ObjectId>) -> bool {
        let nothing = more == Room::default();
        self.evict_until(|space, less| nothing || space.is_within(more, less) && space.is_free(more, less), evicted)
    }

    /// As [`make_room`](Self::make_room), for bytes that are booked, but that the disk did not have when it last said what
    /// it has free.
    pub fn free_disk(&mut self, bytes: u64, evicted: &mut Vec<ObjectId>) -> bool {
        let has_room = self.evict_until(|space, less| space.is_free(Room { bytes, objects: 0 }, less), evicted);
        if has_room {
            self.free.bytes = self.free.bytes.saturating_sub(bytes);
        }
        has_room
    }

    /// `fits` tells whether there is room once so much has left.
    fn evict_until(&mut self, fits: impl Fn(&Self, Room) -> bool, evicted: &mut Vec<ObjectId>) -> bool {
        if !fits(self, self.idle) {
            return false;
        }
        while !fits(self, Room::default()) {
            let entries = &self.entries;
            let may_leave = |object| entries.get(&object).is_some_and(Entry::is_idle);
            let victim = self.policy.victim(&may_leave).expect("there is room once all that is idle has left");
            self.remove(victim);
            evicted.push(victim);
        }
        true
    }

    fn is_within(&self, more: Room, less: Room) -> bool {
        (self.used.bytes - less.bytes).saturating_add(more.bytes) <= self.limits.bytes
            && (self.used.objects - less.objects).saturating_add(more.objects) <= self.limits.inodes
    }

    fn is_free(&self, more: Room, less: Room) -> bool {
        self.free.bytes.saturating_add(less.bytes) >= self.limits.floor_bytes.saturating_add(more.bytes)
            && self.free.objects.saturating_add(less.objects) >= self.limits.floor_inodes.saturating_add(more.objects)
    }

    /// Books an object that was in the store when it was opened: what the disk has free is without it already. False
    /// if it is beyond the limits.
    pub fn found(&mut self, object: ObjectId, size_bytes: u64) -> bool {
        let fits = self.is_within(Room { bytes: size_bytes, objects: 1 }, Room::default());
        if fits {
            self.enter(object, Entry { size_bytes, pins: 0, here: true, held: false });
            self.policy.stored(object);
        }
        fits
    }

    /// Books and holds an object that has come into the store from this disk, so that only the limits count. Evicts for
    /// it as [`make_room`](Self::make_room) does; false if there is no room.
    pub fn produced(&mut self, object: ObjectId, size_bytes: u64, evicted: &mut Vec<ObjectId>) -> bool {
        let more = Room { bytes: size_bytes, objects: 1 };
        let fits = self.evict_until(|space, less| space.is_within(more, less), evicted);
        if fits {
            self.enter(object, Entry { size_bytes, pins: 0, here: true, held: true });
            self.policy.stored(object);
        }
        fits
    }

    /// Books and holds an object that was in the store when it was opened, though it may be beyond the limits.
    pub fn enter_held(&mut self, object: ObjectId, size_bytes: u64) {
        self.enter(object, Entry { size_bytes, pins: 0, here: true, held: true });
        self.policy.stored(object);
    }

    /// Books an object that is going to be fetched. Room was made for it.
    pub fn expect(&mut self, object: ObjectId, size_bytes: u64) {
        self.enter(object, Entry { size_bytes, pins: 0, here: false, held: false });
        self.free.bytes = self.free.bytes.saturating_sub(size_bytes);
        self.free.objects = self.free.objects.saturating_sub(1);
    }

    fn enter(&mut self, object: ObjectId, entry: Entry) {
        self.used.add(&entry);
        if entry.is_idle() {
            self.idle.add(&entry);
        }
        if entry.stays() {
            self.staying.add(&entry);
        }
        assert!(self.entries.insert(object, entry).is_none(), "{object} booked twice");
    }

    /// The object is in the store; the tasks that were promised it read it.
    pub fn arrived(&mut self, object: ObjectId) {
        let pins = self.entries.get(&object).expect("only what is expected arrives").pins;
        self.change(object, |entry| entry.here = true);
        self.policy.stored(object);
        (0..pins).for_each(|_| self.policy.used(object));
    }

    /// The object is not, or no longer, in the store.
    pub fn remove(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.remove(&object) {
            self.used.take(&entry);
            if entry.is_idle() {
                self.idle.take(&entry);
            }
            if entry.stays() {
                self.staying.take(&entry);
            }
            self.free.bytes = self.free.bytes.saturating_add(entry.size_bytes);
            self.free.objects = self.free.objects.saturating_add(1);
            if entry.here {
                self.policy.removed(object);
            }
        }
    }

    /// A task reads the object, which is here.
    pub fn used(&mut self, object: ObjectId) {
        self.policy.used(object);
    }

    /// Promises the object to a task: it does not leave until every promise is taken back.
    pub fn pin(&mut self, object: ObjectId) {
        assert!(self.is_known(object), "only what is known is promised");
        self.change(object, |entry| entry.pins += 1);
    }

    /// Takes a promise back; an object that was lost in between is no longer known.
    pub fn unpin(&mut self, object: ObjectId) {
        self.change(object, |entry| {
            assert!(entry.pins > 0, "{object} was promised to nobody");
            entry.pins -= 1;
        });
    }

    /// The object, which is known, does not leave until it is released.
    pub fn hold(&mut self, object: ObjectId) {
        self.change(object, |entry| entry.held = true);
    }

    /// The object may leave again.
    pub fn release(&mut self, object: ObjectId) {
        self.change(object, |entry| entry.held = false);
    }

    /// Whether it is known and held.
    pub fn is_held(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.held)
    }

    /// Whether anything is held.
    pub fn holds_any(&self) -> bool {
        self.entries.values().any(|entry| entry.held)
    }

    /// Changes an entry, if there is one, and what is counted of it.
    fn change(&mut self, object: ObjectId, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        let (was_idle, did_stay) = (entry.is_idle(), entry.stays());
        change(entry);
        match (was_idle, entry.is_idle()) {
            (false, true) => self.idle.add(entry),
            (true, false) => self.idle.take(entry),
            _ => {}
        }
        match (did_stay, entry.stays()) {
            (false, true) => self.staying.add(entry),
            (true, false) => self.staying.take(entry),
            _ => {}
        }
    }

    #[cfg(test)]
    pub fn validate(&self) {
        let (mut used, mut idle) = (Room::default(), Room::default());
        self.entries.values().for_each(|entry| used.add(entry));
        self.entries.values().filter(|entry| entry.is_idle()).for_each(|entry| idle.add(entry));
        assert_eq!((used, idle), (self.used, self.idle));
        let mut staying = Room::default();
        self.entries.values().filter(|entry| entry.stays()).for_each(|entry| staying.add(entry));
        assert_eq!(staying, self.staying);
        // What was held before the limits were made smaller is beyond them, and nothing else then comes.
        let most = self.limits.bytes.max(staying.bytes);
        assert!(used.bytes <= most, "{} of {} bytes", used.bytes, self.limits.bytes);
        assert!(used.objects <= self.limits.inodes.max(staying.objects));
    }

    #[cfg(test)]
    pub fn pins(&self) -> u32 {
        self.entries.values().map(|entry| entry.pins).sum()
    }
}

/// Object ids are digests: any eight of their bytes are a hash.
#[derive(Clone, Copy, Default)]
pub(crate) struct IdHash;

#[derive(Default)]
pub(crate) struct FirstBytes(u64);

impl core::hash::BuildHasher for IdHash {
    type Hasher = FirstBytes;

    fn build_hasher(&self) -> FirstBytes {
        FirstBytes(0)
    }
}

impl core::hash::Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut word = [0; 8];
        let count = bytes.len().min(8);
        word[..count].copy_from_slice(&bytes[..count]);
        self.0 ^= u64::from_le_bytes(word);
    }

    fn write_usize(&mut self, _: usize) {}
}
