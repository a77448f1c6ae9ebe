//! How much memory the dispatcher needs for a task that waits.
//!
//! A real dispatcher without executors; a client submits 1,000,000 tasks, each of which reads one
//! of 100,000 objects and has its path as its item. When the last task is in the queue, what the
//! process's resident memory has grown by is divided by the tasks. It is all there is: the item,
//! the task's state in its job, its place in the queue and in the waiting list of its input, the
//! objects' names, the catalog, the journal's cache, and what the allocator holds back.
//!
//! Expected before measuring: the item's own text (50 bytes) with its end (8); state of the job
//! (32); queue and waiting list (130, the limit of `benches/decisions.rs`); a tenth of an object
//! (250 with its URL, id and catalog entry): 245 bytes. The limit is 300.
//!
//! `cargo bench -p eyas-dev --bench memory`; `-- --tiny` only shows that it runs.

use std::process::Stdio;
use std::time::{Duration, Instant};

use eyas_dev::bench::{OwnedProcess, eyas, home, is_tiny, resident_bytes, wait_for};
use eyas_session::{Access, Session, dial};
use eyas_types::{Input, InputFrom, Program, TaskId, TaskItem, TaskTemplate, Value};
use eyas_wire::Role;
use eyas_wire::client::{FromClient, ToClient};
use submission::{path, submit};

#[path = "dispatch/submission.rs"]
mod submission;

const TARGET_TASK_BYTES: f64 = 300.0;

/// Size of the submission.
#[derive(Clone, Copy)]
pub struct Scale {
    /// Tasks that wait.
    pub tasks: u32,
    /// Objects that they read.
    pub objects: u32,
}

const FULL: Scale = Scale { tasks: 1_000_000, objects: 100_000 };
/// Only shows that it runs.
pub const TINY: Scale = Scale { tasks: 300, objects: 30 };

fn main() {
    run(if is_tiny() { TINY } else { FULL });
}

/// Measures and prints.
pub fn run(scale: Scale) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure(scale));
}

async fn measure(scale: Scale) {
    let home = home();
    let access_path = home.path().join("access.toml");
    let words = ["start", "dispatcher", "--listen", "127.0.0.1:0", "--owned", "--access"];
    let mut dispatcher = eyas(home.path(), &words);
    let dispatcher =
        dispatcher.arg(&access_path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut dispatcher = OwnedProcess(dispatcher.expect("eyas can be started"));
    wait_for(&access_path, &mut dispatcher);
    let access = Access::load(&access_path).expect("written whole");
    let mut session = dial(&access, Role::Client).await.expect("it listens");
    let process = dispatcher.0.id();
    let before = resident_bytes(process, "VmRSS");
    let started = Instant::now();
    let template = TaskTemplate::new(Program::Noop);
    let job = submit(&mut session, "memory", template, scale.objects, scale.tasks, |task| {
        item(task % scale.objects)
    })
    .await;
    let accepted_s = started.elapsed().as_secs_f64();
    wait_until_queued(&mut session, TaskId { job, index: scale.tasks - 1 }).await;
    let queued_s = started.elapsed().as_secs_f64();
    let (after, peak) = (resident_bytes(process, "VmRSS"), resident_bytes(process, "VmHWM"));
    let per_task = |bytes: u64| bytes.saturating_sub(before) as f64 / f64::from(scale.tasks);
    println!("{} tasks over {} objects wait in the queue", scale.tasks, scale.objects);
    println!(
        "resident before, after, at most   {} {} {} MB",
        before >> 20,
        after >> 20,
        peak >> 20
    );
    println!(
        "of a waiting task                 {:.0} bytes   {:.2} of the limit",
        per_task(after),
        per_task(after) / TARGET_TASK_BYTES
    );
    println!("at most, while it was submitted   {:.0} bytes", per_task(peak));
    println!("accepted after {accepted_s:.2} s, in the queue after {queued_s:.2} s");
    println!("\nlimit: {TARGET_TASK_BYTES} bytes");
}

fn item(object: u32) -> TaskItem {
    let input = Input { from: InputFrom::Object(object), name: None };
    TaskItem {
        template: 0,
        values: vec![Value { text: path(object).into(), input: Some(0) }],
        inputs: vec![input],
    }
}

/// Asks about the last task until it no longer waits for its job, but for executors.
async fn wait_until_queued(session: &mut Session, last: TaskId) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        session.writer.send(&[FromClient::Explain { task: last }]).await.expect("it reads");
        match &session.reader.next::<ToClient>().await.expect("an answer")[..] {
            [ToClient::Explained(explained)]
                if explained.because.iter().any(|why| why.contains("no executor")) =>
            {
                return;
            }
            [ToClient::Explained(_)] => {
                assert!(Instant::now() < deadline, "the tasks do not come into the queue")
            }
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
