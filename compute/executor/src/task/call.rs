//! Calls: tasks that a worker answers. A slot has one worker for each environment, which is the
//! inputs of a template. The worker stays for calls that need the same one, and ends when its job
//! is forgotten, or before a call of the same environment that needs another.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

use eyas_types::outcome::{FailureKind, call_output};
use eyas_types::template::Expansion;
use eyas_types::units::format_bytes;
use eyas_types::{JobId, Outcome, Program, Status, TaskTemplate, Template};

use super::SlotState;
use super::sandbox::Sandbox;
use super::start_failure::cannot_start;
use super::status::{failed, status_of};
use super::{
    EXECUTOR_VARIABLE, StoreChanges, TASK_VARIABLE, TaskRun, TaskRunner, fail_if_damaged,
    retry_busy,
};
use crate::process::ProcessEnd;
use crate::process::worker::{CallEnd, CallResult, WorkerProcess};
use crate::resources::MemoryExcess;
use crate::resources::task_group::{SlotGroups, TaskGroup};

/// Environment variable with the name of the worker, in all of its processes.
const WORKER_VARIABLE: &str = "EYAS_WORKER";

/// Environment variable of a worker with a folder on the node's disk, in which workers may keep
/// what they share. It is removed when the executor ends.
const NODE_FOLDER_VARIABLE: &str = "EYAS_NODE_FOLDER";

/// Workers of a slot: one for each environment that calls of a job have.
const MAX_WORKERS: usize = 4;

/// A call that has ended: the worker has answered, or has died.
struct EndedCall {
    result: CallResult,
    peak_memory_bytes: u64,
    /// The excess of memory for which the kernel has killed the worker.
    excess: Option<MemoryExcess>,
}

/// A worker of a slot.
pub(crate) struct Worker {
    job: JobId,
    template: Arc<TaskTemplate>,
    gpus: Vec<u32>,
    cores: Vec<u32>,
    process: WorkerProcess,
    /// The control group of a worker that has asked for memory.
    group: Option<TaskGroup>,
}

impl Worker {
    /// Whether it can answer this call.
    fn suits(&mut self, run: &TaskRun) -> bool {
        let needs = |template: &TaskTemplate| {
            let TaskTemplate { program, env, resources, inputs, preparations, .. } = template;
            let made = (inputs.clone(), preparations.clone());
            (program.clone(), env.clone(), resources.clone(), made)
        };
        let (own, other) = (&self.template, &run.task.template);
        (self.job, &self.gpus, &self.cores) == (run.task.id().job, &run.gpus, &run.cores)
            && (Arc::ptr_eq(own, other) || needs(own) == needs(other))
            && self.process.is_alive()
    }

    /// Whether it stays while another one answers this call: one of the same job in another
    /// environment, which holds no GPU that others may get.
    fn stays_beside(&mut self, run: &TaskRun) -> bool {
        let read =
            |template: &TaskTemplate| (template.inputs.clone(), template.preparations.clone());
        let is_other = read(&self.template) != read(&run.task.template);
        self.job == run.task.id().job && is_other && self.gpus.is_empty() && self.process.is_alive()
    }

    pub fn job(&self) -> JobId {
        self.job
    }
}

impl TaskRun {
    /// The worker of the slot that can answer this call. Without one, those end that may not stay
    /// beside another.
    pub(super) fn known_worker(&self, slot: &mut SlotState) -> Option<Worker> {
        if !matches!(self.task.template.program, Program::Call(_)) {
            return None;
        }
        let workers = &mut slot.workers;
        if let Some(index) = workers.iter_mut().position(|worker| worker.suits(self)) {
            return Some(workers.remove(index));
        }
        workers.retain_mut(|worker| worker.stays_beside(self));
        let excess = (workers.len() + 1).saturating_sub(MAX_WORKERS);
        drop(workers.drain(..excess));
        None
    }

    /// Whether a worker that runs already needs no files for this call: the inputs of the template
    /// are for its start.
    pub(super) fn needs_no_files(&self) -> bool {
        let template = &self.task.template;
        self.task.assignment.inputs.len() == template.inputs.len()
            && template.outputs.iter().all(|output| output.optional)
    }
}

impl TaskRunner {
    /// Passes a call to a worker, and waits for its end, within the limits of the task.
    fn ask(
        &self,
        run: &TaskRun,
        worker: &mut Worker,
        groups: &mut SlotGroups,
        parts: &[&[u8]],
    ) -> Result<EndedCall, Status> {
        let TaskTemplate { resources, capture_bytes, timeout_us, .. } = &*run.task.template;
        let has_groups = self.group.wait().tasks.is_ok();
        let own = worker.group.take();
        let mut limits = self.resources.resume(has_groups, groups, own, resources, &run.cores);
        let timeout = timeout_us.map(Duration::from_micros);
        let lend = |lends| {
            if let Some(core) = run.claims.upgrade() {
                core.lend(run.task.id(), lends);
            }
        };
        let called =
            worker.process.call(parts, *capture_bytes, timeout, &run.control, lend, &mut limits);
        let has_died = matches!(&called, Ok(CallResult { end: CallEnd::Died(_), .. }));
        let (group, peak_memory_bytes, excess) = limits.end_call(has_died);
        worker.group = group;
        let result = called.map_err(|e| {
            let reason =
                format!("the worker of slot {} on {} cannot be used: {e}", run.slot + 1, self.name);
            failed(FailureKind::Node, reason)
        })?;
        Ok(EndedCall { result, peak_memory_bytes, excess })
    }

