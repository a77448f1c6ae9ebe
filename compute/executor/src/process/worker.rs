//! The process of a worker: it is started once, and answers calls one after another over a socket,
//! which is its standard input.
//!
//! | message | bytes |
//! | --- | --- |
//! | ready | a byte of the worker, 1, before its first answer |
//! | call | number of parts (4), then each part: its length (8), and its bytes |
//! | answer | how the call has ended (1), processor time in µs (8), length (8), and the bytes |
//! | granted | a byte, 1 |
//!
//! A call has ended with 0 if it has returned, with 1 if it has failed, and with 2 if it has
//! returned and has written outputs to a folder that it has made for them. Before that, it may lend
//! its processors while it waits for other calls: with 3 it lends them, and with 4 it wants them
//! again, and waits until they are granted.
//!
//! Numbers are little-endian. A worker has ended if its socket is closed.

use std::io::{self, ErrorKind, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::oversight::Oversight;
use super::spawn::spawn;
use super::strays::signal_marked;
use super::{CapturedOutput, ProcessControl, ProcessEnd, Streams, reap};
use crate::resources::RunLimits;

/// Bytes before the content of an answer.
const ANSWER_HEADER_BYTES: usize = 17;
/// An answer that is said to be larger is none.
const MAX_ANSWER_BYTES: u64 = 1 << 40;
/// Bytes of an answer that are read at a time.
const READ_BYTES: usize = 64 << 10;

/// How an answer begins that is none: the call lends its processors, or wants them again.
const LENDS: u8 = 3;
const RECLAIMS: u8 = 4;

/// A worker that waits for a call, or answers one.
pub(crate) struct WorkerProcess {
    leader: Pid,
    pidfd: OwnedFd,
    channel: UnixStream,
    /// What the worker prints.
    output: Streams,
    /// The other ends of `output`: without them, a worker that closes its output would wake this
    /// thread again and again.
    _writers: [PipeWriter; 2],
    marks: Vec<String>,
    /// Whether it has begun to answer calls.
    is_ready: bool,
    /// Whether it was reaped.
    is_gone: bool,
}

/// How a call ended.
pub(crate) enum CallEnd {
    /// The worker has answered.
    Answered {
        has_failed: bool,
        /// Whether it has made the folder of its outputs.
        has_made_folder: bool,
        cpu_us: u64,
        /// The answer; `Err` with its size if it is larger than allowed.
        content: Result<Vec<u8>, u64>,
    },
    /// The worker has ended, or was killed.
    Died(ProcessEnd),
}

/// A call that has ended.
pub(crate) struct CallResult {
    pub end: CallEnd,
    pub stdout: CapturedOutput,
    pub stderr: CapturedOutput,
    /// Time for which the worker was suspended.
    pub suspended: Duration,
}

/// The part of an answer that was received.
#[derive(Default)]
struct Answer {
    bytes: Vec<u8>,
    /// Bytes that were received and are too many.
    excess_bytes: u64,
}

impl Answer {
    /// Bytes of the content, once the header is here.
    fn content_bytes(&self) -> Option<u64> {
        Some(u64::from_le_bytes(
            self.bytes.get(9..ANSWER_HEADER_BYTES)?.try_into().expect("8 bytes"),
        ))
    }

    /// Bytes that are missing, as far as is known.
    fn missing_bytes(&self) -> u64 {
        match self.content_bytes() {
            None => (ANSWER_HEADER_BYTES - self.bytes.len()) as u64,
            Some(content) => (ANSWER_HEADER_BYTES as u64)
                .saturating_add(content)
                .saturating_sub(self.bytes.len() as u64 + self.excess_bytes),
        }
    }

    /// Receives what there is. Keeps up to `limit` bytes of the content.
    ///
    /// # Errors
    /// If the socket is closed, or what comes is no answer.
    fn receive(&mut self, mut channel: &UnixStream, limit: u64) -> io::Result<()> {
        let mut buffer = [0; READ_BYTES];
        while self.missing_bytes() > 0 {
            let most = self.missing_bytes().min(READ_BYTES as u64) as usize;
            match channel.read(&mut buffer[..most]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => match self.content_bytes() {
                    Some(content) if content > MAX_ANSWER_BYTES => {
                        return Err(ErrorKind::InvalidData.into());
                    }
                    Some(content) if content > limit => self.excess_bytes += count as u64,
                    _ => self.bytes.extend_from_slice(&buffer[..count]),
                },
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn into_end(mut self) -> CallEnd {
        let (has_failed, has_made_folder) = (self.bytes[0] == 1, self.bytes[0] == 2);
        let cpu_us = u64::from_le_bytes(self.bytes[1..9].try_into().expect("8 bytes"));
        let content = match self.excess_bytes {
            0 => Ok(self.bytes.split_off(ANSWER_HEADER_BYTES)),
            _ => Err(self.content_bytes().unwrap_or_default()),
        };
        CallEnd::Answered { has_failed, has_made_folder, cpu_us, content }
    }
}

impl WorkerProcess {
    /// Starts a worker. Its processes are recognised by the environment variables `marks`, which it
    /// has.
    ///
    /// # Errors
    /// If the command cannot be started.
    pub fn start(
        command: &Command,
        marks: Vec<String>,
        limits: &mut RunLimits<'_>,
    ) -> io::Result<Self> {
        let (channel, end_of_worker) = UnixStream::pair()?;
        channel.set_nonblocking(true)?;
        let (output, writers) = Streams::new(&0.into())?;
        let (stdin, [stdout, stderr]) =
            (Some(end_of_worker.as_fd()), writers.each_ref().map(AsFd::as_fd));
        let leader =
            spawn(command, stdin, stdout, stderr, limits.groups_to_enter(), limits.cores())?;
        limits.begin();
        let pidfd = pidfd_open(leader, PidfdFlags::empty()).inspect_err(|_| {
            let _ = kill_process_group(leader, Signal::KILL);
            let _ = reap(leader);
        })?;
        Ok(WorkerProcess {
            leader,
            pidfd,
            channel,
            output,
            _writers: writers,
            marks,
            is_ready: false,
            is_gone: false,
        })
    }

    /// Whether it lives.
    pub fn is_alive(&mut self) -> bool {
        if self.is_gone {
            return false;
        }
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0)
    }

    /// Has the worker answer a call. If it does not, because it ended, or the call was cancelled or
    /// took longer than `timeout` from the moment on when the worker was ready, the worker is gone.
    ///
    /// # Errors
    /// If the system fails.
    pub fn call(
        &mut self,
        parts: &[&[u8]],
        capture_bytes: u64,
        timeout: Option<Duration>,
        control: &ProcessControl,
        lend: impl Fn(bool),
        limits: &mut RunLimits<'_>,
    ) -> io::Result<CallResult> {
        for stream in [&mut self.output.stdout, &mut self.output.stderr] {
            stream.capture_bytes = capture_bytes;
        }
        let mut request =
            Vec::with_capacity(4 + parts.iter().map(|part| 8 + part.len()).sum::<usize>());
        request.extend_from_slice(&(parts.len() as u32).to_le_bytes());
        for part in parts {
            request.extend_from_slice(&(part.len() as u64).to_le_bytes());
            request.extend_from_slice(part);
        }
        let marks = std::mem::take(&mut self.marks);
        let mut oversight = Oversight::new(self.leader, &marks, control, limits);
        let answered = self.answer(&request, capture_bytes, timeout, control, lend, &mut oversight);
        // An answer may have come just before the worker was stopped.
        let (suspended, killed) = oversight.end();
        let end = match answered {
            Ok(Some(answer)) => Ok(answer.into_end()),
            Ok(None) => self.end(&marks).map(|ended| CallEnd::Died(killed.unwrap_or(ended))),
            Err(e) => self.end(&marks).and(Err(e)),
        };
        self.marks = marks;
        self.output.drain();
        let [stdout, stderr] = [&mut self.output.stdout, &mut self.output.stderr]
            .map(|s| std::mem::take(&mut s.captured));
        Ok(CallResult { end: end?, stdout, stderr, suspended })
    }

    /// Sends a call and waits for the answer; `None` if the worker has ended, or can answer no more
    /// calls.
    fn answer(
        &mut self,
        request: &[u8],
        limit: u64,
        timeout: Option<Duration>,
        control: &ProcessControl,
        lend: impl Fn(bool),
        oversight: &mut Oversight<'_, '_>,
    ) -> io::Result<Option<Answer>> {
        let (mut sent, mut answer) = (0, Answer::default());
        // The start of a worker does not count towards the limit of its first call.
        if self.is_ready {
            oversight.limit_time(timeout);
        }
        loop {
            let left = oversight.enforce();
            let is_killed = oversight.killed().is_some();
            if !is_killed {
                sent += self.send(&request[sent..]);
            }
            let wanted = match sent < request.len() {
                _ if is_killed => PollFlags::empty(),
                true => PollFlags::IN | PollFlags::OUT,
                false => PollFlags::IN,
            };
            let [answers, woken, ended] = self.poll(wanted, oversight, left.as_ref())?;
            if answers && !is_killed {
                if !self.is_ready && matches!((&self.channel).read(&mut [0; 1]), Ok(1)) {
                    self.is_ready = true;
                    oversight.limit_time(timeout);
                }
                let received = answer.receive(&self.channel, limit);
                if received.is_ok() && answer.missing_bytes() == 0 {
                    match answer.bytes[0] {
                        LENDS | RECLAIMS => lend(std::mem::take(&mut answer).bytes[0] == LENDS),
                        _ => return Ok(Some(answer)),
                    }
                }
                if received.is_err() && !ended {
                    // It has closed its socket, and can answer no more calls.
                    let _ = kill_process_group(self.leader, Signal::KILL);
                    return Ok(None);
                }
            }
            if ended {
                return Ok(None);
            }
            if woken {
                oversight.obey();
                if control.take_grant() {
                    // The worker waits for it, so there is room.
                    let _ = (&self.channel).write(&[1]);
                }
            }
        }
    }

    /// Sends as much of a request as the socket takes now. Returns the number of bytes; all of them
    /// if the worker ends.
    fn send(&self, request: &[u8]) -> usize {
        let mut sent = 0;
        while sent < request.len() {
            match (&self.channel).write(&request[sent..]) {
                Ok(count) => sent += count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // It ends, as the descriptor of the process will tell.
                Err(_) => return request.len(),
            }
        }
        sent
    }

    /// Waits until something happens, or until this time has passed, and reads what the worker
    /// prints. Returns whether its socket is as `wanted`, whether the overseer was woken, and
    /// whether the worker has ended.
    fn poll(
        &mut self,
        wanted: PollFlags,
        oversight: &Oversight<'_, '_>,
        longest: Option<&Timespec>,
    ) -> io::Result<[bool; 3]> {
        let mut fds = [
            PollFd::new(&self.channel, wanted),
            oversight.wakes(),
            PollFd::new(&self.pidfd, PollFlags::IN),
            PollFd::new(&self.output.stdout.pipe, PollFlags::IN),
            PollFd::new(&self.output.stderr.pipe, PollFlags::IN),
        ];
        match poll(&mut fds, longest) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok([false; 3]),
            Err(e) => return Err(e.into()),
        }
        let [answers, woken, ended, prints, prints_errors] =
            fds.each_ref().map(|fd| !fd.revents().is_empty());
        if prints {
            self.output.stdout.read();
        }
        if prints_errors {
            self.output.stderr.read();
        }
        Ok([answers, woken, ended])
    }

    /// Kills all processes of the worker, and tells how the first one ended.
    fn end(&mut self, marks: &[String]) -> io::Result<ProcessEnd> {
        self.is_gone = true;
        // It is not reaped yet, so the group's number cannot belong to another group.
        let _ = kill_process_group(self.leader, Signal::KILL);
        signal_marked(marks, Signal::KILL);
        let (status, _) = reap(self.leader)?;
        Ok(match status.code() {
            Some(code) => ProcessEnd::Exited(code),
            None => ProcessEnd::Signalled(status.signal().unwrap_or(0)),
        })
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if !self.is_gone {
            let marks = std::mem::take(&mut self.marks);
            // The process is gone, however it ended.
            let _ = self.end(&marks);
        }
    }
}
