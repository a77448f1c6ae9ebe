//! The one owner of the dispatcher's state. Sessions and the journal send it messages; it never
//! waits for them.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use eyas_dispatch::Exchange;
use eyas_jobs::{self as jobs, Entry, Jobs, Replay};
use eyas_pools::PoolOrder;
use eyas_sched::{Event, ExecutorProfile, Scheduler};
use eyas_session::Outbox;
use eyas_types::dfs::FileSystemId;
use eyas_types::matching::Expression;
use eyas_types::{ExecutorId, ExecutorLoad, JobId, ObjectId, Resources};
use eyas_wire::executor::{
    FileSystemMembership, FilesNode, FromExecutor, Registration, ToExecutor,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::durable_replies::DurableReplies;
use crate::events::{ClusterEvents, NewEvent};
use crate::executors::ConnectedExecutors;
use crate::log::{Log, RecordNumber};
use crate::sign_of_life::SignOfLife;
use attached::AttachedClients;
use durable::OnceDurable;
use pools::CorePools;
use push::ActivePushes;

/// Messages that are handled before results are written and deadlines are checked.
const HANDLED_AT_ONCE: usize = 256;
/// No more messages are handled before that once they have taken this long, microseconds.
const MAX_TURN_US: u64 = 20_000;
/// Tasks of new jobs are queued this many at a time; then messages are handled.
const QUEUE_MORE: jobs::Event = jobs::Event::QueueMore { tasks: 10_000 };
/// An executor that was not heard of for this many heartbeats is lost.
const MISSED_HEARTBEATS: u32 = 4;
/// Time for executors to leave after they were told to stop, microseconds.
const STOP_DEADLINE_US: u64 = 15_000_000;
/// Clients that wait for a push are shown how it goes on after this time, microseconds.
const SHOW_PUSHES_EVERY_US: u64 = 100_000;
/// Shortest time between two calls of `tick`, microseconds, so that messages are handled in
/// between.
const MIN_PAUSE_US: u64 = 1000;

mod attached;
mod deciders;
mod durable;
mod pools;
pub(crate) mod push;
#[cfg(test)]
mod tests;

/// A message of an executor's session to the core.
pub(crate) enum CoreMessage {
    Joined {
        registration: Box<Registration>,
        /// The expression that says which tasks the executor accepts, compiled.
        accept: Box<[Arc<dyn Expression>]>,
        outbox: Outbox<ToExecutor>,
        reply: oneshot::Sender<(ExecutorId, Arc<SignOfLife>)>,
    },
    Said {
        executor: ExecutorId,
        messages: Vec<FromExecutor>,
    },
    Gone {
        executor: ExecutorId,
    },
}

/// A call that the owner of the state carries out.
pub(crate) type CoreCall = Box<dyn FnOnce(&mut DispatcherCore) + Send>;

/// What the core is told and asked. A call does not wait for what executors have sent before, which
/// may be much.
pub(crate) struct CoreInbox {
    pub calls: mpsc::Receiver<CoreCall>,
    pub messages: mpsc::Receiver<CoreMessage>,
}

pub(crate) struct DispatcherCore {
    pub(crate) clock: Clock,
    pub(crate) scheduler: Scheduler,
    pub(crate) jobs: Jobs,
    /// Passes on what the two deciders say to each other.
    exchange: Exchange,
    /// Whether effects of the deciders are being carried out.
    is_at_work: bool,
    pub(crate) policy: String,
    caching: bool,
    heartbeat: Duration,
    pub(crate) executors: ConnectedExecutors,
    /// Names of this process and of its owner.
    pub(crate) processes: Vec<String>,
    pub(crate) log: Arc<dyn Log>,
    replies: DurableReplies,
    pub(crate) events: Arc<ClusterEvents>,
    /// What is done once records are on disk, in their order.
    once_durable: VecDeque<(RecordNumber, OnceDurable)>,
    /// Entries that were appended and that are not on disk yet.
    unwritten: BTreeMap<(JobId, u64), Arc<Entry>>,
    /// Whether results are being written.
    writing: bool,
    /// Clients with attached jobs.
    attached: AttachedClients,
    pushes: ActivePushes,
    pub(crate) pools: CorePools,
    /// When the cluster was told to stop, microseconds since 1970.
    stopping_us: Option<u64>,
    /// When `tick` was called last, microseconds since 1970.
    ticked_us: u64,
    /// The archived job that was read last, to answer further requests about it.
    pub(super) loaded: Option<Replay>,
    /// The file for differences between memory and journal; `None` outside of tests.
    pub(crate) check_journal: Option<PathBuf>,
}

impl DispatcherCore {
    pub fn new(
        scheduler: Scheduler,
        policy: String,
        caching: bool,
        heartbeat: Duration,
        log: Arc<dyn Log>,
    ) -> Self {
        let clock = Clock::new();
        DispatcherCore {
            jobs: Jobs::new(jobs::Config::default(), clock.now_us()),
            ticked_us: clock.now_us(),
            loaded: None,
            check_journal: None,
            events: Arc::new(ClusterEvents::new(clock)),
            clock,
            scheduler,
            exchange: Exchange::default(),
            is_at_work: false,
            policy,
            caching,
            heartbeat,
            executors: ConnectedExecutors::default(),
            processes: Vec::new(),
            log,
            replies: DurableReplies::default(),
            once_durable: VecDeque::new(),
            unwritten: BTreeMap::new(),
            writing: false,
            pushes: ActivePushes::default(),
            attached: AttachedClients::default(),
            pools: CorePools::new(),
            stopping_us: None,
        }
    }

    /// Handles the calls and messages that have gathered, for at most [`MAX_TURN_US`]. That comes
    /// before results are written, and results gather while others are being written, so that
    /// entries are large when there is much to write.
    fn handle_gathered(&mut self, inbox: &mut CoreInbox) {
        let until_us = self.clock.now_us() + MAX_TURN_US;
        for _ in 0..HANDLED_AT_ONCE {
            let (call, message) = (inbox.calls.try_recv(), inbox.messages.try_recv());
            let is_empty = call.is_err() && message.is_err();
            call.into_iter().for_each(|call| self.answer_call(call));
            message.into_iter().for_each(|message| self.handle(message));
            if is_empty || self.clock.now_us() > until_us {
                break;
            }
        }
    }

    /// Works until the cluster is stopped.
    pub async fn run(
        mut self,
        mut inbox: CoreInbox,
        mut durable: watch::Receiver<RecordNumber>,
        mut orders: mpsc::Receiver<PoolOrder>,
        mut stop: watch::Receiver<bool>,
    ) {
        loop {
            let due_us = self.next_due_us();
            let due = async {
                match due_us {
                    Some(due_us) => {
                        tokio::time::sleep(Duration::from_micros(self.clock.until_us(due_us))).await
                    }
                    None => std::future::pending().await,
                }
            };
            let has_more_to_queue = self.jobs.has_more_to_queue();
            let has_parts = self.has_parts();
            tokio::select! {
                biased;
                () = due => self.tick(due_us.unwrap_or_default()),
                Ok(()) = stop.changed(), if self.stopping_us.is_none() => self.begin_to_stop(),
                Ok(()) = durable.changed() => self.durable(*durable.borrow_and_update()),
                Some(order) = orders.recv() => self.obey(order),
                Some(call) = inbox.calls.recv() => self.answer_call(call),
                message = inbox.messages.recv() => match message {
                    Some(message) => self.handle(message),
                    None => break,
                },
                () = std::future::ready(()), if has_more_to_queue => self.tell_jobs(QUEUE_MORE),
                () = std::future::ready(()), if has_parts => {}
            }
            self.do_part();
            self.handle_gathered(&mut inbox);
            // Executors that have room are given tasks before further messages are looked at.
            // Otherwise all of them would have ended what they have before they get more, and each
            // message would be about few tasks.
            if self.scheduler.waiting() == 0 && self.jobs.has_more_to_queue() {
                self.tell_jobs(QUEUE_MORE);
            }
            if self.attached.are_there() {
                self.tell_jobs(jobs::Event::Deliver);
            }
            self.report_to_pools();
            self.executors.flush();
            let cannot_wait = self.stopping_us.is_some() || self.jobs.has_full_entry();
            if !self.writing || cannot_wait {
                self.write_results();
            }
            let is_over = |since_us: u64| {
                self.executors.len() == 0 || self.clock.now_us() > since_us + STOP_DEADLINE_US
            };
            if self.stopping_us.is_some_and(is_over) {
                break;
            }
        }
        if let Some(told_in) = self.check_journal.take() {
            self.check_journal(&told_in, durable).await;
        }
    }

    /// Waits until everything is on disk, then compares memory with the journal.
    async fn check_journal(
        &mut self,
        told_in: &std::path::Path,
        mut durable: watch::Receiver<RecordNumber>,
    ) {
        self.write_results();
        while self.replies.is_behind() {
            // If it cannot be written, that was told before.
            let Ok(()) = durable.changed().await else { return };
            let number = *durable.borrow_and_update();
            self.durable(number);
        }
        if let Err(e) = self.compare_with_journal(told_in) {
            tracing::error!("{e}");
        }
    }

    fn handle(&mut self, message: CoreMessage) {
        match message {
            CoreMessage::Joined { registration, accept, outbox, reply } => {
                self.joined(&registration, accept, outbox, reply);
            }
            CoreMessage::Said { executor, messages } => {
                if let Some(entry) = self.executors.get(executor) {
                    entry.sign_of_life.note_at(self.clock.now_us());
                }
                for message in messages {
                    self.said(executor, message);
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

    // ---- events

    /// Adds to the events of the cluster, once everything so far is on disk.
    fn add_event(&mut self, event: NewEvent) {
        let events = self.events.clone();
        self.replies.then(move || events.add(event));
    }

    fn add_executor_event(&mut self, id: ExecutorId, kind: &'static str, what: &str) {
        self.add_event(NewEvent::of_executor(&self.executors.name(id), kind, what));
    }

    /// Adds something about a job that is in memory, or was loaded for this call.
    pub(crate) fn add_job_event(&mut self, id: JobId, kind: &'static str, what: &str) {
        if let Some(job) = self.jobs.get(id).or_else(|| self.loaded(id)) {
            self.add_event(NewEvent::of_job(id, &job.spec.name, kind, what));
        }
    }

    // ---- executors

    /// The file system to which an executor's node belongs. The first node founds it, or says which
    /// one it is.
    fn files_place(&self, id: ExecutorId, files: &FilesNode) -> Option<FileSystemMembership> {
        let own = FileSystemId::founded_by(files.node);
        match self.log.file_system(files.system.unwrap_or(own)) {
            Ok(system) => Some(FileSystemMembership {
                system,
                founds: system == own,
                nodes: self.executors.files_nodes(Some(id)),
            }),
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
        reply: oneshot::Sender<(ExecutorId, Arc<SignOfLife>)>,
    ) {
        let id = self.executors.join(registration, outbox, self.clock);
        tracing::info!(
            executor = %id, name = registration.name, held = registration.held.len(),
            "joined"
        );
        let heartbeat_us = self.heartbeat.as_micros() as u64;
        // Shorter than it takes to count as lost.
        let lease_us = heartbeat_us * u64::from(MISSED_HEARTBEATS - 1);
        let files = registration.files.as_ref().and_then(|files| self.files_place(id, files));
        let is_of_another = |files: &FilesNode, place: &FileSystemMembership| {
            files.system.is_some_and(|own| own != place.system)
        };
        if let (Some(node), Some(place)) = (&registration.files, &files)
            && is_of_another(node, place)
            && let Some(entry) = self.executors.get_mut(id)
        {
            // Other nodes must not find it. Its welcome tells it why.
            entry.files = None;
        }
        self.add_executor_event(id, "executor-joined", "has joined");
        let caching = self.caching;
        let welcome = ToExecutor::Welcome { executor: id, caching, heartbeat_us, lease_us, files };
        self.executors.send(id, welcome);
        self.executors.tell_files_nodes(id);
        if let Some(entry) = self.executors.get(id) {
            let _ = reply.send((id, entry.sign_of_life.clone()));
        }
        if self.stopping_us.is_some() {
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

    fn said(&mut self, executor: ExecutorId, message: FromExecutor) {
        let Some(entry) = self.executors.get_mut(executor) else { return };
        match message {
            FromExecutor::Register(_) => tracing::warn!(%executor, "registered twice"),
            FromExecutor::Heartbeat { free_disk_bytes } => {
                entry.free_disk_bytes = Some(free_disk_bytes);
                self.executors.send(executor, ToExecutor::Heard);
                self.tell_scheduler(Event::FreeDisk { executor, bytes: free_disk_bytes });
            }
            FromExecutor::Stored { object, size_bytes } => {
                self.stored(executor, object, size_bytes)
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
                entry.evicted(object);
                self.pools.note_evicted(object);
                self.tell_scheduler(Event::Evicted { executor, object });
            }
            FromExecutor::NotHeld { object, reason } => {
                entry.evicted(object);
                self.not_pushed(executor, object, &reason);
                self.tell_scheduler(Event::NotHeld { executor, object });
            }
            FromExecutor::Load(load) => {
                entry.load = load;
                let ExecutorLoad { lent_milli, light_bytes, .. } = load;
                self.tell_scheduler(Event::Staging { executor, lent_milli, light_bytes });
            }
            FromExecutor::Suspended { task } => _ = entry.suspended.insert(task),
            FromExecutor::Resumed { task } => _ = entry.suspended.remove(&task),
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

    fn stored(&mut self, executor: ExecutorId, object: ObjectId, size_bytes: u64) {
        if let Some(entry) = self.executors.get_mut(executor) {
            entry.stored(object, size_bytes);
        }
        self.tell_scheduler(Event::Stored { executor, object, size_bytes });
    }

    /// Removes an executor. If it was lost (`is_loss`), one of its tasks may be the cause.
    fn lost(&mut self, executor: ExecutorId, is_loss: bool) {
        let Some(gone) = self.executors.leave(executor) else { return };
        let (kind, what) =
            if is_loss { ("executor-lost", "was lost") } else { ("executor-left", "has left") };
        self.add_event(NewEvent::of_executor(&gone.name, kind, what));
        if is_loss {
            self.executors.lost(&gone);
        }
        if gone.origin.is_some() {
            self.pools.left(executor);
        }
        let tasks = self.scheduler.tasks_of(executor);
        let lent_milli = u32::try_from(gone.load.lent_milli).unwrap_or(u32::MAX);
        let had = Resources {
            cpus_milli: gone.capacity.cpus_milli.saturating_add(lent_milli),
            ..gone.capacity
        };
        let lost_with = is_loss.then_some(had);
        let suspended = gone.suspended;
        self.tell_jobs(jobs::Event::ExecutorGone { executor, tasks, lost_with, suspended });
        tracing::info!(%executor, name = gone.name, "has left");
    }

    // ---- time

    /// The silence after which an executor counts as lost, microseconds.
    fn silence_us(&self) -> u64 {
        (self.heartbeat * MISSED_HEARTBEATS).as_micros() as u64
    }

    /// The next deadline, microseconds since 1970, if there is one.
    fn next_due_us(&mut self) -> Option<u64> {
        let silence_us = self.silence_us();
        let silence = self.executors.next_loss_us(silence_us);
        let stop = self.stopping_us.map(|since_us| since_us + STOP_DEADLINE_US + 1);
        let pushes = self.pushes.are_shown().then_some(self.ticked_us + SHOW_PUSHES_EVERY_US);
        let report = self.pools.next_report_us(&self.scheduler);
        let due = [self.jobs.next_timeout(), self.jobs.next_tick(), silence, stop, pushes, report];
        let due_us = due.into_iter().flatten().min()?;
        Some(due_us.max(self.ticked_us + MIN_PAUSE_US))
    }

    /// Does everything that is due. The call was planned for `due_us`.
    fn tick(&mut self, due_us: u64) {
        let now_us = self.clock.now_us();
        self.ticked_us = now_us;
        // While the dispatcher itself stood still (suspended, or waiting for its disk), no executor
        // could be heard.
        if u128::from(now_us.saturating_sub(due_us)) > self.heartbeat.as_micros() / 2 {
            self.executors.count_as_heard(now_us);
        }
        let utilisation = self.scheduler.utilisation();
        let (capacity_milli, busy_milli) = (utilisation.total_milli, utilisation.busy_milli);
        let watched = self.replies.watched().collect();
        self.tell_jobs(jobs::Event::Tick { capacity_milli, busy_milli, watched });
        let silence_us = self.silence_us();
        for executor in self.executors.lost_at(now_us, silence_us) {
            let silence = self.heartbeat * MISSED_HEARTBEATS;
            tracing::warn!(
                %executor,
                "does not read its messages, or was not heard of for {silence:?}"
            );
            self.lost(executor, true);
        }
        self.let_leave_those_that_may();
        self.finish_pushes();
        self.show_pushes();
    }

    fn stop_one(&mut self, executor: ExecutorId) {
        self.tell_scheduler(Event::ExecutorDraining { executor });
        self.executors.send(executor, ToExecutor::Stop);
    }

    pub(crate) fn begin_to_stop(&mut self) {
        self.stopping_us = Some(self.clock.now_us());
        let text = "the cluster is stopping".into();
        self.add_event(NewEvent { kind: "cluster-stopping", job: None, executor: None, text });
        self.pools.stop();
        self.tell_jobs(jobs::Event::Stopping);
        let executors: Vec<_> = self.executors.iter().map(|(id, _)| id).collect();
        for executor in executors {
            self.stop_one(executor);
        }
    }
}
