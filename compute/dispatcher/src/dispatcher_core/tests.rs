//! The core with a journal of its own, told by hand what happens, and asked by way of the service,
//! without a connection. After a kill, another core takes up the journal.

use std::pin::pin;
use std::sync::{LazyLock, mpsc as std_mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use eyas_jobs::{JobSpec, MAX_RECOMPUTATIONS, Phase, RETURN_GRACE_US};
use eyas_pools::{PoolsConfig, PoolsHandle};
use eyas_session::private::PrivateFolder;
use eyas_session::{Outbox, OutboxReader};
use eyas_types::access::{KeyId, KeyRole, Principal};
use eyas_types::outcome::Delivered;
use eyas_types::{
    DeliverWhen, Distribution, FileMode, Input, InputFrom, JobId, ObjectSpec, Outcome, OutputSpec,
    PlacementPolicy, Program, Resources, Status, TaskId, TaskItem, TaskResult, TaskTemplate,
    Template, Version,
};
use eyas_wire::DataMode;
use eyas_wire::client::KeptPart;
use eyas_wire::view::{Explanation, JobState, JobView};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::run::QUEUE_MORE;
use super::*;
use crate::answers::changes;
use crate::journal::{Journal, JournalOptions};
use crate::keys::Keys;
use crate::log::{Log, RecordNumber};
use crate::names::NamedFiles;
use crate::service::{
    Answer, Caller, CheckedJob, DispatcherHandle, Service, ServiceError, TaskQuery,
};

mod failing;
mod following;
mod interrupted;
mod named;
mod parts;
mod service;

struct Dispatcher {
    core: DispatcherCore,
    durable: std_mpsc::Receiver<RecordNumber>,
    calls: mpsc::Receiver<CoreCall>,
    service: Caller,
    handle: DispatcherHandle,
    outbox: Outbox<ToExecutor>,
    sent: OutboxReader<ToExecutor>,
    /// The minor version of the protocol that executors have which join.
    minor: u16,
    folder: TempDir,
}

fn core_in(folder: &TempDir) -> (DispatcherCore, std_mpsc::Receiver<RecordNumber>) {
    let (sender, durable) = std_mpsc::channel();
    let path = folder.path().join("journal.redb");
    let options = JournalOptions { is_scratch: false, check: Some(folder.path().join("differs")) };
    let journal =
        Journal::open(&path, options, move |number| _ = sender.send(number), |e| panic!("{e}"))
            .unwrap();
    let config =
        eyas_sched::Config { policy: PlacementPolicy::FirstAvailable, ..Default::default() };
    let (scheduler, log): (_, Arc<dyn Log>) = (Scheduler::new(config), Arc::new(journal));
    let config = CoreConfig {
        policy: "fa".into(),
        caching: false,
        heartbeat: Duration::from_secs(3),
        processes: Vec::new(),
    };
    let names = Arc::new(NamedFiles::open(log.clone()).unwrap());
    let mut core = DispatcherCore::new(config, scheduler, log, names);
    core.recover().unwrap();
    (core, durable)
}

/// Where callers of a core go.
fn handle_of(
    core: &DispatcherCore,
    folder: &TempDir,
) -> (DispatcherHandle, mpsc::Receiver<CoreCall>) {
    let (sender, calls) = mpsc::channel(64);
    let place = folder.path().join("keys");
    let opened = Keys::open(PrivateFolder::make(&place).unwrap(), &place, true).unwrap();
    let keys = Arc::new(opened.at("test", "127.0.0.1:1", DataMode::Encrypted).unwrap());
    let issue_access = Arc::new(|| Ok(String::new()));
    let pools =
        PoolsConfig { folder: folder.path().join("pools"), eyas: "eyas".into(), issue_access };
    let (pools, _) = PoolsHandle::start(pools, core.pools.subscribe(), mpsc::channel(1).0);
    let (executors, _) = mpsc::channel(1);
    (
        DispatcherHandle {
            calls: sender,
            executors,
            log: core.records.log().clone(),
            keys,
            pools,
            names: core.names.clone(),
            events: core.replies.events(),
        },
        calls,
    )
}

/// Reads archived jobs.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

const ADMIN: Principal = Principal::Key(KeyId(1), KeyRole::Admin);

impl Dispatcher {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (core, durable) = core_in(&folder);
        let (handle, calls) = handle_of(&core, &folder);
        let (outbox, sent) = Outbox::with_reader();
        Dispatcher {
            core,
            durable,
            calls,
            service: Caller::new(handle.clone(), ADMIN),
            handle,
            outbox,
            sent,
            minor: eyas_wire::PROTOCOL_VERSION.1,
            folder,
        }
    }

    /// Killed as it is, and started again in the same folder.
    fn restart(&mut self) {
        // The file is free once the journal's thread has ended. Its last writes were not
        // acknowledged.
        let (_, nothing) = std_mpsc::channel();
        let durable = std::mem::replace(&mut self.durable, nothing);
        let elsewhere = tempfile::tempdir().unwrap();
        let (other, _) = core_in(&elsewhere);
        (self.handle, self.calls) = handle_of(&other, &elsewhere);
        self.service = Caller::new(self.handle.clone(), ADMIN);
        drop(std::mem::replace(&mut self.core, other));
        while durable.recv().is_ok() {}
        (self.core, self.durable) = core_in(&self.folder);
        (self.handle, self.calls) = handle_of(&self.core, &self.folder);
        self.service = Caller::new(self.handle.clone(), ADMIN);
        self.settle();
    }

    /// Waits until all that is to be written is on disk.
    fn settle(&mut self) {
        self.core.write_results();
        while self.core.replies.is_behind() {
            let number = self.durable.recv().unwrap();
            self.core.durable(number);
        }
        while self.core.jobs.has_more_to_queue() {
            self.core.tell_jobs(QUEUE_MORE);
        }
        self.core.executors.flush();
    }

    /// The messages that executors were sent since the last time.
    fn sent(&mut self) -> Vec<ToExecutor> {
        std::iter::from_fn(|| self.sent.try_next()).flatten().collect()
    }

    /// Handles what callers have sent.
    fn handle_calls(&mut self) {
        while let Ok(call) = self.calls.try_recv() {
            self.core.answer_call(call);
        }
    }

    /// What the service answers to a call, once everything is on disk.
    fn ask<T>(&mut self, call: impl AsyncFnOnce(&Caller) -> Answer<T>) -> Answer<T> {
        let service = self.service.clone();
        let _runtime = RUNTIME.enter();
        // A test polls more than the runtime grants a task at a time.
        let mut call = pin!(tokio::task::unconstrained(call(&service)));
        let context = &mut Context::from_waker(Waker::noop());
        let deadline = Instant::now() + Duration::from_secs(30);
        if let Poll::Ready(refused) = call.as_mut().poll(context) {
            return refused;
        }
        loop {
            self.handle_calls();
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return answer;
            }
            self.settle();
            if let Poll::Ready(answer) = call.as_mut().poll(context) {
                return answer;
            }
            assert!(Instant::now() < deadline, "no answer comes");
            std::thread::sleep(Duration::from_millis(1));
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
            transfer: eyas_wire::executor::TransferAddress {
                address: ([127, 0, 0, 1], 1).into(),
                proxy: None,
            },
            files: None,
            origin: None,
            held: Vec::new(),
        };
        let (reply, mut id) = oneshot::channel();
        self.core.handle(CoreMessage::Joined {
            registration: Box::new(registration),
            minor: self.minor,
            accept: Box::default(),
            outbox: self.outbox.clone(),
            reply,
        });
        id.try_recv().unwrap().0
    }

    fn submit(&mut self, tasks: usize) -> JobId {
        let mut spec =
            JobSpec { templates: vec![TaskTemplate::new(Program::Noop)], ..JobSpec::default() };
        spec.push(&vec![TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() }; tasks])
            .unwrap();
        self.submit_spec(spec)
    }

    fn submit_spec(&mut self, spec: JobSpec) -> JobId {
        let job = CheckedJob::check(Box::new(spec)).unwrap();
        self.ask(async |service| service.submit(job).await).unwrap()
    }

    /// Submits two tasks: the first keeps its output; the second reads it, and is too large for any
    /// executor.
    fn submit_pair(&mut self) -> JobId {
        self.submit_kept(false, 64_000)
    }

    /// Submits two tasks: the first keeps its output; the second reads it, needs `cpus_milli`, and
    /// keeps its own.
    fn submit_kept(&mut self, until_read: bool, cpus_milli: u32) -> JobId {
        self.core.caching = true;
        let mut templates = [TaskTemplate::new(Program::Noop), TaskTemplate::new(Program::Noop)];
        for (template, until_read) in templates.iter_mut().zip([until_read, false]) {
            let (pattern, destination) = (Template::literal("out"), None);
            template.outputs.push(OutputSpec {
                pattern,
                destination,
                replicas: 1,
                until_read,
                optional: false,
                when: DeliverWhen::Success,
            });
        }
        templates[1].resources.cpus_milli = cpus_milli;
        let mut spec = JobSpec { templates: templates.into(), ..JobSpec::default() };
        let input = Input { from: InputFrom::Output { task: 0, output: 0 }, name: None };
        let item = |template, inputs| TaskItem { template, values: Vec::new(), inputs };
        spec.push(&[item(0, Vec::new()), item(1, vec![input])]).unwrap();
        self.submit_spec(spec)
    }

    fn store(&mut self, executor: ExecutorId, object: &ObjectSpec) {
        let message = FromExecutor::Stored { object: object.id(), size_bytes: object.size_bytes() };
        self.core.handle(CoreMessage::Messages { executor, messages: vec![message] });
    }

    fn view(&mut self, job: JobId) -> JobView {
        self.ask(async |service| service.job(job).await).unwrap()
    }

    fn log(&mut self, task: TaskId) -> TaskResult {
        self.ask(async |service| service.result(task).await).unwrap().expect("it has ended")
    }

    fn cancel(&mut self, job: JobId, task: Option<u32>) -> u64 {
        self.ask(async |service| service.cancel(job, task).await).unwrap()
    }

    fn retry(&mut self, job: JobId) -> u64 {
        self.ask(async |service| service.retry(job, Vec::new()).await).unwrap()
    }

    fn explain(&mut self, task: TaskId) -> Explanation {
        self.ask(async |service| service.explain(task).await).unwrap()
    }

    fn end(&mut self, executor: ExecutorId, task: TaskId, outcome: Outcome) {
        let message = FromExecutor::Ended { task, attempt: 0, outcome: Box::new(outcome) };
        self.core.handle(CoreMessage::Messages { executor, messages: vec![message] });
    }

    /// A task of the kept ones ends, with its output in the executor's store.
    fn end_kept(&mut self, executor: ExecutorId, task: TaskId) -> ObjectSpec {
        let object = ObjectSpec::kept(task, "out", 7, "content", FileMode::READABLE);
        self.store(executor, &object);
        self.end(
            executor,
            task,
            Outcome {
                outputs: vec![Delivered { output: 0, object: object.clone(), place: None }],
                ..wrote(0)
            },
        );
        object
    }

    fn kept_part(&mut self, job: JobId) -> KeptPart {
        self.ask(async |service| service.kept(job, 0..u32::MAX, Vec::new()).await).unwrap()
    }

    fn ids(&self) -> Vec<JobId> {
        self.core.jobs.all().map(|job| job.id).collect()
    }

    fn phases(&self, job: JobId) -> Vec<Phase> {
        self.core.jobs.get(job).unwrap().tasks.iter().map(|task| task.phase).collect()
    }
}

