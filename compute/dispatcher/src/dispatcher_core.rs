//! The one owner of the dispatcher's state. Sessions and the journal send it messages; it never
//! waits for them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use eyas_dispatch::Exchange;
use eyas_jobs::{self as jobs, Jobs, JournalRecord};
use eyas_pools::PoolOrder;
use eyas_sched::{Event, ExecutorProfile, Scheduler};
use eyas_session::Outbox;
use eyas_types::matching::Expression;
use eyas_types::{ExecutorId, ExecutorLoad, ObjectId};
use eyas_wire::executor::{FromExecutor, Registration, ToExecutor};
use tokio::sync::oneshot;

use crate::answers::ResultReader;
use crate::attached_clients::AttachedClients;
use crate::clock::Clock;
use crate::deadlines::Deadlines;
use crate::durable_replies::DurableReplies;
use crate::events::NewEvent;
use crate::executors::ConnectedExecutors;
use crate::journal::JournalError;
use crate::log::Log;
use crate::names::NamedFiles;
use crate::pools::{AfterOrder, CorePools, ReportedCluster};
use crate::printed::PrintedReplies;
use crate::pushes::ActivePushes;
use crate::records::JobRecords;
use crate::sign_of_life::SignOfLife;

mod calls;
mod deciders;
mod message;
mod run;
#[cfg(test)]
mod tests;

pub(crate) use self::message::CoreMessage;
pub(crate) use self::run::{CoreInbox, run};

/// A call that the owner of the state carries out.
pub(crate) type CoreCall = Box<dyn FnOnce(&mut DispatcherCore) + Send>;

/// Settings of the core.
pub(crate) struct CoreConfig {
    /// Name of the policy of placement.
    pub policy: String,
    /// Whether executors keep objects under that policy.
    pub caching: bool,
    /// Time between heartbeats of an executor.
    pub heartbeat: Duration,
    /// Names of this process and of its owner.
    pub processes: Vec<String>,
}

pub(crate) struct DispatcherCore {
    clock: Clock,
    scheduler: Scheduler,
    jobs: Jobs,
    /// Passes on what the two deciders say to each other.
    exchange: Exchange,
    /// Whether effects of the deciders are being carried out.
    is_at_work: bool,
    policy: String,
    caching: bool,
    /// Names of this process and of its owner.
    processes: Vec<String>,
    pub(crate) executors: ConnectedExecutors,
    records: JobRecords,
    /// The places of named inputs.
    names: Arc<NamedFiles>,
    /// Executors that put a file from their node's own disk into their store, for others. They hold
    /// it until it is there.
    own_disk_reads: BTreeSet<(ExecutorId, ObjectId)>,
    pub(crate) replies: DurableReplies,
    attached: AttachedClients,
    printed: PrintedReplies,
    pushes: ActivePushes,
    pub(crate) pools: CorePools,
    deadlines: Deadlines,
    /// Reads what tasks are ended with that need not run. Thousands of results share a journal
    /// entry, which is read once while effects are being carried out.
    reused_results: ResultReader,
}

impl DispatcherCore {
    pub fn new(
        config: CoreConfig,
        scheduler: Scheduler,
        log: Arc<dyn Log>,
        names: Arc<NamedFiles>,
    ) -> Self {
        let clock = Clock::new();
        let CoreConfig { policy, caching, heartbeat, processes } = config;
        DispatcherCore {
            clock,
            scheduler,
            jobs: Jobs::new(jobs::Config::default(), clock.now_us()),
            exchange: Exchange::default(),
            is_at_work: false,
            policy,
            caching,
            processes,
            executors: ConnectedExecutors::default(),
            records: JobRecords::new(log),
            names,
            own_disk_reads: BTreeSet::new(),
            replies: DurableReplies::new(clock),
            attached: AttachedClients::default(),
            printed: PrintedReplies::default(),
            pushes: ActivePushes::default(),
            pools: CorePools::new(),
            deadlines: Deadlines::new(heartbeat, clock.now_us()),
            reused_results: ResultReader::in_full(),
        }
    }

