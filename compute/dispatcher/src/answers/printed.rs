//! Where the output of a task is to be asked for while the task runs.

use eyas_jobs::Phase;
use eyas_types::{ExecutorId, Program, TaskId};
use eyas_wire::printed::{MINOR_OF_PRINTED, Printed};

use super::{Explainer, Views, check_task};
use crate::service::answer::{Answer, ServiceError};

/// Which process has the output of a task.
pub(crate) enum HasOutput {
    /// None, or the journal.
    NoExecutor(Printed),
    Executor {
        id: ExecutorId,
        name: String,
        is_suspended: bool,
    },
}

/// Which process has the output of a task.
///
/// # Errors
/// If the output of such a task cannot be asked for.
pub(crate) fn who_has_output(views: Views<'_>, task: TaskId) -> Answer<HasOutput> {
    let job = views.job(task.job)?;
    check_task(job, task.index)?;
    if matches!(job.template_at(task.index).program, Program::Call(_)) {
        return Err(ServiceError::IsCall(task));
    }
    let state = &job.tasks[task.index as usize];
    let executor = state.executor.filter(|_| state.phase == Phase::Assigned);
    let entry = executor.and_then(|id| Some((id, views.executors.get(id)?)));
    Ok(HasOutput::NoExecutor(match (state.phase, entry) {
        (_, Some((_, entry))) if entry.minor < MINOR_OF_PRINTED => {
            return Err(ServiceError::EarlierExecutor(entry.name.clone()));
        }
        (_, Some((id, entry))) => {
            let (name, is_suspended) = (entry.name.clone(), entry.suspended.contains(&task));
            return Ok(HasOutput::Executor { id, name, is_suspended });
        }
        (Phase::Succeeded | Phase::Failed | Phase::Cancelled, None) => Printed::Ended,
        (Phase::Blocked | Phase::Waiting | Phase::Assigned, None) => {
            Printed::Waiting { why: Explainer(views).explain(task)?.because.join(" ") }
        }
    }))
}
