//! The storages that programs of this node use: whether their requests are ordered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use eyas_board::{Board, CallTimes};
use eyas_ioq::{Bypass, UnorderedCalls};

use super::files::Key;

/// A storage of which nothing was heard for so long is forgotten: another may be mounted in its place.
const IDLE: Duration = Duration::from_secs(60);

/// All of them, by their devices.
pub(super) struct Storages {
    board: &'static Board,
    began: Instant,
    storages: BTreeMap<u64, Storage>,
}

struct Storage {
    bypass: Bypass,
    /// Where it stands on the board, if it is left to programs.
    place: Option<usize>,
    /// The file of the last request, and where that ended.
    last: (u64, u64),
    heard: Instant,
}

impl Storage {
    fn new() -> Storage {
        Storage { bypass: Bypass::default(), place: None, last: (0, 0), heard: Instant::now() }
    }
}

impl Storages {
    pub fn new(board: &'static Board) -> Storages {
        Storages { board, began: Instant::now(), storages: BTreeMap::new() }
    }

    /// Whether requests to it are ordered.
    pub fn are_ordered(&self, device: u64) -> bool {
        self.storages.get(&device).is_none_or(|storage| storage.bypass.is_ordered())
    }

    /// These bytes were read alone; how many of them tell of the storage, and how long they took. Whether order gains nothing
    /// there, as is known now.
    pub fn took(&mut self, (device, inode): Key, bytes: &Range<u64>, told: Option<(u64, Duration)>) -> bool {
        let now_us = self.now_us();
        let storage = self.storages.entry(device).or_insert_with(Storage::new);
        let has_jumped = storage.last != (inode, bytes.start);
        (storage.last, storage.heard) = ((inode, bytes.end), Instant::now());
        let was_ordered = storage.bypass.is_ordered();
        if let Some((length, time)) = told {
            storage.bypass.record_ordered(now_us, length, micros(time), has_jumped);
        }
        was_ordered && !storage.bypass.is_ordered()
    }

    /// Leaves it to its programs, if there is room to tell them.
    pub fn leave_alone(&mut self, device: u64) -> bool {
        let place = self.board.bypass(device);
        if let Some(storage) = self.storages.get_mut(&device) {
            storage.place = place;
        }
        if place.is_some() {
            tracing::info!(device, "order gains nothing at a storage; its programs go ahead");
        }
        place.is_some()
    }

    /// Goes on ordering it, or begins again.
    pub fn keep(&mut self, device: u64) {
        let now_us = self.now_us();
        if let Some(storage) = self.storages.get_mut(&device) {
            storage.bypass.keep_ordering(now_us);
            take_back(self.board, storage);
        }
    }

    /// Looks at what programs have waited for where they are left alone; the storages that are not any more.
    pub fn look(&mut self) -> Vec<u64> {
        let (now_us, board) = (self.now_us(), self.board);
        let mut back = Vec::new();
        self.storages.retain(|device, storage| {
            if let Some(place) = storage.place {
                let CallTimes { calls, total_us, slow_calls, slow_us } = board.bypassed[place].take_times();
                if calls > 0 {
                    storage.heard = Instant::now();
                }
                storage.bypass.record_unordered(now_us, UnorderedCalls { calls, total_us, slow_calls, slow_us });
            }
            let is_idle = storage.heard.elapsed() > IDLE;
            if (is_idle || storage.bypass.is_ordered()) && take_back(board, storage) {
                tracing::info!(device, "a storage's requests are ordered again");
                back.push(*device);
            }
            !is_idle
        });
        back
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }
}

/// Programs are not left alone with it any more; whether they were.
fn take_back(board: &Board, storage: &mut Storage) -> bool {
    let place = storage.place.take();
    if let Some(place) = place {
        board.bypassed[place].release();
    }
    place.is_some()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
