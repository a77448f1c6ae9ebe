//! One process at a time: started in its own group, its output captured, killed whole, reaped with what it used.

use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
/// Read at a time.
const READ_BYTES: usize = 64 << 10;
/// What a pipe can hold at most is read in so many.
const DRAIN_READS: usize = 16;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    Cancelled,
}

/// What is left of a process.
#[derive(Debug)]
pub(crate) struct Ran {
    pub end: End,
    /// Its process group, of which nothing is left, or not for long.
    pub group: Pid,
    pub cpu_us: u64,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// A stream's beginning, and how much more there was.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    pub bytes: Vec<u8>,
    pub cut_bytes: u64,
}

/// With which a task is cancelled from another thread, whether its process runs yet or not.
pub(crate) struct Control {
    cancelled: Mutex<bool>,
    wake: OwnedFd,
}

impl Control {
    pub fn new() -> io::Result<Self> {
        Ok(Control { cancelled: Mutex::new(false), wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// The task shall end; its process group is killed.
    pub fn cancel(&self) {
        *self.lock() = true;
        // Fails only if it was woken 2^64 times before.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    pub fn is_cancelled(&self) -> bool {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a command to its end. All of its process group has been killed afterwards.
///
/// # Errors
/// If it could not be started.
pub(crate) fn run(
    command: &mut Command,
    capture_bytes: u64,
    timeout: Option<Duration>,
    control: &Control,
) -> io::Result<Ran> {
    let (mut streams, [stdout, stderr]) = Streams::new(capture_bytes)?;
    // Without `pre_exec`, so that the standard library may use posix_spawn, which does not copy this process's tables.
    command.process_group(0).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    let pid = Pid::from_child(&command.spawn()?);
    let killed = watch(pid, &mut streams, timeout, control);
    // The leader is not reaped yet, so that its group's number is still its own.
    let _ = kill_process_group(pid, Signal::KILL);
    let (status, cpu_us) = reap(pid)?;
    streams.drain();
    let end = match (killed?, status.code(), status.signal()) {
        (Some(end), _, _) => end,
        (None, Some(code), _) => End::Exited(code),
        (None, None, signal) => End::Signalled(signal.unwrap_or(0)),
    };
    Ok(Ran { end, group: pid, cpu_us, stdout: streams.stdout.captured, stderr: streams.stderr.captured })
}

/// Captures output until the process has ended, and kills it when its time is over or it is cancelled. Tells why it was
/// killed, if it was.
fn watch(pid: Pid, streams: &mut Streams, timeout: Option<Duration>, control: &Control) -> io::Result<Option<End>> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    let mut killed = None;
    let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            let signal = if killed.is_none() { Signal::TERM } else { Signal::KILL };
            killed.get_or_insert(End::TimedOut);
            let _ = kill_process_group(pid, signal);
            deadline = Some(Instant::now() + GRACE);
            continue;
        }
        let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let [ended, woken, out, err] = {
            let mut fds = [
                PollFd::new(&pidfd, PollFlags::IN),
                PollFd::new(&control.wake, if killed.is_none() { PollFlags::IN } else { PollFlags::empty() }),
                PollFd::new(&streams.stdout.pipe, PollFlags::IN),
                PollFd::new(&streams.stderr.pipe, PollFlags::IN),
            ];
            match poll(&mut fds, left.as_ref()) {
                Ok(_) => fds.each_ref().map(|fd| !fd.revents().is_empty()),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            }
        };
        if out {
            streams.stdout.read();
        }
        if err {
            streams.stderr.read();
        }
        if ended {
            return Ok(killed);
        }
        if woken && killed.is_none() && control.is_cancelled() {
            killed = Some(End::Cancelled);
            let _ = kill_process_group(pid, Signal::TERM);
            deadline = Some(Instant::now() + GRACE);
        }
    }
}

struct Streams {
    stdout: Stream,
    stderr: Stream,
}

impl Streams {
    /// The streams, and the ends that a process writes to. The command keeps those open until it is dropped or gets
    /// others, so that nobody is woken by their closing, which comes one by one and before the process has ended.
    fn new(capture_bytes: u64) -> io::Result<(Self, [PipeWriter; 2])> {
        let (stdout, stdout_writer) = io::pipe()?;
        let (stderr, stderr_writer) = io::pipe()?;
        let stream = |pipe| Stream::new(pipe, capture_bytes);
        Ok((Streams { stdout: stream(stdout)?, stderr: stream(stderr)? }, [stdout_writer, stderr_writer]))
    }

    /// Takes what is still in the pipes; does not wait for processes that left the group and keep them open.
    fn drain(&mut self) {
        for stream in [&mut self.stdout, &mut self.stderr] {
            for _ in 0..DRAIN_READS {
                if !stream.read() {
                    break;
                }
            }
        }
    }
}

struct Stream {
    pipe: PipeReader,
    captured: Captured,
    capture_bytes: u64,
}

impl Stream {
    fn new(pipe: PipeReader, capture_bytes: u64) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Stream { pipe, captured: Captured::default(), capture_bytes })
    }

