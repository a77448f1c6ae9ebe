//! How long a dispatcher holds up others for one task with very many inputs.
//!
//! A real dispatcher, and light executors: sessions that report each input as stored and end the task as soon as it is
//! assigned. Beside that, a second client asks for the list of executors again and again. The figure is the longest
//! time of one answer. The dispatcher works on one event at a time, so an answer takes as long as the event before it.
//! The machine may be busy with other programs, so there is a second figure: the most processor time that one thread of
//! the dispatcher spent while an answer was awaited. It is at least that of the event, because one thread handles it.
//!
//! The task fails on its first run, for which executors have none of its inputs; then the job is retried, and an
//! executor has them. With more executors, each task of the job reads the same inputs, so that each executor has them
//! at the end. The limit is 0.2 s of processor time for a task with 1,000,000 inputs.
//!
//! `cargo bench -p eyas-dev --bench inputs`; `-- --tiny` only shows that it runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eyas_client::Client;
use eyas_dev::bench::{home, is_tiny};
use eyas_session::{Access, Session, dial};
use eyas_types::outcome::FailureKind;
use eyas_types::{
    Distribution, FileMode, Input, InputFrom, JobId, ObjectSpec, Outcome, Program, Status, TaskItem, TaskTemplate,
    Version,
};
use eyas_wire::Role;
use eyas_wire::client::{FromClient, SUBMISSION_PART, ToClient};
use eyas_wire::executor::{AssignedInput, FromExecutor, ToExecutor};
use light::{Dispatcher, LightExecutors};

#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "dispatch/light.rs"]
mod light;

const LIMIT_S: f64 = 0.2;
/// Time within which a job must end.
const PATIENCE: Duration = Duration::from_secs(600);

/// Size of the measurement.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Of each task.
    pub inputs: u32,
    /// Numbers of executors, each of which runs one task.
    pub executors: [usize; 2],
}

const FULL: Scale = Scale { inputs: 1_000_000, executors: [1, 3] };
/// Only shows that it runs.
pub const TINY: Scale = Scale { inputs: 20_000, executors: [1, 2] };

/// The longest time of an answer while something else went on.
#[derive(Clone, Copy, Default)]
struct Longest {
    answers: u32,
    answer_s: f64,
    processor_s: f64,
}

/// A client that asks for the list of executors until it is stopped.
struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Longest>,
}

fn main() {
    run(if is_tiny() { TINY } else { FULL });
}

/// Measures and prints.
pub fn run(scale: Scale) {
    println!("tasks with {} inputs; longest answer to another client", scale.inputs);
    println!("executors   during                 took, s   answers   longest, s   of it a thread's processor time, s");
    for executors in scale.executors {
        measure(scale, executors);
    }
    println!("limit: {LIMIT_S} s of processor time");
}

fn measure(scale: Scale, executors: usize) {
    let home = home();
    let dispatcher = Dispatcher::start(home.path(), "3s");
    let access = Access::load(&dispatcher.access).expect("written whole");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    join(&dispatcher.access, executors);
    let show = |what: &str, began: Instant, longest: Longest| {
        let took_s = began.elapsed().as_secs_f64();
        let Longest { answers, answer_s, processor_s } = longest;
        println!("{executors:>9}   {what:<22} {took_s:>7.2} {answers:>9} {answer_s:>12.3} {processor_s:>12.3}");
    };
    runtime.block_on(async {
        let mut session = dial(&access, Role::Client).await.expect("it listens");
        let mut client = Client::connect(&access).await.expect("it listens");
        let (began, prober) = (Instant::now(), Prober::start(&access, &dispatcher));
        let job = submit(&mut session, scale, executors as u32).await;
        show("submission", began, prober.stop());
        let (began, prober) = (Instant::now(), Prober::start(&access, &dispatcher));
        watch(&mut client, job).await;
        show("first run", began, prober.stop());
        let (began, prober) = (Instant::now(), Prober::start(&access, &dispatcher));
        let retry = FromClient::Retry { job, current: Vec::new() };
        let answer = client.ask(retry).await.expect("the dispatcher answers");
        assert!(matches!(answer, ToClient::Done { .. }), "{answer:?}");
        watch(&mut client, job).await;
        show("retry", began, prober.stop());
    });
}

async fn watch(client: &mut Client, job: JobId) {
    client.watch(job, false, PATIENCE, |_| {}).await.expect("the dispatcher answers");
}

