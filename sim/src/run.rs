//! A run: the deciders of dispatchers, one decider of a node for each executor, and the modelled world between them.
//!
//! It is the shell of three deciders, as `dispatcher` and `executor` are of real ones: `core/jobs`, `core/sched` and
//! `core/node`. It turns what happens into their events and their effects into what will happen. Messages take their time, a
//! dispatcher takes its time for each decision and reads messages one after the other, and bytes flow over links that are
//! shared.

use std::iter::Peekable;
use std::ops::ControlFlow;

use eyas_dispatch::Effect;
use eyas_jobs::Event as JobsEvent;
use eyas_provision::NodeRequestId;
use eyas_sched::{Event, Holder};
use eyas_types::{ExecutorId, Origin, PlacementPolicy};

use crate::arrival::Arrival;
use crate::audit::Audit;
use crate::clock::{Clock, MICROSECOND, Ns, seconds};
use crate::cluster::{Cluster, Policies};
use crate::flows::{Flows, LinkId, TOLERANCE};
use crate::nodes::Failures;
use crate::outcome::{Level, Outcome};
use crate::random::Random;
use crate::run::batch::BatchSystem;
use crate::run::dispatchers::{Dealer, Dispatchers};
use crate::run::executor::Executors;
use crate::run::fetch::Fetches;
use crate::run::job::Plan;
use crate::run::membership::Membership;
use crate::run::object::Owner;
use crate::run::push::Push;
use crate::run::requests::SimClient;
use crate::run::tag::Tag;
use crate::run::task::{Task, Tasks};
use crate::workload::{Uneven, Workload};

mod batch;
mod dispatchers;
mod ends;
mod executor;
mod fetch;
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

/// What will happen.
#[derive(Clone, Copy, Debug)]
enum SimEvent {
    /// The next task of the workload comes.
    Arrives,
    /// A dispatcher is told something by an executor of its.
    Told(Fact),
    /// A dispatcher has decided, and can read on.
    Decided { dispatcher: u32 },
    /// An executor is given a task.
    Given { executor: u32, task: u32 },
    /// An executor is asked to give a task back.
    Recalled { executor: u32, task: u32 },
    /// An executor is told to hold an object.
    ToHold { executor: u32, object: u32 },
    /// An executor need not hold an object any longer.
    Released { executor: u32, object: u32 },
    /// A source hears that it is asked for an object.
    Asked { fetch: u32, asked: u32 },
    /// A source that was to get an object soon has not.
    Despaired { fetch: u32, asked: u32 },
    /// An executor is told to end a task.
    Cancelled { executor: u32, task: u32 },
    /// An executor is to check whether it has an object.
    Verify { executor: u32, object: u32 },
    /// A fetch has no source left.
    FetchFails { fetch: u32, asked: u32 },
    /// A task has its inputs in memory, and has computed, in the try of that number.
    Computed { executor: u32, task: u32, attempt: u32 },
    /// A task is killed, in the try of that number.
    Killed { executor: u32, task: u32, attempt: u32 },
    /// The provisioner is told how much there is to do.
    Surveyed,
    /// Something is due for the provisioner.
    Due,
    /// The batch system gives the nodes of a request, or says that it cannot.
    Granted { request: NodeRequestId },
    /// The batch system takes a node back, the time of which is over.
    Expired { machine: u32, holding: u32 },
    /// A node is lost, with all that it has.
    Lost { executor: u32 },
    /// A machine that was lost is back.
    Back { machine: u32 },
    /// An executor's connection to the dispatcher breaks.
    Disconnected { executor: u32 },
    /// An executor joins again.
    Rejoins { machine: u32 },
    /// An executor asks to leave in good order.
    Retires { executor: u32 },
    /// An executor that has asked to leave may do so.
    Stops { executor: u32 },
    /// Something is due for the decider of jobs of a dispatcher.
    JobsDue { dispatcher: u32 },
    /// The oldest entry that a dispatcher has written is on disk, if it has not died since.
    OnDisk { dispatcher: u32, deaths: u32 },
    /// A dispatcher dies.
    Dies { dispatcher: u32 },
    /// A dispatcher is started again.
    Restarts { dispatcher: u32 },
    /// The client makes a request of a dispatcher.
    Asks { dispatcher: u32, request: u32 },
}

