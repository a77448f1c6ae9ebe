//! Carries out what [`Node`] decides during one session with the dispatcher: turns commands and
//! facts into events, and effects into fetches, evictions, processes and reports.
//!
//! Three kinds of threads have news: the session receives commands, a fetch ends, a slot's thread
//! ends a task. Each of them locks the core ([`CoreHandle::lock`]), reports, and unlocks. So a
//! slot's thread finds its next task waiting, and no other thread has to wake up for it. While the
//! core is locked, nothing blocks except the local disk during an eviction. The session sends the
//! facts for the dispatcher; a slot's thread sends them if they are due when its task ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc as threads};
use std::time::{Duration, Instant};

use eyas_node::{Effect, Event, Node};
use eyas_session::{DirectSender, Outbox, OutboxError};
use eyas_transfer::Fetcher;
use eyas_types::outcome::FailureKind;
use eyas_types::{
    ExecutorLoad, JobId, Name, ObjectId, ObjectSpec, Outcome, PlaceId, Program, Reads, Status,
    TaskId, TaskTemplate,
};
use eyas_wire::executor::{
    AssignedInput, Assignment, CopyHint, FromExecutor, PeerHint, ToExecutor,
};
use eyas_wire::printed::PrintedPosition;
use eyas_wire::{MINOR_OF_COPIES, MINOR_OF_DAMAGE};
use tokio::sync::{Mutex as AsyncMutex, Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use crate::leftovers;
use crate::process::ProcessControl;
use crate::process::printed::PrintedQuestion;
use crate::task::derived_copy::{CopyOfInput, CopySource, NoCopy};
use crate::task::lease::{Lease, Moment};
use crate::task::output_claim::{Claim, ClaimPlaces, Question};
use crate::task::{AssignedTask, TaskEnd, TaskRun, TaskRunner, sandbox};
use slots::{SlotOrder, slot_thread};

mod chunks;
mod fetch;
mod hold;
mod slots;

/// While tasks wait behind those that run, facts for the dispatcher gather for this long. Sending a
/// message for each short task would cost both sides more than the task. The dispatcher assigns
/// work for longer than this ahead.
const GATHER: Duration = Duration::from_millis(10);
/// Measurements of the disk for each heartbeat.
const TICKS_A_HEARTBEAT: u32 = 3;
/// Tasks whose outputs in persistent storage are compared at the same time, for reuse; other
/// comparisons wait.
const MAX_CHECKS: usize = 16;
/// Facts that gather before they are sent without further delay.
const MAX_GATHERED: usize = 256;

/// The core behind its lock, and the signal that wakes its session.
pub(crate) struct CoreHandle {
    core: Mutex<ExecutorCore>,
    wake: Notify,
    /// Sends facts from the thread that has them.
    direct: DirectSender<FromExecutor>,
    /// Held from the moment when facts are taken until the outbox or the connection has them: they
    /// stay in order.
    sending: AsyncMutex<()>,
}

impl CoreHandle {
    pub fn new(
        node: Node,
        caching: bool,
        runner: Arc<TaskRunner>,
        fetcher: Fetcher,
        lease: Lease,
        (direct, minor): (DirectSender<FromExecutor>, u16),
    ) -> Arc<Self> {
        Arc::new_cyclic(|core| CoreHandle {
            core: Mutex::new(ExecutorCore::new(
                node,
                (caching, minor),
                runner,
                fetcher,
                Arc::new(lease),
                core.clone(),
            )),
            wake: Notify::new(),
            direct,
            sending: AsyncMutex::new(()),
        })
    }

    /// Locks the core. Callers hold the lock only while they report one event.
    pub fn lock(&self) -> MutexGuard<'_, ExecutorCore> {
        self.core.lock().expect("a panic in the core ends its executor")
    }

    /// Returns when facts are due to be sent to the dispatcher.
    pub async fn due(&self) {
        loop {
            let woken = self.wake.notified();
            let due = self.lock().due;
            match due {
                None => woken.await,
                // A timer would wait for its next millisecond.
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::select! {
                    () = woken => {}
                    () = sleep_until(due.into()) => return,
                },
            }
        }
    }

    /// Puts the facts that there are into the outbox, and waits for room.
    pub async fn send_facts(&self, outbox: &Outbox<FromExecutor>) -> Result<(), OutboxError> {
        let _in_order = self.sending.lock().await;
        let facts = self.lock().take_facts();
        outbox.put(facts).await
    }

    /// A task has ended, and its slot is free. What the dispatcher is to know now, this thread
    /// sends if it can: waking the session would take longer than the message.
    fn task_ended(&self, run: TaskRun, end: TaskEnd) {
        let (is_news, is_due) = {
            let mut core = self.lock();
            let is_news = core.task_ended(run, end);
            let due = core.due.filter(|_| !core.leaving);
            (is_news, due.is_some_and(|due| due <= Instant::now()))
        };
        let is_sent = is_due
            && self
                .sending
                .try_lock()
                .is_ok_and(|_in_order| self.direct.try_send(|| self.lock().take_facts()));
        if is_news && !is_sent {
            self.wake.notify_one();
        }
    }

    /// Returns when something has happened since the last call, while the executor is leaving.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

/// A task of this executor, from its assignment until its end is reported.
struct TaskEntry {
    task: Arc<AssignedTask>,
    /// Present once the task has been started.
    control: Option<Arc<ProcessControl>>,
    /// At its start, its inputs had gone from the store; they were fetched again.
    restaged: bool,
    /// How it ended when it found the disk full; the node starts it again or refuses it.
    ended: Option<Outcome>,
    /// It has left its slot, and delivers its outputs. The node has forgotten it.
    is_delivering: bool,
}

/// A fetch in progress.
struct ActiveFetch {
    size_bytes: u64,
    /// Whether only executors have the object.
    is_kept: bool,
    /// Aborts the fetch; `None` if the file system's node receives the object.
    abort: Option<AbortHandle>,
}

/// An object to be held, and where it may be: at peers, and at places if its source is a name.
#[derive(Clone)]
struct ObjectToHold {
    object: ObjectSpec,
    holders: Vec<PeerHint>,
    places: Vec<Name>,
}

pub(crate) struct ExecutorCore {
    node: Node,
    caching: bool,
    /// Whether executors give each other derived copies: their dispatcher knows of them.
    gives_copies: bool,
    /// Whether the dispatcher knows of tasks that are stopped as they make a copy, and of damage.
    tells_damage: bool,
    /// Derived copies for which tasks wait until the dispatcher has said where to get them.
    wanted_copies: HashMap<ObjectId, Arc<Question<CopySource>>>,
    runner: Arc<TaskRunner>,
    fetcher: Fetcher,
    lease: Arc<Lease>,
    handle: Weak<CoreHandle>,
    /// Facts for the dispatcher, in order.
    facts: Vec<FromExecutor>,
    /// When the facts have to be sent at the latest.
    due: Option<Instant>,
    events: VecDeque<Event>,
    templates: HashMap<(JobId, u16), Arc<TaskTemplate>>,
    last_assigned: Weak<AssignedTask>,
    tasks: HashMap<TaskId, TaskEntry>,
    /// Inputs of a task whose assignment is still to come.
    coming_inputs: Vec<AssignedInput>,
    /// Places of its named inputs, by their sources.
    coming_places: HashMap<Name, Vec<Name>>,
    /// Executors that may give derived copies which it reads, with the sizes of those.
    coming_copies: HashMap<ObjectId, (u64, Vec<PeerHint>)>,
    fetching: HashMap<ObjectId, ActiveFetch>,
    /// Objects to be held that are not here yet.
    to_hold: HashMap<ObjectId, ObjectToHold>,
    /// Chunks of the file system that are held, or will be.
    chunks: HashSet<ObjectId>,
    /// Reservations of chunks that wait for space.
    reservations: HashMap<ObjectId, Vec<chunks::ChunkReservation>>,
    /// Claims of output places that the dispatcher has not answered yet.
    claims: HashMap<TaskId, Arc<Claim>>,
    /// Likewise, questions whether a try that has failed is the last one of its task.
    failing: HashMap<TaskId, Arc<Question<bool>>>,
    /// Bounds concurrent comparisons of outputs in persistent storage.
    checks: Arc<Semaphore>,
    /// Why the store cannot keep the outputs of the task that has just ended.
    cannot_keep: Option<String>,
    /// Why an object could not be fetched; forgotten once its tasks have failed.
    unavailable: HashMap<ObjectId, (FailureKind, String)>,
    /// One thread for each slot that was ever used.
    slots: Vec<threads::Sender<SlotOrder>>,
    running: usize,
    /// Tasks that have left their slots and deliver their outputs.
    delivering: usize,
    /// Their processors, which other tasks use.
    delivering_milli: u64,
    /// When the last heartbeat was sent.
    heartbeat_sent: Option<Instant>,
    /// The load that the dispatcher was last told.
    reported_load: ExecutorLoad,
    /// Running processes are being killed because this executor leaves; their tasks go back to the
    /// dispatcher.
    leaving: bool,
    /// The dispatcher has told this executor to stop.
    pub stopped: bool,
}

impl ExecutorCore {
    fn new(
        node: Node,
        (caching, minor): (bool, u16),
        runner: Arc<TaskRunner>,
        fetcher: Fetcher,
        lease: Arc<Lease>,
        handle: Weak<CoreHandle>,
    ) -> Self {
        ExecutorCore {
            node,
            caching,
            gives_copies: caching && minor >= MINOR_OF_COPIES,
            tells_damage: minor >= MINOR_OF_DAMAGE,
            wanted_copies: HashMap::new(),
            runner,
            fetcher,
            lease,
            handle,
            facts: Vec::new(),
            due: None,
            events: VecDeque::new(),
            templates: HashMap::new(),
            last_assigned: Weak::new(),
            tasks: HashMap::new(),
            coming_inputs: Vec::new(),
            coming_places: HashMap::new(),
            coming_copies: HashMap::new(),
            fetching: HashMap::new(),
            to_hold: HashMap::new(),
            chunks: HashSet::new(),
            reservations: HashMap::new(),
            claims: HashMap::new(),
            failing: HashMap::new(),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
            cannot_keep: None,
            unavailable: HashMap::new(),
            slots: Vec::new(),
            running: 0,
            delivering: 0,
            delivering_milli: 0,
            heartbeat_sent: None,
            reported_load: ExecutorLoad::default(),
            leaving: false,
            stopped: false,
        }
    }

    /// Reports to the node what the store held when the session began, and the folders that were
    /// prepared in an earlier session.
    pub fn found(&mut self, held: &[(ObjectId, u64)]) {
        self.measure_disk();
        let prepared = self.runner.prepared.sizes();
        let found = held.iter().copied().chain(prepared);
        self.events.extend(found.map(|(object, size_bytes)| Event::Found { object, size_bytes }));
        self.settle();
    }

    /// Carries out commands of the dispatcher.
    pub fn commands(&mut self, commands: Vec<ToExecutor>) {
        for command in commands {
            self.command(command);
            self.decide();
        }
        self.settle();
    }

    /// A task has ended, and its slot is free. Returns whether there is something for the session.
    fn task_ended(&mut self, run: TaskRun, mut end: TaskEnd) -> bool {
        let task = run.task.id();
        self.running -= 1;
        self.claims.remove(&task);
        self.failing.remove(&task);
        for object in end.changes.damaged.iter().chain(&end.changes.missing) {
            self.events.push_back(Event::Lost { object: *object });
            self.tell(FromExecutor::Evicted { object: *object });
        }
        self.keep(task, &end.changes.kept, &mut end.outcome);
        if let Some(written_bytes) = end.changes.out_of_disk.filter(|_| !run.control.is_cancelled())
        {
            self.measure_disk();
            self.events.push_back(Event::OutOfDisk { task, written_bytes });
            let entry =
                self.tasks.get_mut(&task).expect("a task is here until its end is reported");
            (entry.control, entry.ended) = (None, Some(end.outcome));
            return self.schedule();
        }
        if self.node.is_short_of_disk() {
            self.measure_disk();
        }
        self.events.push_back(Event::Ended { task });
        // Once only: a node whose store loses objects again and again should not run the task.
        let again = !end.changes.missing.is_empty()
            && !run.control.is_cancelled()
            && !self.tasks[&task].restaged;
        if again {
            self.add_task(run.task, true, false);
        } else {
            self.report(task, end.outcome);
        }
        self.schedule()
    }

    /// A task has left its slot, and still has outputs to deliver.
    fn slot_left(&mut self, task: TaskId) {
        let entry = self.tasks.get_mut(&task).expect("a task is here until its end is reported");
        entry.is_delivering = true;
        self.delivering_milli += u64::from(entry.task.template.resources.cpus_milli);
        self.running -= 1;
        self.delivering += 1;
        self.events.push_back(Event::Ended { task });
        self.settle();
    }

    /// A task that had left its slot has delivered its outputs, or failed to.
    fn delivered(&mut self, task: TaskId, outcome: Outcome) {
        self.delivering -= 1;
        let entry = self.tasks.get(&task).expect("a task is here until its end is reported");
        self.delivering_milli -= u64::from(entry.task.template.resources.cpus_milli);
        self.claims.remove(&task);
        self.report(task, outcome);
        self.settle();
    }

    /// Measures the disk's free space, and sends a heartbeat if the last one was sent about
    /// `heartbeat` ago. Time is counted, and not calls, because a slow disk makes calls late.
    pub fn tick(&mut self, heartbeat: Duration) {
        self.measure_disk();
        self.decide();
        let now = Instant::now();
        if self.heartbeat_sent.is_none_or(|sent| now.duration_since(sent) >= heartbeat * 5 / 6) {
            self.heartbeat_sent = Some(now);
            self.lease.asked(Moment::now());
            self.tell(FromExecutor::Heartbeat { free_disk_bytes: self.node.disk_bytes() });
        }
        self.tell_load(true);
        self.settle();
    }

    /// Whether no process runs, no output is delivered, and no fetch is under way.
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.delivering == 0 && self.fetching.is_empty()
    }

    /// Gives back tasks that have not started, and kills the others and gives them back. The core
    /// is [idle](Self::is_idle) once all of them have ended.
    pub fn kill_all(&mut self) {
        self.leaving = true;
        let unstarted = self.tasks.iter().filter(|(_, entry)| entry.control.is_none());
        self.events.extend(unstarted.map(|(task, _)| Event::Recalled { task: *task }));
        self.decide();
        self.tasks
            .values()
            .filter_map(|entry| entry.control.as_ref())
            .for_each(|control| control.abandon());
    }

    fn measure_disk(&mut self) {
        match self.runner.store.free_space() {
            Ok(free) => {
                self.events.push_back(Event::FreeSpace { bytes: free.bytes, inodes: free.inodes })
            }
            Err(e) => tracing::warn!("cannot measure the free space under the store: {e}"),
        }
    }

    fn command(&mut self, command: ToExecutor) {
        match command {
            ToExecutor::Welcome { .. } | ToExecutor::Refused(_) => {
                tracing::warn!("the dispatcher has welcomed this executor twice")
            }
            // The session handles these.
            ToExecutor::Key { .. } | ToExecutor::Trust(_) | ToExecutor::FilesNodes(_) => {}
            ToExecutor::Token { job, access } => self.runner.tokens.keep(job, access),
            ToExecutor::Heard => self.lease.answered(),
            ToExecutor::Template { job, template, spec } => {
                self.templates.insert((job, template), Arc::new(*spec));
            }
            ToExecutor::Inputs(inputs) => self.coming_inputs.extend(inputs),
            ToExecutor::Places(places) => self.coming_places.extend(places),
            ToExecutor::Copies(copies) => {
                let copies = copies.into_iter();
                self.coming_copies.extend(copies.map(|copy| {
                    let CopyHint { object, size_bytes, holders } = copy;
                    (object, (size_bytes, holders))
                }));
            }
            ToExecutor::Assign(assignment) => self.assign(assignment),
            ToExecutor::Recall { task } => self.events.push_back(Event::Recalled { task }),
            ToExecutor::Cancel { task }
                if self.tasks.get(&task).is_some_and(|entry| entry.is_delivering) =>
            {
                self.control_of(task).into_iter().for_each(ProcessControl::cancel);
            }
            ToExecutor::Cancel { task } => self.events.push_back(Event::Cancelled { task }),
            ToExecutor::Hold { object, holders } => self.hold(object, holders, Vec::new()),
            ToExecutor::HoldNamed { object, holders, places } => self.hold(object, holders, places),
            ToExecutor::Release { object } => {
                self.to_hold.remove(&object);
                // The file system's node releases its chunks itself.
                if !self.chunks.contains(&object) {
                    self.events.push_back(Event::Release { object });
                }
            }
            ToExecutor::Claimed { task, by_other } => {
                if let Some(claim) = self.claims.remove(&task) {
                    claim.answer(by_other);
                }
            }
            ToExecutor::Derive { object, size_bytes, holders } => {
                self.answer_copy(object, CopySource { size_bytes, holders });
            }
            ToExecutor::LastTry { task, is_last } => {
                if let Some(question) = self.failing.remove(&task) {
                    question.answer(is_last);
                }
            }
            ToExecutor::ReadPrinted { question, task, from } => {
                self.read_printed(question, task, from)
            }
            ToExecutor::Check { task, objects } => self.check(task, objects),
            ToExecutor::Verify { object } => self.verify(object),
            ToExecutor::ForgetJob { job } => {
                self.templates.retain(|(of, _), _| *of != job);
                self.runner.tokens.forget(job);
                for slot in &self.slots {
                    slot.send(SlotOrder::Forget(job))
                        .expect("slot threads live as long as the core");
                }
            }
            ToExecutor::EndLeftovers { incarnation } => {
                self.runner.movers.spawn_blocking(move || leftovers::end_if_gone(&incarnation));
            }
            ToExecutor::Stop => self.stopped = true,
        }
    }

    fn assign(&mut self, mut assignment: Assignment) {
        let task = assignment.task;
        if !self.coming_inputs.is_empty() {
            let last =
                std::mem::replace(&mut assignment.inputs, std::mem::take(&mut self.coming_inputs));
            assignment.inputs.extend(last);
        }
        let Some(template) = self.templates.get(&(task.job, assignment.template)).cloned() else {
            tracing::error!(%task, "ignored an assignment whose template was not sent");
            return;
        };
        let objects = self.store_ids(&assignment);
        let mut task = AssignedTask::new(assignment, template, objects, self.caching);
        task.places = std::mem::take(&mut self.coming_places);
        task.copies = std::mem::take(&mut self.coming_copies);
        let task = Arc::new(task);
        self.last_assigned = Arc::downgrade(&task);
        self.add_task(task, false, true);
    }

    /// Has the node stage and start a task. With `reads_copies`, derived copies that are here, or
    /// at other executors, stand for their sources.
    fn add_task(&mut self, task: Arc<AssignedTask>, restaged: bool, reads_copies: bool) {
        let mut inputs = task.stored_inputs(|source, copy| {
            if !self.caching || !reads_copies {
                return None;
            }
            let is_near = self.node.size_of(source).is_some();
            let given = task.copies.get(&copy).filter(|_| !is_near).map(|(bytes, _)| *bytes);
            self.node.size_of(copy).or(given)
        });
        // Copies that are made on the node may exceed the store while the task reads them.
        if !self.node.can_hold(inputs.iter().map(|(_, size_bytes)| *size_bytes)) {
            inputs = task.stored_inputs(|_, _| None);
        }
        inputs.iter().for_each(|(object, _)| self.runner.store.expect(*object));
        let (need, priority) = (task.template.resources.clone(), task.template.priority);
        self.events.push_back(Event::Assigned {
            task: task.id(),
            inputs: inputs.into(),
            need,
            priority,
        });
        self.tasks.insert(
            task.id(),
            TaskEntry { task, control: None, restaged, ended: None, is_delivering: false },
        );
    }

    /// Lets the node decide until nothing is left to decide.
    fn decide(&mut self) {
        let mut effects = Vec::new();
        while let Some(event) = self.events.pop_front() {
            self.node.handle(event, &mut effects);
            // Before the effects are reported, so that a task that ends is not counted as one that
            // is staged.
            self.tell_load(false);
            for effect in effects.drain(..) {
                self.carry_out(effect);
            }
        }
        self.unavailable.clear();
    }

    /// Reports the load to the dispatcher if the tasks that are staged or suspended, or the lent
    /// processors, have changed. With `every_change`, also if the number of computing tasks has
    /// changed, which happens with every task.
    fn tell_load(&mut self, every_change: bool) {
        let mut load = self.node.load();
        // Without this, tasks that deliver would take the places of tasks that could run.
        load.lent_milli += self.delivering_milli;
        let urgent = |load: ExecutorLoad| (load.staging, load.suspended, load.lent_milli);
        if urgent(load) != urgent(self.reported_load)
            || (every_change && load != self.reported_load)
        {
            self.reported_load = load;
            self.tell(FromExecutor::Load(load));
        }
    }

    /// Lets the node decide, and has the session send the facts when they are due.
    fn settle(&mut self) {
        if self.schedule() {
            self.wake();
        }
    }

    /// Lets the node decide, and says when the facts are due. Returns whether there is something
    /// for the session.
    fn schedule(&mut self) -> bool {
        self.decide();
        let has_waiting_tasks = self.tasks.len() > self.running + self.delivering;
        let is_urgent = !has_waiting_tasks || self.facts.len() >= MAX_GATHERED;
        if !self.facts.is_empty() && (is_urgent || self.due.is_none()) {
            self.due = Some(Instant::now() + if is_urgent { Duration::ZERO } else { GATHER });
            return true;
        }
        self.leaving
    }

    fn wake(&self) {
        if let Some(handle) = self.handle.upgrade() {
            handle.wake.notify_one();
        }
    }

    /// Takes the facts for the dispatcher, in order.
    pub fn take_facts(&mut self) -> Vec<FromExecutor> {
        self.due = None;
        std::mem::take(&mut self.facts)
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Fetch { object, task } => self.fetch(object, task),
            Effect::Evict { object } => self.evict(object),
            Effect::GivenUp { object } => self.runner.store.give_up(object),
            Effect::Expected { object } => self.expected(object),
            Effect::Held { object } => self.held(object),
            Effect::NotHeld { object, reason } => self.not_held(object, reason),
            Effect::CannotKeep { object, reason, .. } => self.remove_unkept(object, reason),
            Effect::Start { task, slot, reads, gpus, cores } => {
                self.start(task, slot, reads, gpus, cores)
            }
            Effect::Kill { task } => {
                if let Some(control) = self.control_of(task) {
                    control.cancel();
                }
            }
            Effect::Suspend { task } => {
                self.suspend(task, true);
                self.tell(FromExecutor::Suspended { task });
            }
            Effect::Resume { task } => {
                self.suspend(task, false);
                self.tell(FromExecutor::Resumed { task });
            }
            Effect::Lend { task } => {
                self.suspend(task, false);
                self.tell(FromExecutor::Suspended { task });
            }
            Effect::Granted { task } => {
                if let Some(control) = self.control_of(task) {
                    control.grant();
                }
            }
            Effect::ReturnTask { task } => self.return_task(task),
            Effect::Refuse { task, for_now, reason } => {
                let reason = format!("{} cannot take the task: {reason}", self.runner.name);
                let kind = if for_now { FailureKind::NodeFull } else { FailureKind::Node };
                let ended = self.tasks.get_mut(&task).and_then(|entry| entry.ended.take());
                self.report(task, ended.unwrap_or_else(|| Outcome::failed(kind, reason)));
            }
            Effect::Fail { task, object } if self.tasks[&task].task.input(object).is_none() => {
                // The source is read in place of the derived copy, which no executor gives.
                let TaskEntry { task, restaged, .. } =
                    self.tasks.remove(&task).expect("it is here");
                self.add_task(task, restaged, false);
            }
            Effect::Fail { task, object } => {
                let unknown = || (FailureKind::Input, format!("{object} could not be fetched"));
                let (kind, reason) = self.unavailable.get(&object).cloned().unwrap_or_else(unknown);
                self.report(task, Outcome::failed(kind, reason));
            }
        }
    }

    fn evict(&mut self, object: ObjectId) {
        if let Err(e) = self.runner.store.remove(object) {
            tracing::warn!(%object, "cannot evict: {e}");
        }
        if let Some(folder) = self.runner.prepared.evict(object) {
            self.runner.movers.spawn_blocking(move || {
                if let Err(e) = sandbox::remove(&folder) {
                    tracing::warn!(folder = %folder.display(), "cannot remove a folder: {e}");
                }
            });
        }
        let released = self.runner.kept.release(object);
        if !released.is_empty() {
            self.runner.movers.spawn_blocking(move || drop(released));
        }
        if self.caching {
            self.tell(FromExecutor::Evicted { object });
        }
    }

    fn start(&mut self, task: TaskId, slot: u32, reads: Reads, gpus: Vec<u32>, cores: Vec<u32>) {
        let entry = self.tasks.get_mut(&task).expect("the node knows no other tasks");
        if entry.task.template.program == Program::Noop {
            let mut outcome = Outcome::of(Status::Succeeded);
            outcome.reads = reads;
            outcome.waited_us = entry.task.arrived.elapsed().as_micros() as u64;
            self.events.push_back(Event::Ended { task });
            return self.report(task, outcome);
        }
        let core = self.handle.clone();
        let answer = move |question, piece| {
            if let Some(core) = core.upgrade() {
                core.lock().tell_at_once(FromExecutor::Printed { question, piece });
            }
        };
        let control = match ProcessControl::answering(Box::new(answer)) {
            Ok(control) => Arc::new(control),
            Err(e) => {
                let reason = format!("{} has run out of file descriptors: {e}", self.runner.name);
                self.events.push_back(Event::Ended { task });
                return self.report(task, Outcome::failed(FailureKind::NodeFull, reason));
            }
        };
        entry.control = Some(control.clone());
        let (task, lease, claims) = (entry.task.clone(), self.lease.clone(), self.handle.clone());
        let run = TaskRun { task, reads, slot, gpus, cores, control, lease, claims };
        self.running += 1;
        while self.slots.len() <= slot as usize {
            self.slots.push(slot_thread(self.runner.clone(), self.handle.clone()));
        }
        self.slots[slot as usize]
            .send(SlotOrder::Run(run))
            .expect("slot threads live as long as the core");
    }

    /// Stops the processes of a started task, or lets them continue.
    fn suspend(&mut self, task: TaskId, suspended: bool) {
        if let Some(control) = self.control_of(task) {
            control.suspend(suspended);
        }
    }

    fn control_of(&self, task: TaskId) -> Option<&ProcessControl> {
        self.tasks.get(&task)?.control.as_deref()
    }

    /// Has the thread of a task send what the task has printed beyond a position.
    fn read_printed(&mut self, question: u64, task: TaskId, from: PrintedPosition) {
        let asked = PrintedQuestion { number: question, from };
        let runs = self.tasks.get(&task).is_some_and(|entry| {
            let attempt = entry.task.assignment.attempt;
            entry.control.as_ref().is_some_and(|control| control.ask(asked, attempt))
        });
        if !runs {
            self.tell_at_once(FromExecutor::Printed { question, piece: None });
        }
    }

    fn report(&mut self, task: TaskId, outcome: Outcome) {
        if let Some(entry) = self.tasks.remove(&task) {
            let attempt = entry.task.assignment.attempt;
            self.tell(FromExecutor::Ended { task, attempt, outcome: Box::new(outcome) });
        }
    }

    fn return_task(&mut self, task: TaskId) {
        if let Some(entry) = self.tasks.remove(&task) {
            let attempt = entry.task.assignment.attempt;
            self.tell(FromExecutor::Returned { task, attempt });
        }
    }

    fn tell(&mut self, fact: FromExecutor) {
        self.facts.push(fact);
    }

    /// Tells the dispatcher something at once, because a process or a user waits for the answer.
    fn tell_at_once(&mut self, fact: FromExecutor) {
        self.tell(fact);
        self.due = Some(Instant::now());
        self.wake();
    }
}

