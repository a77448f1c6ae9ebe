//! The one owner of the dispatcher's state. Messages come in from sessions and the journal; it never waits for any.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eyas_sched::{Effect, Event, Profile, Scheduler};
use eyas_session::Outbox;
use eyas_types::dfs::FileSystemId;
use eyas_types::matching::Expression;
use eyas_types::outcome::FailureKind;
use eyas_types::{ExecutorId, JobId, Load, ObjectId, Outcome, Status, TaskId};
use eyas_wire::client::{FromClient, PushRequest, ToClient};
use eyas_wire::executor::{FilesNode, FilesPlace, FromExecutor, Registration, ToExecutor};
use eyas_wire::view::PushView;
use tokio::sync::{mpsc, oneshot, watch};

use crate::answers::is_of_jobs;
use crate::executors::{Executor, Executors};
use crate::job::{Job, JobSpec, SAMPLE_EVERY};
use crate::journal::{Journal, Written};
use crate::refusals::Refusals;
use crate::reuse::Reuse;
use crate::told::{Standing, Told};
use kept::Kept;
use push::Pushes;

/// Messages handled before results are written and other things are looked at.
const HANDLED_AT_ONCE: usize = 256;
/// A task that may have run on so many executors when they were lost is not given to another.
const MAX_LOSSES: u16 = 5;
/// An executor that was not heard of for so many heartbeats is lost.
const MISSED_HEARTBEATS: u32 = 4;
/// Once told to stop, executors have so long to leave.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

mod jobs;
mod kept;
mod push;
mod reuse;
mod tasks;
#[cfg(test)]
mod tests;

/// What the brain is told.
pub(crate) enum Message {
    Joined {
        registration: Box<Registration>,
        /// What it accepts, compiled.
        accept: Box<[Arc<dyn Expression>]>,
        outbox: Outbox<ToExecutor>,
        reply: oneshot::Sender<ExecutorId>,
    },
    Said {
        executor: ExecutorId,
        messages: Vec<FromExecutor>,
    },
    Gone {
        executor: ExecutorId,
    },
    Submitted {
        spec: Box<JobSpec>,
        reply: oneshot::Sender<ToClient>,
    },
    Asked {
        request: FromClient,
        reply: oneshot::Sender<ToClient>,
    },
    Watched {
        job: JobId,
        reply: oneshot::Sender<Option<watch::Receiver<Standing>>>,
    },
    Push {
        request: PushRequest,
        reply: oneshot::Sender<Result<watch::Receiver<PushView>, String>>,
    },
}

pub(crate) struct Brain {
    pub(crate) scheduler: Scheduler,
    pub(crate) policy: String,
    caching: bool,
    heartbeat: Duration,
    pub(crate) executors: Executors,
    pub(crate) jobs: BTreeMap<JobId, Job>,
    next_job: u32,
    pub(crate) journal: Journal,
    told: Told,
    /// Captured output that the journal keeps, and may keep.
    output_bytes: u64,
    pub(crate) max_output_bytes: u64,
    /// Results were put to be written and are not on disk yet.
    writing: bool,
    /// Jobs with tasks that are not queued yet.
    queueing: Vec<JobId>,
    pub(crate) refusals: Refusals,
    kept: Kept,
    pushes: Pushes,
    reuse: Reuse,
    effects: Vec<Effect>,
    stopping: Option<Instant>,
    last_tick: Instant,
}

impl Brain {
    pub fn new(scheduler: Scheduler, policy: String, caching: bool, heartbeat: Duration, journal: Journal) -> Self {
        Brain {
            scheduler,
            policy,
            caching,
            heartbeat,
            executors: Executors::default(),
            jobs: BTreeMap::new(),
            next_job: 1,
            journal,
            told: Told::default(),
            output_bytes: 0,
            max_output_bytes: jobs::MAX_JOURNAL_OUTPUT_BYTES,
            writing: false,
            queueing: Vec::new(),
            refusals: Refusals::default(),
            kept: Kept::default(),
            pushes: Pushes::default(),
            reuse: Reuse::default(),
            effects: Vec::new(),
            stopping: None,
            last_tick: Instant::now(),
        }
    }

