//! Jobs, tasks, executors and objects as clients are shown them.

use eyas_jobs::{EQUAL_FAILURES, Job, JobSummary, Jobs, Phase, halted_by};
use eyas_sched::{ObjectLocations, Scheduler};
use eyas_types::{ExecutorId, ExecutorLoad, JobId, Name, ObjectId, TaskId, TaskResult, units};
use eyas_wire::view::{ExecutorView, JobReport, JobView, ObjectView, TaskView};

use super::explain::Explainer;
use super::shown::{command_of, item_text};
use super::{MAX_BYTES_SHOWN, MAX_NAMES, MAX_TASKS_SHOWN, ResultReader, check_task};
use crate::durable_replies::JobProgress;
use crate::executors::{ConnectedExecutor, ConnectedExecutors};
use crate::names::NamedFiles;
use crate::pools::CorePools;
use crate::records::JobRecords;
use crate::service::answer::{Answer, ServiceError, TaskQuery};

/// What callers see of the dispatcher's state.
#[derive(Clone, Copy)]
pub(crate) struct Views<'a> {
    pub now_us: u64,
    pub jobs: &'a Jobs,
    pub scheduler: &'a Scheduler,
    pub executors: &'a ConnectedExecutors,
    pub pools: &'a CorePools,
    pub records: &'a JobRecords,
    pub names: &'a NamedFiles,
    /// Name of the policy of placement.
    pub policy: &'a str,
}