#[tokio::test]
async fn a_submission_is_answered_once_it_is_on_disk() {
    let mut dispatcher = Dispatcher::start();
    let spec = JobSpec { templates: vec![TaskTemplate::new(Program::Noop)], ..JobSpec::default() };
    let job = CheckedJob::check(Box::new(spec)).unwrap();
    let service = dispatcher.service.clone();
    let mut submit = pin!(service.submit(job));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(submit.as_mut().poll(context).is_pending());
    dispatcher.handle_calls();
    assert!(submit.as_mut().poll(context).is_pending(), "it is not on disk");
    dispatcher.settle();
    assert!(matches!(submit.as_mut().poll(context), Poll::Ready(Ok(JobId(1)))));
}

fn wrote(bytes: usize) -> Outcome {
    Outcome { stdout: vec![b'x'; bytes], ..Outcome::of(Status::Succeeded) }
}

fn task(job: JobId, index: u32) -> TaskId {
    TaskId { job, index }
}

#[tokio::test]
async fn what_was_said_to_be_cancelled_does_not_run_again() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.join(1);
    let job = dispatcher.submit(4);
    assert_eq!(
        dispatcher.phases(job),
        [Phase::Assigned, Phase::Assigned, Phase::Waiting, Phase::Waiting]
    );
    assert_eq!(dispatcher.cancel(job, Some(1)), 1);
    dispatcher.restart();
    assert_eq!(
        dispatcher.phases(job),
        [Phase::Waiting, Phase::Cancelled, Phase::Waiting, Phase::Waiting]
    );
    let executor = dispatcher.join(1);
    // A result that gathers in between keeps its place.
    dispatcher.end(executor, task(job, 0), wrote(3));
    assert_eq!(dispatcher.cancel(job, None), 2);
    assert_eq!(dispatcher.cancel(job, None), 2, "two have not ended yet");
    assert_eq!(dispatcher.log(task(job, 0)).outcome, wrote(3));
    dispatcher.restart();
    assert_eq!(
        dispatcher.phases(job),
        [Phase::Succeeded, Phase::Cancelled, Phase::Cancelled, Phase::Cancelled]
    );
    assert_eq!(dispatcher.view(job).state, JobState::Cancelled);
}

