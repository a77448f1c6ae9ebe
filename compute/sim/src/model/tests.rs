//! The model beside worked examples, and beside bounds that no cluster can pass.

use eyas_types::PlacementPolicy;

use super::*;
use crate::cluster::{Policies, SimCluster};
use crate::workload::{AllPairs, MonotonicallyIncreasing, Order};

const COSTS: Costs = Costs { local_s: 1.0, peer_s: 2.0, storage_s: 5.0, compute_s: 3.0 };

fn is_near(value: f64, expected: f64) -> bool {
    (value - expected).abs() <= 1e-9 * expected.abs()
}

#[test]
fn equations_have_these_values() {
    assert_eq!(access_range_s(COSTS, true), (4.0, 5.0));
    assert_eq!(access_range_s(COSTS, false), (5.0, 8.0));
    let task_s = access_s(COSTS, Ratios { local: 0.5, peer: 0.3, storage: 0.2 });
    assert!(is_near(task_s, 3.0 + 0.5 + 0.6 + 1.0));
    let (one_s, all_s) = (workload_s(100.0, task_s, 1.0), workload_s(100.0, task_s, 10.0));
    assert!(is_near(one_s, 510.0) && is_near(all_s, 51.0));
    assert!(is_near(efficiency(speedup(one_s, all_s), 10.0), 1.0));
    assert_eq!(sustained_range_per_s(COSTS, true, 10.0, 2.0), (4.0, 5.0));
    assert_eq!(sustained_range_per_s(COSTS, false, 40.0, 1.0), (5.0, 8.0));
    let per_s = sustained_per_s(task_s, 10.0, 1.0);
    assert!(is_near(per_s, 10.0 / 5.1));
    assert!(is_near(utilisation(per_s, task_s, 10.0, 1.0), 1.0));
    assert!(is_near(utilisation(1.0, task_s, 10.0, 1.0), 0.51));
}

#[test]
fn a_workload_asks_for_what_its_tasks_do() {
    let pairs = AllPairs::cluster(Order::Rows);
    let demand = Demand::of(&pairs, &Policies::of_the_paper(PlacementPolicy::FirstAvailable));
    let expected =
        Demand { inputs: 2, object_bytes: 12_000_000, compute_s: 1.0, ..tasks(250_000, 1_000) };
    assert_eq!(demand, Demand { misses: Some(1.0), ..expected });
    let mi = MonotonicallyIncreasing::paper(1);
    let demand = Demand::of(&mi, &Policies::of_eyas(PlacementPolicy::Cost));
    assert!((demand.arriving_per_s.expect("they come") / (250_000.0 / 1_414.9) - 1.0).abs() < 1e-4);
    assert!(demand.overlap && demand.misses.is_none());
}

/// Tasks of one input of 10 MB that compute for 10 ms.
fn tasks(tasks: u64, objects: u64) -> Demand {
    Demand {
        tasks,
        inputs: 1,
        objects,
        object_bytes: 10_000_000,
        compute_s: 0.01,
        arriving_per_s: None,
        misses: None,
        peer_hits: 0.0,
        overlap: false,
    }
}

#[track_caller]
fn assert_within(value: f64, paper: f64, share: f64) {
    assert!((value / paper - 1.0).abs() <= share, "{value} against the paper's {paper}");
}

#[test]
fn without_stores_it_is_as_long_as_in_the_paper() {
    let all_missed = |demand: Demand| Demand { misses: Some(1.0), ..demand };
    let mi = predict(&SimCluster::teragrid_64(0), &all_missed(tasks(250_000, 10_000))).unwrap();
    assert_eq!(mi.limit, Limit::PersistentStorage);
    assert_within(mi.time_s, 5_011.0, 0.1);
    let sw = predict(&SimCluster::teragrid_100(0), &all_missed(tasks(2_000_000, 100_000))).unwrap();
    assert_within(sw.time_s, 20_491.0, 0.03);
    // All-Pairs, 500 times 500: 26% of what it would be if all were local.
    let pairs =
        Demand { inputs: 2, object_bytes: 12_000_000, compute_s: 1.0, ..tasks(250_000, 1_000) };
    let missed = predict(&SimCluster::teragrid_100(0), &all_missed(pairs)).unwrap();
    let from_disk = SimCluster { page_cache_bytes: 0, ..SimCluster::teragrid_100(50_000_000_000) };
    let local = predict(&from_disk, &Demand { misses: Some(0.0), ..pairs }).unwrap();
    assert_within(local.time_s / missed.time_s, 0.26, 0.08);
}

