//! What clients ask: views of jobs, tasks, executors and objects, and why things are as they are.

use std::collections::HashMap;

use eyas_sched::{Mismatch, ObjectView as ScheduledObject, WaitReason};
use eyas_types::{Estimate, InputFrom, JobId, Load, Name, ObjectId, Resources, TaskId, TaskItem, units};
use eyas_wire::client::{FromClient, TaskResult, ToClient};
use eyas_wire::view::{ExecutorView, Explanation, JobReport, JobView, ObjectView, TaskView};

use crate::brain::Brain;
use crate::executors::Executor;
use crate::job::{Job, Left, Phase};
use crate::journal::Entry;

/// Tasks in one answer.
const MAX_TASKS_SHOWN: u32 = 10_000;
/// Executors in one sentence.
const MAX_NAMES: usize = 5;

/// Whether the answer tells of jobs, so that it must still be true after a crash.
pub(crate) fn is_of_jobs(request: &FromClient) -> bool {
    use FromClient::{Cancel, Explain, Jobs, Kept, Log, Release, Report, Retry, Tasks, Trace};
    matches!(
        request,
        Jobs { .. }
            | Tasks { .. }
            | Log { .. }
            | Explain { .. }
            | Report { .. }
            | Cancel { .. }
            | Retry { .. }
            | Release { .. }
            | Kept { .. }
            | Trace { .. }
    )
}

impl Brain {
    /// Answers anything but submissions and watches.
    pub(crate) fn answer(&mut self, request: FromClient) -> ToClient {
        match self.try_answer(request) {
            Ok(answer) => answer,
            Err(why) => ToClient::Refused(why),
        }
    }

    fn try_answer(&mut self, request: FromClient) -> Result<ToClient, String> {
        Ok(match request {
            FromClient::Jobs { job: None } => ToClient::Jobs(self.jobs.values().map(|job| self.view(job)).collect()),
            FromClient::Jobs { job: Some(job) } => ToClient::Jobs(vec![self.view(self.job(job)?)]),
            FromClient::Tasks { job, from, limit, failed } => {
                ToClient::Tasks(self.tasks(self.job(job)?, from, limit, failed))
            }
            FromClient::Log { task } => {
                self.check_task(task)?;
                let result = Results::default().last(self, self.job(task.job)?, task.index)?;
                ToClient::Log(result.map(Box::new))
            }
            FromClient::Explain { task } => ToClient::Explained(Box::new(self.explain(task)?)),
            FromClient::FilesNodes => ToClient::FilesNodes {
                nodes: self.executors.files_nodes(None),
                has_files: self.journal.has_file_system()?,
                are_returning: self.awaits_executors(),
            },
            FromClient::ForgetFiles => {
                if !self.executors.files_nodes(None).is_empty() {
                    return Err("executors that keep files are there: stop them all before, \
                                with `eyas executor stop NAME`"
                        .into());
                }
                self.journal.forget_file_system()?;
                ToClient::Done(0)
            }
            FromClient::Executors => ToClient::Executors(self.executor_views()),
            FromClient::Catalog { object, source } => ToClient::Objects(self.objects(object, &source)),
            FromClient::Report { job } => ToClient::Report(Box::new(self.report(self.job(job)?))),
            FromClient::Trace { job, from } => ToClient::Trace(self.trace(self.job(job)?, from)?),
            FromClient::Cancel { job, task } => {
                let tasks = match task {
                    Some(index) => {
                        self.check_task(TaskId { job, index })?;
                        index..index + 1
                    }
                    None => 0..self.job(job)?.tasks.len() as u32,
                };
                ToClient::Done(self.cancel(job, tasks))
            }
            FromClient::Retry { job } => {
                if !self.job(job)?.has_ended() {
                    return Err(format!("job {job} is still running: wait for its end, or cancel it first"));
                }
                if self.job(job)?.is_released {
                    return Err(format!("what job {job} kept in the cluster was released: submit it again"));
                }
                ToClient::Done(self.retry(job))
            }
            FromClient::Release { job } => {
                if !self.job(job)?.has_ended() {
                    return Err(format!("job {job} is still running and may read what it keeps: wait for its end"));
                }
                ToClient::Done(self.release_kept(job))
            }
            FromClient::Kept { job, from, to, doubted } => {
                if self.job(job)?.is_released {
                    return Err(format!("what job {job} kept in the cluster was released: submit it again"));
                }
                if to != u32::MAX {
                    self.check_task(TaskId { job, index: from })?;
                }
                ToClient::Kept(self.kept_part(job, from..to, &doubted))
            }
            FromClient::Stop => {
                let count = self.executors.len() as u64;
                self.begin_to_stop();
                ToClient::Done(count)
            }
            FromClient::StopExecutor { executor } => ToClient::Done(self.stop_executor(&executor)?),
            FromClient::Submit { .. }
            | FromClient::Objects(_)
            | FromClient::Items(_)
            | FromClient::Numbers { .. }
            | FromClient::Commit
            | FromClient::Withdraw => {
                return Err("a submission begins with `Submit` and ends with `Commit`".into());
            }
            FromClient::Watch { .. } | FromClient::Push(_) => {
                return Err("a watch or a push is for a connection of its own".into());
            }
        })
    }

