//! Carries out what [`Node`] decides, for one session with the dispatcher: turns commands and what happened into
//! events, effects into fetches, evictions, processes and reports.
//!
//! Whoever has news takes the brain ([`Desk::brain`]), tells it, and lets go: the session of commands, a fetch of its
//! object, a slot's thread of the task that has ended. So the thread finds its next task waiting and nobody is woken
//! for it. Nothing but the local disk, when something is evicted, is waited for while the brain is held; what there is to tell the dispatcher, the session sends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc as threads};
use std::time::{Duration, Instant};

use eyas_node::{Effect, Event, Node};
use eyas_transfer::Fetcher;
use eyas_types::outcome::FailureKind;
use eyas_types::{
    ExecutorLoad, JobId, ObjectId, ObjectSpec, Outcome, PlaceId, Program, Reads, Status, TaskId, TaskTemplate,
};
use eyas_wire::executor::{self, Assignment, FromExecutor, ToExecutor};
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::sleep_until;

use crate::lease::{Lease, Moment};
use crate::leftovers;
use crate::places::Claim;
use crate::process::Control;
use crate::work::{Done, Work, Workshop};

mod fetch;
mod hold;
mod pin;

/// While tasks are lined up behind those that run, what there is to tell gathers for so long: the dispatcher has no need
/// to hear of each short task alone, which would cost both sides more than the task. It gives out work for longer ahead.
const GATHER: Duration = Duration::from_millis(10);
/// Tasks at a time whose outputs in persistent storage are looked at, to be reused; others wait.
const MAX_CHECKS: usize = 16;
/// Facts that gather at most.
const MAX_GATHERED: usize = 256;

/// Where the brain is found, and its session woken.
pub(crate) struct Desk {
    brain: Mutex<Brain>,
    wake: Notify,
}

impl Desk {
    pub fn new(node: Node, caching: bool, workshop: Arc<Workshop>, fetcher: Fetcher, lease: Lease) -> Arc<Self> {
        Arc::new_cyclic(|desk| Desk {
            brain: Mutex::new(Brain::new(node, caching, workshop, fetcher, Arc::new(lease), desk.clone())),
            wake: Notify::new(),
        })
    }

    /// The brain, which is held only for as long as it takes to tell it something.
    pub fn brain(&self) -> MutexGuard<'_, Brain> {
        self.brain.lock().expect("a brain that has broken off ends its executor")
    }

    /// Returns when the dispatcher is to be told what there is.
    pub async fn due(&self) {
        loop {
            let woken = self.wake.notified();
            let due = self.brain().due;
            match due {
                None => woken.await,
                // A timer would take until its next millisecond.
                Some(due) if due <= Instant::now() => return,
                Some(due) => tokio::select! {
                    () = woken => {}
                    () = sleep_until(due.into()) => return,
                },
            }
        }
    }

    /// Returns when something has happened since it last did, while the brain is leaving.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

/// A task this executor was given and has not done with.
struct Given {
    attempt: u32,
    assignment: Option<Assignment>,
    template: Arc<TaskTemplate>,
    /// What its inputs are called in the store, in their order.
    objects: Vec<ObjectId>,
    arrived: Instant,
    control: Option<Arc<Control>>,
    /// Its inputs had gone from the store when it was to start, and were fetched again.
    restaged: bool,
}

/// A fetch that is under way.
struct Fetching {
    size_bytes: u64,
    /// Whether it is to be had from executors alone.
    is_kept: bool,
    /// What fetches it, unless it is given by others.
    mover: Option<AbortHandle>,
}

pub(crate) struct Brain {
    node: Node,
    caching: bool,
    workshop: Arc<Workshop>,
    fetcher: Fetcher,
    lease: Arc<Lease>,
    desk: Weak<Desk>,
    /// What the dispatcher is to be told, in order, and when at the latest.
    facts: Vec<FromExecutor>,
    due: Option<Instant>,
    events: VecDeque<Event>,
    templates: HashMap<(JobId, u16), Arc<TaskTemplate>>,
    tasks: HashMap<TaskId, Given>,
    /// Fetches under way.
    fetching: HashMap<ObjectId, Fetching>,
    /// Objects that are to be held and are not here yet, with those who may have them.
    to_hold: HashMap<ObjectId, (ObjectSpec, Vec<executor::PeerHint>)>,
    /// Chunks of the file system that are held, or are to be.
    pins: HashSet<ObjectId>,
    /// Those that wait for room.
    pinning: HashMap<ObjectId, Vec<pin::Pinning>>,
    /// Claims of tasks that wait for their answers.
    claims: HashMap<TaskId, Arc<Claim>>,
    /// Turns at looking at outputs in persistent storage.
    checks: Arc<Semaphore>,
    /// Why the store cannot keep what the task that has just ended wrote.
    cannot_keep: Option<String>,
    /// Why an object could not be fetched, until its tasks have failed.
    unavailable: HashMap<ObjectId, (FailureKind, String)>,
    /// One thread for each slot that was ever used.
    slots: Vec<threads::Sender<Work>>,
    running: usize,
    /// What the dispatcher was told of the load.
    told: ExecutorLoad,
    /// What runs is being killed because this executor leaves; its tasks go back.
    leaving: bool,
    /// The dispatcher told it to stop.
    pub stopped: bool,
}

