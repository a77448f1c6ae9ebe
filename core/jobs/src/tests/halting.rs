//! Jobs that stop because all their tasks fail in the same way.

use super::*;
use crate::{EQUAL_FAILURES, Job, halted_by};

const TASKS: u32 = 20;
const LIMIT: u64 = EQUAL_FAILURES as u64;

/// A job that is to stop, on one executor; if `is_chained`, every second task reads what the one
/// before it has written.
fn begun(halts: bool, is_chained: bool) -> World {
    let mut world = World::new();
    world.join();
    let mut template = TaskTemplate::new(Program::Noop);
    template.outputs.push(OutputSpec {
        pattern: Template::literal("out"),
        destination: Some(Template::parse("/out-{#}")),
        replicas: 0,
        until_read: false,
        optional: true,
        when: DeliverWhen::Success,
    });
    let mut spec = JobSpec { templates: vec![template], halts, ..JobSpec::default() };
    for index in 0..TASKS {
        let from = InputFrom::Output { task: index.saturating_sub(1), output: 0 };
        let is_reader = is_chained && index % 2 == 1;
        let inputs = is_reader.then_some(Input { from, name: None }).into_iter().collect();
        spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs }]).unwrap();
    }
    spec.validate(&|_, _| Ok(None)).unwrap();
    world.tell(submitted(spec));
    world.pass(0);
    world
}

/// Ends this number of tasks, one after the other, in this way.
fn end_next(world: &mut World, count: u64, status: Status) {
    for _ in 0..count {
        let by = world.executors.iter().find(|(_, by)| !by.tasks.is_empty());
        let Some((&executor, by)) = by else { return };
        let task = *by.tasks.first().expect("it has tasks");
        let outcome = Box::new(Outcome::of(status.clone()));
        world.tell(Event::TaskEnded { executor, task, attempt: 0, outcome });
        world.pass(0);
        world.validate();
    }
}

/// Failed and cancelled tasks of the job, and why it has stopped.
fn state(world: &World) -> (u64, u64, Option<&str>) {
    let job = world.jobs.get(JobId(1)).expect("it is remembered");
    (job.counts().failed, job.counts().cancelled, halted_by(job))
}

#[test]
fn a_job_whose_first_tasks_fail_in_the_same_way_stops() {
    let mut world = begun(true, false);
    end_next(&mut world, LIMIT - 1, Status::Exited(2));
    assert_eq!(state(&world), (LIMIT - 1, 0, None));
    end_next(&mut world, 1, Status::Exited(2));
    let running = SLOTS as u64 - 1;
    let left = u64::from(TASKS) - LIMIT;
    assert_eq!(state(&world), (LIMIT, left - running, Some("exit code 2")));
    end_next(&mut world, running, Status::Cancelled);
    assert_eq!(state(&world), (LIMIT, left, Some("exit code 2")));
    assert!(world.jobs.get(JobId(1)).is_some_and(Job::has_ended));
}

#[test]
fn a_job_goes_on_if_its_tasks_end_otherwise_or_the_rule_is_off() {
    for (halts, first) in
        [(true, Status::Succeeded), (true, Status::Exited(3)), (false, Status::Exited(2))]
    {
        let mut world = begun(halts, false);
        end_next(&mut world, 1, first);
        end_next(&mut world, u64::from(TASKS), Status::Exited(2));
        let (_, cancelled, halted_by) = state(&world);
        assert_eq!((cancelled, halted_by), (0, None), "{halts}");
    }
}

#[test]
fn tasks_that_lack_what_failed_do_not_count() {
    let mut world = begun(true, true);
    end_next(&mut world, LIMIT - 1, Status::Exited(2));
    assert_eq!(state(&world), (2 * (LIMIT - 1), 0, None));
    end_next(&mut world, 1, Status::Exited(2));
    assert_eq!(state(&world).2, Some("exit code 2"));
}

#[test]
fn a_retried_job_counts_anew() {
    let mut world = begun(true, false);
    end_next(&mut world, LIMIT, Status::Exited(2));
    end_next(&mut world, SLOTS as u64, Status::Cancelled);
    world.tell(Event::Retry { job: JobId(1), current: Vec::new() });
    world.pass(0);
    assert_eq!(state(&world), (0, 0, None));
    end_next(&mut world, LIMIT, Status::Exited(3));
    assert_eq!(state(&world).2, Some("exit code 3"));
}

#[test]
fn a_job_that_was_about_to_stop_when_the_dispatcher_died_stops() {
    let mut world = begun(true, false);
    end_next(&mut world, LIMIT - 1, Status::Exited(2));
    // The end of one more task is in the journal, and nothing after it.
    let entries = &mut world.log.get_mut(&JobId(1)).expect("it was written").1;
    let mut last = entries.iter().flat_map(Entry::ends).last().expect("tasks have ended").clone();
    last.result.index = TASKS - 1;
    entries.push(Entry::Results { ends: vec![last], samples: Vec::new() });
    world.restart();
    world.pass(0);
    world.validate();
    assert_eq!(state(&world), (LIMIT, u64::from(TASKS) - LIMIT, Some("exit code 2")));
}
