//! How long a dispatcher holds up others for one large job.
//!
//! A real dispatcher with a journal on the disk, and light executors: sessions that report each
//! input as stored and end the task as soon as it is assigned. Beside that, a second client asks
//! again and again for the list of executors, which the dispatcher's state answers at once, and for
//! the list of jobs, which is answered when all that it shows is on disk. The figures are the
//! longest times of one answer. The dispatcher works on one event at a time, so an answer
//! takes as long as the event before it. The machine may be busy with other programs, so there is a
//! third figure: the most processor time that one thread of the dispatcher spent while an answer
//! was awaited. It is at least that of the event, because one thread handles it.
//!
//! A wide job has tasks with 1,000,000 inputs. They fail on their first run, for which executors
//! have none of the inputs; then the job is retried, and the executors have them. A long job has
//! 1,000,000 tasks with one input each. The limit is 0.2 s for each answer.
//!
//! `cargo bench -p eyas-dev --bench large_jobs`; `-- --tiny` only shows that it runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use eyas_client::Client;
use eyas_dev::bench::{home, is_tiny};
use eyas_session::{Access, dial};
use eyas_types::outcome::FailureKind;
use eyas_types::{Input, InputFrom, JobId, Outcome, Program, Status, TaskItem, TaskTemplate};
use eyas_wire::Role;
use eyas_wire::client::{FromClient, ToClient};
use eyas_wire::executor::{AssignedInput, FromExecutor, ToExecutor};
use light::{Dispatcher, LightExecutors};
use submission::submit;

#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "dispatch/light.rs"]
mod light;
#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "dispatch/submission.rs"]
mod submission;

const LIMIT_S: f64 = 0.2;
/// Time within which a job must end.
const PATIENCE: Duration = Duration::from_secs(600);

/// Size of the measurement.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Inputs of each task of a wide job.
    pub inputs: u32,
    /// Numbers of executors, each of which runs one task of it.
    pub executors: [usize; 2],
    /// Tasks of a long job.
    pub tasks: u32,
}

const FULL: Scale = Scale { inputs: 1_000_000, executors: [1, 3], tasks: 1_000_000 };
/// Only shows that it runs.
pub const TINY: Scale = Scale { inputs: 20_000, executors: [1, 2], tasks: 1000 };

/// The longest times of answers while something else went on.
#[derive(Clone, Copy, Default)]
struct LongestTimes {
    answers: u32,
    executors_s: f64,
    jobs_s: f64,
    processor_s: f64,
}

/// A client that asks for lists until it is stopped.
struct Prober {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<LongestTimes>,
}

/// What is measured beside a prober.
struct Stage {
    began: Instant,
    prober: Prober,
}

fn main() {
    run(if is_tiny() { TINY } else { FULL });
}

/// Measures and prints.
pub fn run(scale: Scale) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    println!("longest answers to another client, seconds, and a thread's processor time in one");
    println!(
        "job                              during        took   answers   executors   jobs   \
         processor"
    );
    for executors in scale.executors {
        runtime.block_on(measure_wide(scale, executors));
    }
    runtime.block_on(measure_long(scale));
    println!("limit: {LIMIT_S} s");
}

async fn measure_wide(scale: Scale, executors: usize) {
    let home = home();
    let dispatcher = Dispatcher::start(home.path(), "3s");
    let access = Access::load(&dispatcher.access).expect("written whole");
    join(&dispatcher.access, executors);
    let what = format!("{} x {} inputs", executors, scale.inputs);
    let mut session = dial(&access, Role::Client).await.expect("it listens");
    let mut client = Client::connect(&access).await.expect("it listens");
    let inputs = (0..scale.inputs)
        .map(|object| Input { from: InputFrom::Object(object), name: None })
        .collect();
    let template = TaskTemplate { inputs, ..TaskTemplate::new(Program::Noop) };
    let item = |_| TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
    let stage = Stage::begin(&access, &dispatcher);
    let job = submit(&mut session, "wide", template, scale.inputs, executors as u32, item).await;
    stage.end(&what, "submission");
    let stage = Stage::begin(&access, &dispatcher);
    watch(&mut client, job).await;
    stage.end(&what, "first run");
    let stage = Stage::begin(&access, &dispatcher);
    let answer = client
        .ask(FromClient::Retry { job, current: Vec::new() })
        .await
        .expect("the dispatcher answers");
    assert!(matches!(answer, ToClient::Done { .. }), "{answer:?}");
    watch(&mut client, job).await;
    stage.end(&what, "retry");
}

