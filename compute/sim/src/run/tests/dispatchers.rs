//! Runs with several dispatchers.

use super::*;
use crate::clock::SECOND;
use crate::cluster::TaskPartitioning;
use crate::nodes::Failures;

fn with(
    dispatchers: u32,
    partitioning: TaskPartitioning,
    cluster: SimCluster,
    workload: &Zipf,
) -> RunOutcome {
    let policies = Policies { partitioning, ..Policies::of_eyas(PlacementPolicy::Cost) };
    let outcome = run(&SimCluster { dispatchers, ..cluster }, &policies, workload, 1);
    assert!(outcome.is_complete(), "{dispatchers} dispatchers, {partitioning:?}");
    outcome
}

#[test]
fn where_deciding_takes_longest_each_dispatcher_adds_its_rate() {
    let cluster = SimCluster { decision_ns: 10_000_000, ..plain(16, 4) };
    let workload = Zipf {
        objects: 1,
        object_bytes: 1,
        tasks: 2_000,
        compute_us: 1_000,
        interval_us: 0,
        ..Zipf::default()
    };
    for (dispatchers, decides_s) in [(1, 20.0), (4, 5.0), (16, 1.25)] {
        let outcome = with(dispatchers, TaskPartitioning::RoundRobin, cluster.clone(), &workload);
        assert!(
            (decides_s..1.05 * decides_s).contains(&outcome.makespan_s()),
            "{}",
            outcome.makespan_s()
        );
        assert_eq!(
            (outcome.decisions, outcome.most_decisions),
            (2_000, 2_000 / u64::from(dispatchers))
        );
    }
}

#[test]
fn an_object_is_read_from_storage_for_each_part_that_has_tasks_of_it() {
    let workload = Zipf { objects: 50, tasks: 2_000, ..Zipf::default() };
    let data_bytes = workload.data_bytes();
    assert_eq!(
        with(1, TaskPartitioning::RoundRobin, plain(8, 1), &workload).storage_bytes,
        data_bytes
    );
    assert_eq!(
        with(4, TaskPartitioning::FirstInput, plain(8, 1), &workload).storage_bytes,
        data_bytes
    );
    let apart = with(4, TaskPartitioning::RoundRobin, plain(8, 1), &workload).storage_bytes;
    assert!((3 * data_bytes..=4 * data_bytes).contains(&apart), "{apart}");
}

#[test]
fn parts_lose_nodes_and_get_them_back() {
    let failures = Failures {
        lost_after_ns: Some(60 * SECOND),
        back_after_ns: Some(SECOND),
        disconnected_after_ns: Some(60 * SECOND),
        ..Failures::default()
    };
    let workload = Zipf { objects: 100, tasks: 3_000, ..Zipf::default() };
    let outcome =
        with(3, TaskPartitioning::FirstInput, SimCluster { failures, ..plain(7, 2) }, &workload);
    assert!(outcome.lost_nodes > 0 && outcome.broken_connections > 0);
    assert!(outcome.most_decisions < outcome.decisions);
}
