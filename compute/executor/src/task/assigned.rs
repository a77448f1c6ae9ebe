//! Tasks as the dispatcher assigns them.

use std::collections::HashMap;
use std::iter;
use std::sync::Arc;
use std::time::Instant;

use eyas_store::ObjectStore;
use eyas_types::{Input, Name, ObjectId, PartOfFile, TaskId, TaskTemplate};
use eyas_wire::executor::{AssignedInput, Assignment, PeerHint};

/// A list of up to this many inputs is searched from its beginning.
const FEW_INPUTS: usize = 16;

/// A task as the dispatcher has assigned it to this executor.
pub(crate) struct AssignedTask {
    pub assignment: Assignment,
    pub template: Arc<TaskTemplate>,
    /// Ids of its inputs in the store, in the order of the inputs.
    pub objects: Vec<ObjectId>,
    /// Indices of the inputs in the order of their ids; empty if the inputs are [few](FEW_INPUTS).
    by_id: Vec<u32>,
    /// Places of its named inputs, by their sources.
    pub places: HashMap<Name, Vec<Name>>,
    /// Derived copies that other executors may give, with their sizes.
    pub copies: HashMap<ObjectId, (u64, Vec<PeerHint>)>,
    /// Whether other tasks read the same objects.
    pub is_sharing: bool,
    pub arrived: Instant,
}

impl AssignedTask {
    pub fn new(
        assignment: Assignment,
        template: Arc<TaskTemplate>,
        objects: Vec<ObjectId>,
        is_sharing: bool,
    ) -> Self {
        let mut by_id = Vec::new();
        if objects.len() > FEW_INPUTS {
            by_id = (0..objects.len() as u32).collect();
            by_id.sort_unstable_by_key(|index| objects[*index as usize]);
        }
        AssignedTask {
            assignment,
            template,
            objects,
            by_id,
            places: HashMap::new(),
            copies: HashMap::new(),
            is_sharing,
            arrived: Instant::now(),
        }
    }

    /// Its inputs, by their ids and sizes in the store: the sources, or derived copies in their
    /// places where `size_of` knows the size.
    pub fn stored_inputs(
        &self,
        size_of: impl Fn(ObjectId, ObjectId) -> Option<u64>,
    ) -> Vec<(ObjectId, u64)> {
        let stored = self.assignment.inputs.iter().zip(&self.objects).map(|(input, source)| {
            let copies = self.copy_of(input, *source).into_iter();
            let copies = copies.flat_map(|copy| iter::once(copy).chain(packed_of(input, copy)));
            let mut known = copies.filter_map(|copy| Some((copy, size_of(*source, copy)?)));
            known.next().unwrap_or((*source, input.object.size_bytes()))
        });
        let mut inputs: Vec<_> = stored.collect();
        inputs.sort_unstable();
        inputs.dedup();
        inputs
    }

    /// The input that has this id in the store.
    pub fn input(&self, object: ObjectId) -> Option<&AssignedInput> {
        let index = if self.by_id.is_empty() {
            self.objects.iter().position(|other| *other == object)?
        } else {
            let place = self
                .by_id
                .binary_search_by_key(&object, |index| self.objects[*index as usize])
                .ok()?;
            self.by_id[place] as usize
        };
        Some(&self.assignment.inputs[index])
    }

    /// The input of which this derived copy was made. A folder may be packed.
    pub fn source_of(&self, copy: ObjectId) -> Option<&AssignedInput> {
        let mut inputs = self.assignment.inputs.iter().zip(&self.objects);
        let is_source = |(input, source): &(&AssignedInput, &ObjectId)| {
            let made = self.copy_of(input, **source);
            made.is_some_and(|made| made == copy || packed_of(input, made) == Some(copy))
        };
        inputs.find(is_source).map(|it| it.0)
    }

    fn copy_of(&self, input: &AssignedInput, source: ObjectId) -> Option<ObjectId> {
        input.part?.copy_of(source, &self.template.preparations)
    }

    pub fn id(&self) -> TaskId {
        self.assignment.task
    }

    /// Ids of its inputs, without sources of derived copies that are not here: the copies are here,
    /// and the task needs no more.
    pub(super) fn linked_sources(&self, store: &ObjectStore) -> impl Iterator<Item = ObjectId> {
        let inputs = self.assignment.inputs.iter().zip(&self.objects);
        let counts = |(input, source): &(&AssignedInput, &ObjectId)| {
            self.copy_of(input, **source).is_none() || store.contains(**source)
        };
        inputs.filter(counts).map(|(_, source)| *source)
    }

    /// Ids of the contents of its compressed inputs to which it has links.
    pub(super) fn contents(&self) -> impl Iterator<Item = ObjectId> {
        let links = |(input, _): &(&AssignedInput, &ObjectId)| {
            input.part == Some(PartOfFile::Decompressed { copied: false })
        };
        let inputs = self.assignment.inputs.iter().zip(&self.objects);
        inputs.filter(links).map(|(_, object)| object.decompressed())
    }

    /// The inputs of its template, which may stay in a sandbox for other tasks, with their ids.
    /// There are none if an input is a part of a file: the sandbox has a copy of it, which a task
    /// could change without notice.
    pub(super) fn shared_inputs(&self) -> (&[AssignedInput], &[ObjectId]) {
        let has_part = |input: &Input| input.from.part().is_some();
        let is_sharing = self.is_sharing && !self.template.inputs.iter().any(has_part);
        let count = if is_sharing { self.template.inputs.len() } else { 0 };
        (&self.assignment.inputs[..count], &self.objects[..count])
    }
}

/// The object in which nodes give each other this copy of an input, if it is a folder.
fn packed_of(input: &AssignedInput, copy: ObjectId) -> Option<ObjectId> {
    matches!(input.part, Some(PartOfFile::Prepared { .. })).then(|| copy.packed())
}
