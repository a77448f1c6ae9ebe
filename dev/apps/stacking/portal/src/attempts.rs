//! Failed sign-ins: after some, an account can be tried only every few seconds, whether the
//! password is right or wrong.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// Failures in a row that cost nothing.
const FREE_FAILURES: u32 = 5;
/// The pause after the next failure; it doubles with each, up to the longest.
const FIRST_PAUSE_MS: u64 = 1000;
const LONGEST_PAUSE_MS: u64 = 60_000;
/// Names without an account that are remembered; then the oldest is forgotten.
const MAX_NAMES: usize = 10_000;
/// Longest name that is remembered by itself, bytes: no account has a longer one. Failures of
/// longer names count together.
const MAX_NAME_BYTES: usize = 64;
/// Failures are forgotten after this time.
const FORGET_MS: u64 = 15 * 60 * 1000;

#[derive(Default)]
struct Failures {
    in_a_row: u32,
    last_ms: u64,
}

impl Failures {
    fn pause_ms(&self) -> u64 {
        match self.in_a_row.checked_sub(FREE_FAILURES) {
            None => 0,
            Some(more) => (FIRST_PAUSE_MS << more.min(10)).min(LONGEST_PAUSE_MS),
        }
    }
}

/// Failed sign-ins by name. Accounts are apart from names without one, of which there is no end:
/// those who try many names neither lock an account nor have its failures forgotten.
#[derive(Default)]
struct Tried {
    /// At most one for each account.
    accounts: BTreeMap<String, Failures>,
    others: BTreeMap<String, Failures>,
}

/// Failed sign-ins, also of accounts that do not exist.
#[derive(Default)]
pub struct SignInAttempts(Mutex<Tried>);

impl SignInAttempts {
    fn tried(&self) -> std::sync::MutexGuard<'_, Tried> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Seconds after which the name may be tried again; `None` for now. Counts the attempt as
    /// failed until `succeeded`, so that attempts at the same time do not slip through. The time is
    /// monotonic: a clock that is set back would hold up everybody.
    pub fn begin(&self, name: &str, is_account: bool, now_ms: u64) -> Option<u64> {
        let mut tried = self.tried();
        let names = if is_account { &mut tried.accounts } else { &mut tried.others };
        let name = if name.len() <= MAX_NAME_BYTES { name } else { "" };
        if !is_account && names.len() >= MAX_NAMES && !names.contains_key(name) {
            let oldest = names.iter().min_by_key(|(_, failures)| failures.last_ms);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                names.remove(&oldest);
            }
        }
        let failures = names.entry(name.to_owned()).or_default();
        if failures.last_ms + FORGET_MS <= now_ms {
            *failures = Failures::default();
        }
        let again_ms = failures.last_ms + failures.pause_ms();
        if failures.in_a_row > 0 && again_ms > now_ms {
            return Some((again_ms - now_ms).div_ceil(1000));
        }
        failures.in_a_row += 1;
        failures.last_ms = now_ms;
        None
    }

    /// Forgets the failures of an account.
    pub fn succeeded(&self, name: &str) {
        self.tried().accounts.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_become_slow_and_right_passwords_forget_them() {
        let attempts = SignInAttempts::default();
        let at = 1_000_000_000;
        for _ in 0..FREE_FAILURES {
            assert_eq!(attempts.begin("ada", true, at), None);
        }
        assert_eq!(attempts.begin("ada", true, at), Some(1));
        assert_eq!(attempts.begin("bob", true, at), None, "others are not held up");
        assert_eq!(attempts.begin("ada", true, at + 1000), None);
        assert_eq!(attempts.begin("ada", true, at + 1000), Some(2));
        attempts.succeeded("ada");
        assert_eq!(attempts.begin("ada", true, at + 1000), None);
        let mut now = at;
        for _ in 0..30 {
            now += attempts.begin("eve", false, now).unwrap_or(0) * 1000;
        }
        assert!(attempts.begin("eve", false, now).is_none_or(|seconds| seconds <= 60));
        assert_eq!(attempts.begin("eve", false, now + FORGET_MS), None);
        let long = "x".repeat(MAX_NAME_BYTES);
        let mut paused =
            (0..9).map(|number| attempts.begin(&format!("{long}{number}"), false, now));
        assert!(paused.any(|pause| pause.is_some()), "they count together");
    }

    #[test]
    fn many_names_neither_lock_nor_free_an_account() {
        let attempts = SignInAttempts::default();
        for _ in 0..FREE_FAILURES + 1 {
            attempts.begin("eve", true, 5);
        }
        for number in 0..MAX_NAMES + 10 {
            assert_eq!(attempts.begin(&format!("{number}"), false, 6), None);
        }
        for _ in 0..FREE_FAILURES {
            assert_eq!(attempts.begin("ada", true, 7), None, "others hold up no account");
        }
        assert_eq!(attempts.begin("eve", true, 7), Some(1), "her failures are remembered");
        assert_eq!(attempts.tried().others.len(), MAX_NAMES);
    }
}
