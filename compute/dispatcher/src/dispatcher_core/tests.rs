//! The core with a journal of its own, told by hand what happens. After a kill, another core takes up the journal.

use std::sync::mpsc as std_mpsc;

use eyas_jobs::{MAX_RECOMPUTATIONS, Phase, RETURN_GRACE_US};
use eyas_session::{Access, SessionAcceptor, dial, outbox};
use eyas_types::outcome::Delivered;
use eyas_types::{
    Distribution, Input, InputFrom, ObjectSpec, Outcome, OutputSpec, PlacementPolicy, Program, Resources, Status,
    TaskId, TaskItem, TaskTemplate, Template, Version,
};
use eyas_wire::Role;
use eyas_wire::client::{KeptPart, TaskResult};
use eyas_wire::view::{JobState, JobView};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::journal::JournalOptions;
mod interrupted;

struct Dispatcher {
    core: DispatcherCore,
    written: std_mpsc::Receiver<Vec<WrittenRecord>>,
    outbox: Outbox<ToExecutor>,
    folder: TempDir,
}

fn core_in(folder: &TempDir) -> (DispatcherCore, std_mpsc::Receiver<Vec<WrittenRecord>>) {
    let (sender, written) = std_mpsc::channel();
    let path = folder.path().join("journal.redb");
    let options = JournalOptions { is_scratch: false, check: Some(folder.path().join("differs")) };
    let journal = Journal::open(&path, options, move |done| drop(sender.send(done)), |e| panic!("{e}")).unwrap();
    let config = eyas_sched::Config { policy: PlacementPolicy::FirstAvailable, ..Default::default() };
    let mut core = DispatcherCore::new(Scheduler::new(config), "fa".into(), false, Duration::from_secs(3), journal);
    core.recover().unwrap();
    (core, written)
}