impl Brain {
    fn new(
        node: Node,
        caching: bool,
        workshop: Arc<Workshop>,
        fetcher: Fetcher,
        lease: Arc<Lease>,
        desk: Weak<Desk>,
    ) -> Self {
        Brain {
            node,
            caching,
            workshop,
            fetcher,
            lease,
            desk,
            facts: Vec::new(),
            due: None,
            events: VecDeque::new(),
            templates: HashMap::new(),
            tasks: HashMap::new(),
            fetching: HashMap::new(),
            to_hold: HashMap::new(),
            pins: HashSet::new(),
            pinning: HashMap::new(),
            claims: HashMap::new(),
            checks: Arc::new(Semaphore::new(MAX_CHECKS)),
            cannot_keep: None,
            unavailable: HashMap::new(),
            slots: Vec::new(),
            running: 0,
            told: ExecutorLoad::default(),
            leaving: false,
            stopped: false,
        }
    }

    /// Tells the node what the store held when the session began.
    pub fn found(&mut self, held: &[(ObjectId, u64)]) {
        self.look_at_disk();
        self.events.extend(held.iter().map(|(object, size)| Event::Found { object: *object, size_bytes: *size }));
        self.settle();
    }

    /// Does what the dispatcher says.
    pub fn commands(&mut self, commands: Vec<ToExecutor>) {
        for command in commands {
            self.command(command);
            self.decide();
        }
        self.settle();
    }

    /// A task has ended, and its slot is free.
    fn done(&mut self, work: Work, mut done: Done) {
        let task = work.assignment.task;
        self.running -= 1;
        self.claims.remove(&task);
        for object in done.found.damaged.iter().chain(&done.found.missing) {
            self.events.push_back(Event::Lost { object: *object });
            self.tell(FromExecutor::Evicted { object: *object });
        }
        self.keep(task, &done.found.kept, &mut done.outcome);
        self.events.push_back(Event::Ended { task });
        // Once: a store that loses its objects again and again is no place for the task.
        let again = !done.found.missing.is_empty() && !work.control.is_cancelled() && !self.tasks[&task].restaged;
        match done.outcome.status {
            _ if again => {
                self.assigned(work.assignment);
                if let Some(given) = self.tasks.get_mut(&task) {
                    given.restaged = true;
                }
            }
            Status::Cancelled if self.leaving => self.give_back(task),
            _ => self.report(task, done.outcome),
        }
        self.settle();
    }

    /// Asks the disk what it has free, and tells the dispatcher that this executor is alive.
    pub fn tick(&mut self) {
        self.look_at_disk();
        self.decide();
        self.lease.asked(Moment::now());
        self.tell(FromExecutor::Heartbeat { free_disk_bytes: self.node.disk_bytes() });
        self.tell_load(true);
        self.settle();
    }

    /// Whether no process runs and no fetch is under way.
    pub fn is_idle(&self) -> bool {
        self.running == 0 && self.fetching.is_empty()
    }

    /// Gives back what has not started, and kills and gives back what runs; it is [idle](Self::is_idle) once all that
    /// has ended.
    pub fn kill_all(&mut self) {
        self.leaving = true;
        let unstarted = self.tasks.iter().filter(|(_, given)| given.control.is_none());
        self.events.extend(unstarted.map(|(task, _)| Event::Recalled { task: *task }));
        self.decide();
        self.tasks.values().filter_map(|given| given.control.as_ref()).for_each(|control| control.cancel());
    }

    fn look_at_disk(&mut self) {
        match self.workshop.store.free_space() {
            Ok(free) => self.events.push_back(Event::FreeSpace { bytes: free.bytes, inodes: free.inodes }),
            Err(e) => tracing::warn!("cannot tell the free space under the store: {e}"),
        }
    }

