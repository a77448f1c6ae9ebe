//! A job's moves, live and again from the journal.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::course::{JobState, Sample};
use eyas_types::outcome::{Delivered, FailureKind};
use eyas_types::{
    DeliverWhen, ExecutorId, FileMode, Input, InputFrom, JobId, ObjectSpec, Outcome, OutputSpec,
    Program, Status, TaskId, TaskItem, TaskTemplate, Template, Version,
};

use super::{FreedTasks, Job, JobSpec, Phase};

/// Task 2 reads the outputs of 0 and 1, task 3 that of 2; task 4 stands alone.
fn diamond() -> Job {
    diamond_of(|_| {})
}

/// The same, with its outputs changed.
fn diamond_of(change: impl FnOnce(&mut OutputSpec)) -> Job {
    let mut template = TaskTemplate::new(Program::Noop);
    template.outputs.push(OutputSpec {
        pattern: Template::literal("out"),
        destination: Some(Template::parse("/out-{#}")),
        replicas: 0,
        until_read: false,
        optional: false,
        when: DeliverWhen::Success,
    });
    change(&mut template.outputs[0]);
    let mut spec = JobSpec { templates: vec![template], ..JobSpec::default() };
    for needs in [&[][..], &[], &[0, 1], &[2], &[]] {
        let input =
            |task: &u32| Input { from: InputFrom::Output { task: *task, output: 0 }, name: None };
        spec.push(&[TaskItem {
            template: 0,
            values: Vec::new(),
            inputs: needs.iter().map(input).collect(),
        }])
        .unwrap();
    }
    spec.validate(&|_, _| Ok(None)).unwrap();
    Job::new(JobId(1), spec)
}

fn wrote(index: u32) -> Outcome {
    let version = Version::Modified { mtime_ns: 1, size_bytes: 100 + u64::from(index) };
    let object = ObjectSpec {
        source: format!("file:///out/{index}").into(),
        version,
        mode: FileMode::READABLE,
    };
    Outcome {
        outputs: vec![Delivered { output: 0, object, place: None }],
        ..Outcome::of(Status::Succeeded)
    }
}

fn run(job: &mut Job, index: u32, outcome: Outcome) -> FreedTasks {
    job.queued(0, index, &[]);
    job.assigned(0, index, ExecutorId(0));
    job.ended(0, index, 0, "n1".into(), outcome)
}

fn phases(job: &Job) -> Vec<Phase> {
    job.tasks.iter().map(|state| state.phase).collect()
}

#[test]
fn a_task_is_set_free_by_the_last_output_it_waits_for() {
    let mut job = diamond();
    assert_eq!((job.counts().blocked, job.counts().waiting), (2, 3));
    assert_eq!(run(&mut job, 0, wrote(0)), FreedTasks::default());
    assert_eq!(job.waits_for(2), [1]);
    assert_eq!(run(&mut job, 1, wrote(1)), FreedTasks { ready: vec![2], ..FreedTasks::default() });
    let item = job.spec.items.get(2);
    let sizes: Vec<_> = job.inputs(&item).map(|(_, object)| object.unwrap().size_bytes()).collect();
    assert_eq!(sizes, [100, 101], "it reads what was delivered");
    assert_eq!(job.input_ids(&item).len(), 2);
}

#[test]
fn readers_of_a_failed_task_fail_and_a_retry_blocks_them_again() {
    let mut job = diamond();
    run(&mut job, 1, wrote(1));
    let released = run(&mut job, 0, Outcome::of(Status::Exited(3)));
    assert_eq!(released.hopeless, [2]);
    let hopeless = |index| Outcome::failed(FailureKind::Dependency, format!("{index}"));
    assert_eq!(job.ended(0, 2, 0, String::new(), hopeless(2)).hopeless, [3]);
    job.ended(0, 3, 0, String::new(), hopeless(3));
    run(&mut job, 4, wrote(4));
    assert_eq!((job.state(), job.failures.len()), (JobState::Failed, 3));
    let again = job.failed_tasks();
    assert_eq!(again, [0, 2, 3]);
    assert_eq!(job.retry_these(&again, 0), [0], "the others wait for it");
    assert_eq!(job.state(), JobState::Running);
    assert_eq!(run(&mut job, 0, wrote(0)).ready, [2]);
    assert_eq!(run(&mut job, 2, wrote(2)).ready, [3]);
    run(&mut job, 3, wrote(3));
    assert_eq!(job.state(), JobState::Succeeded);
    assert_eq!(job.counts().succeeded, 5);
}

#[test]
fn a_retry_forgets_how_often_the_task_has_failed() {
    let mut job = diamond();
    job.tasks.get_mut(4).starved = 101;
    run(&mut job, 4, Outcome::of(Status::Exited(3)));
    job.retry_these(&[4], 0);
    assert_eq!(job.tasks[4].starved, 0);
}

#[test]
fn results_read_from_the_journal_give_the_same_job() {
    let mut live = diamond();
    for index in [1, 0, 4] {
        run(
            &mut live,
            index,
            if index == 0 { Outcome::of(Status::Signalled(9)) } else { wrote(index) },
        );
    }
    let mut again = diamond();
    for end in live.recorded.pending.take().iter().flatten() {
        again.book(end);
    }
    // What the failure made hopeless is told again, and ended by whoever books.
    assert_eq!(phases(&again), phases(&live));
    assert_eq!((again.counts(), again.failures.len()), (live.counts(), live.failures.len()));
    assert_eq!(again.course.reads(), live.course.reads());
}

