//! One process of a task: started in its own process group, its output captured, suspended and
//! killed as a group, and reaped with its resource usage.

mod oversight;
pub(crate) mod printed;
pub(crate) mod procfs;
mod spawn;
pub(crate) mod spool;
pub(crate) mod strays;
pub(crate) mod worker;

use std::io::{self, PipeReader, PipeWriter};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use eyas_types::task::STREAMS;
use eyas_wire::printed::{MAX_PIECE_BYTES, PrintedPiece, PrintedPosition};
use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use oversight::Oversight;
use printed::{AnswerPrinted, PrintedQuestion, PrintedQuestions};
use spawn::spawn;
use spool::{Capture, Spool};

use crate::resources::{MemoryExcess, RunLimits};

/// Size of a pipe at first, and of one read from it.
const READ_BYTES: usize = 64 << 10;
/// Size of a pipe that was full once. Any user may set this size.
const LARGE_PIPE_BYTES: usize = 1 << 20;
/// Reads that empty the fullest pipe.
const DRAIN_READS: usize = LARGE_PIPE_BYTES / READ_BYTES;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    Cancelled,
    /// It has used more memory than it may.
    OverMemory(MemoryExcess),
}

/// The result of a process that has ended.
#[derive(Debug)]
pub(crate) struct ProcessResult {
    pub end: ProcessEnd,
    /// The process group; all of it has been killed.
    pub group: Pid,
    pub cpu_us: u64,
    /// Most memory that all its processes used together; 0 if unknown.
    pub peak_memory_bytes: u64,
    /// Time for which the process was suspended.
    pub suspended: Duration,
    pub stdout: CapturedOutput,
    pub stderr: CapturedOutput,
}

/// The beginning of an output stream, the size of the rest, and the whole stream if it was to be
/// kept.
#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    pub bytes: Vec<u8>,
    pub cut_bytes: u64,
    pub spool: Option<Spool>,
}

impl CapturedOutput {
    /// The bytes from `start` on, no more than fit in a piece, and whether there are more.
    fn piece(&self, start: u64) -> (Vec<u8>, bool) {
        let inline_bytes = self.bytes.len() as u64;
        match &self.spool {
            // The file has all of the stream.
            Some(spool) if start >= inline_bytes => {
                let piece = spool.piece(start, MAX_PIECE_BYTES);
                let end = start + piece.len() as u64;
                let has_more = end > start && end < spool.written_bytes();
                (piece, has_more)
            }
            spool => {
                let start = start.min(inline_bytes) as usize;
                let end = self.bytes.len().min(start + MAX_PIECE_BYTES);
                let has_more = end < self.bytes.len() || spool.is_some();
                (self.bytes[start..end].to_vec(), has_more)
            }
        }
    }

    /// Bytes that were printed, and of which nothing is left.
    fn lost_bytes(&self) -> u64 {
        let captured_bytes = self.bytes.len() as u64;
        let spooled_bytes = self.spool.as_ref().map_or(captured_bytes, Spool::written_bytes);
        self.cut_bytes - (spooled_bytes - captured_bytes)
    }
}

/// Cancels, suspends and resumes a task from another thread, before or after its process has
/// started, and asks what it has printed.
pub(crate) struct ProcessControl {
    wanted: Mutex<WantedState>,
    /// What other threads ask while the process runs.
    questions: Mutex<PrintedQuestions>,
    answer: Option<AnswerPrinted>,
    /// Number of this run, unlike that of any other run of the task.
    run: u64,
    wake: OwnedFd,
}

#[derive(Clone, Copy, Default)]
struct WantedState {
    cancelled: bool,
    /// Whether the task is another executor's from now on, or will be.
    abandoned: bool,
    suspended: bool,
    /// Whether the task makes what other tasks wait for, and so is not suspended.
    makes: bool,
    /// Whether processors that the task has lent are its again.
    granted: bool,
}

