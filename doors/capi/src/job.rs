//! Jobs: made of tasks or of the text of a job file, submitted, watched to their end, cancelled.

use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::{JobId, TaskId};
use eyas_client::view::{JobState, JobView};
use eyas_client::{Cluster, Draft, TaskFields, draft_job, read_job_text};

use crate::client::{ClientState, EyasClient, timeout_of};
use crate::handles::{self, Handle};
use crate::pointers;
use crate::status::{CallError, EyasStatus, call};
use crate::task::{EyasTask, locked};

/// How long a call that waits for a job dials a dispatcher that was lost, if it has no timeout.
pub(crate) const RECONNECT: Duration = Duration::from_secs(600);

/// A job that is not submitted yet.
pub struct EyasJob {
    _private: [u8; 0],
}

/// The name and the tasks of a job.
pub struct JobTasks {
    name: String,
    tasks: Mutex<Vec<TaskFields>>,
}

impl Handle for EyasJob {
    type State = JobTasks;
    const NAME: &'static str = "eyas_job";
}

/// The state of a job.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EyasJobState {
    /// At least one task has not ended.
    Running = 0,
    /// All tasks succeeded.
    Succeeded = 1,
    /// At least one task failed.
    Failed = 2,
    /// The job was cancelled, and no task failed.
    Cancelled = 3,
}

/// A job, as it stands.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EyasJobInfo {
    /// Tasks that wait for outputs of others, for an executor, or run.
    pub unfinished: u64,
    /// Tasks that succeeded.
    pub succeeded: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Microseconds from the acceptance of the job to its end, or to now.
    pub elapsed_us: u64,
    /// Id of the job.
    pub job: u32,
    /// The state of the job.
    pub state: EyasJobState,
    /// 1 if tasks wait for executors, or for larger executors, than there are; else 0.
    pub is_stuck: u32,
    /// 0 in this version.
    pub reserved: u32,
}

impl EyasJobInfo {
    /// Bytes of the first version of this struct.
    const FIRST_SIZE: usize = 56;

    fn of(view: &JobView) -> Self {
        let tasks = view.tasks;
        EyasJobInfo {
            unfinished: tasks.total() - tasks.ended(),
            succeeded: tasks.succeeded,
            failed: tasks.failed,
            cancelled: tasks.cancelled,
            elapsed_us: view.elapsed_us,
            job: view.job.0,
            state: match view.state {
                JobState::Running => EyasJobState::Running,
                JobState::Succeeded => EyasJobState::Succeeded,
                JobState::Failed => EyasJobState::Failed,
                JobState::Cancelled => EyasJobState::Cancelled,
            },
            is_stuck: view.is_stuck.into(),
            reserved: 0,
        }
    }
}

/// Begins a job without tasks. On success, `*job` is a handle to be closed with `eyas_job_close()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_job_open(name: *const c_char, job: *mut *mut EyasJob) -> EyasStatus {
    call(|| {
        pointers::check(job)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        let name = unsafe { pointers::text(name, "the name of the job") }?.to_owned();
        let opened = handles::open::<EyasJob>(JobTasks { name, tasks: Mutex::default() });
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(job, opened) }
    })
}

/// Adds a task, or an array of tasks, as it is described now.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_job_add(job: *mut EyasJob, task: *const EyasTask) -> EyasStatus {
    call(|| {
        let (job, task) = (handles::get(job)?, handles::get(task)?);
        let fields = locked(&task).clone();
        job.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(fields);
        Ok(())
    })
}

/// Submits a job, and writes its id to `*id`. When this returns, the job is on the disk of the
/// dispatcher. Relative paths begin at the current folder. The job stays open, and can be submitted
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_job_submit(
    client: *mut EyasClient,
    job: *mut EyasJob,
    id: *mut u32,
) -> EyasStatus {
    call(|| {
        pointers::check(id)?;
        let (client, job) = (handles::get(client)?, handles::get(job)?);
        let tasks = job.tasks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let draft = async |cluster: &Cluster| {
            draft_job(&job.name, &tasks, cluster).await.map_err(CallError::invalid)
        };
        let submitted = submit(&client, draft)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(id, submitted) }
    })
}

