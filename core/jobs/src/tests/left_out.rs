//! Tasks that run again and leave out an optional output that they had written before.

use super::*;
use crate::Job;

const FIRST: TaskId = TaskId { job: JobId(1), index: 0 };
const READER: TaskId = TaskId { job: JobId(1), index: 1 };

/// A task whose output is lost runs again while one that reads the output is assigned, and leaves
/// it out. Also the object that it wrote first.
fn left_out_while_assigned() -> (World, ObjectId) {
    let mut world = World::new();
    world.join();
    apply(&mut world, Step::Submit(vec![0, 0], 0, false));
    world.end(ExecutorId(0), FIRST, 9);
    assert!(world.executors[&ExecutorId(0)].tasks.contains(&READER), "it runs");
    let object = *world.kept.keys().next().expect("one output is kept");
    apply(&mut world, Step::Evict(0, 0));
    apply(&mut world, Step::Pass(RETURN_GRACE_US));
    assert!(world.executors[&ExecutorId(0)].tasks.contains(&FIRST), "its output is made again");
    world.end(ExecutorId(0), FIRST, LEAVES_OUT);
    world.validate();
    (world, object)
}

fn why_it_failed(world: &World) -> &str {
    let job = world.jobs.get(JobId(1)).expect("it is remembered");
    assert_eq!(job.tasks[1].phase, Phase::Failed);
    &job.failures[0].1
}

#[test]
fn a_left_out_output_is_no_longer_held() {
    let (world, object) = left_out_while_assigned();
    assert!(!world.kept.contains_key(&object));
    assert_eq!(world.jobs.get(JobId(1)).map(Job::kept_count), Some(0));
}

#[test]
fn a_task_that_has_started_goes_on_with_what_is_left_out_now() {
    let (mut world, _) = left_out_while_assigned();
    world.end(ExecutorId(0), READER, 9);
    world.validate();
    assert_eq!(world.jobs.table.phase(READER), Some(Phase::Succeeded));
}

#[test]
fn a_task_that_comes_back_fails_if_what_it_reads_is_left_out_now() {
    for how in [0, 1, 2, 3] {
        let (mut world, _) = left_out_while_assigned();
        if how == 0 {
            world.lose(ExecutorId(0), false);
            world.join();
        } else {
            world.end(ExecutorId(0), READER, how);
        }
        world.pass(0);
        world.validate();
        let why = why_it_failed(&world);
        assert!(why.contains("task 1.0, which did not write it again"), "{how}: {why}");
    }
}

#[test]
fn a_task_that_was_read_from_a_snapshot_fails_if_what_it_reads_is_left_out_now() {
    let (mut world, _) = left_out_while_assigned();
    let snapshot = world.jobs.get(JobId(1)).expect("it runs").snapshot();
    world.snapshots.insert(JobId(1), Arc::new(snapshot));
    world.restart();
    world.pass(0);
    world.validate();
    let why = why_it_failed(&world);
    assert!(why.contains("task 1.0, which did not write it again"), "{why}");
}
