//! Answers that are due later. One thread gives them, in their order, which is that of the disk: so whoever takes requests
//! from the kernel never waits, however long the disk's queue is. There are no more of them than the kernel has requests
//! under way.

use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use rustix::thread::ClockId;
use rustix::time::Timespec;

/// What is to be done for an answer, and when.
struct Answer {
    due_ns: u64,
    give: Box<dyn FnOnce() + Send>,
}

/// Where answers wait.
pub struct Answers {
    sender: Sender<Answer>,
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
        let _ = self.sender.send(Answer { due_ns, give: Box::new(give) });
    }
}

fn give(answers: &Receiver<Answer>) {
    // A disk's requests take some tens of microseconds; the kernel would be as late by itself. If it does not let us be
    // punctual, we are late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    for answer in answers {
        let due = Timespec {
            tv_sec: (answer.due_ns / 1_000_000_000) as i64,
            tv_nsec: (answer.due_ns % 1_000_000_000) as i64,
        };
        while rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &due).is_err() {}
        (answer.give)();
    }
}

/// Now, by the clock that answers are due by.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