/// The results of the second job are few entries of the journal. If each result had its entry read
/// anew, the third job would take minutes.
#[tokio::test]
async fn thousands_of_reused_results_are_reused_again() {
    const TASKS: u32 = 10_000;
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(TASKS);
    let mut run = |ran: u32| {
        let program = Program::Command(vec![Template::literal("true")]);
        let templates = vec![TaskTemplate::new(program)];
        let mut spec = JobSpec { templates, reuse: true, ..JobSpec::default() };
        let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
        spec.push(&vec![item; TASKS as usize]).unwrap();
        let job = dispatcher.submit_spec(spec);
        dispatcher.settle();
        for index in 0..ran {
            dispatcher.end(executor, task(job, index), Outcome::of(Status::Succeeded));
        }
        let view = dispatcher.view(job);
        (view.tasks.succeeded, view.reused)
    };
    let all = u64::from(TASKS);
    assert_eq!(run(TASKS), (all, 0));
    assert_eq!(run(0), (all, all));
    assert_eq!(run(0), (all, all));
}

#[tokio::test]
async fn a_trace_has_what_succeeded_also_after_a_restart() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(4);
    let job = dispatcher.submit(4);
    let ran = |ran_us| Outcome { waited_us: 1, ran_us, cpu_us: 2, ..wrote(1) };
    dispatcher.end(executor, task(job, 2), ran(30));
    dispatcher.end(executor, task(job, 0), ran(10));
    dispatcher.end(executor, task(job, 1), Outcome::of(Status::Exited(1)));
    let mut trace = || {
        let part = dispatcher.ask(async |service| service.trace(job, 0).await).unwrap();
        assert_eq!(part.next, None);
        let times = part
            .tasks
            .iter()
            .map(|task| (task.waited_us, task.ran_us, task.cpu_us))
            .collect::<Vec<_>>();
        dispatcher.restart();
        times
    };
    assert_eq!(trace(), [(1, 10, 2), (1, 30, 2)]);
    assert_eq!(trace(), [(1, 10, 2), (1, 30, 2)]);
}

