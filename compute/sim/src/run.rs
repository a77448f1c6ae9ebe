//! A simulated run: the deciders of dispatchers, one decider of a node for each executor, and the
//! modelled world between them.
//!
//! This is the shell of three deciders, as `dispatcher` and `executor` are in a real cluster:
//! `core/jobs`, `core/sched` and `core/node`. It turns simulated events into events of the
//! deciders, and their effects into later simulated events. A message takes time to arrive. A
//! dispatcher takes time for each decision and reads its messages one after the other. Bytes flow
//! over shared links.

use std::iter::Peekable;
use std::ops::ControlFlow;

use eyas_dispatch::Effect;
use eyas_jobs::{Event as JobsEvent, JobsAction};
use eyas_provision::NodeRequestId;
use eyas_sched::{Event, Holder, PlacementCommand};
use eyas_types::{ExecutorId, Origin, PlacementPolicy};

use crate::arrival::Arrival;
use crate::audit::Audit;
use crate::clock::{EventQueue, MICROSECOND, Ns, seconds};
use crate::cluster::{Policies, SimCluster};
use crate::flows::{Flows, LinkId, TOLERANCE};
use crate::nodes::Failures;
use crate::outcome::{Level, RunOutcome};
use crate::random::Random;
use crate::run::batch::SimulatedBatch;
use crate::run::dispatchers::{Dispatchers, Partitioner};
use crate::run::executor::SimExecutors;
use crate::run::fetch::Fetches;
use crate::run::inputs::WorkloadInputs;
use crate::run::job::Plan;
use crate::run::membership::Membership;
use crate::run::object::Owner;
use crate::run::push::Push;
use crate::run::requests::SimClient;
use crate::run::tag::Tag;
use crate::run::task::{SimTask, SimTasks};
use crate::workload::{Adapted, Workload};

mod batch;
mod dispatchers;
mod ends;
mod executor;
mod fetch;
mod inputs;
mod job;
mod journal;
mod membership;
mod object;
mod page_cache;
mod push;
mod requests;
mod restart;
mod tag;
mod task;

/// An event of the simulated world.
#[derive(Clone, Copy, Debug)]
enum SimEvent {
    /// The next task of the workload arrives.
    TaskArrives,
    /// A message of an executor arrives at its dispatcher.
    FactArrives(Fact),
    /// A dispatcher has finished a decision, and can read its next message.
    DecisionEnds { dispatcher: u32 },
    /// An assigned task arrives at an executor.
    Assigned { executor: u32, task: u32 },
    /// The request to give back a task arrives at an executor.
    Recall { executor: u32, task: u32 },
    /// The request to hold an object arrives at an executor.
    Hold { executor: u32, object: u32 },
    /// The message that an object need not be held any longer arrives at an executor.
    Release { executor: u32, object: u32 },
    /// A request for an object arrives at its source.
    FetchRequested { fetch: u32, asked: u32 },
    /// A source did not receive in time the object that it was expected to relay.
    RelayTimeout { fetch: u32, asked: u32 },
    /// The request to cancel a task arrives at an executor.
    Cancel { executor: u32, task: u32 },
    /// The request to check for an object arrives at an executor.
    Verify { executor: u32, object: u32 },
    /// All sources of a fetch have failed.
    FetchFails { fetch: u32, asked: u32 },
    /// An attempt at a task has read its inputs and computed.
    Computed { executor: u32, task: u32, attempt: u32 },
    /// An attempt at a task is killed.
    Killed { executor: u32, task: u32, attempt: u32 },
    /// The regular report of outstanding work reaches the provisioner.
    WorkReport,
    /// A timeout of the provisioner has passed.
    ProvisionerTimeout,
    /// The batch system grants the nodes of a request, or reports that the request failed.
    RequestAnswered { request: NodeRequestId },
    /// The walltime of a node is over: the batch system ends it.
    WalltimeOver { machine: u32, holding: u32 },
    /// A node is lost with its tasks and its store.
    NodeLost { executor: u32 },
    /// A machine that was lost comes back.
    MachineBack { machine: u32 },
    /// An executor's connection to the dispatcher breaks.
    Disconnected { executor: u32 },
    /// An executor connects again.
    ExecutorRejoins { machine: u32 },
    /// An executor asks to leave in good order.
    ExecutorRetires { executor: u32 },
    /// An executor that asked to leave is told that it may.
    ExecutorStops { executor: u32 },
    /// A timeout of a dispatcher's `core/jobs` has passed.
    JobsTimeout { dispatcher: u32 },
    /// The oldest journal entry in flight is on disk, unless the dispatcher has died since.
    OnDisk { dispatcher: u32, deaths: u32 },
    /// A dispatcher dies.
    DispatcherDies { dispatcher: u32 },
    /// A dispatcher is started again.
    DispatcherRestarts { dispatcher: u32 },
    /// A request of the client arrives at a dispatcher.
    ClientRequest { dispatcher: u32, request: u32 },
}

