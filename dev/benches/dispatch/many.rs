//! Very many executors on one dispatcher: its memory, what they cost, and how soon it dispatches
//! again when it was killed and all of them come back.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyas_dev::bench::{home, resident_bytes};
use eyas_session::{Access, dial};
use eyas_types::{Program, TaskItem, TaskTemplate};
use eyas_wire::Role;
use eyas_wire::executor::ToExecutor;

use super::light::{Dispatcher, LightExecutors, end_of};
use super::submission::submit;

/// Time within which the next step must be done.
const PATIENCE: Duration = Duration::from_secs(600);

/// What was measured.
pub struct ManyExecutors {
    /// Time until all had joined.
    pub joined_s: f64,
    /// The dispatcher's memory before it had tasks, and the most while tasks waited.
    pub idle_bytes: u64,
    pub queued_bytes: u64,
    /// Processor time of the dispatcher in a second without tasks.
    pub beating: f64,
    /// Tasks that ended in a second.
    pub per_s: f64,
    /// From the start of the second dispatcher until it assigned a task, and until all executors
    /// were back.
    pub dispatches_s: f64,
    pub back_s: f64,
}

/// Has `executors` light executors join, and gives them `tasks` no-op tasks; kills the dispatcher
/// when half of them are assigned, and starts it again.
pub fn run(executors: usize, tasks: u32, beating: Duration) -> ManyExecutors {
    let home = home();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    let address = free.expect("a free port").to_string();
    let dispatcher = start(home.path(), &address);
    let assigned = Arc::new(AtomicU64::new(0));
    let counted = assigned.clone();
    let answers = move |command: ToExecutor| {
        counted.fetch_add(u64::from(matches!(command, ToExecutor::Assign(_))), Ordering::Relaxed);
        end_of(command).into_iter().collect::<Vec<_>>()
    };
    let began = Instant::now();
    let access = &dispatcher.access;
    let connections = LightExecutors::join_for_good(access, executors, Arc::new(answers));
    let joined_s = began.elapsed().as_secs_f64();
    let idle_bytes = resident_bytes(dispatcher.process(), "VmRSS");
    let (began, before_s) = (Instant::now(), dispatcher.cpu_s());
    std::thread::sleep(beating);
    let beating = (dispatcher.cpu_s() - before_s) / began.elapsed().as_secs_f64();
    let path = access.clone();
    let submitting = std::thread::spawn(move || submit_tasks(&path, tasks));
    wait_for(&assigned, 1);
    let (began, first) = (Instant::now(), assigned.load(Ordering::Relaxed));
    wait_for(&assigned, u64::from(tasks) / 2);
    let last = assigned.load(Ordering::Relaxed);
    let per_s = (last - first) as f64 / began.elapsed().as_secs_f64();
    let queued_bytes = resident_bytes(dispatcher.process(), "VmHWM");
    dispatcher.kill();
    submitting.join().expect("the job was accepted before its first task was assigned");
    // What the dispatcher had sent is counted then.
    wait_for(&connections.lost, executors as u64);
    let before = assigned.load(Ordering::Relaxed);
    let began = Instant::now();
    let _dispatcher = start(home.path(), &address);
    wait_for(&assigned, before + 1);
    let dispatches_s = began.elapsed().as_secs_f64();
    wait_for(&connections.made, 2 * executors as u64);
    let back_s = began.elapsed().as_secs_f64();
    ManyExecutors { joined_s, idle_bytes, queued_bytes, beating, per_s, dispatches_s, back_s }
}

fn start(home: &Path, address: &str) -> Dispatcher {
    let path = std::env::var("PATH").unwrap_or_default();
    Dispatcher::start_as(home, address, "3s", &path, &[])
}

fn submit_tasks(access: &Path, tasks: u32) {
    let access = Access::load(access).expect("written whole");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut session = dial(&access, Role::Client).await.expect("it listens");
        let template = TaskTemplate::new(Program::Noop);
        let item = |_| TaskItem { template: 0, values: Vec::new(), inputs: Vec::new() };
        submit(&mut session, "many", template, 0, tasks, item).await;
    });
}

/// Waits until a count reaches `target`.
fn wait_for(count: &AtomicU64, target: u64) {
    let deadline = Instant::now() + PATIENCE;
    while count.load(Ordering::Relaxed) < target {
        assert!(Instant::now() < deadline, "{count:?} of {target}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
