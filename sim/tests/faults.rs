//! Runs with whatever breaks: small clusters, workloads, policies and failures, all of them thrown with one seed.
//!
//! Each run ends, with every task done once, and the same seed gives the same run. That no executor has more tasks than
//! slots, nor more in its store than there is room, the simulator itself asserts; what contradicts earlier events, the
//! deciders.
//!
//! `cargo test` tries a few seeds, `make soak MINUTES=10` others for as long as asked. A seed that fails is tried again by
//! `EYAS_SEED=17 make soak`.

use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eyas_sim::clock::SECOND;
use eyas_sim::cluster::{Cluster, Deal, Policies};
use eyas_sim::nodes::{Batch, Failures};
use eyas_sim::outcome::Outcome;
use eyas_sim::random::Random;
use eyas_sim::run_watched;
use eyas_sim::workload::{AllPairs, Order, Workload, Zipf};
use eyas_types::{Distribution, EvictionPolicy, PlacementPolicy, ProvisioningPolicy};

/// Seeds of every day.
const SEEDS: u64 = 60;
/// A run that has not ended by then, in its own time, never does: without failures, an hour is enough for each.
const LIMIT: u64 = 30 * 86_400 * SECOND;

#[test]
fn whatever_breaks_all_tasks_are_done_once() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    match (number("EYAS_SEED"), number("EYAS_SOAK_MINUTES")) {
        (Some(seed), _) => println!("{:?}", try_seed(seed)),
        (None, Some(minutes)) => soak(Duration::from_secs(60 * minutes)),
        (None, None) => {
            let outcomes: Vec<_> = (0..SEEDS).map(try_seed).collect();
            let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
            assert!(sum(|of| of.lost_nodes) > SEEDS && sum(|of| of.broken_connections) > SEEDS, "too little breaks");
        }
    }
}

/// Tries seeds that nobody has tried, as long as that.
fn soak(time: Duration) {
    let began = Instant::now();
    let first = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970").as_millis() as u64;
    let seeds = (first..).take_while(|_| began.elapsed() < time).map(try_seed).count();
    println!("{seeds} seeds from {first} on: nothing has failed");
}

fn try_seed(seed: u64) -> Outcome {
    let _replay = Replay(seed);
    let case = Case::of(seed);
    let outcome = case.run();
    let Outcome { tasks, done, .. } = outcome;
    assert!(outcome.is_complete(), "{done} of {tasks} tasks were done: {case:?}");
    assert_eq!(outcome.course.samples.iter().map(|part| part.done).sum::<u64>(), tasks, "{case:?}");
    assert_eq!(format!("{outcome:?}"), format!("{:?}", case.run()), "the same seed is another run: {case:?}");
    outcome
}

/// Says how a seed is tried again when it fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to try this seed again: EYAS_SEED={} make soak", self.0);
        }
    }
}

#[derive(Debug)]
struct Case {
    cluster: Cluster,
    policies: Policies,
    zipf: Option<Zipf>,
    pairs: AllPairs,
    seed: u64,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let mut below = |count| dice.below(count);
        let object_bytes = 1_000_000 << below(6);
        let compute_us = 1_000 << below(11);
        let order = [Order::Rows, Order::Random(seed)][below(2) as usize];
        let pairs = AllPairs { side: 5 + below(15) as u32, object_bytes, compute_us, order };
        let zipf = Zipf {
            objects: 5 + below(60) as u32,
            tasks: 100 + below(400),
            interval_us: below(2) * 20_000,
            object_bytes,
            compute_us,
            seed,
            ..Zipf::default()
        };
        // A node is there for long enough that some task ends there, else none of these would ever be done.
        let failures = Failures {
            lost_after_ns: (below(2) == 0).then(|| (10 + below(60)) * SECOND),
            back_after_ns: Some((1 + below(60)) * SECOND),
            disconnected_after_ns: (below(2) == 0).then(|| (5 + below(30)) * SECOND),
            slow_disks: 0.1 * below(4) as f64,
            failed_requests: 0.2 * below(4) as f64,
        };
        let batch = Batch {
            policy: ProvisioningPolicy::ALL[below(ProvisioningPolicy::ALL.len() as u64) as usize],
            min_nodes: below(2) as u32,
            idle_ns: (1 + below(60)) * SECOND,
            walltime_ns: (121 + below(1_000)) * SECOND,
            ..Batch::default()
        };
        let (batch, nodes) = ((below(2) == 0).then_some(batch), 1 + below(12));
        let data_bytes = object_bytes * u64::from(zipf.objects.max(2 * pairs.side));
        // All objects are pushed to those who are there, and one dispatcher asks for nodes.
        let distribution = [None, Some(Distribution::Chain), Some(Distribution::SpanningTree)][below(3) as usize]
            .filter(|_| batch.is_none());
        let cluster = Cluster {
            nodes: nodes as u32,
            dispatchers: if batch.is_some() { 1 } else { 1 + below(nodes.min(3)) as u32 },
            cpus: 1 + below(4) as u32,
            cache_bytes: if distribution.is_some() { data_bytes } else { (2 + below(30)) * object_bytes },
            page_cache_bytes: below(10) * object_bytes,
            catalog_delay_ns: below(3) * SECOND,
            batch,
            failures,
            ..Cluster::teragrid_64(0)
        };
        let placement = PlacementPolicy::ALL[below(PlacementPolicy::ALL.len() as u64) as usize];
        let policies = if below(3) == 0 { Policies::of_the_paper(placement) } else { Policies::of_eyas(placement) };
        let eviction = EvictionPolicy::ALL[below(EvictionPolicy::ALL.len() as u64) as usize];
        let deal = [Deal::Objects, Deal::Turns][below(2) as usize];
        let policies = Policies { eviction, distribution, deal, ..policies };
        Case { cluster, policies, zipf: (below(2) == 0).then_some(zipf), pairs, seed }
    }

    fn run(&self) -> Outcome {
        let workload: &dyn Workload = self.zipf.as_ref().map_or(&self.pairs, |zipf| zipf);
        run_watched(&self.cluster, &self.policies, workload, self.seed, LIMIT, &mut |_| ControlFlow::Continue(()))
    }
}
