//! How many tasks one event puts into the queue.

use alloc::collections::BTreeSet;

use alloc::vec;
use alloc::vec::Vec;

use eyas_types::{
    ExecutorId, FileMode, Input, InputFrom, JobId, ObjectSpec, Program, TaskId, TaskItem,
    TaskTemplate, Version,
};

use super::{World, config, job, submitted};
use crate::{Config, Effect, Event, JobSpec, Jobs, SchedulerOrder};

/// A task frees twenty others, each with one input: together they count as forty inputs.
#[test]
fn tasks_that_one_end_frees_are_queued_in_parts_and_each_once() {
    let mut world = World::new();
    world.tell(submitted(job(&[0; 21], 0, false)));
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

/// A job of tasks that all read the same number of files.
fn wide(inputs: u32, tasks: usize) -> JobSpec {
    let mut template = TaskTemplate::new(Program::Noop);
    template.inputs =
        (0..inputs).map(|object| Input { from: InputFrom::Object(object), name: None }).collect();
    let mut spec = JobSpec { templates: vec![template], ..JobSpec::default() };
    let version =
        |size_bytes: u32| Version::Modified { mtime_ns: 0, size_bytes: size_bytes.into() };
    let object = |number| ObjectSpec {
        source: "file:///x".into(),
        version: version(number),
        mode: FileMode::READABLE,
    };
    spec.push_objects((0..inputs).map(object).collect()).unwrap();
    spec.push(&vec![TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }; tasks])
        .unwrap();
    spec.validate(&|_, _| Ok(None)).unwrap();
    spec
}

#[test]
fn tasks_with_many_inputs_are_queued_as_others_leave_the_queue() {
    let mut jobs = Jobs::new(Config { waiting_inputs: 1000, ..Config::default() }, 1);
    let tell = |jobs: &mut Jobs, event| {
        let mut effects = Vec::new();
        jobs.handle(1, event, &mut effects);
        let queued = effects.into_iter().filter_map(|effect| match effect {
            Effect::Order(SchedulerOrder::Queue { task, .. }) => Some((task.job.0, task.index)),
            _ => None,
        });
        queued.collect::<Vec<_>>()
    };
    let queue_all = |jobs: &mut Jobs| {
        let mut queued = Vec::new();
        while jobs.has_more_to_queue() {
            queued.extend(tell(jobs, Event::QueueMore { tasks: 1_000 }));
        }
        queued
    };
    for (number, spec) in [(1, wide(100, 50)), (2, wide(100, 5)), (3, wide(1, 2000))] {
        tell(&mut jobs, submitted(spec));
        tell(&mut jobs, Event::Accepted { job: JobId(number) });
    }
    let queued = queue_all(&mut jobs);
    let of_job = |job: u32| queued.iter().filter(|(of, _)| *of == job).count();
    assert_eq!([of_job(1), of_job(2), of_job(3)], [10, 5, 2000], "no job waits for another");
    for index in 0..40 {
        let task = TaskId { job: JobId(1), index };
        tell(&mut jobs, Event::Assigned { task, executor: ExecutorId(0) });
        assert_eq!(queue_all(&mut jobs), [(1, index + 10)]);
    }
    // Those that are cancelled leave the queue, too.
    tell(&mut jobs, Event::Cancel { job: JobId(2), tasks: 0..5 });
    tell(&mut jobs, Event::Cancel { job: JobId(1), tasks: 40..50 });
    assert_eq!([1, 2].map(|job| jobs.get(JobId(job)).unwrap().tasks.waiting_inputs()), [0, 0]);
}
