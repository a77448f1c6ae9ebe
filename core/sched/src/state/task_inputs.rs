//! The inputs by which a task is placed: all of them, or a sample of very many.
//!
//! A decision looks at the inputs of a task once for each executor that it compares. So of a task
//! with more inputs than [`Config::placed_inputs`](crate::Config), the scheduler keeps a sample
//! only. The inputs are in the order of their ids, which are digests, so neighbours have nothing in
//! common. Equal numbers of neighbours form a group, and the largest of a group stands for all of
//! it. For example, of 1,000,000 inputs each 62 form a group, so that 16,130 are in the sample; an
//! executor that holds a third of the bytes of the groups counts as one that holds a third of all.

use alloc::boxed::Box;
use alloc::vec::Vec;

use eyas_types::ObjectId;

use super::catalog::Catalog;
use super::keys::ObjectKey;

/// Up to three inputs are stored in place. More are behind a box of one word, so that the type
/// stays small.
pub(crate) enum TaskInputs {
    Few(u8, [ObjectKey; 3]),
    Many(Box<Box<[ObjectKey]>>),
    Sampled(Box<InputSample>),
}

/// A sample of a task's inputs.
pub(crate) struct InputSample {
    objects: Box<[ObjectKey]>,
    /// For each object of the sample, the bytes of its group.
    bytes: Box<[u64]>,
    /// The number of inputs in a group. The last group may have fewer.
    group: usize,
    /// The number of all inputs.
    pub count: usize,
    /// Objects that the task's executor was told to fetch. The task refers to each of them once
    /// more.
    pub fetched: Vec<ObjectKey>,
}

/// An object by which a task is placed.
#[derive(Clone, Copy)]
pub(crate) struct PlacedInput {
    pub object: ObjectKey,
    /// The number of inputs that it stands for, itself included.
    pub count: usize,
    /// The bytes of those.
    pub bytes: u64,
}

impl PlacedInput {
    /// The weight in the task's share; see [`Catalog::weight`].
    pub fn weight(&self) -> u64 {
        self.bytes.max(1)
    }
}

impl TaskInputs {
    pub const NONE: TaskInputs = TaskInputs::Few(0, [ObjectKey::NONE; 3]);

    /// Refers to the inputs of a task, or to a sample of up to `most`. Returns also the bytes of
    /// all inputs.
    pub fn refer(catalog: &mut Catalog, inputs: &[(ObjectId, u64)], most: usize) -> (Self, u64) {
        if inputs.len() > 3 && inputs.len() > most {
            return Self::refer_to_sample(catalog, inputs, inputs.len().div_ceil(most.max(1)));
        }
        let bytes = inputs.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(*bytes));
        let mut refer = |(id, size_bytes): &(ObjectId, u64)| catalog.refer(*id, *size_bytes);
        if inputs.len() <= 3 {
            let mut few = [ObjectKey::NONE; 3];
            few.iter_mut().zip(inputs).for_each(|(key, input)| *key = refer(input));
            (TaskInputs::Few(inputs.len() as u8, few), bytes)
        } else {
            (TaskInputs::Many(Box::new(inputs.iter().map(refer).collect())), bytes)
        }
    }

    /// Refers to the largest of each `group` neighbours. Each input is read once.
    fn refer_to_sample(
        catalog: &mut Catalog,
        inputs: &[(ObjectId, u64)],
        group: usize,
    ) -> (Self, u64) {
        let (mut objects, mut bytes) = (Vec::new(), Vec::new());
        for neighbours in inputs.chunks(group) {
            let (mut largest, mut sum) = (&neighbours[0], 0_u64);
            for input in neighbours {
                if input.1 >= largest.1 {
                    largest = input;
                }
                sum = sum.saturating_add(input.1);
            }
            objects.push(catalog.refer(largest.0, largest.1));
            bytes.push(sum);
        }
        let total = bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let sample = InputSample {
            objects: objects.into(),
            bytes: bytes.into(),
            group,
            count: inputs.len(),
            fetched: Vec::new(),
        };
        (TaskInputs::Sampled(Box::new(sample)), total)
    }

    /// The other input, if there are exactly two; else [`ObjectKey::NONE`].
    pub fn other_than(&self, input: ObjectKey) -> ObjectKey {
        match self.as_slice() {
            [one, other] | [other, one] if *one == input => *other,
            _ => ObjectKey::NONE,
        }
    }

    /// The objects by which the task is placed.
    pub fn as_slice(&self) -> &[ObjectKey] {
        match self {
            TaskInputs::Few(count, few) => &few[..usize::from(*count)],
            TaskInputs::Many(many) => many,
            TaskInputs::Sampled(sample) => &sample.objects,
        }
    }

    /// The same, with the inputs that each stands for.
    pub fn placed<'a>(&'a self, catalog: &'a Catalog) -> impl Iterator<Item = PlacedInput> + 'a {
        let sample = self.sample();
        self.as_slice().iter().enumerate().map(move |(index, object)| match sample {
            None => PlacedInput { object: *object, count: 1, bytes: catalog.size_bytes(*object) },
            Some(sample) => PlacedInput {
                object: *object,
                count: sample.group.min(sample.count - index * sample.group),
                bytes: sample.bytes[index],
            },
        })
    }

    /// The number of all inputs.
    pub fn count(&self) -> usize {
        self.sample().map_or(self.as_slice().len(), |sample| sample.count)
    }

    pub fn sample(&self) -> Option<&InputSample> {
        match self {
            TaskInputs::Sampled(sample) => Some(sample),
            TaskInputs::Few(..) | TaskInputs::Many(_) => None,
        }
    }

    pub fn sample_mut(&mut self) -> Option<&mut InputSample> {
        match self {
            TaskInputs::Sampled(sample) => Some(sample),
            TaskInputs::Few(..) | TaskInputs::Many(_) => None,
        }
    }
}
