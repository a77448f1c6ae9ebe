//! A simulated run: the deciders of dispatchers, one decider of a node for each executor, and the
//! modelled world between them.
//!
//! This is the shell of four deciders: `core/jobs`, `core/sched` and `core/node`, as `dispatcher`
//! and `executor` are in a real cluster, and `core/provision`. It turns simulated events into
//! events of the deciders, and their effects into later simulated events. A message takes time to
//! arrive. A dispatcher takes time for each decision and reads its messages one after the other.
//! Bytes flow over shared links.
//!
//! Each part has an owner: `dispatchers` what dispatchers know and have to read, `nodes` the
//! executors, their fetches and their tasks, `machines` which nodes there are, `batch` the requests
//! for nodes, and `client` the requests of the client. Nodes and dispatchers do not call each
//! other: they send messages over the `agenda`. What they share is the `world`. [`Run`] passes each
//! event to its owner; where a node comes or goes, several owners take part, and [`Run`] tells one
//! after the other (`membership`).

use std::ops::ControlFlow;

use eyas_types::PlacementPolicy;

use crate::audit::Audit;
use crate::clock::{Ns, seconds};
use crate::cluster::{Policies, SimCluster};
use crate::nodes::Failures;
use crate::outcome::{Level, RunOutcome};
use crate::run::batch::SimulatedBatch;
use crate::run::client::SimClient;
use crate::run::dispatchers::Dispatchers;
use crate::run::event::{SimEvent, SimFact};
use crate::run::machines::{FailureDice, Machines};
use crate::run::network::Network;
use crate::run::nodes::SimNodes;
use crate::run::world::{Setup, World};
use crate::workload::{AdaptedWorkload, Workload};

mod agenda;
mod batch;
mod client;
mod dispatchers;
mod event;
mod executor;
mod farm;
mod fetch;
mod holds;
mod job;
mod journal;
mod machines;
mod membership;
mod metrics;
mod network;
mod nodes;
mod object;
mod page_cache;
mod push;
mod task;
mod world;

pub use farm::{ExecutorFarm, FarmCommand, FarmEnd, FarmReport, with_farm};

/// Most tasks of one run. Tags of flows have a task's number and one more bit.
pub const MAX_TASKS: u32 = u32::MAX >> 1;
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
    let setup = Setup::new(cluster, policies, workload, seed);
    Run::new(&setup).complete(limit_ns, watch)
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
    let setup = Setup::new(cluster, policies, workload, seed);
    let mut run = Run::new(&setup);
    run.dispatchers.audit_by(audit);
    run.complete(limit_ns, &mut |_| ControlFlow::Continue(()))
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
    let uneven = AdaptedWorkload::uneven(workload, seed);
    let policies = Policies::of_the_paper(PlacementPolicy::FirstAvailable);
    let setup = Setup { is_warm: true, ..Setup::new(&cluster, &policies, &uneven, 0) };
    let mut run = Run::new(&setup);
    run.begin();
    while let Some(next) = run.next_at() {
        run.step(next);
    }
    seconds(run.world.metrics.ended_at())
}

struct Run<'a> {
    world: World<'a>,
    dispatchers: Dispatchers<'a>,
    nodes: SimNodes,
    machines: Machines,
    failure_dice: FailureDice<'a>,
    batch: Option<SimulatedBatch>,
    client: SimClient,
}

impl<'a> Run<'a> {
    fn new(setup: &'a Setup<'a>) -> Self {
        let Setup { cluster, workload, seed, .. } = *setup;
        let mut network = Network::new(cluster);
        let mut failure_dice = FailureDice::new(&cluster.failures, seed);
        for _ in 0..cluster.nodes {
            network.add_machine(cluster, failure_dice.is_slow());
        }
        Run {
            world: World::new(setup),
            dispatchers: Dispatchers::new(setup),
            nodes: SimNodes::new(network, seed),
            machines: Machines::new(cluster.nodes),
            failure_dice,
            batch: cluster.batch.as_ref().map(|batch| SimulatedBatch::new(batch, cluster, seed)),
            client: SimClient::new(workload),
        }
    }

