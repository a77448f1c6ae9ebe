//! A job's outputs that are kept in the cluster: the outputs, the tasks that still read them, and the moves of tasks
//! when one is lost. A task then goes from `Succeeded` back to `Waiting`, and those that still need its output to
//! `Blocked`.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{Input, ObjectId, ObjectSpec, Outcome};

use serde::{Deserialize, Serialize};

use super::{Job, Phase};

/// What a task has left in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetainedOutput {
    /// The object.
    pub object: ObjectSpec,
    /// How many replicas of it there shall be.
    pub replicas: u8,
    /// Its place in the template's outputs.
    output: u16,
    /// It need not be held once all that read it have succeeded.
    until_read: bool,
}

impl RetainedOutput {
    /// Whether the job's user can have it, and only from here: until it is released, it is made again if it is lost.
    pub fn is_promised(&self) -> bool {
        self.object.is_kept() && !self.until_read
    }
}

impl Job {
    /// Notes what a task has left in the cluster, instead of what it may have left before.
    pub(super) fn note_kept(&mut self, index: u32, outcome: &Outcome) {
        if outcome.outputs.is_empty() && self.kept.is_empty() {
            return;
        }
        let before: Vec<_> = self.kept_by(index).map(|(object, _)| object).collect();
        for object in before {
            self.kept.remove(&(index, object));
        }
        if !outcome.status.is_success() {
            return;
        }
        let item = self.spec.items.get(index);
        let outputs = &self.spec.templates[usize::from(item.template)].outputs;
        for delivered in &outcome.outputs {
            let Some(spec) = outputs.get(usize::from(delivered.output)).filter(|spec| spec.replicas > 0) else {
                continue;
            };
            let (object, replicas, until_read) = (delivered.object.clone(), spec.replicas, spec.until_read);
            self.kept.insert(
                (index, object.id()),
                RetainedOutput { object, replicas, output: delivered.output, until_read },
            );
        }
    }

    /// Counts the readers of each output that is kept until it is read, beginning with the task `first`.
    pub(super) fn count_unread(&mut self, first: u32) {
        if !self.spec.templates.iter().flat_map(|template| &template.outputs).any(|output| output.until_read) {
            return;
        }
        let spec = self.spec.clone();
        let mut count = |inputs: &[Input], readers: u32| {
            for (task, output) in inputs.iter().filter_map(|input| input.from.output()) {
                let producer = &spec.templates[usize::from(spec.items.template(task))];
                if producer.outputs[usize::from(output)].until_read {
                    *self.unread.entry((task, output)).or_default() += readers;
                }
            }
        };
        // Inputs of a template are those of all of its tasks.
        let mut readers = vec![0; spec.templates.len()];
        for index in first..self.tasks.len() as u32 {
            let item = spec.items.get(index);
            readers[usize::from(item.template)] += 1;
            count(&item.inputs, 1);
        }
        spec.templates.iter().zip(readers).for_each(|(template, readers)| {
            if readers > 0 {
                count(&template.inputs, readers);
            }
        });
    }

    /// A task has read its inputs for good, or is to read them again.
    pub(super) fn note_read(&mut self, index: u32, has_read: bool) {
        if self.unread.is_empty() {
            return;
        }
        let item = self.spec.items.get(index);
        for input in self.spec.templates[usize::from(item.template)].inputs.iter().chain(&item.inputs) {
            if let Some((task, output)) = input.from.output()
                && let Some(unread) = self.unread.get_mut(&(task, output))
            {
                if has_read { *unread -= 1 } else { *unread += 1 }
            }
        }
    }

    /// Inputs of a task that are kept until they are read: the index of the task that wrote each, and the object.
    pub fn inputs_until_read(&self, index: u32) -> Vec<(u32, ObjectId)> {
        if self.unread.is_empty() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let inputs = self.inputs_with_ids(&item).filter_map(|(input, object)| {
            let (task, _) = input.from.output().filter(|output| self.unread.contains_key(output))?;
            Some((task, object?.0))
        });
        inputs.collect()
    }

