//! Nodes that come and go: they start and join, are given back or lost, and lose and regain the
//! connection to their dispatcher. Machines, nodes, dispatchers and the provisioner all take part
//! in that, and are told of it here, so that none of them calls another.
//!
//! A *machine* always exists. A node exists while its machine is held. An executor is one session
//! of a node and has a number of its own, as in a real cluster: a node that joins again is another
//! executor with the same store.

use eyas_provision::{Effect, Event, NodeRequestId, OutstandingWork};
use eyas_types::ExecutorId;

use super::Run;
use super::event::{Departure, SimEvent, SimFact};
use super::executor::{LeftStore, SimExecutor};
use crate::clock::Ns;
use crate::nodes::{MISSED_AFTER_NS, REJOINS_AFTER_NS};

impl Run<'_> {
    /// Starts a node on a free machine.
    pub(super) fn start_node(&mut self, request: Option<NodeRequestId>) {
        let (machine, holding) = self.machines.hold(request, self.world.agenda.now());
        if let Some(batch) = &self.world.setup.cluster.batch {
            let over = SimEvent::WalltimeOver { machine, holding };
            self.world.agenda.schedule_after(batch.walltime_ns, over);
        }
        self.join(machine, LeftStore::empty(self.world.setup), None);
    }

    /// An executor joins with the content of its store. `was` is the node's earlier executor, if it
    /// lost its connection.
    fn join(&mut self, machine: u32, store: LeftStore, was: Option<ExecutorId>) {
        let (executor, held) = self.nodes.join(machine, store, &mut self.world);
        let request = self.machines.join(machine, executor);
        self.plan_failures(executor);
        if let Some(batch) = &mut self.batch {
            batch.joined(executor);
        }
        self.dispatchers.join(executor, machine, held, &mut self.world);
        // Repeat the order to leave to executors that could not be reached.
        let node = ExecutorId(executor);
        self.tell_provisioner(Event::NodeJoined { node, request, was });
    }

    fn plan_failures(&mut self, executor: u32) {
        let failures = &self.world.setup.cluster.failures;
        let (agenda, dice) = (&mut self.world.agenda, &mut self.failure_dice);
        let means = [
            (Departure::Lost, failures.lost_after_ns),
            (Departure::Retires, failures.leaves.map(|(mean_ns, _)| mean_ns)),
            (Departure::Disconnected, failures.disconnected_after_ns),
        ];
        for (how, mean_ns) in means {
            if let Some(at) = dice.next(mean_ns, agenda.now()) {
                agenda.schedule(at, SimEvent::Goes { executor, how });
            }
        }
    }

    /// Removes an executor and aborts its tasks and fetches. If its node `serves`, others can still
    /// fetch from the store.
    fn leave(&mut self, executor: u32, serves: bool) -> SimExecutor {
        let tasks = self.dispatchers.tasks_of(executor);
        self.nodes.leave(executor, tasks, serves, &mut self.world)
    }

    /// The dispatcher learns that an executor is gone: lost with its tasks, or after leaving in
    /// good order.
    pub(super) fn forget(&mut self, executor: u32, is_loss: bool) {
        self.dispatchers.disconnect(executor);
        self.tell_provisioner(Event::NodeLeft { node: ExecutorId(executor) });
        self.dispatchers.executor_gone(executor, is_loss, &mut self.world);
    }

    // ---- nodes that end

    /// Ends a node and frees its machine, unless the node is already lost.
    fn end_node(&mut self, executor: u32) {
        let machine = self.nodes.machine_of(executor);
        if self.machines.is_last(machine, executor) {
            match self.nodes.has(executor) {
                true => drop(self.leave(executor, false)),
                false => self.nodes.end_fetches_of(executor, false, &mut self.world),
            }
            self.machines.end_holding(machine, self.world.agenda.now());
            self.machines.free(machine);
            self.grant();
        }
    }

    /// The batch system ends a node whose walltime is over.
    pub(super) fn expired(&mut self, machine: u32, holding: u32) {
        if let Some(executor) = self.machines.executor_in(machine, holding) {
            let running = self.nodes.get(executor).map_or(0, SimExecutor::running);
            self.world.metrics.out_of_time(running);
            self.end_node(executor);
            self.world.say(SimFact::Gone { executor });
        }
    }

    fn lost(&mut self, executor: u32) {
        self.world.metrics.node_lost();
        self.leave(executor, false);
        let machine = self.nodes.machine_of(executor);
        let agenda = &mut self.world.agenda;
        self.machines.end_holding(machine, agenda.now());
        agenda.schedule_after(MISSED_AFTER_NS, SimEvent::FactArrives(SimFact::Gone { executor }));
        if let Some(after_ns) = self.world.setup.cluster.failures.back_after_ns {
            agenda.schedule_after(after_ns, SimEvent::MachineBack { machine });
        }
    }

    /// A lost machine comes back with an empty store.
    pub(super) fn back(&mut self, machine: u32) {
        if self.is_dispatcher_down(machine) {
            let back = SimEvent::MachineBack { machine };
            return self.world.agenda.schedule_after(REJOINS_AFTER_NS, back);
        }
        self.machines.free(machine);
        match self.batch {
            Some(_) => self.grant(),
            None => self.start_node(None),
        }
    }

    fn is_dispatcher_down(&self, machine: u32) -> bool {
        self.dispatchers[self.world.setup.dispatcher_of_machine(machine)].is_down()
    }

    // ---- sessions that end

    pub(super) fn goes(&mut self, executor: u32, how: Departure) {
        match how {
            Departure::Lost => self.lost(executor),
            Departure::Disconnected => {
                self.world.metrics.connection_broken();
                self.end_session(executor, true, REJOINS_AFTER_NS);
                self.dispatchers.tell_of_executor(SimFact::Gone { executor });
            }
            Departure::Retires => self.world.say(SimFact::Retiring { executor }),
            Departure::Stops => self.stops(executor),
        }
    }

    /// An executor leaves, and comes back later with the content of its store.
    fn stops(&mut self, executor: u32) {
        let Some((_, away_ns)) = self.world.setup.cluster.failures.leaves else { return };
        self.world.metrics.node_left();
        self.world.say(SimFact::Left { executor });
        self.end_session(executor, false, away_ns);
    }

    /// Ends an executor's session. Its node joins again after `away_ns` with the content of its
    /// store.
    fn end_session(&mut self, executor: u32, serves: bool, away_ns: Ns) {
        let store = self.leave(executor, serves).into_store();
        let machine = self.nodes.machine_of(executor);
        self.machines.keep_store(machine, store);
        self.world.agenda.schedule_after(away_ns, SimEvent::ExecutorRejoins { machine });
    }

    /// A dispatcher dies: its executors lose their connections.
    pub(super) fn end_sessions_of(&mut self, dispatcher: usize) {
        for executor in 0..self.nodes.count() {
            if self.dispatchers.dispatcher_of(executor) != dispatcher {
                continue;
            }
            if self.nodes.has(executor) {
                self.end_session(executor, true, REJOINS_AFTER_NS);
            }
            self.dispatchers.disconnect(executor);
        }
    }

    /// A node joins again, unless it has ended in the meantime. A dispatcher that has not yet read
    /// of the broken connection learns of it now.
    pub(super) fn rejoins(&mut self, machine: u32) {
        let was = self.machines.last_executor(machine);
        if self.machines.has_store(machine) && self.is_dispatcher_down(machine) {
            let rejoins = SimEvent::ExecutorRejoins { machine };
            self.world.agenda.schedule_after(REJOINS_AFTER_NS, rejoins);
        } else if let Some(store) = self.machines.take_store(machine) {
            if self.dispatchers.is_known(was) {
                self.forget(was, true);
            }
            self.join(machine, store, Some(ExecutorId(was)));
        }
    }

    // ---- the batch system

    /// Reports the outstanding work to the provisioner.
    pub(super) fn survey(&mut self) {
        let Some(batch) = &mut self.batch else { return };
        let to_do = OutstandingWork {
            waiting: self.dispatchers.waiting(),
            running: self.dispatchers.busy(),
            arrived: self.world.metrics.outcome().tasks,
            ..OutstandingWork::default()
        };
        let work = batch.work(self.world.setup.cluster.card_bytes_per_s, to_do);
        self.tell_provisioner(work);
        if let Some(batch) = &self.batch {
            batch.plan_survey(&mut self.world.agenda);
        }
    }

    pub(super) fn provisioner_timeout(&mut self) {
        if let Some(batch) = &mut self.batch
            && batch.take_due(self.world.agenda.now())
        {
            self.tell_provisioner(Event::TimePassed);
        }
    }

    /// Tells the provisioner which nodes became busy, idle or empty.
    pub(super) fn tell_changes(&mut self) {
        while let Some((executor, tasks)) = self.dispatchers.next_changed()
            && let Some(batch) = &mut self.batch
        {
            let is_draining = batch.is_draining(executor);
            if let Some(event) = batch.load_changed(executor, tasks) {
                self.tell_provisioner(event);
            }
            if is_draining && self.dispatchers.is_emptied(executor) {
                self.tell_provisioner(Event::NodeEmptied { node: ExecutorId(executor) });
            }
        }
    }

    /// Passes an event to the provisioner, and performs the effects.
    fn tell_provisioner(&mut self, event: Event) {
        let Some(batch) = &mut self.batch else { return };
        for effect in batch.handle(event, &mut self.world.agenda) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        let Some(batch) = &mut self.batch else { return };
        match effect {
            Effect::Request { request, nodes, .. } => {
                batch.request(request, nodes, &mut self.world.agenda);
            }
            Effect::Withdraw { request } => {
                batch.withdraw(request);
                self.tell_provisioner(Event::RequestEnded { request });
            }
            Effect::Drain { node } => {
                batch.drain(node.0);
                self.dispatchers.drain(node.0, &mut self.world);
            }
            // A node without tasks is given back.
            Effect::Release { node } => {
                self.end_node(node.0);
                self.forget(node.0, false);
            }
        }
    }

    /// The batch system answers a request for nodes.
    pub(super) fn answered(&mut self, request: NodeRequestId) {
        let Some(batch) = &mut self.batch else { return };
        match batch.answer(request, self.world.setup.cluster.failures.failed_requests) {
            Some(true) => self.grant(),
            Some(false) => self.tell_provisioner(Event::RequestFailed { request }),
            None => {}
        }
    }

    /// Starts nodes of granted requests on free machines.
    fn grant(&mut self) {
        while self.machines.has_free()
            && let Some(batch) = &mut self.batch
            && let Some(request) = batch.next_grant()
        {
            self.start_node(Some(request));
        }
    }
}
