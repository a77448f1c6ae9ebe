//! Number of grants outstanding at a time, found by hill climbing where it is not configured.
//!
//! A disk with one arm loses a seek for every piece of two parallel streams. A file server on
//! flash, or many disks behind one mount, leave most of their capacity unused with one grant at a
//! time. No mount option says which it is, so it is tried. The work done in an epoch is measured at
//! the current *level*, then at twice or half the level (the *trial*), and then at the first level
//! again (the *recheck*). A higher level is accepted if its rate exceeds both neighbours by
//! [`GAIN`]; a lower one if its rate is about as high, since fewer grants keep a better order.
//!
//! - Work is counted in the durations that were predicted for the grants at the first level, so
//!   epochs with large and with small grants compare. An epoch with unpredictable grants is
//!   discarded.
//! - A trial ends as soon as it cannot succeed. After a failed trial the next one waits twice as
//!   long, and long enough that the loss is one part in [`COST_TIMES`], but no longer than
//!   [`MAX_REST_US`].
//! - Small and large grants are searched separately. Trials with small ones are cheap: each is one
//!   request to a disk arm in any case. So they start at once, with [`STEP`] times as many. Where
//!   that pays, as many large ones are tried next.
//! - Otherwise the first trial with large grants could be expensive: two large reads at a time take
//!   a disk with one arm ten times as long. So before two are tried, each grant leaves when the
//!   previous one has a part of its time left ([`OVERLAP`]), and not before the possible loss is
//!   one part in [`RISK_TIMES`].
//! - Time counts only while the server is busy, and higher levels are tried only while requests
//!   wait.

use core::mem::replace;

use crate::pacing::prediction::BandwidthModel;

/// Highest level that is tried.
pub(crate) const MAX_CONCURRENCY: u32 = 64;
/// A higher level is accepted if its rate is at least this many times that of its neighbours.
const GAIN: f64 = 1.1;
/// A lower level is accepted if its rate is at least this many times that of its neighbours.
const MIN_KEPT_RATE: f64 = 0.95;
/// A rate this many times higher is accepted without a recheck.
const CLEAR_GAIN: f64 = 1.5;
/// An epoch has at least the grants in [`EPOCH_GRANTS`], for small and for large ones, and this
/// many for each grant that may be outstanding beside another: 12 at level 4, and 0 at level 1,
const EPOCH_ROUNDS: u32 = 4;
const EPOCH_GRANTS: [u32; 2] = [3, 8];
/// and at least this much busy time, for small and for large grants.
const EPOCH_US: [u64; 2] = [5_000, 50_000];
/// Factor from one level to the next higher one, for small and for large grants. For example 1, 4,
/// 16 and 64 small ones.
const STEP: [u32; 2] = [4, 2];
/// Least busy time between a failed trial and the next one.
const REST_US: u64 = 1_000_000;
/// Longest busy time for which a search waits before a trial, whatever the last one lost or this
/// one might lose. So a storage that stood still for a minute is tried again.
const MAX_REST_US: u64 = 300_000_000;
/// Least busy time after a trial, as a multiple of what it lost, up to [`MAX_REST_US`].
const COST_TIMES: u64 = 64;
/// Least busy time before the first trial, as a multiple of what it might lose, up to
/// [`MAX_REST_US`].
const RISK_TIMES: u64 = 32;
/// During the overlap trial a grant leaves when the previous one has one part in this many of its
/// time left. For example 10 ms before the end of a grant of 80 ms.
pub(crate) const OVERLAP: u64 = 8;
/// The overlap trial succeeds at this gain: half of what overlapping can gain. If one part in 8
/// overlaps, that is up to 8 / 7 = 1.14.
const OVERLAP_GAIN: f64 = 1.07;

pub(crate) struct ConcurrencySearch {
    /// The best level so far.
    level: u32,
    is_fixed: bool,
    size: GrantSize,
    phase: Phase,
    epoch: Epoch,
    /// Busy time since the last trial, and the busy time needed before the next.
    rested_us: u64,
    rest_us: u64,
    /// The next trial is with fewer.
    tries_fewer: bool,
    /// Rate of the previous epoch.
    rate: f64,
    seen_us: u64,
    load: ServerLoad,
}

