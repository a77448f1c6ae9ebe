//! The service, called in this process.

use eyas_types::Name;

use super::*;
use crate::service::{JobDelivery, JobWatch, JobWatchEvent, WatchedResults};

/// The messages that executors were sent.
fn sent(sent: &mut OutboxReader<ToExecutor>) -> Vec<ToExecutor> {
    std::iter::from_fn(|| sent.try_next()).flatten().collect()
}

#[tokio::test]
async fn a_job_runs_without_a_connection() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let job = dispatcher.submit(1);
    let messages = sent(&mut dispatcher.sent);
    let assigned = messages.iter().find_map(|message| match message {
        ToExecutor::Assign(assignment) => Some(assignment.task),
        _ => None,
    });
    assert_eq!(assigned, Some(task(job, 0)), "{messages:?}");
    dispatcher.end(executor, task(job, 0), wrote(3));
    assert_eq!(dispatcher.view(job).state, JobState::Succeeded);
}

/// The next event of a watch, if one comes without a change of the job.
async fn next_event(dispatcher: &mut Dispatcher, watch: &mut JobWatch) -> Option<JobWatchEvent> {
    let mut next = pin!(watch.next());
    loop {
        tokio::select! {
            biased;
            next = &mut next => return next.unwrap(),
            Some(message) = dispatcher.inbox.recv() => {
                dispatcher.core.handle(message);
                dispatcher.settle();
            }
            () = tokio::time::sleep(Duration::from_millis(200)) => return None,
        }
    }
}

/// All that a watch tells at the moment.
async fn events(dispatcher: &mut Dispatcher, watch: &mut JobWatch) -> Vec<JobWatchEvent> {
    let mut events = Vec::new();
    while let Some(event) = next_event(dispatcher, watch).await {
        events.push(event);
    }
    events
}

fn numbers(events: &[JobWatchEvent]) -> Vec<(u64, Vec<u32>)> {
    let results = events.iter().filter_map(|event| match event {
        JobWatchEvent::Results(numbered) => {
            Some((numbered.first, numbered.results.iter().map(|result| result.index).collect()))
        }
        _ => None,
    });
    results.collect()
}

#[tokio::test]
async fn a_watch_goes_on_from_the_number_of_a_result() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(4);
    let job = dispatcher.submit(3);
    let watched = |from| async move |service: &Caller| service.watch(job, WatchedResults::Whole, from).await;
    let mut first = dispatcher.ask(watched(0)).unwrap();
    dispatcher.end(executor, task(job, 1), Outcome::of(Status::Exited(1)));
    dispatcher.settle();
    let told = events(&mut dispatcher, &mut first).await;
    assert_eq!(numbers(&told), [(0, vec![1])]);
    let failures = told.iter().position(|event| matches!(event, JobWatchEvent::Failures(_)));
    let results = told.iter().position(|event| matches!(event, JobWatchEvent::Results(_)));
    assert!(failures.is_some() && failures < results, "a failure is described before its result: {told:?}");
    // It was interrupted. Meanwhile, more has ended.
    drop(first);
    dispatcher.end(executor, task(job, 2), wrote(1));
    dispatcher.settle();
    dispatcher.end(executor, task(job, 0), wrote(1));
    dispatcher.settle();
    let mut second = dispatcher.ask(watched(1)).unwrap();
    let told = events(&mut dispatcher, &mut second).await;
    assert_eq!(numbers(&told), [(1, vec![2]), (2, vec![0])]);
    assert!(matches!(told.last(), Some(JobWatchEvent::Over(view)) if view.tasks.succeeded == 2), "{told:?}");
    assert!(second.next().await.unwrap().is_none(), "nothing follows the end");
    let mut third = dispatcher.ask(watched(2)).unwrap();
    assert_eq!(numbers(&events(&mut dispatcher, &mut third).await), [(2, vec![0])]);
}

#[tokio::test]
async fn a_caller_may_do_what_its_key_permits() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit(1);
    let denied = |answer: Answer<()>| match answer {
        Ok(()) => false,
        Err(ServiceError::NotAllowed(_)) => true,
        Err(other) => panic!("{other}"),
    };
    let key = |role| Principal::Key(KeyId(2), role);
    let all = [key(KeyRole::Admin), key(KeyRole::Submit), key(KeyRole::Read), key(KeyRole::Executor)];
    let holders = all.into_iter().chain([Principal::Job(job), Principal::Job(JobId(99))]);
    // Admin, submit, read, executor, token of the job, token of another job.
    let mut table = Vec::new();
    for holder in holders {
        dispatcher.service = dispatcher.handle.for_holder(holder);
        table.push([
            denied(dispatcher.ask(async |it| it.job(job).await.map(drop))),
            denied(dispatcher.ask(async |it| it.result(task(job, 0)).await.map(drop))),
            denied(dispatcher.ask(async |it| it.jobs().await.map(drop))),
            denied(dispatcher.ask(async |it| it.executors().await.map(drop))),
            denied(dispatcher.ask(async |it| it.catalog(None, Name::from("x")).await.map(drop))),
            denied(dispatcher.ask(async |it| it.cancel(job, None).await.map(drop))),
            denied(dispatcher.service.may_submit()),
            denied(dispatcher.ask(async |it| it.attach("a".into()).await.map(drop))),
            denied(dispatcher.ask(async |it| it.forget_files().await)),
        ]);
    }
    let (y, n) = (true, false);
    assert_eq!(
        table,
        [
            [n, n, n, n, n, n, n, n, n],
            [n, n, n, n, n, n, n, n, y],
            [n, n, n, n, n, y, y, y, y],
            [y, y, y, y, y, y, y, y, y],
            [n, n, y, y, y, y, y, y, y],
            [y, y, y, y, y, y, y, y, y],
        ]
    );
}

#[tokio::test]
async fn an_attached_job_lives_as_long_as_its_handle() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let mut job = dispatcher.ask(async |service| service.attach("mine".into()).await).unwrap();
    let id = job.id();
    job.add_templates(vec![TaskTemplate::new(Program::Noop)]).await.unwrap();
    let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
    job.add_tasks(vec![item.clone(), item]).await.unwrap();
    dispatcher.handle_calls();
    assert_eq!(dispatcher.phases(id), [Phase::Assigned, Phase::Assigned]);
    dispatcher.end(executor, task(id, 0), wrote(2));
    dispatcher.core.tell_jobs(jobs::Event::Deliver);
    assert!(matches!(job.next().await, Some(JobDelivery::Results(results)) if results[0].outcome == wrote(2)));
    drop(job);
    dispatcher.handle_calls();
    dispatcher.end(executor, task(id, 1), Outcome::of(Status::Cancelled));
    dispatcher.core.tell_jobs(jobs::Event::Deliver);
    let gone = dispatcher.ask(async |service| service.job(id).await);
    assert!(matches!(gone, Err(ServiceError::NoSuchJob(_))), "{gone:?}");
}
