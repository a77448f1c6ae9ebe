//! Results that are there already. A task of a job that was submitted with `reuse` is not run if
//! the same was run before for such a job: the same command, environment, folder and outputs, and
//! inputs with the same names and versions.
//!
//! What was run is known from the journal, by the results of jobs that are remembered; here is only
//! where to find them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use eyas_types::{ExecutorId, JobId, ObjectSpec, Outcome, Program, Reads, TaskId, Template};

use crate::event::{Effect, JobsAction};
use crate::job::{Job, Phase};
use crate::jobs::Jobs;

/// Results that can be found; the oldest is forgotten.
const MAX_REUSABLE: usize = 1 << 20;
/// Tasks whose outputs executors look for at a time; others wait.
const MAX_CHECKS: usize = 256;

/// What a task does, as far as its result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskDigest([u8; 32]);

#[derive(Debug, Default)]
pub(crate) struct Reuse {
    found: BTreeMap<TaskDigest, TaskId>,
    /// The same, the oldest first; some were replaced since.
    order: VecDeque<(TaskDigest, TaskId)>,
    /// Tasks whose outputs an executor looks for, with what they end with if they are there.
    checking: BTreeMap<TaskId, Checking>,
    /// Tasks that wait for that.
    to_check: VecDeque<(TaskId, Outcome)>,
}

#[derive(Debug)]
struct Checking {
    executor: ExecutorId,
    outcome: Outcome,
}

impl TaskDigest {
    /// The digest of the task. `None` if an input is unknown, or if the task is a no-op.
    pub fn of(job: &Job, index: u32) -> Option<TaskDigest> {
        let item = job.spec.items.get(index);
        let template = job.template_of(&item);
        let Program::Command(words) = &template.program else { return None };
        let digested = job.inputs_with_ids(&item).map(|(input, object)| {
            let (id, object) = object?;
            Some((input.name.as_deref(), id, object.mode.is_executable(), input.from.part()))
        });
        let inputs: Vec<_> = digested.collect::<Option<_>>()?;
        let outputs = template
            .outputs
            .iter()
            .flat_map(|output| [Some(&output.pattern), output.destination.as_ref()]);
        let env = template.env.iter().map(|(_, value)| value);
        let mut all = words.iter().chain(outputs.flatten()).chain(env);
        let number = all.any(Template::has_number).then_some(index);
        let what = (words, &template.env, &template.folder, &template.base, &template.outputs);
        let bytes = postcard::to_stdvec(&(what, &item.values, inputs, number))
            .expect("a task can be encoded");
        Some(TaskDigest(*blake3::hash(&bytes).as_bytes()))
    }
}

impl Reuse {
    /// A task has succeeded.
    pub fn succeeded(&mut self, digest: TaskDigest, task: TaskId) {
        self.found.insert(digest, task);
        self.order.push_back((digest, task));
        while self.order.len() > MAX_REUSABLE {
            let Some((digest, task)) = self.order.pop_front() else { break };
            if self.found.get(&digest) == Some(&task) {
                self.found.remove(&digest);
            }
        }
    }

    /// The last task that did the same and succeeded.
    pub fn find(&self, digest: TaskDigest) -> Option<TaskId> {
        self.found.get(&digest).copied()
    }

    pub fn forget_job(&mut self, job: JobId) {
        self.found.retain(|_, task| task.job != job);
        self.order.retain(|(_, task)| task.job != job);
    }

    /// The task's outputs are to be looked for.
    pub fn line_up(&mut self, task: TaskId, outcome: Outcome) {
        self.to_check.push_back((task, outcome));
    }

    /// The next task whose outputs an executor may look for now.
    pub fn next_check(&mut self) -> Option<(TaskId, Outcome)> {
        if self.checking.len() < MAX_CHECKS { self.to_check.pop_front() } else { None }
    }

    pub fn checks(&mut self, task: TaskId, executor: ExecutorId, outcome: Outcome) {
        self.checking.insert(task, Checking { executor, outcome });
    }

    /// An executor has looked; the outcome that was waiting for that.
    pub fn checked(&mut self, task: TaskId, executor: ExecutorId) -> Option<Outcome> {
        self.checking.get(&task).filter(|checking| checking.executor == executor)?;
        self.checking.remove(&task).map(|checking| checking.outcome)
    }

