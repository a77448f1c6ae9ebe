//! The holders that an order to hold an object names. They belong to the order, and are too large
//! for an event. So they are here from the moment at which the order is sent.

use std::collections::BTreeMap;

use eyas_sched::Holder;

/// For each executor, by its number, and each object that it was told to hold, the holders that it
/// can fetch the object from. An executor that is gone has no entry.
#[derive(Default)]
pub(super) struct HoldHints(Vec<Option<BTreeMap<u32, Box<[Holder]>>>>);

impl HoldHints {
    /// The next executor is there.
    pub fn add_executor(&mut self) {
        self.0.push(Some(BTreeMap::new()));
    }

    pub fn remove_executor(&mut self, executor: u32) {
        self.0[executor as usize] = None;
    }

    pub fn insert(&mut self, executor: u32, object: u32, holders: Box<[Holder]>) {
        if let Some(of) = &mut self.0[executor as usize] {
            of.insert(object, holders);
        }
    }

    pub fn remove(&mut self, executor: u32, object: u32) {
        if let Some(of) = &mut self.0[executor as usize] {
            of.remove(&object);
        }
    }

    pub fn get(&self, executor: u32, object: u32) -> Option<&[Holder]> {
        self.0[executor as usize].as_ref()?.get(&object).map(|holders| &**holders)
    }
}
