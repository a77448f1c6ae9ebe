//! Storages of this node's programs: whether their requests are ordered or the storage is bypassed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use eyas_board::{Board, CallTimes};
use eyas_ioq::{Bypass, UnorderedCalls};

use super::program_file::FileKey;
use crate::storage_name::is_ordered_below;

/// A storage is forgotten after this time without use, because another one may be mounted in its
/// place.
const IDLE: Duration = Duration::from_secs(60);
/// Interval at which the type of a storage's mount is read again, for the same reason.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// All storages, by device.
pub(super) struct StorageBypasses {
    board: &'static Board,
    began: Instant,
    storages: BTreeMap<u64, StorageBypass>,
}

struct StorageBypass {
    bypass: Bypass,
    /// Whether it is a mount whose server orders all requests. If they were ordered here, too,
    /// requests that wait for the server would hold up the server's own.
    is_ordered_below: bool,
    looked: Instant,
    /// Index on the board, if the storage is bypassed.
    place: Option<usize>,
    /// File and end of the last request.
    last: (u64, u64),
    heard: Instant,
}

impl StorageBypass {
    fn of(device: u64, now: Instant) -> StorageBypass {
        StorageBypass {
            bypass: Bypass::default(),
            is_ordered_below: is_ordered_below(device),
            looked: now,
            place: None,
            last: (0, 0),
            heard: now,
        }
    }
}

impl StorageBypasses {
    pub fn new(board: &'static Board, began: Instant) -> StorageBypasses {
        StorageBypasses { board, began, storages: BTreeMap::new() }
    }

    /// Whether requests to this storage are ordered. `must_order`: the program asks for every turn.
    pub fn are_ordered(&mut self, now: Instant, device: u64, must_order: bool) -> bool {
        let storage = self.storages.entry(device).or_insert_with(|| StorageBypass::of(device, now));
        if storage.is_ordered_below {
            storage.heard = now;
            storage.place = storage.place.or_else(|| self.board.bypass(device));
            return false;
        }
        must_order || storage.bypass.is_ordered()
    }

    /// These bytes were read or written in a turn of their own. `told`: bytes and duration that
    /// tell how fast the storage is. Returns whether ordering is now known to gain nothing.
    pub fn record_ordered(
        &mut self,
        now: Instant,
        (device, inode): FileKey,
        bytes: &Range<u64>,
        told: Option<(u64, Duration)>,
    ) -> bool {
        let now_us = self.micros_at(now);
        let storage = self.storages.entry(device).or_insert_with(|| StorageBypass::of(device, now));
        let has_jumped = storage.last != (inode, bytes.start);
        (storage.last, storage.heard) = ((inode, bytes.end), now);
        let was_ordered = storage.bypass.is_ordered();
        if let Some((length, time)) = told {
            storage.bypass.record_ordered(now_us, length, micros(time), has_jumped);
        }
        was_ordered && !storage.bypass.is_ordered()
    }

    /// Bypasses the storage, if the board has a free entry.
    pub fn set_bypassed(&mut self, device: u64) -> bool {
        let place = self.board.bypass(device);
        if let Some(storage) = self.storages.get_mut(&device) {
            storage.place = place;
        }
        if place.is_some() {
            tracing::info!(
                device,
                "ordering gains nothing at this storage; its requests are no longer ordered"
            );
        }
        place.is_some()
    }

    /// Orders the storage's requests, or orders them again.
    pub fn keep_ordering(&mut self, now: Instant, device: u64) {
        let now_us = self.micros_at(now);
        if let Some(storage) = self.storages.get_mut(&device) {
            storage.bypass.keep_ordering(now_us);
            take_back(self.board, storage);
        }
    }

    /// Evaluates the durations that programs have reported. Returns the storages that are no longer
    /// bypassed.
    pub fn review(&mut self, now: Instant) -> Vec<u64> {
        let (now_us, board) = (self.micros_at(now), self.board);
        let mut back = Vec::new();
        self.storages.retain(|device, storage| {
            if now - storage.looked > LOOK_EVERY {
                storage.is_ordered_below = is_ordered_below(*device);
                storage.looked = now;
            }
            if let Some(place) = storage.place {
                let CallTimes { calls, total_us, slow_calls, slow_us } =
                    board.bypassed[place].take_times();
                if calls > 0 {
                    storage.heard = now;
                }
                if !storage.is_ordered_below {
                    storage.bypass.record_unordered(
                        now_us,
                        UnorderedCalls { calls, total_us, slow_calls, slow_us },
                    );
                }
            }
            let is_idle = now - storage.heard > IDLE;
            let is_ordered = storage.bypass.is_ordered() && !storage.is_ordered_below;
            if (is_idle || is_ordered) && take_back(board, storage) {
                tracing::info!(device, "requests to this storage are ordered again");
                back.push(*device);
            }
            !is_idle
        });
        back
    }

    fn micros_at(&self, now: Instant) -> u64 {
        micros(now - self.began)
    }
}

/// Ends a bypass. Returns whether the storage was bypassed.
fn take_back(board: &Board, storage: &mut StorageBypass) -> bool {
    let place = storage.place.take();
    if let Some(place) = place {
        board.bypassed[place].release();
    }
    place.is_some()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
