//! An object that is being received. Its partial replica has a prefix, which other nodes can read
//! before the whole object is here.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eyas_types::ObjectId;

use crate::checksum::Checksum;
use crate::pieces::PIECE_BYTES;

/// A partial replica. Its prefix only grows, and has its final content.
#[derive(Debug)]
pub struct PartialReplica {
    /// Size of the whole object.
    pub size_bytes: u64,
    /// File to read the prefix from. It remains readable when the object is published or given up.
    pub file: File,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    progress: ArrivalProgress,
    pieces: Vec<Checksum>,
}

/// How much of a partial replica has been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalProgress {
    /// Bytes of the prefix, in whole [pieces](crate::PIECE_BYTES).
    pub written_bytes: u64,
    /// How the receipt ended, once it has.
    pub end: Option<ArrivalEnd>,
}

/// How a receipt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalEnd {
    /// The object is whole, and has this checksum.
    Whole(Checksum),
    /// The receipt was given up. The prefix remains valid.
    GivenUp,
}

impl PartialReplica {
    pub(crate) fn new(size_bytes: u64, file: File) -> Self {
        let state =
            State { progress: ArrivalProgress { written_bytes: 0, end: None }, pieces: Vec::new() };
        PartialReplica { size_bytes, file, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until the prefix has more than `bytes`, the receipt has ended, or `patience` has
    /// passed. Returns the progress at that time. Blocks.
    pub fn wait_past(&self, bytes: u64, patience: Duration) -> ArrivalProgress {
        let nothing_new = |state: &mut State| {
            state.progress.written_bytes <= bytes && state.progress.end.is_none()
        };
        let waited = self.changed.wait_timeout_while(self.state(), patience, nothing_new);
        waited.unwrap_or_else(PoisonError::into_inner).0.progress
    }

    /// The checksum of a piece of the prefix.
    pub fn piece(&self, place: usize) -> Option<Checksum> {
        self.state().pieces.get(place).copied()
    }

    /// The pieces of the prefix have these checksums.
    pub(crate) fn wrote(&self, pieces: &[Checksum]) {
        let mut state = self.state();
        let known = state.pieces.len();
        if pieces.len() > known {
            state.pieces.extend_from_slice(&pieces[known..]);
            state.progress.written_bytes =
                ((pieces.len() * PIECE_BYTES) as u64).min(self.size_bytes);
            self.changed.notify_all();
        }
    }

    fn ended(&self, how: ArrivalEnd) {
        self.state().progress.end.get_or_insert(how);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No update of the state can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Objects of which a store remembers that they were given up.
const MAX_GIVEN_UP: usize = 65_536;

/// The objects that a store is receiving. If an object is received twice at the same time, the
/// first receipt is the one that others read.
#[derive(Default)]
pub(crate) struct Arrivals {
    table: Mutex<ArrivalTable>,
    changed: Condvar,
    /// Whether there are objects that were given up; changes under the lock. If there are none, a
    /// task that is assigned need not wait for the lock.
    any_given_up: AtomicBool,
}

#[derive(Default)]
struct ArrivalTable {
    arriving: HashMap<ObjectId, Arc<PartialReplica>>,
    given_up: HashSet<ObjectId>,
}

impl Arrivals {
    pub fn begin(&self, id: ObjectId, arriving: &Arc<PartialReplica>) {
        let mut table = self.table();
        table.given_up.remove(&id);
        table.arriving.entry(id).or_insert_with(|| arriving.clone());
        drop(table);
        self.changed.notify_all();
    }

    /// An object is to be received soon.
    pub fn expect(&self, id: ObjectId) {
        if self.any_given_up.load(Ordering::Relaxed) {
            let mut table = self.table();
            table.given_up.remove(&id);
            self.any_given_up.store(!table.given_up.is_empty(), Ordering::Relaxed);
        }
    }

    /// An object will not be received after all. Wakes all that wait for it.
    pub fn give_up(&self, id: ObjectId) {
        let mut table = self.table();
        if table.given_up.len() >= MAX_GIVEN_UP {
            table.given_up.clear();
        }
        table.given_up.insert(id);
        self.any_given_up.store(true, Ordering::Relaxed);
        drop(table);
        self.changed.notify_all();
    }

    pub fn end(&self, id: ObjectId, arriving: &Arc<PartialReplica>, how: ArrivalEnd) {
        let mut table = self.table();
        if table.arriving.get(&id).is_some_and(|first| Arc::ptr_eq(first, arriving)) {
            table.arriving.remove(&id);
        }
        arriving.ended(how);
        drop(table);
        self.changed.notify_all();
    }

    /// Waits until the object is being received, and returns its partial replica. Returns `None` if
    /// `is_here` says that the whole object is here, if it was given up, or if `patience` has
    /// passed. Blocks.
    pub fn wait_for(
        &self,
        id: ObjectId,
        patience: Duration,
        is_here: impl Fn() -> bool,
    ) -> Option<Arc<PartialReplica>> {
        let deadline = Instant::now() + patience;
        let mut table = self.table();
        loop {
            if is_here() {
                return None;
            }
            if let Some(arriving) = table.arriving.get(&id) {
                return Some(arriving.clone());
            }
            if table.given_up.contains(&id) {
                return None;
            }
            let left =
                deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            table =
                self.changed.wait_timeout(table, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn table(&self) -> MutexGuard<'_, ArrivalTable> {
        // No update of the table can panic half-way.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
