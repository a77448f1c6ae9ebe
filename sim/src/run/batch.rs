//! The batch system, and the provisioner that asks it for nodes: the shell of `core/provision`.

use std::collections::BTreeMap;

use eyas_provision::{Effect, Event, NodeRequestId, OutstandingWork, Provisioner, WorkMeter};
use eyas_sched::Event as SchedEvent;
use eyas_types::ExecutorId;

use super::{End, Fact, Owner, Run, SimEvent};
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::Cluster;
use crate::nodes::Batch;
use crate::random::Random;

/// How often the provisioner is told how much there is to do.
const SURVEY_EVERY: Ns = SECOND;

pub(super) struct BatchSystem {
    provisioner: Provisioner,
    effects: Vec<Effect>,
    /// Nodes that have not come of each request, in order.
    requests: BTreeMap<NodeRequestId, Request>,
    dice: Random,
    /// When the provisioner is told that time has passed. Of what the clock has planned for that, only what is planned for
    /// then counts: the rest is of times that were due before something earlier was.
    due: Ns,
    nodes: BTreeMap<u32, Node>,
    /// Executors that were given tasks or have ended some, or are to leave.
    changed: Vec<u32>,
    meter: WorkMeter,
}

struct Request {
    nodes: u32,
    is_granted: bool,
}

/// What the provisioner was told of a node.
struct Node {
    /// Tasks that it was given and has not told the end of.
    tasks: u32,
    is_busy: bool,
    is_draining: bool,
}

impl BatchSystem {
    pub fn new(batch: &Batch, cluster: &Cluster, seed: u64) -> Self {
        BatchSystem {
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

    fn has_one_less(&mut self, executor: u32) {
        self.nodes.get_mut(&executor).expect("tasks are ended by who is there").tasks -= 1;
        self.changed.push(executor);
    }
}

impl Run<'_> {
    /// Tells the provisioner how much there is to do.
    pub(super) fn survey(&mut self) {
        let Some(batch) = &mut self.batch else { return };
        let to_do = OutstandingWork {
            waiting: self.dispatchers.waiting,
            running: self.dispatchers.busy(),
            arrived: self.outcome.tasks,
            ..OutstandingWork::default()
        };
        let nodes = batch.provisioner.staying();
        let work = batch.meter.report(SURVEY_EVERY / MICROSECOND, nodes, self.cluster.card_bytes_per_s, to_do);
        self.tell_provisioner(Event::Work(work));
        self.clock.plan(self.now + SURVEY_EVERY, SimEvent::Surveyed);
    }

    pub(super) fn is_due(&mut self) {
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
            batch.nodes.get_mut(&executor).expect("tasks are given to who is there").tasks += 1;
            batch.changed.push(executor);
        }
    }

    /// Learns from what a dispatcher is told.
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
                batch.has_one_less(executor);
            }
            Fact::Returned { executor, .. } => batch.has_one_less(executor),
            Fact::Fetched { object, from, .. } => {
                batch.meter.fetched(id(object), self.workload.size_bytes(object), from);
            }
            Fact::Evicted { object, .. } => batch.meter.evicted(id(object)),
            _ => {}
        }
    }

    /// Tells the provisioner who has tasks, who has none any more, and who can leave.
    pub(super) fn tell_changes(&mut self) {
        while let Some(batch) = &mut self.batch
            && let Some(executor) = batch.changed.pop()
        {
            let Some(node) = batch.nodes.get_mut(&executor) else { continue };
            let (id, is_busy, is_draining) = (ExecutorId(executor), node.tasks > 0, node.is_draining);
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
            self.clock.plan(due, SimEvent::Due);
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
            batch.nodes.get_mut(&executor).expect("who is to leave is there").is_draining = true;
            batch.changed.push(executor);
        }
        let draining = SchedEvent::ExecutorDraining { executor: ExecutorId(executor) };
        self.tell_scheduler(self.dispatcher_of(executor), draining);
    }

    // ---- what the batch system does

    fn request(&mut self, request: NodeRequestId, nodes: u32) {
        let Some((batch, asked)) = self.batch.as_mut().zip(self.cluster.batch.as_ref()) else { return };
        let (least, most) = asked.grants_after_ns;
        batch.requests.insert(request, Request { nodes, is_granted: false });
        self.clock.plan(self.now + least + batch.dice.below(most - least + 1), SimEvent::Granted { request });
    }

    fn withdraw(&mut self, request: NodeRequestId) {
        if let Some(batch) = &mut self.batch {
            batch.requests.remove(&request);
        }
    }

    pub(super) fn granted(&mut self, request: NodeRequestId) {
        let Some(batch) = &mut self.batch else { return };
        // Else it was withdrawn.
        let Some(of) = batch.requests.get_mut(&request) else { return };
        if batch.dice.share() < self.cluster.failures.failed_requests {
            batch.requests.remove(&request);
            self.tell_provisioner(Event::RequestFailed { request });
        } else {
            of.is_granted = true;
            self.grant();
        }
    }

    /// Starts nodes on free machines for what has been granted.
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
