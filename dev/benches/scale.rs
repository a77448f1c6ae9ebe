//! How long simulating large clusters takes on one core, and how much memory; and what several
//! dispatchers gain and lose.
//!
//! All-Pairs as the paper's supercomputers ran it, all tasks there from the beginning: on the
//! SiCortex in both orders, which is to take less than 60 s and 2 GB; on a Blue Gene/P of 160,000
//! processors with 10,000,000 tasks, which is to take less than 20 minutes; and of 1,000,000
//! processors. A dispatcher that takes 50 us for a decision cannot keep more than 80,000 processors
//! busy with tasks of 4 s; so the larger ones run with several as well.
//!
//! Expected before measuring: with `n` dispatchers, `n` times the decisions until all processors
//! are busy, and up to `n` times the reads from persistent storage; dealt by objects, rows are read
//! once and columns `n` times, but some dispatchers have more rows than others.
//!
//! Found: so it is; but in turns columns are read once too, as the number of dispatchers goes into
//! that of columns, and no dispatcher has more than others. Simulating several takes twice as long:
//! more flows are under way at a time.
//!
//! `cargo bench -p eyas-dev --bench scale`; `-- --only NAME` takes one case, `-- --tiny` only shows
//! that it runs.

use std::fs;
use std::time::Instant;

use eyas_dev::bench::{is_tiny, used_cpu_s};
use eyas_sim::cluster::{Policies, SimCluster, TaskPartitioning};
use eyas_sim::run;
use eyas_sim::workload::{AllPairs, Order, Workload};
use eyas_types::PlacementPolicy;

struct Case {
    name: &'static str,
    cluster: SimCluster,
    side: u32,
    order: Order,
    partitioning: TaskPartitioning,
}

fn cases() -> Vec<Case> {
    let sicortex = |name, order| Case {
        name,
        cluster: SimCluster::sicortex(),
        side: 1_000,
        order,
        partitioning: TaskPartitioning::default(),
    };
    let blue_gene_p = |name, nodes, dispatchers, partitioning, side| {
        let cluster = SimCluster { nodes, dispatchers, ..SimCluster::blue_gene_p() };
        Case { name, cluster, side, order: Order::Rows, partitioning }
    };
    vec![
        sicortex("sicortex-rows", Order::Rows),
        sicortex("sicortex-random", Order::Random(1)),
        blue_gene_p("160k-1m-1", 40_000, 1, TaskPartitioning::FirstInput, 1_000),
        blue_gene_p("160k-1m-4-objects", 40_000, 4, TaskPartitioning::FirstInput, 1_000),
        blue_gene_p("160k-1m-4-turns", 40_000, 4, TaskPartitioning::RoundRobin, 1_000),
        blue_gene_p("160k-1", 40_000, 1, TaskPartitioning::FirstInput, 3_163),
        blue_gene_p("160k-4-objects", 40_000, 4, TaskPartitioning::FirstInput, 3_163),
        blue_gene_p("160k-4-turns", 40_000, 4, TaskPartitioning::RoundRobin, 3_163),
        blue_gene_p("1m-1", 250_000, 1, TaskPartitioning::FirstInput, 1_000),
        blue_gene_p("1m-4-turns", 250_000, 4, TaskPartitioning::RoundRobin, 1_000),
    ]
}

/// The most memory that this process had at a time since the last call, MB.
fn peak_mb() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has /proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("it has a peak");
    let kilobytes = peak.trim().trim_end_matches(" kB").parse::<f64>().expect("kilobytes");
    fs::write("/proc/self/clear_refs", "5").expect("a process may forget its peak");
    kilobytes * 1024.0 / 1e6
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let only =
        words.iter().position(|word| word == "--only").map(|place| words[place + 1].as_str());
    println!(
        "{:<18} {:>10} {:>10} {:>10} {:>11} {:>6} {:>9} {:>8} {:>9} {:>8}",
        "case",
        "processors",
        "tasks",
        "simulated",
        "decisions/s",
        "local",
        "storage",
        "time",
        "processor",
        "peak"
    );
    for Case { name, cluster, side, order, partitioning } in cases() {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let (nodes, side) =
            if is_tiny() { (cluster.nodes / 2_000 + 4, 20) } else { (cluster.nodes, side) };
        let cluster = SimCluster { nodes, ..cluster.under_eyas() };
        let policies = Policies { partitioning, ..Policies::of_eyas(PlacementPolicy::Cost) };
        let workload = AllPairs { side, ..AllPairs::supercomputer(order) };
        peak_mb();
        let (began, used_s) = (Instant::now(), used_cpu_s());
        let outcome = run(&cluster, &policies, &workload, 1);
        assert!(outcome.is_complete(), "{name}: {} of {} tasks", outcome.done, outcome.tasks);
        println!(
            "{name:<18} {:>10} {:>10} {:>8.1} s {:>11.0} {:>5.1}% {:>6.0} GB {:>6.1} s {:>7.1} s \
             {:>5.0} MB",
            cluster.processors(),
            workload.tasks(),
            outcome.makespan_s(),
            outcome.decisions as f64 / outcome.makespan_s(),
            100.0 * outcome.read_shares()[0],
            outcome.storage_bytes as f64 / 1e9,
            began.elapsed().as_secs_f64(),
            used_cpu_s() - used_s,
            peak_mb(),
        );
    }
}
