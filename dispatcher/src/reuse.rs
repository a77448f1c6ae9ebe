//! Results that are there already. A task of a job that was submitted with `reuse` is not run if the same was run before
//! for such a job: the same command, environment, folder and outputs, and inputs with the same names and versions.
//!
//! What was run is known from the journal, by the results of jobs that are remembered; here is only where to find them.

use std::collections::{HashMap, VecDeque};

use eyas_types::{ExecutorId, JobId, ObjectId, Outcome, Program, TaskId, Template};

use crate::answers::Results;
use crate::job::Job;

/// Results that can be found; the oldest is forgotten.
const MAX_REUSABLE: usize = 1 << 20;
/// Tasks whose outputs executors look for at a time; others wait.
const MAX_CHECKS: usize = 256;

/// What a task does, as far as its result depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 32]);

#[derive(Default)]
pub(crate) struct Reuse {
    found: HashMap<Digest, TaskId>,
    /// The same, the oldest first; some were replaced since.
    order: VecDeque<(Digest, TaskId)>,
    /// Tasks whose outputs an executor looks for, with what they end with if they are there.
    checking: HashMap<TaskId, Checking>,
    /// Tasks that wait for that.
    to_check: VecDeque<(TaskId, Outcome)>,
    /// Results as they are read.
    pub results: Results,
}

struct Checking {
    executor: ExecutorId,
    outcome: Outcome,
}

impl Digest {
    /// Of a task all of whose inputs are known; none of one that does nothing.
    pub fn of(job: &Job, index: u32) -> Option<Digest> {
        let item = job.spec.items.get(index);
        let template = job.template_of(&item);
        let Program::Command(words) = &template.program else { return None };
        let mut inputs: Vec<(Option<&[u8]>, ObjectId, bool)> = Vec::new();
        for (input, object) in job.inputs(&item) {
            let object = object?;
            inputs.push((input.name.as_deref(), object.id(), object.executable));
        }
        let outputs = template.outputs.iter().flat_map(|output| [Some(&output.pattern), output.destination.as_ref()]);
        let env = template.env.iter().map(|(_, value)| value);
        let mut all = words.iter().chain(outputs.flatten()).chain(env);
        let number = all.any(Template::has_number).then_some(index);
        let what = (words, &template.env, &template.folder, &template.base, &template.outputs);
        let bytes = postcard::to_stdvec(&(what, &item.values, inputs, number)).expect("a task can be encoded");
        Some(Digest(*blake3::hash(&bytes).as_bytes()))
    }
}

impl Reuse {
    /// A task has succeeded.
    pub fn succeeded(&mut self, digest: Digest, task: TaskId) {
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
    pub fn find(&self, digest: Digest) -> Option<TaskId> {
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
    pub fn checked(&mut self, task: TaskId, by: ExecutorId) -> Option<Outcome> {
        self.checking.get(&task).filter(|checking| checking.executor == by)?;
        self.checking.remove(&task).map(|checking| checking.outcome)
    }

    /// An executor is gone, and with it its answers.
    pub fn lost(&mut self, executor: ExecutorId) {
        let mut lost: Vec<_> = self.checking.extract_if(|_, checking| checking.executor == executor).collect();
        lost.sort_unstable_by_key(|(task, _)| *task);
        self.to_check.extend(lost.into_iter().map(|(task, Checking { outcome, .. })| (task, outcome)));
    }
}
