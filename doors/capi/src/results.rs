//! Results of the tasks of a job, in the order in which the tasks end.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};

use eyas_client::types::shown::with_short_quotes;
use eyas_client::types::{JobId, Status, TaskResult};
use eyas_client::{ClientError, WatchEvent};
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::task::block_in_place;

use crate::client::{ClientOwner, EyasClient, timeout_of};
use crate::handles::{self, Handle};
use crate::job::RECONNECT;
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// Results that wait for the program. Beyond them, the dispatcher waits.
const MAX_WAITING: usize = 256;

/// The results of a job. One thread at a time may use it, because the texts of a result belong to
/// it.
pub struct EyasResults {
    _private: [u8; 0],
}

impl Handle for EyasResults {
    type State = Results;
    const NAME: &'static str = "eyas_results";
}

/// Results, as they arrive.
pub struct Results {
    client: ClientOwner,
    job: u32,
    arriving: AsyncMutex<mpsc::Receiver<Result<TaskResult, ClientError>>>,
    /// What the caller's last result points to.
    last: Mutex<Option<ShownResult>>,
    watching: tokio::task::AbortHandle,
}

impl Drop for Results {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// How a task ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EyasOutcome {
    /// The command has ended with exit code 0, and all outputs were delivered.
    Succeeded = 0,
    /// The command has ended with another exit code: `code`.
    Exited = 1,
    /// The command was killed by a signal: `code`.
    Signalled = 2,
    /// The command has exceeded its time limit.
    TimedOut = 3,
    /// The task was cancelled.
    Cancelled = 4,
    /// Eyas could not run the task, or could not deliver its outputs: `message` says why.
    Failed = 5,
}

/// The result of a task. What it points to belongs to the results, and is valid until the next call
/// of `eyas_results_next()` or `eyas_results_close()` with them. Texts and outputs are never NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasTaskResult {
    /// Index of the task in its job, from 0.
    pub task: u32,
    /// Number of earlier assignments of the task.
    pub attempt: u32,
    /// How the task ended.
    pub outcome: EyasOutcome,
    /// Exit code or signal; else 0.
    pub code: i32,
    /// The outcome in words.
    pub message: *const c_char,
    /// Name of the executor.
    pub executor: *const c_char,
    /// Captured standard output: `stdout_length` bytes, and a NUL after them.
    pub stdout_bytes: *const c_char,
    /// Number of bytes of standard output.
    pub stdout_length: usize,
    /// Captured standard error: `stderr_length` bytes, and a NUL after them.
    pub stderr_bytes: *const c_char,
    /// Number of bytes of standard error.
    pub stderr_length: usize,
    /// Bytes of both that were not captured.
    pub cut_bytes: u64,
    /// Microseconds from start to end, without suspension.
    pub ran_us: u64,
    /// Microseconds of processor time.
    pub cpu_us: u64,
}

impl EyasTaskResult {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 88;
}

/// What a result points to.
struct ShownResult {
    message: CString,
    executor: CString,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Begins to read the results of a job, from the first one. On success, `*results` is a handle to
/// be closed with `eyas_results_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_results_open(
    client: *mut EyasClient,
    job: u32,
    results: *mut *mut EyasResults,
) -> EyasStatus {
    call(|| {
        pointers::check(results)?;
        let client = handles::get(client)?;
        let mut session = client.wait("connecting", client.dial())?;
        let (sender, arriving) = mpsc::channel(MAX_WAITING);
        let watching = client.spawn(async move {
            let to_program = sender.clone();
            let see = |event| {
                if let WatchEvent::Results(results) = event {
                    // A program that reads no more has closed the results, which ends this task.
                    block_in_place(|| {
                        for result in results {
                            if to_program.blocking_send(Ok(result)).is_err() {
                                return;
                            }
                        }
                    });
                }
            };
            if let Err(error) = session.watch(JobId(job), true, RECONNECT, see).await {
                let _ = sender.send(Err(error)).await;
            }
        });
        let (arriving, watching) = (AsyncMutex::new(arriving), watching.abort_handle());
        let opened = handles::open::<EyasResults>(Results {
            client,
            job,
            arriving,
            last: Mutex::default(),
            watching,
        });
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(results, opened) }
    })
}

/// Waits for the next result, for up to `timeout_ms`, and writes it to `*result`, which has `size`
/// bytes: pass `sizeof *result`. Each result comes once, in the order in which the tasks ended. The
/// status is `EYAS_STATUS_END` when the job has ended and all its results were read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_results_next(
    results: *mut EyasResults,
    timeout_ms: u64,
    result: *mut EyasTaskResult,
    size: usize,
) -> EyasStatus {
    call(|| {
        pointers::check_struct(result, size, EyasTaskResult::FIRST_SIZE)?;
        let results = handles::get(results)?;
        let next = async { results.arriving.lock().await.recv().await.transpose() };
        let what = format!("the next result of job {}", results.job);
        let arrived = results
            .client
            .wait_for(timeout_of(timeout_ms), &what, next)?
            .ok_or_else(CallError::end)?;
        let mut last = results.last.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = show(arrived, &mut last);
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(result, size, EyasTaskResult::FIRST_SIZE, shown) }
    })
}

/// Closes results.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_results_close(results: *mut EyasResults) -> EyasStatus {
    call(|| handles::close(results).map(drop))
}

/// A result, whose pointers lead to what `place` keeps.
fn show(result: TaskResult, place: &mut Option<ShownResult>) -> EyasTaskResult {
    let outcome = result.outcome;
    let (kind, code) = match &outcome.status {
        Status::Succeeded => (EyasOutcome::Succeeded, 0),
        Status::Exited(code) => (EyasOutcome::Exited, *code),
        Status::Signalled(signal) => (EyasOutcome::Signalled, *signal),
        Status::TimedOut => (EyasOutcome::TimedOut, 0),
        Status::Cancelled => (EyasOutcome::Cancelled, 0),
        Status::Failed(_) => (EyasOutcome::Failed, 0),
    };
    let with_nul = |mut bytes: Vec<u8>| {
        bytes.push(0);
        bytes
    };
    let (stdout_length, stderr_length) = (outcome.stdout.len(), outcome.stderr.len());
    let shown = place.insert(ShownResult {
        message: pointers::c_text(with_short_quotes(&outcome.in_words(None)).into_owned()),
        executor: pointers::c_text(result.executor),
        stdout: with_nul(outcome.stdout),
        stderr: with_nul(outcome.stderr),
    });
    EyasTaskResult {
        task: result.index,
        attempt: result.attempt,
        outcome: kind,
        code,
        message: shown.message.as_ptr(),
        executor: shown.executor.as_ptr(),
        stdout_bytes: shown.stdout.as_ptr().cast(),
        stdout_length,
        stderr_bytes: shown.stderr.as_ptr().cast(),
        stderr_length,
        cut_bytes: outcome.cut_bytes,
        ran_us: outcome.ran_us,
        cpu_us: outcome.cpu_us,
    }
}
