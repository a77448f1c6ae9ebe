//! How many placement decisions `core/sched` makes in a second on one core, and how many bytes it
//! keeps for them.
//!
//! A steady state as in a large cluster: 10,000 executors of one and two slots, 100 objects of
//! 100,000 in each store, 1,000,000 tasks in the queue. Tasks end, their executors get others; what
//! a task lacked is stored where it runs, and what was used longest ago is evicted there. The clock
//! runs in [`Scheduler::handle`](eyas_sched::Scheduler) alone, in processor time of its thread,
//! over the reports of replicas, the ends of tasks and the decisions that follow; events are made
//! before it starts and effects are read (and freed) after it stops.
//!
//! Expected before measuring: what limits a decision is not its instructions but its cache misses,
//! at 50 to 100 ns each where tables of some 100 MB do not fit. An end and a one-input decision
//! touch the two tasks, the executor, its table of replicas, one or two objects and their waiting
//! lists: about ten lines, 1 µs or less. A task of two random inputs is hardly ever held whole: its
//! executor stores an object a decision, and meets each of the 20 tasks that want that object for
//! the first time, whose other input it must look up; about 50 lines, 3 to 6 µs. FA looks at no
//! replica: 0.3 µs. Under MCH, and GCC at full load, a partial hit is compared with what the other
//! holders have: ten holders an input, more misses again.
//!
//! The bound is printed below the table: dependent loads from random places that the machine makes
//! in a second, and the number of such loads that take as long as a decision. That number can be
//! compared between machines.
//!
//! Found: as expected for one input. For two, a decision looks at 38 entries of waiting lists, half
//! of them of tasks that came since. Reading the tasks that the entries name took a third of the
//! time, until entries said what the other input is. Reading the first line of each list took a
//! fifth; now the first lines of the next eight lists are read together. A machine whose other
//! cores are busy shows up to a third less, because they share its last cache.
//!
//! The cases after the first table are those in which one event could cost as much as there are
//! executors, holders or tasks; their times are of single events.
//!
//! `cargo bench -p eyas-dev --bench decisions`; `-- --tiny` only shows that it runs; `-- --only
//! NAME` takes one part (a policy, or the name of a case).

#[path = "decisions/cases.rs"]
mod cases;
#[path = "decisions/cluster.rs"]
mod cluster;
#[path = "decisions/loads.rs"]
mod loads;
#[path = "decisions/memory.rs"]
mod memory;

use std::time::Duration;

use cluster::{Cluster, Latencies, Shape};
use eyas_types::PlacementPolicy;

/// Decisions a second that Falkon's data-aware scheduler made with W = 3,200 (data-diffusion §4.4):
/// MCH, and FA.
const PAPER_PER_S: [f64; 2] = [1_322.0, 2_981.0];
const TARGET_PER_S: [f64; 2] = [500_000.0, 100_000.0];
const TARGET_TASK_BYTES: f64 = 130.0;
const TARGET_REPLICA_BYTES: f64 = 64.0;
/// Events that are handled between two looks at the clock.
const BATCH: usize = 1_000;

/// How large everything is.
#[derive(Clone, Copy)]
struct Scale {
    shape: Shape,
    /// Tasks in the queue.
    tasks: usize,
    runs: usize,
    /// Decisions in one run.
    decisions: usize,
    /// Tasks of the pathological cases.
    case_tasks: usize,
}

const FULL: Scale = Scale {
    shape: Shape { executors: 10_000, objects: 100_000, held: 100 },
    tasks: 1_000_000,
    runs: 5,
    decisions: 100_000,
    case_tasks: 20_000,
};

const TINY: Scale = Scale {
    shape: Shape { executors: 40, objects: 400, held: 20 },
    tasks: 2_000,
    runs: 3,
    decisions: 200,
    case_tasks: 100,
};

/// Result of measuring one steady state.
struct SteadyState {
    per_s: f64,
    submitted_per_s: f64,
    hits_percent: [f64; 3],
    event_us: [f64; 4],
    task_bytes: f64,
    replica_bytes: f64,
    /// Of each executor, beyond those.
    search_bytes: f64,
    digest: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = if arguments.iter().any(|argument| argument == "--tiny") { TINY } else { FULL };
    let only = arguments
        .iter()
        .position(|argument| argument == "--only")
        .and_then(|place| arguments.get(place + 1));
    run(scale, only.map(String::as_str));
}