/// A message of an executor to its dispatcher, or a fact about it.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Ready,
    Ended { executor: u32, task: u32, ran_us: u32, end: End },
    Returned { executor: u32, task: u32 },
    Fetched { executor: u32, object: u32, from: Origin, took_us: u32 },
    Stored { executor: u32, object: u32 },
    NotHeld { executor: u32, object: u32 },
    Evicted { executor: u32, object: u32 },
    Staging { executor: u32, lent_milli: u32, light_bytes: u64 },
    Gone { executor: u32 },
    Retiring { executor: u32 },
    Left { executor: u32 },
}

/// How an attempt at a task ended on its executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Succeeded,
    /// The program failed.
    Failed,
    Killed,
    /// A kept input could not be fetched from any executor.
    Starved,
    /// The store is too small for the inputs.
    Refused,
    /// The store has no room at present for the inputs or the outputs.
    NoRoom,
}

impl Fact {
    /// The executor that the fact is about.
    fn executor(self) -> Option<u32> {
        match self {
            Fact::Ready => None,
            Fact::Ended { executor, .. }
            | Fact::Returned { executor, .. }
            | Fact::Fetched { executor, .. }
            | Fact::Stored { executor, .. }
            | Fact::NotHeld { executor, .. }
            | Fact::Evicted { executor, .. }
            | Fact::Staging { executor, .. }
            | Fact::Gone { executor }
            | Fact::Retiring { executor }
            | Fact::Left { executor } => Some(executor),
        }
    }
}

/// Most tasks of one run. Tags of flows have a task's number and one more bit.
pub const MAX_TASKS: u32 = u32::MAX >> 1;
/// Gives failing tasks another sequence of random numbers than nodes.
const TASK_DICE: u64 = 0x7461_736b;
/// Steps between two calls of `watch`.
const STEPS_UNSEEN: u32 = 1_024;

/// Runs a workload to its end.
pub fn run(
    cluster: &SimCluster,
    policies: &Policies,
    workload: &dyn Workload,
    seed: u64,
) -> RunOutcome {
    run_watched(cluster, policies, workload, seed, Ns::MAX, &mut |_| ControlFlow::Continue(()))
}

/// Runs a workload until it ends, until `limit_ns`, or until `watch` stops it. `watch` is called
/// regularly with the outcome so far.
pub fn run_watched(
    cluster: &SimCluster,
    policies: &Policies,
    workload: &dyn Workload,
    seed: u64,
    limit_ns: Ns,
    watch: &mut dyn FnMut(&RunOutcome) -> ControlFlow<()>,
) -> RunOutcome {
    complete(Run::new(cluster, policies, workload, seed), limit_ns, watch)
}

/// Runs a workload until it ends or until `limit_ns`, and reports what happens to `audit`.
pub fn run_audited(
    cluster: &SimCluster,
    policies: &Policies,
    workload: &dyn Workload,
    seed: u64,
    limit_ns: Ns,
    audit: &mut dyn Audit,
) -> RunOutcome {
    let mut run = Run::new(cluster, policies, workload, seed);
    run.audit = Some(audit);
    run.keep_journals();
    complete(run, limit_ns, &mut |_| ControlFlow::Continue(()))
}

