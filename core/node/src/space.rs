//! Accounts of the store: which objects it has, which are being fetched, which are pinned, and
//! whether more fit.
//!
//! An object is *pinned* by each task that was promised it, and *held* for the dispatcher until it
//! is released. A pinned or held object is never evicted. An object that is in the store, not
//! pinned and not held is *idle*.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use eyas_types::{EvictionPolicy, ObjectId};
use hashbrown::HashMap;

use crate::eviction::{self, Eviction};

/// Limits of a store, in bytes and in inodes, and the free space that it leaves for other users of
/// the disk.
#[derive(Clone, Copy, Debug)]
pub struct StoreLimits {
    /// Maximum bytes of objects in the store and objects that are being fetched.
    pub bytes: u64,
    /// Maximum number of objects in the store and objects that are being fetched. Each object is
    /// one inode.
    pub inodes: u64,
    /// Bytes to keep free on the disk.
    pub floor_bytes: u64,
    /// Inodes to keep free on the disk.
    pub floor_inodes: u64,
}

/// Account of one object.
struct Entry {
    size_bytes: u64,
    /// Number of tasks that were promised the object.
    pins: u32,
    /// Whether the object is in the store. If not, it is being fetched.
    here: bool,
    /// Whether the object stays until it is released, even if no task needs it.
    held: bool,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.here && self.pins == 0 && !self.held
    }

    /// Whether the object stays only because it is held, and not for a task that will end.
    fn stays(&self) -> bool {
        self.here && self.pins == 0 && self.held
    }
}

/// An amount of space in the store: bytes and number of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreAmount {
    pub bytes: u64,
    pub objects: u64,
}

impl StoreAmount {
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
    limits: StoreLimits,
    /// Whether objects stay that no task needs.
    caching: bool,
    /// Known objects that stay only because tasks need them.
    unwanted: BTreeSet<ObjectId>,
    /// Known objects that were made of others, and leave after those.
    costly: BTreeSet<ObjectId>,
    /// Last reported free space of the disk, less the space that was reserved since.
    free: StoreAmount,
    entries: HashMap<ObjectId, Entry, IdHash>,
    /// Sum of all entries.
    used: StoreAmount,
    /// Sum of idle entries, which may be evicted.
    idle: StoreAmount,
    /// Sum of entries that stay only because they are held.
    staying: StoreAmount,
    policy: Box<dyn Eviction>,
}

impl Space {
    pub fn new(limits: StoreLimits, policy: EvictionPolicy, caching: bool, seed: u64) -> Self {
        Space {
            limits,
            caching,
            unwanted: BTreeSet::new(),
            costly: BTreeSet::new(),
            free: StoreAmount { bytes: u64::MAX, objects: u64::MAX },
            entries: HashMap::default(),
            used: StoreAmount::default(),
            idle: StoreAmount::default(),
            staying: StoreAmount::default(),
            policy: eviction::of(policy, seed),
        }
    }

    /// Sets the free space of the disk, less space that is reserved but not used on the disk yet.
    pub fn set_free(&mut self, free: StoreAmount) {
        self.free = free;
    }

    /// Bytes of the disk for objects and sandboxes: free space above the floor, and all space that
    /// the store uses. With 50 GB free, a floor of 10 GB and 20 GB in the store, it is 60 GB.
    pub fn disk_bytes(&self) -> u64 {
        self.free.bytes.saturating_add(self.used.bytes).saturating_sub(self.limits.floor_bytes)
    }

    /// Bytes for further objects that are to be held, if all objects that are not held leave. With
    /// a limit of 40 GB, 60 GB of the disk for objects, and 15 GB held, it is 25 GB.
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

    /// Size of an object, if it is in the store.
    pub fn size_of(&self, object: ObjectId) -> Option<u64> {
        self.entries.get(&object).filter(|entry| entry.here).map(|entry| entry.size_bytes)
    }

    /// Whether the object is in the store, not pinned and not held.
    pub fn is_idle(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(Entry::is_idle)
    }

    /// Whether the object is in the store or being fetched.
    pub fn is_known(&self, object: ObjectId) -> bool {
        self.entries.contains_key(&object)
    }

    /// Whether some object cannot be evicted now but will be later: it is pinned, or being fetched.
    pub fn is_busy(&self) -> bool {
        self.idle.objects + self.staying.objects < self.used.objects
    }

    /// Makes room for `more`, within the limits and on the disk. Evicts idle objects if needed, and
    /// adds them to `evicted`. If evicting all idle objects would not suffice, evicts none and
    /// returns false. Of a store for 100 GB with 90 GB, of which 30 GB are idle, at least 15 GB
    /// leave for 25 GB more, and nothing leaves for 45 GB more.
    pub fn make_room(&mut self, more: StoreAmount, evicted: &mut Vec<ObjectId>) -> bool {
        self.make_room_beside(more, 0, evicted)
    }

