//! How many tasks one event puts into the queue.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;

use eyas_types::{JobId, TaskId};

use super::{World, config, job};
use crate::Event;

/// A task frees twenty others, each with one input: together they count as forty inputs.
#[test]
fn tasks_that_one_end_frees_are_queued_in_parts_and_each_once() {
    let mut world = World::new();
    world.tell(Event::Submitted { spec: Box::new(job(&[0; 21], 0, false)) });
    world.pass(0);
    world.join();
    let (executor, by) = world.executors.first_key_value().expect("it has joined");
    let (executor, first) = (*executor, TaskId { job: JobId(1), index: 0 });
    assert_eq!(by.tasks, BTreeSet::from([first]), "the others wait for it");
    world.end(executor, first, 9);
    let queued = |world: &World| world.queue.len() + world.executors[&executor].tasks.len();
    assert_eq!(queued(&world) as u64, config().inputs_at_once / 2);
    world.validate();
    // One that was not queued yet is cancelled.
    world.tell(Event::Cancel { job: JobId(1), tasks: 20..21 });
    world.pass(0);
    assert_eq!((queued(&world), world.jobs.has_more_to_queue()), (19, false));
    world.validate();
}
