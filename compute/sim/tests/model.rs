//! The abstract model beside the simulator, on random clusters and workloads of the model's domain.
//! They agree within 15 %, and no prediction is below what any resource allows.
//!
//! By default this runs 40 scenarios; `EYAS_MODEL_SCENARIOS=1000 cargo test --workspace --test
//! model`, or `make soak`, runs more.

use eyas_sim::arrival::Arrival;
use eyas_sim::cluster::{Disk, Policies, SimCluster, SimStorage};
use eyas_sim::model::{Demand, ModelError, Prediction, predict};
use eyas_sim::random::Random;
use eyas_sim::run;
use eyas_sim::workload::Workload;
use eyas_types::PlacementPolicy;

/// Default number of scenarios.
const FEW: u64 = 40;
/// Largest relative difference of model and simulator.
const APART: f64 = 0.15;

/// Tasks that read objects of one size, all equally likely, and vary by half in computing time.
#[derive(Debug)]
struct UniformTasks {
    objects: u32,
    object_bytes: u64,
    tasks: u64,
    inputs: u32,
    compute_us: u64,
    interval_us: u64,
    seed: u64,
}

impl Workload for UniformTasks {
    fn objects(&self) -> u32 {
        self.objects
    }

    fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    fn tasks(&self) -> u64 {
        self.tasks
    }

    fn arrivals(&self) -> Box<dyn Iterator<Item = Arrival> + '_> {
        let mut dice = Random::new(self.seed);
        Box::new((0..self.tasks).map(move |task| {
            let first = dice.below(self.objects.into()) as u32;
            let inputs = (0..self.inputs).map(|next| (first + next) % self.objects).collect();
            let compute_us = (self.compute_us as f64 * (0.5 + dice.share())) as u64;
            Arrival { at_us: task * self.interval_us, inputs, compute_us, ..Arrival::default() }
        }))
    }
}

/// A random number between `least` and `most`, uniform on a logarithmic scale.
fn any(dice: &mut Random, least: f64, most: f64) -> f64 {
    least * libm::pow(most / least, dice.share())
}

fn one_of<T: Copy>(dice: &mut Random, all: &[T]) -> T {
    all[dice.below(all.len() as u64) as usize]
}

fn chance(dice: &mut Random, one_in: u64) -> bool {
    dice.below(one_in) == 0
}

/// A random cluster, policies and workload. Many are in the model's domain, not all.
fn scenario(seed: u64) -> (SimCluster, Policies, UniformTasks, Demand) {
    let dice = &mut Random::new(seed);
    let (stores, overlap) = (chance(dice, 2), chance(dice, 2));
    let disk =
        Disk { read_bytes_per_s: any(dice, 50e6, 2e9), write_bytes_per_s: any(dice, 50e6, 2e9) };
    let client_bytes_per_s = any(dice, 10e6, 1e9);
    let storage = SimStorage {
        bytes_per_s: any(dice, 50e6, 20e9),
        client_bytes_per_s: chance(dice, 2).then_some(client_bytes_per_s),
        latency_ns: any(dice, 1e5, 1e8) as u64,
    };
    let bisection_bytes_per_s = any(dice, 50e6, 20e9);
    let cluster = SimCluster {
        nodes: 1 + dice.below(if stores { 10 } else { 24 }) as u32,
        cpus: 1 + dice.below(4) as u32,
        cache_bytes: 1 << 44,
        card_bytes_per_s: any(dice, 50e6, 2e9),
        disk: chance(dice, 2).then_some(disk),
        page_cache_bytes: one_of(dice, &[0, 3_000_000_000]),
        bisection_bytes_per_s: chance(dice, 4).then_some(bisection_bytes_per_s),
        storage,
        decision_ns: any(dice, 1e4, 1e6) as u64,
        ..SimCluster::teragrid_64(0)
    };
    let (inputs, processors) = (1 + dice.below(3) as u32, cluster.processors());
    let (objects, tasks) = if stores {
        let objects = processors * u64::from(inputs) * (5 + dice.below(25));
        (objects, (objects * (20 + dice.below(30))).div_ceil(inputs.into()).max(20 * processors))
    } else {
        (10 + dice.below(1000), processors * (20 + dice.below(60)))
    };
    let interval_us = any(dice, 10.0, 1e5) as u64;
    let workload = UniformTasks {
        objects: objects as u32,
        object_bytes: any(dice, 1e5, 1e8) as u64,
        tasks,
        inputs,
        compute_us: any(dice, 1e4, 2e7) as u64,
        interval_us: if chance(dice, 4) { interval_us } else { 0 },
        seed,
    };
    use PlacementPolicy::{Cost, FirstAvailable, GoodCacheCompute, MaxComputeUtil};
    let placement = if stores {
        one_of(dice, &[MaxComputeUtil, GoodCacheCompute, Cost])
    } else {
        FirstAvailable
    };
    let of = one_of(dice, &[Policies::of_the_paper as fn(_) -> _, Policies::of_eyas]);
    let policies = Policies { overlap, ..of(placement) };
    let demand = Demand {
        tasks,
        inputs,
        objects,
        object_bytes: workload.object_bytes,
        compute_s: workload.compute_us as f64 / 1e6,
        arriving_per_s: (workload.interval_us > 0).then(|| 1e6 / workload.interval_us as f64),
        misses: (!stores).then_some(1.0),
        peer_hits: 0.0,
        overlap,
    };
    (cluster, policies, workload, demand)
}