    /// Works until the cluster is stopped.
    pub async fn run(
        mut self,
        mut inbox: mpsc::Receiver<Message>,
        mut on_disk: mpsc::UnboundedReceiver<Vec<Written>>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(SAMPLE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let has_more_to_queue = !self.queueing.is_empty();
            tokio::select! {
                biased;
                _ = ticks.tick() => self.tick(),
                Ok(()) = stop.changed(), if self.stopping.is_none() => self.begin_to_stop(),
                Some(written) = on_disk.recv() => self.written(&written),
                message = inbox.recv() => match message {
                    Some(message) => self.handle(message),
                    None => break,
                },
                () = std::future::ready(()), if has_more_to_queue => self.queue_more(),
            }
            // Everything that has gathered is looked at before results are written, and results gather while others are
            // being written, so that entries are large when there is much to write.
            for _ in 0..HANDLED_AT_ONCE {
                let Ok(message) = inbox.try_recv() else { break };
                self.handle(message);
            }
            self.executors.flush();
            let cannot_wait = self.stopping.is_some() || self.jobs.values().any(|job| job.pending.has_full_entry());
            if !self.writing || cannot_wait {
                self.write_results();
            }
            if self.stopping.is_some_and(|since| self.executors.len() == 0 || since.elapsed() > STOP_DEADLINE) {
                break;
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Joined { registration, accept, outbox, reply } => {
                self.joined(&registration, accept, outbox, reply);
            }
            Message::Said { executor, messages } => {
                for message in messages {
                    self.said(executor, message);
                }
            }
            Message::Gone { executor } => self.lost(executor, true),
            Message::Submitted { spec, reply } => self.submitted(*spec, reply),
            Message::Asked { request, reply } => {
                let is_of_jobs = is_of_jobs(&request);
                let answer = self.answer(request);
                if is_of_jobs {
                    // What it tells must not be lost.
                    self.write_results();
                    self.told.answer(answer, reply);
                } else {
                    // Who asked may have gone away.
                    let _ = reply.send(answer);
                }
            }
            Message::Watched { job, reply } => {
                self.write_results();
                self.show(job);
                let _ = reply.send(self.told.watch(job));
            }
            Message::Push { request, reply } => {
                // Who asked may have gone away.
                let _ = reply.send(self.push(request));
            }
        }
        self.look_for_kept();
        self.finish_pushes();
        self.executors.flush();
    }

    /// Tells the scheduler what happened and does what it decides.
    fn tell(&mut self, event: Event) {
        let mut effects = std::mem::take(&mut self.effects);
        self.scheduler.handle(event, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Assign { executor, task, attempt, hints } => self.assign(executor, task, attempt, &hints),
                Effect::Recall { executor, task } => self.executors.send(executor, ToExecutor::Recall { task }),
                Effect::Cancel { executor, task } => self.executors.send(executor, ToExecutor::Cancel { task }),
                Effect::Hold { executor, object, holders } => self.have_held(executor, object, &holders),
                Effect::Release { executor, object } => self.executors.send(executor, ToExecutor::Release { object }),
                Effect::Verify { executor, object } => self.executors.send(executor, ToExecutor::Verify { object }),
                Effect::Pushed { push } => self.pushes.is_over(push),
                Effect::Lost { object } => self.kept.lost(object),
                Effect::Unplaceable { task } => {
                    if let Err(why) = self.refusals.by_all(task, Instant::now()) {
                        self.end(task, 0, String::new(), Outcome::failed(FailureKind::Unplaceable, why));
                    }
                }
            }
        }
        self.effects = effects;
    }

    // ---- executors

    /// Where an executor's node of the file system belongs. The first there ever was begins it, or has said which it is.
    fn files_place(&self, id: ExecutorId, files: &FilesNode) -> Option<FilesPlace> {
        let own = FileSystemId::founded_by(files.node);
        match self.journal.file_system(files.system.unwrap_or(own)) {
            Ok(system) => {
                Some(FilesPlace { system, founds: system == own, nodes: self.executors.files_nodes(Some(id)) })
            }
            Err(why) => {
                tracing::error!("cannot tell which the cluster's file system is: {why}");
                None
            }
        }
    }

