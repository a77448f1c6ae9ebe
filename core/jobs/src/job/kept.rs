//! What tasks of a job have left in the cluster, and how many tasks still read what is kept only
//! for them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{Input, ObjectId, ObjectSpec, Outcome, OutputSpec};
use serde::{Deserialize, Serialize};

use crate::spec::JobSpec;

/// What a task has left in the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RetainedOutput {
    /// The object.
    pub object: ObjectSpec,
    /// How many replicas of it there shall be.
    pub replicas: u8,
    /// Its index in the template's outputs.
    output: u16,
    /// It need not be held once all that read it have succeeded.
    until_read: bool,
}

impl RetainedOutput {
    /// Whether the job's user can have it, and only from here: until it is released, it is made
    /// again if it is lost.
    pub fn is_promised(&self) -> bool {
        self.object.is_kept() && !self.until_read
    }
}

/// What the tasks of a job have left in the cluster, by the task and the object.
#[derive(Debug, Default)]
pub(crate) struct RetainedOutputs {
    outputs: BTreeMap<(u32, ObjectId), RetainedOutput>,
    /// Readers left: for each output that is kept until it is read, by task and index, the number
    /// of inputs of unfinished tasks that still read it.
    unread: BTreeMap<(u32, u16), u32>,
    /// They need not be kept any longer.
    is_released: bool,
}

impl RetainedOutputs {
    /// Notes what a task has left in the cluster, instead of what it may have left before.
    /// `outputs` is what its template says.
    pub fn note(&mut self, index: u32, outputs: &[OutputSpec], outcome: &Outcome) {
        if outcome.outputs.is_empty() && self.outputs.is_empty() {
            return;
        }
        let before: Vec<_> = self.of(index).map(|(object, _)| object).collect();
        for object in before {
            self.outputs.remove(&(index, object));
        }
        if !outcome.status.is_success() {
            return;
        }
        for delivered in &outcome.outputs {
            let Some(spec) =
                outputs.get(usize::from(delivered.output)).filter(|spec| spec.replicas > 0)
            else {
                continue;
            };
            let (object, replicas, until_read) =
                (delivered.object.clone(), spec.replicas, spec.until_read);
            let left = RetainedOutput { object, replicas, output: delivered.output, until_read };
            self.outputs.insert((index, left.object.id()), left);
        }
    }

    /// Counts the readers of each output that is kept until it is read, beginning with the task
    /// `first`.
    pub fn count_unread(&mut self, spec: &JobSpec, first: u32) {
        if !spec
            .templates
            .iter()
            .flat_map(|template| &template.outputs)
            .any(|output| output.until_read)
        {
            return;
        }
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
        for index in first..spec.items.len() as u32 {
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
    pub fn note_read(&mut self, spec: &JobSpec, index: u32, has_read: bool) {
        if self.unread.is_empty() {
            return;
        }
        let item = spec.items.get(index);
        for input in spec.inputs_of(&item) {
            if let Some(output) = input.from.output()
                && let Some(unread) = self.unread.get_mut(&output)
            {
                if has_read { *unread -= 1 } else { *unread += 1 }
            }
        }
    }

    /// Whether some outputs are kept until they are read.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether an output of a task is kept until it is read.
    pub fn is_until_read(&self, output: &(u32, u16)) -> bool {
        self.unread.contains_key(output)
    }

    /// What a task has left is kept from now on only until it is read. Returns what was kept for
    /// longer: the object, and its index in the template's outputs.
    pub fn keep_until_read(&mut self, index: u32) -> Vec<(ObjectId, u16)> {
        let all = (index, ObjectId([0; 16]))..=(index, ObjectId([0xff; 16]));
        let left = self.outputs.range_mut(all).filter(|(_, left)| !left.until_read);
        let left = left.map(|((_, object), left)| {
            left.until_read = true;
            (*object, left.output)
        });
        left.collect()
    }

    /// Unfinished tasks have this number of inputs that are this output.
    pub fn set_unread(&mut self, output: (u32, u16), unread: u32) {
        self.unread.insert(output, unread);
    }

    /// Whether what a task has left shall be held.
    pub fn is_wanted(&self, index: u32, object: ObjectId) -> bool {
        self.outputs.get(&(index, object)).is_some_and(|left| {
            !left.until_read
                || self.unread.get(&(index, left.output)).is_some_and(|unread| *unread > 0)
        })
    }

    /// Whether all that a task has left is kept only until it is read, and it has left something.
    pub fn are_only_until_read(&self, index: u32) -> bool {
        let mut left = self.of(index).peekable();
        left.peek().is_some() && left.all(|(_, left)| left.until_read)
    }

    /// Forgets an object that a task has left. Returns its index in the template's outputs.
    pub fn forget(&mut self, index: u32, object: ObjectId) -> Option<u16> {
        let left = self.outputs.remove(&(index, object))?;
        self.unread.remove(&(index, left.output));
        Some(left.output)
    }

    /// What a task has left.
    pub fn of(&self, index: u32) -> impl Iterator<Item = (ObjectId, &RetainedOutput)> {
        let all = (index, ObjectId([0; 16]))..=(index, ObjectId([0xff; 16]));
        self.outputs.range(all).map(|((_, object), left)| (*object, left))
    }

    /// An object that a task has left.
    pub fn get(&self, index: u32, object: ObjectId) -> Option<&RetainedOutput> {
        self.outputs.get(&(index, object))
    }

    /// All, by task and object.
    pub fn all(&self) -> impl ExactSizeIterator<Item = (&(u32, ObjectId), &RetainedOutput)> {
        self.outputs.iter()
    }

    /// The tasks and objects, in order.
    pub fn keys(&self) -> impl Iterator<Item = (u32, ObjectId)> {
        self.outputs.keys().copied()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Releases everything, and returns it.
    pub fn release(&mut self) -> Vec<(u32, ObjectId)> {
        self.is_released = true;
        core::mem::take(&mut self.outputs).into_keys().collect()
    }

    /// Whether everything was released.
    pub fn is_released(&self) -> bool {
        self.is_released
    }

    /// Takes what a snapshot says.
    pub fn give(&mut self, outputs: Vec<((u32, ObjectId), RetainedOutput)>, is_released: bool) {
        (self.outputs, self.is_released) = (BTreeMap::from_iter(outputs), is_released);
    }
}
