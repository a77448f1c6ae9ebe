//! How many tasks one event puts into the queue.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::outcome::FailureKind;
use eyas_types::{
    ExecutorId, FileMode, Input, InputFrom, JobId, ObjectSpec, Outcome, Program, Status, TaskId,
    TaskItem, TaskTemplate, Version,
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

/// A decider of jobs without a world around it.
struct LoneJobs {
    jobs: Jobs,
    now_us: u64,
}

impl LoneJobs {
    /// Tasks of a job that wait may have 1,000 inputs.
    fn new() -> Self {
        let jobs = Jobs::new(Config { waiting_inputs: 1000, ..Config::default() }, 1);
        LoneJobs { jobs, now_us: 1 }
    }

    /// Tells an event, and returns the tasks that are queued.
    fn tell(&mut self, event: Event) -> Vec<(u32, u32)> {
        let mut effects = Vec::new();
        self.jobs.handle(self.now_us, event, &mut effects);
        let queued = effects.into_iter().filter_map(|effect| match effect {
            Effect::Order(SchedulerOrder::Queue { task, .. }) => Some((task.job.0, task.index)),
            _ => None,
        });
        queued.collect()
    }

    fn queue_all(&mut self) -> Vec<(u32, u32)> {
        let mut queued = Vec::new();
        while self.jobs.has_more_to_queue() {
            queued.extend(self.tell(Event::QueueMore { tasks: 1_000 }));
        }
        queued
    }

    fn submit(&mut self, spec: JobSpec) {
        let job = self.jobs.next_job();
        self.tell(submitted(spec));
        self.tell(Event::Accepted { job });
    }

    fn assign(&mut self, index: u32) {
        let task = TaskId { job: JobId(1), index };
        self.tell(Event::Assigned { task, executor: ExecutorId(0) });
    }

    fn end(&mut self, index: u32, outcome: Outcome) {
        let (executor, task) = (ExecutorId(0), TaskId { job: JobId(1), index });
        let outcome = Box::new(outcome);
        self.tell(Event::TaskEnded { executor, task, attempt: 0, outcome });
    }

    fn waiting_inputs(&self, job: u32) -> u64 {
        self.jobs.get(JobId(job)).expect("it was submitted").tasks.waiting_inputs()
    }
}

#[test]
fn tasks_with_many_inputs_are_queued_as_others_leave_the_queue() {
    let mut alone = LoneJobs::new();
    [wide(100, 50), wide(100, 5), wide(1, 2000)].into_iter().for_each(|spec| alone.submit(spec));
    let queued = alone.queue_all();
    let of_job = |job: u32| queued.iter().filter(|(of, _)| *of == job).count();
    assert_eq!([of_job(1), of_job(2), of_job(3)], [10, 5, 2000], "no job waits for another");
    for index in 0..40 {
        alone.assign(index);
        assert_eq!(alone.queue_all(), [(1, index + 10)]);
    }
    // Those that are cancelled leave the queue, too.
    alone.tell(Event::Cancel { job: JobId(2), tasks: 0..5 });
    alone.tell(Event::Cancel { job: JobId(1), tasks: 40..50 });
    assert_eq!([1, 2].map(|job| alone.waiting_inputs(job)), [0, 0]);
}

#[test]
fn tasks_with_many_inputs_that_come_back_to_the_queue_count_again() {
    let mut alone = LoneJobs::new();
    alone.submit(wide(100, 50));
    alone.queue_all();
    (0..10).for_each(|index| alone.assign(index));
    assert_eq!(alone.queue_all().len(), 10);
    let tasks = (0..9).map(|index| TaskId { job: JobId(1), index }).collect();
    let executor = ExecutorId(0);
    let (lost_with, suspended) = (None, BTreeSet::new());
    alone.tell(Event::ExecutorGone { executor, tasks, lost_with, suspended });
    assert_eq!(alone.waiting_inputs(1), 1900, "nine are back, and ten wait");
    for index in 0..9 {
        alone.assign(index);
        assert_eq!(alone.queue_all(), [], "as many wait as may");
    }
    alone.assign(10);
    assert_eq!(alone.queue_all(), [(1, 20)]);
}

#[test]
fn tasks_that_executors_refuse_count_while_they_are_in_the_queue() {
    let mut alone = LoneJobs::new();
    alone.submit(wide(100, 50));
    alone.queue_all();
    alone.assign(0);
    assert_eq!(alone.queue_all(), [(1, 10)]);
    let task = TaskId { job: JobId(1), index: 0 };
    alone.end(0, Outcome::failed(FailureKind::NodeFull, "its disk is full"));
    assert_eq!(alone.waiting_inputs(1), 1100, "another executor may take it");
    alone.tell(Event::Unplaceable { task });
    assert_eq!(alone.waiting_inputs(1), 1000, "all have refused it: it waits for a while");
    alone.now_us += 100_000;
    assert_eq!(alone.tell(Event::Flush), [(1, 0)]);
    assert_eq!(alone.waiting_inputs(1), 1100, "it is offered again");
    alone.tell(Event::Cancel { job: JobId(1), tasks: 0..50 });
    assert_eq!(alone.waiting_inputs(1), 0);
}

#[test]
fn tasks_with_many_inputs_that_are_retried_are_queued_as_others_leave_the_queue() {
    let mut alone = LoneJobs::new();
    alone.submit(wide(100, 50));
    for index in 0..50 {
        alone.queue_all();
        alone.assign(index);
        alone.end(index, Outcome::of(Status::Exited(1)));
    }
    alone.submit(wide(1, 5));
    alone.queue_all();
    alone.tell(Event::Cancel { job: JobId(2), tasks: 0..5 });
    let retry = |job| Event::Retry { job: JobId(job), current: Vec::new() };
    let mut queued = [1, 2].map(|job| alone.tell(retry(job))).concat();
    queued.extend(alone.queue_all());
    let of_job = |job: u32| queued.iter().filter(|(of, _)| *of == job).count();
    assert_eq!([of_job(1), of_job(2)], [10, 5], "no job waits for another");
    alone.assign(0);
    assert_eq!(alone.queue_all(), [(1, 10)]);
}
