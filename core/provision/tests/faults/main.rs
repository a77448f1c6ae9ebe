//! A pool on a batch system with faults: answers are lost, late or not understood after the job was
//! taken; jobs are listed late, start late, hang, fail and are forgotten; withdrawals are lost; the
//! dispatcher is killed between any two effects, or the cluster is stopped, and goes on from what
//! was saved.
//!
//! Whatever fails, there are never more nodes than the pool may have, with those that may still
//! start. A request is over only when no node of it can come. Once the faults end, the tasks get
//! their nodes. A pool that is removed leaves no job and no node behind.
//!
//! `cargo test` tries 100 seeds (`EYAS_SEEDS=10000` tries 10,000), and `make soak MINUTES=10` tries
//! new seeds for 10 minutes. `EYAS_SEED=17 make soak` repeats a seed that failed.

mod batch;
mod world;

use eyas_faults::{Dice, run_twice, try_seeds};
use eyas_types::ProvisioningPolicy;
use world::{Case, Faults, Outcome};

/// Seeds that `cargo test` tries.
const SEEDS: u64 = 100;

#[test]
fn whatever_fails_no_request_is_lost_and_no_node_is_too_many() {
    let Some(outcomes) = try_seeds(SEEDS, try_seed) else { return };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let all = [
        sum(|of| of.killed),
        sum(|of| of.stopped),
        sum(|of| of.unclear),
        sum(|of| of.found),
        sum(|of| of.not_found),
        sum(|of| of.late),
        sum(|of| of.lost_withdrawals),
        sum(|of| of.shut_out),
        sum(|of| of.hung),
        sum(|of| of.joined) / 10,
    ];
    assert!(
        all.iter().all(|count| *count > outcomes.len() as u64 / 10),
        "too few faults happened: {all:?}"
    );
}

fn try_seed(seed: u64) -> Outcome {
    run_twice(&faulty(seed), Case::run)
}

/// A random pool for this seed.
fn faulty(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let max_nodes = 1 + dice.below(8) as u32;
    let rare = |dice: &mut Dice| [0.0, 0.1, 0.4][dice.below(3) as usize];
    let faults = Faults {
        lost: rare(&mut dice),
        garbage: rare(&mut dice),
        refused: rare(&mut dice),
        late: rare(&mut dice),
        unknown: rare(&mut dice),
        silent: rare(&mut dice),
        lost_withdrawal: rare(&mut dice),
        hangs: rare(&mut dice),
        dies: rare(&mut dice),
        killed: [0.0, 0.001, 0.02][dice.below(3) as usize],
        stopped: [0.0, 0.002][dice.below(2) as usize],
    };
    Case {
        policy: ProvisioningPolicy::ALL[dice.below(ProvisioningPolicy::ALL.len() as u64) as usize],
        min_nodes: (dice.below(3) as u32).min(max_nodes),
        max_nodes,
        nodes_per_request: [1, 1, 3][dice.below(3) as usize],
        backlog: 1 + dice.below(8) as u32,
        slots: 1 + dice.below(3),
        starts_within_s: [10, 300][dice.below(2) as usize],
        is_forced: dice.below(3) == 0,
        faults,
        seed,
    }
}
