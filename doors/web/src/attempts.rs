//! A limit on wrong tokens. The right token is accepted at any time: a program that sends wrong
//! ones must not lock out the user.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Wrong tokens that are answered one after the other. A further one is answered with 429.
const MAX_WRONG_TOKENS: u32 = 10;
/// After this time without a wrong token, one more is answered.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_secs(1);

/// Counts wrong tokens. The count falls by one each second.
pub(crate) struct WrongTokens(Mutex<Option<Instant>>);

impl WrongTokens {
    pub fn new() -> Self {
        WrongTokens(Mutex::new(None))
    }

    /// Notes a wrong token at a time. Whether there were too many.
    ///
    /// The state is the time at which the count will be 0: 3 wrong tokens at once put it 3 s into
    /// the future.
    pub fn note(&self, now: Instant) -> bool {
        let mut empty_at = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let from = empty_at.filter(|at| *at > now).unwrap_or(now);
        if from.duration_since(now) + WRONG_TOKEN_PAUSE > WRONG_TOKEN_PAUSE * MAX_WRONG_TOKENS {
            return true;
        }
        *empty_at = Some(from + WRONG_TOKEN_PAUSE);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_are_limited_and_forgotten_after_a_while() {
        let (attempts, now) = (WrongTokens::new(), Instant::now());
        let noted = |after_s| attempts.note(now + Duration::from_secs(after_s));
        assert!((0..MAX_WRONG_TOKENS).all(|_| !noted(0)));
        assert!(noted(0) && !noted(1) && noted(1));
        assert!((0..MAX_WRONG_TOKENS).all(|_| !noted(1000)));
    }
}
