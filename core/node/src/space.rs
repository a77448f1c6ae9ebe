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
}

pub(crate) struct Space {
    limits: Limits,
    /// What the disk last said it has free, less what was reserved since.
    free_bytes: u64,
    free_inodes: u64,
    entries: HashMap<ObjectId, Entry, IdHash>,
    used_bytes: u64,
    policy: Box<dyn Eviction>,
}

/// Why room cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Not even in an empty store.
    Never,
    /// Tasks were promised what would have to leave, or it is still on its way.
    Now,
}

impl Space {
    pub fn new(limits: Limits, policy: EvictionPolicy, seed: u64) -> Self {
        Space {
            limits,
            free_bytes: u64::MAX,
            free_inodes: u64::MAX,
            entries: HashMap::default(),
            used_bytes: 0,
            policy: eviction::of(policy, seed),
        }
    }

    /// What the disk has free.
    pub fn set_free(&mut self, bytes: u64, inodes: u64) {
        self.free_bytes = bytes;
        self.free_inodes = inodes;
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
        self.entries.get(&object).is_some_and(|entry| entry.here && entry.pins == 0)
    }

    /// Whether it is here or on its way.
    pub fn is_known(&self, object: ObjectId) -> bool {
        self.entries.contains_key(&object)
    }

    /// Makes room for objects of these sizes, evicting what nobody was promised; what is evicted is added to `evicted`
    /// even where room does not suffice in the end.
    pub fn make_room(&mut self, bytes: u64, objects: u64, evicted: &mut Vec<ObjectId>) -> Result<(), NoRoom> {
        if bytes > self.limits.bytes || objects > self.limits.inodes {
            return Err(NoRoom::Never);
        }
        while !self.fits(bytes, objects) {
            let entries = &self.entries;
            let may_leave = |object| entries.get(&object).is_some_and(|entry| entry.here && entry.pins == 0);
            let Some(victim) = self.policy.victim(&may_leave) else {
                let may_change = self.entries.values().any(|entry| entry.pins > 0 || !entry.here);
                return Err(if may_change { NoRoom::Now } else { NoRoom::Never });
            };
            self.remove(victim);
            evicted.push(victim);
        }
        Ok(())
    }

    fn fits(&self, bytes: u64, objects: u64) -> bool {
        let within =
            self.used_bytes + bytes <= self.limits.bytes && self.entries.len() as u64 + objects <= self.limits.inodes;
        let above = self.free_bytes >= self.limits.floor_bytes.saturating_add(bytes)
            && self.free_inodes >= self.limits.floor_inodes.saturating_add(objects);
        within && (above || bytes + objects == 0)
    }

    /// Books an object that is going to be fetched. Room was made for it.
    pub fn expect(&mut self, object: ObjectId, size_bytes: u64) {
        let before = self.entries.insert(object, Entry { size_bytes, pins: 0, here: false });
        assert!(before.is_none(), "{object} expected twice");
        self.used_bytes += size_bytes;
        self.free_bytes = self.free_bytes.saturating_sub(size_bytes);
        self.free_inodes = self.free_inodes.saturating_sub(1);
    }

    /// The object is in the store.
    pub fn arrived(&mut self, object: ObjectId) {
        let entry = self.entries.get_mut(&object).expect("only what is expected arrives");
        entry.here = true;
        self.policy.stored(object);
    }

    /// The object is not, or no longer, in the store.
    pub fn remove(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.remove(&object) {
            self.used_bytes -= entry.size_bytes;
            self.free_bytes = self.free_bytes.saturating_add(entry.size_bytes);
            self.free_inodes = self.free_inodes.saturating_add(1);
            if entry.here {
                self.policy.removed(object);
            }
        }
    }

    /// Promises the object to a task: it does not leave until every promise is taken back.
    pub fn pin(&mut self, object: ObjectId) {
        let entry = self.entries.get_mut(&object).expect("only what is known is promised");
        entry.pins += 1;
        if entry.here {
            self.policy.used(object);
        }
    }

    /// Takes a promise back; an object that was lost in between is no longer known.
    pub fn unpin(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.pins = entry.pins.saturating_sub(1);
        }
    }

    #[cfg(test)]
    pub fn validate(&self) {
        let sum: u64 = self.entries.values().map(|entry| entry.size_bytes).sum();
        assert_eq!(sum, self.used_bytes);
        assert!(self.used_bytes <= self.limits.bytes, "{} of {} bytes", self.used_bytes, self.limits.bytes);
        assert!(self.entries.len() as u64 <= self.limits.inodes);
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
