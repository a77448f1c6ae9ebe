//! Tasks whose nodes are ended while they run.

use super::*;

#[tokio::test]
async fn a_task_that_outlives_each_of_its_nodes_fails_and_says_so_before() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit(1);
    for times in 1..=jobs::MAX_INTERRUPTIONS {
        let executor = dispatcher.join(1);
        assert_eq!(dispatcher.phases(job), [Phase::Assigned]);
        let interrupted = Outcome { ran_us: 55_000_000, ..Outcome::of(Status::Cancelled) };
        dispatcher.end(executor, task(job, 0), interrupted);
        if times == 1 {
            let explained = dispatcher.explain(task(job, 0));
            let because = explained.because.join(" ");
            assert!(
                because.contains("Of 8 starts after which it fails, 1 were in vain"),
                "{because}"
            );
        }
        dispatcher
            .core
            .handle(CoreMessage::Messages { executor, messages: vec![FromExecutor::Leaving] });
    }
    assert_eq!(dispatcher.phases(job), [Phase::Failed]);
    let status = dispatcher.log(task(job, 0)).outcome.status.to_string();
    assert!(status.contains("started 8 times") && status.contains("after 55.00 s"), "{status}");
    assert!(status.contains("--time-limit"), "{status}");
}

#[tokio::test]
async fn starts_in_vain_are_counted_across_dispatchers() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit(1);
    for times in 1..=jobs::MAX_INTERRUPTIONS {
        assert_eq!(dispatcher.phases(job), [Phase::Waiting], "before start {times}");
        let executor = dispatcher.join(1);
        dispatcher.end(
            executor,
            task(job, 0),
            Outcome { ran_us: 1_000_000, ..Outcome::of(Status::Cancelled) },
        );
        dispatcher
            .core
            .handle(CoreMessage::Messages { executor, messages: vec![FromExecutor::Leaving] });
        dispatcher.settle();
        dispatcher.restart();
    }
    assert_eq!(dispatcher.phases(job), [Phase::Failed]);
    // Executors that were lost with a task count, too.
    let job = dispatcher.submit(1);
    for _ in 0..jobs::MAX_LOSSES {
        assert_eq!(dispatcher.phases(job), [Phase::Waiting]);
        let executor = dispatcher.join(1);
        dispatcher.core.handle(CoreMessage::Gone { executor });
        dispatcher.settle();
        dispatcher.restart();
    }
    assert_eq!(dispatcher.phases(job), [Phase::Failed]);
}