impl Dispatcher {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (core, written) = core_in(&folder);
        // No test reads the messages to executors.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access::create("test", &listener.local_addr().unwrap().to_string());
        let accept =
            async { SessionAcceptor::new(&access, Role::Dispatcher).accept(listener.accept().await.unwrap().0).await };
        let (accepted, _dialled) = tokio::join!(accept, dial(&access, Role::Executor));
        let (outbox, _) = outbox(accepted.unwrap().0.writer);
        Dispatcher { core, written, outbox, folder }
    }

    /// Killed as it is, and started again in the same folder.
    fn restart(&mut self) {
        // The file is free once the journal's thread has ended. Its last writes were not acknowledged.
        let (_, nothing) = std_mpsc::channel();
        let written = std::mem::replace(&mut self.written, nothing);
        let elsewhere = tempfile::tempdir().unwrap();
        drop(std::mem::replace(&mut self.core, core_in(&elsewhere).0));
        while written.recv().is_ok() {}
        (self.core, self.written) = core_in(&self.folder);
        self.settle();
    }

    /// Waits until all that is to be written is on disk.
    fn settle(&mut self) {
        self.core.write_results();
        while self.core.replies.is_behind() {
            let written = self.written.recv().unwrap();
            self.core.written(&written);
        }
        while self.core.jobs.has_more_to_queue() {
            self.core.tell_jobs(QUEUE_MORE);
        }
    }

    fn join(&mut self, slots: u32) -> ExecutorId {
        let registration = Registration {
            name: "n".into(),
            host: "h".into(),
            labels: Default::default(),
            accept: None,
            process: 1,
            incarnation: String::new(),
            capacity: Resources { cpus_milli: 1000 * slots, ..Resources::default() },
            store_bytes: 0,
            transfer: eyas_wire::executor::TransferAddress { address: ([127, 0, 0, 1], 1).into(), relay: None },
            files: None,
            origin: None,
            held: Vec::new(),
        };
        let (reply, mut id) = oneshot::channel();
        self.core.handle(CoreMessage::Joined {
            registration: Box::new(registration),
            accept: Box::default(),
            outbox: self.outbox.clone(),
            reply,
        });
        id.try_recv().unwrap().0
    }

    fn submit(&mut self, tasks: usize) -> JobId {
        let mut spec = JobSpec { templates: vec![TaskTemplate::new(Program::Noop)], ..JobSpec::default() };
        spec.push(&vec![TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }; tasks]).unwrap();
        let (reply, mut accepted) = oneshot::channel();
        self.core.handle(CoreMessage::Submitted { spec: Box::new(spec), reply });
        assert_eq!(accepted.try_recv(), Err(TryRecvError::Empty), "it is not on disk");
        self.settle();
        match accepted.try_recv() {
            Ok(ToClient::Accepted { job }) => job,
            other => panic!("{other:?}"),
        }
    }

    /// Submits two tasks: the first keeps its output; the second reads it, and is too large for any executor.
    fn submit_pair(&mut self) -> JobId {
        self.submit_kept(false, 64_000)
    }

    /// Submits two tasks: the first keeps its output; the second reads it, needs `cpus_milli`, and keeps its own.
    fn submit_kept(&mut self, until_read: bool, cpus_milli: u32) -> JobId {
        self.core.caching = true;
        let mut templates = [TaskTemplate::new(Program::Noop), TaskTemplate::new(Program::Noop)];
        for (template, until_read) in templates.iter_mut().zip([until_read, false]) {
            let (pattern, destination) = (Template::literal("out"), None);
            template.outputs.push(OutputSpec { pattern, destination, replicas: 1, until_read, optional: false });
        }
        templates[1].resources.cpus_milli = cpus_milli;
        let mut spec = JobSpec { templates: templates.into(), ..JobSpec::default() };
        let input = Input { from: InputFrom::Output { task: 0, output: 0 }, name: None };
        let item = |template, inputs| TaskItem { template, values: Vec::new(), inputs };
        spec.push(&[item(0, Vec::new()), item(1, vec![input])]).unwrap();
        let (reply, mut accepted) = oneshot::channel();
        self.core.handle(CoreMessage::Submitted { spec: Box::new(spec), reply });
        self.settle();
        let Ok(ToClient::Accepted { job }) = accepted.try_recv() else { panic!("it is refused") };
        job
    }

    fn store(&mut self, executor: ExecutorId, object: &ObjectSpec) {
        let message = FromExecutor::Stored { object: object.id(), size_bytes: object.size_bytes() };
        self.core.handle(CoreMessage::Said { executor, messages: vec![message] });
    }

    fn ask(&mut self, request: FromClient) -> oneshot::Receiver<ToClient> {
        let (reply, answer) = oneshot::channel();
        self.core.handle(CoreMessage::Asked { request, reply });
        answer
    }

    /// The answer, which does not come before everything is on disk.
    fn answer(&mut self, request: FromClient) -> ToClient {
        let mut answer = self.ask(request);
        if self.core.replies.is_behind() {
            assert_eq!(answer.try_recv(), Err(TryRecvError::Empty));
        }
        self.settle();
        answer.try_recv().unwrap()
    }

    fn view(&mut self, job: JobId) -> JobView {
        match self.answer(FromClient::Jobs { job: Some(job) }) {
            ToClient::Jobs(mut jobs) => jobs.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn log(&mut self, task: TaskId) -> TaskResult {
        match self.answer(FromClient::Log { task }) {
            ToClient::Log(Some(result)) => *result,
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, executor: ExecutorId, task: TaskId, outcome: Outcome) {
        let message = FromExecutor::Ended { task, attempt: 0, outcome: Box::new(outcome) };
        self.core.handle(CoreMessage::Said { executor, messages: vec![message] });
    }

    /// A task of the kept ones ends, with its output in the executor's store.
    fn end_kept(&mut self, executor: ExecutorId, task: TaskId) -> ObjectSpec {
        let object = ObjectSpec::kept(task, "out", 7, "content", false);
        self.store(executor, &object);
        self.end(
            executor,
            task,
            Outcome { outputs: vec![Delivered { output: 0, object: object.clone(), place: None }], ..wrote(0) },
        );
        object
    }

    fn kept_part(&mut self, job: JobId) -> KeptPart {
        let mut answer = self.ask(FromClient::Kept { job, from: 0, to: u32::MAX, doubted: Vec::new() });
        self.settle();
        match answer.try_recv().unwrap() {
            ToClient::Kept(part) => part,
            other => panic!("{other:?}"),
        }
    }

    fn ids(&self) -> Vec<JobId> {
        self.core.jobs.all().map(|job| job.id).collect()
    }

    fn phases(&self, job: JobId) -> Vec<Phase> {
        self.core.jobs.get(job).unwrap().tasks.iter().map(|task| task.phase).collect()
    }
}

fn wrote(bytes: usize) -> Outcome {
    Outcome { stdout: vec![b'x'; bytes], ..Outcome::of(Status::Succeeded) }
}

fn task(job: JobId, index: u32) -> TaskId {
    TaskId { job, index }
}

#[tokio::test]
async fn what_was_said_to_be_cancelled_does_not_run_again() {
    let mut dispatcher = Dispatcher::start().await;
    dispatcher.join(1);
    let job = dispatcher.submit(4);
    assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Assigned, Phase::Waiting, Phase::Waiting]);
    assert_eq!(dispatcher.answer(FromClient::Cancel { job, task: Some(1) }), ToClient::Done(1));
    dispatcher.restart();
    assert_eq!(dispatcher.phases(job), [Phase::Waiting, Phase::Cancelled, Phase::Waiting, Phase::Waiting]);
    let executor = dispatcher.join(1);
    // A result that gathers in between keeps its place.
    dispatcher.end(executor, task(job, 0), wrote(3));
    assert_eq!(dispatcher.answer(FromClient::Cancel { job, task: None }), ToClient::Done(2));
    assert_eq!(dispatcher.answer(FromClient::Cancel { job, task: None }), ToClient::Done(2), "two have not ended yet");
    assert_eq!(dispatcher.log(task(job, 0)).outcome, wrote(3));
    dispatcher.restart();
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Cancelled, Phase::Cancelled, Phase::Cancelled]);
    assert_eq!(dispatcher.view(job).state, JobState::Cancelled);
}