fn complete(
    mut run: Run,
    limit_ns: Ns,
    watch: &mut dyn FnMut(&RunOutcome) -> ControlFlow<()>,
) -> RunOutcome {
    run.begin();
    let mut steps = 0_u32;
    while run.has_tasks()
        && let Some(next) = run.next_at()
    {
        if next > limit_ns {
            run.ended_at = limit_ns;
            break;
        }
        run.step(next);
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(STEPS_UNSEEN) && watch(&run.outcome).is_break() {
            run.ended_at = run.now;
            break;
        }
    }
    run.outcome.makespan_ns = run.ended_at;
    run.outcome.course.close(run.ended_at, run.level());
    run.note_decisions();
    run.note_counts();
    run.outcome.held_cpu_ns = run.membership.held_ns(run.ended_at) * u128::from(run.cluster.cpus);
    run.outcome
}

/// Run time of a workload, in seconds, with "all data accesses occurring to local disk"
/// (data-diffusion §5.3). Every node has all objects from the start, on its disk and not in the
/// page cache if it has a disk. The dispatcher takes no time.
///
/// Computing times vary a little, by a seed. If all tasks computed equally long, the processors of
/// a node would read at the same time from the first task to the last and compete for the disk, as
/// in no other run.
pub fn all_local_s(cluster: &SimCluster, workload: &dyn Workload, seed: u64) -> f64 {
    let (batch, failures) = (None, Failures::default());
    let cluster = SimCluster {
        decision_ns: 0,
        message_ns: 0,
        page_cache_bytes: 0,
        batch,
        failures,
        ..cluster.clone()
    };
    let uneven = Adapted::uneven(workload, seed);
    let mut run =
        Run::new(&cluster, &Policies::of_the_paper(PlacementPolicy::FirstAvailable), &uneven, 0);
    run.is_warm = true;
    run.begin();
    while let Some(next) = run.next_at() {
        run.step(next);
    }
    seconds(run.ended_at)
}

struct Run<'a> {
    cluster: &'a SimCluster,
    caches: bool,
    /// Every node has all objects from the start.
    is_warm: bool,
    now: Ns,
    events: EventQueue<SimEvent>,
    flows: Flows,
    storage: LinkId,
    bisection: Option<LinkId>,
    plan: Plan,
    partitioner: Partitioner,
    dispatchers: Dispatchers,
    client: SimClient,
    audit: Option<&'a mut dyn Audit>,
    /// Decides which attempts fail.
    task_dice: Random,
    node_effects: Vec<eyas_node::Effect>,
    executors: SimExecutors,
    membership: Membership,
    batch: Option<SimulatedBatch>,
    policies: Policies,
    seed: u64,
    fetches: Fetches,
    push: Option<Push>,
    tasks: SimTasks,
    workload: &'a dyn Workload,
    arrivals: Peekable<Box<dyn Iterator<Item = Arrival> + 'a>>,
    /// Tags of the flows that ended in this step.
    ended: Vec<u32>,
    running: u64,
    ended_at: Ns,
    outcome: RunOutcome,
}

impl<'a> Run<'a> {
    fn new(
        cluster: &'a SimCluster,
        policies: &Policies,
        workload: &'a dyn Workload,
        seed: u64,
    ) -> Self {
        let mut flows = Flows::new(TOLERANCE);
        let storage = flows.link(cluster.storage.bytes_per_s);
        let bisection = cluster.bisection_bytes_per_s.map(|rate| flows.link(rate));
        let membership = Membership::new(cluster, &mut flows, seed);
        let mut plan = Plan::new(cluster, policies, workload);
        let dispatchers = Dispatchers::new(policies, std::mem::take(&mut plan.specs));
        let tasks = SimTasks::new(
            plan.outputs.has_kept() || cluster.failures.dispatcher_dies_after_ns.is_some(),
        );
        Run {
            cluster,
            caches: policies.caches(),
            is_warm: false,
            now: 0,
            events: EventQueue::new(),
            flows,
            storage,
            bisection,
            plan,
            partitioner: Partitioner::new(cluster, policies),
            dispatchers,
            client: SimClient::new(workload),
            audit: None,
            task_dice: Random::new(seed ^ TASK_DICE),
            node_effects: Vec::new(),
            executors: SimExecutors::default(),
            membership,
            batch: cluster.batch.as_ref().map(|batch| SimulatedBatch::new(batch, cluster, seed)),
            policies: *policies,
            seed,
            fetches: Fetches::default(),
            push: policies
                .distribution
                .filter(|_| policies.caches())
                .map(|distribution| Push::new(distribution, cluster.dispatchers)),
            tasks,
            workload,
            arrivals: workload.arrivals().peekable(),
            ended: Vec::new(),
            running: 0,
            ended_at: 0,
            outcome: RunOutcome::default(),
        }
    }

