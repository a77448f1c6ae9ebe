//! The batch system, and the provisioner that requests nodes from it: the shell of
//! `core/provision`.

use std::collections::BTreeMap;

use eyas_provision::{Effect, Event, NodeRequestId, OutstandingWork, Provisioner, WorkMeter};
use eyas_sched::Event as SchedEvent;
use eyas_types::ExecutorId;

use super::{End, Fact, Owner, Run, SimEvent};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::SimCluster;
use crate::nodes::Batch;
use crate::random::Random;

/// Interval of the reports of outstanding work to the provisioner.
const SURVEY_EVERY: Ns = SECOND;

pub(super) struct SimulatedBatch {
    provisioner: Provisioner,
    effects: Vec<Effect>,
    /// Requests whose nodes have not all started, in order.
    requests: BTreeMap<NodeRequestId, Request>,
    dice: Random,
    /// Next timeout of the provisioner. Only a timeout event for this time counts; events for
    /// other times are stale.
    due: Ns,
    nodes: BTreeMap<u32, Node>,
    /// Executors whose tasks or draining changed.
    changed: Vec<u32>,
    meter: WorkMeter,
}

struct Request {
    nodes: u32,
    is_granted: bool,
}

/// A node as the provisioner knows it.
struct Node {
    /// Tasks that were assigned to the node and have not ended.
    tasks: u32,
    is_busy: bool,
    is_draining: bool,
}

impl SimulatedBatch {
    pub fn new(batch: &Batch, cluster: &SimCluster, seed: u64) -> Self {
        SimulatedBatch {
            provisioner: Provisioner::new(batch.config(cluster)),
            effects: Vec::new(),
            requests: BTreeMap::new(),
            dice: Random::new(!seed),
            due: Ns::MAX,
            nodes: BTreeMap::new(),
            changed: Vec::new(),
            meter: WorkMeter::default(),
        }
    }

    /// Whether nodes were requested that have not come.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    fn task_left(&mut self, executor: u32) {
        self.nodes.get_mut(&executor).expect("the node is known while it has tasks").tasks -= 1;
        self.changed.push(executor);
    }
}