#[tokio::test]
async fn a_trace_has_what_succeeded_also_after_a_restart() {
    let mut dispatcher = Dispatcher::start().await;
    let executor = dispatcher.join(4);
    let job = dispatcher.submit(4);
    let ran = |ran_us| Outcome { waited_us: 1, ran_us, cpu_us: 2, ..wrote(1) };
    dispatcher.end(executor, task(job, 2), ran(30));
    dispatcher.end(executor, task(job, 0), ran(10));
    dispatcher.end(executor, task(job, 1), Outcome::of(Status::Exited(1)));
    let mut trace = || {
        let ToClient::Trace(part) = dispatcher.answer(FromClient::Trace { job, from: 0 }) else { panic!("no trace") };
        assert_eq!(part.next, None);
        let times = part.tasks.iter().map(|task| (task.waited_us, task.ran_us, task.cpu_us)).collect::<Vec<_>>();
        dispatcher.restart();
        times
    };
    assert_eq!(trace(), [(1, 10, 2), (1, 30, 2)]);
    assert_eq!(trace(), [(1, 10, 2), (1, 30, 2)]);
}

#[tokio::test]
async fn what_was_said_to_be_run_again_is_after_a_kill() {
    let mut dispatcher = Dispatcher::start().await;
    let executor = dispatcher.join(1);
    let job = dispatcher.submit(2);
    dispatcher.end(executor, task(job, 0), Outcome::of(Status::Exited(1)));
    dispatcher.end(executor, task(job, 1), wrote(1));
    assert_eq!(dispatcher.view(job).state, JobState::Failed);
    assert_eq!(dispatcher.answer(FromClient::Retry { job, current: Vec::new() }), ToClient::Done(1));
    dispatcher.restart();
    assert_eq!(dispatcher.phases(job), [Phase::Waiting, Phase::Succeeded]);
}

