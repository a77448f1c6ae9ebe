//! A rate limit for bytes, shared by all clones of a limiter, or by all processes that open the
//! same file.
//!
//! The state is one number: the time at which the last granted byte will have passed (a virtual
//! clock). A user asks for some bytes, advances the clock by the time that they take, and sleeps
//! until then. There is no queue and no owner; requests are served in order of arrival. In the
//! shared form, the number is in a file under `flock`, which the kernel releases when its holder
//! dies.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::time::ClockId;

use crate::error::StorageError;

/// Bytes granted at a time. A small number, so that concurrent users take turns.
const GRANT_BYTES: u64 = 256 << 10;

/// A user that comes back late by this time still gets its full rate, since timers wake up to a
/// millisecond late. This is also the burst that an idle limiter allows.
const SLACK_NS: u64 = 10_000_000;

/// A rate limit, or no limit. Clones share one clock.
#[derive(Clone, Default)]
pub struct Limiter(Option<Arc<Bucket>>);

struct Bucket {
    bytes_per_s: u64,
    clock: Clock,
}

enum Clock {
    /// A clock of this process.
    Own(Mutex<u64>),
    /// A clock of all processes that have opened the file. The mutex separates threads, which
    /// `flock` does not.
    Shared { file: Mutex<File>, boot: u64 },
}

impl Limiter {
    /// A limiter without a limit.
    pub fn unlimited() -> Self {
        Limiter(None)
    }

    /// A limiter for this process alone. Zero means no limit.
    pub fn own(bytes_per_s: u64) -> Self {
        Limiter::new(bytes_per_s, Clock::Own(Mutex::new(0)))
    }

    /// A limiter that all processes with this `file` share. The file is created if it does not
    /// exist.
    ///
    /// # Errors
    /// `Local` if the file cannot be opened.
    pub fn shared(bytes_per_s: u64, file: &Path) -> Result<Self, StorageError> {
        let failed = |error| {
            StorageError::local(format!("cannot share a rate through `{}`", file.display()), error)
        };
        let opened = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(file)
            .map_err(failed)?;
        // The clock in the file starts anew when the machine is booted.
        let boot = std::fs::read("/proc/sys/kernel/random/boot_id").map_err(failed)?;
        let boot = crate::Checksum::of(&boot).0;
        Ok(Limiter::new(bytes_per_s, Clock::Shared { file: Mutex::new(opened), boot }))
    }

    fn new(bytes_per_s: u64, clock: Clock) -> Self {
        Limiter((bytes_per_s > 0).then(|| Arc::new(Bucket { bytes_per_s, clock })))
    }

    /// Whether there is a limit.
    pub fn is_limited(&self) -> bool {
        self.0.is_some()
    }

    /// Waits until `bytes` may have passed.
    pub async fn take(&self, bytes: u64) {
        take_all(&[self], bytes).await;
    }

    /// Waits until `bytes` may have passed. Blocks the thread.
    pub fn take_blocking(&self, bytes: u64) {
        take_all_blocking(&[self], bytes);
    }

    /// Books `bytes` at `now_ns` of the monotonic clock. Returns the time when they will have
    /// passed.
    pub(crate) fn book(&self, now_ns: u64, bytes: u64) -> u64 {
        let Some(bucket) = &self.0 else { return now_ns };
        match &bucket.clock {
            Clock::Own(clock) => {
                // Nothing between the lock and its release can panic.
                let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
                *clock = passed_ns(*clock, now_ns, bytes, bucket.bytes_per_s);
                *clock
            }
            Clock::Shared { file, boot } => {
                let file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let book = || -> rustix::io::Result<u64> {
                    rustix::io::retry_on_intr(|| {
                        rustix::fs::flock(&*file, FlockOperation::LockExclusive)
                    })?;
                    let mut state = [0; 16];
                    let read = rustix::io::pread(&*file, &mut state, 0)?;
                    let (its_boot, clock) = (u64_at(&state, 0), u64_at(&state, 8));
                    let clock = if read == state.len() && its_boot == *boot { clock } else { 0 };
                    let clock = passed_ns(clock, now_ns, bytes, bucket.bytes_per_s);
                    state[..8].copy_from_slice(&boot.to_le_bytes());
                    state[8..].copy_from_slice(&clock.to_le_bytes());
                    rustix::io::pwrite(&*file, &state, 0)?;
                    Ok(clock)
                };
                let clock = book().unwrap_or_else(|errno| {
                    tracing::warn!(
                        %errno,
                        "cannot share a rate through its file; this process goes at the full rate"
                    );
                    passed_ns(0, now_ns, bytes, bucket.bytes_per_s)
                });
                let _ = rustix::fs::flock(&*file, FlockOperation::Unlock);
                clock
            }
        }
    }

    fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|bucket| matches!(bucket.clock, Clock::Shared { .. }))
    }
}