    fn job(&self, id: JobId) -> Result<&Job, String> {
        self.jobs.get(&id).ok_or_else(|| format!("there is no job {id}: `eyas job list` shows those there are"))
    }

    fn check_task(&self, task: TaskId) -> Result<(), String> {
        match self.job(task.job)?.tasks.len() {
            0 => Err(format!("job {} has no tasks", task.job)),
            count if task.index as usize >= count => Err(format!(
                "there is no task {task}: job {} has tasks {} to {}",
                task.job,
                TaskId { index: 0, ..task },
                TaskId { index: count as u32 - 1, ..task }
            )),
            _ => Ok(()),
        }
    }

    /// Jobs that have not ended.
    pub(crate) fn unfinished(&self) -> Vec<JobView> {
        self.jobs.values().filter(|job| !job.has_ended()).map(|job| self.view(job)).collect()
    }

    /// The job with what it does not know itself.
    pub(crate) fn view(&self, job: &Job) -> JobView {
        let mut view = job.view();
        view.executors = self.executors.len() as u64;
        view.capacity_milli = self.scheduler.utilisation().total_milli;
        if job.lacked_output_room {
            view.warnings.push(format!(
                "output of its tasks was cut, as the journal keeps no more than {} of all jobs: let tasks write files",
                units::format_bytes(self.max_output_bytes)
            ));
        }
        if job.has_ended() || job.counts.waiting == 0 {
            return view;
        }
        if view.executors == 0 {
            view.is_stuck = true;
            view.warnings.push("no executor has joined: start some with `eyas start executor`".into());
        } else {
            let executors = self.scheduler.explain_executors();
            let too_large = |need: &&Resources| !executors.iter().any(|executor| executor.capacity.covers(need));
            if let Some(need) = job.spec.templates.iter().map(|template| &template.resources).find(too_large) {
                view.is_stuck = true;
                view.warnings.push(format!(
                    "no executor is large enough for its tasks: they need {} cpus, {} of memory, {} of disk{}",
                    f64::from(need.cpus_milli) / 1000.0,
                    units::format_bytes(need.memory_bytes),
                    units::format_bytes(need.disk_bytes),
                    need.named.iter().map(|(name, amount)| format!(", {amount} {name}")).collect::<String>()
                ));
            } else if self.is_matched_by_nobody(job) {
                view.is_stuck = true;
                view.warnings.push(
                    "no executor matches the requirements of its tasks, or accepts them: `eyas explain` says of a task \
                     why it waits"
                        .into(),
                );
            } else if job.spec.needs().any(|need| self.scheduler.is_without_disk(&need)) {
                view.warnings.push(
                    "no executor has room on its disk for what the largest of its tasks reads and takes: make some, or \
                     start executors with less --keep-free"
                        .into(),
                );
            }
        }
        view
    }

    /// Whether there are tasks of the job that no executor will ever match.
    fn is_matched_by_nobody(&self, job: &Job) -> bool {
        let is_asked =
            job.spec.terms.iter().any(Option::is_some) || self.executors.iter().any(|(_, e)| e.accept.is_some());
        is_asked && job.spec.needs().any(|need| self.scheduler.is_matched_by_nobody(&need))
    }

    fn tasks(&self, job: &Job, from: u32, limit: u32, failed: bool) -> Vec<TaskView> {
        let indices = from..job.tasks.len() as u32;
        let wanted = indices.filter(|index| !failed || job.tasks[*index as usize].phase == Phase::Failed);
        let mut results = Results::default();
        let views =
            wanted.take(limit.min(MAX_TASKS_SHOWN) as usize).map(|index| self.task_view(job, index, &mut results));
        views.collect()
    }

