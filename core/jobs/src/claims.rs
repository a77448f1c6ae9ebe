//! Checks the output places that a job declares: no two tasks may write the same file, because the
//! last one to end would replace the other's; and no task may keep two files of the same name in
//! the cluster, because its user would get one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use eyas_types::name::{scheme_of, without_slashes};
use eyas_types::place::PlaceProblem;
use eyas_types::template::Expansion;
use eyas_types::{Name, OutputSpec, PlaceId, TaskItem, TaskTemplate, Template, Value};

use crate::spec::{JobSpec, SpecError};

impl JobSpec {
    /// Whether each output is one task's own, as far as it can be told before tasks run: not of
    /// patterns, and not of names with a slot or a staged path in them.
    pub(super) fn check_claims(&self) -> Result<(), SpecError> {
        if self.templates.iter().flat_map(|template| &template.outputs).all(OutputSpec::is_stream) {
            return Ok(());
        }
        // Places themselves would take more memory than the job.
        let mut claimed: BTreeMap<[u8; 8], u32> = BTreeMap::new();
        for task in 0..self.items.len() as u32 {
            if let Some(name) = self.kept_twice(task) {
                return Err(SpecError::KeptTwice { name, task });
            }
            self.check_destinations(task)?;
            for place in self.places_of(task) {
                let Some(other) = claimed.insert(digest(&place), task) else { continue };
                if other == task || self.places_of(other).contains(&place) {
                    return Err(SpecError::Claimed { place, tasks: [other, task] });
                }
            }
        }
        Ok(())
    }

    /// Checks that the destinations of a task can be written to, also those of patterns, as far as
    /// their names can be told before the task runs.
    fn check_destinations(&self, task: u32) -> Result<(), SpecError> {
        let item = self.items.get(task);
        for output in &self.templates[usize::from(item.template)].outputs {
            let Some(destination) =
                output.destination.as_ref().filter(|to| to.is_known(&item.values))
            else {
                continue;
            };
            let mut place = expand(destination, &item, task);
            if output.pattern.is_glob() || place.ends_with(b"/") {
                let name = file_name(&item, output, task).unwrap_or_else(|| UNKNOWN.into());
                place = Name::concat(&[without_slashes(&place), b"/", &name]);
            }
            if let Some(problem) = PlaceProblem::of(&place) {
                return Err(SpecError::NoFile { place, task, problem });
            }
        }
        Ok(())
    }

    /// The places that the job says its tasks have, each with its task.
    pub(crate) fn declared_places(&self) -> BTreeMap<PlaceId, u32> {
        let may_be_declared =
            |output: &OutputSpec| output.destination.is_some() && !output.pattern.is_glob();
        if !self.templates.iter().flat_map(|template| &template.outputs).any(may_be_declared) {
            return BTreeMap::new();
        }
        let tasks = 0..self.items.len() as u32;
        tasks
            .flat_map(|task| {
                self.places_of(task).into_iter().map(move |place| (PlaceId::of(&place), task))
            })
            .collect()
    }

    fn places_of(&self, task: u32) -> Vec<Name> {
        let item = self.items.get(task);
        let template = &self.templates[usize::from(item.template)];
        template.outputs.iter().filter_map(|output| place(template, &item, output, task)).collect()
    }

    /// The name that two of a task's outputs would have in the cluster, where single files go by
    /// theirs alone.
    fn kept_twice(&self, task: u32) -> Option<Name> {
        let item = self.items.get(task);
        let kept = || {
            let outputs = &self.templates[usize::from(item.template)].outputs;
            let is_kept =
                |output: &&OutputSpec| output.replicas > 0 && output.destination.is_none();
            outputs.iter().filter(is_kept).filter(|output| !output.is_stream())
        };
        if kept().count() < 2 {
            return None;
        }
        let mut names = BTreeSet::new();
        kept()
            .filter_map(|output| file_name(&item, output, task))
            .find(|name| !names.insert(name.clone()))
    }
}

/// Stands for the name of a file that is known once the task has run.
const UNKNOWN: &str = "…";

fn place(template: &TaskTemplate, item: &TaskItem, output: &OutputSpec, task: u32) -> Option<Name> {
    let destination = output.destination.as_ref().filter(|_| output.is_declared(&item.values))?;
    let name = file_name(item, output, task)?;
    let mut place = expand(destination, item, task);
    if place.ends_with(b"/") {
        place.push(name);
    }
    match scheme_of(&place) {
        Some((b"file", path)) => Some(absolute(b"", path)),
        Some(_) => Some(place),
        None => Some(absolute(&template.base, &place)),
    }
}

/// `place` seen from `base`, without empty parts and parts that stay where they are.
fn absolute(base: &[u8], place: &[u8]) -> Name {
    let base = if place.starts_with(b"/") { b"" } else { base };
    let parts = |path| {
        <[u8]>::split(path, |byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
    };
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
    if output.pattern.is_glob() || !output.pattern.is_known(&item.values) {
        return None;
    }
    let path = expand(&output.pattern, item, task);
    let name = path.rsplit(|byte| *byte == b'/').find(|part| !matches!(*part, b"" | b"."))?;
    (name != b"..").then(|| name.into())
}

fn expand(word: &Template, item: &TaskItem, task: u32) -> Name {
    let values: Vec<_> =
        item.values.iter().map(|value| Value { text: value.text.clone(), input: None }).collect();
    word.expand(&Expansion {
        values: &values,
        staged: &[],
        template_inputs: 0,
        number: task + 1,
        slot: 0,
        input_list: b"",
    })
}
