//! Results that are there already. A task of a job that was submitted with `reuse` is not run if
//! the same was run before for such a job: the same command, environment, folder and outputs, and
//! inputs with the same names and versions.
//!
//! What was run is known from the journal, by the results of jobs that are remembered; here is only
//! where to find them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use eyas_types::{
    ExecutorId, JobId, ObjectSpec, Outcome, Program, Reads, Status, TaskId, TaskItem, TaskTemplate,
};
use serde::Serialize;

use crate::event::JobsAction;
use crate::executors::PresentExecutors;
use crate::job::{Job, Phase};
use crate::job_table::JobTable;
use crate::lineage::Lineage;
use crate::step::JobsStep;
use crate::task_ending::TaskEnding;

/// Results that can be found; the oldest is forgotten.
const MAX_REUSABLE: usize = 1 << 20;
/// Tasks whose outputs executors look for at a time; others wait.
const MAX_CHECKS: usize = 256;

/// What a task does, as far as its result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskDigest([u8; 32]);

/// What all tasks of a template do.
#[derive(Clone, Copy, Debug)]
struct TemplateDigest([u8; 32]);

/// Earlier results, and tasks that wait to learn whether one stands for theirs.
///
/// An answer counts only while its task waits for it: the task may have been cancelled, blocked or
/// queued since it was asked for.
#[derive(Debug, Default)]
pub(crate) struct Reuse {
    found: BTreeMap<TaskDigest, TaskId>,
    /// The same, the oldest first; some were replaced since.
    order: VecDeque<(TaskDigest, TaskId)>,
    /// Digests of templates; `None` if their tasks are no-ops.
    templates: BTreeMap<(JobId, u16), Option<TemplateDigest>>,
    /// Tasks for which the result of an earlier task is read, and that task.
    reading: BTreeMap<TaskId, TaskId>,
    /// Tasks whose outputs are to be looked for, with what they end with if they are there.
    to_check: BTreeMap<TaskId, Outcome>,
    /// Their turns. A task that is not among them does not wait for its turn any longer.
    turns: VecDeque<TaskId>,
    /// Tasks whose outputs an executor looks for.
    checking: BTreeMap<TaskId, PendingCheck>,
}

/// Whether the result of an earlier task stands for a new one.
#[derive(Debug)]
pub(crate) enum ReuseVerdict {
    /// The task runs.
    Not,
    /// It ends so.
    Whole(TaskEnding),
    /// It ends so if what was written to persistent storage is still there.
    IfThere(Outcome),
}

#[derive(Debug)]
struct PendingCheck {
    executor: ExecutorId,
    /// What the task ends with; `None` if it no longer waits for the answer.
    outcome: Option<Outcome>,
}

impl TemplateDigest {
    /// The digest of the template. `None` if its tasks are no-ops.
    fn of(template: &TaskTemplate) -> Option<TemplateDigest> {
        let Program::Command(words) = &template.program else { return None };
        // A result names its outputs by their places.
        let outputs: Vec<_> = template.outputs_of_success().collect();
        let own = digest(&(words, &template.env, &template.folder, &template.base, outputs));
        let preparations = &template.preparations;
        // Without any, the digest is that of earlier versions.
        let is_plain = preparations.is_empty();
        Some(TemplateDigest(if is_plain { own } else { digest(&(own, preparations)) }))
    }
}

impl TaskDigest {
    /// The digest of the task. `None` if an input is unknown.
    fn of(
        job: &Job,
        index: u32,
        item: &TaskItem,
        of_template: TemplateDigest,
    ) -> Option<TaskDigest> {
        let digested = job.inputs_with_ids(item).map(|(input, object)| {
            let (id, object) = object?;
            Some((input.name.as_deref(), id, object.mode.is_executable(), input.from.part()))
        });
        let inputs: Vec<_> = digested.collect::<Option<_>>()?;
        let number = job.template_of(item).is_numbered().then_some(index);
        Some(TaskDigest(digest(&(of_template.0, &item.values, inputs, number))))
    }
}

fn digest(what: &impl Serialize) -> [u8; 32] {
    let bytes = postcard::to_stdvec(what).expect("a task can be encoded");
    *blake3::hash(&bytes).as_bytes()
}

impl Reuse {
    // ---- which task did the same

    /// Notes what a task did that has succeeded.
    pub fn note(&mut self, task: TaskId, jobs: &JobTable) {
        let Some(job) = jobs.get(task.job).filter(|job| job.spec.reuse) else { return };
        if job.tasks.phase(task.index) == Phase::Succeeded
            && let Some(digest) = self.digest_of(job, task.index)
        {
            self.add(digest, task);
        }
    }

    /// The digest of a task. `None` if an input is unknown, or if the task is a no-op.
    fn digest_of(&mut self, job: &Job, index: u32) -> Option<TaskDigest> {
        let item = job.spec.items.get(index);
        let of_template = *self
            .templates
            .entry((job.id, item.template))
            .or_insert_with(|| TemplateDigest::of(job.template_of(&item)));
        TaskDigest::of(job, index, &item, of_template?)
    }

    fn add(&mut self, digest: TaskDigest, task: TaskId) {
        self.found.insert(digest, task);
        self.order.push_back((digest, task));
        while self.order.len() > MAX_REUSABLE {
            let Some((digest, task)) = self.order.pop_front() else { break };
            if self.found.get(&digest) == Some(&task) {
                self.found.remove(&digest);
            }
        }
    }

    pub fn forget_job(&mut self, job: JobId) {
        self.found.retain(|_, task| task.job != job);
        self.order.retain(|(_, task)| task.job != job);
        self.templates.retain(|(of, _), _| *of != job);
    }

