//! Whether a try that has not succeeded is the last one of its task, so that it delivers the
//! outputs that there are for that case. The answer agrees with what then happens.

use eyas_types::outcome::Failure;

use super::*;

const EXECUTOR: ExecutorId = ExecutorId(0);
const TASK: TaskId = TaskId { job: JobId(1), index: 0 };

/// A decider whose executor has a task with this many retries.
fn running(retries: u32) -> Jobs {
    let mut jobs = Jobs::new(Config::default(), 1);
    tell(&mut jobs, Event::ExecutorJoined { executor: EXECUTOR, name: "n0".into() });
    tell(&mut jobs, submitted(job(&[0], retries, false)));
    tell(&mut jobs, Event::Accepted { job: TASK.job });
    tell(&mut jobs, Event::QueueMore { tasks: 1 });
    tell(&mut jobs, Event::Assigned { task: TASK, executor: EXECUTOR });
    jobs
}

fn tell(jobs: &mut Jobs, event: Event) {
    jobs.handle(1, event, &mut Vec::new());
}

fn phase(jobs: &Jobs) -> Phase {
    jobs.get(TASK.job).expect("it is remembered").tasks.phase(TASK.index)
}

/// A try of the task ends so. Whether it was said to be the last one; whether it was.
fn end(jobs: &mut Jobs, status: &Status) -> (bool, bool) {
    let said = jobs.is_last_try(EXECUTOR, TASK, status);
    let outcome = Box::new(Outcome { ran_us: 5, ..Outcome::of(status.clone()) });
    tell(jobs, Event::TaskEnded { executor: EXECUTOR, task: TASK, attempt: 0, outcome });
    (said, phase(jobs).has_ended())
}

#[test]
fn a_try_is_the_last_one_if_the_task_is_not_retried_given_to_others_or_interrupted() {
    let failed = |kind| Status::Failed(Failure { kind, reason: "why".into() });
    // The status; whether it is the last one with a retry left; and with none left.
    let table = [
        (Status::Exited(3), false, true),
        (Status::Signalled(11), false, true),
        (Status::TimedOut, false, true),
        (failed(FailureKind::Output), false, true),
        (failed(FailureKind::Input), false, true),
        (failed(FailureKind::Memory), true, true),
        (failed(FailureKind::Claimed), true, true),
        (failed(FailureKind::Start), true, true),
        (failed(FailureKind::Node), false, false),
        (failed(FailureKind::NodeFull), false, false),
        (Status::Cancelled, false, false),
    ];
    for (status, with_retry, without) in table {
        for (retries, is_last) in [(1, with_retry), (0, without)] {
            let ended = end(&mut running(retries), &status);
            assert_eq!(ended, (is_last, is_last), "{status:?} with {retries} retries");
        }
        let mut cancelling = running(1);
        tell(&mut cancelling, Event::Cancel { job: TASK.job, tasks: 0..1 });
        assert_eq!(end(&mut cancelling, &status), (true, true), "{status:?} of a cancelled task");
    }
}

#[test]
fn a_try_that_lacked_an_input_of_the_cluster_has_nothing_to_deliver() {
    let why = Failure { kind: FailureKind::Lost, reason: "why".into() };
    assert!(!running(0).is_last_try(EXECUTOR, TASK, &Status::Failed(why)));
}

#[test]
fn the_last_of_several_tries_is_told_and_no_other_executor_is() {
    let mut jobs = running(2);
    for is_last in [false, false, true] {
        assert!(!jobs.is_last_try(ExecutorId(1), TASK, &Status::Exited(1)));
        assert_eq!(end(&mut jobs, &Status::Exited(1)), (is_last, is_last));
        assert!(!jobs.is_last_try(EXECUTOR, TASK, &Status::Exited(1)), "it is not there now");
        if !is_last {
            tell(&mut jobs, Event::Assigned { task: TASK, executor: EXECUTOR });
        }
    }
}