    /// Reads the jobs of the journal. Jobs that had not ended continue.
    pub fn recover(&mut self) -> Result<(), JournalError> {
        for (id, summary) in self.records.log().jobs()? {
            if let Some(summary) = summary {
                self.replies.offer(id, self.views().progress_of_archived(&summary));
                self.tell_jobs(jobs::Event::RecoveredSummary { summary: Box::new(summary) });
                continue;
            }
            let replay = self.records.log().replay(id)?;
            self.tell_jobs(jobs::Event::Recovered { replay: Box::new(replay) });
            let Some(job) = self.jobs.get(id) else { continue };
            if !job.has_ended() {
                tracing::info!(
                    job = %id, ended = job.counts().ended(), of = job.counts().total(),
                    "goes on"
                );
            }
            self.replies.offer(id, self.views().progress(job));
        }
        self.finish_pushes();
        Ok(())
    }

    fn handle(&mut self, message: CoreMessage) {
        match message {
            CoreMessage::Joined { registration, minor, accept, outbox, reply } => {
                self.joined((&registration, minor), accept, outbox, reply);
            }
            CoreMessage::Messages { executor, messages } => {
                if let Some(entry) = self.executors.get(executor) {
                    entry.sign_of_life.note_at(self.clock.now_us());
                }
                for message in messages {
                    self.handle_message(executor, message);
                }
            }
            CoreMessage::Gone { executor } => self.lost(executor, true),
        }
        self.settle_executors();
    }

    /// A caller of the service asks for something.
    fn answer_call(&mut self, call: CoreCall) {
        call(self);
        self.settle_executors();
    }

    fn settle_executors(&mut self) {
        self.let_leave_those_that_may();
        self.finish_pushes();
        self.executors.flush();
    }

    // ---- executors

    fn joined(
        &mut self,
        (registration, minor): (&Registration, u16),
        accept: Box<[Arc<dyn Expression>]>,
        outbox: Outbox<ToExecutor>,
        reply: oneshot::Sender<(ExecutorId, Arc<SignOfLife>)>,
    ) {
        let id = self.executors.join((registration, minor), outbox, self.clock);
        tracing::info!(
            executor = %id, name = registration.name, held = registration.held.len(),
            "joined"
        );
        let files = registration.files.as_ref().and_then(|files| {
            let system = self.records.file_system_of(files)?;
            Some(self.executors.take_into(system, id, files))
        });
        self.add_executor_event(id, "executor-joined", "has joined");
        let (heartbeat_us, lease_us) = (self.deadlines.heartbeat_us(), self.deadlines.lease_us());
        let caching = self.caching;
        let welcome = ToExecutor::Welcome { executor: id, caching, heartbeat_us, lease_us, files };
        self.executors.send(id, welcome);
        self.executors.tell_files_nodes(id);
        if let Some(entry) = self.executors.get(id) {
            let _ = reply.send((id, entry.sign_of_life.clone()));
        }
        if self.deadlines.is_stopping() {
            self.executors.send(id, ToExecutor::Stop);
            return;
        }
        self.executors.tell_lost(id);
        if registration.origin.is_some() {
            self.pools.note_change();
        }
        let held = if self.caching { &registration.held[..] } else { &[] };
        if let Some(entry) = self.executors.get_mut(id) {
            held.iter().for_each(|(object, size_bytes)| entry.stored(*object, *size_bytes));
        }
        let capacity = registration.capacity.clone();
        let name = self.executors.name(id).into();
        let (host, labels) = (registration.host.as_str().into(), registration.labels.clone());
        let profile = Box::new(ExecutorProfile { name, host, labels, accept });
        self.tell_jobs(jobs::Event::ExecutorJoined { executor: id, name: self.executors.name(id) });
        self.tell_scheduler(Event::ExecutorJoined {
            executor: id,
            capacity,
            profile,
            held: held.into(),
        });
    }

