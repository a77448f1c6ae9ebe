//! Pushes of a job's inputs begin and end alternately. The test world asserts it.

use core::ops::Range;

use super::*;

fn cancel(world: &mut World, tasks: Range<u32>) {
    world.tell(Event::Cancel { job: JobId(1), tasks });
}

#[test]
fn the_pushes_of_a_cancelled_job_are_ended_once() {
    let mut world = World::new();
    world.tell(submitted(job(&[0, 0, 0], 0, false)));
    assert!(world.pushing.contains(&JobId(1)));
    cancel(&mut world, 0..3);
    assert!(world.pushing.is_empty(), "its last tasks are cancelled");
    // Its results are written, and it is cancelled again.
    world.tell(Event::Flush);
    cancel(&mut world, 0..3);
    world.validate();
}

#[test]
fn the_pushes_of_a_job_with_running_tasks_are_ended_once() {
    let mut world = World::new();
    world.join();
    apply(&mut world, Step::Submit(vec![0], 0, false));
    (0..2).for_each(|_| cancel(&mut world, 0..1));
    assert!(world.pushing.is_empty() && !world.to_cancel.is_empty());
    world.end(ExecutorId(0), TaskId { job: JobId(1), index: 0 }, 9);
    world.validate();
    // A retry pushes anew.
    world.tell(Event::Retry { job: JobId(1), current: Vec::new() });
    assert!(world.pushing.contains(&JobId(1)));
    world.pass(0);
    world.end(ExecutorId(0), TaskId { job: JobId(1), index: 0 }, 9);
    world.validate();
}

#[test]
fn nothing_is_pushed_for_a_job_that_was_cancelled_before_it_began() {
    let mut alone = Jobs::new(config(), 1);
    let mut tell = |event| {
        let mut effects = Vec::new();
        alone.handle(1, event, &mut effects);
        let is_push = |effect: &Effect| {
            matches!(
                effect,
                Effect::Action(JobsAction::Broadcast { .. } | JobsAction::EndBroadcast { .. })
            )
        };
        effects.iter().filter(|effect| is_push(effect)).count()
    };
    tell(submitted(job(&[0], 0, false)));
    let job = JobId(1);
    let later = [Event::Cancel { job, tasks: 0..1 }, Event::Flush, Event::Accepted { job }];
    assert_eq!(later.map(tell), [0, 0, 0]);
}