    /// An executor is gone, and with it its answers.
    pub fn lost(&mut self, executor: ExecutorId) {
        let lost: Vec<_> =
            self.checking.extract_if(.., |_, checking| checking.executor == executor).collect();
        self.to_check
            .extend(lost.into_iter().map(|(task, Checking { outcome, .. })| (task, outcome)));
    }
}

impl Jobs {
    /// Notes what a task did that has succeeded.
    pub(crate) fn note_reusable(&mut self, task: TaskId) {
        let Some(job) = self.jobs.get(&task.job).filter(|job| job.spec.reuse) else { return };
        if job.tasks[task.index as usize].phase == Phase::Succeeded
            && let Some(digest) = TaskDigest::of(job, task.index)
        {
            self.reuse.succeeded(digest, task);
        }
    }

    /// Whether an earlier task may have done the same as one that is about to be queued. Its result
    /// is read.
    pub(crate) fn reuses(&mut self, task: TaskId) -> bool {
        let Some(earlier) = self.earlier_task(task) else { return false };
        self.effects.push(Effect::Action(JobsAction::ReadResult { task, earlier }));
        true
    }

    fn earlier_task(&self, task: TaskId) -> Option<TaskId> {
        let job = self.jobs.get(&task.job).filter(|job| job.spec.reuse)?;
        if job.tasks[task.index as usize].recomputed > 0 {
            return None;
        }
        let earlier = self.reuse.find(TaskDigest::of(job, task.index)?)?;
        let has_succeeded = match self.jobs.get(&earlier.job) {
            Some(from) => from.tasks[earlier.index as usize].phase == Phase::Succeeded,
            // It succeeded before its job left memory.
            None => self.archived.contains_key(&earlier.job),
        };
        has_succeeded.then_some(earlier)
    }

    /// Ends a task with an earlier result, has an executor look whether that is still there, or
    /// queues the task.
    pub(crate) fn earlier_result(
        &mut self,
        task: TaskId,
        earlier: TaskId,
        outcome: Option<Box<Outcome>>,
    ) {
        if self.phase(task) != Some(Phase::Waiting) {
            return;
        }
        let is_here = |object: &ObjectSpec| !object.is_kept() || self.lineage.is_held(object.id());
        let whole = outcome.filter(|outcome| {
            outcome.cut_bytes == 0
                && outcome.outputs.iter().all(|delivered| is_here(&delivered.object))
        });
        let has_its_places = |outcome: &Outcome| {
            self.jobs.get(&task.job).is_some_and(|job| job.places.allow(task.index, outcome))
        };
        let Some(mut outcome) = whole.filter(|outcome| has_its_places(outcome)) else {
            return self.queue_now(task);
        };
        (outcome.waited_us, outcome.ran_us, outcome.cpu_us, outcome.reads) =
            (0, 0, 0, Reads::default());
        outcome.peak_memory_bytes = 0;
        outcome.reused = Some(outcome.reused.unwrap_or(earlier));
        if outcome.outputs.iter().all(|delivered| delivered.object.is_kept()) {
            self.end(task, 0, String::new(), *outcome);
        } else if self.executors.is_empty() {
            // It waits for an executor anyway.
            self.queue_now(task);
        } else {
            self.reuse.line_up(task, *outcome);
            self.send_checks();
        }
    }

    /// Has executors look whether what was written is still there. They take turns.
    pub(crate) fn send_checks(&mut self) {
        while let Some((task, outcome)) = self.reuse.next_check() {
            let turn = task.index as usize % self.executors.len().max(1);
            let executor = self.executors.keys().nth(turn).copied();
            match executor {
                _ if self.phase(task) != Some(Phase::Waiting) => {}
                None => self.queue_now(task),
                Some(executor) => {
                    let written = outcome.outputs.iter().map(|delivered| &delivered.object);
                    let objects = written.filter(|object| !object.is_kept()).cloned().collect();
                    self.effects.push(Effect::Action(JobsAction::Check {
                        executor,
                        task,
                        objects,
                    }));
                    self.reuse.checks(task, executor, outcome);
                }
            }
        }
    }

    /// An executor has looked for what was written.
    pub(crate) fn checked(&mut self, executor: ExecutorId, task: TaskId, is_unchanged: bool) {
        if let Some(outcome) = self.reuse.checked(task, executor)
            && self.phase(task) == Some(Phase::Waiting)
        {
            if is_unchanged {
                self.end(task, 0, String::new(), outcome);
            } else {
                self.queue_now(task);
            }
        }
        self.send_checks();
    }
}
