//! What the core does for callers of the service, call by call. What it answers is in `answers`.

use std::ops::Range;

use eyas_jobs::{self as jobs, Job, JobSpec, JobSummary, NewJob, Phase, Replay};
use eyas_sched::{Event, PushId};
use eyas_types::course::JobOwner;
use eyas_types::{JobId, ObjectId, OutputSpec, TaskId, TaskResult, units};
use eyas_wire::client::{KeptPart, PushRequest};
use eyas_wire::executor::ToExecutor;
use eyas_wire::printed::PrintedPosition;
use eyas_wire::view::PushView;
use tokio::sync::{oneshot, watch};

use super::DispatcherCore;
use crate::answers::changes::JobChange;
use crate::answers::printed::HasOutput;
use crate::answers::{Views, kept, printed};
use crate::durable_replies::JobProgress;
use crate::events::NewEvent;
use crate::log::{RecordNumber, StoredJob};
use crate::printed::PrintedNow;
use crate::pushes::PushError;
use crate::service::answer::{Answer, FilesNodes, ServiceError, StoppingCluster};
use crate::service::deliveries::{DeliveryQueue, JobDelivery};

impl DispatcherCore {
    /// What callers see of this state.
    pub(crate) fn views(&self) -> Views<'_> {
        Views {
            now_us: self.clock.now_us(),
            jobs: &self.jobs,
            scheduler: &self.scheduler,
            executors: &self.executors,
            pools: &self.pools,
            records: &self.records,
            names: &self.names,
            policy: &self.policy,
        }
    }

    // ---- jobs

    /// Accepts a job, which the log may have `stored` already; it is queued once it is on disk.
    pub(crate) fn submit(&mut self, new: NewJob, stored: Option<StoredJob>) -> Answer<JobId> {
        let spec = new.spec();
        if self.deadlines.is_stopping() {
            return Err(ServiceError::Stopping);
        }
        // Streams are held until the client has them, also by executors that keep nothing else.
        let is_kept = |output: &OutputSpec| output.replicas > 0 && !output.is_stream();
        let keeps = spec.templates.iter().flat_map(|template| &template.outputs).any(is_kept);
        let pushes = !spec.pushed().is_empty();
        if (keeps || pushes) && !self.caching {
            let otherwise =
                if keeps { "write outputs to persistent storage" } else { "do not push inputs" };
            return Err(ServiceError::NothingIsKept { policy: self.policy.clone(), otherwise });
        }
        if let Some(object) = new.kept_objects().find(|object| !self.jobs.lends(object.id())) {
            return Err(ServiceError::NotKept(object.source.clone()));
        }
        if let Some(stored) = stored {
            stored.keep();
        }
        let job = self.jobs.next_job();
        self.tell_jobs(jobs::Event::Submitted { job: Box::new(new) });
        Ok(job)
    }

    /// Answers a call as soon as all records that were appended so far are on disk.
    pub(crate) fn answer_durably<T: Send + 'static>(
        &mut self,
        answer: T,
        reply: oneshot::Sender<T>,
    ) {
        self.replies.answer(answer, reply);
    }

    /// The state of a job as it changes; what it counts is on disk.
    pub(crate) fn watch(&mut self, job: JobId) -> Answer<watch::Receiver<JobProgress>> {
        self.write_results();
        self.show(job);
        self.tell_jobs(jobs::Event::Watched { job });
        self.replies.watch(job).ok_or(ServiceError::NoSuchJob(job))
    }

    /// Changes a job, if it can be changed. Returns how many tasks or outputs that is about.
    pub(crate) fn change(
        &mut self,
        job: JobId,
        change: impl FnOnce(&Job) -> Answer<JobChange>,
    ) -> Answer<u64> {
        let JobChange { count, event, needs_job, told } = change(self.views().job(job)?)?;
        if needs_job {
            self.recall(job);
        }
        self.tell_jobs(event);
        told.into_iter().for_each(|event| self.replies.add_event(event));
        Ok(count)
    }

    /// The outputs that these tasks of a job keep for its user, or the first of them, and the
    /// executors that hold them. An output that no executor holds is made again. Executors check
    /// the `doubted` objects that they are said to hold.
    pub(crate) fn kept(
        &mut self,
        job: JobId,
        tasks: Range<u32>,
        doubted: &[ObjectId],
    ) -> Answer<KeptPart> {
        kept::check(self.views().job(job)?, &tasks)?;
        doubted.iter().for_each(|object| self.tell_scheduler(Event::Doubted { object: *object }));
        let (part, missing) = kept::part(self.views(), job, tasks);
        missing.into_iter().for_each(|object| self.tell_jobs(jobs::Event::ObjectWanted { object }));
        Ok(part)
    }

    /// Asks the executor of a task what the task has printed beyond a position, if it runs.
    pub(crate) fn read_printed(
        &mut self,
        task: TaskId,
        from: PrintedPosition,
    ) -> Answer<PrintedNow> {
        let (id, executor, is_suspended) = match printed::who_has_output(self.views(), task)? {
            HasOutput::NoExecutor(printed) => return Ok(PrintedNow::Known(printed)),
            HasOutput::Executor { id, name, is_suspended } => (id, name, is_suspended),
        };
        let (question, answer) = self.printed.ask(id).ok_or(ServiceError::TooManyFollow)?;
        self.executors.send(id, ToExecutor::ReadPrinted { question, task, from });
        Ok(PrintedNow::Asked { executor, is_suspended, answer })
    }

    /// All records up to this number are on disk.
    pub(super) fn durable(&mut self, number: RecordNumber) {
        while let Some(id) = self.records.next_accepted(number) {
            let Some(job) = self.jobs.get(id) else { continue };
            let tasks = units::format_count(job.tasks.len() as u64, "task");
            let what = format!("was submitted with {tasks}");
            self.replies.offer(id, self.views().progress(job));
            self.replies.add_event(NewEvent::of_job(id, &job.spec.name, "job-submitted", &what));
            self.tell_jobs(jobs::Event::Accepted { job: id });
            self.finish_pushes();
        }
        self.replies.durable(number);
    }

    /// Writes the results that have gathered.
    pub(crate) fn write_results(&mut self) {
        self.tell_jobs(jobs::Event::Flush);
    }

    /// Shows a job to its watchers. All its results were given to the journal.
    pub(super) fn show(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(id) {
            self.replies.show(id, self.views().progress(job));
        }
    }

    // ---- archived jobs

    /// Whether a job is archived, and must be read to answer requests about it.
    pub(crate) fn must_be_read(&self, job: JobId) -> bool {
        self.records.must_be_read(job, &self.jobs)
    }

    /// Takes an archived job that was read, unless the job has changed meanwhile.
    pub(crate) fn take_read(&mut self, replay: Replay) {
        self.records.take_read(replay, &self.jobs);
    }

    /// Takes an archived job that was read back into memory, so that it can continue.
    fn recall(&mut self, job: JobId) {
        if self.jobs.is_archived(job)
            && let Some(replay) = self.records.give_loaded(job)
        {
            self.tell_jobs(jobs::Event::Recovered { replay: Box::new(replay) });
        }
    }

    // ---- attached jobs

    /// Begins an attached job.
    pub(crate) fn attach(
        &mut self,
        name: String,
        owner: JobOwner,
        deliveries: DeliveryQueue,
    ) -> Answer<JobId> {
        if self.deadlines.is_stopping() {
            return Err(ServiceError::Stopping);
        }
        let job = self.jobs.next_job();
        let begun = NewEvent::of_job(job, &name, "job-submitted", "was begun by a client");
        let spec = JobSpec { name, owner, is_attached: true, ..JobSpec::default() };
        self.tell_jobs(jobs::Event::Attached { spec: Box::new(spec) });
        self.attached.begin(job, deliveries);
        if let Some(job) = self.jobs.get(job) {
            self.replies.offer(job.id, self.views().progress(job));
        }
        self.replies.add_event(begun);
        Ok(job)
    }

    /// Cancels the tasks of an attached job whose client is gone.
    pub(crate) fn detach(&mut self, job: JobId) {
        if !self.attached.leave(job) {
            return;
        }
        let tasks = 0..self.jobs.get(job).map_or(0, |job| job.tasks.len() as u32);
        self.tell_jobs(jobs::Event::Cancel { job, tasks });
        self.tell_jobs(jobs::Event::Closed { job });
    }

    /// Cancels the tasks of a job that no executor has. Returns how many that were.
    pub(crate) fn cancel_waiting(&mut self, job: JobId) -> Answer<u64> {
        let tasks = &self.views().job(job)?.tasks;
        let phases: Vec<_> = tasks.iter().map(|task| task.phase).collect();
        let waits = |phase: Phase| matches!(phase, Phase::Waiting | Phase::Blocked);
        let (mut first, mut count) = (0, 0);
        for part in phases.chunk_by(|one, other| waits(*one) == waits(*other)) {
            let end = first + part.len() as u32;
            if waits(part[0]) {
                count += part.len() as u64;
                self.tell_jobs(jobs::Event::Cancel { job, tasks: first..end });
            }
            first = end;
        }
        Ok(count)
    }

    /// Sends results to a client. A job whose client does not read them ends.
    pub(super) fn deliver(&mut self, job: JobId, results: Vec<TaskResult>) {
        if let Some(job) = self.attached.send(job, results) {
            self.detach(job);
        }
    }

    /// An attached job has ended, and is forgotten.
    pub(super) fn detached(&mut self, summary: &JobSummary) {
        let progress = self.views().progress_of_archived(summary);
        self.attached.end(summary.job, JobDelivery::Over(Box::new(progress.view.clone())));
        self.replies.show_last(summary.job, progress);
        let ended = NewEvent::end_of_job(summary.job, &summary.name, &summary.counts);
        self.replies.add_event(ended);
    }

    // ---- pushes

    /// Begins a client's push, and returns its state as it changes.
    pub(crate) fn push(
        &mut self,
        request: PushRequest,
    ) -> Result<watch::Receiver<PushView>, PushError> {
        if !self.caching {
            return Err(PushError::NoCaching(self.policy.clone()));
        }
        let (push, event, view) =
            self.pushes.begin(request, &self.jobs, &self.scheduler, &self.executors)?;
        self.tell_scheduler(event);
        self.pushes.show_one(push, &self.scheduler);
        Ok(view)
    }

    /// Nothing more is pushed.
    pub(super) fn end_push(&mut self, push: PushId) {
        self.tell_scheduler(Event::PushEnded { push });
        self.pushes.remove(push);
    }

    /// Goes on after pushes that are over: has waiting tasks queued.
    pub(super) fn finish_pushes(&mut self) {
        while let Some((push, of_job)) = self.pushes.next_over(&self.scheduler, &self.executors) {
            of_job.into_iter().for_each(|job| self.tell_jobs(jobs::Event::Pushed { job }));
            self.end_push(push);
        }
    }

    // ---- the cluster

    /// Nodes of the file system.
    pub(crate) fn files_nodes(&self) -> Answer<FilesNodes> {
        Ok(FilesNodes {
            nodes: self.executors.files_nodes(None),
            has_files: self.records.log().has_file_system()?,
            are_returning: self.jobs.awaits_executors(self.clock.now_us()),
        })
    }

    /// Forgets which the cluster's file system is.
    pub(crate) fn forget_files(&self) -> Answer<()> {
        if !self.executors.files_nodes(None).is_empty() {
            return Err(ServiceError::FilesNodesConnected);
        }
        Ok(self.records.log().forget_file_system()?)
    }

    /// Has an executor stop once its tasks have ended.
    pub(crate) fn stop_executor(&mut self, executor: &str) -> Answer<()> {
        let executor = self.executors.find(executor)?;
        self.tell_jobs(jobs::Event::ExecutorLeaves { executor });
        Ok(())
    }

    /// Begins to stop the cluster, and tells what stops.
    pub(crate) fn stop(&mut self) -> StoppingCluster {
        let of_executors = self.executors.iter().map(|(_, executor)| executor.incarnation.clone());
        let processes = of_executors.chain(self.processes.iter().cloned()).collect();
        let executors = self.executors.len() as u64;
        self.begin_to_stop();
        StoppingCluster { executors, processes }
    }

    /// Begins to stop the cluster.
    pub(super) fn begin_to_stop(&mut self) {
        self.deadlines.begin_to_stop(self.clock.now_us());
        let text = "the cluster is stopping".into();
        self.replies.add_event(NewEvent {
            kind: "cluster-stopping",
            job: None,
            executor: None,
            text,
        });
        self.pools.stop();
        self.tell_jobs(jobs::Event::Stopping);
        let executors: Vec<_> = self.executors.iter().map(|(id, _)| id).collect();
        for executor in executors {
            self.tell_scheduler(Event::ExecutorDraining { executor });
            self.executors.send(executor, ToExecutor::Stop);
        }
    }
}
