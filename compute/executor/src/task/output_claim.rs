//! Claims of output places. A task must not replace what another task of its job has written. Many
//! places are known only after the task has run: the matches of a pattern, or the target of a
//! symbolic link. So before the outputs of a task appear, its executor sends their places to the
//! dispatcher. The dispatcher gives each place of a job to one task and refuses it to all others
//! (`core/jobs/src/job/places.rs`). A look at the place itself would not do: it could not tell a
//! file of this job from a file of an earlier job, which is to be replaced.
//!
//! A place that the job declares needs no claim: declared places were compared when the job was
//! submitted, and the dispatcher refuses them to other tasks. So a task claims only places to which
//! a pattern or a symbolic link leads.
//!
//! The claim is sent before the outputs are copied and made durable, and its answer is awaited
//! afterwards. So a claim costs no time if copying takes as long as one message there and back.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use eyas_types::{ObjectId, PlaceId, Status, TaskId};

use super::derived_copy::{CopyOfInput, CopySource, NoCopy};

/// Time between two checks whether the answer is still wanted.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The dispatcher's answer to a claim: the first place that another task of the job has, and that
/// task's index.
pub(crate) type ClaimAnswer = Option<(PlaceId, u32)>;

/// Requests of a running task.
pub(crate) trait ClaimPlaces: Send + Sync {
    /// Lends the processors of a task, or reclaims them: its
    /// [control](crate::process::ProcessControl) grants them.
    fn lend(&self, task: TaskId, lends: bool);

    /// A task reads something that was made of one of its inputs, and is here.
    fn derived(&self, task: TaskId, copy: CopyOfInput);

    /// Asks where to get a derived copy. `None` if executors do not give each other any.
    fn want_copy(&self, object: ObjectId) -> Option<Arc<Question<CopySource>>>;

    /// A copy that was wanted is not here, or is given to no others.
    fn no_copy(&self, object: ObjectId, why: NoCopy);

    /// A copy was fetched, and the task that wanted it has gone.
    fn found_copy(&self, object: ObjectId, size_bytes: u64);

    /// Whether a folder of this size, made in this time, is given to other executors.
    fn gives_folder(&self, size_bytes: u64, took_us: u64) -> bool;

    /// Claims places for a try of a task.
    fn claim(&self, task: TaskId, attempt: u32, places: Vec<PlaceId>) -> Arc<Claim>;

    /// Asks whether a try of a task is the last one, if it ends so.
    fn ask_if_last(&self, task: TaskId, attempt: u32, status: Status) -> Arc<Question<bool>>;
}

/// A claim that was sent.
pub(crate) type Claim = Question<ClaimAnswer>;

/// A question to the dispatcher that was sent.
pub(crate) struct Question<T> {
    answer: Mutex<Option<T>>,
    answered: Condvar,
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Question { answer: Mutex::new(None), answered: Condvar::new() }
    }
}

impl<T: Clone> Question<T> {
    /// Records the dispatcher's answer.
    pub fn answer(&self, answer: T) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
        self.answered.notify_all();
    }

    /// Waits for the answer while it `is_wanted`.
    pub fn wait(&self, is_wanted: impl Fn() -> bool) -> Option<T> {
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        while is_wanted() {
            if answer.is_some() {
                return answer.clone();
            }
            answer = self
                .answered
                .wait_timeout(answer, CHECK_EVERY)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_returned_once_it_has_come_and_only_while_it_is_wanted() {
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