#[tokio::test]
async fn what_was_said_to_be_run_again_is_after_a_kill() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let job = dispatcher.submit(2);
    dispatcher.end(executor, task(job, 0), Outcome::of(Status::Exited(1)));
    dispatcher.end(executor, task(job, 1), wrote(1));
    assert_eq!(dispatcher.view(job).state, JobState::Failed);
    assert_eq!(dispatcher.retry(job), 1);
    dispatcher.restart();
    assert_eq!(dispatcher.phases(job), [Phase::Waiting, Phase::Succeeded]);
}

#[tokio::test]
async fn tasks_whose_inputs_are_pushed_first_wait_for_nothing_else() {
    let mut dispatcher = Dispatcher::start();
    dispatcher.core.caching = true;
    let executor = dispatcher.join(1);
    let version = Version::Modified { mtime_ns: 0, size_bytes: 7 };
    let object = ObjectSpec { source: "file:///a".into(), version, mode: FileMode::READABLE };
    let submit = |dispatcher: &mut Dispatcher, distribution| {
        let mut spec = JobSpec {
            templates: vec![TaskTemplate::new(Program::Noop)],
            distribution,
            ..JobSpec::default()
        };
        spec.push_objects(vec![object.clone()]).unwrap();
        spec.broadcast.push(0);
        let input = Input { from: InputFrom::Object(0), name: None };
        spec.push(&[TaskItem { template: 0, values: Vec::new(), inputs: vec![input] }]).unwrap();
        dispatcher.submit_spec(spec)
    };
    let first = submit(&mut dispatcher, Distribution::SpanningTree);
    let second = submit(&mut dispatcher, Distribution::SpanningTree);
    assert_eq!(
        (dispatcher.phases(first), dispatcher.phases(second)),
        (vec![Phase::Waiting], vec![Phase::Waiting])
    );
    // Cancelled before it has begun, it can be retried all the same.
    assert_eq!(dispatcher.cancel(second, None), 1);
    assert!(!dispatcher.core.jobs.get(second).unwrap().is_pushed_first());
    dispatcher.store(executor, &object);
    dispatcher.settle();
    assert_eq!(dispatcher.phases(first), [Phase::Assigned]);
    assert_eq!(dispatcher.retry(second), 1);
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
    assert_eq!(dispatcher.cancel(chained, None), 1);
    assert!(dispatcher.core.pushes.spec(object.id()).is_none());
}