#[tokio::test]
async fn tasks_whose_inputs_are_pushed_first_wait_for_nothing_else() {
    let mut dispatcher = Dispatcher::start().await;
    dispatcher.core.caching = true;
    let executor = dispatcher.join(1);
    let version = Version::Modified { mtime_ns: 0, size_bytes: 7 };
    let object = ObjectSpec { source: "file:///a".into(), version, executable: false };
    let submit = |dispatcher: &mut Dispatcher, distribution| {
        let mut spec =
            JobSpec { templates: vec![TaskTemplate::new(Program::Noop)], distribution, ..JobSpec::default() };
        spec.push_objects(vec![object.clone()]).unwrap();
        spec.broadcast.push(0);
        let input = Input { from: InputFrom::Object(0), name: None };
        spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: vec![input] }]).unwrap();
        let (reply, mut accepted) = oneshot::channel();
        dispatcher.core.handle(CoreMessage::Submitted { spec: Box::new(spec), reply });
        dispatcher.settle();
        let Ok(ToClient::Accepted { job }) = accepted.try_recv() else { panic!("it is refused") };
        job
    };
    let first = submit(&mut dispatcher, Distribution::SpanningTree);
    let second = submit(&mut dispatcher, Distribution::SpanningTree);
    assert_eq!((dispatcher.phases(first), dispatcher.phases(second)), (vec![Phase::Waiting], vec![Phase::Waiting]));
    // Cancelled before it has begun, it can be retried all the same.
    assert_eq!(dispatcher.answer(FromClient::Cancel { job: second, task: None }), ToClient::Done(1));
    assert!(!dispatcher.core.jobs.get(second).unwrap().is_pushed_first());
    dispatcher.store(executor, &object);
    dispatcher.settle();
    assert_eq!(dispatcher.phases(first), [Phase::Assigned]);
    assert_eq!(dispatcher.answer(FromClient::Retry { job: second, current: Vec::new() }), ToClient::Done(1));
    assert_eq!(dispatcher.phases(second), [Phase::Assigned]);
    // After a start there is no executor for the push: tasks continue, and read on demand.
    dispatcher.restart();
    dispatcher.core.caching = true;
    dispatcher.join(1);
    assert_eq!(dispatcher.phases(first), [Phase::Assigned]);
    // In a chain they wait for nothing at all, and its push ends with the job.
    let chained = submit(&mut dispatcher, Distribution::Chain);
    assert!(!dispatcher.core.jobs.get(chained).unwrap().is_pushed_first());
    assert!(dispatcher.core.pushes.spec(object.id()).is_some());
    assert_eq!(dispatcher.answer(FromClient::Cancel { job: chained, task: None }), ToClient::Done(1));
    assert!(dispatcher.core.pushes.spec(object.id()).is_none());
}