/// Measures and prints; `only` one policy or one case if it is given.
fn run(scale: Scale, only: Option<&str>) {
    let Scale { shape: Shape { executors, objects, held }, tasks, runs, decisions, .. } = scale;
    println!(
        "{executors} executors, {objects} objects, {held} in each store, {tasks} tasks queued; \
         medians of {runs} runs of {decisions} decisions\n"
    );
    println!(
        "policy inputs  decisions/s  x target    x paper   full  part  none %   submit/s  B/task  \
         B/replica  B/executor  event mean/p99/p99.9/max us      digest"
    );
    let loads_per_s = loads::per_s();
    let mut loads_of_a_decision = Vec::new();
    for inputs in 1..=2 {
        for policy in PlacementPolicy::ALL
            .iter()
            .filter(|policy| only.is_none_or(|only| only == policy.name()))
        {
            let steady = measure(*policy, inputs, scale);
            print_row(*policy, inputs, &steady);
            let loads = loads_per_s / steady.per_s;
            loads_of_a_decision.push(format!("{policy} with {inputs} {loads:.1}"));
        }
    }
    println!(
        "\nbound: {loads_per_s:.0} dependent random loads/s on this machine now; a decision takes \
         the time of this many: {}",
        loads_of_a_decision.join(", ")
    );
    println!(
        "\ntargets: {} decisions/s with one input, {} with two; {TARGET_TASK_BYTES} B/task, \
         {TARGET_REPLICA_BYTES} B/replica.\n\
         x paper: against {} to {} decisions/s (W = 3,200).\n\
         B/task: task, its entry in its job's table, its ticket, its entries in the waiting lists \
         of its inputs, and the lists of objects that executors are to search.\n\
         B/replica: both sides, the holder's entry and the executor's, with the objects and the \
         index by id.\n\
         B/executor: what executors remember of the tasks they met, after all runs.\n",
        TARGET_PER_S[0], TARGET_PER_S[1], PAPER_PER_S[0], PAPER_PER_S[1],
    );
    cases::run(scale, only);
}

fn print_row(policy: PlacementPolicy, inputs: usize, steady: &SteadyState) {
    let [full, partial, none] = steady.hits_percent;
    let [mean, p99, p999, max] = steady.event_us;
    let [low, high] = PAPER_PER_S.map(|paper| steady.per_s / paper);
    println!(
        "{policy:<6} {inputs:>6} {:>12.0} {:>9.2} {high:>4.0}..{low:<5.0} \
         {full:>5.1} {partial:>5.1} {none:>5.1}   {:>10.0} {:>7.1} {:>10.1} {:>11.0}  \
         {mean:>6.2} {p99:>6.2} {p999:>7.2} {max:>7.1} {:>18x}",
        steady.per_s,
        steady.per_s / TARGET_PER_S[inputs - 1],
        steady.submitted_per_s,
        steady.task_bytes,
        steady.replica_bytes,
        steady.search_bytes,
        steady.digest,
    );
}

fn measure(policy: PlacementPolicy, inputs: usize, scale: Scale) -> SteadyState {
    let mut cluster = Cluster::new(policy, scale.shape);
    let replicas = cluster.fill_stores();
    let reports = cluster.next_batch(0);
    let replica_bytes = cluster.handle(reports).grown_bytes / replicas.max(1) as f64;
    let mut submitted_per_s = Vec::new();
    let task_bytes =
        refill(&mut cluster, scale.tasks, inputs, &mut submitted_per_s) / scale.tasks as f64;

    let batch_ends = BATCH.min(scale.decisions);
    let (mut per_s, mut search_bytes) = (Vec::new(), 0.0);
    // The first run is not counted: executors meet the whole queue in it.
    for run in 0..=scale.runs {
        cluster.take_hits();
        let (mut took, before) = (Duration::ZERO, cluster.scheduler.decisions());
        while cluster.scheduler.decisions() - before < scale.decisions as u64 {
            let batch = cluster.next_batch(batch_ends);
            let handled = cluster.handle(batch);
            took += handled.took;
            search_bytes += handled.grown_bytes;
        }
        if run > 0 {
            per_s.push((cluster.scheduler.decisions() - before) as f64 / took.as_secs_f64());
        }
        search_bytes += refill(&mut cluster, scale.tasks, inputs, &mut submitted_per_s);
    }
    let hits_percent = cluster.take_hits().percent();
    let mut latencies = Latencies::default();
    for _ in 0..scale.decisions / batch_ends {
        let batch = cluster.next_batch(batch_ends);
        cluster.handle_each(batch, &mut latencies);
    }
    SteadyState {
        per_s: median(&mut per_s),
        submitted_per_s: median(&mut submitted_per_s),
        hits_percent,
        event_us: latencies.summary_us(),
        task_bytes,
        replica_bytes,
        search_bytes: search_bytes / scale.shape.executors as f64,
        digest: cluster.digest,
    }
}

/// Submits random tasks until the queue is full; returns the bytes that they take.
fn refill(
    cluster: &mut Cluster,
    tasks: usize,
    inputs: usize,
    submitted_per_s: &mut Vec<f64>,
) -> f64 {
    let mut grown_bytes = 0.0;
    while let missing @ 1.. = tasks.saturating_sub(cluster.scheduler.waiting() as usize) {
        let arrivals = cluster.random_arrivals(missing.min(10 * BATCH), inputs);
        let count = arrivals.len() as f64;
        let handled = cluster.handle(arrivals);
        submitted_per_s.push(count / handled.took.as_secs_f64());
        grown_bytes += handled.grown_bytes;
    }
    grown_bytes
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
