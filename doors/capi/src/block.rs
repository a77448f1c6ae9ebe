//! Runs over the blocks of files, whose workers are programs in C (elastic-blocks §3.2).

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eyas_client::files::blocks::TaskNumber;
use eyas_client::files::{FilesErrorKind, RunStatus};
use eyas_client::types::dfs::FileName;
use eyas_client::{BlockRun, BlockWorker, RunOptions, parse_policy};

use crate::client::{ClientOwner, EyasClient, timeout_of};
use crate::files::file_name;
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};

/// Time after which a silent worker loses its block, unless the program sets another one,
/// milliseconds.
const DEFAULT_TERM_MS: u64 = 10_000;

/// Bounds of that time, milliseconds.
const TERM_MS: std::ops::RangeInclusive<u64> = 3_000..=3_600_000;

/// Interval at which `eyas_run_wait()` asks the leader.
const STATUS_INTERVAL: Duration = Duration::from_millis(100);

/// A run over the blocks of files. Threads may use one run at the same time.
pub struct EyasRun {
    _private: [u8; 0],
}

impl Handle for EyasRun {
    type State = OpenRun;
    const NAME: &'static str = "eyas_run";
}

/// A run and the connections to it.
pub struct OpenRun {
    client: ClientOwner,
    run: BlockRun,
    address: CString,
    outputs: Mutex<KnownOutputs>,
}

/// The outputs of a run that callers have asked for.
#[derive(Default)]
struct KnownOutputs {
    /// All outputs, when the run is complete: no further one comes.
    all: Option<Arc<[FileName]>>,
    /// What callers have pointers to. No text is removed.
    texts: HashMap<FileName, CString>,
}

/// A block of a run: the pieces that one worker processes and commits together. One thread at a
/// time may use a block; a program with several threads has a block for each.
pub struct EyasBlock {
    _private: [u8; 0],
}

impl Handle for EyasBlock {
    type State = OpenBlock;
    const NAME: &'static str = "eyas_block";
}

/// A block and the piece that the program processes.
pub struct OpenBlock {
    run: Arc<OpenRun>,
    worker: tokio::sync::Mutex<Option<BlockWorker>>,
    last: Mutex<Option<ShownPiece>>,
}

/// What a piece points to.
struct ShownPiece {
    file: CString,
    content: Vec<u8>,
}

/// A piece of a block. What it points to belongs to the block, and is valid until the next call
/// with the block.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasPiece {
    /// Name of the file.
    pub file: *const c_char,
    /// Place of the piece in the file.
    pub offset: u64,
    /// The content: `length` bytes, which are whole records, and a NUL after them.
    pub bytes: *const c_char,
    /// Number of bytes.
    pub length: usize,
}

impl EyasPiece {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 32;
}

/// A run, as it stands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasRunInfo {
    /// Number of chunks of all files.
    pub chunks: u32,
    /// Number of chunks whose output is committed.
    pub committed_chunks: u32,
    /// Number of outputs that count.
    pub outputs: u32,
    /// 1 if all chunks are committed, else 0.
    pub is_complete: u32,
}

impl OpenRun {
    fn outputs(&self) -> MutexGuard<'_, KnownOutputs> {
        // Each change is a single insertion or assignment.
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn info(&self, status: &RunStatus) -> EyasRunInfo {
        EyasRunInfo {
            chunks: self.run.chunks(),
            committed_chunks: status.committed_chunks,
            outputs: status.parts.len() as u32,
            is_complete: status.is_complete.into(),
        }
    }
}

impl EyasRunInfo {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 16;
}

/// How a run is led. Set everything that is not needed to 0 or NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasRunOptions {
    /// The scheduler that assigns pieces, and its parameters: `lean`, `lean,alpha=0.7`, `static`,
    /// `multiwave,min-block=1MiB,waves=3`, `io-aware,alpha=0.5,beta=0.25`. NULL for `lean`.
    pub policy: *const c_char,
    /// A worker that is silent for this time loses its block, milliseconds; 0 for 10,000.
    pub term_ms: u64,
    /// The run is forgotten if no program has asked about it for this time, milliseconds; 0 for
    /// half an hour.
    pub idle_ms: u64,
    /// Expected number of workers or tasks.
    pub workers: u32,
    /// Set to 0.
    pub reserved: u32,
}