    fn begin(&mut self) {
        self.submit_jobs();
        self.plan_restarts();
        self.plan_requests();
        match self.batch {
            Some(_) => self.survey(),
            None => (0..self.cluster.nodes).for_each(|_| self.start_node(None)),
        }
        self.begin_push();
        if !self.is_pushed_first() {
            self.await_arrival();
        }
    }

    /// Whether tasks have still to arrive or to end.
    fn has_tasks(&mut self) -> bool {
        self.arrivals.peek().is_some()
            || self.dispatchers.all().any(|of| of.is_down || !of.job().has_ended())
            || { self.retries_job() || self.lacks_promised() }
    }

    /// The next instant at which an event happens.
    fn next_at(&mut self) -> Option<Ns> {
        [self.events.next_at(), self.flows.next_end()].into_iter().flatten().min()
    }

    /// Handles all events of the next instant, `now`.
    fn step(&mut self, now: Ns) {
        self.outcome.course.advance(now, self.level());
        self.now = now;
        while let Some(what) = self.events.pop_by(now) {
            self.handle(what);
        }
        let mut ended = std::mem::take(&mut self.ended);
        self.flows.end_by(now, &mut ended);
        for tag in ended.drain(..) {
            match Tag::of(tag) {
                Tag::Fetch(fetch) => self.fetched(fetch),
                Tag::OfTask(task) => self.flow_of_task_ended(task),
            }
        }
        self.ended = ended;
        self.read_inboxes();
        self.tell_changes();
        self.flows.settle();
        self.show_step();
    }

    /// Numbers of waiting tasks, running tasks and nodes.
    fn level(&self) -> Level {
        Level {
            waiting: self.dispatchers.waiting,
            running: self.running,
            nodes: self.membership.nodes(),
        }
    }

    fn handle(&mut self, what: SimEvent) {
        match what {
            SimEvent::TaskArrives => self.arrive(),
            SimEvent::FactArrives(fact) => self.tell_dispatcher(fact),
            SimEvent::DecisionEnds { dispatcher } => self.dispatchers.decided(dispatcher as usize),
            SimEvent::Assigned { executor, .. }
            | SimEvent::Recall { executor, .. }
            | SimEvent::Cancel { executor, .. }
            | SimEvent::Verify { executor, .. }
            | SimEvent::Killed { executor, .. }
            | SimEvent::ExecutorRetires { executor }
            | SimEvent::ExecutorStops { executor }
            | SimEvent::Hold { executor, .. }
            | SimEvent::Release { executor, .. }
            | SimEvent::Computed { executor, .. }
            | SimEvent::NodeLost { executor }
            | SimEvent::Disconnected { executor }
                if !self.executors.has(executor) => {}
            SimEvent::Assigned { executor, task } => self.task_assigned(executor, task),
            SimEvent::Recall { executor, task } => {
                let task = self.plan.task_id(self.dispatcher_of(executor), task);
                self.tell_node(executor, eyas_node::Event::Recalled { task });
            }
            SimEvent::Cancel { executor, task } => {
                let task = self.plan.task_id(self.dispatcher_of(executor), task);
                self.tell_node(executor, eyas_node::Event::Cancelled { task });
            }
            SimEvent::Verify { executor, object } => self.verify(executor, object),
            SimEvent::FetchFails { fetch, asked } => self.fetch_fails(fetch, asked),
            SimEvent::FetchRequested { fetch, asked } => self.answer(fetch, asked),
            SimEvent::Hold { executor, object } => self.hold_requested(executor, object),
            SimEvent::Release { executor, object } => self.released(executor, object),
            SimEvent::RelayTimeout { fetch, asked } => self.relay_timed_out(fetch, asked),
            SimEvent::Computed { executor, task, attempt } => {
                self.computed(executor, task, attempt)
            }
            SimEvent::Killed { executor, task, attempt } => self.killed(executor, task, attempt),
            SimEvent::WorkReport => self.survey(),
            SimEvent::ProvisionerTimeout => self.provisioner_timeout(),
            SimEvent::RequestAnswered { request } => self.granted(request),
            SimEvent::WalltimeOver { machine, holding } => self.expired(machine, holding),
            SimEvent::NodeLost { executor } => self.lost(executor),
            SimEvent::MachineBack { machine } => self.back(machine),
            SimEvent::Disconnected { executor } => self.disconnected(executor),
            SimEvent::ExecutorRejoins { machine } => self.rejoins(machine),
            SimEvent::ExecutorRetires { executor } => self.say(Fact::Retiring { executor }),
            SimEvent::ExecutorStops { executor } => self.stops(executor),
            SimEvent::JobsTimeout { dispatcher } => self.jobs_timeout(dispatcher as usize),
            SimEvent::OnDisk { dispatcher, deaths } => self.on_disk(dispatcher as usize, deaths),
            SimEvent::DispatcherDies { dispatcher } => self.dies(dispatcher as usize),
            SimEvent::DispatcherRestarts { dispatcher } => self.restarts(dispatcher as usize),
            SimEvent::ClientRequest { dispatcher, request } => {
                self.asks(dispatcher as usize, request)
            }
        }
    }