    /// Reads once; whether there may be more now.
    fn read(&mut self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        match rustix::io::read(&self.pipe, &mut buffer) {
            Ok((bytes, _)) if !bytes.is_empty() => {
                let room = self.capture_bytes.saturating_sub(self.captured.bytes.len() as u64);
                let kept = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
                self.captured.bytes.extend_from_slice(&bytes[..kept]);
                self.captured.cut_bytes += (bytes.len() - kept) as u64;
                true
            }
            Err(Errno::INTR) => true,
            // Nothing more now; or never.
            Ok(_) | Err(_) => false,
        }
    }
}

/// Reaps a process that has ended or is being killed; its status, and the processor time that it and its reaped
/// children used.
fn reap(pid: Pid) -> io::Result<(ExitStatus, u64)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // The one place outside `store` and `transfer` with unsafe code: no safe wrapper gives one child's usage.
        // SAFETY: both pointers are to live variables of the types that wait4 writes, and zeroes are a valid rusage.
        let reaped = unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, usage.as_mut_ptr()) };
        if reaped >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed above, and written by wait4.
    let usage = unsafe { usage.assume_init() };
    let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Ok((ExitStatus::from_raw(status), us(usage.ru_utime) + us(usage.ru_stime)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn run_sh(script: &str, capture_bytes: u64, timeout_ms: u64) -> Ran {
        let timeout = Some(Duration::from_millis(timeout_ms));
        run(&mut sh(script), capture_bytes, timeout, &Control::new().unwrap()).unwrap()
    }

    #[test]
    fn output_and_exit_code_are_captured() {
        let ran = run_sh("echo out; echo err >&2; exit 3", 100, 60_000);
        assert_eq!(ran.end, End::Exited(3));
        assert_eq!((&ran.stdout.bytes[..], &ran.stderr.bytes[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(run_sh("kill -9 $$", 100, 60_000).end, End::Signalled(9));
    }

    #[test]
    fn more_output_than_the_bound_is_counted_and_does_not_block() {
        let ran = run_sh("head -c 1000000 /dev/zero", 1000, 60_000);
        assert_eq!((ran.end, ran.stdout.bytes.len(), ran.stdout.cut_bytes), (End::Exited(0), 1000, 999_000));
    }

    #[test]
    fn processor_time_is_the_childs_own() {
        assert!(run_sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", 10, 60_000).cpu_us > 10_000);
        assert!(run_sh("true", 10, 60_000).cpu_us < 1_000_000);
    }

    #[test]
    fn a_late_process_is_killed_with_its_whole_group() {
        let ran = run_sh("sleep 1000 & echo $!; wait", 100, 200);
        assert_eq!(ran.end, End::TimedOut);
        let background: i32 = String::from_utf8(ran.stdout.bytes).unwrap().trim().parse().unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{background}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while !gone() {
            assert!(Instant::now() < deadline, "process {background} lives on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn one_that_ignores_sigterm_is_killed_all_the_same() {
        assert_eq!(run_sh("trap '' TERM; while :; do :; done", 10, 100).end, End::TimedOut);
    }

    #[test]
    fn a_cancelled_process_ends_also_if_cancelled_before_it_started() {
        let control = Control::new().unwrap();
        control.cancel();
        assert_eq!(run(&mut sh("sleep 1000"), 10, None, &control).unwrap().end, End::Cancelled);
    }

    #[test]
    fn a_process_that_left_the_group_with_the_pipe_is_not_waited_for() {
        let ran = run_sh("setsid sleep 3 & echo done", 100, 60_000);
        assert_eq!((ran.end, &ran.stdout.bytes[..]), (End::Exited(0), &b"done\n"[..]));
    }

    #[test]
    fn what_cannot_be_started_is_an_error() {
        let control = Control::new().unwrap();
        assert!(run(&mut Command::new("/no/such/program"), 10, None, &control).is_err());
    }
}