/// Size of the grants that a search is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantSize {
    Small,
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Steady,
    /// Each grant leaves shortly before the previous one ends. `before`: the rate without.
    Overlap {
        before: f64,
    },
    /// A trial with another level. `before`: the rate without.
    Trial {
        level: u32,
        before: f64,
    },
    /// The first level again, after the trial had the rate `tried`.
    Recheck {
        level: u32,
        before: f64,
        tried: f64,
    },
}

/// Load of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerLoad {
    Idle,
    Busy,
    /// As many grants are outstanding as permitted, and requests wait.
    Full,
}

#[derive(Default)]
struct Epoch {
    /// Ends to wait for before the epoch begins: these grants left at another level.
    settling: u32,
    grants: u32,
    bytes: u64,
    /// Predicted durations of the ended grants; and of those of the search's own size.
    work_us: u64,
    own_work_us: u64,
    busy_us: u64,
    full_us: u64,
    /// Predicted durations of the grants that were outstanding at the beginning, and that are now.
    begin_out_us: u64,
    out_us: u64,
}

impl Epoch {
    /// Predicted work done in a unit of busy time. Outstanding grants count half. For example, in
    /// 50 ms, grants of 80 ms have ended; grants of 10 ms were outstanding at the beginning and of
    /// 20 ms are now: (80 + 10 / 2) / 50 = 1.7.
    fn rate(&self) -> f64 {
        let done_us = self.work_us as f64 + (self.out_us as f64 - self.begin_out_us as f64) / 2.0;
        done_us / self.busy_us.max(1) as f64
    }
}

impl ConcurrencySearch {
    /// With this level if `fixed`, else by search.
    pub fn new(fixed: Option<u32>, size: GrantSize) -> Self {
        ConcurrencySearch {
            level: fixed.unwrap_or(1).max(1),
            is_fixed: fixed.is_some(),
            size,
            phase: Phase::Steady,
            epoch: Epoch::default(),
            rested_us: 0,
            rest_us: 0,
            tries_fewer: false,
            rate: 0.0,
            seen_us: 0,
            load: ServerLoad::Idle,
        }
    }

    /// Permitted grants at a time, now.
    pub fn limit(&self) -> u32 {
        if let Phase::Trial { level, .. } = self.phase { level } else { self.level }
    }

    /// Whether one more grant leaves when the previous one has a part of its time left.
    pub fn overlaps(&self) -> bool {
        matches!(self.phase, Phase::Overlap { .. })
    }

    /// The best level so far.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The load from now on.
    pub fn observe(&mut self, now_us: u64, load: ServerLoad) {
        let passed_us = now_us - self.seen_us;
        self.seen_us = now_us;
        if self.load != ServerLoad::Idle && self.epoch.settling == 0 {
            self.epoch.busy_us += passed_us;
            self.epoch.full_us += if self.load == ServerLoad::Full { passed_us } else { 0 };
            self.rested_us += if self.phase == Phase::Steady { passed_us } else { 0 };
        }
        self.load = load;
    }

    /// A grant has ended. `predicted_us`: its predicted duration, if known; 0 if it was revoked.
    /// `out_us`: predicted durations of all grants that are still outstanding. `small_level`: the
    /// best level for small grants. Returns whether the duration of the grant says how long such
    /// grants usually take.
    pub fn grant_ended(
        &mut self,
        size: GrantSize,
        bytes: u64,
        predicted_us: Option<u64>,
        out_us: u64,
        small_level: u32,
    ) -> bool {
        if self.is_fixed {
            return true;
        }
        let is_steady = self.phase == Phase::Steady;
        self.epoch.out_us = out_us;
        if self.epoch.settling > 0 {
            self.epoch.settling -= 1;
            self.epoch.begin_out_us = out_us;
            return false;
        }
        // An epoch with many small grants and a large one is no trial of the small ones.
        let is_mixed = !is_steady && size == GrantSize::Large && self.size == GrantSize::Small;
        let Some(predicted_us) = predicted_us.filter(|_| !is_mixed) else {
            self.rest_us = if is_mixed { self.rest_us.max(REST_US) } else { self.rest_us };
            self.begin(Phase::Steady, 0);
            return is_steady;
        };
        self.epoch.grants += 1;
        self.epoch.bytes = self.epoch.bytes.saturating_add(bytes);
        self.epoch.work_us = self.epoch.work_us.saturating_add(predicted_us);
        let own_work_us = if size == self.size { predicted_us } else { 0 };
        self.epoch.own_work_us = self.epoch.own_work_us.saturating_add(own_work_us);
        if self.is_hopeless() {
            self.fail();
        } else if self.is_whole() {
            self.end_epoch(small_level);
        }
        is_steady
    }