impl Run<'_> {
    /// Reports the outstanding work to the provisioner.
    pub(super) fn survey(&mut self) {
        let Some(batch) = &mut self.batch else { return };
        let to_do = OutstandingWork {
            waiting: self.dispatchers.waiting,
            running: self.dispatchers.busy(),
            arrived: self.outcome.tasks,
            ..OutstandingWork::default()
        };
        let nodes = batch.provisioner.staying();
        let work = batch.meter.report(
            SURVEY_EVERY / MICROSECOND,
            nodes,
            self.cluster.card_bytes_per_s,
            to_do,
        );
        self.tell_provisioner(Event::Work(work));
        self.events.schedule(self.now + SURVEY_EVERY, SimEvent::WorkReport);
    }

    pub(super) fn provisioner_timeout(&mut self) {
        if let Some(batch) = self.batch.as_mut().filter(|batch| batch.due <= self.now) {
            batch.due = Ns::MAX;
            self.tell_provisioner(Event::TimePassed);
        }
    }

    pub(super) fn note_joined(&mut self, executor: u32) {
        if let Some(batch) = &mut self.batch {
            batch.nodes.insert(executor, Node { tasks: 0, is_busy: false, is_draining: false });
        }
    }

    pub(super) fn note_assigned(&mut self, executor: u32) {
        if let Some(batch) = &mut self.batch {
            batch.nodes.get_mut(&executor).expect("tasks are assigned to known nodes").tasks += 1;
            batch.changed.push(executor);
        }
    }

    /// Takes note of a fact that a dispatcher reads.
    pub(super) fn note(&mut self, number: usize, fact: Fact) {
        let Some(batch) = &mut self.batch else { return };
        let id = |object| self.plan.outputs.id_of(object, Owner::All);
        match fact {
            Fact::Ended { executor, task, ran_us, end } => {
                if end == End::Succeeded {
                    batch.meter.ran(ran_us.into());
                    for object in &self.tasks[task].inputs {
                        let replicas = self.dispatchers[number].scheduler.replicas(id(*object));
                        batch.meter.read(self.workload.size_bytes(*object), replicas);
                    }
                }
                batch.task_left(executor);
            }
            Fact::Returned { executor, .. } => batch.task_left(executor),
            Fact::Fetched { object, from, .. } => {
                batch.meter.fetched(id(object), self.workload.size_bytes(object), from);
            }
            Fact::Evicted { object, .. } => batch.meter.evicted(id(object)),
            _ => {}
        }
    }

    /// Tells the provisioner which nodes became busy, idle or empty.
    pub(super) fn tell_changes(&mut self) {
        while let Some(batch) = &mut self.batch
            && let Some(executor) = batch.changed.pop()
        {
            let Some(node) = batch.nodes.get_mut(&executor) else { continue };
            let (id, is_busy, is_draining) =
                (ExecutorId(executor), node.tasks > 0, node.is_draining);
            if std::mem::replace(&mut node.is_busy, is_busy) != is_busy {
                self.tell_provisioner(if is_busy {
                    Event::NodeBusy { node: id }
                } else {
                    Event::NodeIdle { node: id }
                });
            }
            if is_draining && self.scheduler_of(executor).is_emptied(id) {
                self.tell_provisioner(Event::NodeEmptied { node: id });
            }
        }
    }

    pub(super) fn tell_provisioner(&mut self, event: Event) {
        let Some(batch) = &mut self.batch else { return };
        if let Event::NodeLeft { node } = event {
            batch.nodes.remove(&node.0);
        }
        let mut effects = std::mem::take(&mut batch.effects);
        batch.provisioner.handle(self.now / MICROSECOND, event, &mut effects);
        if let Some(due) = batch.provisioner.next_timeout().map(|us| us * MICROSECOND)
            && due < batch.due
        {
            batch.due = due;
            self.events.schedule(due, SimEvent::ProvisionerTimeout);
        }
        for effect in effects.drain(..) {
            match effect {
                Effect::Request { request, nodes, .. } => self.request(request, nodes),
                Effect::Withdraw { request } => self.withdraw(request),
                Effect::Drain { node } => self.drain(node.0),
                Effect::Release { node } => self.give_back(node.0),
            }
        }
        if let Some(batch) = &mut self.batch {
            batch.effects = effects;
        }
    }

    fn drain(&mut self, executor: u32) {
        if let Some(batch) = &mut self.batch {
            batch.nodes.get_mut(&executor).expect("only known nodes are drained").is_draining =
                true;
            batch.changed.push(executor);
        }
        let draining = SchedEvent::ExecutorDraining { executor: ExecutorId(executor) };
        self.tell_scheduler(self.dispatcher_of(executor), draining);
    }

    // ---- what the batch system does

    fn request(&mut self, request: NodeRequestId, nodes: u32) {
        let Some((batch, asked)) = self.batch.as_mut().zip(self.cluster.batch.as_ref()) else {
            return;
        };
        let (least, most) = asked.grants_after_ns;
        batch.requests.insert(request, Request { nodes, is_granted: false });
        let at = self.now + least + batch.dice.below(most - least + 1);
        self.events.schedule(at, SimEvent::RequestAnswered { request });
    }

    fn withdraw(&mut self, request: NodeRequestId) {
        if let Some(batch) = &mut self.batch {
            batch.requests.remove(&request);
            self.tell_provisioner(Event::RequestEnded { request });
        }
    }

    pub(super) fn granted(&mut self, request: NodeRequestId) {
        let Some(batch) = &mut self.batch else { return };
        // A request that is no longer there was withdrawn.
        let Some(of) = batch.requests.get_mut(&request) else { return };
        if batch.dice.share() < self.cluster.failures.failed_requests {
            batch.requests.remove(&request);
            self.tell_provisioner(Event::RequestFailed { request });
        } else {
            of.is_granted = true;
            self.grant();
        }
    }

    /// Starts nodes of granted requests on free machines.
    pub(super) fn grant(&mut self) {
        while let Some(batch) = &mut self.batch
            && self.membership.has_free()
            && let Some((request, of)) = batch.requests.iter_mut().find(|(_, of)| of.is_granted)
        {
            let request = *request;
            of.nodes -= 1;
            if of.nodes == 0 {
                batch.requests.remove(&request);
            }
            self.start_node(Some(request));
        }
    }
}