    fn complete(
        mut self,
        limit_ns: Ns,
        watch: &mut dyn FnMut(&RunOutcome) -> ControlFlow<()>,
    ) -> RunOutcome {
        self.begin();
        let mut steps = 0_u32;
        while self.has_tasks()
            && let Some(next) = self.next_at()
        {
            if next > limit_ns {
                self.world.metrics.ends(limit_ns);
                break;
            }
            self.step(next);
            steps = steps.wrapping_add(1);
            let World { metrics, agenda, .. } = &mut self.world;
            if steps.is_multiple_of(STEPS_UNSEEN) && watch(metrics.outcome()).is_break() {
                metrics.ends(agenda.now());
                break;
            }
        }
        self.outcome()
    }

    fn outcome(self) -> RunOutcome {
        let (level, mut metrics) = (self.level(), self.world.metrics);
        for dispatcher in self.dispatchers.all() {
            metrics.add_dispatcher(dispatcher.job(), dispatcher.scheduler().decisions());
        }
        let held_ns = self.machines.held_ns(metrics.ended_at());
        metrics.close(level, held_ns * u128::from(self.world.setup.cluster.cpus))
    }

    fn begin(&mut self) {
        let cluster = self.world.setup.cluster;
        self.dispatchers.submit_jobs(&mut self.world);
        if cluster.failures.dispatcher_dies_after_ns.is_some() {
            self.dispatchers.keep_journals();
            (0..cluster.dispatchers).for_each(|dispatcher| self.plan_death(dispatcher));
        }
        self.client.plan_requests(cluster.dispatchers, &mut self.world.agenda);
        match self.batch {
            Some(_) => self.survey(),
            None => (0..cluster.nodes).for_each(|_| self.start_node(None)),
        }
        self.dispatchers.begin_push(&mut self.world);
        if !self.dispatchers.are_pushing_first() {
            self.world.tasks.await_arrival(&mut self.world.agenda);
        }
    }

    /// Whether tasks have still to arrive or to end.
    fn has_tasks(&mut self) -> bool {
        self.world.tasks.has_arrivals()
            || !self.dispatchers.have_ended()
            || self.client.retry(&mut self.dispatchers, &mut self.world)
            || self.lacks_promised()
    }

    /// Whether a kept output that was promised to the client is lost and can be recomputed.
    ///
    /// Executors recompute outputs. Where a batch system gives nodes only for tasks that wait, and
    /// none wait, there may be no executor.
    fn lacks_promised(&self) -> bool {
        let may_have_executors =
            |batch: &SimulatedBatch| batch.has_requests() || self.dispatchers.have_executors();
        self.batch.as_ref().is_none_or(may_have_executors)
            && self.world.setup.plan.outputs.has_kept()
            && self.dispatchers.lack_promised()
    }

    /// The next instant at which an event happens.
    fn next_at(&mut self) -> Option<Ns> {
        [self.world.agenda.next_at(), self.nodes.next_end()].into_iter().flatten().min()
    }

    /// Handles all events of the next instant, `now`.
    fn step(&mut self, now: Ns) {
        self.world.metrics.advance(now, self.level());
        self.world.agenda.advance(now);
        while let Some(event) = self.world.agenda.next_event() {
            self.handle(event);
        }
        self.nodes.end_flows(&mut self.world);
        self.read_inboxes();
        self.tell_changes();
        self.nodes.settle();
        self.dispatchers.show_step();
    }

    /// Numbers of waiting tasks, running tasks and nodes.
    fn level(&self) -> Level {
        Level {
            waiting: self.dispatchers.waiting(),
            running: self.world.tasks.running(),
            nodes: self.machines.held(),
        }
    }

