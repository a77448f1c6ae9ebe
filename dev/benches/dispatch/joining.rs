//! Executors that join while tasks run, and how much longer tasks take then.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use eyas_client::messages::{FromClient, ToClient};
use eyas_client::types::{Program, TaskItem, TaskTemplate};
use eyas_client::{Client, Draft};
use eyas_dev::bench::{OwnedProcess, eyas, home};
use eyas_session::Access;
use eyas_wire::pool::PoolsRequest;

use super::light::{Dispatcher, LightExecutors};

/// Tasks that run before anything is measured.
const WARM: usize = 50;
/// Name of the pool of the executors that join.
const POOL: &str = "batch";
/// Time within which a lost dispatcher must be back; it is never lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long tasks took, from submission to result, in milliseconds.
pub struct Trips {
    pub before: Vec<f64>,
    /// While executors joined.
    pub during: Vec<f64>,
    /// Time that it took them to join.
    pub joined_s: f64,
}

/// Runs one task after the other on two real executors: for a while, and then while further
/// executors join, whose dials are spread over `within`. If they are nodes of a pool, each was
/// requested, and a task waits for it.
pub fn run(executors: usize, within: Duration, before: Duration, is_pool: bool) -> Trips {
    let home = home();
    let path = format!(
        "{}:{}",
        batch_system(home.path()).display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let dispatcher = Dispatcher::start_with(home.path(), "3s", &path);
    let _real: Vec<_> =
        (0..2).map(|number| real_executor(home.path(), &dispatcher.access, number)).collect();
    let access = Access::load(&dispatcher.access).expect("written whole");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut client = runtime.block_on(Client::connect(&access)).expect("the dispatcher listens");
    if is_pool {
        add_pool(home.path(), &dispatcher.access, executors);
        runtime.block_on(async {
            client.submit(tasks(executors, "pool")).await.expect("accepted");
            while waiting_requests(&mut client).await < executors {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    let mut trip = || runtime.block_on(round_trip_ms(&mut client));
    (0..WARM).for_each(|_| _ = trip());
    let (began, mut trips) =
        (Instant::now(), Trips { before: Vec::new(), during: Vec::new(), joined_s: 0.0 });
    while began.elapsed() < before || trips.before.is_empty() {
        trips.before.push(trip());
    }
    let path = dispatcher.access.clone();
    let began = Instant::now();
    let joining = std::thread::spawn(move || {
        LightExecutors::join_within(&path, executors, within, is_pool.then_some(POOL));
        began.elapsed().as_secs_f64()
    });
    while !joining.is_finished() || trips.during.is_empty() {
        trips.during.push(trip());
    }
    trips.joined_s = joining.join().expect("no panic");
    trips
}

/// A folder with commands of a Slurm that accepts every request and grants none.
fn batch_system(home: &Path) -> PathBuf {
    let folder = home.join("slurm");
    std::fs::create_dir(&folder).expect("our own folder");
    let states = "for word; do case $word in --jobs=*) echo ${word#*=} | tr , '\\n' | sed \
                  's/$/|PENDING||/';; esac; done";
    for (name, script) in
        [("sbatch", "echo $$"), ("squeue", states), ("sacct", "exit 1"), ("scancel", "")]
    {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("our own folder");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("our own file");
    }
    folder
}

/// Adds a pool that requests this many nodes.
fn add_pool(home: &Path, access: &Path, nodes: usize) {
    let nodes = nodes.to_string();
    let add = ["pool", "add", "slurm", POOL, "--no-try", "--cpus", "1", "--label", "kind=pool"];
    let sizes = ["--provision", "all-at-once", "--max-nodes", &nodes, "--backlog", &nodes];
    let added =
        eyas(home, &add).args(sizes).arg("--access").arg(access).stderr(Stdio::null()).status();
    assert!(added.expect("eyas can be started").success(), "the pool is not added");
}

/// Number of requests that the batch system has accepted.
async fn waiting_requests(client: &mut Client) -> usize {
    let show = PoolsRequest::Show { name: Some(POOL.into()) };
    let Ok(ToClient::Pools(pools)) = client.ask(FromClient::Pools(show)).await else {
        panic!("the pool was added")
    };
    pools.iter().flat_map(|pool| &pool.requests).filter(|request| request.job.is_some()).count()
}

/// An executor in a process of its own.
fn real_executor(home: &Path, access: &Path, number: usize) -> OwnedProcess {
    let name = format!("real-{number}");
    let words = [
        "start",
        "executor",
        "--slots",
        "1",
        "--keep-free",
        "1MB",
        "--label",
        "kind=real",
        "--owned",
    ];
    let mut command = eyas(home, &words);
    command.args(["--name", &name, "--folder"]).arg(home.join(&name)).arg("--access").arg(access);
    let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    OwnedProcess(process.expect("eyas can be started"))
}

/// A job of no-op tasks for executors of a kind.
fn tasks(count: usize, kind: &str) -> Draft {
    let mut draft = Draft::new("joining");
    let requirements = Some(format!("node.labels.kind == \"{kind}\""));
    let template = TaskTemplate { requirements, ..TaskTemplate::new(Program::Noop) };
    let template = draft.template(template).expect("a small template");
    for _ in 0..count {
        draft
            .task(TaskItem { template, values: Vec::new(), inputs: Vec::new() })
            .expect("a small task");
    }
    draft
}

/// A job of one task that runs on a real executor.
async fn round_trip_ms(client: &mut Client) -> f64 {
    let draft = tasks(1, "real");
    let began = Instant::now();
    let job = client.submit(draft).await.expect("accepted");
    client.watch(job, true, PATIENCE, |_| {}).await.expect("the dispatcher answers");
    began.elapsed().as_secs_f64() * 1e3
}