    fn task_view(&self, job: &Job, index: u32, results: &mut Results) -> TaskView {
        let state = job.tasks[index as usize];
        let task = job.task_id(index);
        let result = results.last(self, job, index).ok().flatten();
        let tries = match &result {
            Some(result) => result.attempt + 1,
            None => self.scheduler.explain_task(task).map_or(0, |view| view.assigned),
        };
        let outcome = result.as_ref().map(|result| &result.outcome);
        let suspended_on = self.suspended_on(job, index);
        TaskView {
            task,
            state: if suspended_on.is_some() { "suspended" } else { state.phase.name() }.into(),
            priority: job.template_at(index).priority,
            item: item_text(&job.spec.items.get(index)),
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
            reused: outcome.and_then(|outcome| outcome.reused),
            estimate: outcome.and_then(|outcome| outcome.estimate),
            reads: outcome.map_or_else(Default::default, |outcome| outcome.reads),
        }
    }

    /// Where a task is suspended, if it is.
    fn suspended_on(&self, job: &Job, index: u32) -> Option<&Executor> {
        let state = &job.tasks[index as usize];
        let executor = self.executors.get(state.executor.filter(|_| state.phase == Phase::Assigned)?)?;
        executor.suspended.contains(&job.task_id(index)).then_some(executor)
    }