    /// Whether what a task has left shall be held.
    pub fn is_wanted(&self, index: u32, object: ObjectId) -> bool {
        self.kept.get(&(index, object)).is_some_and(|left| {
            !left.until_read || self.unread.get(&(index, left.output)).is_some_and(|unread| *unread > 0)
        })
    }

    /// Only tasks need what a task has left from now on, and only until they have read it. Returns it.
    pub fn note_unneeded(&mut self, index: u32) -> Vec<ObjectId> {
        let all = (index, ObjectId([0; 16]))..=(index, ObjectId([0xff; 16]));
        let left = self.kept.range_mut(all).filter(|(_, left)| !left.until_read);
        let left = left.map(|((_, object), left)| {
            left.until_read = true;
            (*object, left.output)
        });
        let left: Vec<_> = left.collect();
        for (_, output) in &left {
            let unread = self.unread_inputs(index, *output);
            self.unread.insert((index, *output), unread);
        }
        left.into_iter().map(|(object, _)| object).collect()
    }

    /// How many inputs of tasks that have not succeeded are this output.
    fn unread_inputs(&self, producer: u32, output: u16) -> u32 {
        let dependents = self.dependents.get(&producer).into_iter().flatten();
        let unread = dependents.filter(|index| self.tasks[**index as usize].phase != Phase::Succeeded);
        let inputs_of = |index: &u32| {
            let item = self.spec.items.get(*index);
            let inputs = self.spec.templates[usize::from(item.template)].inputs.iter().chain(&item.inputs);
            inputs.filter(|input| input.from.output() == Some((producer, output))).count() as u32
        };
        unread.map(inputs_of).sum()
    }

    /// Whether a task has ended, and keeps outputs that nothing can need any more: all tasks that read them have ended,
    /// and leave nothing for which they would have to run again.
    pub fn is_forgettable(&self, index: u32) -> bool {
        let is_settled =
            |reader: &u32| self.tasks[*reader as usize].phase.has_ended() && self.kept_by(*reader).next().is_none();
        let mut left = self.kept_by(index).peekable();
        self.tasks[index as usize].phase.has_ended()
            && left.peek().is_some()
            && left.all(|(_, left)| left.until_read)
            // The last reader is most likely to be the one that still needs it.
            && self.dependents.get(&index).is_none_or(|readers| readers.iter().rev().all(is_settled))
    }

    /// Forgets what a task has left. Returns the tasks whose outputs it has read, and the objects.
    pub fn forget_outputs(&mut self, index: u32) -> (BTreeSet<u32>, Vec<ObjectId>) {
        let objects: Vec<_> = self.kept_by(index).map(|(object, _)| object).collect();
        let item = self.spec.items.get(index);
        let inputs = self.spec.templates[usize::from(item.template)].inputs.iter().chain(&item.inputs);
        let producers = inputs.filter_map(super::producer).collect();
        for object in &objects {
            if let Some(left) = self.kept.remove(&(index, *object)) {
                self.unread.remove(&(index, left.output));
                self.produced.remove(&(index, left.output));
            }
        }
        self.drop_item(index);
        (producers, objects)
    }

    /// Releases everything that the job keeps, and returns it.
    pub fn release(&mut self) -> Vec<(u32, ObjectId)> {
        self.is_released = true;
        core::mem::take(&mut self.kept).into_keys().collect()
    }

    /// What a task has left in the cluster.
    pub fn kept_by(&self, index: u32) -> impl Iterator<Item = (ObjectId, &RetainedOutput)> {
        let all = (index, ObjectId([0; 16]))..=(index, ObjectId([0xff; 16]));
        self.kept.range(all).map(|((_, object), left)| (*object, left))
    }

