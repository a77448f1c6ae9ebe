//! A job's outputs that are kept in the cluster: which there are, who still reads them, and the moves of tasks when one
//! is lost. A task then goes from `Succeeded` back to `Waiting`, and those that still need its output to `Blocked`.

use eyas_types::{InputFrom, ObjectId, ObjectSpec, Outcome};

use super::progress::{Job, Phase};

impl Job {
    /// Notes what a task has left in the cluster, instead of what it may have left before.
    pub(super) fn note_kept(&mut self, index: u32, outcome: &Outcome) {
        if outcome.outputs.is_empty() && self.kept.is_empty() {
            return;
        }
        let before: Vec<_> = self.kept_by(index).map(|(object, ..)| object).collect();
        for object in before {
            self.kept.remove(&(index, object));
        }
        if !outcome.status.is_success() {
            return;
        }
        let item = self.spec.items.get(index);
        let outputs = &self.spec.templates[usize::from(item.template)].outputs;
        for delivered in &outcome.outputs {
            let replicas = outputs.get(usize::from(delivered.output)).map_or(0, |output| output.replicas);
            if replicas > 0 {
                self.kept.insert((index, delivered.object.id()), (delivered.object.clone(), replicas));
            }
        }
    }

    /// Lets go of all that the job keeps; what that was.
    pub fn release(&mut self) -> Vec<(u32, ObjectId)> {
        self.is_released = true;
        std::mem::take(&mut self.kept).into_keys().collect()
    }

    /// What a task has left in the cluster, and how many replicas of each there shall be.
    pub fn kept_by(&self, index: u32) -> impl Iterator<Item = (ObjectId, &ObjectSpec, u8)> {
        let all = (index, ObjectId([0; 16]))..=(index, ObjectId([0xff; 16]));
        self.kept.range(all).map(|((_, object), (spec, replicas))| (*object, spec, *replicas))
    }

    /// Inputs of a task that are in executors' stores alone: who wrote each, and the object.
    pub fn kept_inputs(&self, index: u32) -> Vec<(u32, ObjectId)> {
        if self.kept.is_empty() {
            return Vec::new();
        }
        let item = self.spec.items.get(index);
        let mut kept: Vec<_> = self
            .inputs(&item)
            .filter_map(|(input, object)| match (input.from, object) {
                (InputFrom::Output { task, .. }, Some(object)) if object.is_kept() => Some((task, object.id())),
                _ => None,
            })
            .collect();
        kept.sort_unstable();
        kept.dedup();
        kept
    }

    /// Tasks that have not ended and read this object, which `producer` wrote.
    pub fn readers(&self, producer: u32, object: ObjectId) -> Vec<u32> {
        let has_ended = |index: &u32| self.tasks[*index as usize].phase.has_ended();
        let reads = |index: &u32| self.kept_inputs(*index).contains(&(producer, object));
        let dependents = self.dependents.get(&producer).into_iter().flatten().copied();
        dependents.filter(|index| !has_ended(index) && reads(index)).collect()
    }

    /// A task that waits must wait for the output of these, which they have written before.
    pub fn block(&mut self, index: u32, producers: impl IntoIterator<Item = u32>) {
        let phase = self.tasks[index as usize].phase;
        assert!(matches!(phase, Phase::Waiting | Phase::Blocked), "task {index} is to be blocked while {phase:?}");
        self.unmet.entry(index).or_default().extend(producers);
        self.enter(index, Phase::Blocked);
    }

    /// What this task wrote can be had again. Tells who may run now.
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

    /// Makes these tasks, which have succeeded, run again because what they wrote is lost: live, or again when it is read
    /// from the journal.
    pub fn recompute(&mut self, again: &[u32]) {
        for index in again {
            let state = &mut self.tasks[*index as usize];
            state.recomputed += 1;
            (state.failures, state.losses) = (0, 0);
            self.enter(*index, Phase::Waiting);
            for dependent in self.dependents.get(index).cloned().unwrap_or_default() {
                if matches!(self.tasks[dependent as usize].phase, Phase::Waiting | Phase::Blocked) {
                    self.block(dependent, [*index]);
                }
            }
        }
        self.recomputed += again.len() as u64;
    }
}
