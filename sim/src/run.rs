//! A run: the deciders of dispatchers, one decider of a node for each executor, and the modelled world between them.
//!
//! It is the shell of both deciders, as `dispatcher` and `executor` are of real ones: it turns what happens into their
//! events and their effects into what will happen. Messages take their time, a dispatcher takes its time for each
//! decision and reads messages one after the other, and bytes flow over links that are shared.

use std::iter::Peekable;
use std::ops::ControlFlow;

use eyas_provision::NodeRequestId;
use eyas_sched::{Effect, Ended, Event, Holder, Need};
use eyas_types::{ExecutorId, JobId, Origin, PlacementPolicy, Resources, TaskId};

use crate::arrival::Arrival;
use crate::clock::{Clock, MICROSECOND, Ns, seconds};
use crate::cluster::{Cluster, Policies};
use crate::flows::{Flows, LinkId, TOLERANCE};
use crate::nodes::Failures;
use crate::outcome::{Level, Outcome};
use crate::run::batch::BatchSystem;
use crate::run::dispatchers::Dispatchers;
use crate::run::executor::Executors;
use crate::run::fetch::Fetches;
use crate::run::membership::Membership;
use crate::run::object::{Owner, id_of, object_of};
use crate::run::push::Push;
use crate::run::task::{Task, Tasks};
use crate::workload::{Uneven, Workload};

mod batch;
mod dispatchers;
mod executor;
mod fetch;
mod membership;
mod object;
mod page_cache;
mod push;
mod task;

/// The only job.
const JOB: JobId = JobId(1);

/// What will happen.
#[derive(Clone, Copy, Debug)]
enum Happening {
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
    /// A task has its inputs in memory, and has computed.
    Computed { executor: u32, task: u32 },
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
}

/// What a dispatcher is told.
#[derive(Clone, Copy, Debug)]
enum Fact {
    Ready { task: u32 },
    Ended { executor: u32, task: u32, ran_us: u32 },
    Returned { executor: u32, task: u32 },
    Refused { executor: u32, task: u32 },
    Fetched { executor: u32, object: u32, from: Origin, took_us: u32 },
    Stored { executor: u32, object: u32 },
    NotHeld { executor: u32, object: u32 },
    Evicted { executor: u32, object: u32 },
    Staging { executor: u32, lent_milli: u32, light_bytes: u64 },
    Gone { executor: u32 },
}

impl Fact {
    /// Which executor it is of.
    fn executor(self) -> Option<u32> {
        match self {
            Fact::Ready { .. } => None,
            Fact::Ended { executor, .. }
            | Fact::Returned { executor, .. }
            | Fact::Refused { executor, .. }
            | Fact::Fetched { executor, .. }
            | Fact::Stored { executor, .. }
            | Fact::NotHeld { executor, .. }
            | Fact::Evicted { executor, .. }
            | Fact::Staging { executor, .. }
            | Fact::Gone { executor } => Some(executor),
        }
    }
}