    /// The same, and leaves further bytes of the disk free for other users.
    pub fn make_room_beside(
        &mut self,
        more: StoreAmount,
        free_bytes: u64,
        evicted: &mut Vec<ObjectId>,
    ) -> bool {
        let nothing = more == StoreAmount::default() && free_bytes == 0;
        let on_disk = StoreAmount { bytes: more.bytes.saturating_add(free_bytes), ..more };
        self.evict_until(
            |space, less| nothing || space.is_within(more, less) && space.is_free(on_disk, less),
            evicted,
        )
    }

    /// Evicts idle objects until this much of the disk is free beside the floor, or all of them
    /// have left.
    pub fn free_up(&mut self, bytes: u64, evicted: &mut Vec<ObjectId>) {
        let wanted = StoreAmount { bytes, objects: 0 };
        self.evict_until(
            |space, less| space.idle == less || space.is_free(wanted, StoreAmount::default()),
            evicted,
        );
    }

    /// Makes room as [`make_room`](Self::make_room) does, for an object that has an account already
    /// but did not fit on the disk.
    pub fn free_disk(&mut self, bytes: u64, evicted: &mut Vec<ObjectId>) -> bool {
        let has_room = self.evict_until(
            |space, less| space.is_free(StoreAmount { bytes, objects: 0 }, less),
            evicted,
        );
        if has_room {
            self.free.bytes = self.free.bytes.saturating_sub(bytes);
        }
        has_room
    }

    /// Evicts idle objects until there is room. `fits(self, less)` tells whether there is room
    /// after `less` has left.
    fn evict_until(
        &mut self,
        fits: impl Fn(&Self, StoreAmount) -> bool,
        evicted: &mut Vec<ObjectId>,
    ) -> bool {
        if !fits(self, self.idle) {
            return false;
        }
        while !fits(self, StoreAmount::default()) {
            let entries = &self.entries;
            let may_leave = |object| entries.get(&object).is_some_and(Entry::is_idle);
            let victim = self
                .policy
                .victim(&may_leave)
                .expect("there is room after all idle objects have left");
            self.remove(victim);
            evicted.push(victim);
        }
        true
    }

    fn is_within(&self, more: StoreAmount, less: StoreAmount) -> bool {
        (self.used.bytes - less.bytes).saturating_add(more.bytes) <= self.limits.bytes
            && (self.used.objects - less.objects).saturating_add(more.objects) <= self.limits.inodes
    }

    fn is_free(&self, more: StoreAmount, less: StoreAmount) -> bool {
        self.free.bytes.saturating_add(less.bytes)
            >= self.limits.floor_bytes.saturating_add(more.bytes)
            && self.free.objects.saturating_add(less.objects)
                >= self.limits.floor_inodes.saturating_add(more.objects)
    }

    /// Adds an object that was in the store when it was opened, so it does not reduce the free
    /// space of the disk. Returns false if the object is not to stay: it exceeds the limits, or no
    /// object stays that no task needs.
    pub fn found(&mut self, object: ObjectId, size_bytes: u64) -> bool {
        let fits = self.caching
            && self
                .is_within(StoreAmount { bytes: size_bytes, objects: 1 }, StoreAmount::default());
        if fits {
            self.enter(object, Entry { size_bytes, pins: 0, here: true, held: false });
            self.policy.stored(object);
        }
        fits
    }

    /// Adds and holds an output of a task. The output was on the disk already, so only the limits
    /// count. Evicts idle objects as [`make_room`](Self::make_room) does; returns false if there is
    /// no room.
    pub fn produced(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        evicted: &mut Vec<ObjectId>,
    ) -> bool {
        let more = StoreAmount { bytes: size_bytes, objects: 1 };
        let fits = self.evict_until(|space, less| space.is_within(more, less), evicted);
        if fits {
            self.enter(object, Entry { size_bytes, pins: 0, here: true, held: true });
            self.policy.stored(object);
        }
        fits
    }

    /// Adds something that was made of another object and is on the disk already, and pins it for a
    /// task. It may exceed the limits as long as tasks read it.
    pub fn derived(&mut self, object: ObjectId, size_bytes: u64) {
        self.enter(object, Entry { size_bytes, pins: 1, here: true, held: false });
        self.policy.stored(object);
    }

    /// Notes whether what an object was made of leaves before it.
    pub fn set_costly(&mut self, object: ObjectId, is_costly: bool) {
        match is_costly {
            true => self.costly.insert(object),
            false => self.costly.remove(&object),
        };
    }

    pub fn is_costly(&self, object: ObjectId) -> bool {
        self.costly.contains(&object)
    }