impl<'a> Views<'a> {
    fn explainer(self) -> Explainer<'a> {
        Explainer(self)
    }

    /// A job that is in memory, or was loaded for this call.
    pub(crate) fn job(&self, id: JobId) -> Answer<&'a Job> {
        self.records.job(id, self.jobs).ok_or(ServiceError::NoSuchJob(id))
    }

    /// The last try of a task, if it has ended.
    pub(crate) fn result(&self, task: TaskId) -> Answer<Option<TaskResult>> {
        let job = self.job(task.job)?;
        check_task(job, task.index)?;
        Ok(ResultReader::in_full().last(self.records, job, task.index)?)
    }

    /// The state of a job, for clients that watch it.
    pub(crate) fn progress(&self, job: &Job) -> JobProgress {
        let (entries, dropped_results) = (job.entries(), job.dropped_results());
        let is_over = job.has_ended();
        JobProgress { view: self.of_job(job), entries, dropped_results, is_over }
    }

    /// The state of an archived job.
    pub(crate) fn progress_of_archived(&self, summary: &JobSummary) -> JobProgress {
        JobProgress {
            view: self.of_archived_job(summary),
            entries: summary.entries,
            dropped_results: summary.dropped_results,
            is_over: true,
        }
    }

    /// Jobs that have not ended.
    pub(crate) fn unfinished(&self) -> Vec<JobView> {
        self.jobs.all().filter(|job| !job.has_ended()).map(|job| self.of_job(job)).collect()
    }

    /// All jobs, the oldest first.
    pub(crate) fn jobs(&self) -> Vec<JobView> {
        let archived = self.jobs.archived().map(|summary| self.of_archived_job(summary));
        let mut views: Vec<_> =
            archived.chain(self.jobs.all().map(|job| self.of_job(job))).collect();
        views.sort_by_key(|view| view.job);
        views
    }

    /// An ended job that is not in memory.
    pub(crate) fn of_archived_job(&self, summary: &JobSummary) -> JobView {
        JobView {
            job: summary.job,
            name: summary.name.clone(),
            owner: summary.owner.clone(),
            state: summary.state,
            tasks: summary.counts,
            retried: summary.retried,
            reused: summary.reused,
            recomputed: summary.recomputed,
            peak_memory_bytes: summary.peak_memory_bytes,
            reads: summary.reads,
            submitted_unix_ms: summary.submitted_unix_ms,
            elapsed_us: summary.elapsed_us,
            executors: self.executors.len() as u64,
            capacity_milli: self.scheduler.utilisation().total_milli,
            is_stuck: false,
            is_output_cut: summary.lacked_output_room,
            warnings: self.why_output_was_cut(summary.lacked_output_room).into_iter().collect(),
        }
    }

    fn why_output_was_cut(&self, lacked_output_room: bool) -> Option<String> {
        let room = units::format_bytes(self.jobs.max_output_bytes());
        lacked_output_room.then(|| {
            format!(
                "output of its tasks was cut: the journal keeps at most {room} of all jobs; let \
                 tasks write files"
            )
        })
    }

    /// The job with what it does not know itself.
    pub(crate) fn of_job(&self, job: &Job) -> JobView {
        let mut view = JobView {
            job: job.id,
            name: job.spec.name.clone(),
            owner: job.spec.owner.clone(),
            state: job.state(),
            tasks: job.counts(),
            retried: job.retried,
            reused: job.reused,
            recomputed: job.recomputed,
            peak_memory_bytes: job.peak_memory_bytes,
            reads: job.reads(),
            submitted_unix_ms: job.spec.submitted_unix_ms,
            elapsed_us: job.time_us(self.now_us),
            executors: self.executors.len() as u64,
            capacity_milli: self.scheduler.utilisation().total_milli,
            is_stuck: false,
            is_output_cut: job.lacked_output_room(),
            warnings: self.why_output_was_cut(job.lacked_output_room()).into_iter().collect(),
        };
        view.warnings.extend(halted_by(job).map(why_halted));
        if job.has_ended() || job.counts().waiting == 0 {
            return view;
        }
        let (is_stuck, warnings) = self.explainer().why_stuck(job);
        view.is_stuck = is_stuck;
        view.warnings.extend(warnings);
        view
    }

    /// The first executors by their names.
    pub(super) fn names(&self, ids: &[ExecutorId]) -> String {
        let mut names: Vec<_> =
            ids.iter().take(MAX_NAMES).map(|id| self.executors.name(*id)).collect();
        if ids.len() > MAX_NAMES {
            names.push(format!("{} more", ids.len() - MAX_NAMES));
        }
        names.join(", ")
    }

    pub(crate) fn tasks(&self, job: &Job, query: TaskQuery) -> Vec<TaskView> {
        let TaskQuery { from, limit, failed } = query;
        let indices = from..job.tasks.len() as u32;
        let wanted =
            indices.filter(|index| !failed || job.tasks[*index as usize].phase == Phase::Failed);
        let mut results = ResultReader::default();
        let (mut views, mut bytes) = (Vec::new(), 0);
        for index in wanted.take(limit.min(MAX_TASKS_SHOWN) as usize) {
            let view = self.task(job, index, &mut results);
            bytes += view.item.len() + view.command.iter().map(|word| word.len()).sum::<usize>();
            views.push(view);
            if bytes >= MAX_BYTES_SHOWN {
                break;
            }
        }
        views
    }

    pub(super) fn task(&self, job: &Job, index: u32, results: &mut ResultReader) -> TaskView {
        let state = job.tasks[index as usize];
        let task = job.task_id(index);
        let result = results.last(self.records, job, index).ok().flatten();
        let tries = match &result {
            Some(result) => result.attempt + 1,
            None => self.scheduler.times_assigned(task),
        };
        let outcome = result.as_ref().map(|result| &result.outcome);
        let suspended_on = self.suspended_on(job, index);
        TaskView {
            task,
            id: job.template_at(index).id.clone(),
            state: if suspended_on.is_some() { "suspended" } else { state.phase.name() }.into(),
            priority: job.template_at(index).priority,
            item: item_text(&job.spec.items.head(index, 1)),
            command: command_of(job, index),
            tries,
            executor: match &result {
                Some(result) => Some(result.executor.clone()).filter(|name| !name.is_empty()),
                None => state.executor.map(|id| self.executors.name(id)),
            },
            status: outcome.map(|outcome| outcome.in_words(job.template_at(index).timeout_us)),
            queued_us: result.as_ref().map_or(0, |result| result.queued_us),
            waited_us: outcome.map_or(0, |outcome| outcome.waited_us),
            ran_us: outcome.map_or(0, |outcome| outcome.ran_us),
            suspended_us: outcome.map_or(0, |outcome| outcome.suspended_us),
            cpu_us: outcome.map_or(0, |outcome| outcome.cpu_us),
            peak_memory_bytes: outcome.map_or(0, |outcome| outcome.peak_memory_bytes),
            reused: outcome.and_then(|outcome| outcome.reused),
            estimate: outcome.and_then(|outcome| outcome.estimate),
            reads: outcome.map_or_else(Default::default, |outcome| outcome.reads),
        }
    }

    /// The executor on which a task is suspended.
    pub(super) fn suspended_on(&self, job: &Job, index: u32) -> Option<&ConnectedExecutor> {
        let state = &job.tasks[index as usize];
        let executor =
            self.executors.get(state.executor.filter(|_| state.phase == Phase::Assigned)?)?;
        executor.suspended.contains(&job.task_id(index)).then_some(executor)
    }

    pub(crate) fn executors(&self) -> Vec<ExecutorView> {
        let views = self.scheduler.explain_executors().into_iter();
        let views = views.filter_map(|view| {
            let executor = self.executors.get(view.executor)?;
            Some(ExecutorView {
                executor: view.executor,
                name: executor.name.clone(),
                host: executor.host.clone(),
                process: executor.process,
                labels: executor.labels.clone(),
                accept: executor.accept.clone(),
                capacity: view.capacity,
                assigned_milli: view.assigned_milli,
                assigned: view.in_flight as u64,
                state: self.state_of(view.executor, &executor.load).into(),
                computing: executor.load.computing.into(),
                staging: executor.load.staging.into(),
                suspended: executor.suspended.len() as u64,
                ended: executor.ended,
                objects: executor.held.len() as u64,
                held_bytes: executor.held_bytes,
                store_bytes: executor.store_bytes,
                free_disk_bytes: executor.free_disk_bytes,
                reads: executor.reads,
                silent_us: self.now_us.saturating_sub(executor.sign_of_life.last_us()),
                files: executor.files,
                proxy: executor.transfer.proxy,
            })
        });
        views.collect()
    }

    /// State of an executor, in a word.
    fn state_of(&self, executor: ExecutorId, load: &ExecutorLoad) -> &'static str {
        match load {
            _ if self.jobs.set_aside_until(executor).is_some() => "set aside",
            ExecutorLoad { computing: 1.., .. } => "computing",
            ExecutorLoad { staging: 1.., .. } => "staging",
            _ => "idle",
        }
    }

    pub(super) fn object(&self, view: &ObjectLocations, source: Option<Name>) -> ObjectView {
        ObjectView {
            object: view.object,
            source,
            size_bytes: view.size_bytes,
            holders: view.holders.iter().map(|holder| self.executors.name(*holder)).collect(),
            receivers: view
                .receivers
                .iter()
                .map(|receiver| self.executors.name(*receiver))
                .collect(),
            wanted: u64::from(view.wanted),
        }
    }

    /// Objects by id, or of a source: all versions that known jobs name.
    pub(crate) fn objects(&self, object: Option<ObjectId>, source: &Name) -> Vec<ObjectView> {
        let mut found: Vec<(ObjectId, Option<Name>, u64)> =
            object.iter().map(|id| (*id, None, 0)).collect();
        for (id, spec) in self.jobs.all().flat_map(Job::objects).chain(self.jobs.kept_objects()) {
            let is_meant = object == Some(id) || (object.is_none() && spec.source == *source);
            if is_meant && !found.iter().any(|(other, source, _)| *other == id && source.is_some())
            {
                found.retain(|(other, ..)| *other != id);
                found.push((id, Some(spec.source.clone()), spec.size_bytes()));
            }
        }
        let views = found.into_iter().filter_map(|(id, source, size_bytes)| {
            match self.scheduler.explain_object(id) {
                Some(view) => Some(self.object(&view, source)),
                None if source.is_some() => Some(ObjectView {
                    object: id,
                    source,
                    size_bytes,
                    holders: Vec::new(),
                    receivers: Vec::new(),
                    wanted: 0,
                }),
                None => None,
            }
        });
        views.collect()
    }

    pub(crate) fn report(&self, job: &Job) -> JobReport {
        let metrics = job.metrics(self.now_us);
        let mut view = self.of_job(job);
        if metrics.unsampled_us > 0 {
            view.warnings.push(format!(
                "samples of {} were lost when the dispatcher was restarted: figures that need all \
                 samples are left out",
                units::format_duration_us(metrics.unsampled_us)
            ));
        }
        JobReport {
            job: view,
            policy: self.policy.to_owned(),
            samples: job.samples().to_vec(),
            metrics,
            failures: self.failures(job, &[]),
            pools: self.pools.views(),
        }
    }
}

/// The warning about a job that has stopped because its first tasks have failed in this way.
fn why_halted(how: &str) -> String {
    format!(
        "the first {EQUAL_FAILURES} tasks ended in the same way ({how}), so the job stops. Mend \
         the cause and run the job again; to run all tasks whatever happens, add --halt never"
    )
}
