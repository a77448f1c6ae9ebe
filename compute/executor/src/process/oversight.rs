//! What may happen to the processes of a task while they run: its executor suspends, resumes or
//! cancels them, and they are killed when they exceed a limit of time or memory.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal, kill_process_group};

use super::strays::signal_marked;
use super::{ProcessControl, ProcessEnd};
use crate::resources::RunLimits;

/// Time between SIGTERM and SIGKILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// Watches over all processes of a task. Their leader is not reaped meanwhile.
pub(super) struct Oversight<'a, 'l> {
    leader: Pid,
    marks: &'a [String],
    control: &'a ProcessControl,
    limits: &'a mut RunLimits<'l>,
    /// When the processes were stopped, if they are.
    stopped: Option<Instant>,
    /// Time of earlier suspensions.
    suspended: Duration,
    /// When their time is over; after the first signal that is to kill them, when they get
    /// SIGKILL.
    deadline: Option<Instant>,
    killed: Option<ProcessEnd>,
}

impl<'a, 'l> Oversight<'a, 'l> {
    pub fn new(
        leader: Pid,
        marks: &'a [String],
        control: &'a ProcessControl,
        limits: &'a mut RunLimits<'l>,
    ) -> Self {
        let (suspended, stopped, deadline, killed) = (Duration::ZERO, None, None, None);
        Oversight { leader, marks, control, limits, stopped, suspended, deadline, killed }
    }

    /// Gives the processes this much time from now on. Suspensions do not count.
    pub fn limit_time(&mut self, timeout: Option<Duration>) {
        self.deadline = timeout.map(|timeout| Instant::now() + timeout);
    }

    /// Why the processes were killed, if they were.
    pub fn killed(&self) -> Option<ProcessEnd> {
        self.killed
    }

    /// Kills the processes if they exceed a limit. Returns the time until this is to be called
    /// again.
    pub fn enforce(&mut self) -> Option<Timespec> {
        let left = loop {
            let left = self.deadline.filter(|_| self.stopped.is_none());
            let left = left.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let signal = if self.killed.is_none() { Signal::TERM } else { Signal::KILL };
                self.killed.get_or_insert(ProcessEnd::TimedOut);
                let _ = kill_process_group(self.leader, signal);
                self.deadline = Some(Instant::now() + GRACE);
                continue;
            }
            if self.killed.is_none()
                && let Some(excess) = self.limits.look(self.leader, self.marks)
            {
                // At once: a task without memory cannot end in good order, and others need the
                // memory.
                self.killed = Some(ProcessEnd::OverMemory(excess));
                let _ = kill_process_group(self.leader, Signal::KILL);
                signal_marked(self.marks, Signal::KILL);
                continue;
            }
            break left;
        };
        let look = self.limits.next_look().filter(|_| self.killed.is_none());
        let look = look.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.into_iter().chain(look).min()?;
        Some(Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() })
    }

    /// Tells when [`obey`](Oversight::obey) is to be called.
    pub fn wakes(&self) -> PollFd<'a> {
        PollFd::new(
            &self.control.wake,
            if self.killed.is_none() { PollFlags::IN } else { PollFlags::empty() },
        )
    }

    /// Does what is wanted now.
    pub fn obey(&mut self) {
        let wanted = self.control.wanted();
        if wanted.cancelled {
            self.killed = Some(ProcessEnd::Cancelled);
            // They cannot end while they are stopped.
            let _ = kill_process_group(self.leader, Signal::TERM);
            self.resume();
            self.deadline = Some(Instant::now() + GRACE);
        } else if wanted.suspended && self.stopped.is_none() {
            self.stopped = Some(Instant::now());
            let _ = kill_process_group(self.leader, Signal::STOP);
            signal_marked(self.marks, Signal::STOP);
        } else if !wanted.suspended {
            self.resume();
        }
    }

    /// Ends the oversight. Returns the time for which the processes were suspended, and why they
    /// were killed.
    pub fn end(mut self) -> (Duration, Option<ProcessEnd>) {
        self.resume();
        (self.suspended, self.killed)
    }

    /// Lets the processes continue if they are stopped.
    fn resume(&mut self) {
        let Some(since) = self.stopped.take() else { return };
        signal_marked(self.marks, Signal::CONT);
        let _ = kill_process_group(self.leader, Signal::CONT);
        let stopped = since.elapsed();
        self.suspended += stopped;
        self.deadline = self.deadline.map(|deadline| deadline + stopped);
    }
}