async fn measure_long(scale: Scale) {
    let home = home();
    let dispatcher = Dispatcher::start(home.path(), "3s");
    let access = Access::load(&dispatcher.access).expect("written whole");
    LightExecutors::join(&dispatcher.access, 4);
    let what = format!("{} tasks", scale.tasks);
    let mut session = dial(&access, Role::Client).await.expect("it listens");
    let mut client = Client::connect(&access).await.expect("it listens");
    let item = |task| {
        let input = Input { from: InputFrom::Object(task), name: None };
        TaskItem { template: 0, values: Vec::new(), inputs: vec![input] }
    };
    let stage = Stage::begin(&access, &dispatcher);
    let template = TaskTemplate::new(Program::Noop);
    let job = submit(&mut session, "long", template, scale.tasks, scale.tasks, item).await;
    stage.end(&what, "submission");
    let stage = Stage::begin(&access, &dispatcher);
    watch(&mut client, job).await;
    // Then it is written as a snapshot.
    tokio::time::sleep(Duration::from_secs(3)).await;
    stage.end(&what, "run");
    let stage = Stage::begin(&access, &dispatcher);
    let answer = client.ask(FromClient::Report { job }).await.expect("the dispatcher answers");
    assert!(matches!(answer, ToClient::Report(_)), "{answer:?}");
    stage.end(&what, "report");
}

impl Stage {
    fn begin(access: &Access, dispatcher: &Dispatcher) -> Self {
        Stage { began: Instant::now(), prober: Prober::start(access, dispatcher) }
    }

    fn end(self, what: &str, during: &str) {
        let took_s = self.began.elapsed().as_secs_f64();
        let LongestTimes { answers, executors_s, jobs_s, processor_s } = self.prober.stop();
        println!(
            "{what:<30}   {during:<11} {took_s:>6.2} {answers:>9} {executors_s:>11.3} \
             {jobs_s:>6.3} {processor_s:>11.3}"
        );
    }
}

async fn watch(client: &mut Client, job: JobId) {
    client.watch(job, false, PATIENCE, |_| {}).await.expect("the dispatcher answers");
}

/// Executors that report the inputs of a task as stored, and whose first tasks fail.
fn join(access: &Path, count: usize) {
    let to_fail = AtomicU32::new(count as u32);
    let stored = |inputs: Vec<AssignedInput>| {
        let stored = inputs.into_iter().map(|input| FromExecutor::Stored {
            object: input.object.id(),
            size_bytes: input.object.size_bytes(),
        });
        stored.collect::<Vec<_>>()
    };
    let answers = move |command| match command {
        ToExecutor::Inputs(inputs) => stored(inputs),
        ToExecutor::Assign(assignment) => {
            let fails = to_fail
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                .is_ok();
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

impl Prober {
    fn start(access: &Access, dispatcher: &Dispatcher) -> Self {
        let (access, process, stop) =
            (access.clone(), dispatcher.process(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let mut client = Client::connect(&access).await.expect("it listens");
                let mut longest = LongestTimes::default();
                while longest.answers == 0 || !stopped.load(Ordering::Relaxed) {
                    let (began, before) = (Instant::now(), processor_ns(process));
                    client.ask(FromClient::Executors).await.expect("the dispatcher answers");
                    longest.executors_s = longest.executors_s.max(began.elapsed().as_secs_f64());
                    let spent = processor_ns(process).into_iter().map(|(thread, spent_ns)| {
                        spent_ns.saturating_sub(before.get(&thread).copied().unwrap_or_default())
                    });
                    longest.processor_s =
                        longest.processor_s.max(spent.max().unwrap_or_default() as f64 / 1e9);
                    let began = Instant::now();
                    client
                        .ask(FromClient::Jobs { job: None })
                        .await
                        .expect("the dispatcher answers");
                    longest.jobs_s = longest.jobs_s.max(began.elapsed().as_secs_f64());
                    longest.answers += 2;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                longest
            })
        });
        Prober { stop, thread }
    }

    fn stop(self) -> LongestTimes {
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
        Some((
            path.file_name()?.to_str()?.parse().ok()?,
            times.split_whitespace().next()?.parse().ok()?,
        ))
    });
    threads.collect()
}