#[tokio::test]
async fn nothing_that_was_shown_goes_back() {
    let mut dispatcher = Dispatcher::start();
    let executor = dispatcher.join(1);
    let job = dispatcher.submit(2);
    let watched = dispatcher.core.watch(job).unwrap();
    let shown = || watched.borrow().view.tasks.succeeded;
    dispatcher.end(executor, task(job, 0), wrote(3));
    // Asked while it is being written, and while more has gathered.
    let service = dispatcher.service.clone();
    let (mut first, mut log) = (Box::pin(service.job(job)), Box::pin(service.result(task(job, 0))));
    let context = &mut Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(context).is_pending() && log.as_mut().poll(context).is_pending());
    dispatcher.handle_calls();
    dispatcher.end(executor, task(job, 1), wrote(3));
    dispatcher.core.tick(0);
    assert!(first.as_mut().poll(context).is_pending() && log.as_mut().poll(context).is_pending());
    assert_eq!(shown(), 0);
    dispatcher.settle();
    assert_eq!(
        (first.await.unwrap().tasks.succeeded, shown()),
        (1, 2),
        "each tells what it was asked"
    );
    assert_eq!(log.await.unwrap().unwrap().outcome, wrote(3));
    // It has a part in the journal, which is opened again.
    drop(service);
    assert!(watched.borrow().is_over);
    let before = dispatcher.view(job);
    dispatcher.restart();
    assert_eq!(dispatcher.view(job).tasks, before.tasks);
}

