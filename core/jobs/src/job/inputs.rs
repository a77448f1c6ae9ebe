//! The inputs of a job's tasks, and the objects that they stand for.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::{Input, InputFrom, Need, ObjectId, ObjectSpec, TaskItem};

use super::Job;
use crate::spec::in_order;

impl Job {
    /// All inputs of a task, its template's first, with the objects they stand for. Every producer has delivered.
    pub fn inputs<'a>(&'a self, item: &'a TaskItem) -> impl Iterator<Item = (&'a Input, Option<&'a ObjectSpec>)> {
        self.inputs_with_ids(item).map(|(input, object)| (input, object.map(|(_, object)| object)))
    }

    /// The same, with the ids of the objects.
    pub fn inputs_with_ids<'a>(
        &'a self,
        item: &'a TaskItem,
    ) -> impl Iterator<Item = (&'a Input, Option<(ObjectId, &'a ObjectSpec)>)> {
        self.inputs_from(item, 0)
    }

    /// The same, without the `first` inputs.
    pub fn inputs_from<'a>(
        &'a self,
        item: &'a TaskItem,
        first: usize,
    ) -> impl Iterator<Item = (&'a Input, Option<(ObjectId, &'a ObjectSpec)>)> {
        self.template_of(item).inputs.iter().chain(&item.inputs).skip(first).map(|input| {
            let object = match input.from {
                InputFrom::Object(object) | InputFrom::Part { object, .. } => {
                    let object = object as usize;
                    Some((self.object_ids[object], &self.spec.objects[object]))
                }
                InputFrom::Output { task, output } | InputFrom::OutputPart { task, output, .. } => {
                    self.produced.get(&(task, output)).map(|(id, object)| (*id, object))
                }
            };
            (input, object)
        })
    }

    /// All objects that its tasks read: those it was submitted with, then those its tasks wrote for others.
    pub fn objects(&self) -> impl Iterator<Item = (ObjectId, &ObjectSpec)> {
        let submitted = self.object_ids.iter().copied().zip(&self.spec.objects);
        submitted.chain(self.produced.values().map(|(id, object)| (*id, object)))
    }

    /// The ids and sizes of a task's inputs, each once.
    pub fn input_ids(&self, item: &TaskItem) -> Vec<(ObjectId, u64)> {
        let objects = self.inputs_with_ids(item).filter_map(|(_, object)| object);
        // Grown step by step, a list of a million would be copied again and again.
        let mut ids = Vec::with_capacity(self.template_of(item).inputs.len() + item.inputs.len());
        ids.extend(objects.map(|(id, object)| (id, object.size_bytes())));
        in_order(ids)
    }

    /// What the scheduler is told of a task: its inputs, and what it needs of an executor.
    pub(crate) fn needs_of(&mut self, index: u32) -> (Box<[(ObjectId, u64)]>, Need) {
        let item = self.spec.items.get(index);
        let need = self.spec.need(item.template);
        if !item.inputs.is_empty() {
            return (self.input_ids(&item).into(), need);
        }
        if let Some(inputs) = self.shared_inputs.get(&item.template) {
            return (inputs.clone(), need);
        }
        match self.spec.shared_inputs_of(item.template, &self.object_ids) {
            Some(inputs) => (self.shared_inputs.entry(item.template).or_insert(inputs).clone(), need),
            None => (self.input_ids(&item).into(), need),
        }
    }
}
