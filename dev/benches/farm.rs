//! The experiments of data-diffusion §4.4 and §5 with a real dispatcher.
//!
//! As in §5.3, the stack is real and the transfers are emulated: a dispatcher in a process of its
//! own, a client that submits tasks when they arrive, and for each node a session over TLS with the
//! decider of a real executor behind it. Links, storage and tasks are those of the simulator, at
//! the pace of the clock. So this shows what the simulator assumes: that one dispatcher decides in
//! time, what it knows from reports that come late, and which bytes move where. All nodes are there
//! from the start, also where the paper had a pool.
//!
//! Each experiment of `eyas simulate paper` runs with the cost policy, or with that of `--policy`,
//! and beside it the same cluster with a simulated dispatcher. *Result* is what the paper reports:
//! seconds, or the time with all data local divided by the time. `figure-15` is §4.4: how many
//! tasks a second the dispatcher places when they do nothing, and read files of one byte.
//!
//! Expected before measuring: within 2 % of the simulated time. The dispatcher makes up to 1,300
//! decisions a second, of 100,000 that it can. Figure 15 is limited by the two processors, which
//! dispatcher, executors and the client share: some 50,000 tasks a second.
//!
//! `cargo bench -p eyas-dev --bench farm -- --only ap-sicortex` takes as long as the experiment, 13
//! minutes; all of them take ten hours. `-- --tiny` only shows that it runs.

use std::sync::Arc;

use eyas_dev::bench::{home, is_tiny, resident_bytes};
use eyas_session::Access;
use eyas_sim::cluster::{Policies, SimCluster};
use eyas_sim::outcome::RunOutcome;
use eyas_sim::paper::{Experiment, PaperResult};
use eyas_sim::workload::{AdaptedWorkload, AllPairs, Order, Zipf};
use eyas_types::PlacementPolicy;
use light::Dispatcher;
use sessions::{FarmExperiment, FarmFigures, FarmThread, SEED};

#[path = "farm/client.rs"]
mod client;
#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "dispatch/light.rs"]
mod light;
#[path = "farm/sessions.rs"]
mod sessions;
#[allow(dead_code, reason = "the other benchmark uses more of it")]
#[path = "dispatch/submission.rs"]
mod submission;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let word_after = |option: &str| {
        words.iter().position(|word| word == option).map(|place| words[place + 1].as_str())
    };
    let placement = word_after("--policy").map_or(PlacementPolicy::Cost, |name| {
        PlacementPolicy::ALL.iter().copied().find(|it| it.name() == name).expect("a policy")
    });
    if is_tiny() {
        return run_tiny();
    }
    // A push before the first task is not a farm's.
    let all = Experiment::all().into_iter().filter(|it| it.policies.distribution.is_none());
    let only = word_after("--only");
    let all = std::iter::once(figure_15()).chain(all);
    measure_all(all.filter(|it| only.is_none_or(|only| only == it.name)), placement);
}

/// 250,000 tasks that do nothing, each with one of 10,000 files of one byte, on 32 nodes. The
/// slowest policy of the paper placed 1,322 tasks a second.
fn figure_15() -> Experiment {
    let mut it = Experiment::all().swap_remove(0);
    (it.name, it.place) = ("figure-15", "figure 15");
    it.cluster = SimCluster { nodes: 32, cpus: 1, disk: None, ..SimCluster::teragrid_64(1 << 30) };
    let same_rate = Zipf { exponent: 0.0, interval_us: 0, ..Zipf::default() };
    it.workload = Box::new(Zipf { object_bytes: 1, compute_us: 0, ..same_rate });
    it.measured = PaperResult::Makespan(250_000.0 / 1_322.0);
    it
}

/// Only shows that it runs.
pub fn run_tiny() {
    let all = Experiment::all().into_iter();
    let tiny = all.filter(|it| ["ap-500-0.1s", "mi-gcc-4gb"].contains(&it.name)).map(|mut it| {
        it.cluster.nodes = 3;
        it.workload = match it.measured {
            PaperResult::Efficiency(_) => {
                let (side, object_bytes, compute_us) = (4, 1_000_000, 20_000);
                Box::new(AllPairs { side, object_bytes, compute_us, order: Order::Rows })
            }
            PaperResult::Makespan(_) => Box::new(AdaptedWorkload::first_tasks(it.workload, 3)),
        };
        it
    });
    measure_all(tiny, PlacementPolicy::Cost);
}

fn measure_all(experiments: impl Iterator<Item = Experiment>, placement: PlacementPolicy) {
    println!(
        "{:<20} {:<11} {:>8} {:>8} {:>9} {:>11} {:>7} {:>11} {:>13}",
        "experiment",
        "dispatcher",
        "result",
        "time, s",
        "response",
        "decisions/s",
        "GB read",
        "from peers",
        "from storage"
    );
    for mut experiment in experiments {
        experiment.cluster = SimCluster { batch: None, ..experiment.cluster.under_eyas() };
        let policies = Policies::of_eyas(placement);
        measure(&Arc::new(FarmExperiment { experiment, policies }));
    }
}

fn measure(of: &Arc<FarmExperiment>) {
    let FarmExperiment { experiment, policies } = &**of;
    let (name, cluster) = (experiment.name, &experiment.cluster);
    let simulated = eyas_sim::run(cluster, policies, &*experiment.workload, SEED);
    let home = home();
    let path = std::env::var("PATH").unwrap_or_default();
    let options = ["--policy", policies.placement.name()];
    let dispatcher = Dispatcher::start_as(home.path(), "127.0.0.1:0", "3s", &path, &options);
    let access = Access::load(&dispatcher.access).expect("written whole");
    let farm = FarmThread::start(&access, of.clone());
    client::submit_as_they_arrive(&access, experiment);
    let FarmFigures { outcome, latest } = farm.end();
    print(experiment, name, "real", &outcome);
    print(experiment, "", "simulated", &simulated);
    let (PaperResult::Makespan(paper) | PaperResult::Efficiency(paper)) = experiment.measured;
    println!("{:<20} {:<11} {paper:>8.3}", "", "the paper's");
    println!(
        "{:<20} {:.0} s of processor time and {} MB; the farm was late by at most {:.0} ms",
        "",
        dispatcher.cpu_s(),
        resident_bytes(dispatcher.process(), "VmHWM") >> 20,
        latest.as_secs_f64() * 1e3
    );
}

fn print(experiment: &Experiment, name: &str, dispatcher: &str, outcome: &RunOutcome) {
    let gb = |bytes: u64| bytes as f64 / 1e9;
    println!(
        "{name:<20} {dispatcher:<11} {:>8.3} {:>8.0} {:>7.1} s {:>11.0} {:>7.0} {:>11.0} {:>13.0}",
        experiment.measure(outcome),
        outcome.makespan_s(),
        outcome.responded_ns as f64 / outcome.done as f64 / 1e9,
        outcome.done as f64 / outcome.makespan_s(),
        gb(outcome.reads.bytes()),
        gb(outcome.peer_bytes),
        gb(outcome.storage_bytes),
    );
}
