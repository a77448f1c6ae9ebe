//! How many grants a server is given at a time, where nobody says it.
//!
//! A disk with one arm loses a seek for every piece of two streams at a time. A file server on flash, or many disks behind one
//! mount, leave most of what they can do undone if they are given one. No mount says which it is, so it is tried: how much is
//! done in an epoch with one number, in the next with twice or half as many, and then with the first again. More have to be
//! better than both neighbours by [`GAIN`], and fewer about as good as them, since fewer are better kept in order.
//!
//! - What is done is counted in what each grant is predicted to take with the first number, so that it does not matter whether
//!   one epoch had larger ones than another. Of what cannot be predicted an epoch tells nothing.
//! - A trial ends as soon as it cannot succeed. After one in vain the next has to wait for twice as long, and for so long that
//!   what was lost is one part in [`COST_TIMES`].
//! - Small grants and large ones climb by themselves. Small ones cost nothing to try: each is one request to an arm as well, and so
//!   they are tried at once, many of them. Where that is good, as many large ones are tried next.
//! - Else the first trial could be expensive: two large reads at a time take a disk with one arm ten times as long. So before
//!   two are tried, each leaves when the one before has a part of its time left ([`OVERLAP`]), and that not before what it would
//!   lose there is one part in [`RISK_TIMES`].
//! - Time counts only while the server is busy, and more are tried only where somebody waits.

use core::mem::replace;

use crate::prediction::Bandwidth;

/// No more at a time, by themselves.
pub(crate) const MAX_CONCURRENCY: u32 = 64;
/// More at a time are worth it if so much more is done,
const GAIN: f64 = 1.1;
/// and fewer if this much of it is.
const AS_GOOD: f64 = 0.95;
/// With so much more there is no need to look at what it is afterwards.
const CLEAR: f64 = 1.5;
/// An epoch has so many small grants at least, and so many large ones, and several times as many as are out at a time,
const EPOCH_ROUNDS: u32 = 4;
const EPOCH_GRANTS: [u32; 2] = [3, 8];
/// and so much busy time.
const EPOCH_US: [u64; 2] = [5_000, 50_000];
/// So many times as many small ones are tried next, and large ones.
const STEP: [u32; 2] = [4, 2];
/// Busy time before the next trial after one in vain, at least.
const REST_US: u64 = 250_000;
/// Trials in vain are not further apart than this, whatever was lost by them.
const MAX_REST_US: u64 = 300_000_000;
/// Busy time after a trial, of what it has lost,
const COST_TIMES: u64 = 64;
/// and before the first one, of what it is reckoned to lose.
const RISK_TIMES: u64 = 32;
/// What a grant has left of its time when the next one leaves, while it is tried whether they can overlap: one part in so many.
pub(crate) const OVERLAP: u64 = 8;
/// They can if half of what there is to be gained by it is.
const OVERLAP_GAIN: f64 = 1.07;

pub(crate) struct Climb {
    /// What has shown to be the best so far.
    level: u32,
    is_fixed: bool,
    size: Size,
    phase: Phase,
    epoch: Epoch,
    /// Busy time since the last trial, and how much there has to be before the next.
    rested_us: u64,
    rest_us: u64,
    /// What is tried next is fewer.
    is_down: bool,
    /// How fast it was in the epoch before.
    rate: f64,
    seen_us: u64,
    load: Load,
}

/// Of which grants it is found out how many are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Steady,
    /// Each begins a little before the one before has ended; as fast it was without.
    Overlap {
        before: f64,
    },
    /// So many are tried; as fast it was before.
    Trial {
        level: u32,
        before: f64,
    },
    /// They were tried, and it was as fast as this.
    After {
        level: u32,
        before: f64,
        tried: f64,
    },
}

/// What a server has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    Idle,
    Busy,
    /// As much as it may be given, and more waits.
    Full,
}

#[derive(Default)]
struct Epoch {
    /// So many ends are waited for before it begins: those grants began with another number.
    settling: u32,
    grants: u32,
    bytes: u64,
    /// What they were predicted to take, and those of them that it is about.
    work_us: u64,
    own_us: u64,
    busy_us: u64,
    full_us: u64,
    /// What was out when it began, and what is now.
    begin_us: u64,
    out_us: u64,
}

