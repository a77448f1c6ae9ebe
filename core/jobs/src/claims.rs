//! Whether two tasks of a job would write the same file, of which the one that ends last would win; or one task would
//! keep two in the cluster by the same name, of which its user would get one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::template::Expansion;
use eyas_types::{Name, OutputSpec, TaskItem, TaskTemplate, Template, TemplatePart, Value};

use crate::spec::{JobSpec, SpecError};

impl JobSpec {
    /// Whether each output is one task's own, as far as it can be told before tasks run: not of patterns, and not of
    /// names with a slot or a staged path in them.
    pub(super) fn check_claims(&self) -> Result<(), SpecError> {
        if self.templates.iter().all(|template| template.outputs.is_empty()) {
            return Ok(());
        }
        // Places themselves would take more memory than the job.
        let mut claimed: BTreeMap<[u8; 8], u32> = BTreeMap::new();
        for task in 0..self.items.len() as u32 {
            if let Some(name) = self.kept_twice(task) {
                return Err(SpecError::KeptTwice { name, task });
            }
            for place in self.places_of(task) {
                let Some(other) = claimed.insert(digest(&place), task) else { continue };
                if other == task || self.places_of(other).contains(&place) {
                    return Err(SpecError::Claimed { place, tasks: [other, task] });
                }
            }
        }
        Ok(())
    }

    fn places_of(&self, task: u32) -> Vec<Name> {
        let item = self.items.get(task);
        let template = &self.templates[usize::from(item.template)];
        template.outputs.iter().filter_map(|output| place(template, &item, output, task)).collect()
    }

    /// The name that two of a task's outputs would have in the cluster, where single files go by theirs alone.
    fn kept_twice(&self, task: u32) -> Option<Name> {
        let item = self.items.get(task);
        let kept = || {
            let outputs = &self.templates[usize::from(item.template)].outputs;
            outputs.iter().filter(|output| output.replicas > 0 && output.destination.is_none())
        };
        if kept().count() < 2 {
            return None;
        }
        let mut names = BTreeSet::new();
        kept().filter_map(|output| file_name(&item, output, task)).find(|name| !names.insert(name.clone()))
    }
}

fn place(template: &TaskTemplate, item: &TaskItem, output: &OutputSpec, task: u32) -> Option<Name> {
    let destination = output.destination.as_ref().filter(|destination| is_known(destination))?;
    let name = file_name(item, output, task)?;
    let mut place = expand(destination, item, task);
    if place.ends_with(b"/") {
        place.push(name);
    }
    if place.is_url() {
        return Some(place);
    }
    Some(absolute(&template.base, &place))
}

/// `place` seen from `base`, without empty parts and parts that stay where they are.
fn absolute(base: &[u8], place: &[u8]) -> Name {
    let base = if place.starts_with(b"/") { b"" } else { base };
    let parts = |path| <[u8]>::split(path, |byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
    let mut path = Name::default();
    for part in parts(base).chain(parts(place)) {
        path.push(b"/");
        path.push(part);
    }
    path
}

fn digest(place: &Name) -> [u8; 8] {
    let digest = blake3::hash(place.as_bytes());
    core::array::from_fn(|byte| digest.as_bytes()[byte])
}

/// The name of an output that is a single file, without its folders.
fn file_name(item: &TaskItem, output: &OutputSpec, task: u32) -> Option<Name> {
    if output.pattern.is_glob() || !is_known(&output.pattern) {
        return None;
    }
    let path = expand(&output.pattern, item, task);
    let name = path.rsplit(|byte| *byte == b'/').find(|part| !matches!(*part, b"" | b"."))?;
    (name != b"..").then(|| name.into())
}

/// Whether it is told before the task runs what it is.
fn is_known(word: &Template) -> bool {
    !word.0.iter().any(|piece| matches!(piece, TemplatePart::Slot | TemplatePart::Input(_)))
}

fn expand(word: &Template, item: &TaskItem, task: u32) -> Name {
    let values: Vec<_> = item.values.iter().map(|value| Value { text: value.text.clone(), input: None }).collect();
    word.expand(&Expansion { values: &values, staged: &[], template_inputs: 0, number: task + 1, slot: 0 })
}