    // ---- arrivals

    fn await_arrival(&mut self) {
        if let Some(next) = self.arrivals.peek() {
            self.events.schedule(self.now.max(next.at_us * MICROSECOND), SimEvent::TaskArrives);
        }
    }

    fn arrive(&mut self) {
        while let Some(arrival) = self.arrivals.next_if(|next| next.at_us * MICROSECOND <= self.now)
        {
            let number = self.partitioner.next_dispatcher(arrival.inputs.first().copied());
            let index = self.dispatchers[number].arrived;
            self.dispatchers[number].arrived += 1;
            self.tasks.add(SimTask::new(arrival, index, &self.plan.outputs));
            self.outcome.tasks += 1;
            self.dispatchers.tell(number, Fact::Ready);
        }
        self.await_arrival();
    }

    // ---- dispatchers

    fn say(&mut self, fact: Fact) {
        let on_its_way = self.cluster.message_ns + self.catalog_delay(fact);
        self.events.schedule(self.now + on_its_way, SimEvent::FactArrives(fact));
    }

    fn catalog_delay(&self, fact: Fact) -> Ns {
        match fact {
            // Kept outputs are reported at once: the dispatcher must know them before the end of
            // their task.
            Fact::Stored { object, .. } | Fact::Evicted { object, .. }
                if self.plan.outputs.is_kept(object) =>
            {
                0
            }
            Fact::Fetched { .. } | Fact::Stored { .. } | Fact::Evicted { .. } => {
                self.cluster.catalog_delay_ns
            }
            _ => 0,
        }
    }

    fn read(&mut self, number: usize, fact: Fact) {
        if fact.executor().is_some_and(|executor| !self.membership.is_known(executor)) {
            return;
        }
        self.note(number, fact);
        let event = match fact {
            Fact::Ready => return self.tell_jobs(number, JobsEvent::QueueMore { tasks: 1 }),
            Fact::Ended { executor, task, ran_us, end } => {
                return self.ended(number, executor, task, ran_us, end);
            }
            Fact::Returned { executor, task } => {
                let SimTask { attempt, .. } = self.tasks[task];
                let (executor, task) = (ExecutorId(executor), self.tasks.id_of(task));
                return self.tell_jobs(number, JobsEvent::TaskReturned { executor, task, attempt });
            }
            // Real executors do not report this either. Only the provisioner learns from it.
            Fact::Fetched { .. } if !self.caches => return,
            Fact::Fetched { executor, object, from, took_us } => {
                let (executor, object) = (ExecutorId(executor), self.id_of(object));
                Event::Fetched { executor, object, from, took_us: took_us.into() }
            }
            Fact::Stored { executor, object } => {
                let size_bytes = self.workload.size_bytes(object);
                Event::Stored {
                    executor: ExecutorId(executor),
                    object: self.id_of(object),
                    size_bytes,
                }
            }
            Fact::NotHeld { executor, object } => {
                Event::NotHeld { executor: ExecutorId(executor), object: self.id_of(object) }
            }
            Fact::Evicted { executor, object } => {
                Event::Evicted { executor: ExecutorId(executor), object: self.id_of(object) }
            }
            Fact::Staging { executor, lent_milli, light_bytes } => Event::Staging {
                executor: ExecutorId(executor),
                lent_milli: lent_milli.into(),
                light_bytes,
            },
            Fact::Retiring { executor } => {
                let executor = ExecutorId(executor);
                return self.tell_jobs(number, JobsEvent::ExecutorLeaves { executor });
            }
            Fact::Gone { executor } => return self.forget(executor, true),
            Fact::Left { executor } => return self.forget(executor, false),
        };
        self.tell_scheduler(number, event);
        if self.plan.outputs.has_kept() {
            // Others may have fetched the objects that a leaving executor held.
            self.report_moves_of_leaving(number);
        }
    }

