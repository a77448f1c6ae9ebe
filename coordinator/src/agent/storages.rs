//! The storages that programs of this node use: whether their requests are ordered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use eyas_board::Board;
use eyas_ioq::Worth;

use super::files::Key;

/// All of them, by their devices.
pub(super) struct Storages {
    board: &'static Board,
    began: Instant,
    storages: BTreeMap<u64, Storage>,
}

#[derive(Default)]
struct Storage {
    worth: Worth,
    /// Where it stands on the board, if it is left to programs and there is room.
    place: Option<usize>,
    /// The file of the last request, and where that ended.
    last: (u64, u64),
}

impl Storages {
    pub fn new(board: &'static Board) -> Storages {
        Storages { board, began: Instant::now(), storages: BTreeMap::new() }
    }

    /// Whether requests to it are ordered.
    pub fn are_ordered(&self, device: u64) -> bool {
        self.storages.get(&device).is_none_or(|storage| storage.worth.is_ordered())
    }

    /// A request that went alone has taken so long; whether its storage is left to the programs from now on.
    pub fn took(&mut self, (device, inode): Key, bytes: &Range<u64>, time: Duration) -> bool {
        let now_us = self.now_us();
        let storage = self.storages.entry(device).or_default();
        let goes_on = storage.last == (inode, bytes.start);
        storage.last = (inode, bytes.end);
        if goes_on || !storage.worth.is_ordered() {
            return false;
        }
        storage.worth.took(now_us, bytes.end - bytes.start, micros(time));
        let is_left = !storage.worth.is_ordered();
        if is_left {
            tracing::info!(device, "order gains nothing at a storage; its programs go ahead");
            storage.place = self.board.leave_alone(device);
        }
        is_left
    }

    /// Looks at what programs have waited for where they are left alone; the storages that are ordered again.
    pub fn look(&mut self) -> Vec<u64> {
        let now_us = self.now_us();
        let mut again = Vec::new();
        for (device, storage) in &mut self.storages {
            let Some(place) = storage.place else { continue };
            let (calls, slow) = self.board.unordered[place].take();
            storage.worth.went_on(now_us, calls, slow);
            if storage.worth.is_ordered() {
                tracing::info!(device, "programs wait for a storage; their requests are ordered again");
                self.board.unordered[place].order();
                storage.place = None;
                again.push(*device);
            }
        }
        again
    }

    fn now_us(&self) -> u64 {
        micros(self.began.elapsed())
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