    /// Whether the epoch is complete. For example, at level 1, after 3 small grants and 5 ms, or 8
    /// large ones and 50 ms; at level 4, after 12 grants of either size.
    fn is_whole(&self) -> bool {
        let grants = EPOCH_GRANTS[self.size as usize];
        let us = EPOCH_US[self.size as usize];
        let is_clear = match self.phase {
            Phase::Trial { level, before } => self.is_clear(level, before, &self.epoch),
            _ => false,
        };
        let enough = if is_clear { grants } else { grants.max(EPOCH_ROUNDS * (self.limit() - 1)) };
        self.epoch.grants >= enough && self.epoch.busy_us >= if is_clear { us / 4 } else { us }
    }

    /// Whether a higher level is so much faster that nothing else can be the reason.
    fn is_clear(&self, level: u32, before: f64, epoch: &Epoch) -> bool {
        level > self.level && epoch.rate() >= CLEAR_GAIN * before
    }

    /// Whether the trial would fail even if everything outstanding were done now. For example, with
    /// a rate of 1.0 before, a higher level must do 55 ms of work in 50 ms: it fails if 30 ms are
    /// done and 20 ms are outstanding.
    fn is_hopeless(&self) -> bool {
        let needed = match self.phase {
            Phase::Overlap { before } => OVERLAP_GAIN * before,
            Phase::Trial { level, before } => self.needed(level) * before,
            Phase::Steady | Phase::Recheck { .. } => return false,
        };
        (self.epoch.work_us.saturating_add(self.epoch.out_us) as f64)
            < needed * self.epoch.busy_us as f64
    }

    /// Whether to accept the tried level, by its rate and the rates before and after it. For
    /// example, for a higher level that had a rate of 1.2, rates of 1.0 and 1.08 are low enough,
    /// and 1.0 and 1.1 are not.
    fn is_good(&self, level: u32, before: f64, tried: f64, after: f64) -> bool {
        let neighbours =
            if level > self.level { before.max(after) } else { (before + after) / 2.0 };
        tried >= self.needed(level) * neighbours
    }

    /// Factor by which the rate of a level must exceed its neighbours'.
    fn needed(&self, level: u32) -> f64 {
        if level > self.level { GAIN } else { MIN_KEPT_RATE }
    }

    /// Evaluates a complete epoch.
    fn end_epoch(&mut self, small_level: u32) {
        let out_us = self.epoch.out_us;
        let epoch =
            replace(&mut self.epoch, Epoch { begin_out_us: out_us, out_us, ..Epoch::default() });
        let rate = epoch.rate();
        let limit = self.limit();
        if epoch.own_work_us < epoch.work_us / 2 {
            return self.begin(Phase::Steady, limit);
        }
        match self.phase {
            Phase::Steady => {
                let has_fallen = rate < replace(&mut self.rate, rate) / 2.0;
                if has_fallen && self.level > 1 {
                    // The storage has changed; it may have one arm now.
                    self.begin(Phase::Trial { level: 1, before: rate }, limit - 1);
                } else if let Some(phase) = self.next(&epoch, small_level) {
                    self.begin(phase, limit - 1);
                }
            }
            Phase::Overlap { before } if rate >= OVERLAP_GAIN * before => {
                self.begin(Phase::Trial { level: 2, before }, 1);
            }
            Phase::Trial { level, before } if self.is_clear(level, before, &epoch) => {
                self.accept(level)
            }
            Phase::Trial { level, before } => {
                self.begin(Phase::Recheck { level, before, tried: rate }, limit)
            }
            Phase::Recheck { level, before, tried } if self.is_good(level, before, tried, rate) => {
                self.accept(level);
            }
            Phase::Overlap { .. } | Phase::Recheck { .. } => self.fail(),
        }
    }

