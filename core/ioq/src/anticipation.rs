//! Holding an idle server for a moment, for the request that would continue a chain (io-coordination §6.3.3).
//!
//! Processes that read a file in turns do not ask at the same time. If the others' run is granted before the request that
//! belongs before it is there, that comes late for ever: the paper's shift phenomenon. And who reads one piece after the
//! other asks for the next a moment after it had the last; if the disk has gone elsewhere by then, each piece costs a seek.
//!
//! - A run that does not begin where its file was left (at its beginning, if it never was granted anything) is held until its
//!   oldest request has waited for the window.
//! - Before the server leaves a file it is held for the window after it fell idle, and what continues the file goes first,
//!   whatever the policy says; but no more in one stay than a run may have, so nobody is kept out.
//!
//! It costs as much as it helps where nothing continues, so each file has to earn it: after [`MAX_FRUITLESS`] holds in vain
//! none is made until something has come in time by itself. What was not read before starts with how such files did lately.

use alloc::collections::BTreeMap;

use crate::event::ClassId;
use crate::queue::Queue;
use crate::run::{Place, Run, Stream};

/// Holds in vain, one after the other, until no more are made.
const MAX_FRUITLESS: u32 = 3;
/// Files of which it is known where they were left. Of more, the one that was granted something longest ago counts as new.
const MAX_TRAILS: usize = 4_096;

/// A file, an operation and the class of those who want it.
type Key = (ClassId, Stream);

#[derive(Default)]
pub(crate) struct Anticipation {
    window_us: u64,
    max_stay_bytes: u64,
    trails: BTreeMap<Key, Trail>,
    /// By when something was last granted of them, in grants.
    by_use: BTreeMap<u64, Key>,
    uses: u64,
    /// What was granted last, and how much of it without a break.
    last: Option<Key>,
    stay_bytes: u64,
    idle_since_us: Option<u64>,
    /// For what the server is held, and how often one was begun to be.
    held_for: Option<Key>,
    holds: u64,
    /// Holds in vain for files that were new.
    fruitless: u32,
}

/// Where a file was left, and what came of waiting for it.
#[derive(Clone, Copy, Debug)]
struct Trail {
    end: u64,
    /// When the server was idle after that.
    idle_us: Option<u64>,
    fruitless: u32,
    is_proven: bool,
    used: u64,
}

/// What to do with an idle server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Go(Place),
    /// Until then, unless something comes.
    Hold(u64),
}

impl Anticipation {
    pub fn new(window_us: u64, max_stay_bytes: u64) -> Self {
        Anticipation { window_us, max_stay_bytes, ..Anticipation::default() }
    }

    /// The server can be given something from now on, unless it could before.
    pub fn idle(&mut self, now_us: u64) {
        if self.window_us == 0 || self.idle_since_us.is_some() {
            return;
        }
        self.idle_since_us = Some(now_us);
        if let Some(trail) = self.last.and_then(|last| self.trails.get_mut(&last)) {
            trail.idle_us = Some(now_us);
        }
    }

    /// Whether to grant that run of a class, another, or none yet.
    pub fn advise(&mut self, now_us: u64, class: ClassId, queue: &Queue, chosen: &Run) -> Advice {
        let Some(idle_since_us) = self.idle_since_us else { return Advice::Go(chosen.head) };
        if let Some((key, trail)) = self.last.and_then(|key| Some((key, *self.trails.get(&key)?)))
            && key.0 == class
            && self.stay_bytes < self.max_stay_bytes
        {
            let left_bytes = self.max_stay_bytes - self.stay_bytes;
            if let Some(run) = queue.run_at(key.1, trail.end).filter(|run| run.bytes <= left_bytes) {
                return Advice::Go(run.head);
            }
            if trail.fruitless < MAX_FRUITLESS && now_us < idle_since_us.saturating_add(self.window_us) {
                return self.hold(key, idle_since_us);
            }
        }
        let key = (class, chosen.head.stream);
        let (end, fruitless) = self.trails.get(&key).map_or((0, self.fruitless), |trail| (trail.end, trail.fruitless));
        let is_young = now_us < chosen.oldest_us.saturating_add(self.window_us);
        if chosen.head.offset != end && fruitless < MAX_FRUITLESS && is_young {
            return self.hold(key, chosen.oldest_us);
        }
        Advice::Go(chosen.head)
    }

    fn hold(&mut self, key: Key, from_us: u64) -> Advice {
        self.holds += u64::from(self.held_for.replace(key).is_none());
        Advice::Hold(from_us.saturating_add(self.window_us))
    }

    /// That run is granted; it ends there.
    pub fn granted(&mut self, class: ClassId, run: &Run, end: u64) {
        if self.window_us == 0 {
            return;
        }
        let key = (class, run.head.stream);
        let before = self.trails.get(&key).copied();
        let continues = run.head.offset == before.map_or(0, |trail| trail.end);
        if let Some(held_for) = self.held_for.take().filter(|held_for| *held_for != key || !continues) {
            self.was_in_vain(held_for);
        }
        let is_in_time = |trail: &Trail| {
            continues && trail.idle_us.is_none_or(|idle_us| run.oldest_us <= idle_us.saturating_add(self.window_us))
        };
        let is_proven = before.as_ref().is_some_and(is_in_time);
        if is_proven {
            self.fruitless = 0;
        }
        let fruitless = self.trails.get(&key).map_or(self.fruitless, |trail| trail.fruitless);
        let trail = Trail {
            end,
            idle_us: None,
            fruitless: if is_proven { 0 } else { fruitless },
            is_proven: is_proven || before.is_some_and(|trail| trail.is_proven),
            used: self.uses,
        };
        self.stay_bytes = if continues && self.last == Some(key) { self.stay_bytes } else { 0 };
        self.stay_bytes = self.stay_bytes.saturating_add(run.bytes);
        if self.stay_bytes > self.max_stay_bytes {
            self.stay_bytes = run.bytes;
        }
        (self.last, self.idle_since_us) = (Some(key), None);
        self.remember(key, trail);
    }

    fn was_in_vain(&mut self, key: Key) {
        match self.trails.get_mut(&key) {
            Some(trail) => {
                trail.fruitless += 1;
                if !trail.is_proven {
                    self.fruitless = self.fruitless.max(trail.fruitless);
                }
            }
            None => self.fruitless += 1,
        }
    }

    fn remember(&mut self, key: Key, trail: Trail) {
        if let Some(before) = self.trails.insert(key, trail) {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(trail.used, key);
        self.uses += 1;
        if self.trails.len() > MAX_TRAILS
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.trails.remove(&oldest);
        }
    }

    /// How often the server was held.
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// # Panics
    /// If it remembers too much, or does not find it.
    pub fn validate(&self) {
        assert!(self.trails.len() <= MAX_TRAILS && self.trails.len() == self.by_use.len());
        assert!(self.by_use.iter().all(|(used, key)| self.trails[key].used == *used));
    }
}
