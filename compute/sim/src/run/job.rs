//! The job of each dispatcher: the part of a workload that `core/jobs` knows, and the objects that
//! tasks write.
//!
//! `core/jobs` knows the outputs of tasks, their readers and their keep rules. Objects that exist
//! from the start are known to the simulator alone: `core/jobs` decides nothing about them, and
//! workloads have many.

use std::collections::HashMap;
use std::ops::Range;

use eyas_jobs::JobSpec;
use eyas_types::outcome::Delivered;
use eyas_types::{
    DeliverWhen, FileMode, Input, InputFrom, JobId, ObjectId, ObjectSpec, OutputSpec, Program,
    TaskId, TaskItem, TaskTemplate, Template, Version,
};

use super::object::{Owner, id_of, object_of};
use crate::cluster::{Policies, SimCluster, TaskPartitioning};
use crate::random::Random;
use crate::workload::{KeepRule, Workload};

/// The only job of each dispatcher.
pub(super) const JOB: JobId = JobId(1);

/// An object that a task writes.
pub(super) struct Output {
    pub id: ObjectId,
    /// The task that writes it, by its index in the job of its dispatcher.
    task: u32,
    /// Its place among the task's outputs.
    place: u16,
    size_bytes: u64,
    pub keep: Option<KeepRule>,
}

/// The objects that tasks write.
#[derive(Default)]
pub(super) struct Outputs {
    /// Number of the first output.
    first: u32,
    /// Outputs by their numbers, counted from the first.
    outputs: Vec<Option<Output>>,
    numbers: HashMap<ObjectId, u32>,
}

impl Output {
    fn new(object: u32, task: u32, place: u16, size_bytes: u64, keep: Option<KeepRule>) -> Self {
        let mut output = Output { id: ObjectId([0; 16]), task, place, size_bytes, keep };
        output.id = output.spec(object).id();
        output
    }

    /// The object as `core/jobs` knows it. A task that runs again writes the same object.
    fn spec(&self, object: u32) -> ObjectSpec {
        let (file, content) = (format!("out-{}", self.place), format!("{object}"));
        match self.keep {
            Some(_) => {
                let task = TaskId { job: JOB, index: self.task };
                ObjectSpec::kept(task, &file, self.size_bytes, &content, FileMode::READABLE)
            }
            None => {
                let source = format!("file:///{object}/{file}").into();
                let version = Version::Etag { etag: content, size_bytes: self.size_bytes };
                ObjectSpec { source, version, mode: FileMode::READABLE }
            }
        }
    }
}

impl Outputs {
    /// The output with this number; `None` for an object that exists from the start.
    pub fn get(&self, object: u32) -> Option<&Output> {
        self.outputs.get(object.checked_sub(self.first)? as usize)?.as_ref()
    }

    /// The id of an object for an owner. An output has one id for all dispatchers, executors and
    /// tasks that share replicas.
    pub fn id_of(&self, object: u32, owner: Owner) -> ObjectId {
        match (owner, self.get(object)) {
            (Owner::All, Some(output)) => output.id,
            _ => id_of(object, owner),
        }
    }

    /// The number of the object with that id.
    pub fn object_of(&self, id: ObjectId) -> u32 {
        if self.outputs.is_empty() {
            return object_of(id);
        }
        self.numbers.get(&id).copied().unwrap_or_else(|| object_of(id))
    }

    /// Whether the object is kept in the executors' stores only.
    pub fn is_kept(&self, object: u32) -> bool {
        self.get(object).is_some_and(|output| output.keep.is_some())
    }

    /// Whether any output is kept in the cluster.
    pub fn has_kept(&self) -> bool {
        self.outputs.iter().flatten().any(|output| output.keep.is_some())
    }

    /// The outputs as delivered by the task that wrote these objects.
    pub fn delivered(&self, objects: &[u32]) -> Vec<Delivered> {
        let of = |object: &u32| (*object, self.get(*object).expect("tasks write outputs"));
        let delivered = objects.iter().map(of).map(|(object, output)| Delivered {
            output: output.place,
            object: output.spec(object),
            place: None,
        });
        delivered.collect()
    }

    fn add(&mut self, output: Output, object: u32) {
        let place = (object - self.first) as usize;
        if self.outputs.len() <= place {
            self.outputs.resize_with(place + 1, || None);
        }
        self.numbers.insert(output.id, object);
        let before = self.outputs[place].replace(output);
        assert!(before.is_none(), "object {object} is written by two tasks");
    }
}

/// Distributes the tasks over the dispatchers, in order of arrival.
pub(super) struct Partitioner {
    partitioning: TaskPartitioning,
    dispatchers: u64,
    assigned: u64,
}

impl Partitioner {
    pub fn new(cluster: &SimCluster, policies: &Policies) -> Self {
        Partitioner {
            partitioning: policies.partitioning,
            dispatchers: cluster.dispatchers.into(),
            assigned: 0,
        }
    }