impl ClaimPlaces for CoreHandle {
    fn claim(&self, task: TaskId, attempt: u32, places: Vec<PlaceId>) -> Arc<Claim> {
        let claim = Arc::new(Claim::default());
        let mut core = self.lock();
        core.claims.insert(task, claim.clone());
        core.tell_at_once(FromExecutor::Claim { task, attempt, places });
        claim
    }

    fn ask_if_last(&self, task: TaskId, attempt: u32, status: Status) -> Arc<Question<bool>> {
        let question = Arc::new(Question::default());
        let mut core = self.lock();
        core.failing.insert(task, question.clone());
        core.tell_at_once(FromExecutor::Failing { task, attempt, status });
        question
    }

    fn derived(&self, task: TaskId, copy: CopyOfInput) {
        self.lock().derived(task, copy);
    }

    fn want_copy(&self, object: ObjectId) -> Option<Arc<Question<CopySource>>> {
        self.lock().want_copy(object)
    }

    fn no_copy(&self, object: ObjectId, why: NoCopy) {
        self.lock().no_copy(object, why);
    }

    fn found_copy(&self, object: ObjectId, size_bytes: u64) {
        self.lock().found_copy(object, size_bytes);
    }

    fn gives_folder(&self, size_bytes: u64, took_us: u64) -> bool {
        self.lock().node.gives_folder(size_bytes, took_us)
    }

    fn lend(&self, task: TaskId, lends: bool) {
        let mut core = self.lock();
        core.events.push_back(if lends { Event::Lent { task } } else { Event::Reclaimed { task } });
        core.settle();
    }
}

/// Time between two measurements of the disk, when the dispatcher expects a heartbeat every
/// `heartbeat`.
pub(crate) fn tick_every(heartbeat: Duration) -> Duration {
    heartbeat / TICKS_A_HEARTBEAT
}
