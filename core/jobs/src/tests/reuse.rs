//! Answers about results of earlier tasks that come late.

use super::*;

const EXECUTOR: ExecutorId = ExecutorId(0);
const TASK: TaskId = TaskId { job: JobId(2), index: 0 };

/// A reaction of the decider of jobs that these tests look at.
#[derive(Debug, PartialEq)]
enum Reaction {
    Queue,
    Withdraw,
    Read,
    Check,
}

/// A decider of jobs. Job 1 has a task that has written to persistent storage; job 2 has a task
/// that does the same.
struct ReuseScenario {
    jobs: Jobs,
}

impl ReuseScenario {
    fn new() -> Self {
        let mut reusing = ReuseScenario { jobs: Jobs::new(Config::default(), 1) };
        reusing.tell(Event::ExecutorJoined { executor: EXECUTOR, name: "n0".into() });
        assert_eq!(reusing.submit(), [Reaction::Queue]);
        let task = TaskId { job: JobId(1), index: 0 };
        reusing.tell(Event::Assigned { task, executor: EXECUTOR });
        let outcome = Box::new(stored());
        reusing.tell(Event::TaskEnded { executor: EXECUTOR, task, attempt: 0, outcome });
        assert_eq!(reusing.submit(), [Reaction::Read]);
        reusing
    }

    fn tell(&mut self, event: Event) -> Vec<Reaction> {
        let mut effects = Vec::new();
        self.jobs.handle(1, event, &mut effects);
        let reactions = effects.into_iter().filter_map(|effect| match effect {
            Effect::Order(SchedulerOrder::Queue { .. }) => Some(Reaction::Queue),
            Effect::Order(SchedulerOrder::Withdraw { .. }) => Some(Reaction::Withdraw),
            Effect::Action(JobsAction::ReadResult { .. }) => Some(Reaction::Read),
            Effect::Action(JobsAction::Check { .. }) => Some(Reaction::Check),
            _ => None,
        });
        reactions.collect()
    }

    fn submit(&mut self) -> Vec<Reaction> {
        let job = self.jobs.next_job();
        self.tell(submitted(reusing(&[0], true)));
        self.tell(Event::Accepted { job });
        self.tell(Event::QueueMore { tasks: 10 })
    }

    /// The result that was read.
    fn read(&mut self, outcome: Option<Outcome>) -> Vec<Reaction> {
        let earlier = TaskId { job: JobId(1), index: 0 };
        let outcome = outcome.map(Box::new);
        self.tell(Event::EarlierResult { task: TASK, earlier, outcome })
    }

    fn checked(&mut self, is_unchanged: bool) -> Vec<Reaction> {
        self.tell(Event::Checked { executor: EXECUTOR, task: TASK, is_unchanged })
    }

    fn cancel(&mut self) {
        assert_eq!(self.tell(Event::Cancel { job: TASK.job, tasks: 0..1 }), [Reaction::Withdraw]);
        self.tell(Event::Flush);
        assert_eq!(self.phase(), Some(Phase::Cancelled));
    }

    /// Runs the cancelled task again, whose earlier result is read again.
    fn retry(&mut self) {
        let reactions = self.tell(Event::Retry { job: TASK.job, current: Vec::new() });
        assert_eq!(reactions, [Reaction::Read]);
    }

    fn phase(&self) -> Option<Phase> {
        self.jobs.table.phase(TASK)
    }

    /// Results of job 2 that were ever given to the journal.
    fn results(&mut self) -> u64 {
        self.tell(Event::Flush);
        self.jobs.get(TASK.job).expect("it is remembered").recorded.results
    }
}

fn stored() -> Outcome {
    let version = Version::Modified { mtime_ns: 1, size_bytes: 7 };
    let object = ObjectSpec { source: "file:///out-1".into(), version, mode: FileMode::READABLE };
    let delivered = Delivered { output: 0, object, place: None };
    Outcome { outputs: vec![delivered], ..Outcome::of(Status::Succeeded) }
}

#[test]
fn a_task_ends_once_with_the_result_of_an_earlier_one() {
    let mut reusing = ReuseScenario::new();
    assert_eq!(reusing.read(Some(stored())), [Reaction::Check]);
    assert_eq!(reusing.checked(true), []);
    assert_eq!((reusing.phase(), reusing.results()), (Some(Phase::Succeeded), 1));
    assert_eq!((reusing.checked(true), reusing.read(None)), (vec![], vec![]));
    assert_eq!(reusing.results(), 1);
}

#[test]
fn a_task_that_was_cancelled_and_retried_is_queued_once_though_two_results_are_read_for_it() {
    let mut reusing = ReuseScenario::new();
    reusing.cancel();
    reusing.retry();
    assert_eq!(reusing.read(None), [Reaction::Queue]);
    assert_eq!(reusing.read(None), []);
    assert_eq!(reusing.read(Some(stored())), []);
    assert_eq!((reusing.phase(), reusing.results()), (Some(Phase::Waiting), 1));
}

#[test]
fn an_answer_about_the_try_before_does_not_end_a_task_that_is_in_the_queue() {
    for is_unchanged in [true, false] {
        let mut reusing = ReuseScenario::new();
        assert_eq!(reusing.read(Some(stored())), [Reaction::Check]);
        reusing.cancel();
        reusing.retry();
        assert_eq!(reusing.read(None), [Reaction::Queue]);
        assert_eq!(reusing.checked(is_unchanged), []);
        assert_eq!((reusing.phase(), reusing.results()), (Some(Phase::Waiting), 1));
    }
}

#[test]
fn a_task_that_is_retried_is_looked_for_when_the_answer_about_the_try_before_has_come() {
    let mut reusing = ReuseScenario::new();
    assert_eq!(reusing.read(Some(stored())), [Reaction::Check]);
    reusing.cancel();
    reusing.retry();
    assert_eq!(reusing.read(Some(stored())), []);
    assert_eq!(reusing.checked(true), [Reaction::Check]);
    assert_eq!((reusing.phase(), reusing.results()), (Some(Phase::Waiting), 1));
    assert_eq!(reusing.checked(false), [Reaction::Queue]);
    assert_eq!((reusing.phase(), reusing.results()), (Some(Phase::Waiting), 1));
}

#[test]
fn answers_about_a_task_of_a_job_that_was_forgotten_are_ignored() {
    for is_checked in [true, false] {
        let mut reusing = ReuseScenario::new();
        if is_checked {
            assert_eq!(reusing.read(Some(stored())), [Reaction::Check]);
        }
        reusing.cancel();
        reusing.tell(Event::Forget { job: TASK.job });
        assert_eq!(reusing.phase(), None);
        let told = (reusing.read(Some(stored())), reusing.checked(true), reusing.checked(false));
        assert_eq!(told, (vec![], vec![], vec![]));
    }
}

#[test]
fn a_task_does_not_fail_because_an_earlier_one_has_failed_meanwhile() {
    let mut reusing = ReuseScenario::new();
    assert_eq!(reusing.read(Some(Outcome::of(Status::Exited(1)))), [Reaction::Queue]);
    assert_eq!(reusing.phase(), Some(Phase::Waiting));
}
