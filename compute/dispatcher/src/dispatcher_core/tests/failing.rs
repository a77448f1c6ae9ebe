//! Tasks with outputs that are delivered when they fail.

use super::*;

impl Dispatcher {
    /// Submits a task that has an output for the case that it fails, and this number of retries.
    fn submit_with_log(&mut self, retries: u32) -> JobId {
        let mut template = TaskTemplate { retries, ..TaskTemplate::new(Program::Noop) };
        template.outputs.push(OutputSpec {
            pattern: Template::literal("log"),
            destination: Some(Template::literal("/logs/log")),
            replicas: 0,
            until_read: false,
            optional: false,
            when: DeliverWhen::Failure,
        });
        let mut spec = JobSpec { templates: vec![template], ..JobSpec::default() };
        spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }]).unwrap();
        self.submit_spec(spec)
    }

    /// What an executor is answered that asks whether a try is the last one.
    fn is_last(&mut self, executor: ExecutorId, task: TaskId) -> Vec<ToExecutor> {
        let messages = vec![FromExecutor::Failing { task, attempt: 0, status: Status::TimedOut }];
        self.sent();
        self.core.handle(CoreMessage::Messages { executor, messages });
        self.sent()
    }
}

#[tokio::test]
async fn an_executor_is_told_whether_a_try_that_has_failed_is_the_last_one() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let task = task(dispatcher.submit_with_log(1), 0);
    for is_last in [false, true] {
        assert_eq!(dispatcher.phases(task.job), [Phase::Assigned]);
        assert_eq!(dispatcher.is_last(executor, task), [ToExecutor::LastTry { task, is_last }]);
        let version = Version::Modified { mtime_ns: 1, size_bytes: 1 };
        let object =
            ObjectSpec { source: "file:///logs/log".into(), version, mode: FileMode::READABLE };
        let mut outcome = Outcome { ran_us: 2_000_000, ..Outcome::of(Status::TimedOut) };
        if is_last {
            outcome.outputs.push(Delivered { output: 0, object, place: None });
        }
        dispatcher.end(executor, task, outcome);
    }
    assert_eq!(dispatcher.phases(task.job), [Phase::Failed]);
    // The executor no longer has the task.
    let answer = ToExecutor::LastTry { task, is_last: false };
    assert_eq!(dispatcher.is_last(executor, task), [answer]);
    let because = dispatcher.explain(task).because.join(" ");
    assert!(because.contains("after a failure are at `/logs/log`."), "{because}");
}

#[tokio::test]
async fn an_executor_of_an_earlier_version_is_given_no_such_task() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.minor = eyas_wire::MINOR_OF_FAILURES - 1;
    dispatcher.join(1);
    let other = dispatcher.submit(1);
    assert_eq!(dispatcher.phases(other), [Phase::Assigned]);
    let job = dispatcher.submit_with_log(0);
    let has_log = |message: &ToExecutor| match message {
        ToExecutor::Template { spec, .. } => spec.delivers_after_failure(),
        _ => false,
    };
    assert!(!dispatcher.sent().iter().any(has_log));
    assert_eq!(dispatcher.phases(job), [Phase::Failed], "there is no other executor");
    let because = dispatcher.explain(TaskId { job, index: 0 }).because.join(" ");
    assert!(because.contains("start it with the version of the dispatcher"), "{because}");
    dispatcher.minor = eyas_wire::MINOR_OF_FAILURES;
    dispatcher.join(1);
    let job = dispatcher.submit_with_log(0);
    assert_eq!(dispatcher.phases(job), [Phase::Assigned]);
    assert!(dispatcher.sent().iter().any(has_log));
}