    fn command(&mut self, command: ToExecutor) {
        match command {
            ToExecutor::Welcome { .. } | ToExecutor::Refused(_) => tracing::warn!("welcomed twice"),
            // The session's own.
            ToExecutor::Key { .. } | ToExecutor::Trust(_) => {}
            ToExecutor::Token { job, access } => self.workshop.tokens.keep(job, access),
            ToExecutor::Heard => self.lease.answered(),
            ToExecutor::Template { job, template, spec } => {
                self.templates.insert((job, template), Arc::new(*spec));
            }
            ToExecutor::Assign(assignment) => self.assigned(assignment),
            ToExecutor::Recall { task } => self.events.push_back(Event::Recalled { task }),
            ToExecutor::Cancel { task } => self.events.push_back(Event::Cancelled { task }),
            ToExecutor::Hold { object, holders } => self.hold(object, holders),
            ToExecutor::Release { object } => {
                self.to_hold.remove(&object);
                self.events.push_back(Event::Release { object });
            }
            ToExecutor::Claimed { task, by_other } => {
                if let Some(claim) = self.claims.remove(&task) {
                    claim.answer(by_other);
                }
            }
            ToExecutor::Check { task, objects } => self.check(task, objects),
            ToExecutor::Verify { object } => self.verify(object),
            ToExecutor::ForgetJob { job } => {
                self.templates.retain(|(of, _), _| *of != job);
                self.workshop.tokens.forget(job);
            }
            ToExecutor::EndLeftovers { incarnation } => {
                self.workshop.movers.spawn_blocking(move || leftovers::end_if_gone(&incarnation));
            }
            ToExecutor::Stop => self.stopped = true,
        }
    }

    fn assigned(&mut self, assignment: Assignment) {
        let task = assignment.task;
        let Some(template) = self.templates.get(&(task.job, assignment.template)).cloned() else {
            tracing::error!(%task, "assigned without its template; ignored");
            return;
        };
        let name = |object: &ObjectSpec| match self.caching {
            true => object.id(),
            // First-available shares nothing, not even between the tasks of one node.
            false => fetch::private_id(task, object),
        };
        let objects: Vec<_> = assignment.inputs.iter().map(|input| name(&input.object)).collect();
        let mut inputs: Vec<_> =
            objects.iter().copied().zip(assignment.inputs.iter().map(|input| input.object.size_bytes())).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let (need, priority) = (template.resources.clone(), template.priority);
        self.events.push_back(Event::Assigned { task, inputs: inputs.into(), need, priority });
        let (attempt, arrived) = (assignment.attempt, Instant::now());
        let assignment = Some(assignment);
        let given = Given { attempt, assignment, template, objects, arrived, control: None, restaged: false };
        self.tasks.insert(task, given);
    }

    /// Lets the node decide until nothing is left to decide.
    fn decide(&mut self) {
        let mut effects = Vec::new();
        while let Some(event) = self.events.pop_front() {
            self.node.handle(event, &mut effects);
            // Before what the effects tell, so that who ends is not counted among what is staged.
            self.tell_load(false);
            for effect in effects.drain(..) {
                self.carry_out(effect);
            }
        }
        self.unavailable.clear();
    }

    /// Tells the dispatcher of the load, if what is staged or suspended has changed; `at_all_events` also if what computes
    /// has, which it does with each task.
    fn tell_load(&mut self, at_all_events: bool) {
        let load = self.node.load();
        let of_note = |load: ExecutorLoad| (load.staging, load.suspended, load.lent_milli);
        if of_note(load) != of_note(self.told) || (at_all_events && load != self.told) {
            self.told = load;
            self.tell(FromExecutor::Load(load));
        }
    }