    fn handle(&mut self, event: SimEvent) {
        let Run { world, dispatchers, nodes, client, .. } = self;
        match event {
            SimEvent::TaskArrives => dispatchers.tasks_arrive(world),
            SimEvent::FactArrives(fact) => dispatchers.tell_of_executor(fact),
            SimEvent::DecisionEnds { dispatcher } => dispatchers.decided(dispatcher as usize),
            SimEvent::AtExecutor { executor, what } if nodes.has(executor) => {
                nodes.handle(executor, what, world);
            }
            SimEvent::Goes { executor, how } if nodes.has(executor) => self.goes(executor, how),
            SimEvent::AtExecutor { .. } | SimEvent::Goes { .. } => {}
            SimEvent::OfFetch { fetch, asked, what } => {
                nodes.handle_fetch(fetch, asked, what, world);
            }
            SimEvent::WorkReport => self.survey(),
            SimEvent::ProvisionerTimeout => self.provisioner_timeout(),
            SimEvent::RequestAnswered { request } => self.answered(request),
            SimEvent::WalltimeOver { machine, holding } => self.expired(machine, holding),
            SimEvent::MachineBack { machine } => self.back(machine),
            SimEvent::ExecutorRejoins { machine } => self.rejoins(machine),
            SimEvent::JobsTimeout { dispatcher } => {
                dispatchers.jobs_timeout(dispatcher as usize, world);
            }
            SimEvent::OnDisk { dispatcher, deaths } => self.on_disk(dispatcher as usize, deaths),
            SimEvent::DispatcherDies { dispatcher } => self.dies(dispatcher),
            SimEvent::DispatcherRestarts { dispatcher } => {
                dispatchers.restart(dispatcher as usize, world);
                self.plan_death(dispatcher);
            }
            SimEvent::ClientRequest { dispatcher, request } => {
                client.ask(dispatcher as usize, request, dispatchers, world);
            }
        }
    }

    // ---- dispatchers

    /// Dispatchers with messages read until a decision takes time.
    fn read_inboxes(&mut self) {
        while let Some(number) = self.dispatchers.next_told() {
            while let Some(fact) = self.dispatchers.next_message(number, &self.world) {
                self.read(number, fact);
            }
            self.dispatchers.pause(number, &mut self.world);
        }
        self.world.metrics.waiting(self.dispatchers.waiting());
    }

    fn read(&mut self, number: usize, fact: SimFact) {
        if fact.executor().is_some_and(|executor| !self.dispatchers.is_known(executor)) {
            return;
        }
        if let Some(batch) = &mut self.batch {
            batch.note(fact, self.dispatchers[number].scheduler(), &self.world);
        }
        match fact {
            SimFact::Gone { executor } => self.forget(executor, true),
            SimFact::Left { executor } => self.forget(executor, false),
            _ => self.dispatchers.read(number, fact, &mut self.world),
        }
    }

    /// The oldest entry in flight of a journal is on disk, unless the dispatcher has died since.
    fn on_disk(&mut self, number: usize, deaths: u32) {
        if self.dispatchers.on_disk(number, deaths) {
            self.client.hear_answers(number, &mut self.dispatchers, self.world.setup);
            self.dispatchers.write_results(number, &mut self.world);
        }
    }

    fn plan_death(&mut self, dispatcher: u32) {
        let World { setup, agenda, .. } = &mut self.world;
        let mean_ns = setup.cluster.failures.dispatcher_dies_after_ns;
        if let Some(at) = self.failure_dice.next(mean_ns, agenda.now()) {
            agenda.schedule(at, SimEvent::DispatcherDies { dispatcher });
        }
    }

    fn dies(&mut self, dispatcher: u32) {
        let number = dispatcher as usize;
        self.end_sessions_of(number);
        self.dispatchers.die(number, &mut self.world);
        let World { setup, agenda, .. } = &mut self.world;
        self.client.ask_again(number, agenda);
        let back_after_ns = setup.cluster.failures.dispatcher_back_after_ns;
        agenda.schedule_after(back_after_ns, SimEvent::DispatcherRestarts { dispatcher });
    }
}

#[cfg(test)]
mod tests;
