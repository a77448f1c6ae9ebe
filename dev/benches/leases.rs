//! How many chunks of a job a second the node that leads it lends to workers over real sockets and
//! TLS, and what that costs.
//!
//! A real executor with `--dfs` leads the run; the workers are in this process, some to a
//! connection, and say and are told what tasks of `eyas map` do: each claims leases until there is
//! no more, and commits. They read nothing, so that they are as fast as they are answered. A file
//! is in the run so often that there are chunks enough.
//!
//! Expected before measuring: a claim is a message each way, and 1 µs of the decider, 20 µs in all
//! on both sides; so 100,000 chunks/s on two processors one at a time, and as many times that as a
//! lease has chunks.
//!
//! `cargo bench -p eyas-dev --bench leases`; `-- --tiny` only shows that it runs.

#[allow(clippy::duplicate_mod, reason = "a part of two benchmarks, which one test has both of")]
#[path = "files/cluster.rs"]
mod cluster;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use eyas_client::files::blocks::{
    Alpha, BlockPolicy, DEFAULT_TERM_US, Effect, Lean, Sizes, WorkerBlock,
};
use eyas_client::files::{DfsClient, File, RunAddress, RunSpec, WriteOptions};
use eyas_client::types::dfs::{Format, NodeId};
use eyas_dev::bench::{is_tiny, median, used_cpu_s};
use tokio::task::JoinSet;
use tokio::time::timeout;

use cluster::Cluster;

const TARGET_PER_S: f64 = 100_000.0;

/// A worker asks again what is not answered by then.
const PATIENCE: Duration = Duration::from_secs(1);

/// Chunks of the file, each of one record.
const FILE_CHUNKS: usize = 1000;

/// Workers, and how often the file is in the run.
pub struct Scale {
    connections: usize,
    workers: usize,
    files: usize,
    runs: usize,
}

const FULL: Scale = Scale { connections: 4, workers: 64, files: 250, runs: 5 };
/// Only shows that it runs.
pub const TINY: Scale = Scale { connections: 2, workers: 4, files: 2, runs: 1 };

fn main() {
    run(&if is_tiny() { TINY } else { FULL });
}

/// Measures and prints.
pub fn run(scale: &Scale) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(measure(scale));
}

async fn measure(scale: &Scale) {
    let Scale { connections, workers, files, runs } = *scale;
    let cluster = Cluster::start(1);
    let clients = cluster.clients(connections).await;
    let node = clients[0].membership().await.expect("it answers").alive[0].node;
    let name = "/text".parse().expect("it has nothing odd");
    let content: String = (0..FILE_CHUNKS).map(|line| format!("{line:031}\n")).collect();
    let options = WriteOptions { chunk_bytes: 32, ..WriteOptions::of(Format::Lines) };
    let file = clients[0]
        .write(&name, Cursor::new(content), options, |_| {})
        .await
        .expect("there is room");
    assert_eq!(file.record.chunks.len(), FILE_CHUNKS);
    let chunks = (files * FILE_CHUNKS) as f64;
    println!(
        "{chunks} chunks, {workers} workers on {connections} connections; medians of {runs} runs\n"
    );
    println!(
        "chunks a lease    chunks/s   x target    claims/s   leader's us a chunk   workers' us a \
         chunk"
    );
    let fixed = [1, 4, 16].map(|size| (size.to_string(), Sizes::Fixed(size)));
    for (title, sizes) in fixed.into_iter().chain([("factoring".to_owned(), Sizes::Factoring)]) {
        let mut measured = Vec::new();
        for _ in 0..runs {
            measured.push(
                once(&cluster, &clients, &vec![file.clone(); files], sizes, node, workers).await,
            );
        }
        let middle = |of: fn(&RunCost) -> f64| median(&measured.iter().map(of).collect::<Vec<_>>());
        let (took_s, claims) = (middle(|once| once.took_s), middle(|once| once.claims));
        println!(
            "{title:>14} {:>11.0} {:>10.2} {:>11.0} {:>21.2} {:>21.2}",
            chunks / took_s,
            chunks / took_s / TARGET_PER_S,
            claims / took_s,
            middle(|once| once.leader_s) * 1e6 / chunks,
            middle(|once| once.workers_s) * 1e6 / chunks,
        );
    }
    println!("\ntarget: {TARGET_PER_S} chunks/s. Each run ends with all chunks committed.");
}

struct RunCost {
    took_s: f64,
    claims: f64,
    /// Processor time.
    leader_s: f64,
    workers_s: f64,
}

async fn once(
    cluster: &Cluster,
    clients: &[DfsClient],
    files: &[File],
    sizes: Sizes,
    node: NodeId,
    workers: usize,
) -> RunCost {
    let policy = BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(0.0), sizes });
    let (files, slots) = (files.to_vec(), vec![node; workers]);
    let spec = RunSpec {
        files,
        policy,
        slots,
        pieces: 1,
        term_us: DEFAULT_TERM_US,
        idle: Duration::from_secs(3600),
    };
    let run = clients[0].open_run(spec).await.expect("it can be led");
    let claims = Arc::new(AtomicU64::new(0));
    let (leader_s, workers_s, began) = (cluster.cpu_s(), used_cpu_s(), Instant::now());
    let mut working = JoinSet::new();
    for client in clients.iter().cycle().take(workers) {
        working.spawn(work(client.clone(), run, node, claims.clone()));
    }
    working.join_all().await;
    let took_s = began.elapsed().as_secs_f64();
    let (leader_s, workers_s) = (cluster.cpu_s() - leader_s, used_cpu_s() - workers_s);
    assert!(clients[0].run_status(run).await.expect("it is led").is_complete);
    clients[0].close_run(run).await.expect("it is led");
    RunCost { took_s, claims: claims.load(Ordering::Relaxed) as f64, leader_s, workers_s }
}

/// Works through blocks until there is nothing left; each chunk takes no time.
async fn work(files: DfsClient, run: RunAddress, node: NodeId, claims: Arc<AtomicU64>) {
    loop {
        let mut attendance = files.attend_run(run).await.expect("it is led");
        let mut owner = WorkerBlock::new(attendance.worker(), node);
        loop {
            if let Some(question) = owner.request() {
                attendance.tell(question).await;
            }
            if owner.current().is_some() {
                owner.end_chunk();
                continue;
            }
            let answer = timeout(PATIENCE, attendance.next()).await;
            match answer.map(|told| told.expect("it is led").expect("the connection lasts")) {
                Ok(Effect::NoMore { chunks: 0, .. }) => return,
                Ok(Effect::Committed { .. } | Effect::Discard { .. }) => break,
                Ok(effect) => {
                    let before = owner.chunks().len();
                    owner.told(&effect);
                    claims.fetch_add(u64::from(owner.chunks().len() > before), Ordering::Relaxed);
                }
                Err(_) if !owner.is_at_end() => attendance.tell(owner.heartbeat()).await,
                Err(_) => {}
            }
            if owner.is_at_end() {
                attendance.tell(owner.commit().expect("it has read something")).await;
            }
        }
    }
}