    /// Decides, and sees to it that the dispatcher is told in time.
    fn settle(&mut self) {
        self.decide();
        let is_lined_up = self.tasks.len() > self.running;
        let is_urgent = !is_lined_up || self.facts.len() >= MAX_GATHERED;
        if !self.facts.is_empty() && (is_urgent || self.due.is_none()) {
            self.due = Some(Instant::now() + if is_urgent { Duration::ZERO } else { GATHER });
            self.wake();
        } else if self.leaving {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(desk) = self.desk.upgrade() {
            desk.wake.notify_one();
        }
    }

    /// All that there is to tell the dispatcher, in order.
    pub fn take_facts(&mut self) -> Vec<FromExecutor> {
        self.due = None;
        std::mem::take(&mut self.facts)
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Fetch { object, task } => self.fetch(object, task),
            Effect::Evict { object } => self.evict(object),
            Effect::Expected { object } => self.expected(object),
            Effect::Held { object } => self.held(object),
            Effect::NotHeld { object, reason } => self.not_held(object, reason),
            Effect::CannotKeep { object, reason, .. } => self.remove_unkept(object, reason),
            Effect::Start { task, slot, reads } => self.start(task, slot, reads),
            Effect::Kill { task } => {
                if let Some(control) = self.tasks.get(&task).and_then(|given| given.control.as_ref()) {
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
            Effect::GiveBack { task } => self.give_back(task),
            Effect::Refuse { task, for_now, reason } => {
                let reason = format!("{} cannot take the task: {reason}", self.workshop.name);
                let kind = if for_now { FailureKind::NodeFull } else { FailureKind::Node };
                self.report(task, Outcome::failed(kind, reason));
            }
            Effect::Fail { task, object } => {
                let unknown = || (FailureKind::Input, format!("{object} could not be fetched"));
                let (kind, reason) = self.unavailable.get(&object).cloned().unwrap_or_else(unknown);
                self.report(task, Outcome::failed(kind, reason));
            }
        }
    }

    fn evict(&mut self, object: ObjectId) {
        if let Err(e) = self.workshop.store.remove(object) {
            tracing::warn!(%object, "cannot evict: {e}");
        }
        if self.caching {
            self.tell(FromExecutor::Evicted { object });
        }
    }

    fn start(&mut self, task: TaskId, slot: u32, reads: Reads) {
        let given = self.tasks.get_mut(&task).expect("the node knows no other tasks");
        if given.template.program == Program::Noop {
            let mut outcome = Outcome::of(Status::Succeeded);
            outcome.reads = reads;
            outcome.waited_us = given.arrived.elapsed().as_micros() as u64;
            self.events.push_back(Event::Ended { task });
            return self.report(task, outcome);
        }
        let control = match Control::new() {
            Ok(control) => Arc::new(control),
            Err(e) => {
                let reason = format!("{} has run out of file descriptors: {e}", self.workshop.name);
                self.events.push_back(Event::Ended { task });
                return self.report(task, Outcome::failed(FailureKind::NodeFull, reason));
            }
        };
        given.control = Some(control.clone());
        let work = Work {
            assignment: given.assignment.take().expect("a task starts once"),
            template: given.template.clone(),
            objects: given.objects.clone(),
            reads,
            slot,
            arrived: given.arrived,
            control,
            lease: self.lease.clone(),
            desk: self.desk.clone(),
        };
        self.running += 1;
        while self.slots.len() <= slot as usize {
            self.slots.push(slot_thread(self.workshop.clone(), self.desk.clone()));
        }
        self.slots[slot as usize].send(work).expect("slot threads live as long as the brain");
    }

    /// Asks the dispatcher for the places of a task's outputs, at once: the task waits for the answer.
    pub fn claim(&mut self, task: TaskId, attempt: u32, places: Vec<PlaceId>) -> Arc<Claim> {
        let claim = Arc::new(Claim::default());
        self.claims.insert(task, claim.clone());
        self.tell(FromExecutor::Claim { task, attempt, places });
        self.due = Some(Instant::now());
        self.wake();
        claim
    }

    /// Has a started task's processes stop, or go on.
    fn suspend(&mut self, task: TaskId, suspended: bool) {
        if let Some(control) = self.tasks.get(&task).and_then(|given| given.control.as_ref()) {
            control.suspend(suspended);
        }
    }

    fn report(&mut self, task: TaskId, outcome: Outcome) {
        if let Some(Given { attempt, .. }) = self.tasks.remove(&task) {
            self.tell(FromExecutor::Ended { task, attempt, outcome: Box::new(outcome) });
        }
    }

    fn give_back(&mut self, task: TaskId) {
        if let Some(Given { attempt, .. }) = self.tasks.remove(&task) {
            self.tell(FromExecutor::Returned { task, attempt });
        }
    }

    fn tell(&mut self, fact: FromExecutor) {
        self.facts.push(fact);
    }
}

fn slot_thread(workshop: Arc<Workshop>, desk: Weak<Desk>) -> threads::Sender<Work> {
    let (sender, receiver) = threads::channel::<Work>();
    let run = move || {
        let mut spare = None;
        while let Ok(work) = receiver.try_recv().or_else(|_| {
            // While there is nothing else to do.
            spare = spare.take().or_else(|| workshop.spare_sandbox());
            receiver.recv()
        }) {
            let done = workshop.run(&work, &mut spare);
            // If it is gone, the session has ended.
            if let Some(desk) = desk.upgrade() {
                desk.brain().done(work, done);
            }
        }
    };
    std::thread::Builder::new().name("slot".into()).spawn(run).expect("a thread for a slot");
    sender
}

/// How often the disk is looked at and a sign of life is given, for a heartbeat that must come every `heartbeat`.
pub(crate) fn tick_every(heartbeat: Duration) -> Duration {
    heartbeat / 3
}
