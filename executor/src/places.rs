//! The right to let outputs appear at their places. What a task writes must not vanish under what another task of its job
//! writes. Many places are known only when the task has run: what a pattern finds, what lies behind a symbolic link. So
//! before the outputs of a task appear, its executor names their places to the dispatcher, which gives each place of a job
//! to one task (`Places` in the dispatcher) and refuses it to all others. The dispatcher decides since all executors
//! of a job ask it, and it remembers; a look at the place itself could not tell a file of this job from one of an earlier
//! job, which is to be replaced.
//!
//! The claim is sent before the outputs are copied and made durable, and its answer is awaited after that: so it costs no
//! time where copying takes as long as one message there and back.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use eyas_types::PlaceId;

/// Whether the answer is still wanted is looked at after so long.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The dispatcher's answer to a claim: the first place that another task has, and which.
pub(crate) type Answer = Option<(PlaceId, u32)>;

/// A claim that was sent, and waits for its answer.
#[derive(Default)]
pub(crate) struct Claim {
    answer: Mutex<Option<Answer>>,
    answered: Condvar,
}

impl Claim {
    /// The dispatcher has answered.
    pub fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.answered.notify_all();
    }

    /// Waits for the answer, for as long as it `is_wanted`.
    pub fn wait(&self, is_wanted: impl Fn() -> bool) -> Option<Answer> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        while is_wanted() {
            if answer.is_some() {
                return *answer;
            }
            answer = self.answered.wait_timeout(answer, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_had_once_it_came_and_only_while_it_is_wanted() {
        let claim = Claim::default();
        let looks = std::cell::Cell::new(0);
        assert_eq!(claim.wait(|| looks.replace(looks.get() + 1) < 1), None);
        std::thread::scope(|scope| {
            scope.spawn(|| claim.answer(Some((PlaceId::of(b"/out"), 3))));
            assert_eq!(claim.wait(|| true), Some(Some((PlaceId::of(b"/out"), 3))));
        });
        assert_eq!(claim.wait(|| false), None);
    }
}