/// Executors that report the inputs of a task as stored, and whose first tasks fail.
fn join(access: &Path, count: usize) {
    let to_fail = AtomicU32::new(count as u32);
    let stored = |inputs: Vec<AssignedInput>| {
        let stored = inputs
            .into_iter()
            .map(|input| FromExecutor::Stored { object: input.object.id(), size_bytes: input.object.size_bytes() });
        stored.collect::<Vec<_>>()
    };
    let answers = move |command| match command {
        ToExecutor::Inputs(inputs) => stored(inputs),
        ToExecutor::Assign(assignment) => {
            let fails = to_fail.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
            let outcome = match fails {
                true => Outcome::failed(FailureKind::Output, "the first run fails"),
                false => Outcome::of(Status::Succeeded),
            };
            let (task, attempt, outcome) = (assignment.task, assignment.attempt, Box::new(outcome));
            let mut answers = stored(assignment.inputs);
            answers.push(FromExecutor::Ended { task, attempt, outcome });
            answers
        }
        _ => Vec::new(),
    };
    LightExecutors::join_answering(access, count, Arc::new(answers));
}

async fn submit(session: &mut Session, scale: Scale, tasks: u32) -> JobId {
    let writer = &mut session.writer;
    let inputs = (0..scale.inputs).map(|object| Input { from: InputFrom::Object(object), name: None }).collect();
    let templates = vec![TaskTemplate { inputs, ..TaskTemplate::new(Program::Noop) }];
    let (name, broadcast, distribution) = ("inputs".into(), Vec::new(), Distribution::default());
    let submit = FromClient::Submit {
        name,
        user: String::new(),
        templates,
        reuse: false,
        broadcast,
        distribution,
        tasks: tasks.into(),
    };
    writer.send(&[submit]).await.expect("it reads");
    let objects: Vec<_> = (0..scale.inputs).map(object).collect();
    for part in objects.chunks(SUBMISSION_PART) {
        writer.send(&[FromClient::Objects(part.to_vec())]).await.expect("it reads");
    }
    let item = TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
    writer.send(&[FromClient::Items(vec![item; tasks as usize])]).await.expect("it reads");
    writer.send(&[FromClient::Commit]).await.expect("it reads");
    match &session.reader.next::<ToClient>().await.expect("an answer")[..] {
        [ToClient::Accepted { job }] => *job,
        other => panic!("{other:?}"),
    }
}

fn object(number: u32) -> ObjectSpec {
    let source = format!("file:///data/survey/run-{:03}/frame-{number:08}.fits", number / 1000);
    let version = Version::Modified { mtime_ns: 1_600_000_000_000_000_000, size_bytes: 1000 + u64::from(number % 7) };
    ObjectSpec { source: source.into(), version, mode: FileMode::READABLE }
}

impl Prober {
    fn start(access: &Access, dispatcher: &Dispatcher) -> Self {
        let (access, process, stop) = (access.clone(), dispatcher.process(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut client = Client::connect(&access).await.expect("it listens");
                let mut longest = Longest::default();
                while longest.answers == 0 || !stopped.load(Ordering::Relaxed) {
                    let (began, before) = (Instant::now(), processor_ns(process));
                    client.ask(FromClient::Executors).await.expect("the dispatcher answers");
                    longest.answers += 1;
                    longest.answer_s = longest.answer_s.max(began.elapsed().as_secs_f64());
                    let spent = processor_ns(process).into_iter().map(|(thread, spent_ns)| {
                        spent_ns.saturating_sub(before.get(&thread).copied().unwrap_or_default())
                    });
                    longest.processor_s = longest.processor_s.max(spent.max().unwrap_or_default() as f64 / 1e9);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                longest
            })
        });
        Prober { stop, thread }
    }

    fn stop(self) -> Longest {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no panic")
    }
}

/// Processor time that each thread of a process has used, in nanoseconds.
fn processor_ns(process: u32) -> BTreeMap<u32, u64> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it lives");
    let threads = threads.filter_map(|thread| {
        let path = thread.ok()?.path();
        // A thread may end meanwhile.
        let times = std::fs::read_to_string(path.join("schedstat")).ok()?;
        Some((path.file_name()?.to_str()?.parse().ok()?, times.split_whitespace().next()?.parse().ok()?))
    });
    threads.collect()
}