impl EyasRunOptions {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 32;

    /// # Safety
    /// The policy is NULL, or text that ends with NUL.
    unsafe fn checked(&self) -> Result<RunOptions, CallError> {
        let term_ms = if self.term_ms == 0 { DEFAULT_TERM_MS } else { self.term_ms };
        if !TERM_MS.contains(&term_ms) {
            let (least, most) = (TERM_MS.start(), TERM_MS.end());
            return Err(CallError::invalid(format!(
                "a term of {term_ms} ms is not possible: {least} to {most} ms"
            )));
        }
        let mut options = RunOptions::new(self.workers, term_ms * 1000);
        // SAFETY: as the caller says.
        if let Some(policy) = unsafe { pointers::optional_text(self.policy, "the policy") }? {
            options.policy = parse_policy(policy).map_err(CallError::invalid)?;
        }
        if self.idle_ms > 0 {
            options.idle = Duration::from_millis(self.idle_ms);
        }
        Ok(options)
    }
}

/// Opens a run over `count` files, for about `workers` workers. A worker that is silent for
/// `term_ms` loses its block; 0 for 10,000 ms. On success, `*run` is a handle to be closed with
/// `eyas_run_close()`. Keep it open while workers are busy: half an hour after its program has
/// ended, the run is forgotten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_open(
    client: *mut EyasClient,
    paths: *const *const c_char,
    count: usize,
    workers: u32,
    term_ms: u64,
    run: *mut *mut EyasRun,
) -> EyasStatus {
    let options =
        EyasRunOptions { policy: std::ptr::null(), term_ms, idle_ms: 0, workers, reserved: 0 };
    // SAFETY: the caller passes what the other function needs.
    unsafe { eyas_run_open_with(client, paths, count, &options, size_of_val(&options), run) }
}

/// Opens a run as `eyas_run_open()` does, with further options. `size` is `sizeof *options`. While
/// the handle is open, the run is not idle; neither is it while a program has a block of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_open_with(
    client: *mut EyasClient,
    paths: *const *const c_char,
    count: usize,
    options: *const EyasRunOptions,
    size: usize,
    run: *mut *mut EyasRun,
) -> EyasStatus {
    call(|| {
        pointers::check(run)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or a struct of as many bytes as it says.
        let options = unsafe { pointers::get_struct(options, size, EyasRunOptions::FIRST_SIZE) }?;
        let options = options.ok_or_else(|| CallError::invalid("the options are NULL"))?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let options = unsafe { options.checked() }?;
        // SAFETY: the caller passes an array of texts that end with NUL, with its length.
        unsafe { pointers::texts(paths, count, "the path of a file") }?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let names = (0..count).map(|index| unsafe { file_name(*paths.add(index)) });
        let names = names.collect::<Result<Vec<FileName>, _>>()?;
        let opened = client.on_files("opening the run", async |files| {
            BlockRun::open(files, &names, options).await
        })?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(run, handle(client, opened)) }
    })
}

/// Joins a run that another program has opened, by its address. On success, `*run` is a handle as
/// that of `eyas_run_open()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_join(
    client: *mut EyasClient,
    address: *const c_char,
    run: *mut *mut EyasRun,
) -> EyasStatus {
    call(|| {
        pointers::check(run)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes NULL, or text that ends with NUL.
        let address = unsafe { pointers::text(address, "the address of the run") }?;
        let address = address.parse().map_err(CallError::invalid)?;
        let joined = client
            .on_files("joining the run", async |files| BlockRun::join(files, address).await)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(run, handle(client, joined)) }
    })
}

fn handle(client: ClientOwner, run: BlockRun) -> *mut EyasRun {
    let address = pointers::c_text(run.address().to_string());
    handles::open(OpenRun { client, run, address, outputs: Mutex::default() })
}

/// Writes the address of a run to `*address`, for `eyas_run_join()` in other programs. The text
/// belongs to the run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_address(
    run: *mut EyasRun,
    address: *mut *const c_char,
) -> EyasStatus {
    call(|| {
        let run = handles::get(run)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(address, run.address.as_ptr()) }
    })
}