impl Epoch {
    /// What was done in a second. Of what is out a half is done.
    fn rate(&self) -> f64 {
        let done_us = self.work_us as f64 + (self.out_us as f64 - self.begin_us as f64) / 2.0;
        done_us / self.busy_us.max(1) as f64
    }
}

impl Climb {
    /// So many, if it is said; else as many as show to be good.
    pub fn new(fixed: Option<u32>, size: Size) -> Self {
        Climb {
            level: fixed.unwrap_or(1).max(1),
            is_fixed: fixed.is_some(),
            size,
            phase: Phase::Steady,
            epoch: Epoch::default(),
            rested_us: 0,
            rest_us: 0,
            is_down: false,
            rate: 0.0,
            seen_us: 0,
            load: Load::Idle,
        }
    }

    /// Grants at a time, now.
    pub fn limit(&self) -> u32 {
        if let Phase::Trial { level, .. } = self.phase { level } else { self.level }
    }

    /// Whether one more leaves while the one before has a part of its time left.
    pub fn overlaps(&self) -> bool {
        matches!(self.phase, Phase::Overlap { .. })
    }

    /// As many as have shown to be good.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// From now on the server has that to do.
    pub fn see(&mut self, now_us: u64, load: Load) {
        let passed_us = now_us - self.seen_us;
        self.seen_us = now_us;
        if self.load != Load::Idle && self.epoch.settling == 0 {
            self.epoch.busy_us += passed_us;
            self.epoch.full_us += if self.load == Load::Full { passed_us } else { 0 };
            self.rested_us += if self.phase == Phase::Steady { passed_us } else { 0 };
        }
        self.load = load;
    }

    /// A grant of so many bytes has ended. `predicted_us`: what it should have taken, if that is known; 0 if it was revoked.
    /// `out_us`: the same of all that are still out. `small`: so many small ones have shown to be good. Whether what it took
    /// says how long such grants take.
    pub fn ended(
        &mut self,
        size: Size,
        bytes: u64,
        predicted_us: Option<u64>,
        out_us: u64,
        small: u32,
        bandwidth: &Bandwidth,
    ) -> bool {
        if self.is_fixed {
            return true;
        }
        let is_steady = self.phase == Phase::Steady;
        self.epoch.out_us = out_us;
        if self.epoch.settling > 0 {
            self.epoch.settling -= 1;
            self.epoch.begin_us = out_us;
            return false;
        }
        let Some(predicted_us) = predicted_us else {
            self.begin(Phase::Steady, 0);
            return is_steady;
        };
        self.epoch.grants += 1;
        self.epoch.bytes = self.epoch.bytes.saturating_add(bytes);
        self.epoch.work_us = self.epoch.work_us.saturating_add(predicted_us);
        let own_us = if size == self.size { predicted_us } else { 0 };
        self.epoch.own_us = self.epoch.own_us.saturating_add(own_us);
        if self.is_hopeless() {
            self.fail();
        } else if self.is_whole() {
            self.judge(small, bandwidth);
        }
        is_steady
    }

    /// Whether the epoch is over.
    fn is_whole(&self) -> bool {
        let (grants, us) = (EPOCH_GRANTS[self.size as usize], EPOCH_US[self.size as usize]);
        let is_clear =
            matches!(self.phase, Phase::Trial { level, before } if self.is_clear(level, before, &self.epoch));
        let enough = if is_clear { grants } else { grants.max(EPOCH_ROUNDS * (self.limit() - 1)) };
        self.epoch.grants >= enough && self.epoch.busy_us >= if is_clear { us / 4 } else { us }
    }

    /// Whether so many more are that much better that nothing else can be the reason.
    fn is_clear(&self, level: u32, before: f64, epoch: &Epoch) -> bool {
        level > self.level && epoch.rate() >= CLEAR * before
    }

    /// Whether a trial would fail even if all that is out were done by now.
    fn is_hopeless(&self) -> bool {
        let needed = match self.phase {
            Phase::Overlap { before } => OVERLAP_GAIN * before,
            Phase::Trial { level, before } => self.needed(level) * before,
            Phase::Steady | Phase::After { .. } => return false,
        };
        (self.epoch.work_us.saturating_add(self.epoch.out_us) as f64) < needed * self.epoch.busy_us as f64
    }