    /// Performs one effect of a dispatcher's deciders.
    fn perform(&mut self, number: usize, effect: Effect) {
        match effect {
            Effect::Scheduler(command) => self.perform_command(number, command),
            Effect::Jobs(action) => self.perform_action(number, action),
        }
    }

    fn perform_command(&mut self, number: usize, command: PlacementCommand) {
        use PlacementCommand as Command;
        match command {
            Command::Assign { executor, task, attempt, hints, .. } => {
                let decides_until = &mut self.dispatchers[number].decides_until;
                *decides_until = self.now.max(*decides_until) + self.cluster.decision_ns;
                if let Some(audit) = &mut self.audit {
                    audit.assigned(number, task.index);
                }
                let task = self.plan.number(number, task);
                let assigned = &mut self.tasks[task];
                (assigned.hints, assigned.assigned, assigned.attempt) = (hints, self.now, attempt);
                self.note_assigned(executor.0);
                self.send(number, SimEvent::Assigned { executor: executor.0, task });
            }
            Command::Recall { executor, task } => {
                let task = self.plan.number(number, task);
                self.send(number, SimEvent::Recall { executor: executor.0, task });
            }
            Command::Cancel { executor, task } => {
                let task = self.plan.number(number, task);
                self.send(number, SimEvent::Cancel { executor: executor.0, task });
            }
            Command::Hold { executor, object, holders } => {
                self.hold(number, executor.0, self.plan.outputs.object_of(object), holders);
            }
            Command::Release { executor, object } => {
                let object = self.plan.outputs.object_of(object);
                self.send(number, SimEvent::Release { executor: executor.0, object });
            }
            Command::Verify { executor, object } => {
                let object = self.plan.outputs.object_of(object);
                self.send(number, SimEvent::Verify { executor: executor.0, object });
            }
            Command::Pushed { push } => self.pushed(number, push),
        }
    }

    fn perform_action(&mut self, number: usize, action: JobsAction) {
        use JobsAction as Action;
        match action {
            Action::Stop { executor } => {
                self.send(number, SimEvent::ExecutorStops { executor: executor.0 })
            }
            Action::Write(record) => self.write(number, record),
            // No client watches the job, and objects are pushed as `Policies` say.
            Action::Show { .. }
            | Action::Broadcast { .. }
            | Action::EndBroadcast { .. }
            | Action::Forget { .. } => {}
            Action::SetAside { .. } | Action::TakenBack { .. } => {}
            // An executor has all inputs of a task from the moment of its assignment.
            Action::Replaced { .. } => {}
            Action::ReadResult { .. } | Action::Check { .. } => {
                unreachable!("jobs do not reuse results")
            }
            Action::Claimed { .. } => unreachable!("outputs of tasks are at places of their own"),
            Action::Deliver { .. } | Action::NotExtended { .. } | Action::Detached { .. } => {
                unreachable!("no job is attached to a client")
            }
        }
    }

    /// Sends a dispatcher's decision to an executor.
    fn send(&mut self, number: usize, message: SimEvent) {
        let at = self.dispatchers[number].decides_until.max(self.now) + self.cluster.message_ns;
        self.events.schedule(at, message);
    }

    /// The id of an object that all executors share.
    fn id_of(&self, object: u32) -> eyas_types::ObjectId {
        self.plan.outputs.id_of(object, Owner::All)
    }

    /// Inputs of a task with their sizes, sorted by the ids that they have for `owner`.
    fn inputs_of(&self, task: u32, owner: Owner) -> Box<[(eyas_types::ObjectId, u64)]> {
        WorkloadInputs { plan: &self.plan, tasks: &self.tasks, workload: self.workload }
            .of(task, owner)
    }
}

#[cfg(test)]
mod tests;
