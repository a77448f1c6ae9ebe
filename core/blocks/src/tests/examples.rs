//! The worked examples: makespans if leases cost no time, and the chunks of each worker.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use eyas_types::dfs::NodeId;

use super::{MB, SECOND, job, lean};
use crate::{
    Alpha, BlockPolicy, Blocks, Config, Effect, Lean, Multiwave, POLICIES, Sizes, WorkerBlock,
    WorkerId,
};

/// Seven workers at one chunk a second, and one at a quarter of that.
const SPEEDS: [u64; 8] = [MB, MB, MB, MB, MB, MB, MB, MB / 4];

/// The time at which all of 64 chunks are committed, in units of a chunk on a fast worker. If two
/// workers ask at the same time, the lower one goes first. A worker asks when it has nothing more
/// to read.
fn makespan(config: Config, speeds: &[u64]) -> f64 {
    let nodes: Vec<_> = (0..speeds.len() as u64).map(NodeId).collect();
    let mut blocks = Blocks::new(config, vec![(MB, &nodes[..]); 64], 1, [], 0);
    let mut owners: Vec<_> =
        nodes.iter().map(|node| WorkerBlock::new(WorkerId(node.0), *node)).collect();
    let mut turns: BTreeSet<(u64, usize)> = (0..owners.len()).map(|worker| (0, worker)).collect();
    let mut effects = Vec::new();
    while let Some((now_us, worker)) = turns.pop_first() {
        let owner = &mut owners[worker];
        if now_us > 0 {
            owner.end_chunk();
        }
        while owner.current().is_none() && !owner.is_at_end() {
            blocks.handle(now_us, owner.heartbeat(), &mut effects);
            effects.drain(..).for_each(|effect| owner.told(&effect));
            blocks.validate();
        }
        if owner.is_at_end() {
            blocks.handle(now_us, owner.commit().expect("it was given something"), &mut effects);
        } else {
            turns.insert((now_us + MB * SECOND / speeds[worker], worker));
        }
        if blocks.is_complete() {
            return now_us as f64 / SECOND as f64;
        }
    }
    panic!("{} of 64 chunks are committed", blocks.committed_chunks());
}

/// One slot for each worker, and no stealing, as in the examples.
fn plain(policy: BlockPolicy) -> Config {
    let slots = (0..8).map(|node| (NodeId(node), None)).collect();
    Config { steal: false, speculate: false, term_us: 1_000 * SECOND, ..Config::new(policy, slots) }
}

#[test]
fn makespans_against_a_straggler() {
    let lean_with =
        |alpha| BlockPolicy::Lean(Lean { alpha: Alpha::Fixed(alpha), sizes: Sizes::Fixed(1) });
    for (policy, expected) in [
        (BlockPolicy::Static, 32.0),
        (lean(Sizes::Fixed(1)), 9.0),
        (lean(Sizes::Guided { divisor: 1 }), 12.0),
        (lean(Sizes::Guided { divisor: 4 }), 9.0),
        (lean_with(0.25), 9.0),
        (lean_with(0.3), 9.0),
        (lean_with(0.5), 16.0),
        (lean_with(0.7), 20.0),
    ] {
        assert_eq!(makespan(plain(policy), &SPEEDS), expected, "{policy:?}");
    }
}

#[test]
fn lean_as_it_is_meant_comes_close_to_the_bound() {
    let bound = 64.0 * MB as f64 / SPEEDS.iter().sum::<u64>() as f64;
    assert!((8.82..8.84).contains(&bound));
    let policy = BlockPolicy::named("lean").unwrap();
    let unknown = Config { window_us: 0, steal: true, ..plain(policy) };
    let known = Config {
        slots: SPEEDS.iter().zip(0..).map(|(speed, node)| (NodeId(node), Some(*speed))).collect(),
        ..unknown.clone()
    };
    for config in [unknown, known] {
        let makespan = makespan(config, &SPEEDS);
        assert!(makespan <= 1.10 * bound, "{makespan}, and it cannot be less than {bound}");
    }
}

/// The chunks of each worker if the workers take leases in turn until none is left.
fn dealt(blocks: &mut Blocks, nodes: &[NodeId]) -> Vec<Vec<Vec<u32>>> {
    let mut dealt = vec![Vec::new(); nodes.len()];
    let mut owners: Vec<_> = nodes
        .iter()
        .zip(0..)
        .map(|(node, worker)| WorkerBlock::new(WorkerId(worker), *node))
        .collect();
    let mut effects = Vec::new();
    while owners.iter().any(|owner| !owner.is_at_end()) {
        for (owner, dealt) in owners.iter_mut().zip(&mut dealt) {
            while owner.current().is_some() {
                owner.end_chunk();
            }
            blocks.handle(0, owner.heartbeat(), &mut effects);
            blocks.validate();
            for effect in effects.drain(..) {
                owner.told(&effect);
                if let Effect::Granted { chunks, .. } = effect {
                    dealt.push(chunks);
                }
            }
        }
    }
    dealt
}

#[test]
fn multiwave_deals_the_largest_wave_first() {
    for (chunks, waves) in [(64, &[8, 4, 2, 2][..]), (7, &[2])] {
        let nodes = [1, 1, 2, 2].map(NodeId);
        let slots = nodes.iter().map(|node| (*node, None)).collect();
        let policy =
            BlockPolicy::MultiwaveWith(Multiwave { min_block_bytes: 2 * MB, max_waves: None });
        let mut blocks = job(&Config::new(policy, slots), chunks, 1, Vec::new());
        let dealt = dealt(&mut blocks, &nodes);
        let sizes: Vec<Vec<_>> =
            dealt.iter().map(|leases| leases.iter().map(Vec::len).collect()).collect();
        assert_eq!(sizes[..3], [waves, waves, waves]);
        let mut all: Vec<_> = dealt.into_iter().flatten().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (0..chunks as u32).collect::<Vec<_>>());
    }
}

#[test]
fn every_scheduler_deals_each_chunk_once_and_where_it_is() {
    let nodes = [1, 2, 3, 4].map(NodeId);
    for (name, policy) in POLICIES {
        let config = plain(*policy);
        let config = Config { slots: nodes.map(|node| (node, Some(MB))).to_vec(), ..config };
        // Each chunk is on two of the nodes, some are on none.
        let replicas: Vec<_> =
            (0..96).map(|n| [nodes[n % 4], nodes[(n + 1 + n / 4 % 3) % 4]]).collect();
        let chunks = replicas.iter().enumerate();
        let chunks = chunks.map(|(n, nodes)| (MB, if n % 24 == 0 { &[][..] } else { &nodes[..] }));
        let mut blocks = Blocks::new(config, chunks, 1, [], 0);
        let dealt = dealt(&mut blocks, &nodes);
        let mut local = 0;
        let mut all = BTreeMap::new();
        for (node, chunk) in nodes
            .iter()
            .zip(&dealt)
            .flat_map(|(node, leases)| leases.iter().flatten().map(move |chunk| (node, chunk)))
        {
            local += usize::from(chunk % 24 != 0 && replicas[*chunk as usize].contains(node));
            assert!(all.insert(*chunk, *node).is_none(), "{name}: chunk {chunk} was dealt twice");
        }
        assert_eq!(all.len(), 96, "{name}");
        assert!(local >= 84, "{name}: {local} of 92 were local");
    }
}