    fn handle_message(&mut self, executor: ExecutorId, message: FromExecutor) {
        let Some(entry) = self.executors.get_mut(executor) else { return };
        entry.note(&message);
        match message {
            FromExecutor::Register(_) => tracing::warn!(%executor, "registered twice"),
            FromExecutor::Heartbeat { free_disk_bytes } => {
                self.executors.send(executor, ToExecutor::Heard);
                self.tell_scheduler(Event::FreeDisk { executor, bytes: free_disk_bytes });
            }
            FromExecutor::Stored { object, size_bytes } => {
                self.release_own_disk_read(executor, object);
                self.tell_scheduler(Event::Stored { executor, object, size_bytes });
            }
            FromExecutor::Fetched { object, from, took_us } => {
                if let Some(known) =
                    self.scheduler.explain_object(object).filter(|_| self.pools.are_on())
                {
                    self.pools.note_fetched(object, known.size_bytes, from);
                }
                self.tell_scheduler(Event::Fetched { executor, object, from, took_us });
            }
            FromExecutor::Evicted { object } => {
                self.pools.note_evicted(object);
                self.tell_scheduler(Event::Evicted { executor, object });
            }
            FromExecutor::NotHeld { object, reason } => self.not_held(executor, object, &reason),
            FromExecutor::Load(ExecutorLoad { lent_milli, light_bytes, .. }) => {
                self.tell_scheduler(Event::Staging { executor, lent_milli, light_bytes });
            }
            FromExecutor::Suspended { .. } | FromExecutor::Resumed { .. } => {}
            FromExecutor::Ended { task, attempt, mut outcome } => {
                outcome.estimate = self.scheduler.estimate_of(task);
                if entry.suspended.remove(&task) || self.jobs.has(executor, task) {
                    entry.ended += 1;
                    entry.reads += outcome.reads;
                }
                self.pools.note_ended(&outcome);
                self.tell_jobs(jobs::Event::TaskEnded { executor, task, attempt, outcome });
            }
            FromExecutor::Returned { task, attempt } => {
                self.tell_jobs(jobs::Event::TaskReturned { executor, task, attempt });
            }
            FromExecutor::Claim { task, places, .. } => {
                self.tell_jobs(jobs::Event::Claim { executor, task, places });
            }
            FromExecutor::Failing { task, status, .. } => {
                let is_last = self.jobs.is_last_try(executor, task, &status);
                self.executors.send(executor, ToExecutor::LastTry { task, is_last });
            }
            FromExecutor::Printed { question, piece } => {
                self.printed.answered(executor, question, piece);
            }
            FromExecutor::PassedOver { name, place, why } => {
                let Some(executor) = self.executors.get(executor) else { return };
                self.names.passed_over(name, place, executor, why);
            }
            FromExecutor::Copy { object, news } => {
                self.tell_scheduler(Event::Copy { executor, object, news });
            }
            FromExecutor::Damaged { object, giver } => self.have_verified(executor, object, giver),
            FromExecutor::Checked { task, is_unchanged } => {
                self.tell_jobs(jobs::Event::Checked { executor, task, is_unchanged });
            }
            FromExecutor::Retiring => self.tell_jobs(jobs::Event::ExecutorLeaves { executor }),
            FromExecutor::Leaving => {
                tracing::info!(%executor, "leaves");
                self.lost(executor, false);
            }
        }
    }

    /// An executor has got an object damaged from the one at this address, which verifies it.
    fn have_verified(&mut self, receiver: ExecutorId, object: ObjectId, giver: SocketAddr) {
        let Some(giver) = self.executors.at(giver) else { return };
        tracing::warn!(
            %object,
            "{} has sent {} an object damaged, and verifies it now",
            self.executors.name(giver),
            self.executors.name(receiver),
        );
        self.executors.send(giver, ToExecutor::Verify { object });
    }

    /// An executor has put a file from the disk of its node into its store, if it was told to: it
    /// need not hold the file any longer.
    fn release_own_disk_read(&mut self, executor: ExecutorId, object: ObjectId) {
        if self.own_disk_reads.remove(&(executor, object)) {
            self.executors.send(executor, ToExecutor::Release { object });
        }
    }

    fn not_held(&mut self, executor: ExecutorId, object: ObjectId, reason: &str) {
        // A file from the disk of its node, which the scheduler has not ordered.
        if self.own_disk_reads.remove(&(executor, object)) {
            return;
        }
        self.pushes.not_pushed(executor, object, reason, &self.scheduler);
        self.tell_scheduler(Event::NotHeld { executor, object });
    }