/// Writes how a run stands to `*info`, which has `size` bytes: pass `sizeof *info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_status(
    run: *mut EyasRun,
    info: *mut EyasRunInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        let run = handles::get(run)?;
        let status = run.client.wait("asking for the run", run.run.status())?;
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(info, size, EyasRunInfo::FIRST_SIZE, run.info(&status)) }
    })
}

/// Waits until all chunks are committed, for up to `timeout_ms`, and writes how the run stands to
/// `*info`, as `eyas_run_status()` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_wait(
    run: *mut EyasRun,
    timeout_ms: u64,
    info: *mut EyasRunInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        pointers::check_struct(info, size, EyasRunInfo::FIRST_SIZE)?;
        let run = handles::get(run)?;
        let status = run.client.wait_for(timeout_of(timeout_ms), "the run", async {
            let mut ticks = tokio::time::interval(STATUS_INTERVAL);
            loop {
                ticks.tick().await;
                let status = run.run.status().await?;
                if status.is_complete {
                    return Ok::<_, CallError>(status);
                }
            }
        })?;
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(info, size, EyasRunInfo::FIRST_SIZE, run.info(&status)) }
    })
}

/// Writes the name of the output with this number to `*path`, in the order of the first piece of
/// each output, from 0. The output is a hidden file: read it with `eyas_open()`, or keep it with
/// `eyas_rename()`, before the run is ended. The text belongs to the run, and is valid until the
/// run is closed. The status is `EYAS_STATUS_END` if there are fewer outputs. Until the run is
/// complete, a further output may take a number, and those after it move: call `eyas_run_wait()`
/// first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_run_output(
    run: *mut EyasRun,
    number: u32,
    path: *mut *const c_char,
) -> EyasStatus {
    call(|| {
        pointers::check(path)?;
        let run = handles::get(run)?;
        let all = run.outputs().all.clone();
        let names = match all {
            Some(names) => names,
            None => {
                let status = run.client.wait("asking for the run", run.run.status())?;
                let names: Arc<[FileName]> = run.run.outputs(&status).into();
                run.outputs().all = status.is_complete.then(|| names.clone());
                names
            }
        };
        let name = names.get(number as usize).ok_or_else(CallError::end)?;
        let mut outputs = run.outputs();
        let text =
            outputs.texts.entry(name.clone()).or_insert_with(|| pointers::c_text(name.as_str()));
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(path, text.as_ptr()) }
    })
}

/// Ends a run for all its workers, and removes its outputs that were not renamed. The handle stays
/// open.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_run_end(run: *mut EyasRun) -> EyasStatus {
    call(|| {
        let run = handles::get(run)?;
        run.outputs().all = None;
        run.client.wait("ending the run", run.run.close())
    })
}

/// Closes the handle of a run. The run goes on for other programs.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_run_close(run: *mut EyasRun) -> EyasStatus {
    call(|| handles::close(run).map(drop))
}

/// Begins a block, which has no piece at first. On success, `*block` is a handle to be closed with
/// `eyas_block_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_block_open(
    run: *mut EyasRun,
    block: *mut *mut EyasBlock,
) -> EyasStatus {
    call(|| {
        pointers::check(block)?;
        let run = handles::get(run)?;
        let worker = run.client.wait("beginning a block", run.run.begin())?;
        let worker = tokio::sync::Mutex::new(Some(worker));
        let opened = handles::open::<EyasBlock>(OpenBlock { run, worker, last: Mutex::default() });
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(block, opened) }
    })
}