    /// Whether so many are to be given at a time from now on, by how fast it was with them, before and after.
    fn is_good(&self, level: u32, before: f64, tried: f64, after: f64) -> bool {
        let neighbours = if level > self.level { before.max(after) } else { (before + after) / 2.0 };
        tried >= self.needed(level) * neighbours
    }

    /// How much more has to be done with so many.
    fn needed(&self, level: u32) -> f64 {
        if level > self.level { GAIN } else { AS_GOOD }
    }

    /// An epoch is over.
    fn judge(&mut self, small: u32, bandwidth: &Bandwidth) {
        let out_us = self.epoch.out_us;
        let epoch = replace(&mut self.epoch, Epoch { begin_us: out_us, out_us, ..Epoch::default() });
        let (rate, limit) = (epoch.rate(), self.limit());
        if epoch.own_us < epoch.work_us / 2 {
            return self.begin(Phase::Steady, limit);
        }
        match self.phase {
            Phase::Steady => {
                let has_fallen = rate < replace(&mut self.rate, rate) / 3.0;
                if has_fallen && self.level > 1 && self.rested_us >= REST_US {
                    // The storage is not what it was: perhaps it has one arm by now.
                    self.begin(Phase::Trial { level: 1, before: rate }, limit - 1);
                } else if let Some(phase) = self.next(&epoch, small, bandwidth) {
                    self.begin(phase, limit - 1);
                }
            }
            Phase::Overlap { before } if rate >= OVERLAP_GAIN * before => {
                self.begin(Phase::Trial { level: 2, before }, 1)
            }
            Phase::Trial { level, before } if self.is_clear(level, before, &epoch) => self.accept(level),
            Phase::Trial { level, before } => self.begin(Phase::After { level, before, tried: rate }, limit),
            Phase::After { level, before, tried } if self.is_good(level, before, tried, rate) => {
                self.accept(level);
            }
            Phase::Overlap { .. } | Phase::After { .. } => self.fail(),
        }
    }

    /// What is to be tried, if it is time.
    fn next(&self, epoch: &Epoch, small: u32, bandwidth: &Bandwidth) -> Option<Phase> {
        let before = epoch.rate();
        let is_wanted = epoch.full_us >= epoch.busy_us / 4 * 3;
        if self.rested_us < self.rest_us {
            return None;
        }
        if (self.is_down || !is_wanted || self.level == MAX_CONCURRENCY) && self.level > 1 {
            return Some(Phase::Trial { level: self.level / 2, before });
        }
        if !is_wanted {
            return None;
        }
        // What two of them have in common while they overlap.
        let bytes = epoch.bytes / u64::from(epoch.grants) * 2 / OVERLAP;
        let risk_us = if small.max(self.level) > 1 { 0 } else { bandwidth.apart_us(bytes) };
        if risk_us > 0 {
            return (self.rested_us >= risk_us.saturating_mul(RISK_TIMES)).then_some(Phase::Overlap { before });
        }
        let more = self.level * STEP[self.size as usize];
        let level = if self.size == Size::Large { more.max(small) } else { more };
        Some(Phase::Trial { level: level.min(MAX_CONCURRENCY), before })
    }

    fn accept(&mut self, level: u32) {
        (self.level, self.rest_us) = (level, 0);
        // How long grants take with so many is learned first.
        self.begin(Phase::Steady, self.level);
    }

    fn fail(&mut self) {
        let limit = self.limit();
        let lost_us = match self.phase {
            Phase::Overlap { before } | Phase::Trial { before, .. } => {
                self.epoch.busy_us.saturating_sub((self.epoch.work_us as f64 / before) as u64)
            }
            Phase::Steady | Phase::After { .. } => 0,
        };
        self.rest_us = (self.rest_us * 2).clamp(REST_US, MAX_REST_US).max(lost_us.saturating_mul(COST_TIMES));
        self.is_down = !self.is_down;
        self.begin(Phase::Steady, limit);
    }

    fn begin(&mut self, phase: Phase, settling: u32) {
        if self.phase != Phase::Steady && phase == Phase::Steady {
            self.rested_us = 0;
        }
        self.phase = phase;
        let out_us = self.epoch.out_us;
        self.epoch = Epoch { settling, begin_us: out_us, out_us, ..Epoch::default() };
    }
}