#[tokio::test]
async fn a_task_that_takes_executors_with_it_fails_and_those_behind_it_do_not() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit(3);
    for loss in 1..=jobs::MAX_LOSSES {
        let executor = dispatcher.join(1);
        // The second is lined up behind it.
        assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Assigned, Phase::Waiting]);
        dispatcher.core.handle(CoreMessage::Gone { executor });
        let losses: Vec<_> =
            dispatcher.core.jobs.get(job).unwrap().tasks.iter().map(|task| task.losses).collect();
        assert_eq!(losses, [loss, 0, 0]);
    }
    assert_eq!(dispatcher.phases(job), [Phase::Failed, Phase::Waiting, Phase::Waiting]);
    let status = dispatcher.log(task(job, 0)).outcome.status.to_string();
    assert!(status.contains("5 executors were lost"), "{status}");
    // As many as fit may have run, whichever job they are of; one that left in good order took none
    // with it.
    let other = dispatcher.submit(4);
    let executor = dispatcher.join(4);
    dispatcher.core.handle(CoreMessage::Gone { executor });
    let losses = |job| {
        dispatcher
            .core
            .jobs
            .get(job)
            .unwrap()
            .tasks
            .iter()
            .map(|task| task.losses)
            .collect::<Vec<_>>()
    };
    assert_eq!((losses(job), losses(other)), (vec![5, 1, 1], vec![1, 1, 0, 0]));
    let executor = dispatcher.join(4);
    dispatcher
        .core
        .handle(CoreMessage::Messages { executor, messages: vec![FromExecutor::Leaving] });
    assert_eq!(dispatcher.core.jobs.get(job).unwrap().tasks[1].losses, 1);
}

#[tokio::test]
async fn output_has_a_bound_and_the_oldest_ended_job_makes_room() {
    let mut dispatcher = Dispatcher::start();
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
    let watching = dispatcher.core.watch(jobs[1]).unwrap();
    dispatcher.end(executor, task(running, 1), wrote(1));
    let cut = dispatcher.log(task(running, 1)).outcome;
    assert_eq!((cut.stdout.len(), cut.cut_bytes), (0, 1));
    let JobView { is_output_cut, warnings, .. } = dispatcher.view(running);
    assert!(
        is_output_cut && warnings.iter().any(|warning| warning.contains("was cut")),
        "{warnings:?}"
    );
    assert!(!dispatcher.view(jobs[1]).is_output_cut);
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
    let mut dispatcher = Dispatcher::start();
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
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit_kept(true, 1000);
    let executor = dispatcher.join(1);
    assert_eq!(dispatcher.kept_part(job).unfinished, 1);
    let read = dispatcher.end_kept(executor, task(job, 0));
    let asked_for = dispatcher.end_kept(executor, task(job, 1));
    // The output whose only reader has ended is released; the other one is reported.
    assert_eq!(dispatcher.core.scheduler.moving_from(executor), 0);
    let part = dispatcher.kept_part(job);
    assert_eq!(
        (part.outputs.len(), &part.outputs[0].object, part.outputs[0].holders.len()),
        (1, &asked_for, 1)
    );
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
    assert_eq!(
        (dispatcher.view(job).state, dispatcher.view(job).recomputed),
        (JobState::Succeeded, 2)
    );
    // A client that asks for it does not wait for that.
    dispatcher.core.handle(CoreMessage::Gone { executor });
    let executor = dispatcher.join(1);
    dispatcher.store(executor, &read);
    assert_eq!(dispatcher.kept_part(job).outputs[0].holders, []);
    assert_eq!(
        dispatcher.phases(job),
        [Succeeded, Assigned],
        "what it is made from is still in a store"
    );
    dispatcher.end_kept(executor, task(job, 1));
    assert_eq!(dispatcher.ask(async |service| service.release(job).await).unwrap(), 2);
    dispatcher.core.handle(CoreMessage::Gone { executor });
    dispatcher.restart();
    dispatcher.join(1);
    dispatcher.core.clock.advance_us(RETURN_GRACE_US);
    dispatcher.core.tick(0);
    assert_eq!(dispatcher.phases(job), [Succeeded, Succeeded]);
}

