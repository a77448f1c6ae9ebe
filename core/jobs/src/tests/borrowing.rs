//! Jobs that read what other jobs keep.

use super::*;

/// A job whose one task keeps its output, and a job with a task that reads it and waits, as no
/// executor has room.
fn lender_and_borrower() -> (World, ObjectId) {
    let mut world = World::new();
    world.join();
    apply(&mut world, Step::Submit(vec![0], 0, false));
    world.end(ExecutorId(0), TaskId { job: JobId(1), index: 0 }, 9);
    world.executors.get_mut(&ExecutorId(0)).expect("it has joined").is_idle = true;
    apply(&mut world, Step::Borrow(vec![0], 0));
    let object = *world.kept.keys().next().expect("one output is kept");
    (world, object)
}

#[test]
fn a_borrowed_object_is_held_until_the_borrowing_job_ends() {
    for end in [Step::Release(0), Step::Forget(0)] {
        let (mut world, object) = lender_and_borrower();
        apply(&mut world, end);
        world.validate();
        assert!(world.kept.contains_key(&object), "it is held for job 2");
        world.restart();
        world.pass(0);
        world.validate();
        assert!(world.kept.contains_key(&object), "a dispatcher that starts holds it again");
        let (executor, task) = (ExecutorId(1), TaskId { job: JobId(2), index: 0 });
        assert!(
            world.executors[&executor].tasks.contains(&task),
            "it runs, as an executor came back with its input"
        );
        world.end(executor, task, 9);
        world.validate();
        assert!(!world.kept.contains_key(&object), "nothing reads it");
    }
}

#[test]
fn a_lost_borrowed_object_is_made_again_while_its_job_keeps_it() {
    let (mut world, object) = lender_and_borrower();
    world.lose(ExecutorId(0), true);
    world.join();
    world.pass(0);
    world.validate();
    let (executor, made) = (ExecutorId(1), TaskId { job: JobId(1), index: 0 });
    assert!(world.executors[&executor].tasks.contains(&made), "it is made again");
    assert_eq!(world.jobs.table.phase(TaskId { job: JobId(2), index: 0 }), Some(Phase::Blocked));
    world.end(executor, made, 9);
    world.validate();
    assert!(
        world.executors[&executor].tasks.contains(&TaskId { job: JobId(2), index: 0 }),
        "its reader runs"
    );
    assert!(world.kept[&object]);
}

#[test]
fn a_task_fails_when_what_it_reads_of_another_job_is_lost_for_good() {
    for (forgotten, content) in [(true, 9), (false, 4)] {
        let (mut world, _) = lender_and_borrower();
        if forgotten {
            apply(&mut world, Step::Forget(0));
        }
        world.lose(ExecutorId(0), true);
        world.join();
        world.pass(0);
        if !forgotten {
            // It is made again, with other content.
            world.end(ExecutorId(1), TaskId { job: JobId(1), index: 0 }, content);
            world.pass(0);
        }
        world.validate();
        let job = world.jobs.get(JobId(2)).expect("it is remembered");
        assert_eq!(job.tasks[0].phase, Phase::Failed);
        let (_, why) = &job.failures[0];
        assert!(why.contains("every copy of `eyas://1/0/out`"), "{why}");
    }
}
