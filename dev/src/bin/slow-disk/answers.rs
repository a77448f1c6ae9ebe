//! Answers that are due later. One thread gives them, the soonest first: so whoever takes requests from the kernel never
//! waits, however long the disk's queue is. There are no more of them than the kernel has requests under way.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, binary_heap::PeekMut};
use std::num::NonZeroU64;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// What is to be done for an answer, and when.
struct Answer {
    due_ns: u64,
    /// Of those that are due at once, the one that came first is given first.
    number: u64,
    give: Box<dyn FnOnce() + Send>,
}

impl Answer {
    fn place(&self) -> Reverse<(u64, u64)> {
        Reverse((self.due_ns, self.number))
    }
}

impl PartialEq for Answer {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Answer {}

impl PartialOrd for Answer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Answer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}

/// Where answers wait.
pub struct Answers {
    sender: Sender<(u64, Box<dyn FnOnce() + Send>)>,
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

fn give(answers: &Receiver<(u64, Box<dyn FnOnce() + Send>)>) {
    // A disk's requests take some tens of microseconds; the kernel would be as late by itself. If it does not let us be
    // punctual, we are late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let mut waiting: BinaryHeap<Answer> = BinaryHeap::new();
    for number in 0.. {
        while let Some(answer) = waiting.peek_mut().filter(|answer| answer.due_ns <= now_ns()) {
            (PeekMut::pop(answer).give)();
        }
        let next = match waiting.peek() {
            Some(answer) => answers.recv_timeout(Duration::from_nanos(answer.due_ns.saturating_sub(now_ns()))),
            None => answers.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match next {
            Ok((due_ns, give)) => waiting.push(Answer { due_ns, number, give }),
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