/// Begins an attempt of a task of another framework, such as Hadoop, which decides which attempt of
/// a task counts. Tasks have numbers below 1,048,576. All attempts of a task get the same pieces,
/// in the same order, also if they run at once, or after one has ended. `eyas_block_next()` returns
/// them; its statuses mean:
///
/// - `EYAS_STATUS_END`: the attempt has read all pieces of its task, which stay the same for ever.
///   It may count. It has nothing to commit.
/// - `EYAS_STATUS_DISCARDED`: no attempt of the task has reported within the term of the run, and
///   the pieces went to other tasks. The attempt must fail, and the framework begin another one.
///
/// If all tasks of the framework have an attempt that counts, these attempts have read each piece
/// once. An attempt that is closed before its end leaves its pieces to the task.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_block_open_task(
    run: *mut EyasRun,
    task: u32,
    block: *mut *mut EyasBlock,
) -> EyasStatus {
    call(|| {
        pointers::check(block)?;
        let run = handles::get(run)?;
        if task >= TaskNumber::LIMIT {
            let message = format!(
                "task {task} is not possible: tasks have numbers below {}",
                TaskNumber::LIMIT
            );
            return Err(CallError::invalid(message));
        }
        let begun = async { Ok::<_, CallError>(run.run.begin_task(TaskNumber(task))) };
        let worker = run.client.wait("beginning a block", begun)?;
        let worker = tokio::sync::Mutex::new(Some(worker));
        let opened = handles::open::<EyasBlock>(OpenBlock { run, worker, last: Mutex::default() });
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(block, opened) }
    })
}

/// Claims the next piece of the block, and writes it to `*piece`, which has `size` bytes: pass
/// `sizeof *piece`. The piece before it counts as processed from now on. Statuses:
///
/// - `EYAS_STATUS_END`: the block has no further piece: commit it. If it had none at all, the run
///   has no work left.
/// - `EYAS_STATUS_DISCARDED`: other workers have processed the block: discard its results, close
///   it, begin another one.
/// - `EYAS_STATUS_TIMED_OUT`: within `timeout_ms`, no piece was free, or the next piece was not
///   read to its end. Call it again, or close the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_block_next(
    block: *mut EyasBlock,
    timeout_ms: u64,
    piece: *mut EyasPiece,
    size: usize,
) -> EyasStatus {
    call(|| {
        pointers::check_struct(piece, size, EyasPiece::FIRST_SIZE)?;
        let block = handles::get(block)?;
        let next = block.run.client.wait_for(
            timeout_of(timeout_ms),
            "the next piece of the block",
            async {
                let worker = block.worker.lock().await;
                let worker = worker.as_ref().ok_or_else(committed)?;
                worker.next().await.map_err(|error| match error.kind {
                    FilesErrorKind::Changed => CallError::new(EyasStatus::Discarded, error),
                    _ => error.into(),
                })
            },
        )?;
        let next = next.ok_or_else(CallError::end)?;
        let mut last = block.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (length, mut content) = (next.content.len(), next.content);
        content.push(0);
        let shown = last.insert(ShownPiece { file: pointers::c_text(next.file.as_str()), content });
        let found = EyasPiece {
            file: shown.file.as_ptr(),
            offset: next.offset,
            bytes: shown.content.as_ptr().cast(),
            length,
        };
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(piece, size, EyasPiece::FIRST_SIZE, found) }
    })
}

/// Stores the output of all pieces that the block has given out, and commits it: of everything that
/// was computed for a piece, one output counts. The status is `EYAS_STATUS_DISCARDED` if this
/// output does not. A block can be committed before its end; pieces that were not claimed go to
/// other workers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_block_commit(
    block: *mut EyasBlock,
    output: *const c_void,
    length: usize,
) -> EyasStatus {
    call(|| {
        let block = handles::get(block)?;
        // SAFETY: the caller passes as many bytes as it says.
        let output = unsafe { pointers::bytes(output, length, "the output") }?.to_vec();
        let counts = block.run.client.wait("committing the block", async {
            let worker = block.worker.lock().await.take().ok_or_else(committed)?;
            worker.commit(output).await.map_err(CallError::from)
        })?;
        match counts {
            true => Ok(()),
            false => Err(CallError::new(
                EyasStatus::Discarded,
                "other workers have processed this block",
            )),
        }
    })
}

/// Closes a block. Pieces that were not committed go to other workers.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_block_close(block: *mut EyasBlock) -> EyasStatus {
    call(|| {
        let block = handles::close(block)?;
        block.run.client.wait("leaving the block", async {
            if let Some(worker) = block.worker.lock().await.take() {
                worker.leave().await;
            }
            Ok::<_, CallError>(())
        })
    })
}

fn committed() -> CallError {
    CallError::invalid("this block was committed: begin another one")
}