/// Submits a job that is described by the text of a job file, `length` bytes of TOML, and writes
/// its id to `*id`. When this returns, the job is on the disk of the dispatcher. Relative paths
/// begin at the current folder.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_submit_text(
    client: *mut EyasClient,
    text: *const c_char,
    length: usize,
    id: *mut u32,
) -> EyasStatus {
    call(|| {
        pointers::check(id)?;
        let client = handles::get(client)?;
        // SAFETY: the caller passes as many bytes as it says.
        let text = unsafe { pointers::bytes(text.cast(), length, "the text of the job") }?;
        let text = str::from_utf8(text)
            .map_err(|e| CallError::invalid(format!("the text of the job: {e}")))?;
        let draft = async |cluster: &Cluster| {
            read_job_text("job.toml", text, None, cluster, |_| {}).await.map_err(CallError::invalid)
        };
        let submitted = submit(&client, draft)?;
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(id, submitted) }
    })
}

/// Drafts and submits a job on a connection of its own: of a request on a used one, a program could
/// not know whether a lost connection has lost the job.
fn submit(
    client: &ClientState,
    draft: impl AsyncFnOnce(&Cluster) -> Result<Draft, CallError>,
) -> Result<u32, CallError> {
    client.wait("submitting the job", async {
        let draft = draft(client.cluster()).await?;
        if draft.is_empty() {
            return Err(CallError::invalid("the job has no task"));
        }
        let mut session = client.dial().await?;
        let job = session.submit(draft).await?;
        client.keep(session);
        Ok(job.0)
    })
}

/// Closes a job that was made with `eyas_job_open()`. A job that was submitted goes on.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_job_close(job: *mut EyasJob) -> EyasStatus {
    call(|| handles::close(job).map(drop))
}

/// Writes how a job stands to `*info`, which has `size` bytes: pass `sizeof *info`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_job_status(
    client: *mut EyasClient,
    job: u32,
    info: *mut EyasJobInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        let view = match client
            .wait("asking for the job", client.ask(FromClient::Jobs { job: Some(JobId(job)) }))?
        {
            ToClient::Jobs(jobs) => jobs.into_iter().next(),
            _ => return Err(unexpected()),
        };
        let view = view.ok_or_else(|| {
            CallError::new(EyasStatus::NotFound, format!("there is no job {job}"))
        })?;
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(info, size, EyasJobInfo::FIRST_SIZE, EyasJobInfo::of(&view)) }
    })
}

/// Waits until a job has ended, for up to `timeout_ms`. `info` is as for `eyas_job_status()`, or
/// NULL. The status is `EYAS_STATUS_OK` also if tasks failed: look at `info->state`. If the
/// dispatcher is started again meanwhile, the wait goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_job_wait(
    client: *mut EyasClient,
    job: u32,
    timeout_ms: u64,
    info: *mut EyasJobInfo,
    size: usize,
) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        let limit = timeout_of(timeout_ms);
        let view = client.wait_for(limit, &format!("job {job}"), async {
            let mut session = client.dial().await?;
            session.watch(JobId(job), false, limit.unwrap_or(RECONNECT), |_| {}).await
        })?;
        if info.is_null() {
            return Ok(());
        }
        // SAFETY: the caller passes NULL, or a place for as many bytes as it says.
        unsafe { pointers::put_struct(info, size, EyasJobInfo::FIRST_SIZE, EyasJobInfo::of(&view)) }
    })
}

/// Cancels all tasks of a job that have not ended.
#[unsafe(no_mangle)]
pub extern "C" fn eyas_job_cancel(client: *mut EyasClient, job: u32) -> EyasStatus {
    call(|| {
        let client = handles::get(client)?;
        client.wait(
            "cancelling the job",
            client.ask(FromClient::Cancel { job: JobId(job), task: None }),
        )?;
        Ok(())
    })
}

/// Explains why a task of a job waits, or where it ran and why, as the JSON of `eyas explain
/// --json`. On success, `*text` is a text to be freed with `eyas_text_free()`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_task_explain(
    client: *mut EyasClient,
    job: u32,
    task: u32,
    text: *mut *mut c_char,
) -> EyasStatus {
    call(|| {
        pointers::check(text)?;
        let client = handles::get(client)?;
        let task = TaskId { job: JobId(job), index: task };
        let ToClient::Explained(explanation) =
            client.wait("explaining the task", client.ask(FromClient::Explain { task }))?
        else {
            return Err(unexpected());
        };
        let version = eyas_client::view::SCHEMA_VERSION;
        let json = serde_json::json!({ "schema_version": version, "explanation": explanation });
        // SAFETY: the caller passes NULL, or a place that can be written to.
        unsafe { pointers::put(text, pointers::c_text(json.to_string()).into_raw()) }
    })
}

/// Frees a text that a function of this library has made for the program. NULL is possible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyas_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: the caller passes text that came from `CString::into_raw`, once.
        drop(unsafe { CString::from_raw(text) });
    }
}

fn unexpected() -> CallError {
    eyas_client::ClientError::Unexpected.into()
}
