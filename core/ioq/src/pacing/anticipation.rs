//! Anticipatory scheduling: an idle server is held for a moment, for the request that would
//! continue a chain (io-coordination §6.3.3; Iyer and Druschel 2001).
//!
//! Two patterns gain by it. Processes that read one file in turns do not ask at the same time. If
//! the run of the others is granted before the request that belongs in front of it arrives, that
//! request comes too late in every round: the paper's shift phenomenon. And a process that reads
//! piece after piece asks for the next one a moment after it had the last; if the disk has moved to
//! another file by then, every piece costs a seek.
//!
//! - A run that does not begin where its file was left (at its beginning, if nothing of the file
//!   was granted yet) is held until its oldest request has waited for the anticipation window.
//! - Before the server leaves a file, it is held for the window after it became idle. A run that
//!   continues the file goes first, whatever the policy says, up to the size of one run a visit, so
//!   that other files do not starve.
//!
//! Holding costs as much as it gains if nothing continues. So each file has to earn it: after
//! [`MAX_WASTED_HOLDS`] wasted holds in a row there are no more until a request has arrived in time
//! without one. A new file starts with the count of recent new files.

use alloc::collections::BTreeMap;

use crate::event::ClassId;
use crate::ordering::queue::RequestQueue;
use crate::ordering::run::{QueueKey, RequestRun, Stream};

/// Wasted holds in a row after which a file is no longer held. For example, with a window of 1 ms,
/// a file that no request continues costs up to 3 ms.
const MAX_WASTED_HOLDS: u32 = 3;
/// Streams whose history is remembered. Of more, the one that was granted least recently is
/// forgotten.
const MAX_HISTORIES: usize = 4_096;

/// A stream and the class of its requests.
type ClassStream = (ClassId, Stream);

#[derive(Default)]
pub(crate) struct Anticipation {
    window_us: u64,
    max_visit_bytes: u64,
    histories: BTreeMap<ClassStream, StreamHistory>,
    /// Streams by the number of their last grant.
    by_use: BTreeMap<u64, ClassStream>,
    uses: u64,
    /// Stream of the last grant, and the bytes granted without leaving it.
    last: Option<ClassStream>,
    visit_bytes: u64,
    idle_since_us: Option<u64>,
    /// Stream for which the server is held, and the number of holds begun.
    held_for: Option<ClassStream>,
    holds: u64,
    /// Wasted holds in a row for new streams.
    wasted_holds: u32,
}

/// The end of a stream, and the results of earlier waits for it.
#[derive(Clone, Copy, Debug)]
struct StreamHistory {
    end: u64,
    /// When the server became idle after its last grant.
    idle_us: Option<u64>,
    wasted_holds: u32,
    is_proven: bool,
    used: u64,
}

/// What to do with an idle server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldAdvice {
    Grant(QueueKey),
    /// Wait until this time, unless an event arrives.
    HoldUntil(u64),
}

impl Anticipation {
    pub fn new(window_us: u64, max_visit_bytes: u64) -> Self {
        Anticipation { window_us, max_visit_bytes, ..Anticipation::default() }
    }

    /// The server is idle from now on, unless it was before.
    pub fn idle(&mut self, now_us: u64) {
        if self.window_us == 0 || self.idle_since_us.is_some() {
            return;
        }
        self.idle_since_us = Some(now_us);
        if let Some(history) = self.last.and_then(|last| self.histories.get_mut(&last)) {
            history.idle_us = Some(now_us);
        }
    }