    /// Has a worker answer the call: `known`, or a new one. Also tells whether an input was changed
    /// in the store, and has the sandbox that the worker has made if it had none.
    pub(super) fn call(
        &self,
        run: &TaskRun,
        words: &[Template],
        with: &Expansion<'_>,
        sandbox: Option<&Sandbox>,
        (known, slot): (Option<Worker>, &mut SlotState),
        changes: &mut StoreChanges,
    ) -> Result<(Outcome, bool, Option<Sandbox>), Status> {
        let template = &run.task.template;
        let SlotState { workers, groups, .. } = slot;
        let mut worker = match known {
            Some(known) => known,
            None => self.start_worker(run, words, with, groups)?,
        };
        let task = run.task.id().to_string();
        let folder =
            sandbox.map_or_else(|| self.folder_of(run), |sandbox| sandbox.folder().to_owned());
        let payload =
            run.task.assignment.values.first().map_or(&[][..], |value| value.text.as_bytes());
        let mut parts = vec![payload, task.as_bytes(), folder.as_os_str().as_bytes()];
        // The inputs of the template are for the start of the worker.
        parts.extend(with.staged.iter().skip(with.template_inputs).map(|path| path.as_bytes()));
        let EndedCall { result: called, peak_memory_bytes, excess } =
            self.ask(run, &mut worker, groups, &parts)?;
        let is_damaged = self.find_damaged(run, changes);
        let mut made = None;
        let (status, stdout, cpu_us) = match called.end {
            CallEnd::Answered { has_failed, has_made_folder, cpu_us, content } => {
                workers.push(worker);
                if has_made_folder && sandbox.is_none() {
                    made = Some(Sandbox::made_by_task(folder).map_err(|e| {
                        failed(
                            FailureKind::Output,
                            format!("cannot use the folder of its outputs: {e}"),
                        )
                    })?);
                }
                let (status, content) = answered(has_failed, content, template.capture_bytes);
                (status, content, cpu_us)
            }
            CallEnd::Died(end) => {
                if sandbox.is_none() {
                    // It may have made the folder before it died.
                    let _ = std::fs::remove_dir_all(&folder);
                }
                (died(excess.map_or(end, ProcessEnd::OverMemory)), Vec::new(), 0)
            }
        };
        let mut outcome = Outcome::of(status);
        outcome.cpu_us = cpu_us;
        outcome.peak_memory_bytes = peak_memory_bytes;
        outcome.suspended_us = called.suspended.as_micros() as u64;
        outcome.stdout = call_output(stdout, &called.stdout.bytes);
        outcome.stderr = called.stderr.bytes;
        outcome.cut_bytes = called.stdout.cut_bytes + called.stderr.cut_bytes;
        fail_if_damaged(&mut outcome, is_damaged);
        Ok((outcome, is_damaged, made))
    }

    fn start_worker(
        &self,
        run: &TaskRun,
        words: &[Template],
        with: &Expansion<'_>,
        groups: &mut crate::resources::task_group::SlotGroups,
    ) -> Result<Worker, Status> {
        debug_assert!(!words.is_empty(), "checked when it was submitted");
        let template = &run.task.template;
        // It works for all calls, so it has nothing of this one.
        let mut command = self.command(run, with, None)?;
        let name = format!("{}-{}", run.task.id(), run.task.assignment.attempt);
        command
            .env_remove(TASK_VARIABLE)
            .env(WORKER_VARIABLE, &name)
            .env(NODE_FOLDER_VARIABLE, &self.sandboxes);
        let marks = vec![
            format!("{WORKER_VARIABLE}={name}"),
            format!("{EXECUTOR_VARIABLE}={}", self.marker),
        ];
        let tasks = self.group.wait().tasks.as_ref().ok();
        let limits = self.resources.prepare(tasks, groups, &template.resources, &run.cores, true);
        let mut limits = limits.map_err(|e| {
            let reason = format!("cannot make the control group of a worker on {}: {e}", self.name);
            failed(FailureKind::Node, reason)
        })?;
        let process = retry_busy(|| WorkerProcess::start(&command, marks.clone(), &mut limits));
        let process = process.map_err(|e| cannot_start(&self.name, &command, &e))?;
        let (group, ..) = limits.end_call(false);
        let (job, template) = (run.task.id().job, template.clone());
        Ok(Worker {
            job,
            template,
            gpus: run.gpus.clone(),
            cores: run.cores.clone(),
            process,
            group,
        })
    }
}

/// The status and the result of a call that was answered. `content` is the result, or its size in
/// bytes if it is too large to be sent.
fn answered(
    has_failed: bool,
    content: Result<Vec<u8>, u64>,
    capture_bytes: u64,
) -> (Status, Vec<u8>) {
    match content {
        Ok(content) => (if has_failed { Status::Exited(1) } else { Status::Succeeded }, content),
        Err(bytes) => {
            let (bytes, limit) = (format_bytes(bytes), format_bytes(capture_bytes));
            let reason = format!(
                "its result has {bytes}, and {limit} can be sent: write large results to a file, \
                 and return that"
            );
            (failed(FailureKind::Start, reason), Vec::new())
        }
    }
}

/// The status of a call whose worker has ended. Such a worker has not answered, whatever its exit
/// code is.
fn died(end: ProcessEnd) -> Status {
    match status_of(end) {
        Status::Succeeded => {
            failed(FailureKind::Start, "its worker has ended with exit code 0 during the call")
        }
        status => status,
    }
}
