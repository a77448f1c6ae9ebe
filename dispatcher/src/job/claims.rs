//! Whether two tasks of a job would write the same file, of which the one that ends last would win.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use eyas_types::template::Expansion;
use eyas_types::{OutputSpec, Piece, TaskItem, TaskTemplate, Template, Value};

use super::spec::{JobSpec, SpecError};

impl JobSpec {
    /// Whether each output is one task's own, as far as it can be told before tasks run: not of patterns, and not of
    /// names with a slot or a staged path in them.
    pub(super) fn check_claims(&self) -> Result<(), SpecError> {
        if self.templates.iter().all(|template| template.outputs.is_empty()) {
            return Ok(());
        }
        let hasher = RandomState::new();
        // Places themselves would take more memory than the job.
        let mut claimed: HashMap<u64, u32> = HashMap::new();
        for task in 0..self.items.len() as u32 {
            for place in self.places_of(task) {
                let Some(other) = claimed.insert(hasher.hash_one(&place), task) else { continue };
                if other == task || self.places_of(other).contains(&place) {
                    return Err(SpecError::Claimed { place, tasks: [other, task] });
                }
            }
        }
        Ok(())
    }

    fn places_of(&self, task: u32) -> Vec<String> {
        let item = self.items.get(task);
        let template = &self.templates[usize::from(item.template)];
        template.outputs.iter().filter_map(|output| place(template, &item, output, task)).collect()
    }
}

fn place(template: &TaskTemplate, item: &TaskItem, output: &OutputSpec, task: u32) -> Option<String> {
    let is_known = |word: &Template| !word.0.iter().any(|piece| matches!(piece, Piece::Slot | Piece::Input(_)));
    let destination = output.destination.as_ref().filter(|destination| is_known(destination))?;
    if output.pattern.is_glob() || !is_known(&output.pattern) {
        return None;
    }
    let values: Vec<_> = item.values.iter().map(|value| Value { text: value.text.clone(), input: None }).collect();
    let with = Expansion { values: &values, staged: &[], template_inputs: 0, number: task + 1, slot: 0 };
    let mut place = destination.expand(&with);
    if place.ends_with('/') {
        place += Path::new(&output.pattern.expand(&with)).file_name()?.to_str()?;
    }
    if place.contains("://") {
        return Some(place);
    }
    let place: PathBuf = Path::new(&template.base).join(place).components().collect();
    Some(place.to_string_lossy().into_owned())
}