#[test]
fn a_jobs_time_stands_still_between_its_end_and_a_retry() {
    let mut job = diamond();
    let second = 1_000_000;
    for index in 0..5 {
        job.queued(second, index, &[]);
        if job.tasks[index as usize].phase == Phase::Blocked {
            job.enter(index, Phase::Waiting);
        }
        job.assigned(2 * second, index, ExecutorId(0));
        job.ended(3 * second, index, 0, "n1".into(), Outcome::of(Status::Exited(1)));
    }
    assert_eq!((job.time_us(3 * second), job.time_us(60 * second)), (3 * second, 3 * second));
    let paused_us = job.paused_until(60 * second);
    assert_eq!(paused_us, 57 * second);
    let again = job.failed_tasks();
    job.retry_these(&again, paused_us);
    assert_eq!(job.time_us(61 * second), 4 * second);
}

#[test]
fn an_output_kept_until_read_is_wanted_until_all_have_read_it() {
    let kept = |index| {
        let object = ObjectSpec::kept(
            TaskId { job: JobId(1), index },
            "out",
            7,
            "content",
            FileMode::READABLE,
        );
        Outcome {
            outputs: vec![Delivered { output: 0, object, place: None }],
            ..Outcome::of(Status::Succeeded)
        }
    };
    // Task 2 reads the outputs of 0 and 1, task 3 that of 2; task 4 stands alone.
    let mut job = diamond_of(|output| {
        (output.destination, output.replicas, output.until_read) = (None, 1, true)
    });
    let wanted = |job: &Job| {
        let left = job.kept.keys().filter(|(index, object)| job.is_wanted(*index, *object));
        left.map(|(index, _)| index).collect::<Vec<_>>()
    };
    for (index, left) in [(4, &[][..]), (0, &[0]), (1, &[0, 1]), (2, &[2]), (3, &[])] {
        run(&mut job, index, kept(index));
        assert_eq!(wanted(&job), left, "after {index}");
    }
    // What is to be read again is wanted again, and what did not succeed has not read.
    job.recompute(&[2], 0);
    assert_eq!(wanted(&job), [0, 1]);
    run(&mut job, 2, Outcome::of(Status::Exited(1)));
    assert_eq!(wanted(&job), [0, 1]);
    assert_eq!(job.retry_these(&[2], 0), [2]);
    run(&mut job, 2, kept(2));
    assert_eq!(wanted(&job), []);
}

#[test]
fn the_replaced_input_of_an_assigned_task_is_reported() {
    for (is_assigned, second) in [(true, wrote(7)), (true, wrote(0)), (false, wrote(7))] {
        let mut job = diamond();
        let first = wrote(0);
        assert_eq!(run(&mut job, 0, first.clone()).replaced, []);
        run(&mut job, 1, wrote(1));
        if is_assigned {
            job.queued(0, 2, &[]);
            job.assigned(0, 2, ExecutorId(0));
        }
        job.recompute(&[0], 0);
        let replaced = run(&mut job, 0, second.clone()).replaced;
        let is_told = is_assigned && second != first;
        assert_eq!(
            replaced,
            if is_told { vec![(0, first.outputs[0].object.clone())] } else { vec![] }
        );
    }
}

#[test]
fn an_output_that_a_later_run_leaves_out_is_gone_for_tasks_that_have_not_run() {
    for is_assigned in [true, false] {
        let mut job = diamond();
        let first = wrote(0);
        run(&mut job, 0, first.clone());
        run(&mut job, 1, wrote(1));
        if is_assigned {
            job.queued(0, 2, &[]);
            job.assigned(0, 2, ExecutorId(0));
        }
        job.recompute(&[0], 0);
        let freed = run(&mut job, 0, Outcome::of(Status::Succeeded));
        let item = job.spec.items.get(2);
        let delivered: Vec<_> = job.inputs(&item).map(|(_, object)| object.is_some()).collect();
        assert_eq!(delivered, [false, true]);
        if is_assigned {
            assert_eq!(freed.replaced, [(0, first.outputs[0].object.clone())]);
            assert!(job.unassigned(2), "it was to read something else");
        } else {
            assert_eq!(freed, FreedTasks { hopeless: vec![2], ..FreedTasks::default() });
        }
    }
}

#[test]
fn a_job_without_tasks_has_ended() {
    let job = Job::new(JobId(1), JobSpec::default());
    assert_eq!(job.state(), JobState::Succeeded);
}

#[test]
fn a_task_whose_producer_left_its_output_out_does_not_run() {
    let mut job = diamond();
    run(&mut job, 0, wrote(0));
    let released = run(&mut job, 1, Outcome::of(Status::Succeeded));
    assert_eq!(released, FreedTasks { hopeless: vec![2], ..FreedTasks::default() });
    job.ended(0, 2, 0, String::new(), Outcome::failed(FailureKind::Dependency, "left out"));
    assert_eq!(job.failed_tasks(), Vec::<u32>::new(), "a retry would end the same way");
    job.ended(0, 3, 0, String::new(), Outcome::failed(FailureKind::Dependency, "left out"));
    assert_eq!(job.failed_tasks(), Vec::<u32>::new(), "nor can a task run that waits for it");
    run(&mut job, 4, Outcome::of(Status::Exited(1)));
    assert_eq!(job.failed_tasks(), [4]);
}

#[test]
fn a_cancelled_task_is_no_throughput() {
    let mut job = diamond();
    run(&mut job, 4, wrote(4));
    job.ended(0, 0, 0, String::new(), Outcome::of(Status::Cancelled));
    job.course.tick(true, Sample { at_us: 1, ..Sample::default() });
    assert_eq!((job.samples()[0].ended, job.counts().cancelled), (1, 1));
}

#[test]
#[should_panic(expected = "task 1.0 cannot go from Waiting to Waiting")]
fn a_move_that_is_not_allowed_is_refused() {
    diamond().enter(0, Phase::Waiting);
}