impl ProcessControl {
    pub fn new() -> io::Result<Self> {
        Ok(ProcessControl {
            wanted: Mutex::default(),
            questions: Mutex::default(),
            answer: None,
            run: 0,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The same, where what the process has printed is told in this way.
    pub fn answering(answer: AnswerPrinted) -> io::Result<Self> {
        let run = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let run = run.as_nanos() as u64;
        Ok(ProcessControl { answer: Some(answer), run, ..ProcessControl::new()? })
    }

    /// Has the thread of the process answer a question about a try. Whether it will: the process
    /// runs.
    pub fn ask(&self, mut question: PrintedQuestion, attempt: u32) -> bool {
        if question.from.run != self.run {
            // Of this run the client has nothing.
            question.from = PrintedPosition { run: self.run, attempt, ..Default::default() };
        }
        let is_asked = self.answer.is_some() && self.questions().ask(question);
        if is_asked {
            self.wake();
        }
        is_asked
    }

    fn questions(&self) -> std::sync::MutexGuard<'_, PrintedQuestions> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the questions so far.
    fn answer_questions(&self, streams: &Streams) {
        let questions = self.questions().take();
        if let Some(answer) = &self.answer {
            for question in questions {
                answer(question.number, Some(Box::new(streams.piece(question.from))));
            }
        }
    }

    /// The process has ended: nothing more is answered.
    fn end_questions(&self) {
        let questions = self.questions().end();
        if let Some(answer) = &self.answer {
            questions.into_iter().for_each(|question| answer(question.number, None));
        }
    }

    /// Cancels the task: its process group is killed.
    pub fn cancel(&self) {
        self.lock().cancelled = true;
        self.wake();
    }

    /// Cancels the task because this executor leaves it: none of its outputs may appear.
    pub fn abandon(&self) {
        self.lock().abandoned = true;
        self.cancel();
    }

    /// Stops the task's processes, or lets them continue.
    pub fn suspend(&self, suspended: bool) {
        self.lock().suspended = suspended;
        self.wake();
    }

    /// While the task makes what other tasks wait for, its processes are not stopped.
    pub fn set_making(&self, makes: bool) {
        self.lock().makes = makes;
        self.wake();
    }

    /// Tells the task that it has the processors again that it has lent.
    pub fn grant(&self) {
        self.lock().granted = true;
        self.wake();
    }

    /// Whether it has its processors again; told once.
    fn take_grant(&self) -> bool {
        std::mem::take(&mut self.lock().granted)
    }

    pub fn is_cancelled(&self) -> bool {
        self.lock().cancelled
    }

    pub fn is_abandoned(&self) -> bool {
        self.lock().abandoned
    }

    fn wake(&self) {
        // Fails only after 2^64 calls without a read.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// The wanted state; a later change wakes the waiting thread again.
    fn wanted(&self) -> WantedState {
        // Fails only if there was no call of `wake`.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let wanted = *self.lock();
        WantedState { suspended: wanted.suspended && !wanted.makes, ..wanted }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WantedState> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a command to its end, and kills all of its process group afterwards. Processes that leave
/// the group are recognised by the environment variables `marks`.
///
/// # Errors
/// If the command could not be started.
pub(crate) fn run(
    command: &Command,
    capture: impl Into<Capture>,
    timeout: Option<Duration>,
    control: &ProcessControl,
    marks: &[String],
    limits: &mut RunLimits<'_>,
) -> io::Result<ProcessResult> {
    let (mut streams, [stdout, stderr]) = Streams::new(&capture.into())?;
    let pid = spawn(
        command,
        None,
        stdout.as_fd(),
        stderr.as_fd(),
        limits.groups_to_enter(),
        limits.cores(),
    )?;
    limits.begin();
    let mut oversight = Oversight::new(pid, marks, control, limits);
    oversight.limit_time(timeout);
    control.questions().begin();
    let watched = watch(pid, &mut streams, &mut oversight, control);
    control.end_questions();
    let (suspended, killed) = oversight.end();
    // The leader is not reaped yet, so the group's number cannot belong to another group.
    let _ = kill_process_group(pid, Signal::KILL);
    let (status, usage) = reap(pid)?;
    streams.drain();
    let (peak_memory_bytes, excess) = limits.end(usage.largest_bytes);
    watched?;
    let end = match (killed, status.code(), status.signal()) {
        (Some(end), _, _) => end,
        // Also if the task has succeeded without the process that the kernel has killed, for
        // instance in a pipe.
        (None, _, _) if let Some(excess) = excess => ProcessEnd::OverMemory(excess),
        (None, Some(code), _) => ProcessEnd::Exited(code),
        (None, None, signal) => ProcessEnd::Signalled(signal.unwrap_or(0)),
    };
    Ok(ProcessResult {
        end,
        group: pid,
        cpu_us: usage.cpu_us,
        peak_memory_bytes,
        suspended,
        stdout: streams.stdout.captured,
        stderr: streams.stderr.captured,
    })
}

/// Captures output until the process has ended.
fn watch(
    pid: Pid,
    streams: &mut Streams,
    oversight: &mut Oversight<'_, '_>,
    control: &ProcessControl,
) -> io::Result<()> {
    let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
    loop {
        let left = oversight.enforce();
        let [ended, woken, out, err] = {
            let mut fds = [
                PollFd::new(&pidfd, PollFlags::IN),
                oversight.wakes(),
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
            return Ok(());
        }
        if woken {
            oversight.obey();
            control.answer_questions(streams);
        }
    }
}

struct Streams {
    stdout: Stream,
    stderr: Stream,
}

impl Streams {
    /// The streams, and the ends that the process writes to. The caller keeps those open until the
    /// process has ended: otherwise each of them would wake the thread when the process closes it,
    /// before its end.
    fn new(capture: &Capture) -> io::Result<(Self, [PipeWriter; 2])> {
        let (stdout, stdout_writer) = io::pipe()?;
        let (stderr, stderr_writer) = io::pipe()?;
        let stream = |pipe, name| {
            let spool = capture
                .spool
                .as_ref()
                .map(|(path, most_bytes)| (path.with_extension(name), *most_bytes));
            Ok::<_, io::Error>(Stream {
                to_spool: spool,
                ..Stream::new(pipe, capture.inline_bytes)?
            })
        };
        let [out, err] = STREAMS;
        Ok((
            Streams { stdout: stream(stdout, out)?, stderr: stream(stderr, err)? },
            [stdout_writer, stderr_writer],
        ))
    }

    /// What was captured beyond a position.
    fn piece(&self, from: PrintedPosition) -> PrintedPiece {
        let (stdout, has_more) = self.stdout.captured.piece(from.stdout_bytes);
        let (stderr, has_more_errors) = self.stderr.captured.piece(from.stderr_bytes);
        let has_more = has_more || has_more_errors;
        let cut_bytes = self.stdout.captured.lost_bytes() + self.stderr.captured.lost_bytes();
        PrintedPiece { from, stdout, stderr, has_more, cut_bytes }
    }

    /// Reads what is still in the pipes. Does not wait for processes outside the group that keep
    /// the pipes open.
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
    captured: CapturedOutput,
    capture_bytes: u64,
    /// The file for the whole stream and the most bytes of it, until the stream exceeds
    /// `capture_bytes`.
    to_spool: Option<(PathBuf, u64)>,
    /// Whether a read was as large as the pipe, so that the process may have waited for room.
    was_full: bool,
}

impl Stream {
    fn new(pipe: PipeReader, capture_bytes: u64) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Stream {
            pipe,
            captured: CapturedOutput::default(),
            capture_bytes,
            to_spool: None,
            was_full: false,
        })
    }

    /// Reads once. Whether there may be more now.
    fn read(&mut self) -> bool {
        let captured = &mut self.captured;
        let read = if self.was_full {
            if captured.bytes.capacity() - captured.bytes.len() < READ_BYTES {
                // Memory that is not written to costs nothing, and a later copy would.
                captured.bytes.reserve(LARGE_PIPE_BYTES);
            }
            rustix::io::read(&self.pipe, spare_capacity(&mut captured.bytes))
        } else {
            // Most tasks print little, and need no room for a whole read.
            let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
            rustix::io::read(&self.pipe, &mut buffer).map(|(bytes, _)| {
                captured.bytes.extend_from_slice(bytes);
                bytes.len()
            })
        };
        let kept =
            captured.bytes.len().min(usize::try_from(self.capture_bytes).unwrap_or(usize::MAX));
        if captured.bytes.len() > kept {
            captured.cut_bytes += (captured.bytes.len() - kept) as u64;
            let spooled = match (self.to_spool.take(), &mut captured.spool) {
                (Some((path, most_bytes)), _) => Spool::begin(path, most_bytes, &captured.bytes)
                    .map(|spool| captured.spool = Some(spool)),
                (None, Some(spool)) => spool.add(&captured.bytes[kept..]),
                (None, None) => Ok(()),
            };
            if let Err(e) = spooled {
                tracing::warn!(
                    "output of a task is cut, because it cannot be written to the disk: {e}"
                );
                captured.spool = None;
            }
        }
        captured.bytes.truncate(kept);
        match read {
            Ok(READ_BYTES) if !self.was_full => {
                self.was_full = true;
                // A process that prints much then waits less often. The system may refuse; then the
                // pipe stays small.
                let _ = fcntl_setpipe_size(&self.pipe, LARGE_PIPE_BYTES);
                true
            }
            Err(Errno::INTR) => true,
            // Nothing more now, or the end.
            Ok(0) | Err(_) => false,
            Ok(_) => true,
        }
    }
}

/// Resources that a process and its reaped children have used.
struct ReapedUsage {
    cpu_us: u64,
    /// Memory of the largest of them; 0 if unknown.
    largest_bytes: u64,
}

/// Reaps a process that has ended or is being killed.
fn reap(pid: Pid) -> io::Result<(ExitStatus, ReapedUsage)> {
    let mut status = 0;
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    loop {
        // No safe wrapper returns the resource usage of one child.
        // SAFETY: both pointers are to live variables of the types that wait4 writes, and zeroes
        // are a valid rusage.
        let reaped =
            unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, 0, usage.as_mut_ptr()) };
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
    let cpu_us = us(usage.ru_utime) + us(usage.ru_stime);
    // Until it executed its program, the process had the memory of this process, which counts to
    // it.
    let largest_kib = Some(usage.ru_maxrss as u64).filter(|kib| *kib > own_largest_kib());
    Ok((
        ExitStatus::from_raw(status),
        ReapedUsage { cpu_us, largest_bytes: largest_kib.unwrap_or(0) * 1024 },
    ))
}

/// The most memory that this process has had.
fn own_largest_kib() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live variable of the type that getrusage writes, and zeroes are a
    // valid rusage.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_maxrss as u64
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::oversight::GRACE;
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn run_sh(script: &str, capture_bytes: u64, timeout_ms: u64) -> ProcessResult {
        let timeout = Some(Duration::from_millis(timeout_ms));
        run(
            &sh(script),
            capture_bytes,
            timeout,
            &ProcessControl::new().unwrap(),
            &[],
            &mut RunLimits::none(),
        )
        .unwrap()
    }

    #[test]
    fn output_and_exit_code_are_captured() {
        let ran = run_sh("echo out; echo err >&2; exit 3", 100, 60_000);
        assert_eq!(ran.end, ProcessEnd::Exited(3));
        assert_eq!((&ran.stdout.bytes[..], &ran.stderr.bytes[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(run_sh("kill -9 $$", 100, 60_000).end, ProcessEnd::Signalled(9));
    }

    #[test]
    fn a_stream_that_exceeds_the_result_is_whole_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for (most_bytes, expected) in [(10_000_000, 2_000_004), (1_500_000, 1_500_000)] {
            let capture =
                Capture { inline_bytes: 1000, spool: Some((folder.path().join("of"), most_bytes)) };
            let script = sh("head -c 2000000 /dev/zero; echo end; echo err >&2");
            let control = ProcessControl::new().unwrap();
            let ran = run(&script, capture, None, &control, &[], &mut RunLimits::none()).unwrap();
            assert_eq!((ran.stdout.bytes.len(), ran.stdout.cut_bytes), (1000, 1_999_004));
            let whole = std::fs::read(ran.stdout.spool.as_ref().unwrap().path()).unwrap();
            assert_eq!((whole.len(), whole.ends_with(b"end\n")), (expected, expected == 2_000_004));
            assert!(ran.stderr.spool.is_none() && ran.stderr.bytes == b"err\n");
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            0,
            "the files go with the result"
        );
    }

    #[test]
    fn a_task_has_a_session_of_its_own_and_nothing_of_its_executors_caller() {
        let leader = run_sh(
            "read -r all </proc/$$/stat; set -- ${all##*)}; echo $4 $$; : </dev/tty",
            100,
            60_000,
        );
        let [session, leader_id] = [0, 1].map(|word| words(&leader)[word].clone());
        assert_eq!(session, leader_id, "{leader:?}");
        assert!(!leader.stderr.bytes.is_empty(), "it has no terminal");
        // Without CLOEXEC, as a caller leaves it.
        let left =
            rustix::fs::open("/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty())
                .unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&left);
        let open =
            run_sh(&format!("[ -e /proc/self/fd/{number} ] && echo open; echo end"), 100, 60_000);
        assert_eq!(words(&open), ["end"]);
        // The executor has raised its limit of open files.
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(777), ..before }).unwrap();
        crate::inherited::raise_descriptor_limit();
        assert_ne!(getrlimit(Resource::Nofile).current, Some(777));
        assert_eq!(words(&run_sh("ulimit -Sn", 100, 60_000)), ["777"]);
    }

    fn words(ran: &ProcessResult) -> Vec<String> {
        String::from_utf8_lossy(&ran.stdout.bytes).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn more_output_than_the_bound_is_counted_and_does_not_block() {
        let ran = run_sh("head -c 1000000 /dev/zero", 1000, 60_000);
        assert_eq!(
            (ran.end, ran.stdout.bytes.len(), ran.stdout.cut_bytes),
            (ProcessEnd::Exited(0), 1000, 999_000)
        );
        // The pipe has grown by then.
        let ran = run_sh("head -c 3000000 /dev/zero; echo end", 3_000_003, 60_000);
        let CapturedOutput { bytes, cut_bytes, .. } = ran.stdout;
        assert_eq!((bytes.len(), &bytes[2_999_999..], cut_bytes), (3_000_003, &b"\0end"[..], 1));
    }

    #[test]
    fn what_a_process_has_printed_can_be_asked_for_while_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (end, spool) = (folder.path().join("end"), folder.path().join("of"));
        let (sender, answers) = std::sync::mpsc::channel();
        let answer = move |number, piece: Option<Box<PrintedPiece>>| {
            sender.send((number, piece.map(|piece| *piece))).unwrap();
        };
        let control = ProcessControl::answering(Box::new(answer)).unwrap();
        let ask = |number, stdout_bytes| {
            let (run, attempt) = (control.run, 4);
            let from = PrintedPosition { run, attempt, stdout_bytes, stderr_bytes: 0 };
            control.ask(PrintedQuestion { number, from }, 4)
        };
        assert!(!ask(0, 0), "it does not run yet");
        let script =
            "head -c 200000 /dev/zero; echo end; echo err >&2; until [ -e $0 ]; do :; done";
        // Beyond 1000 bytes, the stream is in a file; without one, it is lost.
        for (most_bytes, in_all, lost) in [(300_000, 200_004, 0), (1000, 1000, 199_004)] {
            let capture = Capture { inline_bytes: 1000, spool: Some((spool.clone(), most_bytes)) };
            let _ = std::fs::remove_file(&end);
            let mut command = sh(script);
            command.arg(&end);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    run(&command, capture, None, &control, &[], &mut RunLimits::none()).unwrap()
                });
                let mut printed: (Vec<u8>, Vec<u8>, u64) = Default::default();
                until("it has printed all", || {
                    if !ask(1, printed.0.len() as u64) {
                        return false;
                    }
                    let (1, Some(piece)) = answers.recv().unwrap() else {
                        panic!("another answer")
                    };
                    assert!(piece.stdout.len() <= MAX_PIECE_BYTES && piece.from.attempt == 4);
                    printed.0.extend(&piece.stdout);
                    (printed.1, printed.2) = (piece.stderr, piece.cut_bytes);
                    (printed.0.len(), printed.2) == (in_all, lost) && !printed.1.is_empty()
                });
                assert_eq!(printed.0.ends_with(b"end\n"), lost == 0);
                assert_eq!(printed.1, b"err\n");
                assert!(ask(2, 300_000));
                let (2, Some(piece)) = answers.recv().unwrap() else { panic!("another answer") };
                assert!(piece.stdout.is_empty() && !piece.has_more, "{piece:?}");
                // Of another run, all is sent.
                let from = PrintedPosition { run: 1, stdout_bytes: 500, ..piece.from };
                assert!(control.ask(PrintedQuestion { number: 3, from }, 4));
                let (3, Some(whole)) = answers.recv().unwrap() else { panic!("another answer") };
                assert_eq!((whole.from.stdout_bytes, whole.from.run), (0, control.run));
                assert!(whole.stdout.len() >= 1000);
                std::fs::write(&end, "").unwrap();
            });
            assert!(!ask(4, 0), "it has ended");
        }
    }

    #[test]
    fn processor_time_of_a_child_is_its_own() {
        assert!(
            run_sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done", 10, 60_000).cpu_us > 10_000
        );
        assert!(run_sh("true", 10, 60_000).cpu_us < 1_000_000);
    }

    #[test]
    fn a_late_process_is_killed_with_its_whole_group() {
        let ran = run_sh("sleep 1000 & echo $!; wait", 100, 200);
        assert_eq!(ran.end, ProcessEnd::TimedOut);
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
    fn a_process_that_ignores_sigterm_is_killed() {
        assert_eq!(run_sh("trap '' TERM; while :; do :; done", 10, 100).end, ProcessEnd::TimedOut);
    }

    #[test]
    fn a_cancelled_process_ends_also_if_cancelled_before_it_started() {
        let control = ProcessControl::new().unwrap();
        control.cancel();
        assert_eq!(
            run(&sh("sleep 1000"), 10, None, &control, &[], &mut RunLimits::none()).unwrap().end,
            ProcessEnd::Cancelled
        );
    }

    #[test]
    fn a_process_that_left_the_group_with_the_pipe_is_not_waited_for() {
        let ran = run_sh("setsid sleep 3 & echo done", 100, 60_000);
        assert_eq!((ran.end, &ran.stdout.bytes[..]), (ProcessEnd::Exited(0), &b"done\n"[..]));
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        let control = ProcessControl::new().unwrap();
        assert!(
            run(&Command::new("/no/such/program"), 10, None, &control, &[], &mut RunLimits::none())
                .is_err()
        );
    }

    /// Whether a process is stopped; `None` if it is gone.
    fn is_stopped(pid: i32) -> Option<bool> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some(stat.rsplit(") ").next()?.starts_with('T'))
    }

    fn until(what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            assert!(Instant::now() < deadline, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A task with a child in its group and one outside, run while `meanwhile` has its control and
    /// their numbers.
    fn run_three(
        timeout: Option<Duration>,
        meanwhile: impl FnOnce(&ProcessControl, [i32; 3]),
    ) -> ProcessResult {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pids");
        let script = "trap 'kill $a' TERM; sleep 1000 & a=$!; setsid sleep 1000 & b=$!
                      echo $$ $a $b >$0.part; mv $0.part $0; wait $a; kill $b; exit 7";
        let mark = format!("PROCESS_TEST={}", folder.path().display());
        let control = ProcessControl::new().unwrap();
        std::thread::scope(|scope| {
            let ran = scope.spawn(|| {
                let mut command = Command::new("/bin/sh");
                command.args(["-c", script]).arg(&file).env("PROCESS_TEST", folder.path());
                run(&command, 100, timeout, &control, &[mark], &mut RunLimits::none()).unwrap()
            });
            until("it has started", || file.exists());
            let text = std::fs::read_to_string(&file).unwrap();
            let pids: Vec<i32> = text.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
            meanwhile(&control, pids.try_into().unwrap());
            ran.join().unwrap()
        })
    }

    #[test]
    fn suspension_stops_all_processes_of_a_task_and_its_time() {
        let ran = run_three(Some(Duration::from_millis(1500)), |control, pids| {
            control.suspend(true);
            until("all are stopped", || pids.iter().all(|pid| is_stopped(*pid) == Some(true)));
            // Longer than it may run.
            std::thread::sleep(Duration::from_millis(1600));
            assert!(pids.iter().all(|pid| is_stopped(*pid) == Some(true)), "its time has passed");
            control.suspend(false);
            until("all go on", || pids.iter().all(|pid| is_stopped(*pid) == Some(false)));
            let _ = rustix::process::kill_process(Pid::from_raw(pids[1]).unwrap(), Signal::TERM);
        });
        assert_eq!(ran.end, ProcessEnd::Exited(7));
        assert!(ran.suspended >= Duration::from_millis(1500), "{:?}", ran.suspended);
    }

    #[test]
    fn a_suspended_task_can_be_cancelled_and_gets_its_sigterm() {
        let began = Instant::now();
        let ran = run_three(None, |control, pids| {
            control.suspend(true);
            until("all are stopped", || pids.iter().all(|pid| is_stopped(*pid) == Some(true)));
            control.cancel();
        });
        assert_eq!(ran.end, ProcessEnd::Cancelled);
        assert!(began.elapsed() < GRACE + Duration::from_secs(18), "it was not even killed");
    }

    #[test]
    fn a_process_that_was_suspended_before_its_start_stops() {
        let control = ProcessControl::new().unwrap();
        control.suspend(true);
        let script = format!("sleep 0.5; exit 3 # born stopped {}", std::process::id());
        std::thread::scope(|scope| {
            let ran = scope.spawn(|| {
                run(&sh(&script), 10, None, &control, &[], &mut RunLimits::none()).unwrap()
            });
            let is_it = |pid: i32| {
                let words =
                    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                words.contains(&script) && is_stopped(pid) == Some(true)
            };
            until("it is stopped", || {
                let processes = std::fs::read_dir("/proc").unwrap();
                processes
                    .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                    .any(is_it)
            });
            control.suspend(false);
            let ran = ran.join().unwrap();
            assert_eq!(ran.end, ProcessEnd::Exited(3));
            assert!(!ran.suspended.is_zero());
        });
    }
}
