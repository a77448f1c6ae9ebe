//! Contents and folders that a task makes for other tasks of the node, too: each is made by one
//! task at a time.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_types::ObjectId;

/// Time between two checks whether a task still waits.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The contents and folders that are being made.
#[derive(Default)]
pub(super) struct Makings {
    under_way: Mutex<HashSet<ObjectId>>,
    ended: Condvar,
}

impl Makings {
    /// Begins to make something. Waits while another task makes it, as long as `is_wanted` returns
    /// true.
    pub fn begin(&self, object: ObjectId, is_wanted: impl Fn() -> bool) -> Option<Making<'_>> {
        let mut under_way = self.under_way();
        while !under_way.insert(object) {
            if !is_wanted() {
                return None;
            }
            let waited = self.ended.wait_timeout(under_way, CHECK_EVERY);
            under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(Making { all: self, object })
    }

    fn under_way(&self) -> MutexGuard<'_, HashSet<ObjectId>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A content or folder that one task makes; over when dropped.
pub(super) struct Making<'a> {
    all: &'a Makings,
    object: ObjectId,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        self.all.under_way().remove(&self.object);
        self.all.ended.notify_all();
    }
}
