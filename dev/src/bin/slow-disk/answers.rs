//! Delayed answers. One thread gives them in the order of their due times, so the thread that
//! receives the kernel's requests never waits, however long the disk's queue is. There are at most
//! as many answers as the kernel has requests under way.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Gives one answer.
type SendAnswer = Box<dyn FnOnce() + Send>;

/// Queue of answers.
pub struct Answers {
    sender: Sender<(u64 /* due_ns */, SendAnswer)>,
}

impl Answers {
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || give(&receiver));
        Self { sender }
    }

    /// Calls `give` when it is due.
    pub fn at(&self, due_ns: u64, give: impl FnOnce() + Send + 'static) {
        // The thread ends when this sender is dropped.
        let _ = self.sender.send((due_ns, Box::new(give)));
    }
}

fn give(answers: &Receiver<(u64, SendAnswer)>) {
    // Requests to the disk take tens of microseconds, the kernel's default timer slack. If it
    // cannot be reduced, answers are late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Answers that are due at the same time are given in the order of arrival.
    let mut waiting: BTreeMap<(u64, u64), SendAnswer> = BTreeMap::new();
    for number in 0.. {
        while let Some(soonest) =
            waiting.first_entry().filter(|soonest| soonest.key().0 <= now_ns())
        {
            (soonest.remove())();
        }
        let next = match waiting.first_key_value() {
            Some(((due_ns, _), _)) => {
                answers.recv_timeout(Duration::from_nanos(due_ns.saturating_sub(now_ns())))
            }
            None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok((due_ns, give)) => drop(waiting.insert((due_ns, number), give)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Current time of the clock that due times refer to.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