#[test]
fn model_and_simulator_agree_on_random_scenarios_of_the_domain() {
    let asked = std::env::var("EYAS_MODEL_SCENARIOS").ok();
    let count = asked.map_or(FEW, |asked| asked.parse().expect("EYAS_MODEL_SCENARIOS is a number"));
    let (mut drawn, mut looked_at, mut sum) = (0, 0, 0.0);
    for seed in 0.. {
        if looked_at == count {
            break;
        }
        let (cluster, policies, workload, demand) = scenario(seed);
        drawn += 1;
        let prediction = predict(&cluster, &demand).expect("a random scenario can run");
        if !prediction.doubts.is_empty() {
            continue;
        }
        looked_at += 1;
        let simulated_s = run(&cluster, &policies, &workload, seed).makespan_s();
        let apart = (prediction.time_s / simulated_s - 1.0).abs();
        sum += apart;
        assert!(
            apart <= APART,
            "seed {seed}: {simulated_s} s simulated, {} s predicted, for {cluster:?} {policies:?} \
             {workload:?} {prediction:?}",
            prediction.time_s
        );
    }
    println!(
        "{looked_at} scenarios of {drawn} drawn: {:.2} % apart on average",
        100.0 * sum / looked_at as f64
    );
    assert!(
        2 * looked_at > drawn,
        "the domain is a small part of what was drawn: {looked_at} of {drawn}"
    );
}

/// Lower bounds of the run time by resource, in seconds, computed from bytes moved and computing
/// time alone.
fn floors(
    cluster: &SimCluster,
    demand: &Demand,
    prediction: &Prediction,
) -> Vec<(&'static str, f64)> {
    let Prediction { ratios, storage_bytes, peer_bytes, .. } = prediction;
    let (nodes, processors) = (f64::from(cluster.nodes), cluster.processors() as f64);
    let tasks = demand.tasks as f64;
    let fetched_bytes = storage_bytes + peer_bytes;
    let wait_s = ratios.storage * cluster.storage.latency_ns as f64 / 1e9;
    let infinite = f64::INFINITY;
    vec![
        ("computing", tasks * demand.compute_s / processors),
        ("one task", demand.compute_s),
        ("storage", storage_bytes / cluster.storage.bytes_per_s),
        (
            "clients",
            storage_bytes / (nodes * cluster.storage.client_bytes_per_s.unwrap_or(infinite)),
        ),
        ("cards", fetched_bytes / (nodes * cluster.card_bytes_per_s)),
        ("switch", fetched_bytes / cluster.bisection_bytes_per_s.unwrap_or(infinite)),
        ("one fetch", wait_s),
        ("deciding", tasks * cluster.decision_ns as f64 / 1e9 / f64::from(cluster.dispatchers)),
        ("arrivals", demand.arriving_per_s.map_or(0.0, |per_s| tasks / per_s)),
    ]
}

