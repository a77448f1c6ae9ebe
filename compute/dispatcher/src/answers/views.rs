//! Jobs, tasks, executors and objects as clients are shown them.

use std::ops::Deref;

use eyas_jobs::{Job, JobSummary, Phase};
use eyas_sched::ObjectLocations;
use eyas_types::{ExecutorId, ExecutorLoad, Name, ObjectId, Resources, units};
use eyas_wire::view::{ExecutorView, JobReport, JobView, ObjectView, TaskView};

use super::explain::Explainer;
use super::shown::{command_of, item_text};
use super::{MAX_BYTES_SHOWN, MAX_NAMES, MAX_TASKS_SHOWN, ResultReader};
use crate::dispatcher_core::DispatcherCore;
use crate::executors::ConnectedExecutor;
use crate::service::answer::TaskQuery;

/// What callers see of the dispatcher's state.
#[derive(Clone, Copy)]
pub(crate) struct Views<'a>(&'a DispatcherCore);

impl Deref for Views<'_> {
    type Target = DispatcherCore;

    fn deref(&self) -> &DispatcherCore {
        self.0
    }
}

impl DispatcherCore {
    pub(crate) fn views(&self) -> Views<'_> {
        Views(self)
    }
}

impl<'a> Views<'a> {
    fn explainer(self) -> Explainer<'a> {
        Explainer(self)
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
            elapsed_us: job.time_us(self.clock.now_us()),
            executors: self.executors.len() as u64,
            capacity_milli: self.scheduler.utilisation().total_milli,
            is_stuck: false,
            is_output_cut: job.lacked_output_room(),
            warnings: self.why_output_was_cut(job.lacked_output_room()).into_iter().collect(),
        };
        if job.has_ended() || job.counts().waiting == 0 {
            return view;
        }
        view.warnings.extend(self.why_set_aside());
        if job.spec.needs().all(|need| self.explainer().may_get_nodes(&need)) {
            return view;
        }
        if let Some(why) = self.why_not_runnable(job) {
            view.is_stuck = true;
            view.warnings.push(why);
        } else if job.spec.needs().any(|need| self.scheduler.exceeds_disks(&need)) {
            // Tasks that have run may leave room when they end, or have left it since the last
            // report of the disk.
            view.is_stuck = view.tasks.waiting + view.tasks.blocked == view.tasks.total();
            view.warnings.push(
                "no executor has room on its disk for what the largest of its tasks reads and \
                 takes: make some, or start executors with less --keep-free"
                    .into(),
            );
        }
        view
    }

    /// Why no executor that is here can run some task of a job, whatever the room on their disks.
    fn why_not_runnable(&self, job: &Job) -> Option<String> {
        if self.executors.len() == 0 {
            return Some(match self.pools.are_on() {
                false => "no executor has joined: start some with `eyas start executor`".into(),
                true => job
                    .spec
                    .needs()
                    .flat_map(|need| self.explainer().why_no_node_comes(&need))
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
                "no executor is large enough for its tasks: they need {} cpus, {} of memory, {} of \
                 disk{}",
                f64::from(need.cpus_milli) / 1000.0,
                units::format_bytes(need.memory_bytes),
                units::format_bytes(need.disk_bytes),
                need.named
                    .iter()
                    .map(|(name, amount)| format!(", {amount} {name}"))
                    .collect::<String>()
            ));
        }
        self.is_matched_by_nobody(job).then(|| {
            "no executor matches the requirements of its tasks, or accepts them: `eyas explain` \
             says of a task why it waits"
                .into()
        })
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

    /// The first executors by their names.
    pub(super) fn names(&self, ids: &[ExecutorId]) -> String {
        let mut names: Vec<_> =
            ids.iter().take(MAX_NAMES).map(|id| self.executors.name(*id)).collect();
        if ids.len() > MAX_NAMES {
            names.push(format!("{} more", ids.len() - MAX_NAMES));
        }
        names.join(", ")
    }

    /// Whether there are tasks of the job that no executor will ever match.
    fn is_matched_by_nobody(&self, job: &Job) -> bool {
        let is_asked = job.spec.terms.iter().any(Option::is_some)
            || self.executors.iter().any(|(_, e)| e.accept.is_some());
        is_asked && job.spec.needs().any(|need| self.scheduler.is_unmatched(&need))
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
        let result = results.last(self, job, index).ok().flatten();
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
            status: outcome.map(|outcome| outcome.status.to_string()),
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
                silent_us: self.clock.now_us().saturating_sub(executor.sign_of_life.last_us()),
                files: executor.files,
                relay: executor.transfer.relay,
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
        let metrics = job.metrics(self.clock.now_us());
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
            policy: self.policy.clone(),
            samples: job.samples().to_vec(),
            metrics,
            failures: self.failures(job, &[]),
            pools: self.pools.views(),
        }
    }
}