    /// Evicts idle objects until the others are within the limits, or none is left. What was held
    /// before the limits became smaller does not count.
    pub fn shrink(&mut self, evicted: &mut Vec<ObjectId>) {
        let is_within = |space: &Self, less: StoreAmount| {
            space.used.bytes - less.bytes <= space.limits.bytes.max(space.staying.bytes)
                && space.used.objects - less.objects
                    <= space.limits.inodes.max(space.staying.objects)
        };
        self.evict_until(|space, less| space.idle == less || is_within(space, less), evicted);
    }

    /// Adds and holds an object that was in the store when it was opened, even if it exceeds the
    /// limits.
    pub fn enter_held(&mut self, object: ObjectId, size_bytes: u64) {
        self.enter(object, Entry { size_bytes, pins: 0, here: true, held: true });
        self.policy.stored(object);
    }

    /// Adds an object that will be fetched. The caller has made room for it.
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
        assert!(self.entries.insert(object, entry).is_none(), "{object} was added twice");
    }

    /// The object is in the store now. Each task that was promised it counts as a use.
    pub fn arrived(&mut self, object: ObjectId) {
        let pins = self.entries.get(&object).expect("only expected objects arrive").pins;
        self.change(object, |entry| entry.here = true);
        self.policy.stored(object);
        (0..pins).for_each(|_| self.policy.used(object));
    }

    /// Removes the account of an object that is not, or is no longer, in the store.
    pub fn remove(&mut self, object: ObjectId) {
        self.unwanted.remove(&object);
        self.costly.remove(&object);
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

    /// A task uses the object, which is in the store.
    pub fn used(&mut self, object: ObjectId) {
        self.policy.used(object);
    }

    /// Promises a known object to a task: the object stays until all pins are removed.
    pub fn pin(&mut self, object: ObjectId) {
        assert!(self.is_known(object), "only known objects can be pinned");
        self.change(object, |entry| entry.pins += 1);
    }

    /// Removes a pin. Does nothing if the object was lost meanwhile.
    pub fn unpin(&mut self, object: ObjectId) {
        self.change(object, |entry| {
            assert!(entry.pins > 0, "{object} has no pin");
            entry.pins -= 1;
        });
    }

    /// Holds a known object: it stays until it is released, and is then an object like others.
    pub fn hold(&mut self, object: ObjectId) {
        self.unwanted.remove(&object);
        self.change(object, |entry| entry.held = true);
    }

    pub fn release(&mut self, object: ObjectId) {
        self.change(object, |entry| entry.held = false);
    }

    /// From now on, until it is held again, the object stays only while tasks need it.
    pub fn unwant(&mut self, object: ObjectId) {
        if self.is_known(object) {
            self.unwanted.insert(object);
        }
    }

    /// Removes the account of an idle object that is not to stay: nothing will need it, or no
    /// object stays that no task needs. Returns whether it was removed.
    pub fn drop_unless_cached(&mut self, object: ObjectId) -> bool {
        let leaves = self.is_idle(object) && (self.unwanted.contains(&object) || !self.caching);
        if leaves {
            self.remove(object);
        }
        leaves
    }

    pub fn is_held(&self, object: ObjectId) -> bool {
        self.entries.get(&object).is_some_and(|entry| entry.held)
    }

    pub fn holds_any(&self) -> bool {
        self.entries.values().any(|entry| entry.held)
    }

    /// Changes an entry, if there is one, and keeps the sums right.
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
        let (mut used, mut idle) = (StoreAmount::default(), StoreAmount::default());
        self.entries.values().for_each(|entry| used.add(entry));
        self.entries.values().filter(|entry| entry.is_idle()).for_each(|entry| idle.add(entry));
        assert_eq!((used, idle), (self.used, self.idle));
        let mut staying = StoreAmount::default();
        self.entries.values().filter(|entry| entry.stays()).for_each(|entry| staying.add(entry));
        assert_eq!(staying, self.staying);
        assert!(
            self.unwanted.iter().all(|object| self.is_known(*object) && !self.is_held(*object))
        );
        assert!(
            !self.unwanted.iter().any(|object| self.is_idle(*object)),
            "nothing needs it: it leaves"
        );
        // Objects that were held before the limits became smaller may exceed the limits; then
        // nothing else is added.
        let most = self.limits.bytes.max(staying.bytes);
        let most_objects = self.limits.inodes.max(staying.objects);
        // So may what tasks read and was made of other objects.
        let is_within = used.bytes <= most && used.objects <= most_objects;
        assert!(is_within || idle == StoreAmount::default(), "{used:?}, {:?}", self.limits);
    }

    #[cfg(test)]
    pub fn pins(&self) -> u32 {
        self.entries.values().map(|entry| entry.pins).sum()
    }
}

/// Object ids are digests, so any eight of their bytes are a good hash.
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
