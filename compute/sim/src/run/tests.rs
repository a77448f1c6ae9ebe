//! Runs whose results can be computed by hand, and invariants of all runs.

use eyas_types::PlacementPolicy;

use super::*;
use crate::cluster::SimStorage;
use crate::workload::{AllPairs, Order, Zipf};

mod derived;
mod dispatchers;
mod farm;
mod membership;

/// A cluster in which only transfers and computing take time.
pub(super) fn plain(nodes: u32, cpus: u32) -> SimCluster {
    let paper = SimCluster::teragrid_64(1_000_000_000);
    let storage = SimStorage { bytes_per_s: 50e6, client_bytes_per_s: None, latency_ns: 0 };
    let (decision_ns, message_ns, peer_latency_ns) = (0, 0, 0);
    SimCluster {
        nodes,
        cpus,
        disk: None,
        memory_bytes_per_s: 1e12,
        storage,
        decision_ns,
        message_ns,
        peer_latency_ns,
        ..paper
    }
}

pub(super) fn pairs(side: u32, compute_us: u64) -> AllPairs {
    AllPairs { side, object_bytes: 10_000_000, compute_us, order: Order::Rows }
}

#[test]
fn first_available_is_as_fast_as_persistent_storage() {
    let (cluster, policies) =
        (plain(4, 2), Policies::of_the_paper(PlacementPolicy::FirstAvailable));
    let outcome = run(&cluster, &policies, &pairs(10, 1000), 1);
    assert!(outcome.is_complete());
    assert_eq!((outcome.storage_bytes, outcome.peer_bytes), (2_000_000_000, 0));
    // 2 GB at 50 MB/s; each processor computes 1 ms between its tasks.
    assert!((40.0..40.05).contains(&outcome.makespan_s()), "{}", outcome.makespan_s());
}

#[test]
fn simultaneous_demand_reads_persistent_storage_once_with_relays() {
    let cluster = plain(8, 1);
    let with = |relays| {
        let policies = Policies { relays, ..Policies::of_eyas(PlacementPolicy::MaxComputeUtil) };
        run(&cluster, &policies, &pairs(8, 1_000_000), 1)
    };
    let (without, with) = (with(false), with(true));
    assert!(with.is_complete() && without.is_complete());
    assert_eq!(with.storage_bytes, 16 * 10_000_000, "each object once");
    assert!(without.storage_bytes > 2 * with.storage_bytes);
    assert!(with.makespan_ns < without.makespan_ns);
}

#[test]
fn told_the_pattern_nodes_begin_sooner_and_move_less() {
    let cluster = plain(16, 2);
    let of = |order| {
        let workload = AllPairs { order, ..pairs(32, 1_000_000) };
        run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &workload, 1)
    };
    let (rows, tiles) = (of(Order::Rows), of(Order::Tiles(8)));
    assert!(rows.is_complete() && tiles.is_complete());
    assert_eq!(tiles.storage_bytes, 64 * 10_000_000, "each object once");
    assert!(tiles.peer_bytes < rows.peer_bytes, "{} and {}", tiles.peer_bytes, rows.peer_bytes);
    assert!(
        tiles.makespan_ns < rows.makespan_ns,
        "{} and {}",
        tiles.makespan_s(),
        rows.makespan_s()
    );
}

#[test]
fn where_computing_is_all_that_takes_time_all_processors_compute() {
    let outcome = run(
        &plain(4, 2),
        &Policies::of_eyas(PlacementPolicy::GoodCacheCompute),
        &pairs(40, 10_000_000),
        1,
    );
    let ideal = 1600.0 * 10.0 / 8.0;
    assert!((1.0..1.02).contains(&(outcome.makespan_s() / ideal)), "{}", outcome.makespan_s());
    assert_eq!(outcome.computed_ns, 16_000_000_000_000);
}

#[test]
fn a_small_store_reads_again_and_tasks_beyond_it_are_told_of() {
    let paper = Policies::of_the_paper(PlacementPolicy::GoodCacheCompute);
    let zipf = Zipf { objects: 100, tasks: 2000, ..Zipf::default() };
    let all = run(&plain(2, 1), &paper, &zipf, 1);
    let few =
        run(&SimCluster { cache_bytes: 5 * zipf.object_bytes, ..plain(2, 1) }, &paper, &zipf, 1);
    assert!(all.is_complete() && few.is_complete());
    assert!(few.storage_bytes > all.storage_bytes && few.makespan_ns > all.makespan_ns);
    let none =
        run(&SimCluster { cache_bytes: zipf.object_bytes - 1, ..plain(2, 1) }, &paper, &zipf, 1);
    assert_eq!((none.done, none.failed), (0, none.tasks));
}

#[test]
fn the_same_seed_is_the_same_run() {
    let workload = Zipf { objects: 300, tasks: 3000, ..Zipf::default() };
    let cluster = SimCluster {
        nodes: 10,
        cache_bytes: 30 * workload.object_bytes,
        ..SimCluster::teragrid_64(0)
    };
    for placement in PlacementPolicy::ALL {
        let run = || run(&cluster, &Policies::of_eyas(*placement), &workload, 7);
        let outcome = run();
        assert!(outcome.is_complete());
        assert_eq!(outcome, run());
    }
}