    /// The dispatcher of the next task, whose first input is `first_input`.
    pub fn next_dispatcher(&mut self, first_input: Option<u32>) -> usize {
        let turn = self.assigned;
        self.assigned += 1;
        let key = match (self.partitioning, first_input) {
            (TaskPartitioning::FirstInput, Some(object)) => Random::new(object.into()).next_u64(),
            _ => turn,
        };
        (key % self.dispatchers) as usize
    }
}

/// The jobs of all dispatchers.
#[derive(Default)]
pub(super) struct Plan {
    /// The job of each dispatcher.
    specs: Vec<JobSpec>,
    /// For each dispatcher, the numbers of its tasks in the workload, in the order of their
    /// indices. Where there is one dispatcher, numbers and indices are equal, and this is empty.
    numbers: Vec<Vec<u32>>,
    pub outputs: Outputs,
}

impl Plan {
    pub fn new(cluster: &SimCluster, policies: &Policies, workload: &dyn Workload) -> Self {
        let dispatchers = cluster.dispatchers as usize;
        let mut plan = Plan {
            specs: vec![JobSpec::default(); dispatchers],
            numbers: vec![Vec::new(); if dispatchers > 1 { dispatchers } else { 0 }],
            outputs: Outputs { first: workload.objects(), ..Outputs::default() },
        };
        let retries = workload.requests().retries;
        let mut partitioner = Partitioner::new(cluster, policies);
        let mut templates: HashMap<(usize, Vec<Option<KeepRule>>), u16> = HashMap::new();
        let mut writers: HashMap<u32, (usize, u32, u16)> = HashMap::new();
        for (number, task) in workload.arrivals().enumerate() {
            let dispatcher = partitioner.next_dispatcher(task.inputs.first().copied());
            let index = plan.specs[dispatcher].items.len() as u32;
            if let Some(numbers) = plan.numbers.get_mut(dispatcher) {
                numbers.push(number as u32);
            }
            let written_inputs = task.inputs.iter().filter_map(|object| writers.get(object));
            let inputs = written_inputs.map(|(writer, task, output)| {
                assert_eq!(
                    *writer, dispatcher,
                    "a task reads what a task of another dispatcher writes"
                );
                Input { from: InputFrom::Output { task: *task, output: *output }, name: None }
            });
            let inputs = inputs.collect();
            let mut kept = Vec::new();
            for (place, object) in task.outputs.iter().enumerate() {
                let (place, keep) = (place as u16, workload.keep(*object));
                plan.outputs.add(
                    Output::new(*object, index, place, workload.size_bytes(*object), keep),
                    *object,
                );
                writers.insert(*object, (dispatcher, index, place));
                kept.push(keep);
            }
            let spec = &mut plan.specs[dispatcher];
            let template = *templates.entry((dispatcher, kept)).or_insert_with_key(|(_, kept)| {
                spec.templates.push(template(retries, kept));
                spec.templates.len() as u16 - 1
            });
            spec.items.push(&TaskItem { template, values: Vec::new(), inputs });
        }
        plan
    }

    /// The job of a dispatcher.
    pub fn spec(&self, dispatcher: usize) -> JobSpec {
        self.specs[dispatcher].clone()
    }

    /// The indices in the job of a dispatcher of the tasks with these numbers.
    pub fn indices(&self, dispatcher: usize, tasks: &Range<u32>) -> Range<u32> {
        let count = self.specs[dispatcher].items.len() as u32;
        let before = |number: u32| match self.numbers.get(dispatcher) {
            Some(numbers) => numbers.partition_point(|other| *other < number) as u32,
            None => number.min(count),
        };
        before(tasks.start)..before(tasks.end)
    }

    /// The id of a task in the job of its dispatcher.
    pub fn task_id(&self, dispatcher: usize, number: u32) -> TaskId {
        let index = self.numbers.get(dispatcher).map_or(number, |numbers| {
            numbers.binary_search(&number).expect("the task belongs to this dispatcher") as u32
        });
        TaskId { job: JOB, index }
    }

    /// The number in the workload of a task of a dispatcher.
    pub fn number(&self, dispatcher: usize, task: TaskId) -> u32 {
        self.numbers.get(dispatcher).map_or(task.index, |numbers| numbers[task.index as usize])
    }
}

/// The template of tasks whose outputs have these keep rules. `None` stands for persistent storage.
fn template(retries: u32, kept: &[Option<KeepRule>]) -> TaskTemplate {
    let outputs = kept.iter().enumerate().map(|(place, keep)| OutputSpec {
        pattern: Template::literal(format!("out-{place}")),
        destination: keep.is_none().then(|| Template::literal("/")),
        replicas: keep.map_or(0, |keep| keep.replicas),
        until_read: keep.is_some_and(|keep| keep.until_read),
        optional: false,
        when: DeliverWhen::Success,
    });
    TaskTemplate { retries, outputs: outputs.collect(), ..TaskTemplate::new(Program::Noop) }
}