#[tokio::test]
async fn nothing_that_was_shown_goes_back() {
    let mut dispatcher = Dispatcher::start().await;
    let executor = dispatcher.join(1);
    let job = dispatcher.submit(2);
    let (reply, mut watching) = oneshot::channel();
    dispatcher.core.handle(CoreMessage::Watched { job, reply });
    let standing = watching.try_recv().unwrap().unwrap();
    let shown = || standing.borrow().view.tasks.succeeded;
    dispatcher.end(executor, task(job, 0), wrote(3));
    // Asked while it is being written, and while more has gathered.
    let mut first = dispatcher.ask(FromClient::Jobs { job: Some(job) });
    let mut log = dispatcher.ask(FromClient::Log { task: task(job, 0) });
    dispatcher.end(executor, task(job, 1), wrote(3));
    dispatcher.core.tick(0);
    assert_eq!((first.try_recv(), log.try_recv(), shown()), (Err(TryRecvError::Empty), Err(TryRecvError::Empty), 0));
    dispatcher.settle();
    let ToClient::Jobs(jobs) = first.try_recv().unwrap() else { panic!("not jobs") };
    assert_eq!((jobs[0].tasks.succeeded, shown()), (1, 2), "each tells what it was asked");
    let ToClient::Log(Some(log)) = log.try_recv().unwrap() else { panic!("not a log") };
    assert_eq!(log.outcome, wrote(3));
    assert!(standing.borrow().is_over);
    let before = dispatcher.view(job);
    dispatcher.restart();
    assert_eq!(dispatcher.view(job).tasks, before.tasks);
}

#[tokio::test]
async fn a_task_that_takes_executors_with_it_fails_and_those_behind_it_do_not() {
    let mut dispatcher = Dispatcher::start().await;
    let job = dispatcher.submit(3);
    for loss in 1..=jobs::MAX_LOSSES {
        let executor = dispatcher.join(1);
        // The second is lined up behind it.
        assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Assigned, Phase::Waiting]);
        dispatcher.core.handle(CoreMessage::Gone { executor });
        let losses: Vec<_> = dispatcher.core.jobs.get(job).unwrap().tasks.iter().map(|task| task.losses).collect();
        assert_eq!(losses, [loss, 0, 0]);
    }
    assert_eq!(dispatcher.phases(job), [Phase::Failed, Phase::Waiting, Phase::Waiting]);
    let status = dispatcher.log(task(job, 0)).outcome.status.to_string();
    assert!(status.contains("5 executors were lost"), "{status}");
    // As many as fit may have run, whichever job they are of; one that left in good order took none with it.
    let other = dispatcher.submit(4);
    let executor = dispatcher.join(4);
    dispatcher.core.handle(CoreMessage::Gone { executor });
    let losses = |job| dispatcher.core.jobs.get(job).unwrap().tasks.iter().map(|task| task.losses).collect::<Vec<_>>();
    assert_eq!((losses(job), losses(other)), (vec![5, 1, 1], vec![1, 1, 0, 0]));
    let executor = dispatcher.join(4);
    dispatcher.core.handle(CoreMessage::Said { executor, messages: vec![FromExecutor::Leaving] });
    assert_eq!(dispatcher.core.jobs.get(job).unwrap().tasks[1].losses, 1);
}

#[tokio::test]
async fn output_has_a_bound_and_the_oldest_ended_job_makes_room() {
    let mut dispatcher = Dispatcher::start().await;
    let config = jobs::Config { max_output_bytes: 100, ..jobs::Config::default() };
    dispatcher.core.jobs = Jobs::new(config, dispatcher.core.clock.now_us());
    let executor = dispatcher.join(1);
    let jobs: Vec<_> = (0..2).map(|_| dispatcher.submit(1)).collect();
    for job in &jobs {
        dispatcher.end(executor, task(*job, 0), wrote(40));
    }
    let running = dispatcher.submit(4);
    dispatcher.end(executor, task(running, 0), wrote(60));
    assert_eq!(dispatcher.ids(), [jobs[1], running]);
    // A job whose results a client still reads stays.
    let (reply, mut watching) = oneshot::channel();
    dispatcher.core.handle(CoreMessage::Watched { job: jobs[1], reply });
    let watching = watching.try_recv().unwrap().unwrap();
    dispatcher.end(executor, task(running, 1), wrote(1));
    let cut = dispatcher.log(task(running, 1)).outcome;
    assert_eq!((cut.stdout.len(), cut.cut_bytes), (0, 1));
    let warnings = dispatcher.view(running).warnings;
    assert!(warnings.iter().any(|warning| warning.contains("was cut")), "{warnings:?}");
    drop(watching);
    dispatcher.core.tick(0);
    dispatcher.end(executor, task(running, 2), wrote(50));
    let cut = dispatcher.log(task(running, 2)).outcome;
    assert_eq!((cut.stdout.len(), cut.cut_bytes), (40, 10));
    assert_eq!(dispatcher.ids(), [running]);
    // The kept output is counted again.
    dispatcher.restart();
    assert_eq!(dispatcher.core.jobs.output_bytes(), 100);
    assert_eq!(dispatcher.ids(), [running]);
}

