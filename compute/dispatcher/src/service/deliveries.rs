//! What the holder of an attached job is told. Results wait in memory until they are taken; the
//! dispatcher's core bounds how many.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_types::TaskResult;
use eyas_types::outcome::Delivered;
use eyas_wire::view::JobView;
use tokio::sync::Notify;

/// Results of about this size are sent at a time. They stay in memory when the rest is dropped.
const SENT_TOGETHER_BYTES: u64 = 4 << 20;
/// A client has to read what is being sent within this time after the rest was dropped.
const DROPPED_PATIENCE: Duration = Duration::from_secs(60);

/// What the holder of an attached job is told.
#[derive(Debug, PartialEq)]
pub enum JobDelivery {
    /// Results, in the order of their arrival.
    Results(Vec<TaskResult>),
    /// The job was closed, and all its tasks have ended.
    Over(Box<JobView>),
    /// The job ends, for this reason.
    Refused(String),
}

/// Takes what the holder of an attached job is to be told.
pub(crate) struct DeliveryQueue(Arc<Shared>);

/// Gives what the holder of an attached job is to be told.
pub(crate) struct Deliveries(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<QueueState>,
    changed: Notify,
    dropped: Notify,
}

#[derive(Default)]
struct QueueState {
    results: VecDeque<TaskResult>,
    /// The last delivery, which follows the results.
    last: Option<JobDelivery>,
    /// Size of the results that wait, or that are being sent.
    unread_bytes: u64,
    sending_bytes: u64,
    /// Nothing is added any more, or nothing is read.
    is_closed: bool,
    /// Results were dropped.
    is_incomplete: bool,
}

/// A queue of deliveries, and its end.
pub(crate) fn deliveries() -> (DeliveryQueue, Deliveries) {
    let shared = Arc::new(Shared::default());
    (DeliveryQueue(shared.clone()), Deliveries(shared))
}

/// Memory that a result takes, about.
fn size_bytes(result: &TaskResult) -> u64 {
    let outcome = &result.outcome;
    let outputs = outcome.outputs.len() * size_of::<Delivered>();
    (size_of::<TaskResult>() + outcome.stdout.len() + outcome.stderr.len() + outputs) as u64
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No change can panic half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Results of about [`SENT_TOGETHER_BYTES`], or what comes after the results.
    fn next(&mut self) -> Option<JobDelivery> {
        let mut together = Vec::new();
        while self.sending_bytes < SENT_TOGETHER_BYTES
            && let Some(result) = self.results.pop_front()
        {
            self.sending_bytes += size_bytes(&result);
            together.push(result);
        }
        if together.is_empty() { self.last.take() } else { Some(JobDelivery::Results(together)) }
    }
}

impl DeliveryQueue {
    pub fn add(&self, results: Vec<TaskResult>) {
        let mut state = self.0.state();
        if !state.is_closed {
            state.unread_bytes += results.iter().map(size_bytes).sum::<u64>();
            state.results.extend(results);
            self.0.changed.notify_one();
        }
    }

    pub fn unread_bytes(&self) -> u64 {
        self.0.state().unread_bytes
    }

    /// Sends something after all results. The first one counts.
    pub fn end_with(&self, last: JobDelivery) {
        self.0.state().last.get_or_insert(last);
        self.0.changed.notify_one();
    }

    /// Drops the results that are not being sent.
    pub fn drop_results(&self) {
        let mut state = self.0.state();
        state.unread_bytes = state.sending_bytes;
        state.is_incomplete = true;
        drop(take(&mut state.results));
        self.0.dropped.notify_waiters();
    }
}

impl Drop for DeliveryQueue {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.changed.notify_one();
    }
}

impl Deliveries {
    /// The next message to the client; the one before has been sent. `None` if there will be no
    /// more. Cancelling this future loses nothing.
    pub async fn next(&mut self) -> Option<JobDelivery> {
        loop {
            {
                let mut state = self.0.state();
                state.unread_bytes -= take(&mut state.sending_bytes);
                let next = state.next();
                if next.is_some() || state.is_closed {
                    return next;
                }
            }
            self.0.changed.notified().await;
        }
    }

    /// Returns when the client has had time to read what is being sent, after the results behind it
    /// were dropped.
    pub async fn patience_ends(&self) {
        loop {
            let dropped = self.0.dropped.notified();
            if self.0.state().is_incomplete {
                break;
            }
            dropped.await;
        }
        tokio::time::sleep(DROPPED_PATIENCE).await;
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        *self.0.state() = QueueState { is_closed: true, ..QueueState::default() };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use eyas_types::{Outcome, Status};

    use super::*;

    /// A result with captured output of this size.
    pub(crate) fn result(bytes: usize) -> TaskResult {
        let outcome = Outcome { stdout: vec![b'x'; bytes], ..Outcome::of(Status::Succeeded) };
        TaskResult {
            index: 0,
            attempt: 0,
            executor: "n1".into(),
            queued_us: 0,
            delivery_us: 0,
            outcome,
        }
    }

    #[tokio::test]
    async fn what_is_being_sent_counts_until_it_is_sent() {
        let (queue, mut end) = deliveries();
        queue.add(vec![result(1000), result(SENT_TOGETHER_BYTES as usize), result(10)]);
        let all = queue.unread_bytes();
        assert!(
            matches!(end.next().await, Some(JobDelivery::Results(results)) if results.len() == 2)
        );
        assert_eq!(queue.unread_bytes(), all);
        assert!(
            matches!(end.next().await, Some(JobDelivery::Results(results)) if results.len() == 1)
        );
        assert_eq!(queue.unread_bytes(), size_bytes(&result(10)));
        drop(end);
        queue.add(vec![result(1000)]);
        assert_eq!(queue.unread_bytes(), 0, "no session is there");
    }
}
