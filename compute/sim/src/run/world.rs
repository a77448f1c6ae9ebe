//! What the parts of a run share: the set-up, which never changes, and the owners of time, tasks,
//! hints and counts, each of which changes only through its own methods.

use std::sync::Arc;

use eyas_dispatch::PlacementInputs;
use eyas_jobs::Jobs;
use eyas_sched::Scheduler;
use eyas_types::{ObjectId, TaskId};

use super::agenda::Agenda;
use super::event::{SimEvent, SimFact};
use super::holds::HoldHints;
use super::job::Plan;
use super::metrics::SimMetrics;
use super::object::Owner;
use super::task::SimTasks;
use crate::arrival::Objects;
use crate::clock::Ns;
use crate::cluster::{Policies, SimCluster};
use crate::workload::{Derivation, Workload};

/// What a run is given.
pub(super) struct Setup<'a> {
    pub cluster: &'a SimCluster,
    pub policies: Policies,
    pub workload: &'a dyn Workload,
    pub seed: u64,
    pub plan: Plan,
    /// Nodes keep the inputs of tasks.
    pub caches: bool,
    /// Every node has all objects from the start.
    pub is_warm: bool,
    /// What nodes make of objects and keep.
    pub kept_copies: Option<Derivation>,
}

pub(super) struct World<'a> {
    pub setup: &'a Setup<'a>,
    pub agenda: Agenda,
    pub tasks: SimTasks<'a>,
    pub holds: HoldHints,
    pub metrics: SimMetrics,
}

impl<'a> Setup<'a> {
    pub fn new(
        cluster: &'a SimCluster,
        policies: &Policies,
        workload: &'a dyn Workload,
        seed: u64,
    ) -> Self {
        Setup {
            cluster,
            policies: *policies,
            workload,
            seed,
            plan: Plan::new(cluster, policies, workload),
            caches: policies.caches(),
            is_warm: false,
            kept_copies: workload.derivation().filter(|made| made.is_kept && policies.caches()),
        }
    }

    pub fn size_bytes(&self, object: u32) -> u64 {
        match self.kept_copies {
            Some(made) if self.is_copy(object) => made.size_bytes,
            _ => self.workload.size_bytes(object),
        }
    }

    /// What nodes make of objects and keep: derived copies.
    pub fn copies(&self) -> Option<Derivation> {
        self.kept_copies
    }

    /// The number of the derived copy of an object, if nodes keep one. Copies are numbered from the
    /// end of all numbers.
    pub fn copy_of(&self, object: u32) -> Option<u32> {
        self.kept_copies.filter(|_| object < self.workload.objects()).map(|_| !object)
    }

    /// Whether an object is a derived copy. The number of its source is `!object`.
    pub fn is_copy(&self, object: u32) -> bool {
        self.kept_copies.is_some() && !object < self.workload.objects()
    }

    /// Objects by which a task with these inputs is placed: the inputs, and the derived copies that
    /// it reads, in the order of their ids.
    pub fn placed_by(&self, inputs: &[u32]) -> Objects {
        let copies = inputs.iter().filter_map(|object| self.copy_of(*object));
        let mut objects: Objects = inputs.iter().copied().chain(copies).collect();
        if self.kept_copies.is_some() {
            objects.sort_by_key(|object| self.id_of(*object));
        }
        objects
    }

    /// The id of an object that all executors share.
    pub fn id_of(&self, object: u32) -> ObjectId {
        self.plan.outputs.id_of(object, Owner::All)
    }

    /// Which tasks share the replicas of a task's inputs.
    pub fn owner(&self, task: u32) -> Owner {
        if self.caches { Owner::All } else { Owner::Task(task) }
    }

    /// These inputs with their sizes, sorted by the ids that they have for `owner`.
    pub fn inputs(&self, objects: &[u32], owner: Owner) -> Box<[(ObjectId, u64)]> {
        let outputs = &self.plan.outputs;
        let of = |object: &u32| (outputs.id_of(*object, owner), self.size_bytes(*object));
        let mut inputs: Box<[_]> = objects.iter().map(of).collect();
        inputs.sort_unstable();
        inputs
    }

    /// The dispatcher of a machine. Neighbouring machines have the same one.
    pub fn dispatcher_of_machine(&self, machine: u32) -> usize {
        (u64::from(machine) * u64::from(self.cluster.dispatchers) / u64::from(self.cluster.nodes))
            as usize
    }

    /// Time that a message of an executor takes.
    fn message_ns(&self, fact: SimFact) -> Ns {
        let catalog_delay_ns = match fact {
            // Kept outputs are reported at once: the dispatcher must know them before the end of
            // their task.
            SimFact::Stored { object, .. } | SimFact::Evicted { object, .. }
                if self.plan.outputs.is_kept(object) =>
            {
                0
            }
            SimFact::Fetched { .. } | SimFact::Stored { .. } | SimFact::Evicted { .. } => {
                self.cluster.catalog_delay_ns
            }
            _ => 0,
        };
        self.cluster.message_ns + catalog_delay_ns
    }
}

impl<'a> World<'a> {
    pub fn new(setup: &'a Setup<'a>) -> Self {
        let may_run_again = setup.plan.outputs.has_kept()
            || setup.cluster.failures.dispatcher_dies_after_ns.is_some();
        World::of(setup, may_run_again)
    }

    /// A world in which any task may run again after it has ended: its dispatcher may not have
    /// learned of the end.
    pub fn new_again(setup: &'a Setup<'a>) -> Self {
        World::of(setup, true)
    }

    fn of(setup: &'a Setup<'a>, may_run_again: bool) -> Self {
        World {
            setup,
            agenda: Agenda::new(),
            tasks: SimTasks::new(setup.workload, may_run_again),
            holds: HoldHints::default(),
            metrics: SimMetrics::default(),
        }
    }

    /// An executor sends a message to its dispatcher.
    pub fn say(&mut self, fact: SimFact) {
        self.agenda.schedule_after(self.setup.message_ns(fact), SimEvent::FactArrives(fact));
    }
}

/// The inputs of a dispatcher's tasks.
pub(super) struct DispatcherInputs<'w, 'a> {
    pub dispatcher: usize,
    pub setup: &'w Setup<'a>,
    pub tasks: &'w SimTasks<'a>,
}

impl PlacementInputs for DispatcherInputs<'_, '_> {
    fn complete(
        &self,
        task: TaskId,
        inputs: Arc<[(ObjectId, u64)]>,
        _: &Jobs,
        scheduler: &mut Scheduler,
    ) -> Arc<[(ObjectId, u64)]> {
        // `core/jobs` knows only the inputs that other tasks write.
        let known = inputs.len();
        let number = self.setup.plan.number(self.dispatcher, task);
        let placed_by = self.setup.placed_by(&self.tasks[number].inputs);
        for copy in placed_by.iter().copied().filter(|object| self.setup.is_copy(*object)) {
            let (id, source) = (self.setup.id_of(copy), self.setup.id_of(!copy));
            scheduler.name_copy(id, (source, None), self.setup.size_bytes(copy));
        }
        let inputs = self.setup.inputs(&placed_by, Owner::All);
        debug_assert!(inputs.len() >= known, "{task} reads what the workload does not say");
        inputs.into()
    }
}