#[tokio::test]
async fn what_is_lost_is_made_again_so_many_times_and_what_comes_back_is_not() {
    let mut dispatcher = Dispatcher::start().await;
    let job = dispatcher.submit_pair();
    let mut executor = dispatcher.join(1);
    for time in 0..MAX_RECOMPUTATIONS {
        assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Blocked]);
        let object = dispatcher.end_kept(executor, task(job, 0));
        assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Waiting]);
        if time == 2 {
            // After a restart, it waits for executors and takes over the objects that they hold.
            dispatcher.settle();
            dispatcher.restart();
            dispatcher.core.caching = true;
            assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Blocked]);
            assert_eq!(dispatcher.view(job).recomputed, 2);
            executor = dispatcher.join(1);
            assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Blocked]);
            dispatcher.store(executor, &object);
            assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Waiting]);
        }
        dispatcher.core.handle(CoreMessage::Gone { executor });
        assert_eq!(dispatcher.phases(job), [Phase::Waiting, Phase::Blocked]);
        executor = dispatcher.join(1);
    }
    dispatcher.end_kept(executor, task(job, 0));
    dispatcher.core.handle(CoreMessage::Gone { executor });
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Failed]);
    let part = dispatcher.kept_part(job);
    assert!(part.outputs[0].is_lost && part.unsuccessful == 1, "{part:?}");
    let status = dispatcher.log(task(job, 1)).outcome.status.to_string();
    assert!(status.contains("keep more replicas"), "{status}");
    assert_eq!(dispatcher.view(job).recomputed, u64::from(MAX_RECOMPUTATIONS));
}

#[tokio::test]
async fn what_is_for_a_user_is_made_again_if_nobody_comes_back_with_it() {
    use Phase::{Assigned, Blocked, Succeeded};
    let mut dispatcher = Dispatcher::start().await;
    let job = dispatcher.submit_kept(true, 1000);
    let executor = dispatcher.join(1);
    assert_eq!(dispatcher.kept_part(job).unfinished, 1);
    let read = dispatcher.end_kept(executor, task(job, 0));
    let asked_for = dispatcher.end_kept(executor, task(job, 1));
    // The output whose only reader has ended is released; the other one is reported.
    assert_eq!(dispatcher.core.scheduler.moving_from(executor), 0);
    let part = dispatcher.kept_part(job);
    assert_eq!((part.outputs.len(), &part.outputs[0].object, part.outputs[0].holders.len()), (1, &asked_for, 1));
    dispatcher.settle();
    dispatcher.restart();
    dispatcher.core.caching = true;
    let executor = dispatcher.join(1);
    dispatcher.core.tick(0);
    assert_eq!(dispatcher.phases(job), [Succeeded, Succeeded], "who had it may come");
    dispatcher.core.clock.advance_us(RETURN_GRACE_US);
    dispatcher.core.tick(0);
    dispatcher.core.tick(0);
    assert_eq!(dispatcher.phases(job), [Assigned, Blocked], "with what it is made from");
    assert_eq!(dispatcher.view(job).state, JobState::Running);
    dispatcher.end_kept(executor, task(job, 0));
    dispatcher.end_kept(executor, task(job, 1));
    assert_eq!((dispatcher.view(job).state, dispatcher.view(job).recomputed), (JobState::Succeeded, 2));
    // A client that asks for it does not wait for that.
    dispatcher.core.handle(CoreMessage::Gone { executor });
    let executor = dispatcher.join(1);
    dispatcher.store(executor, &read);
    assert_eq!(dispatcher.kept_part(job).outputs[0].holders, []);
    assert_eq!(dispatcher.phases(job), [Succeeded, Assigned], "what it is made from is still in a store");
    dispatcher.end_kept(executor, task(job, 1));
    assert_eq!(dispatcher.answer(FromClient::Release { job }), ToClient::Done(2));
    dispatcher.core.handle(CoreMessage::Gone { executor });
    dispatcher.restart();
    dispatcher.join(1);
    dispatcher.core.clock.advance_us(RETURN_GRACE_US);
    dispatcher.core.tick(0);
    assert_eq!(dispatcher.phases(job), [Succeeded, Succeeded]);
}