/// Waits until `bytes` may have passed all `limiters`, which work in parallel: the slowest decides.
pub(crate) async fn take_all(limiters: &[&Limiter], bytes: u64) {
    let limited: Vec<Limiter> =
        limiters.iter().filter(|l| l.is_limited()).map(|l| (*l).clone()).collect();
    if limited.is_empty() {
        return;
    }
    for grant in grants(bytes) {
        let now_ns = now_ns();
        let until_ns = if limited.iter().any(Limiter::is_shared) {
            let limited = limited.clone();
            // The lock of a shared clock may have to be waited for. If the runtime shuts down, so
            // does the reader.
            tokio::task::spawn_blocking(move || book_all(&limited, now_ns, grant))
                .await
                .unwrap_or(now_ns)
        } else {
            book_all(&limited, now_ns, grant)
        };
        tokio::time::sleep(Duration::from_nanos(until_ns.saturating_sub(self::now_ns()))).await;
    }
}

/// The same as [`take_all`], but blocks the thread.
pub(crate) fn take_all_blocking(limiters: &[&Limiter], bytes: u64) {
    if !limiters.iter().any(|limiter| limiter.is_limited()) {
        return;
    }
    for grant in grants(bytes) {
        let now_ns = now_ns();
        let until_ns =
            limiters.iter().map(|limiter| limiter.book(now_ns, grant)).max().unwrap_or(now_ns);
        std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(self::now_ns())));
    }
}

fn book_all(limiters: &[Limiter], now_ns: u64, bytes: u64) -> u64 {
    limiters.iter().map(|limiter| limiter.book(now_ns, bytes)).max().unwrap_or(now_ns)
}

fn grants(bytes: u64) -> impl Iterator<Item = u64> {
    (0..bytes.div_ceil(GRANT_BYTES)).map(move |grant| GRANT_BYTES.min(bytes - grant * GRANT_BYTES))
}

/// The virtual clock: the time when `bytes` that are requested at `now_ns` will have passed, if all
/// earlier ones have passed at `clock_ns`.
fn passed_ns(clock_ns: u64, now_ns: u64, bytes: u64, bytes_per_s: u64) -> u64 {
    let takes_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
    clock_ns.max(now_ns.saturating_sub(SLACK_NS)).saturating_add(takes_ns as u64)
}

fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn u64_at(bytes: &[u8; 16], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_clock_runs_at_the_rate_and_forgives_a_late_sleeper() {
        // 1 MB at 10 MB/s takes 100 ms, one request after the other.
        assert_eq!(passed_ns(0, 5 * S, 1_000_000, 10_000_000), 5 * S - SLACK_NS + S / 10);
        assert_eq!(passed_ns(6 * S, 5 * S, 1_000_000, 10_000_000), 6 * S + S / 10);
        // Woken 3 ms late: the next bytes are booked as if it had been on time.
        assert_eq!(passed_ns(5 * S, 5 * S + 3_000_000, 1_000_000, 10_000_000), 5 * S + S / 10);
        // Away for a second: that second is lost.
        assert_eq!(passed_ns(5 * S, 6 * S, 0, 10_000_000), 6 * S - SLACK_NS);
        assert_eq!(grants(GRANT_BYTES * 2 + 1).collect::<Vec<_>>(), [GRANT_BYTES, GRANT_BYTES, 1]);
    }

    #[test]
    fn two_processes_with_one_file_share_one_rate() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("rate");
        // Two openings of the file stand for two processes: `flock` tells openings apart, not
        // processes.
        let (a, b) = (
            Limiter::shared(50_000_000, &file).unwrap(),
            Limiter::shared(50_000_000, &file).unwrap(),
        );
        let mut last_ns = 0;
        for _ in 0..100 {
            last_ns = a.book(10 * S, 250_000).max(b.book(10 * S, 250_000));
        }
        // 50 MB in all at 50 MB/s.
        assert_eq!(last_ns, 10 * S - SLACK_NS + S);
        assert_eq!(Limiter::shared(50_000_000, &file).unwrap().book(10 * S, 0), last_ns);
        // Another boot's clock means nothing.
        std::fs::write(&file, [0xff; 16]).unwrap();
        assert_eq!(a.book(10 * S, 0), 10 * S - SLACK_NS);
    }

    #[test]
    fn threads_lose_no_booking() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Limiter::shared(1_000_000, &dir.path().join("rate")).unwrap();
        for limiter in [shared, Limiter::own(1_000_000)] {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..50).for_each(|_| assert!(limiter.book(S, 1_000) > 0)));
                }
            });
            assert_eq!(limiter.book(S, 0), S - SLACK_NS + S / 5);
        }
    }

    #[tokio::test]
    async fn taking_waits_for_the_slowest_of_several() {
        let (slow, fast) = (Limiter::own(10_000_000), Limiter::own(1_000_000_000));
        let before_ns = now_ns();
        take_all(&[&slow, &fast, &Limiter::unlimited()], 500_000).await;
        take_all_blocking(&[&slow, &fast], 500_000);
        // 1 MB at 10 MB/s, less the slack of an idle limiter.
        assert!(now_ns() - before_ns >= S / 10 - SLACK_NS, "the rate was not kept");
    }
}