    /// Whether to grant the run that the policy has chosen, or one that continues the current
    /// stream, or none yet. For example, with a window of 1 ms and runs of up to 16 MiB, a server
    /// that is idle since 10 ms is held until 11 ms, and 16 pieces of 1 MiB that each arrive in
    /// time are granted before the policy chooses again.
    pub fn advise(
        &mut self,
        now_us: u64,
        class: ClassId,
        queue: &RequestQueue,
        chosen: &RequestRun,
    ) -> HoldAdvice {
        let Some(idle_since_us) = self.idle_since_us else { return HoldAdvice::Grant(chosen.head) };
        if let Some((key, history)) =
            self.last.and_then(|key| Some((key, *self.histories.get(&key)?)))
            && key.0 == class
            && self.visit_bytes < self.max_visit_bytes
        {
            let left_bytes = self.max_visit_bytes - self.visit_bytes;
            if let Some(run) =
                queue.run_at(key.1, history.end).filter(|run| run.size.bytes <= left_bytes)
            {
                return HoldAdvice::Grant(run.head);
            }
            if history.wasted_holds < MAX_WASTED_HOLDS
                && now_us < idle_since_us.saturating_add(self.window_us)
            {
                return self.hold(key, idle_since_us);
            }
        }
        let key = (class, chosen.head.stream);
        let (end, wasted_holds) = self
            .histories
            .get(&key)
            .map_or((0, self.wasted_holds), |history| (history.end, history.wasted_holds));
        let is_young = now_us < chosen.oldest_us.saturating_add(self.window_us);
        if chosen.head.offset != end && wasted_holds < MAX_WASTED_HOLDS && is_young {
            return self.hold(key, chosen.oldest_us);
        }
        HoldAdvice::Grant(chosen.head)
    }

    fn hold(&mut self, key: ClassStream, from_us: u64) -> HoldAdvice {
        self.holds += u64::from(self.held_for.replace(key).is_none());
        HoldAdvice::HoldUntil(from_us.saturating_add(self.window_us))
    }

    /// A run is granted. `end` is the offset after its last byte.
    pub fn granted(&mut self, class: ClassId, run: &RequestRun, end: u64) {
        if self.window_us == 0 {
            return;
        }
        let key = (class, run.head.stream);
        let before = self.histories.get(&key).copied();
        let continues = run.head.offset == before.map_or(0, |history| history.end);
        if let Some(held_for) =
            self.held_for.take().filter(|held_for| *held_for != key || !continues)
        {
            self.count_wasted(held_for);
        }
        let is_in_time = |history: &StreamHistory| {
            continues
                && history
                    .idle_us
                    .is_none_or(|idle_us| run.oldest_us <= idle_us.saturating_add(self.window_us))
        };
        let is_proven = before.as_ref().is_some_and(is_in_time);
        if is_proven {
            self.wasted_holds = 0;
        }
        let wasted_holds =
            self.histories.get(&key).map_or(self.wasted_holds, |history| history.wasted_holds);
        let history = StreamHistory {
            end,
            idle_us: None,
            wasted_holds: if is_proven { 0 } else { wasted_holds },
            is_proven: is_proven || before.is_some_and(|history| history.is_proven),
            used: self.uses,
        };
        self.visit_bytes = if continues && self.last == Some(key) { self.visit_bytes } else { 0 };
        self.visit_bytes = self.visit_bytes.saturating_add(run.size.bytes);
        if self.visit_bytes > self.max_visit_bytes {
            self.visit_bytes = run.size.bytes;
        }
        self.last = Some(key);
        self.idle_since_us = None;
        self.remember(key, history);
    }

    fn count_wasted(&mut self, key: ClassStream) {
        match self.histories.get_mut(&key) {
            Some(history) => {
                history.wasted_holds += 1;
                if !history.is_proven {
                    self.wasted_holds = self.wasted_holds.max(history.wasted_holds);
                }
            }
            None => self.wasted_holds += 1,
        }
    }

    fn remember(&mut self, key: ClassStream, history: StreamHistory) {
        if let Some(before) = self.histories.insert(key, history) {
            self.by_use.remove(&before.used);
        }
        self.by_use.insert(history.used, key);
        self.uses += 1;
        if self.histories.len() > MAX_HISTORIES
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.histories.remove(&oldest);
        }
    }

    /// Number of times the server was held.
    pub fn holds(&self) -> u64 {
        self.holds
    }

    /// # Panics
    /// If the histories exceed their bound or their index does not agree.
    pub fn validate(&self) {
        assert!(self.histories.len() <= MAX_HISTORIES && self.histories.len() == self.by_use.len());
        assert!(self.by_use.iter().all(|(used, key)| self.histories[key].used == *used));
    }
}
