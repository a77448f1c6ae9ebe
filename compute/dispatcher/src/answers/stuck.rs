//! Why tasks of a job that wait cannot run on any executor that is here, in words.

use std::cmp::Reverse;

use eyas_jobs::Job;
use eyas_types::{ExecutorId, Resources};

use super::explain::Explainer;

impl Explainer<'_> {
    /// Whether a job with tasks that wait is stuck: none of these can run. Also warnings.
    pub(super) fn why_stuck(&self, job: &Job) -> (bool, Vec<String>) {
        let mut warnings: Vec<_> = self.why_set_aside().into_iter().collect();
        if job.spec.needs().all(|need| self.may_get_nodes(&need)) {
            return (false, warnings);
        }
        if let Some(why) = self.why_not_runnable(job) {
            warnings.push(why);
            return (true, warnings);
        }
        if !job.spec.needs().any(|need| self.scheduler.exceeds_disks(&need)) {
            return (false, warnings);
        }
        warnings.push(
            "no executor has room on its disk for what the largest of its tasks reads and takes: \
             make some, or start executors with less --keep-free"
                .into(),
        );
        // Tasks that have run may leave room when they end, or have left it since the last report
        // of the disk.
        let counts = job.counts();
        (counts.waiting + counts.blocked == counts.total(), warnings)
    }

    /// Why no executor that is here can run some task of a job, whatever the room on their disks.
    fn why_not_runnable(&self, job: &Job) -> Option<String> {
        if self.executors.len() == 0 {
            return Some(match self.pools.are_on() {
                false => "no executor has joined: start some with `eyas start executor`".into(),
                true => job
                    .spec
                    .needs()
                    .flat_map(|need| self.why_no_node_comes(&need))
                    .take(1)
                    .collect(),
            });
        }
        let executors = self.scheduler.explain_executors();
        let is_too_large =
            |need: &&Resources| !executors.iter().any(|executor| executor.capacity.covers(need));
        let mut needs = job.spec.templates.iter().map(|template| &template.resources);
        if let Some(need) = needs.find(is_too_large) {
            return Some(format!(
                "no executor is large enough for its tasks: {}",
                self.why_too_large(need)
            ));
        }
        self.is_matched_by_nobody(job).then(|| {
            "no executor matches the requirements of its tasks, or accepts them: `eyas explain` \
             says of a task why it waits"
                .into()
        })
    }

    /// What a task needs, and what the executor has that comes nearest to it.
    pub(super) fn why_too_large(&self, need: &Resources) -> String {
        let needed = need.in_words(need);
        let executors = self.scheduler.explain_executors();
        let nearest = executors.iter().min_by_key(|executor| {
            let Resources { cpus_milli, memory_bytes, .. } = executor.capacity;
            (executor.capacity.lacks(need), Reverse((cpus_milli, memory_bytes)))
        });
        let nearest = nearest.map_or_else(String::new, |executor| {
            let name = self.executors.name(executor.executor);
            format!("; the largest node, {name}, has {}", executor.capacity.in_words(need))
        });
        // Nodes that share a machine have a part of its processors and memory each.
        let has_all_else = |capacity: &Resources| {
            let whole = Resources { named: capacity.named.clone(), ..need.clone() };
            whole.covers(need) && capacity.disk_bytes >= need.disk_bytes
        };
        let is_split = executors.len() > 1
            && executors.iter().any(|executor| has_all_else(&executor.capacity));
        let or = match is_split {
            true => {
                ", start a larger executor, or give one node all processors of a machine: `eyas \
                 start local --nodes 1`"
            }
            false => ", or start a larger executor",
        };
        format!("a task needs {needed}{nearest}. Ask for less{or}")
    }

    /// The executors that get no tasks for now, and why.
    fn why_set_aside(&self) -> Option<String> {
        let is_set_aside = |id: &ExecutorId| self.jobs.set_aside_until(*id).is_some();
        let set_aside: Vec<_> =
            self.executors.iter().map(|(id, _)| id).filter(is_set_aside).collect();
        (!set_aside.is_empty()).then(|| {
            format!(
                "set aside, because tasks failed there that other executors completed: {}; look \
                 at the disk, mounts and software of their nodes",
                self.names(&set_aside)
            )
        })
    }

    /// Whether there are tasks of the job that no executor will ever match.
    fn is_matched_by_nobody(&self, job: &Job) -> bool {
        let is_asked = job.spec.terms.iter().any(Option::is_some)
            || self.executors.iter().any(|(_, e)| e.accept.is_some());
        is_asked && job.spec.needs().any(|need| self.scheduler.is_unmatched(&need))
    }
}