    /// Inputs of a task that only executors' stores have: the index of the task that wrote each, and the object.
    pub fn kept_inputs(&self, index: u32) -> Vec<(u32, ObjectId)> {
        if self.kept.is_empty() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let mut kept: Vec<_> = self
            .inputs_with_ids(&item)
            .filter_map(|(input, object)| {
                let (task, _) = input.from.output()?;
                Some((task, object.filter(|(_, object)| object.is_kept())?.0))
            })
            .collect();
        kept.sort_unstable();
        kept.dedup();
        kept
    }

    /// Whether a task, which reads outputs of `producer`, reads this one.
    fn is_reader(&self, index: u32, producer: u32, object: ObjectId) -> bool {
        let outputs = self.produced.range((producer, 0)..=(producer, u16::MAX));
        let is_it = |(_, (id, found)): &(_, &(ObjectId, ObjectSpec))| *id == object && found.is_kept();
        let outputs: Vec<u16> = outputs.filter(is_it).map(|((_, output), _)| *output).collect();
        // Of a task with one output, nothing else is read; the reader may have a million inputs.
        if self.template_at(producer).outputs.len() == 1 {
            return !outputs.is_empty();
        }
        let item = self.spec.items.get(index);
        let mut read =
            self.template_of(&item).inputs.iter().chain(&item.inputs).filter_map(|input| input.from.output());
        read.any(|(task, output)| task == producer && outputs.contains(&output))
    }

    /// Tasks that have not ended and read this object, which `producer` wrote.
    pub fn readers(&self, producer: u32, object: ObjectId) -> Vec<u32> {
        let has_ended = |index: &u32| self.tasks[*index as usize].phase.has_ended();
        let reads = |index: &u32| self.is_reader(*index, producer, object);
        let dependents = self.dependents.get(&producer).into_iter().flatten().copied();
        dependents.filter(|index| !has_ended(index) && reads(index)).collect()
    }

    /// Tasks that wait for an executor and read what one of these writes.
    pub fn waiting_readers(&self, producers: &[u32]) -> Vec<u32> {
        let readers = producers.iter().filter_map(|producer| self.dependents.get(producer)).flatten().copied();
        readers.filter(|index| self.tasks[*index as usize].phase == Phase::Waiting).collect()
    }

    /// A task that waits must wait for the output of these, which they have written before.
    pub fn block(&mut self, index: u32, producers: impl IntoIterator<Item = u32>) {
        let phase = self.tasks[index as usize].phase;
        assert!(matches!(phase, Phase::Waiting | Phase::Blocked), "task {index} is to be blocked while {phase:?}");
        let mut producers = producers.into_iter().peekable();
        if producers.peek().is_some() {
            self.unmet.entry(index).or_default().extend(producers);
        }
        self.enter(index, Phase::Blocked);
    }

    /// What this task wrote is available again. Returns the tasks that may run now.
    pub fn unblock(&mut self, producer: u32) -> Vec<u32> {
        let mut ready = Vec::new();
        for dependent in self.dependents.get(&producer).cloned().unwrap_or_default() {
            let Some(unmet) = self.unmet.get_mut(&dependent) else { continue };
            if unmet.remove(&producer) && unmet.is_empty() {
                self.unmet.remove(&dependent);
                self.enter(dependent, Phase::Waiting);
                ready.push(dependent);
            }
        }
        ready
    }

    /// Makes these tasks, which have succeeded, run again because what they wrote is lost: live, or again when it is
    /// read from the journal.
    pub fn recompute(&mut self, again: &[u32], paused_us: u64) {
        for index in again {
            let state = &mut self.tasks[*index as usize];
            state.recomputed += 1;
            (state.failures, state.losses, state.interrupted) = (0, 0, 0);
            self.enter(*index, Phase::Waiting);
            for dependent in self.dependents.get(index).cloned().unwrap_or_default() {
                if matches!(self.tasks[dependent as usize].phase, Phase::Waiting | Phase::Blocked) {
                    self.block(dependent, [*index]);
                }
            }
        }
        self.recomputed += again.len() as u64;
        self.go_on(again, paused_us);
    }
}