    /// The last task that did the same as one that is about to be queued, and succeeded. The task
    /// waits for its result.
    pub fn read_earlier(&mut self, task: TaskId, jobs: &JobTable) -> Option<TaskId> {
        let earlier = self.earlier_task(task, jobs)?;
        self.reading.insert(task, earlier);
        Some(earlier)
    }

    fn earlier_task(&mut self, task: TaskId, jobs: &JobTable) -> Option<TaskId> {
        let job = jobs.get(task.job).filter(|job| job.spec.reuse)?;
        if job.tasks[task.index as usize].recomputed > 0 {
            return None;
        }
        let digest = self.digest_of(job, task.index)?;
        let earlier = *self.found.get(&digest)?;
        let has_succeeded = match jobs.get(earlier.job) {
            Some(from) => from.tasks.phase(earlier.index) == Phase::Succeeded,
            // It succeeded before its job left memory.
            None => jobs.is_archived(earlier.job),
        };
        has_succeeded.then_some(earlier)
    }

    // ---- whether its result stands for the new one

    /// A task no longer waits for an earlier result: it has ended, or is blocked.
    pub fn give_up(&mut self, task: TaskId) {
        self.reading.remove(&task);
        self.to_check.remove(&task);
        if let Some(checking) = self.checking.get_mut(&task) {
            checking.outcome = None;
        }
    }

    /// The result of an earlier task was read. Returns whether the task waits for it.
    pub fn has_read(&mut self, task: TaskId, earlier: TaskId) -> bool {
        let is_awaited = self.reading.get(&task) == Some(&earlier);
        if is_awaited {
            self.reading.remove(&task);
        }
        is_awaited
    }

    /// What becomes of a waiting task, of which an earlier one that did the same had this outcome.
    /// Without executors nothing can be looked for, and a task would wait for one anyway.
    pub fn weigh(
        (task, earlier): (TaskId, TaskId),
        outcome: Option<Box<Outcome>>,
        has_executors: bool,
        (jobs, lineage): (&JobTable, &Lineage),
    ) -> ReuseVerdict {
        let Some(job) = jobs.get(task.job) else { return ReuseVerdict::Not };
        let is_here = |object: &ObjectSpec| !object.is_kept() || lineage.is_held(object.id());
        let stands = |outcome: &Outcome| {
            // It may have run again since, and failed.
            outcome.status == Status::Succeeded
                && outcome.cut_bytes == 0
                && outcome.outputs.iter().all(|delivered| is_here(&delivered.object))
                && job.places.allow(task.index, outcome)
        };
        let Some(mut outcome) = outcome.filter(|outcome| stands(outcome)) else {
            return ReuseVerdict::Not;
        };
        (outcome.waited_us, outcome.ran_us, outcome.cpu_us, outcome.reads) =
            (0, 0, 0, Reads::default());
        outcome.peak_memory_bytes = 0;
        outcome.reused = Some(outcome.reused.unwrap_or(earlier));
        if outcome.outputs.iter().all(|delivered| delivered.object.is_kept()) {
            ReuseVerdict::Whole(TaskEnding::unassigned(task, *outcome))
        } else if has_executors {
            ReuseVerdict::IfThere(*outcome)
        } else {
            ReuseVerdict::Not
        }
    }

    /// The task's outputs are to be looked for.
    pub fn line_up(&mut self, task: TaskId, outcome: Outcome) {
        self.to_check.insert(task, outcome);
        self.turns.push_back(task);
    }

    /// The next task whose outputs are to be looked for. One whose outputs are being looked for, as
    /// it has waited for them before, has its turn after the answer to that.
    fn next_turn(&mut self) -> Option<(TaskId, Outcome)> {
        loop {
            let is_free = |task: &TaskId| !self.checking.contains_key(task);
            let task = self.turns.remove(self.turns.iter().position(is_free)?)?;
            if let Some(outcome) = self.to_check.remove(&task) {
                return Some((task, outcome));
            }
        }
    }

    /// Has executors look whether what was written is still there. They take turns. Returns tasks
    /// for which none is there that could look.
    pub fn send_checks(
        &mut self,
        executors: &PresentExecutors,
        step: &mut JobsStep,
    ) -> Vec<TaskId> {
        let mut unchecked = Vec::new();
        while self.checking.len() < MAX_CHECKS
            && let Some((task, outcome)) = self.next_turn()
        {
            let Some(executor) = executors.in_turn(task.index as usize) else {
                unchecked.push(task);
                continue;
            };
            let written = outcome.outputs.iter().map(|delivered| &delivered.object);
            let objects = written.filter(|object| !object.is_kept()).cloned().collect();
            step.act(JobsAction::Check { executor, task, objects });
            self.checking.insert(task, PendingCheck { executor, outcome: Some(outcome) });
        }
        unchecked
    }

    /// An executor has looked; the outcome of a task that waits for that.
    pub fn checked(&mut self, task: TaskId, executor: ExecutorId) -> Option<Outcome> {
        self.checking.get(&task).filter(|checking| checking.executor == executor)?;
        self.checking.remove(&task)?.outcome
    }

    /// An executor is gone, and with it its answers.
    pub fn lost(&mut self, executor: ExecutorId) {
        let lost: Vec<_> =
            self.checking.extract_if(.., |_, checking| checking.executor == executor).collect();
        for (task, PendingCheck { outcome, .. }) in lost {
            if let Some(outcome) = outcome {
                self.line_up(task, outcome);
            }
        }
    }
}