/// What a dispatcher is told.
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

/// How a try at a task ended on its executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Succeeded,
    /// Its program failed.
    Failed,
    Killed,
    /// An input that is kept in the cluster could not be had.
    Starved,
    /// The store is too small for its inputs.
    Refused,
    /// The store has no room now, for its inputs or its outputs.
    NoRoom,
}

impl Fact {
    /// Which executor it is of.
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

/// Tasks of one run at most: their numbers are told by flows, beside a bit.
pub const MAX_TASKS: u32 = u32::MAX >> 1;
/// Makes the dice of tasks that fail others than those of nodes.
const TASK_DICE: u64 = 0x7461_736b;
/// Steps between two looks at how a run is getting on.
const STEPS_UNSEEN: u32 = 1_024;

/// Runs a workload to its end.
pub fn run(cluster: &Cluster, policies: &Policies, workload: &dyn Workload, seed: u64) -> Outcome {
    run_watched(cluster, policies, workload, seed, Ns::MAX, &mut |_| ControlFlow::Continue(()))
}

/// Runs a workload to its end, or to its `limit_ns`, or until `watch` breaks it off, which is told again and again what has
/// come of it so far.
pub fn run_watched(
    cluster: &Cluster,
    policies: &Policies,
    workload: &dyn Workload,
    seed: u64,
    limit_ns: Ns,
    watch: &mut dyn FnMut(&Outcome) -> ControlFlow<()>,
) -> Outcome {
    complete(Run::new(cluster, policies, workload, seed), limit_ns, watch)
}

/// Runs a workload to its end, or to its `limit_ns`, and shows `audit` what happens.
pub fn run_audited(
    cluster: &Cluster,
    policies: &Policies,
    workload: &dyn Workload,
    seed: u64,
    limit_ns: Ns,
    audit: &mut dyn Audit,
) -> Outcome {
    let mut run = Run::new(cluster, policies, workload, seed);
    run.audit = Some(audit);
    run.keep_journals();
    complete(run, limit_ns, &mut |_| ControlFlow::Continue(()))
}

fn complete(mut run: Run, limit_ns: Ns, watch: &mut dyn FnMut(&Outcome) -> ControlFlow<()>) -> Outcome {
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

/// How long a workload takes, seconds, with "all data accesses occurring to local disk" (data-diffusion §5.3): every node
/// has all objects from the beginning, none of them in memory if it has a disk, and the dispatcher takes no time.
///
/// Tasks compute a little longer or shorter than the workload says, by a seed. Tasks that all compute for the same time would
/// read at the same time on the processors of a node, and share its disk from the first task to the last, which no other
/// run does.
pub fn all_local_s(cluster: &Cluster, workload: &dyn Workload, seed: u64) -> f64 {
    let (batch, failures) = (None, Failures::default());
    let cluster = Cluster { decision_ns: 0, message_ns: 0, page_cache_bytes: 0, batch, failures, ..cluster.clone() };
    let uneven = Uneven { workload, seed };
    let mut run = Run::new(&cluster, &Policies::of_the_paper(PlacementPolicy::FirstAvailable), &uneven, 0);
    run.is_warm = true;
    run.begin();
    while let Some(next) = run.next_at() {
        run.step(next);
    }
    seconds(run.ended_at)
}

struct Run<'a> {
    cluster: &'a Cluster,
    caches: bool,
    /// Every node has all objects from the beginning.
    is_warm: bool,
    now: Ns,
    clock: Clock<SimEvent>,
    flows: Flows,
    storage: LinkId,
    bisection: Option<LinkId>,
    plan: Plan,
    dealer: Dealer,
    dispatchers: Dispatchers,
    client: SimClient,
    audit: Option<&'a mut dyn Audit>,
    /// Of tasks that fail.
    task_dice: Random,
    node_effects: Vec<eyas_node::Effect>,
    executors: Executors,
    membership: Membership,
    batch: Option<BatchSystem>,
    policies: Policies,
    seed: u64,
    fetches: Fetches,
    push: Option<Push>,
    tasks: Tasks,
    workload: &'a dyn Workload,
    arrivals: Peekable<Box<dyn Iterator<Item = Arrival> + 'a>>,
    /// Tags of flows that have ended.
    ended: Vec<u32>,
    running: u64,
    ended_at: Ns,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster, policies: &Policies, workload: &'a dyn Workload, seed: u64) -> Self {
        let mut flows = Flows::new(TOLERANCE);
        let storage = flows.link(cluster.storage.bytes_per_s);
        let bisection = cluster.bisection_bytes_per_s.map(|rate| flows.link(rate));
        let membership = Membership::new(cluster, &mut flows, seed);
        let mut plan = Plan::new(cluster, policies, workload);
        let dispatchers = Dispatchers::new(policies, std::mem::take(&mut plan.specs));
        let tasks = Tasks::new(plan.outputs.has_kept() || cluster.failures.dispatcher_dies_after_ns.is_some());
        Run {
            cluster,
            caches: policies.caches(),
            is_warm: false,
            now: 0,
            clock: Clock::new(),
            flows,
            storage,
            bisection,
            plan,
            dealer: Dealer::new(cluster, policies),
            dispatchers,
            client: SimClient::new(workload),
            audit: None,
            task_dice: Random::new(seed ^ TASK_DICE),
            node_effects: Vec::new(),
            executors: Executors::default(),
            membership,
            batch: cluster.batch.as_ref().map(|batch| BatchSystem::new(batch, cluster, seed)),
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
            outcome: Outcome::default(),
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

    /// Whether tasks are still to come or to end.
    fn has_tasks(&mut self) -> bool {
        self.arrivals.peek().is_some() || self.dispatchers.all().any(|of| of.is_down || !of.job().has_ended()) || {
            self.retries_job() || self.lacks_promised()
        }
    }

    /// The next instant at which something happens.
    fn next_at(&mut self) -> Option<Ns> {
        [self.clock.next_at(), self.flows.next_end()].into_iter().flatten().min()
    }

    /// Lets happen what happens `now`, at the next instant.
    fn step(&mut self, now: Ns) {
        self.outcome.course.advance(now, self.level());
        self.now = now;
        while let Some(what) = self.clock.pop_by(now) {
            self.happen(what);
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

    /// How things stand.
    fn level(&self) -> Level {
        Level { waiting: self.dispatchers.waiting, running: self.running, nodes: self.membership.nodes() }
    }

    fn happen(&mut self, what: SimEvent) {
        match what {
            SimEvent::Arrives => self.arrive(),
            SimEvent::Told(fact) => self.tell_dispatcher(fact),
            SimEvent::Decided { dispatcher } => self.dispatchers.decided(dispatcher as usize),
            SimEvent::Given { executor, .. }
            | SimEvent::Recalled { executor, .. }
            | SimEvent::Cancelled { executor, .. }
            | SimEvent::Verify { executor, .. }
            | SimEvent::Killed { executor, .. }
            | SimEvent::Retires { executor }
            | SimEvent::Stops { executor }
            | SimEvent::ToHold { executor, .. }
            | SimEvent::Released { executor, .. }
            | SimEvent::Computed { executor, .. }
            | SimEvent::Lost { executor }
            | SimEvent::Disconnected { executor }
                if !self.executors.has(executor) => {}
            SimEvent::Given { executor, task } => self.given(executor, task),
            SimEvent::Recalled { executor, task } => {
                let task = self.plan.task_id(self.dispatcher_of(executor), task);
                self.tell_node(executor, eyas_node::Event::Recalled { task });
            }
            SimEvent::Cancelled { executor, task } => {
                let task = self.plan.task_id(self.dispatcher_of(executor), task);
                self.tell_node(executor, eyas_node::Event::Cancelled { task });
            }
            SimEvent::Verify { executor, object } => self.verify(executor, object),
            SimEvent::FetchFails { fetch, asked } => self.fetch_fails(fetch, asked),
            SimEvent::Asked { fetch, asked } => self.answer(fetch, asked),
            SimEvent::ToHold { executor, object } => self.told_to_hold(executor, object),
            SimEvent::Released { executor, object } => self.released(executor, object),
            SimEvent::Despaired { fetch, asked } => self.despaired(fetch, asked),
            SimEvent::Computed { executor, task, attempt } => self.computed(executor, task, attempt),
            SimEvent::Killed { executor, task, attempt } => self.killed(executor, task, attempt),
            SimEvent::Surveyed => self.survey(),
            SimEvent::Due => self.is_due(),
            SimEvent::Granted { request } => self.granted(request),
            SimEvent::Expired { machine, holding } => self.expired(machine, holding),
            SimEvent::Lost { executor } => self.lost(executor),
            SimEvent::Back { machine } => self.back(machine),
            SimEvent::Disconnected { executor } => self.disconnected(executor),
            SimEvent::Rejoins { machine } => self.rejoins(machine),
            SimEvent::Retires { executor } => self.say(Fact::Retiring { executor }),
            SimEvent::Stops { executor } => self.stops(executor),
            SimEvent::JobsDue { dispatcher } => self.jobs_due(dispatcher as usize),
            SimEvent::OnDisk { dispatcher, deaths } => self.on_disk(dispatcher as usize, deaths),
            SimEvent::Dies { dispatcher } => self.dies(dispatcher as usize),
            SimEvent::Restarts { dispatcher } => self.restarts(dispatcher as usize),
            SimEvent::Asks { dispatcher, request } => self.asks(dispatcher as usize, request),
        }
    }

    // ---- arrivals

    fn await_arrival(&mut self) {
        if let Some(next) = self.arrivals.peek() {
            self.clock.plan(self.now.max(next.at_us * MICROSECOND), SimEvent::Arrives);
        }
    }

    fn arrive(&mut self) {
        while let Some(arrival) = self.arrivals.next_if(|next| next.at_us * MICROSECOND <= self.now) {
            let number = self.dealer.deal(arrival.inputs.first().copied());
            let index = self.dispatchers[number].arrived;
            self.dispatchers[number].arrived += 1;
            self.tasks.add(Task::new(arrival, index, &self.plan.outputs));
            self.outcome.tasks += 1;
            self.dispatchers.tell(number, Fact::Ready);
        }
        self.await_arrival();
    }

    // ---- dispatchers

    fn say(&mut self, fact: Fact) {
        let on_its_way = self.cluster.message_ns + self.catalog_delay(fact);
        self.clock.plan(self.now + on_its_way, SimEvent::Told(fact));
    }

    fn catalog_delay(&self, fact: Fact) -> Ns {
        match fact {
            // What is kept is told at once: a task's outputs are known before its end.
            Fact::Stored { object, .. } | Fact::Evicted { object, .. } if self.plan.outputs.is_kept(object) => 0,
            Fact::Fetched { .. } | Fact::Stored { .. } | Fact::Evicted { .. } => self.cluster.catalog_delay_ns,
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
            Fact::Ended { executor, task, ran_us, end } => return self.ended(number, executor, task, ran_us, end),
            Fact::Returned { executor, task } => {
                let Task { attempt, .. } = self.tasks[task];
                let (executor, task) = (ExecutorId(executor), self.tasks.id_of(task));
                return self.tell_jobs(number, JobsEvent::TaskReturned { executor, task, attempt });
            }
            // Real executors do not say so either. Only the provisioner learns from it.
            Fact::Fetched { .. } if !self.caches => return,
            Fact::Fetched { executor, object, from, took_us } => {
                let (executor, object) = (ExecutorId(executor), self.id_of(object));
                Event::Fetched { executor, object, from, took_us: took_us.into() }
            }
            Fact::Stored { executor, object } => {
                let size_bytes = self.workload.size_bytes(object);
                Event::Stored { executor: ExecutorId(executor), object: self.id_of(object), size_bytes }
            }
            Fact::NotHeld { executor, object } => {
                Event::NotHeld { executor: ExecutorId(executor), object: self.id_of(object) }
            }
            Fact::Evicted { executor, object } => {
                Event::Evicted { executor: ExecutorId(executor), object: self.id_of(object) }
            }
            Fact::Staging { executor, lent_milli, light_bytes } => {
                Event::Staging { executor: ExecutorId(executor), lent_milli: lent_milli.into(), light_bytes }
            }
            Fact::Retiring { executor } => {
                let executor = ExecutorId(executor);
                return self.tell_jobs(number, JobsEvent::ExecutorLeaves { executor });
            }
            Fact::Gone { executor } => return self.forget(executor, true),
            Fact::Left { executor } => return self.forget(executor, false),
        };
        self.tell_scheduler(number, event);
        if self.plan.outputs.has_kept() {
            // Others may have fetched what an executor that is to leave held.
            self.let_leave_those_that_may(number);
        }
    }

    /// Does what the deciders of a dispatcher have said.
    fn perform(&mut self, number: usize, effect: Effect) {
        match effect {
            Effect::Assign { executor, task, attempt, hints } => {
                let decides_until = &mut self.dispatchers[number].decides_until;
                *decides_until = self.now.max(*decides_until) + self.cluster.decision_ns;
                if let Some(audit) = &mut self.audit {
                    audit.assigned(number, task.index);
                }
                let task = self.plan.number(number, task);
                let assigned = &mut self.tasks[task];
                (assigned.hints, assigned.assigned, assigned.attempt) = (hints, self.now, attempt);
                self.note_assigned(executor.0);
                self.send(number, SimEvent::Given { executor: executor.0, task });
            }
            Effect::Recall { executor, task } => {
                let task = self.plan.number(number, task);
                self.send(number, SimEvent::Recalled { executor: executor.0, task });
            }
            Effect::Cancel { executor, task } => {
                let task = self.plan.number(number, task);
                self.send(number, SimEvent::Cancelled { executor: executor.0, task });
            }
            Effect::Hold { executor, object, holders } => {
                self.hold(number, executor.0, self.plan.outputs.object_of(object), holders);
            }
            Effect::Release { executor, object } => {
                let object = self.plan.outputs.object_of(object);
                self.send(number, SimEvent::Released { executor: executor.0, object });
            }
            Effect::Verify { executor, object } => {
                let object = self.plan.outputs.object_of(object);
                self.send(number, SimEvent::Verify { executor: executor.0, object });
            }
            Effect::Pushed { push } => self.pushed(number, push),
            Effect::Stop { executor } => self.send(number, SimEvent::Stops { executor: executor.0 }),
            Effect::Write(record) => self.write(number, record),
            // Nobody watches the job; objects are pushed as `Policies` say.
            Effect::Show { .. } | Effect::Broadcast { .. } | Effect::EndBroadcast { .. } | Effect::Forget { .. } => {}
            Effect::SetAside { .. } | Effect::TakenBack { .. } => {}
            Effect::Queue { .. } => unreachable!("tasks are queued before anything else is done"),
            Effect::ReadResult { .. } | Effect::Check { .. } => unreachable!("jobs do not reuse results"),
            Effect::Claimed { .. } => unreachable!("outputs of tasks are at places of their own"),
        }
    }

    /// Sends an executor what a dispatcher has decided.
    fn send(&mut self, number: usize, message: SimEvent) {
        let at = self.dispatchers[number].decides_until.max(self.now) + self.cluster.message_ns;
        self.clock.plan(at, message);
    }

    /// The id of an object that all executors share.
    fn id_of(&self, object: u32) -> eyas_types::ObjectId {
        self.plan.outputs.id_of(object, Owner::All)
    }

    /// A task's inputs under the names that they have for `owner`, in the order of those.
    fn inputs_of(&self, task: u32, owner: Owner) -> Box<[(eyas_types::ObjectId, u64)]> {
        let inputs = self.tasks[task].inputs.iter();
        let mut inputs: Box<[_]> =
            inputs.map(|object| (self.plan.outputs.id_of(*object, owner), self.workload.size_bytes(*object))).collect();
        inputs.sort_unstable();
        inputs
    }
}

#[cfg(test)]
mod tests;
