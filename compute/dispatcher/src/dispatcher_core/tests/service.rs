//! The service, called in this process.

use eyas_types::Name;
use eyas_types::course::{JobOwner, MAX_USER_BYTES};
use eyas_wire::client::PushRequest;
use eyas_wire::pool::PoolsRequest;

use super::*;
use crate::service::{JobDelivery, JobWatch, JobWatchEvent, WatchedResults};

#[tokio::test]
async fn a_job_runs_without_a_connection() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let job = dispatcher.submit(1);
    let messages = dispatcher.sent();
    let assigned = messages.iter().find_map(|message| match message {
        ToExecutor::Assign(assignment) => Some(assignment.task),
        _ => None,
    });
    assert_eq!(assigned, Some(task(job, 0)), "{messages:?}");
    dispatcher.end(executor, task(job, 0), wrote(3));
    assert_eq!(dispatcher.view(job).state, JobState::Succeeded);
}

#[tokio::test]
async fn a_job_has_the_user_and_the_key_that_submitted_it() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.service =
        Caller::new(dispatcher.handle.clone(), Principal::Key(KeyId(4), KeyRole::Submit));
    let mut spec =
        JobSpec { templates: vec![TaskTemplate::new(Program::Noop)], ..JobSpec::default() };
    // A client names the user. It cannot name the key.
    spec.owner = JobOwner { user: "ann".into(), key: Some(KeyId(1)) };
    spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }]).unwrap();
    let job = dispatcher.submit_spec(spec.clone());
    let owner = JobOwner { user: "ann".into(), key: Some(KeyId(4)) };
    assert_eq!(dispatcher.view(job).owner, owner);
    dispatcher.restart();
    assert_eq!(dispatcher.view(job).owner, owner);
    dispatcher.ask(async |service| service.cancel(job, None).await).unwrap();
    dispatcher.restart();
    assert_eq!(dispatcher.ask(async |service| service.jobs().await).unwrap()[0].owner, owner);
    let attached =
        dispatcher.ask(async |service| service.attach("mine".into(), "bob".into()).await).unwrap();
    assert_eq!(dispatcher.view(attached.id()).owner.user, "bob");
    spec.owner.user = "x".repeat(MAX_USER_BYTES + 1);
    let job = CheckedJob::check(Box::new(spec)).unwrap();
    assert!(matches!(
        dispatcher.ask(async |service| service.submit(job).await),
        Err(ServiceError::LongUserName)
    ));
}

/// All that a watch tells, up to the next state of the job.
async fn events(dispatcher: &mut Dispatcher, watch: &mut JobWatch) -> Vec<JobWatchEvent> {
    let mut events = Vec::new();
    loop {
        let mut next = pin!(watch.next());
        let event = loop {
            tokio::select! {
                biased;
                next = &mut next => break next.unwrap().expect("the job has not ended"),
                Some(call) = dispatcher.calls.recv() => {
                    dispatcher.core.answer_call(call);
                    dispatcher.settle();
                }
            }
        };
        let is_state = matches!(event, JobWatchEvent::Progress(_) | JobWatchEvent::Over(_));
        events.push(event);
        if is_state {
            return events;
        }
    }
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
    let watched =
        |from| async move |service: &Caller| service.watch(job, WatchedResults::Whole, from).await;
    let mut first = dispatcher.ask(watched(0)).unwrap();
    dispatcher.end(executor, task(job, 1), Outcome::of(Status::Exited(1)));
    dispatcher.settle();
    let told = events(&mut dispatcher, &mut first).await;
    assert_eq!(numbers(&told), [(0, vec![1])]);
    let failures = told.iter().position(|event| matches!(event, JobWatchEvent::Failures(_)));
    let results = told.iter().position(|event| matches!(event, JobWatchEvent::Results(_)));
    assert!(
        failures.is_some() && failures < results,
        "a failure is described before its result: {told:?}"
    );
    // It was interrupted. Meanwhile, more has ended.
    drop(first);
    dispatcher.end(executor, task(job, 2), wrote(1));
    dispatcher.settle();
    dispatcher.end(executor, task(job, 0), wrote(1));
    dispatcher.settle();
    let mut second = dispatcher.ask(watched(1)).unwrap();
    let told = events(&mut dispatcher, &mut second).await;
    assert_eq!(numbers(&told), [(1, vec![2]), (2, vec![0])]);
    assert!(
        matches!(told.last(), Some(JobWatchEvent::Over(view)) if view.tasks.succeeded == 2),
        "{told:?}"
    );
    assert!(second.next().await.unwrap().is_none(), "nothing follows the end");
    let mut third = dispatcher.ask(watched(2)).unwrap();
    assert_eq!(numbers(&events(&mut dispatcher, &mut third).await), [(2, vec![0])]);
}

/// Which of the calls are not permitted; what else is wrong with a call does not matter.
macro_rules! denied {
    ($dispatcher:ident: $($call:ident($($argument:expr),*)),* $(,)?) => {{
        let mut denied = Vec::new();
        $(
            let answer = $dispatcher.ask(async |service| {
                service.$call($($argument),*).await.map(drop)
            });
            denied.extend(
                matches!(answer, Err(ServiceError::NotAllowed(_))).then_some(stringify!($call)),
            );
        )*
        denied
    }};
}