    fn executor_views(&self) -> Vec<ExecutorView> {
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
                state: state_of(&executor.load).into(),
                computing: executor.load.computing.into(),
                staging: executor.load.staging.into(),
                suspended: executor.suspended.len() as u64,
                ended: executor.ended,
                objects: executor.held.len() as u64,
                held_bytes: executor.held_bytes,
                store_bytes: executor.store_bytes,
                free_disk_bytes: executor.free_disk_bytes,
                reads: executor.reads,
                silent_us: executor.last_heard.elapsed().as_micros() as u64,
                files: executor.files,
            })
        });
        views.collect()
    }

    fn object_view(&self, view: &ScheduledObject, source: Option<Name>) -> ObjectView {
        ObjectView {
            object: view.object,
            source,
            size_bytes: view.size_bytes,
            holders: view.holders.iter().map(|holder| self.executors.name(*holder)).collect(),
            receivers: view.receivers.iter().map(|receiver| self.executors.name(*receiver)).collect(),
            wanted: u64::from(view.wanted),
        }
    }

    /// Objects by id, or of a source: all versions that known jobs name.
    fn objects(&self, object: Option<ObjectId>, source: &Name) -> Vec<ObjectView> {
        let mut found: Vec<(ObjectId, Option<Name>, u64)> = object.iter().map(|id| (*id, None, 0)).collect();
        for (id, spec) in self.jobs.values().flat_map(Job::objects).chain(self.kept_objects()) {
            let is_meant = object == Some(id) || (object.is_none() && spec.source == *source);
            if is_meant && !found.iter().any(|(other, source, _)| *other == id && source.is_some()) {
                found.retain(|(other, ..)| *other != id);
                found.push((id, Some(spec.source.clone()), spec.size_bytes()));
            }
        }
        let views = found.into_iter().filter_map(|(id, source, size_bytes)| match self.scheduler.explain_object(id) {
            Some(view) => Some(self.object_view(&view, source)),
            None if source.is_some() => Some(ObjectView {
                object: id,
                source,
                size_bytes,
                holders: Vec::new(),
                receivers: Vec::new(),
                wanted: 0,
            }),
            None => None,
        });
        views.collect()
    }

    fn explain(&self, task: TaskId) -> Result<Explanation, String> {
        self.check_task(task)?;
        let job = self.job(task.job)?;
        let view = self.task_view(job, task.index, &mut Results::default());
        let mut because = Vec::new();
        let mut inputs = Vec::new();
        if let Some(scheduled) = self.scheduler.explain_task(task) {
            because.push(match (scheduled.executor, &scheduled.waits) {
                (Some(executor), _) => format!("It was given to {}.", self.executors.name(executor)),
                (None, Some(reason)) => self.why_waiting(reason),
                (None, None) => "It waits.".into(),
            });
            if let Some(executor) = self.suspended_on(job, task.index) {
                let name = &executor.name;
                because.push(format!("It is suspended there: tasks of higher priority have its processors on {name}."));
            }
            let item = job.spec.items.get(task.index);
            let sources: Vec<_> = job.inputs(&item).filter_map(|(_, object)| object).collect();
            for input in &scheduled.inputs {
                let source = sources.iter().find(|object| object.id() == input.object);
                inputs.push(self.object_view(input, source.map(|object| object.source.clone())));
            }
            if let Some(estimate) = &scheduled.estimate {
                because.push(format!("It was estimated to be done there {}.", in_words(estimate)));
            }
            if let Some(executor) = scheduled.executor {
                because.extend(self.where_inputs_were(executor, &scheduled.inputs));
            }
        } else {
            because.extend(self.why_not_scheduled(job, task, &view));
        }
        Ok(Explanation { task: view, because, inputs })
    }

    fn why_waiting(&self, reason: &WaitReason) -> String {
        let names = |ids: &[eyas_types::ExecutorId]| {
            let mut names: Vec<_> = ids.iter().take(MAX_NAMES).map(|id| self.executors.name(*id)).collect();
            if ids.len() > MAX_NAMES {
                names.push(format!("{} more", ids.len() - MAX_NAMES));
            }
            names.join(", ")
        };
        match reason {
            WaitReason::NoExecutors => {
                "It waits because no executor has joined: start some with `eyas start executor`.".into()
            }
            WaitReason::TooLarge => {
                "It waits because no executor has as much as it needs (see `eyas executor list`).".into()
            }
            WaitReason::Unmatched(mismatches) => {
                let all = self.executors.len();
                let parts: Vec<_> = mismatches.iter().map(|(what, on)| mismatch(what, *on)).collect();
                format!("It waits because no executor matches it now; of {all}, {}.", parts.join("; "))
            }
            WaitReason::Refused(by) => {
                format!("It waits because {} could not take it and the others are busy.", names(by))
            }
            WaitReason::SlotsTaken => "It waits because every executor that could take it is busy.".into(),
            WaitReason::ForHolders(holders) => format!(
                "It waits because policy {} keeps it for those that hold the most of its inputs, which are busy: {}.",
                self.policy,
                names(holders)
            ),
            WaitReason::Soonest { home, there, elsewhere } => {
                let (name, there) = (self.executors.name(*home), in_words(there));
                match elsewhere {
                    Some((other, estimate)) => format!(
                        "It waits for {name}, where it is done the soonest: {there}; on {}, which is free, {}.",
                        self.executors.name(*other),
                        in_words(estimate)
                    ),
                    None => format!(
                        "It waits because every executor that could take it is busy; {name} is likely to be the first to \
                         have done it: {there}."
                    ),
                }
            }
        }
    }

    fn where_inputs_were(&self, executor: eyas_types::ExecutorId, inputs: &[ScheduledObject]) -> Option<String> {
        let all: u64 = inputs.iter().map(|input| input.size_bytes).sum();
        let held = inputs.iter().filter(|input| input.holders.contains(&executor));
        let held: u64 = held.map(|input| input.size_bytes).sum();
        (!inputs.is_empty()).then(|| {
            format!("That executor holds {} of the {} it reads.", units::format_bytes(held), units::format_bytes(all))
        })
    }

    fn why_not_scheduled(&self, job: &Job, task: TaskId, view: &TaskView) -> Vec<String> {
        match (job.tasks[task.index as usize].phase, &view.status) {
            (Phase::Blocked, _) if !self.why_kept_inputs_lack(job, task.index).is_empty() => {
                self.why_kept_inputs_lack(job, task.index)
            }
            (Phase::Blocked, _) => {
                let waits_for = job.waits_for(task.index);
                let names: Vec<_> =
                    waits_for.iter().take(MAX_NAMES).map(|index| job.task_id(*index).to_string()).collect();
                vec![format!(
                    "It waits for the outputs of {} still to end: {} …",
                    units::format_count(waits_for.len() as u64, "task"),
                    names.join(", ")
                )]
            }
            (Phase::Waiting, _) => vec![match self.refusals.why_waiting(task) {
                Some(reason) => format!("It waits to be tried again, as no executor had room for it: {reason}."),
                None if self.is_pushed_first(job.id) => {
                    "It waits until its job's inputs are with all executors, along a spanning tree.".into()
                }
                None => "Its job is still being put into the queue.".into(),
            }],
            (_, Some(status)) => {
                let reads = &view.reads;
                let place = view.executor.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
                let mut because = vec![format!("It has ended{place}: {status}.")];
                because.extend(view.estimate.map(|estimate| {
                    let estimate = in_words(&estimate);
                    let [waited, ran] = [view.waited_us, view.ran_us].map(units::format_duration_us);
                    format!("It was estimated to be done there {estimate}; it waited {waited} there, and ran {ran}.")
                }));
                because.extend(view.reused.map(|task| format!("It did not run: this is the result of task {task}.")));
                let times = job.tasks[task.index as usize].recomputed;
                if times > 0 {
                    because.push(format!("It ran {times} times more, as what it kept in the cluster was lost."));
                }
                let is_missing = |(object, left): (_, &Left)| left.is_promised() && !self.scheduler.is_held(object);
                if job.kept_by(task.index).any(is_missing) {
                    because.push("No executor that is here has what it keeps in the cluster.".into());
                }
                if reads.count() > 0 {
                    because.push(format!(
                        "Its inputs came from the local store ({}), peers ({}) and persistent storage ({}).",
                        units::format_bytes(reads.local.bytes),
                        units::format_bytes(reads.peer.bytes),
                        units::format_bytes(reads.persistent.bytes)
                    ));
                }
                because
            }
            (phase, None) => vec![format!("It is {}.", phase.name())],
        }
    }

    /// Why a blocked task waits for tasks that had succeeded before.
    fn why_kept_inputs_lack(&self, job: &Job, index: u32) -> Vec<String> {
        let why = |producer: u32| {
            let (task, state) = (job.task_id(producer), job.tasks[producer as usize]);
            match (state.phase, state.recomputed) {
                (Phase::Succeeded, _) => Some(format!(
                    "It waits for the output of task {task}, which no executor that is here has just now."
                )),
                (_, 0) => None,
                (_, times) => Some(format!(
                    "It waits for the output of task {task}, which was lost with the executors that kept it: that task \
                     runs again (repetition {times})."
                )),
            }
        };
        job.waits_for(index).into_iter().filter_map(why).take(MAX_NAMES).collect()
    }

    fn report(&self, job: &Job) -> JobReport {
        JobReport {
            job: self.view(job),
            policy: self.policy.clone(),
            samples: job.course.samples().to_vec(),
            metrics: job.course.metrics(job.elapsed_us()),
            failures: job.failures.clone(),
        }
    }

    fn stop_executor(&mut self, executor: &str) -> Result<u64, String> {
        self.let_leave(self.executors.find(executor)?);
        Ok(1)
    }
}

