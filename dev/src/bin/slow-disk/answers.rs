//! Answers that are due later. One thread gives them, the soonest first: so whoever takes requests from the kernel never
//! waits, however long the disk's queue is. There are no more of them than the kernel has requests under way.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// What gives an answer.
type Give = Box<dyn FnOnce() + Send>;

/// Where answers wait.
pub struct Answers {
    sender: Sender<(u64 /* due_ns */, Give)>,
}

impl Answers {
    pub fn new() -> Self {
        let (sender, receiver) = channel();
        thread::spawn(move || give(&receiver));
        Self { sender }
    }

    /// Does this when it is due.
    pub fn at(&self, due_ns: u64, give: impl FnOnce() + Send + 'static) {
        // The thread ends with the sender, which is here.
        let _ = self.sender.send((due_ns, Box::new(give)));
    }
}

fn give(answers: &Receiver<(u64, Give)>) {
    // A disk's requests take some tens of microseconds; the kernel would be as late by itself. If it does not let us be
    // punctual, we are late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Of those that are due at once, the one that came first is given first.
    let mut waiting: BTreeMap<(u64, u64), Give> = BTreeMap::new();
    for number in 0.. {
        while let Some(soonest) = waiting.first_entry().filter(|soonest| soonest.key().0 <= now_ns()) {
            (soonest.remove())();
        }
        let next = match waiting.first_key_value() {
            Some(((due_ns, _), _)) => answers.recv_timeout(Duration::from_nanos(due_ns.saturating_sub(now_ns()))),
            None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok((due_ns, give)) => drop(waiting.insert((due_ns, number), give)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Now, by the clock that answers are due by.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