/// Tasks of one run at most: their numbers are told by flows, beside a bit.
pub const MAX_TASKS: u32 = u32::MAX >> 1;
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
    let mut run = Run::new(cluster, policies, workload, seed);
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
    run.outcome.held_cpu_ns = run.membership.held_ns(run.ended_at) * u128::from(cluster.cpus);
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
    clock: Clock<Happening>,
    flows: Flows,
    storage: LinkId,
    bisection: Option<LinkId>,
    dispatchers: Dispatchers,
    effects: Vec<Effect>,
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
        Run {
            cluster,
            caches: policies.caches(),
            is_warm: false,
            now: 0,
            clock: Clock::new(),
            flows,
            storage,
            bisection,
            dispatchers: Dispatchers::new(cluster, policies),
            effects: Vec::new(),
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
            tasks: Tasks::default(),
            workload,
            arrivals: workload.arrivals().peekable(),
            ended: Vec::new(),
            running: 0,
            ended_at: 0,
            outcome: Outcome::default(),
        }
    }

    fn begin(&mut self) {
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
        let Outcome { tasks, done, unplaceable, .. } = self.outcome;
        done + unplaceable < tasks || self.arrivals.peek().is_some()
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
                Tag::Read(task) => self.has_read(task),
            }
        }
        self.ended = ended;
        self.read_inboxes();
        self.tell_changes();
        self.flows.settle();
    }

    /// How things stand.
    fn level(&self) -> Level {
        Level { waiting: self.dispatchers.waiting, running: self.running, nodes: self.membership.nodes() }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Arrives => self.arrive(),
            Happening::Told(fact) => self.tell_dispatcher(fact),
            Happening::Decided { dispatcher } => self.dispatchers.decided(dispatcher as usize),
            Happening::Given { executor, .. }
            | Happening::Recalled { executor, .. }
            | Happening::ToHold { executor, .. }
            | Happening::Released { executor, .. }
            | Happening::Computed { executor, .. }
            | Happening::Lost { executor }
            | Happening::Disconnected { executor }
                if !self.executors.has(executor) => {}
            Happening::Given { executor, task } => self.given(executor, task),
            Happening::Recalled { executor, task } => {
                self.tell_node(executor, eyas_node::Event::Recalled { task: id_of_task(task) });
            }
            Happening::Asked { fetch, asked } => self.answer(fetch, asked),
            Happening::ToHold { executor, object } => self.told_to_hold(executor, object),
            Happening::Released { executor, object } => self.released(executor, object),
            Happening::Despaired { fetch, asked } => self.despaired(fetch, asked),
            Happening::Computed { executor, task } => self.computed(executor, task),
            Happening::Surveyed => self.survey(),
            Happening::Due => self.is_due(),
            Happening::Granted { request } => self.granted(request),
            Happening::Expired { machine, holding } => self.expired(machine, holding),
            Happening::Lost { executor } => self.lost(executor),
            Happening::Back { machine } => self.back(machine),
            Happening::Disconnected { executor } => self.disconnected(executor),
            Happening::Rejoins { machine } => self.rejoins(machine),
        }
    }

    // ---- arrivals

    fn await_arrival(&mut self) {
        if let Some(next) = self.arrivals.peek() {
            self.clock.plan(self.now.max(next.at_us * MICROSECOND), Happening::Arrives);
        }
    }

    fn arrive(&mut self) {
        while let Some(arrival) = self.arrivals.next_if(|next| next.at_us * MICROSECOND <= self.now) {
            let number = self.dispatchers.of_task(arrival.inputs.first().copied());
            let task = self.tasks.add(Task::new(arrival));
            self.outcome.tasks += 1;
            self.dispatchers.tell(number, Fact::Ready { task });
        }
        self.await_arrival();
    }

    // ---- dispatchers

    fn say(&mut self, fact: Fact) {
        let on_its_way = self.cluster.message_ns + self.catalog_delay(fact);
        self.clock.plan(self.now + on_its_way, Happening::Told(fact));
    }

    fn catalog_delay(&self, fact: Fact) -> Ns {
        match fact {
            Fact::Fetched { .. } | Fact::Stored { .. } | Fact::Evicted { .. } => self.cluster.catalog_delay_ns,
            _ => 0,
        }
    }

    fn read(&mut self, number: usize, fact: Fact) {
        if fact.executor().is_some_and(|executor| !self.membership.is_known(executor)) {
            return;
        }
        self.note(number, fact);
        let by = ExecutorId;
        let end = |executor, task, ended, ran_us| {
            let (executor, task) = (by(executor), id_of_task(task));
            Event::TaskEnded { executor, task, ended, ran_us }
        };
        let event = match fact {
            Fact::Ready { task } => {
                let inputs = self.inputs_of(task, Owner::All);
                Event::TaskReady { task: id_of_task(task), inputs, need: Need::from(Resources::default()) }
            }
            Fact::Ended { executor, task, ran_us } => {
                self.finish(task);
                end(executor, task, Ended::Finished, Some(ran_us.into()))
            }
            Fact::Returned { executor, task } => end(executor, task, Ended::Returned, None),
            Fact::Refused { executor, task } => end(executor, task, Ended::Refused, None),
            // As real executors do not tell it, only the provisioner learns from it.
            Fact::Fetched { .. } if !self.caches => return,
            Fact::Fetched { executor, object, from, took_us } => {
                let (executor, object) = (by(executor), id_of(object, Owner::All));
                Event::Fetched { executor, object, from, took_us: took_us.into() }
            }
            Fact::Stored { executor, object } => {
                let size_bytes = self.workload.size_bytes(object);
                Event::Stored { executor: by(executor), object: id_of(object, Owner::All), size_bytes }
            }
            Fact::NotHeld { executor, object } => {
                Event::NotHeld { executor: by(executor), object: id_of(object, Owner::All) }
            }
            Fact::Evicted { executor, object } => {
                Event::Evicted { executor: by(executor), object: id_of(object, Owner::All) }
            }
            Fact::Staging { executor, lent_milli, light_bytes } => {
                Event::Staging { executor: by(executor), lent_milli: lent_milli.into(), light_bytes }
            }
            Fact::Gone { executor } => return self.forget(executor),
        };
        self.tell_scheduler(number, event);
    }

    fn tell_scheduler(&mut self, number: usize, event: Event) {
        let mut effects = std::mem::take(&mut self.effects);
        self.dispatchers.handle(number, event, &mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Assign { executor, task, hints, .. } => {
                    let decides_until = &mut self.dispatchers[number].decides_until;
                    *decides_until = self.now.max(*decides_until) + self.cluster.decision_ns;
                    let task_assigned = &mut self.tasks[task.index];
                    (task_assigned.hints, task_assigned.assigned) = (hints, self.now);
                    self.note_assigned(executor.0);
                    self.send(number, Happening::Given { executor: executor.0, task: task.index });
                }
                Effect::Recall { executor, task } => {
                    self.send(number, Happening::Recalled { executor: executor.0, task: task.index });
                }
                Effect::Unplaceable { task } => {
                    self.outcome.unplaceable += 1;
                    self.tasks.remove(task.index);
                }
                Effect::Hold { executor, object, holders } => {
                    self.hold(number, executor.0, object_of(object), holders);
                }
                Effect::Release { executor, object } => {
                    self.send(number, Happening::Released { executor: executor.0, object: object_of(object) });
                }
                Effect::Pushed { push } => self.pushed(number, push),
                Effect::Cancel { .. } | Effect::Verify { .. } | Effect::Lost { .. } | Effect::Found { .. } => {
                    unreachable!("no task is cancelled, and no object kept")
                }
            }
        }
        self.effects = effects;
    }

    /// Sends an executor what a dispatcher has decided.
    fn send(&mut self, number: usize, message: Happening) {
        let at = self.dispatchers[number].decides_until.max(self.now) + self.cluster.message_ns;
        self.clock.plan(at, message);
    }

    /// A dispatcher knows that a task has computed.
    fn finish(&mut self, task: u32) {
        let Task { arrived, assigned, started, ran_ns, .. } = self.tasks[task];
        self.outcome.done += 1;
        self.outcome.queued_ns += u128::from(assigned - arrived);
        self.outcome.waited_ns += u128::from(started - arrived);
        self.outcome.ran_ns += u128::from(ran_ns);
        self.outcome.ideal_ns = self.outcome.ideal_ns.max(arrived + ran_ns);
        self.outcome.responded_ns += u128::from(self.now - arrived);
        self.outcome.course.note_done();
        self.ended_at = self.now;
        self.tasks.remove(task);
    }

    /// A task's inputs under the names that they have for `owner`, in the order of those.
    fn inputs_of(&self, task: u32, owner: Owner) -> Box<[(eyas_types::ObjectId, u64)]> {
        let inputs = self.tasks[task].inputs.iter();
        let mut inputs: Box<[_]> =
            inputs.map(|object| (id_of(*object, owner), self.workload.size_bytes(*object))).collect();
        inputs.sort_unstable();
        inputs
    }
}

/// What the end of a flow tells.
enum Tag {
    Fetch(u32),
    Read(u32),
}

impl Tag {
    fn of(tag: u32) -> Self {
        if tag & 1 == 0 { Tag::Fetch(tag >> 1) } else { Tag::Read(tag >> 1) }
    }

    fn number(&self) -> u32 {
        match self {
            Tag::Fetch(fetch) => fetch << 1,
            Tag::Read(task) => task << 1 | 1,
        }
    }
}

fn id_of_task(index: u32) -> TaskId {
    TaskId { job: JOB, index }
}

#[cfg(test)]
mod tests;