#[tokio::test]
async fn what_is_lost_together_is_made_again_in_order() {
    let mut dispatcher = Dispatcher::start().await;
    let job = dispatcher.submit_kept(false, 1000);
    let executor = dispatcher.join(2);
    dispatcher.end_kept(executor, task(job, 0));
    dispatcher.end_kept(executor, task(job, 1));
    dispatcher.core.handle(CoreMessage::Gone { executor });
    let ToClient::Explained(explained) = dispatcher.answer(FromClient::Explain { task: task(job, 1) }) else {
        panic!()
    };
    assert!(explained.because.iter().any(|line| line.starts_with("No executor that is here")), "{explained:?}");
    let executor = dispatcher.join(2);
    assert_eq!(dispatcher.kept_part(job).outputs.len(), 2);
    assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Blocked]);
    dispatcher.end_kept(executor, task(job, 0));
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Assigned]);
    dispatcher.settle();
    dispatcher.restart();
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Blocked], "who has what it reads may come");
    assert_eq!(dispatcher.view(job).recomputed, 2);
}

#[tokio::test]
async fn a_cluster_that_stops_loses_nothing() {
    let mut dispatcher = Dispatcher::start().await;
    let job = dispatcher.submit_pair();
    let executor = dispatcher.join(1);
    dispatcher.end_kept(executor, task(job, 0));
    dispatcher.core.begin_to_stop();
    dispatcher.core.handle(CoreMessage::Said { executor, messages: vec![FromExecutor::Leaving] });
    dispatcher.core.tick(0);
    dispatcher.settle();
    dispatcher.restart();
    assert_eq!((dispatcher.phases(job), dispatcher.view(job).recomputed), (vec![Phase::Succeeded, Phase::Blocked], 0));
}

#[tokio::test]
async fn who_waits_to_read_another_output_of_a_task_that_runs_again_waits_for_it() {
    let mut dispatcher = Dispatcher::start().await;
    let job = dispatcher.submit_pair();
    let executor = dispatcher.join(1);
    let [read, lost] = ["read", "lost"].map(|file| ObjectSpec::kept(task(job, 0), file, 7, "content", false));
    let outputs = || [&read, &lost].map(|object| Delivered { output: 0, object: object.clone(), place: None }).into();
    for _ in 0..2 {
        [&read, &lost].into_iter().for_each(|object| dispatcher.store(executor, object));
        dispatcher.end(executor, task(job, 0), Outcome { outputs: outputs(), ..wrote(0) });
        assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Waiting]);
        let evicted = FromExecutor::Evicted { object: lost.id() };
        dispatcher.core.handle(CoreMessage::Said { executor, messages: vec![evicted] });
        assert_eq!(dispatcher.kept_part(job).outputs.len(), 2);
        assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Blocked]);
    }
}