    /// The next trial, if it is due.
    fn next(&self, epoch: &Epoch, small_level: u32) -> Option<Phase> {
        let before = epoch.rate();
        let is_wanted = epoch.full_us >= epoch.busy_us / 4 * 3;
        if self.rested_us < self.rest_us {
            return None;
        }
        if (self.tries_fewer || !is_wanted || self.level == MAX_CONCURRENCY) && self.level > 1 {
            return Some(Phase::Trial { level: self.level / 2, before });
        }
        if !is_wanted {
            return None;
        }
        if self.size == GrantSize::Large && small_level.max(self.level) == 1 {
            // Bytes that two average grants have in common while they overlap. For example grants
            // of 1 MiB have 256 KiB in common, two pieces: 16 ms may be lost, so the trial waits
            // for 512 ms.
            let bytes = epoch.bytes / u64::from(epoch.grants) * 2 / OVERLAP;
            let rest_us =
                BandwidthModel::apart_us(bytes).saturating_mul(RISK_TIMES).min(MAX_REST_US);
            return (self.rested_us >= rest_us).then_some(Phase::Overlap { before });
        }
        let more = self.level * STEP[self.size as usize];
        let level = if self.size == GrantSize::Large { more.max(small_level) } else { more };
        Some(Phase::Trial { level: level.min(MAX_CONCURRENCY), before })
    }

    fn accept(&mut self, level: u32) {
        self.level = level;
        self.rest_us = 0;
        // The durations at the new level are learned first.
        self.begin(Phase::Steady, self.level);
    }

    /// A trial has failed. For example the pauses after trials that lost nothing are 1, 2, 4 s and
    /// so on, up to 300 s; after one that lost 100 ms, it is at least 6.4 s, and after one that
    /// lost a minute, it is 300 s.
    fn fail(&mut self) {
        let limit = self.limit();
        let lost_us = match self.phase {
            Phase::Overlap { before } | Phase::Trial { before, .. } => {
                self.epoch.busy_us.saturating_sub((self.epoch.work_us as f64 / before) as u64)
            }
            Phase::Steady | Phase::Recheck { .. } => 0,
        };
        self.rest_us =
            (self.rest_us * 2).max(lost_us.saturating_mul(COST_TIMES)).clamp(REST_US, MAX_REST_US);
        self.tries_fewer = !self.tries_fewer;
        self.begin(Phase::Steady, limit);
    }

    fn begin(&mut self, phase: Phase, settling: u32) {
        if self.phase != Phase::Steady && phase == Phase::Steady {
            self.rested_us = 0;
        }
        self.phase = phase;
        let out_us = self.epoch.out_us;
        self.epoch = Epoch { settling, begin_out_us: out_us, out_us, ..Epoch::default() };
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn no_rest_is_longer_than_the_longest() {
        for lost_us in [0, 100_000, 60_000_000, u64::MAX] {
            let mut search = ConcurrencySearch::new(None, GrantSize::Large);
            let mut rests_us = Vec::new();
            for _ in 0..12 {
                search.phase = Phase::Trial { level: 2, before: 1.0 };
                search.epoch.busy_us = lost_us;
                search.fail();
                rests_us.push(search.rest_us);
            }
            let first_us = lost_us.saturating_mul(COST_TIMES).clamp(REST_US, MAX_REST_US);
            assert_eq!((rests_us[0], rests_us[11]), (first_us, MAX_REST_US), "{lost_us}");
            assert!(rests_us.is_sorted(), "{rests_us:?}");
        }
    }

    #[test]
    fn an_epoch_at_a_level_has_some_grants_for_each_that_is_outstanding_beside_another() {
        for (size, level, grants) in [
            (GrantSize::Small, 1, 3),
            (GrantSize::Large, 1, 8),
            (GrantSize::Small, 4, 12),
            (GrantSize::Large, 4, 12),
            (GrantSize::Large, 2, 8),
        ] {
            let mut search = ConcurrencySearch::new(None, size);
            search.level = level;
            search.epoch.busy_us = EPOCH_US[size as usize];
            search.epoch.grants = grants - 1;
            assert!(!search.is_whole(), "{size:?} at {level}");
            search.epoch.grants = grants;
            assert!(search.is_whole(), "{size:?} at {level}");
        }
    }
}
