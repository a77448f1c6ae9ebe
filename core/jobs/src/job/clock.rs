//! A job's own time, microseconds: it begins with the submission, and stands still while the job
//! has ended.

/// The clock of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobClock {
    /// When it began: the job's submission, microseconds since 1970.
    pub began_us: u64,
    /// Time during which the job was ended, summed over its ends: from each end to the retry or
    /// addition that resumed it. Not counted in its duration.
    pub paused_us: u64,
    /// The time at the job's end.
    pub ended_us: Option<u64>,
}

impl JobClock {
    /// The job's time.
    pub fn time_us(&self, now_us: u64) -> u64 {
        self.ended_us.unwrap_or_else(|| now_us.saturating_sub(self.began_us + self.paused_us))
    }

    /// How long it has stood still in all, if it goes on now. For example, of a job that began at
    /// 100, ended at its time 40 and goes on at 200, it is 60.
    pub fn paused_until(&self, now_us: u64) -> u64 {
        match self.ended_us {
            Some(ended_us) => now_us.saturating_sub(self.began_us + ended_us).max(self.paused_us),
            None => self.paused_us,
        }
    }

    /// Goes on, after it has stood still for `paused_us` in all.
    pub fn go_on(&mut self, paused_us: u64) {
        (self.ended_us, self.paused_us) = (None, paused_us);
    }

    /// Microseconds since 1970 of a moment of its time since it went on last.
    pub fn at(&self, time_us: u64) -> u64 {
        self.began_us + self.paused_us + time_us
    }
}
