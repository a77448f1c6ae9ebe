//! The batch system, and the provisioner that requests nodes from it: the shell of
//! `core/provision`.

use std::collections::BTreeMap;

use eyas_provision::{Effect, Event, NodeRequestId, OutstandingWork, Provisioner, WorkMeter};
use eyas_sched::Scheduler;
use eyas_types::ExecutorId;

use super::agenda::Agenda;
use super::event::{End, SimEvent, SimFact};
use super::world::World;
use crate::clock::{MICROSECOND, Ns, SECOND};
use crate::cluster::SimCluster;
use crate::nodes::Batch;
use crate::random::Random;

/// Interval of the reports of outstanding work to the provisioner.
const SURVEY_EVERY: Ns = SECOND;

pub(super) struct SimulatedBatch {
    provisioner: Provisioner,
    /// Requests whose nodes have not all started, in order.
    requests: BTreeMap<NodeRequestId, Request>,
    /// Shortest and longest time until a request is granted.
    grants_after_ns: (Ns, Ns),
    dice: Random,
    /// Next timeout of the provisioner. Only a timeout event for this time counts; events for
    /// other times are stale.
    due: Ns,
    nodes: BTreeMap<u32, Node>,
    meter: WorkMeter,
}

struct Request {
    nodes: u32,
    is_granted: bool,
}

/// A node as the provisioner knows it.
struct Node {
    is_busy: bool,
    is_draining: bool,
}

impl SimulatedBatch {
    pub fn new(batch: &Batch, cluster: &SimCluster, seed: u64) -> Self {
        SimulatedBatch {
            provisioner: Provisioner::new(batch.config(cluster)),
            requests: BTreeMap::new(),
            grants_after_ns: batch.grants_after_ns,
            dice: Random::new(!seed),
            due: Ns::MAX,
            nodes: BTreeMap::new(),
            meter: WorkMeter::default(),
        }
    }

    /// Whether nodes were requested that have not come.
    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    // ---- the provisioner

    /// Passes an event to the provisioner. The caller performs the effects.
    pub fn handle(&mut self, event: Event, agenda: &mut Agenda) -> Vec<Effect> {
        if let Event::NodeLeft { node } = event {
            self.nodes.remove(&node.0);
        }
        let mut effects = Vec::new();
        self.provisioner.handle(agenda.now_us(), event, &mut effects);
        if let Some(due) = self.provisioner.next_timeout().map(|us| us * MICROSECOND)
            && due < self.due
        {
            self.due = due;
            agenda.schedule(due, SimEvent::ProvisionerTimeout);
        }
        effects
    }

    /// Whether a timeout of the provisioner has passed by `now`.
    pub fn take_due(&mut self, now: Ns) -> bool {
        let is_due = self.due <= now;
        if is_due {
            self.due = Ns::MAX;
        }
        is_due
    }

    /// The report of the outstanding work.
    pub fn work(&mut self, card_bytes_per_s: f64, to_do: OutstandingWork) -> Event {
        let interval_us = SURVEY_EVERY / MICROSECOND;
        let nodes = self.provisioner.staying();
        Event::Work(self.meter.report(interval_us, nodes, card_bytes_per_s, to_do))
    }

    pub fn plan_survey(&self, agenda: &mut Agenda) {
        agenda.schedule_after(SURVEY_EVERY, SimEvent::WorkReport);
    }

    /// Takes note of a fact that a dispatcher with this scheduler reads.
    pub fn note(&mut self, fact: SimFact, scheduler: &Scheduler, world: &World) {
        let setup = world.setup;
        match fact {
            SimFact::Ended { task, ran_us, end: End::Succeeded, .. } => {
                self.meter.ran(ran_us.into());
                for object in &world.tasks[task].inputs {
                    let replicas = scheduler.replicas(setup.id_of(*object));
                    self.meter.read(setup.size_bytes(*object), replicas);
                }
            }
            SimFact::Fetched { object, from, .. } => {
                self.meter.fetched(setup.id_of(object), setup.size_bytes(object), from);
            }
            SimFact::Evicted { object, .. } => self.meter.evicted(setup.id_of(object)),
            _ => {}
        }
    }

    // ---- nodes

    pub fn joined(&mut self, executor: u32) {
        self.nodes.insert(executor, Node { is_busy: false, is_draining: false });
    }

    pub fn drain(&mut self, executor: u32) {
        self.nodes.get_mut(&executor).expect("only known nodes are drained").is_draining = true;
    }

    pub fn is_draining(&self, executor: u32) -> bool {
        self.nodes.get(&executor).is_some_and(|node| node.is_draining)
    }

    /// What to tell the provisioner of a node with so many tasks: that it became busy or idle.
    pub fn load_changed(&mut self, executor: u32, tasks: u32) -> Option<Event> {
        let (of, is_busy) = (self.nodes.get_mut(&executor)?, tasks > 0);
        let was_busy = std::mem::replace(&mut of.is_busy, is_busy);
        let node = ExecutorId(executor);
        (was_busy != is_busy).then_some(match is_busy {
            true => Event::NodeBusy { node },
            false => Event::NodeIdle { node },
        })
    }

    // ---- requests

    pub fn request(&mut self, request: NodeRequestId, nodes: u32, agenda: &mut Agenda) {
        let (least, most) = self.grants_after_ns;
        self.requests.insert(request, Request { nodes, is_granted: false });
        let after_ns = least + self.dice.below(most - least + 1);
        agenda.schedule_after(after_ns, SimEvent::RequestAnswered { request });
    }

    pub fn withdraw(&mut self, request: NodeRequestId) {
        self.requests.remove(&request);
    }

    /// Whether the batch system grants a request or the request fails; `None` if it was withdrawn.
    pub fn answer(&mut self, request: NodeRequestId, failed_requests: f64) -> Option<bool> {
        let of = self.requests.get_mut(&request)?;
        of.is_granted = self.dice.share() >= failed_requests;
        let is_granted = of.is_granted;
        if !is_granted {
            self.requests.remove(&request);
        }
        Some(is_granted)
    }

    /// A granted request of which a node can start.
    pub fn next_grant(&mut self) -> Option<NodeRequestId> {
        let (request, of) = self.requests.iter_mut().find(|(_, of)| of.is_granted)?;
        let request = *request;
        of.nodes -= 1;
        if of.nodes == 0 {
            self.requests.remove(&request);
        }
        Some(request)
    }
}
