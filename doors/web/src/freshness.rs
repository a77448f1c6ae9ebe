//! For how long what was read of a job is shown, before it is read again.

use std::time::{Duration, Instant};

use eyas_client::view::{JobState, JobView};

/// What was read of a running job is not read again for at least `FRESH_FOR`, nor for `FRESH_TIMES`
/// times as long as reading it took. So at most a fifth of the time is spent reading.
const FRESH_FOR: Duration = Duration::from_secs(1);
const FRESH_TIMES: u32 = 4;

/// When something was read of a job, and of which job.
#[derive(Clone, Copy)]
pub(crate) struct Freshness {
    /// Of two jobs with one id, this differs: a cluster that starts anew gives ids again.
    submitted_unix_ms: u64,
    state: JobState,
    /// Both change if an ended job is retried, or its tasks are computed again.
    retried: u64,
    recomputed: u64,
    /// When it had been read, and how long that took.
    at: Instant,
    took: Duration,
}

impl Freshness {
    /// Of a job as it was before reading began.
    pub fn of(job: &JobView, began: Instant) -> Self {
        Freshness {
            submitted_unix_ms: job.submitted_unix_ms,
            state: job.state,
            retried: job.retried,
            recomputed: job.recomputed,
            at: Instant::now(),
            took: began.elapsed(),
        }
    }

    /// Whether it was read of this job, and not of an earlier one with its id.
    pub fn is_of(&self, job: &JobView) -> bool {
        self.submitted_unix_ms == job.submitted_unix_ms
    }

    /// Whether it may still be shown.
    pub fn is_fresh(&self, job: &JobView) -> bool {
        if !self.is_of(job) || self.state != job.state {
            return false;
        }
        match job.state {
            JobState::Running => {
                self.at.elapsed() < FRESH_FOR.max(self.took * FRESH_TIMES)
                    && self.recomputed == job.recomputed
            }
            _ => (self.retried, self.recomputed) == (job.retried, job.recomputed),
        }
    }

    /// Whether tasks that had succeeded still have.
    pub fn keeps_successes(&self, job: &JobView) -> bool {
        self.is_of(job) && self.recomputed == job.recomputed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::job;

    #[test]
    fn what_was_read_is_shown_until_the_job_has_changed() {
        let running = job(1, "a", JobState::Running);
        let began = Instant::now();
        let now = Freshness::of(&running, began);
        assert!(now.is_fresh(&JobView { retried: 1, ..running.clone() }));
        let again = JobView { recomputed: 1, ..running.clone() };
        assert!(!now.is_fresh(&again) && !now.keeps_successes(&again));
        let other = JobView { submitted_unix_ms: 1, ..running.clone() };
        assert!(!now.is_fresh(&other) && !now.keeps_successes(&other), "the id was given again");
        let ended = job(1, "a", JobState::Failed);
        assert!(!now.is_fresh(&ended) && now.keeps_successes(&ended));
        let old = Freshness { at: began - FRESH_FOR, took: Duration::ZERO, ..now };
        assert!(!old.is_fresh(&running));
        assert!(Freshness { took: FRESH_FOR, ..old }.is_fresh(&running), "it takes long to read");
        let end = Freshness { at: began - FRESH_FOR, ..Freshness::of(&ended, began) };
        assert!(end.is_fresh(&ended));
        assert!(!end.is_fresh(&JobView { submitted_unix_ms: 1, ..ended.clone() }));
        assert!(!end.is_fresh(&JobView { retried: 2, ..ended }));
    }
}