/// What keeps a task from how many executors.
fn mismatch(what: &Mismatch, on: u32) -> String {
    match what {
        Mismatch::TooSmall => format!("{on} have less than it takes"),
        Mismatch::Requirement(part) => format!("{on} do not meet `{part}`"),
        Mismatch::Accept(part) => format!("{on} accept only tasks with `{part}`"),
        Mismatch::Error(part, why) => format!("on {on} `{part}` cannot be told ({why})"),
        Mismatch::Disk => format!("{on} have no room on their disk for what it reads and takes"),
    }
}

/// How soon a task would be done, and why.
fn in_words(estimate: &Estimate) -> String {
    let Estimate { wait_us, transfer_us, compute_us } = *estimate;
    let parts = [(wait_us, "until a slot is free"), (transfer_us, "to fetch inputs"), (compute_us, "to compute")];
    let parts: Vec<_> = parts.iter().map(|(us, what)| format!("{} {what}", units::format_duration_us(*us))).collect();
    format!("in {} ({})", units::format_duration_us(estimate.finish_us()), parts.join(", "))
}

/// Results as they are looked up: neighbours are in one journal entry, which is read once.
#[derive(Default)]
pub(crate) struct Results {
    entry: Option<(JobId, u64)>,
    results: HashMap<u32, TaskResult>,
}

impl Results {
    /// A task's last result, if it has ended.
    pub fn last(&mut self, brain: &Brain, job: &Job, index: u32) -> Result<Option<TaskResult>, String> {
        let Some(entry) = job.entry_of(index) else { return Ok(None) };
        if entry >= job.entries {
            return Ok(job.pending.last(index).cloned());
        }
        if let Some(entry) = job.being_written(entry) {
            return Ok(entry.results().iter().rev().find(|result| result.index == index).cloned());
        }
        if self.entry != Some((job.id, entry)) {
            self.entry = Some((job.id, entry));
            let read = brain.journal.read(job.id, entry, entry + 1)?;
            self.results =
                read.into_iter().flat_map(Entry::into_results).map(|result| (result.index, result)).collect();
        }
        Ok(self.results.get(&index).cloned())
    }
}

/// What an executor does, in a word.
fn state_of(load: &Load) -> &'static str {
    match load {
        Load { computing: 1.., .. } => "computing",
        Load { staging: 1.., .. } => "staging",
        _ => "idle",
    }
}

fn item_text(item: &TaskItem) -> Name {
    let values: Vec<_> = item.values.iter().map(|value| value.text.as_bytes()).collect();
    match (values.is_empty(), item.inputs.first()) {
        (true, Some(input)) => match input.from {
            InputFrom::Output { task, .. } => format!("output of task {task}").into(),
            InputFrom::Object(_) => Name::default(),
        },
        _ => values.join(&b' ').into(),
    }
}
