//! Cases in which a careless scheduler pays for each executor, holder or task at every event. Times
//! are of single events.

use eyas_types::PlacementPolicy;

use crate::Scale;
use crate::cluster::{Cluster, Latencies, Shape};

/// A case: builds its cluster, and times what it is about.
type Case = fn(PlacementPolicy, Scale, &mut Latencies) -> Cluster;

const CASES: [(&str, &str, Case); 7] = [
    (
        "everywhere-idle",
        "every executor holds the object; tasks for it arrive one by one, most slots are free",
        |p, s, l| everywhere(p, s, l, s.shape.executors / 2),
    ),
    (
        "everywhere-busy",
        "the same, with no slot free: each end is followed by an arrival",
        |p, s, l| {
            // One and two slots in turn, and as many tasks behind them: six for two executors.
            everywhere(p, s, l, 3 * s.shape.executors)
        },
    ),
    (
        "common-input",
        "a deep queue; every task reads one object that all hold, and one of many",
        common_input,
    ),
    ("one-object", "a deep queue; every task reads the same object, which all hold", one_object),
    (
        "all-pairs",
        "every pair of two sets of objects, row by row, fewer executors, larger stores",
        all_pairs,
    ),
    ("idle", "tasks of random inputs arrive one by one, nearly nothing runs", idle),
    ("tail", "the queue is empty; running and assigned tasks come to their ends", tail),
];

/// Measures and prints all cases; `only` one of them if its name is given.
pub fn run(scale: Scale, only: Option<&str>) {
    println!(
        "case             policy   events  event mean/p99/p99.9/max us               full  part  \
         none %      digest"
    );
    for (name, what, case) in
        CASES.iter().filter(|(name, ..)| only.is_none_or(|only| only == *name))
    {
        println!("{name}: {what}");
        for policy in PlacementPolicy::ALL {
            let mut latencies = Latencies::default();
            let mut cluster = case(*policy, scale, &mut latencies);
            let events = latencies.count();
            let [mean, p99, p999, max] = latencies.summary_us();
            let [full, partial, none] = cluster.take_hits().percent();
            println!(
                "{:<16} {policy:<6} {events:>8}  {mean:>8.2} {p99:>8.2} {p999:>9.2} {max:>9.1}     \
                 {full:>5.1} {partial:>5.1} {none:>5.1} {:>18x}",
                "", cluster.digest
            );
        }
    }
}

/// Throughout, `in_flight` tasks are assigned.
fn everywhere(
    policy: PlacementPolicy,
    scale: Scale,
    latencies: &mut Latencies,
    in_flight: usize,
) -> Cluster {
    let mut cluster = Cluster::new(policy, scale.shape);
    cluster.fill_stores();
    cluster.store_everywhere(0);
    let reports = cluster.next_batch(0);
    cluster.handle(reports);
    let before = (0..in_flight).map(|_| cluster.arrival(vec![0])).collect();
    cluster.handle(before);
    for _ in 0..scale.case_tasks {
        let arrival = vec![cluster.arrival(vec![0])];
        cluster.handle_each(arrival, latencies);
        let batch = cluster.next_batch(1);
        cluster.handle_each(batch, latencies);
    }
    cluster
}

fn deep(
    policy: PlacementPolicy,
    scale: Scale,
    latencies: &mut Latencies,
    own_input: bool,
) -> Cluster {
    let mut cluster = Cluster::new(policy, scale.shape);
    cluster.fill_stores();
    cluster.store_everywhere(0);
    let reports = cluster.next_batch(0);
    cluster.handle(reports);
    for _ in 0..scale.tasks / 1_000 {
        let arrivals = (0..1_000).map(|_| {
            let own = cluster.random_object();
            cluster.arrival(if own_input && own != 0 { vec![0, own] } else { vec![0] })
        });
        let arrivals = arrivals.collect();
        cluster.handle(arrivals);
    }
    for _ in 0..scale.case_tasks {
        let batch = cluster.next_batch(1);
        cluster.handle_each(batch, latencies);
    }
    cluster
}

fn common_input(policy: PlacementPolicy, scale: Scale, latencies: &mut Latencies) -> Cluster {
    deep(policy, scale, latencies, true)
}

fn one_object(policy: PlacementPolicy, scale: Scale, latencies: &mut Latencies) -> Cluster {
    deep(policy, scale, latencies, false)
}

/// The paper's all-pairs, on a tenth of the executors.
fn all_pairs(policy: PlacementPolicy, scale: Scale, latencies: &mut Latencies) -> Cluster {
    let rows = scale.tasks.isqrt();
    let shape = Shape {
        executors: scale.shape.executors / 10,
        objects: 2 * rows,
        held: scale.shape.held + scale.shape.held * 7 / 10,
    };
    let mut cluster = Cluster::new(policy, shape);
    cluster.fill_stores();
    let reports = cluster.next_batch(0);
    cluster.handle(reports);
    for row in 0..rows {
        let arrivals = (0..rows)
            .map(|column| cluster.arrival(vec![row as u32, (rows + column) as u32]))
            .collect();
        cluster.handle(arrivals);
    }
    for _ in 0..10 * scale.case_tasks {
        let batch = cluster.next_batch(1);
        cluster.handle_each(batch, latencies);
    }
    cluster
}

fn idle(policy: PlacementPolicy, scale: Scale, latencies: &mut Latencies) -> Cluster {
    let mut cluster = Cluster::new(policy, scale.shape);
    cluster.fill_stores();
    let reports = cluster.next_batch(0);
    cluster.handle(reports);
    for task in 0..scale.case_tasks {
        let arrival = cluster.random_arrivals(1, 1 + task % 2);
        cluster.handle_each(arrival, latencies);
        if task >= scale.shape.executors / 100 {
            let batch = cluster.next_batch(1);
            cluster.handle_each(batch, latencies);
        }
    }
    cluster
}

fn tail(policy: PlacementPolicy, scale: Scale, latencies: &mut Latencies) -> Cluster {
    let mut cluster = Cluster::new(policy, scale.shape);
    cluster.fill_stores();
    let reports = cluster.next_batch(0);
    cluster.handle(reports);
    let arrivals = cluster.random_arrivals(3 * scale.shape.executors, 1);
    cluster.handle(arrivals);
    loop {
        let batch = cluster.next_batch(1);
        if batch.is_empty() {
            return cluster;
        }
        cluster.handle_each(batch, latencies);
    }
}