#[tokio::test]
async fn what_is_lost_together_is_made_again_in_order() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit_kept(false, 1000);
    let executor = dispatcher.join(2);
    dispatcher.end_kept(executor, task(job, 0));
    dispatcher.end_kept(executor, task(job, 1));
    dispatcher.core.handle(CoreMessage::Gone { executor });
    let explained = dispatcher.explain(task(job, 1));
    assert!(
        explained.because.iter().any(|line| line.starts_with("No executor that is here")),
        "{explained:?}"
    );
    let executor = dispatcher.join(2);
    assert_eq!(dispatcher.kept_part(job).outputs.len(), 2);
    assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Blocked]);
    dispatcher.end_kept(executor, task(job, 0));
    assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Assigned]);
    dispatcher.settle();
    dispatcher.restart();
    assert_eq!(
        dispatcher.phases(job),
        [Phase::Succeeded, Phase::Blocked],
        "who has what it reads may come"
    );
    assert_eq!(dispatcher.view(job).recomputed, 2);
}

#[tokio::test]
async fn a_cluster_that_stops_loses_nothing() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit_pair();
    let executor = dispatcher.join(1);
    dispatcher.end_kept(executor, task(job, 0));
    dispatcher.core.begin_to_stop();
    dispatcher
        .core
        .handle(CoreMessage::Messages { executor, messages: vec![FromExecutor::Leaving] });
    dispatcher.core.tick(0);
    dispatcher.settle();
    dispatcher.restart();
    assert_eq!(
        (dispatcher.phases(job), dispatcher.view(job).recomputed),
        (vec![Phase::Succeeded, Phase::Blocked], 0)
    );
}

#[tokio::test]
async fn who_waits_to_read_another_output_of_a_task_that_runs_again_waits_for_it() {
    let mut dispatcher = Dispatcher::start();
    let job = dispatcher.submit_pair();
    let executor = dispatcher.join(1);
    let [read, lost] = ["read", "lost"]
        .map(|file| ObjectSpec::kept(task(job, 0), file, 7, "x", FileMode::READABLE));
    let outputs = || {
        [&read, &lost]
            .map(|object| Delivered { output: 0, object: object.clone(), place: None })
            .into()
    };
    for _ in 0..2 {
        [&read, &lost].into_iter().for_each(|object| dispatcher.store(executor, object));
        dispatcher.end(executor, task(job, 0), Outcome { outputs: outputs(), ..wrote(0) });
        assert_eq!(dispatcher.phases(job), [Phase::Succeeded, Phase::Waiting]);
        let evicted = FromExecutor::Evicted { object: lost.id() };
        dispatcher.core.handle(CoreMessage::Messages { executor, messages: vec![evicted] });
        assert_eq!(dispatcher.kept_part(job).outputs.len(), 2);
        assert_eq!(dispatcher.phases(job), [Phase::Assigned, Phase::Blocked]);
    }
}