    /// Removes an executor. If it was lost (`is_loss`), one of its tasks may be the cause.
    fn lost(&mut self, executor: ExecutorId, is_loss: bool) {
        let Some(gone) = self.executors.leave(executor) else { return };
        let (kind, what) =
            if is_loss { ("executor-lost", "was lost") } else { ("executor-left", "has left") };
        self.replies.add_event(NewEvent::of_executor(&gone.name, kind, what));
        if is_loss {
            self.executors.lost(&gone);
        }
        self.printed.lost(executor);
        self.own_disk_reads.retain(|(owner, _)| *owner != executor);
        if gone.origin.is_some() {
            self.pools.left(executor);
        }
        let tasks = self.scheduler.tasks_of(executor);
        let lost_with = is_loss.then(|| gone.had());
        let suspended = gone.suspended;
        self.tell_jobs(jobs::Event::ExecutorGone { executor, tasks, lost_with, suspended });
        tracing::info!(%executor, name = gone.name, "has left");
    }

    fn add_executor_event(&mut self, id: ExecutorId, kind: &'static str, what: &str) {
        self.replies.add_event(NewEvent::of_executor(&self.executors.name(id), kind, what));
    }

    // ---- records

    /// Appends a record to the log.
    fn write(&mut self, record: JournalRecord) {
        if let JournalRecord::Forget { job } = &record {
            self.replies.forget(*job);
        }
        // Clients that watch the job again count its results anew, once the record is on disk.
        let recounted = match &record {
            JournalRecord::Snapshot { job, summary, drops_results: true, .. } => {
                Some((*job, summary.clone()))
            }
            _ => None,
        };
        self.replies.appended(self.records.append(record));
        match recounted {
            Some((job, Some(summary))) => {
                self.replies.show(job, self.views().progress_of_archived(&summary))
            }
            Some((job, None)) => self.show(job),
            None => {}
        }
    }

    // ---- pools

    /// Does what pools have ordered.
    fn obey(&mut self, order: PoolOrder) {
        match self.pools.obey(order, &self.executors) {
            AfterOrder::Nothing => {}
            AfterOrder::Drain(executor) => {
                self.tell_scheduler(Event::ExecutorDraining { executor });
                self.tell_scheduler(Event::Evacuate);
            }
            AfterOrder::Release(executor) => {
                self.tell_jobs(jobs::Event::ExecutorLeaves { executor });
            }
        }
    }

    /// Tells the pools how much work there is and how their nodes are, if it is time.
    fn report_to_pools(&mut self) {
        let now_us = self.clock.now_us();
        if self.pools.next_report_us(&self.scheduler).is_none_or(|due_us| now_us < due_us) {
            return;
        }
        if let Some(times_left) = self.pools.times_left(now_us, &self.executors) {
            self.tell_scheduler(times_left);
        }
        let (jobs, scheduler, executors) = (&self.jobs, &self.scheduler, &self.executors);
        let cluster = ReportedCluster { jobs, scheduler, executors };
        self.pools.report(now_us, &cluster, self.deadlines.is_stopping());
    }

    // ---- time

    /// The next deadline, microseconds since 1970, if there is one.
    fn next_due_us(&mut self) -> Option<u64> {
        let known = [
            self.jobs.next_timeout(),
            self.jobs.next_tick(),
            self.executors.next_loss_us(self.deadlines.silence_us()),
            self.pools.next_report_us(&self.scheduler),
        ];
        self.deadlines.next_us(&known, self.pushes.are_shown())
    }

    /// Does everything that is due. The call was planned for `due_us`.
    fn tick(&mut self, due_us: u64) {
        let now_us = self.clock.now_us();
        if self.deadlines.tick(now_us, due_us) {
            self.executors.count_as_heard(now_us);
        }
        let utilisation = self.scheduler.utilisation();
        let (capacity_milli, busy_milli) = (utilisation.total_milli, utilisation.busy_milli);
        let watched = self.replies.watched().collect();
        self.tell_jobs(jobs::Event::Tick { capacity_milli, busy_milli, watched });
        for executor in self.executors.lost_at(now_us, self.deadlines.silence_us()) {
            let silence = self.deadlines.silence();
            tracing::warn!(
                %executor,
                "does not read its messages, or was not heard of for {silence:?}"
            );
            self.lost(executor, true);
        }
        self.let_leave_those_that_may();
        self.finish_pushes();
        for abandoned in self.pushes.show(&self.scheduler) {
            self.end_push(abandoned);
        }
    }
}
