//! Clients that misbehave: they disconnect, exceed their lease, cancel, report late and twice, ask
//! for the same bytes and for too much at once.
//!
//! After every step the decider's state is consistent, and no more grants are outstanding than
//! permitted. In the end every request that its client still wanted was let go exactly once, and no
//! run spanned two files or operations.
//!
//! `cargo test` tries 150 seeds, or as many as `EYAS_SEEDS=10000` says. `make soak MINUTES=10`
//! tries new ones for that time. `EYAS_SEED=17 make soak` repeats a seed that failed.

mod world;

use std::num::{NonZeroU32, NonZeroU64};

use eyas_faults::{Dice, run_twice, try_seeds};
use eyas_ioq::{Budget, ClassId, ClassQos, Config, POLICIES, Striping};
use world::{Case, Outcome};

/// Seeds that `cargo test` tries.
const SEEDS: u64 = 150;

#[test]
fn each_request_is_let_go_once() {
    let Some(outcomes) = try_seeds(SEEDS, try_seed) else { return };
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let all = [
        sum(|of| of.vanished),
        sum(|of| of.revoked),
        sum(|of| of.cancelled),
        sum(|of| of.holds),
        sum(|of| of.together),
        sum(|of| of.granted) / 20,
    ];
    assert!(
        all.iter().all(|count| *count > outcomes.len() as u64 / 2),
        "too few faults happened: {all:?}"
    );
}

fn try_seed(seed: u64) -> Outcome {
    run_twice(&faulty(seed), Case::run)
}

fn striping(dice: &mut Dice) -> Striping {
    let servers = NonZeroU32::new(1 + dice.below(4) as u32);
    let stripe_bytes = NonZeroU64::new([1 << 10, 6 << 10, 1 << 20][dice.below(3) as usize]);
    let (servers, stripe_bytes) = servers.zip(stripe_bytes).expect("they are at least 1");
    Striping { servers, stripe_bytes }
}

/// A random case for this seed.
fn faulty(seed: u64) -> Case {
    let mut dice = Dice::new(seed);
    let rare = |dice: &mut Dice| [0.0, 0.01, 0.1][dice.below(3) as usize];
    let maybe = |dice: &mut Dice, per_s: u64| (dice.below(3) == 0).then_some(per_s);
    let config = |dice: &mut Dice| {
        let qos = |dice: &mut Dice| ClassQos {
            reservation_bytes_per_s: maybe(dice, 10_000_000),
            limit_bytes_per_s: maybe(dice, 20_000_000),
            weight: 1 + dice.below(4) as u32,
        };
        Config {
            policy: POLICIES[dice.below(POLICIES.len() as u64) as usize].1,
            max_run_bytes: [8 << 10, 1 << 20, 16 << 20][dice.below(3) as usize],
            window_us: [0, 300, 5_000][dice.below(3) as usize],
            margin_us: [None, Some(0), Some(200)][dice.below(3) as usize],
            bandwidth_bytes_per_s: [1_000_000, 100_000_000][dice.below(2) as usize],
            budget: Budget {
                concurrency: [Some(1), None, Some(4)][dice.below(3) as usize],
                bytes_per_s: maybe(dice, 50_000_000),
                requests_per_s: maybe(dice, 5_000),
            },
            lease_us: 50_000,
            classes: (0..dice.below(3) as u32).map(|class| (ClassId(class), qos(dice))).collect(),
        }
    };
    Case {
        configs: (0..1 + dice.below(3)).map(|_| config(&mut dice)).collect(),
        clients: 1 + dice.below(12),
        asks: 1 + dice.below(30),
        pattern: dice.below(3),
        piece_bytes: [1 << 10, 4 << 10, 256 << 10][dice.below(3) as usize],
        delay_us: [10, 200, 20_000][dice.below(3) as usize],
        vanishes: rare(&mut dice),
        stalls: rare(&mut dice),
        cancels: rare(&mut dice),
        striping: (dice.below(3) == 0).then(|| striping(&mut dice)),
        seed,
    }
}