#[tokio::test]
async fn ended_jobs_leave_memory_and_are_read_when_they_are_asked_for() {
    let mut dispatcher = Dispatcher::start();
    let config = jobs::Config { max_ended_in_memory: 1, ..jobs::Config::default() };
    dispatcher.core.jobs = Jobs::new(config, dispatcher.core.clock.now_us());
    let executor = dispatcher.join(1);
    let jobs: Vec<_> = (0..3).map(|_| dispatcher.submit(2)).collect();
    for job in &jobs {
        dispatcher.end(executor, task(*job, 0), wrote(70_000));
        dispatcher.end(executor, task(*job, 1), Outcome::of(Status::Exited(1)));
    }
    let views =
        |dispatcher: &mut Dispatcher| dispatcher.ask(async |service| service.jobs().await).unwrap();
    let report = |dispatcher: &mut Dispatcher, job| {
        let report = dispatcher.ask(async |service| service.report(job).await).unwrap();
        (report.metrics, report.samples, report.failures)
    };
    let (before, report_before) = (views(&mut dispatcher), report(&mut dispatcher, jobs[0]));
    dispatcher.core.tick(0);
    assert_eq!(dispatcher.ids(), [jobs[2]]);
    for _ in 0..2 {
        assert_eq!(views(&mut dispatcher), before);
        assert_eq!(dispatcher.log(task(jobs[0], 0)).outcome, wrote(70_000));
        assert_eq!(report(&mut dispatcher, jobs[0]), report_before);
        let query = TaskQuery { from: 0, limit: 9, failed: true };
        let failed = dispatcher.ask(async |service| service.tasks(jobs[1], query).await).unwrap();
        assert_eq!((failed.len(), failed[0].task), (1, task(jobs[1], 1)));
        dispatcher.restart();
        assert!(
            dispatcher.ids().is_empty(),
            "a dispatcher that starts reads no job that has ended"
        );
        dispatcher.join(1);
    }
    // One that goes on is in memory again.
    assert_eq!(dispatcher.retry(jobs[0]), 1);
    assert_eq!(dispatcher.phases(jobs[0]), [Phase::Succeeded, Phase::Assigned]);
    let why =
        dispatcher.ask(async |service| service.forget(jobs[0]).await).unwrap_err().to_string();
    assert!(why.contains("still running") && why.contains("cancel"), "{why}");
    assert_eq!(dispatcher.ask(async |service| service.forget(jobs[1]).await).unwrap(), 2);
    assert_eq!(dispatcher.core.jobs.output_bytes(), 140_000);
    dispatcher.restart();
    let left: Vec<_> = views(&mut dispatcher).iter().map(|view| view.job).collect();
    assert_eq!((left, dispatcher.core.jobs.output_bytes()), (vec![jobs[0], jobs[2]], 140_000));
    assert!(!dispatcher.folder.path().join("differs").exists());
    let differs = dispatcher.folder.path().join("differs");
    dispatcher.core.records.compare_with(&dispatcher.core.jobs, &differs).unwrap();
    assert!(!dispatcher.folder.path().join("differs").exists());
}

#[tokio::test]
async fn a_dispatcher_with_nothing_to_do_sleeps() {
    let mut dispatcher = Dispatcher::start();
    assert_eq!(dispatcher.core.next_due_us(), None);
    let executor = dispatcher.join(1);
    let silence_us = dispatcher.core.deadlines.silence_us();
    let due_us = dispatcher.core.next_due_us().unwrap();
    assert!(
        due_us > dispatcher.core.clock.now_us() + silence_us / 2,
        "only the executor's heartbeat is awaited"
    );
    let job = dispatcher.submit(1);
    assert!(dispatcher.core.next_due_us().unwrap() < due_us, "a job that runs is sampled");
    dispatcher.end(executor, task(job, 0), wrote(1));
    dispatcher.settle();
    dispatcher.core.tick(0);
    dispatcher.settle();
    assert!(dispatcher.core.next_due_us().unwrap() >= due_us);
}
