//! Filling nodes that stage: while the inputs of a node's data-intensive tasks are fetched, tasks that only compute, or
//! read little, have their processors. Such a task overtakes those that could not run yet anyway; when the staged ones
//! are ready, the node starts them first.

use alloc::vec::Vec;

use crate::choosy::is_choosy;
use crate::event::Effect;
use crate::executors::{ExecutorKey, Executors};
use crate::queue::{ClassNeed, TaskKey};
use crate::recall::all_round;
use crate::scheduler::Scheduler;

/// Waiting tasks of a class that are looked at, from where the last search ended, for one that reads little.
const FILL_LOOKS: usize = 1024;
/// Executors that lend processors and are looked at after one event, from where the last looks ended.
const LENDING_LOOKS: usize = 64;

/// What is known of tasks that read little.
pub(crate) struct Light {
    /// Those that read less are light, for all executors that lend processors.
    from_bytes: u64,
    /// Those that were looked at and passed by read at least so much.
    looked_bytes: u64,
    /// The last of those that lend that was looked at.
    looked_at: ExecutorKey,
}

impl Default for Light {
    fn default() -> Self {
        Light { from_bytes: u64::MAX, looked_bytes: 0, looked_at: ExecutorKey::FIRST }
    }
}

impl Scheduler {
    /// An executor lends processors of tasks that it stages.
    pub(crate) fn staging(&mut self, by: ExecutorKey, lent_milli: u64, light_bytes: u64) {
        self.executors.lend(by, lent_milli);
        self.light.from_bytes = match self.executors.lending().is_empty() {
            false => self.light.from_bytes.min(light_bytes),
            true => u64::MAX,
        };
    }

    /// Gives light tasks to executors that lend processors.
    pub(crate) fn fill(&mut self, effects: &mut Vec<Effect>) {
        if self.queue.waiting() == 0 || self.executors.lending().is_empty() {
            return;
        }
        let Light { from_bytes, looked_bytes, .. } = self.light;
        if from_bytes > looked_bytes {
            self.queue.look_for_light_again();
        }
        self.light.looked_bytes = from_bytes;
        // Nearly always there is none, and very many may lend.
        if self.light_task(|_, _| true).is_none() {
            return;
        }
        let lending: Vec<_> = all_round(self.executors.lending(), self.light.looked_at).take(LENDING_LOOKS).collect();
        for by in lending {
            self.light.looked_at = by;
            while let Some(task) = self.light_task(|executors, need| executors[by].has_room_to_fill(need)) {
                self.assign(by, task, effects);
            }
        }
    }

    /// The first light task of such needs, as far as is looked.
    fn light_task(&mut self, may_take: impl Fn(&Executors, &ClassNeed) -> bool) -> Option<TaskKey> {
        let Scheduler { queue, catalog, executors, light, .. } = self;
        // Who may take choosy tasks is not known of a task that was looked at before.
        let mut roomy: Vec<_> = queue.waiting_classes().filter(|class| !is_choosy(queue, executors, *class)).collect();
        roomy.retain(|class| may_take(executors, queue.need(*class)));
        roomy.into_iter().find_map(|class| {
            queue.first_light(class, FILL_LOOKS, |task| {
                let reads: u64 = task.inputs.as_slice().iter().map(|input| catalog.size_bytes(*input)).sum();
                reads < light.from_bytes && !task.was_refused
            })
        })
    }
}
