//! Runs in which nodes come and go.

use eyas_types::ProvisioningPolicy;

use super::*;
use crate::clock::{SECOND, seconds};
use crate::nodes::{Batch, Failures};

fn nodes_over_time(outcome: &RunOutcome) -> Vec<u64> {
    outcome.course.samples.iter().map(|sample| sample.nodes).collect()
}

#[test]
fn a_batch_system_gives_nodes_for_what_there_is_to_do_and_gets_them_back() {
    let workload = Zipf { objects: 50, tasks: 3_000, interval_us: 100_000, ..Zipf::default() };
    for policy in ProvisioningPolicy::ALL {
        let batch = Some(Batch { policy: *policy, ..Batch::default() });
        let cluster = SimCluster { batch, ..plain(20, 2) };
        let outcome = run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &workload, 1);
        assert!(outcome.is_complete(), "{policy}");
        assert!(outcome.makespan_s() < 310.0, "{policy} took {} s", outcome.makespan_s());
        let all_the_time = outcome.makespan_s() * cluster.processors() as f64 / 3600.0;
        assert!(
            outcome.cpu_hours() < all_the_time / 2.0,
            "{policy} held {} CPU hours",
            outcome.cpu_hours()
        );
        let nodes = nodes_over_time(&outcome);
        let [first, last] = [nodes[0], nodes[nodes.len() - 1]];
        assert!(
            first == 0 && last < nodes.iter().copied().max().unwrap_or(0),
            "{policy}: {nodes:?}"
        );
    }
}

#[test]
fn demand_counts_transfers_also_where_nothing_is_kept() {
    // Tasks read 500 MB/s, and a link carries 125 MB/s. Computing takes hardly any time.
    let workload = Zipf {
        objects: 50,
        tasks: 6_000,
        interval_us: 20_000,
        compute_us: 1_000,
        ..Zipf::default()
    };
    let storage = SimStorage { bytes_per_s: 1e9, client_bytes_per_s: None, latency_ns: 0 };
    let batch = Some(Batch { grants_after_ns: (SECOND, SECOND), ..Batch::default() });
    let cluster = SimCluster { batch, storage, ..plain(20, 2) };
    let outcome =
        run(&cluster, &Policies::of_the_paper(PlacementPolicy::FirstAvailable), &workload, 1);
    assert!(outcome.is_complete());
    assert!(
        outcome.makespan_s() < 121.0,
        "{} s, where the last comes after 120",
        outcome.makespan_s()
    );
    let nodes = outcome.cpu_hours() * 1800.0 / outcome.makespan_s();
    assert!((5.0..12.0).contains(&nodes), "{nodes} nodes on average");
}

#[test]
fn the_least_nodes_are_there_all_the_time_and_are_replaced_when_their_time_is_over() {
    let workload = Zipf { objects: 50, tasks: 60, interval_us: 10_000_000, ..Zipf::default() };
    let batch = Batch {
        min_nodes: 3,
        walltime_ns: 180 * SECOND,
        grants_after_ns: (5 * SECOND, 5 * SECOND),
        ..Batch::default()
    };
    let outcome_of = |batch| {
        let cluster = SimCluster { batch: Some(batch), ..plain(20, 2) };
        run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &workload, 1)
    };
    let outcome = outcome_of(batch.clone());
    assert!(outcome.is_complete());
    let nodes = nodes_over_time(&outcome);
    assert_eq!(
        nodes.iter().copied().max(),
        Some(3),
        "they are asked for when others are idle, and are soon given back"
    );
    let lasting = outcome_of(Batch { walltime_ns: Batch::default().walltime_ns, ..batch });
    let [cold, warm] = [&outcome, &lasting].map(|outcome| outcome.reads.persistent.count);
    assert!(
        cold > warm + 10,
        "what was in their stores has gone with them: {cold} reads, {warm} without"
    );
    // Of each 65 s a node is there for 60 s: from its start until it is told to leave. Its
    // successor takes 5 s to come.
    let share = outcome.held_cpu_ns as f64 / (outcome.makespan_ns * 6) as f64;
    assert!((0.9..0.95).contains(&share), "{share}");
}

#[test]
fn a_node_that_rejoins_has_no_more_walltime_than_before() {
    let workload = Zipf { objects: 50, tasks: 60, interval_us: 10_000_000, ..Zipf::default() };
    let batch = Batch {
        min_nodes: 1,
        walltime_ns: 240 * SECOND,
        grants_after_ns: (60 * SECOND, 60 * SECOND),
        ..Batch::default()
    };
    let failures = Failures { disconnected_after_ns: Some(50 * SECOND), ..Failures::default() };
    let cluster = SimCluster { batch: Some(batch), failures, ..plain(1, 2) };
    let outcome = run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &workload, 1);
    assert!(outcome.is_complete() && outcome.broken_connections > 3);
    let longest =
        nodes_over_time(&outcome).split(|nodes| *nodes == 0).map(<[_]>::len).max().unwrap_or(0);
    let longest_s = seconds(longest as u64 * outcome.course.every_ns);
    // Two minutes before its walltime is over, a node is given no more tasks and leaves.
    assert!((119.0..125.0).contains(&longest_s), "a node was there for {longest_s} s");
}

