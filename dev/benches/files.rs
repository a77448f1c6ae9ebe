//! What the metadata of the cluster's files costs: how many files a second their leaders create and
//! open for clients over real sockets and TLS, and how much memory a file takes over the ring.
//!
//! Real executors with `--dfs`, and clients in this process, on connections of their own, with many
//! requests in flight. To open a file is to be told its whole record. A file is created only once a
//! quorum of its replicas have it on disk; its client asks before whether there is one of the name.
//! What the executors' resident memory has grown by when all is made and opened is divided by the
//! files: databases' pages, lists of chunks, and what allocators hold back. Files without content
//! show what a name and a record take, files of a chunk what three replicas of it add, in
//! the stores' books too.
//!
//! Expected before measuring: an open takes its leader two frames and a look-up in a B-tree that is
//! in memory, 10 µs; so 100,000/s from a leader with a processor of its own, and half of that where
//! its clients share it. Records of 100 bytes with their names, on four nodes and in pages that are
//! two thirds full: 600 bytes a file.
//!
//! `cargo bench -p eyas-dev --bench files`; `-- --nodes 8` runs the cases with 8 nodes only,
//! `--files 1000` uses 1000 files, and `-- --tiny` only shows that it runs.

#[path = "files/cluster.rs"]
mod cluster;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use eyas_client::files::{DfsClient, WriteOptions};
use eyas_client::types::dfs::{FileName, Format};
use eyas_dev::bench::{is_tiny, median, resident_bytes};
use tokio::task::JoinSet;

use cluster::Cluster;

const TARGET_OPENS_PER_S: f64 = 20_000.0;
/// Over the ring, for 1,000,000 files.
const TARGET_FILE_BYTES: f64 = (1 << 30) as f64 / 1e6;

/// Connections to the leaders.
const CLIENTS: usize = 4;
/// Requests that a client has in flight.
const IN_FLIGHT: usize = 128;

/// A file system, and what is put there.
pub struct Row {
    nodes: usize,
    files: u32,
    content: &'static [u8],
    /// Number of times that all files are opened.
    rounds: usize,
}

const FULL: [Row; 4] = [
    Row { nodes: 1, files: 100_000, content: b"", rounds: 5 },
    Row { nodes: 4, files: 1_000_000, content: b"", rounds: 1 },
    Row { nodes: 8, files: 1_000_000, content: b"", rounds: 1 },
    Row { nodes: 4, files: 20_000, content: b"x", rounds: 5 },
];
/// Only shows that it runs.
pub const TINY: [Row; 2] = [
    Row { nodes: 1, files: 200, content: b"", rounds: 1 },
    Row { nodes: 3, files: 20, content: b"x", rounds: 1 },
];

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number = |word: &str| {
        let place = words.iter().position(|other| other == word)?;
        Some(words[place + 1].parse::<u32>().expect("a number"))
    };
    let (nodes, files) = (number("--nodes"), number("--files"));
    let asked =
        FULL.into_iter().filter(|row| nodes.is_none_or(|nodes| row.nodes == nodes as usize));
    let asked: Vec<Row> =
        asked.map(|row| Row { files: files.unwrap_or(row.files), ..row }).collect();
    run(if is_tiny() { &TINY } else { &asked });
}

/// Measures and prints.
pub fn run(rows: &[Row]) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    println!("{CLIENTS} clients with {IN_FLIGHT} requests in flight each\n");
    println!(
        "nodes   chunks a file     files   creates/s    opens/s   of goal   leaders' us an open   \
         MB before   MB after   B a file   of limit"
    );
    for row in rows {
        runtime.block_on(measure(row));
    }
    println!("\ngoal: {TARGET_OPENS_PER_S} opens/s; limit: {TARGET_FILE_BYTES:.0} bytes");
}

async fn measure(row: &Row) {
    let Row { nodes, files, content, rounds } = *row;
    let cluster = Cluster::start(nodes);
    let clients = cluster.clients(CLIENTS).await;
    let before_bytes = resident(&cluster);
    let creates_per_s = all(&clients, files, move |files, number| async move {
        let written = files
            .write(&name(number), Cursor::new(content), WriteOptions::of(Format::Lines), |_| {})
            .await;
        written.expect("nobody else writes it");
    });
    let creates_per_s = creates_per_s.await;
    let used_before_s = cluster.cpu_s();
    let mut opens_per_s = Vec::new();
    for _ in 0..rounds {
        let opened = all(&clients, files, move |files, number| async move {
            let file = files.stat(&name(number)).await.expect("it was written");
            assert_eq!(file.record.size_bytes(), content.len() as u64);
        });
        opens_per_s.push(opened.await);
    }
    let open_us = (cluster.cpu_s() - used_before_s) * 1e6 / (f64::from(files) * rounds as f64);
    let (opens_per_s, after_bytes) = (median(&opens_per_s), resident(&cluster));
    let file_bytes = after_bytes.saturating_sub(before_bytes) as f64 / f64::from(files);
    println!(
        "{nodes:>5} {:>15} {files:>9} {creates_per_s:>11.0} {opens_per_s:>10.0} {:>9.2} \
         {open_us:>21.1} {:>11} {:>10} {file_bytes:>10.0} {:>10.2}",
        usize::from(!content.is_empty()),
        opens_per_s / TARGET_OPENS_PER_S,
        before_bytes >> 20,
        after_bytes >> 20,
        file_bytes / TARGET_FILE_BYTES,
    );
}

/// Memory of all executors, bytes.
fn resident(cluster: &Cluster) -> u64 {
    cluster.processes().map(|process| resident_bytes(process, "VmRSS")).sum()
}

fn name(number: u32) -> FileName {
    let name = format!("/data/survey/run-{:03}/frame-{number:08}.fits", number / 1000);
    name.parse().expect("it has nothing odd")
}

/// Does something for each file once, from all clients; how many a second.
async fn all<F: Future<Output = ()> + Send + 'static>(
    clients: &[DfsClient],
    files: u32,
    act: impl Fn(DfsClient, u32) -> F + Copy + Send + 'static,
) -> f64 {
    let next = Arc::new(AtomicU32::new(0));
    let began = Instant::now();
    let mut loops = JoinSet::new();
    for client in clients.iter().flat_map(|client| std::iter::repeat_n(client, IN_FLIGHT)) {
        let (client, next) = (client.clone(), next.clone());
        loops.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= files {
                    return;
                }
                act(client.clone(), number).await;
            }
        });
    }
    loops.join_all().await;
    f64::from(files) / began.elapsed().as_secs_f64()
}