#[test]
fn no_prediction_is_below_what_a_resource_allows_and_only_caches_are_more_than_efficient() {
    let mut more_than_efficient = 0;
    for seed in 0..2_000 {
        let (mut cluster, _, _, mut demand) = scenario(seed);
        let dice = &mut Random::new(!seed);
        // These also leave the domain.
        cluster.nodes = any(dice, 1.0, 5_000.0) as u32;
        cluster.cache_bytes = any(dice, 1e9, 1e12) as u64;
        demand.tasks = any(dice, 1.0, 1e6) as u64;
        demand.objects = any(dice, 1.0, 1e6) as u64;
        demand.peer_hits = one_of(dice, &[0.0, 0.3, 1.0]);
        if chance(dice, 2) {
            demand.misses = Some(one_of(dice, &[0.0, 0.1, 1.0]));
        }
        let prediction = predict(&cluster, &demand).expect("a random scenario can run");
        for (what, floor_s) in floors(&cluster, &demand, &prediction) {
            assert!(
                prediction.time_s >= 0.999_999 * floor_s,
                "seed {seed}: {what} takes {floor_s} s: {prediction:?}"
            );
        }
        let is_memory_alike =
            cluster.nodes == 1 || cluster.disk.is_none() || cluster.page_cache_bytes == 0;
        if prediction.ratios == prediction.one_processor_ratios && is_memory_alike {
            assert!(prediction.efficiency <= 1.000_001, "seed {seed}: {prediction:?}");
        }
        more_than_efficient += u32::from(prediction.efficiency > 1.000_001);
    }
    assert!(more_than_efficient > 0, "stores that one node does not have are worth something");
}

#[test]
fn extreme_numbers_are_refused_or_answered_with_finite_ones() {
    let (cluster, _, _, demand) = scenario(1);
    let extreme =
        [0.0, -1.0, f64::MIN_POSITIVE, 1e-308, 1e-9, 1e30, f64::MAX, f64::INFINITY, f64::NAN];
    let mut answered = 0;
    let (mut refused, mut too_long) = (0, 0);
    for number in extreme {
        let mut storage = (cluster.clone(), demand);
        storage.0.storage.bytes_per_s = number;
        let mut client = (cluster.clone(), demand);
        client.0.storage.client_bytes_per_s = Some(number);
        let mut card = (cluster.clone(), demand);
        card.0.card_bytes_per_s = number;
        let mut switch = (cluster.clone(), demand);
        switch.0.bisection_bytes_per_s = Some(number);
        let arrivals = (cluster.clone(), Demand { arriving_per_s: Some(number), ..demand });
        let compute = (cluster.clone(), Demand { compute_s: number, ..demand });
        let misses = (cluster.clone(), Demand { misses: Some(number), ..demand });
        for (cluster, demand) in [storage, client, card, switch, arrivals, compute, misses] {
            match predict(&cluster, &demand) {
                Ok(prediction) => {
                    let Prediction { time_s, one_processor_s, speedup, efficiency, .. } =
                        prediction;
                    let Prediction { sustained_per_s, utilisation, task_s, .. } = prediction;
                    let all = [
                        time_s,
                        one_processor_s,
                        speedup,
                        efficiency,
                        sustained_per_s,
                        utilisation,
                        task_s,
                    ];
                    assert!(
                        all.iter().all(|number| number.is_finite()),
                        "{number}: {prediction:?}"
                    );
                    assert!(
                        prediction.busy.iter().all(|(_, busy_s)| *busy_s <= time_s),
                        "{prediction:?}"
                    );
                    answered += 1;
                }
                Err(ModelError::TooLong(_)) => too_long += 1,
                Err(_) => refused += 1,
            }
        }
    }
    assert!(answered > 9 && refused > 9 && too_long > 9, "{answered}, {refused}, {too_long}");
    let many = Demand {
        tasks: u64::MAX,
        objects: u64::MAX,
        object_bytes: u64::MAX,
        misses: Some(1.0),
        ..demand
    };
    assert!(matches!(predict(&cluster, &many), Err(ModelError::TooLong(_))));
}