#[test]
fn requests_that_fail_are_made_again() {
    let workload = Zipf { objects: 50, tasks: 500, ..Zipf::default() };
    let failures = Failures { failed_requests: 0.9, ..Failures::default() };
    let cluster = SimCluster { batch: Some(Batch::default()), failures, ..plain(4, 2) };
    let time = |cluster| {
        run(cluster, &Policies::of_eyas(PlacementPolicy::Cost), &workload, 1).makespan_s()
    };
    let (failing, sound) =
        (time(&cluster), time(&SimCluster { failures: Failures::default(), ..cluster.clone() }));
    assert!(
        (30.0..70.0).contains(&sound) && failing > sound + 30.0,
        "{failing} s, without failures {sound} s"
    );
}

#[test]
fn the_number_of_scheduled_events_does_not_grow_with_time() {
    let most_scheduled = |hours: u64| {
        let workload =
            Zipf { objects: 50, tasks: hours * 6, interval_us: 600_000_000, ..Zipf::default() };
        let failures = Failures { failed_requests: 0.9, ..Failures::default() };
        // Some nodes are always there, so a timeout is always scheduled.
        let policy = ProvisioningPolicy::OneAtATime;
        let batch =
            Batch { policy, min_nodes: 10, walltime_ns: 6 * 3_600 * SECOND, ..Batch::default() };
        let cluster = SimCluster { batch: Some(batch), failures, ..plain(20, 2) };
        let policies = Policies::of_eyas(PlacementPolicy::Cost);
        let setup = Setup::new(&cluster, &policies, &workload, 1);
        let mut run = Run::new(&setup);
        run.begin();
        let mut most = 0;
        while run.has_tasks() {
            let next = run.next_at().expect("tasks are still to end");
            run.step(next);
            most = most.max(run.world.agenda.len());
        }
        most
    };
    let (short, long) = (most_scheduled(12), most_scheduled(36));
    assert!(long < short + short / 2, "{short} events are queued in 12 hours, {long} in 36");
}

#[test]
fn tasks_that_are_cut_off_with_their_node_are_counted() {
    // No task ends before its node's walltime is over. A scenario file with these numbers is
    // refused.
    let workload = Zipf { objects: 50, tasks: 4, compute_us: 600_000_000, ..Zipf::default() };
    let batch = Batch { walltime_ns: 300 * SECOND, ..Batch::default() };
    let cluster = SimCluster { batch: Some(batch), ..plain(2, 2) };
    let policies = Policies::of_eyas(PlacementPolicy::Cost);
    let go_on = &mut |_: &RunOutcome| ControlFlow::Continue(());
    let outcome = run_watched(&cluster, &policies, &workload, 1, 3_600 * SECOND, go_on);
    assert!(outcome.done == 0 && outcome.out_of_time >= 16, "{} were cut off", outcome.out_of_time);
}

#[test]
fn tasks_of_a_lost_node_run_again_elsewhere() {
    let failures = Failures { lost_after_ns: Some(60 * SECOND), ..Failures::default() };
    let cluster = SimCluster { failures, ..plain(8, 2) };
    let outcome = run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &pairs(30, 500_000), 3);
    assert!(outcome.is_complete());
    let left = nodes_over_time(&outcome)[outcome.course.samples.len() - 1];
    assert!(outcome.lost_nodes > 0 && left + outcome.lost_nodes == 8, "{left} of 8 are left");
    assert!(outcome.reads.count() > 2 * outcome.tasks, "tasks that were lost read again");
    assert!(outcome.held_cpu_ns < u128::from(outcome.makespan_ns) * 16, "a lost node is not held");
    // A run also ends when no node is left and none comes back.
    let hopeless =
        run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &pairs(30, 30_000_000), 3);
    assert!(!hopeless.is_complete() && hopeless.lost_nodes == 8);
}

#[test]
fn an_executor_that_loses_the_dispatcher_rejoins_with_its_store() {
    let failures = Failures { disconnected_after_ns: Some(5 * SECOND), ..Failures::default() };
    let outcome_of = |failures| {
        run(
            &SimCluster { failures, ..plain(4, 2) },
            &Policies::of_eyas(PlacementPolicy::Cost),
            &pairs(30, 100_000),
            1,
        )
    };
    let (broken, sound) = (outcome_of(failures), outcome_of(Failures::default()));
    assert!(broken.is_complete() && broken.broken_connections > 4);
    assert!(broken.reads.count() > sound.reads.count(), "what was killed is done again");
    // Only objects in flight are fetched again: at most four for each broken connection.
    let again = (broken.storage_bytes + broken.peer_bytes)
        .saturating_sub(sound.storage_bytes + sound.peer_bytes);
    assert!(again / 10_000_000 <= 4 * broken.broken_connections, "{again} bytes came again");
    assert_eq!(
        broken.held_cpu_ns,
        u128::from(broken.makespan_ns) * 8,
        "its node is there meanwhile"
    );
}

#[test]
fn slow_disks_make_tasks_wait() {
    let disk = SimCluster::teragrid_64(1_000_000_000).disk;
    let time = |slow_disks| {
        let failures = Failures { slow_disks, ..Failures::default() };
        let cluster = SimCluster { disk, page_cache_bytes: 0, failures, ..plain(4, 2) };
        run(&cluster, &Policies::of_eyas(PlacementPolicy::Cost), &pairs(20, 1_000), 1).makespan_s()
    };
    let [none, some, all] = [0.0, 0.7, 1.0].map(time);
    assert!(none * 1.2 < some && some < all && all > 5.0 * none, "{none}, {some}, {all} s");
}
