//! The objects that a job's inputs stand for: those it was submitted with, and those its tasks
//! write for others.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::{Input, InputFrom, Need, ObjectId, ObjectSpec, Outcome, TaskItem};

use crate::spec::{JobSpec, in_order};

/// An input, and the object that it stands for with its id; `None` while the task that writes it
/// has not delivered.
pub(super) type ReadInput<'a> = (&'a Input, Option<(ObjectId, &'a ObjectSpec)>);

/// The objects that tasks of a job read.
#[derive(Debug, Default)]
pub(super) struct ReadObjects {
    /// The ids of the submitted objects.
    ids: Vec<ObjectId>,
    /// Of each template with many inputs, their ids and sizes in order, once they were needed.
    shared_inputs: BTreeMap<u16, Arc<[(ObjectId, u64)]>>,
    /// What tasks whose outputs are read have delivered. Ids are made when it comes, and not for
    /// all inputs of a task at once.
    produced: BTreeMap<(u32, u16), (ObjectId, ObjectSpec)>,
}

impl ReadObjects {
    /// The objects of a job as it was submitted. What its check has found is taken out of it.
    pub fn of(spec: &mut JobSpec) -> Self {
        let mut ids = core::mem::take(&mut spec.object_ids);
        let shared_inputs = core::mem::take(&mut spec.shared_inputs);
        if ids.len() != spec.objects.len() {
            ids = spec.objects.iter().map(ObjectSpec::id).collect();
        }
        ReadObjects { ids, shared_inputs, produced: BTreeMap::new() }
    }

    /// The ids of the submitted objects, by their indices.
    pub fn ids(&self) -> &[ObjectId] {
        &self.ids
    }

    /// The job has further objects.
    pub fn grow(&mut self, spec: &JobSpec) {
        self.ids.extend(spec.objects[self.ids.len()..].iter().map(ObjectSpec::id));
    }

    /// Objects are replaced by other versions.
    pub fn replace(&mut self, current: &[(u32, ObjectSpec)]) {
        self.shared_inputs.clear();
        current.iter().for_each(|(index, object)| self.ids[*index as usize] = object.id());
    }

    /// A task has succeeded, and delivered what others read, or may read. Returns what it had
    /// delivered before that is another object now, or none, with its output.
    pub fn produce(&mut self, index: u32, outcome: &Outcome) -> Vec<(u16, ObjectSpec)> {
        let all = (index, 0)..=(index, u16::MAX);
        let before: Vec<_> = self.produced.extract_if(all, |_, _| true).collect();
        // The files of a glob share one output index. They are inserted in reverse, so the first
        // file is kept.
        for delivered in outcome.outputs.iter().rev() {
            let object = delivered.object.clone();
            self.produced.insert((index, delivered.output), (object.id(), object));
        }
        let is_other = |(output, object): &(u16, ObjectSpec)| {
            self.produced.get(&(index, *output)).is_none_or(|(_, now)| now != object)
        };
        let before = before.into_iter().map(|((_, output), (_, object))| (output, object));
        before.filter(is_other).collect()
    }

    /// Forgets an output of a task.
    pub fn forget(&mut self, index: u32, output: u16) {
        self.produced.remove(&(index, output));
    }

    /// Whether a task has delivered this output to others.
    pub fn is_produced(&self, output: (u32, u16)) -> bool {
        self.produced.contains_key(&output)
    }

    /// What tasks have delivered to others.
    pub fn produced(&self) -> impl ExactSizeIterator<Item = ((u32, u16), &ObjectSpec)> {
        self.produced.iter().map(|(key, (_, object))| (*key, object))
    }

    /// Takes what a snapshot says that tasks have delivered.
    pub fn give(&mut self, produced: Vec<((u32, u16), ObjectSpec)>) {
        self.produced =
            produced.into_iter().map(|(key, object)| (key, (object.id(), object))).collect();
    }

    /// The outputs of a task that are this object.
    pub fn outputs_with(&self, index: u32, object: ObjectId) -> Vec<u16> {
        let outputs = self.produced.range((index, 0)..=(index, u16::MAX));
        let is_it =
            |(_, (id, found)): &(_, &(ObjectId, ObjectSpec))| *id == object && found.is_kept();
        outputs.filter(is_it).map(|((_, output), _)| *output).collect()
    }

    /// All objects: those the job was submitted with, then those its tasks wrote for others.
    pub fn all<'a>(
        &'a self,
        spec: &'a JobSpec,
    ) -> impl Iterator<Item = (ObjectId, &'a ObjectSpec)> {
        let submitted = self.ids.iter().copied().zip(&spec.objects);
        submitted.chain(self.produced.values().map(|(id, object)| (*id, object)))
    }

    /// The inputs of an item, its template's first, without the `first` ones.
    pub fn inputs<'a>(
        &'a self,
        spec: &'a JobSpec,
        item: &'a TaskItem,
        first: usize,
    ) -> impl Iterator<Item = ReadInput<'a>> {
        spec.inputs_of(item).skip(first).map(|input| {
            let object = match input.from {
                InputFrom::Object(object) | InputFrom::Part { object, .. } => {
                    let object = object as usize;
                    Some((self.ids[object], &spec.objects[object]))
                }
                InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. } => {
                    self.produced.get(&(task, output)).map(|(id, object)| (*id, object))
                }
            };
            (input, object)
        })
    }

    /// The ids and sizes of an item's inputs, each once.
    pub fn input_ids(&self, spec: &JobSpec, item: &TaskItem) -> Vec<(ObjectId, u64)> {
        let objects = self.inputs(spec, item, 0).filter_map(|(_, object)| object);
        // Grown step by step, a list of a million would be copied again and again.
        let mut ids = Vec::with_capacity(spec.template_of(item).inputs.len() + item.inputs.len());
        ids.extend(objects.map(|(id, object)| (id, object.size_bytes())));
        in_order(ids)
    }

    /// What the scheduler is told of an item: its inputs, and what it needs of an executor.
    pub fn needs_of(&mut self, spec: &JobSpec, item: &TaskItem) -> (Arc<[(ObjectId, u64)]>, Need) {
        let need = spec.need(item.template);
        if !item.inputs.is_empty() {
            return (self.input_ids(spec, item).into(), need);
        }
        if let Some(inputs) = self.shared_inputs.get(&item.template) {
            return (inputs.clone(), need);
        }
        match spec.shared_inputs_of(item.template, &self.ids) {
            Some(inputs) => {
                (self.shared_inputs.entry(item.template).or_insert(inputs).clone(), need)
            }
            None => (self.input_ids(spec, item).into(), need),
        }
    }
}