#[tokio::test]
async fn ended_jobs_leave_memory_and_are_read_when_they_are_asked_for() {
    let mut dispatcher = Dispatcher::start().await;
    let config = jobs::Config { max_ended_in_memory: 1, ..jobs::Config::default() };
    dispatcher.core.jobs = Jobs::new(config, dispatcher.core.clock.now_us());
    let executor = dispatcher.join(1);
    let jobs: Vec<_> = (0..3).map(|_| dispatcher.submit(2)).collect();
    for job in &jobs {
        dispatcher.end(executor, task(*job, 0), wrote(70_000));
        dispatcher.end(executor, task(*job, 1), Outcome::of(Status::Exited(1)));
    }
    let views = |dispatcher: &mut Dispatcher| match dispatcher.answer(FromClient::Jobs { job: None }) {
        ToClient::Jobs(jobs) => jobs,
        other => panic!("{other:?}"),
    };
    let report = |dispatcher: &mut Dispatcher, job| match dispatcher.answer(FromClient::Report { job }) {
        ToClient::Report(report) => (report.metrics, report.samples, report.failures),
        other => panic!("{other:?}"),
    };
    let (before, report_before) = (views(&mut dispatcher), report(&mut dispatcher, jobs[0]));
    dispatcher.core.tick(0);
    assert_eq!(dispatcher.ids(), [jobs[2]]);
    for _ in 0..2 {
        assert_eq!(views(&mut dispatcher), before);
        assert_eq!(dispatcher.log(task(jobs[0], 0)).outcome, wrote(70_000));
        assert_eq!(report(&mut dispatcher, jobs[0]), report_before);
        let list = FromClient::Tasks { job: jobs[1], from: 0, limit: 9, failed: true };
        let ToClient::Tasks(failed) = dispatcher.answer(list) else { panic!("no list") };
        assert_eq!((failed.len(), failed[0].task), (1, task(jobs[1], 1)));
        dispatcher.restart();
        assert!(dispatcher.ids().is_empty(), "a dispatcher that starts reads no job that has ended");
        dispatcher.join(1);
    }
    // One that goes on is in memory again.
    assert_eq!(dispatcher.answer(FromClient::Retry { job: jobs[0], current: Vec::new() }), ToClient::Done(1));
    assert_eq!(dispatcher.phases(jobs[0]), [Phase::Succeeded, Phase::Assigned]);
    let ToClient::Refused(why) = dispatcher.answer(FromClient::Forget { job: jobs[0] }) else { panic!("forgotten") };
    assert!(why.contains("still running") && why.contains("cancel"), "{why}");
    assert_eq!(dispatcher.answer(FromClient::Forget { job: jobs[1] }), ToClient::Done(2));
    assert_eq!(dispatcher.core.jobs.output_bytes(), 140_000);
    dispatcher.restart();
    let left: Vec<_> = views(&mut dispatcher).iter().map(|view| view.job).collect();
    assert_eq!((left, dispatcher.core.jobs.output_bytes()), (vec![jobs[0], jobs[2]], 140_000));
    assert!(!dispatcher.folder.path().join("differs").exists());
    dispatcher.core.compare_with_journal(&dispatcher.folder.path().join("differs")).unwrap();
    assert!(!dispatcher.folder.path().join("differs").exists());
}

#[tokio::test]
async fn a_dispatcher_with_nothing_to_do_sleeps() {
    let mut dispatcher = Dispatcher::start().await;
    assert_eq!(dispatcher.core.next_due_us(), None);
    let executor = dispatcher.join(1);
    let silence_us = dispatcher.core.silence_us();
    let due_us = dispatcher.core.next_due_us().unwrap();
    assert!(due_us > dispatcher.core.clock.now_us() + silence_us / 2, "only the executor's heartbeat is awaited");
    let job = dispatcher.submit(1);
    assert!(dispatcher.core.next_due_us().unwrap() < due_us, "a job that runs is sampled");
    dispatcher.end(executor, task(job, 0), wrote(1));
    dispatcher.settle();
    dispatcher.core.tick(0);
    dispatcher.settle();
    assert!(dispatcher.core.next_due_us().unwrap() >= due_us);
}