#[test]
fn stores_that_hold_all_read_each_object_once() {
    let cluster = SimCluster::teragrid_64(4_000_000_000);
    let arriving = Demand { arriving_per_s: Some(250_000.0 / 1_414.9), ..tasks(250_000, 10_000) };
    let mi = predict(&cluster, &arriving).unwrap();
    assert!(mi.fits && is_near(mi.storage_bytes, 100e9));
    assert_eq!((mi.limit, mi.time_s.round()), (Limit::Arrivals, 1_415.0));
    assert!(is_near(mi.utilisation, 250_000.0 / 1_414.9 / mi.sustained_per_s));
    // Stores of 0.5 GB hold 32 GB of 100 GB.
    let small = predict(&SimCluster::teragrid_64(500_000_000), &tasks(250_000, 10_000)).unwrap();
    assert!(!small.fits && is_near(small.ratios.storage, 0.04 + 0.96 * 0.68));
}

#[test]
fn whatever_is_busiest_says_how_long_it_takes() {
    let cluster = SimCluster {
        decision_ns: 0,
        page_cache_bytes: 0,
        ..SimCluster::teragrid_64(4_000_000_000)
    };
    let of = |cluster: &SimCluster, demand: Demand| predict(cluster, &demand).unwrap();
    let demand = tasks(1_000_000, 100);
    assert_eq!(of(&cluster, Demand { compute_s: 1.0, ..demand }).limit, Limit::Processors);
    assert_eq!(of(&cluster, demand).limit, Limit::Stores);
    let slow = SimCluster { decision_ns: 10_000_000, ..cluster.clone() };
    assert_eq!(of(&slow, demand).time_s, 10_000.0);
    let moving = Demand { peer_hits: 1.0, overlap: true, ..demand };
    assert_eq!(of(&cluster, moving).limit, Limit::Stores, "what comes is written");
    let cluster = SimCluster { card_bytes_per_s: 50e6, ..cluster };
    assert_eq!(of(&cluster, moving).limit, Limit::NetworkCards);
    let computing = Demand { compute_s: 0.2, ..moving };
    assert!(
        of(&cluster, computing).time_s
            < of(&cluster, Demand { overlap: false, ..computing }).time_s
    );
    for demand in [demand, moving, Demand { misses: Some(0.3), overlap: true, ..demand }] {
        let prediction = of(&cluster, demand);
        assert!((0.0..=1.0).contains(&prediction.efficiency), "{prediction:?}");
    }
}

#[test]
fn predictions_for_impossible_clusters_are_refused() {
    let cluster = SimCluster::teragrid_64(5_000_000);
    let demand = tasks(10, 10);
    assert_eq!(predict(&cluster, &demand), Err(ModelError::TooSmall(10_000_000, 5_000_000)));
    assert!(
        predict(&cluster, &Demand { misses: Some(1.0), ..demand }).is_ok(),
        "nothing is stored"
    );
    assert_eq!(predict(&cluster, &Demand { tasks: 0, ..demand }), Err(ModelError::None("tasks")));
    let nothing = Demand { compute_s: 0.0, object_bytes: 0, misses: Some(0.0), ..demand };
    assert_eq!(
        predict(&SimCluster { decision_ns: 0, ..cluster.clone() }, &nothing),
        Err(ModelError::NoTime)
    );
    assert_eq!(
        predict(&SimCluster { nodes: 0, ..cluster.clone() }, &demand),
        Err(ModelError::None("nodes"))
    );
    assert_eq!(
        predict(&cluster, &Demand { peer_hits: 2.0, ..demand }),
        Err(ModelError::NotAShare("hits at peers", 2.0))
    );
}
