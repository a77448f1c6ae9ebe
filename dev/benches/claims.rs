//! How many chunks of a job `core/blocks` lends in a second on one core, and how many bytes it
//! keeps for each.
//!
//! 1,000 workers, each on a node of its own, claim leases of 1,000,000 chunks of 4 MiB with three
//! replicas each, until all are lent; then they commit. A claim takes the worker's report, finds
//! chunks that its node has, takes them from the lists of all their nodes, enters the lease, and
//! makes the record to save. The clock runs in [`Blocks::handle`](eyas_blocks::Blocks) alone, in
//! processor time of its thread; renewals are not in it.
//!
//! Expected before measuring: a chunk is in three lists, each a tree of some thousand entries, so
//! about 0.3 µs to take it from all; a claim beside that costs its worker's entries in three small
//! trees, 0.5 µs. So 1,000,000 chunks/s one at a time, and twice as many with large leases. Memory:
//! 13 bytes of size, replicas and state, three places of 4 bytes for the replicas, and 6 to 8 bytes
//! in each list: about 50.
//!
//! Found: half of that rate, since what a worker's claim touches was last touched 1,000 claims ago
//! and is in no near cache; large leases are as fast as expected. Lists of all chunks in order take
//! 15 bytes an entry rather than 7: they are filled in order, which leaves the trees' nodes half
//! empty.
//!
//! `cargo bench -p eyas-dev --bench claims`; `-- --tiny` only shows that it runs.

#[path = "decisions/memory.rs"]
mod memory;

use std::time::Duration;

use eyas_blocks::{
    Alpha, BlockPolicy, Blocks, Config, Effect, Event, Lean, LeaseId, LeaseProgress, Sizes,
    WorkerId,
};
use eyas_types::dfs::{DEFAULT_CHUNK_BYTES, DEFAULT_REPLICATION, NodeId};
use rustix::time::{ClockId, clock_gettime};

/// Goal for a leader, including its sockets.
const TARGET_PER_S: f64 = 100_000.0;

#[derive(Clone, Copy)]
struct Scale {
    workers: usize,
    chunks: usize,
    runs: usize,
}

fn main() {
    let is_tiny = std::env::args().any(|argument| argument == "--tiny");
    let scale = if is_tiny {
        Scale { workers: 20, chunks: 2_000, runs: 1 }
    } else {
        Scale { workers: 1_000, chunks: 1_000_000, runs: 5 }
    };
    let Scale { workers, chunks, runs } = scale;
    println!("{workers} workers, {chunks} chunks of three replicas; medians of {runs} runs\n");
    println!(
        "chunks a lease   chunks/s    claims/s   x target   us a claim   B/chunk unclaimed   \
         B/chunk claimed"
    );
    for lease_chunks in [1, 4, 16] {
        let mut results: Vec<_> = (0..runs).map(|_| measure(scale, lease_chunks)).collect();
        results.sort_unstable_by_key(|one| one.took);
        let ClaimCosts { took, claims, unclaimed_bytes, claimed_bytes } = results[runs / 2];
        let took_s = took.as_secs_f64();
        let per_s = chunks as f64 / took_s;
        println!(
            "{lease_chunks:>14} {per_s:>10.0} {:>11.0} {:>10.1} {:>12.2} {unclaimed_bytes:>19.1} \
             {claimed_bytes:>17.1}",
            claims as f64 / took_s,
            per_s / TARGET_PER_S,
            took_s * 1e6 / claims as f64,
        );
    }
    println!("\ntarget: {TARGET_PER_S} chunks/s. Each run ends with all chunks committed.");
}

struct ClaimCosts {
    took: Duration,
    claims: u64,
    unclaimed_bytes: f64,
    claimed_bytes: f64,
}

/// A worker's knowledge of its block.
#[derive(Clone, Copy, Default)]
struct Block {
    lease: Option<LeaseId>,
    chunks: u32,
}

fn measure(scale: Scale, lease_chunks: u32) -> ClaimCosts {
    let Scale { workers, chunks, .. } = scale;
    let nodes: Vec<_> = (0..workers as u64).map(NodeId).collect();
    // All read fast enough that the whole of a lease is confirmed with it.
    let slots = nodes.iter().map(|node| (*node, Some(100 << 30))).collect();
    let policy =
        BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(0.0), sizes: Sizes::Fixed(lease_chunks) });
    let config =
        Config { window_us: 1_000_000, term_us: u64::MAX / 2, ..Config::new(policy, slots) };
    let twice = nodes.repeat(2);
    let replicas = |chunk: usize| &twice[chunk * 7 % workers..][..usize::from(DEFAULT_REPLICATION)];

    let before = memory::live_bytes();
    let all = (0..chunks).map(|chunk| (DEFAULT_CHUNK_BYTES, replicas(chunk)));
    let mut blocks = Blocks::new(config, all, 1, [], 0);
    let mut held = vec![Block::default(); workers];
    let mut effects = Vec::new();
    let (mut took, mut claims, mut now_us) = (Duration::ZERO, 0, 0);
    let mut unclaimed_bytes = 0.0;
    let mut is_over = false;
    while !is_over {
        let round = held.iter().zip(0..).map(|(block, worker)| claim(worker, *block));
        let round: Vec<_> = round.collect();
        let began = thread_time();
        for event in round {
            now_us += 1;
            blocks.handle(now_us, event, &mut effects);
        }
        // The first round makes the plan of the job.
        if claims == 0 {
            unclaimed_bytes = (memory::live_bytes() - before) as f64 / chunks as f64;
        }
        took += thread_time() - began;
        for effect in effects.drain(..) {
            match effect {
                Effect::Granted { worker, lease, kept, chunks, .. } => {
                    claims += 1;
                    held[worker.0 as usize] =
                        Block { lease: Some(lease), chunks: kept + chunks.len() as u32 };
                }
                Effect::NoMore { .. } => is_over = true,
                Effect::Save(_) | Effect::Renewed { .. } => {}
                other => panic!("nobody does anything wrong: {other:?}"),
            }
        }
    }
    let claimed_bytes = (memory::live_bytes() - before) as f64 / chunks as f64;
    for (block, worker) in held.iter().zip(0..) {
        let lease = block.lease.expect("there is enough for all");
        blocks.handle(
            now_us,
            Event::Commit { worker: WorkerId(worker), lease, done: block.chunks },
            &mut effects,
        );
    }
    assert!(blocks.is_complete(), "{} of {chunks} chunks are committed", blocks.committed_chunks());
    ClaimCosts { took, claims, unclaimed_bytes, claimed_bytes }
}

fn claim(worker: u64, block: Block) -> Event {
    let progress = LeaseProgress { chunks: block.chunks, done: block.chunks, bytes: 0 };
    Event::RequestLease {
        worker: WorkerId(worker),
        node: NodeId(worker),
        lease: block.lease,
        progress,
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
