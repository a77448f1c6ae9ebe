//! Jobs with faults: messages are delayed, repeated or lost; workers die, stall, come back after
//! they were given up, and commit late; the leader restarts from its saved records, the last of
//! which may be lost.
//!
//! Only the chunks that workers of committed runs have really read count. Each chunk is read once
//! in them, whatever fails, and in the end all chunks are.
//!
//! `cargo test` tries 1,000 seeds (`EYAS_SEEDS=10000` tries 10,000), and `make soak MINUTES=10`
//! tries new seeds for 10 minutes. `EYAS_SEED=17 make soak` repeats a seed that failed.

#[path = "faults/world.rs"]
mod world;

use eyas_blocks::{Alpha, BlockPolicy, Lean, POLICIES, Sizes};
use eyas_faults::{Dice, run_twice, try_seeds};
use world::{Case, Faults, Outcome, SECOND};

/// Seeds that `cargo test` tries.
const SEEDS: u64 = 1_000;

#[test]
fn whatever_fails_each_chunk_counts_once() {
    let Some(outcomes) = try_seeds(SEEDS, try_seed) else { return };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let all = [
        sum(|of| of.restarts),
        sum(|of| of.lost_records),
        sum(|of| of.given_up),
        sum(|of| of.late_commits),
        sum(|of| of.split),
        sum(|of| of.copied),
    ];
    assert!(
        all.iter().all(|count| *count > outcomes.len() as u64 / 20),
        "too few faults happened: {all:?}"
    );
}

fn try_seed(seed: u64) -> Outcome {
    run_twice(&faulty(seed), Case::run)
}

/// A small job for this seed.
fn faulty(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let (_, mut policy) = POLICIES[dice.below(POLICIES.len() as u64) as usize];
    if let BlockPolicy::Lean(lean) = &mut policy {
        let alpha =
            [Alpha::Auto, Alpha::Fixed(0.1 * dice.below(11) as f64)][dice.below(2) as usize];
        let sizes = [
            Sizes::Factoring,
            Sizes::Fixed(1 + dice.below(8) as u32),
            Sizes::Guided { divisor: 1 },
        ];
        *lean = Lean { alpha, sizes: sizes[dice.below(3) as usize] };
    }
    let rare = |dice: &mut Dice| [0.0, 0.02, 0.2][dice.below(3) as usize];
    let faults = Faults {
        until_us: 60 * SECOND,
        delay_us: [1_000, SECOND][dice.below(2) as usize],
        lost: rare(&mut dice),
        repeated: rare(&mut dice),
        died: rare(&mut dice),
        stalled: rare(&mut dice),
        leader_us: [u64::MAX, 10 * SECOND, 2 * SECOND][dice.below(3) as usize],
    };
    Case {
        policy,
        steal: dice.below(3) > 0,
        speculate: dice.below(3) > 0,
        is_known: dice.below(2) == 0,
        window_us: [0, 100_000, 5 * SECOND][dice.below(3) as usize],
        speeds: (0..1 + dice.below(8)).map(|_| 500_000 + dice.below(20) * 500_000).collect(),
        sizes_bytes: (0..dice.below(80)).map(|_| dice.below(5) * 1_000_000).collect(),
        replication: dice.below(4) as usize,
        faults,
        seed,
    }
}

/// Without faults, and with messages that take half a millisecond.
fn quiet(policy: BlockPolicy, speeds: &[u64], chunks: usize, is_known: bool, seed: u64) -> Case {
    let is_lean = matches!(policy, BlockPolicy::Lean(_));
    Case {
        policy,
        steal: is_lean,
        speculate: is_lean,
        is_known,
        window_us: 50_000,
        speeds: speeds.to_vec(),
        sizes_bytes: vec![4 << 20; chunks],
        replication: 3,
        faults: Faults { delay_us: 500, ..Faults::NONE },
        seed,
    }
}

#[test]
fn lean_ends_when_it_could_at_best_and_a_chunk_of_the_slowest_later() {
    let lean = BlockPolicy::named("lean").expect("it is there");
    let mut worst: f64 = 0.0;
    for seed in 0..150 {
        let mut dice = Dice::new(seed);
        let (workers, is_known) = (2 + dice.below(15), dice.below(2) == 0);
        // Two in three runs have one straggler, as in the worked example. In the others, each
        // worker has its own speed.
        let speed = |worker, dice: &mut Dice| match seed % 3 {
            0 => (2 + dice.below(40)) * 1_000_000,
            1 => {
                if worker == 0 {
                    5_000_000
                } else {
                    20_000_000
                }
            }
            _ => {
                if worker == 0 {
                    4_000_000
                } else {
                    20_000_000
                }
            }
        };
        let speeds: Vec<u64> = (0..workers).map(|worker| speed(worker, &mut dice)).collect();
        let chunks = (workers * (8 + dice.below(40))) as usize;
        let makespan_s =
            quiet(lean, &speeds, chunks, is_known, seed).run().makespan_us as f64 / 1e6;
        let chunk_bytes = f64::from(4 << 20);
        let best_s = chunks as f64 * chunk_bytes / speeds.iter().sum::<u64>() as f64;
        let slowest_s = chunk_bytes / *speeds.iter().min().expect("there are some") as f64;
        assert!(
            makespan_s <= 1.10 * best_s + slowest_s,
            "seed {seed}: {makespan_s} s of {best_s} and {slowest_s} on {speeds:?}, {chunks} \
             chunks"
        );
        worst = worst.max(makespan_s / best_s);
    }
    println!("at worst {worst:.2} times the bound");
}

#[test]
fn a_straggler_costs_static_blocks_several_times_as_much() {
    let speeds = [20_000_000, 20_000_000, 20_000_000, 4_000_000];
    let makespan = |name| {
        let policy = BlockPolicy::named(name).expect("it is there");
        quiet(policy, &speeds, 256, false, 1).run().makespan_us as f64
    };
    let [lean, by_static] = ["lean", "static"].map(makespan);
    assert!(
        (3.0..4.5).contains(&(by_static / lean)),
        "static takes {:.2} times as long as lean",
        by_static / lean
    );
}