#[tokio::test]
async fn a_caller_may_do_what_its_key_permits() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit(1);
    let first = task(job, 0);
    let query = TaskQuery { from: 0, limit: 1, failed: false };
    let push = || PushRequest {
        objects: Vec::new(),
        kept: Vec::new(),
        to: Vec::new(),
        distribution: Distribution::default(),
        wait: false,
    };
    let key = |role| Principal::Key(KeyId(2), role);
    let own = [
        "job", "tasks", "failures", "result", "explain", "report", "trace", "graph", "inputs",
        "kept", "watch",
    ];
    let files = ["files_nodes"];
    let read = ["jobs", "executors", "addresses", "catalog", "events"];
    let submit = ["may_submit", "attach", "push", "cancel", "retry", "release", "forget"];
    let admin = ["forget_files", "stop_executor", "keys", "pools", "stop"];
    let all = [&own[..], &files, &read, &submit, &admin].concat();
    // Tokens of these jobs are not for files. The admin comes last, since it stops the cluster.
    for (holder, expected) in [
        (Principal::Job(job), [&files[..], &read, &submit, &admin].concat()),
        (Principal::Job(JobId(99)), [&own[..], &files, &read, &submit, &admin].concat()),
        (key(KeyRole::Executor), all),
        (key(KeyRole::Read), [&submit[..], &admin].concat()),
        (key(KeyRole::Submit), admin.to_vec()),
        (key(KeyRole::Admin), Vec::new()),
    ] {
        dispatcher.service = Caller::new(dispatcher.handle.clone(), holder);
        let mut denied = denied!(dispatcher:
            job(job),
            tasks(job, query),
            failures(job, Vec::new()),
            result(first),
            explain(first),
            report(job),
            trace(job, 0),
            graph(job, 0),
            inputs(job, 0),
            kept(job, 0..1, Vec::new()),
            watch(job, WatchedResults::None, 0),
            jobs(),
            executors(),
            addresses(),
            catalog(None, Name::from("x")),
            attach("a".into(), "ann".into()),
            push(push()),
            cancel(job, Some(9)),
            retry(job, Vec::new()),
            release(job),
            forget(job),
            files_nodes(),
            forget_files(),
            stop_executor("n9".into()),
        );
        let is_denied = |answer: Answer<()>| matches!(answer, Err(ServiceError::NotAllowed(_)));
        let service = dispatcher.service.clone();
        denied.extend(is_denied(service.may_submit()).then_some("may_submit"));
        denied.extend(is_denied(service.events(None).map(drop)).then_some("events"));
        // Others than the core answer these.
        denied.extend(is_denied(service.keys().await.map(drop)).then_some("keys"));
        let pause = PoolsRequest::Pause { name: "none".into() };
        denied.extend(is_denied(service.pools(pause).await.map(drop)).then_some("pools"));
        denied.extend(denied!(dispatcher: stop()));
        denied.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(denied, expected, "{holder}");
    }
}

#[tokio::test]
async fn an_attached_job_lives_as_long_as_its_handle() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let mut job =
        dispatcher.ask(async |service| service.attach("mine".into(), "ann".into()).await).unwrap();
    let id = job.id();
    job.add_templates(vec![TaskTemplate::new(Program::Noop)]).await.unwrap();
    let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
    job.add_tasks(vec![item.clone(), item]).await.unwrap();
    dispatcher.handle_calls();
    assert_eq!(dispatcher.phases(id), [Phase::Assigned, Phase::Assigned]);
    dispatcher.end(executor, task(id, 0), wrote(2));
    dispatcher.core.tell_jobs(jobs::Event::Deliver);
    let Some(JobDelivery::Results(results)) = job.next().await else { panic!("results") };
    assert_eq!(results[0].outcome, wrote(2));
    drop(job);
    dispatcher.handle_calls();
    dispatcher.end(executor, task(id, 1), Outcome::of(Status::Cancelled));
    dispatcher.core.tell_jobs(jobs::Event::Deliver);
    let gone = dispatcher.ask(async |service| service.job(id).await);
    assert!(matches!(gone, Err(ServiceError::NoSuchJob(_))), "{gone:?}");
    let told = dispatcher.service.events(None).unwrap().next().await.unwrap();
    let kinds: Vec<_> = told.events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["executor-joined", "job-submitted", "job-ended"]);
    assert_eq!(told.events[2].text, format!("job {id} (mine) has ended: 1 succeeded, 1 cancelled"));
}

#[tokio::test]
async fn a_call_does_not_wait_for_what_executors_have_sent_before() {
    const MESSAGES: usize = 1000;
    let folder = tempfile::tempdir().unwrap();
    let (core, _durable) = core_in(&folder);
    let (to_core, messages) = mpsc::channel(MESSAGES);
    for _ in 0..MESSAGES {
        let heartbeat = vec![FromExecutor::Heartbeat { free_disk_bytes: 1 }];
        to_core
            .try_send(CoreMessage::Messages { executor: ExecutorId(7), messages: heartbeat })
            .unwrap();
    }
    let (caller, calls) = mpsc::channel::<CoreCall>(1);
    let (reply, answer) = oneshot::channel();
    let sender = to_core.clone();
    caller.try_send(Box::new(move |_| _ = reply.send(MESSAGES - sender.capacity()))).unwrap();
    let (_durable, durable) = watch::channel(0);
    let (_orders, orders) = mpsc::channel(1);
    let (_stop, stop) = watch::channel(false);
    tokio::select! {
        left = answer => assert_eq!(left, Ok(MESSAGES)),
        () = run(core, CoreInbox { calls, messages, durable, orders, stop }, None) => {
            panic!("it has ended")
        }
    }
}