    fn joined(
        &mut self,
        registration: &Registration,
        accept: Box<[Arc<dyn Expression>]>,
        outbox: Outbox<ToExecutor>,
        reply: oneshot::Sender<ExecutorId>,
    ) {
        let id = self.executors.join(registration, outbox);
        tracing::info!(executor = %id, name = registration.name, held = registration.held.len(), "joined");
        let heartbeat_us = self.heartbeat.as_micros() as u64;
        // Shorter than it takes to count as lost.
        let lease_us = heartbeat_us * u64::from(MISSED_HEARTBEATS - 1);
        let files = registration.files.as_ref().and_then(|files| self.files_place(id, files));
        let is_of_another = |files: &FilesNode, place: &FilesPlace| files.system.is_some_and(|own| own != place.system);
        if let (Some(node), Some(place)) = (&registration.files, &files)
            && is_of_another(node, place)
            && let Some(entry) = self.executors.get_mut(id)
        {
            // Nobody is to find it; it hears why.
            entry.files = None;
        }
        let caching = self.caching;
        let welcome = ToExecutor::Welcome { executor: id, caching, heartbeat_us, lease_us, files };
        self.executors.send(id, welcome);
        let _ = reply.send(id);
        if self.stopping.is_some() {
            self.executors.send(id, ToExecutor::Stop);
            return;
        }
        self.executors.tell_lost(id);
        let held = if self.caching { &registration.held[..] } else { &[] };
        if let Some(entry) = self.executors.get_mut(id) {
            held.iter().for_each(|(object, size_bytes)| entry.stored(*object, *size_bytes));
        }
        let capacity = registration.capacity.clone();
        let name = self.executors.name(id).into();
        let (host, labels) = (registration.host.as_str().into(), registration.labels.clone());
        let profile = Box::new(Profile { name, host, labels, accept });
        self.tell(Event::ExecutorJoined { executor: id, capacity, profile, held: held.into() });
        held.iter().for_each(|(object, _)| self.found(*object));
    }

    fn said(&mut self, executor: ExecutorId, message: FromExecutor) {
        let Some(entry) = self.executors.get_mut(executor) else { return };
        entry.last_heard = Instant::now();
        match message {
            FromExecutor::Register(_) => tracing::warn!(%executor, "registered twice"),
            FromExecutor::Heartbeat { free_disk_bytes } => {
                entry.free_disk_bytes = Some(free_disk_bytes);
                self.executors.send(executor, ToExecutor::Heard);
                self.tell(Event::FreeDisk { executor, bytes: free_disk_bytes });
            }
            FromExecutor::Stored { object, size_bytes } => self.stored(executor, object, size_bytes),
            FromExecutor::Fetched { object, from, took_us } => {
                self.tell(Event::Fetched { executor, object, from, took_us });
            }
            FromExecutor::Evicted { object } => {
                entry.evicted(object);
                self.tell(Event::Evicted { executor, object });
            }
            FromExecutor::NotHeld { object, reason } => {
                entry.evicted(object);
                self.not_pushed(executor, object, &reason);
                self.tell(Event::NotHeld { executor, object });
            }
            FromExecutor::Load(load) => {
                entry.load = load;
                let Load { lent_milli, light_bytes, .. } = load;
                self.tell(Event::Staging { executor, lent_milli, light_bytes });
            }
            FromExecutor::Suspended { task } => _ = entry.suspended.insert(task),
            FromExecutor::Resumed { task } => _ = entry.suspended.remove(&task),
            FromExecutor::Ended { task, attempt, outcome } => self.task_ended(executor, task, attempt, *outcome),
            FromExecutor::Returned { task, attempt } => self.task_returned(executor, task, attempt),
            FromExecutor::Claim { task, places, .. } => self.claim(executor, task, places),
            FromExecutor::Checked { task, is_unchanged } => self.checked(executor, task, is_unchanged),
            FromExecutor::Retiring => self.let_leave(executor),
            FromExecutor::Leaving => {
                tracing::info!(%executor, "leaves");
                self.lost(executor, false);
            }
        }
    }

    fn stored(&mut self, executor: ExecutorId, object: ObjectId, size_bytes: u64) {
        if let Some(entry) = self.executors.get_mut(executor) {
            entry.stored(object, size_bytes);
        }
        self.tell(Event::Stored { executor, object, size_bytes });
        self.found(object);
    }

