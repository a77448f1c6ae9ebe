//! Attached jobs grow: tasks are added while earlier ones run, and what is no longer needed of ended ones goes.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

use eyas_types::ObjectSpec;

use super::{FreedTasks, Job, Phase, TaskState, producer};
use crate::dependencies::Dependencies;
use crate::spec::{Extension, SpecError};

/// Bytes of ended tasks' items that may stay in memory.
const MAX_DONE_BYTES: usize = if cfg!(test) { 64 } else { 1 << 20 };

impl Job {
    /// Adds tasks. Returns those that may run, and those that never can. If anything is wrong, nothing is added.
    pub(crate) fn extend(&mut self, extension: Extension) -> Result<FreedTasks, SpecError> {
        let (first, had_objects) = (self.tasks.len() as u32, self.object_ids.len());
        Arc::make_mut(&mut self.spec).extend(extension)?;
        self.object_ids.extend(self.spec.objects[had_objects..].iter().map(ObjectSpec::id));
        self.tasks.resize(self.spec.items.len(), TaskState::default());
        self.counts.waiting += self.tasks.len() as u64 - u64::from(first);
        let freed = self.find_dependencies(first);
        self.count_unread(first);
        self.find_borrowed(first, had_objects);
        self.next_to_queue = self.tasks.len() as u32;
        Ok(freed)
    }

    /// Finds what tasks wait for, beginning with the task `first`. Returns those that may run, and those that never
    /// can, because a task that they need has ended already.
    pub(super) fn find_dependencies(&mut self, first: u32) -> FreedTasks {
        let mut freed = FreedTasks::default();
        for index in first..self.tasks.len() as u32 {
            let item = self.spec.items.get(index);
            let inputs = self.template_of(&item).inputs.iter().chain(&item.inputs);
            let mut producers: BTreeSet<u32> = inputs.filter_map(producer).collect();
            for producer in &producers {
                self.dependents.entry(*producer).or_default().push(index);
            }
            let phase_of = |producer: &u32| self.tasks[*producer as usize].phase;
            let lacks = |producer: &u32| phase_of(producer).has_ended_unsuccessfully();
            let never_comes = producers.iter().any(lacks);
            let had_producers = !producers.is_empty();
            producers.retain(|producer| phase_of(producer) != Phase::Succeeded);
            if never_comes {
                freed.hopeless.push(index);
            } else if !producers.is_empty() {
                self.unmet.insert(index, producers);
                self.enter(index, Phase::Blocked);
            } else if had_producers && !self.inputs(&item).all(|(_, object)| object.is_some()) {
                freed.hopeless.push(index);
            } else {
                freed.ready.push(index);
            }
        }
        freed
    }

    /// Notes what the tasks of a new job wait for: as it was found when the job was checked, or finds it.
    pub(super) fn depend(&mut self, known: Option<Dependencies>) {
        let Some(known) = known else { return drop(self.find_dependencies(0)) };
        (self.dependents, self.unmet) = (known.dependents, known.unmet);
        let blocked: Vec<u32> = self.unmet.keys().copied().collect();
        blocked.into_iter().for_each(|index| self.enter(index, Phase::Blocked));
    }

    /// No more tasks are added. `now_us` is the present time.
    pub(crate) fn close(&mut self, now_us: u64) {
        let at_us = self.time_us(now_us);
        self.is_open = false;
        if self.counts.ended() == self.counts.total() {
            self.ended_us = Some(at_us);
        }
    }

    /// Drops what is no longer needed of the item of a task that has ended, if the job is attached. The item stays if
    /// the task may have to run again, because it keeps outputs in the cluster.
    pub(crate) fn drop_item(&mut self, index: u32) {
        if !self.spec.is_attached || !self.is_done(index) {
            return;
        }
        self.done_bytes += self.spec.items.bytes_of(index);
        if self.done_bytes < MAX_DONE_BYTES || self.done_bytes < self.spec.items.content_bytes() / 4 {
            return;
        }
        let is_done: Vec<bool> = (0..self.tasks.len() as u32).map(|index| self.is_done(index)).collect();
        Arc::make_mut(&mut self.spec).items.strip(|index| is_done[index as usize]);
        self.done_bytes = 0;
    }

    fn is_done(&self, index: u32) -> bool {
        self.tasks[index as usize].phase.has_ended() && self.kept_by(index).next().is_none()
    }
}