    /// An executor is gone. If it did not say so itself, its tasks may be why.
    fn lost(&mut self, executor: ExecutorId, is_loss: bool) {
        let Some(gone) = self.executors.leave(executor) else { return };
        if is_loss {
            self.executors.lost(&gone);
        }
        self.reuse.lost(executor);
        self.send_checks();
        // Ends below leave room on it, which is not to be filled.
        self.tell(Event::ExecutorDraining { executor });
        let tasks = self.scheduler.tasks_of(executor);
        let suspects = if is_loss { self.may_have_run(&tasks, &gone) } else { BTreeSet::new() };
        for task in tasks {
            let Some(job) = self.jobs.get_mut(&task.job) else { continue };
            let state = &mut job.tasks[task.index as usize];
            state.losses += u16::from(suspects.contains(&task));
            let outcome = if job.cancelling.contains(&task.index) {
                Outcome::of(Status::Cancelled)
            } else if state.losses >= MAX_LOSSES {
                let reason = format!("{MAX_LOSSES} executors were lost while they had it, the last was {}", gone.name);
                Outcome::failed(FailureKind::Node, reason)
            } else {
                continue;
            };
            self.tell(Event::TaskDropped { task });
            self.end(task, 0, gone.name.clone(), outcome);
        }
        for task in self.scheduler.tasks_of(executor) {
            if let Some(job) = self.jobs.get_mut(&task.job) {
                job.unassigned(task.index);
            }
        }
        self.tell(Event::ExecutorLeft { executor });
        tracing::info!(%executor, name = gone.name, "has left");
    }

    /// Which of an executor's tasks may have run: of higher priority first, and in the order in which it was given them,
    /// those that fit in it together, where those that it stages or has suspended take no processors. Others were lined up
    /// behind them, and had no part in its loss.
    fn may_have_run(&self, tasks: &[TaskId], gone: &Executor) -> BTreeSet<TaskId> {
        let mut in_order: Vec<_> = tasks.iter().filter_map(|task| Some((self.jobs.get(&task.job)?, *task))).collect();
        in_order
            .sort_by_key(|(job, task)| (Reverse(job.template_at(task.index).priority), job.assigned_at(task.index)));
        let mut free = gone.capacity.clone();
        let suspended = tasks.iter().filter(|task| gone.suspended.contains(task));
        let suspended = suspended.filter_map(|task| Some(self.jobs.get(&task.job)?.template_at(task.index)));
        let lent_milli: u64 = suspended.map(|template| u64::from(template.resources.cpus_milli)).sum();
        let lent_milli = u32::try_from(lent_milli + gone.load.lent_milli).unwrap_or(u32::MAX);
        free.cpus_milli = free.cpus_milli.saturating_add(lent_milli);
        let fits = |(job, task): &(&Job, TaskId)| {
            let need = &job.template_at(task.index).resources;
            let fits = free.covers(need);
            if fits {
                free.take(need);
            }
            fits
        };
        in_order.into_iter().filter(fits).map(|(_, task)| task).collect()
    }

    // ---- time

    fn tick(&mut self) {
        // While the dispatcher itself stood still (suspended, or waiting for its disk), nobody could be heard.
        let stood_still = self.last_tick.elapsed().saturating_sub(SAMPLE_EVERY);
        self.last_tick = Instant::now();
        if stood_still > self.heartbeat / 2 {
            self.executors.forgive(stood_still);
        }
        let now = self.scheduler.utilisation();
        let executors = self.executors.len() as u64;
        let running: Vec<_> = self.jobs.values().filter(|job| !job.has_ended()).map(|job| job.id).collect();
        for id in running {
            if let Some(job) = self.jobs.get_mut(&id) {
                let (now_us, counts) = (job.now_us(), job.counts);
                job.course.tick(now_us, false, counts.waiting, counts.assigned, executors, now);
            }
            // What gathers is written soon, and shown then.
            if self.told.is_watched(id) && self.jobs[&id].pending.is_empty() {
                self.show(id);
            }
        }
        let deadline = self.heartbeat * MISSED_HEARTBEATS;
        let is_lost = |executor: &Executor| executor.is_deaf || executor.last_heard.elapsed() > deadline;
        let lost: Vec<_> = self.executors.iter().filter(|(_, e)| is_lost(e)).map(|(id, _)| id).collect();
        for executor in lost {
            tracing::warn!(%executor, "does not read, or was not heard of for {deadline:?}");
            self.lost(executor, true);
        }
        self.queue_refused();
        self.wait_for_kept();
        self.look_for_kept();
        self.finish_pushes();
        self.show_pushes();
        self.forget_old_jobs(0);
    }

    fn stop_one(&mut self, executor: ExecutorId) {
        self.tell(Event::ExecutorDraining { executor });
        self.executors.send(executor, ToExecutor::Stop);
    }

    pub(crate) fn begin_to_stop(&mut self) {
        self.stopping = Some(Instant::now());
        let executors: Vec<_> = self.executors.iter().map(|(id, _)| id).collect();
        for executor in executors {
            self.stop_one(executor);
        }
    }
}
